"""Imposes the bandwidth and latency of a network link on two processes of one machine."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

_CHUNK = 1 << 17


class _Line:
    """One direction: bytes are sent in order at the bandwidth of the link, and arrive after its latency."""

    def __init__(self, bandwidth: float, latency: float) -> None:
        self.bandwidth, self.latency = bandwidth, latency
        self._free, self._lock = 0.0, threading.Lock()

    def arrival(self, size: int) -> float:
        """Returns when `size` bytes that are sent now arrive."""
        with self._lock:
            self._free = max(self._free, time.perf_counter()) + size / self.bandwidth
            return self._free + self.latency


class DelayingProxy:
    """Two addresses, one in front of each of two parties, which forward data with delay.

      bandwidth  bytes per second in each direction, of all connections together
      latency    seconds from one party to the other

    `addresses[i]` is where the other party finds party i, which listens at `parties[i]`, a (host, port).
    """

    def __init__(self, parties: tuple[tuple[str, int], tuple[str, int]], bandwidth: float, latency: float) -> None:
        towards = (_Line(bandwidth, latency), _Line(bandwidth, latency))
        self._servers: list[socket.socket] = []
        self._open: list[socket.socket] = []
        self.addresses: list[str] = []
        for party, address in enumerate(parties):
            server = socket.create_server(("127.0.0.1", 0))
            self._servers.append(server)
            self.addresses.append(f"127.0.0.1:{server.getsockname()[1]}")
            _start(self._accept, server, address, towards[party], towards[1 - party])

    def __enter__(self) -> DelayingProxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for opened in (*self._servers, *self._open):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _accept(self, server: socket.socket, address: tuple[str, int], there: _Line, back: _Line) -> None:
        while True:
            try:
                near, _ = server.accept()
            except OSError:  # closed
                return
            try:
                far = socket.create_connection(address)
            except OSError:  # the party does not listen yet: the other one retries
                near.close()
                continue
            for opened in (near, far):
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(opened)
            _start(_carry, near, far, there)
            _start(_carry, far, near, back)


def _carry(source: socket.socket, sink: socket.socket, line: _Line) -> None:
    """Reads data as soon as they come, and writes them when they arrive."""
    waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
    _start(_deliver, waiting, sink)
    content = b"more"
    while content:
        try:
            content = source.recv(_CHUNK)
        except OSError:
            content = b""
        waiting.put((line.arrival(len(content)), content))


def _deliver(waiting: queue.SimpleQueue[tuple[float, bytes]], sink: socket.socket) -> None:
    while True:
        arrival, content = waiting.get()
        if (early := arrival - time.perf_counter()) > 0:
            time.sleep(early)
        with suppress(OSError):
            if not content:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(content)


def _start(run: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=run, args=arguments, daemon=True).start()
