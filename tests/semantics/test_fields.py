"""Tests residues, with and without positions: in blocks and threads, for any memory layout."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from glenside.ir.blockwise import reduced
from glenside.ir.dtypes import FLOATS
from glenside.ir.operand import Array
from glenside.ir.threads import in_parallel
from glenside.semantics import PRIMES, Arithmetic, Native, PrimeField
from glenside.semantics.ordered_field import OrderedField

FIELD = PrimeField(PRIMES[1])
ORDERED = OrderedField(FIELD)
DIMS = (3, 70, 90, 8)
"""More elements than are computed at a time."""
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "as it is": lambda a: a,
    "turned": lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "reversed": lambda a: np.ascontiguousarray(a[:, ::-1])[:, ::-1],
    "repeated": lambda a: np.broadcast_to(a[:, :1], a.shape),
}


def drawn(seed: int, *dims: int) -> Array:
    """Whole numbers that float64 multiplies exactly, most of them larger than p."""
    return np.random.default_rng(seed).integers(-(2**24), 2**24, dims).astype(np.float64)


def residues(exact: Array) -> Array:
    """Signed representatives of Python's integers, or of int64."""
    half = FIELD.half
    return np.asarray((exact + half) % FIELD.p - half)


def held(arithmetic: Arithmetic, whole: Array) -> Array:
    """Whole numbers in an arithmetic, as they lie."""
    found = np.empty_like(whole, arithmetic.kept("float32"))
    if arithmetic is ORDERED:
        found.real, found.imag = whole, residues(whole.astype(np.int64))
    else:
        found[...] = residues(whole.astype(np.int64))
    return found


