"""Compares the predicted memory of a program with what numpy allocates while it runs."""

from __future__ import annotations

import numpy as np
import pytest
from allocations import measured_peak, tiled
from slow_cases import quick

import glenside as gl
from glenside.analysis.liveness import live_through, peak_bytes, taken
from glenside.ir.errors import BadInput
from glenside.ir.operator import COMPUTES, Category
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor
from glenside.semantics.interpreter import evaluate

FEW = 64 << 10  # headers of arrays, slices, and a buffer or two of numpy's


def leaf(name: str, dims: tuple[int, ...], dtype: str = "float32") -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype))


def agrees(program: Program) -> None:
    told, measured = peak_bytes(program.term).bytes, measured_peak(program)
    assert abs(told - measured) <= 0.01 * measured + FEW, f"told {told:,}, measured {measured:,}"


NETWORKS = {
    "mobilenet-v1": {"resolution": 64},
    "resnet-18": {"resolution": 64},
    "unet-small": {"resolution": 32},
    "vit-s-16": {"layers": 1, "resolution": 64},
}


@pytest.mark.parametrize(
    "name", quick(NETWORKS, *(i for i, n in enumerate(NETWORKS) if n in ("unet-small", "vit-s-16")))
)
def test_networks(name: str) -> None:
    agrees(tiled(gl.models.load(name, **NETWORKS[name]), 256))


PARAMETERS = {"clip": " 1 2", "leaky-relu": " 1/3", "compare": " lt", "mod": " floor", "argsort": " descending"}
TOGETHER = {"compare": 2, "select": 3}


def _kind(name: str) -> str:
    return f"({name}{PARAMETERS[name]})" if name in PARAMETERS else name


SLOW = [pytest.param(dtype, False, marks=pytest.mark.slow) for dtype in ("int32", "bfloat16")]


@pytest.mark.parametrize("name", COMPUTES)
@pytest.mark.parametrize(("dtype", "moved"), [("float32", True), *SLOW])
def test_compute_types(name: str, dtype: str, moved: bool) -> None:
    """Of an operand that lies in row-major order, and of one that does not; of several operands, where it may."""
    several = COMPUTES[name].category in (Category.FOLD, Category.CONTRACTION)
    for count in {TOGETHER.get(name, 3), TOGETHER.get(name, 2)} if several else {2}:
        dims = (300, count, 1000) if several else (900, 300, 2)
        x = leaf("x", dims[::-1] if moved else dims, dtype)
        x = build("access-transpose", x, (2, 1, 0)) if moved else x
        try:
            made = build("compute", _kind(name), build("access", x, 1))
        except gl.GlensideError:
            continue
        agrees(Program(made))


@pytest.mark.parametrize(
    ("dtype", "other"),
    [
        ("float64", "bfloat16"),
        ("int64", "float8_e4m3fn"),
        ("int4", "uint4"),
        ("float32", "bfloat16"),
        ("uint8", "int4"),
    ],
)
def test_casts_that_round_once(dtype: str, other: str) -> None:
    agrees(Program(build("cast", leaf("x", (900, 600), dtype), other)))


def test_linear_maps_and_overlapping_windows() -> None:
    x = leaf("x", (40, 4, 900))
    agrees(Program(build("linear-map", x, 1, 6, "1 0 -1 0 " * 3 + "0 1/2 1/2 0 " * 3)))
    agrees(Program(build("access-overlap-add", build("access", leaf("y", (30, 100, 7)), 2), (304,), (3,))))
    agrees(Program(build("access-concatenate", x, build("access-flip", x, 2), 1)))
    agrees(Program(build("access-dilate", build("access-pad", x, "min-padding", 0, 1, 1), 2, 2)))


def test_a_view_keeps_what_it_is_a_view_of() -> None:
    """Of a result of 4,000 numbers, a slice of 10 is held while others are computed."""
    x = leaf("x", (4, 1000))
    piece = build("access-slice", build("compute", "exp", x), 1, 0, 10)
    other = build("access-slice", build("compute", "exp", build("compute", "sqrt", x)), 1, 10, 20)
    program = Program(build("access-concatenate", piece, other, 1))
    assert peak_bytes(program.term).bytes == 3 * 16_000
    agrees(program)


def test_a_reshape_copies_where_numpy_does() -> None:
    x = leaf("x", (40, 500))
    turned = build("access-transpose", build("compute", "exp", x), (1, 0))
    flat = build("access-reshape", turned, ((), (20_000,)))
    assert peak_bytes(turned).bytes == 80_000
    assert peak_bytes(flat).bytes == 160_000
    assert taken(turned).moved == 160_000
    assert taken(flat).moved == 320_000
    agrees(Program(build("compute", "sqrt", flat)))


