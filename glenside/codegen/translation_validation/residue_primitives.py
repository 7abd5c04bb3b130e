"""Fast primitives of loops on small arrays of residues, with the meaning of `LoopField`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glenside.codegen.loop_ir.intrinsics import FLUSHED
from glenside.ir.blockwise import row_major
from glenside.ir.operand import Array
from glenside.ir.scalar import Primitive
from glenside.semantics.loop_field import LoopField


class Numbers:
    """Primitives of a field, and reductions."""

    def __init__(self, field: LoopField) -> None:
        self.field = field

    def total(self, name: str, part: Array, over: tuple[int, ...]) -> Array:
        """Reduces an array along axes by primitive `name`."""
        if name == "add":
            if part.dtype.kind == "f":
                return self.reduced(part.sum(over, dtype=np.float64))
            return np.asarray(part.sum(over, dtype=part.dtype))
        if name in ("max", "min"):
            return np.asarray(part.max(over) if name == "max" else part.min(over))
        last = np.moveaxis(part, over, tuple(range(-len(over), 0)))
        return self.field.product(np.ascontiguousarray(last), tuple(range(-len(over), 0)))

    def neutral(self, name: str, part: Array) -> Any:
        """Returns the neutral element of a reduction by primitive `name`."""
        if name in ("add", "multiply"):
            return part.dtype.type(name == "multiply")
        if part.dtype.kind == "f":
            return part.dtype.type(-self.field.half if name == "max" else self.field.half)
        if part.dtype == bool:
            return name == "min"
        limits = np.iinfo(part.dtype)
        return part.dtype.type(limits.min if name == "max" else limits.max)

    def join(self, name: str, a: Array, b: Array) -> Array:
        """Combines two arrays, element by element."""
        if name == "add":
            return self.reduced(np.add(a, b, dtype=np.float64)) if b.dtype.kind == "f" else self.field.add(a, b)
        if name == "multiply":
            return self.field.multiply(a, b)
        return np.maximum(a, b) if name == "max" else np.minimum(a, b)

    def reduced(self, x: Array) -> Array:
        """Returns the signed representatives of integers given as float64."""
        p = float(self.field.p)
        return np.asarray(x - np.rint(x * (1.0 / p)) * p, np.float32)

    def applied(self, primitive: Primitive, operands: Sequence[Array]) -> Array:
        """Applies a primitive to arrays."""
        if primitive is FLUSHED:
            return operands[0]
        last = operands[-1].dtype.kind == "f"
        if last and primitive.name == "multiply":
            return self.reduced(np.multiply(*operands, dtype=np.float64))
        if last and primitive.name in ("add", "subtract"):
            change = np.add if primitive.name == "add" else np.subtract
            return self.reduced(change(*operands, dtype=np.float64))
        if primitive.name in ("max", "min"):
            return np.asarray((np.maximum if primitive.name == "max" else np.minimum)(*operands))
        operands = list(np.broadcast_arrays(*operands))
        if primitive.name in self.field.own:
            return np.asarray(self.field.own[primitive.name](*operands))
        if primitive.arithmetic is not None:
            return np.asarray(primitive.arithmetic(self.field, *operands))
        dtype = np.dtype(bool) if primitive.gives == "bool" else operands[-1].dtype
        return row_major(primitive.numpy, *operands, dtype=dtype)
