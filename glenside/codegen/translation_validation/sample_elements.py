"""Samples elements of a nest: for each store some, at the ends of loops, where guards change, and at random."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glenside.codegen.loop_ir.ir import Buffer, Number, Sort, Store
from glenside.codegen.translation_validation.nest_structure import PRIVATE, Node, Structure, axes_of
from glenside.ir.operand import Array

_MAX_SAMPLES = 40
"""Maximum samples of a nest with few store statements."""
_MAX_STORES = 80
"""Maximum store statements that are sampled."""
_MAX_SAMPLES_PER_STORE = 10
"""Maximum samples of one store statement."""
_MAX_CHANGES = 4
"""Maximum steps per loop at which one quotient or guard changes that are candidates."""
_MAX_SUM_STEPS = 1 << 17
"""Maximum steps of sums of all samples together: fewer samples are drawn from deeper sums."""


def elements(structure: Structure, drawn: np.random.Generator) -> list[tuple[Buffer, int]]:
    """Returns random elements that a nest stores, at least one for each (sampled) store statement."""
    stores = [node for node in structure.every if _target(node) is not None]
    stores = [node for node in stores if all(loop.axis.size for loop in node.loops)]
    if not stores:
        return []
    deep = max((_products(node) for node in structure.every if isinstance(node.statement, Store)), default=1)
    most = min(_MAX_SAMPLES, max(4, _MAX_SUM_STEPS // deep))
    if len(stores) > _MAX_STORES:
        stores = [stores[i] for i in sorted(drawn.choice(len(stores), _MAX_STORES, replace=False))]
    computed = [node for node in stores if not _is_constant(node)]
    each = max(1, min(_MAX_SAMPLES_PER_STORE, most // max(1, len(computed))))
    found: dict[tuple[Buffer, int], None] = {}
    for node in stores:
        found |= dict.fromkeys(_of_store(node, structure, each if node in computed else 1, drawn))
    return list(found)


def _is_constant(node: Node) -> bool:
    return isinstance(node.statement, Store) and isinstance(node.statement.formula, Number)


def _target(node: Node) -> Buffer | None:
    statement = node.statement
    if isinstance(statement, Store):
        return statement.buffer if statement.buffer.role not in PRIVATE else None
    return statement.positions if isinstance(statement, Sort) else None


def _products(node: Node) -> int:
    """Returns the product of the steps of the reduction loops of a store: those not in its index."""
    statement = node.statement
    assert isinstance(statement, Store), "it stores"
    numbers = {axis.number for axis in axes_of(statement.place)}
    return int(np.prod([loop.axis.size for loop in node.loops if loop.axis.number not in numbers] or [1]))


def _of_store(node: Node, structure: Structure, each: int, drawn: np.random.Generator) -> Iterator[tuple[Buffer, int]]:
    """Yields elements that a statement stores: at ends of loops, and at random."""
    statement = node.statement
    assert isinstance(statement, Store | Sort), "it stores"
    buffer = _target(node)
    assert buffer is not None, "it stores"
    tries = 4 * each + 8
    counters = {loop.axis.number: _steps(loop, structure, tries, drawn) for loop in node.loops}
    held = np.ones(tries, bool)
    for guard in node.guards:
        held &= np.broadcast_to(guard.evaluate(counters), tries)
    place = np.broadcast_to(np.asarray(statement.place.evaluate(counters), np.int64), tries).copy()
    if isinstance(statement, Sort):
        place += drawn.integers(0, max(1, statement.count), tries)
    else:
        for local, step in statement.picked:
            place += drawn.integers(0, structure.sizes.get(local.name, 1), tries) * step
    held &= (place >= 0) & (place < buffer.dims.product())
    for at in np.flatnonzero(held)[:each]:
        yield buffer, int(place[at])


def _steps(loop: Node, structure: Structure, tries: int, drawn: np.random.Generator) -> Array:
    """Returns steps of a loop: first its ends and those at which a quotient or guard changes, then random ones."""
    size, number = loop.axis.size, loop.axis.number
    edges = {0, size - 1}
    for index, bounds in structure.questions.get(number, ()):
        axes = {axis.number: np.int64(0) for axis in axes_of(index)} | {number: np.arange(size)}
        value = np.asarray(index.evaluate(axes))
        answers = value // bounds[0] if len(bounds) == 1 else (bounds[0] <= value) & (value < bounds[1])
        changes = np.flatnonzero(np.broadcast_to(answers, size)[1:] != np.broadcast_to(answers, size)[:-1])
        edges |= {*changes[:_MAX_CHANGES].tolist(), *(changes[:_MAX_CHANGES] + 1).tolist()}
    steps = drawn.integers(0, size, tries)
    own = drawn.permutation(sorted(edges))[: tries // 2]
    steps[: len(own)] = own
    ends = drawn.random(tries)
    return np.where(np.arange(tries) < len(own), steps, np.where(ends < 0.3, size - 1, np.where(ends > 0.8, 0, steps)))
