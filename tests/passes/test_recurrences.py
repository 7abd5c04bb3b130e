"""Tests that recurrences become loops, and that these compute the same: interpreted, unrolled, compiled and checked."""

from __future__ import annotations

import itertools
from itertools import product
from typing import Any

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.builder.layout import concatenate, element, reshape, stack
from glenside.builder.pointwise import add, multiply, tanh
from glenside.builder.unrolling import without_loops
from glenside.check import check
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.verify.verifier import Unverified
from glenside.ir.operand import Array, arrays
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import Dims, Tensor
from glenside.passes.loop_bodies import body_program, with_body
from glenside.passes.recurrences import MIN_STEPS, with_loops
from glenside.semantics.interpreter import evaluate

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from glenside.importers.onnx import program_of_model  # noqa: E402

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def network(
    op: str, steps: int, *, layers: int = 1, batch: int = 2, hidden: int = 5, given: str = "B", **more: Any
) -> Program:
    """Layers of one operator; `given` names its optional inputs: B, lengths, h, c, P. Weights are constants."""
    random, d = np.random.default_rng(steps), 1 + (more.get("direction") == "bidirectional")
    nodes, values, formals, x, size = [], [], [("X", (steps, batch, 3), TensorProto.FLOAT)], "X", 3
    for n in range(layers):
        rows = GATES[op] * hidden
        shapes = {"W": (d, rows, size), "R": (d, rows, hidden), "B": (d, 2 * rows), "P": (d, 3 * hidden)}
        for name in ("W", "R", *(name for name in "BP" if name in given.split())):
            weights = 0.4 * random.standard_normal(shapes[name])
            values.append(onnx.numpy_helper.from_array(weights.astype("f4"), f"{name}{n}"))
        for name in ("h", "c"):
            formals += [(f"{name}{n}", (d, batch, hidden), TensorProto.FLOAT)] if name in given.split() else []
        optional = ("B", "lengths", "h", "c", "P")
        names = [x, f"W{n}", f"R{n}", *(f"{one}{n}" if one in given.split() else "" for one in optional)]
        names[4] = "lengths" if names[4] else ""
        outputs = [f"Y{n}", f"H{n}", f"C{n}"][: 3 if op == "LSTM" else 2]
        nodes.append(helper.make_node(op, names[: 8 if op == "LSTM" else 6], outputs, hidden_size=hidden, **more))
        nodes.append(helper.make_node("Transpose", [f"Y{n}"], [f"T{n}"], perm=[0, 2, 1, 3]))
        values.append(onnx.numpy_helper.from_array(np.array([steps, batch, d * hidden]), f"S{n}"))
        nodes.append(helper.make_node("Reshape", [f"T{n}", f"S{n}"], [x := f"X{n}"]))
        size = d * hidden
    if "lengths" in given:
        formals.append(("lengths", (batch,), TensorProto.INT32))
    results = [f"Y{layers - 1}", *outputs[1:]]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, dims) for name, dims, kind in formals],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        values,
    )
    return program_of_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9))


def loops(program: Program) -> list[Term]:
    return [term for term in postorder(program.term) if term.operator.name == "scan"]


def drawn(program: Program) -> dict[str, Array]:
    random = np.random.default_rng(1)
    return {
        name: (0.5 * random.standard_normal(tensor.dims)).astype(tensor.dtype)
        if tensor.dtype == "float32"
        else random.integers(0, 12, tensor.dims).astype(tensor.dtype)
        for name, tensor in program.inputs.items()
    }


def values_of(program: Program, values: dict[str, Array]) -> list[Array]:
    return arrays(evaluate([program.term], {**program.constants, **values})[0])


def require_equal(program: Program, count: int) -> Program:
    """Requires `count` loops, which give the same numbers to the last bit; returns the program with loops."""
    looped, values = with_loops(program), drawn(program)
    assert len(loops(looped)) == count
    want = values_of(program, values)
    for other in (looped, without_loops(looped)):
        assert all(np.array_equal(a, b) for a, b in zip(values_of(other, values), want, strict=True))
    return looped


DIRECTIONS = ("forward", "reverse", "bidirectional")
CASES = [
    *({"op": op, "direction": direction} for op, direction in itertools.product(GATES, DIRECTIONS)),
    {"op": "LSTM", "given": "B h c P", "input_forget": 1},
    {"op": "LSTM", "given": "B lengths"},
    {"op": "LSTM", "given": "B lengths h c", "direction": "bidirectional"},
    {"op": "LSTM", "given": "", "clip": 0.3},
    {"op": "LSTM", "layers": 3, "direction": "bidirectional"},
    {"op": "GRU", "given": "B h", "linear_before_reset": 1, "direction": "reverse"},
    {"op": "GRU", "given": "B lengths h", "activations": ["HardSigmoid", "Softsign"]},
    {"op": "RNN", "given": "B h lengths", "batch": 1, "layers": 2},
]


