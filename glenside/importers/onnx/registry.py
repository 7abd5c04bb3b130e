"""ONNX operators by name: one function each, that turns a node into terms. Modules of `operators` are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from glenside.importers.onnx.values import Value

if TYPE_CHECKING:
    from glenside.importers.onnx.node import Node

Made = Value | Sequence[Value]
"""What a node gives: one value, or one for each output."""
Import = Callable[["Node"], Made]

_IMPORTS: dict[tuple[str, str], Import] = {}


def onnx_operator(*names: str, domain: str = "") -> Callable[[Import], Import]:
    """Register the function as the meaning of ONNX operators of these names; it reads `node.version` where it must.

    Raises ValueError for a name declared twice.
    """

    def declare(function: Import) -> Import:
        for name in names:
            if (domain, name) in _IMPORTS:
                raise ValueError(f"the ONNX operator {name} is declared twice")
            _IMPORTS[domain, name] = function
        return function

    return declare


@cache
def imports() -> dict[tuple[str, str], Import]:
    """(domain, name) -> function, of every module."""
    from glenside.importers.onnx import operators

    for name in sorted(info.name for info in iter_modules(operators.__path__)):
        import_module(f"{operators.__name__}.{name}")
    return _IMPORTS
