"""Checks two programs for exact equality, by randomized polynomial identity testing over prime fields.

Both programs run on the same random inputs, and every element of the results must be equal. Integer programs run
natively, on inputs of their full range and on small ones. Real-valued programs run in two prime fields, where sums,
products and quotients are exact. Programs that are equal over the reals then give equal residues, in any order of
operations. Unequal programs give equal residues only by chance (Schwartz-Zippel).

Where a branch outcome depends on the order of two numbers, each residue carries its position on the real line
(`OrderedField`). Inputs are then drawn around each constant of the program, in enough rounds for every element of a
maximum to be the largest. Constants are drawn as well, so that constant folding cannot hide a difference.

Layers are compared by name. A layer may differ only because a layer below it differs, or because rounding moved a
number across a branch point. So each differing layer runs again alone, on the original's values of the layers below it.
If all of those are equal, the result runs alone too. Layers that are equal alone are equal in the whole program, by
induction along it. Equations between layers are tested first (`layerwise`): if all hold, nothing runs as a whole.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.check.branches import Branches, Missing, places
from glenside.check.comparison import Clock, Progress, Trial, difference, digest, observe, shared, steps
from glenside.check.indices import opaque_limit
from glenside.check.input_generators import declared
from glenside.check.inputs import Inputs
from glenside.check.layerwise import equations
from glenside.check.memory import least_bytes, shortage
from glenside.check.order_dependence import has_order
from glenside.check.rounds import Turns
from glenside.check.trials import Field, Trials, Turn
from glenside.check.unknown_loops import with_unknown_loops
from glenside.check.verdicts import EXACT, ending, is_equal, verdict_of
from glenside.ir.errors import OutOfBounds
from glenside.ir.operand import Array, arrays
from glenside.ir.program import Program
from glenside.ir.term import Term, nearest, postorder
from glenside.ir.threads import BLAS_ON_ONE_THREAD
from glenside.ir.types import AccessType
from glenside.semantics.interpreter import evaluate
from glenside.semantics.ordered_field import OrderedField

_DISTINCT = 0.25  # least share of rounds with distinct results, where results are informative


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The verdicts of `check`.

    A verdict is "exact", "equal where reached" with the branch outcome that no input reached, or a sentence with the
    difference or with the reason why nothing was compared.

    layers    layer name -> verdict, for the layers of both programs, in the order of the original
    result    the verdict on the programs' results
    how       one sentence: the kind of numbers, the seed, and the functions that pseudo-random ones replace
    stopped   "", "time-limit" or "interrupted"
    """

    layers: dict[str, str]
    result: str
    how: str
    seconds: float
    stopped: str = ""

    @property
    def ok(self) -> bool:
        """True if the result and every layer are equal."""
        return is_equal(self.result) and all(map(is_equal, self.layers.values()))

    def __str__(self) -> str:
        wrong = [f"{name}: {verdict}" for name, verdict in self.layers.items() if verdict != EXACT]
        lines = [
            f"result: {self.result}",
            f"layers: {len(self.layers) - len(wrong)} of {len(self.layers)} exact",
            *wrong,
        ]
        return "\n".join([*lines, f"{self.how} ({self.seconds:.2f} s)"])


def check(
    original: Program,
    optimized: Program,
    *,
    seed: int = 0,
    layers: bool = True,
    source: Program | None = None,
    given: Mapping[str, Array] | None = None,
    progress: Progress | None = None,
    deadline: float | None = None,
) -> CheckReport:
    """Compares the results of two programs exactly, and the layers that both have.

    layers    compare layers too; without it, only the results
    source    the program from which the original was derived: its result is compared as well
    given     values of tensors by name, such as constants that only one program has; all other tensors are drawn
    progress  is called with the count of evaluated terms and the total
    deadline  a value of `time.monotonic()`

    At the deadline, or at Ctrl-C, the check ends between two terms, and the report says what was not compared.
    Raises BadInput when the programs declare a tensor differently.
    """
    unknown = with_unknown_loops([original, optimized, *([] if source is None else [source])])
    if unknown is not None:
        own, other, *of = unknown
        report = check(
            own,
            other,
            seed=seed,
            layers=layers,
            source=of[0] if of else None,
            given=given,
            progress=progress,
            deadline=deadline,
        )
        if report.ok or report.stopped:  # else equal loops may be needed to tell
            return report
    names = [name for name in original.layers if layers and name in optimized.layers]
    if len(names) > 1 and not given:
        found = _layer_by_layer(original, optimized, names, seed, source, progress, deadline)
        if found is not None:
            return found
    return _as_a_whole(original, optimized, names, seed, source, given or {}, progress, deadline)


