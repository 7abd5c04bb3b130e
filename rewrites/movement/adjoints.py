"""The algebra of overlap-add, dilate and flip: among each other, with windows, and past slices, pads and sums.

Flips and dilations sink towards the tensors, slices and pads of what overlap-add leaves alone go inside it.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause, rewrite
from glenside.egraph.rule import Example
from glenside.egraph.tables import table
from glenside.ir.types import Dims
from rewrites.declare import rule
from rewrites.expressions import DOT, dot, reshaped

FAMILY = "adjoints"
_X = "(access (access-tensor x) 1)"
_ADDED = "(access-overlap-add (access (access-tensor x) {0}) {1} {2})"


@rule(
    FAMILY,
    Example(f"(access-flip (access-flip {_X} 1) 1)", {"x": "m n"}),
    Example(f"(access-flip {_X} 1)", {"x": "m 1"}),
)
def flips_cancel() -> tuple[Clause, ...]:
    """flip(flip(a, x), x) = a, and the flip of one element is itself.

    Sound because the order that is reversed twice is as it was.
    """
    return (
        Clause("(= root (access-flip (access-flip a x) x))", "(union root a)"),
        Clause("(= root (access-flip a x)) (= d (dims a)) (= 1 (vec-get d x))", "(union root a)"),
    )


def _on(form: str, *axes: int) -> tuple[Example, ...]:
    return tuple(Example(f"(access-flip {form} {axis})", {"x": "m 5 n", "y": "m 5 n"}) for axis in axes)


@rule(
    FAMILY,
    *_on(f"(access-pad {_X} min-padding 1 2 1)", 1, 2),
    *_on(f"(access-slice {_X} 1 1 3)", 1, 2),
    *_on(f"(access-concatenate {_X} (access (access-tensor y) 1) 1)", 1, 2),
    *_on(f"(access-dilate {_X} 1 2)", 1, 2),
)
def flip_sinks() -> tuple[Clause, ...]:
    """flip(form(a, x), x) = form'(flip(a, x), x), with before and after exchanged; on another axis form is as it was.

    Sound because reversing an axis reverses its parts and their order; of dilate, whose first and last elements are a's
    own, only the elements. Reversing another axis does not meet what is done to this one.
    """
    flipped = "(access-flip a x)"
    size = "(= d (dims a)) (= n (vec-get d x))"
    pad, cut = "(access-pad a kind x before after)", "(access-slice a x lo hi)"
    joined, spread = "(access-concatenate a b x)", "(access-dilate a x n)"
    return (
        rewrite(f"(access-flip {pad} x)", f"(access-pad {flipped} kind x after before)"),
        rewrite(f"(access-flip {cut} x)", f"(access-slice {flipped} x (- n hi) (- n lo))", size),
        rewrite(f"(access-flip {joined} x)", f"(access-concatenate (access-flip b x) {flipped} x)"),
        rewrite(f"(access-flip {spread} x)", f"(access-dilate {flipped} x n)"),
        *(
            rewrite(
                f"(access-flip {form} y)",
                form.replace(" a ", " (access-flip a y) ").replace(" b ", " (access-flip b y) "),
                "(!= x y)",
            )
            for form in (pad, cut, joined, spread)
        ),
    )


@rule(
    FAMILY,
    Example(f"(access-flip (access-flip (access-windows {_X} (shape 2 3) (shape 3 2)) 1) 3)", {"x": "m 5 6"}),
    Example(f"(access-flip (access-flip (access-windows {_X} (shape 2 3) (shape 3 2)) 3) 1)", {"x": "m 5 6"}),
)
def flipped_windows_are_windows_of_the_flipped() -> tuple[Clause, ...]:
    """flip(flip(windows(a), counts), elements) = windows(flip(a)), where the windows reach the end of a.

    Sound because the last window then begins the flipped axis. Where they leave a rest, those of the flipped axis begin
    elsewhere.
    """
    fits = (
        "(= w (access-windows a k t)) (= s (split a)) (= e (- i s)) (>= e 0) (< e (vec-length k))"
        " (= j (+ i (vec-length k))) (= d (dims a)) (= 0 (% (- (vec-get d i) (vec-get k e)) (vec-get t e)))"
    )
    made = "(access-windows (access-flip a i) k t)"
    return (
        rewrite("(access-flip (access-flip w i) j)", made, fits),
        rewrite("(access-flip (access-flip w j) i)", made, fits),
    )


@rule(
    FAMILY,
    Example(
        "(compute dot-product (access-product (access-flip (access (access-tensor x) 2) 3)"
        " (access-flip (access (access-tensor w) 2) 3) 1))",
        {"x": "2 m 3 k", "w": "2 n 3 k"},
    ),
)
def flips_of_both_items_cancel() -> tuple[Clause, ...]:
    """dot(flip(a, x) x flip(b, x)) = dot(a x b), along an axis of their items.

    Sound because the same pairs are multiplied, and a sum does not depend on their order.
    """
    return (
        Clause(
            '(= root (compute "dot-product" (access-product (access-flip a x) (access-flip b y) n))) (= sa (split a))'
            " (= sb (split b)) (>= x sa) (= (- x sa) (- y sb))",
            f"(union root {dot('a', 'b', 'n')})",
        ),
    )


@rule(
    FAMILY,
    Example(f"(access-dilate (access-dilate {_X} 1 1) 1 2)", {"x": "m 4"}),
    Example(f"(access-dilate {_X} 1 0)", {"x": "m 4"}),
    Example(f"(access-dilate {_X} 1 3)", {"x": "m 1"}),
)
def dilations_compose() -> tuple[Clause, ...]:
    """dilate(dilate(a, m), n) = dilate(a, (m + 1)(n + 1) - 1); dilate(a, 0) = a, and so with at most one element.

    Sound because neighbours that were m + 1 places apart are n + 1 times as far apart.
    """
    return (
        rewrite(
            "(access-dilate (access-dilate a x m) x n)",
            "(access-dilate a x (- (* (+ m 1) (+ n 1)) 1))",
            "(= d (dims a)) (> (vec-get d x) 1)",
        ),
        Clause("(= root (access-dilate a x 0))", "(union root a)"),
        Clause("(= root (access-dilate a x n)) (= d (dims a)) (<= (vec-get d x) 1)", "(union root a)"),
    )


def _spread(form: str, *axes: int) -> tuple[Example, ...]:
    return tuple(Example(f"(access-dilate {form} {axis} 2)", {"x": "m 5 n", "y": "m 3 n"}) for axis in axes)


@rule(
    FAMILY,
    *_spread(f"(access-pad {_X} zero-padding 1 2 1)", 1, 2),
    *_spread(f"(access-slice {_X} 1 1 3)", 1, 2),
    *_spread(f"(access-concatenate {_X} (access (access-tensor y) 1) 1)", 2),
)
def dilation_sinks() -> tuple[Clause, ...]:
    """dilate(form(a, x), y) = form(dilate(a, y), x); along x itself what form says of places is n + 1 times as much.

    Sound because an element at place i goes to place i (n + 1). A pad must be of zeros, as what is put between is, and
    there must be an element: of none, nothing is between. Of a slice of one element nothing new would be said.
    """
    cut, joined = "(access-slice a x lo hi)", "(access-concatenate a b x)"
    step = "(+ n 1)"
    zeros = '(access-pad {0} "zero-padding" {1} {2} {3})'
    return (
        rewrite(
            f"(access-dilate {zeros.format('a', 'x', 'before', 'after')} y n)",
            zeros.format("(access-dilate a y n)", "x", "before", "after"),
            "(!= x y)",
        ),
        *(
            rewrite(
                f"(access-dilate {form} y n)",
                form.replace(" a ", " (access-dilate a y n) ").replace(" b ", " (access-dilate b y n) "),
                "(!= x y)",
            )
            for form in (cut, joined)
        ),
        rewrite(
            f"(access-dilate {zeros.format('a', 'x', 'before', 'after')} x n)",
            zeros.format("(access-dilate a x n)", "x", f"(* before {step})", f"(* after {step})"),
            "(= d (dims a)) (> (vec-get d x) 0)",
        ),
        rewrite(
            f"(access-dilate {cut} x n)",
            f"(access-slice (access-dilate a x n) x (* lo {step}) (+ 1 (* (- hi 1) {step})))",
            "(< (+ lo 1) hi)",
        ),
    )


@rule(
    FAMILY,
    Example(_ADDED.format(2, "(shape 12)", "(shape 3)"), {"x": "m 4 3"}),
    Example(_ADDED.format(3, "(shape 4 5)", "(shape 1 1)"), {"x": "m 4 5 1 1"}),
)
def windows_side_by_side_are_a_reshape() -> tuple[Clause, ...]:
    """overlap-add(a) = reshape(a), where windows along one axis follow one another, or each is one element.

    Sound because no two windows meet, and row-major order has the elements of one after those of the other.
    """
    sizes = "(= d (dims a)) (= s (split a)) (= axes (vec-length out))"
    left = f"(= root (access-overlap-add a out t)) {sizes}"
    lead = "(= lead (- s axes)) (= dr (dims root))"
    return (
        Clause(
            f"{left} (= 1 axes) (= k (vec-get d s)) (= k (vec-get t 0)) (= (vec-get out 0) (* k (vec-get d (- s 1))))"
            f" {lead}",
            f"(union root {reshaped('a', 'dr', 'lead')})",
        ),
        Clause(
            f"{left} (> axes 1) {lead} (= size (product d)) (= size (product dr)) (> size 0) (= item (drop d s))"
            " (= 1 (product item))",
            f"(union root {reshaped('a', 'dr', 'lead')})",
        ),
    )


@table(order=Dims)
def one_after_another(rank: int, p: Dims) -> tuple[Dims] | None:
    """Windows (S c k c' k') whose k' were added up, then moved as p says, then their k: the order (S c' c k' k)."""
    lead = rank - 3  # of (S c k out')
    if lead < 0 or tuple(p) != (*range(lead), lead + 2, lead, lead + 1):
        return None
    return (Dims((*range(lead), lead + 2, lead, lead + 3, lead + 1)),)


