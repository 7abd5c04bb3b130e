"""Widens windows so that each serves several outputs.

Axis i of the shape of an access pattern slides if it steps over windows that lie along axis j of its item: with stride
t and elements d apart, a[.. y .., .. u ..] = z[.., y t + u d, ..] for some z. Axes count over all of a. Forms of a that
keep both axes slide along them too. A product can also be computed from wider windows of a, each of which covers q
neighboring windows: it then needs 1/q as many.
"""

from __future__ import annotations

from collections.abc import Callable

from glenside.ir.types import largest
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Actions, Clauses, Example, Facts, V, analysis, let, rule, set_, union, when
from glenside.rewrites.facts import ACCESS, INT, INTS, access_at, dims, on_demand, relation, source, split
from glenside.rewrites.terms import ceil_div, dot, gcd, is_dot, padded, reshaped, variables, vec, vec_range

FAMILY = "windows"
# Axis i steps by `stride` over windows along axis j, of elements that are `apart`; `common` is the gcd of both.
slides = relation("slides", access=ACCESS, i=INT, j=INT, stride=INT, apart=INT, common=INT)
view = relation("view", form=ACCESS, access=ACCESS)  # the same elements in their order, under other dims
same_axis = relation("same-axis", form=ACCESS, access=ACCESS, axis=INT, form_axis=INT)
lies = relation("lies", dims=INTS, axis=INT, size=INT, before=INT)  # elements before the axis
kept_axes = relation("kept-axes", form=ACCESS, access=ACCESS, i=INT, j=INT, form_i=INT, form_j=INT)
# The form has every d-th element of each window along j; `common` is as above.
picks = relation("picks", form=ACCESS, access=ACCESS, i=INT, j=INT, common=INT)
axis_number = relation("axis-number", axis=INT, rows=range(12))
# Windows that each cover those of q neighbours, elements `common` apart. One is enough, since all are equivalent.
want_wider, wider = on_demand("wider", access=ACCESS, i=INT, j=INT, q=INT)
searched = relation("searched", product=ACCESS)  # products for which mappings are searched
want_regroup = relation("want-regroup", product=ACCESS, i=INT, j=INT, q=INT)
# A product with b, n axes shared, whose windows w are wider: t and d in their elements, axis j of w is axis e of items.
regroup = relation("regroup", product=ACCESS, b=ACCESS, n=INT, i=INT, e=INT, q=INT, t=INT, d=INT, w=ACCESS, j=INT)
regrouped = relation("regrouped", product=ACCESS, i=INT, j=INT, q=INT, larger=ACCESS)

_IMAGE = {"x": "n 5 9"}
_WINDOWS = ex.windows(ex.X, "2 3", "1 2")  # (n 4 4)(2 3)
_DILATED = ex.dilated(ex.windows(ex.X, "2 5", "1 1"), "1 2", "$n 4 5 2 3", 3)  # (n 4 5)(2 3), elements 2 apart
_MOVED = ex.in_every_form(_WINDOWS, "$n 1 4 4 2 3")  # (n 1 4 4)(3 2)
_MAPPED = f'(linear-map {_WINDOWS} 3 3 "1 0 -2 1 0 -3")'  # (n 4 4)(3 3)
_ONE_BY_ONE = ex.windows(ex.X, "5 1", "1 2")  # (n 1 5)(5 1)
_ROOT = access_at("root")
_WIDENING = (
    Example(_WINDOWS, _IMAGE, [want_wider(_ROOT, 2, 4, 3)]),
    Example(_WINDOWS, _IMAGE, [want_wider(_ROOT, 1, 3, 2)]),
    Example(_DILATED, _IMAGE, [want_wider(_ROOT, 2, 4, 2)]),
    Example(_DILATED, _IMAGE, [want_wider(_ROOT, 1, 3, 4)]),
    Example(_MOVED, _IMAGE, [want_wider(_ROOT, 2, 4, 3)]),
    Example(_ONE_BY_ONE, _IMAGE, [want_wider(_ROOT, 2, 4, 2)]),
    Example(_MAPPED, _IMAGE, [want_wider(_ROOT, 2, 4, 3)]),
)


def inside(a: V, i: V, j: V, t: V, d: V, c: V, shared: V, sa: V) -> Facts:
    """Matches an a, whose shape has sa axes, that slides along an axis which is not shared with the other operand."""
    return slides(a, i, j, t, d, c), i >= shared, sa == split(a), i < sa, j >= sa


