"""The built-in targets, one folder each: a target is imported on first use, a lookup by name imports all.

Importing this package imports none of them: `glenside.targets.base` is below the rewrite rules, the targets are above.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from glenside.ir.packages import load

if TYPE_CHECKING:
    from glenside.targets.convolution_unit.target import ConvolutionUnit as ConvolutionUnit
    from glenside.targets.cpu.target import CPU as CPU
    from glenside.targets.mpc.target import MPC as MPC
    from glenside.targets.npu.target import NPU as NPU
    from glenside.targets.registry import TARGETS as TARGETS
    from glenside.targets.registry import parse_target as parse_target
    from glenside.targets.systolic_array.target import SystolicArray as SystolicArray

_MODULES = {
    "CPU": "cpu.target",
    "MPC": "mpc.target",
    "NPU": "npu.target",
    "TARGETS": "registry",
    "ConvolutionUnit": "convolution_unit.target",
    "SystolicArray": "systolic_array.target",
    "parse_target": "registry",
}

__all__ = ["CPU", "MPC", "NPU", "TARGETS", "ConvolutionUnit", "SystolicArray", "load_all", "parse_target"]


_SHARED = ("base", "arrays")
"""Folders without a target of their own."""


def load_all() -> None:
    """Imports the module `target` of every folder; each registers its targets."""
    packages = (info.name for info in iter_modules(__path__) if info.ispkg and info.name not in _SHARED)
    load(f"{__name__}.{name}.target" for name in packages)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'glenside.targets' has no attribute {name!r}")
    if _MODULES[name] == "registry":
        load_all()
    globals()[name] = value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
