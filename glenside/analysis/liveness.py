"""Computes how much memory a program needs, by the steps of the interpreter without their computations.

Each value is modeled by a stand-in, a numpy array that is never read or written. Transposes, slices, windows and
broadcasts are views of it as of the real array; numpy decides whether a reshape is a view or a copy; a buffer is freed
with its last view. The result counts results of operators and their temporaries, but not what exists before and after:
inputs, constants, and values computed from constants alone, which are folded.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike

from glenside.analysis.layers import layer_terms
from glenside.ir.blockwise import BUFFER
from glenside.ir.elementwise import block_scratch
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array, Operand, Product, Value
from glenside.ir.operator import Category
from glenside.ir.operators import compute_of
from glenside.ir.operators.compute import name_of as name_of_step
from glenside.ir.operators.opaque import name_of
from glenside.ir.program import Program
from glenside.ir.term import Term, constants_under, weave
from glenside.ir.types import AccessType, Tensor
from glenside.semantics import Native
from glenside.semantics.interpreter import Run
from glenside.semantics.placement import gathers


class Peak(NamedTuple):
    """The largest number of bytes held at one time, and the term that was computed then; None if nothing is held."""

    bytes: int
    at: Term | None


class ResourceUse(NamedTuple):
    """The resources of a program: operations (a multiply-add is one), bytes read and written, and peak memory."""

    operations: int
    moved: int
    peak: Peak


def bookkeeping(program: Program) -> int:
    """Estimates the bytes of the interpreter's own tables and of array headers, rather low than high."""
    return (24 << 10) + 64 * len(program.info.order)


def taken(*roots: Term) -> ResourceUse:
    """Returns the resources of `evaluate(roots, ..)`, counted like `peak_bytes`. Raises BadInput for a black box."""
    return Simulation(roots).finish()


def peak_bytes(*roots: Term) -> Peak:
    """Returns the peak of bytes that `evaluate(roots, ..)` allocates for temporaries and results.

    Terms over constants alone count as given, in row-major order, since `glenside.fold` computes them. Raises BadInput
    for a black box.
    """
    return taken(*roots).peak


def over_time(program: Program) -> list[tuple[str, str, int]]:
    """Lists each step of `evaluate` that needs memory or is a layer, as (operation, layer or "", peak bytes). Raises
    BadInput for a black box.
    """
    layers = {product: name for name, product in program.layers.items()}
    run, found, before = Simulation((program.term,)), list[tuple[str, str, int]](), -1
    for term in run.steps():
        if term in layers or run.memory.most != before:
            found.append((name_of_step(term), layers.get(term, ""), run.memory.most))
        before = run.memory.live
    return found


def live_through(program: Program) -> dict[str, int]:
    """Maps each layer to the bytes that other values hold while its product, or movement below it, is computed.

    A layer may use the rest of a memory budget: its operands are counted here, its result is not.
    """
    cones = {name: layer_terms(product) for name, product in program.layers.items()}
    users: dict[Term, list[str]] = {}
    for name, cone in cones.items():
        for term in cone:
            users.setdefault(term, []).append(name)
    held = dict.fromkeys(program.layers, 0)
    run = Simulation((program.term,))
    for term in run.order:
        for name in users.get(term, ()):  # before the step: its operands are still there while it is computed
            own = sum(run.memory.owned[t] for t in cones[name])
            held[name] = max(held[name], run.memory.live - own)
        run.memory.step(term)
        run.step(term)
    return held


class StandIn(np.ndarray[Any, Any]):
    """An array without data; a reshape that needs a copy allocates one."""

    memory: Memory
    counted: int
    """Returns the bytes of an array that has its own buffer."""

    def __array_finalize__(self, obj: Any) -> None:
        self.counted = 0
        if isinstance(obj, StandIn):
            self.memory = obj.memory

    def reshape(self, *shape: Any, **_: Any) -> Any:
        dims = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        try:
            return super().reshape(dims, copy=False)
        except ValueError:
            return self.memory.result(dims, self.dtype)


