"""The traffic of each e-node of an e-graph, and the pass that moves truncations to where they send least.

Prices are those of `prices.py`, with the analysis of classes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from glenside.egraph.saturation import SATURATED
from glenside.egraph.search import Search
from glenside.egraph.snapshot import Snapshot
from glenside.ir.dtypes import FLOATS
from glenside.ir.operator import OPERATORS
from glenside.ir.program import Program
from glenside.ir.rational import exact_numbers
from glenside.ir.term import Term, build, make, rebuild_all, weave
from glenside.passes.extraction import constant_classes, derivable, derivations
from glenside.passes.network import rewritten
from glenside.targets.base import Instruction, InstructionCost, Prices, Variant, free
from glenside.targets.mpc.analysis import Operand, secrecy
from glenside.targets.mpc.precision import error_bound
from glenside.targets.mpc.prices import node_traffic, product_truncation
from glenside.targets.mpc.semi2k import NOTHING, Semi2k, Traffic
from glenside.targets.mpc.work import NO_WORK, Work, node_work
from glenside.targets.recipes import recipe_label

if TYPE_CHECKING:
    from glenside.targets.mpc.target import MPC

PUBLIC = "#public"
"""Suffix of the names of formal tensors that both parties know."""


class Pricing:
    """Prices of e-nodes. Public terms, which both parties can compute locally, send nothing."""

    def __init__(self, snapshot: Snapshot, target: MPC) -> None:
        self.snapshot, self.target, self.protocol, self.late = snapshot, target, target.protocol, target.late
        self.offline = constant_classes(snapshot) if target.prepared else [False] * len(snapshot.classes)
        self._known = target.public

    def cost(self, n: int) -> tuple[int, ...]:
        """Returns the cost of one e-node; e-nodes without an exact formula are the most expensive."""
        sent = self.traffic(n)
        return (int(sent is None), *self.target.cost(sent or NOTHING, self.work(n)), 1)

    def variant(self, recipe: str, root: int, nodes: Mapping[int, int]) -> Variant:
        """Returns the variant of a choice of e-nodes, with its error bound."""
        traffic = [self.traffic(n) or NOTHING for n in nodes.values()]
        type_ = self.snapshot.types[root]
        assert type_ is not None
        if self.late and type_.dtype in FLOATS:  # its result is truncated after the layer
            traffic.append(self.protocol.truncation(type_.size))
        terms = self.snapshot.terms(nodes, [root])
        offline = {term for c, term in terms.items() if self.offline[c]}
        error = error_bound(terms[root], self.target.bits, lambda _: self.target.magnitude, offline)
        work = sum(map(self.work, nodes.values()), NO_WORK)
        measures: dict[str, int | None] = {**self.target.amounts(sum(traffic, NOTHING), work)}
        measures["error"] = None if error.unknown else math.ceil(error.error + self.late)
        remarks = tuple(f"no error bound for {name}" for name in error.unknown)
        return Variant(recipe_label(recipe), terms[root], measures, recipe, remarks=remarks)

    @cached_property
    def public(self) -> Collection[int]:
        """The classes that both parties know."""
        return derivable(self.snapshot, self._is_public).keys()

    @cached_property
    def _numbers(self) -> Collection[int]:
        """The classes computed from numbers in the program alone."""
        nodes = self.snapshot.nodes
        return derivable(self.snapshot, lambda n: OPERATORS[nodes[n].operator].is_constant(())).keys()

    @cached_property
    def _products(self) -> Collection[int]:
        """The classes of products of variants."""
        return {eclass for eclass, _ in self.snapshot.facts.get("recipe", ())}

    def _is_public(self, n: int) -> bool:
        node = self.snapshot.nodes[n]
        known = node.operator == "access-tensor" and node.attributes[0].endswith(PUBLIC)
        return known or not secrecy(node.operator, node.attributes, (), self._known)

    @cached_property
    def scales(self) -> dict[int, int]:
        """class -> its fractional bits as a multiple of a number's: 2 for a product before truncation."""
        found: dict[int, int] = {}
        for n in derivations(self.snapshot, lambda _: True):
            found.setdefault(self.snapshot.owner[n], self._scale(n, found))
        return found

    def _scale(self, n: int, found: dict[int, int]) -> int:
        node, own = self.snapshot.nodes[n], self.snapshot.owner[n]
        type_ = self.snapshot.types[own]
        if self.offline[own] or type_ is None or type_.dtype not in FLOATS or node.operator == "truncate":
            return 1
        if self._is_matmul(n):
            return 2
        return max((found[c] for c in node.children), default=1)

    def is_product(self, n: int) -> bool:
        """True if the e-node is a joint product of the parties, of matrices or elementwise."""
        node, own = self.snapshot.nodes[n], self.snapshot.owner[n]
        elements = node.operator == "compute" and node.attributes[0] == "reduce-sum" and own in self._products
        return self._is_matmul(n) or (elements and not self.offline[own] and own not in self.public)

    def _is_matmul(self, n: int) -> bool:
        node, own = self.snapshot.nodes[n], self.snapshot.owner[n]
        product = node.operator == "compute" and node.attributes[0] == "dot-product"
        return product and not self.offline[own] and own not in self.public

    def possible(self, n: int) -> bool:
        """True if the protocol supports the e-node: untruncated operands require late truncation."""
        node = self.snapshot.nodes[n]
        wide = any(self.scales.get(c, 1) > 1 for c in node.children)
        if not wide or node.operator == "truncate":
            return True
        if not self.late or node.operator != "linear-map":
            return self.late
        return all(v.denominator == 1 for v in exact_numbers(node.attributes[2]) or ())

    def traffic(self, n: int) -> Traffic | None:
        """Returns the traffic of one e-node; None without an exact formula."""
        snapshot, node, own = self.snapshot, self.snapshot.nodes[n], self.snapshot.owner[n]
        type_ = snapshot.types[own]
        if self.offline[own] or own in self.public or type_ is None:
            return NOTHING
        if node.operator == "truncate":
            return self.protocol.truncation(type_.size) if self.late else NOTHING
        operands = [self._operand(c) for c in node.children]
        sent = node_traffic(self.protocol, node.operator, node.attributes, operands, type_)
        if sent is None or self.late:
            return sent
        return sent + product_truncation(self.protocol, node.operator, node.attributes, operands, type_)

    def work(self, n: int) -> Work:
        """Returns the local work of a party for one e-node."""
        node, own = self.snapshot.nodes[n], self.snapshot.owner[n]
        type_ = self.snapshot.types[own]
        if self.offline[own] or own in self.public or type_ is None:
            return NO_WORK
        return node_work(node.operator, node.attributes, [self._operand(c) for c in node.children], type_)

    def _operand(self, eclass: int) -> Operand:
        """Returns the analysis of a class, which may be a pair of two others."""
        snapshot = self.snapshot
        type_ = snapshot.types[eclass]
        assert type_ is not None
        found = Operand(type_, eclass not in self.public, known=eclass in self._numbers)
        pairs = (snapshot.nodes[n] for n in snapshot.classes[eclass])
        pair = next((p for p in pairs if p.operator == "access-product"), None)
        if pair is None:
            return found
        return replace(found, parts=tuple(map(self._operand, pair.children)), shared=pair.attributes[0])


