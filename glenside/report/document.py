"""Declares the content of a page: sections of blocks, drawn by `page/blocks.js`, and subpages that table rows link to.

Any command with a table makes a `Document` of it, and has sorting, filters, plots with their numbers, and print.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import glenside
from glenside.report.html_file import html_file, joined, source
from glenside.report.text import Table
from glenside.report.tile import Tile

_MODULES = (
    *("model.js", "walk.js", "draw.js", "layouts.js", "panel.js", "app.js"),
    *("scales.js", "charts.js", "rows.js", "table.js", "tile.js", "blocks.js", "report.js", "report_file.js"),
)
_LARGEST = 25_000
"""E-nodes of an e-graph that a page holds beside everything else: a file of some 5 MB."""


class Block:
    """A part of a section."""

    def record(self, cells: _Cells) -> dict[str, Any]:
        """Returns the block as JSON: the name of its class, and its fields."""
        return {"kind": type(self).__name__.lower(), **{f.name: getattr(self, f.name) for f in fields(self)}}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Words(Block):
    """Sentences, a paragraph each."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Facts(Block):
    """Named values."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Grid(Block):
    """A table with sorting and filters. `links` has for each row the number of its subpage, or None; empty without
    links.
    """

    title: str
    table: Table
    links: Sequence[int | None] = ()

    def record(self, cells: _Cells) -> dict[str, Any]:
        columns = self.table.columns
        return {
            "kind": "grid",
            "title": self.title,
            "columns": [{"name": " ".join(c.name.split()), "words": c.words, "long": c.folds} for c in columns],
            "rows": [*zip(*(c.cells for c in columns), strict=True)],
            "between": self.table.rows()[-1] if self.table.between else None,
            "total": [c.total for c in columns] if any(c.total for c in columns) else None,
            "wrong": sorted(self.table.wrong),
            "links": [*self.links],
        }


@dataclass(frozen=True)
class Bars(Block):
    """Bars side by side for each name: series are (what, amounts), where None is unknown."""

    title: str
    unit: str
    names: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]
    links: Sequence[int | None] = ()


@dataclass(frozen=True)
class Cloud:
    """Points (x, y, label); `joined` draws them as a descending step line."""

    name: str
    points: Sequence[tuple[float, float, str]]
    joined: bool = False


@dataclass(frozen=True)
class Points(Block):
    """A scatter plot of two measures."""

    title: str
    x: str
    y: str
    clouds: Sequence[Cloud]

    def record(self, cells: _Cells) -> dict[str, Any]:
        return {**super().record(cells), "clouds": [vars(cloud) for cloud in self.clouds]}


@dataclass(frozen=True)
class Steps(Block):
    """Amounts over time: a series (name, amounts) has one for each interval between edges, or one for each edge.

    labels  text for each interval, if known
    spans   (name, first, last) along the axis
    apart   True if each series has a strip of its own
    top     least upper end of the axis, so that drawings can be compared
    most    (name, limit), drawn if it is on the axis
    """

    title: str
    x: str
    unit: str
    edges: Sequence[float]
    series: Sequence[tuple[str, Sequence[float]]]
    labels: Sequence[str] = ()
    spans: Sequence[tuple[str, float, float]] = ()
    apart: bool = False
    top: float = 0
    most: tuple[str, float] | None = None


@dataclass(frozen=True)
class Curves(Block):
    """Amounts along an axis, a line for each series: (what, an amount at each place), where None is unknown."""

    title: str
    x: str
    unit: str
    at: Sequence[float]
    series: Sequence[tuple[str, Sequence[float | None]]]

    def record(self, cells: _Cells) -> dict[str, Any]:
        known = [(what, [n if n is not None and math.isfinite(n) else None for n in own]) for what, own in self.series]
        return {**super().record(cells), "series": known}


@dataclass(frozen=True)
class Tiles(Block):
    """Pictures of tiles, each under its caption, side by side."""

    tiles: Sequence[tuple[str, Tile]]

    def record(self, cells: _Cells) -> dict[str, Any]:
        def drawn(caption: str, tile: Tile) -> dict[str, Any]:
            sources = [{"name": s.name, "dims": s.dims} for s in tile.sources]
            return {**vars(tile), "caption": caption, "cells": cells.number(tile.cells), "sources": sources}

        return {"kind": "tiles", "tiles": [drawn(*pair) for pair in self.tiles]}


@dataclass(frozen=True)
class Rules(Block):
    """Rules by name, with the fields of their records."""

    names: Sequence[str]

    def record(self, cells: _Cells) -> dict[str, Any]:
        from glenside.rewrites import RULES

        known = [(name, RULES.get(name)) for name in self.names]
        return {
            "kind": "rules",
            "rules": [
                {"name": name, "family": rule.family, "equation": rule.equation, "reason": rule.reason}
                if rule is not None
                else {"name": name, "family": "", "equation": "", "reason": ""}
                for name, rule in known
            ],
        }


@dataclass(frozen=True)
class EGraph(Block):
    """The e-graph of the page, opened at a class."""

    start: int


@dataclass(frozen=True)
class Picture(Block):
    """A drawing, as the text of an SVG file."""

    svg: str


@dataclass(frozen=True)
class Code(Block):
    """Preformatted text."""

    text: str


@dataclass(frozen=True)
class Section:
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]

    def record(self, cells: _Cells) -> dict[str, Any]:
        return {"title": self.title, "blocks": [block.record(cells) for block in self.blocks]}


@dataclass(frozen=True)
class Page:
    """A page of its own, such as a layer's."""

    title: str
    lead: str
    sections: Sequence[Section]


