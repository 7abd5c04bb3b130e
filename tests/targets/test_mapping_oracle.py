"""Tests the oracle of the best mapping against recorded figures and a plain loop."""

from __future__ import annotations

import time
from itertools import product

import mapping_oracle as oracle
import numpy as np
import pytest
from mapping_oracle import Cycles, Layer, Mapping, best, layers_of, matmul

from glenside.builder import Builder
from glenside.models import load

# Channels in and out and the stride of each pair, as table 1 of the paper lists them.
PAIRS = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
PAIRS += [(512, 512, 1)] * 5 + [(512, 1024, 2), (1024, 1024, 1)]
FORMULAS = [oracle.weight_stationary, oracle.output_stationary, oracle.double_buffered]


_CROSSED = {(16, 16): 3_223_718, (32, 128): 801_482}
"""What crossed groups take where that is less."""


def convolution(size: int, kernel: int, stride: int, channels: int, filters: int, groups: int = 1) -> Layer:
    return Layer(groups, channels, filters, 1, (size, size), (kernel, kernel), (stride, stride), (1, 1))


def mobilenet() -> dict[str, Layer]:
    """Returns the 28 layers, written down."""
    layers, size = {"conv1": convolution(112, 3, 2, 3, 32)}, 112
    for number, (channels, filters, stride) in enumerate(PAIRS, 1):
        size //= stride
        layers[f"dw{number}"] = convolution(size, 3, stride, 1, 1, groups=channels)
        layers[f"pw{number}"] = convolution(size, 1, 1, channels, filters)
    return {**layers, "fc": matmul(1, 1, 1024, 1000)}


@pytest.mark.parametrize(
    ("rows", "columns", "baseline", "least"),
    [
        (16, 16, 5_071_336, 3_224_518),
        (32, 32, 3_322_986, 1_170_914),
        (64, 64, 3_219_520, 536_657),
        (128, 128, 3_983_132, 323_878),
        (32, 128, 3_219_520, 811_012),
        (24, 40, 3_418_899, 1_415_996),
    ],
)
def test_the_whole_network(rows: int, columns: int, baseline: int, least: int) -> None:
    layers = mobilenet().values()
    assert sum(oracle.baseline(layer, rows, columns) for layer in layers) == baseline
    assert sum(best(layer, rows, columns).cycles for layer in layers) == least
    crossed = sum(best(layer, rows, columns, crossing=True).cycles for layer in layers)
    assert crossed == (_CROSSED.get((rows, columns), least))


def test_it_takes_no_time() -> None:
    layers = mobilenet().values()
    started = time.perf_counter()
    for layer in layers:
        best(layer, 64, 64)
    assert time.perf_counter() - started < 5, "about 0.05 s for all 28"


def test_single_layers_at_64x64() -> None:
    layers = mobilenet()
    first, pointwise = layers["dw1"], layers["pw13"]
    assert oracle.baseline(layers["conv1"], 64, 64) == 12_734
    assert best(layers["conv1"], 64, 64).cycles == 6_462
    assert oracle.baseline(first, 64, 64) == 407_488
    assert best(first, 64, 64) == Mapping(17_632, (6, 6), 1, False)
    assert oracle.products(first, Mapping(0, (6, 6), 1, False)) == (32, 361, 64, 36)
    assert oracle.baseline(pointwise, 64, 64) == 61_184
    assert best(pointwise, 64, 64) == Mapping(19_424, (1, 1), 1, True)
    assert best(matmul(1, 49, 1024, 1024), 64, 64) == Mapping(19_424, (), 1, True)
    assert oracle.baseline(layers["fc"], 64, 64) == 48_896
    assert best(layers["dw12"], 64, 64) == Mapping(14_578, (1, 1), 7, True), "packed and swapped"
    assert best(layers["dw4"], 64, 64) == Mapping(17_532, (1, 1), 64, False), "a pack over 9 tiles"


def _counted(groups: int, a: int, k: int, b: int, rows: int, columns: int, formula: str) -> int:
    cycles = rows if formula == "double_buffered" else 0
    for _ in product(range(groups), range(0, b, columns)):
        if formula == "output_stationary":
            cycles += len(range(0, a, rows)) * (k + rows + columns - 2)
            continue
        streaming = a + rows + columns - 2
        tile = rows + streaming if formula == "weight_stationary" else max(rows, streaming)
        cycles += len(range(0, k, rows)) * tile
    return cycles


