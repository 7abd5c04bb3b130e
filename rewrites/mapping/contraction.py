"""What a matrix unit wants of a product: one axis on each side, depth and width that are multiples of its own.

A flat product is dot(a x b) with a = (M)(K), b = (N)(K), or with one shared axis (G, M)(K), (G, N)(K). Every demand
below starts at a product, and each only once the one before is met: flatten, pad the width, pad the depth, cut the
width, cut the depth. One order means that a tile is found in one way, so the search grows with the number of tiles
and not faster.
"""

from __future__ import annotations

from glenside.egraph.rule import Clause, Example
from rewrites.declare import rule

DOT = '(= root (compute "dot-product" (access-product a b n)))'
SIDES = "(= da (dims a)) (= sa (split a)) (= db (dims b)) (= sb (split b))"
FLAT = "(relation flat (Access Access Access i64 i64 i64))"  # root a b n depth width
WANT_FLAT = "(relation want-flat (Access i64))"  # operand, leading axes that are shared
WANT_PAD = "(relation want-pad (Access i64 i64))"  # operand, axis, how much
WANT_DEPTH = "(relation want-depth (Access i64))"  # product, how much
WANT_SLICES = "(relation want-slices (Access i64 i64))"  # access, axis, size of a slice
RELATIONS = "\n".join([FLAT, WANT_FLAT, WANT_PAD, WANT_DEPTH, WANT_SLICES])

_CONV = Example(
    "(compute dot-product (access-cartesian-product (access (access-tensor x) 2) (access (access-tensor w) 1)))",
    {"x": "m n k l", "w": "o k l"},
)
_GROUPED = Example(
    "(compute dot-product (access-product (access (access-tensor x) 3) (access (access-tensor w) 1) 1))",
    {"x": "g m n k l", "w": "g k l"},
)
_TWO_SHARED = Example(
    "(compute dot-product (access-product (access (access-tensor x) 3) (access (access-tensor w) 3) 2))",
    {"x": "g h m k", "w": "g h n k"},
)


@rule("products", _CONV, _GROUPED, _TWO_SHARED, relations=RELATIONS)
def operands_are_flattened() -> tuple[Clause, ...]:
    """a = reshape(reshape(a; (M)(K)); dims of a), for both operands of a product that is not flat.

    A matrix unit knows one row axis and one depth; with shared axes, one axis for all of them. Sound because reshape
    keeps the elements of shape and item in row-major order, so the way back restores every axis.
    """
    bodies = [
        "(!= (- (vec-length da) sa) 1)",
        "(!= sa (+ (min n 1) 1))",
        "(!= sb (+ (min n 1) 1))",
        "(> n 1)",
    ]
    demand = tuple(Clause(f"{DOT} {SIDES} {body}", "(want-flat a n) (want-flat b n)") for body in bodies)
    sides = "(want-flat root n) (= d (dims root)) (= s (split root)) (= shape (take d s)) (= item (drop d s))"
    back = "(union root (access-reshape (access-reshape root {flat} (vec-of depth)) shape item))"
    return (
        *demand,
        Clause(
            f"{sides} (= n 0) (= rows (product shape)) (= depth (product item))",
            back.format(flat="(vec-of rows)"),
        ),
        Clause(
            f"{sides} (> n 0) (= shared (take shape n)) (= own (drop shape n)) (= g (product shared))"
            " (= rows (product own)) (= depth (product item))",
            back.format(flat="(vec-of g rows)"),
        ),
    )


_MATMUL = Example(
    "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))",
    {"x": "m k", "w": "n k"},
    parameters={"rows": 3, "columns": 2},
)
_SHARED = Example(
    "(compute dot-product (access-product (access (access-tensor x) 2) (access (access-tensor w) 2) 1))",
    {"x": "g m k", "w": "g n k"},
    parameters={"rows": 3, "columns": 2},
)


@rule("analyses", _MATMUL, _SHARED, relations=RELATIONS)
def flat_products_are_known() -> tuple[Clause, ...]:
    """dot(a x b) is flat when a = (M)(K), b = (N)(K), or (G, M)(K), (G, N)(K) with one shared axis.

    An analysis: it adds no e-node. Sound because it only reads types.
    """
    shape = "(<= n 1) (= sa (+ n 1)) (= sb (+ n 1)) (= (vec-length da) (+ n 2))"
    return (
        Clause(
            f"{DOT} {SIDES} {shape} (= depth (vec-get da (+ n 1))) (= width (vec-get db n)) (> depth 0) (> width 0)",
            "(flat root a b n depth width)",
        ),
    )


_WIDE = "(flat root a b n depth width)"


