"""Draws programs that match a clause of a rule: every variable is a random term, every attribute a legal random value.

The facts of a clause are solved in the order in which values become known. A relation or a function that rules fill is
replaced by the facts of one clause that fills it, and those of its own in turn; a demand may also simply be made. No
example of the rule is read, so its sizes, splits and dtypes are not those that its author thought of.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from string import Template
from typing import Any, TypeAlias

from glenside.egraph.clause import Action, Clause
from glenside.egraph.examples import named_places
from glenside.egraph.pattern import Call, Fact, Literal, Named, Pattern, Variable
from glenside.egraph.rule import Example, Parameters, Rule
from glenside.egraph.schema import Formula
from glenside.egraph.sorts import ACCESS, ACCESSES, INT, INTS
from glenside.egraph.tables import RESULTS
from glenside.ir.dtypes import STORED, widen
from glenside.ir.errors import GlensideError
from glenside.ir.operator import COMPUTES, OPERATORS, Keeps, Kind, Operator
from glenside.ir.term import Term, build, make, postorder, weave
from glenside.ir.text import parse
from glenside.ir.types import AccessType, Dims, Tensor
from glenside.rewrites import RULES

Name: TypeAlias = tuple[int, str]
"""A variable of one of the clauses that take part: its name, and the number of the clause."""
Scoped: TypeAlias = tuple[Any, int]
"""A pattern or a fact, and its clause."""

DTYPES = ("float32", "float32", "float32", "float64", "int32", "int8", "uint8", "float16", "int64")
SIZES = (0, 1, 1, 2, 2, 2, 3, 3, 4, 6)
_MOST_ELEMENTS = 300
_FREE = ("source", "varies", "constant", "tiled")
"""Facts that only restrict where rules fire, and may be asserted for any class."""
_EXACT = ("relu", "negative", "abs", "sign", "(clip -2 3)", "reduce-sum", "reduce-max", "reduce-min", "reduce-prod")
_EXACT += ("elementwise-add", "elementwise-mul", "subtract", "minimum", "maximum", "dot-product", "argmax", "argmin")
_EXACT += ("reduce-mean", "softmax", "elementwise-div", "floor")


class NoInstance(Exception):
    """This draw matches nothing."""


@dataclass
class Instance:
    """Terms that match a clause, and asserted facts: (relation, arguments)."""

    terms: Sequence[Term]
    wants: Sequence[tuple[str, Sequence[Any]]]


def instance(clause: Clause, seed: int, parameters: Parameters, tries: int = 400) -> Instance | None:
    """Draws a program that matches the facts of a clause; None if none was found."""
    for number in range(tries):
        try:
            return _Draw(random.Random(f"{seed} {number}"), parameters).of(clause)
        except (
            NoInstance,
            _Unknown,
            GlensideError,
            IndexError,
            ValueError,
            ZeroDivisionError,
            OverflowError,
            RecursionError,
        ):
            continue
    return None


def mutant(example: Example, seed: int, tries: int = 60) -> Instance | None:
    """Draws a variant of an example with other sizes (0 and 1 among them), splits, attributes and dtypes; facts
    asserted for nodes of the example are asserted for their variants. None if the facts depend on the values, or no
    program was found.
    """
    if any(isinstance(want, Action) or want.head.name not in _demands() for want in example.wants):
        return None
    for number in range(tries):
        try:
            return _Mutant(random.Random(f"{seed} {number}")).of(example)
        except (NoInstance, GlensideError, IndexError, ValueError, ZeroDivisionError, KeyError):
            continue
    return None


def _name(prefix: str, dims: Sequence[int], dtype: str) -> str:
    """Returns the name of a tensor: equal names are equal tensors."""
    return f"{prefix}_{'x'.join(map(str, dims))}_{dtype}"


@cache
def _producers() -> Mapping[str, list[tuple[Clause, Fact | Action]]]:
    """Returns for each relation and function the clauses that fill it."""
    found: dict[str, list[tuple[Clause, Fact | Action]]] = {}
    for rule in RULES.values():
        for clause in rule.clauses:
            for action in clause.actions:
                if isinstance(action, Fact):
                    found.setdefault(action.head.name, []).append((clause, action))
                elif action.name == "set":
                    head = action.arguments[0]
                    assert isinstance(head, Call)
                    found.setdefault(head.head.name, []).append((clause, action))
    return found


@cache
def _demands() -> frozenset[str]:
    """Returns the relations that examples of rules assert."""
    rules: Iterable[Rule] = RULES.values()
    wants = [want for rule in rules for example in rule.examples for want in example.wants]
    return frozenset({*_FREE, *(w.head.name for w in wants if isinstance(w, Fact) and w.head.name.startswith("want-"))})


@dataclass
class _Draw:
    """One attempt to draw an instance."""

    random: random.Random
    parameters: Parameters
    facts: list[Scoped] = field(default_factory=list)
    known: dict[Name, Any] = field(default_factory=dict)
    same: dict[Name, Name] = field(default_factory=dict)
    definitions: dict[Name, list[Scoped]] = field(default_factory=dict)
    equations: list[tuple[Scoped, Scoped]] = field(default_factory=list)
    conditions: list[Scoped] = field(default_factory=list)
    wants: list[tuple[str, list[Scoped]]] = field(default_factory=list)
    leaves: list[Term] = field(default_factory=list)
    scopes: int = 0
    making: set[Name] = field(default_factory=set)

    def of(self, clause: Clause) -> Instance:
        self.dtype = self.random.choice(DTYPES)
        self._take(clause, depth=0)
        self._propagate()
        names = [self._of(name) for name in self._accesses()]
        for name in names:
            self._term(name)
        for _, arguments in self.wants:
            for part, scope in arguments:
                if self._or_unknown((part, scope)) is _UNKNOWN:
                    self._bind(part, scope, self._guess(part))
                    self._propagate()
        terms = list(dict.fromkeys(self.known[name] for name in names))
        below = {node for term in terms for child in term.children for node in postorder(child)}
        told = [(head, [self._value(argument) for argument in arguments]) for head, arguments in self.wants]
        return Instance([term for term in terms if term not in below], told)

    # Facts: from the clause, and from those that fill what it reads

    def _take(self, clause: Clause, depth: int) -> int:
        scope = self.scopes
        self.scopes += 1
        for fact in clause.facts:
            self._take_fact(fact, scope, depth)
        return scope

    def _take_fact(self, fact: Fact, scope: int, depth: int) -> None:
        self.facts.append((fact, scope))
        if fact.head.name == "=":
            self._equal((fact.arguments[0], scope), (fact.arguments[1], scope))
        elif fact.head.name in ("!=", "<", "<=", ">", ">=", "category", "keeps-zero", "compute-dtype", "given"):
            self.conditions.append((fact, scope))
        else:
            self._fill(fact.head.name, [(a, scope) for a in fact.arguments], None, depth)
        for part in fact.arguments:
            self._fill_calls(part, scope, depth)

    def _fill_calls(self, part: Pattern, scope: int, depth: int) -> None:
        """Computes the values of functions that rules fill."""
        if not isinstance(part, Call):
            return
        for argument in part.arguments:
            self._fill_calls(argument, scope, depth)
        head = part.head
        if head.name in _producers() and head.name not in OPERATORS and not isinstance(head, Formula):
            value = (Variable(f"value of {id(part)}", part.sort), scope)
            self.known_calls[id(part), scope] = value
            self._fill(head.name, [(a, scope) for a in part.arguments], value, depth)

    @property
    def known_calls(self) -> dict[tuple[int, int], Scoped]:
        return self.__dict__.setdefault("_calls", {})

    def _fill(self, head: str, arguments: list[Scoped], value: Scoped | None, depth: int) -> None:
        producers = _producers().get(head, [])
        free = head in _demands() and value is None
        if free and (not producers or head in _FREE or self.random.random() < 0.5):
            self.wants.append((head, arguments))
            return
        if not producers:
            self.conditions.append((_Rows(head), 0))
            return
        if depth >= 7:
            raise NoInstance
        clause, action = self.random.choice(producers)
        scope = self._take(clause, depth + 1)
        for step in clause.actions:
            if isinstance(step, Action) and step.name == "let":
                self._equal((step.arguments[0], scope), (step.arguments[1], scope))
                self._fill_calls(step.arguments[1], scope, depth + 1)
        if isinstance(action, Fact):
            given: Sequence[Pattern] = action.arguments
        else:
            call, result = action.arguments
            assert isinstance(call, Call)
            assert value is not None
            given = call.arguments
            self._equal(value, (result, scope))
        for ours, theirs in zip(arguments, given, strict=True):
            self._equal(ours, (theirs, scope))

    def _equal(self, a: Scoped, b: Scoped) -> None:
        for side in (a, b):
            if isinstance(side[0], Call) and (id(side[0]), side[1]) in self.known_calls:
                return self._equal(self.known_calls[id(side[0]), side[1]], b if side is a else a)
        one, other = a[0], b[0]
        if isinstance(one, Variable) and isinstance(other, Variable):
            x, y = self._of((a[1], one.name)), self._of((b[1], other.name))
            if x != y:
                self.same[x] = y
                self.definitions.setdefault(y, []).extend(self.definitions.pop(x, []))
        elif isinstance(one, Variable) and _is_node(other):
            self.definitions.setdefault(self._of((a[1], one.name)), []).append(b)
        elif isinstance(other, Variable) and _is_node(one):
            self.definitions.setdefault(self._of((b[1], other.name)), []).append(a)
        else:
            self.equations.append((a, b))
        return None

    def _of(self, name: Name) -> Name:
        while name in self.same:
            name = self.same[name]
        return name

    def _accesses(self) -> list[Name]:
        names: dict[Name, None] = {}

        def visit(part: Any, scope: int) -> None:
            if isinstance(part, Variable) and part.sort is ACCESS:
                names[self._of((scope, part.name))] = None
            for argument in getattr(part, "arguments", ()):
                visit(argument, scope)

        for fact, scope in self.facts:
            visit(fact, scope)
        return list(names)

    # Values

    def _value(self, scoped: Scoped) -> Any:
        """Returns the value of a pattern. Raises _Unknown if it is not known yet."""
        part, scope = scoped
        if isinstance(part, Literal):
            return part.value
        if isinstance(part, Named):
            return self.parameters[part.name]
        if isinstance(part, Variable):
            name = self._of((scope, part.name))
            if name not in self.known:
                raise _Unknown
            return self.known[name]
        assert isinstance(part, Call), part
        if (id(part), scope) in self.known_calls:
            return self._value(self.known_calls[id(part), scope])
        return self._of_call(part, [self._value((a, scope)) for a in part.arguments])

    def _of_call(self, part: Call, values: list[Any]) -> Any:
        """Returns the value of a call. Raises _Unknown, and NoInstance if a table has no row."""
        head = part.head.name
        if head in OPERATORS:
            return _built(OPERATORS[head], values)
        if isinstance(part.head, Formula):
            return self.parameters[part.head.name](*values)
        if head in RESULTS:
            table = RESULTS[head]
            row = table.function(*values)
            if row is None:
                raise NoInstance
            return row[[f.name for f in table.results.values()].index(head)]
        if head not in _VALUES:
            raise _Unknown
        return _VALUES[head](*values)

    def _propagate(self) -> None:
        """Binds variables by equations, and checks known facts. Raises NoInstance if a fact does not hold."""
        changed = True
        while changed:
            changed = False
            for equation in [*self.equations]:
                a, b = (self._or_unknown(side) for side in equation)
                if a is _UNKNOWN and b is _UNKNOWN:
                    continue
                if a is not _UNKNOWN and b is not _UNKNOWN:
                    if a != b:
                        raise NoInstance
                else:
                    (part, scope), value = (equation[0], b) if a is _UNKNOWN else (equation[1], a)
                    if not isinstance(part, Variable):
                        continue
                    self.known[self._of((scope, part.name))] = value
                self.equations.remove(equation)
                changed = True
            for condition in [*self.conditions]:
                if self._holds(condition):
                    self.conditions.remove(condition)
                    changed = True

    def _or_unknown(self, scoped: Scoped) -> Any:
        try:
            return self._value(scoped)
        except _Unknown:
            return _UNKNOWN

    def _holds(self, condition: Scoped) -> bool:
        """True if a fact is known to hold. Raises NoInstance if it is known not to hold."""
        fact, scope = condition
        if isinstance(fact, _Rows):
            return True
        values = [self._or_unknown((a, scope)) for a in fact.arguments]
        name = fact.head.name
        if name == "category" and values[0] is _UNKNOWN:
            wanted = [k for k in _EXACT if values[1] in (_UNKNOWN, _compute(k).category.value)]
            if not wanted:
                raise NoInstance
            values[0] = self._bind(fact.arguments[0], scope, self.random.choice(wanted))
        if name == "category" and values[1] is _UNKNOWN:
            values[1] = self._bind(fact.arguments[1], scope, _compute(values[0]).category.value)
        if name == "compute-dtype" and _UNKNOWN not in values[:1] and values[1] is _UNKNOWN:
            values[1] = self._bind(fact.arguments[1], scope, _compute(values[0]).dtype)
        if any(value is _UNKNOWN for value in values):
            return False
        if not _CONDITIONS[name](*values):
            raise NoInstance
        return True

    def _guess(self, part: Any) -> Any:
        """Guesses the term of a demand."""
        if not isinstance(part, Variable) or part.sort not in (INT, INTS):
            raise NoInstance
        return self.random.choice((0, 1, 1, 2, 2, 3)) if part.sort is INT else self._dims(3)

    def _bind(self, part: Any, scope: int, value: Any) -> Any:
        assert isinstance(part, Variable)
        self.known[self._of((scope, part.name))] = value
        return value

    # Terms

    def _term(self, name: Name) -> Term:
        name = self._of(name)
        if name in self.known:
            found: Term = self.known[name]
            return found
        if name in self.making:
            raise NoInstance
        self.making.add(name)
        of = self.definitions.get(name, [])
        if len(of) > 1:
            of = list({id(d[0]): d for d in of}.values())
        term = self._node(*of[0]) if of else self._leaf(name)
        self.known[name] = term
        for other in of[1:]:
            if self._node(*other) is not term:
                raise NoInstance
        self._propagate()
        return term

    def _node(self, call: Call, scope: int) -> Term:
        """Draws a term of the operator of a call."""
        operator = OPERATORS[call.head.name]
        parts = list(zip(call.arguments, call.head.columns, strict=True))
        if any(column.sort is ACCESSES for _, column in parts):
            raise NoInstance
        children = {i: self._child(part, scope) for i, (part, column) in enumerate(parts) if column.sort is ACCESS}
        self._propagate()
        fixed = {i: self._or_unknown((part, scope)) for i, (part, _) in enumerate(parts) if i not in children}
        error: Exception = NoInstance()
        for _ in range(12):
            values: dict[int, Any] = dict(children)
            drawn = self._attributes(operator, [values[i] for i in sorted(children)])
            for i, value in fixed.items():
                guess = next(drawn)
                values[i] = guess if value is _UNKNOWN else value
            try:
                term = _built(operator, [values[i] for i in range(len(parts))])
            except (GlensideError, IndexError, ValueError) as found:
                error = found
                continue
            if isinstance(term.type, AccessType) and term.access.size <= _MOST_ELEMENTS and term.access.rank <= 9:
                for i, value in fixed.items():
                    if value is _UNKNOWN:
                        self._solve((parts[i][0], scope), values[i])
                return term
        raise error

    def _child(self, part: Any, scope: int) -> Any:
        if isinstance(part, Variable):
            return self._term((scope, part.name))
        if _is_node(part):
            return self._node(part, scope)
        value = self._or_unknown((part, scope))
        if value is _UNKNOWN:
            raise NoInstance
        return value

    def _solve(self, scoped: Scoped, value: Any) -> None:
        """Binds the variables of a pattern to a value."""
        part, scope = scoped
        if isinstance(part, Variable):
            self.known.setdefault(self._of((scope, part.name)), value)
            return
        known = self._or_unknown(scoped)
        if known is _UNKNOWN and isinstance(part, Call):
            name, arguments = part.head.name, part.arguments
            if name == "vec-of" and len(arguments) == len(value):
                for argument, size in zip(arguments, value, strict=True):
                    self._solve((argument, scope), size)
            else:
                for argument in arguments:
                    if self._or_unknown((argument, scope)) is _UNKNOWN and isinstance(argument, Variable):
                        self._bind(argument, scope, self.random.choice((0, 1, 1, 2, 2, 3)))
            known = self._or_unknown(scoped)
        if known != value:
            raise NoInstance

    def _leaf(self, name: Name) -> Term:
        """Draws a term, often one that fits the others."""
        dims, split = self._wanted(name)
        r = self.random
        if self.leaves and dims is None and r.random() < 0.6:
            like = r.choice(self.leaves).access
            kept = r.choice(("all", "item", "dims", "some"))
            split = split if split is not None else like.split
            shape, item = like.shape, like.item
            if kept == "item":
                shape = self._dims(2)
            elif kept == "some" and like.rank:
                axis = r.randrange(like.rank)
                every = like.dims.set(axis, r.choice(SIZES))
                shape, item = every.take(like.split), every.drop(like.split)
            dims = shape.append(item)
            split = len(shape) if kept == "item" else split
        elif self.leaves and split is None and r.random() < 0.2:
            return r.choice(self.leaves)
        dims = self._dims(4) if dims is None else dims
        split = r.randint(0, len(dims)) if split is None else split
        if not 0 <= split <= len(dims) or math.prod(dims) > _MOST_ELEMENTS:
            raise NoInstance
        term = self._source(Dims(dims))
        if split or r.random() < 0.3:
            term = build("access", term, split)
        self.leaves.append(term)
        return term

    def _source(self, dims: Dims) -> Term:
        r = self.random
        kind = r.random()
        number = len(self.leaves)
        if kind < 0.2:
            return build("full", dims, r.choice((0, 1, 2, 3)), self.dtype)
        if kind < 0.35:
            inner = self._tensor(dims, number)
            return build("compute", r.choice(("negative", "relu", "abs")), inner)
        if kind < 0.45 and len(dims) > 1:
            order = r.sample(range(len(dims)), len(dims))
            before = Dims(dims[order.index(i)] for i in range(len(dims)))
            return build("access-transpose", self._tensor(before, number), order)
        if kind < 0.55 and dims:
            return build("access-reshape", self._tensor(Dims((math.prod(dims),)), number), ((), dims))
        return self._tensor(dims, number)

    def _tensor(self, dims: Dims, number: int) -> Term:
        constant = self.random.random() < 0.3
        name = _name(f"{'w' if constant else 'x'}{number}", dims, self.dtype)
        return build("access-tensor", Tensor(name, dims, self.dtype, constant))

    def _dims(self, most: int) -> Dims:
        return Dims(self.random.choice(SIZES) for _ in range(self.random.randint(0, most)))

    def _wanted(self, name: Name) -> tuple[Dims | None, int | None]:
        """Returns the dims and the split that equations require of a class."""
        dims: Dims | None = None
        split: int | None = None
        for a, b in self.equations:
            for call, other in ((a, b), (b, a)):
                part, scope = call
                if isinstance(part, Call) and part.head.name in ("dims", "split"):
                    operand = part.arguments[0]
                    if isinstance(operand, Variable) and self._of((scope, operand.name)) == name:
                        value = self._or_unknown(other)
                        if value is not _UNKNOWN and part.head.name == "dims":
                            dims = value
                        elif value is not _UNKNOWN:
                            split = value
        return dims, split

    # Attributes

    def _attributes(self, operator: Operator, children: Sequence[Term]) -> Iterator[Any]:
        """Draws values for columns that are not classes, most of them legal."""
        draw = getattr(self, f"_of_{operator.name.removeprefix('access-').replace('-', '_')}", None)
        if draw is not None:
            yield from draw(*(child.access for child in children))
            return
        rank = children[0].access.rank if children else 2
        for f in operator.fields:
            if f.kind is Kind.COMPUTE:
                yield self.random.choice(_EXACT)
            elif f.kind is Kind.DTYPE:
                yield self.random.choice((self.dtype, *DTYPES))
            elif f.kind is Kind.KEYWORD:
                yield self.random.choice([*f.choices])
            elif f.kind is Kind.INT:
                yield self.random.choice((0, 1, 1, 2, 3, *range(rank)))
            elif f.kind in (Kind.INTS, Kind.SHAPE):
                yield self._dims(3)
            elif f.kind is Kind.ACCESS_SHAPE:
                yield self._dims(2)
                yield self._dims(2)
            elif f.kind not in (Kind.TERM, Kind.TERMS):
                yield str(self.random.choice((0, 1, 2, 3)))

    def _axis(self, a: AccessType) -> int:
        return self.random.randrange(a.rank) if a.rank else 0

    def _of_access(self, a: AccessType) -> Iterator[Any]:
        yield self.random.randint(0, a.rank)

    def _of_product(self, a: AccessType, b: AccessType) -> Iterator[Any]:
        yield self.random.randint(0, min(a.split, b.split))

    def _of_transpose(self, a: AccessType) -> Iterator[Any]:
        yield Dims(self.random.sample(range(a.rank), a.rank))

    def _of_slice(self, a: AccessType) -> Iterator[Any]:
        axis = self._axis(a)
        lo, hi = sorted(self.random.randint(0, a.dims[axis] if a.rank else 0) for _ in "ab")
        yield from (axis, lo, hi)

    def _of_pad(self, a: AccessType) -> Iterator[Any]:
        kind = self.random.choice(("zero-padding", "zero-padding", "min-padding", "max-padding", "one-padding"))
        yield from (kind, self._axis(a), self.random.randint(0, 2), self.random.randint(0, 2))

    def _of_dilate(self, a: AccessType) -> Iterator[Any]:
        yield from (self._axis(a), self.random.randint(0, 2))

    def _of_concatenate(self, a: AccessType, b: AccessType) -> Iterator[Any]:
        yield self._axis(a)

    def _of_flip(self, a: AccessType) -> Iterator[Any]:
        yield self._axis(a)

    def _of_insert_axis(self, a: AccessType) -> Iterator[Any]:
        yield self.random.randint(0, a.rank)

    def _of_squeeze(self, a: AccessType) -> Iterator[Any]:
        yield self.random.choice([i for i, n in enumerate(a.dims) if n == 1] or [0])

    def _regrouped(self, dims: Sequence[int]) -> Dims:
        """Returns other dims with the same number of elements."""
        r, size = self.random, math.prod(dims)
        if size == 0:
            found = [0, *(r.choice(SIZES) for _ in range(r.randint(0, 2)))]
            r.shuffle(found)
            return Dims(found)
        way = r.random()
        if way < 0.3:
            return Dims(dims)
        found = [n for n in dims if n > 1]
        if way < 0.6 and len(found) > 1:
            at = r.randrange(len(found) - 1)
            found[at : at + 2] = [found[at] * found[at + 1]]
        if way > 0.5:
            found = [part for n in found for part in self._factors(n)]
        if r.random() < 0.3:
            r.shuffle(found)
        if r.random() < 0.3 or (not found and r.random() < 0.5):
            found.insert(r.randint(0, len(found)), 1)
        return Dims(found)

    def _factors(self, n: int) -> tuple[int, ...]:
        by = [d for d in range(2, n) if n % d == 0]
        if not by or self.random.random() < 0.5:
            return (n,)
        d = self.random.choice(by)
        return d, n // d

    def _of_reshape(self, a: AccessType) -> Iterator[Any]:
        yield from (self._regrouped(a.shape), self._regrouped(a.item))

    def _of_rearrange(self, a: AccessType) -> Iterator[Any]:
        parts = self._regrouped(a.dims)
        order = self.random.sample(range(len(parts)), len(parts))
        if self.random.random() < 0.4 or not parts:
            parts, order = Dims((math.prod(a.dims),)), [0]
        every = self._regrouped([parts[i] for i in order])
        split = self.random.choice((0, 0, self.random.randint(0, len(every))))
        yield from (parts, Dims(order), every.take(split), every.drop(split))

    def _of_broadcast(self, a: AccessType) -> Iterator[Any]:
        wide = Dims(self.random.choice((1, 2, 3)) if n == 1 else n for n in a.dims)
        yield from (wide.take(a.split), wide.drop(a.split))

    def _of_windows(self, a: AccessType) -> Iterator[Any]:
        yield Dims(self.random.randint(1, max(1, n)) for n in a.item)
        yield Dims(self.random.randint(1, 3) for _ in a.item)

    def _of_overlap_add(self, a: AccessType) -> Iterator[Any]:
        n = len(a.item) // 2 if self.random.random() < 0.3 else len(a.item)
        strides = [self.random.randint(1, 3) for _ in a.item]
        counts = a.shape[a.split - n :] if n <= a.split else ()
        out = [k + (c - 1) * t + self.random.randint(0, 1) for k, c, t in zip(a.item, counts, strides, strict=False)]
        yield from (Dims(out), Dims(strides[: len(out)]))

    def _of_full(self) -> Iterator[Any]:
        yield from (self._dims(3), str(self.random.choice((0, 1, 2, 3))), self.dtype)

    def _of_cast(self, a: AccessType) -> Iterator[Any]:
        yield self.random.choice(DTYPES)

    def _of_linear_map(self, a: AccessType) -> Iterator[Any]:
        axis, rows = self._axis(a), self.random.randint(1, 3)
        n = a.dims[axis] if a.rank else 0
        yield from (axis, rows, " ".join(str(self.random.randint(-2, 2)) for _ in range(rows * n)))

    def _of_opaque_pointwise(self, a: AccessType) -> Iterator[Any]:
        if self.random.random() < 0.5 or not a.rank or 0 in a.dims:
            yield from ("f", a.dtype, Dims(), Dims())
        else:
            yield from ("f", a.dtype, a.dims, Dims(sorted(self.random.sample(range(a.rank), 1))))

    _of_opaque_items = _of_opaque_pointwise


@dataclass
class _Mutant(_Draw):
    """One attempt to vary an example."""

    parameters: Parameters = field(default_factory=dict)

    def of(self, example: Example) -> Instance:  # type: ignore[override]
        r = self.random
        words = [*re.findall(r"\$(\w+)", example.text), *(w for dims in example.shapes.values() for w in dims.split())]
        sizes = {word: r.choice(SIZES) for word in words if not word.isdigit()}
        dims = {
            name: tuple(int(word) if word.isdigit() else sizes[word] for word in said.split())
            for name, said in example.shapes.items()
        }
        program = parse(Template(example.text).substitute(sizes), shapes=dims)
        nodes = [*postorder(program.term)]
        self.dtype = r.choice((*DTYPES, "float32"))
        self.odd = r.choice((0.0, 0.05, 0.1))
        became: dict[Term, Term] = {}
        for node in nodes:
            became[node] = self._changed(node, [became[child] for child in node.children])
        last = became[nodes[-1]]
        if not isinstance(last.type, AccessType):
            raise NoInstance
        places = named_places(nodes)
        told = [
            (want.head.name, [self._told(a, lambda name: became[nodes[places[name]]]) for a in want.arguments])
            for want in example.wants
            if isinstance(want, Fact)
        ]
        below = {*postorder(last)}
        if any(isinstance(a, Term) and a not in below for _, arguments in told for a in arguments):
            raise NoInstance
        return Instance([last], told)

    def _told(self, part: Pattern, node: Callable[[str], Term]) -> Any:
        if isinstance(part, Named):
            return node(part.name)
        if isinstance(part, Literal):
            if isinstance(part.value, int) and self.random.random() < self.odd:
                return max(0, part.value + self.random.choice((-1, 1)))
            return part.value
        assert isinstance(part, Call)
        return Dims(self._told(a, node) for a in part.arguments)

    def _changed(self, node: Term, children: Sequence[Term]) -> Term:
        """Returns a node on varied operands, with other attributes if necessary or allowed."""
        r, operator = self.random, node.operator
        tensor = node.attributes[0] if node.attributes else None
        if isinstance(tensor, Tensor):
            dims = [n if r.random() > self.odd else r.choice(SIZES) for n in tensor.dims]
            name = _name(tensor.name, dims, self.dtype)
            return build("access-tensor", Tensor(name, Dims(dims), self.dtype, tensor.constant))
        columns = [*node.attributes]
        for number in range(12):
            own = list(columns)
            if number or r.random() < self.odd:
                drawn = [*self._attributes(operator, children)]
                own = [d if number > 6 or r.random() < 0.5 else c for d, c in zip(drawn, own, strict=False)]
            if operator.name in ("full", "numbers", "iota", "eye", "access-literal"):
                own = [self.dtype if c in STORED or c in DTYPES else c for c in own]
            try:
                term = make(operator, weave(operator, children, own))
            except (GlensideError, IndexError, ValueError):
                continue
            if isinstance(term.type, AccessType) and term.access.size <= 4 * _MOST_ELEMENTS and term.access.rank <= 10:
                if r.random() < self.odd:
                    return build("access", term, r.randint(0, term.access.rank))
                return term
        raise NoInstance


class _Unknown(Exception):
    """The value depends on an unbound variable."""


class _UnknownValue:
    __slots__ = ()


_UNKNOWN = _UnknownValue()


@dataclass(frozen=True)
class _Rows:
    """A relation with its own rows; the search finds out whether one matches."""

    name: str
    arguments: tuple[Any, ...] = ()


def _is_node(part: Any) -> bool:
    return isinstance(part, Call) and part.head.name in OPERATORS


def _compute(kind: str) -> Any:
    return COMPUTES[kind.strip("()").split()[0]]


def _built(operator: Operator, columns: Sequence[Any]) -> Term:
    """Returns the term of an e-node's columns, in order."""
    children = [c for c in columns if isinstance(c, Term)]
    attributes = [c for c in columns if not isinstance(c, Term)]
    return make(operator, weave(operator, children, attributes))


