"""`@rule`: a function whose docstring is the equation and its reason, and whose value is the clauses."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from glenside.egraph.rule import Clause, Example, Rule

RULES: dict[str, Rule] = {}

Clauses = tuple[Clause, ...]


def rule(
    family: str, *examples: Example, relations: str = "", expansive: bool = False
) -> Callable[[Callable[[], Clauses]], Rule]:
    """Register the rule that the decorated function declares; its name is the function's, with hyphens.

    Raises ValueError for a rule without a docstring, a "Sound because", an example, or with a name taken before.
    """

    def declare(function: Callable[[], Clauses]) -> Rule:
        name, doc = function.__name__.replace("_", "-"), inspect.cleandoc(function.__doc__ or "")
        if "Sound because" not in doc:
            raise ValueError(f"the rule {name} does not say why it is sound")
        if not examples:
            raise ValueError(f"the rule {name} has no example")
        if name in RULES:
            raise ValueError(f"the rule {name} is declared twice")
        RULES[name] = Rule(name, family, doc, function(), examples, relations, expansive)
        return RULES[name]

    return declare
