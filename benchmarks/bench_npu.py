"""Measures quantized networks as programs of the npu, by how mappings and memory are selected.

    python -m benchmarks.bench_npu [--machines npu:..] [--chosen WAY ..] [NETWORK[,set=value] ..]

Networks are built in and quantized on one random sample. The results in DRAM are compared with the interpreter's. Rows
of other networks, machines and ways are kept. Columns:

- `chosen`: `together`: mappings, axis orders and resident tensors are selected jointly. `in DRAM`: the same with all
  tensors in DRAM. `apart`: the fastest mapping of each layer, with tensors in DRAM in the order in which the next layer
  loads fastest. Machines without latency are measured with `together` only.
- `cycles`: of the simulator, which are those of the RTL (`tests/npu/test_npu_networks.py`).
- `bound`: cycles of the busiest unit, which no order of the same instructions avoids. `array`: cycles of tiles alone.
- `read`, `written`: bytes of DRAM.
- `search`, `choose and lower`, `simulate`: processor seconds.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import glenside as gl
from glenside import models
from glenside.npu.analysis.critical_path import bound
from glenside.npu.lowering.emission.emit_program import without_dma
from glenside.npu.lowering.pipeline.alternatives import layer_by_layer
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.lowering.pipeline.emit_network import chained
from glenside.npu.lowering.selection.feasible_choice import best
from glenside.npu.lowering.tiling.mapped_layers import Front
from glenside.npu.machine.model import Machine
from glenside.npu.model.execute import run
from glenside.npu.model.reference_results import wrong
from glenside.npu.pipeline import compile_fronts
from glenside.npu.program.program import NpuProgram
from glenside.quantization.calibration import quantized
from glenside.quantization.layers import IntegerNetwork

RESULTS = Path(__file__).parent / "results"
MACHINES = tuple(f"npu:64x64,bandwidth={beat}{more}" for more in ("", ",latency=0") for beat in (16, 32, 64))
NETWORKS = ("mobilenet-v1",)


def measure(name: str, machine: Machine, chosen: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Selection methods; each gives a row."""
    model, _, settings = name.partition(",")
    own = {key: int(value) for key, _, value in (s.partition("=") for s in settings.split(",") if s)}
    program = models.load(model, **own).seeded_constants(0)
    network = quantized(program, program.constants)
    begin = time.process_time()
    result = gl.optimize(network.program, gl.NPU(machine), verify=False)
    front = map_layers(result, network)
    searched = time.process_time() - begin
    ways = WAYS if machine.latency else {"together": _together}
    for how, choose in ((how, ways[how]) for how in chosen if how in ways):
        begin = time.process_time()
        made = choose(network, front, machine)
        lowered = time.process_time() - begin
        begin = time.process_time()
        done = run(made)
        simulated = time.process_time() - begin
        bad = wrong(made, done.dram)
        if bad or done.cycles != made.predicted:
            raise SystemExit(f"{name} on {machine}: {', '.join(bad) or 'cycles'} wrong")
        yield {
            "network": name,
            "machine": str(machine),
            "chosen": how,
            "layers": len(made.stretches),
            "cycles": done.cycles,
            "bound": bound(made),
            "array": sum(without_dma(made, stretch) for stretch in made.stretches),
            "read": done.read,
            "written": done.written,
            "instructions": made.size,
            "search": round(searched, 1),
            "choose and lower": round(lowered, 1),
            "simulate": round(simulated, 1),
        }


def _together(network: IntegerNetwork, front: Front, machine: Machine) -> NpuProgram:
    return compile_fronts(network, front, machine)


def _in_dram(network: IntegerNetwork, front: Front, machine: Machine) -> NpuProgram:
    taken, choice = best(network, front, machine, stay=False)
    return chained(network, taken, machine, axes=choice.axes, stay=())


def _apart(network: IntegerNetwork, front: Front, machine: Machine) -> NpuProgram:
    return layer_by_layer(network, front, machine)


WAYS: Mapping[str, Callable[[IntegerNetwork, Front, Machine], NpuProgram]] = {
    "apart": _apart,
    "in DRAM": _in_dram,
    "together": _together,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("networks", nargs="*", default=NETWORKS)
    options.add_argument("--machines", nargs="+", default=MACHINES)
    options.add_argument("--chosen", nargs="+", choices=tuple(WAYS), default=tuple(WAYS))
    given = options.parse_args()
    for name in given.networks:
        for spelled in given.machines:
            for row in measure(name, gl.parse_target(spelled).npu, given.chosen):  # type: ignore[attr-defined]
                print(row, flush=True)
                _keep({key: str(value) for key, value in row.items()})


def _keep(row: dict[str, str]) -> None:
    """Write a row; it replaces the row of the same way, or is appended."""
    path, key = RESULTS / "bench_npu.csv", ("network", "machine", "chosen")
    rows: list[dict[str, str]] = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = [*csv.DictReader(file)]
    place = next((n for n, own in enumerate(rows) if all(own[name] == row[name] for name in key)), len(rows))
    rows[place : place + 1] = [row]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
