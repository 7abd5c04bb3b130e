"""Runs the needed steps of a nest on residues: several samples at a time, with one array axis for each loop.

All steps of a loop run at once if they are independent or form a reduction. An element that another nest writes has a
pseudo-random value (`Values`); of the elements that this nest writes, the needed ones are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from glenside.codegen.loop_ir.intrinsics import PARTS, Instruction, expanded
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Choose,
    Counter,
    For,
    Formula,
    Let,
    Load,
    Local,
    Number,
    Require,
    Sort,
    Store,
    When,
)
from glenside.codegen.translation_validation.backward_slice import Demand
from glenside.codegen.translation_validation.buffer_values import Values
from glenside.codegen.translation_validation.element_indices import MOST, NotSampled
from glenside.codegen.translation_validation.nest_structure import PRIVATE, Node, joined
from glenside.codegen.translation_validation.residue_primitives import Numbers
from glenside.codegen.translation_validation.run_state import (
    Elements,
    OutOfBounds,
    Scope,
    both,
    either,
    masked,
    squeezed,
)
from glenside.ir.dtypes import wider
from glenside.ir.index_map import Guard, Index
from glenside.ir.operand import Array

_MAX_SERIAL_STEPS = 2000
"""Maximum loop steps that run one by one."""


class Run:
    """One run of the steps of a `Demand`."""

    def __init__(self, values: Values, demand: Demand) -> None:
        self.values, self.field, self.demand = values, values.field, demand
        self.numbers = Numbers(self.field)
        self.samples, self.structure = demand.samples, demand.structure
        self.memory: dict[Buffer, Elements] = {}
        self.left = _MAX_SERIAL_STEPS
        self.missing: Array | None = None
        scope = Scope({}, (), None)
        with np.errstate(all="ignore"):
            for node in self.structure.nodes:
                self._do(node, scope)

    def result(self, buffer: Buffer, sample: Array, places: Array) -> tuple[Array, Array]:
        """Returns the elements of a buffer after the run, and True for those that are known."""
        elements = self._elements(buffer, ())
        at = np.searchsorted(elements.keys, sample * buffer.dims.product() + places)
        return elements.values[0, at], elements.written[0, at] & elements.known[0, at]

    # Statements.

    def _do(self, node: Node, scope: Scope) -> None:
        statement = node.statement
        if isinstance(statement, For):
            self._for(node, scope)
        elif isinstance(statement, When):
            self._when(node, statement, scope)
        elif isinstance(statement, Let):
            self._let(statement, scope)
        elif isinstance(statement, Store):
            self._store(statement, scope)
        elif isinstance(statement, Require):
            value, depth, missing = scope.locals[statement.local.name]
            scope.locals[statement.local.name] = value % max(1, statement.size), depth, missing
        elif isinstance(statement, Sort):
            self._sort(statement, scope)

    def _when(self, node: Node, when: When, scope: Scope) -> None:
        held = self._holds(when.guards, scope)
        if when.condition is not None:
            self.missing = None
            held = held & (self._value(when.condition, masked(scope, held)) != 0)
            if self.missing is not None:
                raise NotSampled("a condition on elements that are not known")
        if held.any():
            inner = masked(scope, held)
            for child in node.inner:
                self._do(child, inner)
            scope.locals |= inner.locals

    def _steps(self, loop: Node) -> tuple[Array, Array | None]:
        """Returns the needed steps of a loop, (step)(sample), and a mask of valid entries; None if all are valid."""
        if loop in self.demand.whole and loop not in self.demand.steps:
            active = self.demand.whole[loop]
            valid = None if active.all() else np.broadcast_to(active, (loop.axis.size, self.samples))
            return np.arange(loop.axis.size)[:, None], valid
        own, step = self.demand.taken(loop)
        counts = np.bincount(own, minlength=self.samples)
        steps = np.zeros((int(counts.max()), self.samples), np.int64)
        filled = np.zeros(steps.shape, bool)
        turn = np.arange(own.size) - np.repeat(np.cumsum(counts) - counts, counts)
        steps[turn, own], filled[turn, own] = step, True
        return steps, None if filled.all() else filled

    def _for(self, loop: Node, scope: Scope) -> None:
        steps, valid = self._steps(loop)
        count = len(steps)
        if not count:
            return
        if loop.serial:
            self._in_turn(loop, steps, valid, scope)
            return
        if prod(n for _, n in scope.axes) * count * self.samples > MOST:
            raise NotSampled(f"{count:,} steps of {loop.axis} at once, of {self.samples} samples")
        ones = tuple(1 for _ in scope.axes)
        steps = steps.reshape(count, *ones, steps.shape[-1])
        mask = scope.mask if valid is None else both(scope.mask, valid.reshape(count, *ones, self.samples))
        counters = {**scope.counters, loop.axis.number: steps}
        inner = Scope(counters, ((loop, count), *scope.axes), mask, dict(scope.locals))
        for node in loop.inner:
            self._do(node, inner)
        for name, (value, depth, missing) in inner.locals.items():
            if name in scope.locals and depth <= len(scope.axes):
                scope.locals[name] = value, depth, missing

    def _in_turn(self, loop: Node, steps: Array, valid: Array | None, scope: Scope) -> None:
        """Runs dependent steps one by one."""
        self.left -= len(steps)
        if self.left < 0:
            raise NotSampled(f"more than {_MAX_SERIAL_STEPS:,} steps that depend on each other")
        for i, step in enumerate(steps):
            mask = scope.mask if valid is None else both(scope.mask, valid[i])
            if mask is not None and not mask.any():
                continue
            inner = Scope({**scope.counters, loop.axis.number: step}, scope.axes, mask, dict(scope.locals))
            for node in loop.inner:
                self._do(node, inner)
            scope.locals |= {name: inner.locals[name] for name in scope.locals}

    def _let(self, let: Let, scope: Scope) -> None:
        name, depth = let.local.name, len(scope.axes)
        found = joined(let) if let.known else None
        self.missing = None
        if not let.known:
            value = self._value(let.formula, scope)
            scope.locals[name] = value, depth, self.missing
            return
        before, at, unknown = scope.locals[name]
        if found is None:
            if at != depth:
                raise NotSampled(f"{name}, which is changed by steps that run at once")
            value = self._value(let.formula, scope)
            missing = self.missing
        else:
            value, missing = before, unknown
            for formula in found[1]:
                self.missing = None
                part = self._value(formula, scope)
                whole, own = self._reduced(found[0], part, scope, range(depth - at))
                value = self.numbers.join(found[0], value, whole)
                missing = either(missing, own)
            scope.locals[name] = value, at, missing
            return
        if scope.mask is not None:
            value = np.where(scope.mask, value, before)
        scope.locals[name] = value, at, either(missing, unknown)

    def _dims(self, scope: Scope) -> tuple[int, ...]:
        return (*(n for _, n in scope.axes), self.samples)

    def _reduced(self, name: str, part: Array, scope: Scope, axes: Sequence[int]) -> tuple[Array, Array | None]:
        """Reduces a value along axes of the scope, which are removed; returns it, and where it is unknown."""
        missing = None if self.missing is None else both(self.missing, scope.mask)
        if not len(axes):
            if scope.mask is not None:
                part = np.where(scope.mask, part, self.numbers.neutral(name, part))
            return part, missing
        dims = self._dims(scope)
        shown = [1] * (len(dims) - part.ndim) + list(part.shape)
        if scope.mask is not None:
            mask_shown = [1] * (len(dims) - scope.mask.ndim) + list(scope.mask.shape)
            part = np.where(scope.mask, part, self.numbers.neutral(name, part))
            shown = [max(a, b) for a, b in zip(shown, mask_shown, strict=True)]
        for axis in axes:
            shown[axis] = dims[axis]
        part = np.broadcast_to(part, tuple(shown))
        over = tuple(axes)
        if missing is not None:
            missing = np.asarray(np.broadcast_to(missing, dims).any(over))
        return self.numbers.total(name, part, over), missing

    # Elements.

    def _elements(self, buffer: Buffer, axes: Sequence[tuple[Node, int]]) -> Elements:
        if buffer not in self.memory:
            keys = self.demand.needs.get(buffer, np.zeros(0, np.int64))
            own = self.structure.around.get(buffer, ())
            copies = prod(n for loop, n in axes if loop in own)
            kind = self.field.constant(0, buffer.dtype).dtype
            shape = (copies, keys.size)
            claimed = self.demand.claimed.get(buffer, np.zeros(keys.size, bool))
            self.memory[buffer] = Elements(
                keys, np.zeros(shape, kind), np.zeros(shape, bool), np.zeros(shape, bool), claimed
            )
        return self.memory[buffer]

    def _copy(self, buffer: Buffer, scope: Scope) -> Array:
        """Returns for each step the number of its copy of a buffer."""
        own = self.structure.around.get(buffer, ())
        found: Array = np.zeros((), np.int64)
        for i, (loop, n) in enumerate(scope.axes):
            if loop in own:
                found = found * n + np.arange(n).reshape(-1, *(1 for _ in scope.axes[i + 1 :]), 1)
        return found

    def _place(self, access: Load | Store, scope: Scope) -> Array:
        place = self._index(access.place, scope)
        for local, step in access.picked:
            place = place + self._value(local, scope).astype(np.int64) * step
        return place

    def _index(self, index: Index, scope: Scope) -> Array:
        try:
            return np.asarray(index.evaluate(scope.counters), np.int64)
        except KeyError as error:
            raise OutOfBounds(f"{index} is counted by no loop around it") from error

    def _holds(self, guards: Sequence[Guard], scope: Scope) -> Array:
        held = np.asarray(True)
        for guard in guards:
            held = held & guard.evaluate(scope.counters)
        return held

    def _inside(self, buffer: Buffer, place: Array, scope: Scope) -> Array:
        """Returns indices, 0 where the mask is off. Raises OutOfBounds."""
        size = buffer.dims.product()
        outside = (place < 0) | (place >= size)
        if not outside.any():
            return place
        if scope.mask is None or (outside & scope.mask).any():
            wrong = np.broadcast_to(outside if scope.mask is None else outside & scope.mask, self._dims(scope))
            at = np.broadcast_to(place, self._dims(scope))[wrong]
            raise OutOfBounds(f"{buffer}[{at[0]}] is outside of its {size:,} elements")
        return np.where(outside, 0, place)

    def _load(self, load: Load, scope: Scope) -> Array:
        buffer = load.buffer
        if not buffer.dims.product():
            return np.zeros((), self.field.constant(0, buffer.dtype).dtype)
        place = self._inside(buffer, self._place(load, scope), scope)
        if buffer not in self.structure.written:
            if buffer.role in PRIVATE:
                raise OutOfBounds(f"{buffer} is read and never written")
            return self.values.at(buffer, place)
        elements = self._elements(buffer, scope.axes)
        if not elements.keys.size:
            self.missing = np.asarray(True)
            return np.zeros((), elements.values.dtype)
        key = np.arange(self.samples) * buffer.dims.product() + place
        at = np.minimum(np.searchsorted(elements.keys, key), elements.keys.size - 1)
        found = elements.keys[at] == key
        copy = self._copy(buffer, scope)
        value, written = elements.values[copy, at], elements.written[copy, at]
        known = found & written & elements.known[copy, at]
        if buffer.role not in PRIVATE:
            before = found & ~written & ~elements.claimed[at]
            if before.any():
                value = np.where(before, self.values.at(buffer, np.broadcast_to(place, value.shape)), value)
                known = known | before
        if not known.all():
            self.missing = either(self.missing, both(~known, scope.mask))
        return np.asarray(value)

    def _store(self, store: Store, scope: Scope) -> None:
        buffer = store.buffer
        elements = self._elements(buffer, scope.axes)
        if not elements.keys.size:
            return
        self.missing = None
        dims = self._dims(scope)
        place = self._inside(buffer, self._place(store, scope), scope)
        key = np.arange(self.samples) * buffer.dims.product() + place
        at = np.minimum(np.searchsorted(elements.keys, key), elements.keys.size - 1)
        hit = elements.keys[at] == key
        mask = hit if scope.mask is None else hit & scope.mask
        if not mask.any():
            return
        inner = Scope(scope.counters, scope.axes, None if mask.all() else mask, scope.locals)
        copy = self._copy(buffer, scope)
        found = joined(store)
        if found is not None:
            self._accumulate(elements, found, inner, at, copy)
            return
        value = self._value(store.formula, inner)
        where = np.broadcast_to(mask, dims)
        order = (*reversed(range(len(dims) - 1)), len(dims) - 1)  # outermost loop first: the order of execution
        where = where.transpose(order)
        rows = np.broadcast_to(copy, dims).transpose(order)[where]
        columns = np.broadcast_to(at, dims).transpose(order)[where]
        elements.values[rows, columns] = np.broadcast_to(value, dims).transpose(order)[where]
        elements.written[rows, columns] = True
        missing = False if self.missing is None else np.broadcast_to(self.missing, dims).transpose(order)[where]
        elements.known[rows, columns] = ~np.asarray(missing)

    def _accumulate(
        self, elements: Elements, found: tuple[str, Sequence[Formula]], scope: Scope, at: Array, copy: Array
    ) -> None:
        """Accumulates values in elements: reduces along loops that the index does not depend on first."""
        name, formulas = found
        dims = self._dims(scope)
        places = np.broadcast_shapes(np.shape(at), np.shape(copy))
        shown = [1] * (len(dims) - len(places)) + list(places)
        over = [i for i in range(len(dims) - 1) if shown[i] == 1 and dims[i] > 1]
        for formula in formulas:
            self.missing = None
            part = self._value(formula, scope)
            whole, missing = self._reduced(name, part, scope, over)
            left = tuple(n for i, n in enumerate(dims) if i not in over)
            rows, columns = (squeezed(np.broadcast_to(x, tuple(shown)), over) for x in (copy, at))
            mask = None if scope.mask is None else np.broadcast_to(scope.mask, dims).any(tuple(over))
            where = np.ones(left, bool) if mask is None else np.broadcast_to(mask, left)
            rows, columns = (np.broadcast_to(x, left)[where] for x in (rows, columns))
            new = np.broadcast_to(whole, left)[where]
            unknown = None if missing is None else np.broadcast_to(missing, left)[where]
            elements.put(self.numbers, name, rows, columns, new, unknown)

    def _sort(self, sort: Sort, scope: Scope) -> None:
        items, positions = sort.items, self._elements(sort.positions, scope.axes)
        if scope.axes:
            dims = self._dims(scope)
        else:
            dims = (self.samples,)
        place = np.broadcast_to(self._index(sort.place, scope), dims)
        mask = np.ones(dims, bool) if scope.mask is None else np.broadcast_to(scope.mask, dims)
        sample = np.broadcast_to(np.arange(self.samples), dims)[mask]
        start = place[mask]
        within = start[:, None] + np.arange(sort.count)[None]
        if items in self.structure.written:
            raise NotSampled("a sort of items that its own nest writes")
        keys = self.values.at(items, self._inside(items, within, Scope({}, (), None)))
        keys = keys.astype(wider(keys.dtype.name)) if keys.dtype.kind == "V" else keys
        ranks = np.unique(keys, return_inverse=True)[1].reshape(keys.shape)
        order = np.argsort(-ranks if sort.descending else ranks, axis=1, kind="stable")
        found = (sample[:, None] * sort.positions.dims.product() + within).reshape(-1)
        at = np.minimum(np.searchsorted(positions.keys, found), positions.keys.size - 1)
        hit = positions.keys[at] == found
        positions.values[0, at[hit]] = order.reshape(-1)[hit]
        positions.written[0, at[hit]] = positions.known[0, at[hit]] = True

    # Formulas.

    def _value(self, formula: Formula, scope: Scope) -> Array:
        if isinstance(formula, Load):
            return self._load(formula, scope)
        if isinstance(formula, Apply):
            return self._apply(formula, scope)
        if isinstance(formula, Number):
            if formula.value is None:
                return self.field.lowest(formula.dtype)
            return self.field.constant(formula.value, formula.dtype)
        if isinstance(formula, Counter):
            return self._index(formula.index, scope)
        if isinstance(formula, Local):
            return self._local(formula, scope)
        if isinstance(formula, Choose):
            return self._chosen(formula, scope)
        value = self._value(formula.formula, scope)
        change = self.field.reinterpret if formula.bits else self.field.cast
        return np.asarray(change(np.ascontiguousarray(value), formula.dtype)).reshape(value.shape)

    def _local(self, local: Local, scope: Scope) -> Array:
        if local.name not in scope.locals:
            raise OutOfBounds(f"{local} is read before it is made")
        value, _, missing = scope.locals[local.name]
        self.missing = either(self.missing, missing)
        return value

    def _chosen(self, formula: Choose, scope: Scope) -> Array:
        held = self._holds(formula.guards, scope)
        if held.all():
            return self._value(formula.then, scope)
        otherwise = self._value(formula.otherwise, masked(scope, ~held))
        if not held.any():
            return otherwise
        return np.asarray(np.where(held, self._value(formula.then, masked(scope, held)), otherwise))

    def _apply(self, formula: Apply, scope: Scope) -> Array:
        primitive = formula.primitive
        if primitive in PARTS:  # the first part represents the whole number
            value = self._value(formula.operands[0], scope)
            return value if primitive is PARTS[0] else np.zeros((), value.dtype)
        if isinstance(primitive, Instruction):
            return self._value(expanded(formula), scope)
        return self.numbers.applied(primitive, [self._value(operand, scope) for operand in formula.operands])
