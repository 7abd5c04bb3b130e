"""Compares an original and an optimized program in onnxruntime, on random inputs.

The exact check compares two terms in Glenside's own arithmetic. This check compares two files as a user runs them: it
covers the importer, the exporter and the optimization at once, but only within the rounding of floats.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from glenside.check.confined import Confined
from glenside.check.floating import relative_error
from glenside.check.indices import index_limits, picks
from glenside.check.input_generators import draw_reals, drawn_within
from glenside.check.noise import content_of, read_original, variants
from glenside.exporters.onnx import save_onnx
from glenside.importers.onnx.sessions import CannotRun, Ended, Session
from glenside.ir.dtypes import REALS, RECORDS, STORED, fraction_bits, is_float
from glenside.ir.operand import Array
from glenside.ir.operators.requirements import spelled
from glenside.ir.packages import import_onnx, require_onnxruntime
from glenside.ir.program import Program, as_program
from glenside.ir.replacing import PathLike
from glenside.ir.term import postorder
from glenside.ir.types import Tensor
from glenside.semantics import Native

TOLERANCE = {
    **{"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "float64": 1e-4},
    **{dtype: 2.0 ** -fraction_bits(dtype) for dtype in REALS if dtype in STORED},  # the next one
}
"""dtype -> the allowed error, relative to the largest magnitude of the original's output.

