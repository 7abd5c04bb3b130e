"""A plain processor with a memory budget; the cost is operations, bytes moved and peak memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from glenside.analysis.layers import adds_windows
from glenside.analysis.liveness import (
    Memory,
    Simulation,
    bookkeeping,
    bytes_moved,
    held_buffers,
    live_through,
    operations,
    over_time,
    prepared,
)
from glenside.codegen.processor.model import Machine, read_machine
from glenside.egraph.rule import Parameters
from glenside.egraph.snapshot import Snapshot
from glenside.extract.pareto import Entry, Step, Storing
from glenside.ir.bounds import is_whole, number
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array, Operand, Value
from glenside.ir.operator import OPERATORS
from glenside.ir.operators.tiled_products import gathered
from glenside.ir.program import Program
from glenside.ir.rational import byte_count
from glenside.ir.term import Term, weave
from glenside.ir.types import Tensor
from glenside.passes.distinct_layers import until_added_up
from glenside.passes.integer_sums import for_processors
from glenside.passes.variants import Front
from glenside.semantics.placement import gathers, stores
from glenside.targets.base import (
    Amounts,
    Budget,
    Compiles,
    Measure,
    Pass,
    PricesAlgebra,
    ProductPrices,
    Strategy,
    Target,
    TracksMemory,
    Variant,
    Way,
)
from glenside.targets.recipes import recipe_label
from glenside.targets.registry import target, whole_numbers, with_options

PEAK, MOVED, WORK, TIME = "peak", "moved", "multiply-adds", "time"
LEAST_MEMORY = "least memory"
AT_ONCE = "im2col"
UNLIMITED = "unlimited"
"""The text for no budget in the name of a target."""


@dataclass(frozen=True, slots=True)
class _Operations:
    """Operations of single steps, and bytes of their float32 operands and results times a balance."""

    times_elements: ClassVar[bool] = True
    balance: float

    def count(self, size: int) -> int:
        """Returns the size."""
        return size

    def product(self, groups: int, rows: int, depth: int, columns: int, read: int) -> float:
        """Returns the multiply-adds of products, each of which is a step."""
        return groups * rows * depth * columns + self._moved(read + groups * rows * columns)

    def elementwise(self, read: int, written: int) -> float:
        """Returns the operations of an elementwise function of two operands, or of a sum; none for movement."""
        return (max(read // 2, written) if read else 0) + self._moved(read + written)

    def _moved(self, elements: int) -> float:
        return 4 * self.balance * elements


class CPU(Target, Compiles, TracksMemory, PricesAlgebra):
    """A plain processor: counts multiply-adds, bytes moved and peak memory of every variant of a layer.

    memory    budget of temporaries and results, in bytes or as text such as "8MB"; None or "unlimited": no budget
    balance   multiply-adds per byte moved: time is multiply-adds + balance x bytes moved
    outputs   the m of Winograd's F(m, r) to search for along each axis
    row_strips  maximum number of row strips in which a layer may be computed, a power of 2 up to 16; each number of
              strips is a variant
    machine, tune, threads, max_growth  the machine to compile for, whether to time variants there, the number of
              threads, and the maximum growth of rounding errors. With any of them the cost is the nanoseconds and
              memory of compiled loops; see `glenside.targets.cpu.compiled.CompiledCPU`

    Inputs, constants and terms over constants alone exist before the run and are not counted; nor is memory of the
    process beside its arrays, such as BLAS workspaces. Multiply-adds are not time: a variant with fewer may be slower.
    Raises BadInput.
    """

    strategy: Strategy = Front

    def __new__(cls, *_: Any, **options: Any) -> CPU:
        """Makes a `CompiledCPU` if an option of compiled programs is given."""
        compiled = any(options.get(name) is not None for name in ("machine", "threads", "max_growth"))
        if cls is CPU and (compiled or options.get("tune")):
            from glenside.targets.cpu.compiled import CompiledCPU

            cls = CompiledCPU
        return super().__new__(cls)

    def __init__(
        self,
        memory: int | str | None = None,
        *,
        balance: float = 0,
        outputs: Sequence[int] = (2, 4),
        row_strips: int = 1,
        machine: str | Machine | None = None,
        tune: bool = False,
        threads: int | None = None,
        max_growth: float | None = None,
    ) -> None:
        memory = None if memory == UNLIMITED else memory
        self.memory = byte_count(memory, "a memory budget") if isinstance(memory, str) else memory
        if self.memory is not None and (not is_whole(self.memory) or self.memory <= 0):
            raise BadInput(f"a memory budget is at least 1 byte, got {self.memory!r}")
        number("the balance of a processor", balance)
        if not all(isinstance(m, int) and 2 <= m <= 16 for m in outputs):
            raise BadInput(f"the outputs of F(m, r) are from 2 to 16, got {', '.join(map(str, outputs))}")
        if row_strips not in (1, 2, 4, 8, 16):
            raise BadInput(f"row strips are 1, 2, 4, 8 or 16, got {row_strips}")
        self.balance, self.outputs, self.row_strips = balance, tuple(dict.fromkeys(outputs)), row_strips
        options = (f",balance={balance}" if balance else "") + (f",row_strips={row_strips}" if row_strips > 1 else "")
        self.name = f"cpu:{UNLIMITED if memory is None else memory}{options}"
        self.doc = inspect.cleandoc(CPU.__doc__ or "")
        self._families = (
            *("analyses", "recipe-analyses", "winograd", "cpu-products"),
            *("transposed-analyses", "transposed", "transposed-tiles"),
            *(("row-strip-analyses", "row-strips") if row_strips > 1 else ()),
        )
        self.front = self.compared = (TIME if balance else WORK, PEAK)
        self.objectives = (*self.front, MOVED)
        if self.memory is not None:
            self.budget = Budget(PEAK, self.memory, "bytes", "memory budget")
        self.measures = (
            *((Measure(TIME, "multiply-adds", "multiply-adds, and bytes moved times the balance"),) if balance else ()),
            Measure(
                WORK, "operations", "a multiplication that is added, or any other operation on an element; no time"
            ),
            Measure(PEAK, "bytes", "the most that temporaries and results hold at a time", adds=False),
            Measure(MOVED, "bytes", "read and written, windows as often as they are"),
        )

    @property
    def leaves_variants_to_runtimes(self) -> bool:
        """True without a budget: within a budget the chosen variants must be kept."""
        return self.memory is None

    def passes(self, way: Way) -> Sequence[Pass]:
        return for_processors, until_added_up

    def compiled_for(self, machine: Machine | None) -> CPU:
        """Returns a target with this budget that compiles for the machine; returns itself if it
        has its own time model.
        """
        if machine is None or self.balance or self.row_strips > 1:
            return self
        return CPU(self.memory, outputs=self.outputs, machine=machine)

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        """Returns all families; without those of transposed convolutions if no node adds up windows."""
        if any(map(adds_windows, nodes)):
            return self._families
        return tuple(name for name in self._families if not name.startswith("transposed"))

    def rule_parameters(self) -> Parameters:
        return {"winograd": sum(1 << m for m in self.outputs), "row_strips": self.row_strips, "scatter": 0}

    def pricing(self, snapshot: Snapshot) -> Any:
        """Returns the cost of e-nodes over entries of their children."""
        return Pricing(snapshot, self)

    def variant_of(self, term: Term, recipes: Sequence[str]) -> Variant:
        """Returns the variant of a term whose products have these recipes."""
        run = _Watched([term])
        taken = run.finish()
        measures = {WORK: taken.operations, PEAK: taken.peak.bytes, MOVED: taken.moved}
        if self.balance:
            measures = {TIME: self.time(taken.operations, taken.moved), **measures}
        parts = [part for recipe in recipes for part in recipe_label(recipe, "").split(", ")]
        names = [*filter(None, dict.fromkeys(parts))]
        tiles = run.tiles()
        words = [" and ".join(names)] if names else []
        words += [tiles] if tiles and not (names and tiles == AT_ONCE) else []
        return Variant(", ".join(words) or "plain", term, measures, " | ".join(recipes))

    def product_prices(self) -> ProductPrices:
        """Returns the operations of products, and the bytes that they move times the balance."""
        return _Operations(self.balance)

    def predicted(self, program: Program) -> float | None:
        """Returns the first objective of a program that runs as it is written."""
        return float(self.variant_of(program.term, ()).measures[self.objectives[0]] or 0)

    def admits(self, given: Program, other: Program) -> bool:
        """True if another form needs no more memory than the budget, or than the given form."""
        peaks = [self.variant_of(program.term, ()).measures[PEAK] or 0 for program in (given, other)]
        return self.memory is None or peaks[1] <= max(self.memory, peaks[0])

    def time(self, work: int, moved: int) -> int:
        """Returns multiply-adds + balance x bytes moved."""
        return work + round(self.balance * moved)

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        """Returns the layer as the interpreter runs it, and the variant with the least memory."""
        order = (PEAK, *self.objectives)
        least = min(variants, key=lambda v: [v.measures[m] for m in order])
        return {"plain": variants[0], LEAST_MEMORY: least}

    def whole(self, program: Program) -> Amounts:
        """Returns the measures of a program; the peak includes the interpreter's bookkeeping."""
        measures = self.variant_of(program.term, ()).measures
        peak = measures[PEAK]
        assert peak is not None, "what can be run has a peak"
        return {**measures, PEAK: peak + bookkeeping(program)}

    def held(self, program: Program) -> Mapping[str, int]:
        return live_through(program)

    def memory_over_time(self, program: Program) -> Sequence[tuple[str, str, int]]:
        """Returns the memory of each step; the interpreter's bookkeeping is live all the time, as in `whole`."""
        noted = bookkeeping(program)
        return [(what, layer, held + noted) for what, layer, held in over_time(program)]


