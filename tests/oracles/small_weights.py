"""Products whose weights are integers and scales of blocks, and the constants of what is compiled."""

from __future__ import annotations

import numpy as np

import glenside as gl
from glenside.builder.layout import broadcast, reshape
from glenside.builder.pointwise import cast, multiply
from glenside.codegen.loop_ir.ir import Role
from glenside.ir.program import Program


def floats(rng: np.random.Generator, *dims: int) -> np.ndarray:
    return (rng.standard_normal(dims) + 3).astype(np.float32)


def product(rows: int, columns: int, depth: int, block: int, least: int, most: int, dtype: str = "int8") -> Program:
    """Returns x (rows depth) times integers in [least, most] (columns depth), with a scale for each block of steps."""
    rng, b = np.random.default_rng(rows + columns + depth), gl.Builder()
    integers = rng.integers(least, most, (columns, depth), endpoint=True)
    integers[0, :2] = least, most
    weights = cast(b.constant("q", (columns, depth), dtype, integers.astype(dtype)), "float32")
    scales = b.constant("s", (columns, depth // block), value=floats(rng, columns, depth // block))
    by_block = reshape(
        broadcast(reshape(scales, (columns, depth // block, 1)), (columns, depth // block, block)), (columns, depth)
    )
    return b.finish(b.linear(b.input("x", (rows, depth)), multiply(weights, by_block)))


def constants(function: gl.Function) -> dict[str, int]:
    """Returns the bytes of constants by dtype."""
    found: dict[str, int] = {}
    for buffer in function.loops.buffers:
        if buffer.role is Role.CONSTANT:
            found[buffer.dtype] = found.get(buffer.dtype, 0) + buffer.bytes
    return found
