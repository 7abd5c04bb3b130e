"""The processor that programs are compiled for: nanoseconds, told from the loops of layers where they stand, or timed.

What a layer takes depends on what is around it: the order in which its neighbours store, what is taken together with
it, what the caches hold. So each recipe is tried in all layers at once, the whole program becomes loops, and what a
nest takes counts for the layer whose terms it computes.
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
from glenside.codegen.cost.count_work import told
from glenside.codegen.loop_ir.ir import Role
from glenside.codegen.lowering.constant_preparation import prepared
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
from glenside.ir.program import Program, constant_terms, is_product
from glenside.ir.term import Term, postorder
from glenside.passes.answer import Placed
from glenside.passes.extraction import PricedGraph
from glenside.passes.variants import ByRecipe, Extracted
from glenside.targets.base import Amounts, Budget, Measure, Prices, Refinement, Variant, Way
from glenside.targets.cpu.in_loops import InLoops
from glenside.targets.cpu.target import CPU, PEAK, WORK
from glenside.targets.recipes import recipe_label

TIME = "time"
MOST_GROWTH = 400.0
"""Of the bound of rounding errors over that of the plain variant, by default."""
_TRIED = 3
"""Variants of each layer that are timed, at most: those that are told to take the least."""
_SETTLED = 2
"""How often it is looked at what the best variants take beside each other."""
_READ = 8
"""Layers of which it is looked at what those take more who read them, at most: those of the least gains."""
_SOON = 0.5
"""Seconds in which variants are told that somebody waits for."""
_ROUNDS = 15
"""Timed runs of each program, in turn; of each nest the fastest counts."""


class Recipes(ByRecipe):
    """The layer as it is written, then the cheapest term of each recipe that computes less: others are no faster."""

    def __init__(self, target: CompiledCPU, searched: SearchResult, way: Way) -> None:
        super().__init__(target, searched, way)
        self.target = target

    def layer(self, root: int, term: Term) -> Extracted:
        plain, most = self.target.variant_of(term, ()), self.target.max_growth
        work = plain.measures[WORK] or 0
        others = [v for v in super().layer(root, term).variants if v.recipe and (v.measures[WORK] or 0) < work]
        return Extracted([plain, *(v for v in others if growth_of(v.recipe) <= most)])


def growth_of(recipe: str) -> Fraction:
    """How many times that of the plain variant the bound of rounding errors is, by the F(m, r) of a recipe."""
    steps = (word.split(":") for word in recipe.split() if word.startswith("winograd:"))
    return prod((_growth(int(m), int(r)) for _, _, m, r in steps), start=Fraction(1))


@cache
def _growth(m: int, r: int) -> Fraction:
    return cook_toom(m, r).growth


class CompiledCPU(CPU):
    """A processor that programs are compiled for: the nanoseconds of some threads, and the bytes of temporaries.

    memory   the budget of temporaries and results, as of any CPU
    machine  native, or avx512, avx2, neon, generic; or a .toml file, which `glenside calibrate` writes; by default the
             one that programs are compiled for, else native
    tune     whether the best variants of each layer are timed in their places, on this computer; otherwise what they
             take is told by the machine's prices
    threads  how many share the work: what they read from memory does not come faster for more of them, so that weights
             of Winograd's variants, which are larger, pay less; by prices of so many, where `glenside calibrate`
             measured them, else of one
    outputs  the m of Winograd's F(m, r) that are looked for along each axis
    max_growth  how many times that of the plain variant the bound of a variant's rounding errors may be: that of
             F(2, 3) along two axes is 7.1, of F(4, 3) 256

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
            raise BadInput(f"this computer has no {processor.name}: what takes the least there is told, not timed")
        self.threads = whole("threads of a processor", threads, 1, MOST_THREADS)
        self.processor, self.tune = replace(processor, threads=self.threads), tune
        self.max_growth = number("max_growth of a processor", max_growth, 1)
        self.name += f",machine={processor.name}" + (",tune=yes" if tune else "")
        self.name += f",threads={threads}" if threads != 1 else ""
        self.description = repr(self.processor)
        self.objectives, self.compared, self.front = (TIME, PEAK), (TIME, PEAK), None
        how = "timed" if tune else "told by the machine's prices"
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

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        """Those of variants: how windows are read, and how many rows at a time, is for the loops."""
        return tuple(f for f in super().families(way, nodes) if f not in ("cpu-products", "transposed-tiles"))

    def pricing(self, snapshot: Snapshot) -> Any:
        return _Pricing(snapshot, self)

    def variant_of(self, term: Term, recipes: Sequence[str]) -> Variant:
        """The variant that a term is; what it takes is known where it stands."""
        recipe = " | ".join(recipes)
        growth, label = growth_of(recipe), recipe_label(recipe)
        remarks = [f"{label}: the bound of rounding errors is {float(growth):.3g} times that of the plain layer"]
        measures = {TIME: None, WORK: _work(Program(term)), PEAK: None}
        return Variant(label, term, measures, recipe, remarks=tuple(remarks if growth > 1 else ()))

    def least(self, variants: Sequence[Variant]) -> int | None:
        """What the fewest products of them take where all threads add them up as fast as a core can."""
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
        how = "take" if self._is_timed else "are told to take"
        at = f"{self.processor.peak:.1f} in a nanosecond on each of {self._many}"
        return [
            f"the fewest products of these variants take {least:,} ns at the peak of {at}; those chosen {how} {taken:,}"
        ]

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        """As it is written, in a program of such layers."""
        return {"plain": self._plain.get(product, variants[0])}

    def whole(self, program: Program) -> Amounts:
        (found,) = self._in_loops([program], timed=self._is_timed)
        results = sum(b.bytes for b in found.loops.buffers if b.role is Role.RESULT)
        peak = arena(found.loops).bytes_of(self.threads) + results
        return {TIME: round(float(sum(found.nanoseconds))), WORK: _work(found.program), PEAK: peak}

    def in_place(self, found: Sequence[Extracted], placed: Placed, way: Way) -> Sequence[Extracted]:
        """With what each variant takes where it stands, among others of its kind."""
        self._known, self._is_timed, self._on_step = {}, False, way.on_step
        trials = _in_turn([of_layer.variants for of_layer in found])
        if way.at_once:
            trials = self._soon(trials, placed)
        tried = self._with_plain(self._tried(found, placed, trials, False))
        return tried if way.at_once else self._settled(tried, placed, False)

    def refinements(self, way: Way) -> Sequence[Refinement]:
        """The best variants timed; then those that are the best beside each other."""
        return (self._timed_in_place, partial(self._settled, timed=True)) if self.tune and not way.at_once else ()

    def remarks(self, program: Program) -> Sequence[str]:
        found = list(super().remarks(program))
        if self.tune and not self._is_timed:
            found.append("nothing was timed: what variants take is told by the machine's prices")
        if not self._is_timed and self.threads not in (1, *dict(self.processor.shared)):
            found.append(f"nobody measured {self._many} of {self.processor.name}: what one takes is told")
        return found

    def _timed_in_place(self, found: Sequence[Extracted], placed: Placed) -> list[Extracted]:
        """With what the plain variant and the best ones take by the clock."""
        self._known = {}
        best = [sorted(of_layer.variants, key=self.rank)[:_TRIED] for of_layer in found]
        trials = [[of_layer.variants[0] for of_layer in found], *_in_turn(best)]
        tried = self._with_plain(self._tried(found, placed, trials, True))
        self._is_timed = True
        return tried

    def _with_plain(self, found: list[Extracted]) -> list[Extracted]:
        """The same variants: what the plain ones of them take is known from now on."""
        plain = [of_layer.variants[0] for of_layer in found]
        self._plain = {variant.term: variant for variant in plain if variant.term is not None}
        return found

    def _soon(self, trials: Sequence[list[Variant]], placed: Placed) -> list[list[Variant]]:
        """As many of some trials as can be told soon: the first one at least."""
        end, done = time.monotonic() + _SOON, list[list[Variant]]()
        for trial in trials:
            if done and time.monotonic() > end:
                break
            self._in_loops([placed.program(trial)], timed=False)
            done.append(trial)
        return done

    def _settled(self, found: Sequence[Extracted], placed: Placed, timed: bool) -> Sequence[Extracted]:
        """With what the best variants take beside each other; where that makes others the best, once more."""
        for _ in range(_SETTLED):
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
        """With what those take more who read the sums of windows, where the best variant puts them together of parts:
        that is done where they are read, and counts for whoever reads them. Where they take less, the others take more.
        """
        found, best = [*found], [self.best(of_layer.variants) for of_layer in found]
        plain = [of_layer.variants[0] for of_layer in found]
        gains = {
            place: _time(plain[place]) - _time(best[place])
            for place, layer in enumerate(placed.layers.products)
            if any(map(adds_windows, layer_terms(layer))) and best[place].recipe != plain[place].recipe
        }
        times = Counter(placed.numbers.values())
        for place in sorted(gains, key=gains.__getitem__)[:_READ]:
            other = [*best[:place], plain[place], *best[place + 1 :]]
            with_it, without = self._in_loops([placed.program(best), placed.program(other)], timed)
            more = float(sum(with_it.nanoseconds)) - float(sum(without.nanoseconds))
            read = gains[place] + round(more / times[place])
            found[place] = replace(
                found[place],
                variants=[  # those not looked at are read as the slower of the two is
                    _with_time(own, (number > 0) * max(0, read) + (own is not best[place]) * max(0, -read))
                    for number, own in enumerate(found[place].variants)
                ],
            )
            best[place] = self.best(found[place].variants)
        return found

    def _tried(
        self, found: Sequence[Extracted], placed: Placed, trials: Sequence[Sequence[Variant]], timed: bool
    ) -> list[Extracted]:
        """The variants that are tried, with what they take where they are first."""
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

    def _in_loops(self, programs: Sequence[Program], timed: bool) -> list[InLoops]:
        new = {program.term: program for program in programs if program.term not in self._known}
        for term, found in zip(new, self._timed(new.values()) if timed else map(self._told, new.values()), strict=True):
            self._known[term] = found
        return [self._known[program.term] for program in programs]

    def _told(self, program: Program) -> InLoops:
        program = prepared(program, lazily=True)
        loops = lower(program, self.processor)
        return InLoops(program, loops, told(loops, self.processor, self.threads))

    def _timed(self, programs: Collection[Program]) -> list[InLoops]:
        """Programs on this computer, in turn; what was timed before is kept."""
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
    """Prices that choose among terms of one recipe: those that compute and move the fewest elements."""

    def __init__(self, snapshot: Snapshot, target: CompiledCPU) -> None:
        self.snapshot, self.target = snapshot, target
        self.priced = PricedGraph(snapshot, Prices())

    def possible(self, n: int) -> bool:
        return not OPERATORS[self.snapshot.nodes[n].operator].opaque

    def is_product(self, n: int) -> bool:
        node = self.snapshot.nodes[n]
        return node.operator == "compute" and node.attributes[0] == "dot-product"

    def cost(self, n: int) -> tuple[int, ...]:
        cost = self.priced.cost(n)
        return cost.unmapped + cost.scalar + cost.moved, cost.nodes

    def variant(self, recipe: str, root: int, nodes: Mapping[int, int]) -> Variant:
        return self.target.variant_of(self.snapshot.terms(nodes, [root])[root], (recipe,))


