"""Rewrite rules as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from string import Template
from typing import Any

from glenside.egraph.clause import Action, Clause
from glenside.egraph.encode import made
from glenside.egraph.pattern import Fact, Pattern, Written
from glenside.egraph.queries import compiled
from glenside.egraph.schema import BUILT_IN, Formula
from glenside.egraph.sexpr import Sexpr, read_all, write
from glenside.egraph.sorts import INT
from glenside.ir.operator import Example as Shown

Parameters = Mapping[str, int | Callable[..., Any]]
"""The parameters of a target: an int for `$name`, or a formula for a call `(name a b)`: a function of sizes to a size,
in the arithmetic of `glenside.ir.types`."""


@dataclass(frozen=True, eq=False)
class Example(Shown):
    """A program in which a rule fires.

    `wants`: facts about nodes of the program (`schema.access_at`) that hold before the search begins.
    """

    wants: Sequence[Fact | Action] = ()
    parameters: Parameters = field(default_factory=dict)

    @property
    def demands(self) -> str:
        """The wants in egglog syntax, with `$root` for the class of the program's result."""
        return " ".join(want.said() for want in self.wants)


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
    expansive: bool = False
    analysis: bool = False

    def __repr__(self) -> str:
        return f"<rule {self.name}>"

    @property
    def equation(self) -> str:
        """The first paragraph of the docstring."""
        return " ".join(self.doc.strip().split("\n\n")[0].split())

    @property
    def reason(self) -> str:
        """The rest of the docstring: the purpose of the rule, and why it is sound."""
        return " ".join(self.doc.strip().partition("\n\n")[2].split())

    def equations(self) -> list[str]:
        """Returns each clause as `LEFT = RIGHT where GUARDS`, or `FACTS => ACTIONS`."""
        return list(map(str, self.clauses))

    @property
    def subsumes(self) -> bool:
        """True if the rule subsumes e-nodes that another form replaces."""
        actions = (action for clause in self.clauses for action in clause.actions)
        return any(isinstance(action, Action) and action.name == "subsume" for action in actions)

    @cached_property
    def declarations(self) -> tuple[str, ...]:
        """The egglog commands that declare the relations and functions of its clauses, one per line."""
        used = [head.declaration for clause in self.clauses for head in clause.signatures if head not in BUILT_IN]
        return tuple(dict.fromkeys(line for text in used for line in text.splitlines()))

    @cached_property
    def parameters(self) -> frozenset[str]:
        """The names of the parameters and formulas that a target must give."""
        heads = {head.name for clause in self.clauses for head in clause.signatures if isinstance(head, Formula)}
        return frozenset(heads.union(*(clause.parameters for clause in self.clauses)))

    def egglog(self, parameters: Parameters, trace: bool = False) -> str:
        """Returns the rule as egglog commands, in a ruleset of its name; calls `(name ..)` of formulas are expanded.

        With `trace`, the commands record the e-nodes that the rule builds. Raises ValueError for a missing parameter.
        """
        if missing := sorted(self.parameters - parameters.keys()):
            raise ValueError(
                f"the rule {self.name} requires the parameter {missing[0]}, which the target does not give"
            )
        formulas = {name: value for name, value in parameters.items() if callable(value)}
        lines = [f"(ruleset {self.name})"]
        for i, clause in enumerate(self.clauses):
            name = self.name if len(self.clauses) == 1 else f"{self.name}#{i + 1}"
            facts, actions = (_written_out(Template(t).substitute(parameters), formulas) for t in clause.texts)
            if trace:
                actions = f"{actions} {made(actions, self.name, clause.source)}"
            # An expansive rule has too many matches to store them.
            sorts = () if self.expansive else clause.sorts
            lines += compiled(name, self.name, facts, actions, sorts, self.analysis or self.subsumes)
        return "\n".join(lines)


def _written_out(text: str, formulas: Mapping[str, Callable[..., Any]]) -> str:
    if not any(f"({name} " in text for name in formulas):
        return text

    def expand(expression: Sexpr) -> Sexpr:
        if isinstance(expression, str):
            return expression
        parts = [expand(part) for part in expression]
        if parts and isinstance(parts[0], str) and parts[0] in formulas:
            size = formulas[parts[0]](*(Written(write(part), INT) for part in parts[1:]))
            (result,) = read_all(size.egglog() if isinstance(size, Pattern) else str(size))
            return result
        return parts

    return " ".join(write(expand(expression)) for expression in read_all(text))