@rule(
    FAMILY,
    Example(
        "(access-overlap-add (access (access-transpose (access-overlap-add (access (access-tensor x) 4) (shape 9)"
        " (shape 2)) (list 0 3 1 2)) 3) (shape 5) (shape 1))",
        {"x": "m 4 2 4 3"},
    ),
)
def sums_along_two_axes_are_one() -> tuple[Clause, ...]:
    """overlap-add(overlap-add(a, axis 2), axis 1) = overlap-add(a, both).

    Sound because each element of a goes to one place along each axis, whichever comes first.
    """
    return (
        Clause(
            "(= root (access-overlap-add moved out t)) (= moved (access (access-transpose inner p) s))"
            " (= inner (access-overlap-add a out2 t2)) (= 1 (vec-length out)) (= 1 (vec-length out2))"
            " (= di (dims inner)) (= rank (vec-length di)) (= order (one-after-another-order rank p))"
            " (= s2 (split root))",
            "(union root (access (access-overlap-add (access (access-transpose a order) (- rank 1))"
            " (vec-append out2 out) (vec-append t2 t)) s2))",
        ),
    )


_SUMS = _ADDED.format(2, "(shape 9)", "(shape 2)")
_MORE = _SUMS.replace("tensor x", "tensor y")
_SHAPES = {"x": "5 4 3", "y": "5 4 3"}


