"""Tests the emulated network link: data arrive whole, in order, and no earlier than the link allows."""

from __future__ import annotations

import socket
import threading
import time

from glenside.execution.link import DelayingProxy


def _echo(server: socket.socket) -> None:
    peer, _ = server.accept()
    with peer:
        while content := peer.recv(1 << 16):
            peer.sendall(content)


def _there_and_back(content: bytes, bandwidth: float, latency: float) -> tuple[bytes, float]:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        threading.Thread(target=_echo, args=(second,), daemon=True).start()
        with DelayingProxy((first.getsockname(), second.getsockname()), bandwidth, latency) as proxy:
            host, port = proxy.addresses[1].split(":")
            with socket.create_connection((host, int(port))) as link:
                started, got = time.perf_counter(), b""
                threading.Thread(target=link.sendall, args=(content,), daemon=True).start()
                while len(got) < len(content):
                    got += link.recv(1 << 16)
                return got, time.perf_counter() - started


def test_a_message_takes_the_delay_in_each_direction() -> None:
    got, seconds = _there_and_back(b"message", 1e9, 0.02)
    assert got == b"message"
    assert seconds >= 0.04


def test_bytes_take_the_rate_of_the_link() -> None:
    content = bytes(range(256)) * 1000
    got, seconds = _there_and_back(content, 5e6, 0)
    assert got == content
    assert seconds >= len(content) / 5e6
