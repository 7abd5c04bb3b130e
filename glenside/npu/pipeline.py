"""The passes that compile a network of integer layers to instructions, in order. Nothing else knows the order.

A pass is a function from a compilation to a compilation. Stages are the parts of passes whose seconds are measured:
the passes run some of them once for each candidate program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glenside.ir.stopwatch import stage
from glenside.npu.lowering.pipeline.alternatives import layer_by_layer
from glenside.npu.lowering.pipeline.compile_network import (
    Compilation,
    compare_neighbours,
    map_layers,
    plan,
    reuse_programs,
    try_smaller_machines,
)
from glenside.npu.lowering.tiling.mapped_layers import Front
from glenside.npu.machine.model import Machine
from glenside.npu.program.program import NpuProgram
from glenside.npu.program.results import with_host
from glenside.quantization.layers import IntegerNetwork

if TYPE_CHECKING:
    from glenside.report.result import Result


@dataclass(frozen=True)
class Stage:
    """A measured part of a pass: its inputs and outputs, and the invariant after it."""

    name: str
    purpose: str
    needs: str
    gives: str
    holds: str


@dataclass(frozen=True)
class Pass:
    """A pass: its function, and the stages in it.

    optional  True if a program is right without it
    """

    name: str
    run: Callable[[Compilation], Compilation]
    stages: tuple[Stage, ...]
    optional: bool = True


MAP = Stage(
    "map", "Takes each layer's candidates from the Pareto fronts of the search.", "search result", "candidates",
    "each layer has a candidate",
)  # fmt: skip
_PLAN = (
    Stage(
        "price", "Predicts cycles of each candidate and of each layout of its operands.", "candidates", "costs",
        "tiles fit memories",
    ),
    Stage(
        "select", "Chooses mappings, layouts and resident tensors as an integer program.", "costs", "choice",
        "one candidate a layer; resident tensors fit the scratchpad",
    ),
    Stage(
        "allocate", "Allocates scratchpad to resident tensors by live ranges.", "choice", "addresses",
        "no two live tensors share a byte",
    ),
    Stage(
        "emit", "Emits instructions and the DRAM image, layer by layer.", "addresses", "instruction list",
        "the list is right if executed in sequence",
    ),
    Stage(
        "infer synchronization", "Infers the waits of parallel units from effects.", "instruction list", "queues",
        "conflicting accesses and uses of ports are ordered",
    ),
    Stage(
        "predict", "Computes the exact cycles of all instructions.", "queues", "cycles", "the program ends",
    ),
    Stage("bound", "Computes lower bounds on the cycles of any choice.", "costs", "bounds", "no program takes fewer"),
)  # fmt: skip
_SMALLER = Stage(
    "smaller machines", "Compiles for machines with less of some resource.", "program", "program",
    "it takes no more cycles",
)  # fmt: skip
_COMPARE = Stage(
    "compare neighbours", "Compiles choices that differ in one mapping or placement.", "program", "program",
    "it takes no more cycles",
)  # fmt: skip
_REUSE = Stage(
    "reuse programs", "Takes a program of a smaller machine that was compiled before.", "program", "program",
    "it takes no more cycles",
)  # fmt: skip
PIPELINE: tuple[Pass, ...] = (
    Pass("plan", plan, _PLAN, optional=False),
    Pass("smaller machines", try_smaller_machines, (_SMALLER,)),
    Pass("compare neighbours", compare_neighbours, (_COMPARE,), optional=False),
    Pass("reuse programs", reuse_programs, (_REUSE,)),
)
AFTER = (
    Stage("write", "Writes the program file.", "program", "file", "the file is whole"),
    Stage(
        "verify", "Simulates: order, bounds and ports of accesses; results against the interpreter.", "file",
        "DRAM", "results and cycles are those predicted (--on simulator, --on rtl)",
    ),
)  # fmt: skip
STAGES: tuple[Stage, ...] = (MAP, *(each for own in PIPELINE for each in own.stages), *AFTER)


def compile_fronts(
    network: IntegerNetwork,
    fronts: Front,
    machine: Machine,
    seed: int = 0,
    show: Callable[[str, int, int], None] = lambda *_: None,
    keep: Callable[[NpuProgram], None] = lambda _: None,
) -> NpuProgram:
    """Compiles a network to the program with the fewest predicted cycles of the candidates that are compared.

    `seed` is of the inputs in DRAM. `keep` is called with the best program so far. Raises BadInput for a layer that the
    machine does not run.
    """
    if not network.layers:
        return with_host(NpuProgram(machine, {}, np.zeros(0, np.uint8), predicted=0), network)
    own = Compilation(network, fronts, machine, seed, show, keep)
    for each in PIPELINE:
        own = each.run(own) if len(each.stages) > 1 else _timed(each, own)
    assert own.program is not None, "the passes make one"
    return own.program


def _timed(own: Pass, given: Compilation) -> Compilation:
    with stage(own.name, alone=True):
        return own.run(given)


def compile_network(
    result: Result,
    network: IntegerNetwork,
    machine: Machine,
    seed: int = 0,
    show: Callable[[str, int, int], None] = lambda *_: None,
    keep: Callable[[NpuProgram], None] = lambda _: None,
    quick: bool = False,
) -> NpuProgram:
    """Compiles a network from the result of a search: see `compile_fronts`.

    With `quick`, each layer takes its quickest mapping and all tensors pass through DRAM: nothing is compared.
    """
    with stage(MAP.name):
        fronts = map_layers(result, network)
    if quick and network.layers:
        return layer_by_layer(network, fronts, machine, seed, show)
    return compile_fronts(network, fronts, machine, seed, show, keep)
