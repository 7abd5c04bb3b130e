"""Defines an equation of a jaxpr during import, and the records of primitives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any, TypeVar

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.packages import load
from glenside.ir.term import Term

if TYPE_CHECKING:
    from glenside.importers.jax.walk import Scope


class Refused(BadInput):
    """An equation that has no meaning here, or none for these operands."""


@dataclass(frozen=True)
class Equation:
    """An equation: the dims and dtypes of its results, its parameters, and the scope that declares constants.

    layer   the path of the module that it belongs to, or ""
    """

    primitive: str
    results: tuple[tuple[tuple[int, ...], str], ...]
    params: Mapping[str, Any]
    layer: str
    scope: Scope

    @property
    def dims(self) -> tuple[int, ...]:
        return self.results[0][0]

    @property
    def dtype(self) -> str:
        return self.results[0][1]

    def known(self, term: Term) -> Array | None:
        """Returns the value of a term if it is known at import, or None."""
        return self.scope.known.of(term)

    def filled(self, dims: tuple[int, ...], value: float, dtype: str) -> Term:
        """Returns one number everywhere."""
        return self.scope.filled(dims, value, dtype, f"{self.primitive}.value")

    def layer_name(self) -> str:
        """Returns a name for a product: that of its module, or of the primitive."""
        return self.scope.layer_name(self.layer or self.primitive)


Meaning = Callable[..., Any]
"""(equation, operands ..) -> a term, or a list of terms for several results."""

_RECORDS: dict[str, Meaning] = {}
Registered = TypeVar("Registered", bound=Meaning)


def primitive(*names: str) -> Callable[[Registered], Registered]:
    """Registers a function as the meaning of primitives. Raises ValueError for a name that is declared twice."""

    def declare(function: Registered) -> Registered:
        for name in names:
            register(name, function)
        return function

    return declare


def register(name: str, meaning: Meaning) -> None:
    """Adds the meaning of a primitive. Raises ValueError for a name that is declared twice."""
    if name in _RECORDS:
        raise ValueError(f"the primitive {name} is declared twice")
    _RECORDS[name] = meaning


@cache
def meanings() -> Mapping[str, Meaning]:
    """Returns name -> meaning of every module of `primitives`."""
    from glenside.importers.jax import primitives

    load(sorted(info.name for info in walk_packages(primitives.__path__, f"{primitives.__name__}.")))
    return dict(sorted(_RECORDS.items()))
