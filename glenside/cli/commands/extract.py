"""`glenside extract`: the extractors on any e-graph in the JSON format of the extraction gym."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glenside.cli.exit_status import INTERRUPTED
from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from extract import Extraction
    from extract.gym import GymGraph

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
    time_limit: Annotated[float | None, typer.Option("--time-limit", help="The most seconds of exact search.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE.json", help="Where the choice goes.")
    ] = None,
) -> None:
    """Extract the cheapest program from an e-graph in a JSON file, and print what is proven about it."""
    from extract import METHODS as KNOWN
    from extract import ExtractionError
    from extract.gym import read_gym
    from glenside.cli.output import writable
    from glenside.ir.files import write_text

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
        answer = graph.extract(method, time_limit)
    except ExtractionError as error:
        raise BadInput(str(error)) from error
    outcome = Outcome.of(graph, method, answer, time.perf_counter() - started)
    choice = json.dumps(graph.choice(answer), indent=2) + "\n"
    if output not in (None, "-"):
        write_text(output, choice)
    if output == "-":
        print(choice, end="")
    elif as_json:
        print(json.dumps(outcome.as_dict(), indent=2))
    else:
        _print_table(outcome)
    if answer.stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True)
class Outcome:
    """What one extraction found; costs are in the unit of the file, exactly."""

    file: str
    method: str
    e_nodes: int
    """In the file, subsumed ones included."""
    e_classes: int
    chosen: int
    """Classes that the answer needs."""
    dag_cost: Fraction
    """Each class counted once: what is minimized."""
    tree_cost: Fraction | None
    """Each use of a class counted; None when it is too large to count."""
    bound: Fraction | None
    """No answer has a smaller DAG cost; None when the method gives no bound."""
    proven: bool
    stopped: str
    """Why the search ended, as in `Extraction.stopped`."""
    seconds: float
    """Of extraction, without reading the file."""

    @classmethod
    def of(cls, graph: GymGraph, method: str, answer: Extraction, seconds: float) -> Outcome:
        """The outcome of one answer for a graph."""
        return cls(
            file=graph.source,
            method=method,
            e_nodes=graph.e_nodes,
            e_classes=graph.e_classes,
            chosen=len(answer.choice),
            dag_cost=graph.cost(answer.cost),
            tree_cost=graph.tree_cost(answer),
            bound=None if answer.bound is None else graph.cost(answer.bound),
            proven=answer.proven,
            stopped=answer.stopped,
            seconds=seconds,
        )

    @property
    def gap(self) -> Fraction | None:
        """DAG cost minus bound, in the unit of the file."""
        return None if self.bound is None else self.dag_cost - self.bound

    def as_dict(self) -> dict[str, Any]:
        """For JSON. A cost is an int where it is whole, else the nearest double; seconds are in seconds."""
        return {
            "file": self.file,
            "method": self.method,
            "e_nodes": self.e_nodes,
            "e_classes": self.e_classes,
            "chosen": self.chosen,
            "dag_cost": _number(self.dag_cost),
            "tree_cost": _number(self.tree_cost),
            "bound": _number(self.bound),
            "gap": _number(self.gap),
            "proven": self.proven,
            "stopped": self.stopped,
            "seconds": self.seconds,
        }


def _number(value: Fraction | None) -> int | float | None:
    if value is None or value.denominator == 1:
        return None if value is None else int(value)
    try:
        return float(value)
    except OverflowError:
        return round(value)


def _shown(value: Fraction) -> str:
    if value >= 10**18:
        return f"{Decimal(round(value)):.6e}"
    return f"{_number(value):,}"


def _print_table(outcome: Outcome) -> None:
    from rich.table import Table
    from rich.text import Text

    from glenside.cli.table import console

    gap = "not known"
    if outcome.gap is not None:
        share = f" ({100 * float(outcome.gap / outcome.dag_cost):.3g} %)" if outcome.gap else ""
        gap = f"{_shown(outcome.gap)}{share}"
    rows = {
        "file": outcome.file,
        "e-graph": f"{outcome.e_nodes:,} e-nodes in {outcome.e_classes:,} e-classes",
        "method": outcome.method,
        "chosen": f"{outcome.chosen:,} e-classes",
        "DAG cost": _shown(outcome.dag_cost),
        "tree cost": "too large to count" if outcome.tree_cost is None else _shown(outcome.tree_cost),
        "lower bound": "not known" if outcome.bound is None else _shown(outcome.bound),
        "gap": gap,
        "proven": "yes" if outcome.proven else f"no: {_WHY.get(outcome.stopped, outcome.stopped)}",
        "seconds": f"{outcome.seconds:.3f}",
    }
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(value))
    console().print(table, markup=False)
