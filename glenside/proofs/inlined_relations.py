"""Replaces facts of relations by what the clauses that add their rows matched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

from glenside.egraph.clause import Action, Clause
from glenside.egraph.pattern import Call, Fact, Pattern, Variable
from glenside.egraph.sorts import ACCESS
from glenside.proofs.access_patterns import NotExpressible
from glenside.proofs.lemmas import LEMMAS, PLACES, Lemma

_MOST = 24  # ways in which the facts of a clause may come to hold
_DEPTH = 4


@dataclass(frozen=True, eq=False)
class Origin:
    """A clause that adds rows of a relation, or values of a function of classes: its facts, the row, the value."""

    facts: Sequence[Fact]
    row: Sequence[Pattern]
    value: Pattern | None = None


@dataclass(frozen=True, eq=False)
class Variant:
    """One way in which the facts of a clause come to hold."""

    facts: Sequence[Fact]
    lemmas: frozenset[str]


@cache
def origins() -> Mapping[str, Sequence[Origin]]:
    """Returns relation or function -> the clauses that add its rows."""
    from glenside.rewrites import RULES

    found: dict[str, list[Origin]] = {}
    for rule in RULES.values():
        for clause in rule.clauses:
            facts = (*clause.facts, *_lets(clause))
            for action in clause.actions:
                if isinstance(action, Fact):
                    found.setdefault(action.head.name, []).append(Origin(facts, action.arguments))
                elif action.name == "set" and isinstance(call := action.arguments[0], Call):
                    found.setdefault(call.head.name, []).append(Origin(facts, call.arguments, action.arguments[1]))
    return found


def _lets(clause: Clause) -> Iterator[Fact]:
    for action in clause.actions:
        if isinstance(action, Action) and action.name == "let":
            name, value = action.arguments
            yield name == value


@cache
def _is_recursive(name: str) -> bool:
    """True if rows of the relation come from other rows of it."""
    seen, waiting = set[str](), [name]
    while waiting:
        for origin in origins().get(waiting.pop(), ()):
            for fact in origin.facts:
                for other in _relations(fact):
                    if other == name:
                        return True
                    if other not in seen and other in origins() and other not in LEMMAS:
                        seen.add(other)
                        waiting.append(other)
    return False


def _relations(fact: Fact) -> Iterator[str]:
    yield fact.head.name
    for argument in fact.arguments:
        if isinstance(argument, Call) and argument.head.name in origins():
            yield argument.head.name


def variants(facts: Sequence[Fact]) -> list[Variant]:
    """Returns all ways in which the facts come to hold. Raises NotExpressible if there are too many."""
    found = []
    for variant in _expanded(Variant(tuple(facts), frozenset()), 0, count()):
        found.append(variant)
        if len(found) > _MOST:
            raise NotExpressible("its relations come from too many clauses")
    return found


def _expanded(variant: Variant, depth: int, names: Iterator[int]) -> Iterator[Variant]:
    for k, fact in enumerate(variant.facts):
        before, after = variant.facts[:k], variant.facts[k + 1 :]
        if fact.head.name in LEMMAS:
            lemma: Lemma = LEMMAS[fact.head.name]
            known = Variant((*before, *lemma.facts(*fact.arguments), *after), variant.lemmas | {lemma.name})
            yield from _expanded(known, depth, names)
            return
        if fact.head.name in PLACES:
            continue
        for name, row, value in _looked_up(fact):
            if depth < _DEPTH and name in origins() and not _is_recursive(name):
                for origin in origins()[name]:
                    new = _instantiated(origin, row, value, next(names))
                    yield from _expanded(Variant((*before, *new, *after), variant.lemmas), depth + 1, names)
                return
    yield variant


def _looked_up(fact: Fact) -> Iterator[tuple[str, Sequence[Pattern], Pattern | None]]:
    """Yields the relation of a fact and its row; or a function of classes, its arguments, and its value."""
    if fact.head.looks_up:
        yield fact.head.name, fact.arguments, None
    elif fact.head.name == "=":
        for value, call in (fact.arguments, fact.arguments[::-1]):
            if isinstance(call, Call) and call.head.declaration:
                yield call.head.name, call.arguments, value


def _instantiated(origin: Origin, row: Sequence[Pattern], value: Pattern | None, number: int) -> list[Fact]:
    """Returns the facts of a clause, with the patterns of a row for its variables."""
    names: dict[str, Pattern] = {}
    columns = list(zip(origin.row, row, strict=True))
    if value is not None and origin.value is not None:
        columns.append((origin.value, value))
    equal = []
    for theirs, ours in columns:
        if isinstance(theirs, Variable) and theirs.name not in names:
            names[theirs.name] = ours
        else:
            equal.append((theirs, ours))
    facts = [_renamed(fact, names, number) for fact in origin.facts]
    return [*facts, *(ours == _renamed(theirs, names, number) for theirs, ours in equal)]


def _renamed(part: Any, names: dict[str, Pattern], number: int) -> Any:
    """Returns a part of a clause with other variables."""
    if isinstance(part, Variable):
        return names.setdefault(part.name, Variable(f"{part.name}.{number}", part.sort))
    if isinstance(part, Fact):
        return Fact(part.head, tuple(_renamed(a, names, number) for a in part.arguments))
    if isinstance(part, Call):
        arguments = tuple(_renamed(a, names, number) for a in part.arguments)
        return Call(part.head, arguments, part.sort or ACCESS)
    return part


def origin_texts(clause: Clause) -> list[str]:
    """Returns the texts of all facts that relations of a clause come from, in egglog syntax."""
    seen, waiting = dict[str, None](), [name for fact in clause.facts for name in _relations(fact)]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen[name] = None
            waiting += [other for o in origins().get(name, ()) for fact in o.facts for other in _relations(fact)]
    found = []
    for name in sorted(seen):
        for origin in origins().get(name, ()):
            parts: list[Any] = [*origin.facts, *origin.row, *([origin.value] if origin.value is not None else [])]
            found.append(f"{name}: {' '.join(part.egglog() for part in parts)}")
    return found
