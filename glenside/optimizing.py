"""`gl.optimize`: the way from a program to an answer that a target takes."""

from __future__ import annotations

from typing import Any, overload

from glenside.form_target import FormTarget
from glenside.forms import FormResult, choose_forms
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.pipeline import Event, Listener, Result
from glenside.pipeline import optimize as map_layers
from glenside.targets.base import Target

_OF_FORMS = frozenset({"limits", "seed", "verify", "worker", "load_seconds"})
_KEPT = frozenset({"cache", "listener"})


@overload
def optimize(program: Program, target: Target, **how: Any) -> Result: ...


@overload
def optimize(program: Program, target: FormTarget, **how: Any) -> FormResult: ...


def optimize(program: Program, target: Target | FormTarget, **how: Any) -> Result | FormResult:
    """Find the equal program that uses the target best, and check that it is equal.

    On an array, each product is mapped onto it (see `glenside.pipeline.optimize` for all options); elsewhere the form
    of each layer is chosen (see `glenside.forms.choose_forms`), which knows `limits`, `seed`, `verify`, `worker` and
    `listener`, and keeps nothing in a cache. Stopping early, by a limit or by Ctrl-C, still gives the best program
    found by then; `result.stopped` says why. Raises BadInput.
    """
    if isinstance(target, Target):
        return map_layers(program, target, **how)
    unknown = next((name for name in how if name not in _OF_FORMS | _KEPT), None)
    if unknown is not None:
        raise BadInput(f"{target.name} chooses the forms of layers, which has no option {unknown}")
    listener: Listener = how.get("listener") or (lambda _: None)
    own = {name: value for name, value in how.items() if name in _OF_FORMS}
    return choose_forms(program, target, announce=lambda stage, detail: listener(Event(stage, detail)), **own)
