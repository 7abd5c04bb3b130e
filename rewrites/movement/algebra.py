"""The algebra of movement: slices, concatenations, pads, reshapes, transposes and splits among each other.

Slices sink towards the tensors and cancel against the operators that built the axis; transposes, reshapes and splits of
the program itself rise, meet and compose. Both directions only ever shorten a path or move one step along it, so they
end.
"""

from __future__ import annotations

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, V, analysis, rewrite, rule, union, when
from glenside.rewrites.facts import ACCESS, access_at, category, dims, dtype, relation, source, split
from glenside.rewrites.terms import reshaped, vec_range

FAMILY = "algebra"
tiled = relation("tiled", access=ACCESS)
_TILED = [tiled(access_at("x"))]
_TURNED = f"(access-transpose {ex.X} (list 2 0 1))"


@analysis(
    "analyses",
    Example("(access (access-concatenate (access-tensor x) (access-tensor x) 0) 1)", {"x": "m n"}),
    Example("(compute relu (access-pad (access-tensor x) zero-padding 0 1 1))", {"x": "m n"}),
)
def tiled_classes_are_known(a: V, b: V, x: V, k: V, before: V, after: V, d: V, p: V, f: V, c: V) -> Clauses:
    """Marks where a slice may cancel: a concatenation or pad of the program, the tiles of a product, and terms computed
    from them.

    An analysis: it adds no e-node. Without it slices would sink into every operand in vain. Sound because it only reads
    facts that hold.
    """
    return (
        when(ROOT == op.concatenate(a, b, x), source(a), source(b)).then(tiled(ROOT)),
        when(ROOT == op.pad(a, k, x, before, after), source(a)).then(tiled(ROOT)),
        when(ROOT == op.access(a, d), tiled(a)).then(tiled(ROOT)),
        when(ROOT == op.transpose(a, p), tiled(a)).then(tiled(ROOT)),
        when(ROOT == op.compute(f, a), tiled(a), category(f, c), c != "contraction").then(tiled(ROOT)),
    )


@rule(FAMILY, Example(f"(access-slice (access-slice {ex.X} 1 1 6) 1 2 4)", {"x": "m 7 k"}))
def slice_of_slice_is_one_slice(a: V, x: V, lo: V, hi: V, low: V, high: V) -> Clauses:
    """slice(slice(a, x, lo, hi), x, l, h) = slice(a, x, lo + l, lo + h).

    Sound because both name the same elements of the same axis. The nested form is not subsumed: where a slice of
    everything is its own operand, the form that would replace it is the same e-node.
    """
    return rewrite(op.slice(op.slice(a, x, lo, hi), x, low, high), op.slice(a, x, lo + low, lo + high))


@rule(FAMILY, Example(f"(access-slice (access-slice {ex.X} 2 1 3) 0 1 2)", {"x": "3 n 5"}))
def slices_have_one_order(a: V, x: V, lo: V, hi: V, y: V, low: V, high: V) -> Clauses:
    """slice(slice(a, x), y) = slice(slice(a, y), x) for y < x: the later axis is cut last.

    Without one order, n cuts of different axes have n! forms. Sound because cuts of different axes do not meet.
    """
    return rewrite(
        op.slice(op.slice(a, x, lo, hi), y, low, high), op.slice(op.slice(a, y, low, high), x, lo, hi), y < x
    )


@rule(FAMILY, Example(f"(access-slice {ex.X} 1 0 5)", {"x": "m 5"}))
def slice_of_everything_is_nothing(a: V, x: V, hi: V, d: V) -> Clauses:
    """slice(a, x, 0, size) = a.

    Sound because every element keeps its index.
    """
    return rewrite(op.slice(a, x, 0, hi), a, d == dims(a), hi == d[x])


