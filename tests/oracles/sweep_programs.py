"""Builds small programs for sweeps, and selects what is compared of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from glenside.sweep.cells import Row

DOT = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"
HANG = 60
"""Seconds after which a test reports a hang."""


def sample_programs(folder: Path) -> list[str]:
    """Returns two programs without common sizes, small and large."""
    for name, (m, k, n) in {"small": (5, 9, 7), "large": (40, 33, 20)}.items():
        text = f"(input a (shape {m} {k})) (constant b (shape {n} {k})) {DOT}"
        (folder / f"{name}.glenside").write_text(text)
    return [str(folder / "small.glenside"), str(folder / "large.glenside")]


def without_seconds(rows: Sequence[Row | None]) -> list[dict[str, Any]]:
    """Returns the rows without columns that differ in each run."""
    return [asdict(replace(row, seconds=0.0)) for row in rows if row is not None]
