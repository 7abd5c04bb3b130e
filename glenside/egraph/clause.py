"""Clauses: the facts that a rule matches, and its actions.

    rewrite(left, right, *guards)         left = right, where the guards hold
    when(*facts).then(*actions)           anything else, such as a demand

A clause checks that each variable is bound by a fact before it is read, collects the declarations it needs, and prints
itself as an equation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from glenside.egraph.pattern import Call, Fact, Function, Named, Pattern, Signature, Variable, call_words
from glenside.egraph.sorts import ACCESS, PatternError, Sort

ROOT = Variable("root", ACCESS)
"""The class to which a rewrite adds a form."""
_ROOT = ROOT.egglog()


@dataclass(frozen=True, eq=False, slots=True)
class Action:
    """An action: `name` is union, set, let or subsume. A row of a relation is an action by itself."""

    name: str
    arguments: tuple[Pattern, ...]

    def said(self) -> str:
        """Returns the action in egglog syntax."""
        return f"({' '.join([self.name, *(a.egglog() for a in self.arguments)])})"

    def __str__(self) -> str:
        sign = {"union": "=", "set": ":=", "let": ":="}.get(self.name)
        return f" {sign} ".join(map(str, self.arguments)) if sign else call_words(self.name, self.arguments)


def union(a: Pattern, b: Pattern) -> Action:
    """Returns the action that merges the classes of a and b."""
    for side in (a, b):
        side.expect(ACCESS, "union of", side)
    return Action("union", (a, b))


def set_(call: Pattern, value: Any) -> Action:
    """Returns the action that sets the value of a function at some arguments."""
    if not (isinstance(call, Call) and isinstance(call.head, Function) and call.head.declaration):
        raise PatternError(f"set_ takes a call of a declared function, got {call}")
    typed = call == value
    return Action("set", typed.arguments)


def let(name: Pattern, value: Pattern) -> Action:
    """Returns the action that binds a name to a pattern, for later actions."""
    if not isinstance(name, Variable) or value.sort is None:
        raise PatternError(f"let takes a variable and a value, got {name} and {value}")
    name.expect(value.sort, f"let {name} =", value)
    return Action("let", (name, value))


def subsume(call: Pattern) -> Action:
    """Returns the action that subsumes an e-node: it is neither matched again nor extracted."""
    return Action("subsume", (call,))


Facts: TypeAlias = "Fact | Sequence[Facts]"
"""Facts, possibly nested: a sequence is a part that several rules share."""
Actions: TypeAlias = "Fact | Action | Sequence[Actions]"
Node: TypeAlias = Fact | Action | Pattern


@dataclass(frozen=True, eq=False)
class Clause:
    """An egglog rule: facts, in an order that binds each variable before a primitive reads it, then actions.

    Raises PatternError for a variable that no fact binds or that has two sorts.
    """

    facts: tuple[Fact, ...]
    actions: tuple[Fact | Action, ...]

    def __post_init__(self) -> None:
        self._check_bound()
        self._check_sorts()

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The facts and actions in egglog syntax, with `$name` for parameters of the target."""
        return " ".join(fact.egglog() for fact in self.facts), " ".join(action.said() for action in self.actions)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All patterns, facts and actions of the clause."""
        return tuple(_nodes([*self.facts, *self.actions]))

    @property
    def source(self) -> str:
        """The class where it matches, in egglog syntax: the root, or the first access pattern of its facts."""
        accesses = [n for n in _nodes(self.facts) if isinstance(n, Variable) and n.sort is ACCESS]
        return next((n for n in accesses if n.name == ROOT.name), accesses[0]).egglog()

    @property
    def variables(self) -> set[str]:
        return {node.name for node in self.nodes if isinstance(node, Variable)}

    @property
    def sorts(self) -> tuple[tuple[str, str], ...]:
        """The variables and their sorts, in egglog syntax."""
        found = {n.egglog(): n.sort.value for n in self.nodes if isinstance(n, Variable) and n.sort is not None}
        return tuple(found.items())

    @property
    def signatures(self) -> list[Signature]:
        """The called functions, operators and relations, in order, each once."""
        return list(dict.fromkeys(node.head for node in self.nodes if isinstance(node, Call | Fact)))

    @property
    def parameters(self) -> set[str]:
        """The parameters of the target, without formulas."""
        return {node.name for node in self.nodes if isinstance(node, Named)}

    def _check_sorts(self) -> None:
        sorts: dict[str, Sort] = {}
        for node in self.nodes:
            if isinstance(node, Variable) and node.sort and sorts.setdefault(node.name, node.sort) is not node.sort:
                both = f"{sorts[node.name].value} and {node.sort.value}"
                raise PatternError(f"the variable {node.name} is of two sorts, {both}, in {self}")
        for node in self.nodes:
            if isinstance(node, Fact) and not node.head.looks_up:
                a, b = node.arguments
                if a.sort is not b.sort:
                    raise PatternError(f"{a} and {b} are of two sorts in {self}")

    def _check_bound(self) -> None:
        bound: set[str] = set()
        for fact in self.facts:
            nodes = list(_nodes([fact]))
            bound |= _binds(fact, nodes, bound)
            self._require_bound(fact, nodes, bound)
        for action in self.actions:
            if isinstance(action, Action) and action.name == "let":
                name, value = action.arguments
                self._require_bound(value, _nodes([value]), bound)
                bound.add(str(name))
            else:
                self._require_bound(action, _nodes([action]), bound)

    def _require_bound(self, part: Node, nodes: Iterable[Node], bound: set[str]) -> None:
        for node in nodes:
            if isinstance(node, Variable) and node.name not in bound:
                known = " ".join(sorted(bound)) or "none"
                if isinstance(part, Action) and part.name == "union" and part.arguments[0] is ROOT:
                    known = " ".join(sorted(bound - {ROOT.name})) or "none"
                    said = f"the right side {part.arguments[1]} has the variable {node.name}"
                    raise PatternError(f"{said}, which neither left side nor guards bind; they bind {known}")
                raise PatternError(f"no fact before {part} binds the variable {node.name}; bound are {known}")

    def __str__(self) -> str:
        """Returns LEFT = RIGHT where GUARDS, if the clause matches root and unites it; else FACTS => ACTIONS."""
        lefts = [fact for fact in self.facts if fact.head.name == "=" and fact.arguments[0].egglog() == _ROOT]
        rights = [a for a in self.actions if isinstance(a, Action) and a.name == "union"]
        rest = [action for action in self.actions if not any(action is r for r in rights)]
        if not lefts or [a.arguments[0].egglog() for a in rights] != [_ROOT]:
            return f"{', '.join(map(str, self.facts))} => {'; '.join(map(str, self.actions))}"
        where = [str(part) for part in (*self.facts, *rest) if part is not lefts[0]]
        equation = f"{lefts[0].arguments[1]} = {rights[0].arguments[1]}"
        return f"{equation} where {', '.join(where)}" if where else equation


def _nodes(parts: Iterable[Node]) -> Iterator[Node]:
    """Yields the parts and all nodes below, each once: patterns share much."""
    seen: set[int] = set()
    stack = [*parts][::-1]
    while stack:
        part = stack.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            if isinstance(part, Call | Fact | Action):
                stack += part.arguments[::-1]


def _binds(fact: Fact, nodes: Iterable[Node], bound: set[str]) -> set[str]:
    """Returns the variables that a fact binds: those of rows it looks up, and a side equal to a computable one."""
    new: set[str] = set()
    for node in nodes:
        if isinstance(node, Call | Fact) and node.head.looks_up:
            new |= {a.name for a in node.arguments if isinstance(a, Variable)}
    if fact.head.name == "=":
        for side, other in (fact.arguments, fact.arguments[::-1]):
            if (
                isinstance(side, Variable)
                and side.name not in new
                and all(node.name in bound | new for node in _nodes([other]) if isinstance(node, Variable))
            ):
                new.add(side.name)
    return new


def flat(parts: Any) -> tuple[Any, ...]:
    """Flattens nested sequences."""
    return tuple(x for part in parts for x in (flat(part) if isinstance(part, tuple | list) else (part,)))


@dataclass(frozen=True, eq=False)
class When:
    """The facts of a clause, before `then` adds its actions."""

    facts: tuple[Fact, ...]

    def then(self, *actions: Actions) -> Clause:
        """Returns the clause that does these actions where the facts hold."""
        return Clause(self.facts, flat(actions))


def when(*facts: Facts) -> When:
    """Starts a clause with these facts; `.then(..)` adds its actions."""
    given = flat(facts)
    for fact in given:
        if not isinstance(fact, Fact):
            raise PatternError(f"a fact is an equation or a row of a relation, such as d == dims(a), got {fact!r}")
    return When(given)


def rewrite(left: Pattern, right: Pattern, *guards: Facts) -> Clause:
    """Returns the clause left = right: where `left` matches and the guards hold, `right` is added to its class.

    A guard is a fact: `gl.facts.dims(a) == d` binds d to the sizes of a, `n > 1` compares. Raises PatternError.
    """
    if not isinstance(left, Call):
        raise PatternError(f"the left side of a rewrite is an operator applied to patterns, got {left}")
    if not isinstance(right, Pattern):
        raise PatternError(f"the right side of a rewrite is a pattern, got {right!r}")
    return when(ROOT == left, *guards).then(union(ROOT, right))
