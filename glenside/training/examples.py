"""Examples: arrays whose first axis counts them, held to what a program takes before anything is computed."""

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
"""What the labels are called in data, where nobody says it: the first that is there."""


@dataclass(frozen=True)
class Examples:
    """Arrays by the input that they are given to, (examples ..) each, of its dtype."""

    arrays: Mapping[str, Array]

    @property
    def count(self) -> int:
        """How many examples there are."""
        return len(next(iter(self.arrays.values())))

    def take(self, places: Array) -> dict[str, Array]:
        """The examples at these places, in their order."""
        return {name: array[places] for name, array in self.arrays.items()}

    def digest(self) -> str:
        """The same for the same examples alone."""
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
    """The arrays of the data that the inputs and the labels of a step are given.

    bounds  the least and the most of a label
    keys    input -> array of the data; others have the input's name, or x where there is one input

    Raises BadInput: no array for an input, one that does not fit, numbers that are not finite, labels out of range.
    """
    wanted = {tensor.name: tensor for tensor in (*inputs, labels)}
    for name in keys:
        if name not in wanted:
            raise BadInput(f"the network has no input {spelled_name(name)} of examples{suggestion(name, wanted)}")
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
        raise BadInput(f"the arrays of the data require as many examples each, got {said}")
    return Examples(arrays)


def _fitting(tensor: Tensor, array: Array, key: str) -> Array:
    """The array in the tensor's dtype. Raises BadInput."""
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
    """How an array would fit, if it has as many elements: in another order of its axes, or in another shape."""
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
    """Raise BadInput where not all is right, with the first place where it is not."""
    if np.all(right):
        return
    wrong = np.argwhere(~np.asarray(right))
    place = ", ".join(map(str, wrong[0]))
    more = f", and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
    raise BadInput(f"{name} of the data requires {what}, got {array[tuple(wrong[0])]} at [{place}]{more}")


def held_out(count: int, fraction: float, seed: int) -> tuple[Array, Array]:
    """The places of examples to train on, and of those that are kept to see what is learnt; drawn by the seed."""
    order = np.random.default_rng([seed, 0]).permutation(count)
    kept = round(fraction * count)
    return np.sort(order[kept:]), np.sort(order[:kept])


def shuffled(places: Array, seed: int, epoch: int) -> Array:
    """The places in the order of an epoch, which depends on nothing but seed and number, from 1 on."""
    return np.random.default_rng([seed, epoch]).permutation(places)
