"""Whether two programs are equal: `check` exactly, `check_floating` within rounding."""

from glenside.check.exact import check
from glenside.check.floating import FloatingReport, check_floating
from glenside.check.report import EXACT, CheckReport

__all__ = ["EXACT", "CheckReport", "FloatingReport", "check", "check_floating"]
