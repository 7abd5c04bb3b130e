"""Built-in networks, by name. Every module of this package is found and loaded; no list is edited to add one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.program import Program

__all__ = ["load", "model", "models", "parameters"]

Build = TypeVar("Build", bound=Callable[..., Program])

_MODELS: dict[str, Callable[..., Program]] = {}


def model(build: Build) -> Build:
    """Register a function from parameters (all with defaults) to a Program under its name, with hyphens."""
    name = build.__name__.replace("_", "-")
    if name in _MODELS:
        raise ValueError(f"{name} is declared twice")
    _MODELS[name] = build
    return build


def models() -> dict[str, str]:
    """Every built-in model with one line about it."""
    return {name: (inspect.getdoc(build) or "").split("\n")[0] for name, build in sorted(_MODELS.items())}


def closest(name: str) -> str:
    """The end of a message about a model that is not there: the one that is meant, or all."""
    return suggestion(name, _MODELS) or f"; the models are {', '.join(sorted(_MODELS))}"


def parameters(name: str) -> dict[str, Any]:
    """The parameters of a model with their defaults. Raises BadInput for an unknown name."""
    name = name.replace("_", "-")
    if name not in _MODELS:
        raise BadInput(f"there is no model {name!r}{closest(name)}")
    return {p.name: p.default for p in inspect.signature(_MODELS[name]).parameters.values()}


def load(name: str, **values: Any) -> Program:
    """Build a model by name. Raises BadInput for an unknown name or parameter."""
    known, name = parameters(name), name.replace("_", "-")
    for parameter in values:
        if parameter not in known:
            raise BadInput(f"model {name} requires parameters among {', '.join(known)}, got {parameter}")
    return _MODELS[name](**values)


def __getattr__(name: str) -> Any:
    """`glenside.models.mobilenet_v1` and every other registered model by its Python name."""
    build = _MODELS.get(name.replace("_", "-"))
    if build is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return build


for _module in sorted(info.name for info in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
