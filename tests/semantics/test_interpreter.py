"""Tests evaluation: each term once, arrays freed, no product materialized, and two exact arithmetics."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from compute_examples import COMPUTES as COMPUTE_EXAMPLES
from example_values import VALUES, Example, integers, leaf
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_examples import OPERATORS as OPERATOR_EXAMPLES

from glenside.ir import contraction
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array, Product
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor
from glenside.semantics import PRIMES, Arithmetic, Native, PrimeField
from glenside.semantics.interpreter import evaluate

FIELDS = [PrimeField(p) for p in PRIMES]
FIELD = FIELDS[0]
HALF = FIELD.half


def tensor(name: str, *dims: int, dtype: str = "float32") -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype))


def residue(value: Fraction | int, p: int = FIELD.p) -> int:
    """Returns the signed representative, by Python's integers."""
    value = Fraction(value)
    r = value.numerator * pow(value.denominator, -1, p) % p
    return r - p if r > p // 2 else r


def residues(rationals: Any, p: int = FIELD.p) -> Array:
    array = np.asarray(rationals, object)
    return np.array([residue(v, p) for v in array.ravel()], np.float32).reshape(array.shape)


def run(term: Term, arithmetic: Arithmetic | None = None, **values: Any) -> Any:
    return evaluate([term], {**VALUES, **values}, arithmetic)[0]


def test_residues_are_never_added_or_multiplied_as_numbers() -> None:
    """What a prime field does not say for itself, numpy would do with residues as if they were floats."""
    methods = {name for name, value in vars(Native).items() if callable(value) and not name.startswith("_")}
    assert methods - vars(PrimeField).keys() == {"truncate", "identity", "ranked", "opaque", "opaque_pointwise"}
    assert "drawn" in vars(PrimeField)  # what black boxes are made of


# Evaluation


def relu(a: Term) -> Term:
    return build("compute", "relu", a)


def doubled(a: Term) -> Term:
    return build("compute", "elementwise-add", build("access-product", a, a, a.access.split))


def test_shared_terms_are_evaluated_once() -> None:
    """As a tree this has 2^68 leaves."""
    term = tensor("x", 3, dtype="int64")
    for _ in range(68):
        term = doubled(term)
    assert run(term, x=np.array([1, 2, -3])).tolist() == [0, 0, 0]  # 2^68 wraps to 0
    assert run(term, FIELD, x=np.array([1, 2, -3])).tolist() == [0, 0, 0]


def test_deep_terms_are_evaluated() -> None:
    term = tensor("x", 2)
    for i in range(20_000):
        term = build("access-flip", term, 0) if i % 2 else build("compute", "negative", term)
    assert run(term, x=np.array([1, 2], np.float32)).tolist() == [1, 2]


def test_arrays_are_freed_after_their_last_reader() -> None:
    alive: list[weakref.ref[Array]] = []
    seen: list[int] = []

    class Counting(Native):
        def add(self, a: Array, b: Array) -> Array:
            seen.append(sum(ref() is not None for ref in alive))
            result = super().add(a, b)
            alive.append(weakref.ref(result))
            return result

    term = tensor("x", 4)
    for _ in range(50):
        term = doubled(term)
    result = evaluate([term], {"x": np.ones(4, np.float32)}, Counting())
    assert result[0][0] == 2**50
    assert max(seen) == 1  # the operand alone
    del result
    assert not any(ref() is not None for ref in alive)


def test_watched_roots_are_handed_over_and_not_kept() -> None:
    alive: list[weakref.ref[Array]] = []
    most = 0
    layers = [tensor("x", 4)]
    for _ in range(20):
        layers.append(doubled(layers[-1]))
    seen: list[tuple[Term, float]] = []

    def watch(term: Term, array: Array) -> None:
        nonlocal most
        seen.append((term, float(array[0])))
        alive.append(weakref.ref(array))
        most = max(most, sum(ref() is not None for ref in alive))

    assert evaluate(layers[1:], {"x": np.ones(4, np.float32)}, watch=watch) == []
    assert seen == [(term, 2.0 ** (i + 1)) for i, term in enumerate(layers[1:])]
    assert most <= 2  # a layer and its operand


