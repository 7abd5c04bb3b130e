"""What is compiled computes what the interpreter does, for every operator, random terms and networks."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import pytest
from compute_examples import COMPUTES
from example_values import VALUES, Example
from hypothesis import HealthCheck, given, settings
from operator_examples import OPERATORS
from random_terms import terms, values_for

import glenside as gl
from glenside.codegen.c_primitives import PRIMITIVES_IN_C
from glenside.codegen.lower import lower
from glenside.codegen.toolchain import compiler
from glenside.ir.dtypes import STORED
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array, arrays
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import AccessType

pytestmark = pytest.mark.skipif(not compiler() and not os.environ.get("CI"), reason="there is no C compiler")

EXAMPLES = [(name, examples) for table in (OPERATORS, COMPUTES) for name, examples in table.items()]


def agrees(term: Term, values: Mapping[str, Array]) -> bool:
    """Whether the function gives what the interpreter does: integers exactly, floats but for sums in another order."""
    known = {name: values[name] for name, tensor in Program(term).tensors.items() if tensor.constant}
    compiled = gl.compile(Program(term, constants=known))
    got = compiled(*(values[buffer.name] for buffer in compiled.inputs))
    want = arrays(gl.evaluate([term], values)[0])
    return all(_close(a, b) for a, b in zip(want, got if isinstance(got, tuple) else (got,), strict=True))


def _close(want: Array, got: Array) -> bool:
    if (want.shape, want.dtype) != (got.shape, got.dtype):
        return False
    if want.dtype.kind in "iub":
        return bool((want == got).all())
    tolerance = {2: 2e-2, 4: 1e-4, 8: 1e-9}[want.dtype.itemsize]
    a, b = want.astype(float), got.astype(float)
    finite = a[np.isfinite(a)]
    return np.allclose(a, b, tolerance, tolerance * float(np.max(np.abs(finite), initial=0)) + 1e-7, equal_nan=True)


def _is_compiled(term: Term) -> bool:
    parts = [part for part in postorder(term) if isinstance(part.type, AccessType)]
    return not any(part.operator.opaque or part.access.dtype in STORED for part in parts)


@pytest.mark.parametrize(("name", "examples"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_every_operator(name: str, examples: list[Example]) -> None:
    compiled = [example.term for example in examples if _is_compiled(example.term)]
    whole = [term for term in compiled if isinstance(term.type, AccessType)]
    others = [term for term in compiled if term not in whole]
    for term in (*others, *([build("construct-tuple", *whole)] if whole else [])):
        assert agrees(term, VALUES), term


def test_every_primitive_is_written() -> None:
    assert PRIMITIVES_IN_C.keys() == PRIMITIVES.keys()


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_random_terms(term: Term) -> None:
    _random(term)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_many_random_terms(term: Term) -> None:
    _random(term)


def _random(term: Term) -> None:
    values = values_for(term, seed=1)
    try:
        gl.evaluate([term], values)
    except BadInput:
        return
    if _is_compiled(term):
        assert agrees(term, values)


NETWORKS = {
    "mobilenet-v1": {"resolution": 32},
    "unet-small": {"resolution": 16, "base": 4, "levels": 2},
    "vit-s-16": {"resolution": 32, "layers": 1, "hidden": 12, "heads": 3},
    "bert-base": {"layers": 1, "hidden": 24, "heads": 3, "intermediate": 40, "sequence": 9, "vocabulary": 31},
}


LARGE = pytest.param("mobilenet-v1", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [LARGE, *(name for name in NETWORKS if name != "mobilenet-v1")])
def test_networks(name: str) -> None:
    program = gl.models.load(name, **NETWORKS[name]).seeded_constants(0)
    draw = np.random.default_rng(0)
    inputs = {
        tensor.name: (
            draw.integers(0, 2, tensor.dims) if tensor.dtype == "int64" else draw.standard_normal(tensor.dims)
        )
        for tensor in program.tensors.values()
        if not tensor.constant
    }
    values = {name: array.astype(program.tensors[name].dtype) for name, array in inputs.items()}
    assert agrees(program.term, {**program.constants, **values})


def test_what_was_found_for_an_array() -> None:
    b = gl.Builder("p")
    x = b.conv(b.input("x", (1, 4, 9, 7)), b.constant("w", (5, 4, 3, 3)), padding=1)
    program = b.finish(b.relu(x)).seeded_constants(0)
    found = gl.optimize(program, gl.SystolicArray(3, 2)).program
    assert "systolic-array" in str(lower(found))
    assert agrees(found.term, {**values_for(found.term, seed=0), **program.constants})


def test_tensors_are_given_by_place_or_by_name() -> None:
    b = gl.Builder("p")
    x, y = b.input("x", (2, 3)), b.input("y", (2, 3))
    compiled = gl.compile(b.finish(b.subtract(x, y)))
    one, two = np.ones((2, 3), np.float32), np.full((3, 2), 5, np.float32).T
    for got in (compiled(one, two), compiled(y=two, x=one), compiled(one, y=two)):
        assert (np.asarray(got) == -4).all()
    assert "int run(" in compiled.source
    for arguments, named, words in (
        ((one,), {}, "takes y too"),
        ((one, one, one), {}, "takes 2 arrays, got 3"),
        ((one, one), {"x": one}, "x is no input that is still missing"),
        ((one,), {"z": one}, "z is no input that is still missing"),
        ((one, one.T), {}, "requires (2 3) float32, got (3, 2) float32"),
        ((one, one.astype(np.float64)), {}, "requires (2 3) float32, got (2, 3) float64"),
    ):
        with pytest.raises(BadInput) as caught:
            compiled(*arguments, **named)
        assert words in str(caught.value)


def test_an_index_outside_of_its_axis() -> None:
    b = gl.Builder("p")
    compiled = gl.compile(b.finish(b.gather(b.input("x", (4, 3)), b.input("i", (2,), "int64"))))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert (np.asarray(compiled(x, np.array([-1, 0]))) == x[[3, 0]]).all()
    with pytest.raises(BadInput, match="access-gather requires indices from -4 to 3, got one that is outside"):
        compiled(x, np.array([0, 4]))


def test_what_cannot_be_compiled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    b = gl.Builder("p")
    x, w = b.input("x", (2, 3)), b.constant("w", (2, 3))
    with pytest.raises(BadInput, match="values of its constants, got none of w"):
        gl.compile(b.finish(b.add(x, w)))
    with pytest.raises(BadInput, match="'f' has no meaning that could be compiled"):
        gl.compile(Program(build("opaque-pointwise", "f", x, "int8", (), ())))
    with pytest.raises(BadInput, match="float8_e5m2, which is not compiled yet"):
        gl.compile(Program(build("cast", x, "float8_e5m2")))
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(BadInput, match="/nowhere/cc does not run"):
        gl.compile(Program(x))
