"""Which elements of a nest are sampled: of each statement that stores some, at the ends of loops and within them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glenside.codegen.loops import Buffer, Number, Sort, Store
from glenside.codegen.validation.structure import PRIVATE, Node, Structure, axes_of
from glenside.ir.operand import Array

_SAMPLES = 24
"""Elements of a nest that are drawn, where it has few statements that store."""
_MOST_SAMPLES = 64
_OF_STORE = 6
_PRODUCTS = 1 << 17
"""Steps of loops that sums take, of all samples together, from which on fewer are drawn."""


def elements(structure: Structure, drawn: np.random.Generator) -> list[tuple[Buffer, int]]:
    """Elements that a nest stores, drawn: at least one for each statement that does."""
    stores = [node for node in structure.every if _target(node) is not None]
    stores = [node for node in stores if all(loop.axis.size for loop in node.loops)]
    if not stores:
        return []
    deep = max((_products(node) for node in structure.every if isinstance(node.statement, Store)), default=1)
    most = min(_SAMPLES, max(4, _PRODUCTS // deep))
    if len(stores) > _MOST_SAMPLES:
        stores = [stores[i] for i in sorted(drawn.choice(len(stores), _MOST_SAMPLES, replace=False))]
    computed = [node for node in stores if not _is_constant(node)]
    each = max(1, min(_OF_STORE, most // max(1, len(computed))))
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
    """Steps of loops that do not count where a statement stores."""
    statement = node.statement
    assert isinstance(statement, Store), "it stores"
    numbers = {axis.number for axis in axes_of(statement.place)}
    return int(np.prod([loop.axis.size for loop in node.loops if loop.axis.number not in numbers] or [1]))


def _of_store(node: Node, structure: Structure, each: int, drawn: np.random.Generator) -> Iterator[tuple[Buffer, int]]:
    """Places at which a statement stores: at ends of loops, and anywhere."""
    statement = node.statement
    assert isinstance(statement, Store | Sort), "it stores"
    buffer = _target(node)
    assert buffer is not None, "it stores"
    tries = 4 * each + 8
    counters: dict[int, Array] = {}
    for loop in node.loops:
        n = loop.axis.size
        steps, ends = drawn.integers(0, n, tries), drawn.random(tries)
        steps = np.where(ends < 0.2, 0, np.where(ends < 0.45, n - 1, steps))
        if each > 2:
            steps[1], steps[2] = n - 1, 0
        counters[loop.axis.number] = steps
    held = np.ones(tries, bool)
    for guard in node.guards:
        held &= np.broadcast_to(guard.evaluate(counters), tries)  # type: ignore[arg-type]
    place = np.broadcast_to(np.asarray(statement.place.evaluate(counters), np.int64), tries).copy()  # type: ignore[arg-type]
    if isinstance(statement, Sort):
        place += drawn.integers(0, max(1, statement.count), tries)
    else:
        for local, step in statement.picked:
            place += drawn.integers(0, structure.sizes.get(local.name, 1), tries) * step
    held &= (place >= 0) & (place < buffer.dims.product())
    for at in np.flatnonzero(held)[:each]:
        yield buffer, int(place[at])
