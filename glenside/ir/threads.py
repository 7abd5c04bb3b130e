"""Jobs of numpy's that need no other job, done by all processors at a time: numpy lets go of Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

Job = TypeVar("Job")
Space = TypeVar("Space")
Found = TypeVar("Found")


@cache
def _controller() -> Any:
    return ThreadpoolController()


class _OneThread:
    """BLAS on one thread, for as long as anybody asks for it: to say so takes longer than a small product."""

    def __init__(self) -> None:
        self._lock, self._asking = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._asking:
                self._limit = _controller().limit(limits=1, user_api="blas")
            self._asking += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._asking -= 1
            if not self._asking and self._limit is not None:
                self._limit.restore_original_limits()
                self._limit = None


BLAS_ON_ONE_THREAD = _OneThread()


def processors() -> int:
    """Return how many logical processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class found_once(Generic[Found]):
    """A property that is found the first time it is asked for, and kept: as functools.cached_property, but that threads
    find those of several objects at a time, where up to Python 3.11 one waits for the other. All get the same object.
    """

    def __init__(self, find: Callable[[Any], Found]) -> None:
        self.find, self.name, self.__doc__ = find, "", find.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self.name = name

    def __get__(self, own: Any, _: type | None = None) -> Found:
        found: Found = own.__dict__.setdefault(self.name, self.find(own))
        return found


def in_parallel(work: Callable[[Job, Space], None], jobs: Iterable[Job], space: Callable[[Job], Space]) -> None:
    """Do all jobs, one per core at a time, with BLAS on one thread; each worker in a space for jobs like the first.

    Threads of BLAS wait for each other by spinning: while anything else runs, small products were 10 times slower.
    A job needs no other job, so here nothing waits.
    """
    remaining: Iterator[Job] = iter(jobs)
    first = list(islice(remaining, 2))
    if len(first) < 2:
        for job in first:
            with np.errstate(all="ignore"), BLAS_ON_ONE_THREAD:
                work(job, space(job))
        return
    remaining = chain(first, remaining)
    lock = Lock()

    def drain(space: Space) -> None:
        with np.errstate(all="ignore"):  # numpy's error state belongs to a thread
            while True:
                with lock:
                    job = next(remaining, None)
                if job is None:
                    return
                work(job, space)

    with BLAS_ON_ONE_THREAD:
        first = list(islice(remaining, processors()))
        spaces = [space(first[0]) for _ in first]
        remaining = chain(first, remaining)
        del first
        if len(spaces) < 2:
            for own in spaces:
                drain(own)
            return
        with ThreadPoolExecutor(len(spaces)) as pool:
            futures = [pool.submit(drain, own) for own in spaces]
            try:
                for future in futures:
                    future.result()
            finally:
                with lock:
                    remaining = iter(())  # after an error or Ctrl-C, start no further job
