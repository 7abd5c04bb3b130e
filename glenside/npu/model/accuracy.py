"""Measures the accuracy of a quantized network against the float network that it was made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import log10

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.npu.program.affine_quantization import StandsFor
from glenside.npu.program.results import computed
from glenside.quantization.layers import IntegerNetwork
from glenside.semantics.interpreter import evaluate

MOST_BATCHES = 16
"""Maximum number of compared batches."""


@dataclass(frozen=True)
class Accuracy:
    """The accuracy of a result.

    decibels  signal-to-noise ratio; the signal is the float result. None if signal or noise is 0, if one is not finite,
              or if the result is not of floats
    equal     fraction of equal elements
    """

    decibels: float | None
    equal: float

    def __str__(self) -> str:
        if self.equal == 1:
            return "exact"
        return f"{100 * self.equal:.2f} % equal" if self.decibels is None else f"{self.decibels:.1f} dB"


def accuracy(
    program: Program,
    network: IntegerNetwork,
    batches: Iterable[Mapping[str, Array]],
    look: Callable[[], None] = lambda: None,
) -> dict[str, Accuracy]:
    """Returns the accuracy of each result by name, over the first `MOST_BATCHES` batches of inputs.

    Calls `look` after each evaluation.
    """
    powers: dict[str, list[float]] = {name: [0.0, 0.0, 0.0, 0.0] for name in program.result_names()}
    for batch in islice(batches, MOST_BATCHES):
        wanted = evaluate([program.term], {**program.constants, **batch})[0]
        look()
        found = _quantized(network, batch)
        look()
        for name, floats in zip(powers, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            signal, own = np.asarray(floats, np.float64), np.asarray(found[name], np.float64)
            same = (signal == own) | (np.isnan(signal) & np.isnan(own))
            noise = np.where(same, 0, own - np.where(same, own, signal))
            for place, value in enumerate((np.square(signal).sum(), np.square(noise).sum(), same.sum(), same.size)):
                powers[name][place] += float(value)
    kinds = _float_results(program)
    return {name: _accuracy_of(own, kinds[name]) for name, own in powers.items()}


def _quantized(network: IntegerNetwork, batch: Mapping[str, Array]) -> dict[str, Array]:
    given = {}
    for name in network.program.inputs:
        scale, zero = network.inputs.get(name, (1.0, 0))
        given[name] = StandsFor.of(scale, zero).integers(np.asarray(batch[name]), "int8")
    left = evaluate([network.program.term], {**network.constants, **given})[0]
    every = left if isinstance(left, tuple) else (left,)
    names = network.program.result_names() if network.outputs else []
    return computed(network, dict(zip(names, every, strict=False)))


def _float_results(program: Program) -> dict[str, bool]:
    """Returns flags by result name, True for results of floats."""
    whole = program.term
    roots = whole.children if whole.operator.name == "construct-tuple" else (whole,)
    return {n: "float" in root.access.dtype for n, root in zip(program.result_names(), roots, strict=True)}


def _accuracy_of(powers: Sequence[float], is_float: bool) -> Accuracy:
    signal, noise, same, size = powers
    share = same / size if size else 1.0
    if not is_float or not np.isfinite([signal, noise]).all() or not signal:
        return Accuracy(None, share)
    return Accuracy(10 * log10(signal / noise) if noise else None, share)
