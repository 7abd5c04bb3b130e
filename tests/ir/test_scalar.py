"""Tests scalar expressions: parsing, types, and that each record computes its expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from allocations import measured_peak
from onnx_exports import same
from rule_checks import saturated
from scalar_oracle import OF_BOOLS, OF_FLOATS, OF_INTEGERS, TAKES, of_residues, wrapped

import glenside as gl
from glenside.analysis.liveness import peak_bytes
from glenside.egraph.encode import declarations
from glenside.ir.dtypes import DTYPES, FLOATS, STORED, largest_float, limits
from glenside.ir.elementwise import folds
from glenside.ir.errors import TypeMismatch
from glenside.ir.operand import Array
from glenside.ir.operator import COMPUTES, Category, Compute, Keeps, register
from glenside.ir.operators import parse_compute
from glenside.ir.primitives import PRIMITIVES, maximum, minimum, select
from glenside.ir.program import Program
from glenside.ir.reference import form, markdown
from glenside.ir.scalar import Scalar, arity, at_zero, gives, typed, x, y, z
from glenside.ir.term import Term, build
from glenside.ir.text import parse, print_term
from glenside.ir.types import Dims, Tensor
from glenside.semantics import PRIMES, Arithmetic, Native, PrimeField
from glenside.semantics.interpreter import evaluate

HARD_SWISH = x * minimum(maximum(x + 3, 0), 6) / 6


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (maximum(x, 0), "max(x, 0)"),
        (select(x < 0, x * "1/10", x), "select(x < 0, x * (1/10), x)"),
        (HARD_SWISH, "x * min(max(x + 3, 0), 6) / 6"),
        (-(x - y) / (x * y), "-(x - y) / (x * y)"),
        (x - (y - z), "x - (y - z)"),
        ((x < 0) * 2, "(x < 0) * 2"),
        (2 - abs(x) ** Fraction(1, 2), "2 - pow(abs(x), 1/2)"),
    ],
)
def test_an_expression_prints_as_it_reads(expression: Scalar, text: str) -> None:
    assert str(expression) == text


def test_what_an_expression_takes_and_gives() -> None:
    assert (arity(HARD_SWISH), gives(HARD_SWISH), typed("f", HARD_SWISH, "int8", "")) == (1, "same", "int8")
    within = PRIMITIVES["logical-and"](x > 0, x < y)
    assert (arity(within), gives(within), typed("f", within, "float16", "")) == (2, "bool", "bool")
    assert typed("f", select(x, y, z), "bool", "") == "bool"
    for expression, dtype, message in (
        (maximum(x, 0), "bool", "f requires numbers, got it"),
        (x + "1/2", "int8", "f requires a value that int8 can hold, got 1/2"),
        (x + 300, "uint8", "f requires a value that uint8 can hold, got 300"),
        (PRIMITIVES["exp"](x), "int8", "f requires a float dtype (float16, bfloat16, float32, float64), got it"),
        (PRIMITIVES["bitwise-or"](x, y), "float32", "f requires an integer dtype, got it"),
        ((x < 0) + x, "float32", "f requires operands of add of one dtype, got bool and float32"),
    ):
        with pytest.raises(TypeMismatch) as error:
            typed("f", expression, dtype, "it")
        assert str(error.value) == message
    with pytest.raises(ValueError, match="max requires 2 operands, got 1"):
        maximum(x)


def test_zero_is_kept_where_the_expression_says_so() -> None:
    keeps = "relu negative abs sign sqrt tanh erf sin tan asin atan sinh asinh atanh floor ceil round leaky-relu"
    assert {name for name, c in COMPUTES.items() if c.category is Category.POINTWISE and Keeps.ZERO in c.keeps} == set(
        keeps.split()
    )
    assert at_zero(HARD_SWISH) == 0
    for unknown in (x * PRIMITIVES["log"](x), x / x, maximum(x, "lo"), PRIMITIVES["exp"](x) - 1):
        assert at_zero(unknown) is None
    assert at_zero(x + "1/3") == Fraction(1, 3)
    assert at_zero(select(x < 0, "alpha", x)) == 0


@pytest.mark.parametrize("name", [name for name, p in PRIMITIVES.items() if p.exact is not None])
def test_exact_meanings_are_those_of_numpy(name: str) -> None:
    """On small whole numbers, where only quotients round."""
    primitive = PRIMITIVES[name]
    dtype = primitive.takes.dtypes[-1] if primitive.takes.dtypes[0] != "float16" else "float64"
    random = np.random.default_rng(7)
    operands = [
        random.integers(-6 * (dtype == "float64"), 2 + 6 * (dtype != "bool"), 80).astype(dtype) for _ in range(3)
    ]
    operands = operands[: primitive.arity]
    with np.errstate(all="ignore"):
        out = np.empty(80, "bool" if primitive.gives == "bool" else dtype)
        primitive.numpy(*operands, out=out)
    for values, got in zip(zip(*operands, strict=True), out.tolist(), strict=True):
        exact = primitive.exact(*(bool(v) if dtype == "bool" else Fraction(v.item()) for v in values))
        assert exact is None or math.isclose(float(exact), got, rel_tol=1e-12)


# Each record against the oracle


def _kinds() -> Iterator[str]:
    given = {"clip": ["(clip 1 100)"], "leaky-relu": ["(leaky-relu 1/3)"]}
    for name, compute in COMPUTES.items():
        if compute.scalar is not None:
            choices = compute.parameters[0].choices if compute.parameters else ()
            yield from given.get(name, [f"({name} {choice})" for choice in choices] or [name])


def _term(kind: str, dims: tuple[int, ...], dtype: str) -> Term:
    return build("compute", kind, build("access-tensor", Tensor("v", Dims(dims), dtype)))


def _counts(kind: str) -> tuple[int, ...]:
    """Returns the number of operands a fold is tried on."""
    compute, parameters = parse_compute(kind)
    expression = compute.expression(*parameters)
    if compute.category is Category.POINTWISE:
        return (0,)
    return (1, 2, 3) if folds(expression) else (arity(expression),)


def _operands(dtype: str, count: int) -> Array:
    """Returns numbers of all magnitudes of a dtype, negative ones, zeros and its extremes among them."""
    random = np.random.default_rng((count, DTYPES.index(dtype)))
    dims = (count, 150) if count else (150,)
    if dtype == "bool":
        return random.integers(0, 2, dims).astype(bool)
    if dtype in FLOATS:
        special = np.array([0, -0.0, 1, -1, 0.5, 2, -3, 1000, np.inf, -np.inf, np.nan, largest_float(dtype)], dtype)
        return np.where(random.random(dims) < 0.4, random.choice(special, dims), random.normal(0, 3, dims)).astype(
            dtype
        )
    low, high = limits(dtype)
    special = np.array([low, low + 1, high, high - 1, 0, 1, 2, 3, *([-1, -2] if low else [])], dtype)
    return np.where(
        random.random(dims) < 0.6,
        random.choice(special, dims),
        random.integers(low, high, dims, np.int8 if dtype in STORED else dtype).astype(dtype),
    )


def _expected(function: Callable[..., Any], operands: Array, folded: bool, convert: Callable[[Any], Any]) -> list[Any]:
    if operands.ndim == 1:
        return [function(convert(value)) for value in operands]
    columns = [[convert(value) for value in column] for column in operands.T]
    return [reduce(function, column) if folded else function(*column) for column in columns]


def _real(function: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """Python's math knows no results that are infinite or not numbers: numpy's own are taken there."""

    def call(*values: Any) -> Any:
        try:
            return np.dtype(dtype).type(float(function(*values)))
        except (ValueError, OverflowError):
            return None

    return call


@pytest.mark.parametrize("kind", [*_kinds()])
def test_native_meanings_are_those_of_the_oracle(kind: str) -> None:
    folded = folds(COMPUTES[parse_compute(kind)[0].name].expression(*parse_compute(kind)[1]))
    for dtype in DTYPES:
        for count in _counts(kind):
            operands = _operands(dtype, count)
            if dtype not in TAKES[kind]:
                with pytest.raises(TypeMismatch):
                    _term(kind, operands.shape, dtype)
                continue
            (got,) = evaluate([_term(kind, operands.shape, dtype)], {"v": operands})
            with np.errstate(all="ignore"):
                if dtype in FLOATS:
                    want = _expected(_real(OF_FLOATS[kind], got.dtype.name), operands, folded, lambda value: value)
                elif dtype == "bool":
                    want = _expected(OF_BOOLS[kind], operands, folded, bool)
                else:
                    step = OF_INTEGERS[kind]
                    want = _expected(lambda *v, f=step, d=dtype: wrapped(int(f(*v)), d), operands, folded, int)
            agree = [
                w is None or g == w or (g != g and w != w) or _near(float(g), float(w), dtype)
                for g, w in zip(got.tolist(), want, strict=True)
            ]
            assert got.shape == operands.shape[-1:]
            nan = np.isnan(operands.astype(float)).reshape(-1, operands.shape[-1]).any(0)
            assert (np.array(agree) | nan).all(), (dtype, count)


def _near(got: float, want: float, dtype: str) -> bool:
    """Within a few units of the last place, for functions of reals."""
    if dtype not in FLOATS:
        return False
    finest = ml_dtypes.finfo(dtype)
    return math.isclose(got, want, rel_tol=8 * float(finest.eps), abs_tol=float(finest.tiny))


@pytest.mark.parametrize("p", PRIMES)
@pytest.mark.parametrize("kind", [*_kinds()])
def test_meanings_in_prime_fields_are_those_of_the_oracle(kind: str, p: int) -> None:
    oracle = of_residues(p)
    if "float32" not in TAKES[kind] or kind not in oracle:
        return
    half, random = (p - 1) // 2, np.random.default_rng(p)
    folded = folds(parse_compute(kind)[0].expression(*parse_compute(kind)[1]))
    for count in _counts(kind):
        dims = (count, 200) if count else (200,)
        special = np.array([0, 1, -1, half, -half, half - 1, 3])
        operands = np.where(random.random(dims) < 0.5, random.choice(special, dims), random.integers(-half, half, dims))
        (got,) = evaluate([_term(kind, dims, "float32")], {"v": operands.astype(np.float32)}, PrimeField(p))
        assert got.tolist() == _expected(oracle[kind], operands, folded, int), count


def test_what_reductions_combine_with() -> None:
    """Joined by the primitive, in any order; nothing gives the neutral element."""
    values = np.array([[3, -1, 2, -5], [-2, 6, 1, 1]], np.int32)
    for name, compute in COMPUTES.items():
        assert (compute.combine is not None) == (name in ("reduce-sum", "reduce-prod", "reduce-max", "reduce-min"))
        if compute.combine is None:
            continue
        primitive = compute.combine
        assert primitive.exact is not None
        assert primitive.associative
        term = build("compute", name, build("access", build("access-tensor", Tensor("v", Dims((2, 4)), "int32")), 1))
        assert evaluate([term], {"v": values})[0].tolist() == [reduce(primitive.exact, row) for row in values.tolist()]
        if primitive.neutral is not None:
            assert [primitive.exact(primitive.neutral, n) for n in (-2, 7)] == [-2, 7]
            nothing = build("compute", name, build("access", build("access-slice", term.children[0], 1, 0, 0), 1))
            assert evaluate([nothing], {"v": values})[0].tolist() == [primitive.neutral] * 2


# A compute type that is one record, and nothing else


@pytest.fixture
def hard_swish() -> Iterator[Compute]:
    yield register(Compute("hard-swish", Category.POINTWISE, "x * min(max(x + 3, 0), 6) / 6.", scalar=HARD_SWISH))
    del COMPUTES["hard-swish"]
    parse_compute.cache_clear()


@pytest.fixture
def clamped_sum() -> Iterator[Compute]:
    """A fold of an expression of two primitives."""
    record = Compute("clamped-sum", Category.FOLD, "min(x + y, 5), left to right.", scalar=minimum(x + y, 5))
    yield register(record)
    del COMPUTES["clamped-sum"]
    parse_compute.cache_clear()


def _swish(values: Array) -> Array:
    return values * np.minimum(np.maximum(values + 3, 0), 6) / 6


def test_a_record_is_all_that_a_compute_type_needs(hard_swish: Compute) -> None:
    program = parse("(compute hard-swish (access (access-tensor v) 1))", shapes={"v": (4, 50)})
    assert print_term(program.term) == "(compute hard-swish (access (access-tensor v) 1))"
    assert str(program.term.type) == "(4)(50) float32"
    with pytest.raises(TypeMismatch, match="hard-swish requires numbers, got"):
        _term("hard-swish", (3,), "bool")
    assert (hard_swish.dtype, hard_swish.keeps) == ("same", Keeps.ZERO)
    assert '(keeps-zero "hard-swish")' in declarations()
    snapshot, _ = saturated(program, (), {})
    assert snapshot.nodes
    values = np.random.default_rng(0).normal(0, 4, (4, 50)).astype(np.float32)
    assert (evaluate([program.term], {"v": values})[0] == _swish(values)).all()
    assert f"`{form(hard_swish)}`" in markdown()
    same(program, {"v": values})
    source = gl.export_jax(program)
    assert [line.split(" = ")[1] for line in source.splitlines() if " = " in line] == [
        "jnp.add(v, jnp.float32(3.0))",
        "jnp.maximum(v0, jnp.float32(0.0))",
        "jnp.minimum(v1, jnp.float32(6.0))",
        "jnp.multiply(v, v2)",
        f"jnp.multiply(v3, jnp.float32({np.float32(1) / np.float32(6)}))",
    ]


def test_a_record_has_a_meaning_in_a_prime_field(hard_swish: Compute) -> None:
    p = PRIMES[0]
    values = np.arange(-20, 21)
    (got,) = evaluate([_term("hard-swish", (41,), "float32")], {"v": values.astype(np.float32)}, PrimeField(p))
    want = [v * min(max(v + 3, 0), 6) * pow(6, -1, p) % p for v in values.tolist()]
    assert [int(g) % p for g in got] == want


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_an_expression_of_several_primitives_folds(clamped_sum: Compute, dtype: str, count: int) -> None:
    values = np.random.default_rng(count).integers(-9, 9, (count, 30)).astype(dtype)
    term = _term("clamped-sum", values.shape, dtype)
    assert evaluate([term], {"v": values})[0].tolist() == [
        reduce(lambda a, b: min(a + b, 5), column) for column in values.T.tolist()
    ]
    same(Program(term), {"v": values})


@pytest.mark.slow
@pytest.mark.parametrize("dims", [(900, 500), *(dims for dims in ((3, 150_000), (2, 220_000)))])
def test_memory_is_told_of_expressions_of_several_primitives(
    hard_swish: Compute, clamped_sum: Compute, dims: tuple[int, ...]
) -> None:
    kinds: Mapping[str, tuple[str, ...]] = {"hard-swish": ("float32", "int32"), "clamped-sum": ("float32",)}
    for kind, dtypes in kinds.items():
        for dtype in dtypes:
            if kind == "hard-swish" or dims[0] < 9:
                program = Program(_term(kind, dims, dtype))
                told, measured = peak_bytes(program.term).bytes, measured_peak(program)
                assert abs(told - measured) <= 0.01 * measured + (64 << 10), (kind, dtype)


@pytest.mark.parametrize("arithmetic", [Native(), PrimeField()])
def test_results_lie_in_row_major_order_and_operands_stay(hard_swish: Compute, arithmetic: Arithmetic) -> None:
    values = np.arange(-30, 30, dtype=np.float32).reshape(5, 12)
    before = values.copy()
    x = build("access-transpose", build("access-tensor", Tensor("v", Dims((5, 12)))), (1, 0))
    (got,) = evaluate([build("compute", "hard-swish", x)], {"v": values}, arithmetic)
    assert got.flags.c_contiguous
    assert (values == before).all()