def _in_parts(case: dict[str, Any]) -> bool:
    """True if a bidirectional case, which is not slow, has the loop of this one."""
    return case.get("direction") in ("forward", "reverse") and "given" not in case


@pytest.mark.parametrize("steps", [0, 1, 2, MIN_STEPS - 1, MIN_STEPS + 3, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_steps_become_a_loop(case: dict[str, Any], steps: int) -> None:
    require_equal(network(steps=steps, **case), case.get("layers", 1) if steps > MIN_STEPS else 0)


@pytest.mark.parametrize(
    ("case", "target"),
    [
        *(pytest.param(c, "none", marks=[pytest.mark.slow] * (_in_parts(c) or i % 2)) for i, c in enumerate(CASES)),
        *(pytest.param(c, "cpu", marks=[pytest.mark.slow] * (c not in (CASES[11], CASES[12]))) for c in CASES[9:14]),
    ],
    ids=str,
)
def test_loops_are_compiled(case: dict[str, Any], target: str) -> None:
    program = network(steps=12, **case)
    f, values = gl.compile(program, target), drawn(program)
    assert len(loops(f.program)) == case.get("layers", 1)
    for got, want in zip(arrays(f(values)), values_of(program, values), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("case", "machine"),
    quick(product((CASES[2], CASES[4], CASES[10], CASES[11]), ("native", "plain")), 2, 6, 7, unpacked=True),
    ids=str,
)
def test_compiled_loops_pass_the_exact_check(case: dict[str, Any], machine: str) -> None:
    f = gl.compile(network(steps=11, **case), "none", machine=machine, check=True)
    assert any(nest.steps is not None for nest in f.loops.nests)


def test_time_and_text_do_not_grow_with_the_steps() -> None:
    short, long = (Lowered(with_loops(network("LSTM", steps)), None) for steps in (20, 200))
    assert [len(own.loops.nests) for own in (short, long)] == [len(short.loops.nests)] * 2
    assert len(long.source) < 1.02 * len(short.source)


def test_large_steps_use_all_threads() -> None:
    program = network("LSTM", 10, batch=32, hidden=128)
    f, values = gl.compile(program, "none"), drawn(program)
    one, two = (arrays(f(values, threads=n)) for n in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    for got, want in zip(one, values_of(program, values), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def tensor(name: str, *dims: int, constant: bool = False) -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), "float32", constant))


def product(x: Term, w: Term) -> Term:
    pairs = build("access-product", build("access", reshape(x, (1, 4)), 1), build("access", w, 1), 0)
    return reshape(build("compute", "dot-product", pairs), (4,))


def test_steps_backwards_and_along_another_axis() -> None:
    x, w, h = tensor("x", 4, 20), tensor("w", 4, 4, constant=True), tensor("h", 4)
    shown = []
    for step in reversed(range(3, 15)):
        h = tanh(add(product(h, w), element(x, 1, step)))
        shown.append(h)
    values = {"w": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
    looped = require_equal(Program(stack(shown, 1), constants=values), 1)
    f, given = gl.compile(looped, "none", check=True), drawn(looped)
    np.testing.assert_allclose(f(given), values_of(looped, given)[0], rtol=1e-5, atol=1e-6)


def test_weights_that_differ_are_no_recurrence() -> None:
    h = tensor("h", 4)
    for n in range(12):
        h = tanh(product(h, tensor(f"w{n}", 4, 4, constant=True)))
    assert loops(with_loops(Program(h))) == []


def test_a_step_that_is_missing_ends_the_loop() -> None:
    x, w, h = tensor("x", 30, 4), tensor("w", 4, 4), tensor("h", 4)
    for step in (*range(12), *range(13, 24)):
        h = tanh(add(product(h, w), element(x, 0, step)))
    assert sorted(loop.attributes[0] for loop in loops(require_equal(Program(h), 2))) == [11, 12]


def test_a_term_that_depends_on_a_state_stays_outside() -> None:
    """All later steps read the third state: a loop of all steps would need itself."""
    x, w, h = tensor("x", 30, 4), tensor("w", 4, 4), tensor("h", 4)
    states = [h]
    for step in range(24):
        more = multiply(states[3], states[3]) if step > 3 else states[0]
        states.append(tanh(add(add(product(states[-1], w), element(x, 0, step)), more)))
    require_equal(Program(concatenate(states[1:], 0)), 1)


def test_few_steps_without_a_product_stay() -> None:
    x, h = tensor("x", 40, 4), tensor("h", 4)
    found = []
    for step in range(40):
        h = multiply(add(h, element(x, 0, step)), element(x, 0, step))
        found.append(h)
    require_equal(Program(found[20]), 0)
    require_equal(Program(found[-1]), 1)


def test_gradients_are_those_of_the_steps() -> None:
    program = network("RNN", 12, batch=1)
    looped, name = with_loops(program), program.result_names()[0]
    inputs = {**drawn(program), "g": np.ones(looped.results()[name].access.dims, np.float32)}
    (want, *_), (got, *_) = (
        values_of(gl.gradient(own, "X", of=name, cotangent="g"), inputs) for own in (program, looped)
    )
    np.testing.assert_array_equal(got, want)


def test_a_wrong_body_is_refused() -> None:
    program = with_loops(network("LSTM", 12))
    lowered = Lowered(program, None, verified=False)
    (body,) = lowered.loops.bodies
    other = with_loops(network("LSTM", 12, hidden=6))
    (wrong,) = Lowered(other, None, verified=False).loops.bodies
    object.__setattr__(lowered.loops, "bodies", (type(body)(body.counter, wrong.program, wrong.loops, body.places),))
    with pytest.raises(Unverified, match="has no memory for temporary1 of its body"):
        lowered.verify()


def test_loops_are_compared_with_steps_and_with_other_loops() -> None:
    program = network("GRU", 12, direction="bidirectional")
    looped = with_loops(program)
    (loop,) = loops(looped)
    assert check(program, looped).ok
    body = body_program(loop, "body", {})
    wrong = with_body(loop, multiply(body.term, body.term))
    other = looped.with_roots(rebuild_all(looped.roots, lambda term, _: wrong if term is loop else None))
    assert not check(looped, other).ok
    assert not check(program, other).ok


def test_another_order_of_operands_is_the_same_loop() -> None:
    looped = with_loops(network("LSTM", 12, given="B h c"))
    (loop,) = loops(looped)
    again = with_body(loop, body_program(loop, "body", {}).term)
    other = looped.with_roots(rebuild_all(looped.roots, lambda term, _: again if term is loop else None))
    assert check(looped, other).ok


def test_bytes_of_dynamic_quantization() -> None:
    random, steps, hidden, d = np.random.default_rng(0), 12, 8, 2
    values = {
        "W": random.integers(0, 255, (d, 6, 4 * hidden)).astype(np.uint8),
        "R": random.integers(0, 255, (d, hidden, 4 * hidden)).astype(np.uint8),
        "B": (0.1 * random.standard_normal((d, 8 * hidden))).astype(np.float32),
        **{f"{name}s": np.full(d, 0.01, np.float32) for name in "wr"},
        **{f"{name}z": np.full(d, 128, np.uint8) for name in "wr"},
    }
    names = ["X", "W", "R", "B", "", "", "", "", "ws", "wz", "rs", "rz"]
    more = {"domain": "com.microsoft", "hidden_size": hidden, "direction": "bidirectional"}
    node = helper.make_node("DynamicQuantizeLSTM", names, ["Y"], **more)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, (steps, 1, 6))],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    versions = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    program = require_equal(program_of_model(helper.make_model(graph, opset_imports=versions, ir_version=9)), 1)
    gl.compile(program, "none", check=True)


