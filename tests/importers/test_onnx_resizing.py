"""Compares Resize, Upsample and sampling at computed positions with ONNX's reference and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_nodes import Random, agree, floats, model, one_of, ours, whole  # noqa: E402

from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402
from glenside.ir.term import postorder  # noqa: E402

ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
TRANSFORMATIONS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def mode(random: Random) -> dict[str, Any]:
    """Returns a mode, and attributes that it knows."""
    kind = one_of(random, "nearest", "linear", "cubic")
    if kind == "nearest":
        return {"mode": kind, "nearest_mode": one_of(random, *ROUNDINGS)}
    flags = {name: int(random.integers(2)) for name in ("antialias", "exclude_outside")}
    return {"mode": kind, **flags} | ({"cubic_coeff_a": one_of(random, -0.5, -0.75)} if kind == "cubic" else {})


def roi(random: Random, axes: int) -> Array:
    return np.concatenate([random.uniform(-0.2, 0.4, axes), random.uniform(0.6, 1.3, axes)]).astype(np.float32)


@pytest.mark.parametrize("seed", range(60))
def test_resize_to_sizes(seed: int) -> None:
    random = np.random.default_rng(seed)
    dims, sizes, named = whole(random, 2, 8, 3), whole(random, 2, 12, 2), mode(random)
    x = (floats(random, *dims) * 20).astype(one_of(random, "float32", "float32", "float64", "uint8", "int32"))
    named["axes"] = one_of(random, [1, 2], [2, 0])
    named["keep_aspect_ratio_policy"] = one_of(random, "stretch", "not_larger", "not_smaller")
    transformation = one_of(random, *TRANSFORMATIONS, "tf_crop_and_resize")
    if transformation in ("tf_crop_and_resize", "align_corners"):
        # ONNX's reference divides by the size that keeps the ratio before it is rounded.
        named |= {"keep_aspect_ratio_policy": "stretch"}
    if transformation == "tf_crop_and_resize":
        named |= {"extrapolation_value": 7.0}
    inputs = [x, roi(random, 2), None, np.array(sizes)]
    named["coordinate_transformation_mode"] = transformation
    agree("reference", "Resize", inputs, version=19, dtypes=[x.dtype.name], **named)


@pytest.mark.parametrize("seed", range(30))
def test_resize_by_scales(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, scales = floats(random, *whole(random, 2, 7, 2)), random.choice([0.41, 0.61, 0.83, 1, 1.27, 1.7, 2, 3], 2)
    named = mode(random) | {"coordinate_transformation_mode": one_of(random, *TRANSFORMATIONS[:2])}
    named.pop("antialias", None)  # which opset 13 does not have
    agree("reference", "Resize", [x, None, scales.astype(np.float32)], version=13, **named)


@pytest.mark.parametrize("version", [11, 13, 18, 19])
@pytest.mark.parametrize("kind", ["nearest", "linear", "cubic"])
def test_the_last_element_stays_the_last(kind: str, version: int) -> None:
    """The length that align_corners divides by is that of the result, rounded, as onnxruntime has it."""
    random = np.random.default_rng(version)
    named = {"mode": kind, "coordinate_transformation_mode": "align_corners"}
    for scales in random.choice([0.3, 0.41, 0.6, 0.83, 1, 1.27, 1.7, 2.5, 3], (12, 2)):
        x, given = floats(random, 1, 2, *whole(random, 2, 7, 2)), np.array([1, 1, *scales], np.float32)
        agree("onnxruntime", "Resize", [x, np.zeros(0, np.float32), given], version=version, **named)


@pytest.mark.parametrize("seed", range(8))
def test_crop_by_scales(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, scales = floats(random, 1, 1, 5, 7), np.array([1, 1, *random.choice([0.6, 0.8, 1.3, 2], 2)], np.float32)
    part = np.concatenate([[0, 0], roi(random, 2)[:2], [1, 1], roi(random, 2)[2:]]).astype(np.float32)
    named = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -1.0}
    agree("onnxruntime", "Resize", [x, part, scales], version=13, **named)


@pytest.mark.parametrize("kind", ["nearest", "linear"])
@pytest.mark.parametrize(("op", "version"), [("Upsample", 7), ("Upsample", 9), ("Resize", 10)])
def test_older_versions(op: str, version: int, kind: str) -> None:
    random = np.random.default_rng(version)
    for scales in ([2, 3], [1.5, 1], [2.5, 2]) + (([0.5, 0.6], [2, 0.7]) if op == "Resize" else ()):
        x, given = floats(random, 1, 2, 5, 7), np.array([1, 1, *scales], np.float32)
        if version == 7:
            agree("onnxruntime", op, [x], version=version, mode=kind, scales=given.tolist())
        else:
            agree("onnxruntime", op, [x, given], version=version, mode=kind)


def test_the_first_upsample() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    (y,) = ours("Upsample", [x], version=1, height_scale=2.0, width_scale=1.0)
    assert (y == x.repeat(2, 2)).all()


def test_whole_scales_repeat_elements() -> None:
    """No element is looked for: each is repeated where it stands, also along several axes at once."""
    x, scales = np.zeros((2, 3, 4, 5), bool), onnx.numpy_helper.from_array(np.array([1, 2, 2, 3], np.float32), "x2")
    made = model(
        "Resize", [x, None, np.zeros(4, np.float32)], 19, ["bool"], coordinate_transformation_mode="half_pixel"
    )
    made.graph.input.pop()
    made.graph.initializer.append(scales)
    program = program_of_model(made)
    assert program.term.access.dims == (2, 6, 8, 15)
    assert {t.operator.name for t in postorder(program.term)} == {
        "access-tensor", "access-reshape", "access-broadcast"
    }  # fmt: skip


def test_axes_count_from_the_end() -> None:
    x, sizes = floats(np.random.default_rng(0), 2, 3, 4), np.array([5, 6])
    (last,), (same,) = (ours("Resize", [x, None, None, sizes], axes=axes, mode="linear") for axes in ([-1, -3], [2, 0]))
    assert last.shape == (6, 3, 5)
    assert (last == same).all()


def test_resize_of_nothing() -> None:
    x = np.zeros((2, 0, 3), np.float32)
    (y,) = ours("Resize", [x, None, np.array([2, 2, 2], np.float32)], version=19, mode="linear")
    assert y.shape == (4, 0, 6)
    (y,) = ours("Resize", [np.ones((2, 3), np.float32), None, None, np.array([2, 0])], version=19, mode="cubic")
    assert y.shape == (2, 0)


@pytest.mark.parametrize("seed", range(36))
def test_grid_sample(seed: int) -> None:
    random = np.random.default_rng(seed)
    axes = one_of(random, 1, 2, 2, 3)
    x = floats(random, *whole(random, 1, 2, 2), *whole(random, 2, 5, axes))
    grid = random.uniform(-2.5, 2.5, (len(x), *whole(random, 1, 3, axes), axes)).astype(np.float32)
    agree(
        "reference",
        "GridSample",
        [x, grid],
        mode=one_of(random, "nearest", "linear", "cubic"),
        padding_mode=one_of(random, "zeros", "border", "reflection"),
        align_corners=int(random.integers(2)),
    )


@pytest.mark.parametrize("size", [(1, 3, 4, 5), (1, 1, 2, 2), (1, 2, 2, 3, 4)])
def test_affine_grid_of_one_image(size: tuple[int, ...]) -> None:
    """ONNX's own definition loses a batch of 1, so its reference implementation is compared with."""
    axes = len(size) - 2
    theta = np.random.default_rng(0).standard_normal((1, axes, axes + 1)).astype(np.float32)
    agree("reference", "AffineGrid", [theta, np.array(size)], version=20)


