"""Jobs that find numbers, done by this process and by copies of it: threads would wait for one lock of Python's."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from glenside.ir.interrupts import STOPS
from glenside.ir.threads import cores

Find = Callable[[], Sequence[float]]
_NUMBER, _VALUE = struct.Struct("<i"), struct.Struct("<d")
_AT_ONCE = 1 << 12
"""Bytes that Linux writes to a pipe at once, whoever else writes."""
_COPIES = 3
"""Copies at a time, at most: what each of them changes in memory it has twice."""
_FEW = 3
"""Jobs for which no copy is made."""
_MOST = 1 << 12
"""Jobs that are shared out: as many numbers are in a pipe without anybody reading them."""


def may_be_copied() -> bool:
    """Whether there is a processor for a second process, and nothing in this one that a copy must not have: threads
    that compute. Those that only show something are daemons.
    """
    others = (thread for thread in threading.enumerate() if thread is not threading.current_thread())
    alone = multiprocessing.parent_process() is None and all(thread.daemon for thread in others)
    if sys.platform != "linux" or cores() < 2 or not alone:
        return False
    return threading.current_thread() is threading.main_thread()


def shared_out(jobs: Sequence[Find], first: Callable[[], None] = lambda: None) -> list[Sequence[float]]:
    """What jobs find, in their order: the same whoever does them. `first` is what this process does before it takes any
    of them. What a copy does not tell this process finds by itself; so it raises what a job raises.
    """
    found: dict[int, Sequence[float]] = {}
    if _FEW < len(jobs) <= _MOST and may_be_copied():
        with suppress(OSError):
            found = _shared_out(jobs, first)
            first = _nothing
    first()
    return [found[number] if number in found else job() for number, job in enumerate(jobs)]


def _nothing() -> None: ...


def _shared_out(jobs: Sequence[Find], first: Callable[[], None]) -> dict[int, Sequence[float]]:
    """The same by number, of those that are told. Raises OSError before anything is done: no copy can be made."""
    tickets, give = os.pipe()
    try:
        for number in range(len(jobs)):
            os.write(give, _NUMBER.pack(number))
    finally:
        os.close(give)
    hear, answers = os.pipe()
    copies, found = list[int](), dict[int, Sequence[float]]()
    try:
        for _ in range(min(_COPIES, cores() - 1)):
            copies.append(_copy(jobs, tickets, answers, hear))
        os.close(answers)
        answers = -1
        first()
        while ticket := os.read(tickets, _NUMBER.size):
            (number,) = _NUMBER.unpack(ticket)
            found[number] = jobs[number]()
        with open(hear, "rb", closefd=False) as stream:
            told = stream.read()
        return {**_understood(told), **found}
    finally:
        for copy in copies:
            os.kill(copy, signal.SIGKILL)
            os.waitpid(copy, 0)
        for end in (tickets, hear, answers):
            if end >= 0:
                os.close(end)


def _understood(told: bytes) -> dict[int, Sequence[float]]:
    """What copies wrote: the number of a job, how many numbers it found, and these."""
    found, at = dict[int, Sequence[float]](), 0
    while at + 2 * _NUMBER.size <= len(told):
        (number,), (count,) = _NUMBER.unpack_from(told, at), _NUMBER.unpack_from(told, at + _NUMBER.size)
        at += 2 * _NUMBER.size
        values = told[at : at + count * _VALUE.size]
        at += count * _VALUE.size
        if len(values) == count * _VALUE.size:
            found[number] = [value for (value,) in _VALUE.iter_unpack(values)]
    return found


def _copy(jobs: Sequence[Find], tickets: int, answers: int, hear: int) -> int:
    """A copy that takes jobs until there are none, by its number."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until this process knows whom to end
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: they only show something
            process = os.fork()
        if not process:
            _serve(jobs, tickets, answers, hear)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _serve(jobs: Sequence[Find], tickets: int, answers: int, hear: int) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other one, which then ends this process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        gc.disable()  # it would touch all of the memory that is shared
        os.close(hear)
        while ticket := os.read(tickets, _NUMBER.size):
            (number,) = _NUMBER.unpack(ticket)
            values = jobs[number]()
            told = _NUMBER.pack(number) + _NUMBER.pack(len(values)) + b"".join(map(_VALUE.pack, values))
            if len(told) <= _AT_ONCE:  # others write too
                os.write(answers, told)
    finally:
        os._exit(0)  # nothing that this process is a copy of is to be left as on its end