def test_roots_that_nothing_reads_are_dropped_before_the_next_is_computed() -> None:
    """All roots read one product, so that nothing stands between them in the order of evaluation."""
    alive: list[weakref.ref[Array]] = []

    class Counting(Native):
        def _count(self, result: Array) -> Array:
            assert not any(ref() is not None for ref in alive)
            alive.append(weakref.ref(result))
            return result

        def add(self, a: Array, b: Array) -> Array:
            return self._count(super().add(a, b))

        def subtract(self, a: Array, b: Array) -> Array:
            return self._count(super().subtract(a, b))

        def multiply(self, a: Array, b: Array) -> Array:
            return self._count(super().multiply(a, b))

    product = build("access-product", tensor("x", 4), leaf([1, 2, 3, 4]), 0)
    roots = [build("compute", kind, product) for kind in ("subtract", "elementwise-add", "elementwise-mul")]
    seen: list[Term] = []
    evaluate(roots, {**VALUES, "x": np.ones(4, np.float32)}, Counting(), watch=lambda term, _: seen.append(term))
    assert seen == roots
    assert len(alive) == 3


def test_given_values_stand_for_what_is_below_them() -> None:
    missing = relu(tensor("missing", 2))
    term = doubled(missing)
    assert evaluate([term], {}, given={missing: np.array([1, 5], np.float32)})[0].tolist() == [2, 10]
    with pytest.raises(BadInput, match=r"^tensor missing requires a value of shape \(2\), got none$"):
        evaluate([term, tensor("missing", 2)], {}, given={missing: np.array([1, 5], np.float32)})
    with pytest.raises(BadInput, match=r"^the value given for compute requires shape \(2\), got \(3\)$"):
        evaluate([term], {}, given={missing: np.zeros(3, np.float32)})


def test_roots_may_repeat_and_contain_each_other() -> None:
    x = tensor("x", 2)
    values = evaluate([doubled(x), x, doubled(x)], {"x": np.array([1, 2], np.float32)})
    assert [v.tolist() for v in values] == [[2, 4], [1, 2], [2, 4]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "tensor x requires a value of shape (2 3), got none"),
        ({"x": np.zeros((3, 2), np.float32)}, "tensor x requires shape (2 3), got (3 2)"),
        ({"x": np.zeros((2, 3))}, "tensor x requires dtype float32, got float64"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Array], message: str) -> None:
    with pytest.raises(BadInput) as raised:
        evaluate([tensor("x", 2, 3)], values)
    assert str(raised.value) == message