def _layer_by_layer(
    original: Program,
    optimized: Program,
    names: Sequence[str],
    seed: int,
    source: Program | None,
    progress: Progress | None,
    deadline: float | None,
) -> CheckReport | None:
    """Checks equations between layers; returns None if they do not prove that all layers are equal."""
    started = time.perf_counter()
    declared(*(program.term for program in (original, optimized, source) if program is not None))
    found = equations(original, optimized, names)
    before = {} if source is None else equations(source, original, [n for n in source.layers if n in original.layers])
    if found is None or before is None:
        return None
    found |= {equation: found.get(equation, []) for equation in before}
    terms = [*postorder(original.term, optimized.term)]
    if any(2 * len([*postorder(*equation)]) > len(terms) for equation in found) and len(found) > 1:
        return None
    is_small = sum(t.access.size for t in terms if isinstance(t.type, AccessType)) < _SMALL
    verdicts, result, how, stopped = dict.fromkeys(names, EXACT), EXACT, _SAME, ""
    for done, equation in enumerate(found):

        def on_progress(_: int, __: int, done: int = done) -> None:
            if progress is not None:
                progress(done, len(found))

        first, second = (Program(term) for term in equation)
        report = _as_a_whole(first, second, [], seed, None, {}, on_progress, deadline)
        how, stopped = report.how, report.stopped
        if stopped:
            left = [name for others in [*found.values()][done:] for name in others]
            verdicts |= dict.fromkeys(left, report.result)
            result = report.result
            break
        if report.result != EXACT:
            if is_small or not is_equal(report.result):
                return None
            verdicts |= dict.fromkeys(found[equation], report.result)
            result = report.result if result == EXACT else result
    said = f"{how}, for each of {len(found)} distinct layers" if len(found) > 1 else how
    return CheckReport(verdicts, result, said, time.perf_counter() - started, stopped)


def _as_a_whole(
    original: Program,
    optimized: Program,
    names: Sequence[str],
    seed: int,
    source: Program | None,
    given: Mapping[str, Array],
    progress: Progress | None,
    deadline: float | None,
) -> CheckReport:
    """Compares whole programs, and their layers, on the same inputs."""
    started = time.perf_counter()
    programs = (original, optimized) if source is None else (original, optimized, source)
    roots = (*(p.term for p in programs), *(p.layers[name] for p in (original, optimized) for name in names))
    reference = roots[0], *roots[2 : len(programs) + len(names)]  # the original and its source
    others = roots[1], *roots[len(programs) + len(names) :]
    trials = Trials(seed, original, *roots)
    branches, clock = Branches(roots, trials.wanted), Clock(0, deadline, progress)
    comparison = _LayerComparison(original, optimized, source, names, clock)
    inputs, below = Inputs(reference, others, programs, given, trials), opaque_limit(*roots)

    def draw(trial: Turn, turn: int) -> dict[str, Array]:
        trial.arithmetic.opaque_below = below
        return inputs.draw(trial, turn)

    def compare(trial: Turn, values: Mapping[str, Array]) -> None:
        branches.watched(trial.arithmetic)
        branches.begin(None)
        with BLAS_ON_ONE_THREAD:
            inputs.used(values, trial.arithmetic, lambda v: comparison.run(Trial(trial.arithmetic, v, branches.begin)))

    turns = Turns(trials, comparison, branches, draw, compare, bool(inputs.own))
    clock.total = comparison.steps * turns.least
    least = least_bytes(declared(*roots).values(), 16 if has_order(*roots) else 4, *roots)
    try:
        with ending(shortage(least)) as end:
            while not (end.reason or comparison.settled):
                if turns.enough and not trials.go_on(len(branches.missing())):
                    break
                turns.take()
            if not (end.reason or comparison.settled):
                turns.aim(inputs.movable)
    finally:
        turns.end()
    done = turns.done
    verdicts, result = comparison.verdicts(max(turns.least, len(done)), end.reason, branches.missing())
    how = _how(done or [trials.at(0)], seed)
    return CheckReport(verdicts, result, how, time.perf_counter() - started, end.stopped)


