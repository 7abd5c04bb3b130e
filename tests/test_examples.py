"""Tests the examples.

The 300-line tutorial stays short, needs numpy only, and finds a cheaper program that is equal. The decoder refuses
wrong arguments before it compiles.
"""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

DECODER = Path(__file__).parent.parent / "examples" / "decoder.py"
TUTORIAL = Path(__file__).parent.parent / "examples" / "glenside_in_300_lines.py"


def test_tutorial_finds_an_equal_cheaper_program() -> None:
    done = subprocess.run([sys.executable, "-I", TUTORIAL], capture_output=True, text=True, check=True, timeout=60)
    found = re.search(r"equal and cheaper: (\d+) -> (\d+) cycles on a unit of 4 x 4", done.stdout)
    assert found is not None
    given, best = map(int, found.groups())
    assert given == 16 * 3 * 18  # outputs x filters x elements of a window
    assert best == 3 * 5 * 4  # rows of weights x tiles of 18 elements x tiles of 16 windows: operands swapped
    assert "swap without its transpose: refuted" in done.stdout


def test_tutorial_is_short_and_needs_numpy_only() -> None:
    source = TUTORIAL.read_text()
    assert len(source.splitlines()) <= 300
    modules = {name.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import) for name in node.names}
    modules |= {node.module or "" for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in modules} <= {"collections", "math", "typing", "numpy"}


@pytest.mark.parametrize("seed", range(5))
def test_every_program_of_the_tutorials_egraph_is_equal(seed: int) -> None:
    """All e-nodes of an e-class have the same value, at random sizes, compared with numpy."""
    own = runpy.run_path(str(TUTORIAL))
    random = np.random.default_rng(seed)
    channels, height, width, filters, h, w = (int(n) for n in random.integers([1, 4, 4, 1, 1, 1], [4, 8, 8, 6, 4, 4]))
    inputs = {"image": (channels, height, width), "weights": (filters, channels, h, w)}
    image, weights = (own["tensor"](name, dims) for name, dims in inputs.items())
    given = own["dot"](own["cartesian"](own["windows"](image, (channels, h, w)), own["access"](weights, 1)))
    graph = own["EGraph"]()
    root = graph.add(given)
    own["saturate"](graph)

    values = {name: random.integers(0, 50, dims) for name, dims in inputs.items()}
    _, found = own["extract"](graph, root)
    windows = np.lib.stride_tricks.sliding_window_view(values["image"], (channels, h, w))
    expected = np.einsum("bijchw,fchw->bijf", windows, values["weights"])
    np.testing.assert_array_equal(own["evaluate"](found, values).array, expected)

    best = {c: own["extract"](graph, c)[1] for c in set(graph.classes.values())}
    for node, c in graph.classes.items():
        term = own["Node"](node.op, node.attributes, tuple(best[o] for o in node.operands))
        assert own["equal"](term, best[c], inputs, points=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tokens", "-3"], "--tokens: requires a whole number of at least 0, got -3"),
        (["--threads", "0"], "--threads: requires a whole number of at least 1, got 0"),
        (["--prompt", "1 4096"], "the prompt has token 4096, and the vocabulary those from 0 to 4095"),
        (["--prompt", "a word"], "the prompt is numbers of tokens"),
        (["--shape", "heads=0"], "heads of the decoder decoder is a whole number from 1"),
        (["--shape", "heads=x"], "--shape is NAME=NUMBER"),
        (["--shape", "activation=3"], "got activation=3"),
        (["--shape", "global_layers=1"], "got global_layers=1"),
        (["--shape", "hidden=99999999999,head=64"], "memory does not suffice"),
        ([str(DECODER.parent)], "is a folder without config.json"),
    ],
)
def test_the_decoder_refuses_wrong_arguments(arguments: list[str], words: str) -> None:
    done = subprocess.run([sys.executable, DECODER, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
