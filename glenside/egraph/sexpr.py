"""Reads and writes the s-expressions of rules."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from glenside.ir.types import Tensor

Sexpr: TypeAlias = "str | list[Sexpr]"

_TOKEN = re.compile(r'\s+|;[^\n]*|([()])|("(?:[^"\\]|\\.)*")|([^\s()";]+)')
_BRACKET = re.compile(r'[()]|"(?:[^"\\]|\\.)*"|;[^\n]*')


def read_all(text: str) -> list[Sexpr]:
    """Parses the s-expressions of a rule's text. Raises ValueError: a mistake in a rule is not a user's error."""
    stack: list[list[Sexpr]] = [[]]
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"cannot read {text[position : position + 20]!r} in the rule text {text!r}")
        position = match.end()
        if match.group(1) == "(":
            stack.append([])
        elif match.group(1) == ")":
            if len(stack) == 1:
                raise ValueError(f"one ) too many in the rule text {text!r}")
            done = stack.pop()
            stack[-1].append(done)
        elif match.group(2) or match.group(3):
            stack[-1].append(match.group(2) or match.group(3))
    if len(stack) != 1:
        raise ValueError(f"a ( is not closed in the rule text {text!r}")
    return stack[0]


def parts(text: str) -> list[str]:
    """Splits a text into its top-level lists, unparsed; faster than `read_all`. Raises ValueError."""
    found: list[str] = []
    depth = start = 0
    for match in _BRACKET.finditer(text):
        if match[0] == "(":
            start = start if depth else match.start()
            depth += 1
        elif match[0] == ")":
            depth -= 1
            if depth < 0:
                raise ValueError(f"one ) too many in the rule text {text!r}")
            if not depth:
                found.append(text[start : match.end()])
    if depth:
        raise ValueError(f"a ( is not closed in the rule text {text[start:]!r}")
    return found


def write(expression: Sexpr) -> str:
    """Returns the expression as one line of text."""
    if isinstance(expression, str):
        return expression
    return f"({' '.join(map(write, expression))})"


def row_said(row: str) -> str:
    """Returns the action that adds a row to its relation."""
    return f"(set {row} ())"


def literal(value: Any) -> str:
    """Returns a text, number or vector of numbers in egglog syntax; a tensor as its name."""
    if isinstance(value, Tensor):
        return literal(value.name)
    if isinstance(value, str):
        # egglog takes characters literally and has few of JSON's escapes. Each line is an action, so \n is escaped.
        return '"{}"'.format(value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
    if isinstance(value, tuple):
        return f"(vec-of {' '.join(map(str, value))})" if value else "(vec-empty)"
    return str(value)
