"""Weights of decoders: what importers give, and random ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import numpy as np

from glenside.builder import Builder
from glenside.builder.builder import Again
from glenside.builder.layout import broadcast
from glenside.builder.pointwise import cast, multiply
from glenside.ir.operand import Array
from glenside.ir.term import Term


@dataclass(frozen=True)
class Matrix:
    """A matrix of weights ()(N K): `term` ()(N blocks steps) or ()(N K), less `mins` ()(N blocks) in each block."""

    term: Term
    mins: Term | None = None


class Weights(Protocol):
    """The weights of a decoder, by the names of GGUF files."""

    builder: Builder

    def has(self, name: str) -> bool:
        """True if there is a tensor of that name."""

    def matrix(self, name: str, columns: int, depth: int, heads: int = 0) -> Matrix:
        """Returns a matrix ()(columns depth); with `heads`, halves of each head are what is rotated together."""

    def vector(self, name: str, size: int, heads: int = 0) -> Term:
        """Returns a vector ()(size)."""

    def rows(self, name: str, count: int, size: int, indices: Term) -> Term:
        """Returns rows ()(R size) of a table ()(count size) at indices ()(R)."""


class RandomWeights:
    """Random weights of a decoder: integers of 4 or 8 bits with a float16 scale for each block, or float32.

    bits    4, 8 or 32
    values  the functions that make constants, by name, which programs of several sizes share
    """

    def __init__(
        self,
        bits: int = 4,
        block: int = 32,
        seed: int = 0,
        optional: tuple[str, ...] = (),
        values: dict[str, Again] | None = None,
    ) -> None:
        self.builder, self.bits, self.block, self.seed = Builder(), bits, block, seed
        self.values = {} if values is None else values
        self.optional, self.made = optional, 0

    def has(self, name: str) -> bool:
        return any(name.endswith(part) for part in self.optional)

    def _random(self) -> Callable[[int], np.random.Generator]:
        """Returns a function of a number, which gives the same generator each time."""
        self.made += 1
        made = self.made
        return lambda number: np.random.default_rng([self.seed, made, number])

    def matrix(self, name: str, columns: int, depth: int, heads: int = 0) -> Matrix:
        rng, b = self._random(), self.builder
        if self.bits == 32 or depth % self.block:

            def floats() -> Array:
                return rng(0).standard_normal((columns, depth), np.float32) / np.float32(sqrt(depth))

            return Matrix(b.constant(name, (columns, depth), value=self._again(name, floats)))
        most, dims = (1 << (self.bits - 1)) - 1, (columns, depth // self.block, self.block)
        dtype = f"int{self.bits}"

        def integers() -> Array:
            found = rng(0).integers(-most - 1, most, dims, np.int8, endpoint=True)
            return cast_array(found, dtype)

        def scales() -> Array:
            typical = 1.7 / (most * sqrt(depth))
            return (typical * (0.5 + rng(1).random((*dims[:2], 1)))).astype(np.float16)

        own = [self._again(f"{name}.{part}", of) for part, of in (("integers", integers), ("scales", scales))]
        return blocks_of(b, name, dims, dtype, *own)

    def _again(self, name: str, value: Callable[[], Array]) -> Again:
        return self.values.setdefault(name, Again(value))

    def vector(self, name: str, size: int, heads: int = 0) -> Term:
        value = np.ones(size, np.float32) if "norm" in name and name.endswith("weight") else np.zeros(size, np.float32)
        return self.builder.constant(name, (size,), value=value)

    def rows(self, name: str, count: int, size: int, indices: Term) -> Term:
        rng = self._random()
        value = self._again(f"{name}.table", lambda: rng(0).standard_normal((count, size), np.float32))
        table = self.builder.constant(f"{name}.table", (count, size), value=value)
        return self.builder.gather(table, indices)


def cast_array(values: Array, dtype: str) -> Array:
    """Returns integers as an array of a dtype of the language."""
    from glenside.ir.dtypes import RECORDS

    return values.astype(RECORDS[dtype].numpy)


def blocks_of(
    b: Builder,
    name: str,
    dims: tuple[int, int, int],
    dtype: str,
    integers: Callable[[], Array],
    scales: Callable[[], Array],
) -> Matrix:
    """Returns the matrix of integers ()(columns blocks steps) times float16 scales ()(columns blocks 1)."""
    codes = b.constant(f"{name}.integers", dims, dtype, integers)
    scale = b.constant(f"{name}.scales", (*dims[:2], 1), "float16", scales)
    return Matrix(multiply(cast(codes, "float32"), broadcast(cast(scale, "float32"), dims)))
