"""A whole network in one e-graph: scales into weights, layouts along the network, before its layers are mapped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from glenside.builder.layout import rearrange
from glenside.egraph.saturation import INTERRUPTED, SATURATED, Limits, Progress
from glenside.egraph.search import Worker, search
from glenside.egraph.snapshot import Snapshot
from glenside.ir.constants import constants_under
from glenside.ir.operator import Category, Keeps
from glenside.ir.operators import parse_compute
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder, rebuild_all, tensors
from glenside.ir.types import AccessType, Dims, Tensor
from glenside.passes.extraction import choose, constant_classes
from glenside.targets.base import Cost, Spent, Target
from rewrites import of_families
from rewrites.layout import folding


@dataclass(frozen=True)
class Arranged:
    """The program as the network's e-graph gives it, what it costs, and the e-graph: `choice` is class -> e-node."""

    program: Program
    cost: Cost
    egraph: Snapshot
    choice: Mapping[int, int]
    progress: Progress
    seconds: float

    @property
    def stopped(self) -> str:
        return self.progress.stopped or INTERRUPTED


def arranged(
    program: Program,
    target: Target,
    *,
    limits: Limits | None = None,
    method: str = "dag",
    worker: Callable[[], Worker] = Worker,
    on_progress: Callable[[Progress], None] | None = None,
) -> Arranged:
    """The equal program that costs the target least as a network: its family of rules "network", all nodes at once.

    Stopped early it is the best found by then. Extraction of shared nodes is a heuristic: the answer may cost more than
    the program itself, which is a candidate too, and whoever asks compares. Products keep their layers' names.
    """
    started = time.perf_counter()
    nodes = list(postorder(program.term))
    answer = search(
        nodes,
        of_families(target.families["network"]),
        target.rule_parameters(),
        limits,
        worker=worker(),
        on_progress=on_progress,
    )
    snapshot = answer.snapshot
    root = snapshot.program[len(nodes) - 1]
    find = partial(choose, snapshot, target, constant_classes(snapshot), [root], method=method)
    # Where two forms of a tensor cost the same, what computes it once in each of them costs more than either: the
    # program's own forms are avoided once, so that all of it is in the other.
    choice = min((find(), find(avoided=_own_forms(snapshot))), key=lambda c: c.cost.ordered(target.objectives))
    term = plain(snapshot.terms(choice.nodes, [root])[root])
    made = Program(term, program.name, named(program, term), program.labels, program.constants)
    seconds = time.perf_counter() - started
    return Arranged(made, choice.cost, snapshot, choice.nodes, answer.progress, seconds)


def _own_forms(snapshot: Snapshot) -> frozenset[int]:
    """The e-nodes that compute a tensor of the program in its own order, where it is known in another too."""

    def has(eclass: int, operator: str) -> bool:
        return any(snapshot.nodes[n].operator == operator for n in snapshot.classes[eclass])

    own = {c for c in snapshot.program if has(c, "access-rearrange") and has(c, "compute")}
    still = {
        snapshot.owner[n]
        for n, node in enumerate(snapshot.nodes)
        if node.operator == "access-rearrange" and len(node.attributes[1]) == 1 and node.children[0] in own
    }
    computed = (n for c in own | still for n in snapshot.classes[c] if snapshot.nodes[n].operator == "compute")
    return frozenset(n for n in computed if snapshot.nodes[n].attributes[0] != "dot-product")


def plain(term: Term) -> Term:
    """The term with every rearrangement spelled as reshapes and transposes."""

    def spelled(node: Term, children: tuple[Term, ...]) -> Term | None:
        if node.operator.name != "access-rearrange":
            return None
        parts, order, shape, item = (a for a in node.attributes if isinstance(a, Dims))
        moved = rearrange(children[0], parts, order, (*shape, *item))
        return build("access", moved, len(shape)) if len(shape) else moved

    return rebuild_all([term], spelled)[0]


def is_layer(term: Term) -> bool:
    """Whether it is a product, or the instruction that one became."""
    return is_product(term) or term.operator.name == "product-unit"


def named(program: Program, term: Term) -> dict[str, Term]:
    """Names of layers -> the products of another form of the program.

    A product is known by the constants that its second operand is made of: folding may add some, and takes none away.
    Where several layers have the same, or none, they come in the same order.
    """
    names = {product: name for name, product in reversed(list(program.layers.items()))}
    before = [product for product in postorder(program.term) if product in names]
    after = [product for product in postorder(term) if is_layer(product)]
    if len(before) != len(after):
        return {}
    left: dict[frozenset[str], list[Term]] = {}
    for product in before:
        left.setdefault(_weights(product), []).append(product)
    found: dict[str, Term] = {}
    for product in after:
        own = _weights(product)
        known = max((w for w, products in left.items() if products and w <= own), key=len, default=None)
        if known is None:
            return {}
        found[names[left[known].pop(0)]] = product
    return {name: found[name] for name in program.layers if name in found}


def _weights(product: Term) -> frozenset[str]:
    operand = (product.children[0] if is_product(product) else product).children[-1]
    leaves = [leaf.attributes[0] for leaf in tensors(operand)]
    if not all(isinstance(t, Tensor) and t.constant for t in leaves):
        return frozenset()
    return frozenset(t.name for t in leaves if isinstance(t, Tensor))


def has_scales_of_products(program: Program) -> bool:
    """Whether a product by constant weights is scaled by a constant: what `folded` can take away."""
    constant = constants_under(program.term)
    scaled: dict[Term, bool] = {}
    for term in postorder(program.term):
        pair = term.children[0] if term.operator.name == "compute" else term
        operands = [c for c in pair.children if not constant[c]]
        record = parse_compute(str(term.attributes[0]))[0] if term.operator.name == "compute" else None
        scales = record is not None and Keeps.FACTOR in record.keeps
        adds = record is not None and record.category is Category.FOLD and record.linear
        if is_product(term):
            scaled[term] = len(operands) == 1
        elif term.operator.index_map is not None or scales or adds:
            scaled[term] = len(operands) == 1 and scaled.get(operands[0], False)
        if scales and scaled[term]:
            return True
    return False


_FOLDING = Target(
    name="folding",
    doc="Any machine: products are those of the program and cost nothing here, and how they are run is searched next.",
    instructions=(),
    families={"network": folding.TOGETHER},
    parameters={},
    tile={},
    peak=1,
    price=lambda *_: Spent(0, 0),
    bound=lambda *_: Spent(0, 0),
    beside=lambda *_: Spent(0, 0),
)


def folded(
    program: Program,
    *,
    limits: Limits | None = None,
    worker: Callable[[], Worker] = Worker,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[Program, str]:
    """The program with scales of its products folded into their weights, and why the search for it ended.

    The program itself where nothing can be folded, or where that would multiply or compute no less.
    """
    if not has_scales_of_products(program):
        return program, SATURATED
    found = arranged(program, _FOLDING, limits=limits, worker=worker, on_progress=on_progress)
    constant = constants_under(program.term)
    own = Cost()
    for term in postorder(program.term):
        if isinstance(term.type, AccessType) and all(isinstance(c.type, AccessType) for c in term.children):
            operands = [c.access for c in term.children]
            own = own.plus(_FOLDING.cost(term.operator.name, term.attributes, operands, term.type, constant[term]))
    better = (found.cost.unmapped, found.cost.scalar) < (own.unmapped, own.scalar)
    whole = len(found.program.layers) == len(program.layers)
    return found.program if better and whole else program, found.stopped