@dataclass
class _Cells:
    """The cells of tiles, shared by equal layers."""

    numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def number(self, cells: tuple[int, ...]) -> int:
        return self.numbers.setdefault(cells, len(self.numbers))


@dataclass(frozen=True)
class Document:
    """The content of one HTML file.

    lead    the answer, in a sentence
    pages   subpages that table rows link to
    plain   the tables as escaped HTML, for browsers without scripts
    egraph  a record of `egraph_record`, or None
    """

    title: str
    lead: str
    sections: Sequence[Section]
    pages: Sequence[Page] = ()
    plain: str = ""
    egraph: Mapping[str, Any] | None = None

    def record(self) -> dict[str, Any]:
        """Returns the content as JSON."""
        cells = _Cells()

        def of(page: Page | Document) -> dict[str, Any]:
            sections = [section.record(cells) for section in page.sections if section.blocks]
            return {"title": page.title, "lead": page.lead, "sections": sections}

        made = {**of(self), "pages": [of(page) for page in self.pages]}
        return {**made, "cells": [*cells.numbers]}

    def html(self) -> str:
        """Returns the page as one HTML file that fetches nothing."""
        none = f"<noscript><h1>Without scripts this page has only its tables</h1>{self.plain}</noscript>"
        body = f'<main id="report">{none}</main>'
        sheet = f"html, body {{ margin: 0; }}\n{source('style.css')}\n{source('report.css')}"
        records = {"record": self.record(), "egraph": self.egraph or {}}
        return html_file(self.title, body, script=joined(*_MODULES), sheet=sheet, records=records)


def fits(e_nodes: int) -> bool:
    """True if a page can hold an e-graph of this size beside its other content."""
    return e_nodes <= _LARGEST


def asked(facts: Iterable[tuple[str, str]]) -> Section:
    """Returns the section on the request: the command line, if there was one, given facts, and the versions."""
    command = [("command", shlex.join(["glenside", *sys.argv[1:]]))] if _is_command() else []
    return Section("What was asked", [Facts([*command, *facts, ("versions", _versions())])])


def _is_command() -> bool:
    return sys.argv[0].rsplit("/", 1)[-1] in ("glenside", "glenside.exe", "__main__.py")


def _versions() -> str:
    said = [f"glenside {glenside.__version__}", f"Python {sys.version.split()[0]}"]
    for package in ("egglog", "numpy", "scipy", "onnx"):
        try:
            said.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(said)
