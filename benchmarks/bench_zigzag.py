"""Compares cycles of our npu programs with ZigZag's estimates for the same network, memories and bandwidth.

    python -m benchmarks.bench_zigzag [--machine npu:..] [--only ours|zigzag] [NETWORK ..]

GLENSIDE_ZIGZAG_PYTHON names the python of an environment with `pip install zigzag-dse==3.9.1 six`. Rows of the other
ways are kept. Our cycles are those of whole programs, which the simulator runs bit by bit: with fill, drain,
requantization, DRAM latency, pools and additions. ZigZag estimates convolutions and the classifier, layer by layer,
with one drain for each layer, without latency, and with bytes for sums on their way out. Columns:

- `way`: of ours, the machine as it is or with latency 0. Of ZigZag, what it may unroll: `stationary`: output channels
  along columns, and the reduction along rows, as an array with stationary weights does without other layouts. `groups`:
  also groups along columns, each with its own inputs. `mixed`: also rows and columns of the image.
- `products`: cycles of the layers that both have. `drain`: ZigZag's cycles for drains.
- `processor`: processor seconds of the search; of ours, including selection and emission. `seconds`: by the clock.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import glenside as gl
from glenside import models
from glenside.npu.analysis.critical_path import accounts
from glenside.npu.machine.model import Machine
from glenside.npu.model.execute import run
from glenside.npu.model.reference_results import wrong

RESULTS = Path(__file__).parent / "results" / "bench_zigzag.csv"
PYTHON = "GLENSIDE_ZIGZAG_PYTHON"
NETWORKS = ("mobilenet-v1", "resnet-18")
COLUMNS = (
    *("network", "machine", "who", "way", "version", "layers", "cycles", "products", "drain", "processor", "seconds"),
)
LIMIT = 6
"""Maximum number of loops that ZigZag permutes, its own default."""
WAYS = {
    "stationary": (("K",), ("C", "FX", "FY")),
    "groups": (("K", "G"), ("C", "FX", "FY")),
    "mixed": (("K", "G", "OX", "OY"), ("C", "FX", "FY", "G", "OX", "OY")),
}
"""Dimensions that may be unrolled along columns and along lanes."""


def ours(name: str, machine: Machine) -> Iterator[dict[str, Any]]:
    """Compiles programs of the machine, and of the machine without DRAM latency."""
    program = models.load(name).seeded_constants(0)
    for way, own in (("whole program", machine), ("whole program, latency 0", replace(machine, latency=0))):
        begin, used = time.perf_counter(), sum(os.times()[:4])
        made = gl.npu_program(program, gl.NPU(own), quantize="random")
        taken = {"processor": sum(os.times()[:4]) - used, "seconds": time.perf_counter() - begin}
        done = run(made)
        bad = wrong(made, done.dram)
        if bad or done.cycles != made.predicted:
            raise SystemExit(f"{name} on {own}: {', '.join(bad) or 'cycles'} wrong")
        products = sum(layer.cycles for layer in accounts(made, done.times).layers if layer.name in program.layers)
        found = {"layers": len(made.stretches), "cycles": done.cycles, "products": products, **taken}
        yield {"who": "glenside", "way": way, "version": gl.__version__, **found}


def theirs(name: str, machine: Machine, python: str, ways: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Returns ZigZag's estimate for each way to unroll."""
    import onnx

    script = Path(__file__).with_name("zigzag_search.py")
    for way in ways:
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder)
            gl.save(models.load(name).seeded_constants(0), base / "network.onnx")
            model = onnx.shape_inference.infer_shapes(onnx.load(base / "network.onnx"))
            for node in model.graph.node:
                if node.op_type in ("Conv", "Gemm", "MatMul"):
                    node.attribute.append(onnx.helper.make_attribute("output_size", 32))
            onnx.save(model, base / "network.onnx")
            (base / "machine.yaml").write_text(accelerator(machine), encoding="utf-8")
            (base / "mapping.yaml").write_text(mapping(machine, way), encoding="utf-8")
            words = ("network.onnx", "machine.yaml", "mapping.yaml", "out", str(LIMIT), "mixed")
            done = subprocess.run([python, script, *words], cwd=base, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"ZigZag does not take {name} {way}: {(done.stderr + done.stdout)[-2000:]}")
            said = json.loads(done.stdout.splitlines()[-1])
        drain = sum(layer["drain"] for layer in said["layers"])
        print(*(f"  {own['name']}: {own['cycles']:,.0f} {own['spatial']}" for own in said["layers"]), sep="\n")
        yield {
            "who": "zigzag",
            "way": way,
            "version": said["version"],
            "layers": len(said["layers"]),
            "cycles": round(said["cycles"]),
            "products": round(said["cycles"]),
            "drain": round(drain),
            "processor": said["processor"],
            "seconds": said["seconds"],
        }


