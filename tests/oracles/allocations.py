"""Measures what numpy really allocates while the interpreter runs a program."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import numpy as np

import glenside as gl
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, rebuild
from glenside.semantics import Native
from glenside.semantics.interpreter import Run, evaluate


def measured_peak(program: Program, seed: int = 0) -> int:
    """Returns the peak bytes without the interpreter's own tables; terms over constants alone are computed before."""
    folded = gl.fold(program.seeded_constants(seed))
    values: dict[str, np.ndarray] = dict(folded.constants) | inputs(folded, seed)
    evaluate([folded.term], values)  # what is imported or kept at the first run is no part of it
    taken = _traced(lambda: evaluate([folded.term], values))
    return taken - _kept(lambda: Run([folded.term], values, Native(), {}, keep_roots=True))


def inputs(program: Program, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {n: random.integers(0, 2, t.dims).astype(t.dtype) for n, t in program.inputs.items()}


def _traced(work: Callable[[], object]) -> int:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def _kept(make: Callable[[], object]) -> int:
    """Returns the bytes of the result, without temporaries."""
    gc.freeze()  # what other tests left is not looked at, which takes a second
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        made = make()
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
        del made
        return kept
    finally:
        tracemalloc.stop()


def tiled(program: Program, rows: int) -> Program:
    """Returns the program with every product as the instruction of a plain processor."""

    def tile(term: Term, children: tuple[Term, ...]) -> Term | None:
        if not is_product(term):
            return None
        a, b = children[0].children
        return build("tiled-product", a, b, children[0].attributes[0], rows)

    return Program(rebuild(program.term, tile), program.name, constants=program.constants)
