"""Tests programs in which computed indices meet a changed layout: readers find every element."""

from __future__ import annotations

import layout_programs
import numpy as np
import pytest
from fuzzing import Fuzzing

import glenside as gl
from glenside.builder import indexing, layout, pointwise
from glenside.check.compiled import Function
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, is_here
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.dtypes import COMPUTED, RECORDS
from glenside.ir.operand import Array, arrays
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.semantics.loop_field import LoopField

HERE = [machine for machine in MACHINES.values() if is_here(machine)]
FIELD = LoopField()


def _lowers(seed: int) -> None:
    """Nothing is wrong with the loops for any machine, and for one of them they are right to the last residue."""
    program, limits = layout_programs.program(seed)
    values = {**layout_programs.values(program, limits, seed), **program.constants}
    for machine in (None, *MACHINES.values()):
        loops = lower(program, machine)
        assert faults(loops, arena(loops)) == [], (seed, machine)
    chosen = list(MACHINES.values())[seed % len(MACHINES)]
    want = arrays(gl.evaluate([program.term], values, FIELD)[0])
    for a, b in zip(want, interpret(lower(program, chosen), values, FIELD), strict=True):
        assert (a == b).all(), (seed, chosen)


def _compiles(seed: int) -> None:
    """Compiled for a machine that this computer is, on 1 to 3 threads, it gives what the interpreter does."""
    program, limits = layout_programs.program(seed)
    values = layout_programs.values(program, limits, seed)
    machines = [None, *HERE]
    f = Function(program, machines[seed % len(machines)])
    want = arrays(gl.evaluate([program.term], {**values, **program.constants})[0])
    for threads in (1, 2, 3):
        found = f(values, threads=threads)
        terms = program.term.children if isinstance(found, tuple) else [program.term]
        for term, a, b in zip(terms, want, found if isinstance(found, tuple) else [found], strict=True):
            assert _chooses(term) or _near(a, b), (seed, f.machine, threads)
    report = f.check()
    assert report.residues == "exact", (seed, report)
    assert not report.faults, (seed, report)
    assert not any("are off" in nest.verdict or "differs" in nest.verdict for nest in report.nests.values()), seed


def _chooses(term: Term) -> bool:
    """True for the place of the least or greatest float: functions that round otherwise may make it another one."""
    own = term.operator.name == "compute" and str(term.attributes[0]).startswith("arg")
    return own and term.children[0].access.dtype.startswith("float")


def _near(a: Array, b: Array) -> bool:
    """Integers exactly, floats but for sums in another order; inputs are small integers."""
    if a.dtype.kind in "iub":
        return bool((a == b).all())
    tolerance = {2: 2e-2, 4: 1e-4, 8: 1e-9}[a.dtype.itemsize]
    return np.allclose(a.astype(np.float64), b.astype(np.float64), tolerance, tolerance, equal_nan=True)


def test_random_programs() -> None:
    for seed in range(12):
        _lowers(seed)


@pytest.mark.slow
@pytest.mark.needs_compiler
def test_random_programs_compiled() -> None:
    for seed in range(4):
        _compiles(seed)


