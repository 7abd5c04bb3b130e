"""Prints terms: each shared subterm once, in lines of about 100 columns; the text is linear in the size of the term."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, count, cycle
from typing import Any

from glenside.ir.names import quoted, spelled_name
from glenside.ir.operator import Field, Kind
from glenside.ir.operators.forms import SPELLINGS
from glenside.ir.program import Program, by_node, has_default_name, is_product
from glenside.ir.term import Term, postorder, weave
from glenside.ir.types import Dims, Tensor

# Nesting depth at which a let names the inner operator: indentation stays bounded, so the text stays linear.
_DEEPEST = 12
_LINE = 72  # columns of a form on one line, without its indentation

# Let names that the printer generates. The parser drops them, and the printer generates them again.
GENERATED = re.compile(r"n\d+")


def print_term(term: Term, names: Mapping[str, Term] | None = None) -> str:
    """Prints one expression without declarations, with let names from `names`."""
    return "\n".join(_Printer(term, by_node(names or {})).lines())


def print_program(program: Program) -> str:
    """Prints declarations in the order of `program.tensors`, then the term with layers as let names and a final
    newline.
    """
    named = by_node({**program.layers, **program.names})
    # A default name is restored when read; it is printed only if its node needs a name anyway.
    reserve: dict[Term, str] = {}
    products = (node for node in program.info.order if is_product(node))
    for position, node in enumerate(products, 1):
        names = named.get(node, [])
        if len(names) == 1 and has_default_name(program, names[0], position):
            reserve[node] = named.pop(node)[0]
    lines = [declaration(tensor) for tensor in program.tensors.values()]
    lines += _Printer(program.term, named, reserve).lines()
    return "\n".join(lines) + "\n"


def declaration(tensor: Tensor) -> str:
    """Returns the declaration of a tensor: (input x (shape 1 3 32 32) float32)."""
    keyword = "constant" if tensor.constant else "input"
    return f"({keyword} {spelled_name(tensor.name)} {_shape('shape', tensor.dims)} {tensor.dtype})"


class _Printer:
    """Prints one term. `named` gives let names; `reserve` gives names for nodes that may need a binding."""

    def __init__(self, root: Term, named: Mapping[Term, list[str]], reserve: Mapping[Term, str] | None = None) -> None:
        self.root, self.reserve = root, reserve or {}
        self.named = {term: named[term] for term in postorder(root) if term in named}
        self.taken = {name for names in self.named.values() for name in names} | set(self.reserve.values())
        self.generated = (name for name in map("n{}".format, count()) if name not in self.taken)
        self.bindings: list[list[str]] = []

    def lines(self) -> list[str]:
        uses = Counter(child for term in postorder(self.root) for child in term.children)
        texts: dict[Term, list[str]] = {}
        heights: dict[Term, int] = {}
        for term in postorder(self.root):
            text = _form(term, [texts[child] for child in term.children])
            heights[term] = 1 + max((heights[child] for child in term.children), default=0)
            for child in term.children:
                uses[child] -= 1
                if not uses[child]:
                    texts.pop(child, None)
            inner = term is not self.root and bool(term.children)
            if term in self.named or (inner and (uses[term] > 1 or heights[term] >= _DEEPEST)):
                text, heights[term] = [self._bind(term, text)], 0
            texts[term] = text
        body = texts[self.root]
        return _let(self.bindings, body) if self.bindings else body

    def _bind(self, term: Term, text: list[str]) -> str:
        names = self.named.get(term) or [self.reserve.get(term) or next(self.generated)]
        first, *others = map(spelled_name, names)
        flat = f"({first} {text[0]})"
        fits = len(text) == 1 and len(flat) <= _LINE
        self.bindings.append([flat] if fits else [f"({first}", *_closed(_indented(text))])
        self.bindings += [[f"({other} {first})"] for other in others]
        return first


def _let(bindings: list[list[str]], body: list[str]) -> list[str]:
    lines = [line for binding in bindings for line in _indented(binding, 6)]
    lines[0] = f"(let ({lines[0].lstrip()}"
    return [*_closed(lines), *_closed(_indented(body))]


def _form(term: Term, children: Sequence[list[str]]) -> list[str]:
    """Returns the lines of one operator around those of its children."""
    head, parts = _parts(term, children)
    texts = [part if isinstance(part, str) else part[0] for part in parts]
    if all(isinstance(part, str) or len(part) == 1 for part in parts):
        flat = f"({' '.join([head, *texts])})"
        if len(flat) <= _LINE or not children:
            return [flat]
    lines = [f"({head}"]
    after_attribute = True
    for part in parts:
        if not isinstance(part, str):
            lines += _indented(part)
        elif after_attribute:
            lines[-1] += f" {part}"
        else:
            lines.append(f"  {part}")
        after_attribute = isinstance(part, str)
    return _closed(lines)


def _parts(term: Term, children: Sequence[list[str]]) -> tuple[str, list[str | list[str]]]:
    """Returns the operator's text, and its arguments in order: attributes as text, children as lines."""
    operator = term.operator
    if operator.name == "access-literal":
        value, dtype = map(str, term.attributes)
        return operator.name, [f"(literal {value})" if dtype == "float32" else f"(literal {value} {dtype})"]
    for spelling in SPELLINGS.values():
        if spelling.operator == operator.name:
            arguments = spelling.contract(*term.arguments())
            if arguments is not None:
                lines = iter(children)
                return spelling.name, [next(lines) if isinstance(a, Term) else str(a) for a in arguments]
    woven = weave(operator, children, term.attributes)
    fields = chain(operator.fields, cycle(operator.fields[-1:]))  # the last field may take all remaining arguments
    return operator.name, [_argument(field, value) for field, value in zip(fields, woven, strict=False)]


def _argument(field: Field, value: Any) -> str | list[str]:
    if field.kind in (Kind.TERM, Kind.TERMS):
        lines: list[str] = value
        return lines
    if field.kind is Kind.ACCESS_SHAPE:
        return f"(access-shape {_shape('shape', value[0])} {_shape('shape', value[1])})"
    if field.kind in (Kind.SHAPE, Kind.INTS):
        return _shape("shape" if field.kind is Kind.SHAPE else "list", value)
    if field.kind is Kind.TEXT:
        return quoted(value)
    return spelled_name(value.name) if field.kind is Kind.TENSOR else str(value)


def _shape(keyword: str, sizes: Dims) -> str:
    return f"({' '.join([keyword, *map(str, sizes)])})"


def _indented(lines: Sequence[str], columns: int = 2) -> list[str]:
    return [" " * columns + line for line in lines]


def _closed(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1] + ")"]
