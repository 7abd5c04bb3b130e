"""Implements one of two parties that run programs in SPU, as a program in SPU's environment, without our modules.

  python -I party.py RANK FOLDER

FOLDER holds `jobs.json`, and for each job the module that `glenside.export_jax` wrote, with a function `program`, and
its arguments as .npz without Python objects. Party 0 compiles, shares the arguments and combines the results; data that
it passes to the other outside of the measured links are in FOLDER too. Each job runs once with SPU's profile, which
counts its communication. Then jobs run in turn, each over every requested link, timed from when both parties are ready.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import struct
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import spu.libspu as lib
from spu import api
from spu.utils import frontend

_SENT = re.compile(r"Link details: total send bytes (\d+), recv bytes \d+, send actions (\d+)")
_CLOCKS = {"seconds": time.perf_counter, "processor": time.process_time}
_PATIENCE = 600_000  # milliseconds that a party waits for the other


def _context(rank: int, name: str, addresses: list[str]) -> Any:
    """Returns a link to the other party: party `rank` listens at its own address."""
    described = lib.link.Desc()
    described.id = name
    for party, address in enumerate(addresses):
        described.add_party(f"party{party}", address)
    described.recv_timeout_ms = described.http_timeout_ms = _PATIENCE
    described.throttle_window_size = 0
    return lib.link.create_brpc(described, rank)


def _config(described: dict[str, Any], profile: bool) -> Any:
    protocol = getattr(lib.ProtocolKind, described["protocol"])
    config = lib.RuntimeConfig(protocol=protocol, field=getattr(lib.FieldType, f"FM{described['field']}"))
    config.enable_pphlo_profile = profile
    return config


class _Party:
    """One party with its links: the first is direct, and carries the counted runs."""

    def __init__(self, rank: int, folder: Path) -> None:
        self.rank, self.folder = rank, folder
        described = json.loads((folder / "jobs.json").read_text(encoding="utf-8"))
        self.jobs, self.described = described["jobs"], described
        self.secret, self.public = lib.Visibility.VIS_SECRET, lib.Visibility.VIS_PUBLIC
        self.links = {name: _context(rank, name, addresses[rank]) for name, addresses in described["links"].items()}
        self.direct = next(iter(self.links.values()))
        self.io = api.Io(2, _config(described, False))
        self.runtimes = {name: api.Runtime(link, _config(described, False)) for name, link in self.links.items()}
        self.counting = api.Runtime(self.direct.spawn(), _config(described, True))

    def run(self) -> None:
        """Counts the communication of each job; then times all jobs over all links, repeatedly."""
        ready = [self._ready(number, job) for number, job in enumerate(self.jobs)]
        measured: list[dict[str, Any]] = [
            {"sent": self._count(number, *of_job), **{what: {name: [] for name in job["links"]} for what in _CLOCKS}}
            for number, (job, of_job) in enumerate(zip(self.jobs, ready, strict=True))
        ]
        for turn in range(max((job["runs"] for job in self.jobs), default=0)):
            for job, of_job, found in zip(self.jobs, ready, measured, strict=True):
                for name in job["links"] if turn < job["runs"] else ():
                    taken = self._time(self.links[name], self.runtimes[name], *of_job)
                    for what, seconds in zip(_CLOCKS, taken, strict=True):
                        found[what][name].append(seconds)
        (self.folder / f"measured{self.rank}.json").write_text(json.dumps(measured), encoding="utf-8")
        for link in self.links.values():
            link.barrier()

    def _done(self) -> None:
        """Records one more finished run."""
        if not self.rank:
            with open(self.folder / "done", "ab") as file:
                file.write(b".")

    def _ready(self, number: int, job: dict[str, Any]) -> tuple[Any, list[Any]]:
        """Returns the compiled program, and this party's shares of its arguments."""
        if self.rank == 0:
            self._prepare(number, job)
        self.direct.barrier()
        names = json.loads((self.folder / f"{number}.names.json").read_text(encoding="utf-8"))
        code = (self.folder / f"{number}.code").read_bytes()
        executable = lib.Executable(name="program", input_names=names[0], output_names=names[1], code=code)
        return executable, [_read_share(self.folder / f"{number}.{name}.{self.rank}") for name in names[0]]

    def _prepare(self, number: int, job: dict[str, Any]) -> None:
        """Compiles the program, and makes the shares of its arguments."""
        function = _function(self.folder / f"{number}.py")
        with np.load(self.folder / f"{number}.npz", allow_pickle=False) as arrays:
            arguments = [arrays[f"a{i}"] for i in range(len(arrays.files))]
        visible = [self.secret if secret else self.public for secret in job["secret"]]
        inputs = [f"in{i}" for i in range(len(arguments))]
        options = lib.CompilerOptions()
        options.disable_div_sqrt_rewrite = True  # the cost model counts a quotient without its divisor
        executable, _ = frontend.compile(
            *(frontend.Kind.JAX, function, arguments, {}, inputs, visible),
            lambda flat: [f"out{i}" for i in range(len(flat))],
            copts=options,
        )
        (self.folder / f"{number}.code").write_bytes(executable.code)
        names = json.dumps([inputs, list(executable.output_names)])
        (self.folder / f"{number}.names.json").write_text(names, encoding="utf-8")
        for name, array, how in zip(inputs, arguments, visible, strict=True):
            for rank, share in enumerate(self.io.make_shares(array, how)):
                _write_share(self.folder / f"{number}.{name}.{rank}", share)

    def _count(self, number: int, executable: Any, shares: list[Any]) -> list[int]:
        """Returns the bytes and messages that this party sends, as SPU's profile reports; combines the results."""
        log = self.folder / f"log{self.rank}"
        with open(log, "wb+") as file:
            kept = os.dup(1), os.dup(2)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                self._feed(self.counting, executable, shares)
                self.counting.run(executable)
            finally:
                for stream, copy in enumerate(kept, 1):
                    os.dup2(copy, stream)
                    os.close(copy)
            file.seek(0)
            text = file.read().decode(errors="replace")
        found = _SENT.findall(text)
        if len(found) != 1:
            raise RuntimeError(f"SPU reported its communication {len(found)} times: {text[-2000:]}")
        outputs = [self.counting.get_var(name) for name in executable.output_names]
        self._drop(self.counting, executable)
        if self.rank:
            for place, share in enumerate(outputs):
                _write_share(self.folder / f"{number}.out{place}", share)
        self.direct.barrier()
        if not self.rank:
            others = [_read_share(self.folder / f"{number}.out{place}") for place in range(len(outputs))]
            values = [self.io.reconstruct([own, other]) for own, other in zip(outputs, others, strict=True)]
            np.savez(self.folder / f"{number}.out.npz", *map(np.asarray, values))
        self._done()
        return [int(n) for n in found[0]]

    def _time(self, link: Any, runtime: Any, executable: Any, shares: list[Any]) -> list[float]:
        """Returns the wall-clock seconds of one run, and this party's processor seconds in it, of all its threads."""
        self._feed(runtime, executable, shares)
        link.barrier()
        started = [clock() for clock in _CLOCKS.values()]
        runtime.run(executable)
        taken = [clock() - before for clock, before in zip(_CLOCKS.values(), started, strict=True)]
        self._drop(runtime, executable)
        self._done()
        return taken

    def _feed(self, runtime: Any, executable: Any, shares: list[Any]) -> None:
        for name, share in zip(executable.input_names, shares, strict=True):
            runtime.set_var(name, share)

    def _drop(self, runtime: Any, executable: Any) -> None:
        for name in dict.fromkeys((*executable.input_names, *executable.output_names)):
            runtime.del_var(name)


def _function(path: Path) -> Any:
    """Loads the function `program` of a module that `export_jax` wrote."""
    found = importlib.util.spec_from_file_location("program", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.program


def _write_share(path: Path, share: Any) -> None:
    """Writes the share of one party: its description, then its chunks, each after its length."""
    with open(path, "wb") as file:
        for part in (share.meta, *share.share_chunks):
            file.write(struct.pack("<Q", len(part)))
            file.write(part)


def _read_share(path: Path) -> Any:
    content, parts, place = path.read_bytes(), [], 0
    while place < len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        parts.append(content[place + 8 : place + 8 + size])
        place += 8 + size
    share = lib.Share()
    share.meta, share.share_chunks = parts[0], parts[1:]
    return share


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    _Party(int(sys.argv[1]), Path(sys.argv[2])).run()