def picking(a: V, w: V, j: V, apart: V) -> tuple[Facts, V]:
    """Matches a root that selects elements of a by windows of one; selects elements `apart` along axis j of w."""
    window, strides, s = variables("window strides s")
    return (ROOT == op.windows(a, window, strides), s == split(a)), op.windows(w, window, strides.set(j - s, apart))


def _along(x: V, z: V) -> tuple[V, ...]:
    """Returns the operators that can be applied to z along an axis x without changing any other axis."""
    kind, before, after, lo, hi, rows, numbers = variables("kind before after lo hi rows numbers")
    return op.pad(z, kind, x, before, after), op.slice(z, x, lo, hi), op.linear_map(z, x, rows, numbers)


def forms(a: V, i: V, j: V, form_i: V, form_j: V, w: V) -> tuple[tuple[Facts, V], ...]:
    """Returns the forms of a that keep its axes i and j, and the same forms of w, which is a with other windows."""
    x, dr, dw, sa, sr, s, p = variables("x dr dw sa sr s p")
    viewed = (
        *(same_axis(ROOT, a, i, form_i), same_axis(ROOT, a, j, form_j)),
        *(dr == dims(ROOT), sr == split(ROOT), sa == split(a)),
    )
    sizes = dr.set(form_i, dw[i]).set(form_j, dw[j])
    return (
        ((viewed, sa + sr != 0, dw == dims(w)), reshaped(w, sizes, sr)),
        ((viewed, sa + sr == 0, dw == dims(w)), op.reshape(w, vec(), sizes)),
        ((ROOT == op.access(a, s),), op.access(w, s)),
        ((ROOT == op.transpose(a, p), i == p[form_i], j == p[form_j]), op.transpose(w, p)),
        *(((ROOT == of_a, x != i, x != j), of_w) for of_a, of_w in zip(_along(x, a), _along(x, w), strict=True)),
    )


def _views(a: V, i: V, form_i: V) -> Clauses:
    """Matches views of a, and the axes that are the same in both: of equal size, before as many elements."""
    s, item, x, da, dr, d, p, size, before = variables("s item x da dr d p size before")
    reshapes = (op.reshape(a, s, item), op.squeeze(a, x), op.insert_axis(a, x), op.flatten(a))
    lying = (p == d.prefixes(), axis_number(i), i < d.length)
    alike = (lies(da, i, size, before), lies(dr, form_i, size, before))
    return (
        *(when(ROOT == form).then(view(ROOT, a)) for form in reshapes),
        *(when(view(ROOT, a), d == dims(side), lying).then(lies(d, i, d[i], p[i])) for side in (a, ROOT)),
        when(view(ROOT, a), da == dims(a), dr == dims(ROOT), alike).then(same_axis(ROOT, a, i, form_i)),
    )


@analysis("analyses", *_WIDENING)
def sliding_axes_are_known(a: V, i: V, j: V, t: V, d: V, c: V, form_i: V, form_j: V, x: V, s: V, p: V) -> Clauses:
    """Finds which axis of a shape steps over windows along which axis of the item, through every form that keeps both.

    An analysis: it adds no e-node. Sound because it only reads facts that hold: windows of one element over windows
    pick every d-th element; a form that keeps the order of elements keeps an axis if its size, and the product of the
    sizes before it, are the same in both.
    """
    z, window, strides, n, da, dr = variables("z window strides n da dr")
    sliding = slides(a, i, j, t, d, c)
    same = (slides(ROOT, i, j, t, d, c), kept_axes(ROOT, a, i, j, i, j))
    moved = (slides(ROOT, form_i, form_j, t, d, c), kept_axes(ROOT, a, i, j, form_i, form_j))
    return (
        when(
            *(ROOT == op.windows(z, window, strides), s == split(z), dr == dims(ROOT)),
            *(axis_number(n), n < window.length, i == s + n, dr[i] > 1),
        ).then(slides(ROOT, i, i + window.length, strides[n], 1, 1)),
        when(
            *(slides(a, i, j, t, 1, 1), ROOT == op.windows(a, window, strides), s == split(a)),
            *(j >= s, n == j - s, window[n] == 1, d == strides[n]),
            *(da == dims(a), dr == dims(ROOT), da[j] == 1 + d * (dr[j] - 1), c == gcd(t, d)),
        ).then(slides(ROOT, i, j, t, d, c), picks(ROOT, a, i, j, c)),
        _views(a, i, form_i),
        when(sliding, same_axis(ROOT, a, i, form_i), same_axis(ROOT, a, j, form_j), form_i < form_j).then(moved),
        when(sliding, ROOT == op.access(a, s)).then(same),
        when(
            *(sliding, ROOT == op.transpose(a, p)),
            *(axis_number(form_i), axis_number(form_j), i == p[form_i], j == p[form_j]),
        ).then(moved),
        *(when(sliding, ROOT == form, x != i, x != j).then(same) for form in _along(x, a)),
    )


