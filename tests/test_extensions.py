"""Tests an operator, rules and a target from outside the package: each needs one file, and is supported like ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run
from rule_checks import assert_all_equal, saturated

import glenside as gl
from glenside.egraph.rule import Rule
from glenside.ir.operator import OPERATORS
from glenside.ir.reference import markdown
from glenside.ir.text import parse, print_term
from glenside.rewrites import RULES
from glenside.semantics import PrimeField
from glenside.targets import TARGETS

HERE = Path(__file__).parent / "extensions"
MODULES = ("access_roll", "rolls", "mover")
TEXT = "(access-roll (access-roll (compute relu (access (access-tensor x) 1)) 1 4) 1 3)"
SHAPES = {"x": (3, 5, 2)}


@pytest.fixture(autouse=True)
def extensions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The three files, loaded as a user's own modules are, and forgotten afterwards."""
    monkeypatch.syspath_prepend(str(HERE))
    assert TARGETS  # ours are loaded, so that what is new is theirs
    tables: tuple[dict[str, Any], ...] = (OPERATORS, RULES, TARGETS)
    before = [set(table) for table in tables]
    for name in MODULES:
        import_module(name)
    yield
    for table, known in zip(tables, before, strict=True):
        for name in set(table) - known:
            del table[name]
    for name in MODULES:
        del sys.modules[name]


def _rules() -> list[Rule]:
    return [rule for rule in RULES.values() if rule.family == "rolls"]


def test_the_operator_is_read_printed_typed_and_evaluated() -> None:
    program = parse(TEXT, shapes=SHAPES)
    assert parse(print_term(program.term), shapes=SHAPES).term is program.term
    assert program.term.access.dims == (3, 5, 2)
    x = np.arange(30, dtype=np.float32).reshape(3, 5, 2)
    (value,) = gl.evaluate([program.term], {"x": x})
    assert np.array_equal(value, np.roll(x, 7, 1))
    with pytest.raises(gl.GlensideError, match="access-roll requires 0 <= axis < 3, got 3"):
        parse("(access-roll (access-tensor x) 3 1)", shapes=SHAPES)


def test_its_index_map_is_its_meaning_in_every_number_system() -> None:
    operator = OPERATORS["access-roll"]
    for seed in range(5):
        term = operator.examples[0].program(seed).term
        operand = term.children[0].access
        x = np.random.default_rng(seed).integers(-9, 9, operand.dims).astype(np.float32)
        expected = operator.index_map(operand, *term.attributes).gather([x])
        (value,) = gl.evaluate([term], {"x": x})
        assert np.array_equal(value, expected)
        (residues,) = gl.evaluate([term], {"x": x.astype(np.int64)}, PrimeField())
        assert np.array_equal(residues, expected)


def test_its_adjoint_is_its_derivative_and_one_without_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse(f"(let ((rolled {TEXT})) (compute tanh rolled))", shapes=SHAPES)
    x, g = (np.random.default_rng(seed).standard_normal((3, 5, 2)).astype(np.float32) for seed in (0, 1))
    (found,) = gl.evaluate([gl.gradient(program, "x", cotangent="g").term], {"x": x, "g": g})
    back = g * (1 - np.tanh(np.roll(np.maximum(x, 0), 7, 1)) ** 2)
    np.testing.assert_allclose(found[0], np.roll(back, -7, 1) * (x > 0), rtol=1e-5)
    operator = program.term.children[0].operator
    monkeypatch.setitem(operator.__dict__, "adjoint", None)
    with pytest.raises(gl.GlensideError, match=r"operators with a derivative, got access-roll of rolled$"):
        gl.gradient(program, "x", cotangent="g")


def test_its_rules_fire_are_sound_and_keep_types() -> None:
    for rule in _rules():
        for example in rule.examples:
            snapshot, search = saturated(example.program(1), [rule], example.parameters)
            assert search.progress.rules[rule.name].matches > 0
            assert search.progress.stopped == "saturated"
            assert_all_equal(snapshot)


def test_its_target_optimizes_checks_and_reports() -> None:
    program = parse(TEXT, shapes=SHAPES)
    result = gl.optimize(program, gl.parse_target("mover:1"))
    assert print_term(result.program.term).count("access-roll") == 1
    assert (result.report.checked, result.stopped) == ("exact", "saturated")
    assert (result.cost["moved"], result.report.baseline["moved"]) == (30, 60)
    assert json.loads(json.dumps(result.report.as_dict()))["totals"]["chosen"] == {"moved": 30}
    assert result.report.rules["rolls-add-up"].matches > 0


def test_a_wrong_neighbour_is_told_from_it() -> None:
    program = parse("(access-roll (access-tensor x) 1 2)", shapes=SHAPES)
    other = parse("(access-roll (access-tensor x) 1 3)", shapes=SHAPES)
    from glenside.check import check

    assert "differs" in check(program, other).result


def test_it_goes_to_onnx_and_jax() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    program = parse(TEXT, shapes=SHAPES)
    model = gl.export_onnx(program)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = np.random.default_rng(0).standard_normal((3, 5, 2)).astype(np.float32)
    (found,) = session.run(None, {"x": x})
    (expected,) = gl.evaluate([program.term], {"x": x})
    assert np.array_equal(found, expected)
    assert "(v2 + 1) % 5" in gl.export_jax(program)


def test_the_reference_and_the_command_line_know_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "access-roll" in markdown()
    assert run("ops", "--json") == 0
    assert "access-roll" in capsys.readouterr().out
    path = tmp_path / "roll.glenside"
    path.write_text(str(parse(TEXT, shapes=SHAPES)))
    assert run("optimize", path, "--target", "mover:1", "--no-cache") == 0
    assert capsys.readouterr().out.count("access-roll") == 1
    assert run("rules", "rolls-add-up") == 0
    assert "mod size" in capsys.readouterr().out
