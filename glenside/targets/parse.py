"""What names a target on the command line: a name and a size, or a TOML file."""

from __future__ import annotations

from typing import Any

from glenside.ir.errors import BadInput
from glenside.targets.base import Target
from glenside.targets.registry import TARGETS, sizes
from glenside.targets.systolic_array.description import load_target

__all__ = ["parse_target", "sizes"]


def parse_target(text: str, **options: Any) -> Target:
    """`systolic-array:64x64`, `mpc:semi2k`, or the path of a .toml file -> its target, with options of its maker.

    Raises BadInput for an unknown name, a size that is not one, or an option that does not fit.
    """
    name, _, arguments = text.partition(":")
    described = text.lower().endswith(".toml")
    name = "systolic-array" if described else name
    if name not in TARGETS:
        known = ", ".join(entry.usage for entry in TARGETS.values())
        raise BadInput(f"there is no target {name!r}; the targets are {known}")
    entry = TARGETS[name]
    unknown = next((option for option in options if option not in entry.options), None)
    if unknown is not None:
        raise BadInput(f"the target {name} has no {unknown.replace('_', '-')}")
    if described:
        return load_target(text, **options)
    if not arguments:
        raise BadInput(f"the target {name} is written {entry.usage}, got {text!r}")
    return entry.maker(*entry.read(arguments), **options)