@dataclass(frozen=True, slots=True, eq=False)
class _Value:
    """The value of an entry: a term, a symbolic array, and whether the term is folded before the run."""

    term: Term
    value: Value
    fixed: bool


class _Watched(Simulation):
    """A simulated run that records the rows gathered at a time, of how many, and the positions added at a time."""

    def __init__(self, roots: Sequence[Term]) -> None:
        super().__init__(roots)
        self.gathered: list[tuple[int, int]] = []
        self.added: list[tuple[int, int]] = []

    def apply(self, term: Term, arguments: Sequence[Any], out: Array | None) -> Value:
        if term.operator.name == "tiled-product":
            a, _, n, tile = arguments
            rows = gathered(a, n, tile)
            self.gathered += [(rows, a.access.shape.drop(n).product())] if rows else []
        elif term.operator.name == "overlap-add-product":
            a, _, _, sizes, *_, tile = arguments
            positions = a.access.shape.drop(a.split - len(sizes)).product()
            self.added.append((min(tile, positions), positions))
        return super().apply(term, arguments, out)

    def tiles(self) -> str:
        """Returns the tiling as text; "" if nothing is gathered or added up."""
        if self.added:
            most, whole = max(self.added)
            return "overlap-add" if most == whole else f"overlap-add in tiles of {most} positions"
        if not self.gathered:
            return ""
        if all(rows == whole for rows, whole in self.gathered):
            return AT_ONCE
        most = max(rows for rows, _ in self.gathered)
        return f"tiles of {most} rows" if most > 1 else "row by row"


