"""Rewrites sums of products of dequantized numbers to integer sums, which a processor computes exactly.

If the scales are constant along the sum, in exact arithmetic
    sum (s (a - y)) (t (b - z)) = s t sum (a - y) (b - z),
and the right sum is int32 without overflow. Zero padding of a - y is padding of a with y. A following quantization,
round(x / u), folds the inverse of its scale into the factors and terms of x. Floats then round at other places: a value
halfway between two integers may be rounded to the other one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from glenside.builder.layout import broadcast, element, reshape, split_at
from glenside.builder.pointwise import add, cast, compute, divide, multiply, subtract
from glenside.builder.quantization import as_int8
from glenside.egraph.search import Search
from glenside.ir.index_map import Fill
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, constants_under, make, postorder, rebuild_all, weave
from glenside.ir.types import Tensor
from glenside.passes.element_functions import is_one_number, narrowed, pair_of
from glenside.passes.loop_bodies import with_bodies
from glenside.passes.network import fold_batch_norms
from glenside.semantics.interpreter import evaluate

_BYTES = ("int8", "uint8")
_FLOATS = ("float32", "float64")
_MOST = (1 << 31) - 1


@dataclass(frozen=True)
class Dequantized:
    """A dequantized tensor scale (bytes - zero), after the movements `moves`.

    `filled`: the zero point is subtracted from `bytes` before the movement, modulo 256, so that padding is zero.
    """

    bytes: Term
    zero: Term | None
    scale: Term
    moves: tuple[Term, ...] = ()
    filled: bool = False

    @property
    def largest(self) -> int:
        """The maximum of |bytes - zero|."""
        return 128 if self.zero is None and self.bytes.access.dtype == "int8" else 255

    @cached_property
    def integers(self) -> Term:
        """The term bytes - zero, in int32."""
        found, zero = split_at(self.bytes, 0), self.zero
        if zero is None:
            return split_at(cast(found, "int32"), self.bytes.access.split)
        if self.filled:
            found = add(found, cast(zero, found.access.dtype))
        return split_at(subtract(cast(found, "int32"), zero), self.bytes.access.split)

    def moved(self, by: Term) -> Dequantized | None:
        """Returns the dequantized tensor after the movement `by`; None if its padding is not zero."""
        fill = by.index_map.fill if by.index_map is not None else Fill.LOWEST
        if fill is None or (fill is Fill.ZERO and is_one_number(self.scale)):
            found = self.bytes
            if fill is not None and self.zero is not None and not self.filled:
                found = split_at(subtract(found, cast(self.zero, found.access.dtype)), found.access.split)
            filled = self.filled or (fill is not None and self.zero is not None)
            return replace(self, bytes=_along(by, found), moves=(*self.moves, by), filled=filled)
        return None

    def item_scale(self) -> Term | None:
        """Returns the scale of each item, ()(shape), or ()() for a single number; None if it varies within an item."""
        if is_one_number(self.scale):
            return reshape(narrowed(self.scale), ())
        narrow = narrowed(self.scale)
        places = Tensor("place", narrow.access.dims, "int32")
        probe = broadcast(build("access-tensor", places), self.scale.access.dims)
        found, axes = self.scale, range(self.bytes.access.split, self.bytes.access.rank)
        for by in self.moves:
            probe, found = _along(by, probe), _along(by, found)
        (seen,) = evaluate(
            [probe], {"place": np.arange(narrow.access.size, dtype=np.int32).reshape(narrow.access.dims)}
        )
        own = np.asarray(seen)
        if any((own != own.take([0], axis)).any() for axis in axes):
            return None
        for axis in reversed(axes):
            found = element(found, axis, 0)
        return split_at(found, 0)


def _along(by: Term, x: Term) -> Term:
    """Applies the movement of a term to x."""
    return make(by.operator, weave(by.operator, (split_at(x, by.children[0].access.split),), by.attributes))


@dataclass
class _Sums:
    """Finds dequantized tensors in one program.

    found  memo: term -> the tensor that it dequantizes, or None
    """

    found: dict[Term, Dequantized | None] = field(default_factory=dict)

    def dequantized(self, term: Term) -> Dequantized | None:
        if term not in self.found:
            self.found[term] = self._dequantized(term)
        return self.found[term]

    def _dequantized(self, term: Term) -> Dequantized | None:
        if term.operator.moves and len(term.children) == 1:
            inner = self.dequantized(term.children[0])
            return None if inner is None else inner.moved(term)
        pair = pair_of(term) if term.access.dtype in _FLOATS else None
        if pair is None or term.attributes[0] != "elementwise-mul":
            return None
        for x, scale in (pair.children, pair.children[::-1]):
            found = _bytes(x)
            if found is not None:
                return Dequantized(*found, scale)
        return None

    def product(self, term: Term) -> Term | None:
        """Returns a dot product of dequantized tensors as a scaled integer dot product; None for other terms."""
        (pair,) = term.children
        if not is_product(term) or pair.operator.name != "access-product":
            return None
        a, b = map(self.dequantized, pair.children)
        (shared,) = pair.attributes
        assert isinstance(shared, int), "axes are counted"
        if a is None or b is None or a.largest * b.largest * pair.children[0].access.item.product() > _MOST:
            return None
        left, right = a.item_scale(), b.item_scale()
        if left is None or right is None:
            return None
        sums = build("compute", term.attributes[0], build("access-product", a.integers, b.integers, shared))
        rows, own = a.bytes.access.split, b.bytes.access.split - shared
        if left.access.rank:
            left = reshape(left, (*left.access.dims, *(1 for _ in range(own))))
        if right.access.rank:
            dims = right.access.dims
            right = reshape(right, (*dims[:shared], *(1 for _ in range(rows - shared)), *dims[shared:]))
        return split_at(multiply(cast(sums, term.access.dtype), multiply(left, right)), term.access.split)


def _bytes(x: Term) -> tuple[Term, Term | None] | None:
    """Returns (bytes, zero point in int32 or None) of floats cast from int32; None for other terms."""
    if x.operator.name != "cast" or x.children[0].access.dtype != "int32":
        return None
    whole, zero = x.children[0], None
    pair = pair_of(whole)
    if pair is not None and whole.attributes[0] == "subtract" and is_one_number(pair.children[1]):
        whole, zero = pair.children[0], reshape(narrowed(pair.children[1]), ())
        if not _is_byte(zero):
            return None
    if whole.operator.name != "cast" or whole.children[0].access.dtype not in _BYTES:
        return None
    return whole.children[0], zero


def _is_byte(term: Term) -> bool:
    """True if the term is an int8 or uint8 value, cast."""
    while term.operator.moves and len(term.children) == 1:
        term = term.children[0]
    return term.operator.name == "cast" and term.children[0].access.dtype in _BYTES


class _Quantizations:
    """Folds the inverse scale of quantizations round(x / scale) into the constants of x."""

    def __init__(self, roots: Sequence[Term]) -> None:
        self.constant = constants_under(*roots)
        self.readers = Counter(child for term in self.constant for child in term.children)

    def rounded(self, term: Term) -> Term | None:
        """Returns round(x / scale) with the inverse scale folded into x; None for other terms."""
        if term.operator.name != "compute" or term.attributes[0] != "round":
            return None
        (x,) = term.children
        pair = pair_of(x)
        if pair is None or x.attributes[0] != "elementwise-div" or x.access.dtype not in _FLOATS:
            return None
        given, scale = pair.children
        if self.constant[given] or not self.constant[scale] or not is_one_number(scale):
            return None
        own = reshape(narrowed(scale), ())
        inverse = divide(build("full", (), "1", own.access.dtype), own)
        return build("compute", "round", split_at(self._scaled(given, inverse, True), x.access.split))

    def _scaled(self, x: Term, by: Term, alone: bool) -> Term:
        """Returns x times a number, folded into the constants of x as far as they have no other reader."""
        alone = alone and self.readers[x] < 2
        if alone and x.operator.moves and len(x.children) == 1 and x.index_map is not None and x.index_map.fill is None:
            return _along(x, self._scaled(x.children[0], by, alone))
        pair = pair_of(x) if alone else None
        if pair is not None and x.attributes[0] == "elementwise-add" and self.readers[pair] < 2:
            return split_at(add(*(self._scaled(part, by, True) for part in pair.children)), x.access.split)
        if self.constant[x]:
            narrow = narrowed(x)
            return broadcast(multiply(narrow, by), x.access.dims)
        if pair is not None and x.attributes[0] == "elementwise-mul" and self.readers[pair] < 2:
            first, second = pair.children
            known = [c for c in pair.children if self.constant[c]]
            if len(known) == 1:
                other = second if known[0] is first else first
                return split_at(
                    multiply(other, broadcast(multiply(narrowed(known[0]), by), x.access.dims)), x.access.split
                )
        return split_at(multiply(x, by), x.access.split)


def _stored_unsigned(term: Term, children: tuple[Term, ...]) -> Term | None:
    """Returns a quantization to int8 by way of uint8: clip(y, -128, 127) = clip(y + 128, 0, 255) - 128.

    Processors have instructions for sums of products of unsigned with signed bytes. None for other terms.
    """
    if term.operator.name != "cast" or term.access.dtype != "int8":
        return None
    (clipped,) = children
    if clipped.operator.name != "compute" or clipped.attributes[0] != "(clip -128 127)":
        return None
    (x,) = clipped.children
    pair = pair_of(x)
    rounded, zero = pair.children if pair is not None and x.attributes[0] == "elementwise-add" else (x, None)
    if rounded.operator.name != "compute" or rounded.attributes[0] != "round" or x.access.dtype not in _FLOATS:
        return None
    shift = build("full", (), "128", x.access.dtype)
    if zero is not None and _is_byte(zero):
        shift = add(reshape(narrowed(zero), ()), shift)
    elif zero is not None:
        return None
    return split_at(as_int8(cast(compute("(clip 0 255)", add(rounded, shift)), "uint8")), term.access.split)


def integer_sums(program: Program) -> Program:
    """Rewrites sums of products of dequantized bytes to integer sums; returns the program itself without any."""
    roots = program.roots
    sums = _Sums()

    def of_integers(term: Term, children: tuple[Term, ...]) -> Term | None:
        if not is_product(term) or term.access.dtype not in _FLOATS:
            return None
        return sums.product(term if children == term.children else build("compute", term.attributes[0], *children))

    found = rebuild_all(roots, of_integers)
    if all(new is old for new, old in zip(found, roots, strict=True)):
        return program
    rounds = _Quantizations(found)
    done: dict[Term, Term] = {}
    for term in postorder(*found):
        changed = rounds.rounded(term)
        if changed is not None:
            (done[term],) = rebuild_all([changed], lambda *_: None, done)
    found = rebuild_all(rebuild_all(found, lambda *_: None, done), _stored_unsigned)
    return program.with_roots(found)


def for_processors(program: Program, search: Search | None = None) -> tuple[Program, str]:
    """Prepares a program for a processor, before its search: integer sums, then batch-norm folding."""
    return fold_batch_norms(integer_sums(with_bodies(program, integer_sums)), search)
