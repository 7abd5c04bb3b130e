"""What stands around the two products of multi-head attention: heads apart and together, and shares out of scores."""

from __future__ import annotations

from glenside.builder.layout import reshape, transpose
from glenside.builder.pointwise import add, divide, softmax, square_root
from glenside.ir.operator import require
from glenside.ir.term import Term


def check(q: Term, k: Term, v: Term, heads: int) -> None:
    """Raise TypeMismatch when these are no queries, keys and values of that many heads."""
    kinds = [x.access for x in (q, k, v)]
    got = f"{' and '.join(map(str, kinds))} in {heads} heads"
    require(all(x.rank == 3 for x in kinds), "attention", "q, k and v of ()(N S D)", got)
    (n, _, depth), keys, values = (x.dims for x in kinds)
    require(keys[0] == n and values[:2] == keys[:2] and keys[2] == depth, "attention", "q, k and v that agree", got)
    require(heads >= 1 and depth % heads == values[2] % heads == 0, "attention", "heads that divide the depths", got)


def split_heads(x: Term, heads: int) -> Term:
    """()(N S D) -> ()(N heads S D/heads)."""
    batch, length, depth = x.access.dims
    return transpose(reshape(x, (batch, length, heads, depth // heads)), (0, 2, 1, 3))


def join_heads(x: Term) -> Term:
    """()(N heads S E) -> ()(N S heads*E)."""
    batch, heads, length, depth = x.access.dims
    return reshape(transpose(x, (0, 2, 1, 3)), (batch, length, heads * depth))


def shares(scores: Term, depth: int, mask: Term | None) -> Term:
    """softmax(scores / sqrt(depth) + mask) over the keys."""
    scaled = divide(scores, square_root(depth, scores.access.dtype))
    return softmax(scaled if mask is None else add(scaled, mask))
