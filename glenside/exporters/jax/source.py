"""Generates the source of an export: one line per value, and numbers that are known at export."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from glenside.exporters import writer
from glenside.ir.dtypes import RECORDS, wider
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.rational import exact
from glenside.ir.scalar import Primitive
from glenside.ir.types import Dims
from glenside.semantics.native import Native

# A constant of the source is a list of numbers in it: larger ones must be constants with values, which are arguments.
_MOST_NUMBERS = 1 << 16


@dataclass(frozen=True, slots=True)
class Value(writer.Value):
    """An array of the generated function: the expression of a name, its dims and dtype.

    `constant` is its value if it depends on numbers of the program alone.
    """

    constant: Array | None = None


class Source(writer.Writer[Value]):
    """Lines `v0 = ..`; equal expressions share a line."""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.arguments = arguments
        self.lines: list[str] = []
        self._known: dict[str, str] = {}

    def set(self, expression: str, dims: Sequence[int], dtype: str) -> Value:
        """Returns the value of an expression of jnp, lax, names of values and numbers."""
        if expression not in self._known:
            name = f"v{len(self._known)}"
            self._known[expression] = name
            self.lines.append(f"{name} = {expression}")
        return Value(self._known[expression], Dims(dims), dtype)

    def constant(self, array: Array) -> Value:
        """Returns a known constant; nothing is written until `name` needs it."""
        return Value("", Dims(array.shape), array.dtype.name, array)

    def name(self, value: Value) -> str:
        """Returns the name of a value, or one number; writes other constants. Raises BadInput for one that is too
        large.
        """
        if value.constant is None:
            return value.name
        if not value.rank:
            return _literal(value.constant)
        return self.set(_literal(value.constant), value.dims, value.dtype).name

    def _moved(self, x: Value, call: str, dims: Sequence[int], move: Callable[[Array], Array]) -> Value:
        """Applies an expression of x, `{}`, that moves elements; `move` does the same to a constant."""
        if x.constant is not None:
            return self.constant(move(x.constant))
        return self.set(call.format(x.name), dims, x.dtype)

    def full(self, dims: Sequence[int], fill: str, dtype: str) -> Value:
        """Returns one number, an expression, repeated everywhere."""
        return self.set(f"jnp.full({shape(dims)}, {fill})", dims, dtype)

    def number(self, value: str | int, dtype: str, rank: int = 0) -> Value:
        known = exact(str(value))
        assert known is not None, "parameters are checked when a term is built"
        return self.constant(Native().constant(known, dtype))

    def view(self, x: Value, dims: Sequence[int]) -> Value:
        dims = Dims(dims)
        if dims == x.dims:
            return x
        return self._moved(x, f"jnp.reshape({{}}, {shape(dims)})", dims, lambda array: array.reshape(dims))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        if list(order) == list(range(x.rank)):
            return x
        call, dims = f"jnp.transpose({{}}, {shape(order)})", x.dims.permute(order)
        return self._moved(x, call, dims, lambda array: array.transpose(order))

    def expand(self, x: Value, dims: Sequence[int]) -> Value:
        if tuple(dims) == x.dims:
            return x
        call = f"jnp.broadcast_to({{}}, {shape(dims)})"
        return self._moved(x, call, dims, lambda array: np.broadcast_to(array, tuple(dims)))

    def slice(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        if (start, stop, step) == (0, x.dims[axis], 1):
            return x
        part = (slice(None),) * axis + (slice(start, stop, step),)
        dims = x.dims.set(axis, len(range(start, stop, step)))
        call = f"lax.slice_in_dim({{}}, {start}, {stop}, {step}, {axis})"
        return self._moved(x, call, dims, lambda array: array[part])

    def flip(self, x: Value, axis: int) -> Value:
        return self.set(f"jnp.flip({self.name(x)}, {axis})", x.dims, x.dtype)

    def index(self, x: Value, axis: int, position: int) -> Value:
        """Returns one element of an axis, without the axis."""
        return self.view(self.slice(x, axis, position, position + 1), x.dims.remove(axis))

    def apart(self, x: Value, axis: int) -> list[Value]:
        return [self.index(x, axis, i) for i in range(x.dims[axis])]

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        if len(parts) == 1:
            return parts[0]
        dims = parts[0].dims.set(axis, sum(part.dims[axis] for part in parts))
        known = [part.constant for part in parts if part.constant is not None]
        if len(known) == len(parts):
            return self.constant(np.concatenate(known, axis))
        dtype = parts[0].dtype
        if RECORDS[dtype].bits < 8:  # XLA packs them on some machines, and crashes at some of these
            wide = [self.cast(part, wider(dtype)) for part in parts]
            return self.cast(self.concat(wide, axis), dtype)
        names = ", ".join(map(self.name, parts))
        return self.set(f"jnp.concatenate([{names}], {axis})", dims, dtype)

    def cast(self, x: Value, dtype: str) -> Value:
        """Casts to another dtype."""
        if dtype == x.dtype:
            return x
        if x.constant is not None:
            return self.constant(Native().cast(x.constant, dtype))
        return self.set(f"{x.name}.astype(jnp.{_dtype(dtype)})", x.dims, dtype)

    def call(self, function: str, operands: Sequence[Value], dtype: str | None = None) -> Value:
        """Applies an elementwise function to operands that broadcast to each other."""
        dims = np.broadcast_shapes(*(x.dims for x in operands))
        return self.set(f"{function}({', '.join(map(self.name, operands))})", dims, dtype or operands[0].dtype)

    def apply(self, primitive: Primitive, operands: Sequence[Value]) -> Value:
        return self.call(primitive.jax, operands, "bool" if primitive.gives == "bool" else None)


def shape(sizes: Sequence[int]) -> str:
    """Spells sizes as Python does: (2, 3)."""
    return str(tuple(map(int, sizes)))


def number(value: float | int | bool, dtype: str) -> str:
    """Returns one number of a dtype as an expression."""
    return f"jnp.{_dtype(dtype)}({_spelled(value)})"


def _dtype(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype


def _spelled(value: object) -> str:
    text = repr(value)
    return f"'{text}'" if text in ("inf", "-inf", "nan") else text


def _literal(array: Array) -> str:
    """Returns the expression of a constant; a repeated number is written once."""
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
    # XLA transposes a constant by changing its layout, which SPU 0.9.5 ignores: it would read the original order. So a
    # matrix is gathered from a list at run time, which XLA leaves alone.
    return f"jnp.take({flat}, jnp.reshape(jnp.arange({size}), {shape(array.shape)}), 0, mode='clip')"
