"""Compares ONNX's quantized operators with onnxruntime and ONNX's reference, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402
from onnx_nodes import Random, agree, floats, integers, one_of, ours, whole  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.ir.dtypes import REALS, STORED  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402

TYPES = ("int8", "uint8", "int16", "uint16")


def granularity(random: Random, dims: list[int]) -> tuple[tuple[int, ...], dict[str, int]]:
    """Returns the dims of a scale, and the attributes that say what they mean."""
    axis, kind = int(random.integers(len(dims))), one_of(random, "tensor", "axis", "blocks")
    if kind == "tensor":
        return (), {}
    if kind == "axis":
        return (dims[axis],), {"axis": axis - one_of(random, 0, len(dims))}
    block = int(random.integers(1, 4))
    return (*dims[:axis], -(-dims[axis] // block), *dims[axis + 1 :]), {"axis": axis, "block_size": block}


@pytest.mark.parametrize("seed", range(24))
def test_quantize_and_dequantize(seed: int) -> None:
    random = np.random.default_rng(seed)
    dims, dtype = whole(random, 1, 6, int(random.integers(1, 4))), one_of(random, *TYPES)
    shape, named = granularity(random, dims)
    # Quotients of these scales are halves often, and beyond the dtype now and then.
    scale = np.asarray(random.choice([0.5, 1, 0.1, 2, 0.25, 1e-3], shape).astype("float32"))
    zero = one_of(random, None, integers(random, dtype, *shape))
    x = np.rint(floats(random, *dims) * one_of(random, 4, 100, 40000)) / 4
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    extra = {"output_dtype": number} if zero is None else {}
    agree("reference", "QuantizeLinear", [x, scale, zero], dtypes=[dtype], **named, **extra)
    agree("reference", "DequantizeLinear", [integers(random, dtype, *dims), scale, zero], tolerance=0, **named)


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("seed", range(2))
def test_quantize_and_dequantize_few_bits(dtype: str, seed: int) -> None:
    random = np.random.default_rng([seed, STORED.index(dtype)])
    dims = whole(random, 1, 6, int(random.integers(1, 4)))
    shape, named = granularity(random, dims)
    scale = np.asarray(random.choice([0.5, 1, 0.1, 2, 0.25], shape).astype("float32"))
    zero = np.zeros(shape, dtype) if dtype in REALS else one_of(random, None, integers(random, dtype, *shape))
    x = np.rint(floats(random, *dims) * one_of(random, 4, 100, 40000)) / 4
    extra = {"output_dtype": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))} if zero is None else {}
    agree("reference", "QuantizeLinear", [x, scale, zero], dtypes=[dtype], version=25, tolerance=0, **named, **extra)
    stored = np.asarray(x / 100).astype(dtype) if dtype in REALS else integers(random, dtype, *dims)
    agree("reference", "DequantizeLinear", [stored, scale, zero], version=25, tolerance=0, **named)


SATURATED = {  # largest, and what infinities and numbers beyond are where nothing saturates
    "float8_e4m3fn": (448.0, np.nan, np.nan),
    "float8_e4m3fnuz": (240.0, np.nan, np.nan),
    "float8_e5m2": (57344.0, np.inf, -np.inf),
    "float8_e5m2fnuz": (57344.0, np.nan, np.nan),
}


@pytest.mark.parametrize("dtype", SATURATED)
@pytest.mark.parametrize("given", ["float16", "float32", "float64", "bfloat16"])
def test_casts_to_floats_of_8_bits_saturate_as_the_standard_says(dtype: str, given: str) -> None:
    largest, above, below = SATURATED[dtype]
    x = np.array([0, 1.0625, np.nan, np.inf, -np.inf, largest, 62000, -62000]).astype(given)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for saturate, up, down in ((1, largest, -largest), (0, above, below)):
        (got,) = ours("Cast", [x], dtypes=[dtype], version=25, to=to, saturate=saturate)
        want = [0, 1, np.nan, up, down, largest, up, down]
        np.testing.assert_array_equal(got.astype(np.float64), want)
        like = np.zeros(1, dtype)
        (again,) = ours("CastLike", [x, like], dtypes=[dtype], version=25, saturate=saturate)
        np.testing.assert_array_equal(again.astype(np.float64), want)
    (whole_numbers,) = ours("Cast", [np.array([3, -(10**9), 10**9])], dtypes=[dtype], version=25, to=to)
    assert whole_numbers.astype(float).tolist() == [3, -largest, largest]


def test_what_nobody_computes_with_is_refused_with_what_would_be_right() -> None:
    made = helper.make_node("Reshape", ["x", "shape"], ["y"]), helper.make_node("Add", ["y", "y"], ["z"], "sum")
    x = helper.make_tensor_value_info("x", onnx.TensorProto.INT4, [2, 3])
    z = helper.make_tensor_value_info("z", onnx.TensorProto.INT4, None)
    shape = numpy_helper.from_array(np.array([6]), "shape")
    model = helper.make_model(helper.make_graph([*made], "g", [x], [z], [shape]))
    with pytest.raises(BadInput, match=r"requires float16, bfloat16, .*, got int4"):
        program_of_model(model)


def test_quantize_ends_at_the_ends() -> None:
    x = np.array([-np.inf, -129, -128.5, -2.5, -1.5, 0.5, 1.5, 126.5, 127.5, np.inf], np.float32)
    (y,) = ours("QuantizeLinear", [x, np.float32(1), np.int8(0)], dtypes=["int8"])
    assert y.tolist() == [-128, -128, -128, -2, -2, 0, 2, 126, 127, 127]


def test_wide_integers_dequantize_in_float32() -> None:
    x = np.array([2**31 - 1, -(2**31), 16777217], np.int32)
    agree("reference", "DequantizeLinear", [x, np.array(1e-5, np.float16)], dtypes=["float16"], tolerance=0)
    agree("onnxruntime", "DequantizeLinear", [x, np.array(0.5, np.float32)], tolerance=0)


@pytest.mark.parametrize("x", [[-3, 0.1, 2], [1, 2, 3], [-5, -4, -1], [0, 0, 0]], ids=str)
def test_dynamic_quantization(x: list[float]) -> None:
    given = np.array(x, np.float32)
    agree(
        "onnxruntime", "DynamicQuantizeLinear", [given], dtypes=["uint8", "float32", "uint8"], version=11, tolerance=0
    )


def zero_point(random: Random, dtype: str, *dims: int) -> Array:
    """Any, or the two that need no work: 0, and 128 of an operand of uint8 beside one of int8."""
    plain = np.full(dims, 128 if dtype == "uint8" and random.random() < 0.5 else 0, dtype)
    return one_of(random, plain, integers(random, dtype, *dims))


def scale(random: Random, *dims: int) -> Array:
    return np.asarray(random.uniform(0.001, 0.1, dims).astype(np.float32))


def convolution(random: Random, axes: int) -> tuple[Array, Array, dict[str, Any]]:
    types = one_of(random, ("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))
    groups, kernel = one_of(random, 1, 1, 2), whole(random, 1, 3, axes)
    channels, filters = groups * int(random.integers(1, 4)), groups * int(random.integers(1, 3))
    named: dict[str, Any] = {"group": groups, "strides": whole(random, 1, 2, axes)}
    auto = one_of(random, "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    named |= {"pads": whole(random, 0, 2, 2 * axes)} if auto == "NOTSET" else {"auto_pad": auto}
    x = integers(random, types[0], 2, channels, *whole(random, 4, 8, axes))
    return x, integers(random, types[1], filters, channels // groups, *kernel), named


@pytest.mark.parametrize("seed", range(24))
def test_integer_convolution(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, w, named = convolution(random, 2)
    each = one_of(random, (), (len(w),))
    zeros = [
        one_of(random, None, zero_point(random, x.dtype.name)),
        one_of(random, None, zero_point(random, w.dtype.name, *each)),
    ]
    agree("reference", "ConvInteger", [x, w, *zeros], version=10, dtypes=["int32"], **named)


@pytest.mark.parametrize("seed", range(24))
def test_quantized_convolution(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, w, named = convolution(random, one_of(random, 1, 2, 2, 3))
    each = one_of(random, (), (len(w),))
    zero = np.full(each, zero_point(random, w.dtype.name), w.dtype)  # onnxruntime wants one for all filters
    bias = one_of(random, None, random.integers(-9999, 9999, len(w)).astype(np.int32))
    weights = [w, scale(random, *each), zero]
    result = [np.float32(random.uniform(0.5, 8)), integers(random, x.dtype.name)]
    inputs = [x, scale(random), zero_point(random, x.dtype.name), *weights, *map(np.asarray, result), bias]
    agree("onnxruntime", "QLinearConv", inputs, version=10, dtypes=[x.dtype.name], **named)


@pytest.mark.parametrize("seed", range(32))
def test_matrix_products(seed: int) -> None:
    random = np.random.default_rng(seed)
    types = one_of(random, ("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))
    m, k, n = whole(random, 1, 7, 3)
    lead = whole(random, 1, 3, int(random.integers(2)))
    a = integers(random, types[0], *one_of(random, (*lead, m, k), (*lead, m, k), (k,)))
    b = integers(random, types[1], *one_of(random, (*lead, k, n), (k, n), (k,)))
    columns = one_of(random, (), (n,)) if b.ndim == 2 and a.ndim > 1 else ()
    za, zb = zero_point(random, types[0]), zero_point(random, types[1], *columns)
    agree("onnxruntime", "MatMulInteger", [a, b, za, zb], version=10, dtypes=["int32"])
    result = [np.asarray(np.float32(random.uniform(0.5, 8))), integers(random, types[0])]
    inputs = [a, scale(random), za, b, scale(random, *columns), zb, *result]
    agree("onnxruntime", "QLinearMatMul", inputs, version=10, dtypes=[types[0]])


def test_zero_points_of_rows() -> None:
    random = np.random.default_rng(0)
    a, b = integers(random, "uint8", 2, 4, 3), integers(random, "int8", 2, 3, 5)
    za, zb = integers(random, "uint8", 2, 4, 1), integers(random, "int8", 2, 1, 5)
    (y,) = ours("MatMulInteger", [a, b, za, zb], version=10, dtypes=["int32"])
    assert (y == (a.astype(int) - za) @ (b.astype(int) - zb)).all()
    (y,) = ours("MatMulInteger", [a[0], b[0], za[0, :, 0], zb[0, 0]], version=10, dtypes=["int32"])
    assert (y == (a[0].astype(int) - za[0]) @ (b[0].astype(int) - zb[0])).all()


def test_sums_wrap_in_32_bits() -> None:
    """The largest products, so many that their sum is beyond int32, whatever the zero points add."""
    a, b = np.full((1, 40000), 255, np.uint8), np.full((40000, 1), 255, np.uint8)
    (y,) = ours("MatMulInteger", [a, b, np.uint8(1), np.uint8(1)], version=10, dtypes=["int32"])
    assert y.item() == 254 * 254 * 40000 - 2**32


def test_the_layers_are_products_of_int8() -> None:
    """uint8 with the zero point 128 is int8 with the zero point 0: nothing is left to correct."""
    random = np.random.default_rng(0)
    constants = {
        "scale": np.float32(0.02),
        "zero": np.uint8(128),
        "w": integers(random, "int8", 8, 4, 3, 3),
        "scales": scale(random, 8),
        "zeros": np.zeros(8, np.int8),
    }
    names = ["x", "scale", "zero", "w", "scales", "zeros", "scale", "zero"]
    node = helper.make_node("QLinearConv", names, ["y"], "layer", pads=[1] * 4)
    formal = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, (1, 4, 9, 7))
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph([node], "graph", [formal], [helper.make_empty_tensor_value_info("y")], initializers)
    program = program_of_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    (product,) = program.layers.values()
    assert product.children[0].access.dtype == "int8"
    result = gl.optimize(program, gl.SystolicArray(8, 8))
    assert result.report.mapped == 1
    assert result.check().ok


ONE, BYTE = np.float32(1), np.uint8(3)
X, BYTES = np.ones((2, 4), np.float32), np.ones((1, 2, 4, 4), np.uint8)
LONG = np.ones((2, 2, 3, 3), np.int32)
BAD: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("QuantizeLinear", [X, np.ones(3, np.float32)], {}, "one for each of 4 elements"),
    ("QuantizeLinear", [X, np.ones(4, np.float32)], {"axis": 2}, "attribute axis requires a number from -2 to 1"),
    ("QuantizeLinear", [X, np.ones((2, 3), np.float32)], {"block_size": 2}, "each block of 2"),
    ("QuantizeLinear", [X, np.ones((2, 2), np.float32)], {"block_size": -1}, "attribute block_size"),
    ("QuantizeLinear", [X, ONE, BYTE], {"output_dtype": 3}, "attribute output_dtype requires that of the zero point"),
    ("QuantizeLinear", [X, ONE], {"precision": 3}, "attribute precision is one of float16"),
    ("QuantizeLinear", [X, ONE], {"axis": "one"}, "attribute axis requires a whole number"),
    ("DequantizeLinear", [X.astype(np.int8), ONE, BYTE], {}, "input 2 requires int8"),
    ("DequantizeLinear", [X.astype(np.int8), ONE], {"output_dtype": 3}, "attribute output_dtype is one of float16"),
    ("DynamicQuantizeLinear", [np.ones((0,), np.float32)], {}, "at least one element"),
    ("ConvInteger", [BYTES, LONG], {}, "input 1 requires int8 or uint8"),
    ("ConvInteger", [BYTES, BYTES, np.int8(1)], {}, "input 2 requires uint8"),
    ("ConvInteger", [BYTES, BYTES, np.ones(2, np.uint8)], {}, "input 2 requires one number"),
    ("ConvInteger", [BYTES, BYTES, None, np.ones(3, np.uint8)], {}, "one for each of 1 filters"),
    ("QLinearConv", [BYTES, ONE, BYTE, BYTES, ONE, BYTE, ONE, BYTE, np.ones(2, np.int32)], {}, "input 8, the bias"),
    ("MatMulInteger", [BYTES, BYTES, np.ones(3, np.uint8)], {}, "one for each of 4 lines"),
    ("QLinearMatMul", [BYTES, ONE, BYTE, BYTES, ONE, BYTE, ONE, np.int32(0)], {}, "input 7"),
]


@pytest.mark.parametrize(("op", "inputs", "named", "message"), BAD, ids=[f"{b[0]}-{b[3][:30]}" for b in BAD])
def test_bad_input(op: str, inputs: list[Any], named: dict[str, Any], message: str) -> None:
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    with pytest.raises(BadInput, match=message) as raised:
        ours(op, arrays, version=23, **named)
    assert raised.value.message.startswith(f"node it ({op}): ")
