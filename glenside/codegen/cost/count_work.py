"""Counts the work of nests: issued instructions, and bytes from each level of memory.

Instructions are counted as emitted: a load that does not depend on an unrolled loop is hoisted to a register. The cost
of a step is its bottleneck: products, loads and stores, or the latency of an accumulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod

from glenside.codegen.cost.cache_traffic import Cache, Reach, last_cache, second_caches, traffic
from glenside.codegen.loop_ir.affine_analysis import coefficient, loads_in, repeats
from glenside.codegen.loop_ir.bf16_split_matmul import cycles, product_of
from glenside.codegen.loop_ir.intrinsics import DOT_2, MAX_INTERLEAVE
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Choose,
    Convert,
    Counter,
    For,
    Formula,
    Let,
    Load,
    Loops,
    Nest,
    Prefetch,
    Role,
    Sort,
    Statement,
    Store,
    Way,
    When,
    is_parallel,
)
from glenside.codegen.loop_ir.structural_hash import Like
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.processor.model import Machine
from glenside.codegen.processor.work_record import Work, sum_of
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Atom, Axis, Index

_SLOW = frozenset({"divide", "sqrt", "mod", "rem"})
_FUNCTIONS = frozenset("exp log tanh erf sigmoid sin cos tan asin acos atan sinh cosh asinh acosh atanh pow".split())


def predicted_nanoseconds(loops: Loops, machine: Machine, threads: int = 1) -> list[float]:
    """Returns the predicted nanoseconds of each nest on `threads` threads, by the machine's unit costs."""
    threads = threads if threads in dict(machine.shared) else 1  # else the costs of one thread, the only ones measured
    prices = [machine.prices(threads if is_shared(nest) else 1) for nest in loops.nests]
    return [work.priced(own) for work, own in zip(works(loops, machine, threads), prices, strict=True)]


def is_shared(nest: Nest) -> bool:
    """True if a nest has a parallel loop."""
    return any(map(is_parallel, nest.body))


def predicted_time_alone(nests: Sequence[Nest], machine: Machine) -> float:
    """Returns the predicted nanoseconds of consecutive nests with cold caches: machine threads x slowest thread."""
    caches = second_caches(machine)
    works = (_work(nest, _counted(Like.of(nest.body), machine), caches, machine.threads) for nest in nests)
    return sum(work.priced(machine.nanoseconds) for work in works)


@dataclass(frozen=True)
class EitherWay:
    """Predicted nanoseconds of a nest, serial (`alone`) and parallel (`shared`), and bytes touched of each buffer."""

    alone: float
    shared: float
    touched: Mapping[Buffer, float]


def either_way(nest: Nest, machine: Machine, threads: int) -> EitherWay:
    """Predicts a nest's time on one thread and on `threads` threads, if it reads its whole footprint from beyond L2."""
    counted = _counted(Like.of(nest.body), machine)
    bytes_of = {"far": 0.0, "weights": 0.0}
    for buffer, n in counted.reach.footprint.items():
        bytes_of["weights" if buffer.role is Role.CONSTANT else "far"] += n
    moved = Work(near=counted.reach.near, **bytes_of)
    alone, shared = (_issues(nest, counted, many).plus(moved).priced(machine.nanoseconds) for many in (1, threads))
    return EitherWay(alone, shared / threads, counted.reach.footprint)


@dataclass(frozen=True)
class _Counted:
    """The work that each statement of a nest issues, and the bytes that the nest reads, whatever ran before it."""

    issued: tuple[Work, ...]
    reach: Reach


def _counted(own: Like, machine: Machine) -> _Counted:
    """Returns the counts of a nest, memoized by structure: a search lowers a program again for each layer variant."""
    known, like = _known(own, machine)
    return known if like.buffers == own.buffers else replace(known, reach=known.reach.over(like.names(own)))


@lru_cache(maxsize=2048)
def _known(like: Like, machine: Machine) -> tuple[_Counted, Like]:
    """Returns the cached counts of a structurally equal nest, and that nest."""
    issued = tuple(_issued([statement], machine) for statement in like.body)
    return _Counted(issued, Reach.of(like.body, machine)), like


def _work(nest: Nest, counted: _Counted, caches: Sequence[Cache], threads: int = 1) -> Work:
    issued = _issues(nest, counted, threads)
    moved = traffic(counted.reach, nest.buffer, caches)
    if issued.matrices:
        moved = replace(moved, near=0)  # L2 is fast enough for a matrix unit
    return issued.plus(moved).plus(Work(nests=1))


def _issues(nest: Nest, counted: _Counted, threads: int) -> Work:
    """Returns the work that a nest issues, summed over threads as if each did as much as the slowest."""
    many = threads if is_shared(nest) else 1
    shares = [_share(statement, many) for statement in nest.body]
    return sum_of(zip(counted.issued, shares, strict=True))


