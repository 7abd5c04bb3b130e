"""Tests files as other tools write them: nodes in any order, inputs with values, results by name, models cut at
tensors.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx.parser import parse_model  # noqa: E402
from onnx_unchecked import info, model, node, refusal, tensor  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402
from glenside.ir.program import Program  # noqa: E402

ARRAY = gl.SystolicArray(4, 4)


def parsed(signature: str, body: str, functions: str = "") -> Any:
    domains = ', "own": 1' if functions else ""
    return parse_model(f'<ir_version: 8, opset_import: ["": 17{domains}]> g {signature} {{ {body} }} {functions}')


def results(program: Program, **inputs: Any) -> list[Array]:
    (value,) = gl.evaluate([program.term], {**program.constants, **inputs})
    return list(value) if isinstance(value, tuple) else [value]


# Nodes in any order.

CAPTURING = """
 two = Constant <value_float = 2.0> ()
 a = Mul(x, two)
 b = Neg(a)
 y = If (c) <
  then_branch = t () => (float[2] p) { h = Add(b, a) p = Relu(h) },
  else_branch = e () => (float[2] q) { q = Identity(b) }
 >
"""
FUNCTION = '<domain: "own", opset_import: ["": 17]> twice (v) => (w) { s = Neg(v) w = Sub(v, s) }'


def shuffled(made: Any, seed: int) -> Any:
    """Returns the model with the nodes of all its graphs and functions in another order."""
    random = np.random.default_rng(seed)
    result = onnx.ModelProto.FromString(made.SerializeToString())
    stack = [result.graph, *result.functions]
    while stack:
        graph = stack.pop()
        nodes = [graph.node[i] for i in random.permutation(len(graph.node))]
        kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        del graph.node[:]
        graph.node.extend(kept)
        stack += [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return result


@pytest.mark.parametrize("seed", range(6))
def test_nodes_may_stand_in_any_order(seed: int) -> None:
    capturing = parsed("(float[2] x, bool c) => (float[2] y)", CAPTURING)
    calls = parsed("(float[2] x) => (float[2] y)", "a = Relu(x) y = own.twice(a)", FUNCTION)
    for made in (capturing, calls):
        assert program_of_model(shuffled(made, seed)).term is program_of_model(made).term


def test_a_cycle_in_a_branch_is_found_too() -> None:
    body = "y = If (c) < then_branch = t () => (float[2] p) { p = Neg(r) r = Neg(p) },"
    body += " else_branch = e () => (float[2] q) { q = Neg(x) } >"
    assert "the nodes r -> p -> r form a cycle" in refusal(parsed("(float[2] x, bool c) => (float[2] y)", body))


# Inputs with values.

RATES = """
 r = Constant <value_int = 16000> ()
 c = Equal(sr, r)
 y = If (c) <
  then_branch = t () => (float[n, 3] p) { p = MatMul(x, fast) },
  else_branch = e () => (float[n, 2] q) { q = MatMul(x, slow) }
 >
