"""Converts a program's metadata to plain values for a file's header, and reads and checks these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, fields
from itertools import chain
from math import prod
from typing import Any, TypeGuard

import numpy as np

from glenside.ir.dtypes import COMPUTED
from glenside.ir.errors import BadInput
from glenside.npu.isa.address_loops import Nest
from glenside.npu.isa.fields import UNITS
from glenside.npu.machine.model import Energy, Machine
from glenside.npu.program.affine_quantization import StandsFor
from glenside.npu.program.program import DTYPES, Choices, Host, NpuProgram, Place, Stretch

_ENDS = ("begin", "end")
_OPTIONAL_KEYS = ("meaning", "operands", "result", "made", "macs")
_QUANTIZATION_KEYS = ("scale", "zero")
"""Optional keys of a place, both or none: real = scale * (integer - zero)."""
_MOST_BYTES = 1 << 40
_SIZES = {f.name for f in fields(Machine)} - {"pipelined", "clock", "energy"}


def header(program: NpuProgram) -> dict[str, Any]:
    """Returns machine, places, stretches, predicted cycles, choices and host as JSON values."""
    return {
        "machine": asdict(program.machine),
        "inputs": _places(program.inputs),
        "outputs": _places(program.outputs),
        "stretches": [
            {
                "name": own.name,
                **{end: {unit: getattr(own, end).get(unit, 0) for unit in UNITS} for end in _ENDS},
                "meaning": own.meaning,
                "operands": _places(own.operands),
                "result": None if own.result is None else _place(own.result),
                "made": dict(own.made),
                "macs": own.macs,
            }
            for own in program.stretches
        ],
        "predicted": program.predicted,
        "choices": None if program.choices is None else [*astuple(program.choices)],
        "host": None if program.host is None else _host(program.host),
    }


def _host(host: Host) -> dict[str, Any]:
    return {**vars(host), "operands": _places(host.operands), "results": [*host.results]}


def _places(places: Mapping[str, Place]) -> dict[str, Any]:
    return {name: _place(place) for name, place in places.items()}


def _place(place: Place) -> dict[str, Any]:
    """Returns a place as JSON values; a nest is a list of three counts, the base and three strides."""
    nests, outer = (
        [[*nest.counts, *nest.bases, *nest.strides[0]] for nest in every] for every in (place.nests, place.outer)
    )
    found = {"address": place.address, "shape": list(place.shape), "dtype": place.dtype, "nests": nests}
    found |= {"outer": outer} if outer else {}
    if place.stands_for is not None:
        found |= {name: getattr(place.stands_for, name).plain for name in _QUANTIZATION_KEYS}
    return found


def machine_of(given: Any) -> Machine:
    """Reads the machine of a header. Raises BadInput."""
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
    names, words = {f.name for f in fields(Energy)}, ("source", "table")
    numbers = [value for name, value in given.items() if name not in words]
    texts = [given.get(name, "") for name in words]
    if set(given) | {"table"} != names or not all(_is_number(n) for n in numbers) or not all(map(_is_text, texts)):
        raise BadInput("the energy of its machine is not numbers and a source")
    return Energy(**given)


def places_of(given: Any, size: int, dtypes: Sequence[str] = DTYPES) -> dict[str, Place]:
    """Reads places by name, within `size` bytes of DRAM. Raises BadInput."""
    if not isinstance(given, dict):
        raise BadInput("its places are not places by name")
    return {name: _place_of(name, own, size, dtypes) for name, own in given.items()}


def _place_of(name: str, own: Any, size: int, dtypes: Sequence[str] = DTYPES) -> Place:
    known = {"address", "shape", "dtype"}
    more = {"nests", "outer", *_QUANTIZATION_KEYS}
    if not isinstance(own, dict) or not known <= set(own) <= known | more or own["dtype"] not in dtypes:
        raise BadInput(f"its place {name!r} is not an address, a shape and a dtype of {', '.join(dtypes)}")
    shape = own["shape"]
    if not isinstance(shape, list) or not all(map(_is_size, (own["address"], *shape))):
        raise BadInput(f"its place {name!r} has no address or no shape")
    nests, outer = (_nests_of(name, own.get(key, [])) for key in ("nests", "outer"))
    found = Place(own["address"], tuple(shape), own["dtype"], nests, _stands_for(name, own), outer)
    counted = prod(sum(prod(nest.counts) for nest in every) for every in (nests, outer) if every)
    if (nests or outer) and (counted != prod(shape) or not nests):
        raise BadInput(f"its place {name!r} has {prod(shape):,} elements, and addresses of {counted if nests else 0:,}")
    if found.size > _MOST_BYTES or _end(found) > size:
        raise BadInput(f"its place {name!r} ends behind the {size:,} bytes of DRAM")
    return found


def _nests_of(name: str, given: Any) -> tuple[Nest, ...]:
    if not isinstance(given, list) or not _are_nests(given):
        raise BadInput(f"a nest of its place {name!r} is not three counts, a base and three strides")
    return tuple(Nest((a, b, c), (base,), ((x, y, z),)) for a, b, c, base, x, y, z in given)


def _stands_for(name: str, own: Mapping[str, Any]) -> StandsFor | None:
    given = [own[each] for each in _QUANTIZATION_KEYS if each in own]
    if not given:
        return None
    try:
        found = StandsFor.of(*given) if len(given) == len(_QUANTIZATION_KEYS) else None
    except BadInput:
        found = None
    if found is None or not (found.scale.fit(tuple(own["shape"])) and found.zero.fit(tuple(own["shape"]))):
        raise BadInput(f"its place {name!r} has no scale and zero, positive and finite, that broadcast to its shape")
    return found


def _are_nests(every: list[Any]) -> bool:
    """True if each is seven integers: three counts, a base of at least -1, and three strides."""
    if not all(isinstance(own, list) and len(own) == 7 for own in every):
        return False
    flat = [*chain.from_iterable(every)]
    if {*map(type, flat)} - {int} or (flat and not -_ADDRESS_LIMIT < min(flat) <= max(flat) < _ADDRESS_LIMIT):
        return False
    numbers = np.array(every, np.int64).reshape(-1, 7)
    return bool(((numbers[:, :3] >= 1) & (numbers[:, :3] < 1 << 16)).all() and (numbers[:, 3] >= -1).all())


_ADDRESS_LIMIT = 1 << 48


def _end(place: Place) -> int:
    """Returns the end address of a place, exclusive; beyond any DRAM for nests with addresses below -1."""
    item = place.size // max(1, prod(place.shape))
    if not place.nests:
        return place.address + place.size
    ends = [_ends_of(nests) for nests in (place.nests, place.outer) if nests]
    least, most = (sum(each) for each in zip(*ends, strict=True))
    return _MOST_BYTES if least < -1 else max(0, most + item)


def _ends_of(nests: Sequence[Nest]) -> tuple[int, int]:
    """Returns the least and the greatest address of the nests."""
    strides = np.array([nest.strides[0] for nest in nests], object)  # products may exceed 64 bits
    ways = strides * (np.array([nest.counts for nest in nests], object) - 1)
    bases = np.array([nest.bases[0] for nest in nests], object)
    return int((bases + np.minimum(ways, 0).sum(axis=1)).min()), int((bases + np.maximum(ways, 0).sum(axis=1)).max())


def stretches_of(given: Any, lengths: Mapping[str, int], size: int) -> tuple[Stretch, ...]:
    """Reads stretches of queues with these lengths, whose places are within `size` bytes. Raises BadInput."""
    found: list[Stretch] = []
    for own in given if isinstance(given, list) else [None]:
        if not isinstance(own, dict) or not {"name", *_ENDS} <= set(own) <= {"name", *_ENDS, *_OPTIONAL_KEYS}:
            raise BadInput("its stretches are not a name, begins and ends each")
        begin, end, meaning = own["begin"], own["end"], own.get("meaning", "")
        if type(own["name"]) is not str or type(meaning) is not str:
            raise BadInput("a name or a meaning of its stretches is no text")
        for unit in UNITS:
            one, two = (part.get(unit) if isinstance(part, dict) else None for part in (begin, end))
            if not (_is_size(one) and _is_size(two) and one <= two <= lengths[unit]):
                raise BadInput(f"its stretch {own['name']!r} is not within the {lengths[unit]:,} of {unit}")
        operands = places_of(own.get("operands", {}), size)
        result = None if own.get("result") is None else _place_of(own["name"], own["result"], size)
        made = own.get("made", {})
        if not isinstance(made, dict) or not made.keys() <= operands.keys() or not all(map(_is_text, made.values())):
            raise BadInput(f"its stretch {own['name']!r} does not name the layers that make its operands")
        macs = own.get("macs")
        if macs is not None and not _is_size(macs):
            raise BadInput(f"its stretch {own['name']!r} has no number of multiply-accumulates, got {macs!r}")
        found.append(Stretch(own["name"], dict(begin), dict(end), meaning, operands, result, made, macs))
    return tuple(found)


def host_of(given: Any, size: int) -> Host | None:
    """Reads the steps of the host, whose constants are within `size` bytes. Raises BadInput."""
    if given is None:
        return None
    if not isinstance(given, dict) or set(given) != {field.name for field in fields(Host)}:
        raise BadInput("its host steps require exactly: meaning, operands, results, rest")
    names, texts = given["results"], (given["meaning"], given["rest"])
    if not all(map(_is_text, texts)) or not isinstance(names, list) or not all(map(_is_text, names)):
        raise BadInput("the meaning, the rest or the results of its host steps are not texts")
    if len({*names}) < len(names):
        raise BadInput("two results of its host steps have one name")
    return Host(given["meaning"], places_of(given["operands"], size, COMPUTED), tuple(names), given["rest"])


def predicted_of(given: Any) -> int | None:
    """Reads the predicted cycles. Raises BadInput."""
    if given is not None and not _is_size(given):
        raise BadInput(f"its prediction is not a number of cycles, got {given!r}")
    found: int | None = given
    return found


def choices_of(given: Any) -> Choices | None:
    """Reads the choices. Raises BadInput."""
    if given is None:
        return None
    if not (isinstance(given, list) and len(given) == len(fields(Choices)) and all(_is_whole(own) for own in given)):
        raise BadInput(
            f"its choices are not three numbers: how many, how many tried, and the least cycles, got {given!r}"
        )
    return Choices(*given)


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_size(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 48