@pytest.mark.parametrize("arithmetic", [Native(), FIELD])
def test_a_product_is_formed_only_where_something_else_reads_it(
    arithmetic: Arithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = leaf(integers(3, 4), 1), leaf(integers(5, 4), 1)
    product = build("access-product", a, b, 0)
    dot, total = build("compute", "dot-product", product), build("compute", "elementwise-add", product)
    both = evaluate([dot, total, product], VALUES, arithmetic)
    assert both[2].shape == (3, 5, 2, 4)

    def refuse(*_: Any) -> Array:
        raise AssertionError("the product is formed")

    monkeypatch.setattr(Product, "array", property(refuse))
    monkeypatch.setattr(arithmetic, "multiply", refuse)
    for alone, expected in zip(evaluate([dot, total], VALUES, arithmetic), both[:2], strict=True):
        assert (alone == expected).all()


# Integers


def test_integers_wrap() -> None:
    highest, lowest = np.array([127], np.int8), np.array([-128], np.int8)
    x = tensor("x", 1, dtype="int8")
    assert run(doubled(x), x=highest).tolist() == [-2]
    assert run(build("compute", "negative", x), x=lowest).tolist() == [-128]
    wide = build("access-tensor", Tensor("w", Dims((2, 3)), "int32"))
    assert run(build("compute", "dot-product", wide), w=np.full((2, 3), 2**30, np.int32)).tolist() == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integer_products_are_exact_and_wrap(dtype: str) -> None:
    """Compared with Python's integers, at the extremes: float64 BLAS must be used only where it is exact."""
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    for bound in (limits.max, min(limits.max, 2**28 + 1), min(limits.max, 1000)):
        low = max(int(limits.min), -int(bound))
        a, b = (rng.integers(low, bound, (n, 37), dtype, endpoint=True) for n in (3, 5))
        exact = a.astype(object) @ b.astype(object).T
        product = build("compute", "dot-product", build("access-product", leaf(a, 1, dtype), leaf(b, 1, dtype), 0))
        wide = product.access.dtype
        assert wide == {"int8": "int32", "uint8": "int32", "int16": "int32"}.get(dtype, dtype)
        modulus, lowest = 2 ** np.iinfo(wide).bits, int(np.iinfo(wide).min)
        assert (run(product).astype(object) == (exact - lowest) % modulus + lowest).all()


# Contractions


@pytest.mark.parametrize(("block", "weights"), [(1 << 17, 1 << 22), (64, 1 << 22), (300, 40), (1, 1)])
@pytest.mark.parametrize("arithmetic", [Native(), FIELD], ids=["native", "field"])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_contractions_in_blocks(arithmetic: Arithmetic, block: int, weights: int, data: st.DataObject) -> None:
    """Every way to cut a contraction gives the sum of products, also through views and at sizes 0 and 1."""
    sizes = st.lists(st.integers(0, 5), max_size=2).map(tuple)
    g, m, n, k = (data.draw(sizes) for _ in range(4))
    a, b = integers(*g, *m, *k).astype(np.float32), integers(*g, *n, *k, seed=1).astype(np.float32)
    if data.draw(st.booleans()):
        a, b = a.copy(order="F"), np.repeat(b[None], 2, 0)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contraction, "BLOCK", block)
        patch.setattr(contraction, "_WEIGHTS_AT_ONCE", weights)
        patch.setattr(contraction, "_LEAST_ROWS", 2)
        found = arithmetic.contract(a, b, len(g), len(k))
    axes = list(range(20))
    of_g, of_m, of_n, of_k = (axes[5 * i : 5 * i + len(d)] for i, d in enumerate((g, m, n, k)))
    einsum: Any = np.einsum  # its stubs lack the form with axis numbers
    expected = einsum(a, of_g + of_m + of_k, b, of_g + of_n + of_k, of_g + of_m + of_n)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    assert (found == expected).all()


def test_errors_in_a_block_end_the_contraction() -> None:
    """After an error or Ctrl-C no further block is started, and no thread is left."""
    calls: Counter[str] = Counter()
    threads = threading.active_count()

    def multiply(a: Array, b: Array, out: Array) -> Array:
        calls["multiply"] += 1
        if calls["multiply"] == 1:
            raise KeyboardInterrupt
        time.sleep(0.01)
        return out

    a, out = np.ones((200_000, 64), np.float32), np.empty((200_000, 1), np.float32)
    with pytest.raises(KeyboardInterrupt):
        contraction.contract_into(out, a, np.ones((1, 64), np.float32), 0, 1, np.float32, multiply)
    assert calls["multiply"] < 20
    assert threading.active_count() == threads


# The prime fields


@pytest.mark.parametrize("p", [2**22 - 1, 4194303, 7, 2**31 - 1])
def test_a_field_needs_a_prime_near_two_to_the_22(p: int) -> None:
    with pytest.raises(BadInput, match="PrimeField requires a prime between"):
        PrimeField(p)


@given(st.integers(-(2**30), 2**30), st.integers(-3, 3))
def test_reduction_is_exact_next_to_where_it_rounds(multiple: int, offset: int) -> None:
    """The representative changes at (multiple + 1/2) p; contractions stay below 2^51, which is 2^29 p."""
    for field in FIELDS:
        for value in (multiple * field.p + offset, multiple * field.p + field.half + offset):
            if abs(value) < 2**51:
                assert int(field.reduce(np.array([float(value)]))[0]) == residue(value, field.p)


numbers = st.lists(st.integers(-HALF, HALF), min_size=1, max_size=5)


