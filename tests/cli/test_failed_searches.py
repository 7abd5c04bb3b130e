"""A rule that is wrong: no panic reaches a user, the sentence names the rule, and the baseline is the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from command_line import run

import glenside as gl
from glenside import stages
from glenside.cli.output import FAILED
from glenside.egraph import search as searches
from glenside.egraph.pattern import Variable
from glenside.egraph.process import Worker, end_idle
from glenside.egraph.rule import Example, Rule
from glenside.ir.errors import Failed
from glenside.passes import network
from glenside.rewrites import of_families
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, union, when
from glenside.sweep.cells import Cell, Row, cells, optimize_cell

DOT = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"
DECLARED = f"(input a (shape 5 9)) (constant b (shape 7 9)) (compute relu {DOT})"
PAIRS = Variable("a")
SAYS = "the rule products-are-pairs is wrong: it makes"


def _wrong() -> Rule:
    """Whatever else is found of a product, its pairs of rows are another type."""
    unsound = when(ROOT == op.dot_product(PAIRS)).then(union(ROOT, op.access(PAIRS, 1)))
    return Rule("products-are-pairs", "test", "", (unsound,), (Example("(access-tensor x)", {"x": "m"}),))


@pytest.fixture
def wrong_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (stages, network):
        monkeypatch.setattr(module, "of_families", lambda names: (*of_families(names), _wrong()))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "my.glenside"
    path.write_text(DECLARED)
    return path


TARGETS = (
    gl.SystolicArray(4, 2),
    *(pytest.param(t, marks=pytest.mark.slow) for t in (gl.NPU(4, 4), gl.CPU("8MB"), gl.MPC(), gl.ConvolutionUnit())),
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.usefixtures("wrong_rule")
def test_the_baseline_is_kept_and_checked_on_every_target(target: gl.Target) -> None:
    result = gl.optimize(gl.parse(DECLARED), target)
    assert result.stopped == "failed"
    assert result.report.checked in ("exact", "equal as reals")
    assert result.report.mapped == len(result.report.layers) == 1
    assert not result.report.ok
    (fault,) = result.report.faults
    assert fault.startswith(SAYS)
    assert "of type (5 7)() float32, equal to (access (access-cartesian-product" in fault


COMMANDS = (
    pytest.param(("tensorize", "--target", "npu:4x4"), marks=pytest.mark.slow),
    ("tensorize", "--target", "mpc:semi2k"),
    ("optimize", "--target", "cpu:8MB"),
    pytest.param(("optimize", "--array", "4x4", "--emit", "egraph", "-o", "OUT.json"), marks=pytest.mark.slow),
    pytest.param(("layout",), marks=pytest.mark.slow),
    pytest.param(("compare", "--array", "4x4"), marks=pytest.mark.slow),
    ("compile", "--target", "cpu", "-o", "OUT.c"),
    pytest.param(("sweep", "--arrays", "4x4", "--jobs", "1"), marks=pytest.mark.slow),
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("wrong_rule")
def test_every_command_says_it_in_one_sentence_with_a_status_of_its_own(
    command: tuple[str, ...],
    program: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def here(wanted: Sequence[Cell], _: object) -> Iterator[tuple[int, Row]]:
        yield from enumerate(map(optimize_cell, wanted))

    monkeypatch.setattr("glenside.cli.commands.sweep._runner", lambda *_: nullcontext(here))
    words = [word.replace("OUT", str(tmp_path / "out")) for word in command[1:]]
    status = run(command[0], program, *words)
    out, errors = capfd.readouterr()
    said = " ".join((out + errors).split())
    assert status == FAILED, said
    assert SAYS in said
    assert "Traceback" not in said
    assert "Panic" not in said


@pytest.mark.usefixtures("wrong_rule")
def test_json_has_the_fault(program: Path, tmp_path: Path) -> None:
    assert (
        run("tensorize", program, "--array", "4x4", "--json", tmp_path / "r.json", "-o", tmp_path / "o.glenside") == 3
    )
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["search"]["stopped"] == "failed"
    assert content["faults"][0].startswith(SAYS)
    assert gl.load(str(tmp_path / "o.glenside")).term.access.dims == (5, 7)


@pytest.mark.usefixtures("wrong_rule")
def test_a_compiled_function_is_of_the_baseline(program: Path) -> None:
    f = gl.compile(gl.load(str(program)).seeded_constants(0), gl.CPU("8MB"))
    assert f.report.found is not None
    assert f.report.found.faults[0].startswith(SAYS)
    x = np.ones((5, 9), np.float32)
    assert np.allclose(f(x), np.maximum(x @ gl.load(str(program)).seeded_constants(0).constants["b"].T, 0), atol=1e-4)


@pytest.mark.usefixtures("wrong_rule")
def test_a_row_of_a_sweep_is_of_the_baseline(program: Path) -> None:
    (cell,) = cells([str(program)], "4x4", "cycles", (), True)
    row = optimize_cell(cell)
    assert row.stopped.startswith(f"failed: {SAYS}")
    assert not row.ok
    assert (row.mapped, row.checked) == (1, "exact")


def test_a_process_that_dies_leaves_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(Worker):
        def send(self, request: object) -> None:
            super().send(request)  # type: ignore[arg-type]
            self._process.kill()

    end_idle()
    monkeypatch.setattr(searches, "Worker", Dying)
    monkeypatch.setattr(searches, "IDLE", [])
    result = gl.optimize(gl.parse(DECLARED), gl.SystolicArray(4, 2), worker=Dying)
    assert (result.stopped, result.report.mapped) == ("failed", 1)
    assert "ended without an answer" in result.report.faults[0]


def test_where_nothing_is_known_without_the_rule_the_error_is_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "of_families", lambda names: (*of_families(names), _wrong()))
    monkeypatch.setattr(stages.Stages, "_extracted", lambda *_: None)
    with pytest.raises(Failed, match="products-are-pairs"):
        gl.optimize(gl.parse(DECLARED), gl.MPC())
