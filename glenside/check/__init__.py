"""Whether two programs are equal: `check` exactly, `check_floating` within rounding."""

from glenside.check.exact import AS_REALS, EXACT, CheckReport, check, is_equal
from glenside.check.floating import FloatingReport, check_floating

__all__ = ["AS_REALS", "EXACT", "CheckReport", "FloatingReport", "check", "check_floating", "is_equal"]
