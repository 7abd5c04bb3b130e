"""Tests compilers: identified, deterministic, called once per program; cached objects are used only if trusted."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import glenside as gl
from glenside.cache import objects
from glenside.codegen.emit_c.translation_units import Source
from glenside.codegen.processor import find_compiler
from glenside.codegen.processor.find_compiler import Kind, known_compiler
from glenside.codegen.processor.model import MACHINES, machine_of
from glenside.codegen.runtime import compile_and_load
from glenside.ir.errors import BadInput
from glenside.ir.program import Program

X = np.random.default_rng(0).standard_normal((1, 8, 9, 9)).astype(np.float32)


def _program() -> Program:
    """Tiles, a function in vectors, and nests that are alike."""
    b = gl.Builder("p")
    x = b.input("x", X.shape)
    for name in ("v", "w"):
        x = b.relu(b.conv(x, b.constant(name, (8, 8, 3, 3)), padding=1))
    return b.finish(b.softmax(x, axis=1)).seeded_constants(0)


def _small() -> Program:
    b = gl.Builder("p")
    return b.finish(b.relu(b.input("x", X.shape)))


def _command(kind: Kind) -> str:
    """Returns a compiler of a kind, or the test is skipped."""
    if kind is Kind.ZIG:
        command = " ".join(find_compiler._zig())
    else:
        command = {Kind.GCC: "gcc", Kind.CLANG: "clang"}[kind]
        command = command if shutil.which(command) else ""
    if not command:
        pytest.skip(f"there is no {kind.value}")
    return command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where objects are kept in a test."""
    monkeypatch.setenv("GLENSIDE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "native"


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Returns the number of files a compiler made, that is named in CC."""
    found = find_compiler.compiler()
    if not found:
        pytest.skip("there is no C compiler")
    log, script = tmp_path / "log", tmp_path / "counted cc"
    script.write_text(f'#!/bin/sh\ncase "$*" in *" -o "*) echo one >> "{log}";; esac\nexec {" ".join(found)} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", f"'{script}'")
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


@pytest.mark.parametrize("kind", [Kind.GCC, Kind.CLANG, pytest.param(Kind.ZIG, marks=pytest.mark.slow)])
def test_each_compiler_compiles_for_each_machine(kind: Kind, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", _command(kind))
    assert known_compiler().kind is kind
    program = _program()
    want = gl.evaluate([program.term], {**program.constants, "x": X})[0]
    for name in ("native", "generic", "plain"):
        assert np.allclose(gl.compile(program, "none", machine=name)(X), want, 1e-4, 1e-5)
    assert len(list(folder.iterdir())) == (2 if machine_of("native") == MACHINES["generic"] else 3)


def test_zig_is_taken_where_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert bool(find_compiler.compiler()) == (find_spec("ziglang") is not None)
    monkeypatch.setattr(find_compiler, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"no C compiler: install one, name it in CC, or pip install .*\[native\]'"):
        gl.compile(_program(), "none")


def test_zig_is_told_in_its_own_words() -> None:
    told = compile_and_load.flags(MACHINES["avx2"], Kind.ZIG)
    assert {"-march=x86_64_v3", "-fno-sanitize=undefined"} <= {*told}
    assert "-mcpu=baseline" in compile_and_load.flags(None, Kind.ZIG)
    assert "-march=x86-64-v3" in compile_and_load.flags(MACHINES["avx2"], Kind.CLANG)


def test_a_program_is_compiled_once(folder: Path, counted: Callable[[], int]) -> None:
    program = _program()
    first = gl.compile(program, "none")(X)
    made = counted()
    assert made
    assert (gl.compile(program, "none")(X) == first).all()
    assert counted() == made
    gl.compile(program, machine="plain")
    assert counted() > made
    assert len(list(folder.iterdir())) == 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_many_compilers_make_one_object(folder: Path, counted: Callable[[], int], monkeypatch: Any) -> None:
    monkeypatch.setattr(compile_and_load, "_UNIT", 1)
    monkeypatch.setattr(compile_and_load, "processors", lambda: 3)
    program = _program()
    found = gl.compile(program, "none")
    assert counted() == 1 + 3 + 1
    assert np.allclose(found(X, threads=2), gl.evaluate([program.term], {**program.constants, "x": X})[0], 1e-4, 1e-5)


def _damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def _moved(path: Path) -> None:
    other = path.with_name("0" * 64 + path.name[64:])
    path.rename(other)
    path.symlink_to(other)


@pytest.mark.parametrize(
    "change",
    [
        _damaged,
        _moved,
        lambda path: path.write_bytes(b""),
        lambda path: path.chmod(0o666),
        lambda path: path.parent.chmod(0o777),
        lambda path: path.parent.parent.chmod(0o777),
    ],
    ids=["damaged", "a link", "empty", "written by others", "a folder of others", "a folder in one of others"],
)
def test_what_is_not_believed_is_compiled_again(
    folder: Path, counted: Callable[[], int], change: Callable[[Path], None]
) -> None:
    program = _small()
    want = gl.compile(program, "none")(X)
    (path,) = folder.iterdir()
    change(path)
    before = counted()
    assert (gl.compile(program, "none")(X) == want).all()
    assert counted() > before


def _full(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.usefixtures("counted")
def test_without_a_folder_for_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _small()
    (tmp_path / "file").write_text("")
    for place in ("/dev/null", str(tmp_path / "file"), "/proc/nothing"):
        monkeypatch.setenv("GLENSIDE_CACHE", place)
        assert gl.compile(program, "none")(X).shape == X.shape
    monkeypatch.setenv("GLENSIDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(objects.os, "replace", _full)
    assert gl.compile(program, "none")(X).shape == X.shape
    assert list((tmp_path / "cache" / "native").iterdir()) == []


def test_the_oldest_objects_go_first(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LIMIT", 250)
    for number in range(4):
        (tmp_path / "made").write_bytes(bytes([number]) * 100)
        path = objects.keep(str(number), tmp_path / "made")
        assert path is not None
        os.utime(path, (number, number))
    assert [objects.find(str(number)) is not None for number in range(4)] == [False, False, True, True]
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "cannot list its predefined macros: it ended with status 1"),
        ("exit 0", "is not a C compiler with GCC's extensions; GCC, Clang and zig cc are"),
        ("sleep 20", "did not end within 1 seconds"),
        ('case "$*" in *-dM*) echo "#define __GNUC__ 12";; esac', "made cannot be loaded"),
        (
            'case "$*" in *-dM*) echo "#define __GNUC__ 12";; *) echo "x: error: y" >&2; exit 1;; esac',
            "generated C: x: error: y",
        ),
    ],
)
def test_a_command_that_is_no_compiler(tmp_path: Path, monkeypatch: Any, script: str, said: str) -> None:
    path = tmp_path / 'it\'s "one"'
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(find_compiler, "_PATIENCE", 1.0)
    monkeypatch.setenv("CC", f'"{path}" -O1'.replace('"one"', '\\"one\\"'))
    with pytest.raises(BadInput) as caught:
        gl.compile(_small(), "none")
    assert said in str(caught.value)


def test_no_room_for_temporary_files(counted: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_and_load.tempfile, "TemporaryDirectory", _full)
    monkeypatch.setenv("GLENSIDE_CACHE", "/dev/null")
    with pytest.raises(BadInput, match="compiling requires space for temporary files: No space left on device"):
        gl.compile(_small(), "none")
    assert counted() == 0


def test_the_header_of_functions_is_included_where_one_is_used() -> None:
    """In a prelude function too, and in each translation unit by itself."""
    root = "float nest1(float x)\n{ return sqrtf(x); }"
    double = "float nest2(float x)\n{ return x + x; }"
    halves = "uint16_t nest3(double x)\n{ return float16_of_double(x); }"
    for nest, wanted in ((root, True), (double, False), (halves, True)):
        assert ("#include <math.h>" in str(Source("", (), (nest,), "", ()))) == wanted
    end, *units = Source("", (), (root, double), "", ()).units(2)
    assert "#include <math.h>" not in end
    assert ["#include <math.h>" in unit for unit in units] == ["sqrtf" in unit for unit in units]
