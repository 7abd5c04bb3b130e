"""Runs independent numpy jobs on all processors: numpy releases Python's lock."""

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
    """Limits BLAS to one thread while any caller needs it; setting the limit costs more than a small product."""

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
    """Returns the number of logical processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class concurrent_cached_property(Generic[Found]):
    """A property that is computed at first use and kept, like functools.cached_property, but per object.

    Up to Python 3.11, cached_property blocks threads that compute it for different objects. All threads get one value.
    """

    def __init__(self, find: Callable[[Any], Found]) -> None:
        self.find, self.name, self.__doc__ = find, "", find.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self.name = name

    def __get__(self, own: Any, _: type | None = None) -> Found:
        found: Found = own.__dict__.setdefault(self.name, self.find(own))
        return found


def in_parallel(work: Callable[[Job, Space], None], jobs: Iterable[Job], space: Callable[[Job], Space]) -> None:
    """Runs all jobs, one per core at a time, with BLAS on one thread. `space` allocates the temporaries of a worker.

    BLAS threads wait by spinning: while other work ran, small products were 10 times slower. Independent jobs never
    wait.
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
        with np.errstate(all="ignore"):  # numpy's error state is per thread
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