_SUMS = (
    '(scan (full (shape 9) 1 float32) 3 (list 0) "(input state (shape 9) float32) (input operand.0 (shape 9) float32)'
    ' (compute elementwise-add (access-cartesian-product (access-tensor state) (access-tensor operand.0)))"'
    " (access-tensor {}))"
)
_BOTH = f"(access-concatenate {_SUMS.format('x')} {_SUMS.format('y')} 0)"


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        _BOTH,
        f"(compute reduce-sum (access {_BOTH} 1))",
        f"(access-transpose {_BOTH} (list 1 0))",
        f"(compute softmax (access (access-pad {_BOTH} zero-padding 1 2 3) 1))",
        f"(construct-tuple (compute reduce-sum (access {_BOTH} 1)) {_SUMS.format('y')} {_BOTH})",
    ],
)
@pytest.mark.parametrize("machine", ["plain", "native"])
def test_loops_that_are_parts_of_a_larger_tensor(text: str, machine: str) -> None:
    """Steps store in memory of their own, from which the larger tensor is copied."""
    program = gl.parse(f"(input x (shape 3 9) float32)\n(input y (shape 3 9) float32)\n{text}")
    draw = np.random.default_rng(0)
    given = {name: draw.standard_normal((3, 9)).astype(np.float32) for name in program.inputs}
    found = arrays(gl.compile(program, machine=machine)(given))
    for one, other in zip(found, arrays(gl.evaluate([program.term], given)[0]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
