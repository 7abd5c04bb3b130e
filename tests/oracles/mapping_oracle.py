"""Computes the fewest cycles of a layer on a systolic array by brute force, without the project's rules.

A layer is plain integers: G products [M, K] x [K, N]. Three transformations are tried in every combination, and a
fourth one on request:

    regroup  one window serves q outputs of an axis, any q from 1 to all of them: fewer rows, wider windows, q times
             the filters
    pack     p groups become one, any p from 1 to all of them: K and N times p, the weights block-diagonal
    cross    instead, and of the layer as it is, p groups become one: M and N times p, of p x p results p are kept
    swap     the weights stream and the activations stay: M and N change places

Nothing is pruned, so the result is the minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glenside.ir.program import Program
from glenside.ir.term import Term

Ints = NDArray[np.int64]
# (groups, m, k, n, rows, columns) -> cycles, of numbers or of arrays of them.
Cycles = Callable[[Any, Any, Any, Any, int, int], Any]

CHUNK = 1 << 21  # combinations priced at once; the memory this takes is some 100 MiB


@dataclass(frozen=True)
class Layer:
    """A convolution in groups, or without axes a matrix product; channels and filters are those of one group."""

    groups: int
    channels: int
    filters: int
    batch: int = 1
    sizes: tuple[int, ...] = ()  # of the output
    kernels: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    @property
    def macs(self) -> int:
        return self.groups * self.batch * prod(self.sizes) * self.channels * prod(self.kernels) * self.filters


def matmul(groups: int, m: int, k: int, n: int) -> Layer:
    """Returns `groups` products [m, k] x [k, n]."""
    return Layer(groups, channels=k, filters=n, batch=m)


@dataclass(frozen=True)
class Mapping:
    """One combination and its cost."""

    cycles: int
    factors: tuple[int, ...]  # q for each axis
    packed: int  # p
    swapped: bool
    crossed: bool = False


def _ceil(a: Any, b: Any) -> Any:
    return -(-a // b)


def weight_stationary(groups: Any, m: Any, k: Any, n: Any, rows: int, columns: int) -> Any:
    return groups * _ceil(k, rows) * _ceil(n, columns) * (m + 2 * rows + columns - 2)


def output_stationary(groups: Any, m: Any, k: Any, n: Any, rows: int, columns: int) -> Any:
    return groups * _ceil(m, rows) * _ceil(n, columns) * (k + rows + columns - 2)


def double_buffered(groups: Any, m: Any, k: Any, n: Any, rows: int, columns: int) -> Any:
    """Computes the cycles of a weight-stationary array; the next tile of weights loads while this one is used."""
    return rows + groups * _ceil(k, rows) * _ceil(n, columns) * np.maximum(rows, m + rows + columns - 2)


def window(kernel: int, stride: int, dilation: int, q: int, dilated_span: bool = False) -> int:
    """Returns the elements of one axis that q neighbouring outputs need.

    Of an axis with dilation the distinct ones, or with `dilated_span` all from the first to the last of them as soon
    as q is over 1. A kernel of one element has no dilation. Otherwise it is the span, gaps of a large stride included.
    """
    if dilation > 1 and kernel > 1:
        if q == 1 or not dilated_span:
            return len({r * stride + u * dilation for r in range(q) for u in range(kernel)})
        return (q - 1) * stride + (kernel - 1) * dilation + 1
    return kernel + (q - 1) * stride


def best(
    layer: Layer,
    rows: int,
    columns: int,
    cycles: Cycles = weight_stationary,
    *,
    dilated_span: bool = False,
    crossing: bool = False,
) -> Mapping:
    """Returns the least cycles of all combinations, and the first combination that has them; with `crossing` also over
    crossed groups.
    """
    found = [*_candidates(layer, rows, columns, cycles, dilated_span)]
    found += _crossings(layer, rows, columns, cycles) if crossing else ()
    return min(found, key=lambda mapping: mapping.cycles)


def _crossings(layer: Layer, rows: int, columns: int, cycles: Cycles) -> Iterator[Mapping]:
    """Yields every number of crossed groups, unswapped and swapped."""
    groups, m, k, n = products(layer, Mapping(0, (1,) * len(layer.sizes), 1, False))
    for p in range(2, groups + 1):
        for swapped in (False, True):
            left, right = (n * p, m * p) if swapped else (m * p, n * p)
            price = int(cycles(_ceil(groups, p), left, k, right, rows, columns))
            yield Mapping(price, (1,) * len(layer.sizes), p, swapped, crossed=True)


def _candidates(layer: Layer, rows: int, columns: int, cycles: Cycles, dilated_span: bool) -> Iterator[Mapping]:
    """Yields the best mapping of each swap and each chunk of p's, over all q's."""
    axes = list(zip(layer.sizes, layer.kernels, layer.strides, layer.dilations, strict=True))
    shape = (*layer.sizes, 1)

    def along(axis: int, values: Sequence[int]) -> Ints:
        return np.array(values, np.int64).reshape([-1 if i == axis else 1 for i in range(len(shape))])

    m, k, n = (np.full(shape, start, np.int64) for start in (layer.batch, layer.channels, layer.filters))
    for axis, (size, kernel, stride, dilation) in enumerate(axes):
        factors = range(1, size + 1)
        m = m * along(axis, [_ceil(size, q) for q in factors])
        k = k * along(axis, [window(kernel, stride, dilation, q, dilated_span) for q in factors])
        n = n * along(axis, factors)
    step = max(1, CHUNK // prod(shape))
    for first in range(1, layer.groups + 1, step):
        p = along(len(axes), range(first, min(first + step, layer.groups + 1)))
        for swapped in (False, True):
            left, right = (n * p, m) if swapped else (m, n * p)
            prices = np.asarray(cycles(_ceil(layer.groups, p), left, k * p, right, rows, columns))
            *chosen, packed = map(int, np.unravel_index(int(prices.argmin()), prices.shape))
            yield Mapping(int(prices.min()), tuple(q + 1 for q in chosen), packed + first, swapped)


def products(layer: Layer, mapping: Mapping, *, dilated_span: bool = False) -> tuple[int, int, int, int]:
    """Returns (groups, m, k, n) after regrouping and packing, before the swap."""
    axes = list(zip(layer.sizes, layer.kernels, layer.strides, layer.dilations, mapping.factors, strict=True))
    p = mapping.packed
    return (
        _ceil(layer.groups, p),
        layer.batch * prod(_ceil(size, q) for size, _, _, _, q in axes),
        layer.channels * prod(window(k, t, d, q, dilated_span) for _, k, t, d, q in axes) * p,
        layer.filters * prod(mapping.factors) * p,
    )


def baseline(layer: Layer, rows: int, columns: int, cycles: Cycles = weight_stationary) -> int:
    """Returns the cycles of the layer as written: im2col, one group at a time."""
    unchanged = Mapping(0, (1,) * len(layer.sizes), 1, False)
    return int(cycles(*products(layer, unchanged), rows, columns))


def of_gradients(layer: Layer, inputs: Sequence[int], padding: Sequence[int]) -> list[list[Layer]]:
    """Returns the forms of a convolution's gradient by its input, each as a list of layers: a product whose windows are
    added up; windows of the gradient with zeros between its elements; a convolution for each phase.
    """
    m, k = layer.batch * prod(layer.sizes), layer.channels * prod(layer.kernels)
    turned = Layer(layer.groups, layer.filters, layer.channels, layer.batch)
    ones = (1,) * len(layer.sizes)
    phases: list[list[tuple[int, int, int]]] = []  # of each axis: (places, taps, from one tap to the next)
    for size, before, kernel, t, d in zip(inputs, padding, layer.kernels, layer.strides, layer.dilations, strict=True):
        own = [(range(p, size, t), [u for u in range(kernel) if (p + before - u * d) % t == 0]) for p in range(t)]
        phases.append(
            [(len(places), len(taps), d * (taps[1] - taps[0]) // t if taps[1:] else 1) for places, taps in own]
        )
    split = [
        replace(turned, sizes=sizes, kernels=taps, strides=ones, dilations=apart)
        for sizes, taps, apart in (zip(*one, strict=True) for one in product(*phases))
        if prod(sizes) * prod(taps)
    ]
    spread = replace(turned, sizes=(*inputs,), kernels=layer.kernels, strides=ones, dilations=layer.dilations)
    return [[matmul(layer.groups, m, layer.filters, k)], [spread], split]


# From the project's programs to layers. A term is read in the forms that glenside/builder/products.py lists.


def layers_of(program: Program) -> dict[str, Layer]:
    """Returns every product of a program as written, by name."""
    return {name: layer_of(dot) for name, dot in program.layers.items()}


def layer_of(dot: Term) -> Layer:
    """Converts a product to plain integers: sizes from its operands, strides and dilations from the windows below."""
    (pairs,) = dot.children
    a, b = pairs.children
    (shared,) = pairs.attributes
    assert pairs.operator.name == "access-product"
    assert isinstance(shared, int)
    left, right = a.access, b.access
    assert left.split >= shared
    assert right.split == shared + 1, f"one axis of filters is required, got {right}"
    groups, filters = prod(left.dims[:shared]), right.dims[shared]
    steps = _windows(a)
    if steps is None and not _pointwise(a, shared):
        return matmul(groups, prod(left.dims[shared : left.split]), prod(left.item), filters)
    batch, *sizes = left.dims[shared : left.split]
    channels, *kernels = right.item
    ones = (1,) * len(sizes)
    strides, dilations = steps or (ones, ones)
    return Layer(groups, channels, filters, batch, tuple(sizes), tuple(kernels) or ones, strides, dilations)


def _windows(term: Term) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns (strides, dilations) of the windows of a term; axis 0 is the channels. None without windows."""
    while term.operator.name in ("access", "access-squeeze", "access-reshape"):
        (term,) = term.children
    if term.operator.name != "access-windows":
        return None
    steps, (below,) = _strides(term), term.children
    if below.operator.name == "access-windows":  # single elements of dilated windows
        return _strides(below), steps
    return steps, (1,) * len(steps)


def _strides(term: Term) -> tuple[int, ...]:
    strides = term.attributes[1]
    assert isinstance(strides, tuple)
    return tuple(strides[1:])


def _pointwise(a: Term, shared: int) -> bool:
    """True if an operand without windows has spatial axes, with channels moved to the end."""
    if shared == 1:
        return a.access.rank >= 4
    below = a.children[0] if a.operator.name == "access" else a
    rank = below.access.rank
    if shared or rank < 3 or below.operator.name != "access-transpose":
        return False
    return tuple(below.attributes[0]) == (0, *range(2, rank), 1)  # type: ignore[arg-type]
