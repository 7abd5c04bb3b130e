"""What is constant is folded: scales into weights, shifts into one another.

A batch norm behind a product is a scale and a shift of each of its channels. The scale goes into the weights, which are
then computed beforehand, and the shift joins the bias. Operands are seen as `layout` leaves them, along one axis.
"""

from __future__ import annotations

import math

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.tables import table
from glenside.ir.rearrangement import refined, runs_of
from glenside.ir.types import FLOATS, Dims
from rewrites.declare import rule
from rewrites.expressions import DOT, whole
from rewrites.layout import layout

FAMILY = "folding"
TABLES = (layout,)
TOGETHER = ("constant-analyses", "rearranging", FAMILY)
"""The families that folding needs."""


@table(narrow=Dims, wide=Dims, size=int)
def weight_scale(few: Dims, many: Dims, dd: Dims, sa: int, n: int, db: Dims, sb: int) -> tuple[Dims, Dims, int] | None:
    """A scale of the results of a product, repeated from `few` to `many`, as one of the weights, dims db.

    None where it differs between rows of the other operand.
    """
    sizes = refined(many, dd) if 0 not in (*many, *dd, *db) else None
    of_scale, of_product = (None, None) if sizes is None else (runs_of(many, sizes), runs_of(dd, sizes))
    if sizes is None or of_scale is None or of_product is None:
        return None
    kept = [few[axis] == many[axis] for axis, run in enumerate(of_scale) for _ in run]
    if any(kept[part] for run in of_product[n:sa] for part in run):
        return None
    own = [part for run in (*of_product[:n], *of_product[sa:]) for part in run]
    narrow = (*(sizes[part] if kept[part] else 1 for part in own), *(1 for _ in db[sb:]))
    return Dims(narrow), Dims((*(sizes[part] for part in own), *db[sb:])), math.prod(narrow)


_X, _W, _S = "(access (access-tensor x) 2)", "(access (access-tensor w) 1)", "(access-tensor s)"
_FLAT = "(access-rearrange {0} (shape {1}) (list 0) (access-shape (shape) (shape {1})))"
_RESULT = _FLAT.format(f"(compute dot-product (access-cartesian-product {_X} {_W}))", 30)
_REPEATED = _FLAT.format("(access-broadcast (access-tensor s) (access-shape (shape) (shape 3 2 5)))", 30)
_PAIR = "(compute {0} (access-cartesian-product {1} {2}))"
_SHAPES = {"x": "3 2 k", "w": "5 k", "s": "1 1 5"}
_CONSTANT = "(constant $w) (constant $s)"
_OF_BROADCAST = "(= {0} (access-rearrange {1} {0}-one (vec-of 0) {0}-no {0}-all)) (= {1} (access-broadcast {2} bs bi))"


@rule(
    FAMILY,
    Example(_PAIR.format("elementwise-mul", _RESULT, _REPEATED), _SHAPES, _CONSTANT),
    Example(_PAIR.format("elementwise-mul", _REPEATED, _RESULT), _SHAPES, _CONSTANT),
    Example(_PAIR.format("elementwise-mul", _RESULT, "(full (shape 30) 3 float32)"), _SHAPES, "(constant $w)"),
    Example(_PAIR.format("elementwise-mul", "(full (shape 30) 3 float32)", _RESULT), _SHAPES, "(constant $w)"),
    relations="(relation flat-layer (Access Access Access Access i64))\n"
    "(relation scaled-product (Access Access Access Access Access Access i64))\n"
    "(relation filled-product (Access Access Access Access Access i64))",
)
def scale_goes_into_weights() -> tuple[Clause, ...]:
    """dot(a x b) * s = dot(a x (b * s)), for constants b and s, where s does not differ between rows of a.

    Sound because a factor of all terms of a sum is one of the sum; each row of b gives the results that its scale is
    of. Only where b is constant: then the product is made beforehand, and nothing is multiplied at run time.
    """
    found = "(scaled-product root z wide layer a b n)"
    pair = '(varies root) (= root (compute "elementwise-mul" (access-product {0} 0))) (constant m) (!= linear m)'
    layer = "(flat-layer linear layer a b n)"
    lifted = f"{DOT.replace('root', 'layer')} (constant b) (= linear (access-rearrange layer one (vec-of 0) no all))"
    key = "few many d sa n db sb"
    read = " (= narrow (weight-scale-narrow {0})) (= repeated (weight-scale-wide {0})) (= size (weight-scale-size {0}))"
    factor = whole(f"(access-broadcast {whole('z', 'size', 'narrow')} (vec-empty) repeated)", "weights", "db")
    scaled = f'(access (compute "elementwise-mul" (access-product (access b 0) {factor} 0)) sb)'
    filled = '(access (compute "elementwise-mul" (access-product (access b 0) (full db v t) 0)) sb)'
    # The few candidates first: joining all pairs with all products at once costs far more.
    return (
        Clause(lifted, layer),
        *(
            Clause(f"{pair.format(operands)} (= m (full fd v t)) {layer}", "(filled-product root m layer a b n)")
            for operands in ("linear m", "m linear")
        ),
        Clause(
            "(filled-product root m layer a b n) (= m (full fd v t)) (= db (dims b)) (= sb (split b))"
            " (= t (dtype layer)) (= t (dtype b)) (= d (dims layer)) (= results (product d)) (= dr (dims root))",
            f'(let scaled-dots (compute "dot-product" (access-product a {filled} n)))'
            f" (union root {whole('scaled-dots', 'results', 'dr')})",
        ),
        *(
            Clause(f"{pair.format(operands)} {_OF_BROADCAST.format('m', 'wide', 'z')} {layer}", found)
            for operands in ("linear m", "m linear")
        ),
        Clause(
            f"{found} (= few (dims z)) (= many (dims wide)) (= d (dims layer)) (= sa (split a)) (= db (dims b))"
            f" (= sb (split b)){read.format(key)} (= weights (product db)) (= results (product d)) (= dr (dims root))",
            f'(let scaled-dots (compute "dot-product" (access-product a {scaled} n)))'
            f" (union root {whole('scaled-dots', 'results', 'dr')})",
        ),
    )