def test_pairs_are_made_only_where_something_needs_them() -> None:
    a, b = build("access", leaf("a", (30, 100)), 1), build("access", leaf("b", (50, 100)), 1)
    pair = build("access-product", a, b, 0)
    assert peak_bytes(build("tiled-product", a, b, 0, 8)).bytes == 30 * 50 * 4
    made = peak_bytes(build("compute", "reduce-max", pair))
    assert made.bytes == 30 * 50 * (2 * 100 + 1) * 4
    agrees(Program(build("compute", "reduce-max", pair)))


def test_a_program_takes_no_more_than_the_peak_at_one_term() -> None:
    x = leaf("x", (100, 100))
    large = build("access-broadcast", build("access-reshape", x, ((), (1, 100, 100))), ((), (9, 100, 100)))
    sums = build("compute", "reduce-sum", build("access", build("compute", "exp", large), 3))
    peak = peak_bytes(build("compute", "sqrt", sums))
    assert (peak.bytes, peak.at) == (2 * 360_000, sums)


def test_what_is_put_together_is_held_once() -> None:
    """Nested, with gaps and under views; what is read twice, or needs more on the way than it saves, is copied."""
    x, y = leaf("x", (50, 400)), leaf("y", (50, 400))
    a, b = build("compute", "relu", x), build("compute", "relu", y)
    stacked = build("access-concatenate", *(build("access-insert-axis", t, 2) for t in (a, b)), 2)
    padded = build("access-pad", build("access-reshape", stacked, ((), (50, 800))), "zero-padding", 0, 1, 1)
    assert peak_bytes(padded).bytes == 52 * 800 * 4
    agrees(Program(padded))
    assert peak_bytes(build("access-concatenate", a, a, 0)).bytes == 3 * 80_000
    large = build("access-broadcast", build("access-insert-axis", y, 2), ((), (50, 400, 9)))
    total = build("compute", "reduce-sum", build("access", build("compute", "exp", large), 2))
    late = build("access-concatenate", a, build("access", total, 0), 0)
    assert peak_bytes(late).bytes == 80_000 + 50 * 400 * 9 * 4 + 80_000
    agrees(Program(late))


def test_what_lives_through_a_layer() -> None:
    """A skip connection: x and its product live beside the second product, whose padding is its own, and in which the
    activation is computed.
    """
    b = gl.Builder("skip")
    x = b.relu(b.input("x", (1, 4, 20, 20)))
    y = b.conv(x, b.constant("v", (4, 4, 1, 1)), name="first")
    z = b.conv(b.relu(y), b.constant("w", (4, 4, 3, 3)), padding=1, name="second")
    program = b.finish(b.add(b.add(z, y), x))
    size = 4 * 400 * 4
    assert live_through(program) == {"first": size, "second": 2 * size}


def test_constants_are_computed_before() -> None:
    b = gl.Builder("constants")
    w = b.relu(b.constant("w", (300, 300)))
    program = b.finish(b.linear(b.input("x", (7, 300)), b.add(w, w)))
    assert peak_bytes(tiled(program, 4).term).bytes == 7 * 300 * 4
    agrees(tiled(program, 4))


def test_a_black_box_has_no_memory_that_is_known() -> None:
    box = build("opaque", "Mystery v1", ((), (3,)), "float32", leaf("x", (3,)))
    with pytest.raises(BadInput, match="got the black box Mystery"):
        peak_bytes(box)


@pytest.mark.parametrize(("batch", "groups", "stride"), [(1, 1, 1), (2, 1, 2), (1, 4, 1), (2, 8, 1)])
@pytest.mark.parametrize("tile", [1, 50, 10_000])
def test_tiles_of_products(batch: int, groups: int, stride: int, tile: int) -> None:
    """The same numbers as in one contraction, but for their rounding, and exactly the memory that is told."""
    b = gl.Builder("layer")
    x, w = b.input("x", (batch, 8, 17, 23)), b.constant("w", (16, 8 // groups, 3, 2))
    program = b.finish(b.conv(x, w, strides=stride, groups=groups)).seeded_constants(1)
    other = tiled(program, tile)
    agrees(other)
    values = {"x": np.random.default_rng(2).standard_normal((batch, 8, 17, 23)).astype(np.float32)}
    (wanted,), (got,) = (evaluate([p.term], {**values, **p.constants}) for p in (program, other))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
