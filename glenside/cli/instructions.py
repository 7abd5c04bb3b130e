"""Makes the instructions of `tensorize -o NAME.bin` or NAME.asm: one quantized program, or single layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from glenside.cli.npu_runs import Ran, ran, require_machine
from glenside.cli.output import status_line
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import answered
from glenside.ir.names import one_line
from glenside.npu.lowering.pipeline.time_limit import InTime

if TYPE_CHECKING:
    from glenside.ir.operand import Array
    from glenside.ir.program import Program
    from glenside.npu.analysis.critical_path import Ledger
    from glenside.npu.program.program import NpuProgram
    from glenside.quantization.layers import IntegerNetwork
    from glenside.quantization.quantize_program import Integers
    from glenside.report.result import Result
    from glenside.targets.base import Target

_LIMIT = "--time-limit"
CODE = (".bin", ".asm")
"""Endings of instruction files: the binary that the host loads, and text."""


def is_code(path: str | None) -> bool:
    """True if the path has the ending of an instruction file."""
    from glenside.formats import ending

    return path is not None and ending(path) in CODE


def write_code(program: NpuProgram, path: str) -> None:
    """Writes instructions in the format of the ending, whole or not at all. Raises BadInput."""
    from glenside.formats import ending
    from glenside.ir.files import read_text, write_text
    from glenside.ir.replacing import PathLike, WrittenWrong
    from glenside.npu.program import binary_format, text_format

    if ending(path) not in CODE:
        raise BadInput(f"a program of an npu is written as {' or '.join(CODE)}, got {path}")
    if ending(path) == CODE[0]:
        binary_format.save(program, path)
    else:

        def verify(written: PathLike) -> None:
            if binary_format.content(text_format.parse(read_text(written), path)) != binary_format.content(program):
                raise WrittenWrong(path, "its instructions or its DRAM are others")

        write_text(path, text_format.text(program), verify)


def require_code(target: Target, output: str | None, quantize: str | None = None, on: str | None = None) -> None:
    """Raises BadInput for options of instructions that do not fit.

    Refuses an instruction file or `quantize` for a target without instructions, a run without an instruction file, and
    an unknown or missing machine `on`.
    """
    from glenside.targets.base import EmitsInstructions

    if on is not None:
        require_machine(on)
        if not is_code(output):
            raise BadInput(f"--on runs the instructions that -o NAME.bin holds, got {output or 'no -o'}")
    if is_code(output) and not isinstance(target, EmitsInstructions):
        raise BadInput(f"{target.name} has no instructions: a {' or '.join(CODE)} file is for the target npu:RxC")
    if quantize is not None and not isinstance(target, EmitsInstructions):
        raise BadInput(f"--quantize is for a machine of bytes, as --target npu:64x64, and {target.name} is none")


def _accuracy(
    program: Program,
    network: IntegerNetwork,
    samples: Mapping[str, Array],
    seed: int,
    look: Callable[[], None] = lambda: None,
) -> dict[str, Sequence[Any]]:
    """Returns for each result [decibels, share of equal elements], for JSON."""
    from glenside.npu.model.accuracy import accuracy
    from glenside.quantization.calibration import batches_of

    given = {name: own for name, own in samples.items() if name in program.inputs}
    found = accuracy(program, network, batches_of(program, given, seed), look)
    return {name: [own.decibels, own.equal] for name, own in found.items()}


@dataclass
class Instructions:
    """The instructions of a program while they are made; a context manager.

    Within the block, background processes measure the accuracy and compute the expected results.

    quantize  --quantize
    output    the instruction file; None if none is wanted
    on        --on: the machine that runs the instructions
    ran       the report of the run; None if there was no run or Ctrl-C ended it
    lowering  makes the instructions; holds the best program so far
    seconds   seconds of each stage of lowering
    accuracy  result name -> [decibels, share of equal elements]; None if it was not measured
    """

    quantize: str | None = None
    seed: int = 0
    output: str | None = None
    on: str | None = None
    integers: Integers | None = None
    lowering: InTime = field(default_factory=InTime)
    ran: Ran | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    accuracy: Mapping[str, Sequence[Any]] | None = None
    _samples: str | Mapping[str, Array] | None = field(default=None, repr=False)
    _measured: Callable[[], Mapping[str, Sequence[Any]] | None] = field(default=lambda: None, repr=False)
    _wanted: Callable[[], Mapping[str, str] | None] = field(default=lambda: None, repr=False)
    _open: ExitStack = field(default_factory=ExitStack, repr=False)

    @property
    def made(self) -> NpuProgram | None:
        """The program; None where there is none."""
        return self.lowering.made

    def __enter__(self) -> Instructions:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the background processes."""
        self._open.close()

    @staticmethod
    def of(
        quantize: str | None, output: str | None, seed: int, on: str | None = None, most: float = inf
    ) -> Instructions:
        """Returns the state for these options, with the samples of `quantize` read. Raises BadInput."""
        from glenside.formats import ending

        path, lowering = output if is_code(output) else None, InTime(most)
        found = Instructions(quantize, seed, path, on, lowering=lowering, _samples=quantize)
        if quantize is not None and quantize != "random":
            if ending(quantize) != ".npz":
                raise BadInput(f"--quantize is random, or an .npz file with samples by input, got {quantize}")
            from glenside.ir.files import read_arrays

            found._samples = read_arrays(quantize)
        return found

    def prepared(self, program: Program, show: Callable[[str], None]) -> Program:
        """Returns the program to search: the quantized one if there is one, else the program. Raises BadInput."""
        if self.output is None and self.quantize is None:
            return program
        from glenside.ir.forked_work import forked
        from glenside.npu.model.reference_results import results_wanted
        from glenside.quantization import layers
        from glenside.quantization.quantize_program import integers

        show("integers")
        self.integers = integers(program, self._samples, self.seed)
        if self.integers is None and self.output is not None and not program.as_written().layers:
            raise BadInput(f"the network has no product: there is nothing to make {self.output} of")
        if self.integers is None:
            return program
        network = self.integers.network
        if not isinstance(self._samples, str | None):
            measure = partial(_accuracy, program.seeded_constants(self.seed), network, self._samples, self.seed)
            answer = self._open.enter_context(forked(measure, worth=len(network.layers) >= layers.MANY))
            self._measured = lambda: answer() or measure()
        if self.on is not None:
            find = partial(results_wanted, network, self.seed)
            self._wanted = self._open.enter_context(forked(find, worth=len(network.layers) >= layers.MANY))
        return network.program

    def save(self, result: Result, mapped: Program, path: str) -> None:
        """Makes the instructions and writes them whole or not at all.

        At Ctrl-C or the time limit, writes the best program found so far. Raises BadInput.
        """
        from glenside.ir.stopwatch import stage, watched
        from glenside.targets.base import EmitsInstructions

        target, written = result.target, result.prepared
        result.require_mapped()
        assert isinstance(target, EmitsInstructions), "`require_code` refuses other targets"
        with status_line("lower") as show, watched() as watch:

            def on_progress(name: str, part: float) -> None:
                show(f"lower: {name}, {part:.0%}")

            try:
                if self.integers is None:
                    find = partial(target.machine_code, mapped, written, self.seed)
                    self.lowering.make(lambda show, keep: find(show), None, watch, on_progress)
                else:
                    whole = partial(target.network_code, result, self.integers.network, self.seed)
                    self.lowering.make(whole, partial(whole, quick=True), watch, on_progress)
            except KeyboardInterrupt:
                if self.made is not None:
                    answered()
                    write_code(self.made, path)
                raise
            if self.made is not None:
                with stage("write"):
                    write_code(self.made, path)
            watch.turn()
            self.seconds = dict(watch.seconds)
        if not result.report.cached:
            result.report.seconds["lower"] = sum(self.seconds.values())

    def measure(self) -> None:
        """Measures the accuracy of the integer results against float results, if there are samples."""
        self.accuracy = self._measured()

    def run(self) -> None:
        """Runs the instructions if `--on` is given.

        Raises BadInput, or KeyboardInterrupt after the file is written.
        """
        if self.on is None or self.made is None or self.output is None:
            return
        with status_line("npu: simulated") as show:
            self.ran = ran(self.made, self.output, self.on, show, self._wanted)

    def schedule(self) -> Ledger | None:
        """Returns the account of cycles and bytes; None without instructions."""
        from glenside.npu.analysis.critical_path import accounts

        if self.ran is not None:
            return self.ran.ledger
        return None if self.made is None else accounts(self.made)

    def words(self) -> str:
        """Returns the sentences about the instructions; empty without any."""
        lines = [] if self.integers is None else [self.integers.origin, *self._of_accuracy()]
        made = self.made
        if made is not None:
            lines += self._of_layers() if self.integers is None else self._of_network(made)
        elif self.output is not None:
            how = self.lowering.said(_LIMIT) or "It was interrupted before its instructions were made."
            lines.append(f"{how} {self.output} is as it was.")
        if self.seconds:
            parts = (f"{name} {value:.2f} s" for name, value in self.seconds.items())
            lines.append(f"Seconds of lowering: {', '.join(parts)}, total {sum(self.seconds.values()):.2f} s.")
        if self.ran is not None:
            lines += self.ran.sentences()
        elif made is not None and self.on is not None:
            lines.append("It was interrupted before its run ended.")
        return "\n".join(lines)

    def _of_accuracy(self) -> list[str]:
        from glenside.npu.model.accuracy import Accuracy

        if self.accuracy is None:
            return []
        each = ", ".join(f"{one_line(name)} {Accuracy(*own)}" for name, own in self.accuracy.items())
        return [f"Signal to quantization noise, beside the results of floats on the same samples: {each}."]

    def _of_layers(self) -> list[str]:
        return [
            f"The layers are apart: each reads int8 operands of its own, drawn at random (seed {self.seed}). "
            "`tensorize --quantize random`, or `SAMPLES.npz`, makes one program of the network, input to result."
        ]

    def _of_network(self, made: NpuProgram) -> list[str]:
        from glenside.npu.program.results import dtypes

        lines = [f"One program, input to result: {made.size:,} instructions, {made.predicted:,} cycles."]
        if self.lowering.is_over:
            lines.append(self.lowering.said(_LIMIT))
        elif not self.lowering.is_best:
            lines.append("It was interrupted before quicker ones were looked for.")
        for word, places in (("input", made.inputs), ("output", made.outputs)):
            for name, place in places.items():
                dims, means = (
                    " ".join(map(str, place.shape)),
                    "" if place.stands_for is None else f", {place.stands_for}",
                )
                lines.append(f"  {word} {one_line(name)}: {place.dtype} ({dims}){means}")
        if self.rest:
            lines.append(f"Left to the host: {self.rest}. The file says it, and `glenside run` does all of it.")
        return [*lines, f"Results: {', '.join(f'{one_line(n)} {dtype}' for n, dtype in dtypes(made).items())}."]

    @property
    def rest(self) -> str:
        """The part of the network that is left to the host."""
        return "" if self.integers is None else self.integers.network.rest

    def as_dict(self) -> dict[str, Any]:
        """Returns the report of the instructions for JSON; empty without any."""
        found: dict[str, Any] = {} if self.integers is None else {"quantized": self.integers.origin}
        if self.made is not None:
            chained = self.integers is not None
            found |= {"chained": chained, "count": self.made.size, "predicted": self.made.predicted, "rest": self.rest}
        if self.accuracy is not None:
            parts = ("decibels", "equal")
            found["accuracy"] = {name: dict(zip(parts, own, strict=True)) for name, own in self.accuracy.items()}
        if self.seconds:
            found |= {"seconds": self.seconds, "out_of_time": self.lowering.is_over}
        if self.ran is not None:
            found["run"] = self.ran.said
        ledger = self.schedule()
        if ledger is not None:
            found["schedule"] = ledger.as_dict()
        return {"instructions": found} if found else {}