def _share(statement: Statement, threads: int) -> float:
    """Returns threads x the largest share of a thread / total, the load-imbalance factor of a statement.

    Of 7 steps on 2 threads, one thread has 4, so 8 / 7. A serial statement counts `threads` times: the others wait.
    """
    if not is_parallel(statement):
        return threads
    steps = max(1, int(statement.axis.size))
    return -(-steps // threads) * threads / steps


def works(loops: Loops, machine: Machine, threads: int = 1) -> list[Work]:
    """Returns the work of each nest of a program that runs repeatedly, with the caches as the last run left them.

    With several threads, the work is summed as if each thread did as much as the slowest.
    """
    counted = [_counted(Like.of(nest.body), machine) for nest in loops.nests]
    stored = [(nest.buffer, own.reach) for nest, own in zip(loops.nests, counted, strict=True)]
    plan = arena(loops)
    second = tuple(cache.warm(stored) for cache in second_caches(machine, plan.places))
    found = [_work(nest, own, second, threads) for nest, own in zip(loops.nests, counted, strict=True)]
    times = [1 if nest.steps is None else nest.steps.size for nest in loops.nests]
    found = [work if many == 1 else Work().plus(work, many) for work, many in zip(found, times, strict=True)]
    packed = {packing.source for packing in loops.packings}
    if not machine.l3 or sum(b.bytes for b in loops.buffers if b not in packed) <= machine.l3 // 2:
        return found
    last, found_there = last_cache(machine, plan.places).warm(stored), list[Work]()
    for work, (buffer, reach) in zip(found, stored, strict=True):
        far = last.touch(buffer, reach.footprint).work()
        found_there.append(work if work.matrices else work.plus(far))  # AMX tiles prefetch the next rows
    return found_there


def _issued(body: Sequence[Statement], machine: Machine) -> Work:
    """Returns the work of one execution of statements."""
    step = _Step(machine)
    for statement in body:
        step.add(statement, _Written())
    cycles = max(
        step.operations / machine.products,
        (step.loads + step.stores) / machine.loads,
        step.stores,
        step.waiting * machine.latency,
    )
    return step.found.plus(Work(cycles=cycles, stores=step.stored))


@dataclass(frozen=True)
class _Written:
    """The unrolled loops around a statement, and the vector loop whose steps are lanes."""

    unrolled: tuple[Axis, ...] = ()
    lane: Axis | None = None

    def times(self, axes: Iterable[Axis]) -> float:
        """Returns how often a value that depends on `axes` is computed."""
        own = {*axes}
        return prod(axis.size for axis in self.unrolled if axis in own)

    @property
    def every(self) -> float:
        return prod(axis.size for axis in self.unrolled)


@dataclass
class _Step:
    """The counts of one step of a loop, and the work of the loops in it.

    waiting  length of the longest chain of dependent accumulations
    stores   store instructions
    stored   vectors stored; a scalar, or a shorter vector, counts as a fraction of a vector
    """

    machine: Machine
    operations: float = 0
    loads: float = 0
    stores: float = 0
    stored: float = 0
    waiting: float = 0
    found: Work = field(default_factory=Work)

    def add(self, statement: Statement, at: _Written) -> None:
        if isinstance(statement, For | When):
            self._block(statement, at)
        elif isinstance(statement, Store):
            self._store(statement, at)
        elif isinstance(statement, Let):
            self._formula(statement.formula, at)
            if statement.known:
                self.waiting += at.every
        elif isinstance(statement, Prefetch):
            self.loads += 1
        elif isinstance(statement, Sort):
            self._also(Work(scattered=4 * statement.count * statement.count.bit_length()))

    def _also(self, work: Work, times: float = 1) -> None:
        self.found = self.found.plus(work, times)

    def _block(self, statement: For | When, at: _Written) -> None:
        if isinstance(statement, For):
            if statement.way is Way.MATRIX:
                product = product_of(statement)
                taken = cycles(self.machine, product.rows, product.parts, product.steps)
                return self._also(Work(matrices=taken), at.every)
            if statement.way in (Way.LOOP, Way.PARALLEL):
                each = _issued(statement.body, self.machine).plus(Work(steps=1))
                lanes = self._lanes(statement)
                each = replace(each, stores=each.stores * lanes)  # scalars were counted; vectors store the same bytes
                self._also(each, at.every * statement.axis.size / lanes)
                return
            vector = statement.way is Way.VECTOR
            at = replace(at, lane=statement.axis) if vector else replace(at, unrolled=(*at.unrolled, statement.axis))
            if (times := repeats(statement)) > 1:
                return self._repeated(statement.body[0], times, at)
        for inner in statement.body:
            self.add(inner, at)

    def _lanes(self, loop: For) -> int:
        """Returns the lanes with which a compiler auto-vectorizes a loop; 1 unless it is contiguous stores only."""
        stores = [inner for inner in loop.body if isinstance(inner, Store)]
        if not stores or len(stores) != len(loop.body) or not all(_is_run(store, loop.axis) for store in stores):
            return 1
        return max(1, 8 * self.machine.vector // max(RECORDS[store.buffer.dtype].bits for store in stores) // 2)

    def _store(self, store: Store, at: _Written) -> None:
        self._formula(store.formula, at)
        times = at.times(_axes(store.place))
        if store.buffer.role is not Role.REGISTER:
            made = self._vectors(store, times, at)
            self.stores += made
            lanes = at.lane.size if at.lane is not None and coefficient(store.place, at.lane) else 1
            self.stored += made * min(1.0, lanes * RECORDS[store.buffer.dtype].bits / (8 * self.machine.vector))
        elif any(load.buffer is store.buffer for load in loads_in(store.formula)):
            self.waiting = max(self.waiting, at.every / max(times, 1))

    def _repeated(self, store: Statement, times: int, at: _Written) -> None:
        """Counts a store of each lane of a vector in `times` consecutive elements: as many shuffles and vectors."""
        assert isinstance(store, Store)
        assert at.lane is not None
        self._formula(store.formula, at)
        parts = RECORDS[store.buffer.dtype].bits * at.lane.size / (8 * self.machine.vector)
        made = times * at.times(_axes(store.place)) * max(1.0, parts)
        self.operations += made
        self.stores += made
        self.stored += made * min(1.0, parts)

    def _vectors(self, access: Load | Store, times: float, at: _Written) -> float:
        """Returns the vectors of an access that is executed `times` times; counts scattered elements."""
        lane = at.lane
        step = 1 if lane is None else coefficient(access.place, lane)
        if isinstance(access, Store) and lane is not None and 1 < step <= MAX_INTERLEAVE:
            self.operations += times * step
            return times * step
        if access.picked or step not in (0, 1) or any(not isinstance(atom, Axis) for atom, _ in access.place.terms):
            self._also(Work(scattered=times * (lane.size if lane is not None and step else 1)))
        if lane is None or not step:
            return times
        return times * max(1.0, RECORDS[access.buffer.dtype].bits * lane.size / (8 * self.machine.vector))

    def _formula(self, formula: Formula, at: _Written) -> frozenset[Axis]:
        """Counts the work of a formula; returns the axes on which it depends."""
        if isinstance(formula, Load):
            axes = _axes(formula.place)
            if formula.buffer.role is not Role.REGISTER:
                self.loads += self._vectors(formula, at.times(axes), at)
            return axes
        if isinstance(formula, Counter):
            return _axes(formula.index)
        axes = frozenset[Axis]().union(*(self._formula(operand, at) for operand in _operands(formula)))
        if isinstance(formula, Choose):
            axes = axes.union(*(_axes(guard.index) for guard in formula.guards))
        self._applied(formula, at.times(axes))
        return axes

    def _applied(self, formula: Formula, times: float) -> None:
        if isinstance(formula, Convert):
            self.operations += times if formula.dtype != formula.formula.dtype else 0
        elif isinstance(formula, Choose):
            self.operations += 2 * times
        elif isinstance(formula, Apply):
            name = formula.primitive.name
            if formula.primitive is DOT_2:
                self.operations += times * self.machine.products / (self.machine.pairs or self.machine.products)
            elif name in _SLOW:
                self._also(Work(divisions=times))
            elif name in _FUNCTIONS:
                self._also(Work(functions=times))
            elif name not in ("add", "subtract") or not any(map(_is_product, formula.operands)):
                self.operations += times  # else fused with the product


def _is_run(store: Store, axis: Axis) -> bool:
    """True if a store is contiguous along an axis, and each load contiguous or constant."""
    accesses: list[Load | Store] = [store, *loads_in(store.formula)]
    return coefficient(store.place, axis) == 1 and not any(
        access.picked or coefficient(access.place, axis) not in (0, 1) for access in accesses
    )


def _operands(formula: Formula) -> tuple[Formula, ...]:
    if isinstance(formula, Apply):
        return formula.operands
    if isinstance(formula, Choose):
        return formula.then, formula.otherwise
    return (formula.formula,) if isinstance(formula, Convert) else ()


def _is_product(formula: Formula) -> bool:
    return isinstance(formula, Apply) and formula.primitive.name == "multiply"


def _axes(index: Index) -> frozenset[Axis]:
    return frozenset(_of_atoms(atom for atom, _ in index.terms))


def _of_atoms(atoms: Iterable[Atom]) -> Iterator[Axis]:
    for atom in atoms:
        if isinstance(atom, Axis):
            yield atom
        else:
            yield from _of_atoms(inner for inner, _ in atom.expression.terms)
