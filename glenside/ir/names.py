"""Names that users give, as texts and messages write them, and new names that differ from those taken."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable
from difflib import get_close_matches
from itertools import count

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./:-]*")


def shortened(text: str, quoted: bool = False) -> str:
    """The text as a message shows it: one line, no control characters, not too long."""
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    return shown if shown.isprintable() and not quoted else json.dumps(shown, ensure_ascii=not shown.isprintable())


def one_line(text: str) -> str:
    """The whole text as a table shows it: quoted when it holds control characters."""
    return text if text.isprintable() else quoted(text)


def spelled_name(name: str) -> str:
    """A name as the text writes it: quoted when it holds other than letters, digits and _ . / : -"""
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    """Any text as the language writes it, in quotes."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known."""
    close = get_close_matches(name[:80], list(known), 1)
    return f"; did you mean {spelled_name(close[0])}?" if close else ""


def primed(name: str, taken: Container[str]) -> str:
    """Return the name, followed by as many primes (') as it takes to differ from those taken."""
    while name in taken:
        name += "'"
    return name


def numbered(name: str, taken: Container[str]) -> str:
    """Return the name, or the first of name-2, name-3 .. that is not taken."""
    return name if name not in taken else next(n for i in count(2) if (n := f"{name}-{i}") not in taken)
