"""The algebra of overlap-add, dilate and flip: among each other, with windows, and past slices, pads and sums.

Flips and dilations sink towards the tensors. Slices and pads of axes that overlap-add does not change move inside it.
"""

from __future__ import annotations

from collections.abc import Callable

from glenside.ir.types import Dims
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, Facts, V, rewrite, rule
from glenside.rewrites.facts import dims, dtype, split, table, widened
from glenside.rewrites.terms import dot, padded, reshaped, variables

FAMILY = "adjoints"
_Y = ex.access("y", 1)


def _added(x: str, out: str, strides: str) -> str:
    return f"(access-overlap-add {x} (shape {out}) (shape {strides}))"


@rule(
    FAMILY,
    Example(f"(access-flip (access-flip {ex.X} 1) 1)", {"x": "m n"}),
    Example(f"(access-flip {ex.X} 1)", {"x": "m 1"}),
)
def flips_cancel(a: V, x: V, d: V) -> Clauses:
    """flip(flip(a, x), x) = a, and the flip of one element is itself.

    Sound because reversing an order twice restores it.
    """
    return (rewrite(op.flip(op.flip(a, x), x), a), rewrite(op.flip(a, x), a, d == dims(a), d[x] == 1))


def _sinking(change: Callable[[V], V], forms: Callable[[V, V], tuple[V, ...]], a: V, b: V, guard: Facts) -> Clauses:
    """change(form(a, b)) = form(change(a), change(b)), for each of the forms."""
    changed = zip(map(change, forms(a, b)), forms(change(a), change(b)), strict=True)
    return [rewrite(left, right, guard) for left, right in changed]


def _on(form: str, *axes: int) -> tuple[Example, ...]:
    return tuple(Example(f"(access-flip {form} {axis})", {"x": "m 5 n", "y": "m 5 n"}) for axis in axes)


@rule(
    FAMILY,
    *_on(f"(access-pad {ex.X} min-padding 1 2 1)", 1, 2),
    *_on(f"(access-slice {ex.X} 1 1 3)", 1, 2),
    *_on(f"(access-concatenate {ex.X} {_Y} 1)", 1, 2),
    *_on(f"(access-dilate {ex.X} 1 2)", 1, 2),
)
def flip_sinks(a: V, b: V, x: V, y: V, lo: V, hi: V, n: V, d: V, size: V) -> Clauses:
    """flip(form(a, x), x) = form'(flip(a, x), x), with before and after exchanged; on another axis form stays the same.

    Sound because reversing an axis reverses its parts and their order; a dilate begins and ends with elements of a, so
    only its elements are reversed. Reversing another axis does not affect this one.
    """
    kind, before, after = variables("kind before after")

    def forms(a: V, b: V) -> tuple[V, ...]:
        return (op.pad(a, kind, x, before, after), op.slice(a, x, lo, hi), op.concatenate(a, b, x), op.dilate(a, x, n))

    pad, cut, joined, spread = forms(a, b)
    flipped = op.flip(a, x)
    return (
        rewrite(op.flip(pad, x), op.pad(flipped, kind, x, after, before)),
        rewrite(op.flip(cut, x), op.slice(flipped, x, size - hi, size - lo), d == dims(a), size == d[x]),
        rewrite(op.flip(joined, x), op.concatenate(op.flip(b, x), flipped, x)),
        rewrite(op.flip(spread, x), op.dilate(flipped, x, n)),
        _sinking(lambda z: op.flip(z, y), forms, a, b, x != y),
    )


@rule(
    FAMILY,
    Example(f"(access-flip (access-flip (access-windows {ex.X} (shape 2 3) (shape 3 2)) 1) 3)", {"x": "m 5 6"}),
    Example(f"(access-flip (access-flip (access-windows {ex.X} (shape 2 3) (shape 3 2)) 3) 1)", {"x": "m 5 6"}),
)
def flipped_windows_are_windows_of_the_flipped(a: V, w: V, k: V, t: V, i: V, j: V, e: V, s: V, d: V) -> Clauses:
    """flip(flip(windows(a), counts), elements) = windows(flip(a)), where the windows reach the end of a.

    Sound because the last window then begins the flipped axis. If elements remain behind the last window, the windows
    of the flipped axis begin elsewhere.
    """
    to_the_end = (
        *(w == op.windows(a, k, t), s == split(a), e == i - s, e >= 0, e < k.length, j == i + k.length),
        *(d == dims(a), (d[i] - k[e]) % t[e] == 0),
    )
    right = op.windows(op.flip(a, i), k, t)
    return (
        rewrite(op.flip(op.flip(w, i), j), right, to_the_end),
        rewrite(op.flip(op.flip(w, j), i), right, to_the_end),
    )


def _flipped(name: str) -> str:
    return f"(access-flip {ex.access(name, 2)} 3)"


