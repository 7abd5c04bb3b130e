"""Moves rearrangements up: f of a rearranged tensor equals a rearrangement of f of the tensor.

A layout that one product gives its result thereby extends over everything up to the next product, where two
rearrangements meet and become one, or none. Each chain of reshapes, transposes and splits is one `access-rearrange`
here. Rules only fire for what the program itself computes of its inputs: their results are in the same classes, and
constants cost nothing at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import (
    ROOT,
    Clauses,
    Example,
    Facts,
    V,
    analysis,
    let,
    rewrite,
    rule,
    set_,
    subsume,
    union,
    when,
)
from glenside.rewrites.facts import (
    ACCESS,
    INT,
    INTS,
    access_at,
    constant,
    dims,
    function,
    inverse,
    relation,
    source,
    split,
    varies,
)
from glenside.rewrites.layout import rearranging
from glenside.rewrites.terms import rearranged, under, variables, vec, whole

FAMILY = "layout"
CORE = "rearranging"  # the rules that folding needs
moved_broadcast = relation(
    "moved-broadcast",
    moved=ACCESS, linear=ACCESS, wide=ACCESS, narrow=ACCESS, parts=INTS, order=INTS, shape=INTS, item=INTS, size=INT
)  # fmt: skip
form = function("form", INTS, "old", moved=ACCESS, linear=ACCESS, shape=INTS, item=INTS)
unmoved = inverse("unmoved", moved=ACCESS, parts=INTS, order=INTS, dims=INTS, split=INT)
# The tensor of examples; and the classes of the program that are unknown before run time.
TURNED = ex.moved("$m $n $k $l", "0 2 3 1", "", "$m $k $l $n")
_X = access_at("x")
RANK4 = {"x": "m n k l"}
ANYWHERE = "(list) (list)"
"""The parts and axes of a function that is the same at all positions."""
BOXES = (op.opaque_pointwise, op.opaque_items)
"""Functions of elements, or of items, with their attributes renumbered for the axes of the parts."""
OURS = (source(ROOT), varies(ROOT))


def operand(c: V, b: V, p: V, o: V, d: V) -> Facts:
    """Matches a root that belongs to the program and is not constant, whose operand c = rearrange(b; p, o) has dims
    d.
    """
    shape, item = variables("c-shape c-item")
    return (*OURS, c == op.rearrange(b, p, o, shape, item), d == dims(c))


def lifted(linear: V, b: V) -> Facts:
    """Matches `linear` as the elements of b along one axis, or as b under other dims."""
    size, shape, item = variables(f"{linear}-size {linear}-shape {linear}-item")
    return (linear == op.rearrange(b, size, vec(0), shape, item),)


# root has dims WIDE = (SHAPE)(ITEM).
WIDE, SHAPE, ITEM, _SPLIT = variables("wide shape item split")
SHAPED = (WIDE == dims(ROOT), _SPLIT == split(ROOT), SHAPE == WIDE.take(_SPLIT))
TYPED = (*SHAPED, ITEM == WIDE.drop(_SPLIT))


def _as_root(x: V, parts: V, order: V) -> Any:
    """Returns x rearranged, with the type of root."""
    return rearranged(x, parts, order, SHAPE, ITEM)


@rule(
    CORE,
    Example("(access-transpose (access-tensor x) (list 0 2 3 1))", RANK4),
    Example("(access-reshape (access (access-tensor x) 1) (access-shape (shape $m 1) (shape 2 $k)))", {"x": "m k 2"}),
    Example("(access-squeeze (access-insert-axis (access-tensor x) 1) 1)", {"x": "m k"}),
    Example("(access-shift-right (access-flatten (access (access-tensor x) 1)))", {"x": "m k n"}),
)
def movement_is_a_rearrangement(a: V, p: V, s: V, i: V, n: V, x: V, d: V, parts: V, order: V, size: V) -> Clauses:
    """transpose(a, p) = rearrange(a; dims, p), and every reshape or split is a rearrangement of one part.

    Sound because a transpose reorders whole axes, and reshapes keep the row-major order.
    """
    still = (
        *(op.reshape(a, s, i), op.access(a, n), op.squeeze(a, x), op.insert_axis(a, x)),
        *(op.shift_right(a), op.flatten(a)),
    )
    return (
        rewrite(
            op.transpose(a, p),
            _as_root(a, parts, order),
            d == dims(a),
            rearranging.transposing.facts(d, p, parts=parts, order=order),
            TYPED,
        ),
        *(
            rewrite(form, under(a, size, SHAPE, ITEM), d == dims(a), size == d.product(), size > 0, TYPED)
            for form in still
        ),
    )


_BROAD = "(access-broadcast (access-tensor x) (access-shape (shape) (shape 4 6 5)))"
_NARROW = ex.rearranged(ex.rearranged(_BROAD, 120, 0, "", 120), "4 6 5", "2 0 1", "", "5 4 6")


_REPEATED = (
    Example(_NARROW, {"x": "1 6 1"}, [constant(_X)]),
    Example(_NARROW, {"x": "4 6 1"}),
    Example(_NARROW, {"x": "1 1 1"}),
    Example(_NARROW.replace(_BROAD, "(full (shape 4 6 5) 3 float32)"), {}),
)


@analysis(CORE, *_REPEATED[:3])
def rearranged_broadcasts_are_known(b: V, z: V, linear: V, p: V, o: V, s: V, i: V, t: V, j: V) -> Clauses:
    """Finds the rearrangements of broadcasts.

    An analysis: it adds no e-node. It makes such a rearrangement sink before it composes with others. Sound because it
    only reads facts that hold.
    """
    sizes, size, shape, item = variables("sizes size wide-shape wide-item")
    return when(
        *(ROOT == op.rearrange(linear, p, o, s, i), linear == op.rearrange(b, sizes, vec(0), t, j)),
        *(b == op.broadcast(z, shape, item), size == sizes[0]),
    ).then(moved_broadcast(ROOT, linear, wide=b, narrow=z, parts=p, order=o, shape=s, item=i, size=size))


@rule(CORE, *_REPEATED)
def rearrangement_sinks_into_broadcast(linear: V, b: V, z: V, p: V, o: V, s: V, i: V, v: V, k: V) -> Clauses:
    """rearrange(broadcast(z)) = broadcast(rearrange(z)): the small tensor is rearranged, and repeated in its new place.

    A bias is a vector in every layout, and one number has no layout. Sound because all elements along a repeated axis
    are one element of z. If z is constant or one number, this moves nothing, and the first form is not explored
    further: a repeated tensor equals many rearrangements of itself, and of those.
    """
    size, narrow, wide, parts, order, few, many = variables("size narrow wide parts order few many")
    found = moved_broadcast(ROOT, linear, wide=b, narrow=z, parts=p, order=o, shape=s, item=i, size=size)
    moved = op.broadcast(rearranged(z, parts, order, vec(), few), vec(), many)
    before = rearranging.before_broadcast.facts(p, o, narrow, wide, parts=parts, order=order, small=few, large=many)
    sinks = (found, narrow == dims(z), wide == dims(b), before)
    in_place, first = union(ROOT, under(moved, size, s, i)), op.rearrange(linear, p, o, s, i)
    return (
        when(sinks).then(in_place),
        *(
            when(sinks, o != vec(0), fixed).then(in_place, subsume(first))
            for fixed in ((constant(ROOT),), (narrow.product() == 1,))
        ),
        when(
            *(ROOT == op.rearrange(b, p, o, s, i), b == op.full(wide, v, k), size == wide.product(), size > 0),
            wide.append(o) != vec(size, 0),
        ).then(union(ROOT, under(op.full(vec(size), v, k), size, s, i)), subsume(op.rearrange(b, p, o, s, i))),
    )


_ALL_ONE = ex.rearranged("(full (shape 6) 1 float32)", "2 3", "1 0", "", 6)
_ANOTHER = op.rearrange(op.full(vec(6), "1", "float32"), vec(3, 2), vec(1, 0), vec(), vec(6))
_FORMS = Example(_ALL_ONE, {}, [union(access_at("root"), _ANOTHER)])
_ITSELF = op.rearrange(access_at("root"), vec(3, 2), vec(1, 0), vec(), vec(6))


@analysis(CORE, Example(ex.moved("2 3", "1 0", "", "6"), {"x": "6"}))
def rearrangements_have_a_form(b: V, p: V, o: V, s: V, i: V) -> Clauses:
    """Records one of the ways in which a class is a rearrangement of another.

    An analysis: it adds no e-node. Sound because it only reads facts that hold.
    """
    return when(ROOT == op.rearrange(b, p, o, s, i)).then(set_(form(ROOT, b, s, i), p.append(vec(0), o)))


@rule(CORE, _FORMS, Example(_ALL_ONE, {}, [union(access_at("root"), _ITSELF)]))
def one_form_of_a_rearrangement_is_enough(b: V, p: V, o: V, s: V, i: V, kept: V) -> Clauses:
    """rearrange(a; p, o) = a, and all but one of rearrange(b; p, o) = rearrange(b; q, r), are not explored further.

    A tensor that repeats along some axes equals many rearrangements of one tensor, and all their compositions.
    Sound because one way to build a class from another remains, and no term contains itself.
    """
    itself, again = op.rearrange(ROOT, p, o, s, i), op.rearrange(b, p, o, s, i)
    return (
        when(ROOT == itself).then(subsume(itself)),
        when(ROOT == again, o != vec(0), kept == form(ROOT, b, s, i), kept != p.append(vec(0), o)).then(subsume(again)),
    )


@rule(CORE, Example(ex.rearranged(ex.moved("2 3", "1 0", "", "6"), "3 2", "1 0", "", 6), {"x": "6"}))
def rearrangements_compose(a: V, b: V, p: V, o: V, s: V, i: V, q: V, r: V, t: V, j: V, d: V, n: V) -> Clauses:
    """rearrange(rearrange(a; p, o); q, r) = rearrange(a; both), which is a if nothing moves and the dims are its own.

    Sound because each is a permutation of the elements in row-major order, and permutations compose.
    """
    parts, order = variables("parts order")
    return (
        rewrite(
            op.rearrange(b, q, r, t, j),
            rearranged(a, parts, order, t, j),
            *(b == op.rearrange(a, p, o, s, i), d == dims(a), d.length == 1, split(a) == 0),
            rearranging.composed.facts(p, o, q, r, parts=parts, order=order),
        ),
        rewrite(
            op.rearrange(a, p, o, s, i), a, o == vec(0), d == dims(a), d == s.append(i), n == split(a), n == s.length
        ),
    )


_TWICE = ex.rearranged(ex.moved("$m $n", "1 0", "", "$n $m"), "$n $m", "1 0", "", "$m $n")


@rule(CORE, Example(_TWICE, {"x": "m n"}), Example(ex.moved("$m $n", "0 1", "$m", "$n"), {"x": "m n"}))
def operands_are_flat(b: V, p: V, o: V, s: V, i: V, d: V, n: V, size: V, shape: V, item: V, linear: V) -> Clauses:
    """rearrange(b; p, o) = rearrange(flat(b); p, o), where flat(b) are its elements along one axis.

    Tensors that differ only in dims then are rearrangements of one tensor, and each layout of a tensor is one class,
    for all of its shapes; so the first form is not explored further. Sound because a rearrangement reads its operand in
    row-major order, whatever its dims.
    """
    return when(
        *(ROOT == op.rearrange(b, p, o, s, i), d == dims(b), n == split(b), size == d.product(), size > 0),
        d.push(n) != vec(size, 0),  # not flat already,
        o.append(s, i, vec(s.length)) != vec(0, size, 0),  # nor the form that makes it flat
        *(shape == d.take(n), item == d.drop(n)),
    ).then(
        let(linear, whole(b, size, vec(size))),
        union(ROOT, rearranged(linear, p, o, s, i)),
        union(b, under(linear, size, shape, item)),
        subsume(op.rearrange(b, p, o, s, i)),
    )


_TWO = ex.moved("2 3", "1 0", "", "3 2")
_ALIKE = op.rearrange(op.negative(op.negative(_X)), vec(2, 3), vec(1, 0), vec(), vec(3, 2))


@rule(CORE, Example(_TWO, {"x": "2 3"}, [union(access_at("root"), _ALIKE)]))
def equal_rearrangements_are_of_equals(a: V, p: V, o: V, s: V, i: V, d: V, n: V) -> Clauses:
    """rearrange(a; p, o) = rearrange(b; p, o) implies a = b, where both have the same dims.

    Classes that different rules make of one tensor are thereby merged. Sound because a rearrangement is one to one.
    """
    known = (ROOT == op.rearrange(a, p, o, s, i), d == dims(a), n == split(a))
    return when(known).then(union(a, unmoved(ROOT, p, o, d, n)))


_WIDE = "(access-broadcast {0} (access-shape (shape) (shape $m 6 $n 5)))"


@rule(
    FAMILY,
    Example(_WIDE.format(ex.moved("$n $m", "1 0", "", "$m 1 $n 1")), {"x": "n m 1 1"}),
    Example(_WIDE.format(ex.moved("$n $m 6", "1 2 0", "", "$m 6 $n 1")), {"x": "n m 6 1"}),
)
def rearrangement_leaves_broadcast(c: V, s: V, i: V, b: V, p: V, o: V, d: V) -> Clauses:
    """broadcast(rearrange(b)) = rearrange(broadcast(b)), with the repeated axes next to the parts that they follow.

    Sound because a repeated axis has size 1 before, so it may be anywhere among the parts of b.
    """
    ones, parts, after, order, size = variables("ones parts after order size")
    repeated = op.broadcast(whole(b, size, ones), vec(), parts)
    return rewrite(
        op.broadcast(c, s, i),
        _as_root(repeated, after, order),
        *(operand(c, b, p, o, d), TYPED),
        rearranging.broadcasting.facts(p, o, d, WIDE, ones=ones, parts=parts, after=after, order=order),
        size == d.product(),
    )


_WITH_ONE = ex.moved("$m $n 1 $l", "0 2 3 1", "", "$m 1 $l $n")


@rule(
    FAMILY,
    Example(f"(access-pad {TURNED} zero-padding 1 1 2)", RANK4),
    Example(f"(access-slice {TURNED} 1 0 2)", RANK4),
    Example(f"(access-flip {TURNED} 1)", RANK4),
    Example(f"(access-dilate {TURNED} 3 2)", RANK4),
    Example(f"(access-pad {_WITH_ONE} zero-padding 1 1 2)", {"x": "m n 1 l"}),
)
def rearrangement_leaves_one_axis(c: V, x: V, kind: V, lo: V, hi: V, n: V, b: V, p: V, o: V, d: V) -> Clauses:
    """pad(rearrange(b), x) = rearrange(pad(b, the part that is x)); likewise for slice, flip and dilate.

    Only if x is one part of b. Sound because these act on a whole axis, wherever it is.
    """
    new, at, parts, after, order, size, moved = variables("new at parts after order size moved")
    changes: tuple[Callable[[V, V], V], ...] = (
        lambda a, axis: op.pad(a, kind, axis, lo, hi),
        lambda a, axis: op.slice(a, axis, lo, hi),
        op.flip,
        lambda a, axis: op.dilate(a, axis, n),
    )
    return [
        when(
            *(ROOT == change(c, x), operand(c, b, p, o, d), TYPED, new == WIDE[x]),
            rearranging.one_axis.facts(p, o, d, x, new, at=at, parts=parts, after=after, order=order),
            size == d.product(),
        ).then(let(moved, change(whole(b, size, parts), at)), union(ROOT, _as_root(moved, after, order)))
        for change in changes
    ]


_JOINED = "(access-concatenate {0} {1} 3)"


@rule(
    FAMILY,
    Example(_JOINED.format(TURNED, "(access-tensor y)"), {"x": "m n k l", "y": "m k l 6"}),
    Example(_JOINED.format("(access-tensor y)", TURNED), {"x": "m n k l", "y": "m k l 6"}),
)
def rearrangement_leaves_concatenate(c: V, y: V, x: V, b: V, p: V, o: V, d: V, dy: V) -> Clauses:
    """concatenate(rearrange(b), y) = rearrange(concatenate(b, rearrange'(y))), on an axis that is one part of b.

    Sound because both are moved alike, and the parts stand one after the other on that axis in any layout.
    """
    y_parts, y_order, sizes = variables("y_parts y_order sizes")
    at, parts, after, order, size, joined = variables("at parts after order size joined")
    alike, other = whole(b, size, parts), rearranged(y, y_parts, y_order, vec(), sizes)
    of_y = {"other_parts": y_parts, "other_order": y_order, "other": sizes}
    return [
        when(
            *(ROOT == op.concatenate(*apart, x), operand(c, b, p, o, d), dy == dims(y), TYPED),
            rearranging.concatenating.facts(p, o, d, dy, x, parts=parts, **of_y, at=at, after=after, order=order),
            size == d.product(),
        ).then(let(joined, op.concatenate(*moved, at)), union(ROOT, _as_root(joined, after, order)))
        for apart, moved in (((c, y), (alike, other)), ((y, c), (other, alike)))
    ]


@rule(
    FAMILY,
    Example(ex.windows(ex.moved("$m $n 5 7", "0 2 3 1", "$m", "5 7 $n"), "2 2 $n", "1 2 1"), {"x": "m n 5 7"}),
    Example(ex.windows(ex.moved("$m $n 5 7", "0 2 3 1", "$m 5", "7 $n"), "1 2", "1 1"), {"x": "m n 5 7"}),
)
def rearrangement_leaves_windows(c: V, k: V, t: V, b: V, p: V, o: V, d: V, n: V) -> Clauses:
    """windows(rearrange(b)) = rearrange(windows(b)): each part of b gets the window of its axis in c, or a window of
    size 1.

    Sound because a window is a choice on each axis by itself; a window that is whole is whole along each of its parts.
    """
    parts, window, strides, after, order, size = variables("parts window strides after order size")
    travels = rearranging.windowing.facts(
        p, o, d, n, k, t, parts=parts, window=window, strides=strides, after=after, order=order
    )
    return rewrite(
        op.windows(c, k, t),
        _as_root(op.windows(whole(b, size, parts), window, strides), after, order),
        *(operand(c, b, p, o, d), n == split(c), TYPED),
        *(travels, size == d.product()),
    )
