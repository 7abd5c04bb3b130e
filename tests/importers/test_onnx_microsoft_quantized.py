"""Compares onnxruntime's own operators on quantized tensors with onnxruntime.

Scales that are powers of 2 make every quotient exact, so that halves are rounded as there; of others, one level of the
result may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402
from onnx_nodes import Inputs, Random, agree, floats, integers, ours  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402

DOMAIN = "com.microsoft"
BYTES = ("uint8", "int8")
Draw = Callable[[Random], Inputs]


def scale(random: Random, *dims: int) -> Array:
    return np.asarray(random.uniform(0.01, 0.1, dims).astype(np.float32))


def single(value: float) -> Array:
    return np.float32(value)


def quantized(random: Random, dtype: str, size: float, *dims: int) -> list[Array]:
    """Integers, a scale and a zero point."""
    return [integers(random, dtype, *dims), single(size), integers(random, dtype)]


def zeros_of_filters(random: Random, dtype: str, count: int) -> Array:
    """onnxruntime wants one for all filters, and 0 of int8."""
    return np.full(count, random.integers(9) if dtype == "uint8" else 0, dtype)


EXACT, FREE = (0.5, 0.25, 0.5), (0.043, 0.071, 0.029)
WINDOWS = {"kernel_shape": [2, 2], "pads": [1, 1, 0, 1], "strides": [2, 1], "count_include_pad": 1}


def between(dtype: str, sizes: tuple[float, float, float]) -> list[tuple[str, Draw, dict[str, Any]]]:
    """Operators on this dtype; the sizes are the scales of two operands and of the result."""
    a, b, c = sizes

    def pair(*dims: int) -> Draw:
        return lambda r: [
            *quantized(r, dtype, a, 5, 7),
            *quantized(r, dtype, b, *dims),
            single(c),
            integers(r, dtype),
        ]

    def one(*dims: int, result: float = c) -> Draw:
        return lambda r: [*quantized(r, dtype, a, *dims), single(result), integers(r, dtype)]

    def chosen(r: Random) -> Inputs:
        both = [*quantized(r, dtype, a, 3, 7), *quantized(r, dtype, b, 7)]
        return [r.random((3, 7)) < 0.5, *both, single(c), integers(r, dtype)]

    def joined(r: Random) -> Inputs:
        return [single(c), integers(r, dtype), *quantized(r, dtype, a, 3, 7), *quantized(r, dtype, b, 3, 2)]

    images = [(name, {"channels_last": last}) for name in ("Average", "GlobalAverage") for last in (0, 1)]
    return [
        ("QLinearAdd", pair(5, 7), {}),
        ("QLinearAdd", pair(2, 1, 7), {}),
        ("QLinearMul", pair(5, 1), {}),
        ("QLinearMul", pair(), {}),
        ("QLinearSigmoid", one(3, 7, result=1 / 256), {}),
        ("QLinearLeakyRelu", one(3, 7), {"alpha": 0.25}),
        ("QLinearLeakyRelu", lambda r: [integers(r, dtype, 3, 7), single(a), None, single(c), None], {}),
        ("QLinearConcat", joined, {"axis": -1}),
        ("QLinearWhere", chosen, {}),
        *(
            (f"QLinear{name}Pool", one(2, 5, 7, 6), {**named, **(WINDOWS if name == "Average" else {})})
            for name, named in images
        ),
    ]


CASES = [
    pytest.param(
        op, draw, named, dtype, int(sizes is FREE), id=f"{op}-{dtype}-{i}-{'free' if sizes is FREE else 'exact'}"
    )
    for dtype in BYTES
    for sizes in (EXACT, FREE)
    for i, (op, draw, named) in enumerate(between(dtype, sizes))
]


@pytest.mark.parametrize(("op", "draw", "named", "dtype", "levels"), CASES)
def test_between_quantized_tensors(op: str, draw: Draw, named: dict[str, Any], dtype: str, levels: int) -> None:
    agree("onnxruntime", op, draw(np.random.default_rng(7)), domain=DOMAIN, dtypes=[dtype], levels=levels, **named)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("named", [{"axis": -1, "opset": 13}, {"axis": 1, "opset": 12}], ids=str)
def test_softmax_to_one_level(dtype: str, named: dict[str, Any]) -> None:
    """onnxruntime divides integers there."""
    random = np.random.default_rng(3)
    result = [single(1 / 256), np.array(np.iinfo(dtype).min, dtype)]
    inputs = [*quantized(random, dtype, 0.06, 3, 4, 5), *result]
    agree("onnxruntime", "QLinearSoftmax", inputs, domain=DOMAIN, dtypes=[dtype], levels=1, **named)


@pytest.mark.parametrize(("keep", "dims"), [(0, (3, 5)), (1, (3, 1, 5, 1))])
def test_mean_of_quantized_numbers(keep: int, dims: tuple[int, ...]) -> None:
    """onnxruntime declares the operator without a kernel: its definition is the mean of the represented numbers."""
    random = np.random.default_rng(3)
    x, size, zero = quantized(random, "uint8", 0.5, 3, 4, 5, 2)
    inputs = [x, size, zero, single(0.25), np.uint8(3)]
    named = {"axes": [1, -1], "keepdims": keep}
    (y,) = ours("QLinearReduceMean", inputs, domain=DOMAIN, dtypes=["uint8"], **named)
    means = ((x.astype(np.float32) - zero) * 0.5).mean((1, 3)).reshape(dims)
    np.testing.assert_array_equal(y, np.clip(np.rint(means / 0.25) + 3, 0, 255).astype("uint8"))


OPERANDS = [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")]


@pytest.mark.parametrize(("left", "right"), OPERANDS)
def test_products(left: str, right: str) -> None:
    random = np.random.default_rng(11)
    bias = random.integers(-999, 999, 4).astype(np.int32)

    def a(*dims: int) -> list[Array]:
        return quantized(random, left, 0.5, *dims)

    def check(op: str, inputs: Inputs, dtype: str = "float32", **named: Any) -> None:
        agree("onnxruntime", op, inputs, domain=DOMAIN, dtypes=[dtype], **named)

    check("QGemm", [*a(5, 7), *quantized(random, right, 0.25, 7, 4)])
    each = [integers(random, right, 4, 7), scale(random, 4), integers(random, right, 4), bias]
    check("QGemm", [*a(7, 5), *each], transA=1, transB=1, alpha=0.5)
    whole = [*quantized(random, right, 0.25, 7, 4), bias, single(16), integers(random, left)]
    check("QGemm", [*a(5, 7), *whole], left)
    floats_of_both = [scale(random), scale(random, 4), integers(random, left), integers(random, right, 4)]
    matrices = [integers(random, left, 2, 5, 7), integers(random, right, 7, 4)]
    check("MatMulIntegerToFloat", [*matrices, *floats_of_both, floats(random, 4)])
    check("MatMulIntegerToFloat", [*matrices, scale(random), scale(random)])
    filters = [integers(random, right, 4, 3, 3, 2), scale(random, 4), zeros_of_filters(random, right, 4)]
    images = [*quantized(random, left, 0.05, 1, 6, 5, 3), *filters, single(4), integers(random, left), bias]
    check("QLinearConv", images, left, channels_last=1, pads=[1, 0, 1, 0], levels=1)


@pytest.mark.parametrize("dtype", BYTES)
def test_products_that_quantize_their_input(dtype: str) -> None:
    random = np.random.default_rng(5)
    a, w = floats(random, 2, 5, 7), integers(random, dtype, 7, 4)
    rows = [scale(random, 4), integers(random, dtype, 4)]
    for inputs in ([a, w, *rows, floats(random, 4)], [a, w, scale(random)], [a[0, 0], w, *rows]):
        agree("onnxruntime", "DynamicQuantizeMatMul", inputs, domain=DOMAIN, tolerance=1e-3)


@pytest.mark.parametrize("weights", BYTES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("each", [False, True])
def test_recurrent_network(weights: str, direction: str, each: bool) -> None:
    random = np.random.default_rng(1)
    count, hidden, size, steps, batch = 1 + (direction == "bidirectional"), 3, 5, 4, 2

    def granular() -> list[Array]:
        dims = (count, 4 * hidden) if each else (count,)
        return [scale(random, *dims) / 16, np.full(dims, 7 if weights == "uint8" else 0, weights)]

    states = [floats(random, count, batch, hidden) if each else None for _ in range(2)]
    matrices = [integers(random, weights, count, n, 4 * hidden) for n in (size, hidden)]
    inputs = [floats(random, steps, batch, size), *matrices, floats(random, count, 8 * hidden), None, *states, None]
    inputs += [*granular(), *granular()]
    named = {"direction": direction, "hidden_size": hidden}
    # The states are quantized at each step, so that an ulp of a sigmoid may turn into a level.
    dtypes = ["float32"] * 3
    agree("onnxruntime", "DynamicQuantizeLSTM", inputs, domain=DOMAIN, dtypes=dtypes, tolerance=0.005, **named)


@pytest.mark.parametrize("dtype", [*BYTES, "uint16", "int16"])
def test_quantize_and_dequantize(dtype: str) -> None:
    random = np.random.default_rng(2)
    x, q = 10 * floats(random, 3, 5), integers(random, dtype, 3, 5)
    for dims, named in (((), {}), ((5,), {"axis": 1})):
        granular = [scale(random, *dims), integers(random, dtype, *dims)]
        agree("onnxruntime", "QuantizeLinear", [x, *granular], domain=DOMAIN, dtypes=[dtype], **named)
        agree("onnxruntime", "DequantizeLinear", [q, *granular], domain=DOMAIN, tolerance=1e-6, **named)


def test_integers_alone() -> None:
    random = np.random.default_rng(2)
    wide = [integers(random, "int16", *dims) for dims in ((2, 3, 5), (5, 4))]
    agree("onnxruntime", "MatMulInteger16", wide, domain=DOMAIN, dtypes=["int32"])
    x, y = integers(random, "int8", 3, 4), integers(random, "int8", 4)
    (product,) = ours("MulInteger", [x, np.int8(-3), y, np.int8(7)], domain=DOMAIN, dtypes=["int32"])
    np.testing.assert_array_equal(product, (x.astype(int) + 3) * (y.astype(int) - 7))
    (sums,) = ours("ReduceSumInteger", [x], domain=DOMAIN, dtypes=["int32"], axes=[1], keepdims=0)
    np.testing.assert_array_equal(sums, x.astype(int).sum(1))
    named = {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [2, 1]}
    images = [integers(random, "uint8", 2, 5, 7, 6)]
    agree("onnxruntime", "NhwcMaxPool", images, domain=DOMAIN, dtypes=["uint8"], **named)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("depth", "block"), [(40, 16), (64, 32)])
def test_weights_of_few_bits(bits: int, depth: int, block: int) -> None:
    random = np.random.default_rng(bits)
    count = -(-depth // block)
    weights = [integers(random, "uint8", 6, count, block * bits // 8), scale(random, 6, count)]
    zeros = integers(random, "uint8", 6, -(-count * bits // 8))
    named = {"K": depth, "N": 6, "bits": bits, "block_size": block}

    def check(inputs: Inputs) -> None:
        agree("onnxruntime", "MatMulNBits", inputs, domain=DOMAIN, **named)

    check([floats(random, 3, depth), weights[0], weights[1].reshape(-1)])
    check([floats(random, 2, 3, depth), *weights, zeros, None, floats(random, 6)])
    if bits == 4:
        check([floats(random, 3, depth), *weights, floats(random, 6, count)])
    table = [integers(random, "uint8", 9, depth * bits // 8), random.integers(0, 9, (3, 2)), scale(random, 9, count)]
    named = {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0}
    for more in ([], [integers(random, "uint8", 9, -(-count * bits // 8))]):
        agree("onnxruntime", "GatherBlockQuantized", [*table, *more], domain=DOMAIN, **named)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("zeros", [False, True])
def test_gathered_rows_of_four_bits(dtype: str, zeros: bool) -> None:
    random = np.random.default_rng(0)
    number, least = getattr(onnx.TensorProto, dtype.upper()), -8 if dtype == "int4" else 0

    def few(name: str, *dims: int) -> Any:
        return helper.make_tensor(name, number, dims, random.integers(least, least + 16, dims).reshape(-1))

    scales = numpy_helper.from_array(scale(random, 9, 3), "scales")
    inputs = ["table", "at", "scales", *(["zeros"] if zeros else [])]
    node = helper.make_node("GatherBlockQuantized", inputs, ["y"], domain=DOMAIN, block_size=16, quantize_axis=1)
    at = helper.make_tensor_value_info("at", onnx.TensorProto.INT64, [3, 2])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 2, 48])
    graph = helper.make_graph([node], "g", [at], [y], [few("table", 9, 48), scales, few("zeros", 9, 3)][: 2 + zeros])
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    given = {"at": random.integers(0, 9, (3, 2))}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    program = program_of_model(model)
    (found,) = gl.evaluate([program.term], {**program.constants, **given})
    assert np.allclose(found, session.run(None, given)[0], rtol=1e-6)


@pytest.mark.parametrize("kind", [0, 1])
def test_weights_in_codes(kind: int) -> None:
    random = np.random.default_rng(kind)
    weights = [integers(random, "uint8", 6 * 32 // 2), scale(random, 6 * 32 // 16)]
    named = {"K": 32, "N": 6, "block_size": 16, "quant_type": kind}
    agree("onnxruntime", "MatMulBnb4", [floats(random, 2, 3, 32), *weights], domain=DOMAIN, **named)


ONE, FEW = single(1), np.uint8([1])
PACKED = [np.ones((1, 32), np.float32), np.uint8([[[0] * 16]]), ONE]


@pytest.mark.parametrize(
    ("op", "inputs", "named", "message"),
    [
        ("QLinearAdd", [FEW, np.ones(2, np.float32), None, FEW, ONE, None, ONE], {}, "one number"),
        ("QLinearConcat", [ONE, np.uint8(0), FEW, ONE], {"axis": 0}, "three inputs for each part"),
        ("QGemm", [FEW, ONE, np.uint8(0), FEW, ONE, np.uint8(0)], {}, "require two axes"),
        ("MatMulNBits", PACKED, {"K": 32, "N": 2, "block_size": 32}, "2 x 1 blocks of 32"),
        ("QLinearSigmoid", [ONE, ONE, None, ONE], {}, "input 0 requires int8 or uint8, got float32"),
        ("QLinearSigmoid", [FEW, ONE, None, ONE], {"alfa": 1}, "has no attribute alfa"),
    ],
)
def test_bad_nodes(op: str, inputs: Inputs, named: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ours(op, inputs, domain=DOMAIN, dtypes=["uint8"], **named)
