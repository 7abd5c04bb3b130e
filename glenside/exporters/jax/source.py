"""The source that an export becomes: one line for each value, and numbers that are known while it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.types import Dims

# A constant of a source is a list of numbers in it: larger ones are to be constants with values, which are arguments.
_MOST_NUMBERS = 1 << 16


@dataclass(frozen=True, slots=True)
class Value:
    """An array of the function that is written: the expression of a name, its dims and dtype.

    `constant` is what it holds when that is made of numbers in the program alone.
    """

    name: str
    dims: Dims
    dtype: str
    constant: Array | None = None

    @property
    def rank(self) -> int:
        return len(self.dims)


class Source:
    """Lines `v0 = ..`; an equal expression is written once."""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.arguments = arguments
        self.lines: list[str] = []
        self._known: dict[str, str] = {}

    def set(self, expression: str, dims: Sequence[int], dtype: str) -> Value:
        """The value of an expression of jnp, lax, names of values and numbers."""
        if expression not in self._known:
            name = f"v{len(self._known)}"
            self._known[expression] = name
            self.lines.append(f"{name} = {expression}")
        return Value(self._known[expression], Dims(dims), dtype)

    def constant(self, array: Array) -> Value:
        """Numbers that are known: nothing is written until `name` needs them."""
        return Value("", Dims(array.shape), array.dtype.name, array)

    def name(self, value: Value) -> str:
        """The name of a value, or one number; other constants are written now. Raises BadInput for one too large."""
        if value.constant is None:
            return value.name
        if not value.rank:
            return _literal(value.constant)
        return self.set(_literal(value.constant), value.dims, value.dtype).name

    def same(self, value: Value, expression: str, dims: Sequence[int], array: Array | None) -> Value:
        """Elements of a value that an expression of it, `{}`, moves; of a constant, `array` holds them."""
        if array is not None:
            return self.constant(array)
        return self.set(expression.format(value.name), dims, value.dtype)

    def reshape(self, value: Value, dims: Sequence[int]) -> Value:
        """The elements in row-major order under other dims."""
        dims = Dims(dims)
        if dims == value.dims:
            return value
        array = None if value.constant is None else value.constant.reshape(dims)
        return self.same(value, f"jnp.reshape({{}}, {shape(dims)})", dims, array)

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """Axis i of the result is axis order[i]."""
        if list(order) == list(range(value.rank)):
            return value
        array = None if value.constant is None else value.constant.transpose(order)
        return self.same(value, f"jnp.transpose({{}}, {shape(order)})", value.dims.permute(order), array)

    def slice(self, value: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Every step-th element from start to stop - 1 of one axis."""
        if (start, stop, step) == (0, value.dims[axis], 1):
            return value
        dims = value.dims.set(axis, max(0, -(-(stop - start) // step)))
        part = (slice(None),) * axis + (slice(start, stop, step),)
        array = None if value.constant is None else value.constant[part]
        return self.same(value, f"lax.slice_in_dim({{}}, {start}, {stop}, {step}, {axis})", dims, array)

    def index(self, value: Value, axis: int, position: int) -> Value:
        """One element of an axis, without the axis."""
        return self.reshape(self.slice(value, axis, position, position + 1), value.dims.remove(axis))

    def broadcast(self, value: Value, dims: Sequence[int]) -> Value:
        """Axes of size 1 are repeated."""
        if tuple(dims) == value.dims:
            return value
        array = None if value.constant is None else np.broadcast_to(value.constant, tuple(dims))
        return self.same(value, f"jnp.broadcast_to({{}}, {shape(dims)})", dims, array)

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        """One after the other along an axis."""
        if len(values) == 1:
            return values[0]
        dims = values[0].dims.set(axis, sum(value.dims[axis] for value in values))
        known = [value.constant for value in values if value.constant is not None]
        if len(known) == len(values):
            return self.constant(np.concatenate(known, axis))
        names = ", ".join(map(self.name, values))
        return self.set(f"jnp.concatenate([{names}], {axis})", dims, values[0].dtype)

    def stack(self, values: Sequence[Value], axis: int) -> Value:
        """Side by side along a new axis."""
        return self.concatenate([self.reshape(v, v.dims.insert(axis, 1)) for v in values], axis)

    def cast(self, value: Value, dtype: str) -> Value:
        """Numbers in another dtype."""
        if dtype == value.dtype:
            return value
        if value.constant is not None:
            return self.constant(value.constant.astype(dtype))
        return self.set(f"{value.name}.astype(jnp.{_dtype(dtype)})", value.dims, dtype)

    def call(self, function: str, values: Sequence[Value], dtype: str | None = None) -> Value:
        """A function of each element of operands that broadcast to each other."""
        dims = np.broadcast_shapes(*(value.dims for value in values))
        return self.set(f"{function}({', '.join(map(self.name, values))})", dims, dtype or values[0].dtype)


def shape(sizes: Sequence[int]) -> str:
    """Sizes as Python writes them: (2, 3)."""
    return str(tuple(map(int, sizes)))


def number(value: float | int | bool, dtype: str) -> str:
    """One number of that dtype as an expression."""
    return f"jnp.{_dtype(dtype)}({_spelled(value)})"


def _dtype(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype


def _spelled(value: object) -> str:
    text = repr(value)
    return f"'{text}'" if text in ("inf", "-inf", "nan") else text


def _literal(array: Array) -> str:
    """The expression of a constant; one number everywhere is written once."""
    dtype, size = f"jnp.{_dtype(array.dtype.name)}", array.size
    if not array.ndim:
        return number(array.item(), array.dtype.name)
    repeated = tuple(slice(0, 1) if not step else slice(None) for step in array.strides)
    if size and array[repeated].size < size:
        return f"jnp.broadcast_to({_literal(array[repeated].copy())}, {shape(array.shape)})"
    if size and (array == array.flat[0]).all():
        return f"jnp.full({shape(array.shape)}, {number(array.flat[0].item(), array.dtype.name)})"
    if size > _MOST_NUMBERS:
        raise BadInput(
            f"a function of JAX requires constants of at most {_MOST_NUMBERS} different numbers in the program, got "
            f"{size}: declare them as a constant with values"
        )
    numbers = ", ".join(_spelled(value) for value in array.reshape(-1).tolist())
    flat = f"jnp.array([{numbers}], {dtype})"
    if size < 2 or sum(n > 1 for n in array.shape) < 2:
        return flat if array.ndim == 1 else f"jnp.reshape({flat}, {shape(array.shape)})"
    # XLA transposes a constant by another layout, which SPU 0.9.5 ignores: it would read it in the order before. So a
    # matrix is looked up in a list at run time, which XLA leaves alone.
    return f"jnp.take({flat}, jnp.reshape(jnp.arange({size}), {shape(array.shape)}), 0, mode='clip')"