def accelerator(machine: Machine) -> str:
    """Describes the machine in ZigZag's format: lanes, weight memory, a bank of sums for each column, and DRAM on one
    port. Energies are not compared; they are arbitrary, but ZigZag requires them.

    Energies are not compared; they are of no meaning here, but none may be missing.
    """
    rows, columns = machine.rows, machine.columns
    lanes = machine.rows * machine.depth
    port = 8 * machine.bandwidth
    memories = {
        "weight_registers": _memory(16, ["I2"], [], {"r": ("read", 8, ["I2, tl"]), "w": ("write", 8, ["I2, fh"])}),
        "sums": _memory(
            32 * machine.accumulators,
            ["O"],
            ["D2"],
            {"r": ("read", 32, ["O, tl", "O, th"]), "w": ("write", 32, ["O, fh", "O, fl"])},
        ),
        "weights": _memory(
            8 * machine.weight_bytes,
            ["I2"],
            ["D1", "D2"],
            {"r": ("read", 8 * columns, ["I2, tl"]), "w": ("write", port, ["I2, fh"])},
        ),
        "lanes": _memory(
            8 * lanes,
            ["I1", "O"],
            ["D1", "D2"],
            {
                "r": ("read", 8 * rows, ["I1, tl", "O, tl", "O, th"]),
                "w": ("write", 8 * rows, ["I1, fh", "O, fh", "O, fl"]),
            },
        ),
        "dram": _memory(
            10**10,
            ["I1", "I2", "O"],
            ["D1", "D2"],
            {"rw": ("read_write", port, [f"{o}, {w}" for o in ("I1", "I2", "O") for w in ("fh", "tl")]
                    + ["O, fl", "O, th"])},
        ),
    }  # fmt: skip
    array = {
        "unit_energy": 0.04,
        "unit_area": 1,
        "dimensions": ["D1", "D2"],
        "sizes": [columns, rows],
        "systolic_dimensions": ["D1", "D2"],
    }
    return json.dumps({"name": "npu", "memories": memories, "operational_array": array}, indent=1)


def _memory(bits: int, operands: list[str], served: list[str], ports: dict[str, tuple[str, int, list[str]]]) -> Any:
    every = [
        {"name": f"{name}_port_1", "type": kind, "bandwidth_min": 8, "bandwidth_max": width, "allocation": allocation}
        for name, (kind, width, allocation) in ports.items()
    ]
    size = {"size": bits, "r_cost": 1, "w_cost": 1, "area": 0, "latency": 1}
    return {**size, "operands": operands, "ports": every, "served_dimensions": served}


def mapping(machine: Machine, way: str) -> str:
    """Lists the loops that ZigZag may unroll, for every layer."""
    columns, lanes = WAYS[way]
    links = {"O": "O", "W": "I2", "I": "I1"}
    own = {
        "name": "default",
        "spatial_mapping": {"D1": [f"K, {machine.columns}"], "D2": [f"C, {machine.rows}"]},
        "spatial_mapping_hint": {"D1": list(columns), "D2": list(lanes)},
        "memory_operand_links": links,
    }
    del own["spatial_mapping"]
    return json.dumps([own], indent=1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("networks", nargs="*", default=NETWORKS)
    options.add_argument("--machine", default="npu:64x64")
    options.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=tuple(WAYS))
    options.add_argument("--only", choices=("ours", "zigzag"))
    given = options.parse_args()
    machine: Machine = gl.parse_target(given.machine).npu  # type: ignore[attr-defined]
    python = os.environ.get(PYTHON)
    if python is None and given.only != "ours":
        raise SystemExit(f"{PYTHON} is the python of an environment with: pip install zigzag-dse==3.9.1 six")
    for name in given.networks:
        ways = [] if given.only == "zigzag" else [ours(name, machine)]
        ways += [theirs(name, machine, python, given.ways)] if python is not None and given.only != "ours" else []
        for found in ways:
            for row in found:
                _keep({"network": name, "machine": str(machine), **row})


def _keep(row: dict[str, Any]) -> None:
    """Write a row; it replaces the row of the same way."""
    row = {**row, "processor": f"{row['processor']:.1f}", "seconds": f"{row['seconds']:.1f}"}
    print(row, flush=True)
    rows: list[dict[str, Any]] = []
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    key = ("network", "machine", "who", "way")
    rows = [*(own for own in rows if any(own[name] != row[name] for name in key)), row]
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda own: tuple(str(own[name]) for name in key)))


if __name__ == "__main__":
    main()
