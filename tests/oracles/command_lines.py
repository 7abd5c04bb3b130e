"""Odd command lines, drawn from what the commands declare: a new option is among them at once.

A line is a command that would work, on a small program, with one to three arguments or options that are odd: numbers
beyond all bounds, names in any encoding, paths that are folders or devices, texts that are cut. It runs in a process
of its own, forked from this one, where everything is imported.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import typer

from glenside.cli import main as entry
from glenside.cli.application import app
from glenside.targets import load_all

SECONDS, MEMORY = 60, 12 << 30
STATUSES = (0, 1, 2, 130, 143)
_LONG = "9" * 5000
_NUMBERS = ("0", "-1", "1", "3", "2.5", "1e308", "1e999", "-1e400", "nan", "inf", "-inf", "9223372036854775807")
_MORE = ("9223372036854775808", "-9223372036854775809", "18446744073709551616", _LONG, "1/0", "1/3", "0x10", "1_000")
_TEXTS = (
    "",
    " ",
    "-",
    "--",
    "=",
    ",",
    ";",
    ":",
    "é",
    "\udcff\udcfe",
    "a\nb",
    "\x1b[31m",
    "x" * 300,
    "%s",
    "{}",
    "'",
    "(",
)
_PATHS = (".", "..", "/", "fifo", "nothere/x", "/dev/full", "/proc/nothere", "nul", "empty.glenside", "x" * 300)
_INPUTS = ("/dev/zero", "nest.json", "nest.toml", "nul.npz", "nest.glenside", "huge.glenside", "digits.glenside")
_ENDS = (".glenside", ".onnx", ".json", ".py", ".npz", ".npy", ".toml", ".png", ".pdf", ".qqq", ".jsonl", "")
_SIZES = ("4x4", "0x4", "-1x4", f"{_LONG}x4", "9223372036854775807x9223372036854775807", "4x", "x", "4x4x4", "4x4,4x4")
_NAMED = ("x=", "w=", "nothere=", "=", "é=", "\udcff=", "resolution=", "width=")
_TARGETS = (
    "cpu:8MB",
    "cpu:0B",
    "cpu:1e400GB",
    f"cpu:{_LONG}GB",
    "cpu:8MB,balance=1e308",
    "mpc:semi2k",
    "mpc:",
    "mpc:aby3",
)
_MACHINES = ("double-buffered:4x4", "output-stationary:4x4", "blocks:4x4", "convolution-unit:nhwc", "systolic-array:")
_LINKS = (
    "lan",
    "wan",
    "100Mbit,20ms",
    f"{_LONG}Mbit,20ms",
    "1e999Mbit,1e999ms",
    "0Mbit,-1ms",
    "1Mbit",
    "nanMbit,nanms",
)
_BYTES = ("0GB", "1e999GB", f"{_LONG}GB", "-1MB", "1B", "nanGB", "2 GB", "1MB")
_WORDS = (
    "exact",
    "onnxruntime",
    "greedy",
    "dag",
    "auto",
    "best",
    "baseline",
    "bytes",
    "cycles,bytes",
    "tile-loops",
    "nhwc",
)
VALUES = (
    *(_NUMBERS, _MORE, _TEXTS, _PATHS, _INPUTS, _SIZES, _TARGETS, _MACHINES, _LINKS, _BYTES, _WORDS),
    tuple(f"1,{n}" for n in (*_NUMBERS, *_MORE)),
)
WORKING = {"file": "e.json", "m": "2", "r": "3", "name": "relu", "other": "p.glenside"}
PROGRAM = (
    "(input x (shape 5 7) float32) (constant w (shape 3 7) float32) (compute dot-product "
    "(access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))"
)
E_GRAPH = '{"nodes": {"a": {"op": "a", "children": [], "eclass": "0", "cost": 1}}, "root_eclasses": ["0"]}'


def prepare(folder: Path) -> None:
    """Writes the files that command lines name, good and odd ones."""
    for name, text in {
        "p.glenside": PROGRAM,
        "e.json": E_GRAPH,
        "empty.glenside": "",
        "nest.glenside": "(" * 100_000,
        "nest.json": "[" * 100_000,
        "nest.toml": "a=" + "[" * 100_000,
        "nul": "\0" * 1000,
        "nul.npz": "\0" * 1000,
        "digits.glenside": f"(input x (shape {_LONG}) float32) (access-tensor x)",
        "huge.glenside": PROGRAM.replace("5 7", "2147483648 7"),
    }.items():
        (folder / name).write_text(text)
    os.mkfifo(folder / "fifo")
    load_all()


def line(pick: random.Random) -> list[str]:
    """Draws one command line."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    name = pick.choice(sorted(commands))
    declared = commands[name].params
    odd = {p.name for p in pick.sample(declared, min(len(declared), pick.choice((1, 1, 2, 3))))}
    words = [name]
    known = {p.name for p in declared}
    if "array" in known and not odd & {"array", "target"}:
        words += ["--array", "4x4"]
    if "minutes" in known and "minutes" not in odd:
        words += ["--minutes", "0.01"]
    if "no_cache" in known and pick.random() < 0.9:
        words.append("--no-cache")
    for parameter in declared:
        if parameter.param_type_name == "argument":
            if parameter.required or parameter.name in odd:
                usual = WORKING.get(parameter.name, "p.glenside")
                words.append(_value(parameter, pick) if parameter.name in odd and pick.random() < 0.7 else usual)
        elif parameter.name in odd:
            words += [parameter.opts[0], *([] if parameter.is_flag else [_value(parameter, pick)])]
        elif parameter.required:
            words += [parameter.opts[0], "4x4"]
    return words


def _value(parameter: Any, pick: random.Random) -> str:
    value = pick.choice(pick.choice(VALUES))
    kind = parameter.metavar or ""
    if "=" in kind and pick.random() < 0.8:
        return pick.choice(_NAMED) + value
    if ("FILE" in kind or "." in kind) and pick.random() < 0.5:
        return value + pick.choice(_ENDS)
    return value


def tried(words: list[str], folder: Path) -> str:
    """Runs a command; returns a fault of it, or ""."""
    errors = folder / ".errors"
    process = os.fork()
    if not process:
        _become(words, folder, errors)
    end = time.monotonic() + SECONDS
    status = None
    while status is None and time.monotonic() < end:
        done, how = os.waitpid(process, os.WNOHANG)
        status = os.waitstatus_to_exitcode(how) if done else None
        time.sleep(0.005)
    if status is None:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return "no answer in time"
    said = errors.read_text(errors="replace")
    if "Traceback" in said:
        return said[-400:]
    return "" if status in STATUSES else f"status {status}: {said[-200:]}"


def _become(words: list[str], folder: Path, errors: Path) -> None:
    """Runs the command in its own process group. Never returns."""
    status = 99
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for target, path, how in ((0, os.devnull, os.O_RDONLY), (1, os.devnull, os.O_WRONLY)):
            os.dup2(os.open(path, how), target)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        # What runs the tests may have put others in their place.
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(n, "r" if n == 0 else "w", errors="backslashreplace") for n in range(3)
        )
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["glenside", *words]
        entry()
        status = 0
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
