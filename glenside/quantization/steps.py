"""Defines the elementwise steps that a machine applies to scaled and shifted integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.quantization.affine import Affine, one_number

_Step = Callable[[Affine, Array, bool], Affine]


def _subtracted(value: Affine, by: Array, flipped: bool) -> Affine:
    return value.times(one_number(-1)).plus(by) if flipped else value.plus(-by)


def _divided(value: Affine, by: Array, flipped: bool) -> Affine:
    if flipped or value.dtype not in FLOATS:
        raise BadInput(
            "a division of a constant by sums, or of integers, is not supported; a machine scales by a constant"
        )
    return value.times(1 / by)


PAIRS: dict[str, _Step] = {
    "elementwise-add": lambda value, by, _: value.plus(by),
    "subtract": _subtracted,
    "elementwise-mul": lambda value, by, _: value.times(by),
    "elementwise-div": _divided,
    "maximum": lambda value, by, _: value.between(by, one_number(np.inf)),
    "minimum": lambda value, by, _: value.between(one_number(-np.inf), by),
}
FUNCTIONS: dict[str, Callable[[Affine, list[float]], Affine]] = {
    "relu": lambda value, _: value.between(one_number(0), one_number(np.inf)),
    "clip": lambda value, ends: value.between(*map(one_number, ends)),
    "round": lambda value, _: value.rounded(),
    "negative": lambda value, _: value.times(one_number(-1)),
}
