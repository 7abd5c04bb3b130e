"""Numbers each once: by sorting, which takes far less than hashing where there are millions of few kinds."""

from __future__ import annotations

import numpy as np

from glenside.ir.operand import Array


def distinct(numbers: Array) -> Array:
    """Each of them once, in order, (n)."""
    found = np.sort(numbers, axis=None)
    kept: Array = found[np.append(True, found[1:] != found[:-1])] if len(found) else found
    return kept
