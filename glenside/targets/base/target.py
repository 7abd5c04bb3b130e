"""Targets: what a machine counts, what it makes least, what it can hold, and which rules serve it.

A target only describes. `glenside.driver` searches: it asks for rule families, parameters and prices, and for the
variants of each layer by the strategy that the target names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from glenside.egraph.rule import Parameters
from glenside.ir.errors import BadInput
from glenside.ir.operators.compute import name_of
from glenside.ir.operators.opaque import name_of as name_of_box
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.targets.base.prices import Prices

if TYPE_CHECKING:
    from glenside.egraph.search import SearchResult
    from glenside.egraph.snapshot import Snapshot
    from glenside.passes.answer import Answer, Placed
    from glenside.passes.extraction import Cone
    from glenside.passes.network import Pass
    from glenside.passes.variants import Extracted, Strategy


@dataclass(frozen=True)
class Measure:
    """One thing that a variant takes, such as cycles or bytes sent; amounts are whole numbers of `unit`."""

    name: str
    unit: str
    doc: str
    adds: bool = True
    """Whether that of a program is the sum of those of its parts."""
    shown: str = "amount"
    """How tables show it: the "amount", its "growth" over the first baseline, or "" for not at all."""


Amounts = Mapping[str, int | None]
"""measure -> amount; None is an amount that is not known."""


@dataclass(frozen=True)
class Variant:
    """One equal program of a layer, and what it takes.

    label      in words: "plain", "Winograd F(2x2,3x3)", "operands swapped, K 512 in 8"
    term       None of a baseline that is priced and not built
    recipe     the steps from the layer's own product, as rules write them
    off        why the layer's product stays off the machine, or ""
    remarks    what must be said of the measures, such as what has no bound
    details    what else a program may want to know of it, as JSON
    """

    label: str
    term: Term | None
    measures: Amounts
    recipe: str = ""
    off: str = ""
    remarks: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


class Scope(Enum):
    """What goes into one e-graph."""

    LAYERS = "layers"  # each distinct layer, over formal inputs; what is between them stays as it is
    LAYERS_AND_BETWEEN = "layers and between"  # what is between them too
    PROGRAM = "program"  # all of it, its layers being leaves of what reads them
    NETWORK = "network"  # all of it, as one


@dataclass(frozen=True)
class Way:
    """How a search is to be done, as far as a target leaves a choice.

    blocking   "tile-loops": counts of tiles are axes; "unrolled-tiles": every tile is a term
    mapping    "best", or "baseline": each product cut into tiles as it stands
    method     of extraction: "auto", "greedy", "dag" or "exact"; extract_seconds bounds "exact" for the whole program
    explain    whether the report traces which rules made what was chosen
    at_once    whether somebody waits: then what takes long to try is not tried
    trace      whether the e-graph says of each e-node which rule made it, when and from what; the answer costs
               the same, and may be another among equals
    on_step    is told what is tried, and the part of it that is done
    on_draft   is given each answer that is going to be refined, so that it can be kept whatever comes
    """

    blocking: str = "tile-loops"
    mapping: str = "best"
    method: str = "auto"
    extract_seconds: float = 60.0
    explain: bool = False
    at_once: bool = False
    trace: bool = field(default=False, compare=False, repr=False)
    on_step: Callable[[str, float], None] = field(default=lambda _what, _part: None, compare=False, repr=False)
    on_draft: Callable[[Answer], None] = field(default=lambda _: None, compare=False, repr=False)

    def choices(self) -> dict[str, Any]:
        """What was chosen, as arguments of `optimize`."""
        return {name: value for name, value in vars(self).items() if name not in _OF_A_RUN}


_OF_A_RUN = ("at_once", "trace", "on_step", "on_draft")
"""What a way has beside what was chosen."""


@dataclass(frozen=True)
class Budget:
    """The most that a machine can hold of a measure. `what` names it in sentences, such as "memory budget"."""

    measure: str
    most: float
    unit: str
    what: str
    spares_baseline: bool = False
    """Whether the first baseline is taken where nothing keeps to the budget, and does not count as above it."""

    def excess(self, amounts: Amounts) -> float:
        """How far above the budget; an amount that is not known is above any."""
        amount = amounts[self.measure]
        return float("inf") if amount is None else max(0, amount - self.most)


Refinement: TypeAlias = "Callable[[Sequence[Extracted], Placed], Sequence[Extracted]]"
"""The variants of distinct layers, and where they stand -> the same variants, with what they take there."""


@dataclass(frozen=True)
class NodeCosts:
    """What the e-nodes of one e-graph take, one by one.

    names   of amounts in the order in which they are compared, the last one "nodes": short, and in words after a number
    cost    of an e-node by itself, in that order; None of one that the machine does not have
    remark  what else must be said of them
    """

    names: Sequence[tuple[str, str]]
    cost: Callable[[int], tuple[int, ...] | None]
    remark: str = ""


class Target(ABC):
    """A machine, and what is asked of it.

    measures    everything that is counted, the one that tables compare first
    objectives  the measures that are made least, in that order
    front       measures that variants trade for each other, where there is such a choice; plots show the first two
    compared    the measures that tables show for every baseline, and not for the answer alone
    ways        the fields of `Way` that may be other than by default
    """

    name: str
    doc: str
    measures: tuple[Measure, ...]
    objectives: tuple[str, ...]
    front: tuple[str, ...] | None = None
    compared: tuple[str, ...] = ()
    uncounted: str = ""
    """What the first measure of layers leaves out, in words, of a machine whose programs count it."""
    budget: Budget | None = None
    strategy: Strategy
    """How variants of layers are extracted, where layers or what is between them are searched; see `scope`."""
    prices: Prices = Prices()
    """Of e-nodes, where they add up."""
    peak: int | None = None
    """Multiply-accumulates a cycle, where cycles are counted."""
    processor: Any = None
    """The machine that its programs are compiled for, where it is one."""
    machine: str = ""
    """Where its programs can be run and its costs measured, as `glenside run --on` calls it."""
    description: str = ""
    """Every number that prices depend on, as text: the answers of another description are others."""
    ways: ClassVar[frozenset[str]] = frozenset()
    repeatable: ClassVar[bool] = False
    """Whether answers may be kept in a cache: whether `description` and `name` say all that they depend on."""
    has_code: ClassVar[bool] = False
    """Whether mapped programs become instructions: `machine_code`."""
    search_parts: ClassVar[int] = 1
    """In how many parts layers that share nothing are searched, by as many processes where there may be: a second one
    takes half a second of a processor to start, which pays where other work comes before the search.
    """

    @property
    def gates(self) -> float | None:
        """The area of the machine, in NANDs of two inputs, memories with it; None where that is not known."""
        return None

    @property
    def most_bytes(self) -> float | None:
        """The budget of memory, where that is what the budget is of."""
        return self.budget.most if self.budget is not None and self.budget.unit == "bytes" else None

    def load_back_end(self) -> None:
        """Load what makes instructions of answers, which takes a while: that of their search, which is waited for."""
        return

    @property
    def leaves_variants_to_runtimes(self) -> bool:
        """Whether in a file of standard operators each layer is one, and how it is computed the runtime's to choose: it
        has kernels of its own for the same machine. Accelerators have it spelled out.
        """
        return False

    @property
    def leaves_layouts_to_runtimes(self) -> bool:
        """Whether a file of standard operators, which say a layout of their own, has those that are found only where
        less is moved there too, by no more nodes of any operator.
        """
        return False

    def accept(self, way: Way) -> None:
        """Raise BadInput for a way that the target does not have."""
        for choice in fields(Way):
            if getattr(way, choice.name) != choice.default and choice.name not in self.ways:
                flag = {"method": "extract", "extract_seconds": "extract-time-limit"}.get(choice.name, choice.name)
                raise BadInput(f"{self.name} has no option --{flag}: there is one way to search for it")

    def scope(self, way: Way) -> Scope:
        """What is searched at once."""
        return Scope.LAYERS

    def passes(self, way: Way) -> Sequence[Pass]:
        """The changes of the program as a whole that come before its search."""
        return ()

    @abstractmethod
    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        """The rule families that can find anything in these nodes: others would only take the time to load them."""

    @abstractmethod
    def rule_parameters(self) -> Parameters:
        """What the parameters and formulas of rules stand for."""

    def leaf_kind(self, program: Program) -> Callable[[Term], str]:
        """What tells leaves of layers apart that the machine does not treat alike: a part of their formal names."""
        return lambda leaf: ""

    def root(self, product: Term) -> Term:
        """What is searched for a product of the program: itself, or what the machine makes of it."""
        return product

    @abstractmethod
    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        """What a user would have for every layer alike, by name, such as "plain" or "baseline": of the
        program as `passes` leave it.
        """

    def variant(self, product: Term, cone: Cone, term: Term, searched: SearchResult) -> Variant:
        """The variant that a cone of an answer is, where prices of e-nodes add up: `term` computes the product."""
        raise NotImplementedError(f"{self.name} takes its variants otherwise")

    def runs(self, term: Term) -> bool:
        """Whether the machine runs a layer as that term maps it."""
        return True

    def rank(self, variant: Variant) -> tuple[float, ...]:
        """The order of variants: what keeps to the budget, then the objectives, then the other measures."""
        taken = {name: float("inf") if n is None else n for name, n in variant.measures.items()}
        amounts = [taken[name] for name in dict.fromkeys((*self.objectives, *(m.name for m in self.measures)))]
        budget = self.budget
        if budget is None or (budget.spares_baseline and not variant.recipe) or not budget.excess(variant.measures):
            return (0, *amounts)
        return (1, taken[budget.measure], *amounts)

    def compiled_for(self, machine: Any) -> Target:
        """What programs are optimized for when they are compiled for a machine, if it does not say one itself; None is
        one of plain loops.
        """
        return self

    def in_place(self, found: Sequence[Extracted], placed: Placed, way: Way) -> Sequence[Extracted]:
        """The variants of distinct layers, with what they take where they stand, if that depends on what is around."""
        return found

    def refinements(self, way: Way) -> Sequence[Refinement]:
        """What takes long, and knows more of variants where they stand, in this order: the answer so far stands
        wherever somebody ends it.
        """
        return ()

    def best(self, variants: Sequence[Variant]) -> Variant:
        """The variant of a layer that is chosen among all of it."""
        return min(variants, key=self.rank)

    def left_out(self, layers: Collection[Sequence[Variant]]) -> Sequence[str]:
        """What must be said of better variants that a limit kept from being chosen, of all those of each layer."""
        return ()

    def whole(self, program: Program) -> Amounts | None:
        """Measures of a whole program; None where they are the sums of those of its layers. Needed where the
        network is searched as one.
        """
        return None

    def rounds(self, program: Program) -> bool:
        """Whether the machine computes the program in numbers of its own that are rounded: no answer is exact then."""
        return False

    def observed(self, variants: Sequence[Variant], seed: int) -> str:
        """What those variants of layers show in the machine's own numbers, as a sentence; none where it does not round.

        It evaluates them, on what it draws by the seed.
        """
        return ""

    def held(self, program: Program) -> Mapping[str, int]:
        """Layer -> how much of the budget other values take while it is computed."""
        return {}

    def node_costs(self, snapshot: Snapshot) -> NodeCosts | None:
        """What e-nodes take where `prices` do not say it; None where only whole variants have a price."""
        return None

    def memory_over_time(self, program: Program) -> Sequence[tuple[str, str, int]] | None:
        """What each step of a program is, the layer whose result that is or "", and the most bytes that are held
        meanwhile; None where memory is not counted.
        """
        return None

    counts_copies = False
    """Whether `copies` tells what programs only put elsewhere."""

    def copies(self, program: Program) -> Sequence[tuple[Term, Any]]:
        """Every copy of a program with the term that it is, or for which it is made."""
        return ()

    def bound(self, macs: int) -> int:
        """The least that any program of so many multiply-accumulates takes of the first objective; 0 if unknown."""
        return 0

    def least(self, variants: Sequence[Variant]) -> int | None:
        """What each of these variants of a layer takes at least of the first objective, by what the machine does at
        most; None if unknown.
        """
        return None

    def least_words(self, least: int, taken: int) -> Sequence[str]:
        """The same of all layers, and what they take, in sentences."""
        return ()

    def machine_code(
        self, mapped: Program, written: Program, seed: int = 0, show: Callable[[str, float], None] = lambda *_: None
    ) -> Any:
        """A mapped program as instructions of the machine, and what it was `written` as; `show` is told of each layer
        and the part that is done. Raises BadInput: a layer that it does not run.
        """
        raise BadInput(f"{self.name} has no instructions")

    def network_code(
        self,
        result: Any,
        network: Any,
        seed: int = 0,
        show: Callable[[str, float], None] = lambda *_: None,
        keep: Callable[[Any], None] = lambda _: None,
        quick: bool = False,
    ) -> Any:
        """The result of optimizing the program of a `glenside.quantization.layers.IntegerNetwork` as instructions, from
        its inputs to its results; `keep` is given the best ones so far, while quicker ones are looked for; `quick`
        makes one, and looks for no others. Raises BadInput: a layer that the machine does not run.
        """
        raise BadInput(f"{self.name} has no instructions")

    def ready(self, program: Program, seed: int) -> Program:
        """What the machine is given to run: with whatever is computed beforehand, where that is not the same to it.
        Constants without a value are drawn by the seed.
        """
        return program

    def remarks(self, program: Program) -> Sequence[str]:
        """What must be said of the measures of a program: here, which operators have no price."""
        names = (
            f"the black box {name_of_box(str(term.attributes[0]))}" if term.operator.opaque else name_of(term)
            for term in postorder(program.term)
            if not term.operator.is_priced
        )
        return [f"no price for {name}" for name in dict.fromkeys(names)]

    def report(self, before: Program, after: Program) -> Mapping[str, Any]:
        """Sections of the report that only this machine has."""
        return {}
