"""The algebra of movement: slices, concatenations, pads, reshapes, transposes and splits among each other.

Slices sink towards the tensors and cancel against what made the axis; transposes, reshapes and splits of the program
itself rise, meet and compose. Both directions only ever shorten a path or move one step along it, so they end.
"""

from __future__ import annotations

from glenside.egraph.rule import Clause, Example, rewrite
from rewrites.declare import rule
from rewrites.expressions import reshaped

FAMILY = "algebra"
TILED = "(relation tiled (Access))"
_X = "(access (access-tensor x) 1)"


@rule(
    "analyses",
    Example("(access (access-concatenate (access-tensor x) (access-tensor x) 0) 1)", {"x": "m n"}),
    Example("(compute relu (access-pad (access-tensor x) zero-padding 0 1 1))", {"x": "m n"}),
    relations=TILED,
)
def tiled_classes_are_known() -> tuple[Clause, ...]:
    """Where a slice may cancel: a concatenation or pad of the program, the tiles of a product, and what is computed
    of them.

    An analysis: it adds no e-node. Without it slices would sink into every operand for nothing. Sound because it only
    reads what is there.
    """
    return (
        Clause("(= root (access-concatenate a b x)) (source a) (source b)", "(tiled root)"),
        Clause("(= root (access-pad a k x before after)) (source a)", "(tiled root)"),
        Clause("(= root (access a d)) (tiled a)", "(tiled root)"),
        Clause("(= root (access-transpose a p)) (tiled a)", "(tiled root)"),
        Clause('(= root (compute f a)) (tiled a) (category f c) (!= c "contraction")', "(tiled root)"),
    )


@rule(FAMILY, Example(f"(access-slice (access-slice {_X} 1 1 6) 1 2 4)", {"x": "m 7 k"}))
def slice_of_slice_is_one_slice() -> tuple[Clause, ...]:
    """slice(slice(a, x, lo, hi), x, l, h) = slice(a, x, lo + l, lo + h).

    Sound because both name the same elements of the same axis. The nested form is not subsumed: where a slice of
    everything is its own operand, the form that would replace it is the same e-node.
    """
    return (rewrite("(access-slice (access-slice a x lo hi) x l h)", "(access-slice a x (+ lo l) (+ lo h))"),)


@rule(FAMILY, Example(f"(access-slice (access-slice {_X} 2 1 3) 0 1 2)", {"x": "3 n 5"}))
def slices_have_one_order() -> tuple[Clause, ...]:
    """slice(slice(a, x), y) = slice(slice(a, y), x) for y < x: the later axis is cut last.

    Without one order, n cuts of different axes have n! forms. Sound because cuts of different axes do not meet.
    """
    return (
        rewrite(
            "(access-slice (access-slice a x lo hi) y l h)", "(access-slice (access-slice a y l h) x lo hi)", "(< y x)"
        ),
    )


@rule(FAMILY, Example(f"(access-slice {_X} 1 0 5)", {"x": "m 5"}))
def slice_of_everything_is_nothing() -> tuple[Clause, ...]:
    """slice(a, x, 0, size) = a.

    Sound because every element stays where it is.
    """
    return (Clause("(= root (access-slice a x 0 hi)) (= d (dims a)) (= hi (vec-get d x))", "(union root a)"),)


@rule(
    FAMILY,
    Example(f"(access-slice (access-concatenate {_X} {_X} 1) 1 1 3)", {"x": "m 4 k"}),
    Example(f"(access-slice (access-concatenate {_X} {_X} 1) 1 4 7)", {"x": "m 4 k"}),
    Example(f"(access-slice (access-concatenate {_X} {_X} 1) 2 1 3)", {"x": "m 4 5"}),
    relations=TILED,
)
def slice_sinks_into_concatenate() -> tuple[Clause, ...]:
    """slice(concatenate(a, b, x), x) = the slice of the part that it lies in; on another axis, both parts are sliced.

    Joins the tiles of one product to those of the next without going through the whole. Sound because the parts of a
    concatenation stand one after the other on x and side by side on every other axis.
    """
    both = "(= whole (access-concatenate a b x)) (tiled whole) (= root (access-slice whole y lo hi))"
    cut = "(= x y) (= d (dims a)) (= at (vec-get d x))"
    return (
        Clause(f"{both} {cut} (<= hi at)", "(union root (access-slice a x lo hi))"),
        Clause(f"{both} {cut} (>= lo at)", "(union root (access-slice b x (- lo at) (- hi at)))"),
        Clause(
            f"{both} (!= x y) (source a) (source b)",
            "(union root (access-concatenate (access-slice a y lo hi) (access-slice b y lo hi) x))",
        ),
    )


