"""Folds constants: scales into weights, shifts into one another.

A batch norm after a product is a scale and a shift of each channel. The scale is multiplied into the weights before run
time, and the shift is added to the bias. Operands are seen along one axis, as `layout` leaves them.
"""

from __future__ import annotations

from collections.abc import Callable

from glenside.ir.dtypes import FLOATS
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Action, Clauses, Example, Facts, V, let, rule, union, when
from glenside.rewrites.facts import (
    ACCESS,
    INT,
    INTS,
    TEXT,
    access_at,
    category,
    constant,
    dims,
    dtype,
    inverse,
    relation,
    split,
    varies,
)
from glenside.rewrites.layout.layout import lifted
from glenside.rewrites.layout.rearranging import weight_scale
from glenside.rewrites.terms import Variable, dot, variables, vec, whole

FAMILY = "folding"
TOGETHER = ("constant-analyses", "rearranging", FAMILY)
"""The families that folding needs."""

# A product, seen along one axis; that product times a repeated scale, and times one number.
flat_layer = relation("flat-layer", linear=ACCESS, product=ACCESS, a=ACCESS, b=ACCESS, shared=INT)
scaled_product = relation(
    "scaled-product", scaled=ACCESS, scale=ACCESS, repeated=ACCESS, product=ACCESS, a=ACCESS, b=ACCESS, shared=INT
)
filled_product = relation("filled-product", scaled=ACCESS, scale=ACCESS, product=ACCESS, a=ACCESS, b=ACCESS, shared=INT)
# A pair of constants, and the tensors that they broadcast.
constant_pair = relation("constant-pair", pair=ACCESS, kind=TEXT, a=ACCESS, b=ACCESS)
repeated_pair = relation("repeated-pair", pair=ACCESS, kind=TEXT, a=ACCESS, b=ACCESS, shape=INTS, item=INTS, other=INTS)

# A sum with a constant, a product with one, and the other operand of a sum.
shifted = relation("shifted", sum=ACCESS, x=ACCESS, constant=ACCESS)
times_constant = relation("times-constant", product=ACCESS, x=ACCESS, constant=ACCESS)
summand = inverse("summand", sum=ACCESS, x=ACCESS)


def _repeated(name: str) -> str:
    """Returns a tensor repeated to the dims of the result, along one axis."""
    return ex.rearranged(
        f"(access-broadcast (access-tensor {name}) (access-shape (shape) (shape 3 2 5)))", 30, 0, "", 30
    )


_RESULT = ex.rearranged(ex.pairs("dot-product", ex.access("x", 2), ex.W), 30, 0, "", 30)
_THREE = "(full (shape 30) 3 float32)"
_SHAPES = {"x": "3 2 k", "w": "5 k", "s": "1 1 5"}
_W_CONSTANT = constant(access_at("w"))
_CONSTANT = (_W_CONSTANT, constant(access_at("s")))


def _pair(kind: Callable[[V], V], a: V, b: V) -> V:
    """Returns the compute type of two whole tensors."""
    return kind(op.product(a, b, 0))


def _repeats(x: V, z: V, shape: V, item: V) -> Facts:
    """Matches x as the elements of broadcast(z) along one axis."""
    wide = Variable(f"wide-{x}", ACCESS)
    return lifted(x, wide), wide == op.broadcast(z, shape, item)


@rule(
    FAMILY,
    Example(ex.pairs("elementwise-mul", _RESULT, _repeated("s")), _SHAPES, _CONSTANT),
    Example(ex.pairs("elementwise-mul", _repeated("s"), _RESULT), _SHAPES, _CONSTANT),
    Example(ex.pairs("elementwise-mul", _RESULT, _THREE), _SHAPES, [_W_CONSTANT]),
    Example(ex.pairs("elementwise-mul", _THREE, _RESULT), _SHAPES, [_W_CONSTANT]),
)
def scale_goes_into_weights(a: V, b: V, n: V, linear: V, m: V, layer: V, z: V, wide: V, v: V, t: V) -> Clauses:
    """dot(a x b) * s = dot(a x (b * s)), for constants b and s, where s does not differ between rows of a.

    Sound because a common factor of all terms of a sum is a factor of the sum, and each row of b gives the results that
    share its scale. Only where b is constant: the product is then computed at compile time, and nothing is multiplied
    at run time.
    """
    few, many, d, sa, db, sb, dr, fd, s, i = variables("few many d sa db sb dr fd s i")
    narrow, repeated, size, weights, results, dots = variables("narrow repeated size weights results scaled-dots")
    flat = flat_layer(linear, layer, a, b, n)
    scaled = scaled_product(ROOT, scale=z, repeated=wide, product=layer, a=a, b=b, shared=n)
    filled = filled_product(ROOT, scale=m, product=layer, a=a, b=b, shared=n)

    def times(*operands: V) -> Facts:
        pair = ROOT == _pair(op.elementwise_mul, *operands)
        return varies(ROOT), pair, constant(m), linear != m, split(ROOT) == 0

    def folded(factor: V) -> tuple[Action, ...]:
        """Returns the weights times a factor of their dims, in place of root."""
        scaled_weights = op.access(_pair(op.elementwise_mul, op.access(b, 0), factor), sb)
        return let(dots, dot(a, scaled_weights, n)), union(ROOT, whole(dots, results, dr))

    scale = whole(op.broadcast(whole(z, size, narrow), vec(), repeated), weights, db)
    # The few candidates first: joining all pairs with all products at once is much slower.
    return (
        when(layer == dot(a, b, n), constant(b), lifted(linear, layer)).then(flat),
        *(when(times(*operands), m == op.full(fd, v, t), flat).then(filled) for operands in ((linear, m), (m, linear))),
        when(
            *(filled, m == op.full(fd, v, t), db == dims(b), sb == split(b), t == dtype(layer), t == dtype(b)),
            *(d == dims(layer), results == d.product(), dr == dims(ROOT)),
        ).then(folded(op.full(db, v, t))),
        *(
            when(times(*operands), lifted(m, wide), wide == op.broadcast(z, s, i), flat).then(scaled)
            for operands in ((linear, m), (m, linear))
        ),
        when(
            *(scaled, few == dims(z), many == dims(wide), d == dims(layer), sa == split(a), db == dims(b)),
            *(sb == split(b), weight_scale.facts(few, many, d, sa, n, db, sb, narrow=narrow, wide=repeated, size=size)),
            *(weights == db.product(), results == d.product(), dr == dims(ROOT)),
        ).then(folded(scale)),
    )


