"""The type rules of operators as rules over e-classes: each `Operator.result`, run on symbolic types.

`dims`, `split` and `dtype` are functions from e-classes to primitive values, without a merge: if rewriting ever united
two classes of different type, egglog stops the run with an error, which is what we want.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from glenside.egraph.pattern import of_operator
from glenside.egraph.symbolic import SymbolicInt
from glenside.ir.operator import COMPUTES, OPERATORS, Category, Kind, Operator
from glenside.ir.operators import CATEGORY_RESULT


@dataclass
class Facts:
    """The facts collected while a type rule runs symbolically, in the order in which they bind their variables."""

    lines: list[str] = field(default_factory=list)

    def bind(self, call: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"(= {name} {call})")
        return name


@dataclass(frozen=True)
class SymbolicDims:
    """Stands for `glenside.ir.types.Dims`; every method is an egglog primitive or a shape function."""

    text: str
    facts: Facts

    def _dims(self, text: str) -> SymbolicDims:
        return SymbolicDims(text, self.facts)

    def _named(self) -> str:
        """A variable for this value: shape functions are looked up by a bound key."""
        return self.facts.bind(self.text) if self.text.startswith("(") else self.text

    def _call(self, name: str, *arguments: Any) -> SymbolicDims:
        keys = [_bound(self.facts, a) for a in arguments]
        return self._dims(self.facts.bind(f"({' '.join([name, self._named(), *keys])})"))

    @property
    def length(self) -> SymbolicInt:
        return SymbolicInt(f"(vec-length {self.text})")

    def get(self, axis: Any) -> SymbolicInt:
        return SymbolicInt(f"(vec-get {self.text} {axis})")

    def take(self, n: Any) -> SymbolicDims:
        return self._call("take", n)

    def drop(self, n: Any) -> SymbolicDims:
        return self._call("drop", n)

    def set(self, axis: Any, size: Any) -> SymbolicDims:
        return self._dims(f"(vec-set {self.text} {axis} {size})")

    def insert(self, axis: Any, size: Any) -> SymbolicDims:
        return self.take(axis).append([size]).append(self.drop(axis))

    def remove(self, axis: Any) -> SymbolicDims:
        return self._dims(f"(vec-remove {self.text} {axis})")

    def append(self, other: Any) -> SymbolicDims:
        tail = f"(vec-of {' '.join(map(str, other))})" if isinstance(other, (list, tuple)) else other.text
        return self._dims(f"(vec-append {self.text} {tail})")

    def permute(self, order: SymbolicDims) -> SymbolicDims:
        return self._call("permute", order)

    def windows(self, window: SymbolicDims, strides: SymbolicDims) -> SymbolicDims:
        """`windows` folds over prefixes of its last argument, which is the windowed shape."""
        keys = [_bound(self.facts, window), _bound(self.facts, strides), self._named()]
        return self._dims(self.facts.bind(f"(windows {' '.join(keys)})"))

    def product(self) -> SymbolicInt:
        return SymbolicInt(self.facts.bind(f"(product {self._named()})"))

    def access(self, item: Any, dtype: str) -> SymbolicType:
        return SymbolicType(self.append(item), self.length, dtype)


def _bound(facts: Facts, value: Any) -> str:
    text = value.text if isinstance(value, (SymbolicDims, SymbolicInt)) else str(value)
    return facts.bind(text) if text.startswith("(") else text


@dataclass(frozen=True)
class SymbolicType:
    """Stands for `glenside.ir.types.AccessType`."""

    dims: SymbolicDims
    split: Any
    dtype: str

    @property
    def shape(self) -> SymbolicDims:
        return self.dims.take(self.split)

    @property
    def item(self) -> SymbolicDims:
        return self.dims.drop(self.split)

    @property
    def rank(self) -> SymbolicInt:
        return self.dims.length

    def with_dims(self, dims: SymbolicDims) -> SymbolicType:
        return replace(self, dims=dims)

    def with_split(self, split: Any) -> SymbolicType:
        return replace(self, split=split)

    def with_dtype(self, dtype: str) -> SymbolicType:
        return replace(self, dtype=dtype if dtype.startswith(('"', "?")) else f'"{dtype}"')

    def widened(self) -> SymbolicType:
        return replace(self, dtype=self.dims.facts.bind(f"(widened {self.dtype})"))


def _operand(facts: Facts, name: str) -> SymbolicType:
    for function in ("dims", "split", "dtype"):
        facts.lines.append(f"(= {name}-{function} ({function} {name}))")
    return SymbolicType(SymbolicDims(f"{name}-dims", facts), SymbolicInt(f"{name}-split"), f"{name}-dtype")


def _arguments(operator: Operator, facts: Facts) -> list[Any]:
    values: list[Any] = []
    for f in operator.fields:
        if f.kind is Kind.TERM:
            values.append(_operand(facts, f"?{f.name}"))
        elif f.kind is Kind.INT:
            values.append(SymbolicInt(f"?{f.name}"))
        elif f.kind in (Kind.INTS, Kind.SHAPE):
            values.append(SymbolicDims(f"?{f.name}", facts))
        elif f.kind is Kind.ACCESS_SHAPE:
            values.append((SymbolicDims(f"?{f.name}-shape", facts), SymbolicDims(f"?{f.name}-item", facts)))
        else:
            values.append(f"?{f.name}")
    return values


@dataclass(frozen=True)
class TypeRule:
    """An egglog rule that gives the type of one kind of e-node: facts, then what they justify."""

    name: str
    facts: tuple[str, ...]
    actions: tuple[str, ...]


def _typed(name: str, facts: Facts, result: SymbolicType) -> TypeRule:
    actions = (
        f"(set (dims root) {result.dims.text})",
        f"(set (split root) {result.split})",
        f"(set (dtype root) {result.dtype})",
    )
    return TypeRule(f"type of {name}", tuple(_needed(facts.lines, actions)), actions)


def _needed(lines: Sequence[str], actions: Sequence[str]) -> list[str]:
    """The facts without those that only bind a variable which nothing reads: each fact costs time in every pass."""
    kept: list[str] = []
    read = " ".join(actions)
    for line in reversed(lines):
        bound = re.fullmatch(r"\(= (\S+) \((?:dims|split|dtype) \S+\)\)", line)
        if bound is None or re.search(rf"(?<![\w?-]){re.escape(bound[1])}(?![\w-])", read):
            kept.append(line)
            read += f" {line}"
    return kept[::-1]


def _operator_rule(operator: Operator) -> TypeRule:
    columns = (f"?{column.name}" for column in of_operator(operator).columns)  # the ? keeps them apart from functions
    facts = Facts([f"(= root ({' '.join([operator.name, *columns])}))"])
    return _typed(operator.name, facts, operator.result(*_arguments(operator, facts)))


def _compute_rules() -> list[TypeRule]:
    """One rule per category; what the kinds are is in the relations `category` and `compute-dtype`."""
    rules = []
    for category in Category:
        for dtype in sorted({c.dtype for c in COMPUTES.values() if c.category is category}):
            facts = Facts(
                [
                    "(= root (compute ?kind ?a))",
                    f'(category ?kind "{category.value}")',
                    f'(compute-dtype ?kind "{dtype}")',
                ]
            )
            operand = _operand(facts, "?a")
            result = CATEGORY_RESULT[category](operand)
            if dtype == "widen":
                result = result.widened()
            elif dtype != "same":
                result = result.with_dtype(dtype)
            rules.append(_typed(f"compute {category.value} {dtype}", facts, result))
    return rules


def type_rules() -> list[TypeRule]:
    """The type rules of every operator that the algebra can say."""
    plain = [o for o in OPERATORS.values() if o.symbolic and o.name != "compute"]
    made = [o for o in plain if any(f.kind in (Kind.TERM, Kind.SHAPE) for f in o.fields)]
    return [_operator_rule(o) for o in made] + _compute_rules()
