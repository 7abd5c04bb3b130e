"""Interrupts each command at random moments: it ends in seconds, with the status of the signal and with whole files."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from fuzzing import Fuzzing

import glenside as gl
from glenside.cli.application import app

ENDED = 4.0
"""Seconds from the signal to the end, on a machine that does nothing else."""


@dataclass(frozen=True)
class Moments:
    """A command that is ended.

    words   its arguments; files are those of `inputs`
    output  the file that is whole or absent afterwards; "" for none
    latest  seconds after which the command has ended by itself, or is not worth waiting for
    """

    words: str
    output: str = ""
    latest: float = 8.0


LONG = {
    "tensorize": Moments("tensorize resnet-18 --array 16x16 --set resolution=64 -o out.json", "out.json"),
    "tensorize cpu": Moments("tensorize resnet-18 --target cpu:64MB --set resolution=64 -o out.json", "out.json"),
    "tensorize npu": Moments(
        "tensorize resnet-18 --target npu:16x16 --quantize random --set resolution=32 -o out.bin --on simulator",
        "out.bin",
        25.0,
    ),
    "compare": Moments("compare resnet-18 --array 32x32 --set resolution=64"),
    "sweep": Moments("sweep resnet-18 --set resolution=32 --arrays 16x16,32x32 -o out.jsonl"),
    "optimize": Moments("optimize resnet-18 --target cpu --set resolution=64 -o out.json", "out.json"),
    "layout": Moments("layout resnet-18 --set resolution=64 -o out.json", "out.json"),
    "extract": Moments("extract graph.json --method exact -o out.txt", "out.txt"),
    "calibrate": Moments("calibrate --target cpu --runs 6 -o out.toml", "out.toml", 40.0),
    "compile": Moments("compile unet-small --set resolution=64 -o out.c", "out.c"),
    "bench": Moments("bench unet-small --set resolution=64 --rounds 100", latest=15.0),
    "train": Moments("train network.json data.npz --epochs 1000 -o out.json", "out.json"),
    "run": Moments("run resnet-18 --set resolution=224 --input x=1 -o out.npy", "out.npy"),
    "run native": Moments("run resnet-18 --set resolution=448 --input x=1 --on plain -o out.npy", "out.npy"),
    "fuzz": Moments("fuzz --minutes 1 --jobs 1"),
    "check": Moments("check large.json large.json"),
}
SHORT = {"winograd", "assemble", "area", "models", "ops", "rules", "targets"}
"""Commands that end within a second, and `area`, which needs a synthesis tool."""


def test_every_command_is_here() -> None:
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert names == SHORT | {moments.words.split()[0] for moments in LONG.values()}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the files that commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    gl.save(gl.models.resnet_18(resolution=224).seeded_constants(0), folder / "large.json")
    b = gl.Builder("network")
    x = b.input("x", (16, 64))
    hidden = b.relu(b.matmul(x, b.constant("v", (64, 128))))
    gl.save(b.finish(b.matmul(hidden, b.constant("w", (128, 8)))).seeded_constants(0), folder / "network.json")
    draw = np.random.default_rng(0)
    images, labels = draw.normal(size=(4096, 64)).astype("f4"), draw.integers(0, 8, 4096)
    np.savez(folder / "data.npz", x=images, labels=labels)
    nodes = {
        f"{c}.{i}": {
            "op": f"f{i}",
            "children": [f"{draw.integers(0, c)}.0" for _ in range(3)] if c else [],
            "eclass": str(c),
            "cost": int(draw.integers(1, 50)),
        }
        for c in range(4000)
        for i in range(4 if c else 1)
    }
    (folder / "graph.json").write_text(json.dumps({"nodes": nodes, "root_eclasses": ["3999"]}))
    return folder


def _hold(name: str, which: signal.Signals, after: float, inputs: Path, folder: Path) -> None:
    moments = LONG[name]
    for path in inputs.iterdir():
        if f"{path.stem}." in moments.words:  # weights lie beside a program
            (folder / path.name).symlink_to(path)
    given = {path.name for path in folder.iterdir()}
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), GLENSIDE_CACHE=str(folder.parent / "cache"))
    command = [sys.executable, "-m", "glenside", *moments.words.split()]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
    )
    time.sleep(after)
    early = process.poll() is not None
    process.send_signal(which)
    began = time.monotonic()
    try:
        errors = process.communicate(timeout=60)[1].decode()
    finally:
        process.kill()
    seconds = time.monotonic() - began
    said = f"{name}, {which.name} after {after:.2f} s: status {process.returncode} in {seconds:.1f} s: {errors}"
    assert "Traceback" not in errors, said
    assert early or seconds < ENDED, said
    # 0: it was done by then; -which: Python had not begun, and a shell shows that as 128 + which too
    assert process.returncode in ((0,) if early else (0, 128 + which, -which)), said
    left = {path.name for path in folder.iterdir()} - given
    expected = {moments.output, "out.h", "out.weights", "out.npz", "out.jsonl"}
    assert left <= expected, said
    if process.returncode == 0 and moments.output:
        assert moments.output in left, said
    if moments.output in left:
        assert (folder / moments.output).stat().st_size, said
        if moments.output == "out.json":
            assert gl.load(folder / "out.json").term.access.size, said
        if process.returncode:
            assert "no time for an answer" not in errors, said


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_a_signal_at_any_moment(name: str, inputs: Path, tmp_path: Path, fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(20):
        draw = random.Random(f"{name} {seed}")
        which = draw.choice([signal.SIGINT, signal.SIGTERM])
        folder = tmp_path / str(seed)
        folder.mkdir()
        _hold(name, which, draw.uniform(0.05, LONG[name].latest), inputs, folder)
