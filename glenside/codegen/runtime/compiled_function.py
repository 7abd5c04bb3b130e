"""Compiles programs with the system's C compiler to functions on numpy arrays."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import inf, prod
from time import perf_counter
from typing import Any

import numpy as np

from glenside.builder.dropout import SEED
from glenside.codegen.cost.count_work import is_shared, predicted_nanoseconds
from glenside.codegen.emit_c.printer import source
from glenside.codegen.loop_ir.ir import Buffer, Loops, Role, required
from glenside.codegen.loop_ir.pass_observer import observe
from glenside.codegen.loop_ir.results_in_place import in_place
from glenside.codegen.lowering.constant_preparation import prepared
from glenside.codegen.lowering.quantized_weights import with_quantized_weights
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.passes.rematerialization.plan import Schedule, scheduled_within
from glenside.codegen.passes.rematerialization.steps import rescheduled, steps_of
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import PLAIN, Machine, is_here
from glenside.codegen.runtime.arguments import (
    Frame,
    Kind,
    address_of,
    all_arrays,
    given_array,
    is_plain,
    kind_of,
    nested,
    pointers,
    require_fits,
    require_own,
    stored_once,
)
from glenside.codegen.runtime.compile_and_load import loaded
from glenside.codegen.runtime.compile_report import CompileReport
from glenside.codegen.runtime.thread_pool import Pool
from glenside.codegen.scheduling.constant_packing import Memory, packed_constants
from glenside.codegen.translation_validation.validate import Validation
from glenside.codegen.verify.verifier import verify
from glenside.gradients.training import state_of
from glenside.ir.bounds import whole
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput, OutOfBounds
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.stopwatch import stage, watched
from glenside.ir.threads import processors
from glenside.ir.torch_tensors import as_tensors, is_tensor
from glenside.ir.types import TupleType

MOST_THREADS = 1024
_MIN_LARGE_PAGE_BYTES = 1 << 19
"""Bytes of results from which on they are stored in large pages."""
NO_MEMORY = "memory does not suffice for the arrays of this program"


class Lowered:
    """A program lowered to loops for a machine, and the values of its constants in the order in which loops read them.

    program   the program after constant folding
    most      memory budget in bytes, or None
    schedule  the rematerialization that meets the budget, if one is needed; or the given one
    without   names of passes to skip
    verified  False: `verify` is called later, before the loops run or are written to a file
    seconds   stage -> seconds (see `pipeline`)

    Raises BadInput: a black box, a constant without a value; Unverified: a mistake in lowering.
    """

    validation: Validation | None = None

    def __init__(
        self,
        program: Program,
        machine: Machine | None,
        most: float | None = None,
        schedule: Schedule | None = None,
        without: Collection[str] = (),
        *,
        verified: bool = True,
    ) -> None:
        self.machine, self.type = machine, program.term.type
        missing = [name for name in program.constants_declared if name not in program.constants]
        if missing:
            raise BadInput(f"to compile a program requires values of its constants, got none of {', '.join(missing)}")
        self.seconds: dict[str, float] = {}
        with watched(self.seconds):
            self._lower(program, most, schedule, without)
        if verified:
            self.verify()
        with watched(self.seconds), stage("emit-c"):
            self.written = source(self.loops)
            self.source = str(self.written)

    def verify(self) -> None:
        """Verifies the loops and the packed constants, once. Raises Unverified."""
        if self.validation is None:
            with watched(self.seconds), stage("verify"):
                self.validation = verify(self.loops, self.arena, self.program, self.constants)

    def in_memory(self) -> dict[Buffer, Array]:
        """Returns the packed constants, and verifies the loops and constants before."""
        self.verify()
        return self.constants

    def _lower(self, program: Program, most: float | None, schedule: Schedule | None, without: Collection[str]) -> None:
        with stage("prepare-constants"):
            if self.machine is not None:
                program = prepared(with_quantized_weights(program))
            self.program = program
        self.loops, self.schedule = lower(program, self.machine, without), schedule
        if schedule is not None:
            self.loops = rescheduled(steps_of(self.loops), schedule.order)
            observe("rematerialize", lambda: self.loops)
        with stage("pack-constants"):
            self.constants = self._packed(program)
        self.inputs = [b for b in self.loops.buffers if b.role is Role.INPUT]
        self.results = list(dict.fromkeys(self.loops.results))
        with stage("plan-memory"):
            self.arena = arena(self.loops)
        if most is not None and self.memory > most:
            room = int(most) - self.memory + self.arena.size
            with stage("rematerialize"):
                self.loops, self.schedule = scheduled_within(self.loops, room)
            observe("rematerialize", lambda: self.loops)
            with stage("plan-memory"):
                self.arena = arena(self.loops)

    def _packed(self, program: Program) -> dict[Buffer, Array]:
        """Returns the constants in the order in which the loops read them."""
        packed = {p.buffer for p in self.loops.packings}
        own = [b for b in self.loops.buffers if b.role is Role.CONSTANT and b not in packed]
        given = _Given(program.constants)
        return {b: given[b] for b in own} | packed_constants(self.loops.packings, given)

    @property
    def memory(self) -> int:
        """The bytes of temporaries and results, on one thread."""
        return self.arena.bytes_of(1) + sum(b.bytes for b in self.results)


@dataclass(frozen=True)
class _Given:
    """Values of constants by buffer; each is read when it is packed, so that not all are in memory at a time."""

    constants: Mapping[str, Array]

    def __getitem__(self, buffer: Buffer) -> Array:
        return given_array(buffer, self.constants[buffer.name])


def budget_words(memory: int, most: float) -> str:
    """Returns a sentence that says whether the memory of a compiled program is within a budget, both in bytes."""
    held = f"temporaries and results take {memory:,} bytes on one thread"
    if memory <= most:
        return f"{held}, within the budget of {most:,.0f}"
    return f"{held}, {memory - most:,.0f} above the budget of {most:,.0f}"


def keeping(
    programs: Sequence[Program], machine: Machine | None, most: float | None, without: Collection[str] = ()
) -> Lowered:
    """Returns the first of equivalent programs within a memory budget of `most` bytes, not yet verified.

    If none is, returns the one that rematerialization brings within the budget with the least work, else the smallest.
    """
    distinct = list({program.term: program for program in programs}.values())
    found = [Lowered(distinct[0], machine, without=without, verified=False)]
    if most is None or found[0].memory <= most:
        return found[0]
    for program in distinct[1:]:
        found.append(Lowered(program, machine, without=without, verified=False))
        if found[-1].memory <= most:
            return found[-1]
    found += [Lowered(program, machine, most, without=without, verified=False) for program in distinct]

    def rank(one: Lowered) -> tuple[float, float]:
        work = one.schedule.work if one.schedule is not None else inf
        return (0.0, work) if one.memory <= most else (1.0, one.memory)

    return min(found, key=rank)


class Compiled:
    """A program as a function: `f(x, ..)` in the order of the program's inputs, or by name.

    source  its C source
    loops   its loop nests
    arena   the memory of its temporaries: bytes, and their lower bound
    report  the report of its compilation; `found` is the report of the search, if there was one
    """

    def __init__(
        self, program: Program | Lowered, machine: Machine | None, found: object = None, budget: float | None = None
    ) -> None:
        if machine is not None and not is_here(machine):
            raise BadInput(f"this computer has no {machine.name}; C for it comes from `glenside compile`")
        self._lowered = program if isinstance(program, Lowered) else Lowered(program, machine, budget, verified=False)
        self.program, self.machine = self._lowered.program, machine
        self.loops, self.source, self.arena = self._lowered.loops, self._lowered.source, self._lowered.arena
        self.inputs = self._lowered.inputs
        begin = perf_counter()
        made = loaded(self._lowered.written, machine, self._lowered.verify)
        self.constants = self._lowered.in_memory()
        self.library = made.library
        self.report = CompileReport(
            self.program.name,
            machine.name if machine is not None else PLAIN,
            made.compiler,
            made.kept,
            perf_counter() - begin,
            len(self.loops.nests),
            len(self._lowered.written.nests),
            sum(array.nbytes for array in self.constants.values()),
            self.arena,
            sum(t.dims.product() * RECORDS[t.dtype].numpy.itemsize for t in state_of(self.program)),
            self._lowered.schedule,
            "" if budget is None else budget_words(self._lowered.memory, budget),
            self._lowered.validation,
            found,
            self.program.signature.remarks,
            self._lowered.seconds,
        )
        self._run: Any = self.library.run
        given = [b for b in self.loops.buffers if b.role in (Role.INPUT, Role.CONSTANT)]
        empty = np.empty(0)  # a placeholder for an input
        self._addresses: Any = pointers([self.constants.get(b, empty) for b in given])  # computed once: it is slow
        self._input_at = [i for i, b in enumerate(given) if b.role is Role.INPUT]
        self._kinds, self._results = list(map(kind_of, self.inputs)), list(map(kind_of, self._lowered.results))
        number = {b: i for i, b in enumerate(self._lowered.results)}
        self._stored = [number[b] for b in self.loops.buffers if b.role is Role.RESULT]
        self._returned = [number[b] for b in self.loops.results]
        self._read = Program(self.program.term).tensors
        self.library.open_pool.restype = ctypes.c_void_p
        self._shares = any(map(is_shared, self.loops.nests))
        self._is_single = not isinstance(self._lowered.type, TupleType)
        self._frames: list[Frame] = []
        self._pool_kept: Pool | None = None

    def __repr__(self) -> str:
        results = ", ".join(f"({' '.join(map(str, b.dims))}) {b.dtype}" for b in self.loops.results)
        inputs = ", ".join(self.program.inputs)
        return f"<{self.program.name} compiled for {self.report.machine}: {inputs} -> {results}>"

    def __call__(
        self,
        /,
        *arrays: Array | Mapping[str, Array],
        out: Array | Sequence[Array] | None = None,
        threads: int | None = None,
        **named: Array,
    ) -> Any:
        """Runs the program on arrays of the declared dims and dtypes; returns an array or a tuple.

        Positional arrays include inputs that the program does not read. By name, these may be left out, and so may the
        dropout-seed of a file with dropout at run time: its default is 0. Any name may be given in a dict,
        `f({"out": x})`; arrays of other libraries are converted by DLPack. If one is a tensor of PyTorch, so are the
        results, which share memory with arrays.

        out      arrays that take the results, in their order, instead of new ones
        threads  number of threads; default: number of processors

        Thread-safe. Raises BadInput.
        """
        plain = None if named else self._plain(arrays)
        found = self._called(arrays, named, out, threads, None) if plain is None else self._ran(plain, out, threads)
        if plain is None and out is None and any(map(is_tensor, all_arrays(arrays, named))):
            return as_tensors(found)
        return found

    def results(self) -> list[Array]:
        """Allocates arrays for `out=`, in the order of the results, to be reused for several calls.

        Each is aligned to a cache line; large results use large pages where the system has them, which saves TLB
        misses. Raises BadInput.
        """
        try:
            memory = Memory((buffer.bytes for buffer in self._lowered.results), _MIN_LARGE_PAGE_BYTES)
        except MemoryError as error:
            raise BadInput(NO_MEMORY) from error
        return [memory.array(prod(dims), dtype).reshape(dims) for dims, dtype in self._results]

    def least_sizes(self) -> dict[str, int]:
        """Returns no sizes: none is open."""
        return {}

    greatest_sizes = least_sizes

    def sizes_of(self, _: Mapping[str, Any]) -> dict[str, int]:
        """Returns no sizes: none is open."""
        return {}

    def input_kinds(self, _: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the inputs by name."""
        return {b.name: kind_of(b) for b in self.inputs}

    def result_kinds(self, _: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the results by name."""
        return {name: kind_of(b) for name, b in zip(self.program.result_names(), self.loops.results, strict=True)}

    def is_in_place(self, name: str, result: str) -> bool:
        """True if a result may be stored in the memory of an input."""
        own = dict(zip((b.name for b in self.inputs), self._in_place, strict=True))
        return own[name] == self._returned[self.program.result_names().index(result)]

    @cached_property
    def _in_place(self) -> Sequence[int | None]:
        """For each input the number of the result that may be stored in its memory."""
        found = {name: self._lowered.results.index(b) for name, b in in_place(self.loops).items()}
        return [found.get(b.name) for b in self.inputs]

    def run_into(self, arrays: Mapping[str, Any], results: Mapping[str, Array], threads: int | None) -> None:
        """Runs the program on arrays by name, and stores all results in arrays by name."""
        pairs = zip(self._returned, (results[name] for name in self.program.result_names()), strict=True)
        stored_once(pairs, lambda own: self._called((arrays,), {}, [own[n] for n in sorted(own)], threads, None))

    def predicted(self, threads: int = 1) -> list[float]:
        """Returns the predicted seconds of each nest on `threads` threads; [] for plain loops."""
        return (
            []
            if self.machine is None
            else [1e-9 * own for own in predicted_nanoseconds(self.loops, self.machine, threads)]
        )

    def drawn(self, seed: int = 0) -> list[Array]:
        """Returns random arrays for the inputs; integers and truths are 0 or 1, which index any axis of two or more."""
        found = []
        for place, buffer in enumerate(self.inputs):
            record, dims = RECORDS[buffer.dtype], tuple(buffer.dims)
            draw = np.random.default_rng(seed + place)
            values = draw.standard_normal(dims) if record.kind == "float" else draw.integers(0, 2, dims)
            found.append(values.astype(record.numpy))
        return found

    def profile(
        self, *arrays: Array | Mapping[str, Array], threads: int = 1, rounds: int = 10
    ) -> list[tuple[str, float]]:
        """Returns the nests in order, with their median seconds over `rounds`; on one thread in processor time."""
        seconds = np.median(self._seconds(arrays, threads, rounds), axis=0)
        return list(zip(self.loops.titles, seconds.tolist(), strict=True))

    def least_seconds(self, *arrays: Array | Mapping[str, Array], rounds: int = 10, threads: int = 1) -> Array:
        """Returns the minimum seconds of each nest over `rounds`, (nests); on one thread in processor time."""
        least: Array = self._seconds(arrays, threads, rounds).min(axis=0)
        return least

    def _seconds(self, arrays: tuple[Array | Mapping[str, Array], ...], threads: int, rounds: int) -> Array:
        """Returns the seconds of each nest in each round: (rounds)(nests)."""
        found = np.empty((rounds, len(self.loops.nests)))
        for row in found:
            seconds = (ctypes.c_double * row.size)()
            self._called(arrays, {}, None, threads, seconds)
            row[:] = seconds
        return found

    def _called(
        self,
        arrays: tuple[Array | Mapping[str, Array], ...],
        named: Mapping[str, Array],
        out: Array | Sequence[Array] | None,
        threads: int | None,
        seconds: Any,
    ) -> Any:
        try:
            given = self._given(arrays, named)
        except MemoryError as error:
            raise BadInput(NO_MEMORY) from error
        return self._ran(given, out, threads, seconds)

    def _ran(
        self,
        inputs: Sequence[Array],
        out: Array | Sequence[Array] | None,
        threads: int | None,
        seconds: Any = None,
    ) -> Any:
        try:
            results = [np.empty(*own) for own in self._results] if out is None else self._required(out)
            pool = self._pool(threads)
            try:
                frame = self._frame(1 if pool is None else pool.threads)
                given, stored = frame.given, frame.stored
                for number, array in zip(self._input_at, inputs, strict=True):
                    given[number] = address_of(array)
                for number, place in enumerate(self._stored):
                    stored[number] = address_of(results[place])
                if out is not None:
                    own = [(address_of(array), array.nbytes) for array in results]
                    read = [(given[n] or 0, array.nbytes) for n, array in zip(self._input_at, inputs, strict=True)]
                    require_own(own, read, self._in_place)
                status = self._run(given, stored, frame.address, pool and pool.address, seconds)
            finally:
                if pool is not None:
                    pool.lock.release()
        except MemoryError as error:
            raise BadInput(NO_MEMORY) from error
        self._frames.append(frame)
        if status:
            completed(self.loops, status)
        if self._is_single:
            return results[0]
        return nested(self._lowered.type, iter([results[number] for number in self._returned]))

    def _frame(self, threads: int) -> Frame:
        """Returns memory for temporaries and addresses that no other call uses, for at least some threads."""
        if self._frames:
            with suppress(IndexError):  # another call was faster
                found = self._frames.pop()
                if found.threads >= threads:
                    return found
        size = self.arena.bytes_of(threads)
        memory = Memory([size]).array(size, np.uint8)
        given = type(self._addresses).from_buffer_copy(self._addresses)
        stored = (ctypes.c_void_p * max(1, len(self._stored)))()
        return Frame(threads, memory, ctypes.c_void_p(address_of(memory)), given, stored)

    def _pool(self, threads: int | None) -> Pool | None:
        """Returns a pool of threads that no other call uses; None for one thread, or if no loop is parallel.

        One pool is kept, of the last number of threads; another one ends when the call that uses it returns.
        """
        if threads is None and not self._shares:
            return None
        if isinstance(threads, str):
            raise BadInput(f"threads is a whole number from 1 to {MOST_THREADS}, got the text {threads!r}")
        count = processors() if threads is None else whole("threads", threads, 1, MOST_THREADS)
        if count == 1 or not self._shares:
            return None
        pool = self._pool_kept
        if pool is None or (pool.threads, pool.process) != (count, os.getpid()):
            pool = self._pool_kept = Pool(self.library, count)
        return pool if pool.address and pool.lock.acquire(blocking=False) else None

    def _plain(self, arrays: tuple[Any, ...]) -> Sequence[Array] | None:
        """Returns the arrays of a call if they are all arrays that C can read, in the order of the inputs, or None."""
        kinds = self._kinds
        if len(arrays) != len(kinds) or not all(map(is_plain, arrays, kinds)):
            return None
        return arrays

    def _given(self, arrays: tuple[Array | Mapping[str, Array], ...], named: Mapping[str, Array]) -> Sequence[Array]:
        """Returns the arrays of the inputs, in their order. Raises BadInput."""
        plain = None if named else self._plain(arrays)
        if plain is not None:
            return plain
        dicts = [array for array in arrays if isinstance(array, Mapping)]
        placed = [array for array in arrays if not isinstance(array, Mapping)]
        if len(placed) > len(self.inputs):
            raise BadInput(f"the program takes at most {len(self.inputs)} arrays, got {len(placed)}")
        found = dict(zip(self.inputs, placed, strict=False))
        names = {b.name: b for b in self.inputs}
        for name, array in chain(*(entries.items() for entries in dicts), named.items()):
            if name not in names or names[name] in found:
                raise BadInput(f"{name} is not an input of the program, or was given twice")
            found[names[name]] = array
        optional = [b for b in self.inputs if b not in found and (b.name not in self._read or b.name == SEED.name)]
        found |= {b: np.zeros(tuple(b.dims), RECORDS[b.dtype].numpy) for b in optional}
        missing = [b.name for b in self.inputs if b not in found]
        if missing:
            own = [name for name in missing if name in ("out", "threads")]
            how = f"; an input named like an option is passed in a dict: f({{'{own[0]}': ..}})" if own else ""
            raise BadInput(f"missing inputs: {', '.join(missing)}{how}")
        ordered = [(buffer, kind, found[buffer]) for buffer, kind in zip(self.inputs, self._kinds, strict=True)]
        return [array if is_plain(array, kind) else given_array(buffer, array) for buffer, kind, array in ordered]

    def _required(self, out: Array | Sequence[Array]) -> Sequence[Array]:
        """Returns the arrays of `out=`, which take the results. Raises BadInput."""
        results = self._lowered.results
        items: Sequence[Any] = out if isinstance(out, tuple | list) else [out]
        given = [array for array in items if isinstance(array, np.ndarray)]
        if len(given) != len(items):
            raise BadInput("out= requires a numpy array, or a tuple or list of them, got something else")
        if len(given) != len(results):
            raise BadInput(f"out= requires one array for each result ({len(results)}), got {len(given)}")
        for place, (buffer, array) in enumerate(zip(results, given, strict=True)):
            require_fits(buffer, array)
            if not array.flags.carray:
                raise BadInput(f"result {place} requires a writable array in C order, got another one")
        return given


def completed(loops: Loops, status: int) -> None:
    """Checks the status of a compiled function. Raises BadInput, or OutOfBounds for a bad index."""
    if status < 0:
        raise BadInput(NO_MEMORY)
    if status:
        wrong = list(required(loops))[status - 1]
        low, high = -wrong.size, wrong.size - 1
        raise OutOfBounds(f"{wrong.operator} requires indices from {low} to {high}, got one that is outside")
