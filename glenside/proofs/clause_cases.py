"""Reads one case of a clause: ranks, splits and axes are chosen, sizes stay symbolic, and the facts are assumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import Any

from glenside.egraph.clause import Action, Clause
from glenside.egraph.pattern import Call, Fact, Literal, Named, Pattern, Variable
from glenside.egraph.sorts import ACCESS, INT, INTS, TEXT, Column
from glenside.egraph.tables import RESULTS
from glenside.ir.dtypes import DTYPES, widen
from glenside.ir.types import Dims
from glenside.proofs.access_patterns import Access, Case, Impossible, NotExpressible, access_type
from glenside.proofs.compute_meanings import category_of, keeps_zero, representatives
from glenside.proofs.elements import Read, of_factor
from glenside.proofs.lemmas import PLACES
from glenside.proofs.operator_meanings import MEANINGS
from glenside.proofs.symbolic_integers import Condition, at_least, less, plain, same
from glenside.proofs.vectors import VECTORS

_COMPARED = {"=", "!=", "<", "<=", ">", ">="}
_OF_RANKS = {"dims", "split", "+", "-", "take", "drop", "shift", "permute", "vec-of", "vec-empty", "vec-append"}
_OF_RANKS |= {"vec-length", "vec-range"}
_LATER = object()
"""The value of a name that the right side binds, before it is built."""


class Unknown:
    """A value that a table or another rule determines, of which nothing is known."""


class ClauseCase:
    """Values of a clause's variables in one case: of the left side by `match`, then of the right by `build`."""

    def __init__(self, facts: Sequence[Fact], case: Case) -> None:
        self.case = case
        self.values: dict[str, Any] = {}
        self.leaves: dict[str, Access] = {}
        self.forgotten: set[str] = set()
        """The variables of unused facts: a proof without these facts holds, a refutation does not."""
        nodes = [n for f in facts for n in _walk(f)]
        self._literals = {n.value for n in nodes if isinstance(n, Literal) and isinstance(n.value, str)}
        self._forms, self._facts = _forms(facts)
        self._definitions = _definitions(self._facts)
        categories = [f.arguments for f in facts if f.head.name == "category"]
        self._categories = {str(kind): str(c) for kind, c in categories if isinstance(c, Literal)}

    def form(self, name: str) -> Pattern | None:
        """Returns the operator that a class is matched as, None for any."""
        return self._forms.get(name)

    # The left side

    def match(self) -> None:
        """Binds the variables of the facts, and assumes the facts. Raises Impossible or NotExpressible."""
        for name in self._forms:
            self._access(Variable(name, ACCESS))
        waiting = list(self._facts)
        while waiting:
            left = [fact for fact in waiting if not self._assume(fact)]
            if len(left) == len(waiting):
                self._bind_free(left)
            waiting = left

    def _bind_free(self, facts: Sequence[Fact]) -> None:
        """Binds one variable that no fact determines: it may have any value."""
        for fact in facts:
            for node in _walk(fact):
                if isinstance(node, Variable) and node.name not in self.values:
                    self._bind(node)
                    return
        raise NotExpressible(f"nothing binds {facts[0]}")

    def _bind(self, variable: Variable) -> None:
        """Binds a variable that only relations bind: it may have any value."""
        if variable.sort is ACCESS:
            self._access(variable)
        elif variable.sort is INT:
            self.values[variable.name] = self.case.number(variable.name)
        elif variable.sort is INTS:
            axes = self.case.choices.choose(range(self.case.max_rank + 1))
            self.values[variable.name] = tuple(self.case.number(f"{variable.name}.{k}") for k in range(axes))
        else:
            kinds = representatives(self._categories.get(variable.name), self._literals)
            of_compute = variable.name in self._categories
            self.values[variable.name] = self.case.choices.choose(kinds) if of_compute else f"?{variable.name}"

    def let(self, name: str, pattern: Pattern) -> None:
        """Marks a name that the actions bind, and binds the other variables of its value."""
        self.bind_all([pattern])
        self.values[name] = _LATER

    def bind_all(self, patterns: Iterable[Pattern]) -> None:
        """Binds the variables of a right side that no fact binds."""
        for pattern in patterns:
            for node in (pattern, *_walk(pattern)):
                if isinstance(node, Variable) and node.name not in self.values:
                    self._bind(node)

    def _access(self, pattern: Pattern) -> Access:
        """Returns the access pattern that a pattern matches: chosen, for a variable without a form."""
        if isinstance(pattern, Variable):
            if pattern.name not in self.values:
                form = self._forms.get(pattern.name)
                self.values[pattern.name] = self._leaf(pattern.name) if form is None else self._access(form)
            return self._known_access(pattern.name)
        if not isinstance(pattern, Call) or pattern.head.name not in MEANINGS:
            raise NotExpressible(_name_of(pattern))
        arguments: list[Any] = [None] * len(pattern.arguments)
        columns = list(zip(pattern.head.columns, pattern.arguments, strict=True))
        for k, (column, argument) in enumerate(columns):
            if column.sort is ACCESS:
                arguments[k] = self._access(argument)
        operands = [a for a in arguments if a is not None]
        for k, (column, argument) in enumerate(columns):
            if column.sort is not ACCESS:
                value = self.value(argument)
                if value is None:
                    if not isinstance(argument, Variable):
                        raise NotExpressible(f"{argument} in a pattern of {pattern.head.name}")
                    value = self._attribute(pattern.head.name, column, argument.name, operands, arguments)
                    self.values[argument.name] = value
                arguments[k] = value
        return self._applied(pattern.head.name, arguments)

    def _known_access(self, name: str) -> Access:
        found = self.values[name]
        if not isinstance(found, Access):
            raise NotExpressible(f"the form of {name}")
        return found

    def _applied(self, name: str, arguments: Sequence[Any]) -> Access:
        if any(isinstance(a, Unknown) for a in arguments):
            raise NotExpressible(f"{name} of values that a table computes from sizes")
        return MEANINGS[name](self.case, *arguments)

    def _leaf(self, name: str) -> Access:
        rank, split = self.case.choices.choose([(r, s) for r in range(self.case.max_rank + 1) for s in range(r + 1)])
        dims = [self.case.size(f"{name}.{k}") for k in range(rank)]
        leaf = Access(access_type(dims, split, self.case.dtype), lambda i: of_factor(Read(name, i)))
        self.leaves[name] = leaf
        return leaf

    def _attribute(
        self, operator: str, column: Column, name: str, operands: Sequence[Access], arguments: Sequence[Any]
    ) -> Any:
        """Returns a value for an unbound attribute: chosen where ranks limit it, else symbolic."""
        choose, rank = self.case.choices.choose, operands[0].rank if operands else 0
        if column.sort is TEXT:
            return self._text(operator, column, name)
        known = self._by_facts(name)
        if known is not None:
            return known
        if column.sort is INT:
            if column.name == "axis":
                return choose(range(rank + (operator == "access-insert-axis")))
            if operator == "access":
                return choose(range(rank + 1))
            if column.name == "n" and operator in ("access-product", "tiled-product"):
                return choose(range(min(a.split for a in operands) + 1))
            return self.case.number(name)
        if column.name == "order":
            parts = next((a for a in arguments if isinstance(a, tuple)), None)
            return choose(list(permutations(range(rank if parts is None else len(parts)))))
        item = rank - operands[0].split if operands else 0
        if operator in ("access-windows", "access-overlap-add"):
            axes: int = item
        elif operator == "access-broadcast":
            axes = operands[0].split if column.name.endswith("-shape") else item
        else:
            axes = choose(range(self.case.max_rank + 1))
        return tuple(self.case.size(f"{name}.{k}") for k in range(axes))

    def _by_facts(self, name: str, sought: frozenset[str] = frozenset()) -> Any:
        """Returns the value that an equation gives a variable, from what is chosen already; None if there is none.

        A choice that the facts would refute later is not made.
        """
        for value in self._definitions.get(name, ()):
            unbound = {v.name for v in (value, *_walk(value)) if isinstance(v, Variable)} - self.values.keys()
            found = {v: None if v in sought else self._by_facts(v, sought | {name}) for v in unbound - {name}}
            if name not in unbound and None not in found.values():
                self.values |= found
                return self.value(value)
        return None

    def _text(self, operator: str, column: Column, name: str) -> str:
        if operator == "access-pad":
            return self.case.choices.choose(("zero-padding", "min-padding"))
        if operator == "compute":
            return self.case.choices.choose(representatives(self._categories.get(name), self._literals))
        if column.name == "dtype":
            return self.case.choices.choose(("float32", "int8", *sorted(self._literals & set(DTYPES))))
        return f"?{name}"

    # Facts

    def _assume(self, fact: Fact) -> bool:
        """Assumes a fact; False if a variable of it is not bound yet."""
        head = fact.head.name
        if head == "category":
            kind, category = (self.value(a) for a in fact.arguments)
            if kind is None:
                return False
            return self._equate(fact.arguments[1], category, category_of(kind))
        if head == "keeps-zero":
            kind = self.value(fact.arguments[0])
            if kind is not None and not keeps_zero(kind):
                raise Impossible("zero is not kept")
            return kind is not None
        if head not in _COMPARED:
            if head not in PLACES:
                self.forgotten.add(f"the relation {head}")
            return True
        return self._compare(head, *fact.arguments)

    def _compare(self, head: str, a: Pattern, b: Pattern) -> bool:
        if a.sort is ACCESS:
            if head == "=":
                return self._unite(a, b)
            self.forgotten.add("the difference of two classes")
            return True
        x, y = self.value(a), self.value(b)
        if head == "=" and (x is None) != (y is None):
            return self._equate(*((a, x, y) if x is None else (b, y, x)))
        if x is None or y is None:
            return False
        if isinstance(x, Unknown) or isinstance(y, Unknown):
            return True
        if isinstance(x, str) or isinstance(y, str):
            self.case.need((x == y) == (head == "="))
        elif isinstance(x, tuple) or isinstance(y, tuple):
            self._compare_vectors(head, x, y)
        else:
            self.case.assume(_condition(head, x, y))
        return True

    def _unite(self, a: Pattern, b: Pattern) -> bool:
        """Reads `a = b` of access patterns, where a function of classes says what b is."""
        for side in (a, b):
            if isinstance(side, Call) and side.head.name not in MEANINGS:
                self.forgotten.add(f"the function {side.head.name}")
                return True
        raise NotExpressible("two forms of one class")

    def _compare_vectors(self, head: str, x: Sequence[Any], y: Sequence[Any]) -> None:
        if head == "=":
            self.case.need(len(x) == len(y))
            for m, n in zip(x, y, strict=True):
                self.case.assume(same(m, n))
            return
        if len(x) == len(y):
            differing = [c for m, n in zip(x, y, strict=True) if (c := same(m, n)).known is not True]
            if len(differing) == 1 and differing[0].known is None:
                self.case.assume(differing[0].negated)
            elif not differing:
                raise Impossible("vectors are equal")

    def _equate(self, pattern: Pattern, value: Any, wanted: Any) -> bool:
        if value is None:
            if not isinstance(pattern, Variable):
                return False
            self.values[pattern.name] = wanted
        else:
            self.case.need(value == wanted)
        return True

    # Values

    def value(self, pattern: Pattern) -> Any:
        """Returns a number, a tuple of numbers or a text; None if a variable of the pattern is not bound."""
        if isinstance(pattern, Literal):
            return pattern.value
        if isinstance(pattern, Variable):
            return self.values.get(pattern.name)
        if isinstance(pattern, Named):
            n = self.case.number(f"${pattern.name}")
            self.case.assume(at_least(n, 1))
            return n
        if not isinstance(pattern, Call):
            raise NotExpressible(_name_of(pattern))
        return self._called(pattern)

    def _called(self, call: Call) -> Any:
        """Returns the value of a function of values."""
        head = call.head.name
        if head in ("dims", "split", "dtype"):
            return self._of_type(head, call.arguments[0])
        if head in ("vec-get", "take", "drop"):
            self._choose_axis(head, *call.arguments)
        arguments = [self.value(a) for a in call.arguments]
        if any(a is None for a in arguments):
            return None
        if head in RESULTS:
            return self._looked_up(head, arguments)
        if any(isinstance(a, Unknown) for a in arguments):
            return Unknown()
        if head == "widened":
            return widen(arguments[0])
        if head not in VECTORS:
            self.forgotten.add(f"the function {head}")
            return Unknown()
        return VECTORS[head](self.case, *arguments)

    def _of_type(self, head: str, pattern: Pattern) -> Any:
        if isinstance(pattern, Variable) and pattern.name not in self.values:
            return None
        access = self._known_access(pattern.name) if isinstance(pattern, Variable) else self.build(pattern)
        if head == "dims":
            return tuple(plain(n) for n in access.dims)
        return access.split if head == "split" else access.dtype

    def _choose_axis(self, head: str, vector: Pattern, axis: Pattern) -> None:
        if isinstance(axis, Variable) and axis.name not in self.values:
            sizes = self.value(vector)
            if isinstance(sizes, tuple):
                self.values[axis.name] = self.case.choices.choose(range(len(sizes) + (head != "vec-get")))

    def _looked_up(self, head: str, arguments: Sequence[Any]) -> Any:
        """Returns the result of a table, which is a function of Python: it must know its arguments."""
        table = RESULTS[head]
        known = [Dims(a) if isinstance(a, tuple) else a for a in arguments]
        if not all(
            isinstance(n, int) or (isinstance(n, str) and not n.startswith("?"))
            for a in known
            for n in (a if isinstance(a, tuple) else (a,))
        ):
            self.forgotten.add(f"the table {table.name}")
            return Unknown()
        results = table.function(*known)
        if results is None:
            raise Impossible("the table has no row")
        value = results[[f.name for f in table.results.values()].index(head)]
        return tuple(value) if isinstance(value, tuple) else value

    # The right side

    def build(self, pattern: Pattern) -> Access:
        """Returns the access pattern of a right side. Raises Impossible if it cannot be built."""
        if isinstance(pattern, Variable):
            if pattern.name not in self.values:
                raise NotExpressible(f"nothing binds {pattern.name}")
            return self._known_access(pattern.name)
        if not isinstance(pattern, Call) or pattern.head.name not in MEANINGS:
            raise NotExpressible(_name_of(pattern))
        arguments = []
        for argument in pattern.arguments:
            value = self.build(argument) if argument.sort is ACCESS else self.value(argument)
            if value is None:
                raise NotExpressible(f"nothing binds {argument}")
            arguments.append(value)
        return self._applied(pattern.head.name, arguments)