def test_grid_sample_keeps_integers() -> None:
    x = np.array([[[[2**62 + 1, 3], [4, 5]]]])
    grid = np.array([[[[-0.5, -0.5], [0.5, 0.4], [3, 0]]]], np.float32)
    (y,) = ours("GridSample", [x, grid], dtypes=["int64"], mode="nearest")
    assert y.tolist() == [[[[2**62 + 1, 5, 0]]]]
    (y,) = ours("GridSample", [x.astype(np.int8) * 0 + 7, grid], dtypes=["int8"], mode="linear", padding_mode="border")
    assert y.tolist() == [[[[7, 7, 7]]]]


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_positions_that_are_no_numbers(padding: str) -> None:
    """Samples at nan or infinity have some value, and other samples are unaffected."""
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
    grid = np.array([[[[np.nan, 0], [np.inf, 0], [1e30, -np.inf], [-0.5, -0.5]]]], np.float32)
    for kind in ("nearest", "linear", "cubic"):
        (y,) = ours("GridSample", [x, grid], mode=kind, padding_mode=padding)
        np.testing.assert_allclose(y[0, 0, 0, 3], 1, atol=1e-5)


@pytest.mark.parametrize("seed", range(16))
def test_deform_conv(seed: int) -> None:
    random = np.random.default_rng(seed)
    groups, offset_groups = one_of(random, 1, 2), one_of(random, 1, 2)
    sizes, kernel = whole(random, 4, 7, 2), whole(random, 1, 3, 2)
    pads, strides, dilations = whole(random, 0, 2, 4), whole(random, 1, 2, 2), whole(random, 1, 2, 2)
    out = [
        max(1, (n + pads[i] + pads[2 + i] - (k - 1) * d - 1) // t + 1)
        for i, (n, k, d, t) in enumerate(zip(sizes, kernel, dilations, strides, strict=True))
    ]
    places = offset_groups * kernel[0] * kernel[1]
    inputs = [
        floats(random, 2, 4, *sizes),
        floats(random, 2, 4 // groups, *kernel),
        random.uniform(-2, 2, (2, 2 * places, *out)).astype(np.float32),
        one_of(random, None, floats(random, 2)),
        one_of(random, None, floats(random, 2, places, *out)),
    ]
    named = {"group": groups, "offset_group": offset_groups, "pads": pads, "strides": strides, "dilations": dilations}
    agree("onnxruntime", "DeformConv", inputs, **named)


def test_unmoved_deform_conv_is_conv() -> None:
    """Along three axes, which neither of the others can do."""
    random = np.random.default_rng(0)
    x, w, named = floats(random, 1, 4, 5, 4, 6), floats(random, 6, 2, 2, 3, 1), {"group": 2, "pads": [1, 0, 1, 0, 1, 0]}
    (expected,) = ours("Conv", [x, w], **named)
    offset = np.zeros((1, 2 * 6 * 3, *expected.shape[2:]), np.float32)
    (y,) = ours("DeformConv", [x, w, offset], offset_group=2, **named)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(24))
def test_roi_align(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, count = floats(random, 2, 2, *whole(random, 3, 11, 2)), int(random.integers(0, 5))
    corners = random.uniform(-3, 14, (count, 2, 2))
    rois = np.concatenate([corners.min(1), corners.max(1)], 1).astype(np.float32)
    agree(
        "onnxruntime",
        "RoiAlign",
        [x, rois, random.integers(0, 2, count)],
        mode=one_of(random, "avg", "max"),
        sampling_ratio=one_of(random, 0, 2, 3),
        output_height=int(random.integers(1, 4)),
        output_width=int(random.integers(1, 4)),
        spatial_scale=one_of(random, 1.0, 0.5),
        coordinate_transformation_mode=one_of(random, "half_pixel", "output_half_pixel"),
        version=16,
    )


def test_samples_of_boxes_that_depend_on_data() -> None:
    """How many a box has is not known beforehand, unless the node says it."""
    inputs = [np.ones((1, 1, 4, 4), np.float32), np.ones((1, 4), np.float32), np.zeros(1, np.int64)]
    with pytest.raises(BadInput, match="attribute sampling_ratio is required above 0"):
        program_of_model(model("RoiAlign", inputs, 22, ["float32"]))
    assert program_of_model(model("RoiAlign", inputs, 22, ["float32"], sampling_ratio=2)).term.access.rank == 4


X, IMAGE = np.ones((2, 4), np.float32), np.ones((1, 2, 4, 4), np.float32)
TWO, SIZES = np.array([2, 2], np.float32), np.array([3, 3])
GRID = np.zeros((1, 3, 3, 2), np.float32)
OFFSET = np.zeros((1, 2, 4, 4), np.float32)
FILTER = np.ones((1, 2, 1, 1), np.float32)
ROIS = [IMAGE, np.ones((3, 4), np.float32), np.zeros(3, np.int64)]
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}
BAD: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Resize", [X, None, TWO], {"mode": "area"}, "attribute mode is one of nearest, linear, cubic, got 'area'"),
    ("Resize", [X, None, TWO], {"mode": 1}, "attribute mode requires a text"),
    ("Resize", [X, None, TWO], {"nearest_mode": "up"}, "attribute nearest_mode is one of"),
    ("Resize", [X, None, TWO], {"antialias": 1}, "attribute antialias requires the mode linear or cubic"),
    ("Resize", [X, None, TWO], {"axes": [0, 0]}, "attribute axes requires different axes"),
    ("Resize", [X, None, TWO], {"axes": [0, 2]}, "attribute axes requires a number from -2 to 1"),
    ("Resize", [X, None, TWO], {"axes": [0]}, "input 2 requires a scale above 0 for each of 1 axes"),
    ("Resize", [X, None, -TWO], {}, "input 2 requires a scale above 0"),
    ("Resize", [X, None, TWO, SIZES], {}, "either input 2, scales, or input 3, sizes, is required, got both"),
    ("Resize", [X], {}, "got none"),
    ("Resize", [X, None, None, -SIZES], {}, "input 3 requires a size of at least 0"),
    ("Resize", [X, None, TWO], CROP, "input 1, roi, requires 2 starts and 2 ends, got nothing"),
    ("Resize", [X[:, :0], None, None, SIZES], {}, "input 0 requires elements along an axis that is resized to 3"),
    ("Resize", [X > 0, None, None, SIZES], {"mode": "linear"}, "input 0 requires numbers"),
    ("Resize", [X, None, TWO * 1e20], {}, "the table of a resized axis requires at most"),
    ("Resize", [X, None, TWO / 1e20], {"mode": "linear", "antialias": 1}, "the table of a resized axis"),
    ("GridSample", [IMAGE, GRID[0]], {}, "inputs require x of"),
    ("GridSample", [IMAGE, GRID], {"mode": "bilinear"}, "attribute mode is one of linear, cubic, nearest"),
    ("GridSample", [IMAGE[:, :, :0], GRID], {}, "input 0 requires elements to sample"),
    (
        "DeformConv",
        [IMAGE, FILTER, OFFSET],
        {"offset_group": 3},
        "attribute offset_group requires a number that divides",
    ),
    ("DeformConv", [IMAGE, FILTER, OFFSET], {"strides": [2, 2]}, "input 2 requires offsets for .2, 2. windows"),
    ("DeformConv", [IMAGE, FILTER, OFFSET], {"strides": [0, 2]}, "attribute strides requires 2 numbers of at least 1"),
    ("DeformConv", [IMAGE, FILTER, OFFSET[:, :1]], {}, "input 2 requires 32 elements"),
    ("RoiAlign", ROIS, {"sampling_ratio": -1}, "attribute sampling_ratio requires at least 0"),
    ("RoiAlign", ROIS, {"sampling_ratio": 1 << 40}, "the table of samples requires at most"),
    ("RoiAlign", [IMAGE, ROIS[1] * np.array([-1, -1, 1e30, 1e30], np.float32), ROIS[2]], {}, "the table of samples"),
    ("RoiAlign", ROIS, {"output_width": 0}, "attributes output_height and output_width require at least 1"),
    ("RoiAlign", [*ROIS[:2], ROIS[2][:2]], {}, "inputs require"),
]


@pytest.mark.parametrize(("op", "inputs", "named", "message"), BAD, ids=[f"{b[0]}-{b[3][:40]}" for b in BAD])
def test_bad_input(op: str, inputs: list[Any], named: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as raised:
        ours(op, inputs, **named)
    assert raised.value.message.startswith(f"node it ({op}): ")
