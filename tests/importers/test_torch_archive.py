"""Tests .pt2 files without PyTorch: files written here by hand, broken ones, and ones that would need a pickle."""

from __future__ import annotations

import copy
import json
import random
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run

import glenside as gl
from glenside.importers.torch.archive import load_pt2
from glenside.importers.torch.symbols import size_of
from glenside.ir.errors import BadInput

FLOAT = 7
W = np.arange(6, dtype="<f4").reshape(2, 3) / 4


def _tensor(*sizes: int, strides: tuple[int, ...] = (), offset: int = 0) -> dict[str, Any]:
    steps = strides or tuple(int(np.prod(sizes[i + 1 :])) for i in range(len(sizes)))
    return {
        "dtype": FLOAT,
        "sizes": [{"as_int": n} for n in sizes],
        "strides": [{"as_int": n} for n in steps],
        "storage_offset": {"as_int": offset},
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "layout": 7,
    }


def _node(target: str, result: str, *inputs: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "target": f"torch.ops.aten.{target}",
        "inputs": [{"name": name, "arg": arg, "kind": 1} for name, arg in inputs],
        "outputs": [{"as_tensor": {"name": result}}],
        "metadata": {
            "stack_trace": 'File "/a/net.py", line 4, in forward\n    return x @ self.w',
            "nn_module_stack": "",
        },
        "name": result,
    }


