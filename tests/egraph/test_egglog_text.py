"""Tests a search as egglog text: the egglog package accepts it, and builds the same e-graph."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import run
from egglog.bindings import EGraph

import glenside as gl
from glenside.egraph.sexpr import parts
from glenside.ir.operator import OPERATORS
from glenside.rewrites import RULES, declare

PRODUCT = "(compute dot-product (access-product (access (access-tensor a) 1) (access (access-tensor b) 1) 0))"
TEXT = f"(compute relu {PRODUCT})"
SHAPES = {"a": (3, 5), "b": (7, 5)}


def e_nodes(text: str) -> int:
    """Returns the e-nodes after egglog has run a text, whose last command prints sizes."""
    egraph = EGraph()
    outputs = [line for command in parts(text) for line in egraph.run_program(*egraph.parse_program(command))]
    return sum(size for name, size in outputs[-1].sizes if name in OPERATORS)


@pytest.mark.parametrize(
    "target",
    [
        "systolic-array:2x2",
        "cpu",
        pytest.param("convolution-unit:nhwc", marks=pytest.mark.slow),
        pytest.param("npu:4x4", marks=pytest.mark.slow),
        pytest.param("mpc:semi2k", marks=pytest.mark.slow),
    ],
)
def test_egglog_finds_as_many_e_nodes(target: str) -> None:
    program = gl.parse(TEXT, shapes=SHAPES)
    text = gl.export_egglog(program, target)
    assert text.count("\n") > 100
    found = gl.optimize(program, target, verify=False).report.e_nodes
    assert e_nodes(text) == found
    (said,) = re.findall(r"; The search: .* ([\d,]+) e-nodes, saturated", text)
    assert int(said.replace(",", "")) == found


def test_a_rule_of_a_user_is_in_the_text_and_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declare, "RULES", dict(RULES))

    @gl.rule(gl.Example("(compute tanh (compute tanh (access-tensor x)))", {"x": "m n"}))
    def tanhs_are_one(a):  # type: ignore[no-untyped-def]
        """tanh(tanh(a)) = tanh(a). Sound because .. it is not: nothing here relies on it."""
        return gl.rewrite(gl.op.compute("tanh", gl.op.compute("tanh", a)), gl.op.compute("tanh", a))

    term = f"(compute tanh (compute tanh {PRODUCT}))"
    text = gl.export_egglog(gl.parse(term, shapes=SHAPES), "systolic-array:2x2", rules=[tanhs_are_one])
    egraph = EGraph()
    nodes = re.findall(r'\(union \(program-node (\d+)\) \(compute "tanh"', text)
    assert len(nodes) == 2
    equal = "(check (= {} {}))".format(*(f"(program-node {n})" for n in nodes))
    for command in [*parts(text), equal]:
        egraph.run_program(*egraph.parse_program(command))


def test_commands_print_and_write_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.glenside"
    path.write_text(f"(input a (shape 3 5))\n(input b (shape 7 5))\n{TEXT}")
    assert run("optimize", path, "--array", "2x2", "--emit", "egglog") == 0
    printed = capsys.readouterr().out
    assert printed == gl.export_egglog(gl.load(str(path)), "systolic-array:2x2")
    assert run("tensorize", path, "--array", "2x2", "--emit", "egglog", "-o", tmp_path / "p.egg") == 0
    assert (tmp_path / "p.egg").read_text() == printed
    assert run("tensorize", path, "--array", "2x2", "--emit", "eglog") == 2
    assert "did you mean egglog?" in capsys.readouterr().err
