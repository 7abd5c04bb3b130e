"""Tests programs and their files: names of layers, values of constants, wrong files."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from random_terms import tensor, terms

from glenside.ir.dtypes import DTYPES
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.files import (
    load,
    read_array,
    read_arrays,
    read_shapes,
    read_text,
    save,
    write_array,
    write_arrays,
    write_text,
)
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder
from glenside.ir.text import parse
from glenside.ir.types import Dims, Tensor

TWO_LAYERS = """
(input x (shape 3 7))
(constant w1 (shape 5 7))
(constant w2 (shape 2 5))
(let ((hidden (compute dot-product
                (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w1) 1)))))
  (compute dot-product
    (access-cartesian-product (access (compute relu hidden) 1) (access (access-tensor w2) 1))))
"""


def two_layers() -> Program:
    return parse(TWO_LAYERS)


def dense(a: Term, b: Term) -> Term:
    return build("compute", "dot-product", build("access-product", build("access", a, 1), build("access", b, 1), 0))


# Layers


@settings(max_examples=100, deadline=None)
@given(terms())
def test_every_product_is_a_layer_in_network_order(term: Term) -> None:
    layers = list(Program(term).layers.values())
    assert layers == [node for node in postorder(term) if is_product(node)]


def test_let_names_become_names_of_layers_and_others_count() -> None:
    assert list(two_layers().layers) == ["hidden", "product-2"]


def test_default_names_give_way_to_names_that_are_taken() -> None:
    program = two_layers()
    last = program.layers["product-2"]
    assert list(replace(program, layers={"product-1": last}).layers) == ["product-1-2", "product-1"]


def test_a_layer_may_have_two_names() -> None:
    program = two_layers()
    named = Program(program.term, layers={"a": program.term, "b": program.term})
    assert list(named.layers) == ["product-1", "a", "b"]
    again = parse(str(named))
    assert list(again.layers) == ["product-1", "a", "b"]
    assert str(again) == str(named)


def test_of_two_layers_of_one_name_the_first_keeps_it() -> None:
    head, _, tail = TWO_LAYERS.rpartition("(compute dot-product")
    text = f"{head}(let ((hidden (compute dot-product{tail.rstrip()[:-1]})) hidden))"
    assert list(parse(text).layers) == ["hidden", "product-2"]


def test_names_of_what_the_term_does_not_hold_are_dropped() -> None:
    program = replace(two_layers(), labels={"hidden": "dense 7-5", "gone": "?"}).seeded_constants(1)
    assert program.labels == {"hidden": "dense 7-5"}
    first = replace(program, term=program.layers["hidden"])
    assert list(first.layers) == ["hidden"]
    assert list(first.constants) == ["w1"]
    assert list(replace(first, term=tensor(3)).labels) == []


def test_let_names_of_other_nodes_are_kept_apart() -> None:
    text = TWO_LAYERS.replace("(compute relu hidden)", "(let ((act (compute relu hidden)) (n0 (access act 2))) n0)")
    program = parse(text)
    assert list(program.layers) == ["hidden", "product-2"]
    assert program.names == {"act": program.layers["product-2"].children[0].children[0].children[0].children[0]}


# Tensors and constants


def test_tensors_are_listed_in_order_of_first_use() -> None:
    program = two_layers()
    assert list(program.tensors) == ["x", "w1", "w2"]
    assert list(program.inputs) == ["x"]
    assert list(program.constants_declared) == ["w1", "w2"]
    assert program.tensors["w1"] == Tensor("w1", Dims((5, 7)), "float32", True)


def test_two_tensors_of_one_name_are_an_error() -> None:
    other = build("access-tensor", Tensor("x_3", Dims((3,)), "float32", constant=True))
    with pytest.raises(BadInput, match="one tensor of each name"):
        Program(build("construct-tuple", tensor(3), other))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("w1", np.zeros((7, 5), np.float32), "constant w1 requires shape (5 7), got (7 5)"),
        ("w1", np.zeros((5, 7)), "constant w1 requires dtype float32, got float64"),
        ("w", np.zeros(1), "the program has no constant w; did you mean w2?"),
        ("x", np.zeros((3, 7)), "the value of a constant requires a constant, got the input x"),
    ],
)
def test_values_of_constants_must_fit(name: str, value: np.ndarray, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        two_layers().with_constants({name: value})
    assert str(caught.value) == message


def test_seeded_constants_depend_on_seed_and_name_alone() -> None:
    program = two_layers()
    given_value = np.ones((2, 5), np.float32)
    one, two = program.seeded_constants(1), program.with_constants({"w2": given_value}).seeded_constants(1)
    assert (one.constants["w1"] == two.constants["w1"]).all()
    assert two.constants["w2"] is given_value
    assert (one.constants["w1"] != program.seeded_constants(2).constants["w1"]).any()
    assert one.constants["w1"].dtype == np.float32


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dims", [(), (0,), (4,), (3, 2, 5)])
def test_seeded_constants_exist_for_every_dtype(dtype: str, dims: tuple[int, ...]) -> None:
    program = Program(build("access-tensor", Tensor("w", Dims(dims), dtype, constant=True))).seeded_constants(0)
    value = program.constants["w"]
    assert (value.dtype.name, value.shape) == (dtype, dims)
    assert np.isfinite(value.astype(np.float64)).all()
    assert len(dims) > 1 or not value.size or dtype not in ("float16", "float32", "float64") or value.min() > 0


# Programs in files


def test_a_saved_program_loads_again(tmp_path: Path) -> None:
    program = two_layers().seeded_constants(3)
    save(program, tmp_path / "net.glenside")
    assert sorted(os.listdir(tmp_path)) == ["net.glenside", "net.npz"]
    again = load(tmp_path / "net.glenside", weights=tmp_path / "net.npz")
    assert again.term is program.term
    assert again.name == "net"
    assert str(again) == str(program) == read_text(tmp_path / "net.glenside")
    for name, value in program.constants.items():
        assert (again.constants[name] == value).all()


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    program = two_layers().seeded_constants(3)
    save(program, tmp_path / "a.glenside")
    save(program, tmp_path / "b.glenside")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_program_without_values_is_saved_without_arrays(tmp_path: Path) -> None:
    save(two_layers(), tmp_path / "a.glenside")
    assert os.listdir(tmp_path) == ["a.glenside"]


def test_weights_declare_what_the_text_does_not(tmp_path: Path) -> None:
    write_text(tmp_path / "p", "(access-pair (access-tensor x) (access-tensor w))")
    write_arrays(tmp_path / "w.npz", {"w": np.arange(3, dtype=np.int8)})
    program = load(tmp_path / "p", {"x": (3,)}, tmp_path / "w.npz", {"x": "int8"})
    assert program.tensors["w"] == Tensor("w", Dims((3,)), "int8", constant=True)
    assert list(program.inputs) == ["x"]


def test_weights_of_another_shape_are_an_error(tmp_path: Path) -> None:
    write_text(tmp_path / "p", TWO_LAYERS)
    write_arrays(tmp_path / "w.npz", {"w1": np.zeros((7, 5), np.float32)})
    with pytest.raises(GlensideError, match=r"p:3:1: .* with the shape \(5 7\), but given with \(7 5\)$"):
        load(tmp_path / "p", weights=tmp_path / "w.npz")


def test_weights_hold_values_of_constants_only(tmp_path: Path) -> None:
    write_text(tmp_path / "p", TWO_LAYERS)
    write_arrays(tmp_path / "w.npz", {"x": np.zeros((3, 7), np.float32)})
    with pytest.raises(BadInput, match=r"w\.npz: the value of a constant requires a constant, got the input x$"):
        load(tmp_path / "p", weights=tmp_path / "w.npz")


def test_an_error_in_a_file_names_file_line_and_column(tmp_path: Path) -> None:
    write_text(tmp_path / "p", "; first\r\n\r\n  (acces x)")
    with pytest.raises(GlensideError, match=r"p:3:3: unknown operator acces; did you mean access\?$"):
        load(tmp_path / "p")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), (b"\x93\xff\x00", "it is not UTF-8 text")],
)
def test_unreadable_texts(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "p").write_bytes(content)
    with pytest.raises(BadInput, match=f"^cannot read .*p: {reason}$"):
        load(tmp_path / "p")


@pytest.mark.parametrize("read", [read_text, read_shapes, read_array, read_arrays])
def test_a_folder_or_an_impossible_path_is_not_a_file(tmp_path: Path, read: Callable[..., Any]) -> None:
    with pytest.raises(BadInput, match=r"Is a directory$"):
        read(tmp_path)
    with pytest.raises(BadInput, match=r"^cannot read "):
        read("nul\x00byte")


# Shapes


def test_shapes_are_read(tmp_path: Path) -> None:
    write_text(tmp_path / "s.json", '{"x": [1, 3, 8, 8], "scalar": [], "empty": [0]}')
    assert read_shapes(tmp_path / "s.json") == {"x": (1, 3, 8, 8), "scalar": (), "empty": (0,)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", r's.json requires one object of shapes, such as {"x": [1, 3, 32, 32]}'),
        ('{"a": [1], "a": [2]}', 's.json requires one shape for "a", got two'),
        ('{"a": [1], "b": [1, -2]}', 's.json requires a list of sizes for "b", got [1, -2]'),
        ('{"b": [true]}', 's.json requires a list of sizes for "b", got [true]'),
        ('{"b": [1.0]}', 's.json requires a list of sizes for "b", got [1.0]'),
        ('{"b": [9223372036854775808]}', 's.json requires a list of sizes for "b", got [9223372036854775808]'),
        ('{"b": {}}', 's.json requires a list of sizes for "b", got {}'),
        ('{"b": 3}', 's.json requires a list of sizes for "b", got 3'),
        ('{"b": [3]', "s.json:1:10: a shapes file requires JSON, got Expecting ',' delimiter"),
        ("[" * 100_000, "s.json requires an object of shapes, got JSON that is too deep or a number too long"),
        (
            '{"b": [' + "9" * 10_000 + "]}",
            "s.json requires an object of shapes, got JSON that is too deep or a number too long",
        ),
    ],
)
def test_mistakes_in_shapes(tmp_path: Path, text: str, message: str) -> None:
    write_text(tmp_path / "s.json", text)
    with pytest.raises(BadInput) as caught:
        read_shapes(tmp_path / "s.json")
    assert str(caught.value).endswith(message)


# Arrays


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_written_and_read(tmp_path: Path, dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    write_array(tmp_path / "a.npy", array.T)
    assert (read_array(tmp_path / "a.npy") == array.T).all()
    plain = np.load(tmp_path / "a.npy")
    if plain.dtype.names is not None:  # what numpy cannot name are bits, in a field of that name
        plain = plain[dtype].copy().view(dtype)
    assert (plain == array.T).all()
    assert read_array(tmp_path / "a.npy").dtype == dtype


def test_arrays_may_have_any_name(tmp_path: Path) -> None:
    names = ["file", "a", "a.npy", "a b/é", "", "../x", "self", "allow_pickle"]
    write_arrays(tmp_path / "a.npz", {name: np.full(2, i) for i, name in enumerate(names)})
    again = read_arrays(tmp_path / "a.npz")
    assert {name: int(value[0]) for name, value in again.items()} == {name: i for i, name in enumerate(names)}
    with pytest.raises(BadInput, match="cannot hold the name"):
        write_arrays(tmp_path / "b.npz", {"nul\x00": np.zeros(1)})
    assert not (tmp_path / "b.npz").exists()


def test_arrays_of_numpy_itself_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(3, dtype=">i4"))
    assert read_arrays(tmp_path / "a.npz")["x"].dtype == np.dtype("=i4")


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def archived(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


GOOD = saved(np.arange(100, dtype=np.float32))
HUGE = GOOD.replace(b"(100,), }" + b" " * 20, b"(10000000000000000,), }" + b" " * 6)
BAD_ARRAYS = {
    "empty": b"",
    "text": b"(access-tensor x)",
    "pickle": b"\x80\x04]\x94.",
    "truncated header": GOOD[:20],
    "truncated data": GOOD[:-40],
    "a size that no machine has": HUGE,
    "objects": saved(np.array([{}, None])),
    "complex": saved(np.zeros(2, np.complex64)),
    "strings": saved(np.array(["a"])),
}


@pytest.mark.parametrize("kind", BAD_ARRAYS)
def test_bad_arrays_are_one_sentence(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.npy").write_bytes(BAD_ARRAYS[kind])
    (tmp_path / "a.npz").write_bytes(archived({"x.npy": BAD_ARRAYS[kind]}))
    for path, read in ((tmp_path / "a.npy", read_array), (tmp_path / "a.npz", read_arrays)):
        with pytest.raises(BadInput) as caught:
            read(path)
        assert str(caught.value).startswith(f"cannot read {path}: it")
        assert "\n" not in str(caught.value)


ARCHIVE = archived({"x.npy": GOOD})


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", GOOD, ARCHIVE[:-30], ARCHIVE[40:]])
def test_bad_archives_are_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(BadInput, match=r"it is not a \.npz file, or it is damaged$"):
        read_arrays(tmp_path / "a.npz")


# Writing


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    write_arrays(path, {"a": np.zeros(2)})
    before = path.read_bytes()
    with pytest.raises(BadInput, match="its dtype object is none of"):
        write_arrays(path, {"a": np.ones(2), "b": np.array([{}])})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["w.npz"]


def test_a_failure_while_saving_leaves_neither_file(tmp_path: Path) -> None:
    (tmp_path / "net.npz").mkdir()
    with pytest.raises(BadInput, match=r"^cannot write .*net\.npz: Is a directory$"):
        save(two_layers().seeded_constants(0), tmp_path / "net.glenside")
    assert os.listdir(tmp_path) == ["net.npz"]
    with pytest.raises(BadInput, match=r"^cannot write .*: Is a directory$"):
        save(two_layers().seeded_constants(0), tmp_path / "net.npz")
    assert os.listdir(tmp_path) == ["net.npz"]


@pytest.mark.parametrize("path", ["missing/p", "p\x00", "x" * 300])
def test_what_cannot_be_written(tmp_path: Path, path: str) -> None:
    with pytest.raises(BadInput, match=r"^cannot write \S+"):
        write_text(tmp_path / path, "text")
    assert os.listdir(tmp_path) == []


def test_files_keep_their_mode_and_new_ones_follow_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_text(tmp_path / "new", "text")
    finally:
        os.umask(umask)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    (tmp_path / "new").chmod(0o600)
    write_text(tmp_path / "new", "other")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    write_text(tmp_path / "target", "text")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    write_text("/dev/null", "gone")
    assert Path("/dev/null").is_char_device()


def test_shape_files_of_the_samples_are_json_objects() -> None:
    for path in (Path(__file__).parent.parent / "programs").glob("*.json"):
        assert read_shapes(path) == {name: tuple(dims) for name, dims in json.loads(path.read_text()).items()}
