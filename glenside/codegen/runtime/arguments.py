"""Checks the arrays that compiled functions read and write, and holds the pointers to them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from glenside.codegen.loop_ir.ir import Buffer
from glenside.ir import torch_tensors
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array, as_array
from glenside.ir.torch_tensors import is_tensor
from glenside.ir.types import TupleType, Type

Kind = tuple[tuple[int, ...], np.dtype[Any]]
"""Dims and dtype of an array."""


@dataclass(slots=True)
class Frame:
    """The arena and the pointers of one call; concurrent calls have others.

    threads  number of threads for which the arena has memory
    given    pointers to inputs and constants
    stored   pointers to results
    """

    threads: int
    memory: Array
    address: ctypes.c_void_p
    given: Any
    stored: Any


def kind_of(buffer: Buffer) -> Kind:
    """Returns the dims and dtype of the array of a buffer."""
    return tuple(buffer.dims), RECORDS[buffer.dtype].numpy


def is_plain(array: object, kind: Kind) -> TypeGuard[Array]:
    """True if a compiled function can read an array directly."""
    if type(array) is not np.ndarray or (array.shape, array.dtype) != kind:
        return False
    flags = array.flags
    return flags.c_contiguous and flags.aligned


def require_fits(buffer: Buffer, array: Array) -> None:
    """Raises BadInput if the dims or dtype of an array differ from those of a buffer."""
    if array.shape != buffer.dims or array.dtype != RECORDS[buffer.dtype].numpy:
        dims = " ".join(map(str, buffer.dims))
        raise BadInput(f"{buffer.name} requires ({dims}) {buffer.dtype}, got {array.shape} {array.dtype}")


def given_array(buffer: Buffer, array: Any) -> Array:
    """Converts an array of numpy or of another library to one in C order for a buffer. Raises BadInput."""
    if is_tensor(array):
        try:
            array = torch_tensors.array_of(array)
        except BadInput as error:
            raise BadInput(f"{buffer.name} {error.message}") from None
    other = hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray | np.generic)
    try:
        found = np.from_dlpack(array) if other else as_array(buffer.name, array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # on another device, ragged
        raise BadInput(f"{buffer.name} requires an array in this computer's memory, got none: {error}") from error
    require_fits(buffer, found)
    return np.require(found, requirements=["C", "ALIGNED"]).reshape(found.shape)


def stored_once(pairs: Iterable[tuple[Any, Array]], run: Callable[[dict[Any, Array]], object]) -> None:
    """Calls a function of the arrays of results; those of pairs with one key are the same result, which is copied."""
    own: dict[Any, Array] = {}
    others = [(own[key], array) for key, array in pairs if own.setdefault(key, array) is not array]
    run(own)
    for stored, array in others:
        array[...] = stored


def pointers(arrays: list[Array]) -> Any:
    """Returns the addresses of arrays as a C array of pointers."""
    return (ctypes.c_void_p * max(1, len(arrays)))(*map(address_of, arrays))


def address_of(array: Any) -> int:
    """Returns the address of an array in C order, in a quarter of the time of `array.ctypes.data`."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    except (BufferError, TypeError, ValueError):  # read-only, empty, or with a custom dtype
        found: int = array.ctypes.data
        return found


def require_own(
    results: Sequence[tuple[int, int]], inputs: Sequence[tuple[int, int]], in_place: Sequence[int | None]
) -> None:
    """Raises BadInput if a result overlaps another result or an input; arrays are (address, bytes).

    in_place  for each input, the number of the result that may begin where the input does, or None
    """
    pairs = zip(inputs, in_place, strict=True)
    inputs = [own for own, number in pairs if number is None or results[number][0] != own[0]]
    end = end_of_results = holder = -1
    for begin, size, place in sorted((*own, place) for place, own in enumerate((*results, *inputs)) if own[1]):
        is_result = place < len(results)
        if begin < (end if is_result else end_of_results):
            which = place if is_result else holder
            raise BadInput(f"result {which} shares memory with another array: each result requires memory of its own")
        end = max(end, begin + size)
        if is_result:
            end_of_results, holder = begin + size, place


def all_arrays(arrays: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the arrays of a call, also those in dicts."""
    for array in (*arrays, *named.values()):
        yield from array.values() if isinstance(array, Mapping) else (array,)


def nested(type_: Type, found: Iterator[Array]) -> Any:
    """Returns the results nested in tuples of a type."""
    return tuple(nested(item, found) for item in type_.items) if isinstance(type_, TupleType) else next(found)
