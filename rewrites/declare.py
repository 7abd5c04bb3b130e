"""`@rule`: a function whose docstring is the equation and its reason, whose parameters are the variables of the rule,
and whose value is its clauses."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TypeAlias

from glenside.egraph.clause import ROOT, Action, Actions, Clause, Facts, flat, let, rewrite, set_, subsume, union, when
from glenside.egraph.pattern import Fact, Variable
from glenside.egraph.pattern import Pattern as V
from glenside.egraph.rule import Example, Rule
from glenside.egraph.sorts import PatternError
from glenside.ir.names import suggestion

__all__ = ["ROOT", "RULES", "Action", "Actions", "Clause", "Clauses", "Declaration", "Example", "Fact", "Facts", "V"]
__all__ += ["analysis", "let", "rewrite", "rule", "set_", "subsume", "union", "when"]

RULES: dict[str, Rule] = {}

Clauses: TypeAlias = "Clause | Sequence[Clauses]"
Declaration: TypeAlias = "Callable[[Callable[..., Clauses]], Rule]"


def rule(family: str, *examples: Example, expansive: bool = False) -> Declaration:
    """Register the rule that the decorated function declares; its name is the function's, with hyphens.

    Raises ValueError for a rule without a docstring, a "Sound because", an example, or with a name taken before, and
    PatternError for a mistake in its clauses.
    """
    return _declaration(family, examples, expansive, False)


def analysis(family: str, *examples: Example) -> Declaration:
    """As `rule`, for one that only adds facts: it runs to its fixed point before any other rule."""
    return _declaration(family, examples, False, True)


def _declaration(family: str, examples: tuple[Example, ...], expansive: bool, analysis: bool) -> Declaration:
    def declare(function: Callable[..., Clauses]) -> Rule:
        name, doc = function.__name__.replace("_", "-"), inspect.cleandoc(function.__doc__ or "")
        if "Sound because" not in doc and sys.flags.optimize < 2:  # python -OO has no docstrings
            raise ValueError(f"the rule {name} does not say why it is sound")
        if not examples:
            raise ValueError(f"the rule {name} has no example")
        if name in RULES:
            raise ValueError(f"the rule {name} is declared twice")
        RULES[name] = Rule(name, family, doc, _clauses(name, function), examples, expansive, analysis)
        return RULES[name]

    return declare


def _clauses(name: str, function: Callable[..., Clauses]) -> tuple[Clause, ...]:
    """What the function gives for variables named as its parameters. Raises PatternError with the rule's name."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    try:
        clauses = flat([function(*map(Variable, names))])
    except NameError as error:
        hint = suggestion(error.name or "", [*names, *function.__globals__])
        raise PatternError(f"the rule {name}: {error}{hint}") from error
    except AttributeError as error:
        hint = suggestion(error.name or "", dir(error.obj)) if isinstance(error.obj, ModuleType) else ""
        raise PatternError(f"the rule {name}: {error}{hint}") from error
    except (PatternError, TypeError) as error:
        raise PatternError(f"the rule {name}: {error}") from error
    for value in clauses:
        if not isinstance(value, Clause):
            raise PatternError(
                f"the rule {name} returns {value!r} where a clause stands: rewrite(..), when(..).then(..)"
            )
    used: set[str] = set().union(*(clause.variables for clause in clauses))
    for unused in names:
        if unused.replace("_", "-") not in used:
            raise PatternError(f"the rule {name}: no clause uses its parameter {unused}")
    return clauses
