"""Applies the scalar rules to the elementwise functions of a program, where that leaves cheaper primitives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from glenside.algebra.scalar_rules import SCALAR_RULES, ScalarRule
from glenside.algebra.search import Candidate
from glenside.builder.pointwise import combine, compute, filled
from glenside.ir.operator import COMPUTES, Category, Kind
from glenside.ir.operators.compute import compute_of, compute_text
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.program import Program
from glenside.ir.scalar import Applied, Element, Number, Scalar, x, y
from glenside.ir.term import Term, build, rebuild_all
from glenside.passes.element_functions import is_one_number, number_of, operands_of
from glenside.targets.base import ProductPrices

_COMMUTE = frozenset(("add", "multiply", "min", "max"))
_COSTS = {"negative": 1, "abs": 1, "logical-not": 1, "divide": 8, "pow": 16}
_COST = 2
"""Costs of primitives: signs are single bits, quotients take longer; `_COST` of others."""


Place = tuple[int, ...]


@dataclass(frozen=True)
class _Leaf(Scalar):
    """A term in an expression."""

    term: Term


@dataclass(frozen=True)
class _Match:
    """A match of a pattern: the term of each variable, and the matched terms below the root."""

    letters: Mapping[str, Scalar] = field(default_factory=dict)
    covered: frozenset[Term] = frozenset()


def simplified(program: Program) -> tuple[Program, Counter[str]]:
    """Returns an equal program with fewer or cheaper elementwise primitives, and how often each rule was applied."""
    work = _Simplification(program)
    roots = rebuild_all(program.roots, work.simpler)
    return (program.with_roots(roots) if work.applied else program), work.applied


def with_simpler_elements(program: Program, prices: ProductPrices) -> tuple[Program, tuple[Candidate, ...]]:
    """Returns the program with simpler elementwise functions, and them as a candidate, if they take time."""

    def cost(each: Program) -> float:
        steps = [term for term in each.info.order if _is_elementwise(term)]
        return sum(prices.elementwise(term.children[0].access.size, term.access.size) for term in steps)

    simpler, applied = simplified(program) if prices.times_elements else (program, {})
    if not applied:
        return program, ()
    costs = cost(program), cost(simpler)
    return simpler, (Candidate("elementwise functions", (), tuple(sorted(applied)), *costs, True),)


@dataclass
class _Simplification:
    """Simplifies terms, children first.

    applied  the rules, with how often each was applied
    shared   terms that several terms, or the outside, read
    """

    program: Program
    applied: Counter[str] = field(default_factory=Counter)
    shared: set[Term] = field(default_factory=set)

    def simpler(self, term: Term, children: tuple[Term, ...]) -> Term | None:
        """Returns a simpler term in place of one with these children; None if no rule applies."""
        if term.operator.name != "compute":
            return None
        given = term if children == term.children else build("compute", term.attributes[0], *children)
        found = given
        while (simpler := self._once(found)) is not None:
            found = simpler
        if len({*self.program.info.users.get(term, ())}) != 1 or term in self.program.roots:
            self.shared.add(found)
        return None if found is given else found

    def _once(self, term: Term) -> Term | None:
        """Returns the term after the first rule that pays."""
        whole = _view(term)
        if whole is None:
            return None
        for at, expression in _parts(whole):
            for rule in _rules_of(expression):
                if not {term.access.dtype, term.children[0].access.dtype} <= {*rule.dtypes}:
                    continue
                for found in _matches(rule.left, expression, _Match()):
                    right = _right(rule, found)
                    new = None if right is None else _with_part(whole, at, right)
                    if new is not None and _cost(new) < _cost(whole) + self._freed(found.covered):
                        self.applied[rule.name] += 1
                        return _built(new, term)
        return None

    def _freed(self, covered: Collection[Term]) -> int:
        """Returns the cost of the covered terms that nothing else reads."""
        return sum(_cost(_view(term)) for term in covered if term not in self.shared)


def _view(term: Term) -> Scalar | None:
    """Returns an elementwise function as an expression of its operands; None for other terms."""
    operands = operands_of(term)
    if operands is None or not _is_elementwise(term):
        return None
    record, parameters = compute_of(term)
    return None if record.scalar is None else _with_operands(record.expression(*parameters), [*map(_operand, operands)])


def _is_elementwise(term: Term) -> bool:
    """True if a term computes each element from those at the same place of its operands."""
    return term.operator.name == "compute" and operands_of(term) is not None


def _operand(term: Term) -> Scalar:
    number = number_of(term) if is_one_number(term) else term
    return Number(str(number.attributes[1])) if number.operator.name == "full" else _Leaf(term)


def _with_operands(expression: Scalar, operands: list[Scalar]) -> Scalar:
    if isinstance(expression, Element):
        return operands[expression.position]
    if isinstance(expression, Applied):
        return replace(expression, arguments=tuple(_with_operands(part, operands) for part in expression.arguments))
    return expression


def _parts(expression: Scalar, at: Place = ()) -> Iterator[tuple[Place, Scalar]]:
    """Yields the parts of an expression with their places: the positions of arguments from the root down."""
    yield at, expression
    for position, part in enumerate(expression.arguments if isinstance(expression, Applied) else ()):
        yield from _parts(part, (*at, position))


def _with_part(expression: Scalar, at: Place, part: Scalar) -> Scalar:
    """Returns an expression with another part at a place."""
    if not at:
        return part
    assert isinstance(expression, Applied)
    arguments = list(expression.arguments)
    arguments[at[0]] = _with_part(arguments[at[0]], at[1:], part)
    return replace(expression, arguments=tuple(arguments))


def _cost(expression: Scalar | None) -> int:
    if not isinstance(expression, Applied):
        return 0
    return _COSTS.get(expression.primitive.name, _COST) + sum(map(_cost, expression.arguments))


@cache
def _of_primitive(name: str) -> tuple[ScalarRule, ...]:
    rules = SCALAR_RULES.values()
    return tuple(rule for rule in rules if isinstance(rule.left, Applied) and rule.left.primitive.name == name)


def _rules_of(expression: Scalar) -> tuple[ScalarRule, ...]:
    return _of_primitive(expression.primitive.name) if isinstance(expression, Applied) else ()


def _matches(pattern: Scalar, expression: Scalar, found: _Match) -> Iterator[_Match]:
    """Yields what the letters of a pattern stand for so that it is an expression."""
    if isinstance(pattern, Applied):
        covered = found.covered
        if isinstance(expression, _Leaf):
            covered |= {expression.term}
            expression = _view(expression.term) or expression
        if not isinstance(expression, Applied) or expression.primitive is not pattern.primitive:
            return
        orders = [pattern.arguments, *([pattern.arguments[::-1]] if pattern.primitive.name in _COMMUTE else [])]
        for arguments in orders:
            yield from _all_match(arguments, expression.arguments, replace(found, covered=covered))
    elif isinstance(pattern, Number) and pattern.value is not None:
        if isinstance(expression, Number) and expression.value == pattern.value:
            yield found
    elif isinstance(pattern, Element) or (isinstance(expression, Number) and expression.value is not None):
        if found.letters.get(str(pattern), expression) == expression:
            yield replace(found, letters={**found.letters, str(pattern): expression})


def _all_match(patterns: tuple[Scalar, ...], expressions: tuple[Scalar, ...], found: _Match) -> Iterator[_Match]:
    if not patterns:
        yield found
        return
    for more in _matches(patterns[0], expressions[0], found):
        yield from _all_match(patterns[1:], expressions[1:], more)


def _right(rule: ScalarRule, found: _Match) -> Scalar | None:
    """Returns the right side of a rule; None if the guard does not hold."""
    numbers = {name: part.value for name, part in found.letters.items() if isinstance(part, Number)}
    known = {name: value for name, value in numbers.items() if value is not None}
    if not rule.guard(known):
        return None
    values = {name: Number(str(value(known))) for name, value in (rule.values or {}).items()}
    return _with_letters(rule.right, {**found.letters, **values})


def _with_letters(expression: Scalar, letters: Mapping[str, Scalar]) -> Scalar:
    if isinstance(expression, Applied):
        return replace(expression, arguments=tuple(_with_letters(part, letters) for part in expression.arguments))
    return letters.get(str(expression), expression)


@cache
def _kinds() -> Mapping[str, str]:
    """Returns primitive -> compute type of one or two operands."""
    plain = [record for record in COMPUTES.values() if record.scalar is not None and not record.parameters]
    found = {}
    for record in plain:
        for primitive in PRIMITIVES.values():
            if primitive.arity < 3 and record.scalar == primitive(*(x, y)[: primitive.arity]):
                found[primitive.name] = record.name
    return found


@cache
def _composed() -> tuple[tuple[str, tuple[str, ...], Scalar], ...]:
    """Returns names, parameters and patterns of compute types of one operand that are several primitives."""
    found = []
    for record in COMPUTES.values():
        names = tuple(each.name for each in record.parameters)
        if record.category is Category.POINTWISE and all(each.kind is Kind.NUMBER for each in record.parameters):
            pattern = record.expression(*names) if record.scalar is not None else x
            if isinstance(pattern, Applied) and (len(pattern.arguments) > 1 or names):
                found.append((record.name, names, pattern))
    return tuple(sorted(found, key=lambda each: -_cost(each[2])))


def _built(expression: Scalar, like: Term) -> Term:
    """Returns an expression as a term of the same dims as another one."""
    if isinstance(expression, _Leaf):
        return expression.term
    if isinstance(expression, Number):
        return filled(like, expression.text)
    assert isinstance(expression, Applied)
    for name, parameters, pattern in _composed():
        for found in _matches(pattern, expression, _Match()):
            numbers = [found.letters[each] for each in parameters]
            operand = found.letters["x"]
            if not found.covered and not isinstance(operand, Number) and _are_ordered(numbers):
                return compute(compute_text(name, *map(str, numbers)), _built(operand, like))
    operands = [_built(part, like) for part in expression.arguments]
    kind = _kinds()[expression.primitive.name]
    return compute(kind, operands[0]) if len(operands) == 1 else combine(kind, operands[0], operands[1])


def _are_ordered(numbers: list[Scalar]) -> bool:
    values = [number.value for number in numbers if isinstance(number, Number) and number.value is not None]
    return values == sorted(values)
