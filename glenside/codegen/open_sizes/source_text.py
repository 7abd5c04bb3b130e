"""C of all sizes: the sources at sample sizes, with variables for integers that depend on the sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from glenside.codegen.emit_c.printer import TABLE
from glenside.codegen.emit_c.translation_units import PUBLIC, Source
from glenside.codegen.open_sizes.expression import FLOOR_QUOTIENT, Expression
from glenside.codegen.open_sizes.fit import Fitter, Observed
from glenside.codegen.open_sizes.template import NotUniform

_TOKEN = re.compile(r"(?<![\w.])(\d[\w.]*(?:(?<=[pPeE])[-+]\d+\w*)?)")
_COMMENT = re.compile(r"/\*.*?\*/", re.S)


@dataclass(frozen=True)
class _Real:
    """A real number that is a ratio of integers."""

    above: Observed
    below: Observed


Token = str | Observed | _Real


class SourceTemplate:
    """C source as a function of sizes. Raises NotUniform.

    source  the C source, whose `run` gets the table of numbers behind the other pointers that are given;
            `open_sizes(const int64_t *sizes, int64_t *table)` computes it from the sizes, in their order
    """

    def __init__(
        self,
        fitter: Fitter,
        sources: Sequence[Source],
        ratios: Sequence[tuple[Observed, Observed]],
        names: Sequence[str],
    ) -> None:
        self.fitter, self.ratios, self.numbers = fitter, ratios, dict[Observed, int]()
        self.expressions: dict[Observed, Expression] = {}
        first = sources[0]
        self.helpers = [self._tokens([own.helpers[i] for own in sources]) for i in range(len(first.helpers))]
        if any(len(own.helpers) != len(first.helpers) or len(own.nests) != len(first.nests) for own in sources):
            raise NotUniform("the functions of its C differ in number")
        self.nests = [self._tokens([own.nests[i] for own in sources]) for i in range(len(first.nests))]
        self.end = self._tokens([own.end for own in sources])
        helpers, nests = (tuple(_local(self._text(tokens)) for tokens in own) for own in (self.helpers, self.nests))
        end = _global(self._text(self.end))
        self.source = Source(first.title, helpers, nests, f"{self._setter(names)}\n{end}")

    def at(self, sizes: Mapping[str, int]) -> list[str]:
        """Returns the tokens of the source at given sizes, as `tokens_of` gives those of a source."""
        parts = (*self.helpers, *self.nests, self.end)
        return [self._at(token, sizes) for part in parts for token in part]

    def _at(self, token: Token, sizes: Mapping[str, int]) -> str:
        if isinstance(token, _Real):
            above, below = (self.expressions[part].at(sizes) for part in (token.above, token.below))
            return (above / below if below else 0.0).hex()
        return token if isinstance(token, str) else str(self.expressions[token].at(sizes))

    def _tokens(self, texts: Sequence[str]) -> list[Token]:
        """Returns the pieces of a text: strings that all samples have, and integers that depend on the sizes."""
        split = [_pieces(text) for text in texts]
        if any(len(own) != len(split[0]) for own in split):
            raise NotUniform("its C has other statements at other sizes")
        return [self._token(tuple(own)) for own in zip(*split, strict=True)]

    def _token(self, own: tuple[str, ...]) -> Token:
        if all(token == own[0] for token in own):
            return own[0]
        if not all(token.isdigit() for token in own):
            ratio = self._ratio(own)
            if ratio is not None:
                return ratio
            raise NotUniform(f"its C differs at other sizes: {own[0][:60]!r} and others")
        values = tuple(map(int, own))
        if values not in self.expressions:
            found = self.fitter.fit(values)
            if found is None:
                raise NotUniform(f"the integer {values} of its C is no expression of the sizes")
            self.expressions[values] = found
        return values

    def _ratio(self, own: Sequence[str]) -> _Real | None:
        """Returns the ratio of integers that real numbers of C are, or None."""
        with suppress(ValueError):
            values = [float.fromhex(token) for token in own]
            for above, below in self.ratios:
                if values == [float(Fraction(a, b)) for a, b in zip(above, below, strict=True)]:
                    for part in (above, below):
                        self.expressions.setdefault(part, self.fitter.fit(part) or Expression())
                    return _Real(above, below)
        return None

    def _text(self, tokens: Sequence[Token]) -> str:
        return "".join(map(self._printed, tokens))

    def _printed(self, token: Token) -> str:
        if isinstance(token, str):
            return token
        if isinstance(token, _Real):
            return f"((double){self._printed(token.above)} / (double){self._printed(token.below)})"
        return f"z{self.numbers.setdefault(token, len(self.numbers))}"

    def _setter(self, names: Sequence[str]) -> str:
        """Returns C of the function that computes the table of numbers from the sizes."""
        named = {name: f"n[{i}]" for i, name in enumerate(names)}
        lines = [f"    {TABLE}[{i}] = {self.expressions[own].in_c(named)};" for own, i in self.numbers.items()]
        return "\n".join(
            [
                PUBLIC,
                FLOOR_QUOTIENT,
                f"PUBLIC void open_sizes(const int64_t *n, int64_t *{TABLE})\n{{",
                f"    (void)floor_quotient; (void)n; (void){TABLE};",
                *lines,
                "}",
            ]
        )


def tokens_of(source: Source) -> list[str]:
    """Returns the pieces of a source: integers, and the text between them."""
    return [piece for text in (*source.helpers, *source.nests, source.end) for piece in _pieces(text)]


def _pieces(text: str) -> list[str]:
    return _TOKEN.split(_COMMENT.sub("", text))


def _local(text: str) -> str:
    """Returns a function that reads the numbers that it uses once, at its begin."""
    used = sorted({int(number) for number in re.findall(r"\bz(\d+)\b", text)})
    if not used:
        return text
    head, brace, body = text.partition("\n{\n")
    return head + brace + "".join(f"    const int64_t z{i} = {TABLE}[{i}];\n" for i in used) + body


def _global(text: str) -> str:
    return re.sub(r"\bz(\d+)\b", rf"{TABLE}[\1]", text)
