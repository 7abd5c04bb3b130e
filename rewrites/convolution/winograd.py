"""Winograd's convolutions: windows that overlap, several outputs at once by fewer products.

Along one axis, m outputs of windows of r elements take the alpha = m + r - 1 elements of a wider window. F(m, r) of
Cook and Toom (`glenside.ir.cook_toom`) maps those and the r weights to alpha numbers each, multiplies these, and maps
the alpha products to m sums. Along several axes it is that once for each: what is multiplied is again a product, of
windows along the other axes.

F(m, r) is looked for where the bit m of the parameter `winograd` is set. A step's word is `winograd:AXIS:M:R`; AXIS is
the axis of the result, and of the shape of the left operand, of the product to which the first of these steps was
applied. The last axis is done first, so that every choice of m for each axis, or none, is one form.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.tables import table
from glenside.ir.cook_toom import cook_toom, spelled
from glenside.ir.types import FLOATS, Dims
from rewrites.convolution.forms import RELATIONS as FORMS
from rewrites.convolution.zeros_between import RELATIONS as WINDOWS
from rewrites.declare import rule
from rewrites.expressions import DOT, dot, reshaped
from rewrites.mapping.sliding_windows import INSIDE, WEIGHTS_FIRST, turned

FAMILY = "winograd"
LARGEST = 8  # of alpha: beyond, the matrices have large numbers
_AXES = 3
_WINOGRAD = f"""
(relation winograd-dtype (String))
{" ".join(f'(winograd-dtype "{dtype}")' for dtype in FLOATS)}
(relation winograd-open (Access String i64))
(relation overlapping (Access String i64 i64 i64))
(function largest-gap (Access) i64 :merge (max old new))
(relation want-winograd (Access String i64 i64 i64 i64 i64 i64))
"""
RELATIONS = f"{WINDOWS}\n{FORMS}{_WINOGRAD}"


@table(words=str, data=str, weights=str, output=str)
def winograd_step(words: str, axis: int, m: int, r: int) -> tuple[str, str, str, str]:
    """The words with one more step, and the matrices of F(m, r)."""
    found = cook_toom(m, r)
    step = f"winograd:{axis}:{m}:{r}"
    return f"{words} {step}".strip(), spelled(found.data), spelled(found.filter), spelled(found.output)


@table(back=Dims)
def sums_behind(axis: int, rank: int) -> tuple[Dims]:
    """The order of `rank` axes and one more, in which the first one comes right behind the axis."""
    return (Dims((*range(1, axis + 2), 0, *range(axis + 2, rank + 1))),)


def _convolution(windows: str, shared: int = 0) -> str:
    """The product of windows and the tensor w, whose shape has one axis more than are shared."""
    weights = f"(access (access-tensor w) {shared + 1})"
    return f"(compute dot-product (access-product {windows} {weights} {shared}))"


_LINE = "(access-windows (access (access-tensor x) 1) (shape $k) (shape 1))"  # (n ..)(k)
_CHANNELS = "(access-squeeze (access-windows (access (access-tensor x) 1) (shape 2 3) (shape 1 1)) 1)"  # (n ..)(2 3)
_IMAGE = "(access-windows (access (access-tensor x) 1) (shape 2 3) (shape 1 1))"  # (n .. ..)(2 3)
_APART = (
    "(access (access-reshape (access-windows (access-windows (access (access-tensor x) 1) (shape 5) (shape 2))"
    " (shape 1) (shape 2)) (access-shape (shape $n 4 3) (shape))) 2)"
)  # (n 4)(3): in steps of 2, elements 2 apart
_SPREAD = _LINE.replace("(access-tensor x)", "(access-dilate (access-tensor x) 1 1)")  # zeros between the elements
_DONE = '(= done (count-matches words "winograd:"))'
_PHASE = '(form $root "phase")'  # of another rule
_DEMANDED = (
    Example(_convolution(_LINE), {"x": "n 12", "w": "o k"}, parameters={"winograd": 1 << 2}),
    Example(_convolution(_CHANNELS), {"x": "n 2 7", "w": "o 2 3"}, _PHASE, {"winograd": 1 << 4}),
    Example(_convolution(_IMAGE), {"x": "n 5 6", "w": "o 2 3"}, parameters={"winograd": 1 << 2}),
    Example(_convolution(_IMAGE, 1), {"x": "n 7 6", "w": "n o 2 3"}, parameters={"winograd": 1 << 2 | 1 << 3}),
    Example(_convolution(_APART), {"x": "n 11", "w": "o 3"}, parameters={"winograd": 1 << 2}),
)
_GAPS = Example(_convolution(_SPREAD), {"x": "n 12", "w": "o k"}, parameters={"winograd": 1 << 2})


@rule("form-analyses", *_DEMANDED, _GAPS, relations=RELATIONS)
def windows_of_forms_overlap() -> tuple[Clause, ...]:
    """Along which axes of a form's product r elements of a window and its neighbours' overlap, one by one.

    An analysis: it adds no e-node. Sound because it only says where a rule may apply: not to integers, which have no
    fractions.
    """
    return (
        Clause('(form root words) (= 0 (count-matches words "winograd:"))', "(winograd-open root words 100)"),
        Clause(
            f"(winograd-open root words open) {_DONE} (< done {_AXES}) {DOT} (= f (dtype root)) (winograd-dtype f)"
            f" {INSIDE} (= t d) (< i open) (= da (dims a)) (= r (vec-get da j)) (>= r 2)",
            "(overlapping root words i j r) (set (largest-gap a) 1)",
        ),
        Clause(f"(overlapping root words i j r) {DOT} (gapped a y x gap begin k)", "(set (largest-gap a) gap)"),
    )


@rule(FAMILY, *WEIGHTS_FIRST, relations=RELATIONS)
def windows_of_forms_come_first() -> tuple[Clause, ...]:
    """dot(a x b) = transpose(dot(b x a)), where b is windows.

    Sound because multiplication of numbers is commutative and the transpose puts the axes back in order.
    """
    return (turned("(form root words)", "(form turned words)"),)


@rule(FAMILY, *_DEMANDED, relations=RELATIONS)
def winograd_is_applied() -> tuple[Clause, ...]:
    """dot(a x b) = output(dot(data(wider(a, m)) x filter(b))), with m outputs of alpha products instead of m r.

    The alpha numbers are a further shared axis, the first one, of a product of what is left of the items; `output` maps
    them to the m outputs of each wider window, which then stand side by side. Sound because F(m, r) is an identity of
    rationals for every m + r - 1 elements and r weights, and holds for the sum over the rest of the items since all of
    it is linear; what windows beyond the end give is cut off. Floats round elsewhere. Not while there are zeros between
    the elements, which other rules take out first, nor where half as many outputs would serve.
    """
    return (
        Clause(
            f"(overlapping root words i j r) {DOT} (= 1 (largest-gap a)) (= da (dims a)) (axis-number m) (>= m 2)"
            f" (!= 0 (& $winograd (<< 1 m))) (<= (+ m (- r 1)) {LARGEST}) (< m (* 2 (vec-get da i)))"
            f" (= rank (vec-length (dims root))) {_DONE} (= axis (- i done))",
            "(want-wider a i j m) (want-winograd root words i j m r axis rank)",
        ),
        Clause(
            "(want-winograd root words i j m r axis rank) (= back (sums-behind-back i rank))"
            " (= more (winograd-step-words words axis m r)) (= data (winograd-step-data words axis m r))"
            " (= weights (winograd-step-weights words axis m r)) (= output (winograd-step-output words axis m r))"
            f" {DOT} (= w (wider a i j m)) (= sa (split a)) (= sb (split b)) (= dw (dims w)) (= dr (dims root))"
            " (= place (+ sb (- j sa))) (= h (vec-get dr i)) (= alpha (+ m (- r 1)))"
            " (= items (vec-length dw)) (= item (- items sa))"
            " (= front-a (vec-append (vec-of j) (vec-remove (vec-range items) j)))"
            " (= front-b (vec-append (vec-of place) (vec-remove (vec-range (+ sb item)) place)))"
            " (= served (* m (vec-get dw i)))",
            "(let tiles (access (access-transpose (linear-map w j alpha data) front-a) (+ sa 1)))"
            " (let filters (access (access-transpose (linear-map b place alpha weights) front-b) (+ sb 1)))"
            f" (let products {dot('tiles', 'filters', '(+ n 1)')})"
            " (let sums (access-transpose (linear-map products 0 m output) back))"
            f" (union root (access-slice {reshaped('sums', '(vec-set dr i served)', 'rank')} i 0 h))"
            " (form products more) (winograd-open products more (+ i 1))",
        ),
    )


_MAP = '(linear-map (access (access-tensor x) {}) {} 3 "1 0 -2 4 1/3 3")'
_NUMBERS = '(access (numbers (shape 3 2) "1 0 -2 4 1/3 3" float32) 1)'
_BY_NUMBERS = f"(compute dot-product (access-product (access (access-tensor x) 2) {_NUMBERS} 0))"


@rule(
    "linear-maps",
    Example(_MAP.format(1, 1), {"x": "m 2 n"}),
    Example(_MAP.format(0, 2), {"x": "m n 2"}),
    Example(_MAP.format(2, 2), {"x": "m n 2"}),
    Example(_BY_NUMBERS, {"x": "m n 2"}),
)
def linear_map_is_a_product_of_numbers() -> tuple[Clause, ...]:
    """linear-map(a, last axis, M) = dot(a x M), and the other way round; another axis is the last after a transpose.

    For what multiplies by a constant matrix faster, or cheaper, than it adds. Sound because both sum, for each row of
    M, the elements along the axis times those of the row; only for dtypes in which a product is not a wider one.
    """
    last = "(= d (dims a)) (= end (- (vec-length d) 1)) (= s (split a))"
    found = "(= root (linear-map a axis rows m))"
    mapped = "(linear-map (access {} end) end rows m)"
    return (
        Clause(
            f"{found} {last} (< axis end) (= to-end (vec-push (vec-remove (vec-range (+ end 1)) axis) axis))"
            " (= back (insert (vec-range end) end axis))",
            f"(union root (access (access-transpose {mapped.format('(access-transpose a to-end)')} back) s))",
        ),
        Clause(f"{found} {last} (= axis end) (!= s end)", f"(union root (access {mapped.format('a')} s))"),
        Clause(
            f"{found} {last} (= axis end) (= s end) (= f (dtype a)) (= f (widened f)) (= count (vec-get d end))",
            "(let matrix (access (numbers (vec-of rows count) m f) 1))"
            f" (union root (access {dot('a', 'matrix', 0)} s))",
        ),
        Clause(
            f"{DOT} (= n 0) (= b (access c 1)) (= c (numbers v m f)) (= 2 (vec-length v)) (= rows (vec-get v 0))"
            " (= s (split a)) (= f (widened f))",
            "(union root (access (linear-map a s rows m) (+ s 1)))",
        ),
    )
