"""`glenside winograd`: the matrices of F(m, r)."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from glenside.cli.options import Json
from glenside.ir.errors import BadInput


def winograd(
    m: Annotated[int, typer.Argument(help="Number of outputs per tile.")],
    r: Annotated[int, typer.Argument(help="Number of taps of the filter.")],
    points: Annotated[
        str | None, typer.Option("--points", metavar="0,1,-1/2", help="m + r - 2 distinct rational points.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the matrices of Winograd's F(m, r) by Cook and Toom's construction: y = output (filter g * data d)."""
    from glenside.ir.cook_toom import Matrix, cook_toom
    from glenside.ir.rational import exact

    at = None
    if points is not None:
        read = [exact(word.strip()) for word in points.split(",")]
        at = [value for value in read if value is not None]
        if len(at) < len(read):
            raise BadInput(f"points are exact numbers, as 0,1,-1/2, got {points!r}")
    found = cook_toom(m, r, at)
    matrices: dict[str, Matrix] = {"data": found.data, "filter": found.filter, "output": found.output}
    if as_json:
        print(json.dumps({name: [list(map(str, row)) for row in rows] for name, rows in matrices.items()}, indent=2))
        return
    for name, rows in matrices.items():
        print(f"{name}, {len(rows)} x {len(rows[0])}")
        widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
        for row in rows:
            print("  " + " ".join(f"{value!s:>{width}}" for value, width in zip(row, widths, strict=True)))
    print(f"{m + r - 1} products instead of {m * r} for {m} outputs of {r} taps.")
