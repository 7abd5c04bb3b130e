"""Compares a program in SPU with its prediction: bytes, messages and seconds, by layer and as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from glenside.execution.spu.layers import own_layers
from glenside.execution.spu.session import Job, Measured, measure
from glenside.ir.operand import Array, arrays
from glenside.ir.program import Program, seeded
from glenside.semantics.interpreter import evaluate
from glenside.targets.mpc.target import MPC
from glenside.targets.mpc.traffic import counted, program_traffic
from glenside.targets.mpc.work import program_work

LINK = "link"
RUNS = 3
"""Number of timed runs of a program; their median is reported."""
ALLOWED = {32: 0.5, 64: 0.05, 128: 0.05}
"""The allowed error of a result, relative to its largest number, since fixed point rounds."""
_UNITS = 8  # units in the last place, in addition


@dataclass(frozen=True)
class Measures:
    """Bytes and messages of one party, and seconds."""

    bytes: int
    messages: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """The prediction and the measurement of a part of a program, for each of the layers of these names."""

    names: Sequence[str]
    predicted: Measures
    measured: Measures


@dataclass(frozen=True)
class Comparison:
    """Rows of layers, each run alone, and the whole program, run at once.

    values   the results of SPU
    error    the largest distance from the interpreter's results, of numbers up to `largest`
    drawn    the names of inputs that were not given, which are random
    remarks  about the predictions
    """

    layers: Sequence[Row]
    whole: Row
    values: Sequence[Array]
    error: float
    largest: float
    allowed: float
    drawn: Sequence[str]
    remarks: Sequence[str]

    @property
    def agrees(self) -> bool:
        """True if the results equal the interpreter's within fixed-point errors."""
        return self.error <= self.allowed

    def as_dict(self) -> dict[str, Any]:
        """Returns all but the values, for JSON."""
        rows = {"layers": [asdict(row) for row in self.layers], "between": asdict(self.between())}
        rest = {name: getattr(self, name) for name in ("error", "largest", "allowed", "agrees", "drawn", "remarks")}
        return {**rows, "whole": asdict(self.whole), **rest}

    def between(self) -> Row:
        """Returns the remainder of the whole without its layers."""
        predicted, measured = (
            Measures(
                whole.bytes - sum(len(row.names) * part(row).bytes for row in self.layers),
                whole.messages - sum(len(row.names) * part(row).messages for row in self.layers),
                whole.seconds - sum(len(row.names) * part(row).seconds for row in self.layers),
            )
            for whole, part in (
                (self.whole.predicted, attrgetter("predicted")),
                (self.whole.measured, attrgetter("measured")),
            )
        )
        return Row(("between layers",), predicted, measured)


def compare(
    program: Program,
    target: MPC,
    seed: int = 0,
    runs: int = RUNS,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Comparison:
    """Runs a program in SPU over the target's link, whole and each layer alone. Raises BadInput.

    Inputs that have values stay inputs. Constants and other inputs are drawn by the seed.
    """
    program, given = program.with_inputs_open()
    ready = target.ready(program.seeded_constants(seed), seed)
    drawn = {name: seeded(tensor, seed) for name, tensor in ready.inputs.items() if name not in given}
    values = {name: given[name] if name in given else drawn[name] for name in ready.inputs}
    layers = own_layers(ready, target.public)
    jobs = [Job(ready, values, target.public, (LINK,), runs)]
    for layer in layers:
        of_layer = {name: seeded(tensor, seed) for name, tensor in layer.program.tensors.items()}
        jobs.append(Job(layer.program, of_layer, layer.public, (LINK,), runs))
    found = measure(jobs, {LINK: target.link}, target.protocol.field, progress=progress)
    names = [(program.name,), *(layer.names for layer in layers)]
    whole, *rows = (_row(n, j, m, target) for n, j, m in zip(names, jobs, found, strict=True))
    wanted = arrays(evaluate([ready.term], {**ready.constants, **values})[0])
    error, largest = _distance(wanted, found[0].values)
    allowed = ALLOWED[target.protocol.field] * largest + _UNITS * 2.0**-target.bits
    return Comparison(rows, whole, found[0].values, error, largest, allowed, [*drawn], target.remarks(ready))


def predicted(program: Program, target: MPC, public: frozenset[str]) -> Measures:
    """Returns the prediction for an unchanged program."""
    sent = counted(program_traffic(program, public, protocol=target.protocol))
    seconds = target.seconds(sent, program_work(program, public)) + target.costs.start
    return Measures(sent.bytes, sent.messages, seconds)


def _row(names: Sequence[str], job: Job, found: Measured, target: MPC) -> Row:
    return Row(
        names, predicted(job.program, target, job.public), Measures(found.bytes, found.messages, found.median(LINK))
    )


def _distance(wanted: Sequence[Array], got: Sequence[Array]) -> tuple[float, float]:
    """Returns the largest difference, and the largest number; NaN counts as an infinite difference."""
    error = largest = 0.0
    for want, have in zip(wanted, got, strict=True):
        apart = np.abs(want.astype(float) - have.astype(float))
        error = max(error, float(np.max(np.where(np.isnan(apart), np.inf, apart), initial=0)))
        largest = max(largest, float(np.max(np.abs(want.astype(float)), initial=0)))
    return error, largest
