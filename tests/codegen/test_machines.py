"""Tests machine files: missing or impossible values are reported, and every possible machine computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glenside as gl
from glenside.cli.commands import native
from glenside.codegen.processor.model import MACHINES, is_here, machine_of, machines_of
from glenside.ir.errors import BadInput


def _file(folder: Path, text: str, name: str = "mine.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_file_has_the_instructions_of_another_machine(tmp_path: Path) -> None:
    found = machine_of(_file(tmp_path, 'like = "avx2"\nl2 = 524288\nlatency = 5\n'))
    assert found is not None
    assert (found.name, found.vector, found.l2, found.latency) == ("mine", 32, 1 << 19, 5)
    assert (found.flags, found.needs) == (MACHINES["avx2"].flags, MACHINES["avx2"].needs)
    best = machines_of(f"generic,{tmp_path / 'mine.toml'},avx512")
    assert [machine and machine.name for machine in best] == ["avx512", "mine", "generic"]
    with pytest.raises(BadInput, match="would never be selected"):
        machines_of(f"{tmp_path / 'mine.toml'},avx2")


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    "numbers",
    [
        {"registers": 8, "products": 1, "loads": 1, "latency": 1, "l2": 4096},
        {"registers": 64, "products": 8, "loads": 8, "latency": 64, "l2": 1 << 36},
        {"registers": 9, "products": 7, "loads": 3, "latency": 11, "l2": 5001},
    ],
    ids=["least", "most", "odd"],
)
def test_whatever_is_possible_computes_the_same(tmp_path: Path, numbers: dict[str, int]) -> None:
    b = gl.Builder("p")
    x = b.conv(b.input("x", (1, 12, 9, 9)), b.constant("w", (40, 12, 3, 3)), padding=1)
    x = b.conv(b.relu(x), b.constant("v", (40, 1, 3, 3)), padding=1, groups=40)
    program = b.finish(b.softmax(x, axis=1)).seeded_constants(0)
    value = np.random.default_rng(0).standard_normal((1, 12, 9, 9)).astype(np.float32)
    lines = [f"{key} = {number}" for key, number in numbers.items()]
    path = _file(tmp_path, "\n".join(['like = "generic"', *lines]))
    want = np.asarray(gl.evaluate([program.term], {**program.constants, "x": value})[0])
    assert np.allclose(gl.compile(program, "none", machine=path)(value), want, 1e-4, 1e-5)


def test_kinds_of_work_of_earlier_versions_are_ignored(tmp_path: Path) -> None:
    text = 'like = "generic"\n[nanoseconds]\nfar = 2\n'
    later, earlier = (machine_of(str(_file(tmp_path, text + more))) for more in ("", "fetched = 1\n"))
    assert later is not None
    assert earlier == later


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "like must be one of amx, avx512bf16, avx512vnni, avx512, avxvnni, avx2, neon, generic, got None",
        ),
        ('like = "vax"', "got 'vax'"),
        ('like = ["avx2"]', "like must be one of amx, avx512bf16"),
        ('like = "avx2"\nflags = ["-fplugin=x.so"]', "unknown key flags; the keys are like, vector, registers"),
        ('like = "avx2"\nregisters = 0', "registers is a whole number from 8 to 64, got 0"),
        ('like = "avx2"\nlatency = 4.0', "latency is a whole number from 1 to 64, got 4.0"),
        ('like = "avx2"\nloads = true', "loads is a whole number from 1 to 8, got True"),
        ('like = "avx2"\nl2 = "1MB"', "l2 is a whole number from 4096"),
        ('like = "avx2"\nvector = 64', "vector is a power of two, at most the 32 bytes of avx2, got 64"),
        ('like = "avx512"\nvector = 48', "vector is a power of two, at most the 64 bytes of avx512, got 48"),
        ("like", "is not TOML"),
    ],
)
def test_what_is_impossible_is_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        machine_of(_file(tmp_path, text))
    assert said in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_names_of_files(tmp_path: Path) -> None:
    for name in ("avx2.toml", "a b.toml", "plain.toml", ".toml"):
        with pytest.raises(BadInput, match="a machine file is named by 1 to 60 letters"):
            machine_of(_file(tmp_path, 'like = "avx2"', name))
    with pytest.raises(BadInput, match="cannot read"):
        machine_of(str(tmp_path / "nowhere.toml"))


def test_a_unit_for_matrices_is_one_that_the_system_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system refuses the unit, code compiled for it would be plain loops, hundreds of times as slow."""
    assert [found.name for found in MACHINES.values() if found.matrix] == ["amx"]
    monkeypatch.setattr("glenside.codegen.processor.model._has_matrices", lambda: False)
    assert not is_here(MACHINES["amx"])
    native = machine_of("native")
    assert native is not None
    assert not native.matrix


def test_documents_name_the_machines() -> None:
    text = (Path(__file__).parents[2] / "docs" / "native-code.md").read_text(encoding="utf-8")
    assert f"A machine is native, {', '.join(MACHINES)} or plain, or a TOML file that is `like` one" in text


def test_the_command_names_them() -> None:
    """Only when it is written out: the help of a command does not wait for the compiler."""
    assert f"native, {', '.join(MACHINES)}, a .toml file" in native._MACHINES
