"""Verifies that loops are well formed: counters and variables are defined, dtypes match, vectors are contiguous."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from glenside.codegen.loop_ir.accesses import changed_locals
from glenside.codegen.loop_ir.affine_analysis import coefficient, indices_of, is_direct, loads_in, parts_in, substituted
from glenside.codegen.loop_ir.faults import Condition, Fault
from glenside.codegen.loop_ir.footprints import axes_in
from glenside.codegen.loop_ir.intrinsics import MAX_INTERLEAVE, Instruction
from glenside.codegen.loop_ir.ir import (
    Apply,
    Choose,
    Convert,
    Fence,
    For,
    Formula,
    Let,
    Load,
    Local,
    Nest,
    Prefetch,
    Require,
    Role,
    Sort,
    Statement,
    Store,
    Way,
    When,
    is_parallel,
)
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index
from glenside.ir.types import Dims

_GIVEN = (Role.INPUT, Role.CONSTANT)


@dataclass
class _Scope:
    """The state at a statement: loops by axis, dtypes of variables, and variables with a checked bound (`held`)."""

    loops: dict[Axis, Way] = field(default_factory=dict)
    locals: dict[str, str] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)

    def copy(self) -> _Scope:
        return _Scope(dict(self.loops), dict(self.locals), dict(self.held))

    def lets_go(self, body: Sequence[Statement]) -> None:
        """Drops the bounds of variables that a body changes: these do not hold after it, or in its next step."""
        for name in changed_locals(body) if self.held else ():
            self.held.pop(name, None)


def ill_formed(nest: Nest) -> Iterator[Fault]:
    """Yields the faults in the form of a nest."""
    scope = _Scope()
    for statement in nest.body:
        if is_parallel(statement):  # becomes a separate function
            yield from _statements([statement], _Scope(), nest)
            scope = _Scope()
        else:
            yield from _statements([statement], scope, nest)


def _statements(body: Sequence[Statement], scope: _Scope, nest: Nest) -> Iterator[Fault]:
    for statement in body:
        if isinstance(statement, For):
            yield from _loop(statement, scope, nest)
        elif isinstance(statement, When):
            yield from _indices([guard.index for guard in statement.guards], scope)
            if statement.condition is not None:
                yield from _formula(statement.condition, scope)
            yield from _statements(statement.body, scope.copy(), nest)
            scope.lets_go(statement.body)
        elif isinstance(statement, Let):
            yield from _let(statement, scope)
        elif isinstance(statement, Store):
            yield from _store(statement, scope, nest)
        else:
            yield from _other(statement, scope, nest)


def _other(statement: Require | Sort | Prefetch | Fence, scope: _Scope, nest: Nest) -> Iterator[Fault]:
    if isinstance(statement, Require):
        if statement.local.name not in scope.locals:
            yield Fault(Condition.NAMED, f"{statement.local} is checked before it is made")
        scope.held[statement.local.name] = statement.size
        return
    if isinstance(statement, Fence):
        return
    yield from _indices([statement.place], scope)
    if isinstance(statement, Sort) and statement.positions != nest.buffer:
        yield Fault(Condition.OWNED, f"it writes {statement.positions}")


def _loop(loop: For, scope: _Scope, nest: Nest) -> Iterator[Fault]:
    axis = loop.axis
    if any(axis.number == other.number for other in scope.loops):
        yield Fault(Condition.COUNTED, f"{axis} is counted by two loops, one within the other")
    if loop.way is Way.PARALLEL and (changed := changed_locals(loop.body)):
        yield Fault(
            Condition.NAMED,
            f"{', '.join(sorted(changed))} is changed by all parallel steps of {axis}",
        )
    scope.lets_go(loop.body)
    inner = _Scope(dict(scope.loops)) if loop.way is Way.APART else scope.copy()  # becomes a separate function
    inner.loops[axis] = loop.way
    if loop.way is Way.VECTOR:
        for statement in loop.body:
            if not isinstance(statement, Store):
                yield Fault(Condition.LANES, f"{axis} is a vector loop, and one of its statements is no store")
            else:
                yield from _vector(statement, axis, inner)
    yield from _statements(loop.body, inner, nest)


def _let(let: Let, scope: _Scope) -> Iterator[Fault]:
    name = let.local.name
    yield from _formula(let.formula, scope)
    if let.formula.dtype != let.local.dtype:
        yield Fault(Condition.TYPED, f"{name} is {let.local.dtype}, and its value is {let.formula.dtype}")
    if let.known and name not in scope.locals:
        yield Fault(Condition.NAMED, f"{name} is changed before it is made")
    if not let.known and name in scope.locals:
        yield Fault(Condition.NAMED, f"{name} is made twice")
    scope.locals[name] = let.local.dtype
    scope.held.pop(name, None)


def _store(store: Store, scope: _Scope, nest: Nest) -> Iterator[Fault]:
    yield from _formula(store.formula, scope)
    yield from _picked(store, scope)
    yield from _indices([store.place], scope)
    if store.formula.dtype != store.buffer.dtype:
        yield Fault(
            Condition.TYPED, f"{store.buffer} is {store.buffer.dtype}, and the stored value is {store.formula.dtype}"
        )
    if store.buffer.role in _GIVEN and store.buffer != nest.buffer:
        yield Fault(Condition.OWNED, f"it writes {store.buffer}, which is an input or constant")
    elif store.buffer.role is Role.REGISTER:
        yield from _register(store, scope)
    elif store.buffer != nest.buffer and store.buffer.role is not Role.SCRATCH:
        yield Fault(Condition.OWNED, f"it writes {store.buffer}")


def _formula(formula: Formula, scope: _Scope) -> Iterator[Fault]:
    yield from _indices(list(indices_of(formula)), scope)
    for load in loads_in(formula):
        yield from _picked(load, scope)
        if load.buffer.role is Role.REGISTER:
            yield from _register(load, scope)
    for part in parts_in(formula):
        yield from _typed(part)
    for local in _locals(formula):
        if local.name not in scope.locals:
            yield Fault(Condition.NAMED, f"{local} is read before it is made")
        elif scope.locals[local.name] != local.dtype:
            yield Fault(Condition.TYPED, f"{local} is {scope.locals[local.name]}, and is read as {local.dtype}")


def _typed(formula: Formula) -> Iterator[Fault]:
    """Yields a fault if operands differ in dtype, the result has the wrong dtype, or a bitcast changes the size."""
    if isinstance(formula, Apply) and not isinstance(formula.primitive, Instruction):
        primitive, last = formula.primitive, formula.operands[-1].dtype
        own = formula.operands[1:] if primitive.name == "select" else formula.operands
        gives = last if primitive.gives == "same" else primitive.gives
        if {operand.dtype for operand in own} != {last} or formula.dtype != gives:
            taken = ", ".join(operand.dtype for operand in formula.operands)
            yield Fault(Condition.TYPED, f"{primitive.name} of {taken} is {formula.dtype}")
    elif isinstance(formula, Choose) and formula.then.dtype != formula.otherwise.dtype:
        yield Fault(Condition.TYPED, f"{formula} is {formula.then.dtype} or {formula.otherwise.dtype}")
    elif isinstance(formula, Convert) and formula.bits:
        given, wanted = RECORDS[formula.formula.dtype].numpy.itemsize, RECORDS[formula.dtype].numpy.itemsize
        if given != wanted:
            yield Fault(Condition.TYPED, f"{formula} is a bitcast from {given} bytes to {wanted}")


def _locals(formula: Formula) -> Iterator[Local]:
    if isinstance(formula, Local):
        yield formula
    elif isinstance(formula, Convert):
        yield from _locals(formula.formula)
    elif isinstance(formula, Apply):
        for operand in formula.operands:
            yield from _locals(operand)
    elif isinstance(formula, Choose):
        yield from (*_locals(formula.then), *_locals(formula.otherwise))


def _picked(access: Load | Store, scope: _Scope) -> Iterator[Fault]:
    dims = access.buffer.dims
    for local, step in access.picked:
        size = scope.held.get(local.name)
        if size is not None and not any(_steps_along(dims, axis, abs(step), size) for axis in range(len(dims))):
            apart = f"{step} elements, {size} of which are along no axis of ({' '.join(map(str, dims))})"
            yield Fault(Condition.STRIDED, f"{local} is an index of {access.buffer} with a stride of {apart}")
        if size is None:
            yield Fault(Condition.BOUNDED, f"{local} is used as an index, and no check bounds it to an axis")


def _steps_along(dims: Dims, axis: int, step: int, size: int) -> bool:
    """True if `size` steps are along one axis: a gather of rows that are several elements of that axis, say."""
    stride = dims.drop(axis + 1).product()
    if step == stride:
        return size <= dims[axis]
    return 0 < stride < step and step % stride == 0 and step // stride * (size - 1) < dims[axis]


def _indices(indices: Sequence[Index], scope: _Scope) -> Iterator[Fault]:
    for axis in dict.fromkeys(axes_in(*indices)):
        if axis not in scope.loops:
            known = next((other for other in scope.loops if other.number == axis.number), None)
            which = f"{known.size} steps in its loop, {axis.size} where it is used" if known else "no loop around it"
            yield Fault(Condition.COUNTED, f"{axis} has {which}")


def _register(access: Load | Store, scope: _Scope) -> Iterator[Fault]:
    """Yields a fault unless the register is known once loops are unrolled, and is a whole vector."""
    lane = next((axis for axis, way in scope.loops.items() if way is Way.VECTOR), None)
    for axis in axes_in(access.place):
        if scope.loops.get(axis) not in (Way.UNROLLED, Way.VECTOR, None):
            yield Fault(Condition.LANES, f"{access.buffer} is of registers, but {axis}, its index, is not unrolled")
    if lane is not None and is_direct(access.place, lane):
        start = substituted(access.place, {lane: Index()})
        if coefficient(access.place, lane) != 1 or start % lane.size != Index():
            yield Fault(Condition.LANES, f"{access.buffer}[{access.place}] is no whole vector along {lane}")


def _vector(store: Store, lane: Axis, scope: _Scope) -> Iterator[Fault]:
    most = MAX_INTERLEAVE if store.buffer.dtype == "float32" and store.buffer.role is not Role.REGISTER else 1
    if store.picked or not 1 <= coefficient(store.place, lane) <= most or not is_direct(store.place, lane):
        yield Fault(Condition.LANES, f"{store.buffer}[{store.place}] is not contiguous along {lane}")
    yield from _in_lanes(store.formula, lane)


def _in_lanes(formula: Formula, lane: Axis) -> Iterator[Fault]:
    if isinstance(formula, Load):
        if coefficient(formula.place, lane) not in (0, 1) or not is_direct(formula.place, lane):
            yield Fault(Condition.LANES, f"{formula.buffer}[{formula.place}] is not contiguous along {lane}")
    elif isinstance(formula, Convert):
        yield from _in_lanes(formula.formula, lane)
    elif isinstance(formula, Apply):
        blocks = formula.primitive.blocks(formula) if isinstance(formula.primitive, Instruction) else []
        for block in blocks:
            yield from _in_blocks(block, lane)
        for operand in (o for o in formula.operands if not any(o in block for block in blocks)):
            yield from _in_lanes(operand, lane)
    elif lane in set(axes_in(*indices_of(formula))):
        yield Fault(Condition.LANES, f"{formula} differs along {lane}, which is a vector loop")


def _in_blocks(taken: Sequence[Formula], lane: Axis) -> Iterator[Fault]:
    """Yields a fault unless the elements that an instruction reads per lane are contiguous, lane after lane."""
    loads = [part for part in taken if isinstance(part, Load)]
    if len(loads) < len(taken):
        yield Fault(Condition.LANES, "an instruction reads blocks of an operand that is not in memory")
    for number, load in enumerate(loads):
        first = loads[0]
        beside = load.buffer == first.buffer and load.place == first.place + number
        if not beside or coefficient(load.place, lane) != len(taken) or not is_direct(load.place, lane):
            yield Fault(
                Condition.LANES,
                f"{load.buffer}[{load.place}] is not contiguous with the other operands of an instruction along {lane}",
            )
