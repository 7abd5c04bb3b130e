"""Vectorizes contiguous elements and reductions along them, and parallelizes loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

from glenside.codegen.emit_c.nibbles import NIBBLES
from glenside.codegen.emit_c.vector_casts import IN_LANES, converts
from glenside.codegen.emit_c.vector_primitives import IN_VECTORS, LANE_BY_LANE, WHOLE_IN_VECTORS, comparison_of
from glenside.codegen.loop_ir.affine_analysis import (
    at,
    changed,
    coefficient,
    indices_of,
    is_direct,
    loads_in,
    merged,
    substituted,
)
from glenside.codegen.loop_ir.compute_block import Joined
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Convert,
    For,
    Formula,
    Let,
    Load,
    Local,
    Number,
    Role,
    Statement,
    Store,
    Way,
)
from glenside.codegen.loop_ir.loop_independence import is_independent
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.loop_ir.open_axes import axis_of, has_open_axis, is_open
from glenside.codegen.loop_ir.scalar_expr import apply
from glenside.codegen.processor.model import Machine
from glenside.ir.dtypes import HALVES, INTEGERS, RECORDS
from glenside.ir.index_map import Axis, Index
from glenside.ir.types import Dims

LEAST_AT_ONCE = 8
"""The fewest steps of a parallel loop where another loop has more: fewer steps do not divide evenly among threads."""
_PARALLEL = 20_000
"""The fewest steps of a nest that is worth more than one thread."""
_LONG = 4
"""The most instructions after a reduction within a register tile: more would need registers for their constants."""
_SUMS = 4
"""Accumulator vectors that are used in turn, which hides the latency of additions."""


def lanes_of(dtype: str, machine: Machine) -> int:
    """Returns the elements of a dtype in a vector."""
    return max(1, machine.vector // RECORDS[dtype].numpy.itemsize)


def lanes_in(formulas: Iterable[Formula], machine: Machine) -> int:
    """Returns the common number of lanes for formulas: that of their widest dtype."""
    return min(lanes_of(dtype, machine) for formula in formulas for dtype in _dtypes(formula))


def _dtypes(formula: Formula) -> Iterator[str]:
    """Yields the dtypes of values in a formula; halves are computed as float32."""
    yield "float32" if formula.dtype in HALVES else formula.dtype
    if isinstance(formula, Convert):
        yield from _dtypes(formula.formula)
    elif isinstance(formula, Apply):
        for operand in formula.operands:
            yield from _dtypes(operand)


def in_vectors(formula: Formula, dtype: str) -> bool:
    """True if a formula has the given dtype and can be vectorized."""
    if formula.dtype != dtype or dtype not in ("float64", *IN_LANES):
        return False
    if isinstance(formula, Apply):
        if formula.primitive.name == "select":
            return dtype not in INTEGERS and all(
                in_vectors(o, dtype) for o in (*comparison_of(formula)[1], *formula.operands[1:])
            )
        known = WHOLE_IN_VECTORS if dtype in INTEGERS else IN_VECTORS
        return formula.primitive.name in known and all(in_vectors(o, dtype) for o in formula.operands)
    if isinstance(formula, Convert):
        inner, given = formula.formula, formula.formula.dtype
        if formula.bits or not converts(given, dtype):
            return False
        read = given in ("bool", *NIBBLES) and isinstance(inner, Load) and not inner.picked
        return read or in_vectors(inner, given)
    return isinstance(formula, Load | Number | Local)


def steps_of(formula: Formula) -> int:
    """Returns the approximate number of instructions of a formula on a vector."""
    if isinstance(formula, Convert):
        return 1 + steps_of(formula.formula)
    if not isinstance(formula, Apply):
        return 0
    return (_LONG if formula.primitive.name in LANE_BY_LANE else 1) + sum(map(steps_of, formula.operands))


def is_long(formula: Formula) -> bool:
    """True if a formula is too long to be unrolled over the rows of a tile."""
    return steps_of(formula) > _LONG


def runs_along(formula: Formula, axis: Axis) -> bool:
    """True if each load of a formula is contiguous or constant along an axis."""
    places = [load.place for load in loads_in(formula)]
    return all(coefficient(place, axis) in (0, 1) and is_direct(place, axis) for place in places)


def run(axis: Axis, axes: Iterator[int], lanes: int, body: Callable[[Index], list[Statement]]) -> list[Statement]:
    """Returns the loops of `body` along an axis: full vectors, then shorter ones."""
    made: list[Statement] = []
    begin, limit = 0, int(is_open(axis.size))
    while begin < axis.size or limit > 1:
        times = (axis.size - begin) // lanes
        if times or limit:
            step, lane = Axis(next(axes), times, limit), Axis(next(axes), lanes)
            own = body(at(step) * lanes + at(lane) + begin)
            made += around([step], [For(lane, tuple(own), Way.VECTOR)] if lanes > 1 else own)
        begin, limit = begin + times * lanes, 2 if limit and lanes > 1 else 0
        lanes = max(1, lanes // 2)
    return made


def joined_in_lanes(joined: Joined, axes: Iterator[int], machine: Machine) -> list[Statement] | None:
    """Vectorizes a reduction along contiguous elements: a few accumulator vectors, whose lanes are reduced last.

    Returns None if the reduction cannot be split, cannot be vectorized, or is shorter than a vector.
    """
    dtype = joined.local.dtype
    if not joined.exact or not all(in_vectors(formula, dtype) for formula in (joined.element, joined.start)):
        return None
    indices = [*indices_of(joined.element)]
    groups = merged(indices, [axis for axis in joined.axes if axis.is_loop])
    lanes = lanes_in([joined.element], machine)
    found = [g for g in groups if runs_along(joined.element, g[-1]) and any(coefficient(i, g[-1]) for i in indices)]
    if not found or prod(a.size for a in found[0]) < lanes:
        return None
    group = found[0]
    whole = axis_of(next(axes), prod(axis.size for axis in group))
    others = [axis for g in groups if g is not group for axis in g]

    def element(place: Index) -> Formula:
        places = {**dict.fromkeys(group[:-1], Index()), group[-1]: place}
        return changed(joined.element, lambda index: substituted(index, places))

    sums = int(min(_SUMS, whole.size // lanes))  # of open sizes: a number, as these loops are unrolled
    tile = Buffer(f"tile{next(axes)}", Dims((sums * lanes,)), dtype, Role.REGISTER)
    unit, lane = Axis(next(axes), sums), Axis(next(axes), lanes)
    own = at(unit) * lanes + at(lane)

    def each(place: Index, formula: Formula) -> list[Statement]:
        inner: Statement = For(lane, (Store(tile, place, formula),), Way.VECTOR)
        return [For(unit, (inner,), Way.UNROLLED)] if sums > 1 and place == own else [inner]

    def add(place: Index, value: Formula) -> Formula:
        return apply(joined.combine, Load(tile, place), value)

    step = Axis(next(axes), whole.size // (sums * lanes), whole.limit)
    steps = around([step], each(own, add(own, element(at(step) * (sums * lanes) + own))))
    begin = step.size * sums * lanes
    rest = Axis(next(axes), (whole.size - begin) // lanes, sums * bool(whole.limit))
    if rest.size or rest.limit:
        steps += around([rest], each(at(lane), add(at(lane), element(at(rest) * lanes + at(lane) + begin))))
        begin += rest.size * lanes
    last = Axis(next(axes), whole.size - begin, lanes * bool(whole.limit))
    if last.size or last.limit:
        steps += around([last], [_changes(joined, element(at(last) + begin))])
    pairs = [each(at(lane), add(at(lane), Load(tile, at(lane) + u * lanes))) for u in range(1, sums)]
    return [
        Let(joined.local, joined.start),
        *each(own, joined.start),
        *around(others, steps),
        *(statement for pair in pairs for statement in pair),
        _changes(joined, tree(joined.combine, [Load(tile, Index() + i) for i in range(lanes)])),
    ]


def _changes(joined: Joined, value: Formula) -> Let:
    return Let(joined.local, apply(joined.combine, joined.local, value), known=True)


def tree(combine: str, parts: Sequence[Formula]) -> Formula:
    """Returns the balanced reduction tree of parts."""
    while len(parts) > 1:
        parts = [apply(combine, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def with_way(loop: Statement, way: Way) -> Statement:
    """Returns a loop with another way."""
    assert isinstance(loop, For), "there is a loop"
    return replace(loop, way=way)


def spread(axes: Sequence[Axis], body: Sequence[Statement], steps: int) -> list[Statement]:
    """Returns loops around a body; the outermost loop is parallel if `steps` are worth several threads."""
    made = around(axes, body)
    if _is_worth_threads(made, steps) and any(axis.is_loop for axis in axes):
        made = [with_way(made[0], Way.PARALLEL)]
    return made


def shared(statements: Iterable[Statement], steps: int) -> list[Statement]:
    """Parallelizes loops with independent steps if `steps` are worth several threads.

    Statements that define a variable, such as the maximum of a softmax, stay serial: a variable is private to a thread.
    """
    loops = list(statements)
    if not _is_worth_threads(loops, steps) or any(isinstance(statement, Let) for statement in loops):
        return loops
    return [with_way(loop, Way.PARALLEL) if isinstance(loop, For) and is_independent(loop) else loop for loop in loops]


def _is_worth_threads(statements: Iterable[Statement], steps: int) -> bool:
    """True if that many steps are worth several threads, or depend on open sizes."""
    return steps >= _PARALLEL or is_open(steps) or any(map(has_open_axis, statements))


def evenly(axes: Sequence[Axis]) -> list[Axis]:
    """Reorders the axes of permutable loops so that the outermost divides evenly among threads.

    The rows of an image, for example, come before its few planes.
    """
    first, *others = [axis for axis in axes if axis.is_loop] or [Axis(0, 1)]
    if others and first.size < min(LEAST_AT_ONCE, others[0].size):
        return [others[0], first, *others[1:]]
    return [first, *others]
