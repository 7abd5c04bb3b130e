"""Static analysis of terms for two parties: secrecy, known numbers, and repetition along axes."""

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
    """The analysis of an operand: its type, whether it is secret, and the parts of its items.

    parts   the two operands of an access-product, or the parts of a concatenation along the first item axis
    shared  number of axes that the operands of an access-product share; None for other terms
    known   True if it is computed from numbers in the program alone, which SPU's compiler folds
    number  the value of all its elements, or None: multiplying or dividing by 1 sends nothing
    repeats axes along which it is constant: SPU's compiler computes each distinct element once
    windowed  axes of windows along which the tensor below is constant: the windows are gathered, but reduced only once
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
        """The number of distinct items that a reduction computes."""
        same = self.repeats | self.windowed
        return prod(n for axis, n in enumerate(self.access.shape) if axis not in same)

    @property
    def item_repeats(self) -> bool:
        """True if all elements of each item are equal."""
        return all(axis in self.repeats or self.access.dims[axis] == 1 for axis in self.item_axes)

    @property
    def item_axes(self) -> range:
        return range(self.access.split, self.access.rank)

    def along(self) -> tuple[Operand, ...]:
        """Returns the parts along the first item axis."""
        return self.parts or (Operand(self.type, self.secret),) * self.access.item[0]


def secrets(program: Program, public: Iterable[str] = ()) -> dict[Term, Operand]:
    """Returns the analysis of each term of the program and its layers; `public`: names of public tensors."""
    names, known = frozenset(public), dict[Term, Operand]()
    for term in postorder(*program.roots):
        operands = [known[child] for child in term.children]
        known[term] = described(term.operator.name, term.attributes, operands, term.type, names)
    return known


def secrecy(operator: str, attributes: Sequence[Any], operands: Sequence[bool], public: frozenset[str]) -> bool:
    """True if the result is secret: if any operand is, or for a tensor whose name is not public."""
    names = [a.name if isinstance(a, Tensor) else a for a in attributes[:1]]
    return not OPERATORS[operator].is_constant((not secret for secret in operands), any(n in public for n in names))


def described(
    operator: str, attributes: Sequence[Any], operands: Sequence[Operand], type: Type, public: frozenset[str]
) -> Operand:
    """Returns the analysis of one node from those of its operands."""
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
    """Returns an operand of a concatenation as a tuple with one part for each element of its item."""
    if operand.parts and operand.shared is None:
        return operand.parts
    return (replace(operand, parts=(), shared=None),) * operand.access.item[0]


def _split(type: Type) -> int:
    return type.split if isinstance(type, AccessType) else -1


def _number(operator: str, attributes: Sequence[Any], operands: Sequence[Operand]) -> Fraction | None:
    """Returns the value of all elements of a node, or None."""
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
    """Returns the axes along which a node is constant: those of a broadcast, also after elementwise operators."""
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
    """Returns the axes along which a compute's result is constant, so that SPU's compiler broadcasts it afterwards.

    That requires all operands other than single numbers to be constant along them; else SPU broadcasts the operands.
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
    """Returns the axes of both operands of an access-product as (G, A, B, I): each is constant along the other's."""
    a, b = operand.parts
    shared = operand.shared or 0
    rows, columns = a.access.split - shared, b.access.split - shared
    left = {axis + columns * (axis >= a.access.split) for axis in a.repeats}
    right = {axis + rows * (axis >= shared) for axis in b.repeats}
    middle = shared + rows
    return [frozenset(left | {*range(middle, middle + columns)}), frozenset(right | {*range(shared, middle)})]
