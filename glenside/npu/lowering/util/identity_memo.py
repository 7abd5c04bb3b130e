"""Memoizes analyses of layers by object identity: strips of a layer and structurally equal layers share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Found = TypeVar("Found")


class Memo:
    """A memo of a layer's analyses."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Any, tuple[object, ...]]] = {}

    def once(self, find: Callable[[], Found], what: str, *of: object) -> Found:
        """Returns the memoized result for these arguments: bytes by value, other objects by identity."""
        key = what, *(own if isinstance(own, bytes) else id(own) for own in of)
        if key not in self._known:
            self._known[key] = find(), of  # keeps the objects alive, so that no id is reused
        found: Found = self._known[key][0]
        return found