@rule(
    FAMILY,
    Example(f"(access-slice (access-concatenate {ex.X} {ex.X} 1) 1 1 3)", {"x": "m 4 k"}),
    Example(f"(access-slice (access-concatenate {ex.X} {ex.X} 1) 1 4 7)", {"x": "m 4 k"}),
    Example(f"(access-slice (access-concatenate {ex.X} {ex.X} 1) 2 1 3)", {"x": "m 4 5"}),
)
def slice_sinks_into_concatenate(a: V, b: V, x: V, whole: V, y: V, lo: V, hi: V, d: V, at: V) -> Clauses:
    """slice(concatenate(a, b, x), x) = the slice of the part that contains it; on another axis, both parts are sliced.

    Joins the tiles of one product to those of the next without building the whole. Sound because the parts of a
    concatenation are adjacent on x, and side by side on every other axis.
    """
    both = (whole == op.concatenate(a, b, x), tiled(whole), ROOT == op.slice(whole, y, lo, hi))
    cut = (x == y, d == dims(a), at == d[x])
    return (
        when(both, cut, hi <= at).then(union(ROOT, op.slice(a, x, lo, hi))),
        when(both, cut, lo >= at).then(union(ROOT, op.slice(b, x, lo - at, hi - at))),
        when(both, x != y, source(a), source(b)).then(
            union(ROOT, op.concatenate(op.slice(a, y, lo, hi), op.slice(b, y, lo, hi), x))
        ),
    )


@rule(
    FAMILY,
    Example(f"(access-slice (access-pad {ex.X} zero-padding 1 2 1) 1 3 5)", {"x": "m 4 k"}),
    Example(f"(access-slice (access-pad {ex.X} zero-padding 1 2 1) 2 1 3)", {"x": "m 4 4"}),
)
def slice_sinks_into_pad(a: V, kind: V, x: V, before: V, after: V, whole: V, y: V, lo: V, hi: V, d: V) -> Clauses:
    """slice(pad(a, x, before, after), x, lo, hi) = slice(a, x, lo - before, hi - before), for elements of a.

    Sound because those elements are a's own, shifted by `before`; on another axis the pad does not move them.
    """
    both = (whole == op.pad(a, kind, x, before, after), tiled(whole), ROOT == op.slice(whole, y, lo, hi))
    inside = (x == y, d == dims(a), lo >= before, hi <= before + d[x])
    return (
        when(both, inside).then(union(ROOT, op.slice(a, x, lo - before, hi - before))),
        when(both, x != y, source(a)).then(union(ROOT, op.pad(op.slice(a, y, lo, hi), kind, x, before, after))),
    )


@rule(FAMILY, Example(f"(access-slice {_TURNED} 1 1 2)", {"x": "4 n k"}, _TILED))
def slice_sinks_into_transpose(a: V, p: V, x: V, lo: V, hi: V) -> Clauses:
    """slice(transpose(a, p), x) = transpose(slice(a, p[x]), p).

    Sound because axis x of the result is axis p[x] of a.
    """
    return rewrite(op.slice(op.transpose(a, p), x, lo, hi), op.transpose(op.slice(a, p[x], lo, hi), p), tiled(a))


@rule(FAMILY, Example("(access-slice (access (access-tensor x) 2) 1 1 3)", {"x": "m 4 k"}, _TILED))
def slice_sinks_into_access(a: V, d: V, x: V, lo: V, hi: V) -> Clauses:
    """slice(access(a, d), x) = access(slice(a, x), d).

    Sound because a split only marks where the item begins.
    """
    return rewrite(op.slice(op.access(a, d), x, lo, hi), op.access(op.slice(a, x, lo, hi), d), tiled(a))


_RESHAPED = ex.reshaped(ex.access("x", 2), "5 1 $n", "$k")