@rule(
    FAMILY,
    Example(f"(access-slice (access-pad {_X} zero-padding 1 2 1) 1 3 5)", {"x": "m 4 k"}),
    Example(f"(access-slice (access-pad {_X} zero-padding 1 2 1) 2 1 3)", {"x": "m 4 4"}),
    relations=TILED,
)
def slice_sinks_into_pad() -> tuple[Clause, ...]:
    """slice(pad(a, x, before, after), x, lo, hi) = slice(a, x, lo - before, hi - before), inside what was padded.

    Sound because those elements are a's own, shifted by `before`; on another axis the pad does not move them.
    """
    left = "(= whole (access-pad a kind x before after)) (tiled whole) (= root (access-slice whole y lo hi))"
    return (
        Clause(
            f"{left} (= x y) (= d (dims a)) (>= lo before) (<= hi (+ before (vec-get d x)))",
            "(union root (access-slice a x (- lo before) (- hi before)))",
        ),
        Clause(f"{left} (!= x y) (source a)", "(union root (access-pad (access-slice a y lo hi) kind x before after))"),
    )


@rule(
    FAMILY,
    Example(f"(access-slice (access-transpose {_X} (list 2 0 1)) 1 1 2)", {"x": "4 n k"}, wants="(tiled $x)"),
    relations=TILED,
)
def slice_sinks_into_transpose() -> tuple[Clause, ...]:
    """slice(transpose(a, p), x) = transpose(slice(a, p[x]), p).

    Sound because axis x of the result is axis p[x] of a.
    """
    return (
        rewrite(
            "(access-slice (access-transpose a p) x lo hi)",
            "(access-transpose (access-slice a (vec-get p x) lo hi) p)",
            "(tiled a)",
        ),
    )


@rule(
    FAMILY,
    Example("(access-slice (access (access-tensor x) 2) 1 1 3)", {"x": "m 4 k"}, wants="(tiled $x)"),
    relations=TILED,
)
def slice_sinks_into_access() -> tuple[Clause, ...]:
    """slice(access(a, d), x) = access(slice(a, x), d).

    Sound because a split only says where the item begins.
    """
    return (rewrite("(access-slice (access a d) x lo hi)", "(access (access-slice a x lo hi) d)", "(tiled a)"),)


_RESHAPED = "(access-reshape (access (access-tensor x) 2) (access-shape (shape 5 1 $n) (shape $k)))"


@rule(
    FAMILY,
    Example(f"(access-slice {_RESHAPED} 0 1 4)", {"x": "5 n k"}),
    Example(f"(access-pad {_RESHAPED} zero-padding 0 1 4)", {"x": "5 n k"}),
    Example(f"(access-concatenate {_RESHAPED} {_RESHAPED} 0)", {"x": "5 n k"}),
)
def reshape_leaves_the_leading_axis() -> tuple[Clause, ...]:
    """slice, pad and concatenate on the first axis of reshape(a) = reshape of them on a, when the reshape keeps that
    axis.

    Sound because behind an index of the first axis lies the same block of elements before and after the reshape.
    """
    kept = "(= da (dims a)) (= sa (split a)) (> sa 0) (> (vec-length s) 0) (= (vec-get da 0) (vec-get s 0))"
    return (
        Clause(
            f"(= root (access-slice (access-reshape a s i) 0 lo hi)) (source a) {kept}",
            "(union root (access-reshape (access-slice a 0 lo hi) (vec-set s 0 (- hi lo)) i))",
        ),
        Clause(
            f"(= root (access-pad (access-reshape a s i) kind 0 before after)) (source a) {kept}",
            "(union root (access-reshape (access-pad a kind 0 before after)"
            " (vec-set s 0 (+ (vec-get s 0) (+ before after))) i))",
        ),
        Clause(
            "(= root (access-concatenate (access-reshape a s i) (access-reshape b t j) 0)) (source a) (source b)"
            f" {kept} (= i j) (= (dims b) db) (= sa (split b)) (= (vec-length da) (vec-length db))"
            " (= (vec-get db 0) (vec-get t 0)) (= (vec-remove da 0) (vec-remove db 0))"
            " (= (vec-remove s 0) (vec-remove t 0))",
            "(union root (access-reshape (access-concatenate a b 0) (vec-set s 0 (+ (vec-get s 0) (vec-get t 0))) i))",
        ),
    )


@rule(
    FAMILY,
    Example(f"(access-pad (access-transpose {_X} (list 2 0 1)) zero-padding 1 2 1)", {"x": "m n k"}),
    Example(
        f"(access-concatenate (access-transpose {_X} (list 2 0 1)) (access-transpose {_X} (list 2 0 1)) 1)",
        {"x": "m n k"},
    ),
)
def transpose_leaves_pad_and_concatenate() -> tuple[Clause, ...]:
    """pad(transpose(a, p), x) = transpose(pad(a, p[x]), p); concatenate likewise when both parts have the same p.

    Sound because axis x of the result is axis p[x] of a.
    """
    return (
        rewrite(
            "(access-pad (access-transpose a p) kind x before after)",
            "(access-transpose (access-pad a kind (vec-get p x) before after) p)",
            "(source a)",
        ),
        rewrite(
            "(access-concatenate (access-transpose a p) (access-transpose b p) x)",
            "(access-transpose (access-concatenate a b (vec-get p x)) p)",
            "(source a) (source b)",
        ),
    )


