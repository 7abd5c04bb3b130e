"""Calibrates the cost of a party's own computation: times programs of one kind of work each, and fits costs to them."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from glenside.builder import Builder
from glenside.builder.pointwise import add, multiply, relu
from glenside.execution.fit import non_negative, processor
from glenside.execution.spu.session import DIRECT, JAX_VERSION, VERSION, Job, measure
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.targets.mpc.costs import NAMES, Costs, counts
from glenside.targets.mpc.semi2k import Semi2k
from glenside.targets.mpc.traffic import counted, program_traffic
from glenside.targets.mpc.work import program_work

RUNS = 7
"""Number of timed runs of each program. The fastest counts, since other work can only slow a run down."""


# The transforms of a window in Winograd's F(2, 3) and F(4, 3).
_F2 = "1 0 -1 0 0 1 1 0 0 -1 1 0 0 1 0 -1"
_F4 = "4 0 -5 0 1 0 0 -4 -4 1 1 0 0 4 -4 -1 1 0 0 -2 -1 2 1 0 0 2 -1 -2 1 0 0 4 0 -5 0 1"


@dataclass(frozen=True)
class Fit:
    """Costs, and for each program the measured and predicted seconds, by name."""

    costs: Costs
    programs: Mapping[str, tuple[float, float]]

    @property
    def median_error(self) -> float:
        """The median relative error of predictions."""
        return statistics.median(self._errors())

    @property
    def largest_error(self) -> float:
        """The largest relative error of predictions."""
        return max(self._errors())

    def _errors(self) -> list[float]:
        return [abs(predicted - seconds) / seconds for seconds, predicted in self.programs.values()]


def calibrate(protocol: Semi2k, runs: int = RUNS, progress: Callable[[int, int], None] = lambda *_: None) -> Fit:
    """Measures over a direct link between two processes. Raises BadInput if SPU is not available."""
    programs = dict(workloads())
    random = np.random.default_rng(0)
    jobs = [_job(program, random, runs) for program in programs.values()]
    found = measure(jobs, {}, protocol.field, progress=progress)
    return fitted(programs, [min(outcome.seconds[DIRECT]) for outcome in found], protocol)


def fitted(programs: Mapping[str, Program], seconds: Sequence[float], protocol: Semi2k) -> Fit:
    """Fits costs to the seconds of programs."""
    rows = [_counts(program, protocol) for program in programs.values()]
    matrix = np.array([[row[name] for name in NAMES] for row in rows], float)
    found = non_negative(matrix, np.asarray(seconds))
    predicted = matrix @ found
    costs = Costs(*(float(1e9 * value) for value in found))
    return Fit(costs, {n: (float(s), float(t)) for n, s, t in zip(programs, seconds, predicted, strict=True)})


def described(fit: Fit, protocol: Semi2k, runs: int) -> str:
    """Returns the costs as TOML for `load_costs`, with the fit, the machine and the versions."""
    from glenside import __version__

    numbers = [f"{name} = {float(f'{value:.4g}')!r}" for name, value in asdict(fit.costs).items()]
    machine = {
        "processor": processor(),
        "cores": os.cpu_count() or 0,
        "system": f"{platform.system()} {platform.machine()}",
        "threads of a party": 1,
        "spu": VERSION,
        "jax": JAX_VERSION,
        "glenside": __version__,
    }
    lines = [
        f"# Costs of a party's own computation, by `glenside calibrate`: the fastest of {runs} runs of each program",
        "# over a direct link between two processes of one machine. For --target FILE.toml, or mpc:semi2k,costs=FILE.",
        'target = "mpc"',
        'protocol = "semi2k"',
        f"field = {protocol.field}",
        "",
        "[nanoseconds]",
        *numbers,
        "",
        "[fit]",
        f"median_error = {fit.median_error:.3f}",
        f"largest_error = {fit.largest_error:.3f}",
        f"runs = {runs}",
        "",
        "[fit.programs]  # milliseconds: measured, predicted",
        *(f"{json.dumps(n)} = [{1e3 * s:.2f}, {1e3 * t:.2f}]" for n, (s, t) in fit.programs.items()),
        "",
        "[machine]",
        *(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in machine.items()),
        "",
    ]
    return "\n".join(lines)


def _counts(program: Program, protocol: Semi2k) -> dict[str, int]:
    sent = counted(program_traffic(program, protocol=protocol))
    return {**counts(sent, program_work(program), protocol.share), "program": 1}


def _job(program: Program, random: np.random.Generator, runs: int) -> Job:
    values = {name: random.standard_normal(t.dims).astype(t.dtype) / 8 for name, t in program.tensors.items()}
    return Job(program, values, links=(DIRECT,), runs=runs)


def workloads() -> Iterator[tuple[str, Program]]:
    """Yields programs, by name, that together determine all costs."""
    for program in (*_products(), *_elements(), *_movement()):
        yield program.name, program


def _products() -> Iterator[Program]:
    """Yields products of a pair of matrices, of a batch of them, and convolutions, whose windows are copied."""
    for m, k, n in ((16, 16, 16), (1024, 64, 64), (1024, 576, 64), (64, 576, 512), (16, 2048, 256), (384, 384, 384)):
        b = Builder(f"product {m} {k} {n}")
        yield b.finish(b.linear(b.input("x", (m, k)), b.input("w", (n, k))))
    for groups, m, k, n in ((16, 64, 64, 64), (36, 16, 32, 16), (64, 64, 9, 2)):
        b = Builder(f"{groups} products {m} {k} {n}")
        x, w = (build("access", b.input(name, (groups, rows, k)), 2) for name, rows in (("x", m), ("w", n)))
        yield b.finish(build("compute", "dot-product", build("access-product", x, w, 1)))
    for channels, size, filters in ((16, 32, 16), (64, 16, 64), (32, 8, 256)):
        b = Builder(f"convolution {channels} {size} {filters}")
        x, w = b.input("x", (1, channels, size, size)), b.input("w", (filters, channels, 3, 3))
        yield b.finish(b.conv(x, w, padding=1))


def _elements() -> Iterator[Program]:
    """Yields circuits, products, truncations and sums of elements."""
    for size in (64, 4_096, 65_536):
        b = Builder(f"relu {size}")
        yield b.finish(relu(b.input("x", (size,))))
    for size in (64, 65_536, 262_144):
        b = Builder(f"products of elements {size}")
        yield b.finish(multiply(b.input("x", (size,)), b.input("y", (size,))))
    for size in (4_096, 262_144):
        b = Builder(f"elements scaled {size}")
        yield b.finish(multiply(b.input("x", (size,)), b.full((size,), "1/3")))
    for size, count in ((64, 48), (262_144, 4)):
        b = Builder(f"{count} additions {size}")
        yield b.finish(_sum([b.input(f"x{i}", (size,)) for i in range(count + 1)]))


def _movement() -> Iterator[Program]:
    """Yields windows, sums of windows, and the transforms of Winograd's algorithms."""
    for size, channels in ((32, 16), (8, 64)):
        b = Builder(f"windows {size} {channels}")
        x = build("access-pad", b.input("x", (1, channels, size, size)), "zero-padding", 2, 1, 1)
        yield b.finish(build("access-windows", build("access", x, 2), (3, 3), (1, 1)))
    for images, size, channels in ((1, 32, 64), (16, 8, 16)):
        b = Builder(f"overlap-add {images} {size} {channels}")
        x = build("access-transpose", b.input("x", (images, size, size, channels, 3)), (0, 1, 3, 2, 4))
        yield b.finish(build("access-overlap-add", build("access", x, 4), (size + 2,), (1,)))
    for rows, size, channels, coefficients in ((4, 16, 64, _F2), (6, 8, 16, _F4)):
        b = Builder(f"transform {rows} {size} {channels}")
        yield b.finish(build("linear-map", b.input("x", (rows, size, size, channels)), 0, rows, coefficients))


def _sum(terms: Sequence[Term]) -> Term:
    total = terms[0]
    for term in terms[1:]:
        total = add(total, term)
    return total
