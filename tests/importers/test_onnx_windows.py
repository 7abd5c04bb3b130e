"""Compares ONNX's convolutions, pools and normalizations with onnxruntime and with explicit sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402

import glenside as gl  # noqa: E402
import glenside.importers.onnx.backend as backend  # noqa: E402
from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402

onnxruntime.set_default_logger_severity(4)


def model(op: str, inputs: Sequence[Array], outputs: int = 1, version: int = 22, **attributes: Any) -> Any:
    names, results = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, "it", **attributes)
    formals = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in zip(names, inputs, strict=True)
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "graph", formals, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)


def ours(op: str, *inputs: Array, **named: Any) -> tuple[Array, ...]:
    return tuple(backend.run_model(model(op, inputs, **named), list(inputs)))


def theirs(op: str, *inputs: Array, **named: Any) -> tuple[Array, ...]:
    serialized = model(op, inputs, **named).SerializeToString()
    session = onnxruntime.InferenceSession(serialized, providers=["CPUExecutionProvider"])
    return tuple(session.run(None, {f"x{i}": x for i, x in enumerate(inputs)}))


def agree(op: str, *inputs: Array, **named: Any) -> None:
    for left, right in zip(ours(op, *inputs, **named), theirs(op, *inputs, **named), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=2e-4, atol=2e-5, err_msg=f"{op} {named}")


class Draw:
    """Random attributes that fit each other."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.axes = int(self.random.integers(1, 4))

    def ints(self, low: int, high: int, count: int | None = None) -> list[int]:
        return [int(n) for n in self.random.integers(low, high + 1, self.axes if count is None else count)]

    def one_of(self, *choices: Any) -> Any:
        return choices[self.random.integers(len(choices))]

    def array(self, *dims: int, dtype: str = "float32") -> Array:
        if np.dtype(dtype).kind in "iu":
            limits = np.iinfo(dtype)
            return self.random.integers(limits.min, int(limits.max) + 1, dims).astype(dtype)
        return self.random.standard_normal(dims).astype(dtype)

    def pads(self, most: Sequence[int]) -> dict[str, Any]:
        """Pads of at most these on each side, or a word for them."""
        auto = self.one_of("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
        if auto != "NOTSET":
            return {"auto_pad": auto}
        return {"pads": [int(self.random.integers(0, n + 1)) for n in (*most, *most)]}


@pytest.mark.parametrize("seed", range(24))
def test_conv(seed: int) -> None:
    draw = Draw(seed)
    kernel, dilations, groups = draw.ints(1, 3), draw.ints(1, 2), draw.one_of(1, 1, 2, 3)
    channels, filters = groups * draw.one_of(1, 2), groups * draw.one_of(1, 3)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    x = draw.array(2, channels, *(n + s for n, s in zip(draw.ints(0, 4), spans, strict=True)))
    inputs = [x, draw.array(filters, channels // groups, *kernel), draw.array(filters)]
    named = {"strides": draw.ints(1, 3), "dilations": dilations, "group": groups, **draw.pads([2] * draw.axes)}
    if "auto_pad" in named and named["auto_pad"].startswith("SAME"):
        named["dilations"] = [1] * draw.axes  # onnxruntime takes no others
    agree("Conv", *inputs[: draw.one_of(2, 3)], **named, **draw.one_of({}, {"kernel_shape": kernel}))


@pytest.mark.parametrize("seed", range(24))
def test_conv_transpose(seed: int) -> None:
    draw = Draw(seed)
    kernel, strides, dilations = draw.ints(1, 3), draw.ints(1, 3), draw.ints(1, 2)
    groups = draw.one_of(1, 1, 2, 3)
    channels = groups * draw.one_of(1, 2)
    sizes, more = draw.ints(2, 4), [draw.one_of(0, 0, t - 1) for t in strides]
    whole = [
        t * (n - 1) + (k - 1) * d + 1 + extra
        for n, k, t, d, extra in zip(sizes, kernel, strides, dilations, more, strict=True)
    ]
    named: dict[str, Any] = {"strides": strides, "dilations": dilations, "output_padding": more, "group": groups}
    if draw.one_of(True, False):  # larger than what windows reach, too
        named["output_shape"] = [
            max(1, n - max(cut, extra + 1 - t))
            for n, cut, t, extra in zip(whole, draw.ints(-2, 3), strides, more, strict=True)
        ]
        named["auto_pad"] = draw.one_of("NOTSET", "SAME_UPPER")
    elif draw.one_of(True, False):
        named["auto_pad"] = draw.one_of("SAME_UPPER", "SAME_LOWER")
    else:
        named |= draw.one_of({"auto_pad": "VALID"}, {"pads": draw.ints(0, 1, 2 * draw.axes)})
        if draw.one_of(True, False):
            named["kernel_shape"] = kernel
    if "pads" in named and any(n <= sum(named["pads"][i :: draw.axes]) for i, n in enumerate(whole)):
        del named["pads"]
    inputs = [draw.array(2, channels, *sizes), draw.array(channels, 2, *kernel), draw.array(2 * groups)]
    agree("ConvTranspose", *inputs[: draw.one_of(2, 3)], **named)


def pooled(draw: Draw) -> tuple[list[int], dict[str, Any]]:
    """Returns dims of an input, and the attributes of a pool over it."""
    kernel, dilations = draw.ints(1, 3), draw.ints(1, 2)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    dims = [2, 3, *(n + s for n, s in zip(draw.ints(0, 6), spans, strict=True))]
    named = {"kernel_shape": kernel, "strides": draw.ints(1, 3), **draw.pads([k - 1 for k in kernel])}
    if named.get("auto_pad", "NOTSET").startswith("SAME"):  # onnxruntime leaves dilations out of the sum, against ONNX
        return dims, {**named, "strides": [min(k, t) for k, t in zip(kernel, named["strides"], strict=True)]}
    ceil = {} if "auto_pad" in named else {"ceil_mode": draw.one_of(0, 1)}
    return dims, {**named, **ceil, **draw.one_of({}, {"dilations": dilations})}


@pytest.mark.parametrize("seed", range(24))
def test_average_and_lp_pools(seed: int) -> None:
    draw = Draw(seed)
    dims, named = pooled(draw)
    x = draw.array(*dims)
    agree("AveragePool", x, count_include_pad=draw.one_of(0, 1), **named)
    agree("LpPool", x, p=draw.one_of(1, 2, 3), **named)


@pytest.mark.parametrize("seed", range(24))
def test_max_pool_and_where_the_largest_are(seed: int) -> None:
    draw = Draw(seed)
    dims, named = pooled(draw)
    x = draw.array(*dims, dtype=draw.one_of("float32", "float64", "uint8", "int8"))
    agree("MaxPool", x, outputs=draw.one_of(1, 2), storage_order=draw.one_of(0, 1), **named)


@pytest.mark.parametrize("version", [11, 22])
def test_unpooling_puts_the_largest_back(version: int) -> None:
    draw = Draw(version)
    x = draw.array(2, 3, 6, 6)
    named = {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [0, 1, 0, 0]}
    largest, places = ours("MaxPool", x, outputs=2, version=version, **named)
    expected = np.zeros(x.size, np.float32)
    expected[places.reshape(-1)] = largest.reshape(-1)
    (same,) = ours("MaxUnpool", largest, places, version=version, **named)
    np.testing.assert_array_equal(same, expected.reshape(x.shape))
    (larger,) = ours("MaxUnpool", largest, places, np.array([2, 4, 7, 6]), **named)
    np.testing.assert_array_equal(larger, np.pad(same, [(0, 0), (0, 1), (0, 1), (0, 0)]))


@pytest.mark.parametrize("seed", range(12))
def test_blocks_are_added_where_they_overlap(seed: int) -> None:
    draw = Draw(seed)
    axes = draw.axes
    block, strides, dilations, pads = draw.ints(1, 3), draw.ints(1, 3), draw.ints(1, 2), draw.ints(0, 2, 2 * axes)
    spans = [(k - 1) * d + 1 for k, d in zip(block, dilations, strict=True)]
    whole = [s + n for s, n in zip(spans, draw.ints(4, 6), strict=True)]
    image = [n - before - after for n, before, after in zip(whole, pads[:axes], pads[axes:], strict=True)]
    counts = [(n - s) // t + 1 for n, s, t in zip(whole, spans, strides, strict=True)]
    x = draw.array(2, 3 * int(np.prod(block)), int(np.prod(counts)))
    expected = np.zeros((2, 3, *whole))
    blocks = x.reshape(2, 3, *block, *counts)
    for at in np.ndindex(*block, *counts):
        k, place = at[:axes], at[axes:]
        target = tuple(p * t + i * d for p, t, i, d in zip(place, strides, k, dilations, strict=True))
        expected[(..., *target)] += blocks[(slice(None), slice(None), *at)]
    inside = tuple(slice(before, before + n) for before, n in zip(pads, image, strict=False))
    named = {"strides": strides, "dilations": dilations, "pads": pads}
    (result,) = ours("Col2Im", x, np.array(image), np.array(block), **named)
    np.testing.assert_allclose(result, expected[(..., *inside)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_gemm(seed: int) -> None:
    draw = Draw(seed)
    m, k, n = draw.ints(1, 6, 3)
    dtype, flips = draw.one_of("float32", "float64"), {"transA": draw.one_of(0, 1), "transB": draw.one_of(0, 1)}
    a = draw.array(*((k, m) if flips["transA"] else (m, k)), dtype=dtype)
    b = draw.array(*((n, k) if flips["transB"] else (k, n)), dtype=dtype)
    c = draw.array(*draw.one_of((), (1,), (n,), (1, n), (m, 1), (m, n)), dtype=dtype)
    scales = {"alpha": draw.one_of(0.3, 1.0), "beta": draw.one_of(0.0, 0.7, 1.0)}
    agree("Gemm", *draw.one_of((a, b), (a, b, c)), **flips, **scales)


@pytest.mark.parametrize("dtype", ["int32", "uint64", "float16"])
def test_products_of_other_dtypes(dtype: str) -> None:
    a, b = np.arange(12).reshape(3, 4).astype(dtype), np.arange(20).reshape(4, 5).astype(dtype)
    for result, expected in (
        (ours("MatMul", a, b)[0], a @ b),
        (ours("MatMul", a[0], b)[0], a[0] @ b),
        (ours("MatMul", np.stack([a, a])[:, None], np.stack([b, b]))[0], np.stack([a, a])[:, None] @ np.stack([b, b])),
        (ours("MatMul", a[:0, :0], b[:0])[0], np.zeros((0, 5), dtype)),
        (ours("MatMul", a[:, :0], b[:0])[0], np.zeros((3, 5), dtype)),
        (ours("Gemm", a, b, alpha=2.0)[0], 2 * (a @ b)),
    ):
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


def test_padding_below_zero_takes_elements_away() -> None:
    draw = Draw(0)
    x, w = draw.array(1, 2, 7, 8), draw.array(3, 2, 2, 2)
    for op, inputs, named in (
        ("Conv", [w], {}),
        ("AveragePool", [], {"kernel_shape": [2, 2]}),
        ("MaxPool", [], {"kernel_shape": [2, 2]}),
    ):
        (result,) = ours(op, x, *inputs, pads=[-1, 2, 1, -3], **named)
        (expected,) = ours(op, x[:, :, 1:, :-3], *inputs, pads=[0, 2, 1, 0], **named)
        np.testing.assert_array_equal(result, expected)
    _, places = ours("MaxPool", x, outputs=2, pads=[-1, 0, 0, -3], kernel_shape=[2, 2])
    largest, _ = ours("MaxPool", x[:, :, 1:, :-3], outputs=2, kernel_shape=[2, 2])
    np.testing.assert_array_equal(x.reshape(-1)[places], largest)
    wt = np.ascontiguousarray(w.transpose(1, 0, 2, 3))
    (grown,) = ours("ConvTranspose", x, wt, strides=[2, 2], pads=[-1, 0, 1, -2])
    (plain,) = ours("ConvTranspose", x, wt, strides=[2, 2])
    np.testing.assert_array_equal(grown, np.pad(plain[:, :, :-1], [(0, 0), (0, 0), (1, 0), (0, 2)]))


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("size", [None, 12])
def test_windows_smaller_than_strides_are_padded_by_nothing_where_results_are_spread(
    auto: str, size: int | None
) -> None:
    x, w, bias = np.ones((1, 1, 4), np.float32), np.full((1, 1, 1), 2, np.float32), np.ones(1, np.float32)
    named: dict[str, Any] = {} if size is None else {"output_shape": [size]}
    (result,) = ours("ConvTranspose", x, w, bias, strides=[3], auto_pad=auto, **named)
    expected = np.ones((1, 1, size or 10), np.float32)
    expected[:, :, :10:3] = 3
    np.testing.assert_array_equal(result, expected)
    agree("ConvTranspose", x, w, bias, strides=[3], auto_pad=auto, **named)


@pytest.mark.parametrize("seed", range(12))
def test_normalizations(seed: int) -> None:
    draw = Draw(seed)
    x, epsilon = draw.array(3, 6, *draw.ints(1, 4)), draw.one_of({}, {"epsilon": 0.25})
    scale, bias, mean = (draw.array(6) for _ in range(3))
    variance = draw.random.uniform(0.5, 2, 6).astype(np.float32)
    agree("BatchNormalization", x, scale, bias, mean, variance, version=draw.one_of(7, 9, 14, 15), **epsilon)
    agree("InstanceNormalization", x, scale, bias, version=draw.one_of(6, 22), **epsilon)
    agree("GroupNormalization", x, scale, bias, version=21, num_groups=draw.one_of(1, 2, 3, 6), **epsilon)
    groups = draw.one_of(1, 2, 3)
    agree("GroupNormalization", x, scale[:groups], bias[:groups], version=18, num_groups=groups, **epsilon)
    axis = int(draw.random.integers(-x.ndim, x.ndim))
    shape = x.shape[axis:] if draw.one_of(True, False) else x.shape[-1:]
    scaling = [draw.array(*shape), draw.array(*shape)]
    agree("LayerNormalization", x, *scaling[: draw.one_of(1, 2)], outputs=draw.one_of(1, 3), axis=axis, **epsilon)
    agree("LpNormalization", x, axis=axis, p=draw.one_of(1, 2))
    agree("GlobalLpPool", x, version=21, p=draw.one_of(1, 2, 3))
    named = {"size": draw.one_of(1, 3, 5), "alpha": 0.3, "beta": draw.one_of(0.5, 0.75), "bias": 2.0}
    agree("LRN", draw.array(2, 6, 3, 2), **named)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_root_mean_squares_and_wide_statistics(dtype: str) -> None:
    draw = Draw(3)
    x, scale = draw.array(2, 3, 4, dtype=dtype), draw.array(3, 4, dtype=dtype)
    (result,) = ours("RMSNormalization", x, scale, version=23, axis=1)
    squares = np.mean(x.astype(np.float64) ** 2, (1, 2), keepdims=True)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, x / np.sqrt(squares + 1e-5) * scale, rtol=5e-3 if dtype == "float16" else 1e-5)
    huge = (x * 1000).astype(dtype)  # its squares overflow float16
    standard, mean, deviation = ours("LayerNormalization", huge, scale, outputs=3, version=17, axis=1)
    assert (standard.dtype.name, mean.dtype.name, deviation.dtype.name) == (dtype, "float32", "float32")
    np.testing.assert_allclose(deviation, 1 / huge.astype(np.float64).std((1, 2), keepdims=True), rtol=1e-3)


def test_a_batch_normalized_by_its_own_statistics() -> None:
    draw = Draw(4)
    x, scale, bias, mean = draw.array(5, 3, 4), draw.array(3), draw.array(3), draw.array(3)
    var = np.ones(3, np.float32)
    named = {"outputs": 3, "version": 15, "training_mode": 1, "momentum": 0.75}
    result, running_mean, running_var = ours("BatchNormalization", x, scale, bias, mean, var, **named)
    column = (1, 3, 1)
    centred = (x - x.mean((0, 2)).reshape(column)) / np.sqrt(x.var((0, 2)).reshape(column) + 1e-5)
    np.testing.assert_allclose(result, centred * scale.reshape(column) + bias.reshape(column), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(running_mean, mean * 0.75 + x.mean((0, 2)) * 0.25, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(running_var, var * 0.75 + x.var((0, 2)) * 0.25, rtol=1e-5)


def test_a_batch_normalized_element_by_element_or_in_wider_numbers() -> None:
    draw = Draw(5)
    x, (scale, bias, mean) = draw.array(5, 3, 4), (draw.array(3, 4) for _ in range(3))
    var = np.full((3, 4), 4, np.float32)
    expected = (x - mean) / np.sqrt(var + 1e-5) * scale + bias
    (result,) = ours("BatchNormalization", x, scale, bias, mean, var, version=6, is_test=1, spatial=0)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    half = x.astype(np.float16)
    vectors = [v[:, 0] for v in (scale, bias, mean + 3000, var)]
    (result,) = ours("BatchNormalization", half, *vectors, version=15)
    column = [v.reshape(3, 1).astype(np.float64) for v in vectors]
    wide = (half.astype(np.float64) - column[2]) / np.sqrt(column[3] + 1e-5) * column[0] + column[1]
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, wide, rtol=2e-3)


def test_a_padding_that_onnx_computes_counts_dilated_windows_and_no_ceiling() -> None:
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 9)
    (same,) = ours("MaxPool", -x, kernel_shape=[3], dilations=[2], auto_pad="SAME_LOWER")
    np.testing.assert_array_equal(same, [[[0, -1, 0, -1, -2, -3, -4, -5, -6]]])
    (valid,) = ours("MaxPool", x, kernel_shape=[2], strides=[4], auto_pad="VALID", ceil_mode=1)
    np.testing.assert_array_equal(valid, [[[1, 5]]])


def test_a_transposed_convolution_is_a_layer_that_maps() -> None:
    draw = Draw(6)
    x, w, bias = draw.array(1, 4, 5, 6), draw.array(4, 3, 3, 3), draw.array(6)
    named = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1], "group": 2}
    program = program_of_model(model("ConvTranspose", [x, w, bias], **named))
    assert dict(program.labels) == {"it": "transposed conv 3x3/2"}
    result = gl.optimize(program, gl.SystolicArray(8, 8))
    assert [row.mapped for row in result.report.layers] == [True]
    assert result.check().ok


X, W = np.ones((1, 4, 5, 5), np.float32), np.ones((4, 4, 3, 3), np.float32)
BAD = {
    "attribute pads requires 4 numbers, got [1]": ("Conv", [X, W], {"pads": [1]}),
    "attribute strides requires 2 numbers of at least 1, got [0, 1]": ("Conv", [X, W], {"strides": [0, 1]}),
    "attribute kernel_shape requires the sizes of the weights": ("Conv", [X, W], {"kernel_shape": [2, 3]}),
    "attribute auto_pad is one of NOTSET, SAME_UPPER": ("Conv", [X, W], {"auto_pad": "SAME"}),
    "conv requires groups >= 1, got 0": ("Conv", [X, W], {"group": 0}),
    "input 0 requires at least one axis after (N C)": ("Conv", [X[0, 0], W[0, 0]], {}),
    "requires the attribute kernel_shape": ("MaxPool", [X], {}),
    "attribute kernel_shape requires 2 numbers of at least 1": ("MaxPool", [X], {"kernel_shape": [0, 1]}),
    "a window within the item (5 5), got (6 6)": ("AveragePool", [X], {"kernel_shape": [6, 6]}),
    "p-norm requires p of at least 1": ("LpPool", [X], {"kernel_shape": [2, 2], "p": 0}),
    "attribute output_padding requires 2 numbers of at least 0": ("ConvTranspose", [X, W], {"output_padding": [-1, 0]}),
    "conv_transpose requires output padding below (2 2), the larger of stride and dilation, got (0 2)": (
        "ConvTranspose",
        [X, W],
        {"output_padding": [0, 2], "strides": [2, 1], "dilations": [1, 2]},
    ),
    "attribute output_shape requires 2 numbers": ("ConvTranspose", [X, W], {"output_shape": [3]}),
    "attribute output_shape requires at most": ("ConvTranspose", [X, W], {"output_shape": [3, 300]}),
    "inputs 0 and 1 require two axes": ("Gemm", [X, W], {}),
    "requires a whole number for int32, got 0.5": ("Gemm", [np.ones((2, 2), np.int32)] * 2, {"alpha": 0.5}),
    "attribute num_groups requires a divisor": (
        "GroupNormalization",
        [X, X[0, :, 0, 0], X[0, :, 0, 0]],
        {"num_groups": 3},
    ),
    "attribute axis requires a number from -4 to 3": ("LayerNormalization", [X, X], {"axis": 4}),
    "attribute p requires 1 or 2, got 3": ("LpNormalization", [X], {"p": 3}),
    "attribute size of at least 1": ("LRN", [X], {"size": 0}),
    "requires one output, got more": ("BatchNormalization", [X, *[X[0, :, 0, 0]] * 4], {"version": 9, "outputs": 3}),
    "attribute is_test requires 1": ("BatchNormalization", [X, *[X[0, :, 0, 0]] * 4], {"version": 6}),
    "input 0 requires blocks of [2, 2] at [3, 3] positions": (
        "Col2Im",
        [X[0], np.array([4, 4]), np.array([2, 2])],
        {},
    ),
    "dims (N C d..) that agree": ("MaxUnpool", [X, np.ones((1, 4, 5), np.int64)], {"kernel_shape": [1, 1]}),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_attributes_are_named(message: str) -> None:
    op, inputs, named = BAD[message]
    with pytest.raises(BadInput) as error:
        ours(op, *inputs, **named)
    assert message in str(error.value)
    assert str(error.value).startswith(f"node it ({op}): ")