@rule(
    FAMILY,
    Example(f"(access-slice {_SUMS} 0 1 3)", _SHAPES),
    Example(f"(access-pad {_SUMS} zero-padding 0 1 3)", _SHAPES),
    Example(f"(access-flip {_SUMS} 0)", _SHAPES),
    Example(f"(access-dilate {_SUMS} 0 2)", _SHAPES),
    Example(f"(access-concatenate {_SUMS} {_MORE} 0)", _SHAPES),
)
def what_is_not_added_up_goes_inside() -> tuple[Clause, ...]:
    """form(overlap-add(a), x) = overlap-add(form(a, x)), on an axis x along which nothing is added up.

    Sound because such an axis only says which windows: for each of its places the same is done. Windows of zeros add up
    to zeros.
    """
    forms = (
        "access-slice {0} x lo hi",
        'access-pad {0} "zero-padding" x before after',
        "access-flip {0} x",
        "access-dilate {0} x n",
    )
    lead = "(= sums (access-overlap-add a out t)) (= s (split a)) (< x (- s (vec-length out)))"
    return (
        *(
            Clause(
                f"(= root ({form.format('sums')})) {lead}",
                f"(union root (access-overlap-add ({form.format('a')}) out t))",
            )
            for form in forms
        ),
        Clause(
            f"(= root (access-concatenate sums (access-overlap-add b out t) x)) {lead}",
            "(union root (access-overlap-add (access-concatenate a b x) out t))",
        ),
    )


@rule(
    FAMILY,
    Example(
        "(access-overlap-add (compute elementwise-add (access-pair (access (access-tensor x) 2)"
        " (access (access-tensor y) 2))) (shape 9) (shape 2))",
        _SHAPES,
    ),
)
def overlap_add_is_linear() -> tuple[Clause, ...]:
    """overlap-add(a + b) = overlap-add(a) + overlap-add(b).

    Sound because each place is a sum, and sums may be taken in any order.
    """
    sums = "(access-overlap-add {0} out t)"
    return (
        Clause(
            '(= root (access-overlap-add (compute "elementwise-add" (access-product a b n)) out t)) (= n (split a))'
            " (= n (split b))",
            f'(union root (compute "elementwise-add" (access-product {sums.format("a")} {sums.format("b")}'
            " (- n (vec-length out)))))",
        ),
    )


@rule(
    FAMILY,
    Example(
        "(compute dot-product (access-product (access (access-windows (access (access-tensor x) 1) (shape 3 2)"
        " (shape 2 1)) 1) (access (access-tensor w) 1) 0))",
        {"x": "m 6 4", "w": "n 2 3 3 2"},
    ),
)
def overlap_add_is_the_adjoint_of_windows() -> tuple[Clause, ...]:
    """dot(windows(x) x w) = dot(x x overlap-add(w)), where each item is all windows of an item.

    Sound because element y of x meets each w that stands where a window has it; their sum is element y of overlap-add.
    Where products are of a wider dtype, that sum could wrap before, and nothing is said.
    """
    return (
        Clause(
            f"{DOT} (= a (access (access-windows x k t) s)) (= s (split x)) (= dt (dtype b)) (= wide (widened dt))"
            " (= wide dt) (= dx (dims x)) (= out (drop dx s)) (= sb (split b))",
            f"(union root {dot('x', '(access-overlap-add (access b (+ sb (vec-length k))) out t)', 'n')})",
        ),
    )
