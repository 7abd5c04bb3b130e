"""Runs cells of a sweep on a Dask cluster: `dask scheduler` on one machine, `dask worker tcp://HOST:PORT` on each.

Workers need the same code of Glenside. Each cell runs in a process of its own, so that a crash affects no other cell.
If a worker is lost, its cell runs again on another one. After Ctrl-C no new cell starts, and running cells finish on
the cluster.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.packages import install_command
from glenside.sweep.cells import Cell, Row, Runner, Stop
from glenside.sweep.processes import POLL, run_in_process

CONNECT_SECONDS = 5.0
"""Seconds that a scheduler, and then a worker, may take to answer."""
FETCH_SECONDS = 1.0
"""Seconds that a finished row may take to arrive before it is requested again later."""
ASK_SECONDS = 2.0
"""Seconds between queries for the workers of the cluster."""
LARGEST_GREETING = 1 << 20
"""Upper bound on the bytes of the first message of a scheduler, which has some hundred."""
LONELY_SECONDS = 30.0
"""Seconds without workers after which the remaining cells fail."""


def run_on_worker(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a cell on a worker: a cell as plain data -> its row as plain data."""
    return asdict(run_in_process(Cell.of_dict(cell)))


@contextmanager
def on_cluster(address: str) -> Iterator[Runner]:
    """Provides the runner of the cluster of a scheduler, such as tcp://10.0.0.5:8786, as a context manager.

    Raises BadInput if `distributed` is not installed, the address is invalid, no scheduler answers there within some
    seconds, or it has no workers.
    """
    try:
        import distributed
    except ImportError:
        command = install_command("distributed")
        raise BadInput(f"--scheduler requires the package distributed, which is not installed: {command}") from None
    match = re.fullmatch(r"tcp://([^\s/:\[\]]+|\[[0-9a-fA-F:]+\]):(\d{1,5})", address)
    if match is None or not 0 < int(match[2]) < 1 << 16:
        raise BadInput(f"--scheduler is written tcp://HOST:PORT, such as tcp://127.0.0.1:8786, got {address!r}")
    # What these log about lost connections is said in rows, once.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _probe(address, match[1].strip("[]"), int(match[2]))
    client = _connected(distributed.Client, address)

    def run(cells: Sequence[Cell], stop: Stop) -> Generator[tuple[int, Row], None, None]:
        waiting = {
            number: client.submit(run_on_worker, cell.as_dict(), pure=False) for number, cell in enumerate(cells)
        }
        try:
            yield from _answers(client, waiting, stop)
        finally:
            with suppress(Exception):
                client.cancel(list(waiting.values()), force=True)

    try:
        yield run
    finally:
        with suppress(Exception):
            client.close(timeout=1)


def _probe(address: str, host: str, port: int) -> None:
    """Checks that a scheduler answers: it sends a short message first; a client would wait forever for a missing one.

    Raises BadInput.
    """
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
            greeting = connection.recv(8, socket.MSG_WAITALL)
        if len(greeting) == 8 and int.from_bytes(greeting, "little") <= LARGEST_GREETING:
            return
        reason = "what answers there is no Dask scheduler"
    except TimeoutError:
        reason = f"nothing answers there within {CONNECT_SECONDS:.0f} s"
    except (OSError, UnicodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    raise BadInput(f"no scheduler at {address}: {reason}; start one with: dask scheduler")


def _connected(client_class: Any, address: str) -> Any:
    """Returns a client with at least one worker. Raises BadInput."""
    try:
        client = client_class(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # the exceptions differ between versions of Dask
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"no scheduler at {address}: {reason}; start one with: dask scheduler") from error
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except TimeoutError:
        client.close(timeout=1)
        raise BadInput(
            f"the scheduler {address} has no workers; start one on each machine with: dask worker {address}"
        ) from None
    return client


def _answers(client: Any, waiting: dict[int, Any], stop: Stop) -> Iterator[tuple[int, Row]]:
    """Yields rows as they finish; polls for them, because a callback would run in another thread."""
    heard = asked = time.monotonic()
    while waiting and not stop():
        for number in [number for number, future in waiting.items() if future.done()]:
            row = _row(waiting[number])
            if row is not None:
                del waiting[number]
                yield number, row
            if stop():
                return
        now = time.monotonic()
        if now - asked > ASK_SECONDS:
            asked = now
            with suppress(Exception):  # it is asked again; only a missing answer counts
                heard = now if client.sync(client.scheduler.ncores, callback_timeout=1.0) else heard
        if now - heard > LONELY_SECONDS:
            for number in list(waiting):
                yield number, Row(failed=f"the cluster had no workers for {LONELY_SECONDS:.0f} s")
            return
        time.sleep(POLL)


def _row(future: Any) -> Row | None:
    """Returns the row of a finished future; None if its worker was lost before the row was fetched, so that it runs
    again.
    """
    try:
        return Row.of_dict(future.result(timeout=FETCH_SECONDS))
    except TimeoutError:
        return None
    except Exception as error:
        if future.status in ("cancelled", "lost"):
            return Row(failed="the scheduler went away")
        if type(error).__name__ == "KilledWorker":
            return Row(failed="each worker that ran it was lost, as when memory runs out")
        return Row(failed=f"on its worker: {' '.join(f'{type(error).__name__}: {error}'.split())}")
