"""Built-in networks. Every module of this package is found and loaded; no list is edited to add one."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from glenside.models.registry import builder_of, load, model, models, parameters

__all__ = ["load", "model", "models", "parameters"]

for _module in sorted(info.name for info in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")


def __getattr__(name: str) -> Any:
    """`glenside.models.mobilenet_v1` and every other registered model by its Python name."""
    build = builder_of(name)
    if build is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return build
