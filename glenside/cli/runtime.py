"""`--check onnxruntime`: the files that went in and came out, run by another program."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from glenside.check.onnxruntime import RuntimeReport
    from glenside.ir.program import Program
    from glenside.report.result import Result

CHECKS = ("exact", "onnxruntime")


def in_runtime(check: str) -> bool:
    """Whether a check in onnxruntime is asked for. Raises BadInput, also when the packages for it are missing."""
    if check not in CHECKS:
        raise BadInput(f"--check is one of {', '.join(CHECKS)}, got {check!r}")
    if check == "onnxruntime":
        from glenside.ir.packages import import_onnx, import_onnxruntime

        import_onnx()
        import_onnxruntime()
    return check == "onnxruntime"


def run_both(
    result: Result, program: Program, source: str, weights: str | None, output: str | None, seed: int
) -> RuntimeReport:
    """Compare what went in with what came out: the files where both are ONNX, else exports of the programs."""
    from glenside.check.onnxruntime import check_onnxruntime
    from glenside.formats import ending

    exported = output if output is not None and ending(output) == ".onnx" else None
    whole = ending(source) == ".onnx" and weights is None
    replaced = exported is not None and os.path.realpath(source) == os.path.realpath(exported)
    original = source if whole and not replaced else result.original
    return check_onnxruntime(original, program, seed=seed, exported=exported)


def in_words(report: RuntimeReport, result: Result) -> str:
    """What the check found, and where the reason is to be looked for when the exact check found nothing."""
    if report.ok or result.report.checked != "exact":
        return str(report)
    return f"{report} The exact check finds no difference: it is of rounding, of random numbers, or of the files."