class _Pairs(Product):
    """A product whose pairs are only allocated if needed."""

    @cached_property
    def array(self) -> Array:
        a, _ = self.parts()
        first = a.ndim - self.item
        return _memory_of(self.a).result((*a.shape[:first], 2, *a.shape[first:]), a.dtype)


def buffer_of(array: Array) -> Array:
    """Returns the array that owns the buffer of a view."""
    while array.base is not None and not isinstance(array.base, mmap.mmap):
        array = array.base
    return array


def held_buffers(value: Value) -> Iterator[StandIn]:
    """Yields the counted buffers that a value keeps alive."""
    if isinstance(value, Product):
        yield from held_buffers(value.a)
        yield from held_buffers(value.b)
        if "array" in vars(value):
            yield from held_buffers(value.array)
    elif isinstance(value, tuple):
        for item in value:
            yield from held_buffers(item)
    else:
        buffer = buffer_of(value)
        if isinstance(buffer, StandIn) and buffer.counted:
            yield buffer


def _memory_of(array: Array) -> Memory:
    buffer = buffer_of(array)
    assert isinstance(buffer, StandIn), "every value of a simulation is a stand-in"
    return buffer.memory


class Memory:
    """Creates stand-ins, and counts the bytes of those that are alive."""

    def __init__(self) -> None:
        self.live = 0
        self.owned: Counter[Term | None] = Counter()
        """Returns the bytes alive, by the term for which they were allocated."""
        self.term: Term | None = None
        self.most = 0
        """Returns the peak of bytes since `step` began."""
        self._space = mmap.mmap(-1, mmap.PAGESIZE)

    def step(self, term: Term | None) -> None:
        """Attributes all later allocations to that term."""
        self.term, self.most = term, self.live

    def given(self, dims: Sequence[int], dtype: DTypeLike) -> StandIn:
        """Returns an array in row-major order that is not counted."""
        needs = prod(dims) * np.dtype(dtype).itemsize
        if needs > len(self._space):
            self._space = mmap.mmap(-1, needs)  # nothing touches it, so it takes addresses and no memory
        array = StandIn(dims, dtype, buffer=self._space)
        array.memory = self
        return array

    def result(self, dims: Sequence[int], dtype: DTypeLike, scratch: int = 0) -> StandIn:
        """Returns a new array in row-major order, and counts scratch bytes while it is computed."""
        array = self.given(dims, dtype)
        array.counted = array.nbytes
        self.live += array.nbytes
        self.owned[self.term] += array.nbytes
        self.most = max(self.most, self.live + scratch)
        finalize(array, self._free, array.nbytes, self.term).atexit = False
        return array

    def _free(self, count: int, term: Term | None) -> None:
        self.live -= count
        self.owned[term] -= count

    def apply(self, term: Term, arguments: Sequence[Any], out: Array | None = None) -> Value:
        """Returns the stand-in for a term's value, given its arguments as in `evaluate`, in `out`. Raises BadInput."""
        operator = term.operator
        if operator.opaque:
            raise BadInput(f"memory requires operators that can be run, got the black box {name_of(str(arguments[0]))}")
        if operator.is_shared(*arguments):
            return self._kept(operator.evaluate(_NATIVE, *arguments))
        type, scratch = term.access, _scratch(term, arguments, out is not None)
        if out is None:
            return self.result(type.dims, type.dtype, scratch)
        self.most = max(self.most, self.live + scratch)
        return out

    def _kept(self, value: Value) -> Value:
        if isinstance(value, Product):
            return _Pairs(value.a, value.b, value.shared, value.item)
        if isinstance(value, tuple) or isinstance(value, StandIn):
            return value
        array = value.view(StandIn)
        array.memory = self
        return array


_NATIVE = Native()


def bytes_moved(term: Term, arguments: Sequence[Any], result: Value, copied: int) -> int:
    """Returns the bytes that one term reads and writes: its operands, its result, and twice those that a reshape
    `copied`.
    """
    if term.operator.moved is not None:
        return int(term.operator.moved(*arguments))
    if not isinstance(result, np.ndarray) or term.operator.is_shared(*arguments):
        return 2 * copied
    values = [a.value if isinstance(a, Operand) else a for a in arguments]
    read = [x for v in values for x in ((v.a, v.b) if isinstance(v, Product) else (v,)) if isinstance(x, np.ndarray)]
    return int(result.nbytes + sum(x.nbytes for x in read))