def assert_holds(arithmetic: Arithmetic, found: Array, whole: Array) -> None:
    """That an array holds whole numbers: their residues, and where they lie."""
    assert (arithmetic.identity(found) == residues(whole)).all()
    if arithmetic is ORDERED:
        assert np.allclose(found.real, whole.astype(np.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("arithmetic", [FIELD, ORDERED], ids=["residues", "ordered"])
def test_sums_and_products_of_any_layouts(arithmetic: Arithmetic, layout: str) -> None:
    whole = drawn(0, *DIMS)
    for other in (LAYOUTS[layout](drawn(1, *DIMS)), LAYOUTS[layout](drawn(2, *DIMS))[:, :, :1]):
        for x, y in ((whole, other), (other, whole)):
            exact, with_which = (z.astype(np.int64) for z in (x, y))
            a, b = held(arithmetic, x), held(arithmetic, y)
            assert_holds(arithmetic, arithmetic.add(a, b), exact + with_which)
            assert_holds(arithmetic, arithmetic.subtract(a, b), exact - with_which)
            assert_holds(arithmetic, arithmetic.multiply(a, b), exact * with_which)


@pytest.mark.parametrize("layout", ["as it is", "turned"])
@pytest.mark.parametrize("arithmetic", [FIELD, ORDERED], ids=["residues", "ordered"])
def test_contractions_of_windows(arithmetic: Arithmetic, layout: str) -> None:
    """Where the rows lie side by side in memory, and where what is summed does."""
    images, filters = drawn(0, 2, 7, 31, 33) // 2**12, drawn(1, 5, 7, 3, 2) // 2**12
    a, b = held(arithmetic, LAYOUTS[layout](images)), held(arithmetic, filters)
    found = arithmetic.contract(sliding_window_view(a, (7, 3, 2), (1, 2, 3)), b, 0, 3)
    windows = sliding_window_view(images, (7, 3, 2), (1, 2, 3)).astype(np.int64)
    assert_holds(arithmetic, found, np.tensordot(windows, filters.astype(np.int64), ((4, 5, 6), (1, 2, 3))))


MATRIX = [[Fraction(text) for text in row.split()] for row in ("1 0 -1 2", "1/4 0 1/2 0", "0 0 0 0", "5 -3 1 1/3")]


@pytest.mark.parametrize("arithmetic", [FIELD, ORDERED], ids=["residues", "ordered"])
@pytest.mark.parametrize("axis", [0, 1, 4, 5])
def test_linear_maps_of_what_overlaps(arithmetic: Arithmetic, axis: int) -> None:
    """Windows of 4, 2 places apart, along two axes: what is mapped is the same as of copies."""
    image = 12.0 * drawn(0, 4, 4, 30, 40) // 2**8  # so that whole numbers come of fractions
    for lying in (image, LAYOUTS["turned"](image)):
        windows = sliding_window_view(held(arithmetic, lying), (4, 4), (2, 3))[:, :, ::2, ::2]
        found = arithmetic.linear_map(windows, axis, MATRIX)
        whole = sliding_window_view(12 * lying.astype(np.int64), (4, 4), (2, 3))[:, :, ::2, ::2]
        twelvefold = np.array([[int(12 * value) for value in row] for row in MATRIX])
        expected = np.moveaxis(np.tensordot(twelvefold, whole, (1, axis)), 0, axis)  # 12 * 12 times as much
        factor = arithmetic.constant(144, "float32")
        assert_holds(arithmetic, arithmetic.multiply(found, factor), expected)


@pytest.mark.parametrize("arithmetic", [Native(), FIELD, ORDERED], ids=["native", "residues", "ordered"])
def test_linear_maps_of_nothing(arithmetic: Arithmetic) -> None:
    for dims, axis, rows in (((4, 0), 0, MATRIX), ((0, 3), 0, [(), ()]), ((4, 3), 0, [])):
        found = arithmetic.linear_map(np.ones(dims, arithmetic.kept("float32")), axis, rows)
        assert found.shape == (*dims[:axis], len(rows), *dims[axis + 1 :])
        assert not arithmetic.identity(found).any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_of_every_float_are_exact_rationals(dtype: str) -> None:
    """Halves too, of which the largest is smaller than the largest residue; without a warning."""
    values = np.array([0, 1.5, -3, 0.1, 1e4, 6e4, -6e-5, 6e-8], dtype)
    expected = [Fraction(float(v)) for v in values]
    wanted = [r.numerator * pow(r.denominator, -1, FIELD.p) for r in expected]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for arithmetic in (FIELD, ORDERED):
            assert (arithmetic.identity(arithmetic.encode("x", values, dtype)) == residues(np.array(wanted))).all()


def test_jobs_are_all_done_once_and_an_error_in_one_is_raised() -> None:
    done: list[int] = []
    in_parallel(lambda job, _: done.append(job), range(1000), lambda _: None)
    assert sorted(done) == list(range(1000))

    def work(job: int, _: None) -> None:
        if job == 500:
            raise MemoryError

    with pytest.raises(MemoryError):
        in_parallel(work, range(1000), lambda _: None)


@pytest.mark.parametrize("function", [np.maximum, np.minimum])
def test_small_windows_are_reduced_as_large_ones(function: np.ufunc) -> None:
    a = drawn(0, 40, 40)
    for size in range(1, 12):  # 8 x 8 elements are reduced one after the other
        windows = sliding_window_view(a, (size, size))
        assert (reduced(function, windows, (2, 3), a.dtype) == function.reduce(windows, (2, 3))).all()


@pytest.mark.parametrize("least", [0, 2**20, 2**30, 2**37])
@pytest.mark.parametrize("rounding", ["floor", "round", "int64"])
def test_numbers_of_any_magnitude_round_as_they_are(least: int, rounding: str) -> None:
    """By a third and back, which rounds: whole numbers, halves and what is between stay what they are."""
    exact = least + np.arange(-512, 512) / 64
    x, three = (ORDERED.encode("", a, "float64") for a in (exact, np.full(1024, 3.0)))
    back = ORDERED.multiply(ORDERED.divide(x, three), three)
    if rounding == "int64":
        assert (ORDERED.cast(back, rounding) == exact.astype(np.int64)).all()
    else:
        expected = np.floor(exact) if rounding == "floor" else np.rint(exact)
        assert (ORDERED.apply(rounding, back, keeps_zero=True).real == expected).all()


@pytest.mark.parametrize("dims", [(2, 3), (0, 3)])
@pytest.mark.parametrize("field", [FIELD, ORDERED])
def test_a_number_is_divided_by_repeated_elements(field: PrimeField | OrderedField, dims: tuple[int, int]) -> None:
    """The inverse of a repeated divisor is computed once; the quotient has the dims of the divisor."""
    six, two = (field.encode("", np.full((), n), "float64") for n in (6.0, 2.0))
    quotient = field.divide(six, np.broadcast_to(two, dims))
    assert quotient.shape == dims
    assert (quotient == field.encode("", np.full(dims, 3.0), "float64")).all()
