"""C of all sizes: the source of loops whose integers know their expressions, with variables for these."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from glenside.codegen.emit_c.printer import TABLE
from glenside.codegen.emit_c.translation_units import Source
from glenside.ir.open_integer import expression_of
from glenside.ir.size_expression import FLOOR_QUOTIENT, Atom, quotient_in_c

_TOKEN = re.compile(r"(?<![\w.])(\d[\w.]*(?:(?<=[pPeE])[-+]\d+\w*)?)")
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_VARIABLE = re.compile(r"\bz(\d+)\b")
_RATIO = re.compile(r"\(\(double\)(z?)(\d+) / \(double\)(z?)(\d+)\)")


class SourceTemplate:
    """C source as a function of sizes.

    printed  the source of loops whose integers are of `OpenInteger`
    source   the C source, whose `run` gets the table of numbers behind the other pointers that are given;
             `open_sizes(const int64_t *sizes, int64_t *table)` computes it from the sizes, in the order of `names`
    """

    def __init__(
        self,
        printed: Source,
        names: Sequence[str],
    ) -> None:
        numbers: dict[str, int] = {}

        def renamed(found: re.Match[str]) -> str:
            return f"z{numbers.setdefault(found[1], len(numbers))}"

        parts = (*printed.helpers, *printed.nests, printed.end)
        self._texts = [_VARIABLE.sub(renamed, _COMMENT.sub("", own)) for own in parts]
        self.numbers = [expression_of(int(number)) for number in numbers]
        count = len(printed.helpers)
        functions = [*map(_local, self._texts[:-1])]
        end = _VARIABLE.sub(rf"{TABLE}[\1]", self._texts[-1])
        self.source = Source(
            printed.title,
            tuple(functions[:count]),
            tuple(functions[count:]),
            f"{self._setter(names)}\n{end}",
            (*printed.runtime, FLOOR_QUOTIENT),
        )

    def at(self, sizes: Mapping[str, int]) -> list[str]:
        """Returns the tokens of the source at given sizes, as `tokens_of` gives those of a source."""
        values = [own.at(sizes) for own in self.numbers]

        def ratio(found: re.Match[str]) -> str:
            parts = ((found[1], int(found[2])), (found[3], int(found[4])))
            above, below = (values[number] if is_open else number for is_open, number in parts)
            return (above / below if below else 0.0).hex()

        texts = (_VARIABLE.sub(lambda found: str(values[int(found[1])]), _RATIO.sub(ratio, own)) for own in self._texts)
        return [piece for own in texts for piece in _pieces(own)]

    def _setter(self, names: Sequence[str]) -> str:
        """Returns C of the function that computes the table of numbers from the sizes."""
        named = {name: f"n[{i}]" for i, name in enumerate(names)}
        known: dict[Atom, str] = {}
        lines = []
        for i, own in enumerate(self.numbers):
            for quotient in own.quotients():
                if quotient not in known:
                    name = f"q{len(known)}"
                    lines.append(f"    const int64_t {name} = {quotient_in_c(quotient, named, known)};")
                    known[quotient] = name
            lines.append(f"    {TABLE}[{i}] = {own.in_c(named, known)};")
        return "\n".join(
            [
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
    used = sorted({int(number) for number in _VARIABLE.findall(text)})
    if not used:
        return text
    head, brace, body = text.partition("\n{\n")
    return head + brace + "".join(f"    const int64_t z{i} = {TABLE}[{i}];\n" for i in used) + body