def _ref(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


def _parts() -> dict[str, Any]:
    """Returns the parts of a file of {"y": cos(x w^T), "rows": (relu(y), x)}."""
    graph = {
        "inputs": [_ref("p_w"), _ref("x")],
        "outputs": [_ref("y")],
        "nodes": [
            _node("linear.default", "h", ("input", _ref("x")), ("weight", _ref("p_w"))),
            _node("cos.default", "y", ("self", _ref("h"))),
            _node("relu.default", "z", ("self", _ref("y"))),
        ],
        "tensor_values": {"x": _tensor(4, 3), "p_w": _tensor(2, 3), **{n: _tensor(4, 2) for n in "hyz"}},
        "sym_int_values": {},
        "sym_bool_values": {},
    }
    leaf = {"type": None, "context": None, "children_spec": []}
    rows = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf, leaf]}
    spec = [1, {"type": "builtins.dict", "context": '["y", "rows"]', "children_spec": [leaf, rows]}]
    module = {
        "graph": graph,
        "signature": {
            "input_specs": [
                {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "fc.w"}},
                {"user_input": {"arg": _ref("x")}},
            ],
            "output_specs": [{"user_output": {"arg": _ref(name)}} for name in ("y", "z", "x")],
        },
        "module_call_graph": [{"fqn": "", "signature": {"out_spec": json.dumps(spec)}}],
    }
    weight = {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": _tensor(2, 3)}
    return {
        "archive_format": b"pt2",
        "byteorder": b"little",
        "models/model.json": {"graph_module": module, "opset_version": {}, "schema_version": {"major": 8, "minor": 1}},
        "data/weights/model_weights_config.json": {"config": {"fc.w": weight}},
        "data/constants/model_constants_config.json": {"config": {}},
        "data/weights/weight_0": W.tobytes(),
        "data/sample_inputs/model.pt": b"\x80\x04a pickle that nothing may read",
    }


def _written(path: Path, parts: dict[str, Any], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, part in parts.items():
            archive.writestr(f"m/{name}", part if isinstance(part, bytes) else json.dumps(part))
    return path


def test_a_file_is_read_and_its_weights_are_views_of_it(tmp_path: Path) -> None:
    program = gl.load(_written(tmp_path / "net.pt2", _parts()))
    assert (program.name, list(program.inputs), program.signature.outputs) == ("net", ["x"], ("y", "rows.0", "rows.1"))
    assert not program.constants["fc.w"].flags.owndata
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)
    (found,) = gl.evaluate([program.term], {**program.constants, "x": x})
    want = np.cos(x @ W.T)
    for ours, theirs in zip(found, (want, np.maximum(want, 0), x), strict=True):
        assert np.allclose(ours, theirs, atol=1e-6)


def _changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    parts = copy.deepcopy(_parts())
    change(parts)
    return parts


def _graph(parts: dict[str, Any]) -> Any:
    return parts["models/model.json"]["graph_module"]["graph"]


def _weight(parts: dict[str, Any]) -> Any:
    return parts["data/weights/model_weights_config.json"]["config"]["fc.w"]


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "pickled": (lambda p: _weight(p).update(use_pickle=True), "the value of fc.w is pickled, and nothing is unpickled"),
    "strides": (lambda p: _weight(p).update(tensor_meta=_tensor(2, 3, strides=(9, 1))), "has 24 bytes, too few for"),
    "offset": (lambda p: _weight(p).update(tensor_meta=_tensor(2, 3, offset=1)), "has 24 bytes, too few for"),
    "open": (
        lambda p: _graph(p)["tensor_values"]["x"]["sizes"].__setitem__(
            0, {"as_expr": {"expr_str": "__import__('os')"}}
        ),
        "input x: the size __import__.* has no meaning here",
    ),
    "size": (lambda p: _graph(p)["tensor_values"]["x"]["sizes"].__setitem__(0, {"as_int": -1}), "a size of input x"),
    "dtype": (lambda p: _graph(p)["tensor_values"]["h"].update(dtype=33), "dtype float8_e8m0fnu, which is not"),
    "operator": (
        lambda p: _graph(p)["nodes"][1].update(target="torch.ops.aten.from_file.default"),
        "node y .aten.from_f",
    ),
    "python": (lambda p: _graph(p)["nodes"][1].update(target="os.system"), "node y .os.system., net.py:4 in forward"),
    "random": (lambda p: _graph(p)["nodes"][1].update(target="torch.ops.aten.rand.default"), "rand is refused: random"),
    "result": (lambda p: _graph(p)["tensor_values"].update(y=_tensor(2, 4)), "requires a result of .2 4. float32"),
    "format": (lambda p: p.update(archive_format=b"pt3"), "is not a .pt2 file: it has no archive_format of pt2"),
    "order": (lambda p: p.update(byteorder=b"big"), "requires numbers in little-endian order"),
    "schema": (lambda p: p["models/model.json"].update(schema_version={"major": 99}), "is of version 99 of the schema"),
    "two": (lambda p: p.update({"models/other.json": {}}), "requires one exported program, got 2: model, other"),
    "missing": (lambda p: p.pop("data/weights/weight_0"), "has no part data/weights/weight_0"),
    "old": (lambda p: p.update({"serialized_exported_program.json": {}}), "is of a PyTorch before 2.8"),
    "state": (
        lambda p: p["models/model.json"]["graph_module"]["signature"]["output_specs"].append(
            {"buffer_mutation": {"arg": {"name": "y"}, "buffer_name": "calls"}}
        ),
        "the module changes its buffer calls in place",
    ),
    "value": (lambda p: p["data/weights/model_weights_config.json"]["config"].clear(), "has no value of fc.w"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    change, words = CHANGES[name]
    path = _written(tmp_path / "net.pt2", _changed(change))
    with pytest.raises(BadInput, match=f"net.pt2: .*{words}"):
        load_pt2(path)


def _expression(text: str) -> dict[str, Any]:
    return {"as_expr": {"expr_str": text.replace("$", "Symbol('s7', positive=True, integer=True)"), "hint": None}}


def _open_parts() -> dict[str, Any]:
    """Returns the parts of a file of the same function of (2 s7, 3), whose y is (4 s7), which also returns s7 // 3."""
    parts = _parts()
    module, graph = parts["models/model.json"]["graph_module"], _graph(parts)
    twice, four = (
        _expression("Mul(Integer(2), $)"),
        _expression("Add(Integer(-4), Mul(Add($, Integer(1)), Integer(4)))"),
    )
    for name in ("x", "h"):
        graph["tensor_values"][name]["sizes"][0] = twice
    for name in "yz":
        graph["tensor_values"][name] = _tensor(0)
        graph["tensor_values"][name]["sizes"] = [four]
    size = {"as_sym_int": {"as_name": "rows"}}
    graph["nodes"][1:1] = [
        {"target": "_operator.mul", "inputs": [], "outputs": [size], "metadata": {}},
        _node("view.default", "v", ("self", _ref("h")), ("size", {"as_sym_ints": [{"as_name": "rows"}]})),
    ]
    graph["tensor_values"]["v"] = graph["tensor_values"]["y"]
    graph["nodes"][3]["inputs"][0]["arg"] = _ref("v")
    graph["sym_int_values"] = {"rows": four, "third": _expression("FloorDiv($, Integer(3))")}
    graph["nodes"].append(
        {"target": "_operator.floordiv", "inputs": [], "outputs": [{"as_sym_int": {"as_name": "third"}}]}
    )
    module["signature"]["output_specs"].append({"user_output": {"arg": {"as_sym_int": {"as_name": "third"}}}})
    parts["models/model.json"]["range_constraints"] = {"s7": {"min_val": 1, "max_val": 20}}
    return parts


def test_a_file_with_open_sizes_is_read_for_numbers_and_ranges(tmp_path: Path) -> None:
    path = _written(tmp_path / "net.pt2", _open_parts())
    open_ = gl.load(path, dims={"s7": (1, 20)})
    assert isinstance(open_, gl.OpenProgram)
    assert (open_.name, dict(open_.ranges)) == ("net", {"s7": (1, 20, 1)})
    for program, half in ((gl.load(path, dims={"s7": 3}), 3), (open_.at({"s7": 20}), 20)):
        assert program.signature.remarks == (f"output output_3 is {half // 3}, no tensor: it is left out",)
        x = np.linspace(-2, 2, 6 * half, dtype=np.float32).reshape(2 * half, 3)
        found, *_ = gl.evaluate([program.term], {**program.constants, "x": x})[0]
        assert np.allclose(found, np.cos(x @ W.T).reshape(-1), atol=1e-6)


@pytest.mark.needs_compiler
def test_a_file_with_open_sizes_is_compiled_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _written(tmp_path / "net.pt2", _open_parts())
    f = gl.compile(path, dims={"s7": (1, 20)}, machine="plain")
    for rows in (2, 40):
        x = np.linspace(-2, 2, 3 * rows, dtype=np.float32).reshape(rows, 3)
        assert np.allclose(f(x)[0], np.cos(x @ W.T).reshape(-1), atol=1e-6)
    assert run("compile", path, "--dim", "s7=1..20", "--machine", "generic", "-o", tmp_path / "net.c") == 0
    assert "int64_t n1" in (tmp_path / "net.c").read_text(encoding="utf-8")
    assert run("compile", path, "-o", tmp_path / "net.c") == 2
    assert "s7, of axis 0 of x, is open: give numbers or ranges, such as --dim s7=1..20" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        (None, r"the size s7, of axis 0 of x, is open: give numbers or ranges, such as dims=\{\"s7\": \(1, 20\)\}"),
        ({"n": 3}, "has no open size n; there are s7"),
        ({"s7": (1, 21)}, r"the size s7 is exported from 1 to 20, got \(1, 21\)"),
        ({"s7": 0}, "the size s7 is exported from 1 to 20, got 0"),
        ({"s7": "many"}, "the range of s7 is a whole number"),
    ],
)
def test_sizes_that_a_file_does_not_have_are_named(tmp_path: Path, dims: Any, words: str) -> None:
    with pytest.raises(BadInput, match=f"net.pt2: {words}"):
        gl.load(_written(tmp_path / "net.pt2", _open_parts()), dims=dims)
    with pytest.raises(BadInput, match=r"net.pt2: has no open size s7; all are numbers"):
        gl.load(_written(tmp_path / "net.pt2", _parts()), dims={"s7": 3})


