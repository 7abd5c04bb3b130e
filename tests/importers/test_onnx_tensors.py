"""Tests weights of ONNX models: inside the file, in external files, and wrong ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper
from onnx_unchecked import info, model, node, refusal, tensor

from glenside.importers.onnx import load_onnx
from glenside.importers.onnx.tensors import array_of
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.semantics.interpreter import evaluate

INT4, BFLOAT16 = TensorProto.INT4, TensorProto.BFLOAT16


@pytest.mark.parametrize("dtype", [record.name for record in RECORDS.values() if record.wider])
@pytest.mark.parametrize("raw", [True, False])
def test_elements_that_are_packed(dtype: str, raw: bool, tmp_path: Path) -> None:
    """In bytes, in numbers of 32 bits, and in another file."""
    array = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype)
    plain = numpy_helper.from_array(array, "w")
    kept = plain if raw else TensorProto(name="w", data_type=plain.data_type, dims=plain.dims)
    if not raw:
        size = 2 if RECORDS[dtype].bits == 16 else 1
        kept.int32_data.extend(np.frombuffer(plain.raw_data, f"<u{size}").tolist())
    np.testing.assert_array_equal(array_of(kept).astype(float), array.astype(float))
    assert array_of(kept).dtype == dtype
    (tmp_path / "weights.bin").write_bytes(bytes(8) + plain.raw_data)
    beside = external("weights.bin", offset=8, length=len(plain.raw_data)).graph.initializer[0]
    beside.data_type = plain.data_type
    np.testing.assert_array_equal(array_of(beside, tmp_path).astype(float), array.astype(float))


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (tensor(raw_data=bytes(23)), "tensor w of (2 3) float32 requires 24 bytes, got 23"),
        (tensor(raw_data=bytes(25)), "tensor w of (2 3) float32 requires 24 bytes, got 25"),
        (tensor(float_data=[1.0] * 5), "tensor w requires the elements of (2 3) float32"),
        (tensor(int64_data=[1] * 6), "tensor w requires the elements of (2 3) float32"),
        (tensor(dims=(-2, 3), raw_data=bytes(24)), "tensor w requires sizes of at least 0, got (-2 3)"),
        (tensor(dims=(2**60,), raw_data=bytes(24)), "tensor w requires at most 1099511627776 elements"),
        (tensor(dims=(2**39,), float_data=[1.0]), "tensor w requires the elements of (549755813888) float32"),
        (tensor(dims=(0, 2**60)), "tensor w requires at most 1099511627776 elements"),
        (tensor(dims=[1] * 70, raw_data=bytes(4)), "tensor w requires at most 30 axes, got 70"),
        (tensor(dtype=TensorProto.STRING, string_data=[b"a"] * 6), "tensor w: an element type is one of"),
        (tensor(dtype=0, raw_data=bytes(24)), "tensor w: an element type requires a number that ONNX knows, got 0"),
        (tensor(dtype=1000, raw_data=bytes(24)), "tensor w: an element type requires a number that ONNX knows"),
        (tensor(dtype=INT4, raw_data=bytes(6)), "tensor w of (2 3) int4 requires 3 bytes, got 6"),
        (tensor(dtype=INT4, int32_data=[0] * 6), "tensor w of (2 3) int4 requires 3 numbers, got 6"),
        (tensor(dtype=INT4, float_data=[0] * 6), "tensor w of (2 3) int4 requires 3 numbers, got 0"),
        (
            tensor(dtype=INT4, dims=(2**39,), raw_data=b"1"),
            "tensor w of (549755813888) int4 requires 274877906944 bytes",
        ),
        (tensor(dtype=BFLOAT16, int32_data=[1]), "tensor w of (2 3) bfloat16 requires 6 numbers, got 1"),
        (
            tensor(data_location=TensorProto.EXTERNAL),
            "requires external data next to the model file, got none",
        ),
    ],
)
def test_tensors_that_are_not_what_they_say(weight: Any, words: str) -> None:
    assert words in refusal(model(node("Add", "x,w"), initializer=[weight]))
    inner = refusal(model(helper.make_node("Constant", [], ["y"], "here", value=weight)))
    assert inner.startswith("node here (Constant): ")
    assert words in inner


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Expand", "x,n")],
        [node("ConstantOfShape", "n", "f"), node("Add", "x,f")],
        [node("Tile", "x,n")],
        [node("Reshape", "x,n")],
    ],
)
def test_sizes_that_no_machine_holds(nodes: Sequence[Any]) -> None:
    """They are refused by number, before anything of that size is made."""
    huge = numpy_helper.from_array(np.array([2**40, 2**40]), "n")
    start = time.perf_counter()
    message = refusal(model(*nodes, initializer=[huge]))
    assert message.startswith("node here (")
    assert "cannot be read" not in message
    assert "has no meaning" not in message
    assert time.perf_counter() - start < 2


def test_what_is_computed_beforehand_is_small() -> None:
    """A shape computed from 2^36 elements, none of which is needed."""
    sizes = numpy_helper.from_array(np.array([2**36]), "n")
    zero = numpy_helper.from_array(np.array([0, 1]), "i")
    nodes = [
        node("ConstantOfShape", "n", "f", "filled", value=helper.make_tensor("v", TensorProto.INT64, [1], [6])),
        node("Gather", "f,i", "s", "few"),
        node("Reshape", "x,s"),
    ]
    message = refusal(model(*nodes, initializer=[sizes, zero]))
    assert message.startswith("node here (Reshape): a value that must be known at import may depend on at most")


# Weights in other files.


def external(location: str, dims: Sequence[int] = (2, 3), **entries: Any) -> Any:
    weight = tensor(dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    return model(node("Add", "x,w"), initializer=[weight])


def saved(made: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_weights_in_another_file(tmp_path: Path) -> None:
    values = np.arange(8, dtype="<f4")
    values.tofile(tmp_path / "weights.bin")
    program = load_onnx(saved(external("weights.bin", offset=8, length=24), tmp_path))
    assert program.constants["w"].tolist() == [[2, 3, 4], [5, 6, 7]]
    x = np.ones((2, 3), np.float32)
    (y,) = evaluate([program.term], {**program.constants, "x": x})
    assert y.tolist() == [[3, 4, 5], [6, 7, 8]]
    empty = load_onnx(saved(external("weights.bin", dims=(0, 3)), tmp_path), shapes={"x": (0, 3)})
    assert empty.constants["w"].shape == (0, 3)


@pytest.mark.parametrize(
    ("location", "entries", "words"),
    [
        ("none.bin", {}, "tensor w: cannot read none.bin: No such file"),
        ("../weights.bin", {}, 'in a file of the model\'s folder, got "../weights.bin"'),
        ("sub/../../weights.bin", {}, "in a file of the model's folder"),
        ("link.bin", {}, 'in a file of the model\'s folder, got "link.bin"'),
        (".", {}, "in a file of the model's folder"),
        ("sub", {}, "tensor w: cannot read sub: Is a directory"),
        ("a\0b", {}, "tensor w: cannot read"),
        ("", {}, "requires external data next to the model file, got none"),
        ("weights.bin", {"length": 20}, "tensor w of (2 3) float32 requires a length of 24 bytes, got 20"),
        ("weights.bin", {"offset": 12}, "requires bytes 12 to 36 of weights.bin, which has 32 bytes"),
        ("weights.bin", {"offset": 2**62}, "which has 32 bytes"),
        ("weights.bin", {"offset": -1}, 'tensor w requires an offset in bytes, got "-1"'),
        ("weights.bin", {"offset": "zero"}, 'tensor w requires an offset in bytes, got "zero"'),
        ("weights.bin", {"length": "9" * 6000}, "tensor w requires a length in bytes"),
    ],
)
def test_weights_in_files_that_do_not_do(location: str, entries: dict[str, Any], words: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for place in (tmp_path, folder):
        (place / "weights.bin").write_bytes(bytes(32))
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(BadInput) as raised:
        load_onnx(saved(external(location, **entries), folder))
    assert words in str(raised.value)


def test_an_absolute_path_is_refused_even_to_the_right_folder(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(24))
    with pytest.raises(BadInput, match="in a file of the model's folder"):
        load_onnx(saved(external(str(tmp_path / "weights.bin")), tmp_path))


LIMITED = """
import resource, sys, time
from glenside.importers.onnx import load_onnx
import onnx

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
start = time.perf_counter()
program = load_onnx(sys.argv[1])
print(time.perf_counter() - start, resident(), sum(c.size for c in program.constants.values()))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the peak of memory is read from /proc")
def test_two_gigabytes_of_weights_are_mapped_not_read(tmp_path: Path) -> None:
    """In 200 tensors of one file, with fewer files open at once than that."""
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(2 << 30)
    count, size = 200, (2 << 30) // 200 // 4 // 1024
    weights = []
    for i in range(count):
        weight = tensor(f"w{i}", (size, 1024), data_location=TensorProto.EXTERNAL)
        for key, value in {"location": "weights.bin", "offset": i * size * 4096, "length": size * 4096}.items():
            weight.external_data.add(key=key, value=str(value))
        weights.append(weight)
    nodes = [node("Add", f"v{i},w{i}", f"v{i + 1}", f"add{i}") for i in range(count)]
    made = model(*nodes, inputs=[info("v0", (1, 1024))], outputs=[f"v{count}"], initializer=weights)
    path = saved(made, tmp_path)
    command = [sys.executable, "-c", LIMITED, str(path)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    seconds, megabytes, elements = map(float, outcome.stdout.split())
    assert elements == count * size * 1024
    assert seconds < 2
    assert megabytes < 300
