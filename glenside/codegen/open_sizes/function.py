"""Programs with open sizes as functions on numpy arrays: one library, whose sizes are set for each call."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import RLock
from time import perf_counter
from typing import Any

import numpy as np

from glenside.codegen.loop_ir.ir import Buffer, Role
from glenside.codegen.open_sizes.lowered import OpenLowered
from glenside.codegen.open_sizes.template import OpenBuffer
from glenside.codegen.processor.model import PLAIN
from glenside.codegen.runtime.arguments import (
    Kind,
    address_of,
    all_arrays,
    given_array,
    is_plain,
    nested,
    pointers,
    require_own,
    stored_once,
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
from glenside.ir.torch_tensors import array_of, as_tensors, is_tensor
from glenside.ir.types import Dims

_MOST_KEPT = 64
"""The choices of sizes whose shapes are kept."""


@dataclass(frozen=True)
class _Sized:
    """The arguments of calls at given sizes: input buffers with dims and dtypes, those of results, and addresses.

    held  the constants and numbers of these sizes, which the addresses point to
    """

    inputs: Sequence[tuple[Buffer, Kind]]
    results: Sequence[Kind]
    addresses: Any
    held: object


class OpenFunction:
    """A compiled program with open sizes: `f(x, ..)` for arrays of any sizes in the ranges.

    ranges  name of each open size -> (least, greatest, step)
    source  its C source
    report  how it was made and verified
    """

    def __init__(self, lowered: OpenLowered) -> None:
        self.lowered, self.machine = lowered, lowered.machine
        self.ranges, self.program, self.name = lowered.open.ranges, lowered.open, lowered.open.name
        self.source = str(lowered.written)
        began = perf_counter()
        made = loaded(lowered.written, self.machine)
        self.library, self.kept = made.library, made.kept
        lowered.seconds["compile"] = perf_counter() - began
        self._run = self.library.run
        self.library.open_pool.restype = ctypes.c_void_p
        self._lock = RLock()
        self._given = [b for b in lowered.buffers if b.role in (Role.INPUT, Role.CONSTANT)]
        self._input_at = [i for i, b in enumerate(self._given) if b.role is Role.INPUT]
        self._names = [b.name for b in lowered.inputs]
        order = lowered.template.results
        self._results = list(dict.fromkeys(order))
        self._returned = [self._results.index(number) for number in order]
        stays = lowered.in_place
        self._in_place = [self._results.index(stays[name]) if name in stays else None for name in self._names]
        stored = [i for i, b in enumerate(lowered.buffers) if b.role is Role.RESULT]
        self._stored = [self._results.index(number) for number in stored]
        self._result_names = lowered.program.result_names()
        self._read = {name for name in Program(lowered.program.term).tensors}
        self._fixed = None if lowered.has_open_constants else self._constants({})
        self._known: dict[tuple[int, ...], _Sized] = {}
        self._arena: tuple[int, ctypes.c_void_p, Array] | None = None
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

    def __call__(
        self,
        /,
        *arrays: Array | Mapping[str, Array],
        out: Array | Sequence[Array] | None = None,
        threads: int | None = None,
        **named: Array,
    ) -> Any:
        """Runs the program on arrays; the open sizes are those of the arrays. Returns an array or a tuple.

        Arguments are those of a compiled function of fixed sizes. Calls from several threads run one after the other.
        Raises BadInput: a size outside its range, or sizes that contradict each other.
        """
        given = self.named(arrays, named)
        found = self.called(given, self.sizes_of(given), out, threads)
        return as_tensors(found) if any(map(is_tensor, all_arrays(arrays, named))) and out is None else found

    def verify(self, **sizes: int) -> None:
        """Verifies the function at given sizes, too. Raises BadInput if it does not hold there."""
        self.lowered.open.require_sizes(sizes)
        self.lowered.verified.append(self.lowered.verify(sizes))

    def wrong(self) -> list[str]:
        """Returns how results differ from the interpreter's at the verified sizes; [] if they do not."""
        from glenside.codegen.open_sizes.compare import differences

        own = self.lowered
        return list(differences(self, own.open, [one.sizes for one in own.verified]))

    def sizes_of(self, arrays: Mapping[str, Any]) -> dict[str, int]:
        """Returns the open sizes of arrays of inputs, by name. Raises BadInput."""
        found: dict[str, int] = {}
        said: dict[str, str] = {}
        for buffer in self.lowered.inputs:
            array = arrays.get(buffer.name)
            if array is None:
                continue
            shape = tuple(array.shape)
            if len(shape) != len(buffer.dims):
                raise BadInput(f"{_required(buffer)}, got {len(shape)} axes")
            for of, axis, factor, constant in buffer.inferable():
                size, rest = divmod(of.step * (shape[axis] - constant), factor)
                if rest:
                    raise BadInput(f"{_required(buffer)}, got size {shape[axis]} of axis {axis}")
                name, size = of.name, size + of.above
                if found.setdefault(name, size) != size:
                    raise BadInput(f"{name} is {found[name]} in {said[name]} and {size} in {buffer.name}")
                said.setdefault(name, buffer.name)
        missing = [name for name in self.ranges if name not in found]
        if missing:
            raise BadInput(f"the size {missing[0]} is not known: no input that has it is given")
        self.lowered.open.require_sizes(found)
        return {name: found[name] for name in self.ranges}

    def least_sizes(self) -> dict[str, int]:
        """Returns the least sizes of the ranges."""
        return {name: own[0] for name, own in self.ranges.items()}

    def greatest_sizes(self) -> dict[str, int]:
        """Returns the greatest sizes of the ranges."""
        return self.lowered.open.greatest

    def input_kinds(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the inputs at given sizes, by name."""
        return {b.name: (b.at(sizes), RECORDS[b.dtype].numpy) for b in self.lowered.inputs}

    def result_kinds(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the results at given sizes, by name."""
        kinds = self._at(tuple(sizes[name] for name in self.ranges)).results
        return {name: kinds[number] for name, number in zip(self._result_names, self._returned, strict=True)}

    def run_into(self, arrays: Mapping[str, Any], results: Mapping[str, Array], threads: int | None) -> None:
        """Runs the program on arrays by name, and stores all results in arrays by name."""
        pairs = ((number, results[name]) for name, number in zip(self._result_names, self._returned, strict=True))
        given = {name: _as_array(array) for name, array in arrays.items()}
        sizes = self.sizes_of(given)
        stored_once(pairs, lambda own: self.called(given, sizes, [own[number] for number in range(len(own))], threads))

    def is_in_place(self, name: str, result: str) -> bool:
        """True if a result may be stored in the memory of an input."""
        number = self._returned[self._result_names.index(result)]
        return self.lowered.in_place.get(name) == self._results[number]

    def named(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arrays of a call by the names of inputs. Raises BadInput."""
        dicts = [array for array in arrays if isinstance(array, Mapping)]
        placed = [array for array in arrays if not isinstance(array, Mapping)]
        if len(placed) > len(self._names):
            raise BadInput(f"the program takes at most {len(self._names)} arrays, got {len(placed)}")
        found = dict(zip(self._names, map(_as_array, placed), strict=False))
        for name, array in chain(*(own.items() for own in dicts), named.items()):
            if name not in self._names or name in found:
                raise BadInput(f"{name} is not an input of the program, or was given twice")
            found[name] = _as_array(array)
        return found

    def called(
        self,
        arrays: Mapping[str, Any],
        sizes: Mapping[str, int],
        out: Array | Sequence[Array] | None,
        threads: int | None,
    ) -> Any:
        """Runs the program on arrays by name, of which `sizes_of` gave the sizes. Raises BadInput."""
        missing = [name for name in self._names if name not in arrays and name in self._read]
        if missing:
            raise BadInput(f"missing inputs: {', '.join(missing)}")
        with self._lock:
            try:
                return self._ran(arrays, tuple(sizes.values()), out, threads)
            except MemoryError as error:
                raise BadInput(NO_MEMORY) from error

    def _ran(
        self,
        arrays: Mapping[str, Any],
        key: tuple[int, ...],
        out: Array | Sequence[Array] | None,
        threads: int | None,
    ) -> Any:
        own = self._at(key)
        inputs = [
            arrays[buffer.name]
            if buffer.name in arrays and is_plain(arrays[buffer.name], kind)
            else given_array(buffer, arrays[buffer.name] if buffer.name in arrays else np.zeros(*kind))
            for buffer, kind in own.inputs
        ]
        results = [np.empty(*kind) for kind in own.results] if out is None else _taking(out, own.results)
        given = type(own.addresses).from_buffer_copy(own.addresses)
        for number, array in zip(self._input_at, inputs, strict=True):
            given[number] = address_of(array)
        if out is not None:
            require_own(
                [(address_of(array), array.nbytes) for array in results],
                [(given[n] or 0, array.nbytes) for n, array in zip(self._input_at, inputs, strict=True)],
                self._in_place,
            )
        stored = pointers([results[number] for number in self._stored])
        pool = self._pooled(threads)
        arena = self._memory(1 if pool is None else pool.threads)
        status = self._run(given, stored, arena, pool and pool.address, None)
        if status:
            self._refuse(status)
        return nested(self.lowered.program.term.type, iter([results[number] for number in self._returned]))

    def _refuse(self, status: int) -> None:
        if status < 0:
            raise BadInput(NO_MEMORY)
        raise OutOfBounds(f"{self.lowered.operators[status - 1]} got an index that is outside of its axis")

    def _memory(self, threads: int) -> ctypes.c_void_p:
        if self._arena is None or self._arena[0] < threads:
            size = self.lowered.arena.bytes_of(threads)
            memory = Memory([size]).array(size, np.uint8)
            self._arena = threads, ctypes.c_void_p(address_of(memory)), memory
        return self._arena[1]

    def _pooled(self, threads: int | None) -> Pool | None:
        if isinstance(threads, str):
            raise BadInput(f"threads is a whole number from 1 to {MOST_THREADS}, got the text {threads!r}")
        count = processors() if threads is None else whole("threads", threads, 1, MOST_THREADS)
        if count == 1 or not self.lowered.shares:
            return None
        if self._pool is None or (self._pool.threads, self._pool.process) != (count, os.getpid()):
            self._pool = Pool(self.library, count)
        return self._pool if self._pool.address else None

    def _at(self, key: tuple[int, ...]) -> _Sized:
        """Returns what a call at these sizes needs."""
        if key not in self._known:
            sizes = dict(zip(self.ranges, key, strict=True))
            lowered = self.lowered
            lowered.require_planned(sizes)
            constants = self._fixed if self._fixed is not None else self._constants(sizes)
            empty = np.empty(0)
            pairs = [(b, b.at(sizes)) for b in lowered.inputs]
            results = [(lowered.buffers[i].at(sizes), RECORDS[lowered.buffers[i].dtype].numpy) for i in self._results]
            table = np.zeros(max(1, len(lowered.text.numbers)), np.int64)
            self.library.open_sizes((ctypes.c_int64 * len(key))(*key), ctypes.c_void_p(address_of(table)))
            made = _Sized(
                [(Buffer(b.name, Dims(dims), b.dtype, b.role), (dims, RECORDS[b.dtype].numpy)) for b, dims in pairs],
                results,
                pointers([*(constants.get(b.name, empty) for b in self._given), table]),
                (constants, table),
            )
            if len(self._known) >= _MOST_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = made
        return self._known[key]

    def _constants(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        lowered = self.lowered
        loops = lowered.template.at(sizes or lowered.open.greatest, None)
        return {b.name: a for b, a in lowered.constants_at(loops, sizes).items()}

    def _check_meaning(self) -> None:
        """Compares results with the interpreter's at sizes whose programs have other terms. Raises BadInput."""
        from glenside.codegen.open_sizes.compare import differences

        choices = [one.sizes for one in self.lowered.verified if not one.whole]
        for said in differences(self, self.lowered.open, choices):
            raise BadInput(f"the program of some sizes is not that of the others: {said}")

    def drawn(self, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
        """Returns random arrays for the inputs at given sizes; integers and truths are 0 or 1."""
        found = {}
        for place, (buffer, (dims, dtype)) in enumerate(self._at(tuple(sizes[n] for n in self.ranges)).inputs):
            draw = np.random.default_rng(seed + place)
            real = RECORDS[buffer.dtype].kind == "float"
            found[buffer.name] = (draw.standard_normal(dims) if real else draw.integers(0, 2, dims)).astype(dtype)
        return found


def _as_array(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return array
    if is_tensor(array):
        return array_of(array)
    return np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)


def _required(buffer: OpenBuffer) -> str:
    return f"{buffer.name} requires ({' '.join(map(str, buffer.dims))}) {buffer.dtype}"


def _taking(out: Array | Sequence[Array], kinds: Sequence[Kind]) -> list[Array]:
    """Returns the arrays of `out=`. Raises BadInput."""
    items: Sequence[Any] = out if isinstance(out, tuple | list) else [out]
    if len(items) != len(kinds):
        raise BadInput(f"out= requires one array for each result ({len(kinds)}), got {len(items)}")
    for place, (array, (dims, dtype)) in enumerate(zip(items, kinds, strict=True)):
        if not isinstance(array, np.ndarray) or (array.shape, array.dtype) != (dims, dtype) or not array.flags.carray:
            raise BadInput(f"result {place} requires a writable array {dims} {dtype} in C order, got another one")
    return list(items)
