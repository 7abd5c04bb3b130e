"""The names that `let` binds while a text is read, and what is wrong with one that is not bound."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from glenside.ir.errors import ParseError, Place
from glenside.ir.names import spelled_name
from glenside.ir.text.reader import ATOM, CLOSE, OPEN, STRING, Reader, Token


class Scope:
    """Values by name; an inner binding hides an outer one until it is unbound."""

    def __init__(self, reader: Reader) -> None:
        self.defining: list[str] = []
        self._reader = reader
        self._values: dict[str, list[Any]] = {}
        self._lists: list[int] = []  # the depths of parentheses inside the binding lists that are open

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        return self._values[name][-1]

    def bind(self, name: str, value: Any) -> None:
        self._values.setdefault(name, []).append(value)

    def unbind(self, name: str) -> None:
        self._values[name].pop()
        if not self._values[name]:
            del self._values[name]

    def open_list(self) -> None:
        """A list of bindings begins: its parenthesis was just read."""
        self._lists.append(self._reader.depth)

    def close_list(self) -> None:
        self._lists.pop()

    def unknown(self, token: Token, tensors: Collection[str]) -> ParseError:
        """The error of a name that is not bound where it is used."""
        name, spelled = token.text, spelled_name(token.text)
        later = self._bound_later(name)
        if name in self.defining:
            message = f"the let name {spelled} is used in its own definition"
        elif later is not None:
            message = f"the let name {spelled} is used before it is bound at {later.line}:{later.column}"
        elif name in tensors:
            message = f"unknown name {spelled}; a tensor is read by (access-tensor {spelled})"
        else:
            close = get_close_matches(name[:80], self._values, 1)
            message = f"unknown name {spelled}" + (f"; did you mean {spelled_name(close[0])}?" if close else "")
        return self._reader.error(message, token.offset)

    def _bound_later(self, name: str) -> Place | None:
        """The place of a later binding of that name in one of the binding lists that are open."""
        lists, depth, opened = list(self._lists), self._reader.depth, -1
        for token in self._reader.tokens_from(self._reader.token.offset):
            if not lists:
                break
            if token.kind in (ATOM, STRING) and opened == lists[-1] and token.text == name:
                return self._reader.place(token.offset)
            opened = depth if token.kind == OPEN else -1
            depth += (token.kind == OPEN) - (token.kind == CLOSE)
            while lists and depth < lists[-1]:
                lists.pop()
        return None
