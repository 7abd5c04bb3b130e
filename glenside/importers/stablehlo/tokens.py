"""Splits the text of MLIR into tokens, and reads attributes: numbers, lists, dictionaries and dense constants."""

from __future__ import annotations

import re
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array

_TOKEN = re.compile(
    r"""(?P<space>[\s]+|//[^\n]*)
      | (?P<resources>\{-\#.*?\#-\})
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<tensor>tensor<[^<>\n]*(?:<[^<>\n]*>[^<>\n]*)*>)
      | (?P<value>%[\w$.-]+(?:[:\#]\d+)?)
      | (?P<symbol>@(?:"[^"\n]*"|[\w$.-]+))
      | (?P<alias>[\#!^][\w$.]+)
      | (?P<number>-?0x[0-9a-fA-F]+|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)
      | (?P<arrow>->)
      | (?P<word>[A-Za-z_][\w$.]*)
      | (?P<mark>[<>{}()\[\],=:*+?/|-])""",
    re.VERBOSE | re.DOTALL,
)
_DTYPES = {
    **{f"i{n}": f"int{n}" for n in (2, 4, 8, 16, 32, 64)},
    **{f"ui{n}": f"uint{n}" for n in (2, 4, 8, 16, 32, 64)},
    **{f"f{n}": f"float{n}" for n in (16, 32, 64)},
    **{f"f8{kind}": f"float8_{kind.lower()}" for kind in ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ")},
    "bf16": "bfloat16",
    "i1": "bool",
}

Type = tuple[tuple[int, ...], str]
"""Dims and dtype of a tensor."""


class Token(NamedTuple):
    """A part of the text, with its line."""

    kind: str
    text: str
    line: int


class Constant(NamedTuple):
    """A dense constant: its type, and all of its elements, or one that all of them are."""

    type: Type
    value: Array


def _tokens(text: str) -> list[Token]:
    found, place, line = [], 0, 1
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise BadInput(f"line {line}: {text[place : place + 20].split()[0]!r} is no part of StableHLO text")
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup, match.group(), line))
        line += text.count("\n", place, match.end())
        place = match.end()
    return [*found, Token("end", "the end of the text", line)]


def type_of(text: str, line: int) -> Type:
    """Returns the dims and dtype of `tensor<2x3xf32>`. Raises BadInput."""
    match = re.fullmatch(r"tensor<((?:\d+x)*)(\w+)>", text)
    if match is None or match[2] not in _DTYPES or _DTYPES[match[2]] not in RECORDS:
        why = "its sizes must be numbers" if "?" in text else "its dtype is not supported"
        raise BadInput(f"line {line}: a tensor of type {text} has no meaning here: {why}")
    return tuple(int(size) for size in match[1].split("x")[:-1]), _DTYPES[match[2]]


