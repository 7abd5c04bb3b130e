"""How much memory a program takes: the interpreter's run, step by step, without computing.

Every value is modelled by a stand-in, a numpy array that nothing reads or writes, so that transposes, slices, windows
and broadcasts are views of it as they are of the real one, a reshape is a view or a copy as numpy decides, and a buffer
dies with the last view of it. Counted are the results of operators and what they need on the way; not what is there
before and after: inputs, constants, and what is computed from constants alone, which is done beforehand.
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
    """The most bytes held at a time, and the term that was computed then; None where nothing is."""

    bytes: int
    at: Term | None


class ResourceUse(NamedTuple):
    """What a program takes: operations (a multiplication that is added is one), bytes read and written, the peak."""

    operations: int
    moved: int
    peak: Peak


def bookkeeping(program: Program) -> int:
    """Bytes that the interpreter's own tables take, and the heads of its arrays: about, and rather more than less."""
    return (24 << 10) + 64 * len(program.info.order)


def taken(*roots: Term) -> ResourceUse:
    """What `evaluate(roots, ..)` takes, as `peak_bytes` counts. Raises BadInput for a black box."""
    return Simulation(roots).finish()


def peak_bytes(*roots: Term) -> Peak:
    """What `evaluate(roots, ..)` allocates at most at a time, in bytes: temporaries and results.

    Terms over constants alone are taken as given, in row-major order: `glenside.fold` computes them. Raises BadInput
    for a black box.
    """
    return taken(*roots).peak


def over_time(program: Program) -> list[tuple[str, str, int]]:
    """(what it computes, the layer whose result that is or "", the most bytes held meanwhile) for each step of
    `evaluate` that takes memory or is a layer. Raises BadInput for a black box.
    """
    layers = {product: name for name, product in program.layers.items()}
    run, found, before = Simulation((program.term,)), list[tuple[str, str, int]](), -1
    for term in run.steps():
        if term in layers or run.memory.most != before:
            found.append((name_of_step(term), layers.get(term, ""), run.memory.most))
        before = run.memory.live
    return found


def live_through(program: Program) -> dict[str, int]:
    """layer -> bytes that other values hold while its product, or movement under it, is computed.

    What a layer may take of a budget is what these leave: its operands are counted here, its result is not.
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
    """An array whose elements are nothing; a reshape that needs a copy allocates one."""

    memory: Memory
    counted: int
    """Bytes, of an array that holds a buffer of its own."""

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
    """A product whose pairs are allocated when something needs them."""

    @cached_property
    def array(self) -> Array:
        a, _ = self.parts()
        first = a.ndim - self.item
        return _memory_of(self.a).result((*a.shape[:first], 2, *a.shape[first:]), a.dtype)


def buffer_of(array: Array) -> Array:
    """The array that holds the buffer of a view."""
    while array.base is not None and not isinstance(array.base, mmap.mmap):
        array = array.base
    return array


def held_buffers(value: Value) -> Iterator[StandIn]:
    """The buffers, counted ones only, that a value keeps alive."""
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
    """Stand-ins, and how many bytes those hold that are alive."""

    def __init__(self) -> None:
        self.live = 0
        self.owned: Counter[Term | None] = Counter()
        """Bytes alive by the term for which they were allocated."""
        self.term: Term | None = None
        self.most = 0
        """The most bytes held since `step` began."""
        self._space = mmap.mmap(-1, mmap.PAGESIZE)

    def step(self, term: Term | None) -> None:
        """What is allocated from now on belongs to that term."""
        self.term, self.most = term, self.live

    def given(self, dims: Sequence[int], dtype: DTypeLike) -> StandIn:
        """An array in row-major order that is not counted."""
        needs = prod(dims) * np.dtype(dtype).itemsize
        if needs > len(self._space):
            self._space = mmap.mmap(-1, needs)  # nothing touches it, so it takes addresses and no memory
        array = StandIn(dims, dtype, buffer=self._space)
        array.memory = self
        return array

    def result(self, dims: Sequence[int], dtype: DTypeLike, scratch: int = 0) -> StandIn:
        """A new array in row-major order, with scratch bytes while it is computed."""
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
        """The stand-in for a term's value, from its arguments as `evaluate` takes them; in `out`. Raises BadInput."""
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
    """Bytes that one term reads and writes: what it computes with, what it gives, and `copied` by a reshape, twice."""
    if term.operator.moved is not None:
        return int(term.operator.moved(*arguments))
    if not isinstance(result, np.ndarray) or term.operator.is_shared(*arguments):
        return 2 * copied
    values = [a.value if isinstance(a, Operand) else a for a in arguments]
    read = [x for v in values for x in ((v.a, v.b) if isinstance(v, Product) else (v,)) if isinstance(x, np.ndarray)]
    return int(result.nbytes + sum(x.nbytes for x in read))


def operations(term: Term) -> int:
    """Additions, multiplications and the like of one term; a multiplication that is added is one."""
    count = term.operator.operations
    return 0 if count is None else count(*weave(term.operator, [c.type for c in term.children], term.attributes))


def _scratch(term: Term, arguments: Sequence[Any], placed: bool) -> int:
    """What the evaluation needs beside operands and result; a product that it needs in memory is formed."""
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
    """What numpy copies operands into on the way to an elementwise function."""
    if category not in (Category.FOLD, Category.POINTWISE):
        return 0
    arrays = operand.parts() if category is Category.FOLD else [operand.array]
    arrays = arrays if len(arrays) < 3 else []  # blocks of several are read one row at a time
    return sum(min(x.size, BUFFER) * x.itemsize for x in arrays if not x.flags.c_contiguous)


class Simulation(Run):
    """A run in which nothing is computed."""

    def __init__(self, roots: Sequence[Term]) -> None:
        self.memory = Memory()
        self.roots = roots
        constants = [term for term, constant in constants_under(*roots).items() if constant]
        given = {  # what is computed beforehand: everything of constants alone but what has no array
            term: prepared(term, self.memory)
            for term in constants
            if isinstance(term.type, AccessType) and term.operator.name != "access-product"
        }
        super().__init__(roots, {}, _NATIVE, given, keep_roots=True)
        self.leaves: dict[str, StandIn] = {}
        self.operations = self.moved = 0

    def steps(self) -> Iterator[Term]:
        """Each term that is evaluated, after its step."""
        for term in self.order:
            self.memory.step(term)
            self.step(term)
            yield term

    def finish(self) -> ResourceUse:
        """What it takes, after its last step."""
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
        if gathers(term):  # what is in its place is neither read nor written
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
    """The stand-in for what is computed beforehand; one number everywhere takes no memory for each element."""
    type, plain = term.access, term
    while plain.operator.name == "access":
        plain = plain.children[0]
    if plain.operator.name == "full":
        return np.broadcast_to(memory.given((), type.dtype), type.dims)
    return memory.given(type.dims, type.dtype)
