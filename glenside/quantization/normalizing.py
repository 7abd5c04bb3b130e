"""Softmax and layer norms of bytes in fixed point: what a machine that changes whole columns of sums computes exactly.

A softmax takes powers of the distance from the greatest byte from a table, of 15 bits, and divides by their sum. What
it makes is a number from 0 to 1 in steps of 2^-14, of which each is off by less than (n + 3) / 2^16 for n numbers. A
layer norm takes off the mean in steps of 1/64 of a byte's, and makes multiples of 2^-k of the deviation, with the
largest k that 16 bits have room for. Reciprocals and roots are those of float32, rounded as IEEE 754 says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import floor, log2, prod, sqrt

import numpy as np

from glenside.builder.layout import reshape, split_at
from glenside.builder.pointwise import add, cast, compute, divide, filled, multiply, subtract
from glenside.ir.errors import BadInput
from glenside.ir.operators.compute import parse_compute
from glenside.ir.rational import exact
from glenside.ir.term import Term, build
from glenside.passes.element_functions import pair_of
from glenside.quantization.additions import weighted
from glenside.quantization.affine import Affine, one_number
from glenside.quantization.layers import Normalised
from glenside.quantization.values import Moved, Product

WIDE = (1 << 15) - 1
"""The greatest number that is put in place of a sum."""
_ONE = 1 << 14
"""What stands for 1 in a softmax."""
_STEPS = 64
"""Parts of a byte's step in which a mean is taken off."""
_BYTE = 127
_VIEWS = ("access", "access-reshape", "access-broadcast")


def softmax_of(value: Affine, split: int, name: str) -> Affine:
    """exp(x) / sum(exp(x)) of items that begin at axis `split`. Raises BadInput where they are no bytes alike."""
    value, step = _bytes_of(value, "softmax")
    distance = np.arange(-255, 1) * step
    powers = np.rint(WIDE * np.exp(distance - distance.max())).astype(np.int64)
    table = np.roll(powers, 128)  # of byte b at number b modulo 256, where 127 is no distance
    normalised = Normalised("softmax", 1.0, 0, float(_ONE), table.astype(np.int32))
    return _normalised(value, split, 1, normalised, 1 / _ONE, name)


def standardised(value: Affine, split: int, eps: float, name: str) -> Affine:
    """(x - mean) / sqrt(variance + eps) of items that begin at axis `split`. Raises BadInput as before."""
    value, step = _bytes_of(value, "a layer norm")
    n = prod(value.dims[split:])
    added = max(1.0, np.rint(_STEPS**2 * n * eps / step**2))
    if added >= 1 << 31:
        raise BadInput(f"the epsilon of a layer norm, {eps:g}, is far above the squares of steps of {step:.6g}")
    places = floor(log2(WIDE / sqrt(n)))
    scale = float(np.float32(2.0**places * sqrt(n)))
    normalised = Normalised("layer-norm", float(np.float32(1 / n)), int(added), scale)
    return _normalised(value, split, _STEPS, normalised, 2.0**-places, name)


def _bytes_of(value: Affine, what: str) -> tuple[Affine, float]:
    """With their zero point taken off, which changes neither, and a positive scale."""
    value = value.raw() if value.offset is None else value
    alone = len(value.bytes) == len(value.moved.leaves) and value.offset is None and value.fits
    zeros = {leaf.zero for leaf in value.bytes}
    if not alone or value.scale.ndim or value.shift.ndim or value.scale <= 0 or zeros != {0} or value.moved.filled:
        raise BadInput(f"{what} is one of bytes of one positive scale: quantize what it is taken of before it")
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
    """Sums (S) int32, of which the last but one axis are an item, as int32 from -32767 to 32767."""
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


def standardisation(term: Term, constant: Mapping[Term, bool]) -> tuple[Term, int, float] | None:
    """What a term is (x - mean) / sqrt(variance + eps) of, the first axis of its items, and eps; None where it is not
    so.
    """
    both = _operands(term, "elementwise-div", constant)
    centred = None if both is None else _operands(both[0], "subtract", constant)
    if both is None or centred is None:
        return None
    root = _stripped(both[1])
    below = _operands(_stripped(root.children[0]), "elementwise-add", constant) if _is(root, "sqrt") else None
    if below is None or constant[centred[0]]:
        return None
    eps = [x for x in below if constant[x]]
    squares = [_stripped(x) for x in below if not constant[x]]
    mean = _stripped(centred[1])
    if len(eps) != 1 or not (_is(mean, "reduce-mean") and _is(squares[0], "reduce-mean")):
        return None
    split = mean.children[0].access.split
    same = _stripped(mean.children[0]) is _stripped(centred[0]) and squares[0].children[0].access.split == split
    number = _stripped(eps[0])
    value = exact(str(number.attributes[1])) if number.operator.name == "full" else None
    if not same or value is None or not _is_square(_stripped(squares[0].children[0]), both[0], constant):
        return None
    return centred[0], split, float(value)


def inside(term: Term, x: Term) -> set[Term]:
    """What stands between a standardisation and what it is of."""
    found, stack = set[Term](), [*term.children]
    while stack:
        part = stack.pop()
        if part is not x and part not in found:
            found.add(part)
            stack += part.children
    return found


def _is_square(term: Term, of: Term, constant: Mapping[Term, bool]) -> bool:
    product = _operands(term, "elementwise-mul", constant)
    if product is not None:
        return product[0] is product[1] is of
    power = _operands(term, "pow", constant)
    if power is None:
        return False
    number = _stripped(power[1])
    two = number.operator.name == "full" and exact(str(number.attributes[1])) == 2
    return two and power[0] is of


def _operands(term: Term, kind: str, constant: Mapping[Term, bool]) -> tuple[Term, Term] | None:
    if not _is(term, kind) or constant[term]:
        return None
    pair = pair_of(term)
    return None if pair is None else (pair.children[0], pair.children[1])


def _is(term: Term, kind: str) -> bool:
    return term.operator.name == "compute" and parse_compute(str(term.attributes[0]))[0].name == kind


def _stripped(term: Term) -> Term:
    while term.operator.name in _VIEWS:
        term = term.children[0]
    return term
