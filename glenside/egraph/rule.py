"""Rules as values: what the e-graph is saturated with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template

from glenside.egraph.encode import compiled


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
    parameters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Rule:
    """A named equation. `text` holds what the e-graph needs; `$name` is a parameter of the target."""

    name: str
    family: str
    doc: str
    clauses: tuple[Clause, ...]
    examples: tuple[Example, ...]
    relations: str = ""
    expansive: bool = False

    @property
    def equation(self) -> str:
        """The first paragraph of the docstring."""
        return " ".join(self.doc.strip().split("\n\n")[0].split())

    def egglog(self, parameters: Mapping[str, int]) -> str:
        """The rule as commands, in a ruleset of its own name."""
        lines = [f"(ruleset {self.name})"]
        for i, clause in enumerate(self.clauses):
            name = self.name if len(self.clauses) == 1 else f"{self.name}#{i + 1}"
            facts = Template(clause.facts).substitute(parameters)
            actions = Template(clause.actions).substitute(parameters)
            lines += compiled(name, self.name, facts, actions)
        return "\n".join(lines)


def rewrite(left: str, right: str, when: str = "") -> Clause:
    """left = right: where `left` is found and `when` holds, `right` is added to its class, which is `root`."""
    return Clause(f"(= root {left}) {when}", f"(union root {right})")
