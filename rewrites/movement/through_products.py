"""Movement leaves a product and its dot-product: slices, concatenations, pads, reshapes, transposes.

Axes of access-product(a, b, n): the n shared ones, the rest of a's shape, the rest of b's shape, the tuple axis, the
item. Nothing here may touch the tuple axis: dot-product multiplies along it.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause, rewrite
from glenside.egraph.rule import Example
from rewrites.declare import rule
from rewrites.movement.algebra import TILED

FAMILY = "through-products"
_A, _B = "(access (access-tensor a) 2)", "(access (access-tensor b) 2)"
_SHAPES = {"a": "g m k", "b": "g n k"}


def _product(a: str, b: str, n: int = 1) -> str:
    return f"(access-product {a} {b} {n})"


@rule(
    FAMILY,
    Example(_product(f"(access-concatenate {_A} {_A} 1)", _B), _SHAPES),
    Example(_product(_A, f"(access-concatenate {_B} {_B} 1)"), _SHAPES),
    Example(_product(f"(access-concatenate {_A} {_A} 2)", f"(access-concatenate {_B} {_B} 2)"), _SHAPES),
    Example(_product(f"(access-concatenate {_A} {_A} 0)", f"(access-concatenate {_B} {_B} 0)"), _SHAPES),
)
def concatenate_leaves_product() -> tuple[Clause, ...]:
    """concatenate(a, c) x b = concatenate(a x b, c x b), and likewise on the right, on the item and on shared axes.

    Sound because a product pairs every item of one side with every item of the other, so a part of one side gives a
    part of the result. Item and shared axes must be cut on both sides at the same place.
    """
    left, right = "(access-concatenate a c x)", "(access-concatenate b c y)"
    both = "(= root (access-product (access-concatenate a c x) (access-concatenate b d y) n))"
    parts = "(access-concatenate (access-product a b n) (access-product c d n) {axis})"
    return (
        rewrite(
            f"(access-product {left} b n)",
            "(access-concatenate (access-product a b n) (access-product c b n) x)",
            "(= sa (split a)) (>= x n) (< x sa)",
        ),
        rewrite(
            f"(access-product a {right} n)",
            "(access-concatenate (access-product a b n) (access-product a c n) (+ y (- sa n)))",
            "(= sa (split a)) (= sb (split b)) (>= y n) (< y sb)",
        ),
        Clause(
            f"{both} (= sa (split a)) (= sb (split b)) (>= x sa) (= (- x sa) (- y sb))"
            " (= da (dims a)) (= db (dims b)) (= (vec-get da x) (vec-get db y))",
            f"(union root {parts.format(axis='(+ (+ x 1) (- sb n))')})",
        ),
        Clause(
            f"{both} (= x y) (< x n) (= da (dims a)) (= db (dims b)) (= (vec-get da x) (vec-get db y))",
            f"(union root {parts.format(axis='x')})",
        ),
    )


def _dot(p: str) -> str:
    return f"(compute dot-product {p})"


_P = _product(_A, _B)


@rule(
    FAMILY,
    Example(_dot(f"(access-concatenate {_P} {_P} 1)"), _SHAPES),
    Example(_dot(f"(access-concatenate {_P} {_P} 4)"), _SHAPES),
    relations=TILED,
)
def concatenate_leaves_dot_product() -> tuple[Clause, ...]:
    """dot(concatenate(p, q, shape axis)) = concatenate(dot p, dot q); along the depth it is dot(p) + dot(q).

    Sound because each item is contracted by itself, and a sum over a depth of two parts is the sum of their sums.
    Not on the tuple axis: there a concatenation is a product of parts, not a sum.
    """
    root = '(compute "dot-product" (access-concatenate p q x))'
    return (
        Clause(
            f"(= root {root}) (= s (split p)) (< x s)",
            '(union root (access-concatenate (compute "dot-product" p) (compute "dot-product" q) x)) (tiled root)',
        ),
        rewrite(
            root,
            '(compute "elementwise-add" (access-product (compute "dot-product" p) (compute "dot-product" q) s))',
            "(= s (split p)) (> x s)",
        ),
    )


@rule(
    FAMILY,
    Example(_product(f"(access-slice {_A} 1 1 3)", _B), {"a": "g 5 k", "b": "g n k"}),
    Example(_product(_A, f"(access-slice {_B} 1 1 3)"), {"a": "g m k", "b": "g 5 k"}),
    Example(_product(f"(access-slice {_A} 2 1 3)", f"(access-slice {_B} 2 1 3)"), {"a": "g m 5", "b": "g n 5"}),
    Example(_product(f"(access-slice {_A} 0 1 3)", f"(access-slice {_B} 0 1 3)"), {"a": "4 m k", "b": "4 n k"}),
    Example(_product(f"(access-slice (access-pad {_A} zero-padding 1 0 2) 1 0 4)", _B), {"a": "g 4 k", "b": "g n k"}),
    Example(_product(_A, f"(access-slice (access-pad {_B} zero-padding 1 0 2) 1 0 4)"), {"a": "g m k", "b": "g 4 k"}),
)
def slice_leaves_product() -> tuple[Clause, ...]:
    """slice(a) x b = slice(a x b) on an axis of a's own shape; likewise on the right, on the item and on shared axes.

    Only where a pad is cut back to its size (the slice begins at 0) or the program itself has the slice: the slices
    that make tiles must stay on the operands. Sound because a part of one side gives a part of the product; items
    and shared axes must be cut alike on both sides.
    """
    both = "(= root (access-product (access-slice a x lo hi) (access-slice b y lo hi) n))"
    whole = "(= sa (split a)) (= sb (split b))"
    part = "(access-slice (access-product a b n) {axis} lo hi)"
    left = "(access-product (access-slice a x lo hi) b n)"
    right = "(access-product a (access-slice b y lo hi) n)"
    clauses = []
    for padded in ("(= a (access-pad c kind x before after))", "(source root) (source a)"):
        clauses.append(rewrite(left, part.format(axis="x"), f"{padded} {whole} (>= x n) (< x sa)"))
        at = padded.replace("(= a ", "(= b ").replace(" x ", " y ").replace("(source a)", "(source b)")
        clauses.append(rewrite(right, part.format(axis="(+ y (- sa n))"), f"{at} {whole} (>= y n) (< y sb)"))
    source = "(source root) (source a) (source b)"
    return (
        *clauses,
        Clause(
            f"{both} {source} {whole} (>= x sa) (= (- x sa) (- y sb)) (= da (dims a)) (= db (dims b))"
            " (= (vec-get da x) (vec-get db y))",
            f"(union root {part.format(axis='(+ (+ x 1) (- sb n))')})",
        ),
        Clause(
            f"{both} {source} (= x y) (< x n) (= da (dims a)) (= db (dims b)) (= (vec-get da x) (vec-get db y))",
            f"(union root {part.format(axis='x')})",
        ),
    )


@rule(FAMILY, Example(_dot(f"(access-slice {_P} 1 1 3)"), {"a": "g 5 k", "b": "g n k"}))
def slice_leaves_dot_product() -> tuple[Clause, ...]:
    """dot(slice(p, shape axis)) = slice(dot(p), shape axis).

    Sound because each item is contracted by itself. Not on the depth (it drops terms of the sum) and not on the tuple
    axis (it drops a factor).
    """
    return (
        rewrite(
            '(compute "dot-product" (access-slice p x lo hi))',
            '(access-slice (compute "dot-product" p) x lo hi)',
            "(= s (split p)) (< x s)",
        ),
    )


@rule(
    FAMILY,
    Example(f"(access-pad {_P} zero-padding 4 1 2)", _SHAPES),
    Example(f"(compute dot-product {_product(f'(access-pad {_A} zero-padding 1 2 1)', _B)})", _SHAPES),
    Example(f"(compute dot-product {_product(_A, f'(access-pad {_B} zero-padding 1 2 1)')})", _SHAPES),
)
def pad_crosses_product() -> tuple[Clause, ...]:
    """pad(a x b, item axis) = pad(a) x pad(b); and dot(pad(a, shape axis) x b) = pad(dot(a x b)).

    Sound because the product pairs items element by element, so both halves of a pair are padded; and because an
    item of zeros gives 0 with every other, which is what the pad holds. The tuple axis is left alone.
    """
    pad = '(access-pad {0} "zero-padding" {1} before after)'
    inward = pad.format("(access-product a b n)", "x")
    own = pad.format("a", "y")
    right = pad.format("b", "y")
    dot = '(compute "dot-product" (access-product {0} {1} n))'
    return (
        rewrite(
            inward,
            f"(access-product {pad.format('a', '(- (- x 1) (- sb n))')} {pad.format('b', '(- (- x 1) (- sa n))')} n)",
            "(= sa (split a)) (= sb (split b)) (> x (- (+ sa sb) n))",
        ),
        rewrite(
            dot.format(own, "b"),
            pad.format(dot.format("a", "b"), "y"),
            "(source root) (source a) (= sa (split a)) (>= y n) (< y sa)",
        ),
        rewrite(
            dot.format("a", right),
            pad.format(dot.format("a", "b"), "(+ y (- sa n))"),
            "(source root) (source b) (= sa (split a)) (= sb (split b)) (>= y n) (< y sb)",
        ),
    )


@rule(
    FAMILY,
    Example(
        _product(
            "(access-reshape (access (access-tensor a) 2) (access-shape (shape $g 1 $m) (shape $k)))",
            "(access-reshape (access (access-tensor b) 2) (access-shape (shape $g $n 1) (shape $k)))",
        ),
        {"a": "g m k", "b": "g n k"},
    ),
    Example(
        _product(
            "(access-reshape (access (access-tensor a) 2) (access-shape (shape 2 3 $m) (shape $k)))",
            "(access-reshape (access (access-tensor b) 2) (access-shape (shape 2 3 $n) (shape $k)))",
            2,
        ),
        {"a": "6 m k", "b": "6 n k"},
    ),
    relations="(relation reshaped-product (Access Access Ints Ints Access Ints i64))",
)
def reshape_leaves_product() -> tuple[Clause, ...]:
    """reshape(a) x reshape(b) = reshape(a x b), when both sides regroup the item and the shared axes alike.

    Sound because reshape keeps row-major order: the result's shape is (shared, rows of a, rows of b) in both orders of
    doing it, and both halves of a pair are regrouped in the same way behind the tuple axis.
    """
    facts = (
        "(reshaped-product root a s i b t n)"
        " (= da (dims a)) (= sa (split a)) (= db (dims b)) (= sb (split b))"
        " (= ia (drop da sa)) (= ib (drop db sb)) (= ia ib)"
        " (= sn (take s n)) (= tn (take t n)) (= sn tn) (= tail (drop t n))"
    )
    made = "(union root (access-reshape (access-product a b {0}) (vec-append s tail) (vec-append (vec-of 2) i)))"
    return (
        # The few candidates first: joining them with the tables of shapes at once costs far more.
        Clause(
            "(= root (access-product (access-reshape a s i) (access-reshape b t i) n))",
            "(reshaped-product root a s i b t n)",
        ),
        Clause(
            f"{facts} (= an (take da n)) (= an sn) (= bn (take db n)) (= bn sn) (>= sa n) (>= sb n)", made.format("n")
        ),
        Clause(
            f"{facts} (> n 0) (> sa 0) (> sb 0) (= g (product sn)) (= g (vec-get da 0)) (= g (vec-get db 0))",
            made.format("1"),
        ),
    )


@rule(
    FAMILY,
    Example(
        _dot(
            f"(access-reshape {_product('(access (access-tensor a) 1)', '(access (access-tensor b) 1)', 1)}"
            " (access-shape (shape 1 $g) (shape 2 1 12)))"
        ),
        {"a": "g 3 4", "b": "g 3 4"},
    ),
)
def reshape_leaves_dot_product() -> tuple[Clause, ...]:
    """dot(reshape(p; (S)(2, I))) = reshape(dot(p); (S)()), when the reshape keeps the tuple axis first.

    Sound because the first item axis keeps its size and its place, so the same pairs are multiplied, and the order of a
    sum does not matter. A reshape that merges the tuple axis into the item changes the meaning and does not match.
    """
    return (
        Clause(
            '(= root (compute "dot-product" (access-reshape p s i))) (= dp (dims p)) (= sp (split p))'
            " (< sp (vec-length dp)) (> (vec-length i) 0) (= (vec-get dp sp) (vec-get i 0))",
            '(union root (access-reshape (compute "dot-product" p) s (vec-empty)))',
        ),
    )


@rule(
    FAMILY,
    Example(
        _product("(access-transpose (access (access-tensor a) 3) (list 0 2 1 3))", "(access (access-tensor b) 2)"),
        {"a": "g m n k", "b": "g o k"},
    ),
    Example(
        _product("(access (access-tensor b) 2)", "(access-transpose (access (access-tensor a) 3) (list 0 2 1 3))"),
        {"a": "g m n k", "b": "g o k"},
    ),
    Example(
        _product(
            "(access-transpose (access (access-tensor a) 2) (list 0 1 3 2))",
            "(access-transpose (access (access-tensor b) 2) (list 0 1 3 2))",
        ),
        {"a": "g m k l", "b": "g n k l"},
    ),
    relations="\n".join(
        [
            "(relation left-transposed-product (Access Access Ints Access i64))",
            "(relation right-transposed-product (Access Access Access Ints i64))",
            "(relation transposed-product (Access Access Ints Access Ints i64))",
        ]
    ),
)
def transpose_leaves_product() -> tuple[Clause, ...]:
    """transpose(a) x b = transpose(a x b), for axes of one side's own shape, or of the item when both sides agree.

    Only where the program itself has the transpose. Sound because the pairs are the same and only their order among the
    result's axes differs; shared axes stay in front, shape and item axes do not mix, the tuple axis does not move.
    """
    found = (
        (
            "(= root (access-product (access-transpose a p) b n)) (source root) (source a)",
            "(left-transposed-product root a p b n)",
        ),
        (
            "(= root (access-product a (access-transpose b p) n)) (source root) (source b)",
            "(right-transposed-product root a b p n)",
        ),
        (
            "(= root (access-product (access-transpose a p) (access-transpose b q) n))"
            " (source root) (source a) (source b)",
            "(transposed-product root a p b q n)",
        ),
    )
    left, right, both = (actions for _, actions in found)
    sizes = "(= da (dims a)) (= sa (split a)) (= db (dims b)) (= sb (split b))"
    rank = "(= ra (vec-length da)) (= rb (vec-length db)) (= all (vec-range (+ (+ ra (- sb n)) 1)))"
    rows = "(= ps (take p {s})) (= pi (drop p {s})) (= range (vec-range {r})) (= keep (drop range {s})) (= pi keep)"
    leading = "(= pn (take p n)) (= front (vec-range n)) (= pn front)"
    return (
        *(Clause(*pair) for pair in found),
        Clause(
            f"{left} {sizes} {rank} {rows.format(s='sa', r='ra')} {leading} (= rest (drop all sa))",
            "(union root (access-transpose (access-product a b n) (vec-append ps rest)))",
        ),
        Clause(
            f"{right} {sizes} {rank} {rows.format(s='sb', r='rb')} {leading} (= own (drop ps n))"
            " (= by (- sa n)) (= moved (shift own by)) (= before (take all sa)) (= after (+ sa (- sb n)))"
            " (= rest (drop all after))",
            "(union root (access-transpose (access-product a b n) (vec-append before moved rest)))",
        ),
        Clause(
            f"{both} {sizes} {rank} (= ps (take p sa)) (= sr (vec-range sa)) (= ps sr)"
            " (= qs (take q sb)) (= tr (vec-range sb)) (= qs tr) (= pi (drop p sa)) (= back (- 0 sa))"
            " (= order (shift pi back)) (= qi (drop q sb)) (= forth (- 0 sb))"
            " (= other (shift qi forth)) (= order other)"
            " (= at (+ (+ sa (- sb n)) 1)) (= moved (shift order at)) (= before (take all at))",
            "(union root (access-transpose (access-product a b n) (vec-append before moved)))",
        ),
    )


@rule(
    FAMILY,
    Example(_dot(f"(access-transpose {_P} (list 2 0 1 3 4))"), _SHAPES),
    Example(_dot("(access-transpose (access (access-tensor p) 2) (list 1 0 2 4 3))"), {"p": "m n 2 k l"}),
)
def transpose_leaves_dot_product() -> tuple[Clause, ...]:
    """dot(transpose(p)) = transpose(dot(p)), when shape and item axes do not mix and the tuple axis stays first.

    Sound because the pairs that are multiplied and summed for one place of the shape are the same; a sum has no order.
    """
    return (
        Clause(
            '(= root (compute "dot-product" (access-transpose p o))) (= sp (split p)) (> (vec-length o) sp)'
            " (= (vec-get o sp) sp) (= shape (take o sp)) (= top (highest shape)) (< top sp)",
            '(union root (access-transpose (compute "dot-product" p) shape))',
        ),
    )
