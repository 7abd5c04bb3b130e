"""Builds the page about one rule: its equation, its clauses, why it is sound, and its effect on an example."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.egraph.examples import shown
from glenside.egraph.rule import Rule
from glenside.ir.text import print_term
from glenside.proofs.status import of_rule, sentences

_WIDTH = 100


@dataclass(frozen=True)
class RulePage:
    """The output of `glenside rules NAME`.

    `after` is None if the rule alone builds no term. `equal` is False if it builds a part rather than an equal term.
    """

    name: str
    family: str
    equation: str
    clauses: Sequence[str]
    reason: str
    before: str
    after: str | None
    equal: bool
    proofs: Sequence[Mapping[str, Any]]

    def __str__(self) -> str:
        after = self.after or "By itself the rule builds no term."
        proofs = "\n".join(map(_indented, sentences(self.proofs)))
        parts = (
            f"{self.name}, of the family {self.family}",
            _folded(self.equation),
            "\n".join(map(_clause, self.clauses)),
            *([f"Proofs of clauses, for all sizes:\n{proofs}"] if proofs else []),
            _folded(self.reason),
            f"Before:\n{textwrap.indent(self.before, '    ')}",
            f"{'After' if self.equal else 'Added to the e-graph'}:\n{textwrap.indent(after, '    ')}",
        )
        return "\n\n".join(parts)


def rule_page(rule: Rule) -> RulePage:
    """Returns the page of a rule, with its effect on its first example that it adds a term to, or else its first."""
    from glenside.rewrites import RULES

    analyses = [other for other in RULES.values() if other.analysis]
    changed = next((c for example in rule.examples if (c := shown(rule, example, analyses))), None)
    before = changed.before if changed else rule.examples[0].program().term
    equal = changed is None or changed.equal
    pair = print_term(before), print_term(changed.after) if changed else None
    return RulePage(rule.name, rule.family, rule.equation, rule.equations(), rule.reason, *pair, equal, of_rule(rule))


def _clause(text: str) -> str:
    """Formats a clause, with each condition on a line of its own."""
    first, *rest = re.split(r" (?=where |=> )", text)
    return "\n".join([_folded(first, "    "), *(_folded(part, "        ") for part in rest)])


def _indented(text: str) -> str:
    return _folded(text, "    ")


def _folded(text: str, indent: str = "") -> str:
    """Wraps a text to the width of the page."""
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent and f"{indent}    ", break_on_hyphens=False
    )