@rule(
    FAMILY,
    Example(f"(access-slice {_RESHAPED} 0 1 4)", {"x": "5 n k"}),
    Example(f"(access-pad {_RESHAPED} zero-padding 0 1 4)", {"x": "5 n k"}),
    Example(f"(access-concatenate {_RESHAPED} {_RESHAPED} 0)", {"x": "5 n k"}),
)
def reshape_leaves_the_leading_axis(
    a: V, b: V, s: V, i: V, t: V, j: V, lo: V, hi: V, kind: V, before: V, after: V, da: V, sa: V, db: V
) -> Clauses:
    """slice, pad and concatenate on the first axis of reshape(a) = reshape of them on a, when the reshape keeps that
    axis.

    Sound because an index of the first axis selects the same block of elements before and after the reshape. If that
    axis is empty, the blocks may have different sizes, and a pad would expose them.
    """
    leading = (da == dims(a), sa == split(a), sa > 0, s.length > 0, da[0] == s[0])
    alike = (
        *(i == j, db == dims(b), sa == split(b), da.length == db.length, db[0] == t[0]),
        *(da.remove(0) == db.remove(0), s.remove(0) == t.remove(0)),
    )
    return (
        rewrite(
            op.slice(op.reshape(a, s, i), 0, lo, hi),
            op.reshape(op.slice(a, 0, lo, hi), s.set(0, hi - lo), i),
            source(a),
            leading,
        ),
        rewrite(
            op.pad(op.reshape(a, s, i), kind, 0, before, after),
            op.reshape(op.pad(a, kind, 0, before, after), s.set(0, s[0] + (before + after)), i),
            source(a),
            leading,
            s[0] > 0,
        ),
        rewrite(
            op.concatenate(op.reshape(a, s, i), op.reshape(b, t, j), 0),
            op.reshape(op.concatenate(a, b, 0), s.set(0, s[0] + t[0]), i),
            (source(a), source(b)),
            (leading, alike),
        ),
    )


@rule(
    FAMILY,
    Example(f"(access-pad {_TURNED} zero-padding 1 2 1)", {"x": "m n k"}),
    Example(f"(access-concatenate {_TURNED} {_TURNED} 1)", {"x": "m n k"}),
)
def transpose_leaves_pad_and_concatenate(a: V, b: V, p: V, kind: V, x: V, before: V, after: V) -> Clauses:
    """pad(transpose(a, p), x) = transpose(pad(a, p[x]), p); concatenate likewise when both parts have the same p.

    Sound because axis x of the result is axis p[x] of a.
    """
    return (
        rewrite(
            op.pad(op.transpose(a, p), kind, x, before, after),
            op.transpose(op.pad(a, kind, p[x], before, after), p),
            source(a),
        ),
        rewrite(
            op.concatenate(op.transpose(a, p), op.transpose(b, p), x),
            op.transpose(op.concatenate(a, b, p[x]), p),
            source(a),
            source(b),
        ),
    )


@rule(
    FAMILY, Example("(access-transpose (access-transpose (access-tensor x) (list 2 0 1)) (list 1 0 2))", {"x": "m n k"})
)
def transposes_compose(a: V, p: V, q: V, order: V) -> Clauses:
    """transpose(transpose(a, p), q) = transpose(a, p[q]).

    Sound because axis i of the outer is axis q[i] of the inner, which is axis p[q[i]] of a.
    """
    return rewrite(op.transpose(op.transpose(a, p), q), op.transpose(a, order), order == p.permute(q))


@rule(FAMILY, Example("(access-transpose (access-tensor x) (list 0 1 2))", {"x": "m n k"}))
def transpose_to_the_same_order_is_nothing(a: V, p: V) -> Clauses:
    """transpose(a, (0 1 2 ..)) = a.

    Sound because no axis moves.
    """
    return rewrite(op.transpose(a, p), a, p == vec_range(p.length))


@rule(
    FAMILY,
    Example("(access (access (access-tensor x) 2) 1)", {"x": "m n k"}),
    Example("(access (access (access-tensor x) 1) 0)", {"x": "m n k"}),
)
def accesses_compose(a: V, d: V, e: V) -> Clauses:
    """access(access(a, d), e) = access(a, e), which is a if a is already split there.

    Sound because only the last split counts.
    """
    return (rewrite(op.access(op.access(a, d), e), op.access(a, e)), rewrite(op.access(a, d), a, d == split(a)))