@rule(FAMILY, Example(ex.dot(_flipped("x"), _flipped("w"), 1), {"x": "2 m 3 k", "w": "2 n 3 k"}))
def flips_of_both_items_cancel(a: V, b: V, n: V, x: V, y: V, sa: V, sb: V) -> Clauses:
    """dot(flip(a, x) x flip(b, x)) = dot(a x b), along an axis of their items.

    Sound because the same pairs are multiplied, and a sum does not depend on their order.
    """
    return rewrite(
        dot(op.flip(a, x), op.flip(b, y), n), dot(a, b, n), sa == split(a), sb == split(b), x >= sa, x - sa == y - sb
    )


@rule(
    FAMILY,
    Example(f"(access-dilate (access-dilate {ex.X} 1 1) 1 2)", {"x": "m 4"}),
    Example(f"(access-dilate {ex.X} 1 0)", {"x": "m 4"}),
    Example(f"(access-dilate {ex.X} 1 3)", {"x": "m 1"}),
)
def dilations_compose(a: V, x: V, m: V, n: V, d: V) -> Clauses:
    """dilate(dilate(a, m), n) = dilate(a, (m + 1)(n + 1) - 1); dilate(a, 0) = a, and dilate(a, m) = a for at most one
    element.

    Sound because neighbours at a distance of m + 1 are then n + 1 times as far apart.
    """
    return (
        rewrite(op.dilate(op.dilate(a, x, m), x, n), op.dilate(a, x, (m + 1) * (n + 1) - 1), d == dims(a), d[x] > 1),
        rewrite(op.dilate(a, x, 0), a),
        rewrite(op.dilate(a, x, n), a, d == dims(a), d[x] <= 1),
    )


def _spread(form: str, *axes: int) -> tuple[Example, ...]:
    return tuple(Example(f"(access-dilate {form} {axis} 2)", {"x": "m 5 n", "y": "m 3 n"}) for axis in axes)


@rule(
    FAMILY,
    *_spread(f"(access-pad {ex.X} zero-padding 1 2 1)", 1, 2),
    *_spread(f"(access-slice {ex.X} 1 1 3)", 1, 2),
    *_spread(f"(access-concatenate {ex.X} {_Y} 1)", 2),
)
def dilation_sinks(a: V, b: V, x: V, y: V, n: V, lo: V, hi: V, before: V, after: V, d: V) -> Clauses:
    """dilate(form(a, x), y) = form(dilate(a, y), x); along x itself the sizes and positions in form are multiplied by n
    + 1.

    Sound because an element at index i moves to index i (n + 1). A pad must be of zeros, as dilate inserts zeros, and
    there must be an element, since an empty axis has no gaps. For a slice of one element the rule would add nothing
    new.
    """
    step = n + 1

    def forms(a: V, b: V) -> tuple[V, ...]:
        return padded(a, x, after, before), op.slice(a, x, lo, hi), op.concatenate(a, b, x)

    pad, cut, _ = forms(a, b)
    return (
        _sinking(lambda z: op.dilate(z, y, n), forms, a, b, x != y),
        rewrite(
            op.dilate(pad, x, n), padded(op.dilate(a, x, n), x, after * step, before * step), d == dims(a), d[x] > 0
        ),
        rewrite(op.dilate(cut, x, n), op.slice(op.dilate(a, x, n), x, lo * step, 1 + (hi - 1) * step), lo + 1 < hi),
    )


@rule(
    FAMILY,
    Example(_added(ex.access("x", 2), "12", "3"), {"x": "m 4 3"}),
    Example(_added(ex.access("x", 3), "4 5", "1 1"), {"x": "m 4 5 1 1"}),
)
def windows_side_by_side_are_a_reshape(a: V, out: V, t: V, d: V, s: V, k: V, item: V, size: V) -> Clauses:
    """overlap-add(a) = reshape(a), where windows along one axis are adjacent, or each is one element.

    Sound because no two windows overlap, and row-major order puts the elements of one window after those of the one
    before.
    """
    dr, axes, lead = variables("dr axes lead")
    sizes = (d == dims(a), s == split(a), axes == out.length)
    of_root = (lead == s - axes, dr == dims(ROOT))
    left, right = op.overlap_add(a, out, t), reshaped(a, dr, lead)
    one_after_the_other = (axes == 1, k == d[s], k == t[0], out[0] == k * d[s - 1])
    one_element = (size == d.product(), size == dr.product(), size > 0, item == d.drop(s), item.product() == 1)
    return (
        rewrite(left, right, sizes, one_after_the_other, of_root),
        rewrite(left, right, sizes, axes > 1, of_root, one_element),
    )


@table(order=Dims)
def one_after_another(rank: int, p: Dims) -> tuple[Dims] | None:
    """Returns the order (S c' c k' k) of windows (S c k c' k') whose k' were added up, then permuted by p, then their
    k.
    """
    lead = rank - 3  # of (S c k out')
    if lead < 0 or tuple(p) != (*range(lead), lead + 2, lead, lead + 1):
        return None
    return (Dims((*range(lead), lead + 2, lead, lead + 3, lead + 1)),)


_ALONG_ONE = f"(access (access-transpose {_added(ex.access('x', 4), '9', '2')} (list 0 3 1 2)) 3)"


