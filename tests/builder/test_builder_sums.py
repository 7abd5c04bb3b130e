"""Compares the builder's sums of products, reductions, running reductions and determinants with numpy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glenside.builder import Builder
from glenside.builder.layout import diagonal
from glenside.builder.pointwise import add, multiply
from glenside.builder.reductions import determinant, position, reduce_axes, running
from glenside.ir.errors import TypeMismatch
from glenside.ir.operand import Array
from glenside.ir.term import Term, build
from glenside.semantics import PrimeField
from glenside.semantics.interpreter import evaluate

SIZES = {"a": 2, "b": 3, "c": 1, "d": 4, "E": 2}


def whole(seed: int, *dims: int) -> Array:
    return np.random.default_rng((seed, *dims)).integers(-9, 10, dims)


def inputs(*arrays: Array) -> tuple[Builder, list[Term], dict[str, Array]]:
    b = Builder()
    values = {f"x{i}": np.asarray(array) for i, array in enumerate(arrays)}
    return b, [b.input(name, array.shape, array.dtype.name) for name, array in values.items()], values


def run(make: Callable[..., Term], *arrays: Array) -> Array:
    _, terms, values = inputs(*arrays)
    term = make(*terms)
    result: Array = evaluate([term], values)[0]
    assert (result.shape, result.dtype.name) == (term.access.dims, term.access.dtype)
    return result


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """One to four operands, repeated labels included, and a result of some labels in some order."""
    texts = draw(st.lists(st.text("".join(SIZES), max_size=3), min_size=1, max_size=4))
    used = sorted(set("".join(texts)))
    result = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
    arrow = f"->{''.join(result)}" if draw(st.booleans()) else ""
    return ",".join(texts) + arrow, [tuple(SIZES[label] for label in text) for text in texts]


@given(equations())
@settings(max_examples=60)
def test_einsum_is_numpys(case: tuple[str, list[tuple[int, ...]]]) -> None:
    equation, shapes = case
    arrays = [whole(i, *dims) for i, dims in enumerate(shapes)]
    b, terms, values = inputs(*arrays)
    (value,) = evaluate([b.einsum(equation, *terms)], values)
    np.testing.assert_array_equal(value, np.einsum(equation, *arrays), strict=True)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("...ij,...jk", [(3, 4), (5, 4, 2)]),
        ("a...,a...->...a", [(2, 3, 4), (2, 3, 4)]),
        ("...ii->i...", [(2, 5, 3, 3)]),
        ("ij,jk->ik", [(3, 0), (0, 4)]),
        ("ii->i", [(0, 0)]),
        (" i j , j k -> k i ", [(2, 3), (3, 4)]),
    ],
)
def test_einsum_with_ellipses_and_empty_axes(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [whole(i, *dims) for i, dims in enumerate(shapes)]
    b, terms, values = inputs(*arrays)
    (value,) = evaluate([b.einsum(equation, *terms, name="sum")], values)
    np.testing.assert_array_equal(value, np.einsum(equation, *arrays), strict=True)


def test_einsum_takes_the_smallest_product_first_and_names_its_layers() -> None:
    b, terms, _ = inputs(whole(0, 30, 2), whole(1, 40, 5), whole(2, 2, 40))
    b.einsum("ij,lm,jl->im", *terms, name="chain")
    assert list(b.layers) == ["chain", "chain.2"]
    assert [layer.access.size for layer in b.layers.values()] == [2 * 5, 30 * 5]


def test_narrow_integers_stay_narrow() -> None:
    x = np.array([[100, 100], [3, -4]], np.int8)
    b, terms, values = inputs(x, x)
    (value,) = evaluate([b.einsum("ij,kj->ik", *terms)], values)
    np.testing.assert_array_equal(value, (x.astype(int) @ x.T.astype(int)).astype(np.int8), strict=True)
    total = run(lambda t: reduce_axes("reduce-sum", t, [1]), x)
    np.testing.assert_array_equal(total, np.array([-56, -1], np.int8), strict=True)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij->i", "einsum requires 2 operands in the equation, got ij->i"),
        ("ij,jk->iz", "einsum requires labels of the result that are different, and those of operands, got ij,jk->iz"),
        ("ij,jk->ii", "einsum requires labels of the result that are different, and those of operands, got ij,jk->ii"),
        ("ijk,jk->i", "einsum requires 2 labels for an operand of 2 axes, got ijk,jk->i"),
        ("i1,jk->i", "einsum requires letters and at most one ellipsis for each operand, got i1,jk->i"),
        ("ij,ij->ij", "einsum requires sizes that agree or are 1, aligned at the last axis, got (2,) and (3,)"),
    ],
)
def test_einsum_refuses(equation: str, message: str) -> None:
    b, terms, _ = inputs(whole(0, 2, 3), whole(1, 3, 4))
    with pytest.raises(TypeMismatch) as raised:
        b.einsum(equation, *terms)
    assert str(raised.value) == message


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 8])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_sums_and_products(axis: int, size: int, exclusive: bool) -> None:
    dims = (size, 3) if axis == 0 else (3, size)
    x = whole(0, *dims)
    for combine, neutral, of in ((add, "0", np.cumsum), (multiply, "1", np.cumprod)):
        before = np.insert(x, 0, int(neutral), axis).take(range(size), axis) if exclusive else x
        got = run(lambda t, c=combine, n=neutral: running(c, t, axis, n, exclusive=exclusive), x)
        np.testing.assert_array_equal(got, of(before, axis=axis))


def test_a_running_sum_reads_nothing_that_comes_later() -> None:
    x = np.array([1, 2, np.inf, 3, np.nan, 4])
    np.testing.assert_array_equal(run(lambda t: running(add, t, 0, "0"), x), np.cumsum(x))


@pytest.mark.parametrize("axes", [[], [1], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("keep", [False, True])
def test_reductions_over_any_axes(axes: list[int], keep: bool) -> None:
    x = whole(0, 2, 3, 4)
    for kind, of in (("reduce-max", np.max), ("reduce-prod", np.prod)):
        got = run(lambda t, k=kind: reduce_axes(k, t, axes, keep), x)
        np.testing.assert_array_equal(got, of(x, axis=tuple(axes), keepdims=keep))


def test_positions_of_the_first_and_of_the_last() -> None:
    x = np.array([[3, 1, 3, 0], [2, 2, 2, 2]])
    assert run(lambda t: position("argmax", t, 1), x).tolist() == [[0], [0]]
    assert run(lambda t: position("argmax", t, 1, last=True), x).tolist() == [[2], [3]]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_diagonals(n: int) -> None:
    x = whole(0, 2, n, n)
    np.testing.assert_array_equal(run(diagonal, x), np.diagonal(x, axis1=1, axis2=2))


@pytest.mark.parametrize("n", range(6))
def test_determinants(n: int) -> None:
    """Of random matrices, of singular ones, and of permutations, whose first pivots are 0."""
    shifted = np.roll(np.eye(n), 1, 0)
    x = np.stack([*np.random.default_rng(n).standard_normal((3, n, n)), np.ones((n, n)), shifted, shifted[::-1]])
    np.testing.assert_allclose(run(determinant, x), np.linalg.det(x), rtol=1e-9, atol=1e-12)


def test_determinants_are_exact_in_a_prime_field() -> None:
    field = PrimeField()
    x = whole(3, 4, 4)
    exact = 0
    for order in permutations(range(4)):
        sign = (-1) ** sum(order[i] > order[j] for j in range(4) for i in range(j))
        exact += sign * prod(int(x[i, order[i]]) for i in range(4))
    _, (term,), values = inputs(x.astype(np.float32))
    (value,) = evaluate([determinant(term)], values, field)
    assert int(value) == (exact + field.half) % field.p - field.half


def test_a_choice_by_a_condition_broadcasts() -> None:
    condition, x, y = whole(0, 3, 1) > 0, whole(1, 4).astype(np.int8), whole(2, 2, 1, 1).astype(np.int8)
    got = run(Builder.select, condition, x, y)
    np.testing.assert_array_equal(got, np.where(condition, x, y), strict=True)


def test_bits_become_random_functions_in_a_prime_field() -> None:
    """Equal residues have equal bits, and others others: equality of programs shows, whatever the bits are."""
    _, (term,), values = inputs(np.array([1, 2, 1, -7], np.float32))
    bits = build("bitcast", term, "int32")
    there, back, kept = evaluate(
        [bits, build("bitcast", bits, "float32"), build("bitcast", term, "float32")], values, PrimeField()
    )
    for scattered in (there, back):
        assert scattered[0] == scattered[2]
        assert len({float(v) for v in scattered}) == 3
    assert there.dtype == np.int32
    assert kept.tolist() == [1, 2, 1, -7]
