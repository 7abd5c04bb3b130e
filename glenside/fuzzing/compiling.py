"""Defines doors of generated code: compiled programs on every machine, gradients, and npu programs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from glenside.check import check_gradient, is_equal, written_c
from glenside.check.compiled import CompiledReport, Function
from glenside.codegen.processor.model import MACHINES, PLAIN, is_here, machine_of
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.driver import compile as compiled_function
from glenside.driver import optimize
from glenside.fuzzing.cases import Wrong
from glenside.fuzzing.doors import Visit, door
from glenside.fuzzing.searching import LIMITS
from glenside.gradients import gradient, value_and_gradient
from glenside.ir.dtypes import FLOATS
from glenside.ir.operand import Array, arrays
from glenside.ir.program import Program
from glenside.ir.types import AccessType, TupleType
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.npu.program.results import results, with_inputs
from glenside.quantization.quantize_program import RANDOM, integers
from glenside.targets import CPU, NPU

_THREADS = (1, 1, 2, 3)
_QUICK = 0.8
"""The share of npu programs that are lowered layer by layer; others are planned for the fewest cycles."""
_ROWS, _COLUMNS, _LARGE_ARRAY = (2, 4, 8), (2, 4, 5, 8), (16, 16)
_TILES = 1 << 14
"""The most tiles of weights, each of which is emitted and simulated, of a program for a small array."""
_NOISE_LIMIT = 0.5
"""The relative noise of a quantized network above which it counts as a fault: most have about 0.01."""
_FEW = 4
"""The least elements of a result whose noise is compared."""
_DEEP = 0.35
"""The share of functions that are checked over residues and against bounds of rounding, which compiles them twice."""


@cache
def machines() -> tuple[str, ...]:
    """Returns the machines whose code this computer can run, including native."""
    return ("native", PLAIN, *(name for name, machine in MACHINES.items() if is_here(machine)))


def verdict_of(report: CompiledReport) -> str:
    """Returns the fault that a deep check found; "" if it found none or could not compare."""
    if report.faults:
        return report.faults[0]
    if report.residues != "exact" and not report.residues.startswith("not compared"):
        return report.residues
    for name, nest in report.nests.items():
        if "are off" in nest.verdict or "differs" in nest.verdict:
            return f"nest {name} {nest.verdict}"
    return ""


@door("compile", "black box", weight=4, networks=0.25, joined=True)
def compiled(visit: Visit) -> None:
    """Compiles unchanged for a machine and runs on 1 to 3 threads, against the interpreter and the deep check."""
    machine = visit.pick.choice((*machines(), PLAIN, PLAIN))  # most operators have code of their own there
    _run(visit, compiled_function(visit.valued, None, machine=machine), f"compiled for {machine}")


@door("compile-optimized", "black box", networks=0.5)
def compiled_and_optimized(visit: Visit) -> None:
    """Optimizes for the processor, compiles and runs, against the interpreter and the deep check."""
    machine = visit.pick.choice(machines())
    memory = visit.pick.choice((None, None, "1KB", "64KB"))
    target = CPU(memory) if memory else CPU()
    made = compiled_function(visit.valued, target, machine=machine, limits=LIMITS, seed=visit.seed, verify=False)
    _run(visit, made, f"optimized for {target.name}, compiled for {machine}")


@door("c", "black box", weight=0.5, networks=0.25)
def written(visit: Visit) -> None:
    """Writes C for one or two machines, and reads it back: compiled, run and compared before it gets its name."""
    names = visit.pick.sample(machines()[1:], visit.pick.choice((1, 1, 2)))
    with TemporaryDirectory() as folder:
        written_c.write([Lowered(visit.valued, machine_of(name)) for name in names], Path(folder) / "net.c")


def _run(visit: Visit, made: Function, what: str) -> None:
    for nest in made.loops.nests:
        visit.note(f"nest {nest.what}")
    threads = visit.pick.choice(_THREADS)
    deep = visit.pick.random() < _DEEP
    if deep and (said := verdict_of(made.check(seed=visit.seed))):
        raise Wrong(f"{what}: {said}")
    visit.expected.compare(f"{what} on {threads} threads", _called(made, visit.values, threads))


def _called(made: Function, values: dict[str, Array], threads: int) -> Sequence[Array]:
    given = {buffer.name: values[buffer.name] for buffer in made.inputs}
    return arrays(made(given, threads=threads))


@door("gradient", "black box", r"has no derivative", r"real", r"float", r"cotangent", networks=0.5)
def differentiated(visit: Visit) -> None:
    """Differentiates by all float tensors, and checks the gradient exactly."""
    program = visit.program
    wrt = [name for name, tensor in program.tensors.items() if tensor.dtype in FLOATS]
    kinds = program.term.type.items if isinstance(program.term.type, TupleType) else (program.term.type,)
    floats = [isinstance(kind, AccessType) and kind.dtype in FLOATS for kind in kinds]
    if not wrt or not any(floats):
        return
    made = visit.pick.choice((gradient, value_and_gradient))(program, wrt, None, "cotangent")
    report = check_gradient(program, made, wrt, seed=visit.seed)
    for name, verdict in {**report.gradients, "the value": report.value}.items():
        if verdict and not is_equal(verdict) and not verdict.startswith("not checked"):
            raise Wrong(f"the gradient by {name}: {verdict}")


@door("npu", r".", weight=2, networks=1.0)
def instructed(visit: Visit) -> None:
    """Quantizes, makes an npu program, and runs it in the simulator, against the layers' meaning and the floats."""
    pick = visit.pick
    target = NPU(*pick.choice(arrays_for(visit.program)))
    inputs = {n: visit.values[n] for n, t in visit.program.inputs.items() if t.dtype in FLOATS}
    quantized = integers(visit.valued, inputs or RANDOM, visit.seed)
    assert quantized is not None
    result = optimize(quantized.network.program, target, seed=visit.seed, verify=False, limits=LIMITS)
    result.require_mapped()
    quick = pick.random() < _QUICK
    visit.note(f"lowered {'layer by layer' if quick else 'to the fewest cycles'}")
    made = with_inputs(target.network_code(result, quantized.network, visit.seed, quick=quick), inputs)
    run = execute.run(made)
    if names := wrong(made, run.dram):
        raise Wrong(f"on {target.name} the layers {', '.join(names)} compute other bytes than they should")
    if made.predicted is not None and run.cycles != made.predicted:
        raise Wrong(f"on {target.name} it takes {run.cycles} cycles, and {made.predicted} were predicted")
    for (name, found), want in zip(results(made, run.dram).items(), visit.expected.results, strict=True):
        if (noise := _noise(found, want)) > _NOISE_LIMIT:
            raise Wrong(f"on {target.name} the result {name} has a noise of {noise:.2f} relative to floats")


def arrays_for(program: Program) -> list[tuple[int, int]]:
    """Returns sizes of arrays on which the program has a moderate number of tiles."""
    elements = sum(prod(tensor.dims) for tensor in program.tensors.values())
    sizes = [size for size in product(_ROWS, _COLUMNS) if elements <= _TILES * prod(size)]
    return sizes or [_LARGE_ARRAY]


def _noise(found: Array, want: Array) -> float:
    """Returns the root mean square of differences relative to that of the wanted values.

    0 if values are not finite, all 0, or so few that sums of many bytes may cancel in all of them.
    """
    if want.size < _FEW:
        return 0.0
    with np.errstate(all="ignore"):
        exact, own = want.astype(np.float64), np.asarray(found, np.float64)
        noise = np.sqrt(np.mean(np.square(own - exact)) / np.mean(np.square(exact))) if exact.size else np.float64(0)
    return float(noise) if np.isfinite(noise) else 0.0
