"""Feeds broken models to the ONNX importer: the slow test of `tests/importers/test_onnx_bad_input.py` runs them.

Models that cover the operators are changed, in their protobuf fields or in their bytes, and imported by processes of
their own. A finding is anything but a program or a GlensideError, ten seconds without an answer, or a gigabyte; so is
an error of numpy or Python that became a BadInput only in the walk over the nodes. Case n of a seed is always the
same: `python tests/oracles/fuzz_onnx.py --seed 0 --case n` runs it alone and shows the model.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import signal
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx_mutations import changed
from onnx_networks import NETWORKS, small

from glenside.importers.onnx import program_of_model
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.program import Program
from glenside.ir.term import postorder
from glenside.ir.types import AccessType
from glenside.semantics.interpreter import evaluate

SECONDS, MEMORY = 10, 1 << 30
DIMS = {name: 2 for name in ("batch", "sequence", "length", "N")}


def seeds() -> list[onnx.ModelProto]:
    """Returns the models to change: small networks, and the node tests of onnx with their inputs as initializers."""
    models = [small(name) for name in NETWORKS]
    for test in load_model_tests(kind="node"):
        if test.model is None or test.model.ByteSize() > 20_000:
            continue
        models.append(test.model)
        arrays = test.data_sets[0][0] if test.data_sets else []
        if all(isinstance(value, np.ndarray) and value.nbytes < 10_000 for value in arrays):
            fixed = onnx.ModelProto()
            fixed.CopyFrom(test.model)
            for formal, value in list(zip(fixed.graph.input, arrays, strict=False))[1:] or ():
                fixed.graph.initializer.append(numpy_helper.from_array(value, formal.name))
            models.append(fixed)
    return models


def case(models: Sequence[onnx.ModelProto], seed: int, number: int) -> bytes:
    """Returns the bytes of one case."""
    pick = random.Random(f"{seed}/{number}")
    return changed(pick.choice(models), pick)


def tried(data: bytes) -> str | None:
    """Imports a model from bytes, and runs it; returns the fault, or None."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        model = onnx.ModelProto()
        try:
            model.ParseFromString(data)
        except Exception:
            return None
        _import_and_run(model)
        return None
    except BadInput as error:
        return f"caught late: {_where(cause)}" if (cause := _fault(error)) else _odd(str(error))
    except GlensideError as error:
        return f"not a BadInput: {_where(error)}"
    except BaseException as error:
        return _where(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _import_and_run(model: onnx.ModelProto) -> None:
    program = program_of_model(model, dims=_named_dims(model), allow_opaque=len(model.graph.node) % 2 == 0)
    types = [term.type for term in postorder(program.term)]
    sizes = [t.size for t in types if isinstance(t, AccessType)]
    sizes += [t.dims.product() for t in program.inputs.values()]  # also those that nothing reads
    if len(types) < 2000 and all(size < 20_000 for size in sizes):
        try:
            evaluate([program.term], {**program.constants, **program_inputs(program)})
        except GlensideError:
            return


def program_inputs(program: Program) -> dict[str, Any]:
    """Draws small numbers for every input."""
    drawn = np.random.default_rng(0)
    return {n: drawn.integers(0, 2, t.dims).astype(t.dtype) for n, t in program.inputs.items()}


def _named_dims(model: onnx.ModelProto) -> dict[str, int]:
    used = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim}
    return {name: size for name, size in DIMS.items() if name in used}


def _fault(error: BaseException) -> BaseException | None:
    """Returns the error of Python or numpy that caused a BadInput."""
    if "cannot be read: " not in str(error):
        return None
    inner: BaseException | None = error
    while isinstance(inner, GlensideError):
        inner = inner.__cause__ or inner.__context__
    return inner


def _odd(message: str) -> str | None:
    return None if message.isprintable() and len(message) < 1000 else f"a message that is no line: {message[:60]!r}"


def _where(error: BaseException | None) -> str:
    if error is None:
        return "an error that cannot be traced"
    frames = traceback.extract_tb(error.__traceback__)
    own = next((f for f in reversed(frames) if "/glenside/" in f.filename), frames[-1])
    place = f"{Path(own.filename).parent.name}/{Path(own.filename).name}:{own.lineno} in {own.name}"
    return f"{type(error).__name__} at {place}: {' '.join(str(error).split())[:120]}"


class Hang(BaseException):
    """A case took ten seconds."""


def _hang(*_: Any) -> None:
    raise Hang("no answer in time")


def _work(pipe: Connection, models: Sequence[onnx.ModelProto], seed: int, numbers: range) -> None:
    import networkx  # noqa: F401 (the importer loads it when a graph is not sorted)

    for model in models[:20]:  # what is loaded once, before memory is counted; an alarm would leave half of it
        with suppress(GlensideError):
            _import_and_run(model)
    signal.signal(signal.SIGALRM, _hang)
    with open("/proc/self/statm") as sizes:
        used = int(sizes.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for number in numbers:
        pipe.send((number, None))
        data = case(models, seed, number)
        start = time.perf_counter()
        finding = tried(data)
        if finding is None and time.perf_counter() - start > SECONDS:
            finding = "took too long"
        pipe.send((number, finding or ""))


class Worker:
    """A process that runs cases; it is started again after the case on which it died. `findings`:
    description -> cases.
    """

    def __init__(self, models: Sequence[onnx.ModelProto], seed: int, first: int, step: int) -> None:
        self.models, self.seed, self.step = models, seed, step
        self.findings: dict[str, list[int]] = {}
        self.done = 0
        self.start(first)

    def start(self, first: int) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe(duplex=False)
        numbers = range(first, 1 << 40, self.step)
        self.process = context.Process(target=_work, args=(theirs, self.models, self.seed, numbers), daemon=True)
        self.process.start()
        theirs.close()
        self.current, self.began = first, time.monotonic() + 60  # it first loads what it needs

    def listen(self) -> None:
        """Reads the results of a worker; replaces the worker if it has died or does not answer."""
        try:
            while self.pipe.poll():
                self._hear(*self.pipe.recv())
            words = "no answer, and none to its alarm" if time.monotonic() - self.began > 2 * SECONDS else ""
        except EOFError:
            self.process.join()
            words = f"the process ended with {self.process.exitcode}"
        if words:
            self.process.kill()
            self.findings.setdefault(words, []).append(self.current)
            self.start(self.current + self.step)

    def _hear(self, number: int, finding: str | None) -> None:
        self.current, self.began = number, time.monotonic()
        self.done += finding is not None
        if finding:
            self.findings.setdefault(finding, []).append(number)


def fuzz(seconds: float, seed: int, workers: int = 1) -> tuple[int, dict[str, list[int]]]:
    """Returns the number of cases, and the findings: the description of each with the numbers of its cases."""
    models = seeds()
    crew = [Worker(models, seed, i, workers) for i in range(workers)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        wait([worker.pipe for worker in crew], timeout=1)
        for worker in crew:
            worker.listen()
    found: dict[str, list[int]] = {}
    for worker in crew:
        worker.process.kill()
        for words, numbers in worker.findings.items():
            found.setdefault(words, []).extend(numbers)
    return sum(worker.done for worker in crew), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, required=True)
    arguments = parser.parse_args()
    data = case(seeds(), arguments.seed, arguments.case)
    model = onnx.ModelProto.FromString(data)
    print(onnx.printer.to_text(model) if model.ByteSize() < 4000 else model.graph.name)
    print(_named_dims(model))
    _import_and_run(model)


if __name__ == "__main__":
    main()