class Pricing:
    """The time, bytes moved and memory of each e-node, over entries of its children."""

    def __init__(self, snapshot: Snapshot, target: CPU) -> None:
        self.snapshot, self.target, self.memory = snapshot, target, Memory()
        usable = dict(snapshot.usable())
        self.members = {c: nodes for c, nodes in usable.items() if snapshot.types[c] is not None}
        self.tiled = {
            c for c, nodes in usable.items() if any(snapshot.nodes[n].operator == "tiled-product" for n in nodes)
        }

    def as_written(self, term: Term) -> Variant:
        """Returns the layer as it is written. Raises BadInput for a budget below the layer's own result."""
        result = term.access.size * np.dtype(term.access.dtype).itemsize
        most = self.target.memory
        if most is not None and result > most:
            raise BadInput(f"a layer's result of {result:,} bytes is larger than the memory budget of {most:,}")
        return self.target.variant_of(term, ("",))

    def variant(self, term: Term, recipes: Sequence[str]) -> Variant:
        return self.target.variant_of(term, recipes)

    def step(self, n: int, parts: Sequence[Entry]) -> Step | None:
        node = self.snapshot.nodes[n]
        term = self.snapshot.term_of(node, [p.value.term for p in parts])
        fixed = all(p.value.fixed for p in parts) and all(a.constant for a in term.attributes if isinstance(a, Tensor))
        product = node.operator == "compute" and node.attributes[0] == "dot-product"
        if product and not fixed and self.snapshot.owner[n] in self.tiled:
            return None  # the tiled product replaces it: its memory is known exactly
        if OPERATORS[node.operator].opaque:
            return None
        if fixed and node.operator != "access-product":
            return Step(0, 0, 0, {}, _Value(term, prepared(term, self.memory), True))
        if not parts:
            return Step(0, 0, 0, {}, _Value(term, self.memory.given(term.access.dims, term.access.dtype), False))
        return self._computed(term, parts, fixed)

    def _computed(self, term: Term, parts: Sequence[Entry], fixed: bool) -> Step:
        operands: list[Any] = [p.value.value for p in parts]
        if term.operator.typed:
            operands = [Operand(c.type, v) for c, v in zip(term.children, operands, strict=True)]
        arguments = weave(term.operator, operands, term.attributes)
        live = self.memory.live
        self.memory.step(None)
        value = self.memory.apply(term, arguments)
        peak, copied = self.memory.most - live, self.memory.live - live
        moved = bytes_moved(term, arguments, value, copied)
        held = {id(buffer): buffer.counted for buffer in held_buffers(value)}
        time = self.target.time(operations(term), moved)
        return Step(time, moved, peak, held, _Value(term, value, fixed), _storing(term, len(held), copied))


