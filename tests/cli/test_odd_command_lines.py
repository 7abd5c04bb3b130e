"""Whatever stands on a command line, the answer is a result or a sentence, and one of five statuses."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from fuzzing import Fuzzing

pytest.importorskip("resource")

from command_lines import line, prepare, tried


def findings(seeds: Iterable[int], folder: Path) -> list[str]:
    prepare(folder)
    found = []
    for seed in seeds:
        words = line(random.Random(seed))
        if wrong := tried(words, folder):
            found.append(f"seed {seed}: {[w[:80] for w in words]}: {wrong}")
    return found


def test_a_few_odd_command_lines(tmp_path: Path) -> None:
    assert findings(range(6), tmp_path) == []


def test_a_traceback_and_a_status_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ValueError

    monkeypatch.setattr("command_lines.entry", broken)
    assert "ValueError" in tried(["models"], tmp_path)
    monkeypatch.setattr("command_lines.entry", lambda: exit(3))
    assert tried(["models"], tmp_path) == "status 3: "


@pytest.mark.slow
def test_odd_command_lines(tmp_path: Path, fuzzing: Fuzzing) -> None:
    assert findings(fuzzing.seeds(500), tmp_path) == []
