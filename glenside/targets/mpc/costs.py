"""Seconds of what each party computes by itself: numbers that were measured, built in or from a TOML file."""

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
    """Nanoseconds that one of each takes a party: products of matrices, truncations, what is sent otherwise, the rest.

    multiply_add  of a product of matrices of shares
    opened        element of a product of secrets, masked and opened
    truncation    element that is cut after a product
    byte          sent for anything else, with all that is computed for it
    message       sent or received, beside the link's latency
    element       that is computed by itself, such as a sum
    copy          of an element to another place
    operation     of SPU, beside its elements
    program       that is started
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
        """Seconds until a program runs."""
        return 1e-9 * self.program

    def seconds(self, traffic: Traffic, work: Work, share: int) -> float:
        """What a party computes for a part of a program, where a share has so many bytes."""
        counted = counts(traffic, work, share)
        return 1e-9 * sum(float(getattr(self, name)) * count for name, count in counted.items())


def counts(traffic: Traffic, work: Work, share: int) -> dict[str, int]:
    """How many there are of each thing that `Costs` has a number for, but for the program itself."""
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
# AVX-512), a thread for each party: told 8 % from what was measured in the median for 64 bits, 14 % for 128. On that
# machine SPU crashes at products of 32 bits that are not small, so those of 64 bits stand for them too.
_COSTS_64 = Costs(2.5, 141.7, 112.4, 35.64, 586_500.0, 10.19, 40.63, 333_000.0, 7_231_000.0)
BUILT_IN: Mapping[int, Costs] = {
    32: _COSTS_64,
    64: _COSTS_64,
    128: Costs(15.54, 163.2, 145.6, 44.05, 693_200.0, 17.81, 67.38, 465_300.0, 7_261_000.0),
}
MOST = 1e15
"""The most nanoseconds that one of anything may take in a file."""


@dataclass(frozen=True)
class Calibration:
    """What a file says: costs of a protocol over a field."""

    protocol: str
    field: int
    costs: Costs


def load_costs(path: PathLike) -> Calibration:
    """The file that `glenside calibrate --target mpc:semi2k` writes.

    Raises BadInput, which names the file and the key, and says what would be right.
    """
    return read_costs(read_toml(path), str(path))


def costs_of(path: PathLike, protocol: str, field: int) -> Costs:
    """Those of a file that are of this protocol over this field. Raises BadInput."""
    found = load_costs(path)
    if (found.protocol, found.field) != (protocol, field):
        raise BadInput(f"{path} has costs of {found.protocol} with {found.field} bits, not of {protocol} with {field}")
    return found.costs


def read_costs(content: Mapping[str, Any], path: str) -> Calibration:
    """The same of a file that was read. Raises BadInput."""
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
