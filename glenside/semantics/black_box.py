"""Numbers in place of functions that nobody knows: equal operands give equal ones, others as good as none in common."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from glenside.ir.operand import Array


def scattered(key: str, operands: Sequence[Array], dims: Sequence[int]) -> Array:
    """Whole numbers below 2^32 in uint64, each depending on the key and on every element of every operand."""
    state = hashlib.blake2b(key.encode(), digest_size=16)
    for array in operands:
        state.update(f"; {array.shape} {array.dtype};".encode())
        # Adding 0 makes -0.0 what it equals.
        plain = np.ascontiguousarray(array + array.dtype.type(0) if array.dtype.kind == "f" else array)
        state.update(plain.data if plain.size else b"")
    generator = np.random.Philox(key=np.frombuffer(state.digest(), np.uint64))
    return np.asarray(generator.random_raw(math.prod(dims)) >> np.uint64(32)).reshape(tuple(dims))
