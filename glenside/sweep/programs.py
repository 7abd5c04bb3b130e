"""Cells that are whole programs: an integer network from input to result, and its cost on a machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.npu.analysis.critical_path import accounts
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.quantize_program import RANDOM, integers, of_bytes
from glenside.report.result import Result
from glenside.targets.base import EmitsInstructions, Target


def require_programs(quantize: str, targets: Sequence[Target]) -> None:
    """Raises BadInput for a network quantized for a machine without instructions, or in another way."""
    if quantize not in ("", RANDOM):
        raise BadInput(f"--quantize of a sweep is {RANDOM}, got {quantize}")
    other = next((target for target in targets if quantize and not isinstance(target, EmitsInstructions)), None)
    if other is not None:
        raise BadInput(f"--quantize is for machines of bytes, such as npu:64x64, and {other.name} is none")


def prepared(program: Program, quantize: str) -> tuple[Program, IntegerNetwork | None]:
    """Returns the program to search, and its integer network if one is requested. Raises BadInput."""
    if not quantize:
        return program, None
    found = integers(program, None if of_bytes(program) else quantize)
    assert found is not None, "it is of bytes, or becomes so"
    return found.network.program, found.network


def whole_program(result: Result, network: IntegerNetwork) -> dict[str, Any]:
    """Returns the columns of a row that describe the program. Raises BadInput for a layer that the machine cannot
    run.
    """
    result.require_mapped()
    assert isinstance(result.target, EmitsInstructions), "`require_programs` refuses other targets"
    made = result.target.network_code(result, network)
    total = accounts(made).total
    return {
        "program_cycles": total.cycles,
        "program_bytes": total.read + total.written,
        "picojoules": total.energy(made.machine) or 0.0,
    }
