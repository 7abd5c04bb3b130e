"""Checks the options of `torch.compile(model, backend="glenside", options={..})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion


@dataclass(frozen=True)
class Options:
    """Options of the back end.

    target   the target to optimize for first, as in `gl.compile`; "none" compiles graphs as they are, and faster
    freeze   True: parameters are constants, which are packed when they are compiled. A graph is compiled again if
             PyTorch has counted a change of a parameter since; changes through `.data` or numpy are not counted
    threads  number of threads; default: number of processors
    """

    target: str = "cpu"
    freeze: bool = False
    threads: int | None = None


def options_of(given: Mapping[str, Any] | None) -> Options:
    """Returns the options. Raises BadInput for an unknown one, or an unknown target."""
    from glenside.targets.chosen import as_target

    known = [field.name for field in fields(Options)]
    for name in given or {}:
        if name not in known:
            hint = suggestion(name, known) or f"; they are {', '.join(known)}"
            raise BadInput(f"torch.compile with the back end glenside has no option {name}{hint}")
    own = Options(**(given or {}))
    if own.target != "none":
        as_target(own.target)
    return own
