"""Comparing values: by digest, so that one of the two need not be kept, and element by element."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from glenside.ir.operand import Array


def digest(value: Any) -> bytes:
    """A hash of dims, dtype and elements; equal values have equal digests. Tuples count item by item."""
    state = hashlib.blake2b(digest_size=32)
    for array in arrays(value):
        # Adding 0 makes -0.0 what it equals.
        plain = (
            np.add(array, array.dtype.type(0), order="C") if array.dtype.kind == "f" else np.ascontiguousarray(array)
        )
        state.update(f"{array.shape} {array.dtype};".encode())
        state.update(plain.data if plain.size else b"")
    return state.digest()


def arrays(value: Any) -> list[Array]:
    """The arrays of a value, from left to right; an array is one, a tuple any number."""
    if not isinstance(value, tuple):
        return [value]
    return [array for item in value for array in arrays(item)]


def difference(expected: Any, found: Any) -> str | None:
    """None for equal values, else how many elements differ and where the first one is. Values are of one type."""
    pairs = list(zip(arrays(expected), arrays(found), strict=True))
    for position, (a, b) in enumerate(pairs):
        unequal = np.asarray(a != b)
        count = int(np.count_nonzero(unequal))
        if count:
            first = tuple(map(int, np.unravel_index(int(np.argmax(unequal)), unequal.shape)))
            part = f"item {position} of the tuple " if len(pairs) > 1 else ""
            return f"{part}differs in {count:,} of {unequal.size:,} elements, first at {first}"
    return None
