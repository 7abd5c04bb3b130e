"""Prices the e-nodes of a snapshot on a target, chooses the cheapest e-node of each needed class, and splits the choice
into cones: the e-nodes of each layer, down to other layers and tensors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from glenside.egraph.snapshot import ENode, Snapshot
from glenside.extract import Extraction, Problem, extract
from glenside.ir.errors import BadInput
from glenside.ir.operator import OPERATORS
from glenside.ir.term import Term
from glenside.ir.types import Tensor
from glenside.rewrites.layout.product_unit import UNIT_CYCLES
from glenside.targets.base import Cone, Cost, InstructionCost, Prices


@dataclass(frozen=True)
class Choice:
    """An extracted answer: `nodes[c]` is the e-node of class c, for the classes that the roots need."""

    nodes: Mapping[int, int]
    cost: Cost
    bound: Cost | None
    """A lower bound over all answers in the e-graph, in the order of the objectives; None if unknown."""


class PricedGraph:
    """An e-graph with a price for each e-node.

    constant           for each class, True if it is computed from constants alone
    instruction_costs  class -> cycles of an instruction that rules state, instead of the cost by types
    """

    def __init__(self, snapshot: Snapshot, prices: Prices) -> None:
        self.snapshot, self.prices = snapshot, prices
        self.constant = constant_classes(snapshot)
        cycles_of: dict[int, int] = dict(
            sorted(snapshot.facts.get(UNIT_CYCLES, ()), reverse=True)
        )  # the least is last, so it is kept
        self.instruction_costs = {eclass: InstructionCost(cycles, 1) for eclass, cycles in cycles_of.items()}
        self._given = given_classes(snapshot)
        self._costs: dict[int, Cost] = {}

    @cached_property
    def mappings(self) -> Mapping[int, tuple[Any, ...]]:
        """class of an instruction -> its plan, the smallest if there are several, and the sizes of its matrices."""
        return {fact[0]: fact[1:] for fact in sorted(self.snapshot.facts.get("mapping", ()), reverse=True)}

    @cached_property
    def _recipes(self) -> Mapping[int, str]:
        """class of a product -> its recipe, the shortest if there are several."""
        return dict(sorted(self.snapshot.facts.get("recipe", ()), key=lambda fact: (-len(fact[1]), fact[1])))

    @cached_property
    def _made(self) -> Mapping[tuple[int, str], Sequence[str]]:
        """(class, operator) -> the rules that added such e-nodes to the class."""
        made: dict[tuple[int, str], list[str]] = {}
        for eclass, operator, rule, *_ in self.snapshot.facts.get("made", ()):
            made.setdefault((eclass, operator), []).append(rule)
        return made

    def is_product(self, index: int) -> bool:
        """True if the e-node is a product that is not mapped."""
        node = self.snapshot.nodes[index]
        return node.operator == "compute" and node.attributes[0] == "dot-product"

    def is_instruction(self, index: int) -> bool:
        node = self.snapshot.nodes[index]
        return self.prices.instruction(node.operator, node.attributes) is not None

    def cost(self, index: int) -> Cost:
        """Returns the cost of one e-node without its children.

        A copy of an input does not count as a node: so ties are broken in favour of copying inputs directly.
        """
        known = self._costs.get(index)
        if known is None:
            own = self._priced(index)
            given = own.copies and self._given.issuperset(self.snapshot.nodes[index].children)
            known = self._costs[index] = own._replace(nodes=0) if given else own
        return known

    def cost_over(self, index: int, costs: Sequence[int]) -> int | None:
        """Returns the cost of a term with this e-node over the costs of its children; of a tuple, their sum."""
        node, eclass = self.snapshot.nodes[index], self.snapshot.owner[index]
        own, children = self.snapshot.types[eclass], [self.snapshot.types[c] for c in node.children]
        known = [c for c in children if c is not None]
        if own is None or len(known) < len(children):
            return sum(costs)
        return self.prices.of_term(
            node.operator, node.attributes, tuple(known), own, self.constant[eclass], costs=costs
        )

    def _priced(self, index: int) -> Cost:
        node, eclass = self.snapshot.nodes[index], self.snapshot.owner[index]
        own, children = self.snapshot.types[eclass], [self.snapshot.types[c] for c in node.children]
        fixed = self.constant[eclass] and all(self.constant[c] for c in node.children)
        if own is None or any(c is None for c in children):
            return Cost(nodes=1)  # tuples
        if (
            eclass in self.instruction_costs
            and not fixed
            and self.prices.instruction(node.operator, node.attributes) is not None
        ):
            return Cost(cycles=self.instruction_costs[eclass].cycles, nodes=1)
        return self.prices.cost(node.operator, node.attributes, [c for c in children if c is not None], own, fixed)

    def choose(
        self,
        roots: Sequence[int],
        *,
        boundaries: frozenset[int] = frozenset(),
        method: str = "auto",
        deadline: float | None = None,
        avoided: Set[int] = frozenset(),
        members: Mapping[int, Sequence[int]] | None = None,
        exact_size: int | None = None,
    ) -> Choice:
        """Returns the cheapest answer for the roots that `method` finds (see `extract`).

        deadline    end of exact extraction, in `time.monotonic` seconds
        members     class -> the e-nodes it may choose; by default all usable ones
        exact_size  maximum e-nodes of a block that "auto" solves exactly; by default only the time is limited
        avoided     e-nodes whose elements count twice, so that ties are broken against them; then there is no bound
        """
        objectives = self.prices.objectives

        def cost(n: int) -> tuple[int, ...]:
            own = self.cost(n)
            return (own.plus(Cost(scalar=own.scalar)) if n in avoided else own).ordered(objectives)

        nodes, answer = cheapest(
            *(self.snapshot, roots, cost),
            boundaries=boundaries,
            method=method,
            deadline=deadline,
            members=members,
            exact_size=exact_size,
        )
        if avoided:
            return Choice(nodes, reduce(Cost.plus, map(self.cost, nodes.values()), Cost()), None)
        bound = None if answer.bound is None else Cost.of_ordered(answer.bound, objectives)
        return Choice(nodes, Cost.of_ordered(answer.cost, objectives), bound)

    def cone_of(self, call: int) -> Cone:
        """Returns the cone of the instruction of a class, as if the layer had no other e-nodes."""
        snapshot = self.snapshot
        number = next(n for n in snapshot.classes[call] if self.is_instruction(n))
        return Cone([self._taken(number)], mappings=[self.mappings[call]])

    def _taken(self, number: int) -> InstructionCost:
        """Returns the price of an instruction."""
        snapshot, node = self.snapshot, self.snapshot.nodes[number]
        instruction = self.prices.instruction(node.operator, node.attributes)
        own, children = snapshot.types[snapshot.owner[number]], [snapshot.types[c] for c in node.children]
        assert own is not None
        assert instruction is not None
        return instruction.price(node.attributes, [t for t in children if t is not None], own)

    def cones(self, choice: Mapping[int, int], roots: Sequence[int]) -> list[Cone]:
        """Returns the cones of an answer: one for each layer root, in order."""
        snapshot = self.snapshot
        layers, seen = set(roots), set[int]()
        mappings, made, recipes = self.mappings, self._made, self._recipes
        result: list[Cone] = []
        for root in roots:
            instructions: list[InstructionCost] = []
            products: list[int] = []
            mapped: list[tuple[Any, ...]] = []
            recipe = ""
            rules: dict[str, None] = {}
            for eclass in _below(snapshot, choice, root, layers, seen):
                node = snapshot.nodes[choice[eclass]]
                rules.update(dict.fromkeys(made.get((eclass, node.operator), ())))
                if self.constant[eclass]:
                    continue
                recipe = max(recipe, recipes.get(eclass, ""), key=len)
                if self.is_instruction(choice[eclass]):
                    instructions.append(self._taken(choice[eclass]))
                    mapped += [mappings[eclass]] if eclass in mappings else []
                elif self.is_product(choice[eclass]):
                    products.append(choice[eclass])
            result.append(Cone(instructions, products, mapped, recipe, tuple(sorted(rules)), self.constant[root]))
        return result


def no_dearer(priced: PricedGraph, answer: Choice, nodes: Sequence[Term], roots: Sequence[int]) -> Choice:
    """Returns the answer, or the program as written if that costs less: extraction of shared nodes is a heuristic.

    nodes  the terms of the program, in the order of `snapshot.program`
    """
    written = _written(priced.snapshot, nodes)
    if any(root not in written for root in roots):
        return answer
    needed, stack = dict[int, int](), [*roots]
    while stack:
        eclass = stack.pop()
        if eclass not in needed:
            needed[eclass] = written[eclass]
            stack += priced.snapshot.nodes[written[eclass]].children
    cost, objectives = reduce(Cost.plus, map(priced.cost, needed.values()), Cost()), priced.prices.objectives
    return Choice(needed, cost, answer.bound) if cost.ordered(objectives) < answer.cost.ordered(objectives) else answer


def _written(snapshot: Snapshot, nodes: Sequence[Term]) -> dict[int, int]:
    """Returns class -> the e-node of the first term of the program in it: its operands come before, so without cycles.

    Without the classes of terms whose e-nodes were replaced.
    """
    place, found = dict(zip(nodes, snapshot.program, strict=True)), dict[int, int]()
    for term, own in place.items():
        if own in found or any(place[c] not in found for c in term.children):
            continue
        attributes = tuple(a.name if isinstance(a, Tensor) else a for a in term.attributes)
        wanted = ENode(term.operator.name, attributes, tuple(place[c] for c in term.children))
        number = next((n for n in snapshot.usable_of(own) if snapshot.nodes[n] == wanted), None)
        if number is not None:
            found[own] = number
    return found


def _below(snapshot: Snapshot, choice: Mapping[int, int], root: int, layers: set[int], seen: set[int]) -> Iterator[int]:
    stack = [root]
    while stack:
        eclass = stack.pop()
        if eclass in seen or (eclass in layers and eclass != root):
            continue
        seen.add(eclass)
        yield eclass
        stack += snapshot.nodes[choice[eclass]].children


def cheapest(
    snapshot: Snapshot,
    roots: Sequence[int],
    cost: Callable[[int], tuple[int, ...]],
    *,
    boundaries: frozenset[int] = frozenset(),
    method: str = "auto",
    deadline: float | None = None,
    members: Mapping[int, Sequence[int]] | None = None,
    exact_size: int | None = None,
) -> tuple[dict[int, int], Extraction]:
    """Returns class -> e-node, and the extractor's answer, for e-nodes with vector costs.

    `members`: the e-nodes that each class may choose; by default all usable ones.
    """
    usable = dict(snapshot.usable()) if members is None else members
    number = {c: i for i, c in enumerate(dict.fromkeys(roots))}
    classes = list(number)
    numbered: list[tuple[int, ...]] = []
    kept: list[int] = []
    for eclass in classes:  # it grows while it is read
        own = usable[eclass]
        numbered.append(tuple(range(len(kept), len(kept) + len(own))))
        kept += own
        for n in own:
            for child in snapshot.nodes[n].children:
                if child not in number:
                    number[child] = len(classes)
                    classes.append(child)
    children = tuple(tuple(number[c] for c in snapshot.nodes[n].children) for n in kept)
    inside = frozenset(number[c] for c in boundaries if c in number)
    costs = tuple(cost(n) for n in kept)
    problem = Problem(tuple(numbered), children, costs, tuple(number[r] for r in roots), inside)
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    answer = extract(problem, method, node_limit_for_exact=exact_size, time_limit=left)
    return {classes[c]: kept[n] for c, n in answer.choice.items()}, answer


def cheapest_tree(priced: PricedGraph, root: int) -> dict[int, int]:
    """Returns class -> e-node of the cheapest term, for prices over the costs of operands.

    A fixed point: a class takes an e-node only if that makes its cost less, so that the choice has no cycles. Raises
    BadInput if no term has a cost.
    """
    snapshot, best = priced.snapshot, dict[int, tuple[int, int]]()
    readers: dict[int, list[int]] = {}
    for _, members in snapshot.usable():
        for n in members:
            for child in dict.fromkeys(snapshot.nodes[n].children):
                readers.setdefault(child, []).append(n)
    waiting = dict.fromkeys(n for _, members in snapshot.usable() for n in members)
    while waiting:
        n = next(iter(waiting))
        del waiting[n]
        children, own = snapshot.nodes[n].children, snapshot.owner[n]
        if all(c in best for c in children):
            cost = priced.cost_over(n, [best[c][0] for c in children])
            if cost is not None and (own not in best or cost < best[own][0]):
                best[own] = cost, n
                waiting |= dict.fromkeys(readers.get(own, ()))
    if root not in best:
        raise BadInput("the cost function gives no term of the program a cost")
    needed, stack = dict[int, int](), [root]
    while stack:
        c = stack.pop()
        if c not in needed:
            needed[c] = best[c][1]
            stack += snapshot.nodes[best[c][1]].children
    return needed


def derivations(snapshot: Snapshot, allowed: Callable[[int], bool], subsumed: bool = False) -> Iterator[int]:
    """Yields the allowed e-nodes that represent a finite term of allowed e-nodes, children before parents.

    A fixed point from the leaves: e-nodes that only have cyclic derivations are left out. With `subsumed`, subsumed
    e-nodes are included.
    """
    waiting: dict[int, int] = {}
    parents: dict[int, list[int]] = {}
    ready: list[int] = []
    classes: Iterable[tuple[int, Sequence[int]]] = enumerate(snapshot.classes) if subsumed else snapshot.usable()
    for _, members in classes:
        for n in filter(allowed, members):
            needed = set(snapshot.nodes[n].children)
            waiting[n] = len(needed)
            for child in needed:
                parents.setdefault(child, []).append(n)
            if not needed:
                ready.append(n)
    known: set[int] = set()
    while ready:
        n = ready.pop()
        yield n
        if snapshot.owner[n] in known:
            continue
        known.add(snapshot.owner[n])
        for parent in parents.get(snapshot.owner[n], ()):
            waiting[parent] -= 1
            if waiting[parent] == 0:
                ready.append(parent)


def derivable(snapshot: Snapshot, allowed: Callable[[int], bool]) -> dict[int, tuple[int, ...]]:
    """Returns class -> its e-nodes among `derivations`; classes without one are left out."""
    found: dict[int, list[int]] = {}
    for n in derivations(snapshot, allowed):
        found.setdefault(snapshot.owner[n], []).append(n)
    return {c: tuple(sorted(nodes)) for c, nodes in found.items()}


class Derivable:
    """Incremental `derivable`: the fixed point of the allowed e-nodes is computed once, then extended by others."""

    def __init__(self, snapshot: Snapshot, allowed: Callable[[int], bool], among: Iterable[int]) -> None:
        self.snapshot = snapshot
        self._found: dict[int, tuple[int, ...]] = {}
        self._waiting: dict[int, int] = {}
        self._parents: dict[int, list[int]] = {}
        members = (n for c in among for n in filter(allowed, snapshot.usable_of(c)))
        self._found, self._waiting, self._parents = self._grown(members)

    def beside(self, others: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Returns class -> its derivable e-nodes if `others` are allowed too; classes without one are left out."""
        return {**self._found, **self._grown(others)[0]}

    def _grown(self, others: Iterable[int]) -> tuple[dict[int, tuple[int, ...]], dict[int, int], dict[int, list[int]]]:
        """Returns the classes with new e-nodes, e-node -> number of missing children, and class -> waiting parents."""
        snapshot, before, found = self.snapshot, self._found, dict[int, list[int]]()
        waiting, parents, ready = dict[int, int](), dict[int, list[int]](), list[int]()
        for n in others:
            needed = set(snapshot.nodes[n].children) - before.keys()
            waiting[n] = len(needed)
            for child in needed:
                parents.setdefault(child, []).append(n)
            if not needed:
                ready.append(n)
        while ready:
            n = ready.pop()
            own = snapshot.owner[n]
            is_first = own not in found and own not in before
            found.setdefault(own, []).append(n)
            for parent in (*parents.get(own, ()), *self._parents.get(own, ())) if is_first else ():
                waiting[parent] = waiting.get(parent, self._waiting.get(parent, 0)) - 1
                if not waiting[parent]:
                    ready.append(parent)
        more = {c: tuple(sorted((*before.get(c, ()), *own))) for c, own in found.items()}
        return more, waiting, parents


def given_classes(snapshot: Snapshot) -> set[int]:
    """Returns the classes of inputs and of their reshapes."""
    readers: dict[int, list[int]] = {}
    found: list[int] = []
    for n, node in enumerate(snapshot.nodes):
        if node.operator == "access-rearrange" and len(node.attributes[1]) == 1:
            readers.setdefault(node.children[0], []).append(snapshot.owner[n])
        elif node.operator == "access-tensor" and not snapshot.tensors[node.attributes[0]].constant:
            found.append(snapshot.owner[n])
    given = {*found}
    for eclass in found:  # it grows while it is read
        new = [c for c in readers.get(eclass, ()) if c not in given]
        given.update(new)
        found += new
    return given


def constant_classes(snapshot: Snapshot) -> list[bool]:
    """Returns for each class, True if it has a term over constants alone: it is folded before run time."""

    def known(n: int) -> bool:
        node = snapshot.nodes[n]
        tensor = snapshot.tensors[node.attributes[0]] if node.operator == "access-tensor" else None
        return OPERATORS[node.operator].is_constant((), tensor is not None and tensor.constant)

    constant = {snapshot.owner[n] for n in derivations(snapshot, known, subsumed=True)}
    return [c in constant for c in range(len(snapshot.classes))]