def test_sizes_that_depend_on_data_are_refused(tmp_path: Path) -> None:
    def change(parts: dict[str, Any]) -> None:
        _graph(parts)["tensor_values"]["h"]["sizes"][0] = _expression("Symbol('u0', integer=True)")

    with pytest.raises(BadInput, match=r"net.pt2: node h: the size u0 depends on data"):
        load_pt2(_written(tmp_path / "net.pt2", _changed(change)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$", 7),
        ("Mul(Rational(1, 2), Add($, Integer(1)))", 4),
        ("FloorDiv(Add($, Integer(-1)), Integer(4))", 1),
        ("CeilToInt(IntTrueDiv($, Integer(2)))", 4),
        ("Where(StrictGreaterThan($, Integer(3)), Max($, Integer(9)), Integer(2))", 9),
        ("FloorToInt(Mul(Float('1.5', precision=53), $))", 10),
        ("PythonMod(Pow($, Integer(2)), Integer(5))", 4),
    ],
)
def test_expressions_of_sizes(text: str, found: int) -> None:
    assert size_of(_expression(text), "x", {"s7": 7}) == found


@pytest.mark.parametrize(
    "text",
    [
        "Pow($, Integer(99))",
        "eval($)",
        "$.__class__",
        "Mul(Rational(1, 2), $)",
        "FloorDiv($, Integer(0))",
        "(" * 9,
        "x" * 10_001,
    ],
)
def test_expressions_without_meaning_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="x"):
        size_of(_expression(text), "x", {"s7": 7})


