"""Checks programs against each other: `check` tests equality exactly, `check_floating` within rounding, and
`check_gradient` tests exactly that one program is the gradient of another.
"""

from glenside.check.exact import CheckReport, check
from glenside.check.floating import FloatingReport, check_floating
from glenside.check.gradients import GradientReport, check_gradient
from glenside.check.verdicts import AS_REALS, EXACT, is_equal

__all__ = [
    "AS_REALS",
    "EXACT",
    "CheckReport",
    "FloatingReport",
    "GradientReport",
    "check",
    "check_floating",
    "check_gradient",
    "is_equal",
]
