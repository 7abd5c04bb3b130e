"""Runs functions written by `glenside.export_jax` in JAX and in SPU's simulation of two parties, in another process.

SPU needs an older numpy than Glenside, so it lives in an environment of its own, the python of which
GLENSIDE_SPU_PYTHON names: `python3.11 -m venv E && E/bin/pip install 'spu==0.9.5' 'jax==0.4.34' 'jaxlib==0.4.34'`.
The second half of this file is the program that runs there: it imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "GLENSIDE_SPU_PYTHON"

# Seconds for one call; a simulation takes tenths of a second.
TIMEOUT = 1200


@dataclass(frozen=True)
class Job:
    """A module of a function `program`, its arguments in order, and which of them are secret.

    `field` is that of the protocol in bits; None runs the function in JAX itself, with numbers of 64 bits.
    """

    source: str
    arguments: Sequence[Any]
    secret: Sequence[bool] = ()
    field: int | None = 64


@dataclass(frozen=True)
class Outcome:
    """The results, and the traffic of one party: None in JAX itself."""

    values: list[Any]
    bytes: int | None = None
    messages: int | None = None


def missing() -> str | None:
    """Returns why SPU cannot be run, or None if it can."""
    if not os.environ.get(VARIABLE):
        return f"{VARIABLE} does not name the python of an environment with spu==0.9.5 and jax==0.4.34"
    try:
        command = [_python(), "-c", "import spu, jax; print(spu.__version__)"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{VARIABLE} does not run: {error}"
    if done.returncode:
        return f"{VARIABLE} has no SPU: {done.stderr.strip()[-200:]}"
    version = done.stdout.strip()
    return None if version.startswith("0.9.5") else f"{VARIABLE} has SPU {version}, not 0.9.5"


def _python() -> str:
    python = os.environ[VARIABLE]
    return os.path.abspath(shutil.which(python) or python)


def run(jobs: Iterable[Job]) -> list[Outcome]:
    """Runs all jobs in one process, one after the other."""
    jobs = list(jobs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, job in enumerate(jobs):
            (folder / f"{i}.py").write_text(job.source, encoding="utf-8")
            np.savez(folder / f"{i}.npz", *(np.asarray(value) for value in job.arguments))
        described = [{"secret": [*job.secret], "field": job.field} for job in jobs]
        (folder / "jobs.json").write_text(json.dumps(described), encoding="utf-8")
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        command = [_python(), "-I", os.path.abspath(__file__), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment)
        if done.returncode:
            raise RuntimeError(f"the simulation gave {done.returncode}: {done.stderr[-3000:]}")
        sent = json.loads((folder / "sent.json").read_text(encoding="utf-8"))
        outcomes = []
        for i, (size, messages) in enumerate(sent):
            with np.load(folder / f"{i}.out.npz") as arrays:
                outcomes.append(Outcome([arrays[key] for key in arrays.files], size, messages))
    return outcomes


# What follows runs in the environment of SPU.

_SENT = re.compile(r"Link details: total send bytes (\d+), recv bytes \d+, send actions (\d+)")


def _main(folder: Path) -> None:
    sent = []
    for i, job in enumerate(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))):
        names: dict[str, Any] = {}
        path = folder / f"{i}.py"
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
        with np.load(folder / f"{i}.npz") as arrays:
            arguments = [arrays[key] for key in arrays.files]
        if job["field"] is None:
            values, counted = _in_jax(names["program"], arguments), (None, None)
        else:
            values, counted = _in_spu(names["program"], arguments, job, folder / "log")
        np.savez(folder / f"{i}.out.npz", *values)
        sent.append(counted)
    (folder / "sent.json").write_text(json.dumps(sent), encoding="utf-8")


def _in_jax(function: Any, arguments: list[Any]) -> list[Any]:
    import jax

    with jax.experimental.enable_x64():
        return [np.asarray(value) for value in jax.tree_util.tree_leaves(function(*arguments))]


def _in_spu(function: Any, arguments: list[Any], job: Mapping[str, Any], log: Path) -> tuple[list[Any], Any]:
    """Returns the results and the traffic of party 0, from SPU's own profile of the link."""
    import jax
    import spu.libspu as lib
    from spu.utils import frontend

    config = lib.RuntimeConfig(protocol=lib.ProtocolKind.SEMI2K, field=getattr(lib.FieldType, f"FM{job['field']}"))
    config.enable_pphlo_profile = True
    secret = [lib.Visibility.VIS_SECRET if s else lib.Visibility.VIS_PUBLIC for s in job["secret"]]
    options = lib.CompilerOptions()
    options.disable_div_sqrt_rewrite = True  # a quotient is priced without what it divides by
    names = [f"in{i}" for i in range(len(arguments))]

    def outputs(flat: Any) -> list[str]:
        return [f"out{i}" for i in range(len(flat))]

    executable, shaped = frontend.compile(
        frontend.Kind.JAX, function, arguments, {}, names, secret, outputs, copts=options
    )
    del shaped, jax
    values, text = _simulate(lib, config, executable, arguments, secret, log)
    found = _SENT.findall(text)
    if len(found) != 1:
        raise RuntimeError(f"SPU told {len(found)} times what it sent: {text[-2000:]}")
    return values, tuple(map(int, found[0]))


def _simulate(
    lib: Any, config: Any, executable: Any, arguments: list[Any], secret: list[Any], log: Path
) -> tuple[list[Any], str]:
    """Returns the results, and the output of the parties, which contains their profile."""
    from spu.utils import simulation

    class Shared(simulation.Simulator):  # type: ignore[misc]
        """A simulator that shares secret arguments and passes the others in the clear."""

        def __call__(self, executable: Any, *flat: Any) -> Any:
            ways, make = iter(secret), self.io.make_shares
            self.io.make_shares = lambda x, _: make(x, next(ways))
            return super().__call__(executable, *flat)

    with open(log, "wb+") as file:
        kept = os.dup(1), os.dup(2)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            results = Shared(2, config)(executable, *arguments)
        finally:
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
        file.seek(0)
        return [np.asarray(value) for value in results], file.read().decode(errors="replace")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
