"""Tests that refusals of quantization name the node of the file: its name and its operator."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

from glenside.ir.errors import GlensideError
from glenside.quantization.quantize_program import integers

onnx = pytest.importorskip("onnx")

from onnx import numpy_helper, parser  # noqa: E402

from glenside.importers.onnx import program_of_model  # noqa: E402

RNG = np.random.default_rng(5)


def model(inputs: str, body: str, **weights: Any) -> Any:
    """Returns a model whose nodes are called n0_OPERATOR, n1_OPERATOR .."""
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g ({inputs}) => (float[a] y) {{ {body} }}')
    made.graph.output[0].ClearField("type")
    for position, node in enumerate(made.graph.node):
        node.name = f"n{position}_{node.op_type}"
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    return made


def normal(*dims: int) -> np.ndarray:
    return RNG.normal(size=dims).astype(np.float32)


def refused(made: Any, quantize: str = "random") -> str:
    with pytest.raises(GlensideError) as error:
        integers(program_of_model(made), quantize)
    return str(error.value)


def attention(masked: str, mask: Any) -> Any:
    scores = "q = MatMul(x, w) k = MatMul(x, v) t = Transpose(k) s = MatMul(q, t)"
    body = f"{scores} a = {masked} p = Softmax(a) y = MatMul(p, k)"
    return model("float[4,8] x", body, w=normal(8, 8), v=normal(8, 8), mask=mask)


UPPER = np.triu(np.ones((4, 4), np.float32), 1)


@pytest.mark.parametrize(
    ("least", "node"),
    [
        (-np.inf, "n4_Add (Add)"),
        (np.finfo(np.float32).min, "n5_Softmax (Softmax)"),
        (-1e9, "n4_Add (Add)"),
        (-1e12, "n4_Add (Add)"),
    ],
)
def test_masks_of_attention(least: float, node: str) -> None:
    message = refused(attention("Add(s, mask)", np.where(UPPER > 0, np.float32(least), np.float32(0))))
    assert f"node {node}" in message


def test_a_mask_by_where() -> None:
    made = attention("Where(mask, s, low)", UPPER == 0)
    made.graph.initializer.append(numpy_helper.from_array(np.float32(-1e9), "low"))
    assert "node n4_Where (Where), select after the layer n3_MatMul: " in refused(made)


def test_a_gate_behind_a_concat() -> None:
    body = "q = MatMul(x, w) k = MatMul(x, v) c = Concat<axis=1>(q, k) s = Sigmoid(c) g = Mul(c, s) y = MatMul(g, u)"
    message = refused(model("float[4,8] x", body, w=normal(8, 8), v=normal(8, 8), u=normal(16, 8)))
    assert "node n3_Sigmoid (Sigmoid), " in message


def test_a_table_of_words() -> None:
    message = refused(model("int64[4] i", "e = Gather(t, i) y = MatMul(e, w)", t=normal(10, 8), w=normal(8, 8)))
    assert message.startswith("node n0_Gather (Gather), the input i: ")


# Operator -> a node that gives q of r, (1, 4, 6, 6).
IMAGES = {
    "PRelu": "q = PRelu(r, slopes)",
    "Resize": 'q = Resize<mode = "linear">(r, , scales)',
    "TopK": "q, i = TopK(r, two)",
    "ReduceLogSumExp": "q = ReduceLogSumExp<keepdims=1>(r, three)",
    "Where": "q = Where(truth, r, zero)",
    "ReduceProd": "q = ReduceProd<keepdims=1>(r, three)",
    "GridSample": "q = GridSample(r, grid)",
}
WEIGHTS = {
    "slopes": normal(4, 1, 1),
    "scales": np.array([1, 1, 2, 2], np.float32),
    "two": np.array([2]),
    "three": np.array([3]),
    "truth": RNG.random((1, 4, 6, 6)) > 0.5,
    "zero": np.float32(3),
    "gamma": np.abs(normal(4)),
    "beta": normal(4),
    "mean": normal(4),
    "variance": np.abs(normal(4)),
    "grid": RNG.uniform(-1, 1, (1, 5, 5, 2)).astype(np.float32),
}
BEFORE = [
    "BatchNormalization(X, gamma, beta, mean, variance)",
    *("Relu(X)", "Add(X, X)", "Sigmoid(X)", "Identity(X)", "Mul(X, slopes)"),
]


def network(seed: int, operator: str) -> Any:
    """Returns a convolution, some nodes that a machine has, the operator, and another convolution."""
    pick = random.Random(f"{seed}/{operator}")
    steps, last = [], "c"
    for i in range(pick.randrange(3)):
        steps.append(f"d{i} = {pick.choice(BEFORE).replace('X', last)}")
        last = f"d{i}"
    body = " ".join(["c = Conv(x, w)", *steps, f"r = Relu({last})", IMAGES[operator], "y = Conv(q, v)"])
    used = {name: array for name, array in WEIGHTS.items() if re.search(rf"\b{name}\b", body)}
    return model("float[1,3,8,8] x", body, w=normal(4, 3, 3, 3), v=normal(4, 4, 1, 1), **used)


@pytest.mark.parametrize("operator", IMAGES)
@pytest.mark.parametrize("seed", range(2))
def test_an_operator_that_a_machine_has_nothing_for_is_named(operator: str, seed: int) -> None:
    message = refused(network(seed, operator))
    assert f"_{operator} ({operator})" in message.split(":")[0], message


def test_a_node_that_is_a_function_has_its_own_name() -> None:
    """Mish is a function of nodes that the file does not have."""
    made = model("float[4,8] x", "c = MatMul(x, w) q = Mish(c) y = MatMul(q, w)", w=normal(8, 8))
    program = program_of_model(made)
    assert {"node n0_MatMul (MatMul)", "node n1_Mish (Mish)", "node n2_MatMul (MatMul)"} == {*program.nodes.values()}