_SUM = ex.pairs("elementwise-add", "(access-tensor x)", "(access-tensor s)")
_VECTORS = {"x": "m k", "s": "m k", "w": "m k"}


@rule(
    FAMILY,
    Example(ex.pairs("elementwise-add", _SUM, "(access-tensor w)"), _VECTORS, _CONSTANT),
    Example(ex.pairs("elementwise-mul", _SUM, "(access-tensor w)"), _VECTORS, _CONSTANT),
)
def constants_meet(x: V, y: V, c: V, e: V) -> Clauses:
    """(x + c) + e = x + (c + e) and (x + c) * e = x * e + c * e, for constants c and e; x + c = x + e implies c = e.

    Constants that different orders of evaluation produce for one sum are thereby merged. Sound because addition of
    numbers is associative and has an inverse, and multiplication distributes over it; floats are rounded at other
    places.
    """
    added, multiplied = _pair(op.elementwise_add, y, e), _pair(op.elementwise_mul, y, e)
    of_constant = (constant(e), split(y) == 0)
    return (
        # Stage by stage: if many tensors have the same dims, a join on the dims would pair all of them.
        when(varies(ROOT), ROOT == added, of_constant).then(shifted(ROOT, y, e), union(e, summand(ROOT, y))),
        when(varies(ROOT), ROOT == multiplied, of_constant, split(e) == 0).then(times_constant(ROOT, y, e)),
        when(shifted(ROOT, y, e), shifted(y, x, c)).then(
            union(ROOT, _pair(op.elementwise_add, x, _pair(op.elementwise_add, c, e)))
        ),
        when(times_constant(ROOT, y, e), shifted(y, x, c)).then(
            union(ROOT, _pair(op.elementwise_add, _pair(op.elementwise_mul, x, e), _pair(op.elementwise_mul, c, e)))
        ),
    )


_DIFFERENCE = ex.pairs("subtract", "(access-tensor x)", "(access-tensor w)")


@rule(FAMILY, Example(_DIFFERENCE, {"x": "m k", "w": "m k"}, [_W_CONSTANT]))
def subtracting_a_constant_adds_it(x: V, c: V) -> Clauses:
    """x - c = x + (-c), for a constant c.

    Sound because this is the definition of subtraction.
    """
    return when(varies(ROOT), ROOT == _pair(op.subtract, x, c), constant(c)).then(
        union(ROOT, _pair(op.elementwise_add, x, op.negative(c)))
    )


def _halved(kind: str) -> Example:
    halves = ex.pairs("elementwise-div", f"(cast (access-tensor x) {kind})", f"(full (shape $m $k) 2 {kind})")
    return Example(halves, {"x": "m k"})


@rule(FAMILY, *map(_halved, FLOATS))
def dividing_by_a_constant_multiplies(x: V, c: V, d: V) -> Clauses:
    """x / c = x * (1 / c), for a constant c of floats.

    Sound because this is the definition of division of reals; floats are rounded once more. Not for integers, whose
    quotients are truncated.
    """
    facts = (varies(ROOT), ROOT == _pair(op.elementwise_div, x, c), constant(c), d == dims(c), split(c) == 0)
    return [
        when(facts, dtype(c) == kind).then(
            union(ROOT, _pair(op.elementwise_mul, x, _pair(op.elementwise_div, op.full(d, "1", kind), c)))
        )
        for kind in FLOATS
    ]


_BIASES = ex.pairs("elementwise-add", _repeated("s"), _repeated("w"))


@rule(FAMILY, Example(_BIASES, {"s": "1 2 1", "w": "1 2 1"}, _CONSTANT))
def repeated_constants_are_paired_before(f: V, a: V, b: V, y: V, z: V, s: V, i: V, t: V, j: V, size: V) -> Clauses:
    """f(broadcast(z), broadcast(y)) = broadcast(f(z, y)), for constants z and y of the same dims.

    A bias thereby stays a vector. Sound because equal elements have equal results.
    """
    dy, dz, dr = variables("dy dz dr")
    pair = constant_pair(ROOT, f, a, b)
    repeated = repeated_pair(ROOT, kind=f, a=z, b=y, shape=s, item=i, other=j)
    return (
        # Stage by stage: if many tensors have the same dims, a join on the dims would pair all of them.
        when(
            *(ROOT == op.compute(f, op.product(a, b, 0)), constant(a), constant(b), category(f, "fold")),
            split(ROOT) == 0,
        ).then(pair),
        when(pair, _repeats(a, z, s, i), _repeats(b, y, t, j)).then(repeated),
        when(
            *(repeated, j == i.append(vec()), dz == dims(z), dy == dims(y), dy == dz.append(vec())),
            *(split(z) == 0, split(y) == 0, size == i.product(), dr == dims(ROOT)),
        ).then(union(ROOT, whole(op.broadcast(op.compute(f, op.product(z, y, 0)), s, i), size, dr))),
    )
