"""Affine analysis of blocks: splits axes until all indices are affine, and merges contiguous axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from glenside.codegen.loop_ir.compute_block import Block
from glenside.codegen.loop_ir.ir import Apply, Choose, Convert, Counter, For, Formula, Load, Store, Way
from glenside.codegen.loop_ir.open_axes import axis_of
from glenside.codegen.loop_ir.scalar_expr import choose
from glenside.ir.index_map import Axis, Divided, Index

Change = Callable[[Index], Index]


def indices_of(formula: Formula) -> Iterator[Index]:
    """Yields the indices of a formula: of loads, counters and guards."""
    for part in parts_in(formula):
        if isinstance(part, Load):
            yield part.place
        elif isinstance(part, Counter):
            yield part.index
        elif isinstance(part, Choose):
            yield from (guard.index for guard in part.guards)


def loads_in(formula: Formula) -> Iterator[Load]:
    """Returns the loads of a formula."""
    return (part for part in parts_in(formula) if isinstance(part, Load))


def parts_in(formula: Formula) -> Iterator[Formula]:
    """Yields a formula and its subformulas, from left to right. Iterative, because long formulas are walked often."""
    stack = [formula]
    while stack:
        part = stack.pop()
        yield part
        if isinstance(part, Apply):
            stack += reversed(part.operands)
        elif isinstance(part, Convert):
            stack.append(part.formula)
        elif isinstance(part, Choose):
            stack += (part.otherwise, part.then)


def changed(formula: Formula, change: Change, known: dict[int, Formula] | None = None) -> Formula:
    """Returns a formula with each index replaced by `change` of it; shared subformulas stay shared.

    known  memo by object identity; its formulas must outlive it
    """
    known = {} if known is None else known
    found = known.get(id(formula))
    if found is None:
        found = known[id(formula)] = _changed(formula, change, known)
    return found


def _changed(formula: Formula, change: Change, known: dict[int, Formula]) -> Formula:
    if isinstance(formula, Load):
        return Load(formula.buffer, change(formula.place), formula.picked)
    if isinstance(formula, Counter):
        return replace(formula, index=change(formula.index))
    if isinstance(formula, Convert):
        return replace(formula, formula=changed(formula.formula, change, known))
    if isinstance(formula, Apply):
        operands = tuple([changed(operand, change, known) for operand in formula.operands])
        return Apply(formula.primitive, operands, formula.dtype)
    if isinstance(formula, Choose):
        guards = tuple(replace(guard, index=change(guard.index)) for guard in formula.guards)
        return choose(guards, changed(formula.then, change, known), changed(formula.otherwise, change, known))
    return formula


def with_loads(formula: Formula, change: Callable[[Load], Load]) -> Formula:
    """Returns a formula with each load replaced by `change` of it."""
    if isinstance(formula, Load):
        return change(formula)
    if isinstance(formula, Convert):
        return replace(formula, formula=with_loads(formula.formula, change))
    if isinstance(formula, Apply):
        return replace(formula, operands=tuple(with_loads(operand, change) for operand in formula.operands))
    if isinstance(formula, Choose):
        then, otherwise = with_loads(formula.then, change), with_loads(formula.otherwise, change)
        return replace(formula, then=then, otherwise=otherwise)
    return formula


def coefficient(index: Index, axis: Axis) -> int:
    """Returns the coefficient of an axis in an affine index; 0 if the axis does not occur."""
    return next((factor for atom, factor in index.terms if atom == axis), 0)


def is_direct(index: Index, axis: Axis) -> bool:
    """True if no quotient or remainder in an index depends on an axis."""
    return not any(isinstance(atom, Divided) and _depends(atom.expression, axis) for atom, _ in index.terms)


def repeats(loop: For) -> int:
    """Returns how often a vector loop stores each lane, in consecutive elements; 1 for all other loops."""
    first, count = loop.body[0] if loop.body else None, len(loop.body)
    if loop.way is not Way.VECTOR or not isinstance(first, Store) or coefficient(first.place, loop.axis) != count:
        return 1
    same = all(store == replace(first, place=first.place + n) for n, store in enumerate(loop.body))
    return count if same else 1


def _depends(index: Index, axis: Axis) -> bool:
    return any(a == axis if isinstance(a, Axis) else _depends(a.expression, axis) for a, _ in index.terms)


def is_affine(index: Index) -> bool:
    """True if an index is a sum of multiples of axes and a constant."""
    return all(isinstance(atom, Axis) for atom, _ in index.terms)


def substituted(index: Index, places: dict[Axis, Index]) -> Index:
    """Returns an index with each axis of `places` replaced by an index."""
    constant, factors = index.constant, dict[Axis | Divided, int]()
    for atom, factor in index.terms:
        if isinstance(atom, Axis):
            place = places.get(atom)
        else:
            inner = substituted(atom.expression, places)
            place = inner % atom.divisor if atom.remainder else inner // atom.divisor
        if place is None:
            factors[atom] = factors.get(atom, 0) + factor
            continue
        constant += place.constant * factor
        for part, times in place.terms:
            factors[part] = factors.get(part, 0) + times * factor
    return Index(tuple((atom, factor) for atom, factor in factors.items() if factor), constant)


def with_places(block: Block, change: Change) -> Block:
    """Returns a block with each index replaced by `change` of it; the axes stay the same."""
    own = partial(changed, change=change, known={})
    joined = tuple(replace(j, element=own(j.element), start=own(j.start)) for j in block.joined)
    beside = tuple((change(place), own(value)) for place, value in block.beside)
    return replace(block, joined=joined, place=change(block.place), value=own(block.value), beside=beside)


def all_indices(block: Block) -> list[Index]:
    """Returns all indices of a block (stores, loads, counters, guards), each object once."""
    parts = [block.value, *(formula for j in block.joined for formula in (j.element, j.start))]
    places = [block.place, *(place for place, _ in block.beside)]
    every = [*places, *(i for part in (*parts, *(v for _, v in block.beside)) for i in indices_of(part))]
    return list({id(index): index for index in every}.values())


def is_asking(block: Block) -> bool:
    """True if the value of a block, or an element of its reductions, contains a `Choose`."""
    formulas = (block.value, *(joined.element for joined in block.joined))
    return any(isinstance(part, Choose) for formula in formulas for part in parts_in(formula))


def affine(block: Block, axes: Iterator[int]) -> Block | None:
    """Returns the block with axes split until all indices are affine, or None if splitting cannot make them so."""
    for _ in range(16):
        cuts = [cut for index in all_indices(block) for cut in _cuts(index)]
        if not cuts:
            return block
        axis, divisor = min(cuts, key=lambda cut: cut[1])
        if axis.size % divisor:
            return None
        high, low = axis_of(next(axes), axis.size // divisor), axis_of(next(axes), divisor)
        place = Index(((high, divisor), (low, 1)))
        block = with_places(block, partial(substituted, places={axis: place}))
        pair = [part for part in (high, low) if part.is_loop]
        block = replace(
            block,
            axes=_replaced(block.axes, axis, pair),
            joined=tuple(replace(j, axes=_replaced(j.axes, axis, pair)) for j in block.joined),
        )
    return None


def _replaced(axes: Sequence[Axis], axis: Axis, by: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(part for own in axes for part in (by if own == axis else [own]))


def _cuts(index: Index) -> Iterator[tuple[Axis, int]]:
    """Yields (axis, divisor): the splits that would remove the quotients and remainders of an index."""
    for atom, _ in index.terms:
        if isinstance(atom, Divided):
            expression = atom.expression
            inner = [*_cuts(expression)]
            yield from inner
            if not inner:
                axis, factor = expression.terms[0]
                assert isinstance(axis, Axis), "no quotient is within"
                alone = len(expression.terms) == 1 and factor == 1 and not expression.constant
                yield axis, atom.divisor if alone else axis.size + 1  # which divides no size


def merged(indices: Sequence[Index], axes: Sequence[Axis]) -> list[list[Axis]]:
    """Groups axes that can be flattened into one: in all indices they are contiguous, outermost first."""
    groups: list[list[Axis]] = []
    rest = list(axes)
    while rest:
        group = [rest.pop(0)]
        grown = True
        while grown:
            grown = False
            for axis in rest:
                if all(coefficient(i, group[-1]) == coefficient(i, axis) * axis.size for i in indices):
                    group.append(axis)
                elif all(coefficient(i, axis) == coefficient(i, group[0]) * group[0].size for i in indices):
                    group.insert(0, axis)
                else:
                    continue
                rest.remove(axis)
                grown = True
                break
        groups.append(group)
    return groups


def joined_axes(groups: Sequence[Sequence[Axis]], axes: Iterator[int]) -> tuple[list[Axis], dict[Axis, Index]]:
    """Returns one axis per group, and a substitution of the old axes by affine indices of the new ones."""
    found: list[Axis] = []
    places: dict[Axis, Index] = {}
    for group in groups:
        whole = group[0] if len(group) == 1 else axis_of(next(axes), prod(axis.size for axis in group))
        found.append(whole)
        if len(group) > 1:
            places |= {**dict.fromkeys(group[:-1], Index()), group[-1]: Index(((whole, 1),))}
    return found, places


def with_merged(block: Block, axes: Iterator[int]) -> Block:
    """Returns a block with contiguous axes merged, and axes sorted by their stride in the result, largest first."""
    found, places = joined_axes(merged(all_indices(block), block.axes), axes)
    block = with_places(block, partial(substituted, places=places))
    return replace(block, axes=tuple(sorted(found, key=lambda axis: -abs(coefficient(block.place, axis)))))


def at(axis: Axis) -> Index:
    """Returns the index of an axis's counter, which is 0 for an axis of size 1."""
    return Index(((axis, 1),)) if axis.is_loop else Index()
