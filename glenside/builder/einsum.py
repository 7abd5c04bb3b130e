"""Sums of products in Einstein notation, as transposes, matrix products and reductions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

from glenside.builder.layout import broadcast, common_dims, diagonal, reshape, transpose
from glenside.builder.pointwise import cast, multiply
from glenside.builder.reductions import reduce_axes
from glenside.ir.names import shortened
from glenside.ir.operator import require
from glenside.ir.term import Term
from glenside.ir.types import Dims

Product = Callable[[Term, Term], Term]
"""The matrix product of the last two axes."""

_OPERAND = re.compile(r"([A-Za-z]*)(?:(\.\.\.)([A-Za-z]*))?", re.ASCII)


@dataclass(frozen=True)
class _Labelled:
    """A tensor with a label for each axis: a letter, or ...0, ...1 for the axes of an ellipsis, ...0 for the last."""

    term: Term
    labels: tuple[str, ...]

    def ordered(self, labels: Sequence[str]) -> Term:
        """Returns the tensor with its axes in that order, and axes of size 1 for labels that it does not have."""
        have = [label for label in labels if label in self.labels]
        moved = transpose(self.term, [self.labels.index(label) for label in have])
        sizes = iter(moved.access.dims)
        return reshape(moved, [next(sizes) if label in have else 1 for label in labels])


def einsum(equation: str, operands: Sequence[Term], matmul: Product) -> Term:
    """Computes the sum of products of an equation, as in numpy: `ij,jk->ik`, `...ii`; sizes of 1 broadcast.

    Raises TypeMismatch for an equation that cannot be read, or does not fit the operands.
    """
    text, arrow, output = equation.replace(" ", "").partition("->")
    texts, shown = text.split(","), shortened(equation)
    require(len(texts) == len(operands), "einsum", f"{len(operands)} operands in the equation", shown)
    parts = [_Labelled(x, _labels(t, x.access.rank, shown)) for t, x in zip(texts, operands, strict=True)]
    used = [label for part in parts for label in part.labels]
    ellipsis = sorted({label for label in used if len(label) > 1}, key=lambda label: -int(label[3:]))
    if arrow:
        result = _labels(output, len(output.replace("...", "")) + ("..." in output) * len(ellipsis), shown)
        fits = len(set(result)) == len(result) and set(result) <= set(used)
        require(fits, "einsum", "labels of the result that are different, and those of operands", shown)
    else:
        result = (*ellipsis, *sorted(label for label, count in Counter(used).items() if count == 1 == len(label)))
    sizes = _sizes(parts)
    parts = [_without_repeats(part) for part in parts]
    while len(parts) > 1:
        parts = _join_cheapest(parts, result, sizes, matmul)
    alone = _summed(parts[0], result)
    return broadcast(alone.ordered(result), [sizes[label] for label in result])


def _labels(text: str, rank: int, shown: str) -> tuple[str, ...]:
    found = _OPERAND.fullmatch(text)
    if found is None:
        require(False, "einsum", "letters and at most one ellipsis for each operand", shown)
        return ()
    before, ellipsis, after = found.group(1), found.group(2), found.group(3) or ""
    more = rank - len(before) - len(after)
    require(more >= 0 if ellipsis else more == 0, "einsum", f"{rank} labels for an operand of {rank} axes", shown)
    return (*before, *(f"...{i}" for i in reversed(range(more))), *after)


def _sizes(parts: Sequence[_Labelled]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for part in parts:
        for label, n in zip(part.labels, part.term.access.dims, strict=True):
            (sizes[label],) = common_dims("einsum", [sizes.get(label, 1)], [n])
    return sizes


def _without_repeats(part: _Labelled) -> _Labelled:
    """Returns the diagonal of axes with the same label."""
    for label in dict.fromkeys(part.labels):
        while part.labels.count(label) > 1:
            first = part.labels.index(label)
            second = part.labels.index(label, first + 1)
            others = [axis for axis in range(len(part.labels)) if axis not in (first, second)]
            moved = transpose(part.term, (*others, first, second))
            size = max(moved.access.dims[-2:], key=lambda n: (n != 1, n))
            square = broadcast(moved, (*moved.access.dims[:-2], size, size))
            part = _Labelled(diagonal(square), (*(part.labels[axis] for axis in others), label))
    return part


def _summed(part: _Labelled, wanted: Collection[str]) -> _Labelled:
    """Returns the sum over all labels that are not wanted."""
    axes = [axis for axis, label in enumerate(part.labels) if label not in wanted]
    return _Labelled(reduce_axes("reduce-sum", part.term, axes), tuple(v for v in part.labels if v in wanted))


def _join_cheapest(
    parts: list[_Labelled], result: Sequence[str], sizes: dict[str, int], matmul: Product
) -> list[_Labelled]:
    """Joins the pair with the smallest product."""

    def wanted(i: int, j: int) -> set[str]:
        return {*result, *(label for k, part in enumerate(parts) if k not in (i, j) for label in part.labels)}

    def size(pair: tuple[int, int]) -> int:
        i, j = pair
        return prod(sizes[label] for label in {*parts[i].labels, *parts[j].labels} & wanted(i, j))

    i, j = min(combinations(range(len(parts)), 2), key=size)
    joined = _joined(parts[i], parts[j], wanted(i, j), sizes, matmul)
    return [joined, *(part for k, part in enumerate(parts) if k not in (i, j))]


def _joined(a: _Labelled, b: _Labelled, wanted: set[str], sizes: dict[str, int], matmul: Product) -> _Labelled:
    """Computes one matrix product: shared labels are contracted, or are batch axes if they are wanted."""
    a, b = _summed(a, {*wanted, *b.labels}), _summed(b, {*wanted, *a.labels})
    shared = [label for label in a.labels if label in b.labels and label in wanted]
    inner = [label for label in a.labels if label in b.labels and label not in wanted]
    rows = [label for label in a.labels if label not in b.labels]
    columns = [label for label in b.labels if label not in a.labels]
    labels = (*shared, *rows, *columns)
    if not inner:
        return _Labelled(multiply(a.ordered(labels), b.ordered(labels)), labels)

    def matrices(part: _Labelled, left: Sequence[str], right: Sequence[str]) -> Term:
        term = part.ordered((*shared, *left, *right))
        lead = term.access.dims[: len(shared)]
        rest = [Dims(sizes[label] for label in side) for side in (left, right)]
        return reshape(broadcast(term, (*lead, *rest[0], *rest[1])), (*lead, *(d.product() for d in rest)))

    product = matmul(matrices(a, rows, inner), matrices(b, inner, columns))
    product = cast(product, a.term.access.dtype)
    return _Labelled(reshape(product, [*product.access.dims[:-2], *(sizes[v] for v in (*rows, *columns))]), labels)
