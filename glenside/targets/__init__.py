"""The built-in targets. Every module of this package is found and loaded."""

from importlib import import_module
from pkgutil import iter_modules

from glenside.targets.convolution_unit import convolution_unit as ConvolutionUnit
from glenside.targets.cpu import CPU
from glenside.targets.mpc import MPC
from glenside.targets.parse import parse_target
from glenside.targets.registry import TARGETS
from glenside.targets.systolic_array import systolic_array as SystolicArray

for _module in sorted(info.name for info in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")

__all__ = ["CPU", "MPC", "TARGETS", "ConvolutionUnit", "SystolicArray", "parse_target"]
