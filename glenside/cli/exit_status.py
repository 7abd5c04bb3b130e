"""Exit statuses of every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glenside.check.onnxruntime import RuntimeReport
    from glenside.report.result import Result

OK = 0
WRONG = 1
"""There is an answer, and something in it is unmapped, unequal, above its budget, or missing."""
BAD_INPUT = 2
INTERRUPTED = 130


def status_of(result: Result, checked: bool, runtime: RuntimeReport | None = None) -> int:
    """The exit status of an answer that was to be `checked` or not."""
    if result.stopped == "interrupted" or result.interrupted:
        return INTERRUPTED
    report = result.report
    wrong = report.mapped < len(report.layers) or report.notes or (checked and not report.ok)
    return WRONG if wrong or (runtime is not None and not runtime.ok) else OK
