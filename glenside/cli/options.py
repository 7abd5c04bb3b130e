"""Flags that several commands have, and what they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from glenside.form_target import FormTarget
    from glenside.targets.base import Target

Source = Annotated[
    str, typer.Argument(help="A built-in model (see `glenside models`), or a .glenside, .onnx or .json file.")
]
Shapes = Annotated[str | None, typer.Option("--shapes", metavar="FILE.json", help="Shapes of tensors by name.")]
Shape = Annotated[list[str] | None, typer.Option("--shape", metavar="NAME=1,3,32,32", help="The shape of one tensor.")]
OpenDims = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=SIZE", help="The size of a named dimension of an ONNX file.")
]
Opaque = Annotated[
    bool, typer.Option("--allow-opaque", help="Keep what has no meaning here of an ONNX file, as black boxes.")
]
Weights = Annotated[str | None, typer.Option("--weights", metavar="W.npz", help="Values of constants.")]
Output = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FILE", help="Where the result goes; .glenside, .onnx or .json.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonFile = Annotated[str | None, typer.Option("--json", metavar="FILE", help="The report; - is stdout.")]
Nodes = Annotated[int, typer.Option("--node-limit", help="Most e-nodes.")]
Seconds = Annotated[float, typer.Option("--time-limit", help="Most seconds of search.")]
Iterations = Annotated[int, typer.Option("--iter-limit", help="Most iterations.")]
Memory = Annotated[str, typer.Option("--memory-limit", help="Most memory of the search, such as 500MB or 2GB.")]
Seed = Annotated[int, typer.Option("--seed", help="Of random weights and of the check.")]
Parameters = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of a model.")]
TargetName = Annotated[str | None, typer.Option("--target", help="Such as double-buffered:16x16, or a .toml file.")]
ArraySize = Annotated[str | None, typer.Option("--array", metavar="RxC", help="The array, such as 64x64.")]
Objective = Annotated[
    str | None, typer.Option("--objective", help="What is made least: cycles, bytes, or cycles,bytes: first first.")
]
MaxRows = Annotated[int | None, typer.Option("--max-rows", help="Most rows that stream through a tile.")]
Growth = Annotated[
    float | None, typer.Option("--max-weight-growth", help="How many times as large a mapping may make weights.")
]
NetworkName = Annotated[
    str | None,
    typer.Option("--network", metavar="LINK", help="Of two parties: lan, wan or RATE,LATENCY, as 100Mbit,20ms."),
]
Pareto = Annotated[bool, typer.Option("--pareto", help="List what each layer's forms trade, such as time for memory.")]
Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE.png", help="Draw it; .png, .svg or .pdf.")]
Blocking = Annotated[str, typer.Option("--blocking", help="How products are cut: loops or slices.")]
MappingName = Annotated[str, typer.Option("--mapping", help="best, or usual: products as they stand.")]
Method = Annotated[str, typer.Option("--extract", help="How to extract: auto, greedy, dag or exact.")]
ExtractSeconds = Annotated[float, typer.Option("--extract-time-limit", help="Most seconds of exact extraction.")]
Explain = Annotated[bool, typer.Option("--explain", help="Trace which rules made each mapping.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor write the cache of answers.")]
CheckIn = Annotated[
    str, typer.Option("--check", help="exact, or onnxruntime: that one too, on the ONNX files of both programs.")
]
NoCheck = Annotated[bool, typer.Option("--no-check", help="Leave out the exact check.")]


def machine(
    array: str | None,
    target: str | None,
    objective: str | None = None,
    max_rows: int | None = None,
    growth: float | None = None,
    network: str | None = None,
) -> Target | FormTarget:
    """The target that flags describe; those given here come before what a file says. Raises BadInput."""
    from glenside.targets import parse_target
    from glenside.targets.base import parse_objectives

    if (array is None) == (target is None):
        raise BadInput("give the machine with --array RxC, such as --array 64x64, or with --target, and not with both")
    options: dict[str, object] = {"max_rows": max_rows, "max_weight_growth": growth, "network": network}
    if objective is not None:
        options["objectives"] = parse_objectives(objective)
    given = {name: value for name, value in options.items() if value is not None}
    return parse_target(target if target is not None else f"systolic-array:{array}", **given)
