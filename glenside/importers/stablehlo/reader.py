"""Evaluates regions of StableHLO: calls the rule of each operator, and inlines functions."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from glenside.importers.jax.equation import Equation, Refused
from glenside.importers.jax.walk import Scope, applied, placed
from glenside.importers.stablehlo.parser import RETURNS, Function, Module, Operation, Region
from glenside.importers.stablehlo.tokens import Constant, Type
from glenside.ir.errors import GlensideError
from glenside.ir.term import Term


@dataclass
class Reader:
    """Evaluates regions of a module. A constant is declared once, however often a loop or a call reaches it."""

    scope: Scope
    module: Module
    operators: Mapping[str, Rule]
    constants: dict[Operation, Term] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def results(self, region: Region, operands: Sequence[Term], outer: ChainMap[str, Term]) -> list[Term]:
        """Returns what a region returns for its arguments; `outer`: values outside of it. Raises BadInput."""
        if len(operands) != len(region.arguments):
            raise Refused(f"takes {len(region.arguments)} operands, got {len(operands)}")
        values = outer.new_child(dict(zip(region.arguments, operands, strict=True)))
        for op in _needed(region):
            with placed(f"the operator {op.name}", lambda op=op: f" (line {op.line})"):  # type: ignore[misc]
                terms = [_read(values, name) for name in op.operands]
                if op.name in RETURNS:
                    return terms
                values.update(zip(op.results, self._results(op, terms, values), strict=True))
        raise Refused("returns nothing")

    def _results(self, op: Operation, operands: list[Term], values: ChainMap[str, Term]) -> Sequence[Term]:
        if op.name == "stablehlo.constant":
            if op not in self.constants:
                self.constants[op] = self._constant(op)
            return [self.constants[op]]
        if op.name not in self.operators:
            raise Refused("has no meaning here; docs/jax.md lists those that have")
        try:
            return self.operators[op.name](Application(op, operands, values, self))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, GlensideError):
                raise
            raise Refused("has other operands or attributes than JAX writes") from error

    def _constant(self, op: Operation) -> Term:
        constant: Constant = op.attributes["value"]
        (dims, dtype), value = constant.type, constant.value
        name = op.results[0].strip("%")
        if value.ndim == 0:
            return self.scope.filled(dims, value.item(), dtype, name)
        return self.scope.constant(name, np.ascontiguousarray(value))

    def function(self, name: str) -> Callable[[Sequence[Term]], list[Term]]:
        """Returns a function of the module as one of terms. Raises Refused."""
        function = self.module.functions.get(name)
        if function is None:
            raise Refused(f"calls @{name}, which the text does not have")
        if name in self.calls:
            raise Refused(f"calls @{name}, which calls itself")

        def results(operands: Sequence[Term]) -> list[Term]:
            self.calls.append(name)
            found = self.results(_body(function, operands), operands, ChainMap())
            self.calls.pop()
            return found

        return results

    def layer(self, op: Operation) -> str:
        """Returns the path of the module of JAX that an operation belongs to, or ""."""
        parts = self.module.named(op.location[0]).split("/")[:-1]
        return ".".join(part for part in parts if "(" not in part)


def _body(function: Function, operands: Sequence[Term]) -> Region:
    got = [(tuple(x.access.dims), x.access.dtype) for x in operands]
    if got != list(function.types):
        raise Refused("calls a function with operands of other types than its arguments have")
    return function.body


def _read(values: Mapping[str, Term], name: str) -> Term:
    if name not in values:
        raise Refused(f"reads {name}, which nothing before it defines")
    return values[name]


def _needed(region: Region) -> list[Operation]:
    """Returns the operations on which the results depend, and the one that returns them."""
    read: set[str] = set()
    kept = []
    for op in reversed(region.operations):
        if op.name in RETURNS or read.intersection(op.results):
            kept.append(op)
            read |= op.reads
    return kept[::-1]


@dataclass(frozen=True)
class Application:
    """An operation with its operands, and what it takes to give it a meaning."""

    op: Operation
    operands: list[Term]
    values: ChainMap[str, Term]
    reader: Reader

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        return self.op.attributes

    def primitive(
        self, name: str, *operands: Term, results: Sequence[Type] | None = None, params: Mapping[str, Any] | None = None
    ) -> list[Term]:
        """Returns the results of a primitive of JAX, of this operation's types unless `results` says others."""
        types = tuple(self.op.types if results is None else results)
        layer = self.reader.layer(self.op)
        return applied(Equation(name, types, params or {}, layer, self.reader.scope), operands)

    def body(self, place: int) -> Callable[[Sequence[Term]], list[Term]]:
        """Returns one of its regions as a function of terms."""
        return lambda operands: self.reader.results(self.op.regions[place], operands, self.values)


Rule = Callable[[Application], Sequence[Term]]
"""An operator's results, as those of primitives of JAX."""
