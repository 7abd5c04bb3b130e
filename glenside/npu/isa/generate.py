"""Writes the generated files of the RTL: `python -m glenside.npu.isa.generate rtl`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from glenside.npu.isa.checks import assertions
from glenside.npu.isa.encoding import package
from glenside.npu.isa.host_registers import in_c
from glenside.npu.isa.json_text import json_text
from glenside.npu.isa.markdown import SECTIONS, marks, section

FILES: Mapping[str, Callable[[], str]] = {
    "npu_pkg.sv": package,
    "registers.h": in_c,
    "npu_checks.sv": assertions,
    "npu_isa.json": json_text,
}
"""File name -> function that returns its text."""


def write(folder: Path) -> None:
    """Writes all generated files, and the generated sections of the folder's README.md."""
    for name, made in FILES.items():
        (folder / name).write_text(made(), encoding="utf-8")
    document = folder / "README.md"
    text = document.read_text(encoding="utf-8")
    for name in SECTIONS:
        begin, end = marks(name)
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{section(name)}\n{end}{rest.split(end)[1]}"
    document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