Functions of runtimes in float32 are accurate to about 1e-7, and sums accumulate their errors; a float64 output may be
computed from these. A wrong mapping is wrong by about 1. Where the tolerance is too small, the original's own noise
decides.
"""
NOISE = 2
"""The allowed error as a multiple of the largest difference between results of the original."""
_TOO_MUCH = 0.5  # of the largest value, or of all elements: noise at which right and wrong cannot be distinguished


@dataclass(frozen=True, slots=True)
class RuntimeReport:
    """The result of a check in onnxruntime.

    verdict  "" if the outputs agree, else a sentence with the difference or the reason why they were not compared
    error    the largest difference of floats, relative to the largest magnitude of the original's output
    how      the runtime, its version and the inputs
    seconds  of exporting and running both
    ran      whether onnxruntime ran both
    """

    verdict: str
    error: float
    how: str
    seconds: float
    ran: bool = True

    @property
    def ok(self) -> bool:
        return not self.verdict

    def __str__(self) -> str:
        if self.verdict:
            return f"Check in onnxruntime: {self.verdict} ({self.how})."
        how_far = f"the largest difference is {self.error:.2g} of the largest value" if self.error else "no difference"
        return f"Check in onnxruntime: equal, {how_far} ({self.how})."

    def as_dict(self) -> dict[str, Any]:
        """Returns the report for JSON."""
        error = self.error if np.isfinite(self.error) else None
        content = {"equal": self.ok, "verdict": self.verdict, "error": error, "how": self.how}
        return {**content, "seconds": round(self.seconds, 6)}


def check_onnxruntime(
    original: Program | PathLike, optimized: Program, *, seed: int = 0, exported: PathLike | None = None
) -> RuntimeReport:
    """Runs the original, an ONNX file or a program, and the optimized program as ONNX, on the same random inputs.

    exported  a file of the optimized program; without it, the program is written to a temporary folder

    Float inputs are normal. Integer inputs are valid indices where they select elements; others are 0 or 1, as masks
    are, or any number if the dtype has at most 16 bits. Inputs that are constants of the optimized program have their
    values; constants without a value are drawn by the seed. The original's outputs are the tensors that the program's
    signature names.

    Integers must be equal, and floats within TOLERANCE. Where they are not, NOISE times the noise of the original is
    allowed. Raises BadInput: a package is missing, or ONNX cannot represent the program.
    """
    as_program(optimized, "checked")
    version = require_onnxruntime()
    import_onnx()
    started = time.perf_counter()
    how = f"onnxruntime {version}, random inputs of seed {seed}"

    def report(verdict: str, error: float = 0.0, more: str = "") -> RuntimeReport:
        return RuntimeReport(verdict, error, how + more, time.perf_counter() - started)

    first_name, second_name = _named("the original", original), _named("the optimized program", exported)
    with TemporaryDirectory() as folder:
        if isinstance(original, Program):
            original = _saved(original, Path(folder) / "original.onnx", seed)
        if exported is None:
            exported = _saved(optimized, Path(folder) / "optimized.onnx", seed)
        try:
            model = _cut(original, optimized.signature.outputs)
            first = Session(original if model is None else content_of(model), first_name)
            inputs = _inputs(first, optimized, seed)
            try:
                expected = first.run(inputs)
            except Ended:
                raise
            except CannotRun:  # such as an index outside its axis
                inputs = _within(inputs, optimized, seed)
                expected = first.run(inputs)
            del first  # its weights may be large
            found = Session(exported, second_name).run(inputs)
            verdict, error = _compared(expected, found)
            if not verdict or not _comparable(expected, found):
                return report(verdict, error)
            noise = [0.0] * len(expected)
            for other in variants(model or read_original(original), inputs, seed):
                if _comparable(expected, other):
                    noise = [max(n, _error(a, b)) for n, a, b in zip(noise, expected, other, strict=True)]
        except CannotRun as error:
            return RuntimeReport(f"not compared, {error}", 0.0, how, time.perf_counter() - started, ran=False)
    largest = max(noise)
    more = f"; the original's own results are up to {largest:.2g} apart when it is computed otherwise"
    return report(*_compared(expected, found, noise), more if largest else "")


def _named(what: str, of: Program | PathLike | None) -> str:
    """Returns the name of a model for a sentence, with that of its file if the user has one."""
    return what if of is None or isinstance(of, Program) else f"{what} ({Path(of).name})"


def _saved(program: Program, path: Path, seed: int) -> Path:
    save_onnx(program.seeded_constants(seed), path, verify=False)
    return path


def _cut(path: PathLike, outputs: Sequence[str]) -> Any:
    """Returns the model of a file with these tensors as outputs; None if they are its outputs already, or not in it."""
    model = read_original(path, weights=False)
    made = {name for node in model.graph.node for name in node.output}.union(value.name for value in model.graph.input)
    if not outputs or [value.name for value in model.graph.output] == [*outputs] or not made.issuperset(outputs):
        return None
    model = read_original(path)
    declared = {value.name: value for value in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    kept = [declared.get(name) for name in outputs]
    del model.graph.output[:]
    for name, value in zip(outputs, kept, strict=True):
        model.graph.output.add(name=name) if value is None else model.graph.output.append(value)
    return model


def _inputs(session: Session, optimized: Program, seed: int) -> dict[str, Array]:
    """Draws the values of the inputs of both models."""
    limits = index_limits(optimized.term)
    signature = optimized.signature
    known = optimized.inputs
    tensors = {tensor.name: tensor for tensor in (*known.values(), *session.inputs(known))}
    drawn = {n: _drawn(tensor, limits, seed) for n, tensor in tensors.items() if n not in signature.values}
    return {**drawn, **signature.values}


def _drawn(tensor: Tensor, limits: Mapping[str, int | Array], seed: int) -> Array:
    wide = tensor.dtype not in REALS and RECORDS[tensor.dtype].bits > 16

    def draw(tensor: Tensor, limit: int | Array | None = None) -> Array:
        return draw_reals(tensor, 2 if wide and limit is None else limit, seed=seed)

    return drawn_within(draw, tensor, limits.get(tensor.name))


def _within(inputs: dict[str, Array], optimized: Program, seed: int) -> dict[str, Array]:
    """Returns the inputs, moved if possible so that indices computed from them are within their axes."""
    found = picks(optimized.term)
    if any(term.operator.opaque for pick in found for term in postorder(pick.indices)):
        return inputs
    constants = optimized.seeded_constants(seed).constants
    values = {**constants, **{name: array for name, array in inputs.items() if name in optimized.tensors}}
    moved = Confined(found).settle(values, Native(), {*constants, *optimized.signature.values}) or values
    return {name: moved.get(name, array) for name, array in inputs.items()}


def _comparable(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(expected, found, strict=False)]
    return len(expected) == len(found) and all((a.dtype, a.shape) == (b.dtype, b.shape) for a, b in pairs)


def _error(a: Any, b: Any) -> float:
    """Returns the error between arrays: for floats relative to the largest magnitude, else the share that differs."""
    if is_float(np.asarray(a).dtype):
        return relative_error(a, b)
    return float(np.mean(np.asarray(a) != np.asarray(b))) if np.size(a) else 0.0


def _compared(expected: Sequence[Any], found: Sequence[Any], noise: Sequence[float] = ()) -> tuple[str, float]:
    """Returns the verdict and the largest error; `noise` is the noise of each output of the original."""
    if len(expected) != len(found):
        return f"the number of outputs is {len(found)}, and in the original {len(expected)}", 0.0
    wrong, largest = "", 0.0
    for position, (a, b) in enumerate(zip(expected, found, strict=True)):
        words, error = _compared_output(np.asarray(a), np.asarray(b), noise[position] if noise else 0.0)
        largest = max(largest, error)
        if words and not wrong:
            wrong = f"output {position} {words}" if len(expected) > 1 else f"the output {words}"
    return wrong, largest


def _compared_output(a: Array, b: Array, noise: float) -> tuple[str, float]:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"is {spelled(b.shape)} {b.dtype}, and in the original {spelled(a.shape)} {a.dtype}", 0.0
    error, own = _error(a, b), TOLERANCE[a.dtype.name] if is_float(a.dtype) else 0.0
    allowed = max(own, NOISE * noise)
    if error and error > own and allowed >= _TOO_MUCH:
        return f"is not compared: that of the original is itself up to {noise:.2g} apart", error
    if is_float(a.dtype):
        words = f"differs by {error:.2g} of the largest value, allowed is {allowed:.2g}"
        return words if error > allowed else "", error
    count = int(np.count_nonzero(a != b))
    return f"differs in {count:,} of {a.size:,} elements" if error > allowed else "", 0.0
