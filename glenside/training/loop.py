"""The training loop: epochs of steps over examples, which can be interrupted and resumed between any two steps."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glenside import driver
from glenside.builder.dropout import SEED
from glenside.gradients.dropout import at_inference
from glenside.gradients.losses import Loss, loss_named
from glenside.gradients.optimizers import Amount, Optimizer
from glenside.gradients.step_options import before_end, read_optimizer
from glenside.gradients.training import TrainingStep, opened, training_step
from glenside.ir.bounds import MOST_COUNT, whole
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import answered, undisturbed, waited_for
from glenside.ir.names import numbered, one_line, spelled_name
from glenside.ir.operand import Array
from glenside.ir.program import Program, as_program
from glenside.ir.replacing import PathLike
from glenside.ir.term import build
from glenside.ir.types import AccessType, Dims, Tensor, TupleType
from glenside.semantics.interpreter import evaluate
from glenside.training import checkpoint as checkpoints
from glenside.training.checkpoint import Moment
from glenside.training.examples import Examples, examples, held_out, shuffled
from glenside.training.faults import finite, first_fault

if TYPE_CHECKING:
    from glenside.targets.base import Target

INTERPRETER = "interpreter"
_KEEP = 60.0
"""Seconds between two checkpoints within an epoch."""

Run = Callable[[Mapping[str, Array]], Any]


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch, counted from 1: means over its steps, and over the examples that are held out.

    An accuracy is the share of correct outputs; None if the loss does not define correctness, or no examples are held
    out.
    """

    number: int
    loss: float
    accuracy: float | None
    held_out_loss: float | None
    held_out_accuracy: float | None
    seconds: float

    def __str__(self) -> str:
        words = [f"loss {self.loss:.4f}"]
        words += [] if self.accuracy is None else [f"{100 * self.accuracy:.2f} % right"]
        words += [] if self.held_out_loss is None else [f"held out: loss {self.held_out_loss:.4f}"]
        words += [] if self.held_out_accuracy is None else [f"{100 * self.held_out_accuracy:.2f} % right"]
        return f"epoch {self.number}: {', '.join(words)}; {self.seconds:.1f} s"


