"""Compares onnxruntime's own float operators with onnxruntime, or with their definition if it has no kernel."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx_nodes import Inputs, Random, agree, floats, model, ours  # noqa: E402

import glenside.importers.onnx.backend as backend  # noqa: E402
from glenside.importers.onnx.operators.com_microsoft.blocked import block_size  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402

DOMAIN = "com.microsoft"
Draw = Callable[[Random], Inputs]
Case = tuple[str, Draw, dict[str, Any]]


def f(*shapes: tuple[int, ...] | None) -> Draw:
    """Returns random floats of these shapes; None is left out."""
    return lambda r: [None if dims is None else floats(r, *dims) for dims in shapes]


def ints(*values: Any, dtype: str = "int32") -> Array:
    return np.array(values, dtype)


def cases(*table: Case) -> Any:
    return pytest.mark.parametrize(
        ("op", "draw", "named"), [pytest.param(*case, id=f"{case[0]}-{i}") for i, case in enumerate(table)]
    )


def compared(op: str, draw: Draw, **named: Any) -> None:
    agree("onnxruntime", op, draw(np.random.default_rng(5)), **{"domain": DOMAIN, **named})


IMAGES, RESIDUAL = ((2, 4, 6, 5), (6, 2, 3, 2), (6,)), ((2, 4, 6, 5), (6, 4, 3, 2), (6,), (2, 6, 4, 4))
OF_CONVOLUTIONS: list[tuple[str, list[float]]] = [
    *(("Relu", []), ("Sigmoid", []), ("Tanh", []), ("LeakyRelu", [0.3])),
    *(("Clip", [-0.5, 0.7]), ("Clip", [0.0, float("inf")]), ("HardSigmoid", [0.3, 0.4])),
]


def convolution(activation: str, numbers: list[float]) -> dict[str, Any]:
    named = {"group": 2, "pads": [1, 0, 1, 1], "activation": activation}
    return {**named, "activation_params": numbers} if numbers else named


OF_MATRICES = [
    *({"activation": name} for name in ("Relu", "Softplus", "Softsign")),
    *({"activation": name, "activation_alpha": 0.3} for name in ("LeakyRelu", "Elu", "ThresholdedRelu")),
    {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    {"activation": "Selu", "activation_alpha": 1.3, "activation_gamma": 1.2},
]


@cases(
    *((name, f((3, 5)), {}) for name in ("Gelu", "FastGelu", "QuickGelu", "ScaledSiLU")),
    ("QuickGelu", f((3, 5)), {"alpha": 0.5}),
    ("ScaledSiLU", f((3, 5), ()), {}),
    ("BiasGelu", f((3, 5), (5,)), {}),
    ("FastGelu", f((3, 5), (5,)), {}),
    *(("FusedConv", f(*IMAGES), convolution(name, numbers)) for name, numbers in OF_CONVOLUTIONS),
    ("FusedConv", f(*RESIDUAL), {"activation": "Relu"}),
    *(
        ("FusedGemm", f((4, 3), (5, 4), (5,)), {"transA": 1, "transB": 1, "alpha": 0.5, **named})
        for named in OF_MATRICES
    ),
    ("FusedMatMul", f((2, 3, 4), (2, 5, 4)), {"transB": 1, "alpha": 0.5}),
    ("FusedMatMul", f((4, 2, 3, 5), (2, 3, 5, 6)), {"transBatchA": 1}),
    ("FusedMatMul", f((4, 2, 3, 5), (2, 3, 4, 6)), {"transBatchA": 1, "transA": 1}),
    ("FusedMatMul", f((2, 3, 4, 5), (5, 2, 3, 6)), {"transBatchB": 1}),
    ("FusedMatMul", f((4,), (4, 5)), {"transA": 1}),
    ("TransposeMatMul", f((2, 4, 3), (2, 5, 4)), {"transA": 1, "transB": 1}),
)
def test_activations_and_products(op: str, draw: Draw, named: dict[str, Any]) -> None:
    compared(op, draw, **named)


def words(*more: Any) -> Draw:
    """Words, segments and the tables of an embedding, and more inputs."""
    ids, segments = ints([3, 0, 8, 1], [2, 2, 7, 5]), ints([0, 1, 1, 0], [1, 0, 0, 1])
    return lambda r: [ids, segments, *(floats(r, *dims) for dims in ((9, 6), (7, 6), (2, 6), (6,), (6,))), *more]


def without_segments(r: Random) -> Inputs:
    given = words(ints([1, 1, 1, 0], [1, 1, 0, 0]), ints([3, 2, 1, 0], [6, 5, 4, 3]))(r)
    return [None if i in (1, 4) else x for i, x in enumerate(given)]


@cases(
    ("SimplifiedLayerNormalization", f((2, 3, 5), (5,)), {"domain": "", "version": 17, "dtypes": ["float32"] * 2}),
    ("SimplifiedLayerNormalization", f((2, 3, 5), (3, 5)), {"domain": "", "version": 17, "axis": 1, "epsilon": 0.1}),
    ("SkipLayerNormalization", f((2, 3, 8), (2, 3, 8), (8,), (8,), (8,)), {}),
    ("SkipLayerNormalization", f((2, 3, 8), (3, 8), (8,)), {"epsilon": 0.1}),
    ("SkipSimplifiedLayerNormalization", f((2, 3, 8), (2, 3, 8), (8,), (8,)), {}),
    ("SkipSimplifiedLayerNormalization", f((6, 8), (6, 8), (8,)), {"epsilon": 0.1}),
    ("GatedRMSNorm", f((2, 3, 8), (4,), (2, 3, 8)), {}),
    ("GatedRMSNorm", f((2, 3, 8), (8,), (2, 3, 8)), {"activation": "sigmoid"}),
    ("EmbedLayerNormalization", words(), {"dtypes": ["float32", "int32"]}),
    ("EmbedLayerNormalization", without_segments, {"dtypes": ["float32", "int32", "float32"], "mask_index_type": 1}),
)
def test_normalizations(op: str, draw: Draw, named: dict[str, Any]) -> None:
    compared(op, draw, **named)


@pytest.mark.parametrize(("op", "bias"), [("SkipLayerNormalization", 2), ("SkipSimplifiedLayerNormalization", 1)])
def test_sums_of_skips_are_a_result(op: str, bias: int) -> None:
    random = np.random.default_rng(1)
    inputs = [floats(random, *dims) for dims in ((2, 3, 8), (2, 3, 8), *[(8,)] * (1 + bias))]
    made = model(op, inputs, 22, ["float32"] * 4, DOMAIN)
    made.graph.node[0].output[1:3] = ["", ""]
    del made.graph.output[1:3]
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {f"x{i}": x for i, x in enumerate(inputs)})
    for got, want in zip(backend.run_model(made, inputs), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


B, S, D, N, L = 2, 3, 8, 2, 5
CAUSAL = {"num_heads": N, "unidirectional": 1}
KEPT, LONGER = ints([1, 1, 0], [0, 1, 1]), ints([1, 1, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1])
EACH = ints([[1, 0, 1], [0, 1, 1], [1, 1, 1]], [[0, 1, 0], [1, 1, 1], [1, 0, 0]])
PAST = (2, B, N, 4, 4)


def projected(mask: Array | None = None, *more: tuple[int, ...] | None) -> Draw:
    """Returns an input, weights and a bias of three projections, a mask, and more floats."""
    return lambda r: [*f((B, S, 5), (5, 3 * D), (3 * D,))(r), mask, *f(*more)(r)]


def separate(*more: Any) -> Draw:
    """Returns a query, a key and a value, and more inputs: shapes of floats, or arrays."""

    def draw(r: Random) -> Inputs:
        extra = [floats(r, *x) if isinstance(x, tuple) else x for x in more]
        return [*f((B, S, D), (B, L, D), (B, L, D))(r), *extra]

    return draw


def integers_projected(weights: str, *more: Any) -> Draw:
    """Returns the same of narrow integers; then a scale, another, and more inputs.

    Weights are below 64: onnxruntime adds pairs of products in 16 bits on processors without VNNI, and they saturate.
    """

    def draw(r: Random) -> Inputs:
        x, w = r.integers(0, 256, (B, S, 5)).astype("uint8"), r.integers(0, 64, (5, 3 * D)).astype(weights)
        extra = [floats(r, *y) if isinstance(y, tuple) else y for y in more]
        return [x, w, floats(r, 3 * D), np.float32(0.02), *extra]

    return draw


def rotary(positions: Array, pairs: int, *dims: int) -> Draw:
    return lambda r: [floats(r, *dims), positions, *f((10, pairs), (10, pairs))(r)]


@cases(
    ("Attention", projected(), {"num_heads": N}),
    ("Attention", projected(), {"scale": 0.7, **CAUSAL}),
    ("Attention", projected(ints(3, 2)), {"num_heads": N}),
    ("Attention", projected(ints(3, 2, 0, 1)), {"num_heads": N}),
    ("Attention", projected(KEPT), CAUSAL),
    ("Attention", projected(KEPT), {"num_heads": N, "mask_filter_value": -3.0}),
    ("Attention", projected(EACH), {"mask_filter_value": -3.0, **CAUSAL}),
    ("Attention", projected(None, PAST), {"dtypes": ["float32"] * 2, **CAUSAL}),
    ("Attention", projected(LONGER, PAST), {"dtypes": ["float32"] * 2, **CAUSAL}),
    ("Attention", projected(None, None, (1, N, S, S)), CAUSAL),
    ("Attention", projected(KEPT, None, (B, N, S, S)), CAUSAL),
    ("Attention", f((B, S, 5), (5, 22), (22,)), {"num_heads": N, "qkv_hidden_sizes": [8, 8, 6]}),
    ("QAttention", integers_projected("int8", np.float32(0.01), ints(3, 2), np.uint8(9), np.int8(-3)), CAUSAL),
    (
        "QAttention",
        integers_projected("uint8", np.full(24, 0.01, np.float32), None, np.uint8(9), np.full(24, 4, "uint8"), PAST),
        {"num_heads": N, "dtypes": ["float32"] * 2},
    ),
    ("MultiHeadAttention", f((B, S, D), (B, L, D), (B, L, 6)), {"num_heads": N}),
    ("MultiHeadAttention", f((B, S, D), (B, L, D), (B, L, 6), (22,)), {"num_heads": N, "scale": 0.3}),
    ("MultiHeadAttention", f((B, S, D), (B, N, L, 4), (B, N, L, 4)), {"num_heads": N}),
    ("MultiHeadAttention", separate(None, ints(4, 5)), {"num_heads": N}),
    (
        "MultiHeadAttention",
        separate(None, ints([1, 1, 1, 0, 1], [1, 0, 0, 1, 1])),
        {"num_heads": N, "mask_filter_value": -4.0},
    ),
    ("MultiHeadAttention", f(*[(B, S, D)] * 3, (24,), None, (B, 1, S, S)), CAUSAL),
    (
        "MultiHeadAttention",
        f(*[(B, S, D)] * 3, (24,), None, (1, N, S, S + 4), *[(B, N, 4, 4)] * 2),
        {"dtypes": ["float32"] * 3, **CAUSAL},
    ),
    (
        "MultiHeadAttention",
        f(*[(B, S, D)] * 3, None, None, None, *[(B, N, 4, 4)] * 2),
        {"num_heads": N, "dtypes": ["float32"] * 4},
    ),
    *(
        (
            "MRotaryEmbedding",
            rotary(np.arange(3 * B * S).reshape(3, B, S) % 10, 5, B, S, 20),
            {"num_heads": 2, "mrope_section": sections, "mrope_layout": layout},
        )
        for layout, sections in ((0, [2, 2, 1]), (1, [2, 2, 1]), (0, [5, 0, 0]))
    ),
    *(
        ("RotaryEmbedding", rotary(at, pairs, *dims), {"interleaved": interleaved, **named})
        for interleaved in (0, 1)
        for at, pairs, dims, named in (
            (ints([3, 0, 8], [1, 1, 2], dtype="int64"), 2, (B, S, D), {}),
            (ints(4, dtype="int64"), 3, (B, N, S, 6), {}),
            (ints(4, dtype="int64"), 2, (B, S, 12), {"num_heads": 2, "rotary_embedding_dim": 4}),
        )
    ),
)
def test_attention(op: str, draw: Draw, named: dict[str, Any]) -> None:
    compared(op, draw, **named)


H, HEADS, KEYS = 16, 4, 2
TABLES: dict[int, tuple[int, ...]] = {7: (20, H // 2), 8: (20, H // 2)}


@pytest.mark.parametrize(
    ("past", "length", "lengths", "named", "more"),
    [
        (0, 3, (3, 3), {}, {}),
        (4, 1, (5, 5), {}, {}),
        (4, 1, (4, 5), {}, {}),
        (8, 1, (4, 5), {}, {}),
        (0, 3, (3, 3), {"do_rotary": 1}, TABLES),
        (4, 1, (4, 5), {"do_rotary": 1, "rotary_interleaved": 1}, TABLES),
        (0, 5, (5, 5), {"local_window_size": 2}, {}),
        (4, 1, (5, 5), {"local_window_size": 2}, {}),
        (0, 3, (3, 3), {"softcap": 0.8, "scale": 0.9}, {10: (1, 1, 3, 3)}),
        (4, 1, (5, 5), {}, {10: (B, HEADS, 1, 5)}),
        (0, 3, (3, 3), {"smooth_softmax": 1}, {}),
        (0, 3, (3, 3), {}, {11: (HEADS,)}),
        (0, 3, (3, 3), {"causal": 0}, {}),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_grouped_attention(
    past: int, length: int, lengths: tuple[int, ...], named: dict[str, Any], more: Any, known: bool
) -> None:
    """A cache whose entries are filled to lengths that are data of a run, or constants."""
    r = np.random.default_rng(2)
    inputs: list[Array | None] = [
        *f((B, length, HEADS * H), *[(B, length, KEYS * H)] * 2, *[(B, KEYS, past, H)] * 2)(r)
    ]
    inputs += [ints(*lengths) - 1, np.array(max(lengths), "int32")]
    inputs += [floats(r, *more[i]) if i in more else None for i in range(7, max(more, default=6) + 1)]
    named = {"num_heads": HEADS, "kv_num_heads": KEYS, **named}
    made = model("GroupQueryAttention", inputs, 22, ["float32"] * 3, DOMAIN, **named)
    fixed = {5, 6} if known else {6}
    for i in fixed:
        made.graph.initializer.append(onnx.numpy_helper.from_array(inputs[i], f"x{i}"))
        made.graph.input.remove(next(formal for formal in made.graph.input if formal.name == f"x{i}"))
    given = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and i not in fixed}
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for got, want in zip(backend.run_model(made, given), session.run(None, given), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_packed_queries_keys_and_values() -> None:
    """Rotates halves side by side in GroupQueryAttention; interleaved in MultiHeadAttention, which
    has no such kernel.
    """
    r = np.random.default_rng(2)
    rotary = [floats(r, 20, H // 2) for _ in range(2)]
    inputs = [floats(r, 1, 3, (HEADS + 2 * KEYS) * H), None, None, *f(*[(1, KEYS, 4, H)] * 2)(r)]
    inputs += [ints(6), np.array(7, "int32"), *rotary]
    named = {"num_heads": HEADS, "kv_num_heads": KEYS, "do_rotary": 1, "dtypes": ["float32"] * 3}
    agree("onnxruntime", "GroupQueryAttention", inputs, domain=DOMAIN, **named)
    parts = [floats(r, B, S, D) for _ in range(3)]
    (want,) = ours("MultiHeadAttention", parts, domain=DOMAIN, num_heads=N)
    query, key, value = (x.reshape(B, S, N, D // N) for x in parts)
    pair = [parts[0], np.stack([key, value], 3)]
    for packed in ([np.stack([query, key, value], 3)], pair):
        (got,) = ours("MultiHeadAttention", packed, domain=DOMAIN, num_heads=N)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@cases(
    ("GatherND", lambda r: [floats(r, 2, 3, 4), r.integers(0, 2, (5, 2))], {}),
    ("GridSample", f((2, 3, 4, 5), (2, 3, 4, 2)), {}),
    ("Pad", lambda r: [floats(r, 3, 4), np.array([0, 1, 2, 0]), np.array([2.5], "float32")], {}),
    ("Range", lambda r: [np.float32(1), np.float32(5), np.float32(0.5)], {}),
    ("Trilu", lambda r: [floats(r, 3, 4), np.array(1)], {"upper": 0}),
    ("ExpandDims", lambda r: [floats(r, 3, 4), np.array(-1, "int32")], {}),
    ("UnfoldTensor", f((3, 7, 4)), {"dim": 1, "size": 3, "step": 2}),
    ("UnfoldTensor", f((3, 7)), {"size": 3}),
    ("CausalConvWithState", f((2, 3, 7), (3, 1, 4), (3,), (2, 3, 3)), {"dtypes": ["float32"] * 2}),
    (
        "CausalConvWithState",
        f((2, 3, 2), (3, 1, 3)),
        {"dtypes": ["float32"] * 2, "activation": "silu", "dilation": 2},
    ),
    ("GatedAdd", f((3, 7), (3, 7), (3, 1)), {}),
    ("CDist", f((3, 7), (5, 7)), {"metric": "euclidean"}),
    ("CDist", f((3, 7), (5, 7)), {}),
    (
        "ConvTransposeWithDynamicPads",
        lambda r: [*f((1, 3, 5, 5), (3, 2, 3, 3))(r), np.array([1, 1, 1, 1])],
        {"strides": [2, 2], "output_padding": [1, 1]},
    ),
)
def test_forms_of_standard_operators(op: str, draw: Draw, named: dict[str, Any]) -> None:
    compared(op, draw, **named)


def gelu(x: Array) -> Array:
    return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2


def soft(x: Array) -> Array:
    shares = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(shares / shares.sum(-1, keepdims=True))


def grouped(x: Array, scale: Array, bias: Array) -> Array:
    """(N H W C) in two groups, then silu."""
    groups = x.reshape(*x.shape[:3], 2, -1)
    mean, var = groups.mean((1, 2, 4), keepdims=True), groups.var((1, 2, 4), keepdims=True)
    y = ((groups - mean) / np.sqrt(var + 1e-5)).reshape(x.shape) * scale + bias
    return np.asarray(y / (1 + np.exp(-y)))


@pytest.mark.parametrize(
    ("op", "shapes", "named", "definition"),
    [
        ("BiasAdd", [(2, 3, 4), (4,), (2, 3, 4)], {}, lambda x, b, s: x + b + s),
        ("BiasSplitGelu", [(2, 3, 8), (8,)], {}, lambda x, b: (x + b)[..., :4] * gelu((x + b)[..., 4:])),
        ("BiasSoftmax", [(2, 3, 4), (2, 1, 4)], {"axis": 2, "is_inner_broadcast": 1}, lambda x, b: soft(x + b)),
        ("GroupNorm", [(2, 3, 5, 4), (4,), (4,)], {"groups": 2, "activation": 1}, grouped),
        (
            "SkipGroupNorm",
            [(2, 3, 5, 4), (4,), (4,), (2, 4), (4,)],
            {"groups": 2, "activation": 1},
            lambda x, scale, bias, skip, more: grouped(x + skip[:, None, None] + more, scale, bias),
        ),
        (
            "ComplexMulConj",
            [(3, 2), (3, 2)],
            {},
            lambda a, b: ((a[:, 0] + 1j * a[:, 1]) * (b[:, 0] - 1j * b[:, 1])).view(float).reshape(3, 2),
        ),
    ],
)
def test_definitions(op: str, shapes: Any, named: dict[str, Any], definition: Callable[..., Array]) -> None:
    random = np.random.default_rng(4)
    inputs = [floats(random, *dims) for dims in shapes]
    (got,) = ours(op, inputs, domain=DOMAIN, **named)
    np.testing.assert_allclose(got, definition(*(x.astype(float) for x in inputs)), rtol=1e-4, atol=1e-5)


HALVES: list[tuple[str, Draw, dict[str, Any]]] = [
    ("Attention", f((2, 3, 5), (5, 24), (24,)), {"num_heads": 2, "unidirectional": 1}),
    ("MultiHeadAttention", f(*[(2, 3, 8)] * 3), {"num_heads": 2, "unidirectional": 1}),
    ("SkipLayerNormalization", f((2, 3, 8), (2, 3, 8), (8,), (8,)), {}),
    ("SkipSimplifiedLayerNormalization", f((2, 3, 8), (2, 3, 8), (8,)), {}),
    ("FastGelu", f((3, 4), (4,)), {}),
    ("FusedConv", f((1, 2, 5, 5), (3, 2, 3, 3)), {"activation": "LeakyRelu", "activation_params": [0.2]}),
    ("GroupNorm", f((1, 3, 3, 4), (4,), (4,)), {"groups": 2, "activation": 1}),
]


@pytest.mark.parametrize(("op", "draw", "named"), [pytest.param(*case, id=case[0]) for case in HALVES])
def test_half_precision(op: str, draw: Draw, named: dict[str, Any]) -> None:
    """Most have no such kernel: the result is that of float32, to the precision."""
    inputs = draw(np.random.default_rng(1))
    halves = [None if x is None else x.astype(np.float16) for x in inputs]
    (got, *_), (want, *_) = (
        ours(op, given, domain=DOMAIN, dtypes=[dtype], **named)
        for given, dtype in (
            (halves, "float16"),
            ([None if x is None else x.astype("float32") for x in halves], "float32"),
        )
    )
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)


def test_channels_last_convolution() -> None:
    x, w, bias, more = f((2, 4, 6, 5), (6, 4, 3, 2), (6,), (2, 6, 4, 4))(np.random.default_rng(4))
    (want,) = ours("FusedConv", [x, w, bias, more], domain=DOMAIN, activation="Relu")
    last = [np.moveaxis(x, 1, -1), w, bias, np.moveaxis(more, 1, -1)]
    (got,) = ours("NhwcFusedConv", last, domain=DOMAIN, activation="Relu")
    np.testing.assert_array_equal(np.moveaxis(got, -1, 1), want)


@pytest.mark.parametrize(
    ("nodes", "channels", "weights"),
    [
        ([("Conv", {"pads": [1, 0, 1, 1]}), ("MaxPool", {"kernel_shape": [2, 2]})], 4, (6, 4, 3, 2)),
        ([("Conv", {"strides": [2, 1]}), ("GlobalAveragePool", {})], 32, (40, 32, 3, 2)),
        ([("Conv", {"group": 20}), ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]})], 20, (20, 1, 3, 2)),
        ([("Conv", {"group": 2}), ("GlobalMaxPool", {})], 64, (64, 32, 1, 1)),
    ],
)
def test_blocks_of_channels(nodes: Any, channels: int, weights: tuple[int, ...], tmp_path: Any) -> None:
    """What the optimizer writes for this processor, of networks whose channels are no whole blocks too."""
    random = np.random.default_rng(3)
    made, name = [onnx.helper.make_node("Conv", ["x", "first"], ["v0"], pads=[1, 1, 1, 1])], "v0"
    for i, (op, named) in enumerate(nodes, 1):
        inputs = [name, "w"] if op == "Conv" else [name]
        name = f"v{i}"
        made.append(onnx.helper.make_node(op, inputs, [name], **named))
    constants = {"first": floats(random, channels, 3, 3, 3), "w": floats(random, *weights)}
    x = floats(random, 1, 3, 7, 6)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        made,
        "graph",
        [info("x", 1, x.shape)],
        [info(name, 1, None)],
        [onnx.numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    whole = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "blocked.onnx")
    session = onnxruntime.InferenceSession(whole.SerializeToString(), options, providers=["CPUExecutionProvider"])
    blocked = onnx.load(options.optimized_model_filepath)
    assert {node.op_type for node in blocked.graph.node if node.domain.endswith("nchwc")} >= {"Conv", "ReorderOutput"}
    (got,), (want,) = backend.run_model(blocked, [x]), session.run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert block_size() in (4, 8, 16)


@pytest.mark.parametrize(
    ("op", "shapes", "named", "message"),
    [
        ("Attention", [(2, 3, 5), (5, 24), (24,)], {"num_heads": 5}, "5 heads"),
        ("Attention", [(2, 3, 5), (5, 24), (24,)], {"num_heads": 2, "do_rotary": 1}, "attribute do_rotary requires 0"),
        ("FusedConv", [(1, 2, 5, 5), (3, 2, 3, 3)], {"activation": "Swirl"}, "attribute activation is one of"),
        ("MultiHeadAttention", [(2, 3, 8)], {"num_heads": 2}, "requires a query, a key and a value"),
        ("BiasSplitGelu", [(2, 3), (3,)], {}, "an even size"),
        ("MoE", [(2, 4), (2, 3), (3, 8, 4), None, (3, 4, 8)], {}, "no meaning here: .*experts"),
    ],
)
def test_bad_nodes(op: str, shapes: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ours(op, f(*shapes)(np.random.default_rng(0)), domain=DOMAIN, **named)
