"""The processor that programs are compiled for: the cost is nanoseconds, predicted from the loops of layers or timed.

The time of a layer depends on its neighbours: their layouts, the layers fused with it, the contents of the caches. So
each recipe is tried in all layers at once: the whole program is lowered to loops, and the time of a nest counts for the
layer whose terms it computes.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from math import floor, prod
from typing import Any

import numpy as np

from glenside.analysis.layers import adds_windows, layer_terms, product_sizes
from glenside.analysis.liveness import operations
from glenside.cache.store import Cache, CacheFull, key_of
from glenside.codegen.cost.count_work import predicted_nanoseconds
from glenside.codegen.loop_ir.ir import Role
from glenside.codegen.lowering.constant_preparation import prepared
from glenside.codegen.lowering.quantized_weights import keep_integers
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import Machine, is_here, machine_of
from glenside.codegen.runtime.compiled_function import MOST_THREADS, Compiled
from glenside.egraph.search import SearchResult
from glenside.egraph.snapshot import Snapshot
from glenside.ir.bounds import number, whole
from glenside.ir.cook_toom import cook_toom
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operator import OPERATORS
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, constants_under
from glenside.passes.answer import CostsInPlace, Placed, Refinement
from glenside.passes.extraction import PricedGraph
from glenside.passes.variants import ByRecipe
from glenside.targets.base import (
    Amounts,
    BoundsVariants,
    Budget,
    Extracted,
    Measure,
    Pass,
    Prices,
    ProductPrices,
    Roofline,
    Variant,
    Way,
)
from glenside.targets.cpu.in_loops import InLoops
from glenside.targets.cpu.target import CPU, PEAK, WORK
from glenside.targets.cpu.trial_order import first_trials, next_trials
from glenside.targets.recipes import recipe_label

TIME = "time"
MOST_GROWTH = 400.0
"""Default maximum of a variant's bound of rounding errors, as a multiple of the plain variant's."""
_MAX_TIMED_VARIANTS = 3
"""Maximum variants of each layer that are timed: those with the least predicted time."""
_MAX_JOINT_ROUNDS = 2
"""Maximum rounds in which the best variants of all layers are measured together."""
_MAX_READER_CHECKS = 8
"""Maximum layers whose extra cost for their readers is measured: those with the least gains."""
_INTERRUPT_SECONDS = 0.5
"""Seconds of prediction after an interrupt."""
_STEP, _ELEMENT = 50.0, 0.08
"""Nanoseconds of a loop nest beside its work, and of a float32 from the L2 cache, for candidates of the algebra."""
_ROUNDS = 15
"""Timed runs of each program, interleaved; the fastest run of each nest counts."""


class Recipes(ByRecipe):
    """The layer as written, then the cheapest term of each recipe with fewer operations: others are not faster."""

    def __init__(self, target: CompiledCPU, searched: SearchResult, way: Way) -> None:
        super().__init__(target, searched, way)
        self.target = target

    def layer(self, root: int, term: Term) -> Extracted:
        plain, most = self.target.variant_of(term, ()), self.target.max_growth
        work = plain.measures[WORK] or 0
        others = [v for v in super().layer(root, term).variants if v.recipe and (v.measures[WORK] or 0) < work]
        return Extracted([plain, *(v for v in others if growth_of(v.recipe) <= most)])


def growth_of(recipe: str) -> Fraction:
    """Returns the bound of rounding errors of a recipe's F(m, r), as a multiple of the plain variant's."""
    steps = (word.split(":") for word in recipe.split() if word.startswith("winograd:"))
    return prod((_growth(int(m), int(r)) for _, _, m, r in steps), start=Fraction(1))


@cache
def _growth(m: int, r: int) -> Fraction:
    return cook_toom(m, r).growth


class CompiledCPU(CPU, CostsInPlace, BoundsVariants):
    """A processor that programs are compiled for: counts nanoseconds on some threads, and bytes of temporaries.

    memory   budget of temporaries and results, as for any CPU
    machine  native, or avx512, avx2, neon, generic; or a .toml file written by `glenside calibrate`; by default the
             machine that programs are compiled for, else native
    tune     True: time the best variants of each layer in place, on this computer; False: predict times with the cost
             model of the machine
    threads  number of threads. Memory bandwidth does not grow with threads, so that the larger weights of Winograd
             variants pay less. Uses costs measured for this number by `glenside calibrate`, else those of one thread
    outputs  the m of Winograd's F(m, r) to search for along each axis
    max_growth  maximum bound of a variant's rounding errors, as a multiple of the plain variant's: 7.1 for F(2, 3)
             along two axes, 256 for F(4, 3)

    Raises BadInput.
    """

    strategy = Recipes

    def __init__(
        self,
        memory: int | str | None = None,
        *,
        machine: str | Machine | None = None,
        tune: bool = False,
        threads: int = 1,
        outputs: Sequence[int] = (2, 4),
        max_growth: float = MOST_GROWTH,
        balance: float = 0,
        row_strips: int = 1,
    ) -> None:
        if balance or row_strips > 1:
            raise BadInput("balance and row strips are of a processor that no programs are compiled for")
        super().__init__(memory, outputs=outputs)
        self.is_any = machine is None
        processor = machine if isinstance(machine, Machine) else machine_of("native" if machine is None else machine)
        if processor is None:
            raise BadInput("a machine of plain loops has no prices: nothing is tiled for it")
        if tune and not is_here(processor):
            raise BadInput(f"this computer has no {processor.name}: only a machine of this computer can be timed")
        self.threads = whole("threads of a processor", threads, 1, MOST_THREADS)
        self.processor, self.tune = replace(processor, threads=self.threads), tune
        self.max_growth = number("max_growth of a processor", max_growth, 1)
        self.name += f",machine={processor.name}" + (",tune=yes" if tune else "")
        self.name += f",threads={threads}" if threads != 1 else ""
        self.description = repr(self.processor)
        self.objectives, self.compared, self.front = (TIME, PEAK), (TIME, PEAK), None
        how = "timed" if tune else "predicted by the machine's cost model"
        self.measures = (
            Measure(TIME, "ns", f"of {self._many} of {processor.name}, {how}"),
            Measure(WORK, "operations", "a multiplication that is added, or any other operation on an element"),
            Measure(PEAK, "bytes", "the most that temporaries and results take in one piece of memory", adds=False),
        )
        if self.memory is not None:
            self.budget = Budget(PEAK, self.memory, "bytes", "memory budget")
        self._known: dict[Term, InLoops] = {}
        self._plain: dict[Term, Variant] = {}
        self._is_timed = False
        self._on_step = Way().on_step

    @property
    def _many(self) -> str:
        return "one thread" if self.threads == 1 else f"{self.threads} threads"

    def compiled_for(self, machine: Machine | None) -> CPU:
        if not self.is_any or machine is None:
            return self
        return CompiledCPU(
            self.memory,
            machine=machine,
            tune=self.tune,
            threads=self.threads,
            outputs=self.outputs,
            max_growth=self.max_growth,
        )

    def passes(self, way: Way) -> Sequence[Pass]:
        """Returns the passes before the search. Weights stay integers: no sum of two products folds to floats."""
        return (keep_integers, *super().passes(way))

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        """Returns the families without tiled products: reading windows and tiling rows is left to the loops."""
        return tuple(f for f in super().families(way, nodes) if f not in ("cpu-products", "transposed-tiles"))

    def pricing(self, snapshot: Snapshot) -> Any:
        return _Pricing(snapshot, self)

    def variant_of(self, term: Term, recipes: Sequence[str]) -> Variant:
        """Returns the variant of a term, without time and memory: these are measured in place."""
        recipe = " | ".join(recipes)
        growth, label = growth_of(recipe), recipe_label(recipe)
        remarks = [f"{label}: the bound of rounding errors is {float(growth):.3g} times that of the plain layer"]
        measures = {TIME: None, WORK: _work(Program(term)), PEAK: None}
        return Variant(label, term, measures, recipe, remarks=tuple(remarks if growth > 1 else ()))

    def least(self, variants: Sequence[Variant]) -> int | None:
        """Returns the nanoseconds of the fewest products of the variants at peak rate on all threads."""
        if not self.processor.peak:
            return None
        counts = [_products(variant.term) for variant in variants if variant.term is not None]
        known = [count for count in counts if count is not None]
        return (
            floor(min(known) / (self.processor.peak * self.threads)) if counts and len(known) == len(counts) else None
        )

    def least_words(self, least: int, taken: int) -> Sequence[str]:
        if not self.processor.peak:
            return []
        how = "take" if self._is_timed else "are predicted to take"
        at = f"{self.processor.peak:.1f} in a nanosecond on each of {self._many}"
        return [
            f"the fewest products of these variants take {least:,} ns at the peak of {at}; those chosen {how} {taken:,}"
        ]

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        """Returns the layer as written, with its cost in a program of plain layers."""
        return {"plain": self._plain.get(product, variants[0])}

    def whole(self, program: Program) -> Amounts:
        (found,) = self._in_loops([program], timed=self._is_timed)
        results = sum(b.bytes for b in found.loops.buffers if b.role is Role.RESULT)
        peak = arena(found.loops).bytes_of(self.threads) + results
        return {TIME: round(float(sum(found.nanoseconds))), WORK: _work(found.program), PEAK: peak}

    def in_place(self, found: Sequence[Extracted], placed: Placed, way: Way) -> Sequence[Extracted]:
        """Returns the variants that were tried, with their predicted cost in place (see `trial_order`)."""
        self._known, self._is_timed, self._on_step = {}, False, way.on_step
        first = [first_trials(e.variants) if self.memory is None else e.variants for e in found]
        trials = _in_turn(first)
        if way.at_once:
            trials = self._soon(trials, placed)
        tried = self._with_plain(self._tried(found, placed, trials, False))
        return tried if way.at_once else self._settled(self._with_neighbours(found, tried, placed), placed, False)

    def _with_neighbours(
        self, found: Sequence[Extracted], tried: Sequence[Extracted], placed: Placed
    ) -> Sequence[Extracted]:
        """Returns the tried variants and the neighbours of the best, tried beside the best of other layers."""
        both = list(zip(found, tried, strict=True))
        more = [next_trials(every.variants, own.variants, self.rank) for every, own in both]
        if not any(more):
            return tried
        trials = _in_turn([[self.best(own.variants), *new] for own, new in zip(tried, more, strict=True)])
        beside = self._tried(found, placed, trials, False)
        made = []
        for own, other in zip(tried, beside, strict=True):
            known = {variant.recipe for variant in own.variants}
            made.append(replace(own, variants=[*own.variants, *(v for v in other.variants if v.recipe not in known)]))
        return made

    def refinements(self, way: Way) -> Sequence[Refinement]:
        """Returns the refinements: time the best variants, then choose those that are best together."""
        return (self._timed_in_place, partial(self._settled, timed=True)) if self.tune and not way.at_once else ()

    def remarks(self, program: Program) -> Sequence[str]:
        found = list(super().remarks(program))
        if self.tune and not self._is_timed:
            found.append("nothing was timed: the times of variants are predicted by the machine's cost model")
        if not self._is_timed and self.threads not in (1, *dict(self.processor.shared)):
            found.append(
                f"no costs were measured for {self._many} of {self.processor.name}: those of one thread are used"
            )
        return found

    def _timed_in_place(self, found: Sequence[Extracted], placed: Placed) -> list[Extracted]:
        """Returns the plain variant and the best ones with their measured times."""
        self._known = {}
        best = [sorted(of_layer.variants, key=self.rank)[:_MAX_TIMED_VARIANTS] for of_layer in found]
        trials = [[of_layer.variants[0] for of_layer in found], *_in_turn(best)]
        tried = self._with_plain(self._tried(found, placed, trials, True))
        self._is_timed = True
        return tried

    def _with_plain(self, found: list[Extracted]) -> list[Extracted]:
        """Stores the plain variants with their costs, and returns the variants unchanged."""
        plain = [of_layer.variants[0] for of_layer in found]
        self._plain = {variant.term: variant for variant in plain if variant.term is not None}
        return found

    def _soon(self, trials: Sequence[list[Variant]], placed: Placed) -> list[list[Variant]]:
        """Returns the trials that can be predicted within `_INTERRUPT_SECONDS`, at least the first."""
        end, done = time.monotonic() + _INTERRUPT_SECONDS, list[list[Variant]]()
        for trial in trials:
            if done and time.monotonic() > end:
                break
            self._in_loops([placed.program(trial)], timed=False)
            done.append(trial)
        return done

    def _settled(self, found: Sequence[Extracted], placed: Placed, timed: bool) -> Sequence[Extracted]:
        """Returns the variants with the costs of the best ones measured together, repeated while others become best."""
        for _ in range(_MAX_JOINT_ROUNDS):
            best = [self.best(of_layer.variants) for of_layer in found]
            beside = self._tried(found, placed, [best], timed)
            found = [
                replace(e, variants=[own.variants[0] if v.recipe == own.variants[0].recipe else v for v in e.variants])
                for e, own in zip(found, beside, strict=True)
            ]
            if [self.best(e.variants).recipe for e in found] == [v.recipe for v in best]:
                break
        return self._read(found, placed, timed)

    def _read(self, found: Sequence[Extracted], placed: Placed, timed: bool) -> Sequence[Extracted]:
        """Returns the variants with the extra cost that they cause in the readers of added-up windows.

        If a variant assembles these sums from parts, the loops do it in the reader, so that its time counts for the
        reader. If the reader becomes faster, the other variants are charged instead.
        """
        found, best = [*found], [self.best(of_layer.variants) for of_layer in found]
        plain = [of_layer.variants[0] for of_layer in found]
        gains = {
            place: _time(plain[place]) - _time(best[place])
            for place, layer in enumerate(placed.layers.products)
            if any(map(adds_windows, layer_terms(layer))) and best[place].recipe != plain[place].recipe
        }
        times = Counter(placed.numbers.values())
        for place in sorted(gains, key=gains.__getitem__)[:_MAX_READER_CHECKS]:
            other = [*best[:place], plain[place], *best[place + 1 :]]
            with_it, without = self._in_loops([placed.program(best), placed.program(other)], timed)
            more = float(sum(with_it.nanoseconds)) - float(sum(without.nanoseconds))
            read = gains[place] + round(more / times[place])
            found[place] = replace(
                found[place],
                variants=[  # variants that were not measured get the slower of the two
                    _with_time(own, (number > 0) * max(0, read) + (own is not best[place]) * max(0, -read))
                    for number, own in enumerate(found[place].variants)
                ],
            )
            best[place] = self.best(found[place].variants)
        return found

    def _tried(
        self, found: Sequence[Extracted], placed: Placed, trials: Sequence[Sequence[Variant]], timed: bool
    ) -> list[Extracted]:
        """Returns the tried variants with the mean time and maximum memory over their places in the first trial."""
        taken: list[dict[str, list[tuple[float, int]]]] = [{} for _ in found]
        programs = [placed.program(trial) for trial in trials]
        for trial, in_loops in zip(trials, self._in_loops(programs, timed), strict=True):
            times, peaks = in_loops.time(), in_loops.peak()
            here: dict[int, list[tuple[float, int]]] = defaultdict(list)
            for name, place in placed.numbers.items():
                here[place].append((times[name], peaks[name]))
            for place, own in here.items():
                taken[place].setdefault(trial[place].recipe, own)
        made = []
        for of_layer, by_recipe in zip(found, taken, strict=True):
            variants = []
            for variant in (v for v in of_layer.variants if v.recipe in by_recipe):
                own = by_recipe[variant.recipe]
                mean, most = sum(t for t, _ in own) / len(own), max(peak for _, peak in own)
                measures = {**variant.measures, TIME: round(mean), PEAK: most}
                variants.append(replace(variant, measures=measures))
            made.append(replace(of_layer, variants=variants))
        return made

    def product_prices(self) -> ProductPrices:
        """Returns nanoseconds at peak rate, with operands from the L2 cache: `predicted` decides."""
        cycles = self.processor.prices(self.threads).cycles
        peak = self.processor.products * self.processor.vector / 4 * self.threads
        return Roofline(_STEP, cycles / peak, _ELEMENT)

    def predicted(self, program: Program) -> float:
        """Returns the predicted nanoseconds of a program that is compiled as it is written."""
        return float(sum(self._predicted_in_loops(program).nanoseconds))

    def _in_loops(self, programs: Sequence[Program], timed: bool) -> list[InLoops]:
        new = {program.term: program for program in programs if program.term not in self._known}
        for term, found in zip(
            new, self._timed(new.values()) if timed else map(self._predicted_in_loops, new.values()), strict=True
        ):
            self._known[term] = found
        return [self._known[program.term] for program in programs]

    def _predicted_in_loops(self, program: Program) -> InLoops:
        program = prepared(program, lazily=True)
        loops = lower(program, self.processor)
        return InLoops(program, loops, predicted_nanoseconds(loops, self.processor, self.threads))

    def _timed(self, programs: Collection[Program]) -> list[InLoops]:
        """Times programs on this computer, interleaved, with a cache of past measurements."""
        compiled: list[Compiled] = []
        for program in programs:
            self._on_step(f"compiling {len(programs)} programs", len(compiled) / len(programs))
            compiled.append(Compiled(program.seeded_constants(0), self.processor))
        how = "nests" if self.threads == 1 else f"nests of {self._many}"
        keys = [key_of(source=f.source, machine=self.description, how=how) for f in compiled]
        with Cache() as cache:
            found = _seconds(compiled, keys, cache, self.threads, self._on_step)
        return [InLoops(f.program, f.loops, 1e9 * found[key]) for f, key in zip(compiled, keys, strict=True)]


class _Pricing:
    """Prices of terms with one recipe: the elements they compute and move."""

    def __init__(self, snapshot: Snapshot, target: CompiledCPU) -> None:
        self.snapshot, self.target = snapshot, target
        self.priced = PricedGraph(snapshot, Prices())

    def possible(self, n: int) -> bool:
        return not OPERATORS[self.snapshot.nodes[n].operator].opaque

    def is_product(self, n: int) -> bool:
        return self.priced.is_product(n)

    def cost(self, n: int) -> tuple[int, ...]:
        cost = self.priced.cost(n)
        return cost.unmapped + cost.scalar + cost.moved, cost.nodes

    def variant(self, recipe: str, root: int, nodes: Mapping[int, int]) -> Variant:
        return self.target.variant_of(self.snapshot.terms(nodes, [root])[root], (recipe,))


def _time(variant: Variant) -> int:
    """Returns the nanoseconds of a tried variant."""
    return variant.measures[TIME] or 0


def _with_time(variant: Variant, more: int) -> Variant:
    """Returns the variant with `more` nanoseconds added."""
    return replace(variant, measures={**variant.measures, TIME: _time(variant) + more})


def _work(program: Program) -> int:
    """Returns the operations of a program, without terms over constants alone."""
    return sum(operations(term) for term in program.info.order if not program.info.constant[term])


def _products(root: Term) -> float | None:
    """Returns the multiply-adds of float32 products, without terms over constants alone; None for other dtypes."""
    found = [t for t, constant in constants_under(root).items() if is_product(t) and not constant]
    sizes = [product_sizes(t).macs for t in found if t.access.dtype == "float32"]
    return sum(sizes) if len(sizes) == len(found) else None


def _in_turn(variants: Sequence[Sequence[Variant]]) -> list[list[Variant]]:
    """Returns the first variants of all layers, the second ones, and so on; the first one if a layer has no more."""
    return [[own[n] if n < len(own) else own[0] for own in variants] for n in range(max(map(len, variants), default=0))]


def _seconds(
    compiled: Sequence[Compiled],
    keys: Sequence[str],
    cache: Cache,
    threads: int,
    on_step: Callable[[str, float], None],
) -> dict[str, Array]:
    """Returns key -> seconds of each nest of a program: from the cache, or the minimum of interleaved rounds."""
    seconds = {key: np.array(json.loads(text), float) for key in keys if (text := cache.get(key)) is not None}
    runs = [(key, f, f.drawn()) for key, f in zip(keys, compiled, strict=True) if key not in seconds]
    for done in range(_ROUNDS):
        on_step(f"timing {len(runs)} programs", done / _ROUNDS)
        for key, f, arrays in runs:
            seconds[key] = np.minimum(f.least_seconds(*arrays, rounds=1, threads=threads), seconds.get(key, np.inf))
    for key, _, _ in runs:
        with suppress(CacheFull):  # the measurement is still returned
            cache.put(key, json.dumps(seconds[key].tolist()))
    return seconds
