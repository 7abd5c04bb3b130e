"""Examples: arrays whose first axis counts them, checked against the inputs of a program before anything is
computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from glenside.ir.dtypes import FLOATS, limits
from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name, suggestion
from glenside.ir.operand import Array, as_array
from glenside.ir.operators.requirements import spelled
from glenside.ir.types import Tensor

LABELS = ("labels", "y")
"""Names of labels in data, tried in this order if none is given."""


@dataclass(frozen=True)
class Examples:
    """Arrays of examples, (examples ..), by the input that reads them, in its dtype."""

    arrays: Mapping[str, Array]

    @property
    def count(self) -> int:
        """The number of examples."""
        return len(next(iter(self.arrays.values())))

    def take(self, places: Array) -> dict[str, Array]:
        """Returns the examples at these positions, in this order."""
        return {name: array[places] for name, array in self.arrays.items()}

    def digest(self) -> str:
        """Returns these examples only."""
        made = hashlib.sha256()
        for name, array in sorted(self.arrays.items()):
            made.update(f"{name} {array.dtype} {array.shape} ".encode())
            made.update(np.ascontiguousarray(array).view(np.uint8).data)
        return made.hexdigest()


def examples(
    data: Mapping[str, Array],
    inputs: Sequence[Tensor],
    labels: Tensor,
    bounds: tuple[int, int] | None,
    keys: Mapping[str, str],
) -> Examples:
    """Returns the arrays of the data for the inputs and the labels of a step.

      bounds  the least and the largest label

    Raises BadInput for an input without an array, an array that does not fit, numbers that are not finite, or labels
    out of range.
    """
    wanted = {tensor.name: tensor for tensor in (*inputs, labels)}
    for name in keys:
        if name not in wanted:
            raise BadInput(f"the network has no input {spelled_name(name)} for examples{suggestion(name, wanted)}")
    arrays = {}
    for name, tensor in wanted.items():
        others = LABELS if tensor is labels else ("x",) if len(inputs) == 1 else ()
        key = keys.get(name) or next((key for key in (name, *others) if key in data), name)
        if key not in data:
            what = "the labels" if tensor is labels else f"the input {spelled_name(name)}"
            hint = suggestion(key, data) or f"; it has {', '.join(map(spelled_name, data)) or 'none'}"
            raise BadInput(f"the data has no array {spelled_name(key)} for {what}{hint}")
        arrays[name] = _fitting(tensor, as_array(f"the data's array {spelled_name(key)}", data[key]), key)
        if tensor is labels and bounds is not None:
            _bounded(key, arrays[name], *bounds)
    counts = {name: len(array) for name, array in arrays.items()}
    if len({*counts.values()}) > 1:
        said = ", ".join(f"{count} of {spelled_name(name)}" for name, count in counts.items())
        raise BadInput(f"the arrays of the data require the same number of examples, got {said}")
    return Examples(arrays)


def _fitting(tensor: Tensor, array: Array, key: str) -> Array:
    """Returns the array in the tensor's dtype. Raises BadInput."""
    name, item = spelled_name(key), tuple(tensor.dims[1:])
    if array.ndim == 0 or array.shape[1:] != item:
        need = f"(examples{''.join(f' {n}' for n in item)})"
        raise BadInput(f"{name} of the data requires shape {need}, got {spelled(array.shape)}{_hint(array, item)}")
    if tensor.dtype in FLOATS:
        return _as_floats(tensor, array, name)
    if array.dtype.kind not in "biuf":
        raise BadInput(f"{name} of the data requires {tensor.dtype}, got {array.dtype}")
    low, high = limits(tensor.dtype)
    right = (array >= low) & (array <= high) & (array == np.trunc(array) if array.dtype.kind == "f" else True)
    _refuse(name, array, right, f"whole numbers of {tensor.dtype}")
    return array.astype(tensor.dtype)


def _hint(array: Array, item: tuple[int, ...]) -> str:
    """Suggests another order of axes, or another shape, in which the array fits, if it has the right number of
    elements.
    """
    if not array.size or not array.ndim or prod(array.shape[1:]) != prod(item):
        return ""
    if sorted(array.shape[1:]) == sorted(item):
        left = [*range(1, array.ndim)]
        order = [0, *(left.pop([array.shape[axis] for axis in left].index(n)) for n in item)]
        return f"; with its axes in the order {spelled(order)} it would fit"
    return f"; as {spelled((len(array), *item))} it would fit"


def _as_floats(tensor: Tensor, array: Array, name: str) -> Array:
    if array.dtype.kind not in "biuf" and array.dtype.name not in FLOATS:
        raise BadInput(f"{name} of the data requires {tensor.dtype}, got {array.dtype}")
    with np.errstate(over="ignore"):
        cast = array.astype(tensor.dtype)
    _refuse(name, array, np.isfinite(cast), f"finite numbers of {tensor.dtype}")
    return cast


def _bounded(key: str, array: Array, low: int, high: int) -> None:
    _refuse(spelled_name(key), array, (array >= low) & (array <= high), f"labels from {low} to {high}")


def _refuse(name: str, array: Array, right: Array, what: str) -> None:
    """Raises BadInput with the first wrong element, if there is one."""
    if np.all(right):
        return
    wrong = np.argwhere(~np.asarray(right))
    place = ", ".join(map(str, wrong[0]))
    more = f", and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
    raise BadInput(f"{name} of the data requires {what}, got {array[tuple(wrong[0])]} at [{place}]{more}")


def held_out(count: int, fraction: float, seed: int) -> tuple[Array, Array]:
    """Splits examples into those to train on and those held out to measure accuracy, drawn from the seed."""
    order = np.random.default_rng([seed, 0]).permutation(count)
    kept = round(fraction * count)
    return np.sort(order[kept:]), np.sort(order[:kept])


def shuffled(places: Array, seed: int, epoch: int) -> Array:
    """Returns the order of an epoch, which depends only on the seed and the number of the epoch, starting at 1."""
    return np.random.default_rng([seed, epoch]).permutation(places)