def operations(term: Term) -> int:
    """Counts the additions, multiplications and other operations of one term; a multiply-add is one."""
    count = term.operator.operations
    return 0 if count is None else count(*weave(term.operator, [c.type for c in term.children], term.attributes))


def _scratch(term: Term, arguments: Sequence[Any], placed: bool) -> int:
    """Returns the temporaries of an evaluation besides operands and result, including products that must be in
    memory.
    """
    record, parameters = compute_of(term) if term.operator.name == "compute" else (None, ())
    if record is None or record.category not in (Category.FOLD, Category.CONTRACTION):
        for argument in arguments:
            if isinstance(argument, Operand):
                _ = argument.array
    if record is None:
        return term.operator.scratch(*arguments) if term.operator.scratch is not None else 0
    operand = arguments[1]
    buffers = _buffers(operand, record.category)
    if placed:
        return block_scratch(record, operand, *parameters) + buffers
    return (record.scratch(operand, *parameters) if record.scratch is not None else 0) + buffers


def _buffers(operand: Operand, category: Category) -> int:
    """Returns the bytes of copies that numpy makes of operands before an elementwise function."""
    if category not in (Category.FOLD, Category.POINTWISE):
        return 0
    arrays = operand.parts() if category is Category.FOLD else [operand.array]
    arrays = arrays if len(arrays) < 3 else []  # blocks of several are read one row at a time
    return sum(min(x.size, BUFFER) * x.itemsize for x in arrays if not x.flags.c_contiguous)


class Simulation(Run):
    """A run without computations."""

    def __init__(self, roots: Sequence[Term]) -> None:
        self.memory = Memory()
        self.roots = roots
        constants = [term for term, constant in constants_under(*roots).items() if constant]
        given = {  # folded: everything that depends on constants alone, except terms without arrays
            term: prepared(term, self.memory)
            for term in constants
            if isinstance(term.type, AccessType) and term.operator.name != "access-product"
        }
        super().__init__(roots, {}, _NATIVE, given, keep_roots=True)
        self.leaves: dict[str, StandIn] = {}
        self.operations = self.moved = 0

    def steps(self) -> Iterator[Term]:
        """Yields each term after it is evaluated."""
        for term in self.order:
            self.memory.step(term)
            self.step(term)
            yield term

    def finish(self) -> ResourceUse:
        """Returns the resources, after the last step."""
        peak = Peak(0, None)
        for term in self.steps():
            if self.memory.most > peak.bytes:
                peak = Peak(self.memory.most, term)
        return ResourceUse(self.operations, self.moved, peak)

    def apply(self, term: Term, arguments: Sequence[Any], out: Array | None) -> Value:
        before = self.memory.live
        value = self.memory.apply(term, arguments, out)
        self.operations += operations(term)
        self.moved += bytes_moved(term, arguments, value, self.memory.live - before)
        if gathers(term):  # this value is neither read nor written
            in_place = [c.access for c in term.children if c in self.placement and self.placement[c][0] is term]
            self.moved -= 2 * sum(a.size * np.dtype(a.dtype).itemsize for a in in_place)
        return value

    def allocate(self, term: Term) -> Array:
        at, self.memory.term = self.memory.term, term  # it is the result of that term, whoever needs it first
        array = self.memory.result(term.access.dims, term.access.dtype)
        self.memory.term = at
        return array

    def tensor(self, tensor: Tensor) -> Array:
        if tensor.name not in self.leaves:
            self.leaves[tensor.name] = self.memory.given(tensor.dims, tensor.dtype)
        return self.leaves[tensor.name]


def prepared(term: Term, memory: Memory) -> Array:
    """Returns the stand-in for a folded value; a constant fill takes no memory per element."""
    type, plain = term.access, term
    while plain.operator.name == "access":
        plain = plain.children[0]
    if plain.operator.name == "full":
        return np.broadcast_to(memory.given((), type.dtype), type.dims)
    return memory.given(type.dims, type.dtype)
