"""Rearrangements rise through what sees an item as a whole: reductions and softmax."""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from rewrites.declare import rule
from rewrites.expressions import rearranged, under, whole
from rewrites.layout.layout import FAMILY, MOVED, OPERAND

_RANK4 = {"x": "m n k l"}


@rule(
    FAMILY,
    Example(f"(compute reduce-max {MOVED.format('$m $n $k $l', '0 2 3 1', '$m $k $l', '$n')})", _RANK4),
    Example(f"(compute reduce-sum {MOVED.format('$m $n $k $l', '1 0 3 2', '$n $m', '$l $k')})", _RANK4),
)
def rearrangement_leaves_reduction() -> tuple[Clause, ...]:
    """reduce(rearrange(b)) = rearrange(reduce(b)), over the parts of b that are the item.

    Where they do not come last in b, they are the item of one window that is whole along them: a view. Sound because
    a sum, product, mean, maximum or minimum does not depend on the order of its elements; the place of one does, so
    argmax and argmin are left out.
    """
    free = '(category f "reduction") (!= f "argmax") (!= f "argmin")'
    facts = f"(= root (compute f c)) {free} {OPERAND} (= n (split c)) (= size (product d)) (= dr (dims root))"
    key = "p o d n"

    def read(name: str, *results: str) -> str:
        return "".join(f" (= {result} ({name}-{result} {key}))" for result in results)

    return (
        Clause(
            facts + read("reducing", "shape", "item", "parts", "order"),
            "(union root "
            + rearranged(f"(compute f {under('b', 'size', 'shape', 'item')})", "parts", "order", "dr", "(vec-empty)")
            + ")",
        ),
        Clause(
            facts + read("reducing-windows", "whole", "window", "strides", "parts", "order"),
            "(union root "
            + rearranged(
                f"(compute f (access-windows {whole('b', 'size', 'whole')} window strides))",
                "parts",
                "order",
                "dr",
                "(vec-empty)",
            )
            + ")",
        ),
    )


@rule(FAMILY, Example(f"(compute softmax {MOVED.format('$m $n $k', '1 0 2', '$n $m', '$k')})", {"x": "m n k"}))
def rearrangement_leaves_softmax() -> tuple[Clause, ...]:
    """softmax(rearrange(b)) = rearrange(softmax(b)), where the parts of b that are the item come last.

    Sound because each item is normalized as a whole, in whatever order its elements stand.
    """
    key = "p o d n"
    return (
        Clause(
            f'(= root (compute "softmax" c)) {OPERAND} (= n (split c)) (= size (product d))'
            f" (= shape (normalizing-shape {key})) (= item (normalizing-item {key}))",
            "(union root "
            + rearranged(f'(compute "softmax" {under("b", "size", "shape", "item")})', "p", "o", "s", "i")
            + ")",
        ),
    )
