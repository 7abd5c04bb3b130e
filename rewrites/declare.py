"""Declares rules: the parameters of a function are pattern variables, its docstring is the equation and the reason, its
result is the clauses."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from glenside.egraph.clause import ROOT, Action, Actions, Clause, Facts, flat, let, rewrite, set_, subsume, union, when
from glenside.egraph.pattern import Fact, Variable
from glenside.egraph.pattern import Pattern as V
from glenside.egraph.rule import Example, Rule
from glenside.egraph.sorts import PatternError
from glenside.ir.errors import Place
from glenside.ir.names import suggestion

__all__ = [
    "EQUATIONS",
    "ROOT",
    "RULES",
    "Action",
    "Actions",
    "Clause",
    "Clauses",
    "Declaration",
    "Example",
    "Fact",
    "Facts",
    "V",
]
__all__ += ["analysis", "equation", "let", "rewrite", "rule", "set_", "subsume", "union", "when"]

RULES: dict[str, Rule] = {}
"""The rules by which e-graphs are searched."""
EQUATIONS: dict[str, Rule] = {}
"""The rules that other parts of the compiler apply; no search has them, since together they do not end."""
_SOURCES: dict[str, tuple[str, str]] = {}
"""Rule -> module and qualified name of the function that declares it."""
OWN = "own"
"""The family of rules that name none."""
_SHOWN = """gl.Example("(compute relu (access-tensor x))", {"x": "m n"})"""

Clauses: TypeAlias = "Clause | Sequence[Clauses]"
Declaration: TypeAlias = "Callable[[Callable[..., Clauses]], Rule]"


def rule(family: str | Example = OWN, *examples: Example, expansive: bool = False) -> Declaration:
    """Declares a rewrite rule: the name of the decorated function, with hyphens, is the name of the rule.

        @gl.rule(gl.Example("(compute relu (compute relu (access-tensor x)))", {"x": "m n"}))
        def relu_is_idempotent(a):
            \"\"\"relu(relu(a)) = relu(a).

            Sound because relu keeps elements that are not negative.
            \"\"\"
            return gl.rewrite(gl.op.compute("relu", gl.op.compute("relu", a)), gl.op.compute("relu", a))

    The function's parameters are the pattern variables. Its docstring is the equation and the reason, which begins with
    "Sound because". It returns clauses: `rewrite(left, right, *guards)` or `when(*facts).then(*actions)`.

    family     a name under which targets find the rule; optional
    examples   terms in which the rule fires; letters in shapes are sizes that `gl.check_rule` draws
    expansive  True: the rule builds without end, and runs under back-off

    The same function may be declared again, as in a notebook. Raises BadInput, at the line of the function, for a
    missing docstring, reason or example, a name that is taken, or a mistake in a clause.
    """
    if isinstance(family, str):
        return _declaration(family, examples, expansive, False)
    return _declaration(OWN, (family, *examples), expansive, False)


def analysis(family: str, *examples: Example) -> Declaration:
    """Declares a rule that only adds facts: it runs to its fixed point before any other rule."""
    return _declaration(family, examples, False, True)


def equation(family: str, *examples: Example) -> Declaration:
    """Declares a rule of `EQUATIONS`, which is proven and tested as others are."""
    return _declaration(family, examples, False, False, searched=False)


def _declaration(
    family: str, examples: tuple[Example, ...], expansive: bool, analysis: bool, searched: bool = True
) -> Declaration:
    def declare(function: Callable[..., Clauses]) -> Rule:
        name, doc = function.__name__.replace("_", "-"), inspect.cleandoc(function.__doc__ or "")
        code = function.__code__
        place = Place(Path(code.co_filename).name, code.co_firstlineno, 1)
        source = function.__module__, function.__qualname__
        if "Sound because" not in doc and sys.flags.optimize < 2:  # python -OO has no docstrings
            reason = "a docstring with the equation and a sentence that begins with 'Sound because'"
            raise PatternError(f"the rule {name} needs {reason}", place)
        if not examples or not all(isinstance(example, Example) for example in examples):
            raise PatternError(f"the rule {name} needs an example, such as {_SHOWN}", place)
        if name in {**RULES, **EQUATIONS} and (_SOURCES[name] != source or source[0].partition(".")[0] == "glenside"):
            raise PatternError(f"the rule {name} is declared twice, first in {_SOURCES[name][0]}", place)
        try:
            clauses = _clauses(name, function)
        except PatternError as error:
            raise PatternError(error.message, place) from error
        declared = Rule(name, family, doc, clauses, examples, expansive, analysis)
        (RULES if searched else EQUATIONS)[name], _SOURCES[name] = declared, source
        return declared

    return declare


def _clauses(name: str, function: Callable[..., Clauses]) -> tuple[Clause, ...]:
    """Returns the clauses of the function for variables named as its parameters. Raises PatternError."""
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
    except Exception as error:
        raise PatternError(f"the rule {name}: {type(error).__name__}: {error}") from error
    for value in clauses:
        if not isinstance(value, Clause):
            clause = "a clause, such as rewrite(left, right) or when(facts).then(actions)"
            raise PatternError(f"the rule {name} returns {value} instead of {clause}")
    used: set[str] = set().union(*(clause.variables for clause in clauses))
    for unused in names:
        if unused.replace("_", "-") not in used:
            raise PatternError(f"the rule {name}: no clause uses its parameter {unused}")
    return clauses