def loop(layer: Layer, rows: int, columns: int, formula: str, dilated_span: bool) -> int:
    """Returns the least cycles: everything counted, one combination after the other."""
    counted: list[int] = []
    axes = list(zip(layer.sizes, layer.kernels, layer.strides, layer.dilations, strict=True))
    for factors in product(*(range(1, size + 1) for size in layer.sizes)):
        m, k, n = layer.batch, layer.channels, layer.filters
        for (size, kernel, stride, dilation), q in zip(axes, factors, strict=True):
            read = {r * stride + u * dilation for r in range(q) for u in range(kernel)}
            if dilation == 1 or kernel == 1 or (dilated_span and q > 1):
                read = set(range(min(read), max(read) + 1))
            m *= len(range(0, size, q))
            k *= len(read)
            n *= q
        for p in range(1, layer.groups + 1):
            groups = len(range(0, layer.groups, p))
            for a, b in ((m, n * p), (n * p, m)):
                counted.append(_counted(groups, a, k * p, b, rows, columns, formula))
    return min(counted)


def crossing_loop(groups: int, m: int, k: int, n: int, rows: int, columns: int, formula: str) -> int:
    """Returns the least cycles with groups crossed: each block of p x p is counted, wanted or not."""
    counted = [_counted(groups, m, k, n, rows, columns, formula)]
    for p in range(1, groups + 1):
        left = len(range(0, groups, p))
        a, b = (len([*product(range(p), range(side))]) for side in (m, n))
        counted += [_counted(left, *sides, rows, columns, formula) for sides in ((a, k, b), (b, k, a))]
    return min(counted)


TINY = [
    matmul(1, 5, 7, 3),
    matmul(4, 2, 3, 9),
    Layer(3, 1, 2, 2, (5,), (3,), (2,), (1,)),
    Layer(2, 3, 1, 1, (4,), (3,), (1,), (2,)),
    Layer(1, 2, 2, 1, (6,), (2,), (3,), (2,)),
    Layer(1, 1, 1, 3, (7,), (1,), (2,), (3,)),
    Layer(5, 1, 1, 1, (3, 4), (3, 2), (1, 2), (1, 2)),
    Layer(2, 2, 3, 1, (2, 3, 2), (1, 2, 3), (1, 1, 2), (1, 3, 1)),
]


def test_a_plain_loop_agrees_on_tiny_layers() -> None:
    shapes = [(2, 3), (4, 4), (7, 2), (1, 1)]
    for layer, (rows, columns), formula, span in product(TINY, shapes, FORMULAS, (False, True)):
        found = best(layer, rows, columns, formula, dilated_span=span)
        assert found.cycles == loop(layer, rows, columns, formula.__name__, span), (layer, rows, columns, formula)
        groups, m, k, n = oracle.products(layer, found, dilated_span=span)
        m, n = (n, m) if found.swapped else (m, n)
        assert found.cycles == formula(groups, m, k, n, rows, columns), "the combination takes what it says"


def test_a_plain_loop_agrees_on_random_layers() -> None:
    random = np.random.default_rng(0)
    for _ in range(60):
        axes = int(random.integers(0, 3))
        sizes, kernels, strides, dilations = (tuple(map(int, random.integers(1, top, axes))) for top in (7, 4, 4, 4))
        groups, channels, filters, batch = map(int, random.integers(1, 6, 4))
        layer = Layer(groups, channels, filters, batch, sizes, kernels, strides, dilations)
        rows, columns = map(int, random.integers(1, 12, 2))
        span = bool(random.integers(2))
        formula: Cycles = FORMULAS[int(random.integers(3))]
        found = best(layer, rows, columns, formula, dilated_span=span).cycles
        assert found == loop(layer, rows, columns, formula.__name__, span), (layer, rows, columns, span)


