"""The built-in targets by name. `name:RxC` on the command line becomes a call of the function with those sizes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from glenside.ir.errors import BadInput
from glenside.target import Target
from glenside.target.form_target import FormTarget

Maker = Callable[..., Target | FormTarget]
Read = Callable[[str], tuple[Any, ...]]
TARGETS: dict[str, tuple[str, str, Maker, Read]] = {}


def sizes(text: str) -> tuple[int, int]:
    """`64x64` -> (64, 64). Raises BadInput."""
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)
    if match is None or int(match[1]) == 0 or int(match[2]) == 0:
        raise BadInput(f"an array is written ROWSxCOLUMNS with sizes of at least 1, such as 64x64; got {text!r}")
    return int(match[1]), int(match[2])


def target(name: str, usage: str, read: Read = sizes) -> Callable[[Maker], Maker]:
    """Register a function to a Target under a name; `usage` is how it is written on the command line, after the name
    and a colon, where `read` makes the function's arguments of it.
    """

    def declare(maker: Maker) -> Maker:
        TARGETS[name] = (usage, inspect.cleandoc(maker.__doc__ or ""), maker, read)
        return maker

    return declare
