"""Computes softmax and layer norms of bytes in fixed point, exactly as a machine with column operations does.

A softmax reads powers of the distance from the maximum byte from a table, of 15 bits, and divides by their sum. Its
results are from 0 to 1 in steps of 2^-14, with an error below (n + 3) / 2^16 for n numbers. A layer norm subtracts the
mean in steps of 1/64 of a byte's, and gives multiples of 2^-k of the deviation, with the largest k that fits 16 bits.
Reciprocals and roots are those of float32, rounded as in IEEE 754.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import floor, log2, prod, sqrt

import numpy as np

from glenside.analysis.element_sources import leaves_of
from glenside.builder.layout import reshape, split_at
from glenside.builder.pointwise import add, cast, compute, divide, filled, multiply, subtract
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operators.compute import compute_of
from glenside.ir.rational import exact
from glenside.ir.term import Term, build, postorder
from glenside.passes.element_functions import pair_of
from glenside.quantization.additions import weighted
from glenside.quantization.affine import Affine, one_number
from glenside.quantization.layers import Normalised
from glenside.quantization.values import Moved, Product
from glenside.semantics.interpreter import evaluate

WIDE = (1 << 15) - 1
"""The largest number that replaces a sum."""
_ONE = 1 << 14
"""The value of 1 in a softmax."""
_STEPS = 64
"""A mean is subtracted in units of this fraction (1/64) of an int8 step."""
_BYTE = 127
_VIEWS = ("access", "access-reshape", "access-broadcast")


def softmax_of(value: Affine, split: int, name: str) -> Affine:
    """Returns exp(x) / sum(exp(x)) of items from axis `split` on. Raises BadInput if the bytes differ in scale."""
    value, step = _uniform_bytes(value, "softmax")
    distance = np.arange(-255, 1) * step
    powers = np.rint(WIDE * np.exp(distance - distance.max())).astype(np.int64)
    table = np.roll(powers, 128)  # entry b modulo 256 of byte b; 127 is distance 0
    normalised = Normalised("softmax", 1.0, 0, float(_ONE), table.astype(np.int32))
    return _normalised(value, split, 1, normalised, 1 / _ONE, name)


def standardised(value: Affine, own: Standard, name: str) -> Affine:
    """Normalizes bytes as `own` describes, in its dims. Raises BadInput as above.

    Without a mean it subtracts a mean of 0, so that 0 replaces 1 / n.
    """
    kind = "layer norm" if own.centred else "root mean square"
    value, step = _uniform_bytes(value, f"a {kind}", own.centred)
    value = replace(value, moved=replace(value.moved, term=reshape(value.moved.term, own.dims)))
    n = prod(own.dims[own.split :])
    added = max(1.0, np.rint(_STEPS**2 * (1 if own.added else n) * own.eps / step**2))
    if added >= 1 << 31:
        raise BadInput(f"the epsilon of a {kind}, {own.eps:g}, is far above the squares of steps of {step:.6g}")
    most = 1 if own.added else sqrt(n)
    places = floor(log2(WIDE / most))
    scale, mean = float(np.float32(2.0**places * most)), float(np.float32(1 / n)) if own.centred else 0.0
    normalised = Normalised("layer-norm" if own.centred else "rms-norm", mean, int(added), scale)
    return _normalised(value, own.split, _STEPS, normalised, 2.0**-places, name)


def _uniform_bytes(value: Affine, what: str, shifts: bool = True) -> tuple[Affine, float]:
    """Returns bytes of one positive scale, without zero point if a shift does not matter."""
    if not shifts:
        value = value.widened().centred()
        if value.shift.any() or any(leaf.zero for leaf in value.bytes):
            raise BadInput(f"{what} requires bytes with a zero point of 0")
    value = value.raw() if value.offset is None else value
    alone = len(value.bytes) == len(value.moved.leaves) and value.offset is None and value.fits
    zeros = {leaf.zero for leaf in value.bytes}
    if not alone or value.scale.ndim or value.shift.ndim or value.scale <= 0 or zeros != {0} or value.moved.filled:
        raise BadInput(f"{what} requires bytes of one positive scale: quantize its operand first")
    return value, float(value.scale)


def _normalised(value: Affine, split: int, weight: int, normalised: Normalised, step: float, name: str) -> Affine:
    dims = value.dims
    flat = reshape(value.moved.term, (prod(dims[:split]), prod(dims[split:])))
    moved = weighted([replace(value.moved, term=flat)], [[weight]], name)
    leaves = {
        stand_in: replace(leaf, normalised=normalised) if isinstance(leaf, Product) else leaf
        for stand_in, leaf in moved.leaves.items()
    }
    made = Moved(split_at(reshape(moved.term, dims), split), leaves)
    return Affine(made, value.dtype if value.dtype.startswith("float") else "float32", scale=one_number(step))


def changed(sums: Term, own: Normalised, table: Term | None) -> Term:
    """Normalizes sums (S) int32, whose last but one axes are an item, to int32 from -32767 to 32767."""
    dims = tuple(sums.access.dims)
    x = reshape(sums, (prod(dims[:-2]), dims[-2] * dims[-1]))

    def of_items(kind: str, y: Term) -> Term:
        return reshape(build("compute", kind, split_at(y, 1)), (x.access.dims[0], 1))

    if table is not None:
        apart = cast(subtract(x, of_items("reduce-max", x)), "float32")
        near = add(compute("round", multiply(apart, filled(apart, _number(own.first)))), filled(apart, _BYTE))
        x = build("access-gather", table, cast(compute("(clip -128 127)", near), "int8"), 0)
        total = cast(of_items("reduce-sum", x), "float32")
    else:
        mean = cast(of_items("reduce-sum", x), "float32")
        x = subtract(x, _rounded(multiply(mean, filled(mean, _number(own.first)))))
        wide = cast(x, "int64")
        squares = of_items("reduce-sum", multiply(wide, wide))
        total = compute("sqrt", cast(add(squares, filled(squares, own.added)), "float32"))
    factor = divide(filled(total, _number(own.second)), total)
    return reshape(_rounded(multiply(cast(x, "float32"), factor)), dims)


def _rounded(x: Term) -> Term:
    return cast(compute(f"(clip -{WIDE} {WIDE})", compute("round", x)), "int32")


def _number(value: float) -> str:
    return repr(float(np.float32(value)))


@dataclass(frozen=True)
class Standard:
    """A normalization: (x - mean) / sqrt(variance + eps) of items, or without a mean x / sqrt(squares + eps).

    `squares` are their mean, or with `added` their sum.

      base   the tensor x, or another with its elements in the same order
      dims   those of x
      split  the first axis of an item
    """

    base: Term
    dims: tuple[int, ...]
    split: int
    eps: float
    centred: bool = True
    added: bool = False

    def of(self, x: Array) -> Array:
        """Computes the normalization."""
        axes = tuple(range(self.split, x.ndim))
        less = x.mean(axes, keepdims=True) if self.centred else 0
        squares = np.square(x - less)
        squares = (squares.sum if self.added else squares.mean)(axes, keepdims=True)
        made: Array = (x - less) / np.sqrt(squares + self.eps)
        return made


def standardisation(term: Term, constant: Mapping[Term, bool]) -> Standard | None:
    """Matches a normalization of the items of another term, or returns None. A match is verified on random numbers."""
    root = None if constant[term] else _root(term, constant)
    if root is None:
        return None
    squares, eps = root
    split, dims = squares.children[0].access.split, tuple(squares.children[0].access.dims)
    added = _is(squares, "reduce-sum")
    within = [t for t in postorder(squares) if _is(t, "reduce-mean") and t is not squares and not constant[t]]
    means = [t.children[0] for t in reversed(within) if t.children[0].access.split == split]
    found = [Standard(x, dims, split, eps, True, added) for x in means[:1] if tuple(x.access.dims) == dims]
    plain = _squared(_stripped(squares.children[0]), constant)
    found += [] if plain is None else [Standard(plain, dims, split, eps, False, added)]
    return next((own for own in found if _is_equal(term, own, constant)), None)


def _is_equal(term: Term, own: Standard, constant: Mapping[Term, bool]) -> bool:
    """True if a term computes this normalization, on random numbers."""
    ends = {leaf for leaf in leaves_of(own.base) if not constant[leaf]}
    between = postorder(term, without=ends)
    others = any(not t.children and t not in ends and t.operator.name != "full" for t in between)
    if others or term.access.size != prod(own.dims):
        return False
    draw = np.random.default_rng(0)
    given = {leaf: draw.standard_normal(tuple(leaf.access.dims)).astype(leaf.access.dtype) for leaf in ends}
    is_, x = (np.asarray(found, np.float64) for found in evaluate([term, own.base], {}, given=given))
    return bool(np.allclose(is_.reshape(own.dims), own.of(x.reshape(own.dims)), 1e-3, 1e-4))


def _root(term: Term, constant: Mapping[Term, bool]) -> tuple[Term, float] | None:
    """Returns the sums, or means, of squares by whose root a term divides, and the epsilon."""
    both = _operands(term, "elementwise-div", constant)
    divisor = None if both is None else _stripped(both[1])
    for factor in _operands(term, "elementwise-mul", constant) or ():
        inverse = None if constant[factor] else _operands(_stripped(factor), "elementwise-div", constant)
        if inverse is not None and _number_in(inverse[0]) == 1:
            divisor = _stripped(inverse[1])
    if divisor is None or constant[divisor]:
        return None
    least = 0.0
    bounds = _operands(divisor, "maximum", constant)
    if bounds is not None and (number := _number_in(bounds[1])) is not None:
        divisor, least = _stripped(bounds[0]), number
    elif _is(divisor, "clip"):
        low, high = (exact(p) for p in compute_of(divisor)[1])
        divisor, least = _stripped(divisor.children[0]), float(low or 0) if high is None else np.inf
    if not _is(divisor, "sqrt") or constant[divisor]:
        return None
    inner = _stripped(divisor.children[0])
    below, eps = _operands(inner, "elementwise-add", constant), least**2
    for x, y in (below, below[::-1]) if below else ():
        if constant[x] and (number := _number_in(x)) is not None:
            inner, eps = _stripped(y), eps + number
    return (inner, eps) if _is(inner, "reduce-mean") or _is(inner, "reduce-sum") else None


def _number_in(term: Term) -> float | None:
    """Returns the number that a written constant repeats everywhere, or None."""
    number = _stripped(term)
    value = exact(str(number.attributes[1])) if number.operator.name == "full" else None
    return None if value is None else float(value)


def inside(term: Term, own: Standard) -> set[Term]:
    """Returns the terms between a normalization and its base."""
    return {*postorder(*term.children, without={*leaves_of(own.base)})}


def _squared(term: Term, constant: Mapping[Term, bool]) -> Term | None:
    """Returns the term of which a term is the elementwise square, or None."""
    product = _operands(term, "elementwise-mul", constant)
    if product is not None:
        return product[0] if product[0] is product[1] else None
    power = _operands(term, "pow", constant)
    return power[0] if power is not None and _number_in(power[1]) == 2 else None


def _operands(term: Term, kind: str, constant: Mapping[Term, bool]) -> tuple[Term, Term] | None:
    if not _is(term, kind) or constant[term]:
        return None
    pair = pair_of(term)
    return None if pair is None else (pair.children[0], pair.children[1])


def _is(term: Term, kind: str) -> bool:
    return term.operator.name == "compute" and compute_of(term)[0].name == kind


def _stripped(term: Term) -> Term:
    while term.operator.name in _VIEWS:
        term = term.children[0]
    return term