@rule(
    FAMILY, Example("(access-transpose (access-transpose (access-tensor x) (list 2 0 1)) (list 1 0 2))", {"x": "m n k"})
)
def transposes_compose() -> tuple[Clause, ...]:
    """transpose(transpose(a, p), q) = transpose(a, p[q]).

    Sound because axis i of the outer is axis q[i] of the inner, which is axis p[q[i]] of a.
    """
    return (
        rewrite(
            "(access-transpose (access-transpose a p) q)",
            "(access-transpose a order)",
            "(= order (permute p q))",
        ),
    )


@rule(FAMILY, Example("(access-transpose (access-tensor x) (list 0 1 2))", {"x": "m n k"}))
def transpose_to_the_same_order_is_nothing() -> tuple[Clause, ...]:
    """transpose(a, (0 1 2 ..)) = a.

    Sound because no axis moves.
    """
    return (Clause("(= root (access-transpose a p)) (= p (vec-range (vec-length p)))", "(union root a)"),)


@rule(
    FAMILY,
    Example("(access (access (access-tensor x) 2) 1)", {"x": "m n k"}),
    Example("(access (access (access-tensor x) 1) 0)", {"x": "m n k"}),
)
def accesses_compose() -> tuple[Clause, ...]:
    """access(access(a, d), e) = access(a, e), which is a when a is split there already.

    Sound because only the last split counts.
    """
    return (
        rewrite("(access (access a d) e)", "(access a e)"),
        Clause("(= root (access a d)) (= d (split a))", "(union root a)"),
    )


@rule(FAMILY, Example("(access (access-transpose (access (access-tensor x) 1) (list 2 0 1)) 2)", {"x": "m n k"}))
def transpose_leaves_access() -> tuple[Clause, ...]:
    """access(transpose(a, p), d) = transpose(access(a, d), p).

    Lets transposes on both sides of a split meet. Sound because a transpose orders all axes and keeps the split.
    """
    return (rewrite("(access (access-transpose a p) d)", "(access-transpose (access a d) p)", "(source a)"),)


@rule(
    FAMILY,
    Example(
        "(access-reshape (access-reshape (access (access-tensor x) 1) (access-shape (shape 2 3) (shape $k)))"
        " (access-shape (shape 3 2) (shape 1 $k)))",
        {"x": "6 k"},
    ),
    Example("(access-reshape (access (access-tensor x) 1) (access-shape (shape $m) (shape $k)))", {"x": "m k"}),
)
def reshapes_compose() -> tuple[Clause, ...]:
    """reshape(reshape(a), s) = reshape(a, s), which is a when a has those dims already.

    Sound because row-major order is kept throughout.
    """
    return (
        rewrite("(access-reshape (access-reshape a s i) t j)", "(access-reshape a t j)"),
        Clause(
            "(= root (access-reshape a s i)) (= d (dims a)) (= (split a) n)"
            " (= n (vec-length s)) (= d (vec-append s i))",
            "(union root a)",
        ),
    )


@rule(FAMILY, Example("(access-pad (access-tensor x) zero-padding 1 0 0)", {"x": "m n"}))
def pad_of_nothing_is_nothing() -> tuple[Clause, ...]:
    """pad(a, x, 0, 0) = a.

    Sound because no element is added.
    """
    return (Clause("(= root (access-pad a kind x 0 0))", "(union root a)"),)


@rule(
    FAMILY,
    Example(
        "(access-broadcast (access (access-tensor x) 1) (access-shape (shape $m) (shape $n)))",
        {"x": "m n"},
    ),
)
def broadcast_to_the_same_sizes_is_nothing() -> tuple[Clause, ...]:
    """broadcast(a, dims of a) = a.

    Sound because no axis is repeated.
    """
    return (Clause("(= root (access-broadcast a s i)) (= d (dims a)) (= d (vec-append s i))", "(union root a)"),)


@rule(FAMILY, Example("(compute reduce-sum (access (access-tensor x) 2))", {"x": "m n 1"}))
def sum_of_one_is_itself() -> tuple[Clause, ...]:
    """sum(a) = reshape(a) where each item is one element.

    Sound because the sum of one number is that number; where the sum is of a wider dtype nothing is said.
    """
    return (
        Clause(
            '(= root (compute "reduce-sum" a)) (= d (dims a)) (= s (split a)) (= (vec-length d) (+ s 1))'
            " (= 1 (vec-get d s)) (= t (dtype a)) (= t (dtype root))",
            f"(union root {reshaped('a', '(vec-pop d)', 's')})",
        ),
    )
