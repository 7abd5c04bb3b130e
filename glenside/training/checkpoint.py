"""Checkpoints: .npz files with all that a run needs to continue as if it had not been interrupted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.files import read_arrays, write_arrays
from glenside.ir.names import one_line
from glenside.ir.operand import Array
from glenside.ir.replacing import PathLike
from glenside.ir.types import Tensor

_FORMAT = 1
_STATE = "state."
COLUMNS = ("loss", "accuracy", "held-out loss", "held-out accuracy", "seconds")
"""The numbers of each epoch; NaN if there is none."""


@dataclass(frozen=True)
class Moment:
    """The state of a run between two steps: everything that the next step depends on, except the examples.

    state    the tensors of the step's state, by name
    steps    the number of steps made in the current epoch
    sums     sums over these steps of the loss and of the share of correct outputs
    seconds  the time that they took
    epochs   the finished epochs in order: (epochs)(COLUMNS)
    """

    state: Mapping[str, Array]
    steps: int
    sums: tuple[float, float]
    seconds: float
    epochs: Array

    def stepped(self, state: Mapping[str, Array], loss: float, right: float, seconds: float) -> Moment:
        """Returns the state after one more step."""
        sums = self.sums[0] + loss, self.sums[1] + right
        return replace(self, state=state, steps=self.steps + 1, sums=sums, seconds=self.seconds + seconds)

    def ended(self, *row: float) -> Moment:
        """Returns the state after an epoch with these numbers."""
        return replace(self, steps=0, sums=(0.0, 0.0), seconds=0.0, epochs=np.vstack([self.epochs, row]))


def beginning(state: Mapping[str, Array]) -> Moment:
    """Returns the state before the first step."""
    return Moment(state, 0, (0.0, 0.0), 0.0, np.empty((0, len(COLUMNS))))


def write(path: PathLike, moment: Moment, about: Mapping[str, str]) -> None:
    """Writes a checkpoint of a run; `about` identifies its program, data and seed. Raises BadInput."""
    text = json.dumps({"format": str(_FORMAT), **about})
    kept = {f"{_STATE}{name}": array for name, array in moment.state.items()}
    now = np.array([moment.steps, *moment.sums, moment.seconds])
    write_arrays(path, {"about": _bytes(text), "epochs": moment.epochs, "now": now, **kept})


def read(path: PathLike, state: Mapping[str, Tensor], about: Mapping[str, str]) -> Moment:
    """Reads the state at which a run of the same program, data and seed was interrupted. Raises BadInput."""
    arrays = read_arrays(path)
    said = _about(path, arrays)
    for what, own in about.items():
        if said.get(what) != own:
            raise BadInput(
                f"{_shown(path)} is a checkpoint of another {what}: resume with the one that it was made for"
            )
    kept = {name: arrays.get(f"{_STATE}{name}") for name in state}
    fits = all(a is not None and _fits(a, state[name]) for name, a in kept.items())
    now, epochs = arrays.get("now", np.empty(0)), arrays.get("epochs", np.empty(0))
    right = now.shape == (4,) and epochs.ndim == 2 and epochs.shape[1:] == (len(COLUMNS),)
    if not fits or not right or not np.isfinite(now).all() or now[0] < 0:
        raise BadInput(
            f"{_shown(path)} is not a complete checkpoint: some of its arrays are missing, or have other shapes"
        )
    found = {name: a for name, a in kept.items() if a is not None}
    return Moment(found, int(now[0]), (float(now[1]), float(now[2])), float(now[3]), epochs)


def _about(path: PathLike, arrays: Mapping[str, Array]) -> Mapping[str, Any]:
    try:
        said = json.loads(arrays["about"].astype(np.uint8).tobytes().decode())
        assert isinstance(said, dict)
    except (KeyError, ValueError, RecursionError, AssertionError):
        raise BadInput(f"{_shown(path)} is not a checkpoint of a training: it does not identify a run") from None
    if said.get("format") != str(_FORMAT):
        raise BadInput(f"{_shown(path)} is a checkpoint of another version of Glenside")
    return said


def _bytes(text: str) -> Array:
    return np.frombuffer(text.encode(), np.uint8)


def _fits(array: Array, tensor: Tensor) -> bool:
    return array.shape == tensor.dims and array.dtype.name == tensor.dtype


def _shown(path: PathLike) -> str:
    return one_line(str(Path(path)))
