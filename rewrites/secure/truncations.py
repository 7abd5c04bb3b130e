"""Chooses where to truncate fixed-point products: early, as current protocols do, or late, where there are fewer
elements.

In secure computation each truncated element has a cost, whereas additions and movement are free. A truncation rounds by
at most one unit in the last place, u = 2^-f; later operations scale that error, so each rule states its effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from glenside.ir.rational import exact_numbers
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, Facts, V, rewrite, rule, union, when
from glenside.rewrites.facts import access_at, constant, table
from glenside.rewrites.terms import variables

EARLY, LATE = "early-truncations", "late-truncations"


@table(found=int)
def whole_numbers(coefficients: str) -> tuple[int] | None:
    """Returns 1 for a linear map with only integer coefficients: it needs no product, so no truncation of its own."""
    values = exact_numbers(coefficients)
    return (1,) if values is not None and all(v.denominator == 1 for v in values) else None


class _Form(NamedTuple):
    """An operator of one operand, linear with integer coefficients, and its text in an example over (m n)()."""

    of: Callable[[V], V]
    example: str
    guards: Facts = ()
    shapes: Mapping[str, str] = MappingProxyType({"x": "m k", "w": "n k"})


_n, _lo, _hi, _parts, _order, _shape, _item, _rows, _matrix = variables("n lo hi parts order shape item rows matrix")
_FORMS = (
    _Form(lambda a: op.transpose(a, _order), "(access-transpose {0} (list 1 0))"),
    _Form(lambda a: op.slice(a, _n, _lo, _hi), "(access-slice {0} 0 0 1)"),
    _Form(lambda a: op.access(a, _n), "(access {0} 1)"),
    _Form(lambda a: op.reshape(a, _shape, _item), "(access-reshape {0} (access-shape (shape 1 $m $n) (shape)))"),
    _Form(
        lambda a: op.rearrange(a, _parts, _order, _shape, _item),
        "(access-rearrange {0} (shape $m $n) (list 1 0) (access-shape (shape $n) (shape $m)))",
    ),
    _Form(lambda a: op.flip(a, _n), "(access-flip {0} 1)"),
    _Form(lambda a: op.pad(a, "zero-padding", _n, _lo, _hi), "(access-pad {0} zero-padding 1 1 2)"),
    _Form(lambda a: op.dilate(a, _n, _lo), "(access-dilate {0} 0 1)"),
    _Form(
        lambda a: op.overlap_add(a, _shape, _item),
        "(access-overlap-add (access-slice (access {0} 1) 1 0 2) (shape 6) (shape 1))",
        shapes={"x": "5 k", "w": "n k"},
    ),
    _Form(
        lambda a: op.linear_map(a, _n, _rows, _matrix),
        '(linear-map (access-slice {0} 0 0 2) 0 3 "1 -1 0 2 3 1")',
        whole_numbers.found(_matrix) == 1,
    ),
)
_SHAPES = {"x": "m k", "w": "n k"}
_JOINED = f"(access-concatenate {ex.MATMUL} (access-slice {ex.MATMUL} 0 1 2) 0)"


def _sum(a: V, b: V, n: V) -> Any:
    return op.elementwise_add(op.product(a, b, n))


@rule(EARLY, *(Example(f"(truncate {f.example.format(ex.MATMUL)})", f.shapes) for f in _FORMS))
def truncation_enters_linear_map(a: V, y: V) -> Clauses:
    """truncate(f(a)) = f(truncate(a)), for f that moves elements, or adds them with integer coefficients.

    Precision: one rounding after f becomes a rounding of each element that f adds, so an error of u becomes at most u
    times the largest sum of |coefficients|, which is 1 for movement. Sound because truncation stands for the identity.
    """
    return tuple(
        when(ROOT == op.truncate(y), y == form.of(a), form.guards).then(union(ROOT, form.of(op.truncate(a))))
        for form in _FORMS
    )


@rule(
    EARLY,
    Example(f"(truncate {_JOINED})", _SHAPES),
    Example(f"(truncate (compute elementwise-add (access-product {ex.MATMUL} {ex.MATMUL} 2)))", _SHAPES),
)
def truncation_enters_both_operands(a: V, b: V, n: V, y: V) -> Clauses:
    """truncate(join(a, b)) = join(truncate(a), truncate(b)), for concatenations and sums.

    Precision: a sum rounds twice, by 2 u instead of u; a concatenation as before. Sound because truncation stands for
    the identity.
    """
    return (
        when(ROOT == op.truncate(y), y == op.concatenate(a, b, n)).then(
            union(ROOT, op.concatenate(op.truncate(a), op.truncate(b), n))
        ),
        when(ROOT == op.truncate(y), y == _sum(a, b, n)).then(union(ROOT, _sum(op.truncate(a), op.truncate(b), n))),
    )


@rule(LATE, *(Example(f.example.format(f"(truncate {ex.MATMUL})"), f.shapes) for f in _FORMS))
def truncation_leaves_linear_map(a: V, y: V) -> Clauses:
    """f(truncate(a)) = truncate(f(a)), for f that moves elements, or adds them with integer coefficients.

    Precision: never worse, with one rounding instead of several; numbers before it keep 2 f fractional bits, so the
    ring must hold the sums. Sound because truncation stands for the identity.
    """
    return tuple(
        when(ROOT == form.of(y), y == op.truncate(a), form.guards).then(union(ROOT, op.truncate(form.of(a))))
        for form in _FORMS
    )


@rule(
    LATE,
    Example(
        f"(compute elementwise-add (access-product (truncate {ex.MATMUL}) (truncate (access (access-tensor y) 2)) 2))",
        {**_SHAPES, "y": "m n"},
    ),
    Example(
        f"(compute elementwise-add (access-product (truncate (access {ex.MATMUL} 1)) (access (access-tensor c) 1) 1))",
        {**_SHAPES, "c": "m n"},
        [constant(access_at("c1"))],
    ),
    Example(
        f"(compute elementwise-add (access-product (access (access-tensor c) 1) (truncate (access {ex.MATMUL} 1)) 1))",
        {**_SHAPES, "c": "m n"},
        [constant(access_at("c1"))],
    ),
)
def truncations_of_a_sum_are_one(a: V, b: V, n: V, u: V, v: V) -> Clauses:
    """truncate(a) + truncate(b) = truncate(a + b), and truncate(a) + c = truncate(a + c) for a constant c.

    Precision: an error of u instead of 2 u; encoding a constant with 2 f fractional bits costs nothing at run time.
    Sound because truncation stands for the identity.
    """
    return (
        rewrite(_sum(a, b, n), op.truncate(_sum(u, v, n)), a == op.truncate(u), b == op.truncate(v)),
        rewrite(_sum(a, b, n), op.truncate(_sum(u, b, n)), a == op.truncate(u), constant(b)),
        rewrite(_sum(a, b, n), op.truncate(_sum(a, v, n)), constant(a), b == op.truncate(v)),
    )
