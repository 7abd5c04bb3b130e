"""Tests dual numbers: derivatives as in calculus, and every method against its definition."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from glenside.ir.operand import Array
from glenside.ir.primitives import PRIMITIVES
from glenside.semantics import PRIMES, Native
from glenside.semantics.dual_field import DERIVATIVES, TWO_OVER_ROOT_PI, DualField, slope_of
from glenside.semantics.formal_field import FormalField, FormalNumbers
from glenside.semantics.prime_field import PrimeField

P = PRIMES[0]
POINTS = {"acosh": np.array([1.25, 2.0, 7.5]), "log": np.array([0.25, 2.0, 7.5]), "sqrt": np.array([0.25, 2.0, 7.5])}
EVERYWHERE = np.array([-0.75, -0.25, 0.125, 0.5, 0.875])


@pytest.fixture
def dual() -> DualField:
    return DualField(FormalNumbers(FormalField(P)))


def draw(dual: DualField, *dims: int, seed: int = 0) -> Array:
    """Returns numbers with their places and changes, all drawn apart."""
    rng = np.random.default_rng([seed, *dims])
    half = dual.field.half
    number = rng.standard_normal(dims) + 1j * rng.integers(-half, half, dims)
    return dual.dual(number, rng.integers(-half, half, dims).astype(np.float64))


def parts(dual: DualField, a: Array) -> tuple[Array, Array]:
    """Residues and changes, from 0 to p - 1."""
    number, change = dual.parts(a)
    return number.imag.astype(np.int64) % P, change.astype(np.int64) % P


def test_every_function_of_reals_has_a_derivative_or_is_rounded() -> None:
    functions = {name for name, p in PRIMITIVES.items() if p.takes.dtypes and p.arity == 1 and p.exact is None}
    assert functions - DERIVATIVES.keys() == {"floor", "ceil", "round"}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_those_of_calculus(name: str) -> None:
    """By a central difference, whose error is about h^2."""
    x, step, native = POINTS.get(name, EVERYWHERE), 1e-5, Native()
    above, below = (native.apply(name, x + moved, False) for moved in (step, -step))
    found = slope_of(name, native, x, TWO_OVER_ROOT_PI)
    assert np.allclose(found, (above - below) / (2 * step), rtol=1e-7, atol=1e-8)


def test_the_constant_of_erf_is_the_nearest_float() -> None:
    assert float(TWO_OVER_ROOT_PI) == pytest.approx(2 / math.sqrt(math.pi), rel=2**-52)


def test_formal_functions_keep_their_laws() -> None:
    field = FormalField(P)
    x = np.random.default_rng(0).integers(-field.half, field.half, 200).astype(np.float32)
    one = np.ones_like(x)

    def of(name: str, at: Array = x) -> Array:
        return field.apply(name, at, False)

    def squared(a: Array) -> Array:
        return field.multiply(a, a)

    assert (field.multiply(of("exp"), of("exp", -x)) == one).all()
    assert (of("sigmoid") == field.divide(one, field.add(one, of("exp", -x)))).all()
    assert (field.add(of("sinh"), of("cosh")) == of("exp")).all()
    assert (field.divide(of("sinh"), of("cosh")) == of("tanh")).all()
    assert (field.add(squared(of("sin")), squared(of("cos"))) == one).all()
    assert (field.divide(of("sin"), of("cos")) == of("tan")).all()
    for odd in ("sin", "tan", "sinh", "tanh", "asin", "atan", "asinh", "atanh", "erf"):
        assert (of(odd) == -of(odd, -x)).all(), odd
        assert of(odd, np.zeros(1, np.float32)) == 0
    assert of("exp", np.zeros(1, np.float32)) == 1
    assert len(np.unique(of("exp"))) > 150  # a function of x, and no constant


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 17])
@pytest.mark.parametrize("kind", [PrimeField, FormalField])
def test_whole_powers_are_products(kind: type[PrimeField], exponent: int) -> None:
    field = kind(P)
    x = np.random.default_rng(1).integers(1, field.half, 50).astype(np.float32)
    found = field.power(x, np.asarray(exponent, np.float32))
    assert [int(y) % P for y in found] == [pow(int(v), exponent, P) for v in x]


def test_half_powers_are_those_of_square_roots() -> None:
    field = FormalField(P)
    x = np.arange(1, 50, dtype=np.float32)
    half = field.constant(Fraction(3, 2), "float32")
    root = field.apply("sqrt", x, True)
    assert (field.power(x, half) == field.multiply(root, field.multiply(root, root))).all()


def test_sums_and_products_change_as_they_must(dual: DualField) -> None:
    a, b = draw(dual, 3, 4), draw(dual, 3, 4, seed=1)
    (x, dx), (y, dy) = parts(dual, a), parts(dual, b)
    for found, value, change in (
        (dual.add(a, b), x + y, dx + dy),
        (dual.subtract(a, b), x - y, dx - dy),
        (dual.multiply(a, b), x * y, x * dy + y * dx),
        (dual.sum(a, (1,)), x.sum(1), dx.sum(1)),
    ):
        got, moved = parts(dual, found)
        assert (got == value % P).all()
        assert (moved == change % P).all()


def test_quotients_times_divisors_are_dividends(dual: DualField) -> None:
    a, b = draw(dual, 3, 4), draw(dual, 4, seed=1)
    assert (dual.identity(dual.multiply(dual.divide(a, b), np.broadcast_to(b, (3, 4)))) == dual.identity(a)).all()


def test_contractions_are_sums_of_products(dual: DualField) -> None:
    a, b = draw(dual, 2, 3, 700), draw(dual, 2, 4, 700, seed=1)
    (x, dx), (y, dy) = parts(dual, a), parts(dual, b)
    found, change = parts(dual, dual.contract(a, b, 1, 1))
    wide = [v.astype(object) for v in (x, dx, y, dy)]
    exact = np.einsum("gmk,gnk->gmn", wide[0], wide[2]) % P
    moved = (np.einsum("gmk,gnk->gmn", wide[0], wide[3]) + np.einsum("gmk,gnk->gmn", wide[1], wide[2])) % P
    assert (found == exact).all()
    assert (change == moved).all()


def test_products_of_items_are_those_of_pairs(dual: DualField) -> None:
    a = draw(dual, 2, 3)
    pairs = dual.multiply(dual.multiply(a[:, 0], a[:, 1]), a[:, 2])
    assert (dual.identity(dual.product(a, (1,))) == dual.identity(pairs)).all()
    assert (dual.identity(dual.product(a[:, :0], (1,))) == dual.identity(dual.constant(1, "float32"))).all()


def test_linear_maps_are_linear(dual: DualField) -> None:
    a = draw(dual, 3, 2)
    rows = [[Fraction(1), Fraction(-2), Fraction(1, 3)], [Fraction(0), Fraction(5, 2), Fraction(0)]]
    found = parts(dual, dual.linear_map(a, 0, rows))
    for got, value in zip(found, parts(dual, a), strict=True):
        for row, exact in zip(got, rows, strict=True):
            weights = [f.numerator * pow(f.denominator, -1, P) for f in exact]
            assert (row == np.tensordot(weights, value.astype(object), 1) % P).all()


def test_what_is_chosen_changes_as_itself(dual: DualField) -> None:
    a, b = draw(dual, 50), draw(dual, 50, seed=1)
    larger = np.where(a.real > b.real, a, b)
    assert (dual.identity(dual.own["max"](a, b)) == dual.identity(larger)).all()
    assert (dual.own["gt"](a, b) == (a.real > b.real)).all()
    magnitude = parts(dual, dual.own["abs"](a))[1]
    assert (magnitude == np.where(a.real < 0, -1, 1) * parts(dual, a)[1] % P).all()
    assert not parts(dual, dual.own["sign"](a))[1].any()
    assert (dual.identity(dual.own["select"](a > b, a, b)) == dual.identity(larger)).all()


def test_whole_numbers_do_not_change(dual: DualField) -> None:
    a = draw(dual, 50)
    assert not parts(dual, dual.apply("floor", a, True))[1].any()
    assert dual.cast(a, "int32").dtype == np.int32
    assert not parts(dual, dual.cast(np.arange(5), "float32"))[1].any()
    assert (parts(dual, dual.cast(a, "float16"))[1] == parts(dual, a)[1]).all()
