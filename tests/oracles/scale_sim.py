"""Runs SCALE-Sim 3.0.0 (https://github.com/scalesim-project/SCALE-Sim), a simulator of systolic arrays by others.

A swapped matmul is what it calls input-stationary, given the sizes from before the swap. It simulates some 6,000 cycles
a second and may take 1 GiB. It needs numpy < 2.3, so an environment of its own, whose python a variable names:

    python3 -m venv scalesim && scalesim/bin/pip install 'scalesim==3.0.0' 'numpy<2.3'
    GLENSIDE_SCALESIM_PYTHON=scalesim/bin/python pytest -m slow tests/test_scale_sim.py
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

# (M, K, N, swapped): of a swapped one the sizes from before the swap.
Matmul = tuple[int, int, int, bool]

VARIABLE = "GLENSIDE_SCALESIM_PYTHON"
TIMEOUT = 600.0  # seconds for all matmuls of one dataflow

# Its own command writes traces of every cycle whatever it is told; this does not.
PROGRAM = """
import sys
from scalesim.scale_sim import scalesim
config, topology, layout, results = sys.argv[1:]
scalesim(save_disk_space=True, verbose=False, config=config, topology=topology, layout=layout,
         input_type_gemm=True).run_scale(top_path=results)
"""

CONFIG = """\
[general]
run_name = run

[architecture_presets]
ArrayHeight = {rows}
ArrayWidth = {columns}
IfmapSramSzkB = 1024
FilterSramSzkB = 1024
OfmapSramSzkB = 1024
IfmapOffset = 0
FilterOffset = 100000000
OfmapOffset = 200000000
Bandwidth = 10
Dataflow = {dataflow}
ReadRequestBuffer = 64
WriteRequestBuffer = 64

[layout]
IfmapCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterCustomLayout = False
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2

[sparsity]
SparsitySupport = false

[run_presets]
InterfaceBandwidth = CALC
UseRamulatorTrace = False
"""


@dataclass(frozen=True)
class Claim:
    """A claim that a layer takes `cycles`, with one matmul run `count` times."""

    layer: str
    matmul: Matmul
    count: int
    cycles: int


def missing() -> str | None:
    """Returns why SCALE-Sim cannot be run, or None if it can."""
    if not os.environ.get(VARIABLE):
        return f"{VARIABLE} does not name the python of an environment with scalesim==3.0.0 and numpy<2.3"
    import_and_tell = "import scalesim.scale_sim, importlib.metadata as m; print(m.version('scalesim'))"
    try:
        done = subprocess.run(_command(import_and_tell), capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{VARIABLE} does not run: {error}"
    if done.returncode:
        return f"{VARIABLE} has no SCALE-Sim: {done.stderr.strip()[-200:]}"
    version = done.stdout.strip()
    return None if version == "3.0.0" else f"{VARIABLE} has SCALE-Sim {version}, not 3.0.0"


def _command(program: str, *arguments: Path) -> list[str]:
    """Returns the python command of the environment, isolated from other packages, for any folder."""
    python = os.environ[VARIABLE]
    return [os.path.abspath(shutil.which(python) or python), "-I", "-c", program, *map(str, arguments)]


def disagreements(claims: Iterable[Claim], rows: int, columns: int) -> list[str]:
    """Returns the claims that SCALE-Sim does not confirm; it reports one cycle less for each matmul."""
    claims = list(claims)
    simulated = cycles([claim.matmul for claim in claims], rows, columns)
    return [
        f"{claim.layer}: {claim.cycles} cycles, SCALE-Sim {claim.count} * {got} for {claim.matmul}"
        for claim, got in zip(claims, simulated, strict=True)
        if claim.cycles != claim.count * (got + 1)
    ]


def cycles(matmuls: Iterable[Matmul], rows: int, columns: int) -> list[int]:
    """Returns the total cycles of each matmul on an array of rows x columns: weight-stationary, swapped ones
    input-stationary.
    """
    matmuls = list(matmuls)
    found: dict[Matmul, int] = {}
    for swapped, dataflow in ((False, "ws"), (True, "is")):
        wanted = sorted({matmul for matmul in matmuls if matmul[3] == swapped})
        if wanted:
            found |= dict(zip(wanted, run(wanted, rows, columns, dataflow), strict=True))
    return [found[matmul] for matmul in matmuls]


def run(matmuls: Sequence[Matmul], rows: int, columns: int, dataflow: str) -> list[int]:
    """Returns the total cycles of each matmul with one dataflow: ws, is or os."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        config, topology, layout = folder / "array.cfg", folder / "matmuls.csv", folder / "layout.csv"
        config.write_text(CONFIG.format(rows=rows, columns=columns, dataflow=dataflow))
        lines = [f"matmul{i},{m},{n},{k},\n" for i, (m, k, n, _) in enumerate(matmuls)]
        topology.write_text("Layer,M,N,K,\n" + "".join(lines))
        layout.write_text("Layer name,\n")  # it reads the file though no layout is asked for
        command = _command(PROGRAM, config, topology, layout, folder / "results")
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT)
        report = folder / "results" / "run" / "COMPUTE_REPORT.csv"
        if done.returncode or not report.exists():
            raise RuntimeError(f"SCALE-Sim gave {done.returncode}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
        with report.open() as file:
            lines_read = list(csv.DictReader(file, skipinitialspace=True))
    if [line["LayerID"] for line in lines_read] != [str(i) for i in range(len(matmuls))]:
        raise RuntimeError(f"SCALE-Sim reported {len(lines_read)} of {len(matmuls)} matmuls")
    if any(float(line["Stall Cycles"]) for line in lines_read):
        raise RuntimeError("SCALE-Sim reported stalls, which the formulas do not have")
    return [int(float(line["Total Cycles"])) for line in lines_read]
