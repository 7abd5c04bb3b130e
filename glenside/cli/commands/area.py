"""`glenside area npu:8x8`: synthesizes a machine's SystemVerilog with Yosys; counts gates and bits of memory."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from glenside.cli.options import Html, Json
from glenside.cli.output import status_line, writable
from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from glenside.npu.rtl.synthesis import Area


def area(
    target: Annotated[str, typer.Argument(help="An npu, such as npu:8x8, or a .toml file that describes one.")],
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Synthesise the npu with Yosys, and print the area of its parts: gates, flip-flops and bits of memory."""
    from glenside.npu.rtl.synthesis import area as measured
    from glenside.report.html_file import require_page
    from glenside.targets import parse_target

    writable(html)
    require_page(html)
    machine = getattr(parse_target(target), "npu", None)
    if machine is None:
        raise BadInput(f"an npu has SystemVerilog to measure, such as npu:8x8, got {target}")
    with status_line("npu: synthesised by Yosys, minutes the first time"):
        found = measured(machine)
    if as_json:
        print(json.dumps(_content(found), indent=2))
    else:
        _print(found)
    if html is not None:
        from glenside.ir.files import write_text
        from glenside.report.measured_pages import area_document

        write_text(html, area_document(found, _words(found), {"machine": str(found.machine)}).html())


def _words(found: Area) -> list[str]:
    """Returns the sentences under the table."""
    lines = ["Gates are NANDs of two inputs, flip-flops among them; memories are bits."]
    if found.growth is not None:
        lines.append(
            "Gates and flip-flops are extrapolated from arrays of 8 and 16 lanes by 8 and 16 columns; bits are counted."
        )
    return lines


def _content(found: Area) -> dict[str, object]:
    return {
        "machine": str(found.machine),
        "extrapolated": found.growth is not None,
        "element": asdict(found.element),
        "parts": {name: asdict(part) for name, part in found.parts.items()},
        "growth": None if found.growth is None else {name: asdict(own) for name, own in found.growth.items()},
        "total": asdict(found.total),
    }


def _print(found: Area) -> None:
    from glenside.report.measured_pages import area_table

    said, *more = _words(found)
    print(f"{found.machine}: {said[0].lower()}{said[1:].rstrip('.')}")
    table = area_table(found)
    *parts, element = table.rows()
    total = tuple(column.total for column in table.columns)
    rows = [("", *(column.name for column in table.columns[1:])), *parts, total, element]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        print("  ".join([f"{first:<{widths[0]}}", *(f"{w:>{n}}" for w, n in zip(rest, widths[1:], strict=True))]))
    for line in more:
        print(line)
