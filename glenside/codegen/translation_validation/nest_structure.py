"""The structure of a nest: statements with the loops and guards around them, and the loops with dependent steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from glenside.codegen.loop_ir.intrinsics import FLUSHED, PARTS, Instruction, expanded
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Choose,
    Convert,
    For,
    Formula,
    Let,
    Load,
    Local,
    Require,
    Role,
    Sort,
    Statement,
    Store,
    When,
)
from glenside.ir.index_map import Axis, Divided, Guard, Index, Within

PRIVATE = (Role.REGISTER, Role.SCRATCH)
_JOINS = ("add", "max", "min", "multiply")


@dataclass(eq=False)
class Node:
    """A statement in its nest.

    loops   the loops around it, outermost first
    guards  the guards around it
    inner   the body of a loop or of a conditional
    serial  True for a loop whose steps depend on each other
    """

    statement: Statement
    loops: tuple[Node, ...]
    guards: tuple[Guard, ...]
    inner: list[Node] = field(default_factory=list)
    serial: bool = False

    @property
    def axis(self) -> Axis:
        assert isinstance(self.statement, For), "a loop has an axis"
        return self.statement.axis

    def every(self) -> Iterator[Node]:
        """Yields the node and all nodes within it, in program order."""
        yield self
        for node in self.inner:
            yield from node.every()


def loads_of(*formulas: Formula) -> Iterator[Load]:
    """Yields the loads of formulas."""
    return (part for formula in formulas for part in _parts(formula) if isinstance(part, Load))


def locals_of(*formulas: Formula) -> Iterator[str]:
    """Yields the names of the variables that formulas read."""
    for part in (part for formula in formulas for part in _parts(formula)):
        if isinstance(part, Local):
            yield part.name
        elif isinstance(part, Load):
            yield from (local.name for local, _ in part.picked)


def read_by(statement: Statement) -> tuple[Formula, ...]:
    """Returns the formulas that a statement evaluates."""
    if isinstance(statement, Let | Store):
        return (statement.formula,)
    return (statement.condition,) if isinstance(statement, When) and statement.condition is not None else ()


def joined(statement: Let | Store) -> tuple[str, tuple[Formula, ...]] | None:
    """Returns the primitive of a reduction statement, and the formulas that it accumulates; None for others."""

    def is_own(formula: Formula) -> bool:
        if isinstance(statement, Let):
            return statement.known and isinstance(formula, Local) and formula.name == statement.local.name
        where = statement.buffer, statement.place, statement.picked
        return isinstance(formula, Load) and (formula.buffer, formula.place, formula.picked) == where

    found = _spine(statement.formula, is_own)
    if found is None or any(is_own(load) for load in loads_of(*found[1])):
        return None
    if isinstance(statement, Let) and statement.local.name in locals_of(*found[1]):
        return None
    return found


def _spine(formula: Formula, is_own: Callable[[Formula], bool]) -> tuple[str, tuple[Formula, ...]] | None:
    if not isinstance(formula, Apply) or formula.primitive in PARTS:
        return None
    if formula.primitive is FLUSHED:
        return _spine(formula.operands[0], is_own)
    if isinstance(formula.primitive, Instruction):
        return _spine(expanded(formula), is_own)
    name = formula.primitive.name
    if name not in _JOINS or len(formula.operands) != 2:
        return None
    left, right = formula.operands
    while isinstance(left, Apply) and left.primitive is FLUSHED:
        (left,) = left.operands
    if is_own(left):
        return name, (right,)
    if is_own(right):
        return name, (left,)
    found = _spine(left, is_own)
    return (name, (*found[1], right)) if found is not None and found[0] == name else None


class Structure:
    """A nest as nodes, the buffers that it writes, and the loops with dependent steps."""

    def __init__(self, body: Sequence[Statement]) -> None:
        self.nodes = [self._node(statement, (), ()) for statement in body]
        self.every = [node for root in self.nodes for node in root.every()]
        self.sizes = {n.statement.local.name: n.statement.size for n in self.every if isinstance(n.statement, Require)}
        self.written = {buffer for node in self.every for buffer in _stored(node.statement)}
        self.questions = _asked(self.every)
        self.around = _private(self.every)
        for node in self.every:
            if isinstance(node.statement, For):
                node.serial = self._is_serial(node)

    def _node(self, statement: Statement, loops: tuple[Node, ...], guards: tuple[Guard, ...]) -> Node:
        node = Node(statement, loops, guards)
        if isinstance(statement, For):
            node.inner = [self._node(inner, (*loops, node), guards) for inner in statement.body]
        elif isinstance(statement, When):
            node.inner = [self._node(inner, loops, (*guards, *statement.guards)) for inner in statement.body]
        return node

    def _is_serial(self, loop: Node) -> bool:
        if loop.axis.size == 1:
            return False
        inside = [node for node in loop.every() if node is not loop]
        made = {n.statement.local.name for n in inside if isinstance(n.statement, Let) and not n.statement.known}
        changes = [n.statement for n in inside if isinstance(n.statement, Let) and n.statement.known]
        changes = [let for let in changes if let.local.name not in made]
        for name in {let.local.name for let in changes}:
            own = [joined(let) for let in changes if let.local.name == name]
            joins = {found[0] if found else "" for found in own}
            others = [n for n in inside if not (isinstance(n.statement, Let) and n.statement in changes)]
            read = any(name in locals_of(*read_by(n.statement)) for n in others)
            if len(joins) != 1 or "" in joins or read:
                return True
        return any(self._depends(loop, inside, buffer) for buffer in {b for n in inside for b in _stored(n.statement)})

    def _depends(self, loop: Node, inside: Sequence[Node], buffer: Buffer) -> bool:
        """True if steps of a loop may use elements of a buffer that other steps write."""
        if buffer.role in PRIVATE and loop in self.around[buffer]:
            return False
        stores = [n.statement for n in inside if isinstance(n.statement, Store) and n.statement.buffer is buffer]
        joins = [joined(store) for store in stores]
        reads = [load for n in inside for load in loads_of(*_beside(n.statement, buffer)) if load.buffer is buffer]
        if stores and not reads and len({found and found[0] for found in joins}) == 1 and joins[0] is not None:
            return False
        places = [store.place for store in stores] + [load.place for load in reads]
        plain = [load for n in inside for load in loads_of(*read_by(n.statement)) if load.buffer is buffer]
        places += [load.place for load in plain]
        picked = any(store.picked for store in stores) or any(load.picked for load in plain)
        if picked:
            return bool(plain)
        axes = {axis.number for place in places for axis in axes_of(place)}
        if loop.axis.number not in axes and stores:
            return True
        if not plain:
            return any(loop.axis.number not in {a.number for a in axes_of(place)} for place in places)
        if len({*places}) == 1:
            return False
        return not _apart(places, loop, {n.axis.number for n in inside if isinstance(n.statement, For)})


def _asked(every: Iterable[Node]) -> dict[int, list[tuple[Index, tuple[int, ...]]]]:
    """Returns by number of a counter the indices that contain it and are divided or guarded, with divisor or bounds."""
    found: dict[int, dict[tuple[Index, tuple[int, ...]], None]] = {}
    for node in every:
        for index, bounds in _questions(node):
            for axis in axes_of(index):
                found.setdefault(axis.number, {})[index, bounds] = None
    return {number: list(own) for number, own in found.items()}


def _private(every: Iterable[Node]) -> dict[Buffer, tuple[Node, ...]]:
    """Returns for each private buffer the loops around all its uses: each of their steps has its own copy."""
    found: dict[Buffer, tuple[Node, ...]] = {}
    for node in every:
        for buffer in {*(load.buffer for load in loads_of(*read_by(node.statement))), *_stored(node.statement)}:
            if buffer.role in PRIVATE:
                common = zip(found.get(buffer, node.loops), node.loops, strict=False)
                found[buffer] = tuple(a for a, b in common if a is b)
    return found


def _questions(node: Node) -> Iterator[tuple[Index, tuple[int, ...]]]:
    """Yields the indices that a statement divides, with the divisor, and those that it guards, with the bounds."""
    statement = node.statement
    guards = list(statement.guards) if isinstance(statement, When) else []
    places = [statement.place] if isinstance(statement, Store) else []
    for part in (part for formula in read_by(statement) for part in _parts(formula)):
        if isinstance(part, Load):
            places.append(part.place)
        elif isinstance(part, Choose):
            guards += part.guards
    for guard in guards:
        yield guard.index, (guard.low, guard.high) if isinstance(guard, Within) else (guard.divisor,)
    for index in (*places, *(guard.index for guard in guards)):
        for atom, _ in index.terms:
            if isinstance(atom, Divided):
                yield atom.expression, (atom.divisor,)


def _parts(formula: Formula) -> Iterator[Formula]:
    """Yields a formula and all its subformulas."""
    yield formula
    inner: tuple[Formula, ...] = ()
    if isinstance(formula, Convert):
        inner = (formula.formula,)
    elif isinstance(formula, Apply):
        inner = formula.operands
    elif isinstance(formula, Choose):
        inner = (formula.then, formula.otherwise)
    for part in inner:
        yield from _parts(part)


def _beside(statement: Statement, buffer: Buffer) -> tuple[Formula, ...]:
    """Returns the formulas that a statement evaluates, without the accumulator of a reduction into `buffer`."""
    if isinstance(statement, Store) and statement.buffer is buffer and (found := joined(statement)) is not None:
        return found[1]
    return read_by(statement)


def _stored(statement: Statement) -> tuple[Buffer, ...]:
    if isinstance(statement, Store):
        return (statement.buffer,)
    return (statement.positions,) if isinstance(statement, Sort) else ()


def _apart(places: Sequence[Index], loop: Node, inner: set[int]) -> bool:
    """True if steps of a loop use disjoint elements: its stride exceeds the range of the indices of one step."""
    own, steps, lows, highs = loop.axis.number, set[int](), [], []
    outer: set[tuple[object, ...]] = set()
    for place in places:
        low = high = place.constant
        beyond = []
        step = 0
        for atom, factor in place.terms:
            numbers = {axis.number for axis in axes_of(Index(((atom, 1),)))}
            if isinstance(atom, Axis) and atom.number == own:
                step += factor
            elif own in numbers:
                return False
            elif numbers & inner:
                ends = [factor * end for end in atom.bounds]
                low, high = low + min(ends), high + max(ends)
            else:
                beyond.append((atom, factor))
        steps.add(step)
        outer.add(tuple(sorted(beyond, key=str)))
        lows.append(low)
        highs.append(high)
    return len(steps) == 1 and len(outer) == 1 and max(highs) - min(lows) < abs(steps.pop())


def axes_of(index: Index) -> Iterator[Axis]:
    """Yields the counters in an index."""
    for atom, _ in index.terms:
        if isinstance(atom, Axis):
            yield atom
        else:
            yield from axes_of(atom.expression)