@given(numbers, st.data())
def test_field_arithmetic_is_that_of_the_residues(xs: list[int], data: st.DataObject) -> None:
    ys = data.draw(st.lists(st.integers(-HALF, HALF), min_size=len(xs), max_size=len(xs)))
    for field in FIELDS:
        a, b = residues(xs, field.p), residues(ys, field.p)
        exact = [np.array(v, object) for v in (xs, ys)]
        assert (field.add(a, b) == residues(exact[0] + exact[1], field.p)).all()
        assert (field.subtract(a, b) == residues(exact[0] - exact[1], field.p)).all()
        assert (field.multiply(a, b) == residues(exact[0] * exact[1], field.p)).all()
        quotients = [Fraction(x, y) if y % field.p else 0 for x, y in zip(xs, ys, strict=True)]
        assert (field.divide(a, b) == residues(quotients, field.p)).all()
        assert field.sum(a, (0,)) == residue(sum(xs), field.p)
        assert field.mean(a, (0,)) == residue(Fraction(sum(xs), len(xs)), field.p)
        assert field.product(a, (0,)) == residue(int(np.prod(exact[0])), field.p)


def test_long_sums_of_the_largest_products_are_exact() -> None:
    """K = 9000 crosses many of the parts in which products are summed; K = 2048 is summed at once, to where reduction
    is exact no longer. Odd products show a lost last bit.
    """
    for field, length in product(FIELDS, (512, 2048, 9000)):
        odd = field.half - 1 + field.half % 2
        a = np.full((2, length), odd, np.float32)
        a[1, ::7] -= 2
        b = np.stack([a[0], -a[0]])
        exact = a.astype(np.int64).astype(object) @ b.astype(np.int64).astype(object).T
        assert (field.contract(a, b, 0, 1) == residues(exact, field.p)).all()


def test_values_and_constants_are_exact_rationals() -> None:
    for field in FIELDS:
        given_values = np.array([0.1, -3.0, 1e30, 2.0**-1070, 0.0, -1.5, 4194304.0])
        expected = residues([Fraction(v) for v in given_values.tolist()], field.p)
        assert (field.encode("x", given_values, "float64") == expected).all()
        assert field.constant(Fraction(1, 3), "float32") == residue(Fraction(1, 3), field.p)
        for dtype in ("int8", "uint64", "int64"):
            extremes = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 3], dtype)
            assert (field.encode("x", extremes, "float32") == residues(extremes.tolist(), field.p)).all()
    with pytest.raises(BadInput, match=r"^tensor x requires finite values for exact checking, got inf or nan$"):
        FIELD.encode("x", np.array([np.nan]), "float32")
    with pytest.raises(BadInput, match=r"^tensor x requires dtype float32, got bool$"):
        FIELD.encode("x", np.array([True]), "float32")
    with pytest.raises(BadInput, match=r"^tensor x requires dtype int64, got float64$"):
        FIELD.encode("x", np.array([1.0]), "int64")


FUNCTIONS = ("exp", "log", "sqrt", "tanh", "sigmoid", "erf", "floor", "ceil", "round")


@pytest.mark.parametrize("field", FIELDS)
def test_functions_are_fixed_elementwise_and_differ(field: PrimeField) -> None:
    x = np.arange(-field.half, field.half + 1, 997, dtype=np.float32)
    images = {name: field.apply(name, x, False) for name in FUNCTIONS}
    for name, image in images.items():
        assert (np.abs(image) <= field.half).all()
        assert (np.rint(image) == image).all()
        assert (field.apply(name, x[::-1][:, None], False)[:, 0] == image[::-1]).all()
        assert len(set(image.tolist())) > 0.99 * x.size
    assert all((images[a] == images[b]).mean() < 0.01 for a in FUNCTIONS for b in FUNCTIONS if a < b)
    assert field.apply("sqrt", np.zeros(2, np.float32), True).tolist() == [0, 0]
    assert (field.power(x, x) != field.power(x, x[::-1])).mean() > 0.99


