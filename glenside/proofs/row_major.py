"""Moves indices between arrays of as many elements, in row-major order."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.proofs.assumptions import Assumptions
from glenside.proofs.symbolic_integers import ZERO, Integer, position, product, same


def relocated(
    known: Assumptions, index: Sequence[Integer], dims: Sequence[Integer], target: Sequence[Integer]
) -> list[Integer]:
    """Returns the index, in an array of dims `target`, of the element at `index` of one of dims `dims`.

    Both have as many elements. Axes are grouped so that groups have as many elements on both sides: a group of one axis
    on both sides keeps its index. That is right where the index exists, since no size is 0 there.
    """
    ones = [k for k, n in enumerate(target) if _is_one(known, n)]
    sizes = [n for k, n in enumerate(target) if k not in ones]
    kept = [(i, n) for i, n in zip(index, dims, strict=True) if not _is_one(known, n)]
    found: list[Integer] = []
    for sources, targets in _groups(known, [n for _, n in kept], sizes):
        part, kept = kept[: len(sources)], kept[len(sources) :]
        place = position([i for i, _ in part], [n for _, n in part])
        found += _coordinates(known, place, targets)
    whole = iter(found)
    return [ZERO if k in ones else next(whole) for k in range(len(target))]


def _is_one(known: Assumptions, size: Integer) -> bool:
    if size.constant is not None:
        return size.constant == 1
    return same(size, 1) in known.conditions


def _coordinates(known: Assumptions, place: Integer, dims: Sequence[Integer]) -> list[Integer]:
    """Returns the index of a row-major position."""
    found: list[Integer] = []
    for n in reversed(dims[1:]):
        whole = known.quotient(place, n)
        found.append(place - whole * n)
        place = whole
    return [*([place] if dims else []), *reversed(found)]


def _groups(
    known: Assumptions, a: Sequence[Integer], b: Sequence[Integer]
) -> list[tuple[Sequence[Integer], Sequence[Integer]]]:
    """Splits two products of sizes into the smallest groups that are equal from the left, and then from the right."""
    groups: list[tuple[Sequence[Integer], Sequence[Integer]]] = []
    while a and b and (cut := _cut(a, b)):
        groups.append((a[: cut[0]], b[: cut[1]]))
        a, b = a[cut[0] :], b[cut[1] :]
    back: list[tuple[Sequence[Integer], Sequence[Integer]]] = []
    while a and b and (cut := _cut(a[::-1], b[::-1])):
        back.insert(0, (a[len(a) - cut[0] :], b[len(b) - cut[1] :]))
        a, b = a[: len(a) - cut[0]], b[: len(b) - cut[1]]
    if a and b and len(a) == len(b) == 1:
        return [*groups, (a, b), *back]
    if a and b and any(known.proves(same(x, y)) for x, y in ((a[0], b[0]), (a[-1], b[-1]))):
        first = known.proves(same(a[0], b[0]))
        parts = _groups(known, a[1:], b[1:]) if first else _groups(known, a[:-1], b[:-1])
        pair = ([a[0]], [b[0]]) if first else ([a[-1]], [b[-1]])
        return [*groups, *([pair, *parts] if first else [*parts, pair]), *back]
    return [*groups, (a, b), *back] if a or b else [*groups, *back]


def _cut(a: Sequence[Integer], b: Sequence[Integer]) -> tuple[int, int] | None:
    """Returns the lengths of the shortest beginnings whose products are equal polynomials."""
    of_a: dict[Integer, int] = {}
    for x in range(1, len(a) + 1):
        of_a.setdefault(product(a[:x]), x)
    for y in range(1, len(b) + 1):
        if x := of_a.get(product(b[:y]), 0):
            return (x, y)
    return None