@dataclass(frozen=True)
class Progress:
    """The progress of a run: a step of an epoch, both counted from 1, and the means of the epoch so far."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float | None


@dataclass(frozen=True)
class Trained:
    """The result of training.

    program      the network with its current weights
    epochs       the finished epochs
    on           a description of what ran the steps
    notes        remarks on how the network was trained
    interrupted  whether Ctrl-C ended it
    """

    program: Program
    epochs: Sequence[Epoch]
    on: str
    notes: Sequence[str]
    interrupted: bool

    def plot(self) -> Any:
        """Returns a figure of the loss and the share of correct outputs by epoch, in training and on held-out
        examples.
        """
        from glenside.training.curves import figure

        return figure(self.program.name, self.epochs)


def train(
    program: Program,
    data: Mapping[str, Array],
    *,
    loss: str | Loss = "softmax-cross-entropy",
    optimizer: str | Optimizer = "adam:0.001",
    epochs: int = 10,
    held_out: float = 0.0,
    seed: int = 0,
    keys: Mapping[str, str] | None = None,
    weights: Sequence[str] | None = None,
    batch_momentum: Amount | None = "0.9",
    machine: str = "native",
    target: Target | str | None = None,
    checkpoint: PathLike | None = None,
    resume: bool = False,
    on_start: Callable[[Sequence[str]], None] = lambda _: None,
    on_epoch: Callable[[Epoch], None] = lambda _: None,
    listener: Callable[[Progress], None] = lambda _: None,
) -> Trained:
    """Trains a network whose inputs are batches; the first axis of an input is the batch.

      data        arrays of (examples ..), one for each input under its name, or x if there is one input; and the
                  labels, under labels or y. `keys` gives other names: input -> array
      loss        a name of `glenside.gradients.losses`; if the network ends with the first operation of the loss, such
                  as softmax, that operation is left out in training
      optimizer   such as `gl.Adam("0.001")`, or as on the command line, adam:0.001
      held_out    the share of examples, from 0 to below 1, that are not trained on and measure accuracy after each
                  epoch
      seed        determines weights without a value, the held-out examples, and the order of examples in each epoch
      weights     names of constants that are trained, as in `gl.training_step`
      batch_momentum
                  the momentum of the running averages of batch norms, as in `gl.training_step`
      machine     as in `gl.compile`, or interpreter; native is the interpreter if nothing can be compiled
      target      the target to optimize the step for first, an object or text, as in `gl.compile`
      checkpoint  an .npz file, written after each epoch, each minute and at the end; `resume` continues from it as if
                  the run had not ended. Without `resume`, an existing file is not replaced
      on_start    called with sentences on how the network is trained; `on_epoch` with each epoch, `listener` with each
                  step

    Each epoch leaves out the examples beyond its last full batch, which differ from epoch to epoch. Ctrl-C ends
    training and keeps its state. Raises BadInput for data that do not fit, a checkpoint of another run, or numbers that
    are no longer finite; the message then names the layer where this begins, and the checkpoint is that of the previous
    step.
    """
    record = loss if isinstance(loss, Loss) else loss_named(loss)
    chosen = read_optimizer(optimizer) if isinstance(optimizer, str) else optimizer
    if chosen.rate is None:
        raise BadInput("training requires an optimizer with a learning rate, got one whose rate is an input")
    whole("epochs", epochs, 0, MOST_COUNT)
    whole("the seed", seed, most=MOST_COUNT)
    if not 0 <= held_out < 1:
        raise BadInput(f"the share that is held out requires a number from 0 to below 1, got {held_out}")
    if resume and checkpoint is None:
        raise BadInput("resume requires a checkpoint, got none")
    if checkpoint is not None and not resume and Path(checkpoint).exists():
        shown = one_line(os.fspath(checkpoint))
        raise BadInput(f"{shown} exists: continue it with resume, or name another file for the checkpoint")
    network, notes = _before(as_program(program, "trained").seeded_constants(seed), record)
    labels = numbered("labels", network.tensors)
    made = _Training(program, network, labels, record, epochs, held_out, seed, checkpoint, listener, on_epoch)
    made.open(data, keys or {})
    made.step = training_step(
        network, record, chosen, weights=weights, labels=labels, output=True, batch_momentum=batch_momentum
    )
    made.begin(resume)
    made.prepare(machine, target)
    notes += [] if weights else _left(network, made.step)
    notes.append(made.words())
    on_start(notes)
    return made.run(notes)


def _before(network: Program, loss: Loss) -> tuple[Program, list[str]]:
    """Returns the network up to the point where the loss begins, with classes last; and a note if this is not all of
    it.
    """
    before = before_end(network.term, loss.of_output) if isinstance(network.term.type, AccessType) else None
    if before is None:
        return network, []
    said = f"the network is trained up to its {loss.of_output}, with which {loss.name} begins"
    signature = replace(network.signature, outputs=())
    return replace(network, term=build("access", before, 0), signature=signature), [said]


def _left(network: Program, step: TrainingStep) -> list[str]:
    """Returns a note on constants of a file that are not weights."""
    state, fixed = {tensor.name for tensor in step.state}, network.signature.fixed
    left = [n for n, t in network.constants_declared.items() if t.dtype in FLOATS and n in fixed and n not in state]
    if not left:
        return []
    shown = ", ".join(map(spelled_name, left[:3])) + (f" and {len(left) - 3:,} more" if len(left) > 3 else "")
    return [f"constants that are not initializers with axes are not trained: {shown}"]


@dataclass
class _Training:
    """One run of `train`."""

    program: Program
    network: Program
    labels: str
    loss: Loss
    epochs: int
    held_out: float
    seed: int
    checkpoint: PathLike | None
    listener: Callable[[Progress], None]
    on_epoch: Callable[[Epoch], None]
    step: TrainingStep = field(init=False)

    def open(self, data: Mapping[str, Array], keys: Mapping[str, str]) -> None:
        """Reads and splits the examples. Raises BadInput."""
        if isinstance(self.network.term.type, TupleType):
            raise BadInput(f"training requires a network of one result, got {self.network.term.type}")
        inputs = [tensor for tensor in self.network.inputs.values() if tensor != SEED]
        kind = self.loss.target(self.network.term.access)
        labels = Tensor(self.labels, kind.dims, kind.dtype)
        if not inputs:
            raise BadInput("training requires a network with an input, got one of constants alone")
        self.batch = _batch(inputs, labels)
        bounds = self.loss.bounds
        limits = None if bounds is None else bounds(self.network.term.access)
        self.examples: Examples = examples(data, inputs, labels, limits, keys)
        self.trained, self.kept = held_out(self.examples.count, self.held_out, self.seed)
        self.steps = len(self.trained) // self.batch
        if not self.steps:
            left = f", {len(self.kept)} of {self.examples.count} are held out" if len(self.kept) else ""
            raise BadInput(
                f"a batch of {self.batch} requires at least that many examples, got {len(self.trained)}{left}"
            )

    def begin(self, resume: bool) -> None:
        """Returns the first state, or that of the checkpoint. Raises BadInput."""
        self.moment: Moment = checkpoints.beginning(self.step.initial)
        if self.checkpoint is None:
            return
        if resume:
            state = {tensor.name: tensor for tensor in self.step.state}
            self.moment = checkpoints.read(self.checkpoint, state, self._about)
            if self.moment.steps > self.steps:
                raise BadInput(
                    f"{one_line(os.fspath(self.checkpoint))} is not a complete checkpoint: it has too many steps"
                )
        self._keep()  # now it is known that it can be written

    @cached_property
    def _about(self) -> dict[str, str]:
        """Identifies the run of a checkpoint."""
        made = hashlib.sha256(str(self.step.program).encode())
        for name, array in sorted(self.step.program.constants.items()):
            made.update(name.encode() + np.ascontiguousarray(array).view(np.uint8).tobytes())
        return {
            "network, loss, optimizer or batch": made.hexdigest(),
            "data set": self.examples.digest(),
            "seed": str(self.seed),
            "share that is held out": repr(float(self.held_out)),
        }

    def prepare(self, machine: str, target: Target | str | None) -> None:
        """Prepares the computation of steps, and the network for held-out examples. Raises BadInput."""
        self.compute, self.on = _runner(self.step.program, machine, target)
        if len(self.kept):
            state = {tensor.name for tensor in self.step.state}
            network = at_inference(self.network)
            forward = opened(network, state, network.signature)
            self.forward, _ = _runner(forward, machine, target)

    def words(self) -> str:
        """Describes the steps of an epoch and what runs them."""
        apart = f", {len(self.kept):,} more are held out" if len(self.kept) else ""
        done = f"; {len(self.moment.epochs)} epochs are over" if len(self.moment.epochs) else ""
        steps = f"{self.steps:,} steps an epoch, of {self.batch:,} of {len(self.trained):,} examples{apart}"
        return f"{steps}; {self.on}{done}"

    def run(self, notes: Sequence[str]) -> Trained:
        """Runs steps until all epochs are finished, or Ctrl-C. Raises BadInput if numbers are no longer finite."""
        interrupted, self._kept_at = False, time.monotonic()
        try:
            while len(self.moment.epochs) < self.epochs:
                self._epoch()
        except KeyboardInterrupt:
            answered()
            interrupted = True
        finally:
            with undisturbed():
                self._keep()
        values = {n: array for n, array in self.moment.state.items() if n in self.program.constants_declared}
        program = at_inference(self.program.seeded_constants(self.seed)).with_constants(values)
        rows = [_row(number, row) for number, row in enumerate(self.moment.epochs, 1)]
        return Trained(program, rows, self.on, notes, interrupted)

    def _keep(self) -> None:
        if self.checkpoint is not None:
            checkpoints.write(self.checkpoint, self.moment, self._about)
        self._kept_at = time.monotonic()

    def _epoch(self) -> None:
        number = len(self.moment.epochs) + 1
        order = shuffled(self.trained, self.seed, number)
        while self.moment.steps < self.steps:
            start = self.moment.steps * self.batch
            self._step(number, self.examples.take(order[start : start + self.batch]))
            self.listener(Progress(number, self.epochs, self.moment.steps, self.steps, *self._means()))
            if time.monotonic() > self._kept_at + _KEEP:
                self._keep()
        loss, accuracy = self._means()
        apart = self._held_out() if len(self.kept) else (np.nan, np.nan)
        share = np.nan if accuracy is None else accuracy
        self.moment = self.moment.ended(loss, share, *apart, self.moment.seconds)
        self._keep()
        self.on_epoch(_row(number, self.moment.epochs[-1]))

    def _step(self, epoch: int, taken: dict[str, Array]) -> None:
        begin = time.perf_counter()
        drawn = np.random.default_rng([self.seed, epoch, self.moment.steps]).integers(1 << 32, dtype=np.uint32)
        values = {**taken, **self.moment.state, SEED.name: np.asarray(drawn)}
        results = waited_for(lambda: self.compute(values))
        loss, state = self.step.next(results)
        if not finite(loss) or not all(map(finite, state.values())):
            raise BadInput(self._fault(epoch, values, loss, state))
        right = 0.0
        if self.loss.right is not None:
            right = float(np.mean(self.loss.right(results[1], taken[self.labels])))
        self.moment = self.moment.stepped(state, float(loss), right, time.perf_counter() - begin)

    def _means(self) -> tuple[float, float | None]:
        """Returns the loss and the share of correct outputs over the steps of this epoch."""
        loss, right = (total / max(1, self.moment.steps) for total in self.moment.sums)
        return loss, None if self.loss.right is None else right

    def _fault(self, epoch: int, values: Mapping[str, Array], loss: Array, state: Mapping[str, Array]) -> str:
        """Describes a step whose results are not finite."""
        program = self.step.program
        found = first_fault(program, {**program.constants, **values})
        if not found:  # the order of sums may decide
            name = "the loss" if not finite(loss) else spelled_name(next(n for n, a in state.items() if not finite(a)))
            found = f"{name} is not finite, though it is in the interpreter"
        left = "" if self.checkpoint is None else f"; {one_line(os.fspath(self.checkpoint))} is the state before it"
        return f"step {self.moment.steps + 1} of epoch {epoch}: {found}; a lower learning rate may do{left}"

    def _held_out(self) -> tuple[float, float]:
        """Returns the loss and the share of correct outputs over the held-out examples."""
        sums = np.zeros(2)
        for start in range(0, len(self.kept), self.batch):
            places = self.kept[start : start + self.batch]
            taken = self.examples.take(np.resize(places, self.batch))
            labels = taken.pop(self.labels)[: len(places)]
            values = {**taken, **self.moment.state}
            output = waited_for(lambda values=values: self.forward(values))[: len(places)]  # type: ignore[misc]
            right = np.nan if self.loss.right is None else np.mean(self.loss.right(output, labels))
            sums += len(places) * np.array([_measured(self.loss, output, labels), right])
        mean = sums / len(self.kept)
        return float(mean[0]), float(mean[1])


def _batch(inputs: Sequence[Tensor], labels: Tensor) -> int:
    """Returns the size of the first axis of all inputs and labels. Raises BadInput."""
    sizes = {(tensor.dims[0] if tensor.dims else 0) for tensor in (*inputs, labels)}
    if len(sizes) > 1 or not min(sizes):
        said = ", ".join(f"{spelled_name(t.name)} ({' '.join(map(str, t.dims))})" for t in (*inputs, labels))
        raise BadInput(
            f"training requires inputs and labels with a first axis of the same number of examples, got {said}"
        )
    return sizes.pop()


def _measured(loss: Loss, output: Array, labels: Array) -> float:
    """Returns the loss of given outputs."""
    given = {"output": output, "labels": labels}
    terms = (build("access-tensor", Tensor(n, Dims(a.shape), a.dtype.name)) for n, a in given.items())
    (value,) = evaluate([loss.of(*terms)], given)
    return float(value)


def _runner(program: Program, machine: str, target: Target | str | None) -> tuple[Run, str]:
    """Returns a function that computes a program, and its description. Raises BadInput."""
    if machine == INTERPRETER:
        return lambda values: evaluate([program.term], {**program.constants, **values})[0], "the interpreter"
    try:
        made = driver.compile(program, target, machine=machine)
    except BadInput as error:
        if machine != "native" or target is not None:
            raise
        return _runner(program, INTERPRETER, None)[0], f"the interpreter, as {error.message}"
    wanted = {buffer.name for buffer in made.inputs}
    return lambda values: made({n: a for n, a in values.items() if n in wanted}), f"native code, {made.report.machine}"


def _row(number: int, row: Array) -> Epoch:
    accuracy, loss_apart, accuracy_apart = (None if np.isnan(x) else float(x) for x in row[1:4])
    return Epoch(number, float(row[0]), accuracy, loss_apart, accuracy_apart, float(row[4]))
