"""Builds terms, tensors and let bindings while a text is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

from glenside.ir import option_hints
from glenside.ir.bounds import LARGEST
from glenside.ir.errors import ParseError, Place, TypeMismatch
from glenside.ir.names import shortened, spelled_name, suggestion
from glenside.ir.operator import OPERATORS
from glenside.ir.operators.requirements import spelled
from glenside.ir.term import Term, make
from glenside.ir.text.arguments import Arguments
from glenside.ir.text.reader import ATOM, CLOSE, OPEN, STRING, Reader, Token
from glenside.ir.types import AccessType, Dims, Tensor

DECLARATIONS = ("input", "constant")


def make_term(name: str, operator: str, arguments: Sequence[Any]) -> Term:
    """Returns the term that the text calls `name`. Raises TypeMismatch, also for sizes that no machine has."""
    try:
        term = make(OPERATORS[operator], arguments)
    except TypeMismatch as error:
        # The user of a spelling need not know its operator.
        raise TypeMismatch(error.message.replace(f"{operator} ", f"{name} ", 1)) from None
    if isinstance(term.type, AccessType) and prod(n or 1 for n in term.type.dims) > LARGEST:
        raise TypeMismatch(f"{name} requires a result of less than 2^63 elements, got {term.type}")
    return term


class Tensors:
    """Tensors by name. A tensor that the text does not declare is looked up in `shapes` when it is first read."""

    def __init__(
        self, reader: Reader, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str], constants: Collection[str]
    ) -> None:
        self._reader, self._shapes, self._dtypes, self._constants = reader, shapes, dtypes, constants
        self._tensors: dict[str, Tensor] = {}

    def names(self) -> Collection[str]:
        """Returns all names that can be read."""
        return self._tensors.keys() | self._shapes.keys()

    def inputs(self) -> tuple[Tensor, ...]:
        """Returns the inputs, in the order in which the text declares or first reads them."""
        return tuple(tensor for tensor in self._tensors.values() if not tensor.constant)

    def declare(self, opening: Token) -> None:
        """Reads (input name (shape ..) dtype) or (constant ..), after the opening parenthesis."""
        arguments = Arguments(self._reader)
        keyword = self._reader.take().text
        name = arguments.name(keyword, "name")
        dims = arguments.shape(keyword)
        dtype = arguments.optional_dtype(keyword, self._dtypes.get(name, "float32"))
        arguments.close(keyword, "name shape dtype")
        tensor = f"tensor {spelled_name(name)}"
        if name in self._tensors:
            raise self._reader.error(f"{tensor} is declared twice", opening.offset)
        given = Dims(self._shapes.get(name, dims))
        if given != dims:
            message = f"{tensor} is declared with the shape {spelled(dims)}, but given with {spelled(given)}"
            raise self._reader.error(message, opening.offset)
        if self._dtypes.get(name, dtype) != dtype:
            message = f"{tensor} is declared with the dtype {dtype}, but given with {self._dtypes[name]}"
            raise self._reader.error(message, opening.offset)
        self._add(Tensor(name, dims, dtype, keyword == "constant"), opening)

    def get(self, name: str, token: Token) -> Tensor:
        if name not in self._tensors:
            if name not in self._shapes:
                plain = spelled_name(name)
                message = (
                    f"no shape for tensor {shortened(name, quoted=True)}: declare it with (input {plain} (shape ..)) "
                    f"or give it with {option_hints.shape(name)}"
                )
                raise self._reader.error(message, token.offset)
            dims, dtype = Dims(self._shapes[name]), self._dtypes.get(name, "float32")
            self._add(Tensor(name, dims, dtype, name in self._constants), token)
        return self._tensors[name]

    def _add(self, tensor: Tensor, token: Token) -> None:
        self._reader.at(token, lambda: make_term("access-tensor", "access-tensor", [tensor]))
        self._tensors[tensor.name] = tensor


class Scope:
    """Values by name; an inner binding hides an outer one until it is unbound."""

    def __init__(self, reader: Reader) -> None:
        self.defining: list[str] = []
        self._reader = reader
        self._values: dict[str, list[Any]] = {}
        self._lists: list[int] = []  # the depths of parentheses inside the open binding lists

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
        """Begins a list of bindings, whose parenthesis was just read."""
        self._lists.append(self._reader.depth)

    def close_list(self) -> None:
        self._lists.pop()

    def unknown(self, token: Token, tensors: Collection[str]) -> ParseError:
        """Returns the error of a name that is not bound where it is used."""
        name, plain = token.text, spelled_name(token.text)
        later = self._bound_later(name)
        if name in self.defining:
            message = f"the let name {plain} is used in its own definition"
        elif later is not None:
            message = f"the let name {plain} is used before it is bound at {later.line}:{later.column}"
        elif name in tensors:
            message = f"unknown name {plain}; a tensor is read by (access-tensor {plain})"
        else:
            message = f"unknown name {plain}{suggestion(name, self._values)}"
        return self._reader.error(message, token.offset)

    def _bound_later(self, name: str) -> Place | None:
        """Returns the place of a later binding of that name in an open binding list, if any."""
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
