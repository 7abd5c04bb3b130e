"""Defines a call during import, and the records of ATen operators: name, overloads, meaning or reason of refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any, TypeVar

from glenside.builder import Builder
from glenside.builder.layout import reshape
from glenside.builder.pointwise import cast
from glenside.importers.torch.graph import Call, Meta
from glenside.importers.torch.promotion import Number
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.packages import load
from glenside.ir.term import Term

if TYPE_CHECKING:
    from glenside.importers.torch.walk import Scope

Operand = Term | Number
"""An argument of an operator: a tensor, ()(dims), or a Python number."""


class Refused(BadInput):
    """A call that has no meaning here, or none for these arguments."""


@dataclass(frozen=True)
class Node:
    """A call whose arguments are terms. `scope` declares constants and layers."""

    call: Call
    scope: Scope

    @property
    def result(self) -> Meta:
        """The dims and dtype of the first result. Raises BadInput if it is not a tensor."""
        for meta in self.call.results:
            if meta is not None:
                return meta
        raise Refused("has no result that is a tensor")

    @property
    def dims(self) -> tuple[int, ...]:
        return self.result.dims

    @property
    def dtype(self) -> str:
        return self.result.dtype

    @property
    def builder(self) -> Builder:
        return self.scope.builder

    def known(self, term: Term) -> Array | None:
        """Returns the value of a term if it is known at import, or None."""
        return self.scope.known.of(term)

    def constant(self, value: Array, part: str = "") -> Term:
        """Declares a constant that is named after the node."""
        return self.scope.constant(f"{self.call.name}.{part}" if part else self.call.name, value)

    def filled(self, dims: Sequence[int], value: Number, dtype: str) -> Term:
        """Returns one number everywhere."""
        return self.scope.filled(dims, value, dtype, f"{self.call.name}.value")

    def number(self, value: Number, dtype: str) -> Term:
        """Returns one number, ()()."""
        return self.filled((), value, dtype)

    def operand(self, value: Operand, dtype: str) -> Term:
        """Returns a tensor or number as a tensor of this dtype."""
        return cast(value, dtype) if isinstance(value, Term) else self.number(value, dtype)

    def of_result(self, term: Term) -> Node:
        """Returns the node as a call whose result is like a term."""
        return replace(self, call=replace(self.call, results=[Meta(tuple(term.access.dims), term.access.dtype)]))

    def layer_name(self) -> str:
        """Returns a name for a product: that of the module that calls it, or of the node."""
        return self.scope.layer_name(self.call.layer or self.call.name)


Import = Callable[..., Any]
"""The meaning of an operator: its node and ATen's arguments -> a term, or a list or tuple for several results."""


@dataclass(frozen=True)
class Record:
    """An ATen operator.

    overloads  names of overloads that `meaning` takes
    meaning    None if it is refused
    why        the reason of a refusal, or what is refused of an operator that has a meaning
    kind       the module that declares it
    """

    name: str
    overloads: tuple[str, ...]
    meaning: Import | None
    why: str
    kind: str


_RECORDS: dict[str, Record] = {}
Registered = TypeVar("Registered", bound=Import)


def aten(name: str, *overloads: str, but: str = "") -> Callable[[Registered], Registered]:
    """Registers a function as the meaning of an operator; default is the only overload if none is given.

    but  what is refused, for the table in the documents

    Raises ValueError for a name that is declared twice.
    """

    def declare(function: Registered) -> Registered:
        register(name, function, overloads or ("default",), but, function.__module__)
        return function

    return declare


def register(name: str, meaning: Import | None, overloads: tuple[str, ...], why: str, module: str) -> None:
    """Adds a record. Raises ValueError for a name that is declared twice."""
    if name in _RECORDS:
        raise ValueError(f"the ATen operator {name} is declared twice")
    _RECORDS[name] = Record(name, overloads, meaning, why, module.rpartition(".")[2])


@cache
def records() -> dict[str, Record]:
    """Returns name -> record of every module of `operators`."""
    from glenside.importers.torch import operators

    load(sorted(info.name for info in walk_packages(operators.__path__, f"{operators.__name__}.")))
    return dict(sorted(_RECORDS.items()))


def axis_of(axis: int, rank: int) -> int:
    """Returns an axis counted from the first one. A tensor without axes counts as one of one axis. Raises BadInput."""
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise Refused(f"requires an axis from {-rank} to {rank - 1}, got {axis}")
    return axis % max(rank, 1)


def axes_of(axes: int | Sequence[int] | None, rank: int) -> list[int]:
    """Returns axes counted from the first one; all of them for none."""
    if axes is None or axes == [] or axes == ():
        return list(range(rank))
    given = [axes] if isinstance(axes, int) else axes
    return [axis_of(axis, rank) for axis in given] if rank else []


def with_axis(x: Term) -> Term:
    """Returns a tensor without axes as a vector of one element."""
    return x if x.access.rank else reshape(x, (1,))
