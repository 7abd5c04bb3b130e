"""Reads and writes machines as text: `npu:64x64,bandwidth=16,scratchpad=256KB`, and TOML files with units.

Each field of `Machine` is declared once: its table in a TOML file, its reader and its writer. A command line and a file
accept the same values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.files import place_in_toml
from glenside.ir.names import suggestion
from glenside.npu.machine.energies import PUBLISHED, named
from glenside.npu.machine.model import Energy, Machine

NAME = "npu"
_SIZES = {"B": 1, "KB": 1 << 10, "KiB": 1 << 10, "MB": 1 << 20, "MiB": 1 << 20, "GB": 1 << 30}
_HERTZ = {"Hz": 1, "kHz": 10**3, "MHz": 10**6, "GHz": 10**9}


@dataclass(frozen=True)
class _Field:
    """A number with a unit. `units` maps units to factors, the first is optional; `words` describes the number in
    messages.
    """

    table: str
    units: Mapping[str, int]
    words: str
    exact: bool = True
    """True if the value is a whole number of the first unit."""

    def read(self, text: str) -> Any:
        """Parses a value. Raises ValueError for malformed text."""
        match = re.fullmatch(r"\s*(\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?)\s*(\S.*?)?\s*", text)
        if match is None or (match[2] is not None and match[2] not in self.units):
            raise ValueError
        value = Fraction(match[1]) * (self.units[match[2]] if match[2] else 1)
        if self.exact and value.denominator != 1:
            raise ValueError
        return int(value) if self.exact else float(value)

    def written(self, value: Any) -> str:
        """Prints a TOML value in the largest unit that divides it, or else in the first unit."""
        if not self.units:
            return repr(value)
        fits = [(size, unit) for unit, size in self.units.items() if value % size == 0 and value]
        size, unit = max(fits, key=lambda one: one[0]) if fits and self.exact else (1, next(iter(self.units)))
        return json.dumps(f"{value // size if self.exact else value!r} {unit}")


class _Choice(_Field):
    """A boolean: yes or no."""

    def read(self, text: str) -> bool:
        if text.strip() not in ("yes", "no"):
            raise ValueError
        return text.strip() == "yes"

    def written(self, value: bool) -> str:
        return "true" if value else "false"


class _Text(_Field):
    """A text of one line."""

    def read(self, text: str) -> str:
        if not text.strip() or not text.isprintable():
            raise ValueError
        return text

    def written(self, value: str) -> str:
        return json.dumps(value, ensure_ascii=False)


def _count(table: str, what: str = "") -> _Field:
    words = f"a whole number, such as '64 {what}'" if what else "a whole number"
    return _Field(table, {what: 1} if what else {}, words)


_SIZE_WORDS = f"a size such as '256 KB', in {', '.join(_SIZES)}, whole bytes"
_JOULES = _Field("energy", {"pJ": 1}, "a number of picojoules, such as '0.2 pJ'", exact=False)
FIELDS: dict[str, _Field] = {
    "rows": _count("array"),
    "columns": _count("array"),
    "pipelined": _Choice("array", {}, "yes or no: true or false in a file"),
    "scratchpad": _Field("memory", _SIZES, _SIZE_WORDS),
    "weights": _Field("memory", _SIZES, _SIZE_WORDS),
    "accumulators": _count("memory", "rows"),
    "parameters": _count("memory", "rows"),
    "tables": _count("memory"),
    "functions": _count("memory"),
    "instructions": _count("control"),
    "bandwidth": _Field("dram", {"B/cycle": 1, "bytes/cycle": 1}, "whole bytes, such as '32 B/cycle'"),
    "latency": _count("dram", "cycles"),
    "clock": _Field("control", _HERTZ, "a frequency such as '1 GHz', in Hz, kHz, MHz, GHz", exact=False),
}
"""Field of `Machine` -> its text form; `energy` has its own table."""
_TABLE = _Text("energy", {}, f"the name of a published table, {', '.join(PUBLISHED)}")
_OWN = {f.name: _JOULES for f in fields(Energy) if f.name != "table"} | {
    "source": _Text("energy", {}, "where the figures are from")
}
_ENERGY = {**_OWN, "table": _TABLE}
"""Keys of [energy]: either all figures and their source, or the name of a published table."""
_TABLES = ("array", "memory", "dram", "control", "energy")


def read_options(text: str) -> Machine:
    """Parses a machine such as `64x64,bandwidth=16,scratchpad=256KB`. Raises BadInput."""
    size, *rest = text.split(",")
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})", size.strip())
    if match is None:
        raise BadInput(f"an npu is written ROWSxCOLUMNS and options, such as npu:64x64,bandwidth=16; got {text!r}")
    known = {name: field for name, field in FIELDS.items() if name not in ("rows", "columns")} | {"energy": _TABLE}
    options: dict[str, Any] = {"rows": int(match[1]), "columns": int(match[2])}
    for part in rest:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in known:
            raise BadInput(f"an option of npu is one of {', '.join(known)}, got {name!r}{suggestion(name, known)}")
        if not equals:
            raise BadInput(f"the option {name} of npu is written {name}=VALUE: {known[name].words}")
        if name in options:
            raise BadInput(f"the option {name} of npu is given twice in {text!r}")
        try:
            options[name] = known[name].read(value)
        except ValueError:
            raise BadInput(f"the option {name} of npu is {known[name].words}, got {value!r}") from None
    energy = options.pop("energy", None)
    machine = Machine(**options)
    return machine if energy is None else replace(machine, energy=named(energy, machine))


def read_machine(path: str, content: Mapping[str, Any]) -> Machine:
    """Builds a machine from the parsed `content` of the TOML file at `path`.

    Raises BadInput with the file, line, table and key, and the allowed values.
    """
    for key in content:
        if key not in ("target", *_TABLES):
            place, there = place_in_toml(path, "", key), ", ".join(f"[{name}]" for name in _TABLES)
            raise BadInput(f"{place}: there is no {key} of an npu{suggestion(key, _TABLES) or f'; there are {there}'}")
    found: dict[str, Any] = {}
    for table in _TABLES:
        own = content.get(table, {})
        if not isinstance(own, dict):
            raise BadInput(f"{place_in_toml(path, '', table)}: [{table}] is a table, got {own!r}")
        known = _ENERGY if table == "energy" else {n: f for n, f in FIELDS.items() if f.table == table}
        values = {key: _entry(path, table, key, value, known) for key, value in own.items()}
        if table == "energy" and table in content:
            found[table] = values
        elif table != "energy":
            found |= values
    missing = next((key for key in ("rows", "columns") if key not in found), None)
    if missing is not None:
        raise BadInput(f"{path}: {missing} in [array] is missing: {FIELDS[missing].words}")
    energies = found.pop("energy", None)
    try:
        machine = Machine(**found)
        return machine if energies is None else replace(machine, energy=_energy(energies, machine))
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def _energy(values: Mapping[str, Any], machine: Machine) -> Energy:
    """Builds energies from the name of a published table or from all figures. Raises BadInput."""
    if "table" in values:
        other = next((key for key in values if key != "table"), None)
        if other is not None:
            raise BadInput(f"[energy] has a published table or figures of its own, and this one has {other} too")
        return named(values["table"], machine)
    missing = next((key for key in _OWN if key not in values), None)
    if missing is not None:
        raise BadInput(f"{missing} in [energy] is missing: {_OWN[missing].words}")
    return Energy(**values)


def written(machine: Machine) -> str:
    """Prints a machine as a complete TOML file, which `read_machine` reads back."""
    lines = [f'target = "{NAME}"']
    for table in _TABLES[:-1]:
        own = {name: getattr(machine, name) for name, field in FIELDS.items() if field.table == table}
        lines += ["", f"[{table}]", *(f"{n} = {FIELDS[n].written(v)}" for n, v in own.items() if v is not None)]
    if machine.energy is not None:
        known = {"table": _TABLE} if machine.energy.table else _OWN
        lines += ["", "[energy]", *(f"{n} = {f.written(getattr(machine.energy, n))}" for n, f in known.items())]
    return "\n".join(lines) + "\n"


def _entry(path: str, table: str, key: str, value: Any, known: Mapping[str, _Field]) -> Any:
    if key not in known:
        hint = suggestion(key, known) or f"; there are {', '.join(known)}"
        raise BadInput(f"{place_in_toml(path, table, key)}: there is no {key} in [{table}]{hint}")
    field = known[key]
    text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    allowed = isinstance(value, (str, int, float)) and isinstance(value, bool) <= isinstance(field, _Choice)
    try:
        return field.read(text if allowed else "")
    except ValueError:
        place = place_in_toml(path, table, key)
        raise BadInput(f"{place}: {key} in [{table}] is {field.words}, got {value!r}") from None
