"""What names a target on the command line: a name and a size, or a TOML file."""

from __future__ import annotations

import re
from typing import Any

from glenside.ir.errors import BadInput
from glenside.target import Target
from glenside.targets.description import load_target
from glenside.targets.registry import TARGETS


def sizes(text: str) -> tuple[int, int]:
    """`64x64` -> (64, 64). Raises BadInput."""
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)
    if match is None or int(match[1]) == 0 or int(match[2]) == 0:
        raise BadInput(f"an array is written ROWSxCOLUMNS with sizes of at least 1, such as 64x64; got {text!r}")
    return int(match[1]), int(match[2])


def parse_target(text: str, **options: Any) -> Target:
    """`systolic-array:64x64`, or the path of a .toml file -> its Target, with options of `systolic_array`.

    Raises BadInput for an unknown name, a size that is not one, or an option that does not fit.
    """
    if text.lower().endswith(".toml"):
        return load_target(text, **options)
    name, _, arguments = text.partition(":")
    if name not in TARGETS:
        raise BadInput(f"there is no target {name!r}; the targets are {', '.join(u for u, _, _ in TARGETS.values())}")
    usage, _, maker = TARGETS[name]
    if not arguments:
        raise BadInput(f"the target {name} is written {usage}, got {text!r}")
    return maker(*sizes(arguments), **options)
