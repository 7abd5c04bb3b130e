"""`glenside extract`: an e-graph of the public format, and what each method makes of it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glenside.commands.options import Json, Output
from glenside.commands.output import print_or_write, writable
from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from extract import Extraction
    from extract.gym import SerializedEGraph

File = Annotated[str, typer.Argument(metavar="FILE.json", help="An e-graph as extraction-gym has them.")]
Method = Annotated[str, typer.Option("--method", help="auto, greedy, dag or exact.")]
TimeLimit = Annotated[float | None, typer.Option("--time-limit", help="Most seconds of exact search.")]


def extract(
    path: File, method: Method = "auto", time_limit: TimeLimit = None, output: Output = None, as_json: Json = False
) -> None:
    """Extract from an e-graph in the extraction-gym format; print costs, the bound and the gap."""
    import extract as extractors
    from extract.gym import read_egraph
    from glenside.ir.files import read_text

    if time_limit is not None and not time_limit >= 0:
        raise BadInput(f"--time-limit must be at least 0, got {time_limit}")
    writable(output)
    egraph = read_egraph(read_text(path), path)
    started = time.perf_counter()
    try:
        answer = extractors.extract(egraph.problem, method, time_limit=time_limit)
    except extractors.NoExtraction as error:
        raise egraph.named(error) from error
    found = described(egraph, answer, method, time.perf_counter() - started)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print(path, found)
    if output is not None:
        print_or_write(json.dumps({"choice": egraph.choice(answer.choice), **found}, indent=2) + "\n", output)


def described(egraph: SerializedEGraph, answer: Extraction, method: str, seconds: float) -> dict[str, Any]:
    """What is known of an answer, in the units of the file."""
    from extract import tree_cost

    problem = egraph.problem
    bound = None if answer.bound is None else egraph.cost(answer.bound)
    return {
        "method": method,
        "dag_cost": egraph.cost(answer.cost),
        "tree_cost": egraph.cost(tree_cost(problem, dict(answer.choice))),
        "lower_bound": bound,
        "gap": None if answer.gap is None else egraph.cost(answer.gap),
        "proven": answer.proven,
        "stopped": answer.stopped,
        "e_nodes": len(problem.children),
        "e_classes": len(problem.classes),
        "chosen": len(answer.choice),
        "seconds": round(seconds, 6),
    }


def _print(path: str, found: dict[str, Any]) -> None:
    from rich.table import Table

    from glenside.table import console

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    words = {None: "unknown", True: "yes", False: "no"}
    for name, value in found.items():
        if value is None or isinstance(value, bool):
            value = words[value]
        shown = value if isinstance(value, str) else f"{value:,}"
        table.add_row(name.replace("_", " ").replace("e nodes", "e-nodes").replace("e classes", "e-classes"), shown)
    out = console()
    out.print(path, markup=False)
    out.print(table)