@analysis("analyses", *(e for e in _WIDENING if "reshape" in e.text or "linear-map" in e.text))
def wider_windows_are_demanded(
    a: V, b: V, n: V, i: V, j: V, q: V, form_i: V, form_j: V, t: V, d: V, c: V, sa: V
) -> Clauses:
    """Demands wider windows of the operand of a form that keeps both axes.

    An analysis: it adds no e-node. Sound because a demand only says where a rule applies.
    """
    demand = want_wider(a, i, j, q)
    return (
        when(want_regroup(ROOT, i, j, q), is_dot(a, b, n), inside(a, i, j, t, d, c, n, sa)).then(demand),
        when(want_wider(ROOT, form_i, form_j, q), kept_axes(ROOT, a, i, j, form_i, form_j)).then(demand),
        when(want_wider(ROOT, i, j, q), picks(ROOT, a, i, j, c)).then(demand),
    )


def _windows_of_neighbours(i: V, j: V, q: V) -> Clauses:
    """Computes windows as long as q neighbors together, and the pad that the last of them needs."""
    x, window, strides, t, s, n, dr, dx = variables("x window strides t s n dr dx")
    left, size, span, more = variables("windows-left size span more")
    return when(
        *(want_wider(ROOT, i, j, q), ROOT == op.windows(x, window, strides), slides(ROOT, i, j, t, 1, 1)),
        *(j == i + window.length, s == split(x), n == i - s, dr == dims(ROOT), left == ceil_div(dr[i], q)),
        *(dx == dims(x), size == dx[i], span == window[n] + (q - 1) * t),
        more == largest(0, ((left - 1) * (q * t) + span) - size),
    ).then(set_(wider(ROOT, i, j, q), op.windows(padded(x, i, more), window.set(n, span), strides.set(n, q * t))))


def _widened() -> Clauses:
    """Matches the demand of wider windows."""
    a, w, i, j, form_i, form_j, q, c = variables("a w i j form-i form-j q c")
    picked, picked_of_w = picking(a, w, j, c)
    return (
        _windows_of_neighbours(i, j, q),
        when(want_wider(ROOT, i, j, q), picks(ROOT, a, i, j, c), picked, w == wider(a, i, j, q)).then(
            set_(wider(ROOT, i, j, q), picked_of_w)
        ),
        *(
            when(
                *(want_wider(ROOT, form_i, form_j, q), kept_axes(ROOT, a, i, j, form_i, form_j)),
                *(w == wider(a, i, j, q), where),
            ).then(set_(wider(ROOT, form_i, form_j, q), of_w))
            for where, of_w in forms(a, i, j, form_i, form_j, w)
        ),
    )


@analysis("recipe-analyses", *_WIDENING)
def windows_are_widened() -> Clauses:
    """wider(windows(z, k, t), q) = windows(pad(z), k + (q - 1) t, q t), and so on under forms that keep both axes.

    It makes e-nodes only on demand, and they equal no existing class: a rule replaces the windows by them.
    Sound because a window that begins with that of output y contains those of y, y + 1, .. y + q - 1, each t further
    on; windows beyond the end read zeros.
    """
    return _widened()


WEIGHTS_FIRST = (
    Example(ex.dot(ex.W, _WINDOWS, 0), {**_IMAGE, "w": "o 2 3"}),
    Example(ex.dot(ex.access("w", 2), _WINDOWS, 1), {**_IMAGE, "w": "n o 2 3"}),
)


