"""Defines an integer network: layers of products of bytes, whose sums are requantized or are the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, tensors
from glenside.ir.types import Tensor

MANY = 12
"""The number of layers from which a forked copy of the process pays off."""


@dataclass(frozen=True)
class Requantised:
    """bytes = clip(round_half_even(float32(sums + bias) * scale) + zero, low, high), elementwise.

    bias   int32, broadcasts to the dims of the sums
    scale  float32, positive and normal, broadcasts to the dims of the sums; after a normalization it may be negative
    zero, low, high  of int8; a relu or another clip is in low and high
    table  (256) int8, or None: a function of the bytes, entry b modulo 256 for byte b
    """

    bias: Array
    scale: Array
    zero: int
    low: int
    high: int
    table: Array | None = None


_PRECISION = {
    "softmax": "Softmax is in fixed point: for n numbers each error is below (n + 3) / 65536 before rounding.",
    "layer-norm": (
        "Layer norms are in fixed point: the error of a mean is at most 1/128 of a byte's step, "
        "and quotients by the deviation are rounded to 16 bits."
    ),
    "rms-norm": (
        "Quotients by a root mean square, or by the root of a sum of squares, are in fixed point, rounded to 16 bits."
    ),
}


@dataclass(frozen=True, eq=False)
class Normalised:
    """A normalization of sums, (.. n m) whose last two axes are an item, to int16 before they are requantized.

    kind    "softmax", "layer-norm", or "rms-norm", which subtracts no mean
    first   of a softmax the factor of its distances, of a layer norm 1 / n, of an rms norm 0: float32
    added   to the sum of squares
    second  the numerator of the quotient by the sum of powers, or by the root of the sum of squares: float32
    table   (256) int32 of 16 bits: the powers of distances from -255 to 0, as bytes from -128 to 127; None otherwise
    """

    kind: str
    first: float
    added: int
    second: float
    table: Array | None = None

    @property
    def precision(self) -> str:
        """A sentence about its precision."""
        return _PRECISION[self.kind]


@dataclass(frozen=True)
class IntegerLayer:
    """A product of bytes, and how its sums are requantized.

    sums         (dims)(), int32: the product `program.layers[name]` of the network; or the maximum of the products
                 instead of their sum. Its operands are moves (`glenside.analysis.element_sources.moves`) of leaves that
                 `leaf_of` reads
    requantised  None: the network's result is sums + bias in int32
    bias         int32 for that case, broadcasts to the dims of the sums; None if it is 0
    normalised   the normalization of the sums before that, or None
    result       the int8 term, or the int32 one, ()(dims), that later layers and the program's result read
    """

    name: str
    sums: Term
    requantised: Requantised | None
    bias: Array | None
    result: Term
    normalised: Normalised | None = None

    @property
    def greatest(self) -> bool:
        """True if products are compared instead of added up."""
        return self.sums.attributes[0] == "reduce-max"

    @property
    def operands(self) -> Term:
        """The access-product of both operands."""
        (found,) = self.sums.children[0].children if self.greatest else self.sums.children
        return found


@dataclass(frozen=True)
class IntegerNetwork:
    """A program of integers alone, and the real numbers that they represent.

    program    inputs are int8, results int8 or int32; its layers are those of `layers` by name; with values of
               constants
    constants  tensor name -> int8 weights, int32 biases, float32 scales
    layers     in topological order
    inputs     name -> scale, zero point: the real input, or the integer of the file, is scale * (byte - zero point)
    outputs    the same for each result of the program; both may be arrays that broadcast to the result
    host       a program for the host that computes the results, by name, as real numbers; None if nothing is left
    rest       the same in words, including scales
    unread     inputs on which no result depends, by name
    """

    program: Program
    constants: Mapping[str, Array]
    layers: tuple[IntegerLayer, ...]
    inputs: Mapping[str, tuple[float, int]]
    outputs: tuple[tuple[Any, Any], ...]
    host: Program | None = None
    rest: str = ""
    unread: Mapping[str, Tensor] = field(default_factory=dict)

    def input_terms(self) -> list[Term]:
        """Returns the input tensors."""
        read = {name_of(term): term for term in tensors(self.program.term)}
        names = dict.fromkeys([*self.program.inputs, *read])
        return [read[name] for name in names if name in read and name not in self.constants]

    def drawn_inputs(self, seed: int, given: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Returns bytes of all inputs, by name: the given ones, and random ones of a seed for the others."""
        draw, found = np.random.default_rng(seed), dict[str, Array]()
        for term in self.input_terms():
            values = (given or {}).get(name_of(term))
            drawn = draw.integers(-128, 128, tuple(term.access.dims)).astype(np.int8) if values is None else values
            found[name_of(term)] = drawn
        return found

    def wanted(self) -> dict[Term, str]:
        """Returns the result of each layer -> its name: bytes, or sums that are not requantized."""
        return {own.sums if own.requantised is None else own.result: own.name for own in self.layers}


def name_of(tensor: Term) -> str:
    """Returns the name of an access-tensor."""
    own = tensor.attributes[0]
    assert isinstance(own, Tensor), "the term is a tensor"
    return own.name


def leaf_of(term: Term) -> tuple[Term, int]:
    """Returns the int8 term X and the zero point z of a leaf of an operand: X, or in int32 cast(X) or cast(X) - z.

    The operands of a product have one type: if one of them has a zero point, both have int32 leaves. Raises BadInput
    for others.
    """
    zero = 0
    if term.operator.name == "compute" and term.attributes[0] == "subtract":
        term, constant = term.children[0].children
        zero = int(str(constant.attributes[1]))
    if term.operator.name == "cast" and term.access.dtype == "int32":
        (term,) = term.children
    if term.access.dtype != "int8":
        raise BadInput(f"a leaf of a product of bytes requires int8, got {term.access}")
    return term, zero
