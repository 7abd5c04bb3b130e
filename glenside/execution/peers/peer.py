"""Defines the record of a runtime: its name, its packages, and how it loads a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from glenside.ir.operand import Array

Inputs = Mapping[str, Array]
Run = Callable[[], Sequence[Array]]
"""Returns the results for inputs that were given at load, in the order of the model."""


@dataclass(frozen=True)
class Peer:
    """A runtime.

    name      in tables
    packages  imported packages, and their names in pip; the first one's version is shown
    load      (path of a model, inputs, number of threads) -> run, with its best settings, in float32. It is called in
              a process of its own, and may raise anything
    remark    what a user should know about how it is run
    """

    name: str
    packages: Mapping[str, str]
    load: Callable[[Path, Inputs, int], Run]
    remark: str = ""

    @property
    def missing(self) -> str:
        """Returns the command that installs the runtime, or ""."""
        absent = [pip for name, pip in self.packages.items() if find_spec(name) is None]
        return f"{self.name} is not installed: pip install {' '.join(absent)}" if absent else ""

    @property
    def title(self) -> str:
        """Its name and version."""
        for pip in self.packages.values():
            try:
                return f"{self.name} {version(pip).partition('+')[0]}"
            except PackageNotFoundError:
                continue
        return self.name


PEERS: dict[str, Peer] = {}


def peer(
    name: str, packages: Mapping[str, str], remark: str = ""
) -> Callable[[Callable[[Path, Inputs, int], Run]], Callable[[Path, Inputs, int], Run]]:
    """Registers a runtime by the function that loads a model for it."""

    def register(load: Callable[[Path, Inputs, int], Run]) -> Callable[[Path, Inputs, int], Run]:
        assert name not in PEERS, f"there is a runtime {name} already"
        PEERS[name] = Peer(name, packages, load, remark)
        return load

    return register