def truncate_late(protocol: Semi2k, program: Program, search: Search) -> tuple[Program, str]:
    """Truncates each product, then moves and merges truncations to where the protocol sends least.

    The prices are the traffic of truncations; the products of layers are searched next.
    """
    truncated = _truncated(program)
    truncation = Instruction(
        "truncate", lambda _, __, own: InstructionCost(0, 1, protocol.truncation(own.size).bytes), "products"
    )
    prices = Prices((truncation,), ("bytes",), fallback=free)
    found = rewritten(truncated, ("constant-analyses", "late-truncations"), {}, prices, search)
    return (found.program if len(found.program.layers) == len(program.layers) else truncated), SATURATED


def _truncated(program: Program) -> Program:
    """Returns the program with every float product of a layer truncated at once."""
    products = {p for p in program.layers.values() if p.access.dtype in FLOATS}
    rebuilt: dict[Term, Term] = {}

    def truncate(term: Term, children: tuple[Term, ...]) -> Term | None:
        if term not in products:
            return None
        rebuilt[term] = make(term.operator, weave(term.operator, children, term.attributes))
        return build("truncate", rebuilt[term])

    (term,) = rebuild_all([program.term], truncate)
    layers = {name: rebuilt[product] for name, product in program.layers.items() if product in rebuilt}
    return replace(program, term=term, layers=layers, names={})
