"""A page about one rule: its equation, its clauses, why it is sound, and what it makes of an example."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from glenside.egraph.examples import example_program, shown
from glenside.egraph.rule import Rule
from glenside.ir.text import print_term

_WIDTH = 100


@dataclass(frozen=True)
class RulePage:
    """What `glenside rules NAME` shows; `after` is None for a rule that adds facts and no terms."""

    name: str
    family: str
    equation: str
    clauses: Sequence[str]
    reason: str
    before: str
    after: str | None

    def __str__(self) -> str:
        after = self.after or "Facts alone: no term is added."
        parts = (
            f"{self.name}, of the family {self.family}",
            _folded(self.equation),
            "\n".join(_folded(clause, hanging="        ") for clause in self.clauses),
            _folded(self.reason),
            f"Before:\n{textwrap.indent(self.before, '    ')}",
            f"After:\n{textwrap.indent(after, '    ')}",
        )
        return "\n\n".join(parts)


def rule_page(rule: Rule) -> RulePage:
    """The page about a rule; its first example that the rule adds a term to, or its first, is run here."""
    from rewrites import RULES

    analyses = [other for other in RULES.values() if other.analysis]
    changed = next((c for example in rule.examples if (c := shown(rule, example, analyses))), None)
    before = changed.before if changed else example_program(rule.examples[0]).term
    after = print_term(changed.after) if changed else None
    return RulePage(rule.name, rule.family, rule.equation, rule.equations(), rule.reason, print_term(before), after)


def _folded(text: str, hanging: str = "") -> str:
    """The text in lines of a page; lines after the first are indented by `hanging`, all by half of it."""
    first = hanging[: len(hanging) // 2]
    return textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=hanging, break_on_hyphens=False)