def turned(which: Facts, said: Callable[[V], Actions]) -> Clauses:
    """dot(a x b) = transpose(dot(b x a)), where b is windows: matches products of `which`, with the facts on dot(b x
    a).
    """
    a, b, n, i, j, t, d, c, sa, sb, product = variables("a b n i j t d c sa sb turned")
    axes, shared, rest, of_b, of_a, back = variables("axes shared rest of-b of-a back")
    return when(
        *(which, is_dot(a, b, n), slides(b, i, j, t, d, c), sb == split(b), i >= n, i < sb, j >= sb, sa == split(a)),
        *(axes == vec_range(sa + sb - n), shared == axes.take(n), rest == axes.drop(n)),
        *(of_b == rest.take(sb - n), of_a == rest.drop(sb - n), back == shared.append(of_a, of_b)),
    ).then(let(product, dot(b, a, n)), union(ROOT, op.transpose(product, back)), said(product))


@rule(FAMILY, *WEIGHTS_FIRST)
def windows_come_first() -> Clauses:
    """dot(a x b) = transpose(dot(b x a)), where b is windows and a is not.

    The following rules expect windows on the left. Sound because multiplication of numbers is commutative and the
    transpose restores the order of axes.
    """
    return turned(source(ROOT), searched)


_CONV, _DILATED_CONV = (ex.pairs("dot-product", windows, ex.W) for windows in (_WINDOWS, _DILATED))


@rule(
    FAMILY,
    *_WIDENING,
    Example(_CONV, {**_IMAGE, "w": "o 2 3"}, [want_regroup(_ROOT, 2, 4, 3)]),
    Example(_CONV, {**_IMAGE, "w": "o 2 3"}, [want_regroup(_ROOT, 1, 3, 4)]),
    Example(_DILATED_CONV, {**_IMAGE, "w": "o 2 3"}, [want_regroup(_ROOT, 2, 4, 3)]),
    Example(ex.dot(_WINDOWS, ex.W, 1), {"x": "n 5 9", "w": "n 2 3"}, [want_regroup(_ROOT, 1, 3, 2)]),
)
def windows_are_regrouped(a: V, b: V, n: V, i: V, j: V, e: V, q: V, t: V, d: V, c: V, w: V, span: V) -> Clauses:
    """dot(a x b) = interleave(dot(wider(a, q) x toeplitz(b, q))).

    One larger window serves q outputs at once: fewer rows stream, through more of the array. toeplitz puts q copies of
    the weights into a window of that size, copy r at offset r t, zeros elsewhere: windows over padded weights, the last
    copy first, hence the flip. Sound because copy r meets the elements of the window of output y + r, and zeros
    elsewhere, and because the outputs of windows beyond the end are cut off.
    """
    sa, sb, dw, db, dr, rank, reach, served, place, end, h = variables("sa sb dw db dr rank reach served place end h")
    to_end, with_copies, back, merged = variables("to-end with-copies back merged")  # orders of axes
    spread, copies, weights, larger, whole = variables("spread copies weights larger whole")
    return (
        _widened(),
        when(
            *(want_regroup(ROOT, i, j, q), is_dot(a, b, n), inside(a, i, j, t, d, c, n, sa)), w == wider(a, i, j, q)
        ).then(regroup(ROOT, b, n, i, e=j - sa, q=q, t=t // c, d=d // c, w=w, j=j)),
        when(
            regroup(ROOT, b, n, i, e, q, t, d, w, j),
            *(dw == dims(w), db == dims(b), sb == split(b), dr == dims(ROOT), span == dw[j]),
            *(place == sb + e, end == db.length - 1, rank == dr.length),
            to_end == vec_range(end + 1).remove(place).push(place),
            with_copies == vec_range(end).insert(sb, end),
            back == with_copies.insert(place + 1, end + 1),
            merged == vec_range(rank).insert(i + 1, rank),
            *(reach == 1 + d * (db[place] - 1), h == dr[i], served == q * dw[i]),
        ).then(
            let(spread, op.dilate(op.access(op.transpose(b, to_end), end), end, d - 1)),
            let(copies, op.flip(op.windows(padded(spread, end, span - reach, (q - 1) * t), vec(span), vec(t)), end)),
            let(weights, op.access(op.transpose(copies, back), sb + 1)),
            let(larger, dot(w, weights, n)),
            let(whole, reshaped(op.transpose(larger, merged), dr.set(i, served), rank)),
            union(ROOT, op.slice(whole, i, 0, h)),
            regrouped(ROOT, i, j, q, larger),
        ),
    )
