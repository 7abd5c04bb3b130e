"""Opens and closes the thread pools of compiled libraries."""

from __future__ import annotations

import ctypes
import os
import weakref
from threading import Lock


class Pool:
    """A thread pool of a library, used by one call at a time."""

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self.threads, self.process = threads, os.getpid()
        self.address, self.lock = ctypes.c_void_p(library.open_pool(threads)), Lock()
        # At exit, the threads end with the process.
        weakref.finalize(self, _close, library, self.address, self.process).atexit = False


def _close(library: ctypes.CDLL, address: ctypes.c_void_p, process: int) -> None:
    if address and process == os.getpid():  # a child has none of its parent's threads
        library.close_pool(address)
