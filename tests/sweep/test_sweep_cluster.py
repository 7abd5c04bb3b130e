"""Tests sweeps on a Dask cluster: a lost worker, a lost scheduler, and a wrong address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sweep_programs import HANG, sample_programs, without_seconds

from glenside.ir.errors import BadInput
from glenside.sweep import cluster as sweep_cluster
from glenside.sweep.cells import Cell, Row, cells, sweep
from glenside.sweep.processes import in_processes

pytest.importorskip("distributed", reason="the package distributed is not installed")


@pytest.fixture
def programs(tmp_path: Path) -> list[str]:
    return sample_programs(tmp_path)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n"], ids=["nothing", "something else"])
def test_what_is_no_scheduler_is_refused_soon(says: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_cluster, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionResetError):
                connection.sendall(says)
                connection.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        started = time.monotonic()
        with pytest.raises(BadInput, match="no scheduler at tcp"), sweep_cluster.on_cluster(address):
            pass
        assert time.monotonic() - started < HANG / 4
        thread.join(HANG)


class Cluster:
    """A scheduler and two workers, each a process, on this machine."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        self._folder = folder
        self.scheduler = self._start("dask_scheduler", "--host", "127.0.0.1", "--port", self.address.split(":")[-1])
        self.workers = [
            self._start("dask_worker", self.address, "--no-nanny", "--nthreads", "1") for _ in range(workers)
        ]

    def _start(self, module: str, *words: str) -> subprocess.Popen[bytes]:
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *words, "--no-dashboard"],
            cwd=self._folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", int(made.address.split(":")[-1])), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield made
    finally:
        made.end()


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_still_gives_every_row(cluster: Cluster, programs: list[str]) -> None:
    wanted = cells([*programs, "mobilenet-v1"], "16x16,32x32", "cycles;bytes", ["resolution=32"])
    here = sweep(wanted, in_processes(2))
    killed: list[Row] = []

    def on_row(_: Cell, row: Row) -> None:
        if not killed:
            cluster.workers[0].kill()
        killed.append(row)

    with sweep_cluster.on_cluster(cluster.address) as runner:
        rows = sweep(wanted, runner, on_row=on_row)
    assert cluster.workers[0].wait(HANG) == -signal.SIGKILL
    assert all(row is not None and row.ok for row in rows)
    assert without_seconds(rows) == without_seconds(here)


@pytest.mark.slow
def test_a_scheduler_that_goes_away_is_a_reason_and_not_a_hang(cluster: Cluster, programs: list[str]) -> None:
    wanted = cells([*programs, "mobilenet-v1"], "16x16,32x32", "cycles;bytes", ["resolution=32"])
    with sweep_cluster.on_cluster(cluster.address) as runner:
        rows = sweep(wanted, runner, on_row=lambda *_: cluster.scheduler.kill())
    assert all(row is not None for row in rows)
    assert {row.failed for row in rows if row is not None} == {"", "the scheduler went away"}


@pytest.mark.slow
def test_a_cluster_without_workers_is_refused_or_a_reason(
    cluster: Cluster, programs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_cluster, "LONELY_SECONDS", 4.0)

    def on_row(*_: object) -> None:
        for worker in cluster.workers:
            worker.kill()

    wanted = cells([*programs, "mobilenet-v1"], "16x16,32x32", "cycles;bytes", ["resolution=32"])
    with sweep_cluster.on_cluster(cluster.address) as runner:
        rows = sweep(wanted, runner, on_row=on_row)
    assert "the cluster had no workers for 4 s" in {row.failed for row in rows if row is not None}
    with pytest.raises(BadInput, match="has no workers"), sweep_cluster.on_cluster(cluster.address):
        pass
