"""Compares the derivative of every record with finite differences in float64, on its examples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from compute_examples import COMPUTES as COMPUTE_EXAMPLES
from differences import difference, doubled, results
from example_values import VALUES
from operator_examples import OPERATORS as OPERATOR_EXAMPLES

import glenside as gl
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operator import COMPUTES, OPERATORS, Compute, Example, Operator, OperatorKind
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import AccessType, Tensor, TupleType

Record = Operator | Compute
RECORDS: list[Record] = [*(o for o in OPERATORS.values() if o.name != "scan"), *COMPUTES.values()]
"""All but loops: the dtypes of a body are in its text (`tests/passes/test_recurrences.py`)."""
SHOWN = [
    pytest.param(record, example, seed, id=f"{record.name}-{number}-{seed}")
    for record in RECORDS
    for number, example in enumerate(record.examples)
    for seed in (0, 1)
]
X, Y = "(access-tensor x)", "(access-tensor y)"
_SCATTER = "(access-scatter-nd (access-tensor x) (cast (access-tensor i) int64) (access-tensor y) {} {})"
_PLACES = {"x": "2 m 3", "i": "5 1", "y": "5 m 3"}
_OVERLAP = "(overlap-add-product (access {} {}) (access {} {}) {} (shape 7) (shape 2) (shape 2) (list {}) 2)"
MORE = [
    *(Example(_SCATTER.format(0, how), _PLACES) for how in ("replace", "add", "mul", "min", "max")),
    *(
        Example(_SCATTER.format(1, how), {"x": "m 2 3", "i": "m 4 1", "y": "m 4 3"})
        for how in ("replace", "add", "mul", "min", "max")
    ),
    *(
        Example(f"(compute {kind} (access {X} 1))", {"x": "m 3 n k"})
        for kind in ("elementwise-add", "elementwise-mul", "elementwise-div", "subtract", "maximum", "minimum")
    ),
    *(
        Example(f"(compute {kind} (access {X} 1))", {"x": "m 1 n"})
        for kind in ("elementwise-mul", "subtract", "maximum", "dot-product")
    ),
    *(
        Example(f"(compute {kind} (access-product (access {X} 2) (access {Y} 3) 1))", {"x": "g m k", "y": "g n 2 k"})
        for kind in ("elementwise-mul", "subtract", "dot-product", "pow", "(mod truncate)")
    ),
    Example(f"(compute dot-product (access {X} 1))", {"x": "m 3 n k"}),
    Example(f"(compute dot-product (access {X} 0))", {"x": "4 m"}),
    Example(f"(compute dot-product (access-product {X} {X} 0))", {"x": "m n"}),
    Example(f"(compute dot-product (access-product {X} {Y} 0))", {"x": "", "y": ""}),
    Example(f"(compute dot-product (access-product (access {X} 1) (access {Y} 1) 0))", {"x": "m", "y": "n"}),
    Example(f"(compute reduce-prod (access {X} 0))", {"x": "m n"}),
    Example(f"(compute reduce-max (access {X} 2))", {"x": "m n"}),
    Example(f"(compute softmax (access {X} 0))", {"x": "m n"}),
    Example(f"(access-gather (access {X} 1) (cast (access-tensor i) int64) 0)", {"x": "m n k", "i": "2 l"}),
    Example(f"(access-gather {X} (cast (access-tensor i) int64) 2)", {"x": "m n k", "i": ""}),
    Example(f"(access-gather-nd {X} (cast (access-tensor i) int64) 1)", {"x": "g n m k", "i": "g 3 2"}),
    Example(f"(access-windows (access {X} 1) (shape 1 3) (shape 3 2))", {"x": "m 8 9"}),
    Example(f"(access-windows (access {X} 2) (shape) (shape))", {"x": "m n"}),
    Example(f"(access-overlap-add (access {X} 2) (shape) (shape))", {"x": "m n"}),
    Example(f"(access-overlap-add {X} (shape) (shape))", {"x": ""}),
    Example(f"(access-dilate {X} 0 3)", {"x": "1 m"}),
    Example(_OVERLAP.format(X, 2, Y, 2, 0, 0), {"x": "m 3 k", "y": "n 2 k"}),
    Example(_OVERLAP.format(X, 2, Y, 2, 0, 3), {"x": "m 3 k", "y": "n 2 k"}),
    Example(_OVERLAP.format(X, 3, Y, 4, 1, -2), {"x": "2 m 5 k", "y": "2 n 3 4 k"}),
    Example(
        f"(product-unit 1 {X} (shape $g $m $k) (list 0 1 2) 2 {Y} (shape $k $g $n) (list 1 2 0) 2 "
        "(shape $g $m $n) (list 2 0 1))",
        {"x": "g m k", "y": "k g n"},
    ),
    Example(f"(cast (cast {X} float64) float64)", {"x": "m"}),
    Example(f"(cast (cast {X} int32) float32)", {"x": "m"}),
    Example(f"(bitcast {X} float32)", {"x": "m"}),
]
RANGES = ((-1.4, 1.4), (0.2, 0.9), (1.2, 1.9))
"""Where functions may be defined; the first that gives no nan is taken."""


def drawn(program: Program, seed: int) -> dict[str, Array]:
    """Values at which all results are finite; tensors named i are indices."""
    for low, high in RANGES:
        random = np.random.default_rng(seed)
        values = {
            name: random.integers(0, 2, tensor.dims).astype(tensor.dtype)
            if name == "i" or tensor.dtype not in FLOATS
            else random.uniform(low, high, tensor.dims)
            for name, tensor in program.inputs.items()
        }
        with np.errstate(all="ignore"):
            if all(np.isfinite(found[found != -np.inf]).all() for found in results(program, values)):
                return values
    raise AssertionError("no values at which the example is finite")


def is_real(program: Program) -> bool:
    kind = program.term.type
    items = kind.items if isinstance(kind, TupleType) else (kind,)
    return all(not isinstance(item, TupleType) and item.dtype in FLOATS for item in items)


def inner(a: list[Array], b: list[Array]) -> float:
    return float(sum(np.sum(x * y) for x, y in zip(a, b, strict=True)))


def directions(program: Program, wrt: list[str], seed: int, count: int = 4) -> list[Mapping[str, Array]]:
    random = np.random.default_rng(seed + 99)
    return [{name: random.standard_normal(program.tensors[name].dims) for name in wrt} for _ in range(count)]


@pytest.mark.parametrize("example", MORE, ids=lambda example: example.text)
def test_more_derivatives_are_differences(example: Example) -> None:
    check(None, example, 3)


@pytest.mark.parametrize(("record", "example", "seed"), SHOWN)
def test_derivatives_are_differences(record: Record, example: Example, seed: int) -> None:
    check(record, example, seed)


def check(record: Record | None, example: Example, seed: int) -> None:
    """Products with vectors, back and forth, are differences along them; so is the derivative of the gradient."""
    program = doubled(example.program(seed))
    wrt = [name for name, tensor in program.inputs.items() if tensor.dtype in FLOATS and name != "i"]
    if not is_real(program):
        if wrt:
            with pytest.raises(BadInput, match="requires results of a float dtype"):
                gl.gradient(program, wrt, cotangent="g")
        return
    if not wrt:  # a constant
        assert isinstance(record, Operator)
        assert record.kind is OperatorKind.LEAF
        return
    values = drawn(program, seed)
    backward, forward = gl.gradient(program, wrt, cotangent="g"), gl.jvp(program, wrt)
    random = np.random.default_rng(seed)
    cotangents = {n: random.standard_normal(t.dims) for n, t in backward.inputs.items() if n.startswith("g")}
    cotangents = cotangents or {"g": np.zeros(())}  # nothing depends on it
    gradients = results(backward, {**values, **cotangents})
    assert [(g.shape, g.dtype) for g in gradients] == [(values[n].shape, np.dtype("float64")) for n in wrt]
    count = len(results(program, values))
    for direction in directions(program, wrt, seed):
        changes = difference(program, values, direction)
        changes = [np.where(np.isfinite(change), change, 0) for change in changes]  # -inf stays -inf
        tangents = results(forward, {**values, **{f"{n}.tangent": d for n, d in direction.items()}})[count:]
        for tangent, change in zip(tangents, changes, strict=True):
            np.testing.assert_allclose(tangent, change, rtol=2e-7, atol=2e-7)
        if gradients and len(cotangents) == count:
            there = inner([*cotangents.values()], changes)
            back = inner([direction[name] for name in wrt], gradients)
            assert back == pytest.approx(there, rel=1e-6, abs=1e-6)
    second = gl.jvp(backward, wrt)
    changes = difference(backward, {**values, **cotangents}, direction)
    named = {**values, **cotangents, **{f"{n}.tangent": d for n, d in direction.items()}}
    for tangent, change in zip(results(second, named)[len(wrt) :], changes, strict=True):
        scale = 1 + np.abs(change).max(initial=0)
        np.testing.assert_allclose(tangent / scale, change / scale, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("record", "example", "seed"), SHOWN[::2])
def test_gradients_are_of_the_dtype_of_their_tensors(record: Record, example: Example, seed: int, dtype: str) -> None:
    program = doubled(example.program(seed), dtype)
    wrt = [name for name, tensor in program.inputs.items() if tensor.dtype == dtype and name != "i"]
    if wrt and is_real(program):
        found = gl.gradient(program, wrt, cotangent="g").term
        assert [term.access.with_split(0) for term in found.children] == [
            AccessType(program.tensors[name].dims, 0, dtype) for name in wrt
        ]


ORACLES = [
    pytest.param(example.term, id=f"{name}-{number}")
    for table in (OPERATOR_EXAMPLES, COMPUTE_EXAMPLES)
    for name, examples in table.items()
    for number, example in enumerate(examples)
    if isinstance(example.term.type, AccessType) and example.term.type.dtype in FLOATS
]


@pytest.mark.parametrize("term", ORACLES)
def test_examples_with_axes_of_any_size_have_gradients(term: Term) -> None:
    program = Program(term)
    wrt = [name for name, tensor in program.tensors.items() if tensor.dtype in FLOATS]
    if not wrt or any(node.operator.opaque for node in postorder(term)):
        return
    backward, forward = gl.gradient(program, wrt, cotangent="g"), gl.jvp(program, wrt)
    random = np.random.default_rng(0)
    tensors = {**backward.tensors, **forward.tensors}
    values = {
        name: VALUES[name] if name in VALUES else random.standard_normal(tensor.dims).astype(tensor.dtype)
        for name, tensor in tensors.items()
    }
    gradients, tangent = results(backward, values), results(forward, values)[1]
    there = np.sum(tangent.astype("float64") * values["g"]) if "g" in values else 0
    back = sum(
        np.sum(g.astype("float64") * values[f"{n}.tangent"])
        for n, g in zip(wrt, gradients, strict=True)
        if f"{n}.tangent" in values
    )
    np.testing.assert_allclose(back, there, rtol=2e-2 if "16" in term.access.dtype else 1e-4, atol=1e-4)


def test_every_record_has_a_derivative_or_says_why_not() -> None:
    for operator in OPERATORS.values():
        assert operator.kind is OperatorKind.LEAF or operator.adjoint, f"{operator.name} has no adjoint"
    for compute in COMPUTES.values():
        gives_reals = compute.dtype in ("same", "widen", *FLOATS)
        assert compute.adjoint or compute.scalar or not gives_reals, f"{compute.name} has no adjoint"
    for primitive in PRIMITIVES.values():
        real = primitive.gives == "same" and set(FLOATS) & set(primitive.takes.dtypes)
        assert primitive.derivative or not real, f"{primitive.name} has no derivative"


@pytest.mark.parametrize("operator", [o for o in OPERATORS.values() if o.opaque])
def test_what_has_no_derivative_is_named(operator: Operator) -> None:
    x = build("access-tensor", Tensor("x", (3,)))
    box = {
        "opaque": lambda: build("opaque", "Secret a=1", ((), (3,)), "float32", x),
        "opaque-pointwise": lambda: build("opaque-pointwise", "Secret a=1", x, "float32", (), ()),
        "opaque-items": lambda: build("opaque-items", "Secret a=1", x, "float32", (3,), (0,)),
    }[operator.name]()
    with pytest.raises(BadInput, match=r"got the black box Secret of secret: its meaning is unknown"):
        gl.gradient(Program(box, names={"secret": box}), "x", cotangent="g")
