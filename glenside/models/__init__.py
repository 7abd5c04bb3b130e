"""Built-in networks, by name. All modules of this package are found and loaded; adding one needs no list."""

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
    """Registers a function from parameters, all with defaults, to a Program, under its name with hyphens."""
    name = build.__name__.replace("_", "-")
    if name in _MODELS:
        raise ValueError(f"{name} is declared twice")
    _MODELS[name] = build
    return build


def models() -> dict[str, str]:
    """Returns each built-in model with a description of one line."""
    return {name: (inspect.getdoc(build) or "").split("\n")[0] for name, build in sorted(_MODELS.items())}


def closest(name: str) -> str:
    """Returns the end of a message about an unknown model: the closest name, or all names."""
    return suggestion(name, _MODELS) or f"; the models are {', '.join(sorted(_MODELS))}"


def parameters(name: str) -> dict[str, Any]:
    """Returns the parameters of a model with their defaults. Raises BadInput for an unknown name."""
    name = name.replace("_", "-")
    if name not in _MODELS:
        raise BadInput(f"there is no model {name!r}{closest(name)}")
    return {p.name: p.default for p in inspect.signature(_MODELS[name]).parameters.values()}


def load(name: str, **values: Any) -> Program:
    """Builds a model by name. Raises BadInput for an unknown name or parameter."""
    known, name = parameters(name), name.replace("_", "-")
    for parameter in values:
        if parameter not in known:
            raise BadInput(f"model {name} requires parameters among {', '.join(known)}, got {parameter}")
    return _MODELS[name](**values)


def __getattr__(name: str) -> Any:
    """Returns any registered model by its Python name, as `glenside.models.mobilenet_v1`."""
    build = _MODELS.get(name.replace("_", "-"))
    if build is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return build


for _module in sorted(info.name for info in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