def _how(trials: Sequence[Turn], seed: int) -> str:
    primes = dict.fromkeys(str(t.numbers.p) for t in trials if isinstance(t.numbers, Field))
    text = f"random residues in two prime fields, p = {' and '.join(primes)}" if primes else _INTEGERS
    if primes and isinstance(trials[0].arithmetic, OrderedField):
        times = "once" if len(trials) == 1 else f"{len(trials)} times"
        text = f"random numbers, drawn {times}, exact with their order in a prime field, p = {' or '.join(primes)}"
    text += f", seed {seed}"
    replaced = sorted({name for trial in trials for name in trial.numbers.replaced})
    return f"{text}; pseudo-random functions stand for {', '.join(replaced)}" if replaced else text


_INTEGERS = "random integers, large and small"
_SAME = "the programs have the same terms"
_SMALL = 1 << 22
"""Elements of two programs below which they run as a whole if an equation misses a branch outcome."""
_RESULT = None  # the key of the programs' results, among the names of layers


class _LayerComparison:
    """The comparison of layers and results over all rounds: the count of equal rounds of each, and the differences."""

    def __init__(
        self, original: Program, optimized: Program, source: Program | None, names: Sequence[str], clock: Clock
    ) -> None:
        self.original, self.optimized, self.source, self.names, self.clock = original, optimized, source, names, clock
        self.source_differs: str | None = None
        if source is not None and source.term.type != original.term.type:
            self.source_differs = f"differs in type: {original.term.type}, where the source has {source.term.type}"
        self.equal: Counter[str | None] = Counter()
        self.differs: dict[str | None, str] = {}
        self.results: set[bytes] = set()
        """Digests of the original's results that have elements."""
        for name in (*self.names, _RESULT):
            expected, found = self._term(original, name).type, self._term(optimized, name).type
            if expected != found:
                self.differs[name] = f"differs in type: {found}, where the original has {expected}"
        self.expected: dict[Term, list[str]] = {}
        """Names of the original's layers by term; layers may share a term."""
        self.found: dict[Term, list[str]] = {}
        """Names of the optimized program's layers by term."""
        for name in (name for name in self.names if name not in self.differs):
            self.expected.setdefault(original.layers[name], []).append(name)
            self.found.setdefault(optimized.layers[name], []).append(name)
        roots = [*self.expected, original.term], [*self.found, optimized.term]
        self.shared = shared(*roots)
        """Terms that are computed once for both programs."""
        runs = (steps(roots[0]), steps(roots[1], dict.fromkeys(self.shared)), steps([source.term]) if source else [])
        self.steps = sum(map(len, runs))

    @property
    def settled(self) -> bool:
        """True if every layer and the result differ, so that further rounds cannot change a verdict."""
        return all(name in self.differs for name in (*self.names, _RESULT))

    def says_little(self, trials: int) -> bool:
        """True if results repeat in most rounds, so that they seldom show a difference in the layers before them."""
        return 0 < len(self.results) < _DISTINCT * trials

    def marked(self) -> Any:
        """Returns a snapshot of the state that a round changes."""
        return self.equal.copy(), len(self.differs), self.source_differs

    def equal_since(self, mark: Any) -> bool:
        """True if the one round since the snapshot has found no new difference."""
        equal = mark[0] + Counter(self._compared())
        return (len(self.differs), self.source_differs) == mark[1:] and all(
            self.equal[name] == equal[name] for name in self._compared()
        )

    def add_equal(self, results: Iterable[bytes]) -> None:
        """Records a round of another process in which everything was equal."""
        self.equal.update(self._compared())
        self.results.update(results)
        self.clock.done += self.steps

    def _compared(self) -> list[str | None]:
        return [name for name in (*self.names, _RESULT) if name not in self.differs]

    @staticmethod
    def _term(program: Program, name: str | None) -> Term:
        return program.term if name is None else program.layers[name]

    def verdicts(self, trials: int, reason: str, missing: Sequence[Missing]) -> tuple[dict[str, str], str]:
        """Returns the verdict on each layer, and the verdict on the result.

        trials   the number of rounds that a complete check has
        reason   why the check stopped before, or ""
        missing  branch outcomes that no round reached: a layer's verdict names those inside it but outside the layers
                 below it, the result's verdict names all
        """
        programs = self.original, self.optimized
        within = places([m.term for m in missing], [self._term(p, name) for p in programs for name in self.names])

        def verdict(name: str | None) -> str:
            if name in self.differs:
                return self.differs[name]
            own = range(len(missing)) if name is None else within(*(self._term(p, name) for p in programs))
            return verdict_of(self.equal[name], trials, reason, [missing[i] for i in own])

        result = verdict(_RESULT)
        whole = self.source_differs if self.source_differs and is_equal(result) else result
        return {name: verdict(name) for name in self.names}, whole

    def run(self, trial: Trial) -> None:
        """Runs the whole programs, and then each layer that differs alone."""
        digests: dict[str, bytes] = {}
        suspects: list[str] = []
        results: list[Any] = []
        found: list[str | None] = []
        """The difference of the result, if the result is compared."""

        def note(term: Term, value: Any) -> None:
            if term in self.expected:
                digests.update(dict.fromkeys(self.expected[term], digest(value, trial.arithmetic)))
            if term is self.original.term:
                results.append(value)
                if any(array.size for array in arrays(value)):
                    self.results.add(digest(value, trial.arithmetic))

        def compare(term: Term, value: Any) -> None:
            if term in self.found:
                mark = digest(value, trial.arithmetic)
                for name in self.found[term]:
                    if digests[name] == mark:
                        self.equal[name] += 1
                    else:
                        suspects.append(name)
            if term is self.optimized.term and _RESULT not in self.differs:
                found.append(difference(results.pop(), value, trial.arithmetic))

        held = observe([*self.expected, self.original.term], trial, self.clock, note, keep=self.shared)
        self._run_source(results[0], trial)
        self._run_optimized(trial, compare, held)
        self._isolate([name for name in suspects if name not in self.differs], trial)
        self._conclude_result(found, bool(suspects), trial)

    def _conclude_result(self, found: Sequence[str | None], suspected: bool, trial: Trial) -> None:
        """Concludes on the result of a whole run, or runs it alone if layers differed only in the whole run."""
        if any(found) and suspected and not any(name in self.differs for name in self.names):
            self._isolate([_RESULT], trial)
        else:
            for what in found:
                self._conclude(_RESULT, what)

    def _run_optimized(self, trial: Trial, compare: Callable[[Term, Any], None], held: Mapping[Term, Array]) -> None:
        try:
            observe([*self.found, self.optimized.term], trial, self.clock, compare, held)
        except OutOfBounds as error:
            self._conclude(_RESULT, f"differs: {error}, where the original is within")

    def _run_source(self, result: Any, trial: Trial) -> None:
        """Runs the source, and compares its result with the original's."""

        def compare(term: Term, value: Any) -> None:
            self.source_differs = difference(value, result, trial.arithmetic)

        if self.source is not None and self.source_differs is None:
            observe([self.source.term], trial, self.clock, compare)

    def _conclude(self, name: str | None, found: str | None) -> None:
        if found is None:
            self.equal[name] += 1
        else:
            self.differs[name] = found

    def _isolate(self, suspects: Sequence[str | None], trial: Trial) -> None:
        """Runs each suspect alone, on the original's values of the layers that it reads, while the original runs again.

        A value is kept until its last reader has run.
        """
        reads = {name: self._layers_below(self._term(self.optimized, name)) for name in suspects}
        to_come = Counter(name for reading, below in reads.items() for name in (reading, *below))
        named: dict[Term, list[str | None]] = {term: [*names] for term, names in self.expected.items()}
        if _RESULT in reads:
            named.setdefault(self.original.term, []).append(_RESULT)
        held: dict[str | None, Any] = {}

        def take(term: Term, value: Any) -> None:
            held.update((name, value) for name in named[term] if to_come[name])
            ready = [n for n, below in reads.items() if n in held and all(layer in held for layer in below)]
            for name in ready:
                self.clock.look()
                layer, below = self._term(self.optimized, name), reads.pop(name)
                given = {self.optimized.layers[other]: held[other] for other in below}
                trial.begin(None)  # its branch outcomes belong to several terms
                value = evaluate([layer], trial.values, trial.arithmetic, given=given)[0]
                self._conclude(name, difference(held[name], value, trial.arithmetic))
                to_come.subtract([name, *below])
                for done in [n for n in (name, *below) if not to_come[n]]:
                    held.pop(done, None)

        if suspects:
            roots = [term for term, names in named.items() if any(to_come[n] for n in names)]
            observe(roots, trial, self.clock, take)

    def _layers_below(self, layer: Term) -> list[str]:
        """Returns a name for each of the nearest layers below a layer of the optimized program."""
        below = nearest(*layer.children, stops=self.found.__contains__)
        return [*dict.fromkeys(self.found[term][0] for term in below)]
