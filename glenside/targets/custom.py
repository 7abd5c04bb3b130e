"""Targets of a user: a cost as a function of a node, with the rules to search by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from operator import index
from typing import Any

from glenside.egraph.rule import Parameters, Rule
from glenside.ir.errors import BadInput, line_of_caller
from glenside.ir.operator import OPERATORS, OperatorKind
from glenside.ir.operators.compute import name_of, parse_compute
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.ir.types import AccessType
from glenside.rewrites import known_rules
from glenside.targets import load_all
from glenside.targets.base import Amounts, Cost, Measure, Prices, Scope, Target, Variant, Way
from glenside.targets.registry import TARGETS, Entry

AS_WRITTEN = "as written"
SIMPLIFYING = ("algebra", "through-computes", "through-products")
"""Families of a cost without rules and without a target: movement is composed, sinks or leaves."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operator over operands, as a cost function sees it.

    operator    its name: "compute", "access-transpose", ..
    attributes  its other arguments: numbers, sizes, names
    operands    the types of its operands
    type        its own type: `dims`, `dtype`, `size` in elements, `shape` and `item`
    constant    True if it is computed from constants alone, so that it can be folded before the program runs
    """

    operator: str
    attributes: tuple[Any, ...]
    operands: tuple[AccessType, ...]
    type: AccessType
    constant: bool

    @property
    def name(self) -> str:
        """The compute type of a compute, such as "dot-product" or "relu"; of other operators their name."""
        return parse_compute(str(self.attributes[0]))[0].name if self.operator == "compute" else self.operator

    @property
    def moves(self) -> bool:
        """True if it copies elements to other places, such as a transpose; views and computes do not."""
        return OPERATORS[self.operator].kind is OperatorKind.MOVEMENT

    @property
    def macs(self) -> int:
        """The multiply-adds of a dot product; 0 for any other node."""
        if self.name != "dot-product":
            return 0
        item = self.operands[0].item
        return self.type.size * item.drop(1).product() * max(1, item[0] - 1)


CostOfNode = Callable[..., int | None]
"""(node) -> its cost, summed over distinct nodes; or (node, costs of its operands) -> the cost of the term."""


@dataclass(frozen=True)
class _CostFunction(Prices):
    """Prices by a function of the user: a `None` counts as unmapped, any other cost as cycles."""

    function: CostOfNode = lambda _: 0

    def cost(
        self, operator: str, attributes: Sequence[Any], children: Sequence[AccessType], own: AccessType, constant: bool
    ) -> Cost:
        """Returns the cost of one e-node without its children."""
        amount = self.amount(Node(operator, tuple(attributes), tuple(children), own, constant))
        return Cost(unmapped=1, nodes=1) if amount is None else Cost(cycles=amount, nodes=1)

    def of_term(self, *node: Any, costs: Sequence[int]) -> int | None:
        """Returns the cost of a term over the costs of its operands; None if there is none."""
        found = Node(*node)
        amount = self.amount(found, [*costs])
        if amount is not None and costs and amount < max(costs):
            raise BadInput(f"a cost is at least that of each operand, got {amount} for {found.name} over {[*costs]}")
        return amount

    def amount(self, node: Node, *costs: Sequence[int]) -> int | None:
        """Returns the result of the function. Raises BadInput for anything but a whole number and None."""
        found = self.function(node, *costs)
        if found is None:
            return None
        try:
            amount = index(found)
        except TypeError:
            amount = -1
        if amount < 0:
            raise BadInput(f"a cost is a whole number of at least 0, or None, got {found!r} for {node.name}")
        return amount


class CostTarget(Target):
    """A machine that a cost function describes; the whole program is one e-graph.

    rules  rules, and names of families, to search by
    over   the target whose rules are used too
    """

    def __init__(
        self,
        cost: CostOfNode,
        *,
        rules: Iterable[Rule | str] = (),
        name: str = "own-cost",
        measure: str = "cost",
        unit: str = "",
        doc: str = "",
        over: Target | None = None,
    ) -> None:
        self.function = _CostFunction(function=cost, recursive=_takes_operands(cost))
        self.name, self.doc = name, doc or "A cost function of a user."
        self.prices = self.function
        self.measures = (Measure(measure, unit, inspect.cleandoc(cost.__doc__ or "") or "by a cost function"),)
        self.objectives = (measure,)
        self._over, self._rules = over, known_rules(rules) or (() if over else SIMPLIFYING)

    outlines = False

    def scope(self, way: Way) -> Scope:
        return Scope.NETWORK

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str | Rule, ...]:
        return (*(self._over.families(way, nodes) if self._over else ()), *self._rules)

    def rule_parameters(self) -> Parameters:
        return self._over.rule_parameters() if self._over else {}

    def variant(self, product: Term, *found: Any) -> Variant:
        return Variant("chosen", product, {self.objectives[0]: None})

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        return {AS_WRITTEN: Variant(AS_WRITTEN, product, {self.objectives[0]: None})}

    def whole(self, program: Program) -> Amounts:
        """Returns the cost of the program; None if some node has none."""
        costs = self._costs(program)
        counted = [costs[program.term]] if self.function.recursive else [*costs.values()]
        return {self.objectives[0]: None if None in counted else sum(cost or 0 for cost in counted)}

    def _costs(self, program: Program) -> dict[Term, int | None]:
        """Returns the cost of each term: without its operands, or over their costs."""
        of: dict[Term, int | None] = {}
        constant, recursive = program.info.constant, self.function.recursive
        for term in program.info.order:
            below = [of[child] for child in term.children]
            known = [cost for cost in below if cost is not None]
            operands = tuple(c.type for c in term.children if isinstance(c.type, AccessType))
            if recursive and len(known) < len(below):
                of[term] = None
            elif not isinstance(term.type, AccessType) or len(operands) < len(below):
                of[term] = sum(known) if recursive else 0
            else:
                node = Node(term.operator.name, term.attributes, operands, term.type, constant[term])
                of[term] = self.function.amount(node, *((known,) if recursive else ()))
        return of

    def remarks(self, program: Program) -> Sequence[str]:
        """Returns a remark for each operator in the program that has no cost."""
        costs = self._costs(program)
        first = [t for t, cost in costs.items() if cost is None and all(costs[c] is not None for c in t.children)]
        return [f"no cost for {name}" for name in dict.fromkeys(map(name_of, first))]


def _takes_operands(cost: CostOfNode) -> bool:
    """True if a cost function takes the costs of operands too. Raises BadInput for any other signature."""
    if not callable(cost):
        raise BadInput(f"a cost is a function of a node, such as lambda node: node.type.size, got {cost!r}")
    count = len(_positional(cost))
    if count not in (1, 2):
        raise BadInput(
            f"a cost is a function of a node, or of a node and the costs of its operands, got {count} parameters"
        )
    return count == 2


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    known = inspect.signature(function).parameters.values()
    return [p for p in known if p.kind in kinds and p.default is inspect.Parameter.empty]


def target(
    name: str,
    *,
    rules: Iterable[Rule | str] = (),
    measure: str = "cost",
    unit: str = "",
) -> Callable[[CostOfNode], Callable[..., CostTarget]]:
    """Declares a target by the cost of a node. The decorated function becomes a function that returns the target.

        @gl.target("mover", rules=[rolls_add_up], measure="moved", unit="elements")
        def mover(node):
            \"\"\"A machine for which only moved elements count.\"\"\"
            return node.type.size if node.moves else 0

        gl.optimize(program, mover())        # or "mover"

    name     its name on the command line and in reports
    rules    rules of `gl.rule`, and names of families (`glenside rules` lists them), to search by
    measure  the name of the cost, and `unit` its unit

    The function takes a node (`operator`, `name`, `attributes`, `operands`, `type`, `constant`, `macs`, `moves`) and
    returns a whole number of at least 0, or None for a node that the machine does not have. Costs are summed over
    distinct nodes; the baseline is the program as it is written. A function of (node, operands) returns the cost of the
    whole term over the costs of its operands, as in egg: `1 + max(operands, default=0)` is the depth. Keyword-only
    parameters are sizes of the machine: with `def array(node, *, rows, columns)`, the target is `array(8, 4)` or
    "array:8x4". Raises BadInput with the line of the declaration.
    """
    place = line_of_caller(1)

    def declare(cost: CostOfNode) -> Callable[..., CostTarget]:
        load_all()
        sizes = [
            p.name for p in inspect.signature(cost).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        usage = f"{name}:{'x'.join(size.upper() for size in sizes)}" if sizes else name
        doc = inspect.cleandoc(cost.__doc__ or "")

        @wraps(cost)
        def make(*given: int) -> CostTarget:
            if len(given) != len(sizes) or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in given):
                takes = " and ".join(sizes) or "no sizes"
                raise BadInput(f"the target {name} takes {takes}, each a whole number of at least 1, got {given}")
            fixed = dict(zip(sizes, given, strict=True))

            @wraps(cost)
            def of_node(node: Node, *operands: Sequence[int]) -> int | None:
                return cost(node, *operands, **fixed)

            full = f"{name}:{'x'.join(map(str, given))}" if given else name
            return CostTarget(of_node, rules=rules, name=full, measure=measure, unit=unit, doc=doc)

        def read(text: str) -> tuple[int, ...]:
            parts = [] if text == name else text.split("x")
            if not all(part.isdigit() and len(part) < 10 for part in parts) or len(parts) != len(sizes):
                raise BadInput(f"the target {name} is written {usage}, got {text!r}")
            return tuple(map(int, parts))

        try:
            if not doc:
                raise BadInput("its function needs a docstring, which `glenside targets` shows")
            if name in TARGETS and TARGETS[name].maker.__module__.partition(".")[0] == "glenside":
                raise BadInput("Glenside has a target of this name")
            _takes_operands(cost)
            known_rules(rules)
        except BadInput as error:
            raise BadInput(f"the target {name}: {error.message}", place) from None
        TARGETS[name] = Entry(usage, doc, make, read, frozenset(), (measure,), bare="" if sizes else name)
        return make

    return declare