@pytest.mark.slow
def test_many_random_programs(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(400, 1000):
        _lowers(seed)


@pytest.mark.slow
@pytest.mark.needs_compiler
def test_many_random_programs_compiled(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(200, 5000):
        _compiles(seed)


def _computed(dims: tuple[int, ...], dtype: str) -> tuple[gl.Builder, Term]:
    b = gl.Builder("p")
    x = b.input("x", dims, dtype)
    kind = "logical-not" if dtype == "bool" else "(clip -3 3)" if not dtype.startswith("u") else "relu"
    return b, pointwise.compute(kind, x)


def _indices(b: gl.Builder, *dims: int) -> Term:
    return b.input("i", dims, "int64")


READ = {
    "gather": lambda b, y: layout.gather(y, _indices(b, 2), 0),
    "gather-nd": lambda b, y: indexing.gather_nd(y, _indices(b, 3, 1)),
    "scatter-nd": lambda b, y: pointwise.combine(
        "maximum",
        *[indexing.scatter_nd(y, _indices(b, 3, 1), b.input("u", (3, *y.access.dims[1:]), y.access.dtype))] * 2,
    ),
    "top": lambda b, y: indexing.top(y, 3, 1)[0],
    "argsort": lambda b, y: layout.split_at(build("compute", "(argsort ascending)", layout.split_at(y, 0)), 0),
}


@pytest.mark.parametrize("dtype", COMPUTED)
@pytest.mark.parametrize("name", READ)
def test_padded_rows(name: str, dtype: str) -> None:
    """Rows of 2,048 and 4,096 bytes, which lowering pads, are read correctly in every dtype."""
    if dtype == "bool" and name == "scatter-nd":
        return
    width = 2048 // RECORDS[dtype].numpy.itemsize
    for size in (width, 2 * width):
        b, y = _computed((4, size), dtype)
        program = b.finish(READ[name](b, y))
        draw = np.random.default_rng(size)
        values = {
            n: draw.integers(0, 2 if t.dtype == "bool" else 4, t.dims).astype(RECORDS[t.dtype].numpy)
            for n, t in program.tensors.items()
        }
        loops = lower(program, MACHINES["avx2"])
        assert faults(loops, arena(loops)) == []
        for want, got in zip(arrays(gl.evaluate([program.term], values)[0]), interpret(loops, values), strict=True):
            assert (want == got).all()


def test_numbers_in_padded_rows() -> None:
    """What a program spells out is put where its buffer has it, like anything else."""
    numbers = build("numbers", (2, 256), " ".join(map(str, range(512))), "float64")
    b = gl.Builder("p")
    at = b.input("i", (2,), "int64")
    program = b.finish(
        layout.gather(pointwise.add(layout.gather(numbers, at, 0), b.input("x", (2, 256), "float64")), at, 0)
    )
    values: dict[str, Array] = {"i": np.array([1, 0]), "x": np.ones((2, 256))}
    for machine in MACHINES.values():
        loops = lower(program, machine)
        assert faults(loops, arena(loops)) == []
        assert (interpret(loops, values)[0] == gl.evaluate([program.term], values)[0]).all()


@pytest.mark.needs_compiler
@pytest.mark.parametrize("width", [512, 1000, 1024, 2048])
def test_products_then_gather(width: int) -> None:
    """The case that was reported: a product whose rows are read at computed places."""
    b = gl.Builder("p")
    x, w = b.input("x", (2, 16, 64)), b.constant("w", (64, width))
    program: Program = b.finish(layout.gather(b.matmul(x, w), build("numbers", (2,), "0 5", "int64"), 1))
    program = program.seeded_constants(0)
    given = np.random.default_rng(0).standard_normal((2, 16, 64)).astype(np.float32)
    found = gl.compile(program, "none")(given)
    assert np.allclose(found, (given @ program.constants["w"])[:, [0, 5]], atol=1e-4)


def _appends(seed: int) -> None:
    program = layout_programs.appended(seed)
    for machine in (None, *MACHINES.values()):
        loops = lower(program, machine)
        assert faults(loops, arena(loops)) == [], (seed, machine)


def test_products_put_into_something_larger() -> None:
    """Their rows and columns are strided: prefetches are outside of the loops over them."""
    for seed in (156, *range(12)):
        _appends(seed)


@pytest.mark.slow
def test_many_products_put_into_something_larger(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(1000):
        _appends(seed)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_row_is_appended_to_a_cache(machine: str, dtype: str) -> None:
    """The case that was reported, of attention: a new row for each of 12 heads, behind 128 others."""
    b = gl.Builder("p")
    y = b.linear(b.input("x", (1, 768), dtype), b.constant("w", (768, 768), dtype))
    y = layout.transpose(layout.reshape(y, (1, 1, 12, 64)), (0, 2, 1, 3))
    program = b.finish(layout.concatenate([b.input("p", (1, 12, 128, 64), dtype), y], 2)).seeded_constants(0)
    loops = lower(program, MACHINES[machine])
    assert faults(loops, arena(loops)) == []
