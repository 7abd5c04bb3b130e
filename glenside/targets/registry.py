"""The built-in targets by name. `name:RxC` on the command line becomes a call of the function with those sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from glenside.target import Target

Maker = Callable[..., Target]
TARGETS: dict[str, tuple[str, str, Maker]] = {}


def target(name: str, usage: str) -> Callable[[Maker], Maker]:
    """Register a function from sizes to a Target under a name; `usage` is how it is written on the command line."""

    def declare(maker: Maker) -> Maker:
        TARGETS[name] = (usage, inspect.cleandoc(maker.__doc__ or ""), maker)
        return maker

    return declare
