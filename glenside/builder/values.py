"""Arrays that are made when they are read: a network can be compiled without its weights ever being generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.types import Tensor


class LazyArrays(Mapping[str, Array]):
    """Name -> array; entries that are functions are called once, at the first read of that name."""

    def __init__(
        self, entries: Mapping[str, Array | Callable[[], Array]], check: Callable[[str, Array], Array]
    ) -> None:
        self._entries = dict(entries)
        self._check = check

    def __getitem__(self, name: str) -> Array:
        entry = self._entries[name]
        if callable(entry):
            entry = self._entries[name] = self._check(name, entry())
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"LazyArrays({', '.join(self._entries)})"


def fitting(tensor: Tensor, value: Array) -> Array:
    """The value of a constant. Raises BadInput when it is not what was declared."""
    array = np.asarray(value)
    if array.shape != tensor.dims or array.dtype.name != tensor.dtype:
        need, have = f"{tuple(tensor.dims)} {tensor.dtype}", f"{array.shape} {array.dtype}"
        raise BadInput(f"constant {tensor.name} requires an array of {need}, got {have}")
    return array
