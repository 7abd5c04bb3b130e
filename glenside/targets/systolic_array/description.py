"""Parses systolic arrays from TOML files, in which quantities have units."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from pathlib import Path
from typing import Any

from glenside.ir.bounds import MOST_COUNT, MOST_FACTOR
from glenside.ir.errors import BadInput
from glenside.ir.files import place_in_toml
from glenside.ir.names import suggestion
from glenside.targets.arrays.array import DATAFLOWS, LARGEST, BitWidths
from glenside.targets.base import parse_objectives

_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_BITS = {"bit": 1, "bits": 1, "byte": 8, "bytes": 8}
_RATES = {"MAC/cycle": 1, "MACs/cycle": 1}


@dataclass(frozen=True)
class _Field:
    """A key of a table: its parser, and its allowed values as text."""

    read: Callable[[Any], Any]
    words: str
    required: bool = False


def _checked(allowed: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Returns a parser that returns the value unchanged, or raises ValueError if it is not allowed."""

    def read(value: Any) -> Any:
        if not allowed(value):
            raise ValueError
        return value

    return read


def _is_number(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _count(least: int, most: float = inf) -> Callable[[Any], Any]:
    return _checked(lambda value: _is_number(value, int) and least <= value <= most)


def _with_unit(units: Mapping[str, int], least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z/]+)\s*", _TEXT(value))
        if match is None or match[2] not in units:
            raise ValueError
        size = Fraction(match[1]) * units[match[2]]
        if size.denominator != 1 or size < least:
            raise ValueError
        return int(size)

    return read


_TEXT = _checked(lambda value: isinstance(value, str))
_NAME = _checked(lambda value: isinstance(value, str) and value.strip() != "")
_DATAFLOW = _checked(lambda value: value in DATAFLOWS)
_GROWTH = _checked(lambda value: _is_number(value, int, float) and 1 <= value <= MOST_FACTOR)
_BYTES_WORDS = f"a size such as '256 KiB', in {', '.join(_BYTES)}, whole bytes"
_BITS_WORDS = "a size such as '8 bit' or '4 byte'"
_TABLES: dict[str, dict[str, _Field]] = {
    "": {
        "target": _Field(_checked(lambda value: value == "systolic-array"), "'systolic-array', which it is anyway"),
        "name": _Field(_NAME, "a name, such as 'my-npu'"),
        "objective": _Field(
            lambda value: parse_objectives(_TEXT(value)), "'cycles', 'bytes' or 'copies', or several, as 'cycles,bytes'"
        ),
        "max_weight_growth": _Field(
            lambda value: float(_GROWTH(value)), f"a number from 1 to {MOST_FACTOR:g}, such as 64.0"
        ),
    },
    "array": {
        "rows": _Field(_count(1, LARGEST), f"an integer from 1 to {LARGEST}", required=True),
        "columns": _Field(_count(1, LARGEST), f"an integer from 1 to {LARGEST}", required=True),
        "dataflow": _Field(_DATAFLOW, f"one of {', '.join(map(repr, DATAFLOWS))}"),
        "max_rows": _Field(_count(1, MOST_COUNT), f"an integer from 1 to {MOST_COUNT}"),
    },
    "memory": {"capacity": _Field(_with_unit(_BYTES, 0), _BYTES_WORDS, required=True)},
    "widths": {name: _Field(_with_unit(_BITS, 1), _BITS_WORDS) for name in ("input", "weight", "accumulator")},
    "vector": {"rate": _Field(_with_unit(_RATES, 1), "a whole rate such as '128 MAC/cycle'", required=True)},
}
_REQUIRED = ("array",)
_PARAMETERS = {"objective": "objectives", "rate": "vector_rate"}  # key -> parameter of `SystolicArray`, if different


def read_options(path: str, content: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Returns the options of `SystolicArray` from a parsed TOML file; `options` override it.

    Raises BadInput with the file, line, table and key, and the allowed values.
    """
    missing = next((table for table in _REQUIRED if table not in content), None)
    if missing is not None:
        raise BadInput(f"{path}: the table [{missing}] is missing")
    top = {key: value for key, value in content.items() if key not in _TABLES}
    found = {table: _table(path, table, content.get(table, {}) if table else top) for table in _TABLES}
    found[""].pop("target", None)  # always systolic-array here
    known = {
        "name": Path(path).stem,
        "widths": BitWidths(**found["widths"]) if found["widths"] else None,
        **{_PARAMETERS.get(key, key): v for table in _TABLES if table != "widths" for key, v in found[table].items()},
        **options,
    }
    return {name: value for name, value in known.items() if value is not None}


def _table(path: str, table: str, own: Any) -> dict[str, Any]:
    fields = _TABLES[table]
    if not isinstance(own, dict):
        raise BadInput(f"{place_in_toml(path, '', table)}: [{table}] is a table, got {own!r}")
    found: dict[str, Any] = {}
    for key, value in own.items():
        if key not in fields:
            raise BadInput(f"{place_in_toml(path, table, key)}: {_unknown(table, key)}")
        try:
            found[key] = fields[key].read(value)
        except ValueError:
            wanted = f"{_spelled(table, key)} is {fields[key].words}"
            raise BadInput(f"{place_in_toml(path, table, key)}: {wanted}, got {value!r}") from None
        except BadInput as error:
            raise BadInput(f"{place_in_toml(path, table, key)}: {error}") from error
    for key, field in fields.items():
        if field.required and key not in own and (own or table in _REQUIRED):
            raise BadInput(f"{path}: {_spelled(table, key)} is missing: {field.words}")
    return found


def _unknown(table: str, key: str) -> str:
    known = list(_TABLES[table]) + ([f"[{name}]" for name in _TABLES if name] if not table else [])
    hint = suggestion(key, [name.strip("[]") for name in known]) or f"; there are {', '.join(known)}"
    return f"there is no {_spelled(table, key)}{hint}"


def _spelled(table: str, key: str) -> str:
    return f"{key} in [{table}]" if table else key
