"""Spells names from users for texts and messages, and makes new names that are not taken."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable
from difflib import get_close_matches
from itertools import count

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./:-]*")


def shortened(text: str, quoted: bool = False) -> str:
    """Returns the text as a message shows it: one line, no control characters, not too long."""
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    return shown if shown.isprintable() and not quoted else json.dumps(shown, ensure_ascii=not shown.isprintable())


def one_line(text: str) -> str:
    """Returns the whole text as a table shows it: quoted if it holds control characters."""
    return text if text.isprintable() else quoted(text)


def spelled_name(name: str) -> str:
    """Returns a name as the text format spells it: quoted unless it holds only letters, digits and _ . / : -"""
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    """Returns any text in quotes, as the language spells it."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name: the closest known one, if any."""
    close = get_close_matches(name[:80], list(known), 1)
    return f"; did you mean {spelled_name(close[0])}?" if close else ""


def primed(name: str, taken: Container[str]) -> str:
    """Returns the name, followed by as many primes (') as are needed to differ from those taken."""
    while name in taken:
        name += "'"
    return name


def numbered(name: str, taken: Container[str]) -> str:
    """Returns the name, or the first of name-2, name-3 .. that is not taken."""
    return name if name not in taken else next(n for i in count(2) if (n := f"{name}-{i}") not in taken)
