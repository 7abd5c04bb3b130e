"""Calls of patterns in the words of the language, for reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_COMPARISONS = {"=", "!=", "<", "<=", ">", ">="}
_INFIX = {"+", "-", "*", "/", "%", "&", "|", "<<", *_COMPARISONS}


def call_words(head: str, arguments: Sequence[Any]) -> str:
    """A call in the words of the language: infix where that is usual, an operator by its short name."""
    parts = [f"({a})" if hasattr(a, "head") and a.head.name in _INFIX else str(a) for a in arguments]
    if head in _INFIX:
        sides = map(str, arguments) if head in _COMPARISONS else parts
        return f" {head} ".join(sides)
    if head == "vec-get":
        return f"{parts[0]}[{arguments[1]}]"
    if head == "vec-length":
        return f"|{arguments[0]}|"
    inner = list(map(str, arguments))
    if head == "vec-of":
        return f"({' '.join(parts)})"
    if head == "vec-append":
        return " ++ ".join(parts)
    if head == "compute":
        return f"{inner[0]}({inner[1]})"
    return f"{head.removeprefix('access-').removeprefix('vec-')}({', '.join(inner)})"
