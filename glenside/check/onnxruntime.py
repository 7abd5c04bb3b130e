"""Whether onnxruntime computes the same with an original and with an optimized program, on random inputs.

The exact check compares two terms in our own arithmetic. This one compares two files as a user runs them: it looks at
the importer, the exporter and the optimization at once, but only within the rounding of floats.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from glenside.check.floating import relative_error
from glenside.check.stimuli import draw_reals, index_limits
from glenside.exporters.onnx import save_onnx
from glenside.ir.files import PathLike
from glenside.ir.names import shortened
from glenside.ir.operand import Array
from glenside.ir.operators.requirements import spelled
from glenside.ir.packages import import_onnx, import_onnxruntime
from glenside.ir.program import Program
from glenside.ir.types import FLOATS, Dims, Tensor

TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-4}
"""How far elements may be apart, relative to the largest magnitude of the original's output, by its dtype.

Runtimes have functions in float32 that are good to some 1e-7, and sums add up their errors; a float64 output may come
from those. Wrong mappings are wrong by about 1.
"""


@dataclass(frozen=True, slots=True)
class RuntimeReport:
    """The verdict: "" where the outputs agree, else a sentence that says what differs or why they were not compared.

    error    the largest difference of floats, relative to the largest magnitude of the original's output
    how      what computed, on which numbers
    seconds  of exporting and running both
    """

    verdict: str
    error: float
    how: str
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.verdict

    def __str__(self) -> str:
        if self.verdict:
            return f"Check in onnxruntime: {self.verdict} ({self.how})."
        how_far = f"the largest difference is {self.error:.2g} of the largest value" if self.error else "no difference"
        return f"Check in onnxruntime: equal, {how_far} ({self.how})."

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        error = self.error if np.isfinite(self.error) else None
        content = {"equal": self.ok, "verdict": self.verdict, "error": error, "how": self.how}
        return {**content, "seconds": round(self.seconds, 6)}


def check_onnxruntime(
    original: Program | PathLike, optimized: Program, *, seed: int = 0, exported: PathLike | None = None
) -> RuntimeReport:
    """Run the original, an ONNX file or a program, and the optimized program as ONNX, on the same random inputs.

    Floats are normal, whole numbers are valid indices where they serve as such, and else 0 or 1, as masks are, or any
    of their dtype when that has no more than 16 bits. Integers must be equal, floats as far as TOLERANCE says.
    `exported` is a file that holds the optimized program already; without one it is written to a temporary folder.
    Constants without a value are drawn by the seed. Raises BadInput: a missing package, or what ONNX cannot hold.
    """
    runtime = import_onnxruntime()
    import_onnx()
    started = time.perf_counter()
    how = f"onnxruntime {runtime.__version__}, random inputs of seed {seed}"

    def report(verdict: str, error: float = 0.0) -> RuntimeReport:
        return RuntimeReport(verdict, error, how, time.perf_counter() - started)

    with TemporaryDirectory() as folder:
        if isinstance(original, Program):
            original = _saved(original, Path(folder) / "original.onnx", seed)
        if exported is None:
            exported = _saved(optimized, Path(folder) / "optimized.onnx", seed)
        try:
            first = _Session(runtime, original, "the original")
            limits = index_limits(optimized.term)
            tensors = (*optimized.inputs.values(), *first.inputs(optimized.inputs))
            inputs = {tensor.name: _drawn(tensor, limits, seed) for tensor in tensors}
            expected = first.run(inputs)
            del first  # its weights may be large
            found = _Session(runtime, exported, "the exported program").run(inputs)
        except _CannotRun as error:
            return report(f"not compared, {error}")
    return report(*_compared(expected, found))


def _saved(program: Program, path: Path, seed: int) -> Path:
    save_onnx(program.seeded_constants(seed), path)
    return path


class _CannotRun(Exception):
    """What onnxruntime says when it does not take a model, or not these inputs."""


class _Session:
    """A model, run as it stands: onnxruntime's own optimizations may change how a quantized model rounds."""

    def __init__(self, runtime: Any, path: PathLike, what: str) -> None:
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        self.what = what
        try:
            self.session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the package has a class for each of its reasons
            raise _CannotRun(f"onnxruntime does not load {what}: {_reason(error)}") from None

    def inputs(self, known: Mapping[str, Tensor]) -> list[Tensor]:
        """What the model takes: tensors of the program, and others that nothing depends on."""
        return [known.get(entry.name) or self._unused(entry) for entry in self.session.get_inputs()]

    def _unused(self, entry: Any) -> Tensor:
        """An input that no output needs may have any size where the file leaves it open."""
        dtype = _DTYPES.get(entry.type)
        if dtype is None:
            raise _CannotRun(f"the input {shortened(entry.name)} of {self.what} is a {entry.type}")
        return Tensor(entry.name, Dims(size if isinstance(size, int) else 1 for size in entry.shape), dtype)

    def run(self, inputs: Mapping[str, Array]) -> list[Any]:
        """The outputs in order."""
        taken = {entry.name: inputs[entry.name] for entry in self.session.get_inputs()}
        try:
            return list(self.session.run(None, taken))
        except Exception as error:
            raise _CannotRun(f"onnxruntime cannot run {self.what}: {_reason(error)}") from None


_DTYPES = {
    **{f"tensor({name})": name for name in ("bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)))},
    **{"tensor(float16)": "float16", "tensor(float)": "float32", "tensor(double)": "float64"},
}


def _reason(error: Exception) -> str:
    words = " ".join(str(error).split())
    return words if len(words) <= 200 else f"{words[:200]}..."


def _drawn(tensor: Tensor, limits: Mapping[str, int], seed: int) -> Array:
    wide = tensor.dtype not in FLOATS and np.dtype(tensor.dtype).itemsize > 2
    return draw_reals(tensor, seed, limits.get(tensor.name, 2 if wide else None))


def _compared(expected: Sequence[Any], found: Sequence[Any]) -> tuple[str, float]:
    """The verdict and the largest error of floats."""
    if len(expected) != len(found):
        return f"the number of outputs is {len(found)}, and in the original {len(expected)}", 0.0
    wrong, largest = "", 0.0
    for position, (a, b) in enumerate(zip(expected, found, strict=True)):
        words, error = _compared_output(np.asarray(a), np.asarray(b))
        largest = max(largest, error)
        if words and not wrong:
            wrong = f"output {position} {words}" if len(expected) > 1 else f"the output {words}"
    return wrong, largest


def _compared_output(a: Array, b: Array) -> tuple[str, float]:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"is {spelled(b.shape)} {b.dtype}, and in the original {spelled(a.shape)} {a.dtype}", 0.0
    if a.dtype.kind != "f":
        count = int(np.count_nonzero(a != b))
        return f"differs in {count:,} of {a.size:,} elements" if count else "", 0.0
    error, allowed = relative_error(a, b), TOLERANCE[a.dtype.name]
    return f"differs by {error:.2g} of the largest value, allowed is {allowed:g}" if error > allowed else "", error
