"""Runs the commands of each quick start as they are on its page, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs" / "quickstart").glob("*.md")), ROOT / "docs" / "extending.md"]
BLOCK = re.compile(r'^```(\w+)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


LONG = "array"  # it searches four times over a network of 28 layers, by commands that tests/cli has as well
RUN = [pytest.param(page, marks=[pytest.mark.slow] * (page.stem == LONG), id=page.stem) for page in PAGES]


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Returns the fenced blocks of a page: language, name of a file or "", text."""
    return [(found[1], found[2] or "", found[3]) for found in BLOCK.finditer(page.read_text())]


def test_every_block_of_a_page_is_run() -> None:
    for page in PAGES:
        assert page.read_text().count("```") == 2 * len(blocks(page)) > 0
        assert {language for language, _, _ in blocks(page)} <= {"bash", "python", "toml"}
        assert all(name for language, name, _ in blocks(page) if language == "toml")


@pytest.mark.needs_compiler  # the network's page compiles
@pytest.mark.parametrize("page", RUN)
def test_quick_start_runs(page: Path, tmp_path: Path) -> None:
    """Blocks with a title are files; commands run as given; Python blocks of a page are one program, run first."""
    programs: list[str] = []
    lines: list[str] = []
    for language, name, text in blocks(page):
        if name:
            (tmp_path / name).write_text(text)
        elif language == "python":
            programs.append(text)
        else:
            lines += text.splitlines()
    _run([sys.executable, "-c", "\n".join(programs)], tmp_path)
    for line in lines:
        command, *arguments = shlex.split(line)
        assert command == "glenside"
        _run([sys.executable, "-m", command, *arguments], tmp_path)
        for argument, value in pairwise(arguments):
            assert argument not in ("-o", "--json") or (tmp_path / value).stat().st_size > 0


def _run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
