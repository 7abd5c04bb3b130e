"""Loads the shared object that `glenside compile` writes, as another program would use it."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np

from glenside.execution.peers.peer import Inputs, Run

DESCRIPTION = "compiled.json"
"""The file next to the shared object that describes it: its name in C, its inputs and its results."""


def load(path: Path, inputs: Inputs, threads: int) -> Run:
    """Loads a shared object NAME.so at a path, next to NAME.weights and a description."""
    described = json.loads(path.with_name(DESCRIPTION).read_text(encoding="utf-8"))
    name, library = described["name"], ctypes.CDLL(str(path))
    open_, run_ = getattr(library, f"{name}_open"), getattr(library, f"{name}_run")
    open_.restype = ctypes.c_void_p
    program = ctypes.c_void_p(open_(str(path.with_name(f"{name}.weights")).encode(), ctypes.c_int(threads)))
    if not program:
        raise MemoryError("it cannot be opened")
    given = [np.ascontiguousarray(inputs[each]) for each in described["inputs"]]
    made: list[Any] = [np.empty(dims, np.dtype(dtype)) for dims, dtype in described["results"]]
    arrays = [*given, *made]

    def run() -> list[Any]:
        if status := run_(program, *(ctypes.c_void_p(array.ctypes.data) for array in arrays)):
            raise ValueError(f"it ends with {status}")
        return [made[place] for place in described["order"]]

    return run
