"""Functions on numpy arrays, made by the system's C compiler."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from glenside.codegen.arena import arena
from glenside.codegen.c import source
from glenside.codegen.loops import Buffer, Loops, Packing, Role, required
from glenside.codegen.lower import lower
from glenside.codegen.machine import Machine
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import postorder
from glenside.ir.types import TupleType, Type
from glenside.passes.constant_folding import fold

_FLAGS = ("-std=c11", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-pthread")
_FAST = (
    "-std=gnu11",
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-tree-slp-vectorize",
    "-fPIC",
    "-shared",
    "-pthread",
    "-Wno-psabi",
)


_PAGE = 1 << 21


def compile(program: Program, machine: Machine | None = None) -> Compiled:
    """The program as a function on numpy arrays, made by the system's C compiler: cc, or what CC names.

    Plain loops so far, on one thread: nothing is tiled or packed. Raises BadInput: a black box, a dtype that is only
    stored, a constant without a value, no compiler.
    """
    return Compiled(program, machine)


class Compiled:
    """A program as a function: `f(x, ..)` in the order of the program's inputs, or by name.

    source  the C that it was made of
    loops   the nests that say the same
    """

    def __init__(self, program: Program, machine: Machine | None = None) -> None:
        if machine is not None:
            program = fold(program, [t for t in postorder(program.term) if t.operator.moves])
        self.loops: Loops = lower(program, machine)
        self._type = program.term.type
        self.source = source(self.loops)
        self.inputs = [b for b in self.loops.buffers if b.role is Role.INPUT]
        packed = {packing.buffer: packing for packing in self.loops.packings}
        constants = [b for b in self.loops.buffers if b.role is Role.CONSTANT and b not in packed]
        missing = [b.name for b in constants if b.name not in program.constants]
        if missing:
            raise BadInput(f"to compile a program requires values of its constants, got none of {', '.join(missing)}")
        self._constants = {b: _array(b, program.constants[b.name]) for b in constants}
        together = _Together(2 * sum(a.nbytes for a in self._constants.values()) + (1 << 16))
        for buffer, packing in packed.items():
            if buffer.role is Role.CONSTANT:
                self._constants[buffer] = _packed(packing, self._constants[packing.source], together)
        self._bytes = arena(self.loops).size
        self.seconds: Any = None
        self._library = _loaded(self.source, _FLAGS if machine is None else (*_FAST, *machine.flags))
        self._run: Any = self._library.run
        self._library.open_pool.restype = ctypes.c_void_p
        self._arenas: list[Array] = []
        self._pools: dict[tuple[int, int], Any] = {}

    def __call__(self, *arrays: Array, threads: int | None = None, **named: Array) -> Any:
        """The result for arrays of the declared dims and dtypes: an array, or a tuple. Raises BadInput."""
        values: Mapping[Buffer, Array] = self._constants | self._given(arrays, named)
        given = [values[b] for b in self.loops.buffers if b.role in (Role.INPUT, Role.CONSTANT)]
        made = {b: np.empty(tuple(b.dims), RECORDS[b.dtype].numpy) for b in self.loops.buffers if b.role is Role.RESULT}
        memory = self._arenas.pop() if self._arenas else _aligned(self._bytes, np.uint8)
        status = self._run(
            _pointers(given),
            _pointers(list(made.values())),
            ctypes.c_void_p(memory.ctypes.data),
            self._pool(threads),
            self.seconds,
        )
        self._arenas.append(memory)
        if status < 0:
            raise BadInput("memory does not suffice")
        if status:
            wrong = list(required(self.loops))[status - 1]
            low, high = -wrong.size, wrong.size - 1
            raise BadInput(f"{wrong.operator} requires indices from {low} to {high}, got one that is outside")
        return _nested(self._type, iter([made[b] for b in self.loops.results]))

    def _pool(self, threads: int | None) -> Any:
        count = threads or len(os.sched_getaffinity(0))
        if count < 2:
            return None
        key = os.getpid(), count
        if key not in self._pools:
            self._pools[key] = ctypes.c_void_p(self._library.open_pool(count))
            weakref.finalize(self, self._library.close_pool, self._pools[key])
        return self._pools[key]

    def profile(self, *arrays: Array, threads: int = 1, rounds: int = 10) -> list[tuple[str, float]]:
        """What each nest takes, in seconds: the median of some rounds."""
        found = []
        for _ in range(rounds):
            self.seconds = (ctypes.c_double * len(self.loops.nests))()
            self(*arrays, threads=threads)
            found.append(list(self.seconds))
        self.seconds = None
        return [
            (f"{n.buffer} {n.buffer.dims} {n.what}", float(s))
            for n, s in zip(self.loops.nests, np.min(found, axis=0), strict=True)
        ]

    def _given(self, arrays: tuple[Array, ...], named: Mapping[str, Array]) -> dict[Buffer, Array]:
        if len(arrays) > len(self.inputs):
            raise BadInput(f"the program takes {len(self.inputs)} arrays, got {len(arrays)}")
        found = dict(zip(self.inputs, arrays, strict=False))
        names = {b.name: b for b in self.inputs}
        for name, array in named.items():
            if name not in names or names[name] in found:
                raise BadInput(f"{name} is no input that is still missing")
            found[names[name]] = array
        missing = [b.name for b in self.inputs if b not in found]
        if missing:
            raise BadInput(f"the program takes {', '.join(missing)} too")
        return {buffer: _array(buffer, array) for buffer, array in found.items()}


def _array(buffer: Buffer, array: Array) -> Array:
    found = np.asarray(array)
    if found.shape != buffer.dims or found.dtype != RECORDS[buffer.dtype].numpy:
        dims = " ".join(map(str, buffer.dims))
        raise BadInput(f"{buffer.name} requires ({dims}) {buffer.dtype}, got {found.shape} {found.dtype}")
    return np.ascontiguousarray(found)


def _packed(packing: Packing, source: Array, together: _Together) -> Array:
    """The elements of a constant in the order of a packing."""
    sizes = [*(n for n, _ in packing.outer), *(n for n, _ in packing.inner)]
    steps = [*(s for _, s in packing.outer), *(s for _, s in packing.inner), packing.stride]
    columns = sum(width * times for _, width, times in packing.pieces)
    item = source.itemsize
    flat = source.reshape(-1)[packing.first :]
    found = np.lib.stride_tricks.as_strided(flat, (*sizes, columns), [s * item for s in steps], writeable=False)
    groups, depth = prod(n for n, _ in packing.outer), prod(n for n, _ in packing.inner)
    whole = found.reshape(groups, depth, columns)
    parts = [
        whole[:, :, begin : begin + width * times]
        .reshape(groups, depth, times, width)
        .swapaxes(1, 2)
        .reshape(groups, -1)
        for begin, width, times in packing.pieces
    ]
    packed = together.array(groups * depth * columns, source.dtype)
    np.concatenate(parts, axis=1, out=packed.reshape(groups, -1))
    return packed


class _Together:
    """Arrays in one piece of memory, which large pages can hold: fewer of their addresses are looked up."""

    def __init__(self, size: int) -> None:
        self.memory, self.end = np.empty(size + _PAGE, np.uint8), 0
        self.begin = -self.memory.ctypes.data % _PAGE

    def array(self, size: int, dtype: Any) -> Array:
        """An array that begins where a line of the cache does."""
        item = np.dtype(dtype).itemsize
        first = self.begin + self.end
        self.end += -(-size * item // 64) * 64
        return self.memory[first : first + size * item].view(dtype)


def _aligned(size: int, dtype: Any) -> Array:
    """An array that begins where a line of the cache does."""
    return _Together(size * np.dtype(dtype).itemsize).array(size, dtype)


def _pointers(arrays: list[Array]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))


def _nested(type_: Type, found: Iterator[Array]) -> Any:
    """The results in the tuples that a program gives."""
    return tuple(_nested(item, found) for item in type_.items) if isinstance(type_, TupleType) else next(found)


def compiler() -> list[str]:
    """The command that compiles C: CC, as a shell reads it, or what the system has; none of it is []."""
    try:
        named = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise BadInput(f"CC requires a command, got {os.environ['CC']!r}: {error}") from error
    return named or next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), [])


def _loaded(text: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    command = compiler()
    if not command:
        raise BadInput("there is no C compiler: install one, or name it in CC")
    said = shlex.join(command)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path, made = Path(folder) / "program.c", Path(folder) / "program.so"
            path.write_text(text, encoding="utf-8")
            done = subprocess.run(
                [*command, *flags, str(path), "-o", str(made), "-lm"],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            if done.returncode:
                first = next(iter(done.stderr.strip().splitlines()), f"it ended with status {done.returncode}")
                raise BadInput(f"{said} does not compile what was made: {first}")
            return ctypes.CDLL(str(made))
    except OSError as error:
        raise BadInput(f"{said} does not run: {error.strerror or error}") from error
