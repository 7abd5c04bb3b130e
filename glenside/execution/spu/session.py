"""Runs programs in SPU between two processes of this machine, and measures a party's results, communication and time.

SPU needs an older numpy than Glenside, so it has an environment of its own, whose python GLENSIDE_SPU_PYTHON names.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from glenside.execution.link import DelayingProxy
from glenside.exporters.jax import export_jax
from glenside.ir.errors import BadInput
from glenside.ir.files import read_arrays, write_arrays, write_text
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.targets.mpc.link import Link

VARIABLE = "GLENSIDE_SPU_PYTHON"
VERSION, JAX_VERSION = "0.9.5", "0.4.34"
HOW = (
    "SPU needs an environment of its own, with python 3.11: `python3.11 -m venv E && E/bin/pip install "
    f"spu=={VERSION} jax=={JAX_VERSION} jaxlib=={JAX_VERSION}`, and {VARIABLE}=E/bin/python"
)
# One thread per party: SPU's matrix products start one per core, and busy-wait for each other. Two parties on one
# machine then compete for the cores, and a product of 64x64x64 takes ten times as long.
_ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1"}
DIRECT = "direct"
"""The name of the link without any delay but the machine's own."""


@dataclass(frozen=True)
class Job:
    """A program whose constants have values, the values of its inputs, and how often to time it over each link.

    public  the names of the tensors that both parties know
    links   names of links of the session
    """

    program: Program
    values: Mapping[str, Array]
    public: frozenset[str] = frozenset()
    links: Sequence[str] = ()
    runs: int = 0


@dataclass(frozen=True)
class Measured:
    """The results in order, one party's communication, and the seconds of each run over each link, of the later party.

    processor  processor seconds of the busier party, without other processes
    """

    values: Sequence[Array]
    bytes: int
    messages: int
    seconds: Mapping[str, Sequence[float]]
    processor: Mapping[str, Sequence[float]]

    def median(self, link: str) -> float:
        """Returns the median seconds over a link."""
        return statistics.median(self.seconds[link])


def interpreter() -> str:
    """Returns the python of the environment with SPU. Raises BadInput, which says how to make it."""
    python = os.environ.get(VARIABLE)
    if not python:
        raise BadInput(f"{VARIABLE} does not name the python of an environment with SPU {VERSION}. {HOW}")
    path = os.path.abspath(shutil.which(python) or python)
    try:
        command = [path, "-I", "-c", "import jax, spu; print(spu.__version__)"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"{VARIABLE}={python} does not run: {error}. {HOW}") from None
    if done.returncode:
        raise BadInput(f"{VARIABLE}={python} has no SPU. {HOW}")
    version = done.stdout.strip()
    if not version.startswith(VERSION):
        raise BadInput(f"{VARIABLE}={python} has SPU {version}, not {VERSION}. {HOW}")
    return path


def measure(
    jobs: Sequence[Job],
    links: Mapping[str, Link | None],
    field: int = 64,
    protocol: str = "SEMI2K",
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Measured]:
    """Runs jobs one after the other between two processes.

      links     name of a link -> its bandwidth and latency, which a proxy imposes; None has no proxy
      progress  called with the number of finished runs, and of all runs

    The first run of a job is not timed. Jobs and their links alternate, so that other load of the machine affects all
    equally. Raises BadInput if SPU is not available or refuses a program.
    """
    python = interpreter()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for number, job in enumerate(jobs):
            write_text(folder / f"{number}.py", export_jax(job.program))
            arguments = [_value(job, name) for name in job.program.tensors]
            write_arrays(folder / f"{number}.npz", {f"a{i}": array for i, array in enumerate(arguments)})
        described = {
            "field": field,
            "protocol": protocol,
            "links": {name: _addresses(stack, link) for name, link in {DIRECT: None, **links}.items()},
            "jobs": [
                {"secret": [n not in job.public for n in job.program.tensors], "links": job.links, "runs": job.runs}
                for job in jobs
            ],
        }
        write_text(folder / "jobs.json", json.dumps(described))
        count = sum(1 + job.runs * len(job.links) for job in jobs)
        _parties(python, folder, lambda done: progress(done, count))
        return _outcomes(folder)


def _value(job: Job, name: str) -> Array:
    return job.values[name] if name in job.values else job.program.constants[name]


def _addresses(stack: ExitStack, link: Link | None) -> list[list[str]]:
    """Returns for each party the addresses of both: its own, and where it finds the other."""
    ports = _free_ports(2)
    own = [f"127.0.0.1:{port}" for port in ports]
    if link is None:
        return [own, own]
    parties = (("127.0.0.1", ports[0]), ("127.0.0.1", ports[1]))
    there = stack.enter_context(DelayingProxy(parties, link.bandwidth, link.latency)).addresses
    return [[own[0], there[1]], [there[0], own[1]]]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        return [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


def _parties(python: str, folder: Path, progress: Callable[[int], None]) -> None:
    """Runs both parties to their end. Raises BadInput with the message of the first that fails."""
    program, done = str(Path(__file__).with_name("party.py")), folder / "done"
    done.touch()
    with ExitStack() as stack:
        running: list[subprocess.Popen[bytes]] = []
        for rank in range(2):
            party = subprocess.Popen(
                [python, "-I", program, str(rank), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stack.enter_context(open(folder / f"error{rank}", "wb")),
                env={**os.environ, **_ENVIRONMENT},
            )
            stack.callback(_end, party)
            running.append(party)
        last = -1
        while any(party.poll() is None for party in running) and not any(party.poll() for party in running):
            time.sleep(0.05)
            if (runs := done.stat().st_size) > last:
                progress(last := runs)
        failed = next((rank for rank, party in enumerate(running) if party.poll()), None)
    if failed is not None:
        text = (folder / f"error{failed}").read_text(encoding="utf-8", errors="replace").strip()
        status = running[failed].returncode
        crashed = f"it crashed with signal {-status}" if status < 0 else f"it ended with status {status}"
        said = next((line.strip() for line in reversed(text.splitlines()) if "Error" in line), crashed)
        raise BadInput(f"SPU does not run the program: {said[:500]}")


def _end(party: subprocess.Popen[bytes]) -> None:
    if party.poll() is None:
        party.kill()
    party.wait()


def _outcomes(folder: Path) -> list[Measured]:
    parties = [json.loads((folder / f"measured{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    found = []
    for number, (first, second) in enumerate(zip(*parties, strict=True)):
        arrays = read_arrays(folder / f"{number}.out.npz")
        values = [arrays[f"arr_{i}"] for i in range(len(arrays))]
        seconds, processor = (
            {name: [*map(max, taken, second[what][name])] for name, taken in first[what].items()}
            for what in ("seconds", "processor")
        )
        found.append(Measured(values, first["sent"][0], first["sent"][1], seconds, processor))
    return found
