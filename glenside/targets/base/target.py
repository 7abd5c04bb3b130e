"""The core of a target: its measures, objectives, budget, rule families and prices.

A target only describes. `glenside.driver` searches: it asks the target for rule families, parameters and prices, and
extracts the variants of each layer with the target's strategy. What only some machines have, such as instructions, is a
class of `glenside.targets.base.capabilities` that they inherit too.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ClassVar

from glenside.egraph.rule import Parameters, Rule
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.operators.compute import name_of
from glenside.ir.operators.opaque import name_of as name_of_box
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.targets.base.prices import Prices
from glenside.targets.base.records import Amounts, Budget, Cone, Measure, Pass, Scope, Strategy, Variant, Way

if TYPE_CHECKING:
    from glenside.egraph.search import SearchResult


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
    machine: str = ""
    """The machine that runs its programs and measures its costs, as named by `glenside run --on`; or ""."""
    description: str = ""
    """All numbers that prices depend on, as text: a part of the cache key."""
    ways: ClassVar[frozenset[str]] = frozenset()
    repeatable: ClassVar[bool] = False
    """True if answers may be cached: they depend on nothing but `description` and `name`."""
    search_parts: ClassVar[int] = 1
    """Number of parts in which layers without shared nodes are searched, by one process each if possible. A second
    process takes half a second of processor time to start: that pays if other work precedes the search.
    """

    def __repr__(self) -> str:
        return f"<target {self.name}>"

    @property
    def most_bytes(self) -> float | None:
        """The memory budget in bytes; None without one."""
        return self.budget.most if self.budget is not None and self.budget.unit == "bytes" else None

    def accept(self, way: Way) -> None:
        """Raises BadInput for an option that the target does not have."""
        for choice in fields(Way):
            if getattr(way, choice.name) != choice.default and choice.name not in {*self.ways, "exact_order"}:
                flag = {"method": "extract", "extract_seconds": "extract-time-limit"}.get(choice.name, choice.name)
                raise BadInput(f"{self.name} has no option --{flag}: there is one way to search")

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

    @abstractmethod
    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        """Returns the baseline variants of a layer by name, such as "plain" or "baseline".

        `product` is a layer of the program after `passes`.
        """

    def variant(self, product: Term, cone: Cone, term: Term, searched: SearchResult) -> Variant:
        """Returns the variant of a cone, for prices that add up over e-nodes; `term` computes the product."""
        raise NotImplementedError(f"{self.name} does not define `variant`")

    def rank(self, variant: Variant) -> tuple[float, ...]:
        """Returns the sort key of a variant: within the budget first, then the objectives, then the other measures."""
        taken = {name: float("inf") if n is None else n for name, n in variant.measures.items()}
        amounts = [taken[name] for name in dict.fromkeys((*self.objectives, *(m.name for m in self.measures)))]
        budget = self.budget
        if budget is None or (budget.spares_baseline and not variant.recipe) or not budget.excess(variant.measures):
            return (0, *amounts)
        return (1, taken[budget.measure], *amounts)

    def best(self, variants: Sequence[Variant]) -> Variant:
        """Returns the chosen variant of a layer."""
        return min(variants, key=self.rank)

    def whole(self, program: Program) -> Amounts | None:
        """Returns the measures of a whole program; None if they are sums over its layers.

        Required for the scope NETWORK.
        """
        return None

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
