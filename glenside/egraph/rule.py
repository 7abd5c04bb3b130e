"""Rules as values: what the e-graph is saturated with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any

from glenside.egraph.encode import compiled
from glenside.egraph.sexpr import Sexpr, read_all, write
from glenside.egraph.symbolic import SymbolicInt
from glenside.ir.operator import OPERATORS

Formula = Callable[..., Any]
"""A function of sizes to a size, in the arithmetic of `glenside.ir.sizes`."""
Parameters = Mapping[str, int | Formula]
"""What a target gives to rules: `$name` is an int, a call `(name a b)` a formula."""


@dataclass(frozen=True)
class Clause:
    """One egglog rule: facts, in an order in which each variable is bound before a primitive reads it, then actions."""

    facts: str
    actions: str


@dataclass(frozen=True, eq=False)
class Example:
    """Where a rule fires: a program text with sizes as `$letters`, drawn afresh by each test.

    `wants` are egglog facts about `root` and the program's let names (`$root` reads as the root's class).
    """

    text: str
    shapes: Mapping[str, str] = field(default_factory=dict)
    wants: str = ""
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Rule:
    """A named equation.

    An analysis only adds facts, and runs to its fixed point before any other rule. An expansive rule runs under
    back-off.
    """

    name: str
    family: str
    doc: str
    clauses: tuple[Clause, ...]
    examples: tuple[Example, ...]
    relations: str = ""
    expansive: bool = False

    @property
    def analysis(self) -> bool:
        return self.family.endswith("analyses")

    @property
    def equation(self) -> str:
        """The first paragraph of the docstring."""
        return " ".join(self.doc.strip().split("\n\n")[0].split())

    def egglog(self, parameters: Parameters, trace: bool = False) -> str:
        """The rule as commands, in a ruleset of its own name; a call `(name ..)` of a formula is written out.

        With `trace`, a fact `(made class operator rule)` for every e-node that it builds.
        """
        formulas = {name: value for name, value in parameters.items() if callable(value)}
        lines = [f"(ruleset {self.name})"]
        for i, clause in enumerate(self.clauses):
            name = self.name if len(self.clauses) == 1 else f"{self.name}#{i + 1}"
            facts = _written_out(Template(clause.facts).substitute(parameters), formulas)
            actions = _written_out(Template(clause.actions).substitute(parameters), formulas)
            if trace:
                actions = f"{actions} {' '.join(_made(actions, self.name))}"
            lines += compiled(name, self.name, facts, actions)
        return "\n".join(lines)


def _made(actions: str, rule: str) -> list[str]:
    """The facts that say which e-nodes these actions build."""
    found: dict[str, None] = {}

    def visit(expression: Sexpr) -> None:
        if isinstance(expression, list) and expression:
            for part in expression[1:]:
                visit(part)
            if expression[0] in OPERATORS:
                found[f'(made {write(expression)} "{expression[0]}" "{rule}")'] = None

    for action in read_all(actions):
        visit(action)
    return list(found)


def _written_out(text: str, formulas: Mapping[str, Formula]) -> str:
    if not any(f"({name} " in text for name in formulas):
        return text

    def expand(expression: Sexpr) -> Sexpr:
        if isinstance(expression, str):
            return expression
        parts = [expand(part) for part in expression]
        if parts and isinstance(parts[0], str) and parts[0] in formulas:
            (result,) = read_all(str(formulas[parts[0]](*(SymbolicInt(write(part)) for part in parts[1:]))))
            return result
        return parts

    return " ".join(write(expand(expression)) for expression in read_all(text))


def rewrite(left: str, right: str, when: str = "") -> Clause:
    """left = right: where `left` is found and `when` holds, `right` is added to its class, which is `root`."""
    return Clause(f"(= root {left}) {when}", f"(union root {right})")
