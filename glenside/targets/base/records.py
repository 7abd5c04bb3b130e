"""The records that targets, extraction and reports exchange: measures, variants, budgets, and options of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.targets.base.prices import InstructionCost

if TYPE_CHECKING:
    from glenside.egraph.search import Search, SearchResult


@dataclass(frozen=True)
class Measure:
    """A measure of a variant's cost, such as cycles or bytes sent; amounts are whole numbers of `unit`."""

    name: str
    unit: str
    doc: str
    adds: bool = True
    """True if the amount of a program is the sum over its parts."""
    shown: str = "amount"
    """The display in tables: the "amount", its "growth" over the first baseline, or "" to hide it."""


Amounts = Mapping[str, int | None]
"""measure -> amount; None: unknown."""


@dataclass(frozen=True)
class Variant:
    """An equal program of a layer, with its cost.

    label      name for reports: "plain", "Winograd F(2x2,3x3)", "operands swapped, K 512 in 8"
    term       the program; None for a baseline that is priced but not built
    measures   the cost, by measure
    recipe     the steps from the layer's own product, as rules write them
    off        the reason why the layer's product is not mapped, or ""
    remarks    sentences about the measures, such as a bound of rounding errors
    details    further data for programs, as JSON
    """

    label: str
    term: Term | None
    measures: Amounts
    recipe: str = ""
    off: str = ""
    remarks: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cone:
    """The part of an answer that computes one layer; each e-node counts for one layer only.

    instructions  the costs of its instructions
    products   e-nodes of products that are not mapped to an instruction
    mappings   the rows of the relation `mapping` for its instructions
    recipe     the steps from the program's product to the products that compute it, as rules write them
    rules      a trace: the rules that built the chosen e-nodes
    constant   True if the layer is computed from constants alone
    """

    instructions: Sequence[InstructionCost] = ()
    products: Sequence[int] = ()
    mappings: Sequence[tuple[Any, ...]] = ()
    recipe: str = ""
    rules: tuple[str, ...] = ()
    constant: bool = False

    @property
    def mapping(self) -> tuple[Any, ...] | None:
        """The mapping of the only instruction; None if there is not exactly one."""
        return self.mappings[0] if len(self.mappings) == 1 else None


class Scope(Enum):
    """The part of a program that goes into one e-graph."""

    LAYERS = "layers"  # each distinct layer, over formal inputs; operators between layers do not change
    LAYERS_AND_BETWEEN = "layers and between"  # the operators between layers too
    PROGRAM = "program"  # the whole program; a layer is a leaf of the terms that read it
    NETWORK = "network"  # the whole program, as one term


@dataclass(frozen=True)
class Way:
    """The options of a search that a target may leave open.

    blocking   "tile-loops": counts of tiles are axes; "unrolled-tiles": every tile is a term
    mapping    "best", or "baseline": tile each product as it is written
    method     extraction method: "auto", "greedy", "dag" or "exact"
    extract_seconds  time limit of "exact" for the whole program
    explain    True: report the rules that made each chosen variant
    exact_order  True: keep the order of sums and products between layers as it is written
    at_once    True: skip slow trials, because the user waits after an interrupt
    trace      True: the e-graph records for each e-node the rule, the iteration and the class it was made from; the
               answer has the same cost, but ties may break differently
    on_step    callback for progress: (step, fraction done)
    """

    blocking: str = "tile-loops"
    mapping: str = "best"
    method: str = "auto"
    extract_seconds: float = 60.0
    explain: bool = False
    exact_order: bool = False
    at_once: bool = False
    trace: bool = field(default=False, compare=False, repr=False)
    on_step: Callable[[str, float], None] = field(default=lambda _what, _part: None, compare=False, repr=False)

    def choices(self) -> dict[str, Any]:
        """Returns the choices as arguments of `optimize`."""
        return {name: value for name, value in vars(self).items() if name not in _OF_A_RUN}


_OF_A_RUN = ("at_once", "trace", "on_step")
"""Fields of a way that are not choices."""


@dataclass(frozen=True)
class Budget:
    """The capacity of a machine in one measure. `what` names it in sentences, such as "memory budget"."""

    measure: str
    most: float
    unit: str
    what: str
    spares_baseline: bool = False
    """True: if no variant is within the budget, the first baseline is chosen and does not count as above it."""

    def excess(self, amounts: Amounts) -> float:
        """Returns the amount above the budget, at least 0; infinity for an unknown amount."""
        amount = amounts[self.measure]
        return float("inf") if amount is None else max(0, amount - self.most)


@dataclass(frozen=True)
class NodeCosts:
    """The costs of the e-nodes of one e-graph.

    names   (short name, text after a number) of each amount, in the order of comparison; the last one is "nodes"
    cost    e-node -> its amounts in that order, without its children; None if the machine does not have it
    remark  a sentence about the costs, or ""
    """

    names: Sequence[tuple[str, str]]
    cost: Callable[[int], tuple[int, ...] | None]
    remark: str = ""


@dataclass(frozen=True)
class Extracted:
    """The variants of one layer; the layer as written comes first if it is among them.

    choice  class -> e-node of the cheapest variant, if a single term was extracted
    bound   lower bound of the first objective over all terms of the e-graph, or None
    cone    the cone of the cheapest variant, if a single term was extracted
    cost    its cost vector, likewise
    """

    variants: Sequence[Variant]
    choice: Mapping[int, int] = field(default_factory=dict)
    bound: int | None = None
    cone: Cone | None = None
    cost: Any = None


class Extractor(Protocol):
    """Extracts the layers of one e-graph, one by one."""

    def layer(self, root: int, term: Term) -> Extracted:
        """Returns the variants of the class `root`, which contains `term`."""


Strategy: TypeAlias = "Callable[[Any, SearchResult, Way], Extractor]"
"""(target, finished search, way) -> the extractor of its layers."""


class Pass(Protocol):
    """A pass: returns an equal program, and why its search ended (saturated if it has none)."""

    def __call__(self, program: Program, search: Search) -> tuple[Program, str]:
        """Returns the changed program, or the program itself if none is better."""
