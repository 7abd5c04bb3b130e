"""Values for the constants of built-in models: seeded random ones, or those of an .npz file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from glenside.builder.values import fitting
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.types import Tensor


def random_normal(seed: int, name: str, dims: tuple[int, ...], scale: float) -> Callable[[], Array]:
    """Normal values of that standard deviation; each name has its own stream, so that order does not matter."""

    def draw() -> Array:
        values = _stream(seed, name).standard_normal(dims, dtype=np.float32)
        values *= np.float32(scale)
        return values

    return draw


def random_near_one(seed: int, name: str, dims: tuple[int, ...], spread: float) -> Callable[[], Array]:
    """Uniform values from 1 - spread to 1 + spread."""

    def draw() -> Array:
        return _stream(seed, name).uniform(1 - spread, 1 + spread, dims).astype(np.float32)

    return draw


def _stream(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def read_npz(path: str | Path, tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    """The constants of a file, which has exactly these names and shapes. Raises BadInput."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise BadInput(f"weights require an .npz file of arrays, got {path} ({error})") from error
    missing, extra = sorted(tensors.keys() - arrays.keys()), sorted(arrays.keys() - tensors.keys())
    if missing or extra:
        got = "; ".join(
            f"{count} {what}, such as {names[0]}"
            for what, names in (("missing", missing), ("unknown", extra))
            if (count := len(names))
        )
        raise BadInput(f"weights require an array for each of {len(tensors)} constants and no others, got {got}")
    return {name: fitting(tensor, arrays[name]) for name, tensor in tensors.items()}