def test_a_compressed_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is compressed, which torch.export.save does not do"):
        load_pt2(_written(tmp_path / "net.pt2", _parts(), zipfile.ZIP_DEFLATED))


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in items for place in _places(part, (*path, key)))]


JUNK = (None, -1, 0, 7, 1 << 70, 0.5, "", "x", "y", [], {}, [{}], {"as_int": 1}, {"as_tensor": {"name": "x"}}, True)


@pytest.mark.parametrize("seed", range(6))
def test_no_broken_json_is_a_traceback(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    names = [name for name in _parts() if name.endswith(".json")]
    for _ in range(60):
        parts = _parts()
        name = draw.choice(names)
        *path, key = draw.choice([place for place in _places(parts[name]) if place])
        holder = parts[name]
        for step in path:
            holder = holder[step]
        if draw.random() < 0.2:
            del holder[key]
        else:
            holder[key] = draw.choice(JUNK)
        _loads_or_refuses(_written(tmp_path / "net.pt2", parts))


@pytest.mark.parametrize("seed", range(4))
def test_no_broken_file_is_a_traceback(tmp_path: Path, seed: int) -> None:
    draw, path = random.Random(seed), tmp_path / "net.pt2"
    whole = _written(path, _parts()).read_bytes()
    for _ in range(60):
        data = bytearray(whole[: draw.randrange(len(whole))] if draw.random() < 0.3 else whole)
        for _ in range(draw.randrange(1, 6)):
            if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(bytes(data))
        _loads_or_refuses(path)


def _loads_or_refuses(path: Path) -> None:
    with suppress(BadInput):
        dict(load_pt2(path).constants)


def test_a_file_is_only_read(tmp_path: Path) -> None:
    program = gl.load(_written(tmp_path / "net.pt2", _parts()))
    with pytest.raises(BadInput, match=r"a .pt2 file is only read"):
        gl.save(program, tmp_path / "other.pt2")
    with pytest.raises(BadInput, match="shapes and weights are for other files"):
        gl.load(tmp_path / "net.pt2", {"x": (5, 3)})
    with pytest.raises(BadInput, match=r"cannot read .*none.pt2"):
        load_pt2(tmp_path / "none.pt2")
