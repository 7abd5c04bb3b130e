"""Compiles rules to egglog rules with few and cheap joins.

egglog matches a rule once for each of its facts that may be new, and each time scans all rows of every other fact on
e-nodes: the time of a search depends on the number of joins far more than on matches. So the type of a class is one
row, and matches that wait for a shape are stored; they are not searched again when the shape is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from glenside.egraph.schema import dims, dtype, relation_text, split, typed
from glenside.egraph.sexpr import Sexpr, read_all, row_said, write
from glenside.egraph.shape_functions import atoms, demands, looks_up, written_out
from glenside.egraph.tables import rows

DEMANDS, LATE_DEMANDS = "demands", "late-demands"
"""The rulesets that demand shapes: for analyses and subsuming rules; and, after those, for all other rules."""
_TYPE = {function.name: function.result.value for function in (dims, split, dtype)}


@lru_cache(maxsize=8192)
def compiled(
    name: str, ruleset: str, facts: str, actions: str, sorts: tuple[tuple[str, str], ...] = (), early: bool = True
) -> tuple[str, ...]:
    """Returns an egglog rule, and for each shape function among its facts the rule that demands it.

    Demands of type rules are met while types are inferred; demands of rules wait until that is done. `sorts`: the sorts
    of the variables; with them the matches before the first demand are stored.
    """
    read = _typed_at_once(written_out(read_all(facts)))
    wanted = demands(read)
    kept: list[Sexpr] = []
    start = 0
    lines: list[str] = []
    if wanted and sorts and sum(map(_joins, wanted[0][0])) > 1:
        start = len(wanted[0][0])
        columns = _needed((*sorts, *_unnamed(read)), read[:start], [*read[start:], *read_all(actions)])
        kept = [[f"found-{name}", *columns]]
        lines.append(relation_text(f"found-{name}", columns.values()))
    wants = "shapes" if ruleset == "types" else DEMANDS if early or not kept else LATE_DEMANDS
    for i, (before, want) in enumerate(wanted):
        label = f"{name}: shape {i}"
        if i == 0:
            lines.append(_rule(before, [write(want), *(row_said(write(row)) for row in kept)], wants, label))
        else:
            lines.append(_rule([*kept, *before[start:]], [write(want)], wants, label))
    lines.append(_rule([*kept, *read[start:]], [actions], ruleset, name))
    return tuple(lines)


def _rule(facts: list[Sexpr], actions: Iterable[str], ruleset: str, name: str) -> str:
    found = " ".join(map(write, rows(facts)))
    return f"(rule ({found}) ({' '.join(actions)}) :ruleset {ruleset} :name {json.dumps(name)})"


def _joins(fact: Sexpr) -> int:
    """Returns the number of tables that a fact looks up."""
    if not isinstance(fact, list) or not looks_up(fact):
        return 0
    inner = sum(map(_joins, fact[1:]))
    return inner if fact[0] in ("=", "!=") else 1 + inner


def _needed(sorts: Iterable[tuple[str, str]], before: Iterable[Sexpr], after: Iterable[Sexpr]) -> Mapping[str, str]:
    """Returns variable -> sort for variables in both `before` and `after`."""
    bound, read = set[str]().union(*map(atoms, before)), set[str]().union(*map(atoms, after))
    return {variable: sort for variable, sort in sorts if variable in bound & read}


def _unnamed(facts: Iterable[Sexpr]) -> Iterator[tuple[str, str]]:
    """Yields the variables of rows of types that the rule itself does not name, and their sorts."""
    for atom in sorted(set[str]().union(*map(atoms, facts))):
        if atom.startswith("any-"):
            yield atom, _TYPE[atom.split("-")[1]]


def _typed_at_once(facts: list[Sexpr]) -> list[Sexpr]:
    """Merges facts on two or three of the dims, split and dtype of one class into one row."""
    called = [_type_call(fact) for fact in facts]
    of = [call[1] for call in called if call is not None]
    values: dict[str, dict[str, str]] = {}
    for call in called:
        if call is not None and of.count(call[1]) > 1:
            function, x, value = call
            row = values.setdefault(x, {name: f"any-{name}-of-{x}" for name in _TYPE})
            if isinstance(value, str) and value.startswith("?") and row[function].startswith("any-"):
                row[function] = value
    return [part for fact, call in zip(facts, called, strict=True) for part in _in_row(fact, call, values)]


def _in_row(fact: Sexpr, call: tuple[str, str, Sexpr] | None, values: dict[str, dict[str, str]]) -> Iterator[Sexpr]:
    """Yields the row of the fact's class at its first fact, and an equality if the fact says more than the row."""
    if call is None or call[1] not in values:
        yield fact
        return
    function, x, value = call
    row = values[x]
    if "" not in row:  # the first of them
        row[""] = x
        yield [typed.name, x, *(row[name] for name in _TYPE)]
    if row[function] != value:
        yield ["=", row[function], value]


def _type_call(fact: Sexpr) -> tuple[str, str, Sexpr] | None:
    """Returns (function, class, value) of a fact `(= value (dims x))`, in either order; None for other facts."""
    match fact:
        case ["=", value, [str(name), str(x)]] if name in _TYPE:
            return name, x, value
        case ["=", [str(name), str(x)], value] if name in _TYPE:
            return name, x, value
    return None
