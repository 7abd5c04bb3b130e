"""What is known of the terms of a program before it runs: which are secret, numbers, repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

from glenside.ir.operand import Typed
from glenside.ir.operator import OPERATORS, Category
from glenside.ir.operators.compute import parse_compute
from glenside.ir.program import Program
from glenside.ir.rational import exact, exact_numbers
from glenside.ir.term import Term, postorder, weave
from glenside.ir.types import AccessType, Tensor, Type


@dataclass(frozen=True, slots=True)
class Operand(Typed):
    """What is known of a child: its type, whether it is secret, and what stands side by side in its items.

    parts   the two operands of an access-product; of a concatenation along the first item axis what is put together
    shared  the axes that the two operands of an access-product share; None for anything else
    known   whether it is made of numbers in the program alone, with which SPU's compiler computes
    number  what it holds everywhere, where that is known: nothing is sent to multiply by 1 or to divide by it
    repeats axes along which it repeats itself: SPU's compiler treats each element once, however often it stands there
    windowed  of windows the axes along which what lies under them repeats itself: they are gathered, but a reduction of
            them is made once
    """

    type: Type
    secret: bool
    parts: tuple[Operand, ...] = ()
    shared: int | None = None
    known: bool = False
    number: Fraction | None = None
    repeats: frozenset[int] = frozenset()
    windowed: frozenset[int] = frozenset()

    @property
    def rows(self) -> int:
        """How many items there are that do not only repeat others, to a reduction."""
        same = self.repeats | self.windowed
        return prod(n for axis, n in enumerate(self.access.shape) if axis not in same)

    @property
    def item_repeats(self) -> bool:
        """Whether each item holds one number everywhere."""
        return all(axis in self.repeats or self.access.dims[axis] == 1 for axis in self.item_axes)

    @property
    def item_axes(self) -> range:
        return range(self.access.split, self.access.rank)

    def along(self) -> tuple[Operand, ...]:
        """What stands along the first item axis."""
        return self.parts or (Operand(self.type, self.secret),) * self.access.item[0]


def secrets(program: Program, public: Iterable[str] = ()) -> dict[Term, Operand]:
    """What is known of each term of the program and its layers, where tensors of those names are public."""
    names, known = frozenset(public), dict[Term, Operand]()
    for term in postorder(program.term, *program.layers.values()):
        operands = [known[child] for child in term.children]
        known[term] = described(term.operator.name, term.attributes, operands, term.type, names)
    return known


def secrecy(operator: str, attributes: Sequence[Any], operands: Sequence[bool], public: frozenset[str]) -> bool:
    """Whether the result is secret: when any operand is, and a tensor unless its name is among the public ones."""
    names = [a.name if isinstance(a, Tensor) else a for a in attributes[:1]]
    return not OPERATORS[operator].is_constant((not secret for secret in operands), any(n in public for n in names))


def described(
    operator: str, attributes: Sequence[Any], operands: Sequence[Operand], type: Type, public: frozenset[str]
) -> Operand:
    """What is known of one node, from what is known of its operands."""
    known = OPERATORS[operator].is_constant(o.known for o in operands)
    found = Operand(
        type,
        secrecy(operator, attributes, [o.secret for o in operands], public),
        known=known,
        number=_number(operator, attributes, operands),
    )
    found = replace(found, repeats=_repeats(operator, attributes, operands, found))
    if operator == "access-windows":
        return replace(
            found, windowed=frozenset(axis for axis in operands[0].repeats if axis < operands[0].access.split)
        )
    if operator == "access-product":
        return replace(found, parts=tuple(operands), shared=int(attributes[0]))
    if operator == "access-concatenate" and attributes[0] == found.access.split:
        return replace(found, parts=tuple(part for o in operands for part in _along(o)))
    if operator == "truncate" or (operator == "access" and _split(operands[0].type) == _split(type)):
        return replace(found, parts=operands[0].parts, shared=operands[0].shared, windowed=operands[0].windowed)
    return found


def _along(operand: Operand) -> tuple[Operand, ...]:
    """What a concatenation puts side by side of one operand: its own parts, or as many of it as it has elements."""
    if operand.parts and operand.shared is None:
        return operand.parts
    return (replace(operand, parts=(), shared=None),) * operand.access.item[0]


def _split(type: Type) -> int:
    return type.split if isinstance(type, AccessType) else -1


def _number(operator: str, attributes: Sequence[Any], operands: Sequence[Operand]) -> Fraction | None:
    """What a node holds everywhere: a number that it is made of, or that it moves."""
    if operator in ("access-literal", "full"):
        return exact(str(attributes[-2]))
    if operator == "numbers":
        values = set(exact_numbers(str(attributes[1])) or ())
        return values.pop() if len(values) == 1 else None
    record = OPERATORS[operator]
    if not operands or not record.moves or any(o.number != operands[0].number for o in operands):
        return None
    fills = (
        record.index_map is not None and record.index_map(*weave(record, [o.type for o in operands], attributes)).fill
    )
    return None if fills else operands[0].number


def _repeats(operator: str, attributes: Sequence[Any], operands: Sequence[Operand], found: Operand) -> frozenset[int]:
    """The axes along which a node repeats itself: those of a broadcast, also after computing each element by itself."""
    if not isinstance(found.type, AccessType):
        return frozenset()
    if found.number is not None:
        return frozenset(range(found.access.rank))
    if operator == "compute":
        return repeated(str(attributes[0]), operands[0])
    if operator in ("access", "access-shift-right", "access-slice", "access-flip", "truncate"):
        return operands[0].repeats
    if operator == "access-transpose":
        return frozenset(i for i, axis in enumerate(attributes[0]) if axis in operands[0].repeats)
    if operator == "access-broadcast":
        grown = zip(operands[0].access.dims, found.access.dims, strict=True)
        return operands[0].repeats | {axis for axis, (before, after) in enumerate(grown) if before != after}
    return frozenset()


def repeated(kind: str, operand: Operand) -> frozenset[int]:
    """The axes along which the result of a compute type repeats itself: SPU's compiler repeats it afterwards.

    Where all operands that are more than one number repeat themselves along the same ones; else it repeats them first.
    """
    category = parse_compute(kind)[0].category
    if category is Category.POINTWISE:
        return operand.repeats
    if category is Category.REDUCTION:  # a sum forgets that its rows are the same
        rows = operand.windowed if kind in ("reduce-sum", "reduce-mean") else operand.windowed | operand.repeats
        return frozenset(axis for axis in rows if axis < operand.access.split)
    if category is not Category.FOLD:
        return frozenset()
    split = operand.access.split
    if operand.shared is not None:
        found = _pair_repeats(operand)
    else:
        found = [frozenset(axis - (axis > split) for axis in p.repeats if axis != split) for p in operand.parts]
    wide = frozenset(axis for axis, n in enumerate(operand.access.dims.remove(split)) if n != 1)
    if len({axes & wide for axes in found if not wide <= axes}) > 1:
        return frozenset()
    return frozenset.intersection(*found) if found else frozenset()


def _pair_repeats(operand: Operand) -> list[frozenset[int]]:
    """Of both operands of an access-product, as axes (G, A, B, I): one repeats itself along the axes of the other."""
    a, b = operand.parts
    shared = operand.shared or 0
    rows, columns = a.access.split - shared, b.access.split - shared
    left = {axis + columns * (axis >= a.access.split) for axis in a.repeats}
    right = {axis + rows * (axis >= shared) for axis in b.repeats}
    middle = shared + rows
    return [frozenset(left | {*range(middle, middle + columns)}), frozenset(right | {*range(shared, middle)})]
