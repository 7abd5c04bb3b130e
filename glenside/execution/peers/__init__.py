"""Loads other runtimes for comparisons: a file each, found on demand, run in processes of their own."""

from importlib import import_module
from pkgutil import iter_modules

from glenside.execution.peers.peer import PEERS

__all__ = ["PEERS", "load_all"]


def load_all() -> None:
    """Imports every file of this package: each registers the runtimes that it declares."""
    for info in iter_modules(__path__):
        if info.name != "serve":
            import_module(f"{__name__}.{info.name}")
