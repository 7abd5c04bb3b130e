"""Computes a product with windows in strips of rows, one after the other, so that large temporaries fit in memory.

A strip holds the elements lo to hi - 1 of an axis, as slices of the tensor under the windows. The parts of a product
are computed directly into the result where the machine can do so.
"""

from __future__ import annotations

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.convolution.recipes import recipe
from glenside.rewrites.declare import ROOT, Clauses, Example, Facts, V, analysis, let, rule, set_, union, when
from glenside.rewrites.facts import ACCESS, INT, TEXT, dims, function, on_demand, relation, split, table
from glenside.rewrites.movement.sliding_windows import inside, same_axis
from glenside.rewrites.parameters import row_strips
from glenside.rewrites.terms import dot, is_dot, reshaped, variables

outer_axis = function("outer-axis", INT, "min", product=ACCESS)
want_strip, strip = on_demand("strip", a=ACCESS, axis=INT, lo=INT, hi=INT)
# A product that is to be computed in two parts; the first has `half` of the `size` positions along axis i.
in_strips = relation("in-strips", product=ACCESS, a=ACCESS, b=ACCESS, n=INT, i=INT, half=INT, size=INT, words=TEXT)


@table(half=int, words=str)
def halved(words: str, size: int, most: int) -> tuple[int, str] | None:
    """Returns the number of rows of the first of two parts, and the words of both: "strips:2", "strips:4" .. up to
    `most`.
    """
    kind, _, count = words.partition(":")
    parts = 2 if not words else 2 * int(count) if kind == "strips" and count.isdecimal() else most + 1
    return ((size + 1) // 2, f"strips:{parts}") if parts <= most and size >= 2 else None


def _in_strips(windows: str, shared: int, weights: str, most: int) -> Example:
    """Returns an example: a product of windows over x, with at most that many strips."""
    return Example(ex.dot(windows, ex.W, shared), {"x": "n 5 9", "w": weights}, parameters={"row_strips": most})


_WINDOWS = ex.windows(ex.X, "2 3", "1 2")
_PLAIN = _in_strips(_WINDOWS, 0, "o 2 3", 4)
_GROUPED = _in_strips(_WINDOWS, 1, "n 2 3", 2)
_DILATED = _in_strips(ex.dilated(ex.windows(ex.X, "2 5", "1 1"), "1 2", "$n 4 5 2 3", 3), 0, "o 2 3", 2)
_PADDED = f"(access-slice (access-pad {_WINDOWS} zero-padding 0 0 2) 0 1 3)"
_MOVED = _in_strips(f"(access-transpose {_PADDED} (list 0 2 1 4 3))", 0, "o 3 2", 2)


@analysis("row-strip-analyses", _PLAIN)
def outermost_windows_are_known(words: V, a: V, b: V, n: V, i: V, j: V, t: V, d: V, c: V, sa: V) -> Clauses:
    """Finds the first axis of the result of a product that steps over windows.

    An analysis: it adds no e-node. Sound because it only reads facts that hold.
    """
    return when(recipe(ROOT, words), is_dot(a, b, n), inside(a, i, j, t, d, c, n, sa)).then(set_(outer_axis(ROOT), i))


def _kept(a: V, i: V, lo: V, hi: V, axis: V, p: V) -> tuple[tuple[Facts, V], ...]:
    """Returns each form that keeps axis i of a as its own `axis`: the facts, and the form applied to p, a strip of
    a.
    """
    dr, sr, sa, s, window, strides, order = variables("dr sr sa s window strides order")
    kind, x, before, after, start, end = variables("kind x before after start end")
    return (
        (
            (same_axis(ROOT, a, i, axis), dr == dims(ROOT), dr[axis] > 1, sr == split(ROOT)),
            reshaped(p, dr.set(axis, hi - lo), sr),
        ),
        ((ROOT == op.access(a, s), i == axis), op.access(p, s)),
        ((ROOT == op.windows(a, window, strides), i == axis, sa == split(a), i < sa), op.windows(p, window, strides)),
        ((ROOT == op.transpose(a, order), i == order[axis]), op.transpose(p, order)),
        ((ROOT == op.pad(a, kind, x, before, after), i == axis, x != i), op.pad(p, kind, x, before, after)),
        ((ROOT == op.slice(a, x, start, end), i == axis, x != i), op.slice(p, x, start, end)),
    )


@rule("row-strips", _PLAIN, _GROUPED, _DILATED, _MOVED)
def rows_are_computed_in_strips(a: V, b: V, n: V, i: V, words: V, half: V, size: V, more: V, axis: V) -> Clauses:
    """dot(windows(x) x b) = concatenate(dot(windows(x[.. lower half ..]) x b), dot(windows(x[.. upper half ..]) x b)).

    Each part is a separate product, and may have another form. Sound because a row of results only needs its own row of
    windows, and the windows from lo to hi - 1 lie within the elements from lo t to (hi - 1) t + k - 1.
    """
    x, window, strides, s, e, t, start, end = variables("x window strides s e t start end")
    first, second, lo, hi, p, q = variables("first second lo hi p q")
    parts = in_strips(ROOT, a, b, n, i, half, size, more)
    wanted = want_strip(ROOT, axis, lo, hi)
    kept = _kept(a, i, lo, hi, axis, p)
    return (
        when(
            *(recipe(ROOT, words), i == outer_axis(ROOT), is_dot(a, b, n), size == dims(a)[i]),
            halved.facts(words, size, row_strips, half=half, words=more),
        ).then(parts, want_strip(a, i, 0, half), want_strip(a, i, half, size)),
        *(when(wanted, where).then(want_strip(a, i, lo, hi)) for where, _ in kept),
        when(
            *(wanted, ROOT == op.windows(x, window, strides), s == split(x), axis >= s),
            *(e == axis - s, e < window.length, t == strides[e]),
            *(start == lo * t, end == (hi - 1) * t + window[e]),
        ).then(set_(strip(ROOT, axis, lo, hi), op.windows(op.slice(x, axis, start, end), window, strides))),
        *(
            when(wanted, where, p == strip(a, i, lo, hi)).then(set_(strip(ROOT, axis, lo, hi), of_p))
            for where, of_p in kept
        ),
        when(parts, p == strip(a, i, 0, half), q == strip(a, i, half, size)).then(
            let(first, dot(p, b, n)),
            let(second, dot(q, b, n)),
            union(ROOT, op.concatenate(first, second, i)),
            recipe(first, more),
            recipe(second, more),
        ),
    )
