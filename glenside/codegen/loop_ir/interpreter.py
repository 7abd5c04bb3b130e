"""The interpreter of loop nests, which defines their meaning: runs them on arrays, in any arithmetic, nest by nest.

Loops with independent steps are executed at once, with an array axis per loop: vector and parallel loops always, which
exposes wrong marks; other loops if their independence can be proved. The interpreter reports, with the place, an access
outside a buffer, a read of an unwritten element, and two writes to one element by steps that are executed at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from glenside.codegen.loop_ir.intrinsics import Instruction, expanded
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Choose,
    Convert,
    Counter,
    Fence,
    For,
    Formula,
    Let,
    Load,
    Local,
    Loops,
    Number,
    Packing,
    Prefetch,
    Require,
    Role,
    Sort,
    Statement,
    Store,
    Way,
    When,
)
from glenside.codegen.loop_ir.loop_independence import AT_ONCE, OWN_REGISTERS, is_independent
from glenside.codegen.loop_ir.step_loops import at_step, groups
from glenside.ir.blockwise import row_major
from glenside.ir.dtypes import wider
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.index_map import Axis, Guard, Index
from glenside.ir.operand import Array
from glenside.semantics.native import Arithmetic, Native

_OWN = (Role.REGISTER, Role.SCRATCH)


class BadLoops(GlensideError):
    """Loops with an invalid access, or an invalid use of a variable or counter."""


def interpret(loops: Loops, values: Mapping[str, Array], arithmetic: Arithmetic | None = None) -> list[Array]:
    """Returns the results, given the arrays of inputs and constants by name, unpacked.

    Raises BadLoops, and BadInput for a computed index outside its axis.
    """
    run = _Run(arithmetic or Native(), values)
    with np.errstate(all="ignore"):
        for packing in loops.packings:
            if packing.buffer.role is Role.CONSTANT:
                run.packed(packing)
        for counter, nests in groups(loops.nests):
            for step in range(1 if counter is None else counter.size):
                for nest in nests:
                    run.nest(nest.what, nest.buffer, at_step(nest, step).body)
        return [run.result(buffer) for buffer in loops.results]


@dataclass
class _Elements:
    """The elements of a buffer, and which of them are written.

    depth  for a private buffer: the number of innermost array axes along which each step has a copy of its own
    """

    values: Array
    written: Array
    depth: int = 0


@dataclass
class _Scope:
    """The execution state around a statement.

    counters  axis number -> value: a number, or all values of the counter along an array axis
    axes      the array axes, innermost first, each with the way of its loop
    mask      the array elements for which statements are executed; None: all
    locals    name -> value, and the number of array axes at its definition
    """

    counters: dict[int, Any] = field(default_factory=dict)
    axes: tuple[tuple[Axis, Way], ...] = ()
    mask: Array | None = None
    locals: dict[str, tuple[Array, int]] = field(default_factory=dict)

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(axis.size for axis, _ in self.axes)

    def place(self, index: Index) -> Array:
        return np.asarray(index.evaluate(self.counters), np.int64)

    def holds(self, guards: Sequence[Guard]) -> Array:
        held = np.asarray(True)
        for guard in guards:
            held = held & guard.evaluate(self.counters)
        return held

    @contextmanager
    def where(self, held: Array) -> Iterator[None]:
        """Restricts the mask to `held` inside the block."""
        before = self.mask
        self.mask = held if before is None else before & held
        yield
        self.mask = before


class _Run:
    """One execution of a program.

    memory     buffer -> its elements
    registers  private buffers (registers and scratch) that are live at the current statement
    here       the current nest, for messages
    """

    def __init__(self, arithmetic: Arithmetic, values: Mapping[str, Array]) -> None:
        self.arithmetic, self.values = arithmetic, values
        self.memory: dict[Buffer, _Elements] = {}
        self.registers: dict[Buffer, _Elements] = {}
        self.here = ""

    def packed(self, packing: Packing) -> None:
        self.memory[packing.buffer] = self._nothing(packing.buffer, 1)
        self.nest(f"{packing.source} packed", packing.buffer, packing.statements())

    def nest(self, what: str, buffer: Buffer, body: Sequence[Statement]) -> None:
        self.here = f"{buffer} ({what})"
        self.registers = {}
        self._run(body, _Scope())

    def result(self, buffer: Buffer) -> Array:
        self.here = "the program"
        found = self._elements(buffer)
        if not found.written.all():
            raise self._wrong(f"{buffer}[{int(np.argmin(found.written))}] is a result that is not written")
        return found.values.reshape(tuple(buffer.dims))

    def _wrong(self, said: str) -> BadLoops:
        return BadLoops(f"{self.here}: {said}")

    def _nothing(self, buffer: Buffer, copies: int) -> _Elements:
        size = buffer.dims.product() * copies
        kept = self.arithmetic.constant(0, buffer.dtype).dtype
        return _Elements(np.zeros(size, kept), np.zeros(size, bool))

    def _elements(self, buffer: Buffer) -> _Elements:
        if buffer.role in _OWN:
            if buffer not in self.registers:
                raise self._wrong(f"{buffer} is read before it is written")
            return self.registers[buffer]
        if buffer not in self.memory:
            if buffer.role in (Role.INPUT, Role.CONSTANT):
                if buffer.name not in self.values:
                    raise BadInput(f"{buffer.name} requires a value, got none")
                given = self.arithmetic.encode(buffer.name, np.asarray(self.values[buffer.name]), buffer.dtype)
                if given.shape != tuple(buffer.dims):
                    raise BadInput(f"{buffer.name} requires ({buffer.dims}), got {given.shape}")
                self.memory[buffer] = _Elements(given.reshape(-1), np.ones(given.size, bool))
            else:
                self.memory[buffer] = self._nothing(buffer, 1)
        return self.memory[buffer]

    def _run(self, body: Sequence[Statement], scope: _Scope) -> None:
        for statement in body:
            if isinstance(statement, For):
                self._for(statement, scope)
            elif isinstance(statement, When):
                held = scope.holds(statement.guards)
                if statement.condition is not None:
                    with scope.where(held):
                        held = held & (self._value(statement.condition, scope) != 0)
                if held.any():
                    with scope.where(held):
                        self._run(statement.body, scope)
            elif isinstance(statement, Let):
                self._let(statement, scope)
            elif isinstance(statement, Store):
                self._store(statement, scope)
            elif isinstance(statement, Require):
                self._require(statement, scope)
            elif isinstance(statement, Sort):
                self._sort(statement, scope)
            else:
                assert isinstance(statement, Prefetch | Fence), "prefetches and fences change no value"

    def _for(self, loop: For, scope: _Scope) -> None:
        number, size = loop.axis.number, loop.axis.size
        if number in scope.counters:
            raise self._wrong(f"i{number} is counted by two loops, one within the other")
        registers = dict(self.registers)
        keeps = loop.way in OWN_REGISTERS
        if self._at_once(loop, scope):
            place = np.arange(size).reshape(size, *(1 for _ in scope.axes))
            inner = _Scope({**scope.counters, number: place}, ((loop.axis, loop.way), *scope.axes), scope.mask)
            inner.locals = dict(scope.locals)
            self._run(loop.body, inner)
            if keeps:
                scratch = {} if loop.way is Way.PARALLEL else self._scratch()
                self.registers = registers | scratch
            return
        for step in range(size):
            inner = _Scope({**scope.counters, number: step}, scope.axes, scope.mask, dict(scope.locals))
            self._run(loop.body, inner)
            scope.locals |= {name: inner.locals[name] for name in scope.locals}
            if keeps:
                self.registers = registers | self._scratch()

    def _scratch(self) -> dict[Buffer, _Elements]:
        """Returns the scratch buffers, which are live until the thread leaves the nest."""
        return {b: found for b, found in self.registers.items() if b.role is Role.SCRATCH}

    def _at_once(self, loop: For, scope: _Scope) -> bool:
        if loop.way in (Way.PARALLEL, Way.VECTOR):
            return True
        return prod(scope.dims) * loop.axis.size <= AT_ONCE and is_independent(loop)

    def _let(self, let: Let, scope: _Scope) -> None:
        name, value = let.local.name, self._value(let.formula, scope)
        if not let.known:
            scope.locals[name] = value, len(scope.axes)
            return
        if name not in scope.locals:
            raise self._wrong(f"{name} is changed before it is made")
        before, depth = scope.locals[name]
        if depth != len(scope.axes):
            raise self._wrong(f"{name} is changed by steps of i{scope.axes[0][0].number} that are taken at once")
        scope.locals[name] = (value if scope.mask is None else np.where(scope.mask, value, before)), depth

    # Memory accesses.

    def _places(self, access: Load | Store, scope: _Scope, found: _Elements) -> tuple[Array, Array]:
        """Returns the indices of an access along the array axes, and the mask of steps that execute it."""
        place = scope.place(access.place)
        for local, step in access.picked:
            place = place + self._value(local, scope).astype(np.int64) * step
        held = np.broadcast_to(np.asarray(True) if scope.mask is None else scope.mask, scope.dims)
        place = np.broadcast_to(place, scope.dims)
        size = access.buffer.dims.product()
        outside = held & ((place < 0) | (place >= size))
        if outside.any():
            at = tuple(np.argwhere(outside)[0])
            raise self._wrong(f"{access.buffer}[{place[at]}] is outside of its {size} elements{_steps(scope, at)}")
        if found.depth:
            copies = found.values.size // max(1, size)
            place = place * copies + np.arange(copies).reshape(scope.dims[len(scope.dims) - found.depth :])
        return np.where(held, place, 0), held

    def _load(self, load: Load, scope: _Scope) -> Array:
        found = self._elements(load.buffer)
        place, held = self._places(load, scope, found)
        if not found.values.size:
            return np.zeros(scope.dims, found.values.dtype)
        unwritten = held & ~found.written[place]
        if unwritten.any():
            at = tuple(np.argwhere(unwritten)[0])
            where = scope.place(load.place)
            where = np.broadcast_to(where, scope.dims)[at]
            raise self._wrong(f"{load.buffer}[{where}] is read before it is written{_steps(scope, at)}")
        return np.asarray(found.values[place])

    def _store(self, store: Store, scope: _Scope) -> None:
        value = self._value(store.formula, scope)
        if store.buffer.role in _OWN and store.buffer not in self.registers:
            kept = _owners(store.buffer, scope)
            self.registers[store.buffer] = self._nothing(store.buffer, prod(kept))
            self.registers[store.buffer].depth = len(kept)
        found = self._elements(store.buffer)
        place, held = self._places(store, scope, found)
        self._written_once(store, scope, place, held)
        order = tuple(reversed(range(place.ndim)))  # outermost loop first: the order of execution
        place, held = place.transpose(order), held.transpose(order)
        value = np.broadcast_to(value, scope.dims).transpose(order)
        found.values[place[held]] = value[held]
        found.written[place[held]] = True

    def _written_once(self, store: Store, scope: _Scope, place: Array, held: Array) -> None:
        """Raises BadLoops if two steps of parallel or vector loops write to one element."""
        shared = [(i, axis) for i, (axis, way) in enumerate(scope.axes) if way in (Way.PARALLEL, Way.VECTOR)]
        who = np.zeros(scope.dims, np.int64)
        for i, axis in shared:
            who = who * axis.size + np.arange(axis.size).reshape([-1 if j == i else 1 for j in range(len(scope.axes))])
        if not shared or place.size < 2:
            return
        flat, by = place[held], who[held]
        order = np.lexsort((by, flat))
        twice = (flat[order][1:] == flat[order][:-1]) & (by[order][1:] != by[order][:-1])
        if twice.any():
            first = int(np.argmax(twice))
            at = [tuple(np.argwhere(held)[order[i]]) for i in (first, first + 1)]
            names = [f"i{axis.number}" for i, axis in shared if at[0][i] != at[1][i]]
            said = f"{store.buffer}[{flat[order][first]}] is written by several steps of {', '.join(names)}"
            raise self._wrong(f"{said}, which are taken at once")

    def _require(self, statement: Require, scope: _Scope) -> None:
        value, size = self._value(statement.local, scope), statement.size
        held = np.broadcast_to(np.asarray(True) if scope.mask is None else scope.mask, value.shape)
        if (held & ((value < -size) | (value >= size))).any():
            wanted = f"indices from {-size} to {size - 1}"
            raise BadInput(f"{statement.operator} requires {wanted}, got one that is outside")
        depth = scope.locals[statement.local.name][1]
        scope.locals[statement.local.name] = np.where(value < 0, value + size, value), depth

    def _sort(self, statement: Sort, scope: _Scope) -> None:
        places = np.broadcast_to(scope.place(statement.place), scope.dims).reshape(-1)
        held = np.broadcast_to(np.asarray(True) if scope.mask is None else scope.mask, scope.dims).reshape(-1)
        items, positions = self._elements(statement.items), self._elements(statement.positions)
        for place in places[held]:
            part = slice(place, place + statement.count)
            if place < 0 or place + statement.count > min(items.values.size, positions.values.size):
                raise self._wrong(f"{statement.items}[{part.start}..{part.stop - 1}] is outside of it")
            if not items.written[part].all():
                raise self._wrong(f"{statement.items}[{part.start}..{part.stop - 1}] is sorted before it is written")
            keys = items.values[part]
            keys = keys.astype(wider(keys.dtype.name)) if keys.dtype.kind == "V" else keys
            ranks = np.unique(keys, return_inverse=True)[1].reshape(-1)
            positions.values[part] = np.argsort(-ranks if statement.descending else ranks, kind="stable")
            positions.written[part] = True

    # Formulas.

    def _value(self, formula: Formula, scope: _Scope) -> Array:
        if isinstance(formula, Number):
            if formula.value is None:
                return self.arithmetic.lowest(formula.dtype)
            return self.arithmetic.constant(formula.value, formula.dtype)
        if isinstance(formula, Counter):
            return scope.place(formula.index)
        if isinstance(formula, Local):
            if formula.name not in scope.locals:
                raise self._wrong(f"{formula.name} is read before it is made")
            return scope.locals[formula.name][0]
        if isinstance(formula, Load):
            return self._load(formula, scope)
        if isinstance(formula, Choose):
            return self._choose(formula, scope)
        if isinstance(formula, Convert):
            value = self._value(formula.formula, scope)
            change = self.arithmetic.reinterpret if formula.bits else self.arithmetic.cast
            return change(np.ascontiguousarray(value), formula.dtype).reshape(value.shape)
        return self._apply(formula, scope)

    def _choose(self, formula: Choose, scope: _Scope) -> Array:
        held = scope.holds(formula.guards)
        if held.all():
            return self._value(formula.then, scope)
        with scope.where(~held):
            otherwise = self._value(formula.otherwise, scope)
        if not held.any():
            return otherwise
        with scope.where(held):
            then = self._value(formula.then, scope)
        return np.asarray(np.where(held, then, otherwise))

    def _apply(self, formula: Apply, scope: _Scope) -> Array:
        if isinstance(formula.primitive, Instruction):
            return self._value(expanded(formula), scope)
        operands = np.broadcast_arrays(*(self._value(operand, scope) for operand in formula.operands))
        primitive, arithmetic = formula.primitive, self.arithmetic
        if primitive.name in arithmetic.own:
            return np.asarray(arithmetic.own[primitive.name](*operands))
        if primitive.arithmetic is not None:
            return np.asarray(primitive.arithmetic(arithmetic, *operands))
        dtype = np.dtype(bool) if primitive.gives == "bool" else operands[-1].dtype
        return row_major(primitive.numpy, *operands, dtype=dtype)


def _owners(buffer: Buffer, scope: _Scope) -> list[int]:
    """Returns the sizes of the array axes, innermost first, along which each step has a private copy of the buffer."""
    ways = [way for _, way in scope.axes]
    if buffer.role is Role.SCRATCH:
        return [axis.size for axis, _ in scope.axes[ways.index(Way.PARALLEL) :]] if Way.PARALLEL in ways else []
    return [axis.size for axis, way in scope.axes if way in OWN_REGISTERS]


def _steps(scope: _Scope, at: Sequence[int]) -> str:
    """Formats the values of the loop counters at an array position."""
    known = {n: int(v) for n, v in scope.counters.items() if np.ndim(v) == 0}
    known |= {axis.number: int(i) for (axis, _), i in zip(scope.axes, at, strict=True)}
    return f" at {', '.join(f'i{n} = {i}' for n, i in sorted(known.items()))}" if known else ""
