"""Computes the products of a batch as products of elements: more bytes than matrix products, but
one message for all.
"""

from __future__ import annotations

from typing import Any

from glenside.ir.types import Dims
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.convolution.recipes import recipe
from glenside.rewrites.declare import ROOT, Clauses, Example, V, rule, union, when
from glenside.rewrites.facts import dims, split, table
from glenside.rewrites.terms import dot, variables, vec

FAMILY = "products-of-elements"


@table(left=Dims, right=Dims, whole=Dims, more=str)
def beside_each_other(da: Dims, sa: int, db: Dims, sb: int, n: int, words: str) -> tuple[Dims, Dims, Dims, str] | None:
    """Returns (G, A)(I) and (G, B)(I) as (G, A, 1 .., I) and (G, 1 .., B, I), their product (G, A, B, I), and the words
    of the form with one step more; None for a batch of one, or one from Winograd's algorithm, which has other forms.
    """
    shared, rows, columns, item = da.take(n), da.take(sa).drop(n), db.take(sb).drop(n), da.drop(sa)
    if shared.product() < 2 or "winograd" in words:
        return None
    left = (*shared, *rows, *(1 for _ in columns), *item)
    right = (*shared, *(1 for _ in rows), *columns, *item)
    whole = Dims((*shared, *rows, *columns, *item))
    return Dims(left), Dims(right), whole, f"{words} elements:{shared.product()}".strip()


_GROUPED = f"(truncate {ex.dot(ex.access('x', 2), ex.access('w', 2), 1)})"


@rule(
    FAMILY,
    Example(_GROUPED, {"x": "3 m k", "w": "3 n k"}),
    Example(_GROUPED, {"x": "2 m 1", "w": "2 n 1"}),
)
def products_of_a_batch_are_of_elements(
    p: V, words: V, a: V, b: V, n: V, left: V, right: V, whole: V, more: V, rank: V, s: V
) -> Clauses:
    """truncate(dot(a x b)) = sum(truncate((a repeated along b) * (b repeated along a))), the sum over the items.

    Matrices of a batch are multiplied one after the other, elements all at once. It pays if messages cost more than
    bytes. Precision: one rounding becomes one of each element that is added. Sound because this is the definition of a
    matrix product, and truncation stands for the identity.
    """
    da, sa, db, sb = variables("da sa db sb")
    sides = (
        *(da == dims(a), sa == split(a), db == dims(b), sb == split(b)),
        beside_each_other.facts(da, sa, db, sb, n, words, left=left, right=right, whole=whole, more=more),
    )

    def repeated(x: V, sizes: V) -> Any:
        row = op.reshape(op.access(x, 0), vec(), sizes)
        return op.access(op.broadcast(row, vec(), whole), rank)

    product = op.elementwise_mul(op.product(repeated(a, left), repeated(b, right), rank))
    return when(
        *(ROOT == op.truncate(p), recipe(p, words), p == dot(a, b, n), sides),
        *(rank == whole.length, s == split(p)),
    ).then(union(ROOT, op.reduce_sum(op.access(product, s))), recipe(ROOT, more))
