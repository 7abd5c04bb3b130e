"""Products onto a unit that reads its operands and stores its result through affine addresses.

The unit takes an operand only in its own layout: what it wants innermost in memory must lie there. Where an operand
does not, a copy of it in that layout is proposed, and equality does the rest: rearrangements rise from it (`layout`),
meet others, and are stored by the product before, or read by the one behind, for nothing.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from rewrites.declare import rule
from rewrites.expressions import rearranged, under
from rewrites.layout import addressing, rearranging
from rewrites.layout.layout import LIFTED

FAMILY, ANALYSES = "product-unit", "product-unit-analyses"
TABLES = (addressing, rearranging)
_SEEN = "(relation seen (Access Access Ints Ints))"  # an operand of a product, what it is a rearrangement of
_HELD = "(relation held (Access Ints i64 i64))"  # what lies in memory: dims, the innermost axis, 1 for windows of it
_WANT_LAYOUT = "(relation want-layout (Access))"
_READ = "(relation read-product (Access Access Access i64 Access Ints Ints Access Ints Ints Ints i64 i64))"
_STORED = "(relation stored-elsewhere (Access Access Ints Ints Ints Ints))"
_IN_MEMORY = "(relation in-memory (Access))"
RELATIONS = "\n".join([_SEEN, _IN_MEMORY, _HELD, _WANT_LAYOUT, _READ, _STORED])
PARAMETERS = {"layout": 1, "loads": 2, "stores": 2}

_NHWC = "(access-rearrange (access-tensor x) (shape {0}) (list {1}) (access-shape (shape {2}) (shape {3})))"
_ROWS = _NHWC.format("$m $n 6", "2 1 0", "6", "$n $m")
_DOT = "(compute dot-product (access-product {0} {1} {2}))"
_W = "(access (access-tensor w) {0})"
_SPLIT = "(access-rearrange (access-tensor x) (shape 60) (list 0) (access-shape (shape 4 3) (shape 5)))"
_PLAIN = Example(_DOT.format(_SPLIT, _W.format(1), 0), {"x": "4 3 5", "w": "o 5"}, "", PARAMETERS)
_MOVED = Example(_DOT.format(_ROWS, _W.format(1), 0), {"x": "m n 6", "w": "o n m"}, "", {**PARAMETERS, "layout": 0})
_FIXED = Example(_MOVED.text, _MOVED.shapes, "(constant $w)", {**PARAMETERS, "layout": 0})
_WINDOWS = "(access-windows (access (access-tensor x) 1) (shape {0}) (shape 1 1 1))"
_CONV = Example(
    _DOT.format(_WINDOWS.format("2 2 $k"), _W.format(1), 0),
    {"x": "m 5 7 k", "w": "o 2 2 k"},
    "(constant $w)",
    PARAMETERS,
)
_FIRST = Example(
    _DOT.format(_WINDOWS.format("$k 2 2"), _W.format(1), 0), {"x": "m k 5 7", "w": "o k 2 2"}, "", PARAMETERS
)
_PADDED = "(access-windows (access (access-pad (access-tensor x) zero-padding 2 1 0) 1) (shape $k 2 2) (shape 1 1 1))"
_PADDED_FIRST = Example(_DOT.format(_PADDED, _W.format(1), 0), _FIRST.shapes, "", PARAMETERS)
_BATCHED = Example(_DOT.format(_SPLIT, _W.format(2), 1), {"x": "4 3 5", "w": "4 o 5"}, "", PARAMETERS)
_STILL = "(vec-of 0)"
_PRODUCT = '(= root (compute "dot-product" (access-product a b n)))'
_KINDS = (
    "(compute f u)",
    "(access-tensor name)",
    "(access-concatenate u v n)",
    "(access-pad u k n lo hi)",
    "(access-gather u v n)",
    "(cast u t)",
    "(product-unit n u ap ao an v bp bo bn sp so)",
)


@rule(ANALYSES, _PLAIN, _MOVED, _CONV, relations=RELATIONS)
def what_operands_hold_is_known() -> tuple[Clause, ...]:
    """An operand of a product is seen as itself, and as a rearrangement of what lies in memory.

    An analysis: it adds no e-node. Sound because it only reads what is there.
    """
    sides = ("a", "b")
    return (
        *(
            Clause(
                f"{_PRODUCT} (= c {side}) (= d (dims c)) (= size (product d)) (> size 0)",
                f"(seen c c (vec-of size) {_STILL})",
            )
            for side in sides
        ),
        *(Clause(f"{_PRODUCT} (= {side} (access-rearrange x p o s i))", f"(seen {side} x p o)") for side in sides),
        *(
            Clause(
                f"{_PRODUCT} (= {side} (access-rearrange linear p o s i)) {LIFTED.format('x')}"
                " (= x (access-windows y k t))",
                f"(seen {side} x p o)",
            )
            for side in sides
        ),
    )


@rule(ANALYSES, _PLAIN, _CONV, _MOVED, relations=RELATIONS)
def what_lies_innermost_is_known() -> tuple[Clause, ...]:
    """What is computed or declared lies in memory in row-major order; windows lie there as what they are windows of.

    An analysis: it adds no e-node. Sound because it only reads what is there.
    """
    seen, last = "(seen c x p o)", "(= d (dims x)) (> (vec-length d) 0)"
    return (
        Clause(
            f"{seen} (= x (access-windows y k t)) (= dy (dims y)) (= axis (innermost-axis k dy)) (= d (dims x))",
            "(held x d axis 1)",
        ),
        *(Clause(f"(= root {kind})", "(in-memory root)") for kind in _KINDS),
        Clause("(= root (access-rearrange x p (vec-of 0) s i)) (in-memory x)", "(in-memory root)"),
        Clause(f"{seen} (in-memory x) {last}", "(held x d (- (vec-length d) 1) 0)"),
        # A copy in the order of the product itself of what lies in memory in another; windows are a view, not a copy.
        Clause(
            f"(seen x x p o) (= x (access-rearrange y q r s i)) (in-memory y) {last}",
            "(held x d (- (vec-length d) 1) 0)",
        ),
    )


_RANK = "(= da (dims a)) (= sa (split a)) (= db (dims b)) (= sb (split b))"
_KEY = "p o da sa q r db sb n d axis windowed $layout $loads"
_RESULTS = "a-parts a-order a-split b-parts b-order b-split shared stored parts order".split()
_FIXED_RESULTS = ("fixed-parts", "fixed-order")


@rule(FAMILY, _PLAIN, _MOVED, _FIXED, _CONV, _BATCHED, relations=RELATIONS)
def product_runs_on_the_unit() -> tuple[Clause, ...]:
    """dot(a x b) = rearrange(product-unit(x, y)), where a and b are rearrangements of x and y.

    Where the unit takes x as it lies in memory. Rows and items are read in the order in which they lie there; a
    constant b is put into that order beforehand. Sound because a sum does not depend on the order of its terms, and
    because the rows of the result are put back into that of the product.
    """
    # The few candidates first: joining them with the tables of shapes at once costs far more.
    found = "(read-product root a b n x p o y q r d axis windowed)"
    facts = tuple(
        f"{found} ({kind} b) {_RANK}"
        + "".join(f" (= {name} (unit-{name} {_KEY} {fixed}))" for name in _RESULTS)
        + " (= dr (dims root)) (= sr (split root)) (= rs (take dr sr))"
        for fixed, kind in enumerate(("varies", "constant"))
    )
    made = "(product-unit shared x a-parts a-order a-split {0} {1} {2} b-split stored (vec-range (vec-length stored)))"

    def root(unit: str) -> str:
        return f"(union root {rearranged(unit, 'parts', 'order', 'rs', '(vec-empty)')})"

    fixed = rearranged("y", "fixed-parts", "fixed-order", "(vec-empty)", "read")
    return (
        Clause(f"{_PRODUCT} (seen a x p o) (held x d axis windowed) (seen b y q r)", found),
        Clause(
            facts[1]
            + "".join(f" (= {name} (unit-{name} {_KEY} 1))" for name in _FIXED_RESULTS)
            + " (= read (permute b-parts b-order))",
            root(made.format(fixed, "read", "(vec-range (vec-length read))")),
        ),
        Clause(facts[0], root(made.format("y", "b-parts", "b-order"))),
    )


_UNIT = (
    "(product-unit 0 (access-tensor x) (shape 3 $k) (list 0 1) 1 (access-tensor w) (shape 6 $k) (list 0 1) 1"
    " (shape 3 6) (list 0 1))"
)
_FLAT_UNIT = f"(access-rearrange {_UNIT} (shape 18) (list 0) (access-shape (shape) (shape 18)))"
_SHUFFLED = f"(access-rearrange {_FLAT_UNIT} (shape 3 2 3) (list 2 0 1) (access-shape (shape) (shape 3 3 2)))"


@rule(
    FAMILY,
    Example(_SHUFFLED, {"x": "3 k", "w": "6 k"}, "(constant $w)", PARAMETERS),
    Example(
        _SHUFFLED.replace("2 0 1", "1 0 2").replace("shape 3 3 2", "shape 2 3 3"),
        {"x": "3 k", "w": "6 k"},
        "",
        PARAMETERS,
    ),
    relations=RELATIONS,
)
def unit_stores_a_rearrangement() -> tuple[Clause, ...]:
    """rearrange(product-unit(x, y)) = product-unit(x, y with its rows in another order), stored elsewhere.

    A depth_to_space behind a convolution is where the unit writes. Sound because a row of y gives one row of results,
    wherever it stands, and because storing is a rearrangement itself.
    """
    found = "(stored-elsewhere root u p o s i)"
    facts = (
        f"{found} (= u (product-unit n x ap ao an y bp bo bn sp so)) (= read-a (permute ap ao))"
        " (= from-a (take read-a an)) (= read-b (permute bp bo)) (= size (product sp))"
    )
    key = "from-a read-b bn n sp so p o $stores"
    names = (
        ("q", "b-parts"),
        ("r", "b-order"),
        ("v", "moved-parts"),
        ("w", "moved-order"),
        ("t", "parts"),
        ("j", "order"),
    )
    read = (
        "".join(f" (= {name} (storing-{result} {key}))" for name, result in names)
        + f" (= rows-end (storing-split {key}))"
    )
    moved = rearranged("y", "v", "w", "(vec-empty)", "q")
    return (
        Clause(
            "(= root (access-rearrange linear p o s i)) (!= o (vec-of 0))"
            f" {LIFTED.format('u')} (= u (product-unit n x ap ao an y bp bo bn sp so))",
            found,
        ),
        Clause(
            f"{facts} {read} (constant y) (= bo (vec-range (vec-length bo)))",
            f"(let stored (product-unit n x ap ao an {moved} q r rows-end t j))"
            f" (union root {under('stored', 'size', 's', 'i')})",
        ),
        Clause(
            f"{facts} {read} (= w (vec-of 0))",
            f"(let stored (product-unit n x ap ao an y bp bo bn t j)) (union root {under('stored', 'size', 's', 'i')})",
        ),
    )


@rule(
    FAMILY,
    Example(
        _NHWC.format("$m $n", "1 0", "", "$n $m").replace("(access-tensor x)", "(compute relu (access-tensor x))"),
        {"x": "m n"},
    ),
    Example(
        _NHWC.format("$m $n", "1 0", "", "$n $m").replace(
            "(access-tensor x)", "(compute subtract (access-cartesian-product (access-tensor x) (access-tensor y)))"
        ),
        {"x": "m n", "y": "m n"},
    ),
)
def rearrangement_sinks_to_the_unit() -> tuple[Clause, ...]:
    """rearrange(f(b)) = f(rearrange(b)), for pointwise f and for an f of two whole tensors.

    So what a unit may store for nothing reaches it past a bias and an activation. Sound because each element is
    computed by itself, and its operands are moved alike.
    """
    facts = "(varies root) (= root (access-rearrange c p o s i)) (!= o (vec-of 0)) (= size (product p))"

    def moved(x: str) -> str:
        return rearranged(x, "p", "o", "(vec-empty)", "(vec-of size)")

    return (
        Clause(
            f'{facts} (= c (compute f b)) (category f "pointwise")',
            f"(let computed (compute f {moved('b')})) (union root {under('computed', 'size', 's', 'i')})",
        ),
        Clause(
            f'{facts} (= c (compute f (access-product b e 0))) (category f "fold") (= 0 (split b)) (= 0 (split e))',
            f"(let computed (compute f (access-product {moved('b')} {moved('e')} 0)))"
            f" (union root {under('computed', 'size', 's', 'i')})",
        ),
    )


@rule(ANALYSES, _FIRST, _PADDED_FIRST, relations=RELATIONS)
def layouts_are_wanted() -> tuple[Clause, ...]:
    """What the windows of a product slide over is wanted in the unit's layout, and so is what was padded to it.

    Only for windows of the program itself: what layouts make of them has its layout already. An analysis: it adds no
    e-node. Sound because a demand only says where a rule applies.
    """
    return (
        Clause(
            "(seen c x p o) (held x d axis 1) (source x) (= x (access-windows y k t)) (source y) (= dy (dims y))"
            " (= axis (- (vec-length dy) 1))",
            "(want-layout y)",
        ),
        Clause("(want-layout y) (= y (access x n))", "(want-layout x)"),
        Clause("(want-layout y) (= y (access-pad x k n lo hi))", "(want-layout x)"),
    )


@rule(
    FAMILY,
    _FIRST,
    _PADDED_FIRST,
    Example(
        _FIRST.text.replace("$k", "8"),
        {"x": "m 8 5 7", "w": "o 8 2 2"},
        "(want-layout $x)",
        {**PARAMETERS, "layout": 4},
    ),
    relations=RELATIONS,
)
def a_layout_is_proposed() -> tuple[Clause, ...]:
    """x = rearrange(rearrange(x; channels innermost); back).

    Sound because the second undoes the first.
    """
    key = "d $layout"
    return (
        Clause(
            f"(want-layout root) (= 0 (split root)) (= d (dims root)) (= p (in-layout-parts {key}))"
            f" (= o (in-layout-order {key})) (= sizes (in-layout-sizes {key})) (= q (undone-parts p o))"
            " (= r (undone-order p o))",
            f"(let proposed {rearranged('root', 'p', 'o', '(vec-empty)', 'sizes')})"
            f" (union root {rearranged('proposed', 'q', 'r', '(vec-empty)', 'd')})",
        ),
    )
