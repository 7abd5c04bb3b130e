"""The registry of targets: builds a target from `name:RxC` or a TOML file."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.files import read_toml
from glenside.ir.names import suggestion
from glenside.targets import load_all
from glenside.targets.base import Target, parse_objectives
from glenside.targets.base.prices import OBJECTIVES

Maker = Callable[..., Target]
Read = Callable[[str], tuple[Any, ...]]


@dataclass(frozen=True)
class Entry:
    """A registered target.

    usage       its syntax on the command line
    options     parameters that flags may set
    objectives  measures that may be minimized
    load        builds it from a TOML file; None if a file cannot describe it
    bare        the arguments if the name stands alone; "" if arguments are required
    """

    usage: str
    doc: str
    maker: Maker
    read: Read
    options: frozenset[str]
    objectives: Sequence[str] = OBJECTIVES
    load: Maker | None = None
    bare: str = ""


TARGETS: dict[str, Entry] = {}


def sizes(text: str) -> tuple[int, int]:
    """`64x64` -> (64, 64). Raises BadInput."""
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)
    if match is None or int(match[1]) == 0 or int(match[2]) == 0:
        raise BadInput(f"an array is written ROWSxCOLUMNS with sizes of at least 1, such as 64x64; got {text!r}")
    return int(match[1]), int(match[2])


def with_options(name: str, readers: Mapping[str, Callable[[str], Any]]) -> Read:
    """Returns a parser of `FIRST,option=value,..`: FIRST as text, and a mapping of options.

    A reader must raise KeyError or ValueError for an invalid value.
    """

    def read(text: str) -> tuple[str, dict[str, Any]]:
        first, *rest = text.split(",")
        options: dict[str, Any] = {}
        for option, _, value in (part.partition("=") for part in rest):
            if option not in readers:
                raise BadInput(
                    f"an option of {name} is one of {', '.join(readers)}, got {option!r}{suggestion(option, readers)}"
                )
            try:
                options[option] = readers[option](value)
            except (KeyError, ValueError):
                raise BadInput(f"the option {option} of {name} cannot be {value!r}") from None
        return first, options

    return read


def whole_numbers(text: str) -> list[int]:
    """`2+4` -> [2, 4]. Raises ValueError."""
    return [int(number) for number in text.split("+")]


def target(
    name: str,
    usage: str,
    read: Read = sizes,
    options: Callable[..., Any] | None = None,
    objectives: Sequence[str] = OBJECTIVES,
    load: Maker | None = None,
    bare: str = "",
) -> Callable[[Maker], Maker]:
    """Registers a function that builds a target under a name.

    usage    its syntax on the command line
    read     parses the text after the name and a colon to the function's arguments
    options  function whose keyword-only parameters flags may set; by default the registered function
    load     builds the target from a TOML file: (path, content, **options)
    bare     text to read if the name stands alone
    """

    def declare(maker: Maker) -> Maker:
        kinds = inspect.signature(options or maker).parameters.values()
        known = frozenset(p.name for p in kinds if p.kind is inspect.Parameter.KEYWORD_ONLY)
        doc = inspect.cleandoc(maker.__doc__ or "")
        TARGETS[name] = Entry(usage, doc, maker, read, known, objectives, load, bare)
        return maker

    return declare


def parse_target(text: str, **options: Any) -> Target:
    """Returns the target of a text: `systolic-array:64x64`, `mpc:semi2k`, or the path of a .toml file.

    A file names its target, `target = "mpc"`; the default is a systolic array. `options` are keyword arguments of the
    target; objectives may be text, such as `cycles,bytes`. Raises BadInput for an unknown name, an invalid size, or an
    option that the target does not have.
    """
    load_all()
    name, _, arguments = text.partition(":")
    described = text.lower().endswith(".toml") and not (arguments and name in TARGETS)
    content = read_toml(text) if described else {}
    name = content.get("target", "systolic-array") if described else name
    if not isinstance(name, str):
        raise BadInput(f"{text}: target is a name, such as 'systolic-array', got {name!r}")
    if name not in TARGETS:
        known = ", ".join(entry.usage for entry in TARGETS.values())
        raise BadInput(f"there is no target {name!r}; the targets are {known}{suggestion(name, TARGETS)}")
    entry = TARGETS[name]
    unknown = next((option for option in options if option not in entry.options), None)
    if unknown is not None:
        hint = suggestion(unknown, entry.options).replace("_", "-")
        raise BadInput(f"the target {name} has no {unknown.replace('_', '-')}{hint}")
    if isinstance(options.get("objectives"), str):
        options["objectives"] = parse_objectives(options["objectives"], entry.objectives)
    if described:
        if entry.load is None:
            raise BadInput(f"{text}: the target {name} is not described by a file; it is written {entry.usage}")
        return entry.load(text, content, **options)
    arguments = arguments or ("" if ":" in text else entry.bare)
    if not arguments:
        raise BadInput(f"the target {name} is written {entry.usage}, got {text!r}")
    return entry.maker(*entry.read(arguments), **options)
