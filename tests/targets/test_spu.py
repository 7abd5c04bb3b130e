"""Tests whole programs in SPU: layers, Winograd's algorithm, chosen variants, random programs and networks. Optional:
see spu_simulation.py for the environment it needs.

Optional: see spu_simulation.py for the environment it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product as combinations
from typing import Any

import numpy as np
import pytest
from fuzzing import Fuzzing
from secure_programs import secure_program
from spu_cases import BYTES, SUBSETS, Cases, at, tensor

import glenside as gl
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.models import load
from glenside.targets.mpc.traffic import prepare, program_traffic, total

pytestmark = pytest.mark.usefixtures("spu")


# For 1 x 32 x 32 x 16 -> 16, 3x3, stride 1, padded by 1: the transforms as products, as additions, weights prepared.
PLAIN, PRODUCTS, ADDITIONS, PREPARED = 1_263_616, 1_568_768, 833_536, 819_200


def convolutions(random: np.random.Generator) -> Iterator[Program]:
    """One layer each, of 1 to 3 axes."""
    for _ in range(24):
        axes, groups = int(random.integers(1, 4)), int(random.choice([1, 1, 2, 3]))
        channels, filters = groups * random.integers(1, 4), groups * random.integers(1, 4)
        window, sizes = random.integers(1, 4, axes), random.integers(5, 9, axes)
        b = gl.Builder()
        x = b.input("x", (int(random.integers(1, 3)), int(channels), *map(int, sizes)))
        w = b.constant("w", (int(filters), int(channels // groups), *map(int, window)))
        steps, spread = map(int, random.integers(1, 3, 2))
        padding = int(random.integers(0, 2))
        yield b.finish(b.conv(x, w, strides=steps, padding=padding, dilations=spread, groups=groups))


def test_convolutions() -> None:
    cases = Cases(10)
    for number, program in enumerate(convolutions(cases.random)):
        cases.add(f"convolution {number}", program, SUBSETS[number % 3])
    b = gl.Builder()
    x, w = b.input("x", (1, 4, 5, 6)), b.constant("w", (4, 3, 3, 2))
    cases.add("transposed", b.finish(b.conv_transpose(x, w, strides=(2, 3), dilations=(1, 2))))
    assert cases.failures() == []


TRANSFORMS = {
    2: (
        "1 0 -1 0 0 1 1 0 0 -1 1 0 0 1 0 -1",
        "1 0 0 1/2 1/2 1/2 1/2 -1/2 1/2 0 0 1",
        "1 1 1 0 0 1 -1 -1",
    ),
    4: (
        "4 0 -5 0 1 0 0 -4 -4 1 1 0 0 4 -4 -1 1 0 0 -2 -1 2 1 0 0 2 -1 -2 1 0 0 4 0 -5 0 1",
        "1/4 0 0 -1/6 -1/6 -1/6 -1/6 1/6 -1/6 1/24 1/12 1/6 1/24 -1/12 1/6 0 0 1",
        "1 1 1 1 1 0 0 1 -1 2 -2 0 0 1 1 4 4 0 0 1 -1 8 -8 1",
    ),
}


def along(a: Term, axis: int, rows: int, numbers: str, additions: bool) -> Term:
    """Returns a constant matrix times an axis."""
    if additions:
        return build("linear-map", a, axis, rows, numbers)
    last = a.access.rank - 1
    order = [i for i in range(last + 1) if i != axis]
    moved = at(build("access-transpose", at(a, 0), [*order, axis]), last)
    matrix = at(build("numbers", (rows, a.access.dims[axis]), numbers, "float32"), 1)
    result = at(build("compute", "dot-product", build("access-product", moved, matrix, 0)), 0)
    return build("access-transpose", result, [*range(axis), last, *range(axis, last)])


def winograd(m: int, additions: bool, n: int, c: int, h: int, w: int, o: int) -> Term:
    """F(m x m, 3 x 3), written by hand; the textbook's transforms of points 0, 1, -1, 2, -2 and infinity."""
    x, k = tensor("x", n, c, h, w), tensor("w", o, c, 3, 3, constant=True)
    before, weights, after = TRANSFORMS[m]
    for axis in (2, 3):
        x = build("access-pad", x, "zero-padding", axis, 1, 1)
    tiles = build("access-windows", at(x, 2), (m + 2, m + 2), (m, m))
    rows, columns = tiles.access.dims[2:4]
    for axis in (0, 1):
        tiles = along(tiles, 4 + axis, m + 2, before, additions)
        k = along(k, 2 + axis, m + 2, weights, additions)
    a = at(build("access-transpose", at(tiles, 0), (4, 5, 0, 2, 3, 1)), 5)
    b = at(build("access-transpose", at(k, 0), (2, 3, 0, 1)), 3)
    y = at(build("compute", "dot-product", build("access-product", a, b, 2)), 0)
    for axis in (0, 1):
        y = along(y, axis, m, after, additions)
    y = build("access-transpose", y, (2, 5, 3, 0, 4, 1))
    return build("access-reshape", y, ((), (n, o, m * rows, m * columns)))


