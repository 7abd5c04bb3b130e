"""Draws a still picture of an e-graph as SVG: the chosen e-nodes and their alternatives."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from glenside.report.egraph_record import HOLE
from glenside.report.layered import Placed, placed

MOST = 36  # classes of a picture
_FEWEST = 12  # classes that are drawn at any width
_WIDEST, _PAGE = 1400.0, 980.0  # maximum width in units of the picture; width of a notebook's column
_ROWS, _LONGEST, _NARROW = 5, 34, 60  # rows of a box; characters of a row; least characters of a sentence
_CHARACTER, _LINE, _HEAD, _EDGE = 7.25, 19.0, 25.0, 24.0
_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
# Colours of Okabe and Ito, as on the page. A sheet inside a page applies to the whole page, so each rule names
# `.still`.
STYLE = f"""
.still text {{ font: 12px {_FONT}; fill: #1b1f24; white-space: pre; }}
.still .paper, .still .frame {{ fill: #ffffff; }} .still .frame {{ stroke: #a4adb5; stroke-width: 1.2; }}
.still .frame.chosen {{ stroke: #0072b2; stroke-width: 2.4; }}
.still .row {{ fill: #f2f4f6; }} .still .row.chosen {{ fill: #dcedf8; }}
.still text.chosen {{ fill: #0072b2; font-weight: 700; }}
.still text.quiet {{ fill: #5c6670; }} .still text.name, .still text.cost {{ font-weight: 700; }}
.still .edge {{ fill: none; stroke: #a4adb5; stroke-width: 1.1; }}
.still .edge.chosen {{ stroke: #0072b2; stroke-width: 2.2; }}
.still .tip {{ fill: #a4adb5; }} .still .tip.chosen {{ fill: #0072b2; }}
@media (prefers-color-scheme: dark) {{
.still text {{ fill: #e8ecef; }} .still .paper, .still .frame {{ fill: #15191d; }}
.still .frame, .still .edge {{ stroke: #66727c; }} .still .frame.chosen, .still .edge.chosen {{ stroke: #56b4e9; }}
.still .row {{ fill: #1f252a; }} .still .row.chosen {{ fill: #173548; }} .still text.quiet {{ fill: #a2acb5; }}
.still .tip {{ fill: #66727c; }} .still text.chosen, .still .tip.chosen {{ fill: #56b4e9; }}
}}
"""


@dataclass(frozen=True)
class _Box:
    rows: list[int]
    more: int
    name: str
    type: str
    cost: str
    labels: list[str]

    @property
    def head(self) -> float:
        return _HEAD + (_LINE if self.name else 0)

    @property
    def size(self) -> tuple[float, float]:
        head = len(self.type) + (len(self.cost) + 3 if self.cost else 0)
        longest = max(len(self.name), head, *(len(label) + 2 for label in self.labels), 12)
        return longest * _CHARACTER + 22, self.head + _LINE * (len(self.rows) + bool(self.more)) + 6


class Picture:
    """The picture of a record of `egraph_record`.

    It shows up to `most` e-classes: first chosen ones, nearest to the result, then alternatives. Without `most` the
    number is limited by the width of a page.
    """

    def __init__(self, record: Mapping[str, Any], most: int | None = None) -> None:
        self.record, nodes = record, record["nodes"]
        self._start = [0]
        for arity in nodes["arity"]:
            self._start.append(self._start[-1] + arity)
        self._chosen = set(nodes["chosen"])
        self._members: dict[int, list[int]] = {}
        for n, c in enumerate(nodes["class"]):
            self._members.setdefault(c, []).append(n)
        for members in self._members.values():
            members.sort(key=lambda n: (n not in self._chosen, nodes["cost"][n]))
        self._links = dict(record["links"])
        self._names: dict[int, list[str]] = {}
        for name, c, _ in record["roots"]:
            self._names.setdefault(c, []).append(name or "result")
        self.shown = self._nearest(MOST if most is None else most)
        while most is None and len(self.shown) > _FEWEST and self._layout.width > _WIDEST:
            self.shown = self.shown[: max(_FEWEST, len(self.shown) - 2)]
            del self._boxes, self._layout

    def _children(self, n: int) -> list[int]:
        children: list[int] = self.record["nodes"]["children"][self._start[n] : self._start[n + 1]]
        return children

    def _below(self, c: int, chosen: bool) -> list[int]:
        rows = self._members.get(c, [])[:_ROWS]
        best = [n for n in rows if n in self._chosen] if chosen and self._chosen else rows
        link = [self._links[c]] if c in self._links else []
        return [*link, *(d for n in best for d in self._children(n))]

    def _nearest(self, most: int) -> list[int]:
        found = {self.record["result"]: None} if self._members else {}
        for chosen in (True, False):
            queue = list(found)
            for c in queue:
                for d in self._below(c, chosen):
                    if d not in found and len(found) < most:
                        found[d] = None
                        queue.append(d)
        return list(found)

    @property
    def left_out(self) -> str:
        """A sentence on the e-classes and e-nodes that are not shown; "" if all are."""
        classes, nodes = len(self._members), len(self.record["nodes"]["class"])
        rows = sum(len(box.rows) for box in self._boxes.values())
        if (len(self.shown), rows) == (classes, nodes):
            return ""
        return (
            f"The picture shows {len(self.shown):,} of {classes:,} e-classes and {rows:,} of {nodes:,} e-nodes, "
            f"those nearest to the result; the page (.html) opens all of them."
        )

    @cached_property
    def _boxes(self) -> dict[int, _Box]:
        return {c: self._box(c) for c in self.shown}

    @cached_property
    def _layout(self) -> Placed:
        edges, _ = self._edges()
        return placed({c: box.size for c, box in self._boxes.items()}, edges)

    def _box(self, c: int) -> _Box:
        record, members = self.record, self._members[c]
        rows, names = members[:_ROWS], self._names.get(c, [])
        name = f"{names[0]} and {len(names) - 1} more" if len(names) > 2 else ", ".join(names)
        type_, cost = record["classes"]["type"][c], record["classes"]["cost"][c]
        return _Box(
            rows,
            len(members) - len(rows),
            _short(name),
            _short(record["types"][type_] if type_ >= 0 else "no type", 30),
            record["briefs"][cost] if cost >= 0 else "",
            [_short(self._label(n)) for n in rows],
        )

    def _label(self, n: int) -> str:
        """Returns the text of an e-node without its children, in one line."""
        pattern: str = self.record["patterns"][self.record["nodes"]["pattern"][n]]
        return " ".join(pattern[1:-1].replace(HOLE, "").split())

    def svg(self, *, styled: bool = True) -> str:
        """Returns the picture as the text of an SVG file; not `styled`: for a page whose sheet has `STYLE`."""
        boxes, layout = self._boxes, self._layout
        _, kinds = self._edges()
        legend = "●  chosen: the blue lines are the program that was chosen; grey ones lead to other e-nodes' operands"
        room = max(int(layout.width / _CHARACTER), _NARROW)
        said = [
            (legend if self._chosen else "", "chosen"),
            (self.record["title"], "quiet"),
            (self.left_out or ("" if boxes else "no e-nodes"), "quiet"),
        ]
        below = [(line, kind) for text, kind in said for line in textwrap.wrap(text, room)]
        wide = max(layout.width, max((len(line) for line, _ in below), default=0) * _CHARACTER) + 2 * _EDGE
        high = layout.height + 3 * _EDGE + _LINE * len(below)
        scale = min(1.0, _PAGE / wide)
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="still" viewBox="0 0 {wide:.0f} {high:.0f}" '
            f'width="{wide * scale:.0f}" height="{high * scale:.0f}" role="img" '
            f"aria-label={quoteattr('e-graph of ' + self.record['title'])}>",
            *([f"<style>{STYLE}</style>"] if styled else []),
            *(
                f'<marker id="still-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
                f'markerUnits="userSpaceOnUse" orient="auto"><path class="tip {kind}" d="M0 0.5L8 4L0 7.5z"/></marker>'
                for kind in ("plain", "chosen")
            ),
            f'<rect class="paper" width="{wide:.0f}" height="{high:.0f}"/>',
            f'<g transform="translate({_EDGE} {_EDGE})">',
        ]
        drawn = sorted(zip(kinds, layout.paths, strict=True), reverse=True)  # chosen edges last, on top
        lines += [f'<path class="edge {k}" d="{path}" marker-end="url(#still-{k})"/>' for k, path in drawn if path]
        for c, box in boxes.items():
            lines += self._drawn(box, *layout.boxes[c])
        lines.append("</g>")
        for i, (line, kind) in enumerate(below):
            lines.append(_text(_EDGE, layout.height + 2 * _EDGE + _LINE * (i + 1), line, kind))
        return "\n".join([*lines, "</svg>", ""])

    def _edges(self) -> tuple[list[tuple[int, int, float]], list[str]]:
        """Returns the edges (from, to, position along the lower side), and for each "chosen" or "plain"."""
        edges: list[tuple[int, int, float]] = []
        kinds: list[str] = []
        for c, box in self._boxes.items():
            pairs = [(n, d) for n in box.rows for d in dict.fromkeys(self._children(n)) if d in self._boxes]
            if self._links.get(c) in self._boxes:
                pairs.append((box.rows[0], self._links[c]))
            for i, (n, d) in enumerate(pairs):
                edges.append((c, d, (i + 1) / (len(pairs) + 1)))
                kinds.append("chosen" if n in self._chosen else "plain")
        # The choice has no cycle, so chosen edges, which come first, all run downwards.
        order = sorted(range(len(edges)), key=lambda i: kinds[i])
        return [edges[i] for i in order], [kinds[i] for i in order]

    def _drawn(self, box: _Box, x: float, y: float) -> list[str]:
        (wide, high), chosen = box.size, any(n in self._chosen for n in box.rows)
        lines = [
            f'<g transform="translate({x:.1f} {y:.1f})">',
            f'<rect class="frame{" chosen" if chosen else ""}" width="{wide:.1f}" height="{high:.1f}" rx="6"/>',
            *([_text(10, 18, box.name, "name")] if box.name else []),
            _text(10, box.head - 8, box.type, "quiet"),
            *([_text(wide - 10, box.head - 8, box.cost, "quiet cost", "end")] if box.cost else []),
        ]
        for i, (n, label) in enumerate(zip(box.rows, box.labels, strict=True)):
            top, kind = box.head + i * _LINE, "chosen" if n in self._chosen else ""
            lines.append(
                f'<rect class="row {kind}" x="3" y="{top + 1:.1f}" width="{wide - 6:.1f}" height="17" rx="3"/>'
            )
            lines.append(_text(10, top + 14, ("● " if kind else "  ") + label, kind))
        if box.more:
            lines.append(_text(10, box.head + len(box.rows) * _LINE + 14, f"  {box.more:,} more e-nodes", "quiet"))
        return [*lines, "</g>"]


def _short(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    said = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" xml:space="preserve"{where}>{escape(said)}</text>'
