"""Infers result types of a node with onnxruntime, for operators that ONNX does not define."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod

import numpy as np

from glenside.importers.onnx.sessions import LEVELS, CannotRun, Session
from glenside.ir.errors import BadInput

InferredTypes = Sequence[tuple[str, list[int]]]
"""The dtype and the dims of each output."""

SECONDS = 60
"""The time limit of one node, in seconds."""

ELEMENTS = 1 << 26
"""The maximum elements of all inputs of a node that is run."""


def inferred_types(model: bytes) -> InferredTypes | None:
    """Returns the types of the outputs of a model of one node, or None if onnxruntime does not report them."""
    try:
        session = Session(model, "the node", LEVELS[-1], threads=1, seconds=SECONDS)
    except (CannotRun, BadInput):
        return None
    sizes = [[size for size in made.shape if isinstance(size, int)] for made in session.makes]
    if all(len(known) == len(made.shape) for known, made in zip(sizes, session.makes, strict=True)):
        return [(made.dtype or made.type, known) for made, known in zip(session.makes, sizes, strict=True)]
    found = list(_runs(session))
    return found[0] if found and all(types == found[0] for types in found) else None


def _runs(session: Session) -> Iterator[InferredTypes]:
    """Yields the output types on zeros, ones and random numbers, if the node accepts them: sizes may depend on data."""
    random = np.random.default_rng(0)
    with suppress(CannotRun):  # an input that is not a tensor of numbers
        inputs = session.inputs({})
        if sum(prod(tensor.dims) for tensor in inputs) > ELEMENTS:
            return
        for fill in (np.zeros, np.ones, lambda dims: np.asarray(3 * random.random(dims))):
            with suppress(CannotRun):  # a value that the node refuses
                found = session.run({t.name: fill(tuple(t.dims)).astype(t.dtype) for t in inputs})
                yield [(array.dtype.name, list(array.shape)) for array in found]
