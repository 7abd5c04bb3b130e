"""Tests nodes whose result shape depends on data: the refusal names the node and a remedy, and the remedy works."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from differences import results

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.ir.option_hints import command_line

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from glenside.cli.application import run as run_command  # noqa: E402
from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.importers.onnx.sessions import Session  # noqa: E402

RELU = "r = Relu(x)"
ZERO_AND_ONE = "z = Constant<value=int64 {0}>() o = Constant<value=int64 {1}>()"
BODY = "body = b (int64 i, bool k, float[2,6] u) => (bool k2, float[2,6] v)"
LONGER = "{ s = ReduceSum<keepdims=0>(u) m = Constant<value=float {30.0}>() k2 = Less(s, m) v = Add(u, u) }"
MODELS = {
    "NonZero": ("float[2,6] x", f"{RELU} i = NonZero(r) t = Transpose(i) y = GatherND(r, t)"),
    "Reshape": ("float[2,6] x, int64[2] shape", f"{RELU} y = Reshape(r, shape)"),
    "Reshape by two inputs": (
        "float[2,6] x, int64[1] one, int64[1] other",
        f"{RELU} c = Concat<axis=0>(one, other) y = Reshape(r, c)",
    ),
    "Expand": ("float[2,6] x, int64[3] sizes", f"{RELU} y = Expand(r, sizes)"),
    "Range": ("float[2,6] x, int64 limit", f"{RELU} {ZERO_AND_ONE} t = Range(z, limit, o) y = Gather(r, t)"),
    "Range to a sum": (
        "float[2,6] x",
        f"{RELU} {ZERO_AND_ONE} s = ReduceMax<keepdims=0>(r) h = Cast<to=7>(s) y = Range(z, h, o)",
    ),
    "OneHot": (
        "int64[5] x, int64 depth",
        "v = Constant<value=float[2] {0.0, 1.0}>() i = Abs(x) y = OneHot(i, depth, v)",
    ),
    "Slice": ("float[8,6] x, int64[1] begin, int64[1] end", f"{RELU} y = Slice(r, begin, end)"),
    "Tile": ("float[2,6] x, int64[2] sizes2", f"{RELU} y = Tile(r, sizes2)"),
    "TopK": ("float[2,6] x, int64[1] one", f"{RELU} y, i = TopK(r, one)"),
    "Pad": ("float[2,6] x, int64[4] pads", f"{RELU} y = Pad(r, pads)"),
    "ConstantOfShape": ("float[2,6] x, int64[2] shape", f"{RELU} y = ConstantOfShape(shape)"),
    "Compress": ("float[2,6] x, bool[2] chosen", f"{RELU} y = Compress<axis=0>(r, chosen)"),
    "Unique": ("float[2,6] x", f"{RELU} y = Unique(r)"),
    "NonMaxSuppression": (
        "float[1,8,4] boxes, float[1,2,8] scores",
        "m = Constant<value=int64[1] {3}>() t = Constant<value=float[1] {0.5}>() "
        "e = Abs(scores) y = NonMaxSuppression(boxes, e, m, t)",
    ),
    "Split": ("float[8,6] x, int64[2] halves", f"{RELU} y, z = Split<axis=0>(r, halves)"),
    "If": (
        "float[2,6] x, bool yes",
        f"{RELU} y = If(yes)<then_branch = t () => (float[2,6] p) {{ p = Neg(r) }}, "
        "else_branch = e () => (float[6,2] q) { q = Transpose(r) }>",
    ),
    "Loop": (
        "float[2,6] x, int64 limit",
        f"{RELU} d = Constant<value=int32 {{1}}>() c = Cast<to=9>(d) "
        f"y = Loop(limit, c, r)<{BODY} {{ k2 = Identity(k) v = Add(u, u) }}>",
    ),
    "Loop while": (
        "float[2,6] x, bool yes",
        f"{RELU} n = Constant<value=int64 {{5}}>() y = Loop(n, yes, r)<{BODY} {LONGER}>",
    ),
    "CumSum": ("float[2,6] x, int64 o", f"{RELU} y = CumSum(r, o)"),
    "ReduceSum": ("float[2,6] x, int64[1] one", f"{RELU} y = ReduceSum(r, one)"),
}
"""What is refused: inputs, nodes. The operator is the first word."""
RNG = np.random.default_rng(7)
VALUES: dict[str, Any] = {
    "x": np.round(RNG.uniform(0, 4, (8, 6))),
    "shape": np.array([3, 4]),
    "one": np.array([1]),
    "other": np.array([12]),
    "sizes": np.array([4, 2, 6]),
    "sizes2": np.array([1, 3]),
    "limit": np.array(2),
    "depth": np.array(4),
    "begin": np.array([1]),
    "end": np.array([5]),
    "pads": np.array([1, 0, 2, 1]),
    "chosen": np.array([False, True]),
    "boxes": RNG.uniform(0, 1, (1, 8, 4)),
    "scores": RNG.uniform(0, 1, (1, 2, 8)),
    "halves": np.array([3, 5]),
    "yes": np.array(True),
    "o": np.array(1),
}


def model(name: str) -> Any:
    inputs, nodes = MODELS[name]
    made = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[a] y) {{ {nodes} }}'
    )
    made.graph.output[0].ClearField("type")  # onnxruntime infers it
    return made


def values_of(made: Any) -> dict[str, Any]:
    """Returns a value for each input."""
    found = {}
    for formal in made.graph.input:
        kind = formal.type.tensor_type
        dims = tuple(dim.dim_value for dim in kind.shape.dim)
        value = (
            VALUES[formal.name] if formal.name != "x" else VALUES["x"].reshape(-1)[: int(np.prod(dims))].reshape(dims)
        )
        found[formal.name] = value.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return found


def hinted(message: str) -> tuple[list[str], str]:
    """Returns the inputs and the outputs that a message tells to give."""
    if "--input" in message or "--outputs" in message:
        words = [word.strip(";") for word in shlex.split(message)]
        pairs = list(pairwise(words))
        return [b.split("=")[0] for a, b in pairs if a == "--input"], next(
            (b for a, b in pairs if a == "--outputs"), ""
        )
    inputs = re.search(r"values=\{([^}]*)\}", message)
    outputs = re.search(r"outputs=\[([^\]]*)\]", message)
    return (
        re.findall(r'"([^"]*)": \.\.', inputs[1] if inputs else ""),
        ",".join(re.findall(r'"([^"]*)"', outputs[1] if outputs else "")),
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_refusal_names_the_node_and_what_helps_does(tmp_path: Path, name: str) -> None:
    made, path = model(name), tmp_path / "net.onnx"
    onnx.save(made, path)
    every, given = values_of(made), dict[str, Any]()
    for _ in range(len(every) + 1):
        try:
            program = gl.load(path, values=given)
            break
        except BadInput as error:
            message = str(error)
        with command_line(), pytest.raises(BadInput) as again:
            gl.load(path, values=given)
        assert f"({name.split()[0]}): " in message, "the operator is named"
        assert "net.onnx: node " in message
        assert "--" not in message, "Python's words are not those of the command line"
        assert hinted(message) == hinted(str(again.value))
        names, outputs = hinted(message)
        assert names, "an input is named"
        if outputs:
            assert gl.load(path, values=given, outputs=outputs).result_names() == outputs.split(",")
        given |= {n: every[n] for n in names}
    assert given, "it was refused"
    want = Session(path, "the model").run(every)
    for a, b in zip(want, results(program, {n: every[n] for n in program.inputs}), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6)


def test_the_command_line_takes_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    made = model("Slice")
    onnx.save(made, tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", values_of(made)["x"])
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["glenside", *words])
        status, told = run_command(), capsys.readouterr()
        return status, told.out + told.err

    status, said = command("check", "net.onnx")
    assert status == 2
    assert "--input begin=VALUE makes it known; --outputs r drops" in said
    assert command("check", "net.onnx", "--outputs", "r")[0] == 0
    status, said = command("check", "net.onnx", "--input", "begin=[1]")
    assert "--input end=VALUE makes it known" in said
    words = ("run", "net.onnx", "--input", "begin=[1]", "--input", "end=[5]", "--input", "x=x.npy", "-o", "y.npy")
    assert command(*words)[0] == 0
    assert np.array_equal(np.load(tmp_path / "y.npy"), values_of(made)["x"][1:5])


def test_names_are_quoted_where_a_shell_needs_that() -> None:
    made = model("Reshape")
    for node in made.graph.node:
        node.input[:] = ["the shape" if n == "shape" else n for n in node.input]
    made.graph.input[1].name = "the shape"
    with command_line(), pytest.raises(BadInput, match="--input 'the shape=VALUE' makes it known"):
        program_of_model(made)


def test_no_input_is_named_where_it_does_not_help() -> None:
    """Random numbers are not known when the inputs are."""
    nodes = "r = Relu(x) m = RandomNormalLike(r) i = NonZero(m) y = Cast<to=1>(i)"
    made = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,6] x) => (float[2,n] y) {{ {nodes} }}'
    )
    with pytest.raises(BadInput, match=r"requires the type|depends on data|requires all sizes") as refused:
        program_of_model(made, allow_opaque=True)
    assert "values=" not in str(refused.value)
