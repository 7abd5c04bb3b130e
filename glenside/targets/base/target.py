"""Targets: the measures, objectives, budgets, rule families and cost model of a machine.

A target only describes. `glenside.driver` searches: it asks the target for rule families, parameters and prices, and
extracts the variants of each layer with the target's strategy.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from glenside.egraph.rule import Parameters, Rule
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.operators.compute import name_of
from glenside.ir.operators.opaque import name_of as name_of_box
from glenside.ir.program import Program
from glenside.ir.term import Term
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
    at_once    True: skip slow trials, because the user waits after an interrupt
    trace      True: the e-graph records for each e-node the rule, the iteration and the class it was made from; the
               answer has the same cost, but ties may break differently
    on_step    callback for progress: (step, fraction done)
    on_draft   callback for each answer that will still be refined, so that it can be saved
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
        """Returns the choices as arguments of `optimize`."""
        return {name: value for name, value in vars(self).items() if name not in _OF_A_RUN}


_OF_A_RUN = ("at_once", "trace", "on_step", "on_draft")
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


Refinement: TypeAlias = "Callable[[Sequence[Extracted], Placed], Sequence[Extracted]]"
"""(variants of distinct layers, their places in the program) -> the same variants, with their cost in these places."""


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


class _TargetType(ABCMeta):
    """The type of target classes: their signature is that of `__init__`, and a misspelt option is bad input."""

    if not TYPE_CHECKING:  # type checkers read `__init__`

        @property
        def __signature__(cls) -> Signature:
            return Signature([*signature(cls.__init__).parameters.values()][1:])

        def __call__(cls, *values: Any, **options: Any) -> Any:
            known = cls.__signature__.parameters
            try:
                cls.__signature__.bind(*values, **options)
            except TypeError as error:
                unknown = next((name for name in options if name not in known), None)
                if unknown is None:
                    takes = ", ".join(name for name, p in known.items() if p.kind is not Parameter.KEYWORD_ONLY)
                    raise BadInput(f"{cls.__name__} takes {takes or 'no arguments'}: {error}") from None
                raise BadInput(f"{cls.__name__} has no option {unknown}{suggestion(unknown, known)}") from None
            return super().__call__(*values, **options)


class Target(metaclass=_TargetType):
    """A machine with its cost model and objectives.

    measures    all measures, the main one of tables first
    objectives  the measures to minimize, in that order
    front       measures of the Pareto front of variants, or None; plots show the first two
    compared    the measures that tables show for every baseline too
    ways        the fields of `Way` that may differ from their defaults
    """

    name: str
    doc: str
    measures: tuple[Measure, ...]
    objectives: tuple[str, ...]
    front: tuple[str, ...] | None = None
    compared: tuple[str, ...] = ()
    uncounted: str = ""
    """The cost that the first measure of layers leaves out but programs include, as text; or ""."""
    budget: Budget | None = None
    strategy: Strategy
    """Extracts the variants of layers, if the scope is layers; see `scope`."""
    prices: Prices = Prices()
    """Prices of e-nodes, if costs add up over e-nodes."""
    peak: int | None = None
    """Multiply-accumulates per cycle, if cycles are counted."""
    processor: Any = None
    """The machine that its programs are compiled for, or None."""
    machine: str = ""
    """The machine that runs its programs and measures its costs, as named by `glenside run --on`; or ""."""
    description: str = ""
    """All numbers that prices depend on, as text: a part of the cache key."""
    ways: ClassVar[frozenset[str]] = frozenset()
    repeatable: ClassVar[bool] = False
    """True if answers may be cached: they depend on nothing but `description` and `name`."""
    has_code: ClassVar[bool] = False
    """True if mapped programs can be lowered to instructions: `machine_code`."""
    search_parts: ClassVar[int] = 1
    """Number of parts in which layers without shared nodes are searched, by one process each if possible. A second
    process takes half a second of processor time to start: that pays if other work precedes the search.
    """

    def __repr__(self) -> str:
        return f"<target {self.name}>"

    @property
    def gates(self) -> float | None:
        """The area of the machine with its memories, in two-input NAND gates; None if unknown."""
        return None

    @property
    def most_bytes(self) -> float | None:
        """The memory budget in bytes; None without one."""
        return self.budget.most if self.budget is not None and self.budget.unit == "bytes" else None

    def load_back_end(self) -> None:
        """Imports the modules that lower answers to instructions; called while the search runs in its process."""
        return

    @property
    def leaves_variants_to_runtimes(self) -> bool:
        """True if a file of standard operators keeps each layer as one operator.

        The runtime then chooses among its own kernels for the same machine. For accelerators the file has the variant.
        """
        return False

    @property
    def leaves_layouts_to_runtimes(self) -> bool:
        """True if a file of standard operators uses the chosen layouts only where they also move fewer bytes there.

        Standard operators fix a layout of their own. The file must not have more nodes of any operator either.
        """
        return False

    def accept(self, way: Way) -> None:
        """Raises BadInput for an option that the target does not have."""
        for choice in fields(Way):
            if getattr(way, choice.name) != choice.default and choice.name not in self.ways:
                flag = {"method": "extract", "extract_seconds": "extract-time-limit"}.get(choice.name, choice.name)
                raise BadInput(f"{self.name} has no option --{flag}: there is one way to search for it")

    def scope(self, way: Way) -> Scope:
        """Returns the part of the program that goes into one e-graph."""
        return Scope.LAYERS

    def passes(self, way: Way) -> Sequence[Pass]:
        """Returns the passes over the whole program before its search."""
        return ()

    outlines: ClassVar[bool] = True
    """True if a search of the scope NETWORK takes elementwise functions of one tensor as single nodes."""

    @abstractmethod
    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str | Rule, ...]:
        """Returns the rule families, and rules, that can match in these nodes; others would only cost time."""

    @abstractmethod
    def rule_parameters(self) -> Parameters:
        """Returns the values of the rules' parameters and formulas."""

    def leaf_kind(self, program: Program) -> Callable[[Term], str]:
        """Returns leaf -> its kind, a part of its formal name: layers with leaves of different kinds are distinct."""
        return lambda leaf: ""

    def root(self, product: Term) -> Term:
        """Returns the term to search for a product of the program."""
        return product

    @abstractmethod
    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        """Returns the baseline variants of a layer by name, such as "plain" or "baseline".

        `product` is a layer of the program after `passes`.
        """

    def variant(self, product: Term, cone: Cone, term: Term, searched: SearchResult) -> Variant:
        """Returns the variant of a cone, for prices that add up over e-nodes; `term` computes the product."""
        raise NotImplementedError(f"{self.name} takes its variants otherwise")

    def runs(self, term: Term) -> bool:
        """True if the machine can run a layer as the term maps it."""
        return True

    def rank(self, variant: Variant) -> tuple[float, ...]:
        """Returns the sort key of a variant: within the budget first, then the objectives, then the other measures."""
        taken = {name: float("inf") if n is None else n for name, n in variant.measures.items()}
        amounts = [taken[name] for name in dict.fromkeys((*self.objectives, *(m.name for m in self.measures)))]
        budget = self.budget
        if budget is None or (budget.spares_baseline and not variant.recipe) or not budget.excess(variant.measures):
            return (0, *amounts)
        return (1, taken[budget.measure], *amounts)

    def compiled_for(self, machine: Any) -> Target:
        """Returns the target with a machine to compile for, unless it has one already; None means plain loops."""
        return self

    def in_place(self, found: Sequence[Extracted], placed: Placed, way: Way) -> Sequence[Extracted]:
        """Returns the variants of distinct layers with their cost in place, if the cost depends on their neighbours."""
        return found

    def refinements(self, way: Way) -> Sequence[Refinement]:
        """Returns the slow refinements of costs in place, in order; an interrupt keeps the answer before it."""
        return ()

    def best(self, variants: Sequence[Variant]) -> Variant:
        """Returns the chosen variant of a layer."""
        return min(variants, key=self.rank)

    def left_out(self, layers: Collection[Sequence[Variant]]) -> Sequence[str]:
        """Returns sentences about better variants that a limit excluded; `layers` are the variants of each layer."""
        return ()

    def whole(self, program: Program) -> Amounts | None:
        """Returns the measures of a whole program; None if they are sums over its layers.

        Required for the scope NETWORK.
        """
        return None

    def rounds(self, program: Program) -> bool:
        """True if the machine computes in number formats of its own that round: then no answer is exact."""
        return False

    def observed(self, variants: Sequence[Variant], seed: int) -> str:
        """Returns a sentence on the error of the variants in the machine's number format; "" if it does not round.

        Evaluates the variants on random inputs drawn from the seed.
        """
        return ""

    def held(self, program: Program) -> Mapping[str, int]:
        """Returns layer -> the amount of the budget that other live values take while it is computed."""
        return {}

    def node_costs(self, snapshot: Snapshot) -> NodeCosts | None:
        """Returns the costs of e-nodes that `prices` do not give; None if only whole variants have a cost."""
        return None

    def memory_over_time(self, program: Program) -> Sequence[tuple[str, str, int]] | None:
        """Returns (step, layer whose result it is or "", maximum live bytes during it) for each step of a program.

        None if memory is not counted.
        """
        return None

    counts_copies = False
    """True if `copies` returns the copies of programs."""

    def copies(self, program: Program) -> Sequence[tuple[Term, Any]]:
        """Returns every copy of a program with the term that is the copy or needs it."""
        return ()

    def bound(self, macs: int) -> int:
        """Returns a lower bound of the first objective for any program of `macs` multiply-accumulates; 0 if unknown."""
        return 0

    def least(self, variants: Sequence[Variant]) -> int | None:
        """Returns a lower bound of the first objective over variants of a layer, at peak rate; None if unknown."""
        return None

    def least_words(self, least: int, taken: int) -> Sequence[str]:
        """Returns sentences that compare the lower bound of all layers with their cost."""
        return ()

    def machine_code(
        self, mapped: Program, written: Program, seed: int = 0, show: Callable[[str, float], None] = lambda *_: None
    ) -> Any:
        """Lowers a mapped program to instructions of the machine.

        `written` is the program before mapping; `show` is called with each layer and the fraction done. Raises BadInput
        for a layer that the machine does not run.
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
        """Lowers an optimized `glenside.quantization.layers.IntegerNetwork` to instructions, from inputs to results.

        keep   callback for the best program so far, while faster ones are searched for
        quick  True: return the first program

        Raises BadInput for a layer that the machine does not run.
        """
        raise BadInput(f"{self.name} has no instructions")

    def ready(self, program: Program, seed: int) -> Program:
        """Returns the program to run: with constants folded, if that changes the result on the machine.

        Constants without a value are drawn from the seed.
        """
        return program

    def remarks(self, program: Program) -> Sequence[str]:
        """Returns sentences about the measures of a program: here, the operators without a price."""
        names = (
            f"the black box {name_of_box(str(term.attributes[0]))}" if term.operator.opaque else name_of(term)
            for term in program.info.order
            if not term.operator.is_priced
        )
        return [f"no price for {name}" for name in dict.fromkeys(names)]

    def report(self, before: Program, after: Program) -> Mapping[str, Any]:
        """Returns the sections of the report that only this target has."""
        return {}