def _storing(term: Term, buffers: int, copied: int) -> Storing:
    """Returns where the interpreter may store the result of a term."""
    operator = term.operator
    if buffers != 1:
        return Storing.NOWHERE
    if gathers(term):
        return Storing.GATHERS
    if stores(term):
        return Storing.ANYWHERE
    whole = operator.places is not None and not copied and term.access.size == term.children[0].access.size
    return Storing.VIEW if whole else Storing.NOWHERE


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "balance": float,
    "outputs": whole_numbers,
    "row_strips": int,
    "machine": str,
    "tune": {"yes": True, "no": False}.__getitem__,
    "threads": int,
    "max_growth": float,
}
_READ = with_options("cpu", _OPTIONS)


def _load(path: str, content: Mapping[str, Any], **options: Any) -> CPU:
    """Builds the target of a machine file, as `glenside calibrate` writes it, without a budget."""
    return CPU(**{"machine": read_machine(content, path), **options})


@target("cpu", "cpu:8MB", read=_READ, options=CPU, load=_load, bare=UNLIMITED)
def _cpu(memory: str, given: Mapping[str, Any], **options: Any) -> CPU:
    """A plain processor with a memory budget; counts multiply-adds, bytes moved and peak memory."""
    return CPU(memory, **{**given, **options})
