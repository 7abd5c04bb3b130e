"""What is found of a layer once, though strip by strip it is written several times, and others are like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Found = TypeVar("Found")


class Again:
    """What is known of a layer as long as it comes again."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Any, tuple[object, ...]]] = {}

    def once(self, find: Callable[[], Found], what: str, *of: object) -> Found:
        """What is found, the first time for these things: bytes that are equal, or else the same."""
        key = what, *(own if isinstance(own, bytes) else id(own) for own in of)
        if key not in self._known:
            self._known[key] = find(), of  # kept, so that an id is one thing's
        found: Found = self._known[key][0]
        return found
