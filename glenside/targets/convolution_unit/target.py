"""The target `convolution-unit`: a unit for convolutions and matrix products with operands in one layout."""

from __future__ import annotations

from typing import Any

from glenside.targets.arrays.layout_unit import LayoutUnit
from glenside.targets.registry import target


class ConvolutionUnit(LayoutUnit):
    """A unit that requires its operands in one layout; the cost is the bytes of copies that only move data.

    layout   nhwc, nchw, any, or blocks of channels such as nchw16c
    loads    other axis orders in which the unit reads an operand at no cost: none, runs or all
    stores   other axis orders in which the unit stores a result at no cost: none, runs or all

    With loads and stores "none" it is like a library call: operands and results are stored in its layout.
    Raises BadInput.
    """


@target("convolution-unit", "convolution-unit:nhwc", read=lambda text: (text,), options=ConvolutionUnit)
def _convolution_unit(layout: str, **options: Any) -> ConvolutionUnit:
    """A unit that takes its operands in one layout (nhwc, nchw, nchw16c); counts the bytes of copies."""
    return ConvolutionUnit(layout, **options)
