"""Tests shell completion, and the panels of `--help` for commands with many options."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import run

from glenside.cli.application import _reader
from glenside.cli.completion import PANELS


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("tens", ["tensorize"]),
        ("tensorize --targ", ["--target"]),
        ("tensorize mobilenet-v1 --target np", ["npu:RxC", "npu:RxC,bandwidth=16,.."]),
        ("tensorize mobilenet-v", ["mobilenet-v1", "mobilenet-v2", "mobilenet-v3-large"]),
        ("tensorize nets/", ["nets/a.onnx", "nets/b.glenside", "nets/more/"]),
    ],
)
def test_words_are_completed(
    words: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nets" / "more").mkdir(parents=True)
    for name in ("a.onnx", "b.glenside", "notes.txt"):
        (tmp_path / "nets" / name).touch()
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("COMP_WORDS", f"glenside {words}"),
        ("COMP_CWORD", str(len(words.split()))),
        ("_GLENSIDE_COMPLETE", "complete_bash"),
    ):
        monkeypatch.setitem(os.environ, name, value)
    assert run() == 0
    assert capsys.readouterr().out.split() == found


def test_help_has_panels(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tensorize", "--help") == 0
    printed = capsys.readouterr().out
    assert all(f"─ {panel} ─" in printed for panel in PANELS)
    for name in ("tensorize", "compare", "optimize", "layout", "compile"):
        left = [
            p.name for p in _reader().commands[name].params if p.param_type_name == "option" and not p.rich_help_panel
        ]
        assert left in ([], ["without"])
    known = {p.name for command in _reader().commands.values() for p in command.params}
    assert known >= {name for names in PANELS.values() for name in names.split()}