class Cursor:
    """The tokens of a text, and the next one to read. Every method raises BadInput, with the line."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.place = 0
        self.resources: dict[str, bytes] = {}
        for token in [token for token in self.tokens if token.kind == "resources"]:
            for name, digits in re.findall(r"([\w.$-]+)\"?\s*:\s*\"0x[0-9a-fA-F]{8}([0-9a-fA-F]*)\"", token.text):
                self.resources[name] = _bytes(digits, token.line)

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def refuse(self, wanted: str) -> NoReturn:
        text = self.next.text
        raise BadInput(f"line {self.next.line}: expected {wanted}, got {text if len(text) < 40 else text[:40] + '..'}")

    def take(self, kind: str) -> str:
        """Reads a token of a kind."""
        if self.next.kind != kind:
            self.refuse(f"a {kind}")
        self.place += 1
        return self.tokens[self.place - 1].text

    def at(self, *texts: str) -> bool:
        """True if the next tokens have these texts."""
        return tuple(token.text for token in self.tokens[self.place : self.place + len(texts)]) == texts

    def skip(self, text: str) -> bool:
        """Reads a token if it has this text; returns whether it has."""
        found = self.next.text == text and self.next.kind != "string"
        self.place += found
        return found

    def expect(self, text: str) -> None:
        if not self.skip(text):
            self.refuse(text)

    def type(self) -> Type:
        token = self.next
        return type_of(self.take("tensor"), token.line)

    def types(self) -> list[Type]:
        """Reads `t`, `t, t` or `(t, t)`."""
        inside, found = self.skip("("), []
        while self.next.kind == "tensor":
            found.append(self.type())
            self.skip(",")
        if inside:
            self.expect(")")
        return found

    def balanced(self, opening: str, closing: str) -> None:
        """Reads from an opening mark to the one that closes it."""
        self.expect(opening)
        depth = 1
        while depth:
            if self.next.kind == "end":
                self.refuse(closing)
            depth += (self.next.text == opening) - (self.next.text == closing)
            self.place += 1

    def location(self) -> str:
        """Reads `loc(..)`, if it is there; returns its name, or the alias of a location."""
        if not self.at("loc", "("):
            return ""
        self.place += 1
        name = self.tokens[self.place + 1]
        self.balanced("(", ")")
        return name.text if name.kind in ("string", "alias") else ""

    def number(self) -> int | float:
        text = self.take("number")
        return int(text, 16) if "0x" in text else float(text) if re.search("[.eE]", text) else int(text)

    def attributes(self, closing: str) -> dict[str, Any]:
        """Reads `key = value, ..` to the closing mark."""
        found: dict[str, Any] = {}
        while not self.skip(closing):
            key = self.take("string").strip('"') if self.next.kind == "string" else self.take("word")
            found[key] = self.attribute() if self.skip("=") else True
            if not self.skip(",") and not self.at(closing):
                self.refuse(closing)
        return found

    def _typed_number(self) -> int | float:
        value = self.number()
        if self.at(":") and self.tokens[self.place + 1].kind == "word":
            self.place += 2
        return value

    def attribute(self) -> Any:
        """Reads the value of an attribute."""
        token = self.next
        if token.kind == "number":
            return self._typed_number()
        if self.at("["):
            return self._listed()
        if self.skip("{"):
            return self.attributes("}")
        if self.at("array", "<"):
            self.place += 2
            self.take("word")
            self.skip(":")
            return tuple(self._items(">"))
        if token.text in ("dense", "dense_resource"):
            return self._dense()
        if token.kind == "alias":
            return self._record()
        if token.kind in ("word", "symbol", "string", "tensor"):
            self.place += 1
            return {"true": True, "false": False}.get(token.text, token.text.strip('"'))
        self.refuse("the value of an attribute")

    def _record(self) -> Any:
        """Reads `#stablehlo.gather<key = value, ..>`; what has no keys is a text."""
        name = self.take("alias")
        if self.at("<") and self.tokens[self.place + 2].text in ("=", ">"):
            self.place += 1
            return self.attributes(">")
        if self.at("<"):
            self.balanced("<", ">")
        return name

    def _listed(self) -> Any:
        """Reads a list, or lists such as `[0] x [1]` and `[b, f]x[i, o]->[b, f]`."""
        self.expect("[")
        found = [tuple(self._items("]"))]
        while self.at("x", "[") or self.at("->", "["):
            self.place += 2
            found.append(tuple(self._items("]")))
        return found if len(found) > 1 else found[0]

    def _items(self, closing: str) -> list[Any]:
        found = []
        while not self.skip(closing):
            found.append(self.attribute())
            if not self.skip(",") and not self.at(closing):
                self.refuse(closing)
        return found

    def _dense(self) -> Constant:
        """Reads `dense<..> : tensor<..>`: nested lists, one element for all, or their bytes in hexadecimal digits."""
        kind, line = self.take("word"), self.next.line
        self.expect("<")
        data: Any = b""
        if kind == "dense_resource":
            name = self.tokens[self.place].text.strip('"')
            self.place += 1
            if name not in self.resources:
                raise BadInput(f"line {line}: the text leaves out the values of the constant {name}")
            data = self.resources[name]
        elif self.next.kind == "string":
            data = _bytes(self.take("string"), line)
        elif not self.at(">"):
            data = self._elements()
        self.expect(">")
        self.expect(":")
        (dims, dtype), count = (type_ := self.type()), 1
        record, count = RECORDS[dtype], prod(dims)
        if isinstance(data, bytes):
            value = _unpacked(data, record.numpy, count)
        else:
            value = _elements_of(data, dtype, line)
        if value.size not in (1, count):
            raise BadInput(f"line {line}: a constant of {count} elements has {value.size}")
        return Constant(type_, value.reshape(dims) if value.size == count else value.reshape(()))

    def _elements(self) -> list[str]:
        """Reads the elements of nested lists, in row-major order."""
        found: list[str] = []
        depth = 0
        while True:
            if self.skip("["):
                depth += 1
            elif self.skip("]"):
                depth -= 1
            elif self.next.kind in ("number", "word"):
                found.append(self.next.text)
                self.place += 1
            elif not (depth and self.skip(",")):
                self.refuse("an element of a constant")
            if depth == 0:
                return found


def _bytes(text: str, line: int) -> bytes:
    try:
        return bytes.fromhex(text.strip('"').removeprefix("0x"))
    except ValueError:
        raise BadInput(f"line {line}: the bytes of a constant are no hexadecimal digits") from None


def _unpacked(data: bytes, dtype: np.dtype[Any], count: int) -> Array:
    """Returns elements of their bytes; truths have one byte or one bit each."""
    if dtype == np.bool_ and len(data) != count:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(bool)
        return bits[: 1 if len(data) == 1 and data in (b"\xff", b"\x00") else count]
    return np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype)


def _elements_of(data: list[str], dtype: str, line: int) -> Array:
    """Returns an array of the texts of numbers or truths; floats that have no digits are bits, 0x7FC00000."""
    numpy = RECORDS[dtype].numpy

    def element(text: str) -> Any:
        if dtype == "bool":
            return {"true": True, "false": False}[text]
        if RECORDS[dtype].kind == "integer":
            return int(text)
        return np.array(int(text, 16), f"u{numpy.itemsize}").view(numpy)[()] if text.startswith("0x") else float(text)

    try:
        return np.array([element(text) for text in data], numpy)
    except (KeyError, ValueError, OverflowError):
        raise BadInput(f"line {line}: a constant of {dtype} has an element that is none") from None
