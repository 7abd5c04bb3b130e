"""Reads the states of a loop: parts of one state, and concatenations of parts of consecutive states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from glenside.builder.layout import concatenate, reshape, transpose
from glenside.ir.term import Term, rebuild_all

Rows = Mapping[Term, tuple[int, int]]
"""Terms that are parts of a loop's states -> (row, number of the part)."""


def stacks(order: dict[Term, int], rows: Rows) -> Iterator[tuple[Term, int, list[Term]]]:
    """Yields the outermost concatenations of parts of states: the term, its axis, and what is concatenated."""
    inner = set[Term]()
    for term in reversed(order):
        if term.operator.name == "access-concatenate" and term not in inner:
            _, _, axis = term.arguments()
            leaves, stack = list[Term](), [term]
            while stack:
                one = stack.pop()
                if one.operator.name == "access-concatenate" and one.arguments()[2] == axis:
                    inner.add(one)
                    stack += [one.children[1], one.children[0]]
                else:
                    leaves.append(one)
            if sum(_whole(leaf, rows) in rows for leaf in leaves) > 1:
                yield term, axis, leaves


def joined(
    leaves: Sequence[Term], axis: int, rows: Rows, part: Callable[[int, int, int], Term], made: Mapping[Term, Term]
) -> Term:
    """Returns a concatenation in which parts of consecutive states are one part."""
    pieces, done = list[Term](), dict(made)
    runs: list[list[Term]] = []
    for leaf in leaves:
        before = runs[-1][-1] if runs else None
        if before is not None and _follows(before, leaf, axis, rows):
            runs[-1].append(leaf)
        else:
            runs.append([leaf])
    for run in runs:
        if len(run) == 1:
            pieces += rebuild_all(run, lambda *_: None, done)
            continue
        (row, number), dims = rows[_whole(run[0], rows)], run[0].access.dims.remove(axis)
        own = reshape(part(row, row + len(run), number), (len(run), *dims))
        pieces.append(transpose(own, [*range(1, axis + 1), 0, *range(axis + 1, len(dims) + 1)]))
    return concatenate(pieces, axis)


def _follows(a: Term, b: Term, axis: int, rows: Rows) -> bool:
    """True if b is the same part as a of the next state."""
    one, other = rows.get(_whole(a, rows)), rows.get(_whole(b, rows))
    if one is None or other is None or a.access.dims != b.access.dims or a.access.dims[axis] != 1:
        return False
    return other == (one[0] + 1, one[1])


def _whole(term: Term, rows: Rows) -> Term:
    """Returns the part of a state of which a term is a reshape."""
    while term not in rows and term.operator.name in ("access-reshape", "access"):
        term = term.children[0]
    return term
