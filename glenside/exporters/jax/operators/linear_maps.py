"""Linear maps by additions: SPU cuts even a product by 2, and each cut is sent."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from glenside.exporters.jax.operators.movement import zero
from glenside.exporters.jax.registry import Operand, exports
from glenside.exporters.jax.source import Source, Value, shape
from glenside.ir.rational import exact_numbers
from glenside.ir.types import AccessType


def common(row: Sequence[Fraction]) -> tuple[list[int], Fraction]:
    """Whole numbers of no common divisor, and the fraction that times them is the row: 1 when the row is whole."""
    below = lcm(*(value.denominator for value in row))
    whole = [int(value * below) for value in row]
    if below == 1:
        return whole, Fraction(1)
    divisor = gcd(*whole)
    return [value // divisor for value in whole], Fraction(divisor, below)


class _Multiples:
    """Elements of an axis times whole numbers, by doubling and adding; each is written once."""

    def __init__(self, source: Source, value: Value, axis: int) -> None:
        self.source, self.value, self.axis = source, value, axis

    def of(self, position: int, times: int) -> Value:
        """One element, with the axis, a number of times that is above 0."""
        power = self.source.slice(self.value, self.axis, position, position + 1)
        total: Value | None = None
        while times:
            if times & 1:
                total = power if total is None else self.source.call("jnp.add", [total, power])
            times >>= 1
            if times:
                power = self.source.call("jnp.add", [power, power])
        assert total is not None
        return total

    def sum(self, row: Sequence[int]) -> Value:
        """The sum of the elements, each so many times; those that are added come first."""
        parts = [(n, self.of(i, abs(n))) for i, n in enumerate(row) if n]
        added, taken = [v for n, v in parts if n > 0], [v for n, v in parts if n < 0]
        if not parts:
            dims = self.value.dims.set(self.axis, 1)
            return self.source.set(f"jnp.full({shape(dims)}, {zero(self.value.dtype)})", dims, self.value.dtype)
        total = added[0] if added else self.source.call("jnp.negative", [taken.pop(0)])
        for part in added[1:]:
            total = self.source.call("jnp.add", [total, part])
        for part in taken:
            total = self.source.call("jnp.subtract", [total, part])
        return total


@exports("linear-map")
def _linear_map(source: Source, result: AccessType, a: Operand, axis: int, rows: int, coefficients: str) -> Value:
    """The rows with denominators are multiplied together: that is one message."""
    value, count = a.value, a.access.dims[axis]
    numbers = exact_numbers(coefficients) or ()
    split = [common(numbers[row * count : (row + 1) * count]) for row in range(rows)]
    multiples = _Multiples(source, value, axis)
    found = [multiples.sum(whole) for whole, _ in split]
    scaled = [row for row, (_, factor) in enumerate(split) if factor != 1]
    if scaled:
        factors = np.array([float(split[row][1]) for row in scaled], result.dtype)
        factors = factors.reshape([len(scaled) if i == axis else 1 for i in range(result.rank)])
        together = source.concatenate([found[row] for row in scaled], axis)
        together = source.call("jnp.multiply", [together, source.constant(factors)])
        for place, row in enumerate(scaled):
            found[row] = source.slice(together, axis, place, place + 1)
    return source.concatenate(found, axis) if found else source.slice(value, axis, 0, 0)
