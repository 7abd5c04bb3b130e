"""Compares RNN, GRU and LSTM with onnxruntime on random sizes and attributes, and tests their layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.importers.onnx import backend as onnx_backend  # noqa: E402
from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.importers.onnx.operators.recurrent import ACTIVATIONS  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402
from glenside.semantics.interpreter import evaluate  # noqa: E402

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
NAMES = "Relu Tanh Sigmoid Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu Softsign Softplus".split()
INPUTS = ("X", "W", "R", "B", "lengths", "h", "c", "P")


def network(op: str, values: dict[str, Array], constants: tuple[str, ...] = (), version: int = 14, **more: Any) -> Any:
    """One node named net, of these of its inputs, some of them constants."""
    names = [name if name in values else "" for name in INPUTS]
    while not names[-1]:
        names.pop()
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, names, outputs, name="net", **more)
    formals = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in values.items()
        if n not in constants
    ]
    kept = [onnx.numpy_helper.from_array(values[n], n) for n in constants]
    graph = helper.make_graph(
        [node], "g", formals, [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs], kept
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9)


def drawn(op: str, seed: int) -> tuple[dict[str, Array], dict[str, Any]]:
    """Returns inputs and attributes: each optional input is there in about half of the cases."""
    random = np.random.default_rng(seed)
    direction = ("forward", "reverse", "bidirectional")[seed % 3]
    d = 1 + (direction == "bidirectional")
    steps, batch, size, hidden = (int(n) for n in random.integers(1, 5, 4))
    rows = GATES[op] * hidden

    def array(*dims: int) -> Array:
        return (0.4 * random.standard_normal(dims)).astype(np.float32)

    values = {"X": array(steps, batch, size), "W": array(d, rows, size), "R": array(d, rows, hidden)}
    optional = {
        "B": array(d, 2 * rows),
        "lengths": random.integers(1, steps + 1, batch).astype(np.int32),
        "h": array(d, batch, hidden),
    }
    more: dict[str, Any] = {"direction": direction, "hidden_size": hidden}
    if op == "LSTM":
        optional |= {"c": array(d, batch, hidden), "P": array(d, 3 * hidden)}
        more["input_forget"] = int(random.integers(2))
    if op == "GRU":
        more["linear_before_reset"] = int(random.integers(2))
    values |= {name: value for name, value in optional.items() if random.random() < 0.6}
    if random.random() < 0.4:
        more["clip"] = float(random.uniform(0.1, 1))
    if random.random() < 0.7:
        picked = [NAMES[i] for i in random.integers(0, len(NAMES), FUNCTIONS[op] * d)]
        records = [ACTIVATIONS[name.lower()] for name in picked]
        counts = [sum(getattr(r, kind) is not None for r in records) for kind in ("alpha", "beta")]
        more |= {"activations": picked} | {
            f"activation_{kind}": random.uniform(0.2, 1.5, count).tolist()
            for kind, count in zip(("alpha", "beta"), counts, strict=True)
            if count
        }
    return values, more


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("op", GATES)
def test_as_onnxruntime(op: str, seed: int) -> None:
    values, more = drawn(op, 100 * len(op) + seed)
    model = network(op, values, **more)
    want = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, values)
    for g, w in zip(onnx_backend.run_model(model, values), want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
def test_a_batch_may_come_first(op: str) -> None:
    values, more = drawn(op, 2)
    plain = onnx_backend.run_model(network(op, values, **more), values)
    turned = {n: np.ascontiguousarray(v.swapaxes(0, 1)) if n in ("X", "h", "c") else v for n, v in values.items()}
    every, *last = onnx_backend.run_model(network(op, turned, layout=1, **more), turned)
    assert (every == plain[0].transpose(2, 0, 1, 3)).all()
    assert all((a == b.swapaxes(0, 1)).all() for a, b in zip(last, plain[1:], strict=True))


@pytest.mark.parametrize("op", GATES)
def test_lengths_that_depend_on_data_are_masks(op: str) -> None:
    values, more = drawn(op, 5)
    values["lengths"] = np.array([values["X"].shape[0], *[0] * (values["X"].shape[1] - 1)], np.int32)
    open_, known = (program_of_model(network(op, values, fixed, **more)) for fixed in ((), ("lengths",)))
    want = evaluate([known.term], {**known.constants, **values})[0]
    got = evaluate([open_.term], {**open_.constants, **values})[0]
    assert all((a == b).all() for a, b in zip(got, want, strict=True))
    assert not got[0][:, :, 1:].any()


def test_an_empty_sequence_leaves_the_initial_state() -> None:
    values, more = drawn("LSTM", 3)
    d, rows, hidden = values["R"].shape
    batch, size = values["X"].shape[1:]
    given = {"X": np.zeros((0, batch, size), np.float32), "W": values["W"], "R": values["R"]}
    given["h"] = np.full((d, batch, hidden), 0.5, np.float32)
    y, h, c = onnx_backend.run_model(network("LSTM", given, **more), given)
    assert (y.shape, c.any()) == ((0, d, batch, hidden), False)
    assert (h == 0.5).all()
    assert rows == 4 * hidden


@pytest.mark.parametrize(("op", "direction", "products"), [("LSTM", "forward", 1), ("GRU", "bidirectional", 2)])
def test_one_layer_takes_the_inputs_of_all_steps(op: str, direction: str, products: int) -> None:
    steps, batch, size, hidden, d = 5, 2, 6, 4, 1 + (direction == "bidirectional")
    rows = GATES[op] * hidden
    values = {"X": np.zeros((steps, batch, size), np.float32)}
    draw = np.random.default_rng(0)  # weights of zeros would leave no product
    values |= {name: draw.standard_normal((d, rows, n)).astype("float32") for name, n in (("W", size), ("R", hidden))}
    model = network(op, values, ("W", "R"), direction=direction, hidden_size=hidden)
    program = program_of_model(model)
    # The first step has no state to multiply.
    assert len(program.layers) == 1 + products * (steps - 1)
    result = gl.optimize(program, gl.SystolicArray(4, 4))
    assert {(row.mapped, row.checked) for row in result.report.layers} == {(True, "exact")}
    first = result.report.layers[0]
    assert first.name == "net.inputs"
    assert (first.groups, first.m, first.k, first.n) == (1, steps * batch, size, d * rows)
    recurrent = next(row for row in result.report.layers if row.name == "net.step1")
    assert (recurrent.groups, recurrent.m, recurrent.k) == (d, batch, hidden)


@pytest.mark.parametrize(
    ("changes", "more", "message"),
    [
        ({}, {"direction": "both"}, "attribute direction is one of forward, reverse, bidirectional"),
        ({}, {"hidden_size": 5}, "attribute hidden_size requires 3 as input 2 has it, got 5"),
        ({}, {"layout": 2}, "attribute layout is 0 or 1, got 2"),
        ({}, {"activations": ["Tanh"]}, "attribute activations requires 3 names, got 1"),
        ({}, {"activations": ["Tanh", "Tanh", "Swish"]}, "requires names of relu, .*, got 'Swish'"),
        ({}, {"activations": ["Affine"] * 3}, "attribute activation_alpha requires a number for affine, got none"),
        ({"W": (1, 12, 3)}, {}, r"inputs 1 and 2 require weights of \(1 12 2\) and \(1 12 3\)"),
        ({"X": (4, 2)}, {}, "inputs 0 to 2 require three axes"),
        ({"B": (1, 12)}, {}, r"input 3 requires biases of \(1 24\)"),
        ({"h": (1, 3, 3)}, {}, r"input 5 requires a state of \(1 2 3\)"),
        ({"P": (1, 12)}, {}, r"input 7 requires peepholes of \(1 9\)"),
        ({"X": (5000, 2, 2)}, {}, "a sequence is unrolled into 4096 steps at most, got 5000"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, tuple[int, ...]], more: dict[str, Any], message: str) -> None:
    dims = {"X": (4, 2, 2), "W": (1, 12, 2), "R": (1, 12, 3)} | changes
    values = {name: np.zeros(size, np.float32) for name, size in dims.items()}
    with pytest.raises(BadInput, match=rf"node net \(LSTM\): .*{message}"):
        program_of_model(network("LSTM", values, **more))


def test_lengths_that_do_not_fit_are_named() -> None:
    values, more = drawn("RNN", 1)
    values["lengths"] = np.ones(values["X"].shape[1] + 1, np.int32)
    with pytest.raises(BadInput, match=f"input 4 requires {values['X'].shape[1]} lengths"):
        program_of_model(network("RNN", values, **more))