def test_chunks_of_packs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = convolution(6, 3, 1, 1, 1, groups=23)
    whole = best(layer, 16, 16)
    monkeypatch.setattr(oracle, "CHUNK", 100)
    assert best(layer, 16, 16).cycles == whole.cycles


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "q", "distinct", "span"),
    [
        (3, 1, 1, 6, 8, 8),
        (3, 2, 1, 2, 5, 5),
        (2, 4, 1, 3, 10, 10),
        (3, 1, 2, 1, 3, 3),
        (3, 1, 2, 2, 6, 6),
        (3, 1, 3, 2, 6, 8),
        (3, 2, 2, 4, 6, 11),
        (1, 2, 2, 4, 7, 7),
    ],
)
def test_the_window_of_several_outputs(
    kernel: int, stride: int, dilation: int, q: int, distinct: int, span: int
) -> None:
    assert oracle.window(kernel, stride, dilation, q) == distinct
    assert oracle.window(kernel, stride, dilation, q, dilated_span=True) == span


def test_the_layers_of_mobilenet_are_read_from_its_term() -> None:
    program, written = load("mobilenet-v1"), mobilenet()
    assert layers_of(program) == written
    assert list(layers_of(program)) == list(written)
    assert sum(layer.macs for layer in written.values()) == 568_740_352


def test_sizes_and_batch_are_read_from_the_term() -> None:
    layers = layers_of(load("mobilenet-v1", resolution=75, batch=3, width=0.5))
    assert layers["conv1"] == Layer(1, 3, 16, 3, (38, 38), (3, 3), (2, 2), (1, 1))
    assert layers["dw2"] == Layer(32, 1, 1, 3, (19, 19), (3, 3), (2, 2), (1, 1))
    assert layers["pw2"] == Layer(1, 32, 64, 3, (19, 19), (1, 1), (1, 1), (1, 1))
    assert layers["fc"] == matmul(1, 3, 512, 1000)


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("kernels", "strides", "dilations"),
    [
        ((3,), (2,), (1,)),
        ((1,), (1,), (1,)),
        ((1,), (3,), (1,)),
        ((2,), (2,), (3,)),
        ((3, 1), (1, 2), (2, 1)),
        ((3, 3), (2, 3), (1, 1)),
        ((1, 1), (1, 1), (1, 1)),
        ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
        ((2, 3, 1), (1, 2, 1), (3, 1, 1)),
    ],
)
def test_convolutions_are_read_as_they_were_built(
    groups: int, batch: int, kernels: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> None:
    b, channels, filters = Builder(), 6, 12
    x = b.input("x", (batch, channels, *(9, 7, 8)[: len(kernels)]))
    w = b.constant("w", (filters, channels // groups, *kernels))
    result = b.conv(x, w, strides=strides, padding=1, dilations=dilations, groups=groups)
    (layer,) = layers_of(b.finish(result)).values()
    sizes = tuple(result.access.dims[2:])
    assert layer == Layer(groups, channels // groups, filters // groups, batch, sizes, kernels, strides, dilations)


def test_matrix_products_are_read_as_they_were_built() -> None:
    b = Builder()
    x, y, z, v = (b.input(n, s) for n, s in [("x", (2, 5, 7)), ("y", (2, 7, 3)), ("z", (3, 2, 5, 7)), ("v", (7,))])
    w = b.constant("w", (4, 7))
    built = [
        (b.linear(x, w), matmul(1, 10, 7, 4)),
        (b.matmul(x, y), matmul(2, 5, 7, 3)),
        (b.matmul(z, y), matmul(6, 5, 7, 3)),
        (b.matmul(x, v), matmul(1, 10, 7, 1)),
    ]
    for term, layer in built:
        assert list(layers_of(b.finish(term)).values()) == [layer]


def test_crossed_groups_are_those_of_a_plain_loop() -> None:
    random = np.random.default_rng(0)
    better = 0
    for _ in range(40):
        groups, m, k, n = (int(random.integers(1, top)) for top in (12, 4, 30, 6))
        rows, columns = map(int, random.integers(1, 12, 2))
        formula: Cycles = FORMULAS[int(random.integers(3))]
        layer = matmul(groups, m, k, n)
        plain, found = best(layer, rows, columns, formula), best(layer, rows, columns, formula, crossing=True)
        expected = crossing_loop(groups, m, k, n, rows, columns, formula.__name__)
        assert found.cycles == min(plain.cycles, expected)
        better += found.cycles < plain.cycles
        assert found.crossed == (found.cycles < plain.cycles)
    assert better > 10
