"""Defines a node during import: its inputs and attributes, typed accessors for them, and the registry of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from glenside.builder import Builder
from glenside.builder.layout import reshape
from glenside.importers.onnx.tensors import array_of
from glenside.ir.dtypes import is_integer
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.packages import load
from glenside.ir.term import Term, postorder
from glenside.ir.types import Tensor

if TYPE_CHECKING:
    from glenside.importers.onnx.graph import Scope


@dataclass(frozen=True)
class Items:
    """An ONNX sequence with a known number of values."""

    values: tuple[Value, ...]
    dtype: str = "float32"
    """The dtype of its elements, which an empty sequence has too."""


Value = Term | Items | None
"""A tensor, ()(dims); a sequence; or None for an optional value that is not given."""


Attribute = int | float | str | list[Any] | Any
"""A number, a text, a list of those, or a protobuf message (tensor, graph, type)."""


class NoTerm(BadInput):
    """A node that cannot become a term, although earlier nodes may: the model can be cut before it."""


class DependsOnData(NoTerm):
    """A shape, an axis or a count that depends on data, so that the type of a result is unknown.

    value  the term whose value is required
    """

    def __init__(self, message: str, value: Term | None = None) -> None:
        super().__init__(message)
        self.value = value

    def unknown(self, known: Callable[[Term], object]) -> list[Tensor]:
        """Returns the inputs whose values make it known; none if it depends on more, such as random numbers."""
        if self.value is None:
            return []
        leaves: list[Tensor] = []
        for term in postorder(self.value):
            if term.operator.opaque:
                return []
            if term.operator.name == "access-tensor" and known(term) is None:
                tensor = term.attributes[0]
                if not isinstance(tensor, Tensor) or tensor.constant:
                    return []
                leaves.append(tensor)
        return leaves


@dataclass(frozen=True)
class Node:
    """One node. Inputs are counted from 0; a missing or empty one is None.

    version   of the operator set of its domain, on which the meaning may depend
    outputs   the names of its outputs, empty for unused ones
    """

    op_type: str
    domain: str
    name: str
    version: int
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    scope: Scope

    @property
    def builder(self) -> Builder:
        return self.scope.builder

    def layer_name(self, part: str = "") -> str:
        """Returns a layer name for a product of this node that no layer has yet."""
        return self.scope.layer_name(f"{self.name}{part}")

    def value(self, i: int) -> Value:
        """Returns input i, or None."""
        return self.inputs[i] if i < len(self.inputs) else None

    def optional(self, i: int) -> Term | None:
        """Returns input i as a tensor, or None."""
        value = self.value(i)
        if isinstance(value, Items):
            raise BadInput(f"input {i} requires a tensor, got a sequence")
        return value

    def term(self, i: int) -> Term:
        """Returns input i as a tensor, ()(dims). Raises BadInput."""
        term = self.optional(i)
        if term is None:
            raise BadInput(f"input {i} is required, got nothing")
        return term

    def items(self, i: int) -> Items:
        """Returns input i as a sequence. Raises BadInput."""
        value = self.value(i)
        if not isinstance(value, Items):
            raise BadInput(f"input {i} requires a sequence, got {'nothing' if value is None else 'a tensor'}")
        return value

    def terms(self) -> list[Term]:
        """Returns all inputs as tensors."""
        return [self.term(i) for i in range(len(self.inputs))]

    def single(self, i: int) -> Term:
        """Returns input i, of one element, as ()(). Raises BadInput."""
        if self.term(i).access.size != 1:
            raise BadInput(f"input {i} requires one number, got {self.term(i).access}")
        return reshape(self.term(i), ())

    def known(self, i: int) -> Array:
        """Returns the value of input i, which must be known at import, as shapes and axes must. Raises BadInput."""
        value = self.scope.known(self.term(i))
        if value is None:
            words = f"input {i} requires a value that is known at import, got one that depends on data"
            raise DependsOnData(words, self.term(i))
        return value

    def known_ints(self, i: int) -> list[int] | None:
        """Returns the integers of an optional input that is known at import, in row-major order."""
        if self.optional(i) is None:
            return None
        value = self.known(i)
        if not is_integer(value.dtype):
            raise BadInput(f"input {i} requires integers, got {value.dtype}")
        return [int(n) for n in value.reshape(-1)]

    @overload
    def known_int(self, i: int, standard: int, what: str = "number") -> int: ...
    @overload
    def known_int(self, i: int, standard: None, what: str = "number") -> int | None: ...
    def known_int(self, i: int, standard: Any, what: str = "number") -> Any:
        """Returns the single integer of an optional input that is known at import. Raises BadInput."""
        numbers = self.known_ints(i)
        if numbers is not None and len(numbers) != 1:
            raise BadInput(f"input {i} requires one {what}, got {len(numbers)}")
        return numbers[0] if numbers else standard

    def constant(self, value: Array, name: str = "") -> Term:
        """Returns a constant of the program with that value."""
        return self.scope.constant(name or self.name or self.op_type, np.asarray(value))

    def _attribute(self, name: str, kinds: type | tuple[type, ...], words: str) -> Any:
        value = self.attributes[name]
        if not isinstance(value, kinds):
            raise BadInput(f"attribute {name} requires {words}, got {_shown(value)}")
        return value

    @overload
    def integer(self, name: str, standard: int) -> int: ...
    @overload
    def integer(self, name: str, standard: None = None) -> int | None: ...
    def integer(self, name: str, standard: Any = None) -> Any:
        """Returns an integer attribute."""
        return self._attribute(name, int, "a whole number") if name in self.attributes else standard

    def number(self, name: str, standard: float) -> float:
        """Returns an attribute that is a number."""
        return float(self._attribute(name, (float, int), "a number")) if name in self.attributes else standard

    def text(self, name: str, standard: str, *choices: str) -> str:
        """Returns a text attribute, one of the choices if there are any."""
        value: str = self._attribute(name, str, "a text") if name in self.attributes else standard
        if choices and value not in choices:
            raise BadInput(f"attribute {name} is one of {', '.join(choices)}, got {value!r}")
        return value

    @overload
    def integers(self, name: str, standard: Sequence[int]) -> list[int]: ...
    @overload
    def integers(self, name: str, standard: None = None) -> list[int] | None: ...
    def integers(self, name: str, standard: Any = None) -> Any:
        """Returns an attribute that is a list of integers."""
        return self._list(name, int, "whole numbers", standard)

    def numbers(self, name: str) -> list[float] | None:
        """Returns an attribute that is a list of numbers."""
        return self._list(name, (float, int), "numbers")

    def texts(self, name: str) -> list[str] | None:
        """Returns an attribute that is a list of texts."""
        return self._list(name, str, "texts")

    def _list(
        self, name: str, kinds: type | tuple[type, ...], words: str, standard: Sequence[int] | None = None
    ) -> list[Any] | None:
        if name not in self.attributes:
            return None if standard is None else list(standard)
        value = self._attribute(name, list, f"a list of {words}")
        if not all(isinstance(v, kinds) for v in value):
            raise BadInput(f"attribute {name} requires a list of {words}, got {_shown(value)}")
        return list(value)

    def tensor(self, name: str) -> Array:
        """Returns a tensor attribute. Raises BadInput if it is missing."""
        value = self.attributes.get(name)
        if not hasattr(value, "data_type"):
            raise BadInput(f"attribute {name} requires a tensor, got {_shown(value)}")
        return array_of(value, self.scope.folder)

    def graph(self, name: str) -> Any:
        """Returns a graph attribute. Raises BadInput if it is missing."""
        value = self.attributes.get(name)
        if not hasattr(value, "initializer"):
            raise BadInput(f"attribute {name} requires a graph, got {_shown(value)}")
        return value

    def axis(self, name: str, standard: int, rank: int) -> int:
        """Returns an attribute that is an axis, counted from the end if it is negative. Raises BadInput."""
        return normal_axis(self.integer(name, standard), rank, f"attribute {name}")

    def wants(self, i: int) -> bool:
        """True if output i is used."""
        return i < len(self.outputs) and bool(self.outputs[i])


def normal_axis(axis: int, rank: int, what: str = "an axis") -> int:
    """Returns the axis as 0 <= axis < rank. Raises BadInput."""
    if not -rank <= axis < rank:
        raise BadInput(f"{what} requires a number from {-rank} to {rank - 1}, got {axis}")
    return axis % rank


def distinct_axes(values: Sequence[int], rank: int, what: str = "axes") -> list[int]:
    """Returns distinct axes of a tensor, counted from the first. Raises BadInput."""
    axes = [normal_axis(axis, rank, what) for axis in values]
    if len(set(axes)) < len(axes):
        raise BadInput(f"{what} requires different axes, got {values}")
    return axes


def _shown(value: object) -> str:
    text = repr(value) if value is not None else "nothing"
    return text if len(text) <= 40 else f"{text[:40]}..."


Import = Callable[[Node], Value | Sequence[Value]]
"""The meaning of an operator: one value, or one for each output."""
Registered = TypeVar("Registered", bound=Import)
_IMPORTS: dict[tuple[str, str], Import] = {}


def onnx_operator(*names: str, domain: str = "") -> Callable[[Registered], Registered]:
    """Registers a function as the meaning of ONNX operators of these names; it may depend on `node.version`.

      domain  of the operators, empty for the standard one

    Raises ValueError for a name declared twice.
    """

    def declare(function: Registered) -> Registered:
        for name in names:
            if (domain, name) in _IMPORTS:
                raise ValueError(f"the ONNX operator {domain}.{name} is declared twice".replace(" .", " "))
            _IMPORTS[domain, name] = function
        return function

    return declare


@cache
def imports() -> dict[tuple[str, str], Import]:
    """Returns (domain, name) of an operator -> function, of every module of `operators`."""
    from glenside.importers.onnx import operators

    load(sorted(info.name for info in walk_packages(operators.__path__, f"{operators.__name__}.")))
    return _IMPORTS
