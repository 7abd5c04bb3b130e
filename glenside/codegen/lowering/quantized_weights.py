"""Keeps constant weights of products as integers with a scale for each block, where a program computes them so.

    sum over k of x[k] w[k] = sum over blocks b and their steps i of x[b, i] (q[b, i] s[b])

A tile converts and scales the integers in registers. The weights take a quarter of the bytes or less, and so does the
time of a product that waits for memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd, prod

import numpy as np

from glenside.builder.builder import chosen
from glenside.builder.layout import broadcast, reshape, split_at
from glenside.builder.pointwise import cast, multiply
from glenside.egraph.saturation import SATURATED
from glenside.egraph.search import Search
from glenside.ir.dtypes import HALVES, RECORDS, limits
from glenside.ir.names import primed
from glenside.ir.operand import Array
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder, rebuild_all, tensors
from glenside.ir.types import Dims, Tensor
from glenside.semantics.interpreter import evaluate

_LEAST_ELEMENTS = 1 << 12
"""The fewest elements of weights that are kept as integers."""
_KEPT = ("int4", "uint4", "int8", "uint8")
"""The dtypes in which integers are kept, the first that holds all."""
_LEAST_ROWS = 16
"""The fewest results of a step: fewer leave most lanes of vectors along them empty."""
_LEAST_BLOCK = 8
"""The fewest reduction steps of a scale: the scales of shorter blocks take most of the bytes that integers save."""


def quantized_weights(program: Program) -> frozenset[Term]:
    """Returns terms that scale or widen weights of products, stored as integers or halves: they are not folded."""
    constant = program.info.constant
    read = (operand for term in program.info.order if _is_product(term) for operand in term.children[0].children)
    kept = (a for a in read if constant[a] and (is_stored_so(a) or _is_halves(a)))
    return frozenset(postorder(*kept))


def with_quantized_weights(program: Program) -> Program:
    """Returns a program whose products read weights as integers and scales, where it computes them so."""
    constant = program.info.constant
    weights = _Weights(program)

    def product(term: Term, children: tuple[Term, ...]) -> Term | None:
        if not _is_product(term):
            return None
        (pair,), given = children, term.children[0].children
        for place, operand in enumerate(given):
            if constant[operand] and not constant[given[1 - place]] and (found := weights.kept(operand)) is not None:
                other, own = pair.children[1 - place], pair.children[place]
                blocks = found.access.dims[own.access.split :]
                split = other.access.split
                cut = split_at(reshape(other, (*other.access.dims[:split], *blocks)), split)
                both = (cut, found) if place else (found, cut)
                return build("compute", "dot-product", build("access-product", *both, pair.attributes[0]))
        return None

    rebuilt = rebuild_all(program.roots, product)
    if not weights.values:
        return program
    declared = Program(rebuilt[0]).constants_declared
    return program.with_roots(rebuilt, constants=chosen(program.constants, declared, weights.values))


def keep_integers(program: Program, search: Search | None = None) -> tuple[Program, str]:
    """Returns the program of `with_quantized_weights`: a pass before a search."""
    complete = all(name in program.constants for name in program.constants_declared)
    return with_quantized_weights(program) if complete else program, SATURATED


def _is_product(term: Term) -> bool:
    """True for a dot-product of two operands with elements."""
    return is_product(term) and len(term.children[0].children) == 2 and term.children[0].access.size > 0


class _Weights:
    """The weights of a program that are integers and scales.

    found   operand -> its product of integers and scales, (rows)(blocks steps); None for other operands
    values  the new constants
    """

    def __init__(self, program: Program) -> None:
        self.constants = program.constants
        self.taken = {tensor.name for tensor in _leaves(*program.roots)}
        self.found: dict[Term, Term | None] = {}
        self.values: dict[str, Array] = {}

    def kept(self, operand: Term) -> Term | None:
        """Returns an operand as integers times scales; None if it is not computed so, or small."""
        if operand not in self.found:
            rows, item = operand.access.shape.product(), operand.access.item
            small = operand.access.size < _LEAST_ELEMENTS or rows < _LEAST_ROWS
            parts = None if small or len(item) != 1 or is_stored_so(operand) else _parts(operand)  # windows stay whole
            self.found[operand] = None if parts is None else self._scaled(operand, *parts)
        return self.found[operand]

    def _scaled(self, operand: Term, integers: Term, scales: Term) -> Term | None:
        if operand.access.dtype != "float32" or not all(t.name in self.constants for t in _leaves(operand)):
            return None
        rows, depth = operand.access.shape, prod(operand.access.item)
        q, s, w = (np.asarray(a).reshape(-1, depth) for a in evaluate([integers, scales, operand], self.constants))
        block, dtype = _block(s), _integer_dtype(q)
        if block < _LEAST_BLOCK or dtype is None:
            return None
        first = s[:, ::block]
        if not np.array_equal(q * np.repeat(first, block, 1), w):  # computed in the same order, with equal roundings
            return None
        dims = (*rows, depth // block, block)
        name = _leaves(integers)[0].name
        codes = self._constant(f"{name}.integers", q.astype(dtype).reshape(dims))
        half = first.astype(np.float16)
        small = np.array_equal(half.astype(first.dtype), first)
        values = np.ascontiguousarray(half if small else first).reshape(*rows, depth // block, 1)
        scale = cast(self._constant(f"{name}.scales", values), "float32")
        return split_at(multiply(cast(codes, "float32"), broadcast(scale, dims)), operand.access.split)

    def _constant(self, name: str, value: Array) -> Term:
        name = primed(name, self.taken)
        self.taken.add(name)
        self.values[name] = value
        return build("access-tensor", Tensor(name, Dims(value.shape), str(value.dtype), constant=True))


def _leaves(*terms: Term) -> list[Tensor]:
    return [t for leaf in tensors(*terms) for t in leaf.attributes if isinstance(t, Tensor)]


def _parts(term: Term) -> tuple[Term, Term] | None:
    """Returns terms of the integers and of the scales whose product a term is, or None."""
    if term.operator.name == "compute" and term.attributes[0] == "elementwise-mul":
        a, b = pair.children if len((pair := term.children[0]).children) == 2 else (pair, pair)
        for one, other in ((a, b), (b, a)):
            if _is_integer(one):
                return one, other
            if (parts := _parts(one)) is not None:
                return parts[0], multiply(parts[1], other)
        return None
    if not term.operator.moves or term.index_map is None or term.index_map.fill is not None:
        return None
    parts_of = [_parts(child) for child in term.children]
    if not parts_of or None in parts_of:
        return None
    integers, scales = zip(*(parts for parts in parts_of if parts is not None), strict=True)
    return _moved(term, dict(zip(term.children, integers, strict=True))), _moved(
        term, dict(zip(term.children, scales, strict=True))
    )


def is_stored_so(operand: Term) -> bool:
    """True if an operand is a tensor of integers times one of scales, as `with_quantized_weights` writes it."""
    found = _integers_and_scales(operand)
    if found is None or any(_widened(part).operator.name != "access-tensor" for part in found):
        return False
    return found[1].access.dims[-1] == 1 and found[0].access.dims[-1] >= _LEAST_BLOCK


def _widened(term: Term) -> Term:
    """Returns what a term casts to float32, if it casts halves, else the term."""
    halves = term.operator.name == "cast" and term.access.dtype == "float32" and term.children[0].access.dtype in HALVES
    return term.children[0] if halves else term


def _is_halves(operand: Term) -> bool:
    """True if an operand casts a matrix of halves to float32."""
    own = _unsplit(operand)
    halves = _widened(own)
    stored = halves is not own and _unsplit(halves).operator.name == "access-tensor" and len(operand.access.item) == 1
    return stored and operand.access.size >= _LEAST_ELEMENTS and operand.access.shape.product() >= _LEAST_ROWS


def scaled_activations(terms: Iterable[Term]) -> frozenset[Term]:
    """Returns int8 times scales that products with weights of that kind read: a tile scales its sums of integers."""
    pairs = [term.children[0].children for term in terms if _is_product(term)]
    read = [(a, b) for pair in pairs for a, b in (pair, pair[::-1]) if is_stored_so(b) and not is_stored_so(a)]
    return frozenset(_unsplit(a) for a, _ in read if (own := _integers_and_scales(a)) and own[0].access.dtype == "int8")


def _unsplit(operand: Term) -> Term:
    return operand.children[0] if operand.operator.name == "access" else operand


def _integers_and_scales(operand: Term) -> tuple[Term, Term] | None:
    """Returns narrow integers and the scales that are broadcast to them, if an operand is their product."""
    product = _unsplit(operand)
    if product.operator.name != "compute" or product.attributes[0] != "elementwise-mul":
        return None
    pair = product.children[0].children
    if len(pair) != 2 or pair[0].operator.name != "cast" or pair[1].operator.name != "access-broadcast":
        return None
    integers, scales = pair[0].children[0], pair[1].children[0]
    return (integers, scales) if integers.access.dtype in _KEPT else None


def _moved(term: Term, operands: Mapping[Term, Term]) -> Term:
    """Returns a term with other operands."""
    return rebuild_all([term], lambda *_: None, {t: operands.get(t, t) for t in postorder(term) if t is not term})[0]


def _is_integer(term: Term) -> bool:
    """True if a term casts integers to floats, or subtracts from such floats, as zero points are."""
    while term.operator.moves and len(term.children) == 1:
        term = term.children[0]
    if term.operator.name == "cast":
        return RECORDS[term.children[0].access.dtype].kind == "integer"
    return (
        term.operator.name == "compute"
        and term.attributes[0] == "subtract"
        and _is_integer(term.children[0].children[0])
    )


def _block(scales: Array) -> int:
    """Returns the most columns that divide all columns into blocks in which each row is constant."""
    changes = np.flatnonzero((scales[:, 1:] != scales[:, :-1]).any(0)) + 1
    return gcd(scales.shape[1], *map(int, changes))


def _integer_dtype(values: Array) -> str | None:
    """Returns the smallest dtype of integers that holds all values; None if they are no integers, or too large."""
    if not np.isfinite(values).all() or (values != np.rint(values)).any() or np.signbit(values[values == 0]).any():
        return None
    least, most = values.min(), values.max()
    return next((d for d in _KEPT if limits(d)[0] <= least and most <= limits(d)[1]), None)
