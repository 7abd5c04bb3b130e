"""Tests that commands and Python functions read and write ONNX as they do Glenside's own formats."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_graphs import Graph  # noqa: E402
from onnx_networks import run_onnxruntime  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.check.onnxruntime import check_onnxruntime  # noqa: E402
from glenside.formats import load, save  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.packages import install_command  # noqa: E402
from glenside.sweep.cells import cells  # noqa: E402

DIMS = ("--dim", "N=1", "--dim", "height=9")
ARRAY = ("--array", "4x4")


def network(seed: int = 0) -> Any:
    """Returns a convolution and a product, a mask that selects, a table that words pick from; two outputs, one of
    integers.
    """
    g = Graph("main_graph", opset=17, seed=seed)
    x, mask, word = g.input("x", ["N", 2, "height", 5]), g.input("mask", ["N"], 7), g.input("word", ["N"], 7)
    g.input("unused", [3])
    features = g.node("GlobalAveragePool", g.node("Relu", g.conv(x, "conv1", 6, 2, stride=2)))
    seen = g.node("Add", g.node("Flatten", features), g.node("Gather", g.weight("words", 3, 6), word))
    shown = g.node("Mul", seen, g.node("Unsqueeze", g.node("Cast", mask, to=1), g.tensor([1])))
    scores = g.linear(shown, "fc", 7, 6)
    best = g.node("ArgMax", scores, axis=1, keepdims=0)
    return g.model({scores: 2, best: 1}, integers=[best])


NAMES = [value.name for value in network().graph.output]
INPUTS = {
    "x": np.random.default_rng(5).standard_normal((1, 2, 9, 5)).astype(np.float32),
    "mask": np.array([1]),
    "word": np.array([2]),
}


FED = {**INPUTS, "unused": np.zeros(3, np.float32)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the network, its inputs, and files that are not what they should be."""
    path = tmp_path_factory.mktemp("onnx")
    onnx.save(network(), path / "net.onnx")
    for name, array in INPUTS.items():
        np.save(path / f"{name}.npy", array)
    (path / "text.onnx").write_text("(input a (shape 5 9))")
    (path / "other.json").write_text('{"layers": []}')
    g = Graph("odd")
    onnx.save(g.model({g.node("Sin", g.input("a", [3])): 1}), path / "odd.onnx")
    odd = onnx.load(path / "odd.onnx")
    odd.graph.node[0].op_type = "Sine"
    onnx.save(odd, path / "odd.onnx")
    return path


@pytest.fixture
def net(folder: Path) -> Path:
    return folder / "net.onnx"


def expected(path: Path) -> list[Any]:
    return run_onnxruntime(str(path), FED)


