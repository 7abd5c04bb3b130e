"""The time of each party's local computation: measured costs, built in or from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.files import read_toml
from glenside.ir.replacing import PathLike
from glenside.targets.mpc.semi2k import FIELDS, Traffic
from glenside.targets.mpc.work import Work


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of one party for each unit of work.

    multiply_add  one multiply-add of a matrix product of shares
    opened        one operand element of a product of secrets, masked and opened
    truncation    one element truncated after a product
    byte          one byte sent for anything else, with the computation for it
    message       one message sent or received, without the link's latency
    element       one element of an elementwise operation, such as a sum
    copy          one element copied
    operation     one SPU operation, without its elements
    program       one program start
    """

    multiply_add: float
    opened: float
    truncation: float
    byte: float
    message: float
    element: float
    copy: float
    operation: float
    program: float

    @property
    def start(self) -> float:
        """Seconds to start a program."""
        return 1e-9 * self.program

    def seconds(self, traffic: Traffic, work: Work, share: int) -> float:
        """Returns the seconds of a party's computation for a part of a program; `share`: bytes of a share."""
        counted = counts(traffic, work, share)
        return 1e-9 * sum(float(getattr(self, name)) * count for name, count in counted.items())


def counts(traffic: Traffic, work: Work, share: int) -> dict[str, int]:
    """Returns the count of each unit of `Costs`, without the program start."""
    return {
        "multiply_add": work.multiply_adds,
        "opened": work.opened,
        "truncation": traffic.truncated,
        "byte": max(traffic.bytes - traffic.truncation_bytes - share * work.opened, 0),
        "message": traffic.messages,
        "element": work.elements,
        "copy": work.copied,
        "operation": work.operations,
    }


NAMES = tuple(field.name for field in fields(Costs))

# By `glenside calibrate --target mpc:semi2k,field=.. --runs 9` with SPU 0.9.5 on two cores of an Intel Xeon (model 167,
# AVX-512), a thread for each party: median prediction error 8 % for 64 bits, 14 % for 128. On that
# machine SPU crashes at products of 32 bits that are not small, so those of 64 bits stand for them too.
_COSTS_64 = Costs(2.5, 141.7, 112.4, 35.64, 586_500.0, 10.19, 40.63, 333_000.0, 7_231_000.0)
BUILT_IN: Mapping[int, Costs] = {
    32: _COSTS_64,
    64: _COSTS_64,
    128: Costs(15.54, 163.2, 145.6, 44.05, 693_200.0, 17.81, 67.38, 465_300.0, 7_261_000.0),
}
MOST = 1e15
"""Maximum nanoseconds of a unit in a file."""


@dataclass(frozen=True)
class Calibration:
    """The content of a file: costs of a protocol over a field."""

    protocol: str
    field: int
    costs: Costs


def load_costs(path: PathLike) -> Calibration:
    """Reads a file written by `glenside calibrate --target mpc:semi2k`.

    Raises BadInput with the file, the key and the allowed values.
    """
    return read_costs(read_toml(path), str(path))


def costs_of(path: PathLike, protocol: str, field: int) -> Costs:
    """Reads the costs of a protocol over a field from a file. Raises BadInput, also for another protocol or field."""
    found = load_costs(path)
    if (found.protocol, found.field) != (protocol, field):
        raise BadInput(f"{path} has costs of {found.protocol} with {found.field} bits, not of {protocol} with {field}")
    return found.costs


def read_costs(content: Mapping[str, Any], path: str) -> Calibration:
    """Returns the costs in a parsed file. Raises BadInput."""
    known = {"target", "protocol", "field", "nanoseconds", "fit", "machine"}
    unknown = next((key for key in content if key not in known), None)
    if unknown is not None:
        raise BadInput(f"{path}: there is no {unknown}; there are {', '.join(sorted(known))}")
    if content.get("target", "mpc") != "mpc":
        raise BadInput(f"{path}: target is 'mpc' where costs of secure computation are, got {content['target']!r}")
    protocol, field, given = content.get("protocol"), content.get("field"), content.get("nanoseconds")
    if not isinstance(protocol, str):
        raise BadInput(f"{path}: protocol is a name such as 'semi2k', got {protocol!r}")
    if field not in FIELDS or isinstance(field, bool):
        raise BadInput(f"{path}: field is one of {', '.join(map(str, FIELDS))}, got {field!r}")
    if not isinstance(given, dict):
        raise BadInput(f"{path}: the table [nanoseconds] is missing")
    unknown = next((key for key in given if key not in NAMES), None)
    if unknown is not None:
        raise BadInput(f"{path}: there is no {unknown} in [nanoseconds]; there are {', '.join(NAMES)}")
    return Calibration(protocol, field, Costs(**{name: _number(given, name, path) for name in NAMES}))


def _number(given: Mapping[str, Any], name: str, path: str) -> float:
    value: Any = given.get(name)
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not 0 <= value <= MOST:  # nan is not either
        raise BadInput(f"{path}: {name} in [nanoseconds] is a number from 0 to {MOST:g}, got {value!r}")
    return float(value)