RING = (
    "dot-product",
    "reduce-sum",
    "reduce-prod",
    "elementwise-add",
    "elementwise-mul",
    "subtract",
    "relu",
    "negative",
)
ORDERED = (
    "abs",
    "sign",
    "reduce-max",
    "reduce-min",
    "argmax",
    "argmin",
    "argsort",
    "minimum",
    "maximum",
    "compare",
    "select",
)
EXACT = [
    (name, example)
    for table in (OPERATOR_EXAMPLES, {name: COMPUTE_EXAMPLES[name] for name in (*RING, *ORDERED)})
    for name, rows in table.items()
    for example in rows
    if name not in ("construct-tuple", "opaque", "opaque-pointwise", "opaque-items", "bitcast")  # residues have no bits
]


@pytest.mark.parametrize(("name", "example"), EXACT, ids=[name for name, _ in EXACT])
def test_examples_hold_in_the_field(name: str, example: Example) -> None:
    """Small integers and their images under ring operations and comparisons are what they are among the reals."""
    expected = np.asarray(example.value)
    if expected.dtype.kind == "f" and (not np.isfinite(expected).all() or name == "cast"):
        pytest.skip("min-padding is the lowest representative, and a cast of a fraction has no meaning in a field")
    value = run(example.term, FIELD)
    if example.term.access.dtype.startswith("float"):
        rationals = [Fraction(v).limit_denominator(1000) for v in expected.ravel().tolist()]
        assert (value == residues(rationals).reshape(expected.shape)).all()
        assert value.dtype == np.float32
    elif name != "cast":
        assert (value == expected).all()
        assert value.dtype == example.term.access.dtype


def test_padding_with_the_lowest_value_is_ignored_by_a_maximum() -> None:
    a = leaf(-100 - abs(integers(2, 3)), 1)
    padded = build("compute", "reduce-max", build("access-pad", a, "min-padding", 1, 1, 1))
    for arithmetic in (Native(), FIELD):
        assert (run(padded, arithmetic) == run(build("compute", "reduce-max", a), arithmetic)).all()
    assert run(build("access-pad", a, "min-padding", 1, 1, 0), FIELD)[0, 0] == -HALF


def test_softmax_in_the_field_is_exp_sum_and_division() -> None:
    x = leaf(integers(2, 5), 1)
    powers = build("compute", "exp", x)
    total = build("access-broadcast", _column(build("compute", "reduce-sum", powers)), ((2,), (5,)))
    spelled_out = build("compute", "elementwise-div", build("access-product", *_items(powers, total), 2))
    assert (run(build("compute", "softmax", x), FIELD) == run(spelled_out, FIELD)).all()


def _column(a: Term) -> Term:
    return build("access", build("access-insert-axis", a, 1), 1)


def _items(*terms: Term) -> list[Term]:
    return [build("access", t, 2) for t in terms]


def test_casts_in_the_field() -> None:
    mask = build("cast", leaf([[1, 0, 2]], 1), "bool")
    assert run(build("cast", mask, "float32"), FIELD).tolist() == [[1, 0, 1]]
    assert run(build("cast", leaf([-3, 70_000_000], 0, "int64"), "float32"), FIELD).tolist() == [
        -3,
        residue(70_000_000),
    ]
    assert run(build("cast", leaf([-3, 5]), "int8"), FIELD).tolist() == [-3, 5]


def test_equal_programs_agree_in_the_field_where_floats_do_not() -> None:
    """(a b) c = a (b c): the reason for the fields."""
    a, b, c = (leaf(np.random.default_rng(i).normal(size=(7, 7)), 1) for i in range(3))

    def product(x: Term, y: Term) -> Term:
        columns = build("access", build("access-transpose", y, (1, 0)), 1)
        return build("access", build("compute", "dot-product", build("access-product", x, columns, 0)), 1)

    left, right = product(product(a, b), c), product(a, product(b, c))
    for arithmetic, equal in ((Native(), False), (FIELD, True)):
        one, other = evaluate([left, right], VALUES, arithmetic)
        assert (one == other).all() == equal


def test_windows_of_no_axes_are_added_up_to_what_they_are() -> None:
    x = build("access", build("access-tensor", Tensor("x", Dims(), "float32")), 0)
    (found,) = evaluate([build("access-overlap-add", x, (), ())], {"x": np.float32(3)})
    assert found.shape == ()
    assert found == 3
