"""Calibrates the cost model of compiled programs: times loop nests of many kinds, and fits costs to them."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from glenside import __version__, models
from glenside.builder import Builder
from glenside.codegen.cost.count_work import is_shared, works
from glenside.codegen.loop_ir.ir import Role
from glenside.codegen.processor.model import MACHINES, Machine
from glenside.codegen.processor.work_record import NAMES, Work, overlapped
from glenside.codegen.runtime.compiled_function import Compiled
from glenside.egraph.search import Search
from glenside.execution.background_load import reading
from glenside.execution.fit import processor, robust
from glenside.execution.last_level_cache import last_cache
from glenside.execution.peak_rate import peak
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.threads import processors
from glenside.passes.network import fold_batch_norms, uninterrupted

ROUNDS = 60
"""Timed runs of each program; the fastest of each nest counts, since other work only slows it down."""
_PASSES = 6
"""Passes over all programs, so that changing clocks and temporary load affect all nests equally."""
_FITS = 20
"""Iterations of the fit: the overlap of work depends on the costs."""
_DIGITS = 2
"""Significant digits to which equal amounts of work agree."""
_LEAST_PART = 1 / 500
"""The fraction of a program's time below which a nest is ignored."""


@dataclass(frozen=True)
class Timed:
    """A nest: its program and its result, its work, and the measured seconds.

    together  if threads share it: its work then, and the wall-clock seconds
    """

    program: str
    name: str
    work: Work
    seconds: float
    together: tuple[Work, float] | None = None

    def error(self, nanoseconds: Work) -> float:
        """Returns the relative error of the prediction."""
        return abs(1e-9 * self.work.priced(nanoseconds) / self.seconds - 1)


@dataclass(frozen=True)
class Fit:
    """A machine with costs fitted to measured nests; `others`: processors that other processes used meanwhile."""

    machine: Machine
    nests: Sequence[Timed]
    others: float = 0

    @property
    def errors(self) -> list[float]:
        return self.errors_of(1)

    def errors_of(self, threads: int) -> list[float]:
        """Returns the relative errors of the predictions, on `threads` threads."""
        nests = self.nests if threads == 1 else _together(self.nests)
        return [nest.error(self.machine.prices(threads)) for nest in nests]