"""


def rates() -> Any:
    made = parsed("(float[2, 4] x, int64 sr) => (float[n, m] y)", RATES)
    for name, width in (("fast", 3), ("slow", 2)):
        array = np.random.default_rng(width).standard_normal((4, width)).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made


@pytest.mark.parametrize(("rate", "width"), [(16000, 3), (np.int64(8000), 2), (np.array(16000), 3)])
def test_a_value_of_an_input_takes_one_branch(rate: Any, width: int) -> None:
    program = program_of_model(rates(), values={"sr": rate})
    assert list(program.inputs) == ["x"]
    assert program.signature.values["sr"] == rate
    assert len(program.layers) == 1
    assert not program.signature.remarks
    x = np.ones((2, 4), np.float32)
    weight = {3: "fast", 2: "slow"}[width]
    np.testing.assert_allclose(results(program, x=x)[0], x @ program.constants[weight], rtol=1e-6)
    assert gl.optimize(program, ARRAY).report.mapped == 1


def test_branches_that_both_stay_are_said_to_be_counted() -> None:
    alike = rates()
    alike.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "slow"))
    result = gl.optimize(program_of_model(alike), ARRAY, exact_order=True)
    assert len(result.report.layers) == 2
    assert any('both branches are computed and counted; values={"sr": ..}' in r for r in result.report.remarks)
    assert 'values={"sr": ..} makes it known' in refusal(rates())


BAD_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"sr": 1.5}, "the value of sr requires numbers of int64, got 1.5"),
    ({"sr": [1]}, "input sr requires a shape of 0 sizes, got (1)"),
    ({"sr": np.float32(1)}, "the value of sr requires dtype int64, got float32"),
    ({"sr": "fast"}, "the value of sr requires a number, or a list"),
    ({"sr": 2**70}, "the value of sr requires"),
    ({"rate": 1}, "a value is given for rate, but the inputs of the model are x, sr"),
    ({"x": [[1, 2], [3]]}, "the value of x requires a number, or a list of lists of equal lengths"),
    ({"x": np.zeros((3, 4), np.float32)}, "the value of x requires shape (2 4), got (3 4)"),
]


@pytest.mark.parametrize(("values", "words"), BAD_VALUES)
def test_values_that_do_not_fit(values: dict[str, Any], words: str) -> None:
    assert words in refusal(rates(), values=values)


def test_values_give_shapes_and_stand_before_initializers() -> None:
    open_ = model(node("Expand", "x,w"), inputs=[info("x", ("n",)), info("w", (2,), 7)])
    open_.graph.initializer.append(tensor("w", (2,), 7, int64_data=[1, 3]))
    assert str(program_of_model(open_, dims={"n": 1}).term.type) == "()(1 3) float32"
    program = program_of_model(open_, values={"w": [2, 3], "x": [1.0, 2.0, 4.0]})
    np.testing.assert_array_equal(results(program)[0], [[1, 2, 4]] * 2)
    filled = program_of_model(open_, values={"x": 7}, dims={"n": 3})
    np.testing.assert_array_equal(results(filled)[0], [[7, 7, 7]])


def test_values_of_inputs_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "p.glenside").write_text(
        "(input a (shape 2)) (input b (shape 2)) (compute elementwise-mul (access-pair "
        "(access (access-tensor a) 1) (access (access-tensor b) 1)))"
    )
    program = gl.load(tmp_path / "p.glenside", values={"b": [3, 4]})
    assert list(program.inputs) == ["a"]
    np.testing.assert_array_equal(results(program, a=np.array([1, 2], np.float32))[0], [3, 8])
    with pytest.raises(BadInput, match="a value is given for bb, which the program does not have; did you mean b"):
        gl.load(tmp_path / "p.glenside", values={"bb": 1})


# Names of results and inputs.

NAMED = """
 a = MatMul(x, w)
 scores = Relu(a)
 constant_0 = Neg(a)
 same = Relu(a)
"""


def named() -> Any:
    outputs = ", ".join(f"float[2, 4] {name}" for name in ("scores", "constant_0", "same"))
    made = parsed(f"(float[2, 3] x, float[5] spare) => ({outputs})", NAMED)
    made.graph.node[0].name = "scores"  # a layer, and so a value, of the name of a result
    weight = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return made


@pytest.mark.slow
def test_inputs_and_results_keep_their_names(tmp_path: Path) -> None:
    import onnxruntime

    original = named()
    onnx.save(original, tmp_path / "named.onnx")
    program = gl.load(tmp_path / "named.onnx")
    names = ["scores", "constant_0", "same"]
    for target in (ARRAY, gl.ConvolutionUnit("nhwc")):
        result = gl.optimize(program, target, verify=False)
        for answer in (result.program, gl.fold(result.program)):
            written = gl.export_onnx(answer)
            onnx.checker.check_model(written, full_check=True)
            assert [value.name for value in written.graph.output] == names
            assert [value.name for value in written.graph.input] == ["x", "spare"]
    assert list(result.program.layers) == ["scores"]
    inputs = {"x": np.ones((2, 3), np.float32), "spare": np.zeros(5, np.float32)}
    first, second = (onnxruntime.InferenceSession(m.SerializeToString()) for m in (original, written))
    for name in names:
        np.testing.assert_allclose(second.run([name], inputs)[0], first.run([name], inputs)[0], rtol=1e-6)
    gl.save(program, tmp_path / "named.json")
    assert gl.load(tmp_path / "named.json").result_names() == names


def test_answers_from_the_cache_keep_the_names(tmp_path: Path) -> None:
    program = program_of_model(named())
    with gl.Cache(tmp_path / "answers") as cache:
        answers = [gl.optimize(program, ARRAY, cache=cache, verify=False) for _ in range(2)]
    assert answers[1].report.cached
    assert answers[1].program.result_names() == ["scores", "constant_0", "same"]


def test_a_result_that_is_an_input_keeps_its_name() -> None:
    given = model(node("Relu"), outputs=["y", "x"])
    names = [value.name for value in gl.export_onnx(program_of_model(given)).graph.output]
    assert names == ["y", "x"]


def test_a_result_that_is_a_constant_keeps_its_name() -> None:
    given = model(node("Add", "x,w"), outputs=["y", "w"], initializer=[tensor(float_data=range(6))])
    for program in (program_of_model(given), program_of_model(given, outputs=["w", "y", "x"], values={"x": 2})):
        written = gl.export_onnx(program)
        onnx.checker.check_model(written, full_check=True)
        assert [value.name for value in written.graph.output] == [*program.signature.outputs]
        assert not {t.name for t in written.graph.initializer} & {*program.signature.outputs}


# Models cut at named tensors.

TAIL = """
 h = MatMul(x, w)
 s = Sigmoid(h)
 b = Relu(h)
 half = Constant <value_float = 0.5> ()
 m = Greater(s, half)
 places = NonZero(m)
 k = Transpose <perm = [1, 0]> (places)
 found = GatherND(b, k)
 total = ReduceSum(s)
