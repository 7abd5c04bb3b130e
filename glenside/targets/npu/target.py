"""The target `npu`: an array with memories; each layer keeps a Pareto front of mappings for joint selection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from glenside.analysis.layers import product_sizes
from glenside.egraph.search import SearchResult
from glenside.ir.errors import BadInput
from glenside.ir.packages import load
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.npu.lowering.tiling.element_sums import WINDOWS, sources_of_windows
from glenside.npu.machine.config_text import NAME, read_machine, read_options
from glenside.npu.machine.model import Energy, Machine, with_useful_beats
from glenside.npu.model.cycle_model import delays
from glenside.npu.program.program import NpuProgram
from glenside.passes.network import fold_batch_norms
from glenside.passes.variants import EveryMapping
from glenside.targets.arrays.matrix_array import BASELINE, MatrixArray
from glenside.targets.arrays.plan import Plan
from glenside.targets.base import Cone, EmitsInstructions, Measure, Pass, Prices, Scope, Variant, Way
from glenside.targets.npu.array import NpuArray
from glenside.targets.npu.holding import Holding, Operands
from glenside.targets.registry import target

if TYPE_CHECKING:
    from glenside.quantization.layers import IntegerNetwork
    from glenside.report.result import Result

OBJECTIVES = ("cycles", "bytes")
SIDE = 64
"""Default rows and columns of the array; reports name them."""
SLACK = 2
"""Maximum cost of a candidate mapping, as a multiple of the cheapest; the mapping as written is always a candidate."""


class NPU(MatrixArray, EmitsInstructions):
    """A machine that runs whole networks: an array of R x C int8 multipliers between scratchpad, accumulators and DRAM.

    rows          R, rows of the array and banks of the scratchpad; or a `Machine`, which has all sizes
    columns       C, columns of the array; by default R
    pipelined     True: the array loads the next tile of weights while rows stream
    scratchpad    bytes of the scratchpad
    weights       bytes of weight memory; None: an eighth of the scratchpad, or two tiles of weights if that is more
    accumulators, parameters, tables, functions, instructions
                  sizes of the other memories: see `glenside.npu.machine.model.Machine`
    bandwidth     bytes per beat of the DRAM port, a power of two
    latency       cycles from a request to its first beat
    clock         hertz; None: times are in cycles
    energy        picojoules per operation and access; None: energy is not reported
    objectives    the measures to minimize, in order, of "cycles" and "bytes"

    Each layer keeps a front of mappings: a mapping is dropped if another one is no worse in cycles, in bytes moved, in
    DRAM bytes for any placement of tensors, and in buffers. They are found among those within SLACK times the least
    cycles, and the layer as written. Operands that are swapped stay in the array as weights do, so activations pass
    DRAM: it is the only way to the weight memory. Cycles are those of the array, as if all operands were in its
    memories. Raises BadInput.
    """

    ways = frozenset({"mapping", "explain"})
    measures = (
        Measure("cycles", "cycles", "of the array, its operands in its memories"),
        Measure("tiles", "tiles", "weights loaded, each for some rows that stream"),
        Measure("bytes", "bytes", "from and to DRAM, for the layer alone: each element once, weights as loaded"),
        Measure("off chip", "bytes", "of those, what passes DRAM even where tensors stay on chip: weights", shown=""),
        Measure("buffers", "bytes", "of lanes and weight memory that hold all that the layer reads", False, ""),
    )
    front = ("cycles", "bytes", "off chip", "buffers")
    compared = ("cycles",)
    uncounted = "memories and DMA"
    strategy = EveryMapping
    search_parts = 2

    def __init__(
        self,
        rows: int | Machine = SIDE,
        columns: int | None = None,
        *,
        pipelined: bool = True,
        scratchpad: int = 1 << 20,
        weights: int | None = None,
        accumulators: int = 512,
        parameters: int = 64,
        tables: int = 64,
        functions: int = 2,
        instructions: int = 256,
        bandwidth: int = 32,
        latency: int = 100,
        clock: float | None = None,
        energy: Energy | None = None,
        objectives: Sequence[str] = OBJECTIVES,
        name: str | None = None,
    ) -> None:
        memories = scratchpad, weights, accumulators, parameters, tables, functions, instructions
        rest = bandwidth, latency, clock, energy
        machine = rows if isinstance(rows, Machine) else Machine(rows, columns or rows, pipelined, *memories, *rest)
        unknown = next((one for one in objectives if one not in OBJECTIVES), None)
        if unknown is not None:
            raise BadInput(f"an objective of an npu is one of {', '.join(OBJECTIVES)}, got {unknown!r}")
        most, beats = min(machine.half_accumulators, machine.half_depth), with_useful_beats(machine)
        super().__init__(machine.rows, machine.columns, max_rows=most, objectives=objectives, name=name or str(machine))
        self.array: NpuArray = NpuArray(
            machine.rows,
            machine.columns,
            max_rows=most,
            pipelined=machine.pipelined,
            drain=delays(machine)["stream"],
            row_bytes=beats.weight_beats * beats.bandwidth,
        )
        self.npu = machine
        self.prices = Prices(self.array.instructions(), ("cycles", "bytes"))
        self.doc = NPU.__doc__ or ""
        self.description = f"{machine!r} {self.objectives}"
        self._operands = lru_cache(maxsize=None)(Operands.of)

    @property
    def gates(self) -> float:
        """The gates extrapolated from smaller machines, without Yosys: `glenside.npu.rtl.area_model`."""
        from glenside.npu.rtl.area_model import gates

        return gates(self.npu)

    def scope(self, way: Way) -> Scope:
        """Returns LAYERS: the lowering handles the integer operators between layers as they are written."""
        return Scope.LAYERS

    def passes(self, way: Way) -> Sequence[Pass]:
        """Returns batch-norm folding only: instructions compute products, and windows are added up after them."""
        return (fold_batch_norms,)

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        """Returns the families of a weight-stationary array; the front includes the mapping as written."""
        known = super().families(way, nodes)
        return known if way.mapping != "best" else (*known, "mapping-front", "baseline-mapping")

    def rule_parameters(self) -> dict[str, Any]:
        array = self.array
        return {
            **super().rule_parameters(),
            "price": lambda *sizes: array.tiled(*sizes).cycles,
            "fallback-price": lambda *sizes: array.tiled(*sizes).cycles,
            "bound": lambda *sizes: array.bound(*sizes).cycles,
            "second-price": lambda g, m, k, o: array.stationary(g, k, o),
            "third-price": lambda g, m, k, o: array.streaming(g, m, k),
            "within": lambda best: SLACK * best,
        }

    def variant(self, product: Term, cone: Cone, term: Term, searched: SearchResult) -> Variant:
        known = super().variant(product, cone, term, searched)
        holding = Holding()
        if cone.mapping is not None and not cone.constant:
            plan = Plan.of(*cone.mapping)
            holding = Holding.of(self.array, self._operands(product), product_sizes(product), plan)
        details = {**known.details, "machine": holding.as_dict()}
        measures = self._measures(known.measures, holding)
        remarks = known.remarks if cone.constant else (*known.remarks, *self._arrival(product, known))
        return replace(known, measures=measures, details=details, remarks=remarks)

    def _arrival(self, product: Term, known: Variant) -> Iterator[str]:
        """Yields a remark if loading the weights of a layer takes longer than the array: no mapping counts that."""
        own, port, cycles = self._operands(product), self.npu.bandwidth, known.measures["cycles"] or 0
        size = own.left * own.given[0] + own.right * own.given[1]
        least = -(-size // port)
        if least > cycles:
            words = f"{size:,} bytes of weights of a layer take at least {least:,} cycles to come from DRAM"
            yield f"{words}, {port:,} a cycle: the array takes {cycles:,}"

    def runs(self, term: Term) -> bool:
        """True if no windows are added up after the array: an accumulator only adds sums of its own index."""
        added = (each for each in postorder(term) if each.operator.name == WINDOWS)
        return all(sources_of_windows(each).shape[-1] == 1 for each in added)

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        (known,) = super().baselines(product, variants).values()
        idle = not known.measures["cycles"]
        sizes = product_sizes(product)
        holding = Holding() if idle else Holding.of(self.array, self._operands(product), sizes)
        return {BASELINE: replace(known, measures=self._measures(known.measures, holding))}

    @staticmethod
    def _measures(known: Mapping[str, int | None], holding: Holding) -> dict[str, int | None]:
        taken = {name: known[name] for name in ("cycles", "tiles")}
        return {**taken, "bytes": holding.bytes, "off chip": holding.off_chip, "buffers": holding.buffers}

    def load_back_end(self) -> None:
        load(("glenside.npu.pipeline",))

    def machine_code(
        self, mapped: Program, written: Program, seed: int = 0, show: Callable[[str, float], None] = lambda *_: None
    ) -> NpuProgram:
        from glenside.npu.lowering.emission.emit_program import lowered

        return lowered(mapped, written, self.npu, seed, lambda name, done, of: show(name, done / of))

    def network_code(
        self,
        result: Result,
        network: IntegerNetwork,
        seed: int = 0,
        show: Callable[[str, float], None] = lambda *_: None,
        keep: Callable[[NpuProgram], None] = lambda _: None,
        quick: bool = False,
    ) -> NpuProgram:
        from glenside.npu.pipeline import compile_network

        def on_progress(name: str, done: int, of: int) -> None:
            show(name, done / of)

        return compile_network(result, network, self.npu, seed, on_progress, keep, quick)

    def best(self, variants: Sequence[Variant]) -> Variant:
        """Returns the chosen variant with the whole front in its details."""
        chosen = super().best(variants)
        front = [{"label": v.label, "measures": v.measures, **v.details} for v in variants]
        return replace(chosen, details={**chosen.details, "mappings": front})


def _load(path: str, content: Mapping[str, Any], **options: Any) -> NPU:
    return NPU(read_machine(path, content), **options)


def _read(text: str) -> tuple[Machine]:
    return (read_options(text),)


def _options(*, objectives: Sequence[str] = OBJECTIVES) -> None:
    """Declares the parameters that flags may set."""


@target(
    NAME,
    "npu:RxC or npu:RxC,bandwidth=16,..",
    read=_read,
    options=_options,
    objectives=OBJECTIVES,
    load=_load,
    bare=f"{SIDE}x{SIDE}",
)
def _npu(machine: Machine, **options: Any) -> NPU:
    """A machine of a pipelined R x C array, lanes, accumulators and DRAM; each layer keeps a front of mappings."""
    return NPU(machine, **options)
