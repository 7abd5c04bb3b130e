"""Options that several commands have: how each is written, and what it is for."""

from __future__ import annotations

from typing import Annotated

import typer

Source = Annotated[
    str, typer.Argument(help="A built-in model (see `glenside models`), or a .glenside, .onnx or .json file.")
]
Shapes = Annotated[str | None, typer.Option("--shapes", metavar="FILE.json", help="Shapes of tensors by name.")]
Shape = Annotated[list[str] | None, typer.Option("--shape", metavar="NAME=1,3,32,32", help="The shape of one tensor.")]
OpenDims = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=SIZE", help="The size of a named dimension of an ONNX file.")
]
Opaque = Annotated[
    bool, typer.Option("--allow-opaque", help="Keep operators of an ONNX file that are not known, as black boxes.")
]
Weights = Annotated[str | None, typer.Option("--weights", metavar="W.npz", help="The values of constants, by name.")]
Output = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="Where the program goes; .glenside, .onnx, .json or .py."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Where the report goes as JSON; - is standard output.")
]
Nodes = Annotated[int, typer.Option("--node-limit", help="The most e-nodes of the search.")]
Seconds = Annotated[float, typer.Option("--time-limit", help="The most seconds of each search.")]
Iterations = Annotated[int, typer.Option("--iter-limit", help="The most iterations of each search.")]
Memory = Annotated[str, typer.Option("--memory-limit", help="The most memory of the search, such as 500MB or 2GB.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of random weights and of the check.")]
Parameters = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of a model, such as resolution=64.")
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target", help="The target: one of `glenside targets`, such as double-buffered:16x16, or a .toml file."
    ),
]
ArraySize = Annotated[
    str | None, typer.Option("--array", metavar="RxC", help="A weight-stationary array as the target, such as 64x64.")
]
Objective = Annotated[
    str | None,
    typer.Option(
        "--objective",
        help="What an array makes least: cycles, bytes or copies; in cycles,bytes the second decides between equals.",
    ),
]
MaxRows = Annotated[int | None, typer.Option("--max-rows", help="The most rows that stream through a tile.")]
Growth = Annotated[
    float | None, typer.Option("--max-weight-growth", help="How many times as large a mapping may make weights.")
]
OldLinkName = Annotated[str | None, typer.Option("--network", hidden=True)]
LinkName = Annotated[
    str | None,
    typer.Option(
        "--link", metavar="LINK", help="The link of two parties: lan, wan or RATE,LATENCY, such as 100Mbit,20ms."
    ),
]
Pareto = Annotated[
    bool, typer.Option("--pareto", help="List what the variants of each layer trade, such as time for memory.")
]
Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE.png", help="Where a plot goes; .png, .svg or .pdf.")]
Blocking = Annotated[
    str,
    typer.Option("--blocking", help="How products are cut: tile-loops, or unrolled-tiles, where every tile is a term."),
]
MappingName = Annotated[
    str, typer.Option("--mapping", help="best, or baseline: every product cut into tiles as it stands.")
]
Method = Annotated[str, typer.Option("--extract", help="The method of extraction: auto, greedy, dag or exact.")]
ExtractSeconds = Annotated[float, typer.Option("--extract-time-limit", help="The most seconds of exact extraction.")]
Explain = Annotated[bool, typer.Option("--explain", help="Trace which rules made what was chosen.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor write the cache of answers.")]
CheckIn = Annotated[
    str, typer.Option("--check", help="exact, or onnxruntime, which also runs both programs as ONNX files.")
]
NoCheck = Annotated[bool, typer.Option("--no-check", help="Leave out the exact check.")]
_ORDERS = "none, runs (which keep neighbours together) or all"
Loads = Annotated[str, typer.Option(help=f"The other orders in which an operand is read for nothing: {_ORDERS}.")]
Stores = Annotated[str, typer.Option(help=f"The other orders in which a result is stored for nothing: {_ORDERS}.")]
