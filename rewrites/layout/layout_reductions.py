"""Moves rearrangements up through reductions and softmax, which use an item as a whole."""

from __future__ import annotations

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, V, rewrite, rule
from glenside.rewrites.facts import category, dims, source, split, varies
from glenside.rewrites.layout.layout import FAMILY, operand
from glenside.rewrites.layout.rearranging import normalizing, reducing, reducing_windows
from glenside.rewrites.terms import rearranged, under, variables, vec, whole


@rule(
    FAMILY,
    Example(f"(compute reduce-max {ex.moved('$m $n $k $l', '0 2 3 1', '$m $k $l', '$n')})", {"x": "m n k l"}),
    Example(f"(compute reduce-sum {ex.moved('$m $n $k $l', '1 0 3 2', '$n $m', '$l $k')})", {"x": "m n k l"}),
)
def rearrangement_leaves_reduction(f: V, c: V, b: V, p: V, o: V, d: V, n: V, size: V, dr: V) -> Clauses:
    """reduce(rearrange(b)) = rearrange(reduce(b)), over the parts of b that are the item.

    If they are not the last parts of b, the item is one window, a view, that spans these parts. Sound because a sum,
    product, mean, maximum or minimum does not depend on the order of its elements; the position of an element does, so
    argmax and argmin are left out.
    """
    shape, item, of_windows, window, strides, parts, order = variables("shape item whole window strides parts order")
    of_all = (category(f, "reduction"), f != "argmax", f != "argmin")
    guards = (of_all, operand(c, b, p, o, d), n == split(c), size == d.product(), dr == dims(ROOT))
    windows = op.windows(whole(b, size, of_windows), window, strides)
    rest = {"parts": parts, "order": order}
    return (
        rewrite(
            op.compute(f, c),
            rearranged(op.compute(f, under(b, size, shape, item)), parts, order, dr, vec()),
            guards,
            reducing.facts(p, o, d, n, shape=shape, item=item, **rest),
        ),
        rewrite(
            op.compute(f, c),
            rearranged(op.compute(f, windows), parts, order, dr, vec()),
            guards,
            reducing_windows.facts(p, o, d, n, whole=of_windows, window=window, strides=strides, **rest),
        ),
    )


@rule(FAMILY, Example(f"(compute softmax {ex.moved('$m $n $k', '1 0 2', '$n $m', '$k')})", {"x": "m n k"}))
def rearrangement_leaves_softmax(c: V, b: V, p: V, o: V, s: V, i: V, d: V, n: V, size: V, shape: V, item: V) -> Clauses:
    """softmax(rearrange(b)) = rearrange(softmax(b)), where the parts of b that are the item come last.

    Sound because each item is normalized as a whole, in any order of its elements.
    """
    return rewrite(
        op.softmax(c),
        rearranged(op.softmax(under(b, size, shape, item)), p, o, s, i),
        *(source(ROOT), varies(ROOT), c == op.rearrange(b, p, o, s, i), d == dims(c)),
        *(n == split(c), size == d.product(), normalizing.facts(p, o, d, n, shape=shape, item=item)),
    )
