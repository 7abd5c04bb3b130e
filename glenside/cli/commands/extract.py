"""`glenside extract`: runs the extractors on any e-graph in the JSON format of the extraction gym."""

from __future__ import annotations

import json
import math
import time
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glenside.cli.options import Json
from glenside.cli.output import writable, write_json
from glenside.ir.errors import BadInput
from glenside.ir.interrupts import INTERRUPTED, raised_once

if TYPE_CHECKING:
    from glenside.extract import Extraction
    from glenside.extract.gym import GymGraph

METHODS = "auto, greedy, dag or exact"

_WHY = {
    "heuristic": "nothing was searched",
    "time-limit": "the time was up",
    "node-limit": "the limit on branches was reached",
    "size-limit": "too large to search under auto; exact searches it",
    "numerics": "the costs have more digits than the solver's arithmetic can prove",
    "interrupted": "interrupted",
}


def extract(
    file: Annotated[str, typer.Argument(metavar="FILE.json", help="An e-graph as egraph-serialize writes it.")],
    method: Annotated[str, typer.Option("--method", help=f"The method: {METHODS}.")] = "auto",
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Maximum seconds of exact search; auto has 10.")
    ] = None,
    as_json: Json = False,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE.json", help="Write the chosen e-nodes to this file.")
    ] = None,
) -> None:
    """Extract the cheapest program from an e-graph in a JSON file, and print its cost and the proven bound."""
    from glenside.extract import METHODS as KNOWN
    from glenside.extract import ExtractionError
    from glenside.extract.gym import read_gym

    if method not in KNOWN:
        raise BadInput(f"--method must be {METHODS}, got {method!r}")
    if time_limit is not None and not 0 <= time_limit < math.inf:
        raise BadInput(f"--time-limit must be a number of seconds from 0 on, got {time_limit:g}")
    if output == "-" and as_json:
        raise BadInput("--json and -o - both write to standard output, so give one of them a file or leave it out")
    writable(output)
    try:
        graph = read_gym(file)
        started = time.perf_counter()
        with raised_once():
            answer = graph.extract(method, time_limit)
    except ExtractionError as error:
        raise BadInput(str(error)) from error
    found = _found(graph, method, answer, time.perf_counter() - started)
    if output is not None:
        write_json(graph.choice(answer), output)
    if as_json:
        plain = {name: _number(value) if isinstance(value, Fraction) else value for name, value in found.items()}
        print(json.dumps(plain, indent=2))
    elif output != "-":
        _print_table(found)
    if answer.stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _found(graph: GymGraph, method: str, answer: Extraction, seconds: float) -> dict[str, Any]:
    """The content of the output; costs are exact, in the unit of the file.

    e_nodes    in the file, subsumed ones included
    chosen     classes that the answer needs
    dag_cost   each class counted once: what is minimized
    tree_cost  each use of a class counted; None when it is too large to count
    bound      no answer has a smaller DAG cost; None when the method gives no bound
    stopped    why the search ended, as in `Extraction.stopped`
    seconds    of extraction, without reading the file
    """
    cost = graph.cost(answer.cost)
    bound = None if answer.bound is None else graph.cost(answer.bound)
    return {
        "file": graph.source,
        "method": method,
        "e_nodes": graph.e_nodes,
        "e_classes": graph.e_classes,
        "chosen": len(answer.choice),
        "dag_cost": cost,
        "tree_cost": graph.tree_cost(answer),
        "bound": bound,
        "gap": None if bound is None else cost - bound,
        "proven": answer.proven,
        "stopped": answer.stopped,
        "seconds": seconds,
    }


def _number(value: Fraction) -> int | float:
    """An int where it is whole, else the nearest double."""
    if value.denominator == 1:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return round(value)


def _shown(value: Fraction | None, otherwise: str = "not known") -> str:
    if value is None:
        return otherwise
    if value >= 10**18:
        return f"{Decimal(round(value)):.6e}"
    return f"{_number(value):,}"


def _print_table(found: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from glenside.cli.table import console

    share = f" ({100 * float(found['gap'] / found['dag_cost']):.3g} %)" if found["gap"] else ""
    rows = {
        "file": found["file"],
        "e-graph": f"{found['e_nodes']:,} e-nodes in {found['e_classes']:,} e-classes",
        "method": found["method"],
        "chosen": f"{found['chosen']:,} e-classes",
        "DAG cost": _shown(found["dag_cost"]),
        "tree cost": _shown(found["tree_cost"], "too large to count"),
        "lower bound": _shown(found["bound"]),
        "gap": f"{_shown(found['gap'])}{share}",
        "proven": "yes" if found["proven"] else f"no: {_WHY.get(found['stopped'], found['stopped'])}",
        "seconds": f"{found['seconds']:.3f}",
    }
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(value))
    console().print(table, markup=False)
