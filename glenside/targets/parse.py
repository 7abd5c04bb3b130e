"""What names a target on the command line: a name and a size, or a TOML file."""

from __future__ import annotations

from typing import Any

from glenside.ir.errors import BadInput
from glenside.target import Target
from glenside.targets.description import load_target
from glenside.targets.registry import TARGETS, sizes

__all__ = ["parse_target", "sizes"]


def parse_target(text: str, **options: Any) -> Target:
    """`systolic-array:64x64`, or the path of a .toml file -> its Target, with options of `systolic_array`.

    Raises BadInput for an unknown name, a size that is not one, or an option that does not fit.
    """
    if text.lower().endswith(".toml"):
        return load_target(text, **options)
    name, _, arguments = text.partition(":")
    if name not in TARGETS:
        raise BadInput(f"there is no target {name!r}; the targets are {', '.join(u for u, *_ in TARGETS.values())}")
    usage, _, maker, read = TARGETS[name]
    if not arguments:
        raise BadInput(f"the target {name} is written {usage}, got {text!r}")
    return maker(*read(arguments), **options)
