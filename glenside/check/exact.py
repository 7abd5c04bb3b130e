"""Exact equality of two programs: both run on the same random numbers, and every element must be the same.

Programs of integers run natively. Real-valued programs run in two prime fields: there sums, products and quotients are
exact, so programs that are equal for all reals give equal residues whatever the order of their operations, and others
give equal residues by chance only. Constants are random too, so that nothing folded can hide a difference.

Layers are compared by name. A layer that differs may only follow one that does, so when anything differs each such
layer runs alone, on the original's values of the layers before it. When every layer is equal in that way, all are equal
in the whole program too, by induction along it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from glenside.check.comparison import Clock, OutOfTime, Progress, Trial, difference, digest, observe, steps
from glenside.check.stimuli import declared, draw_integers, draw_residues, index_limits, is_real, opaque_limit
from glenside.ir.errors import GlensideError
from glenside.ir.operand import Array
from glenside.ir.operators.opaque import name_of
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.ir.types import Tensor
from glenside.semantics import Native
from glenside.semantics.interpreter import evaluate
from glenside.semantics.prime_field import PRIMES, PrimeField

EXACT = "exact"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The verdicts of `check`: "exact", or a sentence that says what differs or why it was not checked.

    layers    layer name -> verdict, for the layers of both programs, in the order of the original
    result    the verdict on the programs' results
    how       one sentence: which numbers, which seed, what stands for functions of reals
    stopped   "", "time-limit" or "interrupted"
    """

    layers: dict[str, str]
    result: str
    how: str
    seconds: float
    stopped: str = ""

    @property
    def ok(self) -> bool:
        """Whether the result and every layer are exact."""
        return self.result == EXACT and all(verdict == EXACT for verdict in self.layers.values())

    def __str__(self) -> str:
        wrong = [f"{name}: {verdict}" for name, verdict in self.layers.items() if verdict != EXACT]
        lines = [
            f"result: {self.result}",
            f"layers: {len(self.layers) - len(wrong)} of {len(self.layers)} exact",
            *wrong,
        ]
        return "\n".join([*lines, f"{self.how} ({self.seconds:.2f} s)"])


class _Numbers(Native):
    """Numbers that remember which functions a pseudo-random one stood for: numpy's integers as they are."""

    @cached_property
    def replaced(self) -> set[str]:
        return set()

    def opaque(self, key: str, operands: Sequence[Array], dims: Sequence[int], dtype: str) -> Array:
        self.replaced.add(name_of(key))
        return super().opaque(key, operands, dims, dtype)


class _Field(_Numbers, PrimeField):
    """A prime field that remembers the same, of functions of reals too."""

    def _scatter(self, function: str, x: Array) -> Array:
        self.replaced.add(function)
        return super()._scatter(function, x)


def check(
    original: Program,
    optimized: Program,
    *,
    seed: int = 0,
    layers: bool = True,
    progress: Progress | None = None,
    deadline: float | None = None,
) -> CheckReport:
    """Compare the results of two programs, and the layers that both have, exactly; without `layers` only the results.

    `progress` is called with the terms evaluated so far and their number. Past the `deadline`, a value of
    `time.monotonic()`, or at Ctrl-C the check ends between two terms, and the report says what was not reached.
    Raises BadInput when the programs declare a tensor differently.
    """
    started = time.perf_counter()
    names = [name for name in original.layers if layers and name in optimized.layers]
    roots = (original.term, optimized.term, *(p.layers[name] for p in (original, optimized) for name in names))
    declarations, limits, below = declared(*roots), index_limits(*roots), opaque_limit(*roots)
    fields: list[_Numbers] = [_Field(p) for p in PRIMES] if is_real(*roots) else [_Numbers()]
    runs = sum(len(steps(p.term, *(p.layers[name] for name in names))) for p in (original, optimized))
    comparison = _Comparison(original, optimized, names, Clock(runs * len(fields), deadline, progress))
    stopped, reason = "", ""
    try:
        for field in fields:
            field.opaque_below = below
            comparison.run(Trial(field, _stimuli(field, declarations, limits, seed)))
    except OutOfTime:
        stopped, reason = "time-limit", "time ran out"
    except KeyboardInterrupt:
        stopped, reason = "interrupted", "interrupted"
    except GlensideError as error:
        reason = str(error)
    verdicts, result = comparison.verdicts(len(fields), reason)
    return CheckReport(verdicts, result, _how(fields, seed), time.perf_counter() - started, stopped)


def _stimuli(
    field: _Numbers, declarations: Mapping[str, Tensor], limits: Mapping[str, int], seed: int
) -> dict[str, Array]:
    if isinstance(field, _Field):
        return draw_residues(declarations, limits, seed, field.p)
    return {name: draw_integers(t, seed, limits.get(name)) for name, t in declarations.items()}


