"""How texts and messages write the names that users give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches

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
