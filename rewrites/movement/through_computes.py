"""Movement and computations on items: each item is computed by itself, so what moves whole items can move outside.

What rises (concatenate, pad, reshape, transpose) rises only where the program itself has it, not where tiling put
it; slices sink, because only a product's demand makes them.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause, rewrite
from glenside.egraph.rule import Example
from rewrites.declare import rule
from rewrites.movement.algebra import TILED

FAMILY = "through-computes"
_X = "(access (access-tensor x) 2)"
POINTWISE = '(category f "pointwise")'
BY_ITEM = '(category f c) (!= c "contraction")'


@rule(
    FAMILY,
    Example(f"(compute relu (access-concatenate {_X} {_X} 2))", {"x": "m n k"}),
    Example(f"(compute reduce-max (access-concatenate {_X} {_X} 1))", {"x": "m n k"}),
    Example(f"(compute softmax (access-concatenate {_X} {_X} 0))", {"x": "m n k"}),
)
def concatenate_leaves_compute() -> tuple[Clause, ...]:
    """f(concatenate(a, b)) = concatenate(f(a), f(b)), on a shape axis for every f, on any axis for a pointwise one.

    Sound because f sees one item, or one element, at a time, and each of them lies in one part.
    """
    left, right = "(compute f (access-concatenate a b x))", "(access-concatenate (compute f a) (compute f b) x)"
    return (
        rewrite(left, right, f"(source a) (source b) {BY_ITEM} (= s (split a)) (< x s)"),
        rewrite(left, right, f"(source a) (source b) {POINTWISE} (= s (split a)) (>= x s)"),
    )


@rule(
    FAMILY,
    Example(f"(access-slice (compute relu {_X}) 2 1 3)", {"x": "m n 5"}, wants="(tiled $x2)"),
    Example(f"(access-slice (compute reduce-sum {_X}) 1 1 3)", {"x": "m 5 k"}, wants="(tiled $x2)"),
    relations=TILED,
)
def slice_sinks_into_compute() -> tuple[Clause, ...]:
    """slice(f(a)) = f(slice(a)), on a shape axis for every f but a product, on any axis for a pointwise one.

    Sound because f sees one item, or one element, at a time. Products are left out: their slices are the tiles.
    """
    left, right = "(access-slice (compute f a) x lo hi)", "(compute f (access-slice a x lo hi))"
    return (
        rewrite(left, right, f"(tiled a) {BY_ITEM} (= s (split a)) (< x s)"),
        rewrite(left, right, f"(tiled a) {POINTWISE} (= s (split a)) (>= x s)"),
    )


@rule(
    FAMILY,
    Example(f"(compute relu (access-pad {_X} zero-padding 2 1 2))", {"x": "m n k"}),
    Example(f"(compute reduce-sum (access-pad {_X} zero-padding 1 1 2))", {"x": "m n k"}),
)
def pad_leaves_compute() -> tuple[Clause, ...]:
    """f(pad(a)) = pad(f(a)) with zeros, for pointwise f with f(0) = 0, and for reductions on a shape axis.

    Sound because f makes zero of what was added: an element 0, or an item of zeros whose sum, mean, largest and
    smallest are 0. Not for softmax, whose item of zeros gives 1/n, and not on an item that a reduction reads.
    """
    left = '(compute f (access-pad a "zero-padding" x before after))'
    right = '(access-pad (compute f a) "zero-padding" x before after)'
    item = '(category f "reduction") (= s (split a)) (< x s) (= d (dims a)) (= item (drop d s)) (= n (product item))'
    return (
        rewrite(left, right, f"(source a) {POINTWISE} (keeps-zero f)"),
        rewrite(left, right, f"(source a) {item} (> n 0)"),
    )


@rule(
    FAMILY,
    Example(f"(compute relu (access-reshape {_X} (access-shape (shape 6) (shape 1 $k))))", {"x": "2 3 k"}),
    Example(f"(compute reduce-max (access-reshape {_X} (access-shape (shape 6) (shape $k))))", {"x": "2 3 k"}),
    Example(f"(compute softmax (access-reshape {_X} (access-shape (shape 3 2) (shape $k))))", {"x": "2 3 k"}),
)
def reshape_leaves_compute() -> tuple[Clause, ...]:
    """f(reshape(a)) = reshape(f(a)), for pointwise f; for every other, when the reshape leaves the items as they are.

    Sound because the same elements, or the same items, are computed in the same order.
    """
    left = "(= root (compute f (access-reshape a s i))) (source a)"
    return (
        Clause(f"{left} {POINTWISE}", "(union root (access-reshape (compute f a) s i))"),
        Clause(
            f'{left} (category f "reduction") (= d (dims a)) (= n (split a)) (= item (drop d n)) (= item i)',
            "(union root (access-reshape (compute f a) s (vec-empty)))",
        ),
        Clause(
            f'{left} (category f "normalization") (= d (dims a)) (= n (split a)) (= item (drop d n)) (= item i)',
            "(union root (access-reshape (compute f a) s i))",
        ),
    )


@rule(
    FAMILY,
    Example(f"(compute relu (access-transpose {_X} (list 2 0 1)))", {"x": "m n k"}),
    Example(f"(compute reduce-max (access-transpose {_X} (list 1 0 2)))", {"x": "m n k"}),
)
def transpose_leaves_compute() -> tuple[Clause, ...]:
    """f(transpose(a)) = transpose(f(a)), for pointwise f; for reductions, when only shape axes move among themselves.

    Sound because the same elements, or the same items, are computed; only their places differ.
    """
    left = "(= root (compute f (access-transpose a p))) (source a)"
    return (
        Clause(f"{left} {POINTWISE}", "(union root (access-transpose (compute f a) p))"),
        Clause(
            f'{left} (category f "reduction") (= s (split a)) (= shape (take p s)) (= items (drop p s))'
            " (= all (vec-range (vec-length p))) (= kept (drop all s)) (= items kept)",
            "(union root (access-transpose (compute f a) shape))",
        ),
    )


@rule(
    FAMILY,
    Example("(compute reduce-sum (access-transpose (access (access-tensor x) 1) (list 0 2 1)))", {"x": "m n k"}),
    Example(
        "(compute reduce-max (access-reshape (access (access-tensor x) 1) (access-shape (shape $m) (shape 6))))",
        {"x": "m 2 3"},
    ),
)
def reductions_ignore_order() -> tuple[Clause, ...]:
    """reduce(transpose(a)) = reduce(a) and reduce(reshape(a)) = reduce(a), when only the item is rearranged.

    Sound because a sum, product, mean, maximum or minimum over the whole item does not depend on the order of its
    elements. The place of a maximum does, so argmax and argmin are left out.
    """
    free = '(category f "reduction") (!= f "argmax") (!= f "argmin")'
    return (
        Clause(
            f"(= root (compute f (access-transpose a p))) {free} (= s (split a)) (= shape (take p s))"
            " (= order (vec-range s)) (= shape order)",
            "(union root (compute f a))",
        ),
        Clause(
            f"(= root (compute f (access-reshape a s i))) {free} (= d (dims a)) (= n (split a)) (= shape (take d n))"
            " (= shape s)",
            "(union root (compute f a))",
        ),
    )


@rule(
    FAMILY,
    Example(
        "(compute reduce-sum (access-concatenate (access (access-tensor x) 1) (access (access-tensor x) 1) 2))",
        {"x": "m n k"},
    ),
    Example("(compute reduce-sum (access-pad (access (access-tensor x) 1) zero-padding 2 1 2))", {"x": "m n k"}),
)
def sum_of_parts_is_a_sum() -> tuple[Clause, ...]:
    """reduce-sum(concatenate(a, b, item axis)) = reduce-sum(a) + reduce-sum(b); of a zero pad of the item,
    reduce-sum(a).

    Sound because a sum over two parts is the sum of their sums, and zeros add nothing. Not for reduce-mean, which
    counts the zeros, and not for reduce-max, for which a zero may be the largest.
    """
    total = '(compute "reduce-sum" {0})'
    return (
        rewrite(
            total.format("(access-concatenate a b x)"),
            f'(compute "elementwise-add" (access-product {total.format("a")} {total.format("b")} s))',
            "(source a) (source b) (= s (split a)) (>= x s)",
        ),
        rewrite(
            total.format('(access-pad a "zero-padding" x before after)'),
            total.format("a"),
            "(= s (split a)) (>= x s)",
        ),
    )