def test_winograd_by_hand() -> None:
    cases = Cases(11)
    sizes = (1, 16, 32, 32, 16)
    b = gl.Builder()
    plain = b.finish(b.conv(b.input("x", sizes[:4]), b.constant("w", (16, 16, 3, 3)), padding=1))
    weights = {"w": (cases.random.standard_normal((16, 16, 3, 3)) / 12).astype("float32")}
    shared = Program(winograd(2, True, *sizes))
    known = [plain, Program(winograd(2, False, *sizes)), shared, prepare(shared.with_constants(weights))]
    for program in known:
        cases.add("known", program)
    sent = [total(program_traffic(program)) for program in known]
    assert [s and s.bytes for s in sent] == [PLAIN, PRODUCTS, ADDITIONS, PREPARED]
    assert total(program_traffic(shared, prepared=True)) == sent[-1]
    for m, additions, public in combinations((2, 4), (False, True), SUBSETS[:3]):
        cases.add(f"F({m}, 3) {additions}", winograd(m, additions, 2, 3, 4, 8, 5), public, error=0.02)
    assert cases.failures() == []


@pytest.mark.parametrize(("outputs", "error"), [((2, 4), 0.05), ((), 0.002)], ids=["winograd", "overlap-add"])
def test_what_is_chosen(outputs: tuple[int, ...], error: float) -> None:
    """Without Winograd's algorithms it is windows that are added up; of a transposed convolution in any case."""
    cases = Cases(12)
    for sizes, filters in [((1, 16, 32, 32), 16), ((2, 3, 12, 10), 8), ((1, 6, 19), 5), ((1, 32, 4, 4), 32)]:
        for transposed in (False, True):
            b = gl.Builder()
            window = (3,) * (len(sizes) - 2)
            dims = (sizes[1], filters, *window) if transposed else (filters, sizes[1], *window)
            w = cases.random.standard_normal(dims) / 10
            x, leaf = b.input("x", sizes), b.constant("w", w.shape, value=w.astype("float32"))
            made = b.conv_transpose(x, leaf, strides=2) if transposed else b.conv(x, leaf, padding=1)
            program = b.finish(made)
            for prepared in (False, True):
                result = gl.optimize(program, gl.MPC(prepared=prepared, outputs=outputs, objectives=BYTES))
                final = prepare(result.program) if prepared else result.program
                sent = total(program_traffic(final))
                assert sent is not None
                assert sent.bytes == result.cost["bytes"]
                cases.add(f"{sizes} prepared {prepared} transposed {transposed}", final, error=error)
    assert cases.failures() == []


