"""Parses texts into programs.

The parser is a recursive descent, but each form is a generator that yields its inner forms and is sent their values:
`_run` keeps the generators on a list, so nesting costs memory, never Python's stack.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.names import suggestion
from glenside.ir.operator import COMPUTES, OPERATORS, Field, Kind
from glenside.ir.operators import SHAPE_FORMS
from glenside.ir.operators.forms import SPELLINGS, SPLIT_AS_OPERAND
from glenside.ir.operators.requirements import spelled
from glenside.ir.program import Program, Signature, is_product
from glenside.ir.term import Term, postorder
from glenside.ir.text.arguments import WANTED, Arguments
from glenside.ir.text.building import DECLARATIONS, Scope, Tensors, make_term
from glenside.ir.text.printer import GENERATED
from glenside.ir.text.reader import ATOM, CLOSE, END, OPEN, Reader, Token
from glenside.ir.types import Dims

# A form: it yields its inner forms, is sent the value of each, and returns its own value, which is a Term, a shape
# (Dims), an access shape (a pair of Dims) or a list of integers.
Form = Generator[Any, Any, Any]

_NESTED = (Kind.TERM, Kind.TERMS, Kind.SHAPE, Kind.INTS, Kind.ACCESS_SHAPE)
_BODY = Field("its body", Kind.TERM)
_ACCESS_SHAPE = (Field("shape", Kind.SHAPE), Field("item", Kind.SHAPE))
_LITERAL = "access-literal"


def parse(
    text: str,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dtypes: Mapping[str, str] | None = None,
    constants: Collection[str] = (),
    file: str = "<text>",
) -> Program:
    """Returns the program of a text.

    Tensors that the text does not declare have their shapes from `shapes`, are float32 unless `dtypes` names another
    dtype, and are inputs unless `constants` contains them. Raises ParseError and TypeMismatch, with the place in the
    text.
    """
    if not isinstance(text, str):
        raise BadInput(f"parse takes a text, got {type(text).__name__}")
    reader = Reader(text, file)
    return _Parser(reader, Tensors(reader, shapes or {}, dtypes or {}, constants)).program()


def _run(form: Form) -> Any:
    stack, value = [form], None
    while stack:
        try:
            inner = stack[-1].send(value)
        except StopIteration as done:
            stack.pop()
            value = done.value
        else:
            stack.append(inner)
            value = None
    return value


class _Parser:
    def __init__(self, reader: Reader, tensors: Tensors) -> None:
        self.reader, self.tensors = reader, tensors
        self.arguments = Arguments(reader)
        self.scope = Scope(reader)
        self.bound: list[tuple[str, Term]] = []

    def program(self) -> Program:
        """Reads declarations, then one term."""
        term = None
        while term is None:
            first = self.reader.token
            if first.kind == END:
                raise self.reader.error("a program requires one term after its declarations, got none", first.offset)
            if first.kind == OPEN:
                self.reader.take()
                if self.reader.token.kind == ATOM and self.reader.token.text in DECLARATIONS:
                    self.tensors.declare(first)
                    continue
                term = _run(self.form("a program", _BODY, first))
            else:
                term = _run(self.expression("a program", _BODY))
        extra = self.reader.token
        if extra.kind != END:
            message = f"a program requires one term after its declarations, got {extra} after it"
            raise self.reader.error(message, extra.offset)
        return self._named(term)

    def _named(self, term: Term) -> Program:
        """Returns the program of a term. Names of products become layers; of nodes with one name, a layer or the first
        keeps it.
        """
        inside = set(postorder(term))
        layers: dict[str, Term] = {}
        names: dict[str, Term] = {}
        for name, node in self.bound:
            if node in inside and (is_product(node) or not GENERATED.fullmatch(name)):
                (layers if is_product(node) else names).setdefault(name, node)
        return Program(term, layers=layers, names=names, signature=Signature(inputs=self.tensors.inputs()))

    def expression(self, owner: str, field: Field | None) -> Form:
        """Reads a form or a let name; without a field any value that can be bound."""
        token = self.reader.take()
        if token.kind == OPEN:
            return (yield self.form(owner, field, token))
        if not token.is_name:
            wanted = WANTED[field.kind if field else Kind.TERM]
            raise self.arguments.error(owner, field.name if field else "a value", wanted, token)
        if token.text not in self.scope:
            raise self.scope.unknown(token, self.tensors.names())
        return self._fitting(owner, field, self.scope[token.text], token)

    def form(self, owner: str, field: Field | None, opening: Token) -> Form:
        """Reads the rest of a form after its opening parenthesis."""
        head = self.reader.take()
        name = head.text if head.kind == ATOM else ""
        if name == "let":
            return (yield self.let(owner, field))
        value: Any
        if name in ("shape", "list"):
            value = (Dims if name == "shape" else list)(self.arguments.integers(name))
        elif name == "access-shape":
            value = tuple((yield from self.operands(name, _ACCESS_SHAPE, opening)))
        elif name in SHAPE_FORMS:
            value = yield from self.shape_form(name, opening)
        elif name == _LITERAL:
            value = self.literal(opening)
        elif name in OPERATORS or name in SPELLINGS:
            value = yield from self.operator(name, opening)
        else:
            raise self._unknown_operator(head, opening)
        return self._fitting(owner, field, value, opening)

    def let(self, owner: str, field: Field | None) -> Form:
        """Reads (let ((name value) ..) body), sequential; the body is parsed as at the place of the let."""
        self.arguments.open("let", "bindings", "a list of bindings, such as ((a (access-tensor x)))")
        bound: list[str] = []
        self.scope.open_list()
        while self.reader.token.kind != CLOSE:
            self.arguments.open("let", "a binding", "a name and a value, such as (a (access-tensor x))")
            name = self.arguments.name("let", "a name")
            self.scope.defining.append(name)
            value = yield self.expression("let", None)
            self.scope.defining.pop()
            self.arguments.close("let", "name value")
            self.scope.bind(name, value)
            bound.append(name)
            if isinstance(value, Term):
                self.bound.append((name, value))
        self.reader.take()
        self.scope.close_list()
        if self.reader.token.kind == CLOSE:
            raise self.reader.error("let requires a body after its bindings, got none", self.reader.token.offset)
        body = yield self.expression(owner, field)
        self.arguments.close("let", "bindings body")
        for name in bound:
            self.scope.unbind(name)
        return body

    def operator(self, name: str, opening: Token) -> Form:
        """Reads an operator under its name or another spelling."""
        spelling = SPELLINGS.get(name)
        operator = spelling.operator if spelling else name
        wanted = spelling.fields if spelling else OPERATORS[name].fields
        operands = yield from self.operands(name, wanted, opening)
        if name in SPLIT_AS_OPERAND and isinstance(operands[-1], Dims):
            split = self.reader.at(opening, lambda: operands[0].access.split)
            operands[-1] = operands[-1].take(split), operands[-1].drop(split)
        if spelling:
            operands = self.reader.at(opening, lambda: spelling.expand(*operands))
        return self.reader.at(opening, lambda: make_term(name, operator, operands))

    def operands(self, owner: str, wanted: Sequence[Field], opening: Token) -> Form:
        """Reads all arguments, and the closing parenthesis."""
        names = " ".join(field.name for field in wanted)
        values: list[Any] = []
        for field in wanted:
            while field.kind is Kind.TERMS and self.reader.token.kind != CLOSE:
                values.append((yield self.expression(owner, field)))
            if field.kind is Kind.TERMS:
                break
            if self.reader.token.kind == CLOSE:
                raise self.arguments.missing(owner, "arguments", names, len(values), opening)
            if field.kind in _NESTED:
                values.append((yield self.expression(owner, field)))
            elif field.kind is Kind.TENSOR:
                token = self.reader.token
                values.append(self.tensors.get(self.arguments.name(owner, field.name, WANTED[field.kind]), token))
            else:
                values.append(self.arguments.plain(owner, field))
        self.arguments.close(owner, names)
        return values

    def shape_form(self, name: str, opening: Token) -> Form:
        record = SHAPE_FORMS[name]
        values = yield from self.operands(name, record.arguments, opening)
        return self.reader.at(
            opening, lambda: record.evaluate(*(v.access if isinstance(v, Term) else v for v in values))
        )

    def literal(self, opening: Token) -> Term:
        """Reads (access-literal (literal value dtype)); the dtype is float32 by default."""
        wanted = "a literal, such as (literal 1.5)"
        if self.reader.token.kind == CLOSE:
            raise self.arguments.missing(_LITERAL, "arguments", "value", 0, opening)
        self.arguments.open(_LITERAL, "value", wanted)
        head = self.reader.take()
        if head.kind != ATOM or head.text != "literal":
            raise self.arguments.error(_LITERAL, "value", wanted, head, f"({head}")
        value = self.arguments.number("literal", "value")
        dtype = self.arguments.optional_dtype("literal", "float32")
        self.arguments.close("literal", "value dtype")
        self.arguments.close(_LITERAL, "value")
        return self.reader.at(opening, lambda: make_term(_LITERAL, _LITERAL, [value, dtype]))

    def _fitting(self, owner: str, field: Field | None, value: Any, token: Token) -> Any:
        """Returns the value if the field accepts it."""
        if field is None or _accepts(owner, field.kind, value):
            return value
        raise self.arguments.error(owner, field.name, WANTED[field.kind], token, _described(value))

    def _unknown_operator(self, head: Token, opening: Token) -> GlensideError:
        if head.kind != ATOM:
            return self.reader.error(f"a parenthesis requires an operator after it, got {head}", head.offset)
        if head.text in COMPUTES:
            hint = f"; a compute type is written (compute {head.text} ..)"
        elif head.text in DECLARATIONS:
            hint = "; declarations come before the term"
        else:
            hint = suggestion(head.text, ["let", "shape", "list", "access-shape", *OPERATORS, *SPELLINGS, *SHAPE_FORMS])
        return self.reader.error(f"unknown operator {head}{hint}", opening.offset)


def _accepts(owner: str, kind: Kind, value: Any) -> bool:
    if kind in (Kind.TERM, Kind.TERMS):
        return isinstance(value, Term)
    if kind is Kind.INTS:
        return isinstance(value, list)
    is_shape = isinstance(value, Dims)
    if kind is Kind.SHAPE:
        return is_shape
    return owner in SPLIT_AS_OPERAND if is_shape else isinstance(value, tuple)


def _described(value: Any) -> str:
    if isinstance(value, Term):
        return f"a term of type {value.type}"
    if isinstance(value, Dims):
        return f"the shape {spelled(value)}"
    if isinstance(value, list):
        return f"the list {spelled(value)}"
    return f"the access shape {spelled(value[0])}{spelled(value[1])}"
