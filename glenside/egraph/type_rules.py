"""Generates type rules over e-classes from operators: each `Operator.result` is run on symbolic types.

`dims`, `split` and `dtype` are functions from e-classes to primitive values, without a merge: if a rewrite unites two
classes of different type, egglog stops the run with an error, as intended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from glenside.egraph.pattern import Call, Pattern, Written, of_operator
from glenside.egraph.sexpr import row_said
from glenside.egraph.shape_functions import SHAPE_FUNCTIONS
from glenside.egraph.sorts import INT, INTS, TEXT, Sort, columns_of
from glenside.ir.operator import COMPUTES, OPERATORS, Category, Field, Kind, Operator
from glenside.ir.operators import CATEGORY_RESULT


class Facts(list[str]):
    """The facts collected while a type rule runs symbolically, in the order of binding."""

    def bind(self, call: str) -> str:
        name = f"v{len(self)}"
        self.append(f"(= {name} {call})")
        return name


class Symbol(Written):
    """A symbolic int or `glenside.ir.types.Dims` in a type rule.

    A call of a shape function is bound by a fact, after its arguments, which are the keys of the look-up.
    """

    __slots__ = ("facts",)

    def __init__(self, text: str, sort: Sort | None, facts: Facts) -> None:
        super().__init__(text, sort)
        self.facts = facts

    def combine(self, operation: str, a: Any, b: Any) -> Symbol:
        return Symbol(super().combine(operation, a, b).egglog(), INT, self.facts)

    def apply(self, function: str, *arguments: Any) -> Symbol:
        call = super().apply(function, *arguments)
        if function not in SHAPE_FUNCTIONS:
            return Symbol(call.egglog(), call.sort, self.facts)
        assert isinstance(call, Call)
        keys = [argument.egglog() for argument in call.arguments]
        keys = [self.facts.bind(key) if key.startswith("(") else key for key in keys]
        return Symbol(self.facts.bind(f"({' '.join([function, *keys])})"), call.sort, self.facts)

    def get(self, axis: Any) -> Pattern:
        return self[axis]

    def insert(self, axis: Any, size: Any) -> Pattern:
        return self.take(axis).append([size]).append(self.drop(axis))

    def access(self, item: Any, dtype: str) -> SymbolicType:
        return SymbolicType(self.append(item), self.length, dtype)


@dataclass(frozen=True)
class SymbolicType:
    """A symbolic `glenside.ir.types.AccessType`."""

    dims: Any
    split: Any
    dtype: str

    @property
    def shape(self) -> Any:
        return self.dims.take(self.split)

    @property
    def item(self) -> Any:
        return self.dims.drop(self.split)

    @property
    def rank(self) -> Any:
        return self.dims.length

    def with_dims(self, dims: Pattern) -> SymbolicType:
        return replace(self, dims=dims)

    def with_split(self, split: Any) -> SymbolicType:
        return replace(self, split=split)

    def with_dtype(self, dtype: str) -> SymbolicType:
        return replace(self, dtype=dtype if dtype.startswith(('"', "?")) else f'"{dtype}"')

    def widened(self) -> SymbolicType:
        return replace(self, dtype=self.dims.facts.bind(f"(widened {self.dtype})"))


def _operand(facts: Facts, name: str) -> SymbolicType:
    for function in ("dims", "split", "dtype"):
        facts.append(f"(= {name}-{function} ({function} {name}))")
    return SymbolicType(Symbol(f"{name}-dims", INTS, facts), Symbol(f"{name}-split", INT, facts), f"{name}-dtype")


def _argument(field: Field, facts: Facts) -> Any:
    """Returns the symbolic argument of an operator: a type, a symbol, a pair of them, or the text of a variable."""
    if field.kind is Kind.TERM:
        return _operand(facts, f"?{field.name}")
    symbols = [Symbol(f"?{c.name}", c.sort, facts) for c in columns_of(field)]
    if symbols[0].sort is TEXT:
        return symbols[0].text
    return tuple(symbols) if len(symbols) > 1 else symbols[0]


TypeRule: TypeAlias = tuple[str, str, str]
"""The type rule of one kind of e-node: name, facts, actions."""


def _typed(name: str, facts: Facts, result: SymbolicType) -> TypeRule:
    types = {"dims": result.dims, "split": result.split, "dtype": result.dtype}
    actions = [f"(set ({function} root) {value})" for function, value in types.items()]
    actions.append(row_said(f"(typed root {' '.join(map(str, types.values()))})"))
    return f"type of {name}", " ".join(_needed(facts, actions)), " ".join(actions)


def _needed(lines: Sequence[str], actions: Sequence[str]) -> list[str]:
    """Removes facts that only bind an unread variable: each fact costs time in every pass."""
    kept: list[str] = []
    read = " ".join(actions)
    for line in reversed(lines):
        bound = re.fullmatch(r"\(= (\S+) \((?:dims|split|dtype) \S+\)\)", line)
        if bound is None or re.search(rf"(?<![\w?-]){re.escape(bound[1])}(?![\w-])", read):
            kept.append(line)
            read += f" {line}"
    return kept[::-1]


def _operator_rule(operator: Operator) -> TypeRule:
    names = (f"?{column.name}" for column in of_operator(operator).columns)  # the ? keeps them apart from functions
    facts = Facts([f"(= root ({' '.join([operator.name, *names])}))"])
    return _typed(operator.name, facts, operator.result(*(_argument(f, facts) for f in operator.fields)))


def _compute_rules() -> list[TypeRule]:
    """Returns one rule per category and dtype; the kinds are rows of the relations `category` and `compute-dtype`."""
    rules = []
    for category in Category:
        for dtype in sorted({c.dtype for c in COMPUTES.values() if c.category is category}):
            kind = f'(category ?kind "{category.value}")', f'(compute-dtype ?kind "{dtype}")'
            facts = Facts(["(= root (compute ?kind ?a))", *kind])
            operand = _operand(facts, "?a")
            result = CATEGORY_RESULT[category](operand)
            if dtype == "widen":
                result = result.widened()
            elif dtype != "same":
                result = result.with_dtype(dtype)
            rules.append(_typed(f"compute {category.value} {dtype}", facts, result))
    return rules


def type_rules() -> list[TypeRule]:
    """Returns the type rules of all symbolic operators."""
    plain = [o for o in OPERATORS.values() if o.symbolic and o.name != "compute"]
    made = [o for o in plain if any(f.kind in (Kind.TERM, Kind.SHAPE) for f in o.fields)]
    return [_operator_rule(o) for o in made] + _compute_rules()
