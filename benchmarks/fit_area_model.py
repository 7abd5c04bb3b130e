"""Fits the table of `glenside.npu.rtl.area_model` to the SystemVerilog of the machine.

    python -m benchmarks.fit_area_model

Prints the entries of `MEASURED`; Yosys needs minutes.
"""

from __future__ import annotations

from dataclasses import astuple

from glenside.npu.machine.model import Machine
from glenside.npu.rtl.area_model import PORTS
from glenside.npu.rtl.synthesis import Growth, area


def main() -> None:
    narrow, wide = (area(Machine(64, 64, bandwidth=port)).growth or {} for port in PORTS)
    for name in sorted(narrow, key=lambda name: -narrow[name].at(64, 64)):
        print(f'    "{name}": _Measured({_numbers(narrow[name])}, {_numbers(wide[name])}),')


def _numbers(growth: Growth) -> str:
    return f"({', '.join(f'{number:.10g}' for number in astuple(growth))})"


if __name__ == "__main__":
    main()
