"""The rules, in families.

Every module of every folder is found and loaded; a target names the families that it wants.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import walk_packages

from glenside.egraph.rule import Rule
from glenside.egraph.sorts import suggestion
from rewrites.declare import RULES, Clause, Example, analysis, rewrite, rule, when

for _module in sorted(info.name for info in walk_packages(__path__, f"{__name__}.")):
    import_module(_module)

__all__ = ["RULES", "Clause", "Example", "Rule", "analysis", "families", "of_families", "rewrite", "rule", "when"]


def families() -> list[str]:
    """The names of the families, in alphabetical order."""
    return sorted({r.family for r in RULES.values()})


def of_families(names: Iterable[str]) -> tuple[Rule, ...]:
    """The rules of these families, in a fixed order. Raises KeyError for a family that has none."""
    wanted = list(names)
    unknown = [name for name in wanted if name not in families()]
    if unknown:
        raise KeyError(f"no rule is of the family {unknown[0]}{suggestion(unknown[0], families())}")
    return tuple(sorted((r for r in RULES.values() if r.family in wanted), key=lambda r: r.name))
