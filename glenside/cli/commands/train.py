"""`glenside train`: a network, an .npz file of examples, and the network with its weights trained."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glenside.cli.options import Html, JsonFile, Valued, command
from glenside.cli.output import OK, json_report, save_program, writable
from glenside.ir.bounds import MOST_COUNT, whole
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import INTERRUPTED, undisturbed
from glenside.ir.names import one_line

if TYPE_CHECKING:
    from glenside.ir.operand import Array
    from glenside.training.loop import Epoch, Progress

_BATCH = 32
"""Default examples per step, if the network leaves the batch size open."""


@command
def train(
    source: Valued,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA.npz",
            help="The examples: one array for each input, called like the input or x, and labels or y. --input "
            "NAME=KEY names another array for an input, --input labels=KEY for the labels.",
        ),
    ],
    loss: Annotated[
        str,
        typer.Option(
            "--loss", help="softmax-cross-entropy (of classes), squared-error, ..; an unknown name lists all."
        ),
    ] = "softmax-cross-entropy",
    optimizer: Annotated[
        str,
        typer.Option(
            "--optimizer",
            metavar="NAME[:RATE][,OPTION=VALUE]",
            help="sgd, momentum, adam or adamw, such as adam:0.001 or momentum:0.1,nesterov=yes.",
        ),
    ] = "adam:0.001",
    epochs: Annotated[int, typer.Option("--epochs", help="Total passes over the examples.")] = 10,
    batch: Annotated[
        int | None,
        typer.Option("--batch", help=f"Examples per step: the network's batch size, or {_BATCH} if it leaves it open."),
    ] = None,
    held_out: Annotated[
        float,
        typer.Option("--held-out", metavar="FRACTION", help="The fraction of examples to hold out for validation."),
    ] = 0.0,
    wrt: Annotated[
        list[str] | None,
        typer.Option("--wrt", metavar="TENSOR", help="A constant to train; by default all of floats."),
    ] = None,
    batch_momentum: Annotated[
        str,
        typer.Option(
            "--batch-momentum",
            metavar="NUMBER",
            help="The momentum of the running averages of batch norms, which then use batch statistics; none: keep the "
            "stored averages.",
        ),
    ] = "0.9",
    on: Annotated[
        str, typer.Option("--on", metavar="MACHINE", help="native, a machine of `glenside compile`, or interpreter.")
    ] = "native",
    target: Annotated[
        str | None,
        typer.Option("--target", help="Optimize the step for this target first, such as cpu. Default: none."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint", metavar="FILE.npz", help="Save the run to this file after each epoch and each minute."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint.")] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Write the network to this file: .onnx, .glenside or .json."
        ),
    ] = None,
    plot: Annotated[str | None, typer.Option("--plot", metavar="FILE.png", help="Write a plot of the loss.")] = None,
    html: Html = None,
    json_path: JsonFile = None,
) -> None:
    """Train a network on examples, with native code if there is a compiler; prints loss and accuracy by epoch."""
    from glenside.ir.files import read_arrays
    from glenside.report.html_file import require_page
    from glenside.report.plots import plot_ending
    from glenside.targets import parse_target

    writable(output, checkpoint, plot, html)
    require_page(html)
    if plot is not None:
        plot_ending(plot)
    if checkpoint is not None and not checkpoint.endswith(".npz"):
        raise BadInput(f"a checkpoint is an .npz file, got {checkpoint}")
    _apart(data, checkpoint, output)
    wanted = None if target is None else parse_target(target)
    arrays = read_arrays(data)
    keys, given = _keys(source.inputs or (), arrays)
    source = dataclasses.replace(source, inputs=given)
    program = _batched(source, batch, arrays, keys).loader()()
    _require_batch(program.inputs.values(), batch)
    from glenside.training import train as trained_on

    with json_report(json_path) as content:
        with _shown() as show:
            trained = trained_on(
                program,
                arrays,
                loss=loss,
                optimizer=optimizer,
                epochs=epochs,
                held_out=held_out,
                seed=source.seed,
                keys=keys,
                weights=wrt or None,
                batch_momentum=None if batch_momentum == "none" else batch_momentum,
                machine=on,
                target=wanted,
                checkpoint=checkpoint,
                resume=resume,
                on_start=show.start,
                on_epoch=show.epoch,
                listener=show.step,
            )
        content |= {"program": trained.program.name, "epochs": [dataclasses.asdict(one) for one in trained.epochs]}
        content["interrupted"] = trained.interrupted
        with undisturbed():
            if output is not None:
                save_program(trained.program, output, source.seed)
            if plot is not None:
                from glenside.report.plots import write_figure

                write_figure(trained.plot(), plot)
            if html is not None:
                from glenside.ir.files import write_text
                from glenside.training.page import training_document

                facts = {"network": one_line(source.source), "examples": one_line(data), "loss": loss}
                facts |= {"optimizer": optimizer, "epochs": str(epochs), "held out": f"{held_out:g}"}
                write_text(html, training_document(trained, {**facts, "seed": str(source.seed)}).html())
        if trained.interrupted:
            after = f"after {len(trained.epochs)} whole epochs"
            kept = [f"{one_line(path)} is the run" for path in (checkpoint,) if path is not None]
            kept += [f"{one_line(path)} is the network" for path in (output,) if path is not None]
            print(f"glenside: interrupted {after}: {' and '.join(kept) or 'nothing was to be kept'}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED if trained.interrupted else OK)


def _apart(data: str, checkpoint: str | None, output: str | None) -> None:
    """Raises BadInput if an output file would overwrite an input file or another output."""
    from glenside.formats import ending

    taken = {
        os.path.realpath(path): what for path, what in ((checkpoint, "the checkpoint"), (data, "the data")) if path
    }
    if checkpoint is not None and os.path.realpath(checkpoint) == os.path.realpath(data):
        raise BadInput(f"{one_line(checkpoint)} is the data: name another file for the checkpoint")
    if output is None or output == "-":
        return
    beside = () if ending(output) == ".onnx" else (str(Path(output).with_suffix(".npz")),)
    for path in (output, *beside):
        if os.path.realpath(path) in taken:
            why = f"{one_line(path)}, which is {taken[os.path.realpath(path)]}"
            raise BadInput(f"-o {one_line(output)} would write {why}: name another file")


def _keys(texts: Sequence[str], arrays: Mapping[str, Array]) -> tuple[dict[str, str], list[str] | None]:
    """Splits --input options into NAME=KEY of arrays in the data, and those that give an input a value."""
    keys, left = {}, []
    for text in texts:
        name, _, key = text.partition("=")
        if key in arrays:
            keys[name] = key
        else:
            left.append(text)
    return keys, left or None


def _batched(source: Valued, batch: int | None, arrays: Mapping[str, Array], keys: Mapping[str, str]) -> Valued:
    """Returns the network for this batch size, if its file or model leaves the size open. Raises BadInput."""
    from glenside import models
    from glenside.formats import ending

    if batch is not None:
        whole("--batch", batch, 1, MOST_COUNT)
    if ending(source.source) == ".onnx":
        return dataclasses.replace(source, shape=[*(source.shape or ()), *_shapes(source, batch, arrays, keys)])
    name = source.source.replace("_", "-")
    asked = {text.partition("=")[0] for text in source.parameters or ()}
    if name not in models.models() or "batch" not in models.parameters(name) or "batch" in asked:
        return source
    return dataclasses.replace(source, parameters=[*(source.parameters or ()), f"batch={batch or _BATCH}"])


def _shapes(source: Valued, batch: int | None, arrays: Mapping[str, Array], keys: Mapping[str, str]) -> list[str]:
    """Returns --shape for each input of an ONNX file with an array and an open size, or with a new batch size."""
    from glenside.importers.onnx import input_sizes

    sizes = input_sizes(source.source)
    given = {text.partition("=")[0] for text in (*(source.shape or ()), *(source.inputs or ()))}
    known = dict(text.partition("=")[::2] for text in source.dims or ())
    found = []
    for name, own in sizes.items():
        key = keys.get(name, name if name in arrays or len(sizes) > 1 else "x")
        if name in given or key not in arrays or arrays[key].ndim != len(own) or not own:
            continue
        dims = [known.get(str(size), size) for size in own]
        first = dims[0] if batch is None else batch
        dims = [first if isinstance(first, int) or first in known.values() else _BATCH, *dims[1:]]
        sized = [str(n) if str(n).isdecimal() else str(arrays[key].shape[axis]) for axis, n in enumerate(dims)]
        found.append(f"{name}={','.join(sized)}")
    return found


def _require_batch(inputs: Iterable[Any], batch: int | None) -> None:
    """Raises BadInput if an input has another batch size; the seed of dropout has none."""
    from glenside.builder.dropout import SEED

    for tensor in inputs:
        if batch is not None and tensor.dims[:1] != (batch,) and tensor.name != SEED.name:
            dims = " ".join(map(str, tensor.dims))
            raise BadInput(f"--batch {batch} is for a network whose batch is open, and {tensor.name} is ({dims})")


class _Shown:
    """Prints a line per epoch to standard output, and on a terminal a progress bar below."""

    def __init__(self, bar: Any) -> None:
        self.bar = bar
        self.task: Any = None if bar is None else bar.add_task("load and compile", total=None)

    def start(self, words: Sequence[str]) -> None:
        for line in words:
            print(f"glenside: note: {one_line(line)}", file=sys.stderr)

    def epoch(self, epoch: Epoch) -> None:
        print(epoch, flush=True)

    def step(self, at: Progress) -> None:
        if self.bar is None:
            return
        right = "" if at.accuracy is None else f", {100 * at.accuracy:.1f} % right"
        words = f"epoch {at.epoch} of {at.epochs}: loss {at.loss:.4f}{right}"
        done = (at.epoch - 1) * at.steps + at.step
        self.bar.update(self.task, description=words, completed=done, total=at.epochs * at.steps)


@contextmanager
def _shown() -> Iterator[_Shown]:
    if not sys.stderr.isatty():
        yield _Shown(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    both = sys.stdout.isatty()  # lines for a file stay there
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=both) as bar:
        yield _Shown(bar)