def agree(got: Any, want: Any) -> None:
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_tensorize_reports_layers_by_the_names_of_nodes(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "r.json"
    assert run("tensorize", net, *DIMS, *ARRAY, "--json", report, "--check", "onnxruntime") == 0
    printed = capsys.readouterr().out
    assert "net on systolic-array:4x4" in printed
    assert "2 of 2 mapped" in printed
    assert "Check in onnxruntime: equal" in printed
    content = json.loads(report.read_text())
    assert content["program"] == "net"
    products = [node.name for node in network().graph.node if node.op_type in ("Conv", "MatMul")]
    assert [row["name"] for row in content["layers"]] == products
    assert [row["operator"] for row in content["layers"]] == ["conv 3x3/2", "matmul"]
    assert content["checked"] == "exact"
    assert content["onnxruntime"]["equal"] is True
    assert 0 <= content["onnxruntime"]["error"] < 1e-5


@pytest.mark.parametrize("ending", ["onnx", "json", "glenside"])
def test_what_is_written_loads_again_and_computes_the_same(ending: str, net: Path, tmp_path: Path) -> None:
    out, result = tmp_path / f"out.{ending}", tmp_path / "y.npz"
    assert run("tensorize", net, *DIMS, *ARRAY, "-o", out) == 0
    inputs = [f"--input={name}={net.parent / name}.npy" for name in INPUTS]
    weights = ["--weights", out.with_suffix(".npz")] if ending == "glenside" else []
    assert run("run", out, *weights, *inputs, "-o", result) == 0
    names = NAMES if ending != "glenside" else ["output_0", "output_1"]
    with np.load(result) as arrays:
        agree([arrays[name] for name in names], expected(net))
    program = gl.load(out, weights=weights[1] if weights else None)
    assert program.name == "out" if ending != "json" else "net"
    agree(gl.evaluate([program.term], {**program.constants, **INPUTS})[0], expected(net))
    if ending == "onnx":
        written = onnx.load(out).graph
        assert [value.name for value in written.output] == NAMES
        assert [value.name for value in written.input] == ["x", "mask", "word", "unused"]
        agree(run_onnxruntime(str(out), FED), expected(net))


def test_run_takes_open_sizes_from_its_inputs(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = [f"--input={name}={net.parent / name}.npy" for name in INPUTS]
    assert run("run", net, *inputs, "-o", tmp_path / "y.npz") == 0
    with np.load(tmp_path / "y.npz") as arrays:
        agree([arrays[name] for name in NAMES], expected(net))
    assert run("run", net, *inputs, "-o", tmp_path / "y.npy") == 2
    assert "the program gives 2; give an .npz file" in capsys.readouterr().err


def test_folded_weights_go_into_the_file(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "folded.onnx"
    more = ("--emit", "folded", "-o", out, "--check", "onnxruntime")
    assert run("optimize", net, *DIMS, *ARRAY, *more) == 0
    assert "Check in onnxruntime: equal" in capsys.readouterr().err
    assert any(tensor.name.startswith("folded") for tensor in onnx.load(out).graph.initializer)
    agree(run_onnxruntime(str(out), FED), expected(net))


def test_a_file_may_take_its_own_place(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(net.read_bytes())
    assert run("tensorize", path, *DIMS, *ARRAY, "-o", path, "--check", "onnxruntime") == 0
    assert "Check in onnxruntime: equal" in capsys.readouterr().out
    agree(run_onnxruntime(str(path), FED), expected(net))


@pytest.mark.slow
def test_other_commands_take_it_too(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", net, *DIMS) == 0
    assert "net: (tuple ()(1 7) float32 ()(1) int64)" in capsys.readouterr().out
    assert run("compare", net, *DIMS, *ARRAY, "--plot", tmp_path / "c.png") == 0
    assert "2 of 2 mapped" in capsys.readouterr().out
    assert run("optimize", net, *DIMS, *ARRAY, "--emit", "report", "--check", "onnxruntime") == 0
    assert json.loads(capsys.readouterr().out)["onnxruntime"]["equal"] is True
    assert run("sweep", net, *DIMS, "mobilenet-v1", "--set", "resolution=32", "--arrays", "8x8", "--json", "-") == 0
    first, second = json.loads(capsys.readouterr().out)["cells"]
    assert (first["model"], first["layers"], second["model"]) == ("net", 2, "mobilenet-v1")


BAD = {
    "no such file": ("tensorize {0}/none.onnx --array 4x4", "none.onnx: cannot be read: No such file"),
    "not ONNX": ("tensorize {0}/text.onnx --array 4x4", "text.onnx: is not an ONNX file"),
    "open sizes": ("tensorize {0}/net.onnx --array 4x4", "axis 0 (N) and axis 2 (height); --dim N=1 --dim height=64"),
    "unknown name": ("check {0}/net.onnx --dim M=1", "a size is given for M, but the dimensions of the model are N, "),
    "no number": (
        "check {0}/net.onnx --dim N=one",
        "the size of the dimension N, as in --dim N=1, is a whole number from 0",
    ),
    "negative": ("check {0}/net.onnx --dim N=-1", "from 0 to 9223372036854775807, got -1"),
    "no size": ("check {0}/net.onnx --dim N", "--dim is written NAME=VALUE"),
    "wrong rank": ("check {0}/net.onnx --shape x=1,2", "net.onnx: input x requires a shape of 4 sizes, got (1 2)"),
    "unknown input": ("run {0}/net.onnx --input z={0}/x.npy", "a value is given for z, but the inputs of the model"),
    "unknown operator": ("check {0}/odd.onnx", "odd.onnx: node /Sin_0 (Sine): the operator Sine of version 17"),
    "black box that runs": ("run {0}/odd.onnx --allow-opaque", "(Sine): a black box requires all sizes"),
    "sizes of a model": ("tensorize mobilenet-v1 --array 4x4 --dim N=1", "mobilenet-v1 is a built-in model"),
    "boxes of a text": ("check {0}/other.json --allow-opaque", "black boxes are for .onnx files, got"),
    "other JSON": ("check {0}/other.json", '"format": "glenside-program"'),
    "shapes of JSON": ("check {0}/other.json --shape a=1", "other.json has its own"),
    "unknown check": ("tensorize {0}/net.onnx --array 4x4 --check fast", "--check is one of exact, onnxruntime"),
    "idle sizes": ("sweep mobilenet-v1 --arrays 4x4 --dim N=1", "for .onnx files, and the sweep has none"),
    "output is a folder": ("tensorize {0}/net.onnx --array 4x4 -o {0}", "it is a folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_status_2(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, words = BAD[name]
    before = sorted(folder.iterdir())
    assert run(*command.format(folder).split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("glenside: error: ")
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_at_once(
    package: str, net: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    source = net if package == "onnx" else "mobilenet-v1"
    assert run("tensorize", source, *ARRAY, "--check", "onnxruntime") == 2
    assert f"the package {package}: {install_command('onnx')}" in capsys.readouterr().err
    if package == "onnx":  # which nothing else needs
        assert run("tensorize", "mobilenet-v1", *ARRAY, "--set", "resolution=32", "--no-check") == 0


def boxed(op: str, **attributes: Any) -> Any:
    """Returns a product whose result goes through an operator that has no meaning here."""
    g = Graph("boxed")
    product = g.node("MatMul", g.input("x", [3, 4]), g.weight("w", 4, 5))
    return g.model({g.node("Add", product, g.node(op, product, **attributes)): 2})


def test_black_boxes_are_kept_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "boxed.onnx", tmp_path / "out.onnx"
    onnx.save(boxed("RandomNormalLike"), path)
    assert run("check", path) == 2
    assert "(RandomNormalLike)" in (message := capsys.readouterr().err)
    assert "--allow-opaque" in message
    assert run("tensorize", path, *ARRAY, "--allow-opaque", "-o", out) == 0
    assert "RandomNormalLike" in {node.op_type for node in onnx.load(out).graph.node}
    assert run("run", path, "--allow-opaque", "--seed", "1") == 2
    assert "glenside: error: a run " in capsys.readouterr().err


def test_what_differs_in_onnxruntime_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The noise that both files draw is not the same: they are equal as programs, and differ when they run."""
    onnx.save(boxed("RandomNormalLike"), tmp_path / "boxed.onnx")
    command = ("tensorize", tmp_path / "boxed.onnx", *ARRAY, "--allow-opaque")
    assert run(*command) == 0
    capsys.readouterr()
    assert run(*command, "--check", "onnxruntime") == 1
    printed = capsys.readouterr().out
    assert "1 of 1 mapped" in printed
    assert "Check in onnxruntime: the output is not compared: that of the original is itself" in printed
    assert "The exact check finds no difference" in printed


def test_what_onnxruntime_does_not_run_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g = Graph("warped")
    product = g.node("MatMul", g.input("x", [3, 4]), g.weight("w", 4, 5))
    model = g.model({g.node("Relu", product): 2})
    model.graph.node[1].domain, model.graph.node[1].op_type = "acme", "Warp"
    model.opset_import.add(domain="acme", version=1)
    model.graph.output[0].type.CopyFrom(onnx.helper.make_tensor_type_proto(1, [3, 5]))
    onnx.save(model, tmp_path / "warped.onnx")
    command = ("tensorize", tmp_path / "warped.onnx", *ARRAY, "--allow-opaque", "--check", "onnxruntime")
    assert run(*command, "--json", tmp_path / "r.json") == 1
    printed = capsys.readouterr().out
    assert "not compared, onnxruntime does not load the original (warped.onnx): " in printed
    assert "Warp" in printed
    assert json.loads((tmp_path / "r.json").read_text())["onnxruntime"]["equal"] is False


def test_the_check_in_onnxruntime_sees_differences(net: Path) -> None:
    program = gl.load(net, dims={"N": 1, "height": 9})
    assert check_onnxruntime(net, program, seed=3).ok
    assert check_onnxruntime(program, program).ok
    scores, best = program.term.children
    changed = gl.load(net, dims={"N": 1, "height": 9})
    doubled = changed.with_constants({"fc.bias": changed.constants["fc.bias"] + 1})
    verdict = check_onnxruntime(net, doubled)
    assert not verdict.ok
    assert verdict.error > 0.01
    assert "output 0 differs by" in str(verdict)
    one = gl.Program(scores, constants=program.constants)
    assert "the number of outputs is 1, and in the original 2" in check_onnxruntime(program, one).verdict
    other = gl.Program(best, constants=program.constants)
    assert "the output is (1) int64, and in the original (1 7) float32" in check_onnxruntime(one, other).verdict
    whole, twice = gl.Builder(), gl.Builder()
    plain = whole.finish(whole.input("a", (4,), "int32"))
    doubled = twice.finish(twice.add(a := twice.input("a", (4,), "int32"), a))
    assert " of 4 elements" in check_onnxruntime(plain, doubled).verdict


def test_integers_are_valid_indices_and_masks(net: Path) -> None:
    """Seeds that draw any word and any mask; an index out of range would be an error of onnxruntime."""
    program = gl.load(net, dims={"N": 40, "height": 2})
    for seed in range(3):
        assert check_onnxruntime(net, program, seed=seed).ok


def test_constants_without_a_value_are_drawn_by_the_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "p.glenside", tmp_path / "out.onnx"
    product = "(access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1))"
    path.write_text(f"(input a (shape 5 9)) (constant b (shape 7 9)) (compute dot-product {product})")
    contents = []
    for seed in (0, 0, 1):
        assert run("tensorize", path, *ARRAY, "--seed", seed, "-o", out, "--check", "onnxruntime") == 0
        assert f"out.onnx has random values of seed {seed} for b" in capsys.readouterr().err
        contents.append(out.read_bytes())
    assert contents[0] == contents[1] != contents[2]
    np.save(tmp_path / "a.npy", a := np.ones((5, 9), np.float32))
    assert run("run", path, "--input", f"a={tmp_path}/a.npy", "--seed", 1, "-o", tmp_path / "y.npy") == 0
    (y,) = run_onnxruntime(str(out), {"a": a})
    np.testing.assert_allclose(y, np.load(tmp_path / "y.npy"), rtol=1e-5)
    with pytest.raises(BadInput, match="value of every constant, got none of b"):
        gl.save(gl.load(path), out)


def test_answers_are_kept_by_the_program_and_not_by_its_weights(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, seed in ((first, 0), (second, 1)):
        folder.mkdir()
        given = network(seed)
        onnx.save(given, folder / "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=100)
    command = ("--json", "-", *ARRAY, *DIMS)
    cached = []
    for path in (first, second):
        assert run("tensorize", path / "net.onnx", *command, "-o", path / "out.onnx") == 0
        cached.append(json.loads(capsys.readouterr().out)["search"]["cached"])
        agree(run_onnxruntime(str(path / "out.onnx"), FED), expected(path / "net.onnx"))
    assert run("tensorize", first / "net.onnx", *ARRAY, "--json", "-", "--dim", "N=2", "--dim", "height=9") == 0
    cached.append(json.loads(capsys.readouterr().out)["search"]["cached"])
    assert cached == [False, True, False]


def test_any_name_is_shown_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [
        f"/encoder/{'attention/' * 18}MatMul",
        "[bold]x[/bold]",
        "a[/]b",
        "of two\nlines\x85",
        "$\\frac{x$",
        "层/卷积",
    ]
    g = Graph("names")
    x = g.input("x", [2, 6])
    for i in range(len(names)):
        x = g.node("MatMul", x, g.weight(f"w{i}", 6, 6))
    model = g.model({x: 2})
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name
    onnx.save(model, tmp_path / "names.onnx")
    report, plot = tmp_path / "r.json", tmp_path / "c.png"
    for _ in range(2):  # the second answer is from the cache
        assert run("tensorize", tmp_path / "names.onnx", *ARRAY, "--exact-order", "--explain", "--json", report) == 0
        printed = capsys.readouterr().out
        assert [row["name"] for row in json.loads(report.read_text())["layers"]] == names
    lines = [line.split()[0] for line in printed.splitlines() if line.strip()]
    assert "".join(lines).count(names[0]) >= 1
    for name in (*names[1:3], '"of two\\nlines\\u0085"', *names[4:]):
        assert name in printed
    assert run("compare", tmp_path / "names.onnx", *ARRAY, "--plot", plot) == 0


def test_python_has_the_same_doors(net: Path, tmp_path: Path) -> None:
    dims = {"N": 1, "height": 9}
    assert str(gl.load_onnx(net, dims=dims)) == str(gl.load(net, dims=dims))
    program = load(net, shapes={"x": (1, 2, 9, 5), "mask": (1,), "word": (1,)})
    assert gl.load is load
    assert gl.save is save
    save(program, tmp_path / "a.ONNX")
    assert onnx.load(tmp_path / "a.ONNX") == gl.export_onnx(program)
    save(program, tmp_path / "a.json")
    assert str(load(tmp_path / "a.json")) == str(program)
    assert gl.load(tmp_path / "a.json").labels == program.labels
    save(program, tmp_path / "a.txt")
    assert str(load(tmp_path / "a.txt")) == str(program)
    other = {"fc.bias": np.zeros(7, np.float32)}
    np.savez(tmp_path / "w.npz", **other)
    assert not load(net, weights=tmp_path / "w.npz", dims=dims).constants["fc.bias"].any()
    np.savez(tmp_path / "w.npz", **other, more=np.zeros(1, np.float32))
    with pytest.raises(BadInput, match=r"w\.npz: the program has no constant more"):
        load(net, weights=tmp_path / "w.npz", dims=dims)
    with pytest.raises(BadInput, match=r"a\.txt"):
        load(tmp_path / "a.txt", dims=dims)


def test_values_and_outputs_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "net.onnx", tmp_path / "out.onnx"
    g = Graph("net")
    x, rate = g.input("x", [2, 4]), g.input("rate", [], 7)
    scale = g.node("Where", g.node("Greater", rate, g.tensor(np.int64(9000))), g.tensor(2.0), g.tensor(1.0))
    y = g.node("MatMul", g.node("Mul", x, scale), g.weight("w", 4, 3))
    onnx.save(g.model({g.node("NonZero", y): 2}), path)
    asked = (path, "--outputs", y)
    np.save(tmp_path / "rate.npy", np.int64(16000))
    np.savez(tmp_path / "rates.npz", rate=np.int64(16000), other=np.int64(8000))
    for target in ("systolic-array:4x4", "cpu:8MB", "mpc:semi2k"):
        command = ("tensorize", *asked, "--input", "rate=16000", "--target", target, "--check", "onnxruntime")
        assert run(*command, "-o", out) == 0
        assert "Check in onnxruntime: equal" in capsys.readouterr().out
        written = onnx.load(out).graph
        assert [v.name for v in (*written.input, *written.output)] == ["x", y]
    x_value = np.ones((2, 4), np.float32)
    np.save(tmp_path / "x.npy", x_value)
    values = {"16000": 2, f"{tmp_path}/rate.npy": 2, f"{tmp_path}/rates.npz": 2, f"{tmp_path}/rates.npz:other": 1}
    for text, factor in values.items():
        inputs = ("--input", f"rate={text}", "--input", f"x={tmp_path}/x.npy")
        assert run("run", *asked, *inputs, "-o", tmp_path / "y.npy") == 0
        want = factor * x_value @ gl.load(path, outputs=[y]).constants["w"]
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=1e-6)
    for command, words in (
        (("check", *asked, "--input", "rate=fast"), "a number, a list such as [1,2], a .npy file, or FILE.npz:NAME"),
        (("check", *asked, "--input", f"rate={tmp_path}/rates.npz:othe"), "has no array othe; did you mean other?"),
        (("check", *asked, "--input", "rate=1", "--input", "rate=2"), "--input gives rate one value, got two"),
        (("check", "resnet-18", "--outputs", "a"), "--outputs and --allow-opaque are for .onnx files"),
        (("check", path), f"--outputs {y} drops this node"),
        (("optimize", *asked, *ARRAY, "--emit", "typed", "--check", "onnxruntime"), "and --emit typed has none"),
    ):
        assert run(*command) == 2
        assert words in capsys.readouterr().err


def test_sizes_go_to_those_models_of_a_sweep_that_have_them(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    g = Graph("other")
    onnx.save(g.model({g.linear(g.input("x", ["rows", 4]), "fc", 3, 4): 2}), tmp_path / "other.onnx")
    files = [str(net), str(tmp_path / "other.onnx")]
    found = cells(files, "8x8", dims=["N=1", "height=9", "rows=2"])
    assert [cell.program().inputs["x"].dims for cell in found] == [(1, 2, 9, 5), (2, 4)]
    command = ("sweep", *files, "--arrays", "8x8", *DIMS)
    assert run(*command, "--dim", "rows=2", "--dim", "depth=2") == 2
    assert "given for depth, but the dimensions of the models are N, height, rows" in capsys.readouterr().err
    assert run(*command) == 2
    assert "--dim rows=1 fixes them" in capsys.readouterr().err