def equations(clause: Clause) -> list[tuple[Pattern, Pattern]]:
    """Returns the pairs that the clause unites."""
    unions = (a for a in clause.actions if isinstance(a, Action) and a.name == "union")
    return [(union.arguments[0], union.arguments[1]) for union in unions]


def lets(clause: Clause) -> Iterator[tuple[str, Pattern]]:
    """Yields the names that the actions bind, and their values."""
    for action in clause.actions:
        if isinstance(action, Action) and action.name == "let" and action.arguments[1].sort is ACCESS:
            yield str(action.arguments[0]), action.arguments[1]


def _forms(facts: Iterable[Fact]) -> tuple[dict[str, Call], list[Fact]]:
    """Returns the operator that each class is matched as, and the other facts. Raises NotExpressible."""
    forms: dict[str, Call] = {}
    rest = []
    for fact in facts:
        for side, form in (fact.arguments[:2], fact.arguments[1::-1]) if fact.head.name == "=" else ():
            matched = isinstance(form, Call) and form.head.name in MEANINGS
            if isinstance(side, Variable) and side.sort is ACCESS and matched:
                if side.name in forms:
                    raise NotExpressible(f"{side.name} in two forms")
                assert isinstance(form, Call)
                forms[side.name] = form
                break
        else:
            if fact.head.name == "=" and fact.arguments[0].sort is ACCESS:
                calls = [a for a in fact.arguments if isinstance(a, Call) and not a.head.declaration]
                if calls:
                    raise NotExpressible(_name_of(calls[0]))
            rest.append(fact)
    return forms, rest


def _definitions(facts: Iterable[Fact]) -> dict[str, list[Pattern]]:
    """Returns what equations say of variables that are numbers or vectors, in terms of ranks and splits."""
    found: dict[str, list[Pattern]] = {}
    for fact in facts:
        for side, value in (fact.arguments, fact.arguments[::-1]) if fact.head.name == "=" else ():
            heads = {node.head.name for node in (value, *_walk(value)) if isinstance(node, Call)}
            if isinstance(side, Variable) and side.sort in (INT, INTS) and heads <= _OF_RANKS:
                found.setdefault(side.name, []).append(value)
    return found


def _condition(head: str, x: Any, y: Any) -> Condition:
    if head in ("=", "!="):
        return same(x, y) if head == "=" else same(x, y).negated
    if head in ("<", ">"):
        return less(x, y) if head == "<" else less(y, x)
    return at_least(y, x) if head == "<=" else at_least(x, y)


def _name_of(pattern: Pattern) -> str:
    return f"the operator {pattern.head.name}" if isinstance(pattern, Call) else str(pattern)


def _walk(part: Fact | Pattern) -> Iterator[Pattern]:
    for argument in part.arguments if isinstance(part, Fact | Call) else ():
        yield argument
        yield from _walk(argument)
