"""Rearrangements rise: what is computed of a rearranged tensor is a rearrangement of what is computed of the tensor.

So a layout that one product gives its result is that of everything up to the next, where two rearrangements meet, and
are one, or none. Every chain of reshapes, transposes and splits is one `access-rearrange` here. Rules fire for what the
program itself computes of its inputs: what they make is in those classes, and what is constant costs nothing anyhow.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause, rewrite
from glenside.egraph.rule import Example
from rewrites.declare import rule
from rewrites.expressions import rearranged, under, whole
from rewrites.layout import rearranging

FAMILY = "layout"
CORE = "rearranging"  # what folding needs of it
TABLES = rearranging  # declares the tables that are read here
MOVED = "(access-rearrange (access-tensor x) (shape {0}) (list {1}) (access-shape (shape {2}) (shape {3})))"
_TURNED = MOVED.format("$m $n $k $l", "0 2 3 1", "", "$m $k $l $n")
_RANK4 = {"x": "m n k l"}
OPERAND = "(source root) (varies root) (= c (access-rearrange b p o s i)) (= d (dims c))"
_TYPE = "(= dr (dims root)) (= sr (split root)) (= rs (take dr sr)) (= ri (drop dr sr))"


@rule(
    CORE,
    Example("(access-transpose (access-tensor x) (list 0 2 3 1))", _RANK4),
    Example("(access-reshape (access (access-tensor x) 1) (access-shape (shape $m 1) (shape 2 $k)))", {"x": "m k 2"}),
    Example("(access-squeeze (access-insert-axis (access-tensor x) 1) 1)", {"x": "m k"}),
    Example("(access-shift-right (access-flatten (access (access-tensor x) 1)))", {"x": "m k n"}),
)
def movement_is_a_rearrangement() -> tuple[Clause, ...]:
    """transpose(a, p) = rearrange(a; dims, p), and every reshape or split is a rearrangement of one part.

    Sound because a transpose reorders whole axes, and row-major order is what reshapes keep.
    """
    still = (
        "(access-reshape a s i)",
        "(access a n)",
        "(access-squeeze a x)",
        "(access-insert-axis a x)",
        "(access-shift-right a)",
        "(access-flatten a)",
    )
    return (
        Clause(
            f"(= root (access-transpose a p)) (= da (dims a)) (= q (transposing-parts da p))"
            f" (= o (transposing-order da p)) {_TYPE}",
            f"(union root {rearranged('a', 'q', 'o', 'rs', 'ri')})",
        ),
        *(
            Clause(
                f"(= root {form}) (= da (dims a)) (= size (product da)) (> size 0) {_TYPE}",
                f"(union root {under('a', 'size', 'rs', 'ri')})",
            )
            for form in still
        ),
    )


_TWICE = "(access-rearrange {0} (shape $n $m) (list 1 0) (access-shape (shape) (shape $m $n)))"
_TWICE = _TWICE.format(MOVED.format("$m $n", "1 0", "", "$n $m"))
_FLAT_TWICE = "(access-rearrange {0} (shape 3 2) (list 1 0) (access-shape (shape) (shape 6)))"
_FLAT_TWICE = _FLAT_TWICE.format(MOVED.format("2 3", "1 0", "", "6"))
LIFTED = "(= linear (access-rearrange {0} one (vec-of 0) no all))"


@rule(
    CORE,
    Example(_FLAT_TWICE, {"x": "6"}),
)
def rearrangements_compose() -> tuple[Clause, ...]:
    """rearrange(rearrange(a; p, o); q, r) = rearrange(a; both), which is a where nothing moves and the
    dims are its own.

    Sound because each is a permutation of the elements in row-major order, and permutations compose.
    """
    return (
        Clause(
            "(= root (access-rearrange b q r t j)) (= b (access-rearrange a p o s i)) (= d (dims a))"
            " (= 1 (vec-length d)) (= 0 (split a)) (= v (composed-parts p o q r)) (= w (composed-order p o q r))",
            f"(union root {rearranged('a', 'v', 'w', 't', 'j')})",
        ),
        Clause(
            "(= root (access-rearrange a p o s i)) (= o (vec-of 0)) (= d (dims a)) (= d (vec-append s i))"
            " (= n (split a)) (= n (vec-length s))",
            "(union root a)",
        ),
    )


@rule(CORE, Example(_TWICE, {"x": "m n"}), Example(MOVED.format("$m $n", "0 1", "$m", "$n"), {"x": "m n"}))
def operands_are_flat() -> tuple[Clause, ...]:
    """rearrange(b; p, o) = rearrange(flat(b); p, o), where flat(b) are its elements along one axis.

    Tensors that differ in dims alone then share what they are rearrangements of, and each layout of a tensor is one
    class, however many shapes it is seen in; so the first form is not looked at again. Sound because a rearrangement
    reads its operand in row-major order, whatever its dims.
    """
    flat = whole("b", "n", "(vec-of n)")
    return (
        Clause(
            "(= root (access-rearrange b p o s i)) (= db (dims b)) (= sb (split b)) (= n (product db)) (> n 0)"
            " (!= (vec-push db sb) (vec-of n 0)) (!= (vec-append o s i (vec-of (vec-length s))) (vec-of 0 n 0))"
            " (= bs (take db sb)) (= bi (drop db sb))",
            f"(let linear {flat}) (union root {rearranged('linear', 'p', 'o', 's', 'i')})"
            f" (union b {under('linear', 'n', 'bs', 'bi')}) (subsume (access-rearrange b p o s i))",
        ),
    )


_TWO = MOVED.format("2 3", "1 0", "", "3 2")
_ALIKE = (
    '(access-rearrange (compute "negative" (compute "negative" $x)) (vec-of 2 3) (vec-of 1 0) (vec-empty) (vec-of 3 2))'
)


@rule(CORE, Example(_TWO, {"x": "2 3"}, f"(union $root {_ALIKE})"))
def equal_rearrangements_are_of_equals() -> tuple[Clause, ...]:
    """rearrange(a; p, o) = rearrange(b; p, o) implies a = b, where both have the same dims.

    What different rules make of one tensor becomes one class again. Sound because a rearrangement is one to one.
    """
    return (
        Clause(
            "(= root (access-rearrange a p o s i)) (= root (access-rearrange b p o s i)) (!= a b)"
            " (= d (dims a))"
            " (= d (dims b)) (= n (split a)) (= n (split b))",
            "(union a b)",
        ),
    )


@rule(FAMILY, Example(f"(compute relu {_TURNED})", _RANK4), Example(f"(cast {_TURNED} float64)", _RANK4))
def rearrangement_leaves_pointwise() -> tuple[Clause, ...]:
    """f(rearrange(b)) = rearrange(f(b)), for pointwise f and for casts.

    Sound because each element is computed by itself; only its place differs.
    """
    ours = "(source root) (varies root)"
    return (
        rewrite(
            "(compute f (access-rearrange b p o s i))",
            rearranged("(compute f b)", "p", "o", "s", "i"),
            f'{ours} (category f "pointwise")',
        ),
        rewrite("(cast (access-rearrange b p o s i) t)", rearranged("(cast b t)", "p", "o", "s", "i"), ours),
    )


_PAIR = "(compute subtract (access-cartesian-product {0} {1}))"


@rule(
    CORE,
    Example(_PAIR.format(_TURNED, "(access-tensor y)"), {"x": "m n k l", "y": "m k l n"}),
    Example(_PAIR.format("(access-tensor y)", _TURNED), {"x": "m n k l", "y": "m k l n"}),
    relations="(relation whole-pair (Access String Access Access))",
)
def rearrangement_leaves_pair() -> tuple[Clause, ...]:
    """f(rearrange(b) x y) = rearrange(f(b x rearrange'(y))), with what undoes it, for an f of two whole tensors.

    Sound because f takes the elements of both at the same place, and both sides are moved alike.
    """
    facts = (
        f"{{0}} {OPERAND} (= 0 (split c)) (= v (undone-parts p o)) (= w (undone-order p o)) (= db (dims b))"
        " (= size (product db))"
    )
    own, other = whole("b", "size", "db"), rearranged("y", "v", "w", "(vec-empty)", "db")
    return (
        Clause(
            '(source root) (varies root) (= root (compute f (access-product x y 0))) (category f "fold")'
            " (= 0 (split x)) (= 0 (split y))",
            "(whole-pair root f x y)",
        ),
        *(
            Clause(
                facts.format(f"(whole-pair root f {operands.format('c', 'y')})"),
                "(union root "
                + rearranged(
                    f"(compute f (access-product {operands.format(own, other)} 0))", "p", "o", "(vec-empty)", "d"
                )
                + ")",
            )
            for operands in ("{0} {1}", "{1} {0}")
        ),
    )


_WIDE = f"(access-broadcast {MOVED} (access-shape (shape) (shape $m 6 $n 5)))"


@rule(
    FAMILY,
    Example(_WIDE.format("$n $m", "1 0", "", "$m 1 $n 1"), {"x": "n m 1 1"}),
    Example(_WIDE.format("$n $m 6", "1 2 0", "", "$m 6 $n 1"), {"x": "n m 6 1"}),
)
def rearrangement_leaves_broadcast() -> tuple[Clause, ...]:
    """broadcast(rearrange(b)) = rearrange(broadcast(b)), with the repeated axes beside the parts that they follow.

    Sound because a repeated axis has one element before, so it may stand anywhere among the parts of b.
    """
    key = "p o d dr"
    return (
        Clause(
            f"(= root (access-broadcast c bs bi)) {OPERAND} {_TYPE} (= ones (broadcasting-ones {key}))"
            f" (= q (broadcasting-parts {key})) (= v (broadcasting-after {key})) (= r (broadcasting-order {key}))"
            " (= size (product d))",
            "(union root "
            + rearranged(f"(access-broadcast {whole('b', 'size', 'ones')} (vec-empty) q)", "v", "r", "rs", "ri")
            + ")",
        ),
    )


_BROAD = "(access-broadcast (access-tensor x) (access-shape (shape) (shape 4 6 5)))"
_LIFT = "(access-rearrange {0} (shape {1}) (list 0) (access-shape (shape) (shape {1})))"
_NARROW = "(access-rearrange {0} (shape 4 6 5) (list 2 0 1) (access-shape (shape) (shape 5 4 6)))"
_NARROW = _NARROW.format(_LIFT.format(_BROAD, 120))


@rule(
    CORE,
    Example(_NARROW, {"x": "1 6 1"}),
    Example(_NARROW, {"x": "4 6 1"}),
    Example(_NARROW, {"x": "1 1 1"}),
    relations="(relation moved-broadcast (Access Access Access Ints Ints Ints Ints i64))",
)
def rearrangement_sinks_into_broadcast() -> tuple[Clause, ...]:
    """rearrange(broadcast(z)) = broadcast(rearrange(z)): what is small is moved, and repeated in its new place.

    A bias is a vector in every layout. Sound because along a repeated axis all elements are the same one of z.
    """
    found, key = "(moved-broadcast root b z p o s i size)", "p o dz db"
    return (
        Clause(
            "(= root (access-rearrange linear p o s i)) (!= o (vec-of 0))"
            f" {LIFTED.format('b')} (= b (access-broadcast z bs bi)) (= size (vec-get one 0))",
            found,
        ),
        Clause(
            f"{found} (= dz (dims z)) (= db (dims b))"
            + "".join(
                f" (= {name} (before-broadcast-{result} {key}))"
                for name, result in (("q", "parts"), ("r", "order"), ("few", "small"), ("many", "large"))
            ),
            "(union root "
            + under(
                f"(access-broadcast {rearranged('z', 'q', 'r', '(vec-empty)', 'few')} (vec-empty) many)",
                "size",
                "s",
                "i",
            )
            + ")",
        ),
    )


@rule(
    FAMILY,
    Example(f"(access-pad {_TURNED} zero-padding 1 1 2)", _RANK4),
    Example(f"(access-slice {_TURNED} 1 0 2)", _RANK4),
    Example(f"(access-flip {_TURNED} 1)", _RANK4),
    Example(f"(access-dilate {_TURNED} 3 2)", _RANK4),
    Example(
        f"(access-pad {MOVED.format('$m $n 1 $l', '0 2 3 1', '', '$m 1 $l $n')} zero-padding 1 1 2)", {"x": "m n 1 l"}
    ),
)
def rearrangement_leaves_one_axis() -> tuple[Clause, ...]:
    """pad(rearrange(b), x) = rearrange(pad(b, the part that x is)); so for slice, flip and dilate.

    Where x is one part of b. Sound because these act on an axis as a whole, wherever it stands.
    """
    key = "p o d x new"
    forms = (
        "access-pad {0} kind {1} lo hi",
        "access-slice {0} {1} lo hi",
        "access-flip {0} {1}",
        "access-dilate {0} {1} n",
    )
    inner = whole("b", "size", "q")
    return tuple(
        Clause(
            f"(= root ({form.format('c', 'x')})) {OPERAND} {_TYPE} (= new (vec-get dr x)) (= at (one-axis-at {key}))"
            f" (= q (one-axis-parts {key})) (= v (one-axis-after {key})) (= r (one-axis-order {key}))"
            " (= size (product d))",
            f"(let moved ({form.format(inner, 'at')})) (union root " + rearranged("moved", "v", "r", "rs", "ri") + ")",
        )
        for form in forms
    )


_IMAGE = MOVED.format("$m $n 5 7", "0 2 3 1", "{0}", "{1}")
_JOINED = "(access-concatenate {0} {1} 3)"


@rule(
    FAMILY,
    Example(_JOINED.format(_TURNED, "(access-tensor y)"), {"x": "m n k l", "y": "m k l 6"}),
    Example(_JOINED.format("(access-tensor y)", _TURNED), {"x": "m n k l", "y": "m k l 6"}),
)
def rearrangement_leaves_concatenate() -> tuple[Clause, ...]:
    """concatenate(rearrange(b), y) = rearrange(concatenate(b, rearrange'(y))), on an axis that is one part of b.

    Sound because both are moved alike, and the parts stand one after the other on that axis in any layout.
    """
    key = "p o d e x"
    facts = (
        f"(= root (access-concatenate {{0}} x)) {OPERAND} (= e (dims y)) {_TYPE}"
        + "".join(
            f" (= {name} (concatenating-{result} {key}))"
            for name, result in (
                ("q", "parts"),
                ("v", "other-parts"),
                ("w", "other-order"),
                ("sizes", "other"),
                ("at", "at"),
                ("all", "after"),
                ("r", "order"),
            )
        )
        + " (= size (product d))"
    )
    own, other = whole("b", "size", "q"), rearranged("y", "v", "w", "(vec-empty)", "sizes")
    return tuple(
        Clause(
            facts.format(operands.format("c", "y")),
            f"(let joined (access-concatenate {operands.format(own, other)} at)) (union root "
            + rearranged("joined", "all", "r", "rs", "ri")
            + ")",
        )
        for operands in ("{0} {1}", "{1} {0}")
    )


@rule(
    FAMILY,
    Example(f"(access-windows {_IMAGE.format('$m', '5 7 $n')} (shape 2 2 $n) (shape 1 2 1))", {"x": "m n 5 7"}),
    Example(f"(access-windows {_IMAGE.format('$m 5', '7 $n')} (shape 1 2) (shape 1 1))", {"x": "m n 5 7"}),
)
def rearrangement_leaves_windows() -> tuple[Clause, ...]:
    """windows(rearrange(b)) = rearrange(windows(b)): in b every part has its window, of 1 where c has none.

    Sound because a window is a choice on each axis by itself; a window that is whole is whole along each of its parts.
    """
    key = "p o d n k t"
    return (
        Clause(
            f"(= root (access-windows c k t)) {OPERAND} (= n (split c)) {_TYPE}"
            + "".join(
                f" (= {name} (windowing-{result} {key}))"
                for name, result in (
                    ("q", "parts"),
                    ("window", "window"),
                    ("steps", "strides"),
                    ("v", "after"),
                    ("w", "order"),
                )
            )
            + " (= size (product d))",
            "(union root "
            + rearranged(f"(access-windows {whole('b', 'size', 'q')} window steps)", "v", "w", "rs", "ri")
            + ")",
        ),
    )
