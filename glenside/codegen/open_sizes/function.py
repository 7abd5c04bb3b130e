"""Programs with open sizes as functions on numpy arrays: one library, whose sizes are set for each call."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from glenside.codegen.loop_ir.ir import Role
from glenside.codegen.memory.buffer_arena import Arena
from glenside.codegen.open_sizes.callable import OpenCallable
from glenside.codegen.open_sizes.lowered import OpenLowered
from glenside.codegen.open_sizes.template import OpenBuffer, Shapes
from glenside.codegen.processor.model import PLAIN
from glenside.codegen.runtime.arguments import (
    Kind,
    address_of,
    given_array,
    is_plain,
    nested,
    pointers,
    require_own,
)
from glenside.codegen.runtime.compile_and_load import loaded
from glenside.codegen.runtime.compiled_function import MOST_THREADS, NO_MEMORY
from glenside.codegen.runtime.thread_pool import Pool
from glenside.codegen.scheduling.constant_packing import Memory
from glenside.ir.bounds import whole
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput, OutOfBounds
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.threads import processors

_MOST_KEPT = 64
"""The choices of sizes whose shapes are kept."""


@dataclass(frozen=True)
class Sized:
    """The arguments of calls at given sizes: input buffers with dims and dtypes, those of results, and addresses.

    held  the constants and numbers of these sizes, which the addresses point to
    """

    inputs: Sequence[tuple[OpenBuffer, Kind]]
    results: Sequence[Kind]
    addresses: Any
    held: object


class ArenaMemory:
    """The memory of arenas of which one is used at a time; it grows with the number of threads."""

    def __init__(self, arenas: Sequence[Arena]) -> None:
        self._arenas, self._threads = arenas, 0
        self._address, self._memory = ctypes.c_void_p(), np.empty(0, np.uint8)

    def address(self, threads: int) -> ctypes.c_void_p:
        """Returns the address of memory for a number of threads."""
        if self._threads < threads:
            size = max(arena.bytes_of(threads) for arena in self._arenas)
            self._memory = Memory([size]).array(size, np.uint8)
            self._threads, self._address = threads, ctypes.c_void_p(address_of(self._memory))
        return self._address


class OpenFunction(OpenCallable):
    """A compiled program with open sizes in one library.

    source  its C source
    report  how it was made and verified
    """

    def __init__(self, lowered: OpenLowered) -> None:
        super().__init__(
            lowered.open,
            lowered.inputs,
            {*Program(lowered.program.term).tensors},
            lowered.program.result_names(),
        )
        self.lowered, self.machine = lowered, lowered.machine
        self.source = str(lowered.written)
        began = perf_counter()
        made = loaded(lowered.written, self.machine)
        self.library, self.kept = made.library, made.kept
        lowered.seconds["compile"] = perf_counter() - began
        self._run = self.library.run
        self.library.open_pool.restype = ctypes.c_void_p
        self._given = [b for b in lowered.buffers if b.role in (Role.INPUT, Role.CONSTANT)]
        self.input_at = [i for i, b in enumerate(self._given) if b.role is Role.INPUT]
        order = lowered.template.results
        self._results = list(dict.fromkeys(order))
        self._returned = [self._results.index(number) for number in order]
        stays = lowered.in_place
        self._in_place = [self._results.index(stays[b.name]) if b.name in stays else None for b in lowered.inputs]
        stored = [i for i, b in enumerate(lowered.buffers) if b.role is Role.RESULT]
        self.stored_order = [self._results.index(number) for number in stored]
        self._keep_constants()
        own = [lowered.buffers[number] for number in self._results]
        self._result_shapes = Shapes(buffer.dims for buffer in own)
        self._result_dtypes = [RECORDS[buffer.dtype].numpy for buffer in own]
        self._known: dict[tuple[int, ...], Sized] = {}
        self._first: OpenFunction | None = None
        self._arena = ArenaMemory([lowered.arena])
        self._pool: Pool | None = None
        self._check_meaning()

    @property
    def report(self) -> str:
        """Says for which sizes the function is, at which it was verified, and what took how long."""
        lowered = self.lowered
        ranges = ", ".join(f"{n} from {a} to {b}{f' by {c}' if c > 1 else ''}" for n, (a, b, c) in self.ranges.items())
        at = ", ".join("x".join(map(str, one.sizes.values())) for one in lowered.verified)
        times = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in lowered.seconds.items())
        machine = self.machine.name if self.machine is not None else PLAIN
        remarks = "".join(f"\n{remark}" for remark in lowered.remarks)
        return f"{self.name} for {machine}: {ranges}\nVerified at {len(lowered.verified)} sizes: {at}\n{times}{remarks}"

    def __repr__(self) -> str:
        inputs = ", ".join(f"{b.name} ({' '.join(map(str, b.dims))}) {b.dtype}" for b in self.lowered.inputs)
        results = ", ".join(
            f"({' '.join(map(str, self.lowered.buffers[i].dims))}) {self.lowered.buffers[i].dtype}"
            for i in self.lowered.template.results
        )
        return f"<{self.name} compiled for open sizes {', '.join(self.ranges)}: {inputs} -> {results}>"

    def verify(self, **sizes: int) -> None:
        """Verifies the function at given sizes, too. Raises BadInput if it does not hold there."""
        self.lowered.open.require_sizes(sizes)
        self.lowered.verified.append(self.lowered.verify(sizes))

    def wrong(self) -> list[str]:
        """Returns how results differ from the interpreter's at the verified sizes; [] if they do not."""
        from glenside.codegen.open_sizes.compare import differences

        own = self.lowered
        return list(differences(self, own.open, [one.sizes for one in own.verified]))

    def result_kinds(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the results at given sizes, by name."""
        kinds = self.sized(tuple(sizes[name] for name in self.ranges)).results
        return {name: kinds[number] for name, number in zip(self.result_names, self._returned, strict=True)}

    def numbers_of_results(self) -> Sequence[int]:
        return self._returned

    def is_in_place(self, name: str, result: str) -> bool:
        """True if a result may be stored in the memory of an input."""
        number = self._returned[self.result_names.index(result)]
        return self.lowered.in_place.get(name) == self._results[number]

    def _ran(
        self,
        arrays: Mapping[str, Any],
        sizes: Mapping[str, int],
        out: Array | Sequence[Array] | None,
        threads: int | None,
    ) -> Any:
        own = self.sized(tuple(sizes.values()))
        inputs = [
            arrays[buffer.name]
            if buffer.name in arrays and is_plain(arrays[buffer.name], kind)
            else given_array(buffer.of(kind[0]), arrays[buffer.name] if buffer.name in arrays else np.zeros(*kind))
            for buffer, kind in own.inputs
        ]
        results = [np.empty(*kind) for kind in own.results] if out is None else taking(out, own.results)
        given = type(own.addresses).from_buffer_copy(own.addresses)
        for number, array in zip(self.input_at, inputs, strict=True):
            given[number] = address_of(array)
        if out is not None:
            require_own(
                [(address_of(array), array.nbytes) for array in results],
                [(given[n] or 0, array.nbytes) for n, array in zip(self.input_at, inputs, strict=True)],
                self._in_place,
            )
        stored = pointers([results[number] for number in self.stored_order])
        pool = self.pooled(threads)
        arena = self._arena.address(1 if pool is None else pool.threads)
        self.run_at(given, stored, arena, pool)
        return nested(self.lowered.program.term.type, iter([results[number] for number in self._returned]))

    def run_at(self, given: Any, stored: Any, arena: ctypes.c_void_p, pool: Pool | None) -> None:
        """Runs the library on addresses, of which `sized` has those of constants. Raises BadInput, OutOfBounds."""
        if status := self._run(given, stored, arena, pool and pool.address, None):
            self._refuse(status)

    def _refuse(self, status: int) -> None:
        if status < 0:
            raise BadInput(NO_MEMORY)
        raise OutOfBounds(f"{self.lowered.operators[status - 1]} got an index that is outside of its axis")

    def pooled(self, threads: int | None) -> Pool | None:
        """Returns the pool of threads for a call; None for one thread. Raises BadInput."""
        if isinstance(threads, str):
            raise BadInput(f"threads is a whole number from 1 to {MOST_THREADS}, got the text {threads!r}")
        count = processors() if threads is None else whole("threads", threads, 1, MOST_THREADS)
        if count == 1 or not self.lowered.shares:
            return None
        if self._pool is None or (self._pool.threads, self._pool.process) != (count, os.getpid()):
            self._pool = Pool(self.library, count)
        return self._pool if self._pool.address else None

    def with_constants(self, lowered: OpenLowered) -> OpenFunction:
        """Returns the function of the same library with other constants."""
        own = copy(self)
        own.lowered, own.program, own._known, own._first = lowered, lowered.open, {}, self._first or self
        own._keep_constants()
        return own

    def sized(self, key: tuple[int, ...]) -> Sized:
        """Returns what a call at these sizes needs."""
        if key not in self._known:
            if len(self._known) >= _MOST_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = self._sized(key)
        return self._known[key]

    def _sized(self, key: tuple[int, ...]) -> Sized:
        sizes = dict(zip(self.ranges, key, strict=True))
        constants = self._fixed if self._fixed is not None else self._constants(sizes)
        addresses = type(self._addresses).from_buffer_copy(self._addresses)
        if self._fixed is None:
            self._set_addresses(addresses, constants)
        if self._first is not None:
            like = self._first.sized(key)
            addresses[len(self._given)] = like.addresses[len(self._given)]
            return replace(like, addresses=addresses, held=(constants, like.held))
        lowered = self.lowered
        lowered.require_planned(sizes)
        kinds = self.input_kinds(sizes)
        results = list(zip(self._result_shapes.at(sizes), self._result_dtypes, strict=True))
        table = np.zeros(max(1, len(lowered.text.numbers)), np.int64)
        addresses[len(self._given)] = address_of(table)
        self.library.open_sizes((ctypes.c_int64 * len(key))(*key), ctypes.c_void_p(address_of(table)))
        return Sized(
            [(b, kinds[b.name]) for b in lowered.inputs],
            results,
            addresses,
            (constants, table),
        )

    def _keep_constants(self) -> None:
        """Keeps the constants that do not depend on the sizes, and their addresses."""
        self._fixed = None if self.lowered.has_open_constants else self._constants({})
        self._addresses = (ctypes.c_void_p * (len(self._given) + 1))()
        self._set_addresses(self._addresses, self._fixed or {})

    def _set_addresses(self, addresses: Any, constants: Mapping[str, Array]) -> None:
        for number, buffer in enumerate(self._given):
            if buffer.name in constants:
                addresses[number] = address_of(constants[buffer.name])

    def _constants(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        lowered = self.lowered
        loops = lowered.template.at(sizes, None) if sizes else lowered.greatest
        return {b.name: a for b, a in lowered.constants_at(loops, sizes).items()}

    def _check_meaning(self) -> None:
        """Compares results with the interpreter's at sizes whose programs have other terms. Raises BadInput."""
        from glenside.codegen.open_sizes.compare import differences

        choices = [one.sizes for one in self.lowered.verified if not one.whole]
        for said in differences(self, self.lowered.open, choices):
            raise BadInput(f"the program of some sizes is not that of the others: {said}")
        self._arena = ArenaMemory([self.lowered.arena])  # that of the greatest sizes is not kept until a call


def taking(out: Array | Sequence[Array], kinds: Sequence[Kind]) -> list[Array]:
    """Returns the arrays of `out=`. Raises BadInput."""
    items: Sequence[Any] = out if isinstance(out, tuple | list) else [out]
    if len(items) != len(kinds):
        raise BadInput(f"out= requires one array for each result ({len(kinds)}), got {len(items)}")
    for place, (array, (dims, dtype)) in enumerate(zip(items, kinds, strict=True)):
        if not isinstance(array, np.ndarray) or (array.shape, array.dtype) != (dims, dtype) or not array.flags.carray:
            raise BadInput(f"result {place} requires a writable array {dims} {dtype} in C order, got another one")
    return list(items)
