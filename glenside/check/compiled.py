"""Checks compiled programs: the loops exactly over residues, and each nest against a bound of its rounding error.

Over residues modulo a prime the loops must give every residue of the interpreter: sums in any order, and Winograd's
fractions, are exact there. On the machine, results have rounding errors. So each nest runs alone, on the contents of
memory when it begins, and each element must be within the bound of `glenside.codegen.verify.rounding_bounds`.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Lock
from typing import Any

import numpy as np

from glenside.check.comparison import difference
from glenside.check.confined import Confined
from glenside.check.indices import index_limits, picks
from glenside.check.input_generators import draw_reals, draw_residues, drawn_within
from glenside.check.verdicts import EXACT
from glenside.codegen.loop_ir.ir import For, Loops, Nest, Role, Statement, When
from glenside.codegen.loop_ir.step_loops import groups
from glenside.codegen.runtime.arguments import pointers
from glenside.codegen.runtime.compile_and_load import loaded
from glenside.codegen.runtime.compiled_function import Compiled, Lowered, completed
from glenside.codegen.scheduling.constant_packing import Memory
from glenside.codegen.verify.residue_program import GROWTH, residues
from glenside.codegen.verify.rounding_to_levels import bounds, unsure
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.dtypes import REALS, RECORDS, fraction_bits, name_of
from glenside.ir.errors import BadInput, GlensideError, OutOfBounds
from glenside.ir.operand import Array, arrays
from glenside.ir.types import Tensor
from glenside.semantics import Native
from glenside.semantics.interpreter import evaluate
from glenside.semantics.loop_field import LoopField
from glenside.semantics.prime_field import PRIMES

_MODULO = Lock()
"""Held while a library runs modulo one prime: the prime is global to the library, which threads may share."""
_WITHIN = "within its bound"
_GIVEN = (Role.INPUT, Role.CONSTANT)
_PAIR = np.dtype([("v", np.float64), ("e", np.float64)])
_LEVEL = np.dtype([("v", np.int64), ("less", np.float64), ("more", np.float64)])
_OWN_ROUNDING = 1e-6
"""Relative error of a bound, which is computed in float64."""


@dataclass(frozen=True)
class NestRounding:
    """The rounding error of a nest's results.

    share    largest error relative to the bound: 1 is at the bound
    bound    largest bound relative to the largest number of the nest; inf where there is no bound
    verdict  "within its bound", or a sentence
    """

    share: float
    bound: float
    verdict: str


@dataclass(frozen=True)
class CompiledReport:
    """The verdicts of `f.check()`.

    faults    errors of the loops or of their buffers in memory; empty if there are none
    residues  "exact", or a sentence with the difference
    nests     what each nest stores -> its rounding, in order of execution
    how       one sentence: the kind of numbers and the seed
    """

    faults: list[str]
    residues: str
    nests: dict[str, NestRounding]
    how: str
    seconds: float

    @property
    def ok(self) -> bool:
        """True if there are no faults, residues are exact and every nest is within its bound."""
        rounded = all(nest.verdict == _WITHIN for nest in self.nests.values())
        return not self.faults and self.residues == EXACT and rounded

    @property
    def wrong(self) -> list[str]:
        """The failures, a sentence each."""
        residues = [f"residues: {self.residues}"] if self.residues != EXACT and not self.faults else []
        return [*self.faults, *residues, *self._off]

    @property
    def _off(self) -> list[str]:
        return [f"{name}: {nest.verdict}" for name, nest in self.nests.items() if nest.verdict != _WITHIN]

    def __str__(self) -> str:
        wrong = self._off
        share = max((nest.share for nest in self.nests.values()), default=0.0)
        within = f"{len(self.nests) - len(wrong)} of {len(self.nests)} nests, to {share:.2g} of it"
        lines = [f"residues: {self.residues}", f"within bounds of rounding: {within}", *self.faults, *wrong]
        return "\n".join([*lines, f"{self.how} ({self.seconds:.2f} s)"])


class CheckFailed(GlensideError):
    """The error that compiled code is wrong, or not proved right: nothing is returned or written."""

    status = 1


class Function(Compiled):
    """A compiled program, as `gl.compile` returns it (see `Compiled`); `check` compares it with its program."""

    def checked(self) -> Function:
        """Returns the function if its check passes. Raises CheckFailed with the failures."""
        report = self.check()
        if not report.ok:
            raise CheckFailed(f"{self.program.name} as compiled fails its check: {'; '.join(report.wrong)}")
        return self

    def check(self, *, seed: int = 0) -> CompiledReport:
        """Compares the loops over residues with the interpreter, and each nest with the bound of its rounding error.

        First, residues are drawn for all tensors; then normal inputs, with the constants' own values. Raises BadInput
        when the compiler does not run.
        """
        started = time.perf_counter()
        found = faults(self.loops, self.arena)
        exact, nests = "not compared: the loops are wrong", {}
        if not found:  # the loops access their buffers only
            exact = next((said for p in PRIMES if (said := self._residues(p, seed + PRIMES.index(p))) != EXACT), EXACT)
            nests = self._rounding(seed)
        how = f"random residues modulo {' and '.join(map(str, PRIMES))}, normal numbers, seed {seed}"
        return CompiledReport(found, exact, nests, how, time.perf_counter() - started)

    # The same loops over residues.

    def _residues(self, p: int, seed: int) -> str:
        term = self.program.term
        arithmetic, limits = LoopField(p), index_limits(term)
        draw = partial(_whole, seed=seed, p=p)
        values = {n: drawn_within(draw, t, limits.get(n)) for n, t in self.program.tensors.items()}
        known = {n: array for n, array in self.program.constants.items() if array.size == 1}  # parts of the loops
        values |= known
        try:
            return self._compared(values, arithmetic)
        except OutOfBounds as error:
            moved = Confined(picks(term)).settle(values, arithmetic, known, whole=True)
            return f"not compared: {error}" if moved is None else self._compared(moved, arithmetic)

    def _compared(self, values: Mapping[str, Array], arithmetic: LoopField) -> str:
        """Returns the verdict on the residues of these values. Raises OutOfBounds."""
        term, p = self.program.term, arithmetic.p
        constants = {name: values[name] for name in self.program.constants_declared}
        residual = replace(self.program, constants=constants)
        drawn = Lowered(residual, self.machine, schedule=self._lowered.schedule, verified=False)
        if drawn.source != self.source:
            return "other constants make other loops, which is a mistake of the compiler"
        try:
            found = _over(arithmetic, drawn, values, self._modular)
        except OutOfBounds:
            raise
        except BadInput as error:
            return f"not compared: {error}"
        want = arrays(evaluate([term], values, arithmetic)[0])
        said = (difference(a, b) for a, b in zip(want, found, strict=True))
        wrong = next((f"result {i + 1} {text} modulo {p}" for i, text in enumerate(said) if text), "")
        return wrong or EXACT

    @cached_property
    def _modular(self) -> Any:
        """The compiled library of the loops over residues, for both primes. Raises BadInput."""
        source = residues(self.loops, [LoopField(p) for p in PRIMES])
        return loaded(source, None, steps=_steps(self.loops)).library

    # The machine's own numbers.

    def _rounding(self, seed: int) -> dict[str, NestRounding]:
        limits = index_limits(self.program.term)
        draw, constants = partial(draw_reals, seed=seed), self.program.constants
        inputs = {b.name: drawn_within(draw, self.program.tensors[b.name], limits.get(b.name)) for b in self.inputs}
        held = Confined(picks(self.program.term)).settle({**inputs, **constants}, Native(), constants)
        if held is None:
            return {"1": NestRounding(0.0, np.inf, "not compared: an index of every drawn input is outside its axis")}
        run = _Nests(self, held)
        found: dict[str, NestRounding] = {}
        begin = 0
        for counter, nests in groups(self.loops.nests):
            for step in range(1 if counter is None else counter.size):
                for number, nest in enumerate(nests, begin):
                    dims, when = " ".join(map(str, nest.buffer.dims)), "" if counter is None else f", step {step + 1}"
                    found[f"{number + 1}: {nest.buffer} ({dims}): {nest.what}{when}"] = run.step(number, nest, step)
            begin += len(nests)
        return found


def _steps(loops: Loops) -> int:
    """Returns how often the statements of loops run."""

    def of(body: Sequence[Statement]) -> int:
        return sum(
            one.axis.size * of(one.body) if isinstance(one, For) else of(one.body) if isinstance(one, When) else 1
            for one in body
        )

    return sum(of(nest.body) * (nest.steps.size if nest.steps is not None else 1) for nest in loops.nests)


def _whole(tensor: Tensor, limit: int | Array | None = None, *, seed: int, p: int) -> Array:
    """Residues as numbers that the dtype holds: of halves fewer."""
    drawn = draw_residues(tensor, limit, seed=seed, p=p)
    if tensor.dtype not in REALS:
        return drawn
    most = 1 << (fraction_bits(tensor.dtype) + 1)
    return (drawn if most > p // 2 else np.fmod(drawn, most)).astype(tensor.dtype)


def _over(arithmetic: LoopField, lowered: Lowered, values: Mapping[str, Array], library: Any) -> list[Array]:
    """Runs the compiled loops over residues, and returns the results. Raises BadInput."""
    loops = lowered.loops
    known = lowered.constants | {b: values[b.name] for b in lowered.inputs}
    buffers = [b for b in loops.buffers if b.role in _GIVEN]
    given = [
        known[b] if b.nibbles else np.ascontiguousarray(arithmetic.encode(b.name, known[b], b.dtype)) for b in buffers
    ]
    made = {b: np.empty(tuple(b.dims), np.float32 if b.dtype in REALS else b.dtype) for b in lowered.results}
    memory = Memory([lowered.arena.size * GROWTH]).array(lowered.arena.size * GROWTH, np.uint8)
    results = pointers([made[b] for b in loops.buffers if b.role is Role.RESULT])
    with _MODULO:
        library.modulo(PRIMES.index(arithmetic.p))
        status = library.run(pointers(given), results, ctypes.c_void_p(memory.ctypes.data), None, None)
    completed(loops, status)
    return [made[b] for b in loops.results]


class _Nests:
    """A compiled program that runs nest by nest, with the bounds of each nest.

    views  buffer -> a view of its elements in memory
    """

    def __init__(self, compiled: Function, inputs: Mapping[str, Array]) -> None:
        self.loops, self.library = compiled.loops, compiled.library
        self.bounds: Any = loaded(bounds(compiled.loops), None, steps=_steps(compiled.loops)).library
        known = compiled.constants | {b: np.ascontiguousarray(inputs[b.name]) for b in compiled.inputs}
        size = compiled.arena.bytes_of(1)
        self.memory = Memory([size]).array(size, np.uint8)
        self.memory[:] = 0  # elements that no nest writes are compared too
        self.views = {b: known[b] for b in self.loops.buffers if b.role in _GIVEN}
        for buffer in self.loops.buffers:
            count, dtype = buffer.dims.product(), RECORDS[buffer.dtype].numpy
            if buffer in compiled.arena.places:
                first = compiled.arena.places[buffer]
                self.views[buffer] = self.memory[first : first + count * dtype.itemsize].view(dtype)
            elif buffer.role is Role.RESULT:
                self.views[buffer] = np.zeros(count, dtype)
        given = [self.views[b] for b in self.loops.buffers if b.role in _GIVEN]
        results = [self.views[b] for b in self.loops.buffers if b.role is Role.RESULT]
        self.where = pointers(given), pointers(results), ctypes.c_void_p(self.memory.ctypes.data)

    def step(self, number: int, nest: Nest, step: int) -> NestRounding:
        """Runs a nest, in a step of the loop around it, and the bounds of its rounding on the same memory contents.

        Raises BadInput.
        """
        buffer, levels = nest.buffer, nest.buffer in (unsure(nest) or ())
        which = ctypes.c_int64(number), ctypes.c_int64(step)
        before = self.memory.copy()
        completed(self.loops, self.library.run_nest(*which, *self.where, None))
        got = self.views[buffer].reshape(-1)
        kind = np.dtype(np.uint8) if buffer.dtype == "bool" else got.dtype  # for bool, 2 and more: undecided
        own = np.zeros(max(1, got.size), _PAIR if buffer.dtype in REALS else _LEVEL if levels else kind)
        if own.dtype.names:
            own["v"][: got.size] = got
        else:
            own[: got.size] = got
        place = ctypes.c_void_p(own.ctypes.data)
        now = self.memory.copy()
        self.memory[:] = before  # the nest may have overwritten an operand
        completed(self.loops, self.bounds.run(*which, *self.where, place))
        self.memory[:] = now
        undecided = bool(self.bounds.was_undecided())
        own = own[: got.size]
        if undecided:
            return NestRounding(0.0, np.inf, "not bounded: what it chooses may depend on rounding")
        if levels:
            return _levels(own, got)
        if buffer.dtype not in REALS:
            sure = own < 2 if buffer.dtype == "bool" else np.full(own.shape, True)
            return _whole_numbers(own[sure], got[sure].astype(kind, copy=False))
        return _floats(own["v"], own["e"] * (1 + _OWN_ROUNDING), got.astype(np.float64))


def _levels(want: Array, got: Array) -> NestRounding:
    """Compares integers with the intervals that rounding allows, modulo 2^bits."""
    turn = 1 << RECORDS[name_of(got.dtype)].bits
    above = (got.astype(np.int64) - want["v"]) % turn
    share = np.where(above == 0, 0.0, np.minimum(_share(above, want["more"]), _share(turn - above, want["less"])))
    wrong = np.flatnonzero(share > 1)
    most = float(np.max(np.maximum(want["less"], want["more"]), initial=0.0))
    if (want["less"] + want["more"] >= turn).any():
        return NestRounding(0.0, np.inf, "not bounded: rounding may lead anywhere")
    said = f"{wrong.size:,} of {got.size:,} elements are off, by more than {most:.3g}" if wrong.size else _WITHIN
    largest = float(np.max(np.abs(want["v"]), initial=0))
    return NestRounding(float(share.max(initial=0.0)), most / largest if largest else most, said)


def _share(distance: Array, bound: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.where(bound > 0, distance / bound, np.inf))


def _whole_numbers(want: Array, got: Array) -> NestRounding:
    wrong = np.flatnonzero(want != got)
    said = f"differs in {wrong.size:,} of {got.size:,} elements" if wrong.size else _WITHIN
    return NestRounding(np.inf if wrong.size else 0.0, 0.0, said)


def _floats(want: Array, bound: Array, got: Array) -> NestRounding:
    with np.errstate(all="ignore"):
        error = np.where((want == got) | (np.isnan(want) & np.isnan(got)), 0.0, np.abs(got - want))
        share = np.where(error == 0, 0.0, np.where(np.isinf(bound), 0.0, error / bound))
    share = np.where(np.isnan(share), np.inf, share)
    finite = np.isfinite(want)
    largest = float(np.max(np.abs(want[finite]), initial=0.0))
    most = float(np.max(bound[finite], initial=0.0))
    relative = most / largest if largest else most
    wrong = np.flatnonzero(share > 1)
    if wrong.size:
        at = int(wrong[0])
        off = f"the first by {error[at]:.3g}, where {bound[at]:.3g} is the bound"
        return NestRounding(float(share.max()), relative, f"{wrong.size:,} of {got.size:,} elements are off, {off}")
    if np.isinf(bound[finite]).any():
        return NestRounding(float(share.max(initial=0.0)), np.inf, "not bounded: rounding may lead anywhere")
    return NestRounding(float(share.max(initial=0.0)), relative, _WITHIN)