def _how(fields: list[_Numbers], seed: int) -> str:
    primes = [str(field.p) for field in fields if isinstance(field, _Field)]
    text = f"random residues in two prime fields, p = {' and '.join(primes)}" if primes else _INTEGERS
    text += f", seed {seed}"
    replaced = sorted({name for field in fields for name in field.replaced})
    return f"{text}; pseudo-random functions stand for {', '.join(replaced)}" if replaced else text


_INTEGERS = "random integers over their full range"
_RESULT = None  # stands for the programs' results where layers have their names


class _Comparison:
    """Verdicts, gathered over trials: how often each layer (and the result) was equal, and what was found when not."""

    def __init__(self, original: Program, optimized: Program, names: list[str], clock: Clock) -> None:
        self.original, self.optimized, self.names, self.clock = original, optimized, names, clock
        self.equal: Counter[str | None] = Counter()
        self.differs: dict[str | None, str] = {}
        for name in (*self.names, _RESULT):
            expected, found = self._term(original, name).type, self._term(optimized, name).type
            if expected != found:
                self.differs[name] = f"differs in type: {found}, where the original has {expected}"
        self.expected: dict[Term, list[str]] = {}
        """Layers of the original by their terms; layers may share one."""
        self.found: dict[Term, list[str]] = {}
        """The same of the optimized program."""
        for name in (name for name in self.names if name not in self.differs):
            self.expected.setdefault(original.layers[name], []).append(name)
            self.found.setdefault(optimized.layers[name], []).append(name)

    @staticmethod
    def _term(program: Program, name: str | None) -> Term:
        return program.term if name is None else program.layers[name]

    def verdicts(self, trials: int, reason: str) -> tuple[dict[str, str], str]:
        """The verdict on each layer and on the result, after so many trials or at a stop for that reason."""

        def verdict(name: str | None) -> str:
            if name in self.differs:
                return self.differs[name]
            if self.equal[name] == trials:
                return EXACT
            partly = f" (equal in {self.equal[name]} of {trials} fields)" if self.equal[name] else ""
            return f"not checked: {reason}{partly}"

        return {name: verdict(name) for name in self.names}, verdict(_RESULT)

    def run(self, trial: Trial) -> None:
        """Run both programs whole; then, alone, the layers that differ."""
        digests: dict[str, bytes] = {}
        suspects: list[str] = []
        results: list[Any] = []

        def note(term: Term, value: Any) -> None:
            if term in self.expected:
                digests.update(dict.fromkeys(self.expected[term], digest(value)))
            if term is self.original.term:
                results.append(value)

        def compare(term: Term, value: Any) -> None:
            if term in self.found:
                mark = digest(value)
                for name in self.found[term]:
                    if digests[name] == mark:
                        self.equal[name] += 1
                    else:
                        suspects.append(name)
            if term is self.optimized.term and _RESULT not in self.differs:
                self._conclude(_RESULT, difference(results.pop(), value))

        observe([*self.expected, self.original.term], trial, self.clock, note)
        observe([*self.found, self.optimized.term], trial, self.clock, compare)
        self._isolate([name for name in suspects if name not in self.differs], trial)

    def _conclude(self, name: str | None, found: str | None) -> None:
        if found is None:
            self.equal[name] += 1
        else:
            self.differs[name] = found

    def _isolate(self, suspects: list[str], trial: Trial) -> None:
        """Give each suspect the original's values of the layers that it reads, as the original runs once more."""
        reads = {name: self._layers_below(self.optimized.layers[name]) for name in suspects}
        to_come = Counter(name for reading, below in reads.items() for name in (reading, *below))
        held: dict[str, Array] = {}

        def take(term: Term, value: Any) -> None:
            held.update((name, value) for name in self.expected[term] if to_come[name])
            ready = [n for n, below in reads.items() if n in held and all(layer in held for layer in below)]
            for name in ready:
                self.clock.look()
                layer, below = self.optimized.layers[name], reads.pop(name)
                given = {self.optimized.layers[other]: held[other] for other in below}
                self._conclude(
                    name, difference(held[name], evaluate([layer], trial.values, trial.arithmetic, given=given)[0])
                )
                to_come.subtract([name, *below])
                for done in [n for n in (name, *below) if not to_come[n]]:
                    held.pop(done, None)

        if suspects:
            roots = [term for term, names in self.expected.items() if any(to_come[n] for n in names)]
            observe(roots, trial, self.clock, take)

    def _layers_below(self, layer: Term) -> list[str]:
        """One name for each of the nearest layers of the optimized program below one of its layers."""
        found: dict[str, None] = {}
        seen, stack = {layer}, list(layer.children)
        while stack:
            term = stack.pop()
            if term in seen:
                continue
            seen.add(term)
            if term in self.found:
                found[self.found[term][0]] = None
            else:
                stack += term.children
        return list(found)