@rule(FAMILY, Example("(access (access-transpose (access (access-tensor x) 1) (list 2 0 1)) 2)", {"x": "m n k"}))
def transpose_leaves_access(a: V, p: V, d: V) -> Clauses:
    """access(transpose(a, p), d) = transpose(access(a, d), p).

    Lets transposes on both sides of a split meet. Sound because a transpose orders all axes and keeps the split.
    """
    return rewrite(op.access(op.transpose(a, p), d), op.transpose(op.access(a, d), p), source(a))


@rule(
    FAMILY,
    Example(ex.reshaped(ex.reshaped(ex.X, "2 3", "$k"), "3 2", "1 $k"), {"x": "6 k"}),
    Example(ex.reshaped(ex.X, "$m", "$k"), {"x": "m k"}),
)
def reshapes_compose(a: V, s: V, i: V, t: V, j: V, d: V, n: V) -> Clauses:
    """reshape(reshape(a), s) = reshape(a, s), which is a if a already has those dims.

    Sound because row-major order is kept throughout.
    """
    return (
        rewrite(op.reshape(op.reshape(a, s, i), t, j), op.reshape(a, t, j)),
        rewrite(op.reshape(a, s, i), a, d == dims(a), n == split(a), n == s.length, d == s.append(i)),
    )


@rule(FAMILY, Example("(access-pad (access-tensor x) zero-padding 1 0 0)", {"x": "m n"}))
def pad_of_nothing_is_nothing(a: V, kind: V, x: V) -> Clauses:
    """pad(a, x, 0, 0) = a.

    Sound because no element is added.
    """
    return rewrite(op.pad(a, kind, x, 0, 0), a)


@rule(
    FAMILY,
    Example("(access-broadcast (access (access-tensor x) 1) (access-shape (shape $m) (shape $n)))", {"x": "m n"}),
)
def broadcast_to_the_same_sizes_is_nothing(a: V, s: V, i: V, d: V) -> Clauses:
    """broadcast(a, dims of a) = a.

    Sound because no axis is repeated.
    """
    return rewrite(op.broadcast(a, s, i), a, d == dims(a), d == s.append(i))


@rule(FAMILY, Example("(compute reduce-sum (access (access-tensor x) 2))", {"x": "m n 1"}))
def sum_of_one_is_itself(a: V, d: V, s: V, t: V) -> Clauses:
    """sum(a) = reshape(a) where each item is one element.

    Sound because the sum of one number is that number. It does not apply if the sum has a wider dtype.
    """
    one = (d == dims(a), s == split(a), d.length == s + 1, d[s] == 1)
    return rewrite(op.reduce_sum(a), reshaped(a, d.pop(), s), one, t == dtype(a), t == dtype(ROOT))


_PUT = "(access-scatter-nd (full (shape {0}) 0 float32) (cast (access-tensor i) int64) (access-tensor x) {1} add)"


@rule(
    FAMILY,
    Example(f"(compute reduce-sum (access {_PUT.format('3 5', 1)} 1))", {"i": "3 2 1", "x": "3 2"}),
    Example(f"(compute reduce-sum (access {_PUT.format('4 5', 0)} 0))", {"i": "3 2", "x": "3"}),
)
def sum_of_what_is_added_to_zeros(z: V, i: V, u: V, n: V, d: V, t: V, di: V, last: V) -> Clauses:
    """reduce-sum(scatter-add(0, i, u, n)) = reduce-sum(u), over all but the n axes that both share.

    The derivative of log-softmax, g - softmax(x) sum(g), then becomes probabilities minus labels if g is the derivative
    of a gather. Sound because each number of u is added to one element of its own row, and zeros add nothing; each is
    one number if the indices name all axes of a row. It does not apply to sums of a wider dtype, which could wrap
    before.
    """
    numbers = (di == dims(i), last == di.length - 1, d.length == n + di[last], t == dtype(u), t == dtype(ROOT))
    put = op.scatter_nd(op.full(d, "0", t), i, u, n, "add")
    return rewrite(op.reduce_sum(z), op.reduce_sum(op.access(u, n)), z == op.access(put, n), numbers)
