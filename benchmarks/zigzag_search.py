"""Runs ZigZag's search in ZigZag's own environment and prints its estimate of each layer as JSON.

    python benchmarks/zigzag_search.py NETWORK.onnx ACCELERATOR.yaml MAPPING.yaml FOLDER LIMIT mixed|whole

LIMIT is the number of loops that ZigZag permutes.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from importlib.metadata import version

import onnx
from zigzag.api import get_hardware_performance_zigzag


def main() -> None:
    path, accelerator, mapping, folder, limit, unrolled = sys.argv[1:]
    logging.disable(logging.INFO)
    begin, used = time.perf_counter(), sum(os.times()[:4])
    _, cycles, per_layer = get_hardware_performance_zigzag(
        onnx.load(path),
        accelerator,
        mapping,
        opt="latency",
        dump_folder=folder,
        lpf_limit=int(limit),
        loma_show_progress_bar=False,
        enable_mix_spatial_mapping=unrolled == "mixed",
    )[:3]
    layers = [own for own, _ in per_layer[0][1]]
    said = {
        "version": version("zigzag-dse"),
        "cycles": cycles,
        "seconds": time.perf_counter() - begin,
        "processor": sum(os.times()[:4]) - used,
        "layers": [
            {
                "name": own.layer.name,
                "cycles": own.latency_total2,
                "drain": own.systolic_drain_cycle,
                "spatial": str(own.layer.spatial_mapping),
            }
            for own in layers
        ],
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