_ODD = (
    Example(_MATMUL.text, {"x": "m 4", "w": "5 4"}, parameters={"rows": 3, "columns": 2}),
    Example(_SHARED.text, {"x": "g m 4", "w": "g 5 4"}, parameters={"rows": 3, "columns": 2}),
)
_DEEP = (
    Example(_MATMUL.text, {"x": "m 4", "w": "8 4"}, parameters={"rows": 3, "columns": 2}),
    Example(_SHARED.text, {"x": "g m 7", "w": "g 2 7"}, parameters={"rows": 3, "columns": 2}),
)


@rule("products", *_ODD, relations=RELATIONS)
def width_is_padded_to_a_multiple() -> tuple[Clause, ...]:
    """b = slice(pad(b, N, 0, p), N, 0, size): the width of a product becomes a multiple of the array's columns.

    Sound because the slice takes back exactly what was there before the pad.
    """
    return (
        Clause(f"{_WIDE} (!= (% width $columns) 0)", "(want-pad b n (- $columns (% width $columns)))"),
        Clause(
            "(want-pad root axis p) (= d (dims root)) (= size (vec-get d axis))",
            '(union root (access-slice (access-pad root "zero-padding" axis 0 p) axis 0 size))',
        ),
    )


@rule("products", *_DEEP, relations=RELATIONS)
def depth_is_padded_to_a_multiple() -> tuple[Clause, ...]:
    """dot(p) = dot(pad(p, K, 0, q)) with zeros: the depth becomes a multiple of the array's rows.

    Sound because every pair added is 0 * 0, which the sum ignores; the axis lies behind the tuple axis, whose padding
    would make every product 0.
    """
    return (
        Clause(
            f"{_WIDE} (= 0 (% width $columns)) (!= (% depth $rows) 0) (= p (access-product a b n))",
            "(want-depth p (- $rows (% depth $rows)))",
        ),
        Clause(
            '(want-depth p q) (= root (compute "dot-product" p)) (= s (split p))',
            '(union root (compute "dot-product" (access-pad p "zero-padding" (+ s 1) 0 q)))',
        ),
    )


_SLICED = Example(
    "(access (access-tensor x) 1)",
    {"x": "6 5 k"},
    wants="(want-slices $root 0 2)",
    parameters={"rows": 3, "columns": 2},
)


@rule(
    "products",
    _SLICED,
    Example(_MATMUL.text, {"x": "m 6", "w": "8 6"}, parameters={"rows": 3, "columns": 2}),
    Example(_SHARED.text, {"x": "g m 9", "w": "g 2 9"}, parameters={"rows": 3, "columns": 2}),
    relations=RELATIONS,
)
def access_is_sliced_once() -> tuple[Clause, ...]:
    """a = concatenate(slice(a, axis, 0, h), slice(a, axis, h, size)), where a product wants a cut; h is near the
    middle.

    Cutting in two leaves ceil(log2 n) levels for n tiles and 2n - 1 slices. Sound because the two slices cover the axis
    without overlap. The width is cut before the depth, so that a tile is reached in one way.
    """
    return (
        Clause(
            f"{_WIDE} (= 0 (% width $columns)) (= 0 (% depth $rows)) (> width $columns)", "(want-slices b n $columns)"
        ),
        Clause(
            f"{_WIDE} (= width $columns) (= 0 (% depth $rows)) (> depth $rows)",
            "(want-slices a (+ n 1) $rows) (want-slices b (+ n 1) $rows)",
        ),
        Clause(
            "(want-slices root axis size) (= d (dims root)) (= whole (vec-get d axis)) (> whole size)"
            " (= half (* size (/ (+ 1 (/ whole size)) 2)))",
            "(union root (access-concatenate"
            " (access-slice root axis 0 half) (access-slice root axis half whole) axis))",
        ),
    )


@rule(
    "systolic-array",
    Example(_MATMUL.text, {"x": "m 3", "w": "2 3"}, parameters={"rows": 3, "columns": 2}),
    Example(_SHARED.text, {"x": "g m 3", "w": "g 2 3"}, parameters={"rows": 3, "columns": 2}),
    relations=RELATIONS,
)
def product_is_a_systolic_array_call() -> tuple[Clause, ...]:
    """dot(a x b) = systolic-array(a, transpose(b)) for a = (G.., M)(R), b = (G.., C)(R): one instruction for each of G.

    Sound because both sides are sum over k of a[g, m, k] * b[g, c, k]; the instruction takes its weights as (R, C).
    """
    fits = "(flat root a b n $rows $columns)"
    call = "(union root (systolic-array $rows $columns a (access (access-transpose b {order}) n)))"
    return (
        Clause(f"{fits} (= n 0)", call.format(order="(vec-of 1 0)")),
        Clause(f"{fits} (= n 1)", call.format(order="(vec-of 0 2 1)")),
    )
