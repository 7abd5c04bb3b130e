"""Options that several commands have, declared once: groups are dataclasses, and a command names those it takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glenside.ir.bounds import MOST_COUNT, whole
from glenside.ir.errors import BadInput
from glenside.ir.rational import byte_count

if TYPE_CHECKING:
    from glenside.egraph.saturation import Limits
    from glenside.ir.program import Program
    from glenside.targets.base import Target, Way

Shape = Annotated[list[str] | None, typer.Option("--shape", metavar="NAME=1,3,32,32", help="The shape of one tensor.")]
OpenDims = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=SIZE", help="The size of a named dimension of an ONNX file.")
]
Outputs = Annotated[
    list[str] | None,
    typer.Option("--outputs", metavar="A,B", help="Tensors of an ONNX file that are its results instead of its own."),
]
Opaque = Annotated[
    bool, typer.Option("--allow-opaque", help="Keep operators of an ONNX file that are not known, as black boxes.")
]
Output = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="Where the program goes; .glenside, .onnx, .json or .py."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE.png", help="Where a plot goes; .png, .svg or .pdf.")]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE.html", help="Where the report goes as a page that one file holds."),
]
CheckIn = Annotated[
    str, typer.Option("--check", help="exact, or onnxruntime, which also runs both programs as ONNX files.")
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """The function with an option for each field of its groups, as typer reads them from a signature."""
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
    """A program, and what it leaves open."""

    source: Annotated[
        str, typer.Argument(help="A built-in model (see `glenside models`), or a .glenside, .onnx or .json file.")
    ]
    shapes: Annotated[str | None, typer.Option("--shapes", metavar="FILE.json", help="Shapes of tensors by name.")] = (
        None
    )
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
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of a model, such as resolution=64."),
    ] = None

    def loader(self, **more: Any) -> Callable[[], Program]:
        """How to load it; what is neither a model nor a file is refused at once. Raises BadInput."""
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
        """Whether the program is what the source says, with nothing put in or made of it."""
        return self.weights is None


@dataclass(frozen=True)
class Trained(Valued):
    """A program, or a step of training it."""

    train: Annotated[
        bool, typer.Option("--train", help="A step of training the network: forward, gradients and update.")
    ] = False
    loss: Annotated[
        str | None,
        typer.Option("--loss", help="For --train: the loss; by default what fits the end of the network."),
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
        from glenside.gradients.asked import asked_step

        step, said = asked_step(load(), self.loss, self.optimizer)
        signature = step.program.signature
        return replace(step.program, signature=replace(signature, remarks=(*signature.remarks, said)))

    @property
    def is_as_it_stands(self) -> bool:
        return super().is_as_it_stands and not self.train


@dataclass(frozen=True)
class Machine:
    """The target, and what is asked of it; options that are given come before what a file says."""

    target: Annotated[
        str | None,
        typer.Option(
            "--target", help="The target: one of `glenside targets`, such as double-buffered:16x16, or a .toml file."
        ),
    ] = None
    array: Annotated[
        str | None,
        typer.Option("--array", metavar="RxC", help="A weight-stationary array as the target, such as 64x64."),
    ] = None
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            help="What is made least: of an array cycles, bytes or copies, of two parties time, bytes, messages or "
            "truncations; in cycles,bytes the second decides between equals.",
        ),
    ] = None
    max_rows: Annotated[int | None, typer.Option("--max-rows", help="The most rows that stream through a tile.")] = None
    max_weight_growth: Annotated[
        float | None, typer.Option("--max-weight-growth", help="How many times as large a mapping may make weights.")
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
        """The target that they describe. Raises BadInput."""
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
    """The limits of a search, and whether its answer is kept."""

    node_limit: Annotated[int, typer.Option("--node-limit", help="The most e-nodes of the search.")] = 2_000_000
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit",
            help="The most seconds of each search, of timing variants, and of making instructions; extraction and the "
            "check come after it.",
        ),
    ] = 120.0
    iter_limit: Annotated[int, typer.Option("--iter-limit", help="The most iterations of each search.")] = 1_000
    memory_limit: Annotated[
        str, typer.Option("--memory-limit", help="The most memory of the search, such as 500MB or 2GB.")
    ] = "8GB"
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Neither read nor write the cache of answers.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on a terminal.")] = False

    def limits(self) -> Limits:
        """Raises BadInput."""
        from glenside.egraph.saturation import Limits

        most = byte_count(self.memory_limit, "--memory-limit")
        for name in ("node_limit", "time_limit", "iter_limit"):
            if not (value := getattr(self, name)) >= 0:
                raise BadInput(f"--{name.replace('_', '-')} must be at least 0, got {value}")
        return Limits(nodes=self.node_limit, seconds=self.time_limit, iterations=self.iter_limit, memory=most)

    def ahead(self) -> None:
        """Start the process that searches, unless an answer that is kept may do: targets take as long to load. Raises
        BadInput.
        """
        if self.no_cache:
            from glenside.egraph.search import ahead

            ahead(self.limits())

    def facts(self) -> dict[str, str]:
        """What they are, for people."""
        said = (
            f"{self.node_limit:,} e-nodes, {self.time_limit:g} s, {self.iter_limit:,} iterations, {self.memory_limit}"
        )
        return {"limits of the search": said}


@dataclass(frozen=True)
class Ways:
    """How to search, where the target leaves a choice."""

    blocking: Annotated[
        str,
        typer.Option(
            "--blocking", help="How products are cut: tile-loops, or unrolled-tiles, where every tile is a term."
        ),
    ] = "tile-loops"
    mapping: Annotated[
        str, typer.Option("--mapping", help="best, or baseline: every product cut into tiles as it stands.")
    ] = "best"
    method: Annotated[str, typer.Option("--extract", help="The method of extraction: auto, greedy, dag or exact.")] = (
        "auto"
    )
    extract_seconds: Annotated[
        float, typer.Option("--extract-time-limit", help="The most seconds of exact extraction.")
    ] = 60.0

    def way(self, target: Target, *, explain: bool = False) -> Way:
        """Raises BadInput for a way that the target does not have."""
        from glenside.driver import way_of

        return way_of(target, self.blocking, self.mapping, self.method, self.extract_seconds, explain)


@dataclass(frozen=True)
class Results:
    """Where results go, and how the answer is checked."""

    json_path: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Where the report goes as JSON; - is standard output.")
    ] = None
    html: Html = None
    output: Output = None
    check: CheckIn = "exact"
    every: Annotated[
        bool, typer.Option("--all", help="A row for each layer in the table; otherwise equal layers are one.")
    ] = False
    no_check: Annotated[bool, typer.Option("--no-check", help="Leave out the exact check.")] = False
