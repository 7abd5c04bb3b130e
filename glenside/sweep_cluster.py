"""Cells of a sweep on a Dask cluster: `dask scheduler` on one machine, `dask worker tcp://HOST:PORT` on each.

Workers need the same code of Glenside. Each cell runs in a process of its own there, so that what befalls it befalls no
other. A cell of a worker that is lost runs again on another one. After Ctrl-C nothing new begins, and cells that are
running on the cluster run to their end there.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from glenside.ir.errors import BadInput
from glenside.sweep import Cell, Row, Runner, Stop
from glenside.sweep_process import POLL, run_in_process

CONNECT_SECONDS = 5.0
"""How long a scheduler, and then a worker, may take to answer."""
LONELY_SECONDS = 30.0
"""How long a cluster may have no workers before the cells that are left fail."""


def run_on_worker(cell: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker runs: a cell as plain data -> its row as plain data."""
    return asdict(run_in_process(Cell.of_dict(cell)))


def on_cluster(address: str) -> Runner:
    """The runner of the cluster of a scheduler, such as tcp://10.0.0.5:8786.

    Raises BadInput: `distributed` is not installed, or the address is none; when it runs: nothing answers there within
    some seconds, or there are no workers.
    """
    try:
        import distributed
    except ImportError:
        raise BadInput(
            "--scheduler requires the package distributed, which is not installed: pip install 'glenside[distributed]'"
        ) from None
    match = re.fullmatch(r"(?:tcp|tls)://(?:[^\s/:]+|\[[0-9a-fA-F:]+\]):(\d{1,5})", address)
    if match is None or not 0 < int(match[1]) < 1 << 16:
        raise BadInput(f"--scheduler is written tcp://HOST:PORT, such as tcp://127.0.0.1:8786, got {address!r}")

    def run(cells: Sequence[Cell], stop: Stop) -> Generator[tuple[int, Row], None, None]:
        with _quiet():
            client = _connected(distributed.Client, address)
            waiting: dict[int, Any] = {}
            try:
                for number, cell in enumerate(cells):
                    waiting[number] = client.submit(run_on_worker, cell.as_dict(), pure=False)
                yield from _answers(client, waiting, stop)
            finally:
                with suppress(Exception):
                    client.cancel(list(waiting.values()), force=True)
                with suppress(Exception):
                    client.close(timeout=1)

    return run


def _connected(client_class: Any, address: str) -> Any:
    """A client with at least one worker. Raises BadInput."""
    try:
        client = client_class(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"no scheduler answers at {address} within {CONNECT_SECONDS:.0f} s; start one with: dask scheduler"
        ) from error
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except TimeoutError:
        client.close(timeout=1)
        raise BadInput(
            f"the scheduler {address} has no workers; start one on each machine with: dask worker {address}"
        ) from None
    return client


def _answers(client: Any, waiting: dict[int, Any], stop: Stop) -> Iterator[tuple[int, Row]]:
    """Rows as they come; asked for now and then, because a callback would come in another thread."""
    heard = time.monotonic()
    while waiting and not stop():
        ready = [number for number, future in waiting.items() if future.done()]
        for number in ready:
            row = _row(waiting[number])
            if row is not None:
                del waiting[number]
                yield number, row
            if stop():
                return
        now = time.monotonic()
        lost = client.status not in ("running", "connecting", "newly-created")
        if client.status == "running" and client.scheduler_info()["workers"]:
            heard = now
        if lost or now - heard > LONELY_SECONDS:
            reason = "the scheduler went away" if client.status != "running" else "the cluster lost all its workers"
            for number in list(waiting):
                del waiting[number]
                yield number, Row(failed=reason)
        time.sleep(POLL)


def _row(future: Any) -> Row | None:
    """The row of a finished future, or None when its worker was lost before the row was fetched, so that it runs again."""
    try:
        return Row.of_dict(future.result(timeout=CONNECT_SECONDS))
    except TimeoutError:
        return None
    except Exception as error:
        if future.status in ("cancelled", "lost"):
            return Row(failed="the scheduler went away")
        if type(error).__name__ == "KilledWorker":
            return Row(failed="each worker that ran it was lost, as when memory runs out")
        return Row(failed=f"on its worker: {' '.join(f'{type(error).__name__}: {error}'.split())}")


@contextmanager
def _quiet() -> Iterator[None]:
    """What the client logs about lost connections is said in rows, once."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
