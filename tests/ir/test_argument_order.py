"""Tests the order of positional arguments: as declared, whatever the term reads first; results keep their names."""

from __future__ import annotations

import ast
import itertools
import random
import re
from pathlib import Path

import numpy as np
import pytest

import glenside as gl
from glenside.codegen.c_library.export import library
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.exporters.jax import export_jax
from glenside.formats import load, save
from glenside.ir.program import Program
from glenside.ir.term import build
from glenside.ir.text import parse, print_program
from glenside.semantics.interpreter import evaluate

NAMES = ("a", "b", "c", "d")


def _program(declared: tuple[str, ...], used: tuple[str, ...]) -> Program:
    """Returns a program whose result is not symmetric in its inputs, read in the order `used`; others are declared
    only.
    """
    b = gl.Builder("order")
    leaves = {name: b.input(name, (2, 3)) for name in declared}
    w = b.constant("w", (3, 3), value=np.arange(9, dtype=np.float32).reshape(3, 3))
    term = b.relu(leaves[used[0]])
    for name in used[1:]:
        term = b.subtract(b.multiply(term, b.full((2, 3), 2)), leaves[name])
    return b.finish(build("construct-tuple", b.matmul(term, w), term))


def _arrays(names: tuple[str, ...]) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(7)
    return {name: draw.standard_normal((2, 3)).astype(np.float32) for name in names}


def _wanted(program: Program, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    return evaluate([program.term], {**program.constants, **arrays})[0]


CASES = [
    (declared, used) for declared in itertools.permutations(NAMES[:3]) for used in (NAMES[:3], NAMES[1:3], (NAMES[2],))
]


@pytest.mark.parametrize(("declared", "used"), CASES)
def test_positions_are_those_of_the_declarations(
    declared: tuple[str, ...], used: tuple[str, ...], tmp_path: Path
) -> None:
    program = _program(declared, used)
    assert tuple(program.inputs) == declared
    again = [parse(print_program(program))]
    assert print_program(again[0]) == print_program(program)
    for ending in (".json", ".onnx", ".glenside"):
        save(program, tmp_path / f"p{ending}")
        again.append(load(tmp_path / f"p{ending}"))
    for found in again:
        assert tuple(found.inputs) == declared
    source = ast.parse(export_jax(program)).body[-1]
    assert isinstance(source, ast.FunctionDef)
    assert [each.arg for each in source.args.args if each.arg != "w"] == [*declared]
    texts = library([Lowered(program, None)], "net").texts
    header = next(text for name, text in texts.items() if name.endswith(".h"))
    assert re.findall(r"x\d+: (\w+),", header) == [*declared]
    assert re.findall(r"y\d+: (\w+),", header) == ["output_0", "output_1"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_compiled_and_optimized_programs_take_arguments_in_order(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    declared = tuple(draw.sample(NAMES, 4))
    program = _program(declared, tuple(draw.sample(NAMES, draw.randint(2, 4))))
    arrays = _arrays(declared)
    wanted = _wanted(program, arrays)
    save(program, tmp_path / "p.onnx")
    optimized = gl.optimize(program, draw.choice([gl.CPU(), gl.SystolicArray(2, 2), gl.ConvolutionUnit()])).program
    for each in (program, load(tmp_path / "p.onnx"), optimized):
        assert tuple(each.inputs) == declared
        compiled = gl.compile(each, machine="plain")
        read = {name: arrays[name] for name in Program(each.term).inputs}
        for got in (compiled(*(arrays[name] for name in declared)), compiled(**read), compiled(**arrays)):
            for one, other in zip(got, wanted, strict=True):
                assert np.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_the_file_s_order_of_inputs_and_outputs(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    formals = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("a", "b", "unused")]
    results = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("z", "y")]
    nodes = [helper.make_node("Relu", ["b"], ["y"]), helper.make_node("Sub", ["y", "a"], ["z"])]
    model = helper.make_model(helper.make_graph(nodes, "g", formals, results), ir_version=8)
    onnx.save(model, tmp_path / "order.onnx")
    program = load(tmp_path / "order.onnx")
    one, ten = np.full(2, 1, np.float32), np.full(2, 10, np.float32)
    for given in ((one, ten), (one, ten, one)):
        z, y = gl.compile(program, machine="plain")(*given)
        assert (z == 9).all()
        assert (y == 10).all()
    save(gl.optimize(program, gl.CPU()).program, tmp_path / "again.onnx")
    made = onnx.load(tmp_path / "again.onnx").graph
    assert [each.name for each in made.input] == ["a", "b", "unused"]
    assert [each.name for each in made.output] == ["z", "y"]
    save(program.with_values({"a": 1.0}), tmp_path / "fixed.onnx")
    assert [each.name for each in onnx.load(tmp_path / "fixed.onnx").graph.input] == ["b", "unused"]


def test_a_training_step_takes_the_networks_inputs_first_and_in_order() -> None:
    b = gl.Builder("net")
    x, y = b.input("x", (4, 3)), b.input("y", (4, 3))
    w = b.constant("w", (2, 3), value=np.ones((2, 3), np.float32))
    step = gl.training_step(b.finish(b.linear(b.subtract(b.relu(y), x), w)), "squared-error", gl.SGD(0.1)).program
    assert [*step.inputs][:3] == ["x", "y", "w"]