def calibrate(
    machine: Machine,
    searched: Callable[[Program], Program],
    rounds: int = ROUNDS,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Fit:
    """Measures this computer as that machine, with programs as they are and as `searched` optimizes them.

    Raises BadInput if this computer is not such a machine, or without a compiler.
    """
    machine = measured(machine)
    before = reading()
    runs = timed([program.seeded_constants(0) for program in workloads(searched)], machine, rounds, progress)
    others = reading().since(before)
    fit = fitted(machine, [nest for run in runs for nest in run.nests(processors())], processors())
    return replace(fit, others=others)


def measured(machine: Machine) -> Machine:
    """Returns a machine with the caches and the peak rate of this computer. Raises BadInput if it is not such a
    machine.
    """
    machine = _with_caches(machine)
    return replace(machine, l3=last_cache(machine), peak=peak(machine))


def timed(
    programs: Sequence[Program],
    machine: Machine,
    rounds: int = ROUNDS,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> list[Runs]:
    """Times programs in turn, on one thread and on all processors. Raises BadInput without a compiler."""
    runs, steps = list[Runs](), (1 + _PASSES) * len(programs)
    for program in programs:
        progress(len(runs), steps, f"compiling {program.name}")
        runs.append(Runs(program, machine))
    for turn in range(1, 1 + _PASSES):
        for done, run in enumerate(runs):
            progress(turn * len(runs) + done, steps, f"timing {run.name}")
            run.time(-(-rounds // _PASSES), processors())
    return runs


class Runs:
    """A compiled program, and the least seconds of its nests so far, by the number of threads."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.name, self.machine = program.name, machine
        self.compiled = Compiled(program, machine)
        self.arrays = self.compiled.drawn()
        self.seconds: dict[int, Array] = {}

    def time(self, rounds: int, threads: int) -> None:
        """Times more rounds, on one thread and on `threads`."""
        for many in {1, threads}:
            found = self.compiled.least_seconds(*self.arrays, rounds=rounds, threads=many)
            self.seconds[many] = np.minimum(found, self.seconds.get(many, np.inf))

    def nests(self, threads: int) -> list[Timed]:
        """Returns the nests that take a relevant part of the program's time."""
        loops, alone = self.compiled.loops, self.seconds[1].tolist()
        of_one = zip(works(loops, self.machine), alone, strict=True)
        of_many = zip(works(loops, self.machine, threads), self.seconds[threads].tolist(), strict=True)
        return [
            Timed(self.name, title, work, own, shared if is_shared(nest) else None)
            for (work, own), shared, nest, title in zip(of_one, of_many, loops.nests, loops.titles, strict=True)
            if own >= _LEAST_PART * sum(alone)
            and nest.buffer.role is not Role.RESULT  # which is memory that is touched first
        ]


def fitted(machine: Machine, nests: Sequence[Timed], threads: int = 1) -> Fit:
    """Fits costs to the seconds of nests, on one thread and on several: least relative errors, non-negative."""
    shared = ((threads, _fitting(_together(nests))),) if threads > 1 else ()
    return Fit(replace(machine, nanoseconds=_fitting(nests), shared=shared), nests)


def _fitting(nests: Sequence[Timed]) -> Work:
    """Fits costs that define how work overlaps: each iteration uses the overlap under the previous costs."""
    nests = _distinct(nests)
    amounts = [nest.work.amounts() for nest in nests]
    nanoseconds = 1e9 * np.array([nest.seconds for nest in nests])
    found = best = Work(*robust(np.array(amounts), nanoseconds).tolist())
    least = _mean_error(nests, best)
    for _ in range(_FITS):
        new = Work(*robust(np.array(overlapped(amounts, found)), nanoseconds).tolist())
        found = Work().plus(found, 0.5).plus(new, 0.5)
        if (error := _mean_error(nests, found)) < least:
            least, best = error, found
    return best


def _distinct(nests: Sequence[Timed]) -> list[Timed]:
    """Returns one nest per equal work of a program, with median seconds, since networks repeat their blocks."""
    equal: dict[object, list[Timed]] = {}
    for nest in nests:
        amounts = tuple(float(f"{amount:.{_DIGITS}g}") for amount in nest.work.amounts())
        equal.setdefault((nest.program, amounts), []).append(nest)
    return [replace(own[0], seconds=statistics.median(nest.seconds for nest in own)) for own in equal.values()]


def _mean_error(nests: Sequence[Timed], nanoseconds: Work) -> float:
    return statistics.mean(nest.error(nanoseconds) for nest in nests) if nests else 0.0


def _together(nests: Sequence[Timed]) -> list[Timed]:
    """Returns the nests that threads share, with their wall-clock seconds."""
    return [Timed(nest.program, nest.name, *nest.together) for nest in nests if nest.together is not None]


def described(fit: Fit, like: str, rounds: int) -> str:
    """Returns the machine as TOML for `read_machine`, with the fit and the computer."""
    machine, base, errors = fit.machine, MACHINES[like], fit.errors
    sizes = [
        f"{name} = {getattr(machine, name)}"
        for name in ("l1", "l2", "l3")
        if getattr(machine, name) != getattr(base, name)
    ]
    sizes += [f"peak = {machine.peak:.1f}"] if machine.peak else []
    lines = [
        f"# Costs of compiled programs, by `glenside calibrate`: the fastest of {rounds} runs of each of",
        f"# {len(fit.nests)} nests, on one thread and on as many as there are processors.",
        "# For --target FILE.toml, cpu:MEMORY,machine=FILE.toml or --machine FILE.toml.",
        'target = "cpu"',
        f'like = "{like}"',
        *sizes,
        "",
        "[nanoseconds]",
        *_priced(machine.nanoseconds),
        "",
        *(line for threads, work in machine.shared for line in (f"[threads.{threads}]", *_priced(work), "")),
        "[fit]",
        f"mean_error = {statistics.mean(errors):.3f}",
        f"median_error = {statistics.median(errors):.3f}",
        *(f"mean_error_of_{n} = {statistics.mean(fit.errors_of(n)):.3f}" for n, _ in machine.shared),
        f"rounds = {rounds}",
        "",
        "[machine]",
        f"processor = {processor()!r}",
        f"system = '{platform.system()} {platform.machine()}'",
        f"glenside = '{__version__}'",
        "",
    ]
    return "\n".join(lines)


def _priced(work: Work) -> Iterator[str]:
    prices = asdict(work)
    return (f"{name} = {float(f'{prices[name]:.4g}')!r}" for name in NAMES)


def _with_caches(machine: Machine) -> Machine:
    """Returns the machine with the cache sizes that the system reports."""
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
        elif (level, kind) == ("3", "Unified"):
            machine = replace(machine, l3=int(size[:-1]) << 10)
    return machine


def workloads(searched: Callable[[Program], Program]) -> Iterator[Program]:
    """Yields networks of several kinds, original and optimized, and programs without products."""
    windows = models.resnet_18(), models.unet_small()
    for network in (models.mobilenet_v2(), models.mobilenet_v3_large(), models.vit_s_16(), *windows):
        yield uninterrupted(*fold_batch_norms(network, Search()))
    large = _large_images()
    yield large
    for network in (*windows, large):
        yield replace(searched(network), name=f"{network.name}, searched")
    yield _products()
    b = Builder("elements")
    yield b.finish(build("construct-tuple", *(_elements(b, f"{n}.", *sizes) for n, sizes in enumerate(_ELEMENTS))))


def _large_images() -> Program:
    """Returns convolutions whose images exceed most caches."""
    b = Builder("large images")
    x = b.input("x", (1, 3, 224, 224))
    for number, (given, made) in enumerate(((3, 64), (64, 64), (64, 32))):
        x = b.relu(b.conv(x, b.constant(f"w{number}", (made, given, 3, 3)), padding=1))
    return b.finish(b.average_pool(x, 2, strides=2))


_PRODUCTS = ((196, (512, 512, 512, 512)), (49, (1024, 256, 1024, 256)), (320, (192, 768, 192)), (64, (384, 1536, 384)))
"""Rows of matrices, and their successive columns."""


def _products() -> Program:
    """Returns dense layers whose weights stay in the last-level cache, even in a small share of it."""
    b = Builder("products")
    results = []
    for number, (rows, sizes) in enumerate(_PRODUCTS):
        x = b.input(f"x{number}", (rows, sizes[0]))
        for step, (given, made) in enumerate(pairwise(sizes)):
            x = b.relu(b.linear(x, b.constant(f"w{number}.{step}", (made, given))))
        results.append(b.softmax(x))
    return b.finish(build("construct-tuple", *results))


_ELEMENTS = ((32, 112), (64, 56), (256, 28), (8, 224), (3, 320), (64, 192))
"""(channels, size of the image)."""


def _elements(b: Builder, at: str, channels: int, size: int) -> Term:
    """Returns elementwise sums, transposes, pools, upsampling and functions."""
    x, y = (b.input(f"{at}{name}", (1, channels, size, size)) for name in "xy")
    x = b.tanh(b.add(x, y))
    around = b.average_pool(b.pad(b.transpose(x, (0, 2, 3, 1)), ((0, 0), (1, 1), (1, 1), (0, 0))), 3)
    return build("construct-tuple", around, b.sigmoid(b.upsample(b.max_pool(x, 2, strides=2), 2)), b.softmax(x))