_SUM = "(compute elementwise-add (access-cartesian-product (access-tensor x) (access-tensor s)))"
_VECTORS = {"x": "m k", "s": "m k", "w": "m k"}


@rule(
    FAMILY,
    Example(_PAIR.format("elementwise-add", _SUM, "(access-tensor w)"), _VECTORS, _CONSTANT),
    Example(_PAIR.format("elementwise-mul", _SUM, "(access-tensor w)"), _VECTORS, _CONSTANT),
)
def constants_meet() -> tuple[Clause, ...]:
    """(x + c) + e = x + (c + e) and (x + c) * e = x * e + c * e, for constants c and e.

    Sound because addition of numbers is associative and multiplication distributes over it; floats round elsewhere.
    """
    facts = (
        '(varies root) (= root (compute "{0}" (access-product y e 0))) (constant e)'
        ' (= y (compute "elementwise-add" (access-product x c 0))) (constant c) (= 0 (split x))'
    )

    def pair(kind: str, a: str, b: str) -> str:
        return f'(compute "{kind}" (access-product {a} {b} 0))'

    add, multiply = "elementwise-add", "elementwise-mul"
    return (
        Clause(facts.format(add), f"(union root {pair(add, 'x', pair(add, 'c', 'e'))})"),
        Clause(facts.format(multiply), f"(union root {pair(add, pair(multiply, 'x', 'e'), pair(multiply, 'c', 'e'))})"),
    )


@rule(
    FAMILY,
    Example(
        _PAIR.format("subtract", "(access-tensor x)", "(access-tensor w)"), {"x": "m k", "w": "m k"}, "(constant $w)"
    ),
)
def subtracting_a_constant_adds_it() -> tuple[Clause, ...]:
    """x - c = x + (-c), for a constant c.

    Sound because it is what subtraction means.
    """
    return (
        Clause(
            '(varies root) (= root (compute "subtract" (access-product x c 0))) (constant c)',
            '(union root (compute "elementwise-add" (access-product x (compute "negative" c) 0)))',
        ),
    )


@rule(
    FAMILY,
    *(
        Example(
            _PAIR.format("elementwise-div", f"(cast (access-tensor x) {dtype})", f"(full (shape $m $k) 2 {dtype})"),
            {"x": "m k"},
        )
        for dtype in FLOATS
    ),
)
def dividing_by_a_constant_multiplies() -> tuple[Clause, ...]:
    """x / c = x * (1 / c), for a constant c of floats.

    Sound because it is what division of reals means; floats round once more. Not for integers, which are cut.
    """
    return tuple(
        Clause(
            '(varies root) (= root (compute "elementwise-div" (access-product x c 0))) (constant c) (= d (dims c))'
            f' (= 0 (split c)) (= "{dtype}" (dtype c))',
            '(union root (compute "elementwise-mul" (access-product x'
            f' (compute "elementwise-div" (access-product (full d "1" "{dtype}") c 0)) 0)))',
        )
        for dtype in FLOATS
    )


_SMALL = _FLAT.format("(access-broadcast (access-tensor {0}) (access-shape (shape) (shape 3 2 5)))", 30)


@rule(
    FAMILY,
    Example(
        _PAIR.format("elementwise-add", _SMALL.format("s"), _SMALL.format("w")), {"s": "1 2 1", "w": "1 2 1"}, _CONSTANT
    ),
    relations="(relation constant-pair (Access String Access Access))\n"
    "(relation repeated-pair (Access String Access Access Ints Ints Ints))",
)
def repeated_constants_are_paired_before() -> tuple[Clause, ...]:
    """f(broadcast(z), broadcast(y)) = broadcast(f(z, y)), for constants z and y of the same dims.

    A bias stays a vector. Sound because equal elements have equal results.
    """
    second = _OF_BROADCAST.format("b", "w", "y").replace("bs bi", "cs ci")
    return (
        # Stage by stage: where many tensors have the same dims, a join on those would be of all with all.
        Clause(
            '(= root (compute f (access-product a b 0))) (constant a) (constant b) (category f "fold")',
            "(constant-pair root f a b)",
        ),
        Clause(
            f"(constant-pair root f a b) {_OF_BROADCAST.format('a', 'x', 'z')} {second}",
            "(repeated-pair root f z y bs bi ci)",
        ),
        Clause(
            "(repeated-pair root f z y bs bi ci) (= ci (vec-append bi (vec-empty))) (= d (dims z)) (= e (dims y))"
            " (= e (vec-append d (vec-empty))) (= 0 (split z)) (= 0 (split y)) (= size (product bi))"
            " (= dr (dims root))",
            "(union root " + whole("(access-broadcast (compute f (access-product z y 0)) bs bi)", "size", "dr") + ")",
        ),
    )
