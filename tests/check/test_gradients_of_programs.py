"""Compares `gl.gradient` of every operator with dual numbers through the original programs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from fuzzing import Fuzzing
from random_terms import STEPS, drawn
from slow_cases import quick

import glenside as gl
from glenside.builder.layout import split_at
from glenside.builder.pointwise import multiply, softmax
from glenside.builder.reductions import reduce_axes
from glenside.check import check_gradient, is_equal
from glenside.check.gradient_pairs import types
from glenside.check.indices import index_limits
from glenside.gradients.losses import LOSSES
from glenside.ir.dtypes import FLOATS, REALS
from glenside.ir.operand import Array, arrays
from glenside.ir.operator import COMPUTES, OPERATORS, Compute, Example, Operator
from glenside.ir.program import Program
from glenside.ir.term import build
from glenside.ir.types import Dims, Tensor
from glenside.semantics import PRIMES
from glenside.semantics.dual_field import DualField
from glenside.semantics.formal_field import FormalField, FormalNumbers
from glenside.semantics.interpreter import evaluate

Record = Operator | Compute
TWO_OVER_ROOT_PI = Fraction("1.12837916709551257389615890312154517")  # the digits of gradients


def floats(program: Program) -> list[str]:
    return [name for name, tensor in program.tensors.items() if tensor.dtype in FLOATS]


def differentiable(record: Record) -> list[Example]:
    """Returns the examples of floats that give floats."""
    found = [(example, example.program()) for example in record.examples]
    return [e for e, p in found if floats(p) and any(kind.dtype in REALS for kind in types(p.term))]


SHOWN = [
    pytest.param(example, id=f"{record.name}-{number}")
    for record in (*OPERATORS.values(), *COMPUTES.values())
    for number, example in enumerate(differentiable(record))
]


@pytest.mark.parametrize("example", SHOWN)
def test_the_gradient_of_every_example_is_exact(example: Example) -> None:
    program = example.program()
    names = floats(program)
    report = check_gradient(program, gl.gradient(program, names, cotangent="u"), names)
    assert report.gradients == dict.fromkeys(names, "exact"), report


@pytest.mark.slow
@pytest.mark.parametrize("example", SHOWN)
def test_the_gradient_of_every_gradient_is_exact(example: Example) -> None:
    program = example.program()
    first = gl.gradient(program, floats(program), cotangent="u")
    names = floats(first) or floats(program)
    report = check_gradient(first, gl.gradient(first, names, cotangent="v"), names)
    assert report.gradients == dict.fromkeys(names, "exact"), report


@pytest.mark.parametrize("example", SHOWN)
def test_what_goes_forward_is_what_dual_numbers_do(example: Example) -> None:
    """Element by element: `gl.jvp` has the tangents that the original's own operators give."""
    program = example.program()
    field = FormalField(PRIMES[0])
    numbers, rng = FormalNumbers(field), np.random.default_rng(3)
    dual, limits = DualField(numbers, TWO_OVER_ROOT_PI), index_limits(program.term)
    values: dict[str, Array] = {}
    changes: dict[str, Array] = {}
    for name, tensor in program.tensors.items():
        drawn = rng.integers(0, limits.get(name, 9), tensor.dims).astype(tensor.dtype)
        if tensor.dtype in FLOATS and name not in limits:
            values[name] = rng.standard_normal(tensor.dims) + 1j * rng.integers(-field.half, field.half, tensor.dims)
        else:
            values[name] = numbers.encode(name, drawn, tensor.dtype)
        changes[name] = rng.integers(-field.half, field.half, tensor.dims).astype(np.float64)
    names = floats(program)
    moved = {n: dual.dual(v, changes[n]) if n in names else v for n, v in values.items()}
    (result,) = evaluate([program.term], moved, dual)
    directions = {f"{name}.tangent": 0 * values[name].real + 1j * changes[name] for name in names}
    (found,) = evaluate([gl.jvp(program, names).term], {**values, **directions}, numbers)
    for both, tangent in zip(arrays(result), arrays(found)[len(arrays(result)) :], strict=True):
        assert np.array_equal(dual.parts(both)[1], tangent.imag)


@pytest.mark.parametrize("dtype", quick(["float32", "float16"], 0))
@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_of_every_loss_is_exact(name: str, dtype: str) -> None:
    record, output = LOSSES[name], build("access-tensor", Tensor("y", Dims((3, 5)), dtype))
    wanted = record.target(output.access)
    target = build("access-tensor", Tensor("target", wanted.dims, wanted.dtype))
    program = Program(record.of(output, target))
    names = floats(program)
    report = check_gradient(program, gl.gradient(program, names), names)
    assert report.gradients == dict.fromkeys(names, "exact"), report


def no_gradient_is_wrong(seed: int, count: int) -> None:
    for term in drawn(seed, count, operators=tuple(step for step in STEPS if step != "opaque")):
        program = Program(term)
        names = [*program.tensors]
        report = check_gradient(program, gl.value_and_gradient(program, names, cotangent="u"), names)
        assert report.ok, f"{report}\n{program}"


def test_gradients_of_random_programs_are_never_called_wrong() -> None:
    no_gradient_is_wrong(1, 10)


@pytest.mark.slow
def test_gradients_of_many_random_programs_are_never_called_wrong(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(3, 71):
        no_gradient_is_wrong(seed, 700)


SMALL: dict[str, dict[str, Any]] = {
    "bert-base": {
        "sequence": 8,
        "layers": 2,
        "hidden": 16,
        "heads": 2,
        "intermediate": 32,
        "vocabulary": 20,
        "positions": 16,
    },
    "vit-s-16": {"resolution": 32, "layers": 2, "hidden": 16, "heads": 2, "intermediate": 32, "patch": 8, "classes": 5},
    "unet-small": {"base": 4, "levels": 2, "resolution": 16},
}
SIZES = {"width": 0.25, "resolution": 32, "batch": 2, "classes": 5}  # of all others
QUICK = (*SMALL, "resnet-18")


def loss(program: Program) -> Program:
    """Softmax cross-entropy of the last axis, with labels that are an input; the sum over all others."""
    y = split_at(program.term, 0)
    labels = build("access-tensor", Tensor("labels", Dims(y.access.dims), y.access.dtype))
    found = multiply(labels, softmax(y, kind="log-softmax"))
    return Program(reduce_axes("reduce-sum", found, range(y.access.rank)), program.name)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in gl.models.models()]
)
def test_the_gradient_of_every_network_by_all_its_weights_is_exact(name: str) -> None:
    known = gl.models.parameters(name)
    small = SMALL.get(name, {key: value for key, value in SIZES.items() if key in known})
    program = loss(gl.models.load(name, **small))
    names = floats(program)
    assert len(names) > 30
    report = check_gradient(program, gl.gradient(program, names), names)
    assert all(map(is_equal, report.gradients.values())), report
