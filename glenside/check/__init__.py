"""Whether two programs are equal: `check` exactly, `check_floating` within rounding; and whether one is the gradient of
the other: `check_gradient` exactly.
"""

from glenside.check.exact import AS_REALS, EXACT, CheckReport, check, is_equal
from glenside.check.floating import FloatingReport, check_floating
from glenside.check.gradients import GradientReport, check_gradient

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
