"""The rewrite rules, in families.

All modules of all folders are loaded when the rules are first used, since a search process needs few of them. A target
names the families that it uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pkgutil import walk_packages
from typing import Any

from glenside.egraph.rule import Rule
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.packages import load
from glenside.rewrites import declare
from glenside.rewrites.declare import Clause, Example, analysis, equation, rewrite, rule, when

if __name__ == "rewrites":  # a second copy of all modules, whose rules would be unused
    raise ImportError("the package is glenside.rewrites: import it by that name")

RULES: Mapping[str, Rule]
EQUATIONS: Mapping[str, Rule]
__all__ = [
    "EQUATIONS",
    "RULES",
    "Clause",
    "Example",
    "Rule",
    "all_rules",
    "analysis",
    "equation",
    "families",
    "of_families",
    "rewrite",
    "rule",
    "when",
]


@cache
def _load() -> None:
    load(sorted(info.name for info in walk_packages(__path__, f"{__name__}.")))


def _rules() -> dict[str, Rule]:
    _load()
    return declare.RULES


def __getattr__(name: str) -> Any:
    if name not in ("RULES", "EQUATIONS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _load()
    return getattr(declare, name)


def all_rules() -> Mapping[str, Rule]:
    """Returns the rules of `RULES` and `EQUATIONS` by name."""
    return {**_rules(), **declare.EQUATIONS}


def families() -> list[str]:
    """Returns the names of the families, in alphabetical order."""
    return sorted({r.family for r in _rules().values()})


def of_families(names: Iterable[str | Rule]) -> tuple[Rule, ...]:
    """Returns the rules of these families, and these rules, in a fixed order. Raises KeyError for an empty family."""
    given = list(names)
    wanted = [name for name in given if isinstance(name, str)]
    unknown = [name for name in wanted if name not in families()]
    if unknown:
        raise KeyError(f"no rule is of the family {unknown[0]}{suggestion(unknown[0], families())}")
    found = {r.name: r for r in _rules().values() if r.family in wanted}
    found |= {r.name: r for r in given if isinstance(r, Rule)}
    return tuple(sorted(found.values(), key=lambda r: r.name))


def known_rules(given: Iterable[str | Rule]) -> tuple[str | Rule, ...]:
    """Returns rules and names of families. Raises BadInput for anything else."""
    rules = (given,) if isinstance(given, str | Rule) else tuple(given)
    for wanted in rules:
        if not isinstance(wanted, str | Rule):
            raise BadInput(f"a rule is declared by gl.rule, or is the name of a family, got {wanted!r}")
        if isinstance(wanted, str) and wanted not in families():
            raise BadInput(f"there is no family of rules {wanted!r}{suggestion(wanted, families())}")
    return rules