"""


def tailed() -> Any:
    made = parsed("(float[2, 3] x, float[1] unread) => (float[n] found, int64[n, 2] k, float[1, 1] total)", TAIL)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "w"))
    return made


def test_a_refusal_says_where_to_cut_and_cutting_there_works() -> None:
    message = refusal(tailed())
    assert message.startswith("node #5 (NonZero): input 0 requires a value that is known at import")
    names = re.search(r"outputs=\[(.*)\] drops this node", message)
    assert names is not None
    assert names[1] == '"b", "m", "total"'
    program = program_of_model(tailed(), outputs=json.loads(f"[{names[1]}]"))
    assert program.result_names() == ["b", "m", "total"]
    assert gl.export_onnx(program).graph.output[0].name == "b"


def test_what_only_later_nodes_need_is_left_out() -> None:
    program = program_of_model(tailed(), outputs=["s"])
    x = np.full((2, 3), 0.1, np.float32)
    np.testing.assert_allclose(results(program, x=x)[0], 1 / (1 + np.exp(-np.full((2, 4), 0.3))), rtol=1e-6)
    assert [t.name for t in program.signature.inputs] == ["x"]
    assert program_of_model(tailed(), outputs=["total", "x"]).result_names() == ["total", "x"]


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (["foun"], 'an output is a tensor of the graph, and none is called "foun"; did you mean found?'),
        (["s", "s"], 'an output is named once, got "s" twice'),
        (["k"], 'outputs=["m"] drops this node and its readers'),
    ],
)
def test_outputs_that_cannot_be(outputs: list[str], words: str) -> None:
    assert words in refusal(tailed(), outputs=outputs)


def test_a_model_can_be_cut_before_an_operator_that_is_not_known() -> None:
    made = model(node("Relu", "x", "a"), node("Warp", "a", "b", domain="acme"), node("Neg", "b"), domains=["acme"])
    words = 'acme.Warp of version 1 has no meaning here; allow_opaque=True keeps it; outputs=["a"] drops this node'
    assert words in refusal(made)
    assert program_of_model(made, outputs=["a"]).result_names() == ["a"]


def test_a_tensor_inside_of_a_branch_is_no_output() -> None:
    assert 'none is called "p"; it is inside a branch or a loop' in refusal(rates(), outputs=["p"])


def test_nothing_is_advised_where_nothing_can_be_computed() -> None:
    assert "outputs=" not in refusal(model(node("NonZero"), outputs=["y"]))


# Sizes that do not go together.


def test_a_refusal_after_given_sizes_names_them() -> None:
    halves = model(
        node("MaxPool", "x", "a", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Concat", "x,a", "y", "both", axis=1),
        inputs=[info("x", (1, 3, "height", 8))],
    )
    message = refusal(halves, dims={"height": 8})
    assert message.startswith("node both (Concat): ")
    assert message.endswith('; its inputs are of (1 3 8 8), (1 3 4 4) with dims={"height": 8}')
    assert 'with shapes={"x": [1, 3, 6, 8]}' in refusal(halves, shapes={"x": (1, 3, 6, 8)})
