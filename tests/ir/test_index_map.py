"""Tests index maps against evaluation, for every record that has one; as text; and composed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from example_values import VALUES, Example, leaf
from hypothesis import given
from hypothesis import strategies as st
from operator_examples import OPERATORS as EXAMPLES

from glenside.ir.index_map import Fill, Index, IndexMap, axes_of, mapped, reshaped, same, transposed
from glenside.ir.operand import Array
from glenside.ir.operator import OPERATORS, OperatorKind
from glenside.ir.term import Term, build
from glenside.semantics import Native
from glenside.semantics.interpreter import evaluate

MOVED = [(name, e) for name, examples in EXAMPLES.items() if OPERATORS[name].index_map for e in examples]
DATA_DEPENDENT = {"access-gather", "access-gather-nd"}
TUPLES = {"construct-tuple", "tuple-get-item"}


def map_of(term: Term) -> IndexMap:
    assert term.index_map is not None
    return term.index_map


def gathered(term: Term, found: IndexMap) -> Array:
    operands = [np.asarray(value) for value in evaluate(list(term.children), VALUES)]
    return found.gather(operands, Native().lowest(term.access.dtype))


def agrees(term: Term, found: IndexMap) -> bool:
    (value,) = evaluate([term], VALUES)
    return np.array_equal(np.asarray(value), gathered(term, found))


def test_all_movement_to_places_that_are_known_has_a_map() -> None:
    without = {name for name, record in OPERATORS.items() if record.moves and record.index_map is None}
    assert without == DATA_DEPENDENT | TUPLES
    assert all(record.moves for record in OPERATORS.values() if record.index_map is not None)


@pytest.mark.parametrize(("name", "example"), MOVED, ids=[name for name, _ in MOVED])
def test_a_map_says_what_evaluation_gives(name: str, example: Example) -> None:
    assert agrees(example.term, map_of(example.term))


def image(*dims: int, split: int = 0) -> Term:
    """Returns numbers that are all different, none of them 0."""
    return leaf(np.arange(1, int(np.prod(dims)) + 1).reshape(dims), split, "int32")


SIZES = st.integers(0, 5)


@st.composite
def _moved(draw: Callable[..., Any]) -> Term:
    """Returns a movement of a random array of three axes."""
    n, m, k = (draw(SIZES) for _ in range(3))
    split, axis = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    a = image(n, m, k, split=split)
    low = draw(st.integers(0, a.access.dims[axis]))
    grown = a.access.dims.set(axis, draw(SIZES))
    window = [draw(st.integers(0, size)) for size in a.access.item]
    terms = [
        build("access-transpose", a, draw(st.permutations(range(3)))),
        build("access-reshape", image(n * m, k, split=1), ((m, n), (k, 1))),
        build("access-rearrange", a, (k, n * m), (1, 0), ((n,), (m, k))),
        build("access-flatten", a),
        build("access-insert-axis", a, draw(st.integers(0, 3))),
        build("access-flip", a, axis),
        build("access-slice", a, axis, low, draw(st.integers(low, a.access.dims[axis]))),
        build("access-pad", a, draw(st.sampled_from(["zero-padding", "min-padding"])), axis, draw(SIZES), draw(SIZES)),
        build("access-dilate", a, axis, draw(SIZES)),
        build("access-concatenate", a, image(*grown, split=split), axis),
        build("access-windows", a, window, [draw(st.integers(1, 3)) for _ in window]),
        build("access-product", image(n, m, k, split=2), image(n, 3, k, split=2), draw(st.integers(0, 1))),
        build("access-broadcast", image(n, 1, k, split=1), ((n,), (m, k))),
    ]
    term: Term = draw(st.sampled_from(terms))
    return term


@given(_moved())
def test_a_map_holds_for_all_sizes(term: Term) -> None:
    assert agrees(term, map_of(term))


@given(_moved(), st.data())
def test_maps_follow_each_other(term: Term, data: st.DataObject) -> None:
    """(f then g) of an array is g of f of it."""
    access = term.access
    after = data.draw(
        st.sampled_from(
            [
                build("access-transpose", term, data.draw(st.permutations(range(access.rank)))),
                build("access-flip", term, access.rank - 1),
                build("access-pad", term, "zero-padding", 0, 1, 2),
                build("access-dilate", term, 0, 1),
                build("access-flatten", term),
            ]
        )
    )
    first, second = map_of(term), map_of(after)
    if None not in (first.fill, second.fill) and first.fill is not second.fill:
        with pytest.raises(ValueError, match="one fill"):
            first.then(second)
        return
    (value,) = evaluate([after], VALUES)
    assert np.array_equal(np.asarray(value), gathered(term, first.then(second)))


WRONG = {
    "another axis": (build("access-transpose", image(2, 3, 4), (2, 0, 1)), transposed((2, 3, 4), (1, 2, 0))),
    "no guard": (build("access-pad", image(3), "zero-padding", 0, 1, 1), reshaped((3,), (5,))),
    "no flip": (build("access-flip", image(3), 0), same((3,))),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_map_is_found(name: str) -> None:
    term, wrong = WRONG[name]
    assert agrees(term, map_of(term))
    try:
        assert not agrees(term, wrong)
    except IndexError:
        pass  # an element that is not there


def test_another_fill_is_found() -> None:
    padded = build("access-pad", image(3), "min-padding", 0, 1, 1)
    assert not agrees(padded, replace(map_of(padded), fill=Fill.ZERO))


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (build("access-windows", image(9, 7), (3, 3), (2, 1)), "a[i0*2 + i2, i1 + i3]"),
        (build("access-pad", image(2, 5), "zero-padding", 1, 1, 3), "a[i0, i1 - 1] if 1 <= i1 < 6 else 0"),
        (build("access-pad", image(2, 5), "min-padding", 1, 0, 3), "a[i0, i1] if i1 < 5 else lowest"),
        (build("access-dilate", image(2, 5), 1, 2), "a[i0, i1//3] if i1 % 3 == 0 else 0"),
        (build("access-concatenate", image(4), image(3), 0), "a[i0] if i0 < 4; b[i0 - 4] if i0 >= 4"),
        (build("access-flip", image(2, 5), 1), "a[i0, 4 - i1]"),
        (build("access-reshape", image(6, 4), ((), (3, 8))), "a[i0*2 + i1//4, i1 % 4]"),
        (build("access-broadcast", image(2, 1), ((), (2, 5))), "a[i0, 0]"),
        (
            build("access-product", image(4, 3, split=1), image(5, 3, split=1), 0),
            "a[i0, i3] if i2 < 1; b[i1, i3] if i2 >= 1",
        ),
    ],
)
def test_maps_as_text(term: Term, text: str) -> None:
    assert str(map_of(term)) == text


@given(st.data())
def test_expressions_are_what_they_were_made_of(data: st.DataObject) -> None:
    """Sums, quotients and remainders have the same values with and without simplification by bounds."""
    dims = (3, 4, 5)
    number = st.integers(-7, 7)
    index, value = Index(), np.zeros(dims, np.int64)
    axes = np.ogrid[tuple(slice(0, n) for n in dims)]
    for _ in range(3):
        for axis, grid in zip(axes_of(dims), axes, strict=True):
            factor = data.draw(number)
            index, value = index + axis * factor, value + grid * factor
        shift, divisor = data.draw(number), data.draw(st.integers(1, 9))
        index, value = index + shift, value + shift
        if data.draw(st.booleans()):
            index, value = index // divisor, value // divisor
        else:
            index, value = index % divisor, value % divisor
    assert (index.evaluate(axes) == value).all()
    low, high = index.bounds
    assert low <= value.min()
    assert value.max() <= high


def test_an_axis_without_elements_divides_by_its_size() -> None:
    """Texts for any size also hold for 0: there is no index to divide."""
    (i,) = axes_of((0,))
    none = np.arange(0)
    assert [str((i + 3) % 0), str((i + 3) // 0)] == ["0", "i0 + 3"]
    assert mapped((0,), [(i + 3) % 0]).gather([none]).shape == (0,)


def test_kinds() -> None:
    """Leaves have no operands; instructions are products of matrices."""
    for name, record in OPERATORS.items():
        leaf_ = not any(f.kind.value in ("term", "terms") for f in record.fields)
        assert leaf_ == (record.kind is OperatorKind.LEAF), name
        assert (record.matrices is not None) == (record.kind is OperatorKind.INSTRUCTION), name
