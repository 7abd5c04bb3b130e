"""Where fixed-point products are truncated: at once, as today's protocols do, or late, where that is fewer elements.

In secure computation a truncation is paid for each element, additions and movement are free. A truncation rounds by at
most one unit of the last place, u = 2^-f; whatever follows it scales that error, so each rule says what becomes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.tables import table
from glenside.ir.rational import exact_numbers
from rewrites.declare import rule

EARLY, LATE = "early-truncations", "late-truncations"


@table(found=int)
def whole_numbers(coefficients: str) -> tuple[int] | None:
    """1 where a linear map has whole coefficients only: it needs no product, so no truncation of its own."""
    values = exact_numbers(coefficients)
    return (1,) if values is not None and all(v.denominator == 1 for v in values) else None


class _Form(NamedTuple):
    """An operator of one operand {0}, linear with whole coefficients; how an example writes it over (m n)()."""

    pattern: str
    example: str
    guard: str = ""
    shapes: Mapping[str, str] = MappingProxyType({"x": "m k", "w": "n k"})


_FORMS = (
    _Form("(access-transpose {0} p)", "(access-transpose {0} (list 1 0))"),
    _Form("(access-slice {0} n lo hi)", "(access-slice {0} 0 0 1)"),
    _Form("(access {0} n)", "(access {0} 1)"),
    _Form("(access-reshape {0} s i)", "(access-reshape {0} (access-shape (shape 1 $m $n) (shape)))"),
    _Form(
        "(access-rearrange {0} v o s i)",
        "(access-rearrange {0} (shape $m $n) (list 1 0) (access-shape (shape $n) (shape $m)))",
    ),
    _Form("(access-flip {0} n)", "(access-flip {0} 1)"),
    _Form('(access-pad {0} "zero-padding" n lo hi)', "(access-pad {0} zero-padding 1 1 2)"),
    _Form("(access-dilate {0} n d)", "(access-dilate {0} 0 1)"),
    _Form(
        "(access-overlap-add {0} v o)",
        "(access-overlap-add (access-slice (access {0} 1) 1 0 2) (shape 6) (shape 1))",
        shapes={"x": "5 k", "w": "n k"},
    ),
    _Form(
        "(linear-map {0} n r c)",
        '(linear-map (access-slice {0} 0 0 2) 0 3 "1 -1 0 2 3 1")',
        "(= 1 (whole-numbers-found c))",
    ),
)
_MATMUL = "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))"
_SHAPES = {"x": "m k", "w": "n k"}
_PAIR = '(= root (compute "elementwise-add" (access-product a b n)))'
_JOINED = f"(access-concatenate {_MATMUL} (access-slice {_MATMUL} 0 1 2) 0)"


@rule(EARLY, *(Example(f"(truncate {f.example.format(_MATMUL)})", f.shapes) for f in _FORMS))
def truncation_enters_linear_map() -> tuple[Clause, ...]:
    """truncate(f(a)) = f(truncate(a)), for f that moves, or adds with whole coefficients.

    Precision: one rounding after f becomes a rounding of each element that f adds, so an error of u becomes at most
    u times the largest sum of |coefficients|: 1 for movement. Sound because truncation stands for the identity.
    """
    return tuple(
        Clause(
            f"(= root (truncate y)) (= y {f.pattern.format('a')}) {f.guard}",
            f"(union root {f.pattern.format('(truncate a)')})",
        )
        for f in _FORMS
    )


@rule(
    EARLY,
    Example(f"(truncate {_JOINED})", _SHAPES),
    Example(f"(truncate (compute elementwise-add (access-product {_MATMUL} {_MATMUL} 2)))", _SHAPES),
)
def truncation_enters_both_operands() -> tuple[Clause, ...]:
    """truncate(join(a, b)) = join(truncate(a), truncate(b)), for concatenations and sums.

    Precision: a sum rounds twice, by 2 u instead of u; a concatenation as before. Sound because truncation stands for
    the identity.
    """
    return (
        Clause(
            "(= root (truncate y)) (= y (access-concatenate a b n))",
            "(union root (access-concatenate (truncate a) (truncate b) n))",
        ),
        Clause(
            '(= root (truncate y)) (= y (compute "elementwise-add" (access-product a b n)))',
            '(union root (compute "elementwise-add" (access-product (truncate a) (truncate b) n)))',
        ),
    )


@rule(LATE, *(Example(f.example.format(f"(truncate {_MATMUL})"), f.shapes) for f in _FORMS))
def truncation_leaves_linear_map() -> tuple[Clause, ...]:
    """f(truncate(a)) = truncate(f(a)), for f that moves, or adds with whole coefficients.

    Precision: never worse, one rounding instead of several; the numbers before it keep 2 f fractional bits, so the ring
    must hold the sums. Sound because truncation stands for the identity.
    """
    return tuple(
        Clause(
            f"(= root {f.pattern.format('y')}) (= y (truncate a)) {f.guard}",
            f"(union root (truncate {f.pattern.format('a')}))",
        )
        for f in _FORMS
    )


@rule(
    LATE,
    Example(
        f"(compute elementwise-add (access-product (truncate {_MATMUL}) (truncate (access (access-tensor y) 2)) 2))",
        {**_SHAPES, "y": "m n"},
    ),
    Example(
        f"(compute elementwise-add (access-product (truncate (access {_MATMUL} 1)) (access (access-tensor c) 1) 1))",
        {**_SHAPES, "c": "m n"},
        "(constant $c1)",
    ),
    Example(
        f"(compute elementwise-add (access-product (access (access-tensor c) 1) (truncate (access {_MATMUL} 1)) 1))",
        {**_SHAPES, "c": "m n"},
        "(constant $c1)",
    ),
)
def truncations_of_a_sum_are_one() -> tuple[Clause, ...]:
    """truncate(a) + truncate(b) = truncate(a + b), and truncate(a) + c = truncate(a + c) for a constant c.

    Precision: an error of u instead of 2 u; a constant is encoded with 2 f fractional bits beforehand, for nothing.
    Sound because truncation stands for the identity.
    """
    sum_ = '(compute "elementwise-add" (access-product {0} {1} n))'
    return (
        Clause(
            f"{_PAIR} (= a (truncate u)) (= b (truncate v))",
            f"(union root (truncate {sum_.format('u', 'v')}))",
        ),
        Clause(f"{_PAIR} (= a (truncate u)) (constant b)", f"(union root (truncate {sum_.format('u', 'b')}))"),
        Clause(f"{_PAIR} (constant a) (= b (truncate v))", f"(union root (truncate {sum_.format('a', 'v')}))"),
    )