def convolution(
    dims: Sequence[int], filters: int, window: Sequence[int], random: np.random.Generator, **how: Any
) -> Program:
    """One layer over x of ()(N C d..), whose weights have values."""
    b = gl.Builder()
    sizes = (filters, dims[1] // how.get("groups", 1), *window)
    w = (random.standard_normal(sizes) / 4).astype("float32")
    return b.finish(b.conv(b.input("x", dims), b.constant("w", sizes, value=w), **how))


LAYERS: list[tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any]]] = [
    ((3, 1, 20), 5, (5,), {}),
    ((2, 1, 6, 7), 1, (3, 3), {"padding": 1}),
    ((2, 6, 9, 8), 12, (3, 3), {"groups": 6, "padding": 1}),
    ((1, 16, 6, 6), 16, (3, 3), {"groups": 16, "padding": 1}),
    ((1, 4, 5, 5), 6, (3, 3), {"groups": 2}),
    ((1, 4, 9, 10), 6, (3, 3), {"padding": 1, "strides": 2}),
    ((1, 3, 13), 4, (7,), {"padding": 3, "strides": 3}),
    ((1, 4, 8, 9), 4, (3, 2), {"dilations": 2}),
    ((1, 2, 5, 4, 6), 3, (2, 2, 3), {}),
]


@pytest.mark.parametrize(
    ("how", "link"), [({}, None), ({"max_error": np.inf}, None), ({}, "wan"), ({"max_error": np.inf}, "wan")]
)
def test_layers_that_are_chosen(how: dict[str, Any], link: str | None) -> None:
    """All variants of a front send what they say, and the one that is chosen no more than plain or Winograd's."""
    cases = Cases(15)
    for number, (dims, filters, window, options) in enumerate(LAYERS):
        target = gl.MPC(link=link, objectives=() if link else BYTES, **how)
        result = gl.optimize(convolution(dims, filters, window, cases.random, **options), target)
        (row,) = result.report.layers
        objective = result.report.objectives[0]
        taken = {name: variant.measures[objective] or 0 for name, variant in row.variants.items()}
        assert taken["chosen"] <= taken["plain"]
        final = prepare(result.program)
        sent = total(program_traffic(final))
        assert sent is not None
        assert (sent.bytes, sent.messages) == (result.cost["bytes"], result.cost["messages"])
        cases.add(f"{number}, {row.label}", final, error=0.02)
    assert cases.failures() == []


def _random_failures(seeds: Iterable[int], chosen: bool) -> list[str]:
    cases = Cases(18)
    for seed in seeds:
        program = secure_program(seed).seeded_constants(seed)
        if chosen:
            program = prepare(gl.optimize(program, gl.MPC(max_error=np.inf, objectives=BYTES), verify=False).program)
        cases.add(f"seed {seed}", program, error=0.1)
    return cases.failures()


def test_random_programs() -> None:
    assert _random_failures(range(12), False) == []


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [False, True], ids=["plain", "chosen"])
def test_many_random_programs(chosen: bool, fuzzing: Fuzzing) -> None:
    """In batches, each of which SPU runs in one process."""
    batches = fuzzing.seeds(10, first=1000, step=15)
    assert [found for first in batches for found in _random_failures(range(first, first + 15), chosen)] == []


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [False, True], ids=["plain", "chosen"])
@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        ("resnet-18", {"resolution": 32, "stem": "3x3"}),
        ("mobilenet-v2", {"resolution": 32}),
        ("mobilenet-v3-large", {"resolution": 32}),
        ("unet-small", {"resolution": 16, "base": 4, "levels": 2}),
        ("vit-s-16", {"resolution": 32, "layers": 1, "hidden": 12, "heads": 3}),
    ],
)
def test_networks(model: str, sizes: dict[str, int], chosen: bool) -> None:
    """All of them: layers, bias and rectifiers."""
    cases = Cases(13)
    program = load(model, **sizes).seeded_constants(0)
    if chosen:
        program = gl.optimize(program, gl.MPC(objectives=BYTES), verify=False).program
    prepared = prepare(program)
    assert total(program_traffic(prepared)) == total(program_traffic(program, prepared=True))
    cases.add(model, prepared, error=0.05)
    assert cases.failures() == []
