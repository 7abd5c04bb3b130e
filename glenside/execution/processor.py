"""What a processor takes for the work of compiled programs: nests of many kinds, timed, and what fits them."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from glenside import __version__, models
from glenside.builder import Builder
from glenside.codegen.counts import works
from glenside.codegen.loops import Role
from glenside.codegen.machine import MACHINES, Machine
from glenside.codegen.native import Compiled
from glenside.codegen.work import NAMES, Work
from glenside.execution.fit import processor, robust
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.passes.network import Search, fold_batch_norms

ROUNDS = 20
"""Timed runs of each program; of each nest the fastest counts: what else runs here only makes it slower."""
_LEAST_PART = 1 / 500
"""Of the time of a program that a nest takes: what takes less need not be told well."""


@dataclass(frozen=True)
class Timed:
    """A nest: its program, its work, and the seconds measured."""

    name: str
    work: Work
    seconds: float

    def error(self, nanoseconds: Work) -> float:
        """How far what is told is from what was measured, as a part of it."""
        return abs(1e-9 * self.work.priced(nanoseconds) / self.seconds - 1)


@dataclass(frozen=True)
class Fit:
    """A machine with prices that fit what was measured of some nests."""

    machine: Machine
    nests: Sequence[Timed]

    @property
    def errors(self) -> list[float]:
        return [nest.error(self.machine.nanoseconds) for nest in self.nests]


def calibrate(
    machine: Machine,
    searched: Callable[[Program], Program],
    rounds: int = ROUNDS,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Fit:
    """Measure this computer, as that machine, with programs as they are and as they are `searched`. Raises BadInput
    where it is none, or has no compiler.
    """
    machine = _with_caches(machine)
    programs = [program.seeded_constants(0) for program in workloads(searched)]
    nests: list[Timed] = []
    for done, program in enumerate(programs):
        progress(done, len(programs), program.name)
        nests += timed(program, machine, rounds)
    return fitted(machine, nests)


def timed(program: Program, machine: Machine, rounds: int = ROUNDS) -> list[Timed]:
    """The nests of a program on one thread, those that take a part of its time that matters."""
    compiled = Compiled(program, machine)
    arrays = compiled.drawn()
    seconds = compiled.least_seconds(*arrays, rounds=rounds)
    names = [f"{program.name}: {title}" for title in compiled.loops.titles]
    rows = zip(names, works(compiled.loops, machine), seconds.tolist(), compiled.loops.nests, strict=True)
    return [
        Timed(name, work, own)
        for name, work, own, nest in rows
        if own >= _LEAST_PART * seconds.sum()
        and nest.buffer.role is not Role.RESULT  # which is memory that is touched first
    ]


def fitted(machine: Machine, nests: Sequence[Timed]) -> Fit:
    """The prices that fit the seconds of nests best: the least relative errors, none below 0."""
    matrix = np.array([nest.work.amounts() for nest in nests])
    found = 1e9 * robust(matrix, np.array([nest.seconds for nest in nests]))
    return Fit(replace(machine, nanoseconds=Work(*found.tolist())), nests)


def described(fit: Fit, like: str, rounds: int) -> str:
    """The machine as TOML, with the fit and the computer: what `read_machine` reads."""
    machine, base, errors = fit.machine, MACHINES[like], fit.errors
    sizes = [
        f"{name} = {getattr(machine, name)}" for name in ("l1", "l2") if getattr(machine, name) != getattr(base, name)
    ]
    prices = asdict(machine.nanoseconds)
    lines = [
        f"# What compiled programs take, by `glenside calibrate`: the fastest of {rounds} runs of each of",
        f"# {len(fit.nests)} nests, on one thread.",
        "# For --target FILE.toml, cpu:MEMORY,machine=FILE.toml or --machine FILE.toml.",
        'target = "cpu"',
        f'like = "{like}"',
        *sizes,
        "",
        "[nanoseconds]",
        *(f"{name} = {float(f'{prices[name]:.4g}')!r}" for name in NAMES),
        "",
        "[fit]",
        f"mean_error = {statistics.mean(errors):.3f}",
        f"median_error = {statistics.median(errors):.3f}",
        f"rounds = {rounds}",
        "",
        "[machine]",
        f"processor = {processor()!r}",
        f"system = '{platform.system()} {platform.machine()}'",
        f"glenside = '{__version__}'",
        "",
    ]
    return "\n".join(lines)


def _with_caches(machine: Machine) -> Machine:
    """The machine with the bytes of the first caches, where the system says them."""
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except (OSError, UnicodeDecodeError):
            continue
        if not (size.endswith("K") and size[:-1].isdecimal()):
            continue
        if (level, kind) == ("1", "Data"):
            machine = replace(machine, l1=int(size[:-1]) << 10)
        elif (level, kind) == ("2", "Unified"):
            machine = replace(machine, l2=int(size[:-1]) << 10)
    return machine


def workloads(searched: Callable[[Program], Program]) -> Iterator[Program]:
    """Networks of several kinds, as they are and as they were searched, and what computes no product."""
    windows = models.resnet_18(), models.unet_small()
    for network in (models.mobilenet_v2(), models.mobilenet_v3_large(), models.vit_s_16(), *windows):
        yield fold_batch_norms(network, Search())[0]
    for network in windows:
        yield replace(searched(network), name=f"{network.name}, searched")
    b = Builder("elements")
    yield b.finish(build("construct-tuple", *(_elements(b, f"{n}.", *sizes) for n, sizes in enumerate(_ELEMENTS))))


_ELEMENTS = ((32, 112), (64, 56), (256, 28), (8, 224), (3, 320), (64, 192))
"""Channels, size of the image."""


def _elements(b: Builder, at: str, channels: int, size: int) -> Term:
    """Sums of elements, other orders, pools, pixels repeated, functions."""
    x, y = (b.input(f"{at}{name}", (1, channels, size, size)) for name in "xy")
    x = b.tanh(b.add(x, y))
    around = b.average_pool(b.pad(b.transpose(x, (0, 2, 3, 1)), ((0, 0), (1, 1), (1, 1), (0, 0))), 3)
    return build("construct-tuple", around, b.sigmoid(b.upsample(b.max_pool(x, 2, strides=2), 2)), b.softmax(x))
