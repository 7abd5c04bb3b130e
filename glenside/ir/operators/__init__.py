"""Loads the operators and compute types: every module of this package is found and imported."""

from importlib import import_module
from pkgutil import iter_modules

from glenside.ir.operators.compute import CATEGORY_RESULT, compute_of, compute_text, parse_compute
from glenside.ir.operators.forms import SHAPE_FORMS, ShapeForm

__all__ = ["CATEGORY_RESULT", "SHAPE_FORMS", "ShapeForm", "compute_of", "compute_text", "parse_compute"]

for _module in sorted(info.name for info in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
