"""What a program has beside instructions and bytes, as plain values for the header of a file, and checked again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeGuard

import numpy as np

from glenside.ir.errors import BadInput
from glenside.npu.instructions import UNITS
from glenside.npu.machine import Energy, Machine
from glenside.npu.program import NpuProgram, Place, Stretch

DTYPES = ("int8", "uint8", "int32", "float32")
"""What a place in DRAM may hold."""
_ENDS = ("begin", "end")
_SIZES = {f.name for f in fields(Machine)} - {"pipelined", "clock", "energy"}


def header(program: NpuProgram) -> dict[str, Any]:
    """Machine, places, stretches and the prediction, of which JSON can be made."""
    return {
        "machine": asdict(program.machine),
        "inputs": {name: asdict(place) for name, place in program.inputs.items()},
        "outputs": {name: asdict(place) for name, place in program.outputs.items()},
        "stretches": [
            {"name": own.name, **{end: {unit: getattr(own, end).get(unit, 0) for unit in UNITS} for end in _ENDS}}
            for own in program.stretches
        ],
        "predicted": program.predicted,
    }


def machine_of(given: Any) -> Machine:
    """The machine of a header. Raises BadInput."""
    if not isinstance(given, dict) or not given.keys() <= {f.name for f in fields(Machine)}:
        raise BadInput("its machine is not one that this version knows")
    values = dict(given)
    for name, value in given.items():
        whole = type(value) is int or (name == "weights" and value is None)
        number = value is None or type(value) in (int, float)
        kind = bool if name == "pipelined" else dict
        good = whole if name in _SIZES else number if name == "clock" else value is None or type(value) is kind
        if not good:
            raise BadInput(f"its machine has {name} {value!r}")
    if values.get("energy") is not None:
        values["energy"] = _energy(values["energy"])
    if not {"rows", "columns"} <= values.keys():
        raise BadInput("its machine has no rows or columns")
    return Machine(**values)


def _energy(given: Mapping[str, Any]) -> Energy:
    names = {f.name for f in fields(Energy)}
    numbers = [value for name, value in given.items() if name != "source"]
    if set(given) != names or not all(type(n) in (int, float) for n in numbers) or type(given["source"]) is not str:
        raise BadInput("the energy of its machine is not numbers and a source")
    return Energy(**given)


def places_of(given: Any, size: int) -> dict[str, Place]:
    """Places in DRAM of that many bytes. Raises BadInput."""
    found: dict[str, Place] = {}
    for name, own in (given if isinstance(given, dict) else {"": None}).items():
        if not isinstance(own, dict) or set(own) != {"address", "shape", "dtype"} or own["dtype"] not in DTYPES:
            raise BadInput(f"its place {name!r} is not an address, a shape and a dtype of {', '.join(DTYPES)}")
        shape = own["shape"]
        if not isinstance(shape, list | tuple) or not all(map(_is_size, (own["address"], *shape))):
            raise BadInput(f"its place {name!r} has no address or no shape")
        found[name] = Place(own["address"], tuple(shape), own["dtype"])
        if found[name].address + found[name].size > size:
            raise BadInput(f"its place {name!r} ends behind the {size:,} bytes of DRAM")
    return found


def stretches_of(given: Any, lengths: Mapping[str, int]) -> tuple[Stretch, ...]:
    """Stretches of queues that have those lengths. Raises BadInput."""
    found: list[Stretch] = []
    for own in given if isinstance(given, list) else [None]:
        if not isinstance(own, dict) or set(own) != {"name", "begin", "end"} or type(own["name"]) is not str:
            raise BadInput("its stretches are not a name, begins and ends each")
        begin, end = own["begin"], own["end"]
        for unit in UNITS:
            one, two = (part.get(unit) if isinstance(part, dict) else None for part in (begin, end))
            if not (_is_size(one) and _is_size(two) and one <= two <= lengths[unit]):
                raise BadInput(f"its stretch {own['name']!r} is not within the {lengths[unit]:,} of {unit}")
        found.append(Stretch(own["name"], dict(begin), dict(end)))
    return tuple(found)


def predicted_of(given: Any) -> int | None:
    """Raises BadInput."""
    if given is not None and not _is_size(given):
        raise BadInput(f"its prediction is not a number of cycles, got {given!r}")
    found: int | None = given
    return found


def _is_size(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 48


def array_at(program: NpuProgram, place: Place, dram: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, Any]:
    """The tensor that is at a place of DRAM."""
    content = dram[place.address : place.address + place.size]
    return content.view(np.dtype(place.dtype).newbyteorder("<")).reshape(place.shape)
