"""Options shared by several commands: each group is a dataclass, and a command takes the groups as parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glenside.cli import completion
from glenside.ir.bounds import MOST_COUNT, whole
from glenside.ir.errors import BadInput
from glenside.ir.rational import byte_count

if TYPE_CHECKING:
    from glenside.egraph.saturation import Limits
    from glenside.ir.program import Program
    from glenside.targets.base import Target, Way

Shape = Annotated[list[str] | None, typer.Option("--shape", metavar="NAME=1,3,32,32", help="The shape of one tensor.")]
OpenDims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="The size of a named dimension of an ONNX file, or of a GGUF file. `glenside compile` also takes a range, "
        "NAME=LEAST..GREATEST[:STEP].",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option("--outputs", metavar="A,B", help="Tensors of an ONNX file to return instead of its own outputs."),
]
Opaque = Annotated[bool, typer.Option("--allow-opaque", help="Keep unknown operators of an ONNX file as black boxes.")]
Output = Annotated[
    str | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="Write the program to this file: .glenside, .onnx, .json or .py."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonFile = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="[FILE]",
        help="Write the report to this file as JSON; without a file, or with -, print JSON alone.",
    ),
]
Plot = Annotated[
    str | None, typer.Option("--plot", metavar="FILE.png", help="Write a plot to this file: .png, .svg or .pdf.")
]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE.html", help="Write the report to this file as a self-contained page."),
]
CheckIn = Annotated[
    str, typer.Option("--check", help="exact, or onnxruntime: also run both programs as ONNX files and compare.")
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Returns the function with one option for each field of its groups, in the signature that typer reads."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    groups: dict[str, Any] = {p.name: p.annotation for p in parameters if is_dataclass(p.annotation)}
    options: list[inspect.Parameter] = []
    for parameter in parameters:
        group = groups.get(parameter.name)
        declared = inspect.signature(group, eval_str=True).parameters.values() if group else [parameter]
        options += [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in declared]

    @functools.wraps(function)
    def run(**values: Any) -> None:
        made = {name: group(**{f.name: values.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        function(**made, **values)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


@dataclass(frozen=True)
class Declared:
    """A program, with the shapes, inputs and parameters that it leaves open."""

    source: Annotated[
        str,
        typer.Argument(
            help="A built-in model (see `glenside models`), or a .glenside, .onnx, .pt2, .mlir, .gguf or .json file.",
            autocompletion=completion.sources,
        ),
    ]
    shapes: Annotated[
        str | None, typer.Option("--shapes", metavar="FILE.json", help="The shapes of tensors, by name.")
    ] = None
    shape: Shape = None
    dims: OpenDims = None
    outputs: Outputs = None
    allow_opaque: Opaque = False
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=VALUE",
            help="The value of an input: a number, a list such as [1,2], a .npy file, or FILE.npz:NAME.",
        ),
    ] = None
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A parameter of a model, such as resolution=64, or cache=int8 of a decoder.",
        ),
    ] = None

    def loader(self, **more: Any) -> Callable[[], Program]:
        """Returns a function that loads the program. Raises BadInput at once if it is neither a model nor a file."""
        from glenside.formats.sources import loader

        known = inspect.signature(loader).parameters
        own = {name: value for name, value in vars(self).items() if name in known}
        return loader(**{"weights": None, "seed": 0, **own, **more})


@dataclass(frozen=True)
class Valued(Declared):
    """A program, and the values of its constants."""

    weights: Annotated[
        str | None, typer.Option("--weights", metavar="W.npz", help="The values of constants, by name.")
    ] = None
    seed: Annotated[int, typer.Option("--seed", help="The seed of random weights and of the check.")] = 0

    def loader(self, **more: Any) -> Callable[[], Program]:
        whole("--seed", self.seed, most=MOST_COUNT)
        return super().loader(**more)

    @property
    def is_as_it_stands(self) -> bool:
        """True if the program is used as in the source: no weights are replaced, and no other program derived."""
        return self.weights is None


@dataclass(frozen=True)
class Compilable(Valued):
    """A program to compile, and the dtype of the activations of its products."""

    activations: Annotated[
        str,
        typer.Option(
            "--activations",
            help="int8: round the activations of products with weights of 4 or 8 bits, by block. By default float32.",
        ),
    ] = "float32"

    def loader(self, **more: Any) -> Callable[[], Program]:
        from glenside.codegen.lowering.quantized_activations import with_activations
        from glenside.ir.open_program import changed

        load = super().loader(**more)
        if self.activations == "float32":
            return load
        return lambda: changed(load(), lambda own: with_activations(own.seeded_constants(self.seed), self.activations))

    @property
    def is_as_it_stands(self) -> bool:
        return super().is_as_it_stands and self.activations == "float32"


@dataclass(frozen=True)
class Trained(Valued):
    """A program, or a step of training it."""

    train: Annotated[
        bool, typer.Option("--train", help="Use one training step of the network: forward, gradients and update.")
    ] = False
    loss: Annotated[
        str | None,
        typer.Option("--loss", help="For --train: the loss; by default chosen by the last operator of the network."),
    ] = None
    optimizer: Annotated[
        str | None,
        typer.Option(
            "--optimizer",
            metavar="NAME[:OPTION=NUMBER,..]",
            help="For --train: sgd (the default), momentum, adam or adamw, such as adam:rate=0.001.",
        ),
    ] = None

    def loader(self, **more: Any) -> Callable[[], Program]:
        given = {flag: value for flag, value in (("--loss", self.loss), ("--optimizer", self.optimizer)) if value}
        if given and not self.train:
            raise BadInput(f"{' and '.join(given)} {'are' if len(given) > 1 else 'is'} for training: give --train too")
        load = super().loader(**more)
        return partial(self._step, load) if self.train else load

    def _step(self, load: Callable[[], Program]) -> Program:
        from glenside.gradients.step_options import step_from_options

        step, said = step_from_options(load(), self.loss, self.optimizer)
        signature = step.program.signature
        return replace(step.program, signature=replace(signature, remarks=(*signature.remarks, said)))

    @property
    def is_as_it_stands(self) -> bool:
        return super().is_as_it_stands and not self.train


@dataclass(frozen=True)
class Machine:
    """The target and its parameters; options override the values in a target file."""

    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            help="The target: one of `glenside targets`, such as double-buffered:16x16, or a .toml file.",
            autocompletion=completion.targets,
        ),
    ] = None
    array: Annotated[
        str | None,
        typer.Option("--array", metavar="RxC", help="Use a weight-stationary array as the target, such as 64x64."),
    ] = None
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            help="The measures to minimize, in order: cycles, bytes or copies for an array; time, bytes, messages or "
            "truncations for two parties. In cycles,bytes the second breaks ties.",
        ),
    ] = None
    max_rows: Annotated[int | None, typer.Option("--max-rows", help="Maximum rows that stream through a tile.")] = None
    max_weight_growth: Annotated[
        float | None,
        typer.Option("--max-weight-growth", help="Maximum factor by which a mapping may enlarge the weights."),
    ] = None
    link: Annotated[
        str | None,
        typer.Option(
            "--link",
            metavar="LINK",
            help="The link of two parties: lan (the default), wan or RATE,LATENCY, such as 100Mbit,20ms.",
        ),
    ] = None

    def parsed(self) -> Target:
        """Returns the target that the options describe. Raises BadInput."""
        from glenside.targets import parse_target

        if (self.array is None) == (self.target is None):
            raise BadInput(
                "give the machine with --array RxC, such as --array 64x64, or with --target, and not with both"
            )
        options = {
            "max_rows": self.max_rows,
            "max_weight_growth": self.max_weight_growth,
            "link": self.link,
            "objectives": self.objective,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return parse_target(self.target if self.target is not None else f"systolic-array:{self.array}", **given)


@dataclass(frozen=True)
class Bounds:
    """The limits of a search, and whether the cache of answers is used."""

    node_limit: Annotated[int, typer.Option("--node-limit", help="Maximum e-nodes of the search.")] = 2_000_000
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit",
            help="Maximum seconds of each search, of timing variants, and of lowering to instructions; extraction and "
            "the check are extra.",
        ),
    ] = 120.0
    iter_limit: Annotated[int, typer.Option("--iter-limit", help="Maximum iterations of each search.")] = 1_000
    memory_limit: Annotated[
        str, typer.Option("--memory-limit", help="Maximum memory of the search, such as 500MB or 2GB.")
    ] = "8GB"
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Do not read or write the cache of answers.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on a terminal.")] = False

    def limits(self) -> Limits:
        """Returns the limits of a search. Raises BadInput for a negative number or a malformed size."""
        from glenside.egraph.saturation import Limits

        most = byte_count(self.memory_limit, "--memory-limit")
        for name in ("node_limit", "time_limit", "iter_limit"):
            if not (value := getattr(self, name)) >= 0:
                raise BadInput(f"--{name.replace('_', '-')} must be at least 0, got {value}")
        return Limits(nodes=self.node_limit, seconds=self.time_limit, iterations=self.iter_limit, memory=most)

    def start_workers_early(self) -> None:
        """Starts the search process while the target is loaded, unless a cached answer may suffice. Raises BadInput."""
        if self.no_cache:
            from glenside.egraph.search import start_workers_early

            start_workers_early(self.limits())

    def facts(self) -> dict[str, str]:
        """Returns the limits as text for a report."""
        said = (
            f"{self.node_limit:,} e-nodes, {self.time_limit:g} s, {self.iter_limit:,} iterations, {self.memory_limit}"
        )
        return {"limits of the search": said}


@dataclass(frozen=True)
class Ways:
    """Options of the search, for targets that leave a choice."""

    blocking: Annotated[
        str,
        typer.Option("--blocking", help="How products are tiled: tile-loops, or unrolled-tiles: every tile is a term."),
    ] = "tile-loops"
    mapping: Annotated[
        str, typer.Option("--mapping", help="best, or baseline: tile every product as it is written.")
    ] = "best"
    method: Annotated[str, typer.Option("--extract", help="The method of extraction: auto, greedy, dag or exact.")] = (
        "auto"
    )
    extract_seconds: Annotated[
        float, typer.Option("--extract-time-limit", help="Maximum seconds of exact extraction.")
    ] = 60.0
    exact_order: Annotated[
        bool,
        typer.Option("--exact-order", help="Keep the order of sums and products between layers as it is written."),
    ] = False

    def way(self, target: Target, *, explain: bool = False) -> Way:
        """Raises BadInput for a way that the target does not have."""
        from glenside.driver import way_of

        return way_of(target, self.blocking, self.mapping, self.method, self.extract_seconds, explain, self.exact_order)


@dataclass(frozen=True)
class Results:
    """The output files, and how the answer is checked."""

    json_path: JsonFile = None
    html: Html = None
    output: Output = None
    check: CheckIn = "exact"
    every: Annotated[
        bool, typer.Option("--all", help="Print a row for each layer; otherwise equal layers share a row.")
    ] = False
    no_check: Annotated[bool, typer.Option("--no-check", help="Skip the exact check.")] = False
