"""Infers waits in a forked process while layers are still being emitted; the result is that of `infer_synchronization`.

Instructions are sent layer by layer, with the DRAM bytes that define their accesses: permutation tables, lookup tables,
parameters. If anything fails in the forked process, it returns nothing, and this process infers the waits.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import numpy as np

from glenside.ir.forked_work import ForkedProcess, may_fork
from glenside.ir.operand import Array
from glenside.npu.isa.base import Instruction
from glenside.npu.isa.effects import DRAM
from glenside.npu.isa.encoding import all_decoded, all_encoded
from glenside.npu.isa.fields import UNITS, Wait
from glenside.npu.lowering.emission.emit_layer import Writer
from glenside.npu.lowering.emission.instruction_list import Written
from glenside.npu.lowering.transfer.dram_image import Image
from glenside.npu.machine.model import Machine
from glenside.npu.model.infer_synchronization import Inferred, replaced
from glenside.npu.program.program import NpuProgram


class ForkedWaits:
    """A forked process that receives the emitted instructions in parts."""

    def __init__(self, machine: Machine, written: Written, image: Image) -> None:
        self.written, self.image = written, image
        self._copy = ForkedProcess(lambda questions, answers, _: _serve(machine, questions, answers))
        self._sent: list[Instruction] = []
        self._parts = 0
        self._serves = False

    def start(self) -> None:
        """Forks the process, if that is possible."""
        if may_fork():
            with suppress(OSError):
                self._copy.start()
                self._serves = True

    def send(self) -> None:
        """Sends the instructions emitted since the last call; no later instruction may be inserted before them."""
        if not self._serves:
            return
        own, parts = self.written.since(len(self._sent)), self.image.read_by_units[self._parts :]
        self._sent += own
        self._parts += len(parts)
        units = {unit: [each for each in own if each.unit == unit] for unit in UNITS}
        words = {unit: all_encoded(unit, each) for unit, each in units.items()}
        order = bytes(UNITS.index(each.unit) for each in own)
        self._tell((order, words, parts, self.image.size))

    def _tell(self, what: object) -> None:
        try:
            with open(self._copy.to_it, "wb", closefd=False) as stream:
                pickle.dump(what, stream, pickle.HIGHEST_PROTOCOL)
        except BrokenPipeError:  # the forked process failed
            self._serves = False

    def queues(self) -> Mapping[str, tuple[Instruction, ...]] | None:
        """Returns the queues with all waits; None if the forked process failed."""
        self.send()
        if not self._serves:
            return None
        self._tell(None)
        with open(self._copy.from_it, "rb", closefd=False) as stream, suppress(EOFError, pickle.UnpicklingError):
            waits = pickle.load(stream)
            found: dict[str, list[Instruction]] = {unit: [] for unit in UNITS}
            for own, wait in zip(self.written, waits.tolist(), strict=True):
                found[own.unit].append(replaced(own, Wait(*wait)))
            return {unit: tuple(queue) for unit, queue in found.items()}
        return None

    def end(self) -> None:
        """Ends the forked process."""
        self._serves = False
        self._copy.end()


@contextmanager
def forked_waits(writer: Writer, worth: bool) -> Iterator[ForkedWaits]:
    """Runs a forked process for as long as the block lasts, if it is worth one."""
    found = ForkedWaits(writer.machine, writer.written, writer.image)
    try:
        if worth:
            found.start()
        yield found
    finally:
        found.end()


class _Growing(Inferred):
    """Infers waits of instructions that arrive part by part, with the DRAM contents that they read."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(NpuProgram(machine, {}, np.zeros(0, np.uint8)))

    def grow(self, size: int, parts: Sequence[tuple[int, Array]]) -> None:
        """Extends DRAM to `size` bytes, and writes the given parts."""
        self.dram = np.append(self.dram, np.zeros(size - len(self.dram), np.uint8))
        for begin, content in parts:
            self.dram[begin : begin + content.size] = content
        self.history[DRAM.name].grow(self.beats)


def _heard(questions: int) -> Callable[[], Any]:
    """Returns a function that gets the next part; a thread reads the pipe, so that the writer does not block."""
    found = SimpleQueue[Any]()

    def read() -> None:
        with open(questions, "rb", closefd=False) as stream, suppress(EOFError):
            while True:
                found.put(pickle.load(stream))
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    return found.get


def _serve(machine: Machine, questions: int, answers: int) -> None:
    """Receives instructions, and at the end sends the waits of all of them, (instructions)(units)."""
    inferred, waits = _Growing(machine), list[Wait]()
    hear = _heard(questions)
    while (what := hear()) is not None:
        order, words, parts, size = what
        inferred.grow(size, parts)
        every = {unit: iter(all_decoded(unit, words[unit])) for unit in UNITS}
        for number in order:
            unit = UNITS[number]
            inferred.add(next(every[unit]))
            waits.append(inferred.queues[unit][-1].wait)
    with open(answers, "wb", closefd=False) as stream:
        pickle.dump(np.array([*map(tuple, waits)], np.int32).reshape(-1, len(UNITS)), stream, pickle.HIGHEST_PROTOCOL)