def _time(variant: Variant) -> int:
    """Nanoseconds of a variant that was tried."""
    return variant.measures[TIME] or 0


def _with_time(variant: Variant, more: int) -> Variant:
    """A variant that takes so many nanoseconds more."""
    return replace(variant, measures={**variant.measures, TIME: _time(variant) + more})


def _work(program: Program) -> int:
    """Operations of what is not computed of constants alone."""
    constant = constant_terms(program)
    return sum(operations(term) for term in postorder(program.term) if not constant[term])


def _products(root: Term) -> float | None:
    """Products of float32 that are added, of what is not computed of constants alone; None where some are of others."""
    constant = constant_terms(Program(root))
    found = [t for t in postorder(root) if is_product(t) and not constant[t]]
    sizes = [product_sizes(t).macs for t in found if t.access.dtype == "float32"]
    return sum(sizes) if len(sizes) == len(found) else None


def _in_turn(variants: Sequence[Sequence[Variant]]) -> list[list[Variant]]:
    """The first variants of all layers, the second ones, and so on; of a layer that has no more its first one."""
    return [[own[n] if n < len(own) else own[0] for own in variants] for n in range(max(map(len, variants), default=0))]


def _seconds(
    compiled: Sequence[Compiled],
    keys: Sequence[str],
    cache: Cache,
    threads: int,
    on_step: Callable[[str, float], None],
) -> dict[str, Array]:
    """Key -> seconds of the nests of a program: from the cache, or the least of several rounds, in turn."""
    seconds = {key: np.array(json.loads(text), float) for key in keys if (text := cache.get(key)) is not None}
    runs = [(key, f, f.drawn()) for key, f in zip(keys, compiled, strict=True) if key not in seconds]
    for done in range(_ROUNDS):
        on_step(f"timing {len(runs)} programs", done / _ROUNDS)
        for key, f, arrays in runs:
            seconds[key] = np.minimum(f.least_seconds(*arrays, rounds=1, threads=threads), seconds.get(key, np.inf))
    for key, _, _ in runs:
        with suppress(CacheFull):  # it was timed all the same
            cache.put(key, json.dumps(seconds[key].tolist()))
    return seconds
