"""Decides whether two elements are equal under assumptions.

A guard without bound variables that is neither proven nor refuted is a case distinction. Of sums, ranges are cut where
guards say so; then each summand of one side must be a summand of the other under a bijection of the bound variables:
a permutation of axes, reversals, or row-major order under other dims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

from glenside.proofs.assumptions import Assumptions
from glenside.proofs.elements import Apply, Element, Factor, Range, Read, Reduction, Summand, Values
from glenside.proofs.row_major import relocated
from glenside.proofs.symbolic_integers import (
    ONE,
    ZERO,
    Atom,
    Condition,
    Integer,
    Quotient,
    at_least,
    less,
    quotient,
    same,
    variable,
    variable_of,
)
from glenside.proofs.symbolic_integers import product as of_sizes

_DEPTH = 14
_AXES = 5  # a sum over more axes is compared in its own order alone


@dataclass
class Undecided(Exception):
    """A case distinction is needed."""

    condition: Condition


def equal(known: Assumptions, left: Element, right: Element, depth: int = 0) -> bool:
    """True if both elements are proven equal."""
    known.effort.check()
    try:
        a, b = (list(_normal(known, side, depth)) for side in (left, right))
    except Undecided as case:
        if depth >= _DEPTH:
            return False
        return all(
            under.contradictory or equal(under, left.substitute(values), right.substitute(values), depth + 1)
            for under, values in _cases(known, case.condition)
        )
    a, b = _without_common(a, b)
    if len(a) != len(b):
        return False
    for summand in a:
        twin = next((k for k, other in enumerate(b) if _summands_equal(known, summand, other, depth)), None)
        if twin is None:
            return False
        del b[twin]
    return True


def _cases(known: Assumptions, condition: Condition) -> Iterator[tuple[Assumptions, Values]]:
    """Yields assumptions with the condition and with its negation; an equation is solved for a variable."""
    for c in (condition, condition.negated):
        values = _solution(c) if c.relation == "=" else {}
        yield known.assuming(c).substitute(values), values


def _solution(equation: Condition) -> Values:
    """Returns the value of a variable in an equation: v + r = 0, or v + r = s times a quotient, for a new variable."""
    for atom in sorted(equation.value.atoms, key=str):
        c = equation.value.coefficient(atom)
        if c in (1, -1) and not atom.parts():
            return {atom: variable(atom.key) - equation.value * c}
    for monomial, _ in equation.value.terms:
        for whole in monomial:
            parts = equation.value.linear(whole) if isinstance(whole, Quotient) else None
            if parts is None:
                continue
            factor, rest = parts
            for atom in sorted(rest.atoms, key=str):
                sign = rest.coefficient(atom)
                if sign in (1, -1) and not atom.parts() and atom not in factor.atoms:
                    multiple = (rest + factor * variable(f"{atom.key}:")) * sign  # = 0, of the new variable
                    return {atom: variable(atom.key) - multiple}
    return {}


def _without_common(a: Sequence[Summand], b: Sequence[Summand]) -> tuple[list[Summand], list[Summand]]:
    """Adds up like terms, and removes what both sides have."""
    totals: dict[str, tuple[Summand, Summand]] = {}
    for sign, side in ((1, a), (-1, b)):
        for s in side:
            plus, minus = totals.get(s.key, (replace(s, coefficient=0 * s.coefficient),) * 2)
            if sign > 0:
                plus = replace(plus, coefficient=plus.coefficient + s.coefficient)
            else:
                minus = replace(minus, coefficient=minus.coefficient + s.coefficient)
            totals[s.key] = plus, minus
    differ = [(p, m) for p, m in totals.values() if p.coefficient != m.coefficient]
    return [p for p, _ in differ if p.coefficient], [m for _, m in differ if m.coefficient]


# Normal forms of sums


def _normal(known: Assumptions, element: Element, depth: int) -> Iterator[Summand]:
    """Yields summands whose guards are neither implied nor refuted, with ranges as small as guards make them.

    Raises Undecided.
    """
    for summand in element.summands:
        current: Summand | None = summand
        changed = True
        while changed and current is not None:
            current, changed = _simpler(known, current, depth)
        if current is not None:
            yield _numbered(current)


def _simpler(known: Assumptions, s: Summand, depth: int) -> tuple[Summand | None, bool]:
    """Returns the summand after one step, None where it is 0, and whether there was a step."""
    inside = known.assuming(*s.bounds())
    kept = _open_guards(inside, s)
    if kept is None or any(n.constant == 0 for _, n in s.ranges):
        return None, False
    s = replace(s, guards=kept)
    single = next((v for v, n in s.ranges if n.constant == 1), None)
    if single is not None:
        return _eliminated(s, single, ZERO), True
    if any(isinstance(f, Reduction) and f.zero and _is_zero(inside, f, depth) for f in s.factors):
        return None, False
    steps = (step(known, s) for step in (_solved, _determined, _narrowed, _sheared) if s.guards)
    found = next((after for after in steps if after is not None), None)
    return (s, False) if found is None else (found, True)


def _open_guards(inside: Assumptions, s: Summand) -> frozenset[Condition] | None:
    """Returns the guards that are not implied, None if one is refuted.

    Raises Undecided for one that no bound variable is in.
    """
    kept: set[Condition] = set()
    for guard in sorted(s.guards, key=str):
        if inside.assuming(*kept).proves(guard):
            continue
        if inside.assuming(*kept).proves(guard.negated):
            return None
        if guard.value.atoms.isdisjoint(s.bound):
            raise Undecided(guard)
        kept.add(guard)
    return frozenset(kept)


def _is_zero(inside: Assumptions, factor: Reduction, depth: int) -> bool:
    """True if the reduction is one of zeros, and of at least one."""
    if factor.body.summands and depth >= _DEPTH:
        return False
    if not all(inside.proves(at_least(n, 1)) for _, n in factor.ranges):
        return False
    within = inside.assuming(*(c for v, n in factor.ranges for c in (at_least(v, 0), less(v, n))))
    if not factor.body.summands:
        return True
    guarded = any(s.guards for s in factor.body.summands)
    return guarded and equal(within, factor.body, Element(), depth + 4)


def _eliminated(s: Summand, v: Integer, value: Integer) -> Summand:
    """Returns the summand for one value of a bound variable."""
    rest = replace(s, ranges=tuple((w, n) for w, n in s.ranges if w != v))
    return rest.substitute({variable_of(v): value})


def _solved(known: Assumptions, s: Summand) -> Summand | None:
    """Removes a bound variable that a guard determines, or all but whose multiples of a stride are skipped."""
    for guard in sorted(s.guards, key=str):
        if guard.relation != "=":
            continue
        for v, n in s.ranges:
            atom = variable_of(v)
            c = guard.value.coefficient(atom)
            if c in (1, -1):
                value = v - guard.value * c
                rest = replace(s, guards=s.guards - {guard} | {at_least(value, 0), less(value, n)})
                return _eliminated(rest, v, value)
            found = _multiples(known, s, guard, v, n)
            if found is not None:
                return found
        if (zero := _without_remainder(known.assuming(*s.bounds()), guard)) is not None:
            return replace(s, guards=s.guards - {guard} | {zero})
    return None


def _without_remainder(inside: Assumptions, guard: Condition) -> Condition | None:
    """Returns r = 0 for r mod n = 0 where r is between -n and n; None for another guard."""
    for atom in guard.value.atoms:
        if isinstance(atom, Quotient):
            r, n = atom.dividend, atom.divisor
            if guard == same(r - n * quotient(r, n), 0) and inside.proves(less(r, n)) and inside.proves(less(-r, n)):
                return same(r, 0)
    return None


def _multiples(known: Assumptions, s: Summand, guard: Condition, v: Integer, n: Integer) -> Summand | None:
    """Sums over the multiples of a stride instead of all values, where a guard says v mod stride = 0."""
    for atom in guard.value.atoms:
        if isinstance(atom, Quotient) and atom.dividend == v and atom.divisor.atoms.isdisjoint(s.bound):
            rest = v - atom.divisor * quotient(v, atom.divisor)
            if guard == same(rest, 0) and known.proves(at_least(atom.divisor, 1)) and known.proves(at_least(n, 1)):
                count = quotient(n - 1, atom.divisor) + 1
                ranges = tuple((w, count if w == v else m) for w, m in s.ranges)
                fresh = replace(s, ranges=ranges, guards=s.guards - {guard})
                return fresh.substitute({variable_of(v): v * atom.divisor})
    return None


def _determined(known: Assumptions, s: Summand) -> Summand | None:
    """Removes a bound variable of which two guards say that it is a quotient: 0 <= r - t v < t."""
    for guard in sorted(s.guards, key=str):
        for v, n in s.ranges:
            parts = guard.value.linear(variable_of(v))
            if guard.relation != ">=" or parts is None or parts[0].constant is not None:
                continue
            stride, rest = -parts[0], parts[1]
            other = at_least(v * stride + stride - 1, rest)
            if other in s.guards and known.proves(at_least(stride, 1)):
                value = known.quotient(rest, stride)
                kept = replace(s, guards=s.guards - {guard, other} | {at_least(value, 0), less(value, n)})
                return _eliminated(kept, v, value)
    return None


def _narrowed(known: Assumptions, s: Summand) -> Summand | None:
    """Cuts the range of a bound variable where a guard of that variable alone begins or ends. Raises Undecided."""
    for guard in sorted(s.guards, key=str):
        for v, n in s.ranges:
            atom = variable_of(v)
            c = guard.value.coefficient(atom)
            if guard.relation != ">=" or c not in (1, -1):
                continue
            rest = guard.value - v * c
            if not rest.atoms.isdisjoint(s.bound):
                continue
            low, high = (-rest, n) if c == 1 else (ZERO, rest + 1)
            edge = low if c == 1 else high
            for bound in (at_least(edge, 0), at_least(n, edge)):
                if not known.proves(bound):
                    raise Undecided(bound)
            ranges = tuple((w, high - low if w == v else m) for w, m in s.ranges)
            return replace(s, ranges=ranges, guards=s.guards - {guard}).substitute({atom: v + low})
    return None


def _sheared(known: Assumptions, s: Summand) -> Summand | None:
    """Sums over v + r instead of v, where two guards say that it is within 0 .. k and that keeps v in its range."""
    for guard in sorted(s.guards, key=str):
        for v, n in s.ranges:
            atom = variable_of(v)
            if guard.relation != ">=" or guard.value.coefficient(atom) != 1:
                continue
            offset = guard.value - v
            for other in sorted(s.guards - {guard}, key=str):
                size = other.value + guard.value + 1  # other: v + offset < size
                if other.relation != ">=" or not size.atoms.isdisjoint(s.bound):
                    continue
                ranges = tuple((w, size if w == v else m) for w, m in s.ranges)
                moved = replace(s, ranges=ranges, guards=s.guards - {guard, other})
                inside = known.assuming(*moved.bounds())
                if inside.proves(at_least(v - offset, 0)) and inside.proves(less(v - offset, n)):
                    return moved.substitute({atom: v - offset})
    return None


def _numbered(s: Summand) -> Summand:
    """Renames the bound variables in order, so that equal sums have equal texts."""
    if all(str(v) == f"#{k}" for k, (v, _) in enumerate(s.ranges)):
        return s
    names = {variable_of(v): variable(f"#{k}'") for k, (v, _) in enumerate(s.ranges)}  # first names that none has
    ranges = tuple((names[variable_of(v)], n) for v, n in s.ranges)
    s = replace(s, ranges=ranges).substitute(names)
    last = {variable_of(v): variable(f"#{k}") for k, (v, _) in enumerate(s.ranges)}
    return replace(s, ranges=tuple((last[variable_of(v)], n) for v, n in s.ranges)).substitute(last)


# Bijections


def _bijections(known: Assumptions, a: Sequence[Range], b: Sequence[Range], ordered: bool) -> Iterator[Values]:
    """Yields values of the variables of b, in those of a, under which all values of b are taken once."""
    if len(a) == len(b):
        yield from _permutations(known, a, b, ordered)
    sizes_a, sizes_b = tuple(n for _, n in a), tuple(n for _, n in b)
    if (a and b) and known.proves(same(of_sizes(sizes_a), of_sizes(sizes_b))):
        within = known.assuming(*(c for v, n in a for c in (at_least(v, 0), less(v, n))))
        moved = relocated(within, [v for v, _ in a], sizes_a, sizes_b)
        yield {variable_of(v): i for (v, _), i in zip(b, moved, strict=True)}
    elif not b and all(known.proves(same(n, ONE)) for n in sizes_a):
        yield {}
    elif not a and all(known.proves(same(n, ONE)) for n in sizes_b):
        yield {variable_of(v): ZERO for v, _ in b}


def _permutations(known: Assumptions, a: Sequence[Range], b: Sequence[Range], ordered: bool) -> Iterator[Values]:
    axes = range(len(a))
    fits = {(i, j) for i in axes for j in axes if a[i][1] == b[j][1]}
    if len({j for _, j in fits}) < len(a):
        fits |= {(i, j) for i in axes for j in axes if (i, j) not in fits and known.proves(same(a[i][1], b[j][1]))}
    orders = [tuple(axes)] if ordered or len(a) > _AXES else permutations(axes)
    for order in orders:
        if all((i, j) in fits for j, i in enumerate(order)):
            for flips in product((False, True), repeat=0 if ordered or len(a) > _AXES else len(a)):
                values: dict[Atom, Integer] = {}
                for j, i in enumerate(order):
                    v, n = a[i]
                    values[variable_of(b[j][0])] = n - 1 - v if flips and flips[j] else v
                yield values


def _summands_equal(known: Assumptions, a: Summand, b: Summand, depth: int) -> bool:
    if a.coefficient != b.coefficient or sorted(map(_kind, a.factors)) != sorted(map(_kind, b.factors)):
        return False
    b = _apart(b)
    inside = known.assuming(*a.bounds())
    for values in _bijections(known, a.ranges, b.ranges, ordered=False):
        moved = replace(b, ranges=()).substitute(values)
        guarded = inside.assuming(*a.guards)
        if not all(guarded.proves(g) for g in moved.guards):
            continue
        back = inside.assuming(*moved.guards)
        if not all(back.proves(g) for g in a.guards):
            continue
        if _same_factors(guarded, list(a.factors), list(moved.factors), depth):
            return True
    return False


def _apart(s: Summand) -> Summand:
    """Renames the bound variables, so that they differ from those of another summand."""
    names = {variable_of(v): variable(f'{v}"') for v, _ in s.ranges}
    ranges = tuple((names[variable_of(v)], n) for v, n in s.ranges)
    return replace(s, ranges=ranges).substitute(names)


def _kind(factor: Factor) -> str:
    if isinstance(factor, Read):
        return factor.tensor
    assert isinstance(factor, Apply | Reduction)
    return factor.function


def _same_factors(known: Assumptions, a: list[Factor], b: list[Factor], depth: int) -> bool:
    """True if the factors of two products are equal in some order."""
    if not a:
        return not b
    first, rest = a[0], a[1:]
    for k, other in enumerate(b):
        if _kind(first) == _kind(other) and _factors_equal(known, first, other, depth):
            return _same_factors(known, rest, [*b[:k], *b[k + 1 :]], depth)
    return False


def _factors_equal(known: Assumptions, a: Factor, b: Factor, depth: int) -> bool:
    if a.key == b.key:
        return True
    if isinstance(a, Read) and isinstance(b, Read):
        return len(a.index) == len(b.index) and all(map(_same_under(known), a.index, b.index))
    if isinstance(a, Apply) and isinstance(b, Apply):
        pairs = zip(a.arguments, b.arguments, strict=False)
        return len(a.arguments) == len(b.arguments) and all(equal(known, x, y, depth + 1) for x, y in pairs)
    return isinstance(a, Reduction) and isinstance(b, Reduction) and _reductions_equal(known, a, b, depth)


def _same_under(known: Assumptions) -> Callable[[Integer, Integer], bool]:
    return lambda i, j: i == j or known.proves(same(i, j))


def _reductions_equal(known: Assumptions, a: Reduction, b: Reduction, depth: int) -> bool:
    if a.ordered != b.ordered or len(a.index) != len(b.index):
        return False
    if not all(map(_same_under(known), a.index, b.index)):
        return False
    names = {variable_of(v): variable(f"{v}~{depth}") for v, _ in a.ranges}
    ranges = tuple((names[variable_of(v)], n) for v, n in a.ranges)
    body = a.body.substitute(names)
    inside = known.assuming(*(c for v, n in ranges for c in (at_least(v, 0), less(v, n))))
    for values in _bijections(known, ranges, b.ranges, a.ordered):
        if a.index and any(values[variable_of(w)] != v for (v, _), (w, _) in zip(ranges, b.ranges, strict=True)):
            continue
        if equal(inside, body, b.body.substitute(values), depth + 1):
            return True
    return False