def _quotient(a: int, b: int) -> int:
    return int(a / b) if abs(a) < 1 << 50 else a // b


_VALUES: Mapping[str, Callable[..., Any]] = {
    "dims": lambda x: x.access.dims,
    "split": lambda x: x.access.split,
    "dtype": lambda x: x.access.dtype,
    "widened": widen,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _quotient,
    "%": lambda a, b: int(math.fmod(a, b)),
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "<<": lambda a, b: a << b,
    "min": min,
    "max": max,
    "gcd": math.gcd,
    "vec-of": lambda *sizes: Dims(sizes),
    "vec-get": lambda d, i: _at(d, i),
    "vec-length": len,
    "vec-set": lambda d, i, n: d.set(i, n) if 0 <= i < len(d) else _none(),
    "vec-remove": lambda d, i: d.remove(i) if 0 <= i < len(d) else _none(),
    "vec-push": lambda d, n: d.append([n]),
    "vec-pop": lambda d: Dims(d[:-1]) if d else _none(),
    "vec-append": lambda *ds: Dims(n for d in ds for n in d),
    "vec-range": lambda n: Dims(range(n)),
    "take": lambda d, n: d.take(n) if 0 <= n <= len(d) else _none(),
    "drop": lambda d, n: d.drop(n) if 0 <= n <= len(d) else _none(),
    "insert": lambda d, n, i: d.insert(i, n) if 0 <= i <= len(d) else _none(),
    "permute": lambda d, p: Dims(_at(d, i) for i in p),
    "shift": lambda d, n: Dims(i + n for i in d),
    "windows": lambda k, t, d: d.windows(k, t),
    "product": lambda d: math.prod(d),
    "prefixes": lambda d: Dims(math.prod(d[:i]) for i in range(len(d) + 1)),
    "highest": lambda d: max(d, default=-1),
}
_CONDITIONS: Mapping[str, Callable[..., bool]] = {
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "category": lambda kind, category: _compute(kind).category.value == category,
    "compute-dtype": lambda kind, dtype: _compute(kind).dtype == dtype,
    "keeps-zero": lambda kind: Keeps.ZERO in _compute(kind).keeps,
    "given": lambda a, name, d, s, t: (a.operator.name, a.type) == (name, AccessType(d, s, t)),
}


def _at(d: Dims, i: int) -> int:
    return d[i] if 0 <= i < len(d) else _none()


def _none() -> Any:
    raise NoInstance
