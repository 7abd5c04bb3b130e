"""Types of results that onnxruntime tells of one node: it knows operators that ONNX has no definition of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod

import numpy as np

from glenside.importers.onnx.sessions import LEVELS, CannotRun, Session
from glenside.ir.errors import BadInput

Told = Sequence[tuple[str, list[int]]]
"""The dtype and the dims of each output."""

SECONDS = 60
"""What one node may take."""

ELEMENTS = 1 << 26
"""What the inputs of a node may have in all, to be filled in."""


def told(model: bytes) -> Told | None:
    """The types of the outputs of a model of one node, or None where onnxruntime does not tell."""
    try:
        session = Session(model, "the node", LEVELS[-1], threads=1, seconds=SECONDS)
    except (CannotRun, BadInput):
        return None
    sizes = [[size for size in made.shape if isinstance(size, int)] for made in session.makes]
    if all(len(known) == len(made.shape) for known, made in zip(sizes, session.makes, strict=True)):
        return [(made.dtype or made.type, known) for made, known in zip(session.makes, sizes, strict=True)]
    found = list(_runs(session))
    return found[0] if found and all(types == found[0] for types in found) else None


def _runs(session: Session) -> Iterator[Told]:
    """The types of outputs on zeros, ones and random numbers, as far as the node takes them: a size that depends on
    data may differ.
    """
    random = np.random.default_rng(0)
    with suppress(CannotRun):  # an input that is no tensor of numbers
        inputs = session.inputs({})
        if sum(prod(tensor.dims) for tensor in inputs) > ELEMENTS:
            return
        for fill in (np.zeros, np.ones, lambda dims: np.asarray(3 * random.random(dims))):
            with suppress(CannotRun):  # a value that the node does not take
                found = session.run({t.name: fill(tuple(t.dims)).astype(t.dtype) for t in inputs})
                yield [(array.dtype.name, list(array.shape)) for array in found]