@rule(FAMILY, Example(_added(_ALONG_ONE, "5", "1"), {"x": "m 4 2 4 3"}))
def sums_along_two_axes_are_one(a: V, p: V, s: V, order: V, rank: V, di: V, inner: V, moved: V, sr: V) -> Clauses:
    """overlap-add(overlap-add(a, axis 2), axis 1) = overlap-add(a, both).

    Sound because each element of a is added to one index along each axis, in either order.
    """
    out, strides, inner_out, inner_strides = variables("out t out2 t2")
    ordered = op.access(op.transpose(a, order), rank - 1)
    return rewrite(
        op.overlap_add(moved, out, strides),
        op.access(op.overlap_add(ordered, inner_out.append(out), inner_strides.append(strides)), sr),
        *(moved == op.access(op.transpose(inner, p), s), inner == op.overlap_add(a, inner_out, inner_strides)),
        *(out.length == 1, inner_out.length == 1, di == dims(inner), rank == di.length),
        *(order == one_after_another.order(rank, p), sr == split(ROOT)),
    )


_SUMS, _MORE = (_added(ex.access(name, 2), "9", "2") for name in "xy")
_SHAPES = {"x": "5 4 3", "y": "5 4 3"}


@rule(
    FAMILY,
    Example(f"(access-slice {_SUMS} 0 1 3)", _SHAPES),
    Example(f"(access-pad {_SUMS} zero-padding 0 1 3)", _SHAPES),
    Example(f"(access-flip {_SUMS} 0)", _SHAPES),
    Example(f"(access-dilate {_SUMS} 0 2)", _SHAPES),
    Example(f"(access-concatenate {_SUMS} {_MORE} 0)", _SHAPES),
)
def what_is_not_added_up_goes_inside(a: V, b: V, x: V, out: V, t: V, s: V, sums: V) -> Clauses:
    """form(overlap-add(a), x) = overlap-add(form(a, x)), on an axis x along which nothing is added up.

    Sound because such an axis only enumerates sums: the same is computed for each of its indices. Windows of zeros add
    up to zeros. Windows that are concatenated have one size.
    """
    lo, hi, before, after, n = variables("lo hi before after n")
    da, db, window_a, window_b = variables("da db ka kb")

    def forms(z: V) -> tuple[V, ...]:
        return op.slice(z, x, lo, hi), padded(z, x, after, before), op.flip(z, x), op.dilate(z, x, n)

    left_alone = (sums == op.overlap_add(a, out, t), s == split(a), x < s - out.length)
    return (
        *(
            rewrite(form, op.overlap_add(form_of_a, out, t), left_alone)
            for form, form_of_a in zip(forms(sums), forms(a), strict=True)
        ),
        rewrite(
            op.concatenate(sums, op.overlap_add(b, out, t), x),
            op.overlap_add(op.concatenate(a, b, x), out, t),
            *(left_alone, da == dims(a), db == dims(b)),
            *(window_a == da.drop(s), window_b == db.drop(s), window_a == window_b),
        ),
    )


_SUM = f"(compute elementwise-add (access-pair {ex.access('x', 2)} {ex.access('y', 2)}))"


@rule(FAMILY, Example(_added(_SUM, "9", "2"), _SHAPES))
def overlap_add_is_linear(a: V, b: V, n: V, out: V, t: V) -> Clauses:
    """overlap-add(a + b) = overlap-add(a) + overlap-add(b).

    Sound because each place is a sum, and sums may be taken in any order.
    """
    sum_a, sum_b = op.overlap_add(a, out, t), op.overlap_add(b, out, t)
    return rewrite(
        op.overlap_add(op.elementwise_add(op.product(a, b, n)), out, t),
        op.elementwise_add(op.product(sum_a, sum_b, n - out.length)),
        *(n == split(a), n == split(b)),
    )


_ALL_WINDOWS = f"(access {ex.windows(ex.X, '3 2', '2 1')} 1)"


@rule(FAMILY, Example(ex.dot(_ALL_WINDOWS, ex.W, 0), {"x": "m 6 4", "w": "n 2 3 3 2"}))
def overlap_add_is_the_adjoint_of_windows(a: V, b: V, n: V, x: V, k: V, t: V, s: V, sb: V, dx: V, out: V) -> Clauses:
    """dot(windows(x) x w) = dot(x x overlap-add(w)), where each item is all windows of an item.

    Sound because element y of x is multiplied by each w at a position where a window contains it; their sum is element
    y of overlap-add. It does not apply to products of a wider dtype, since that sum could wrap earlier.
    """
    dt, wide = variables("dt wide")
    return rewrite(
        dot(a, b, n),
        dot(x, op.overlap_add(op.access(b, sb + k.length), out, t), n),
        *(a == op.access(op.windows(x, k, t), s), s == split(x)),
        *(dt == dtype(b), wide == widened(dt), wide == dt),
        *(dx == dims(x), out == dx.drop(s), sb == split(b)),
    )
