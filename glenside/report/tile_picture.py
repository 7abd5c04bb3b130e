"""Draws tiles as SVG: the element at each position of the array, for a baseline and for the chosen mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.names import one_line
from glenside.ir.operand import Array
from glenside.report.tile import Tile, baseline_tiles, instructions, tiles_of

if TYPE_CHECKING:
    from glenside.report.result import Result

# Colours of Okabe and Ito, without black and with a darker yellow: they are visible on light and on dark paper.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a100")
_SIDE, _LEAST = 264.0, 3.0  # in pixels: side of a tile, least side of an element
_MARGIN, _APART, _LINE, _CHARACTER = 22.0, 44.0, 18.0, 6.9
_OWN, _SHADES = 12, 36  # elements that have a colour each; elements of one colour that have a shade each
_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_STYLE = f"""
.tiles text {{ font: 11.5px {_FONT}; fill: #1b1f24; white-space: pre; }}
.tiles .paper {{ fill: #ffffff; }} .tiles .empty {{ fill: #eef0f2; }} .tiles text.quiet {{ fill: #5c6670; }}
.tiles text.head {{ font-weight: 700; }} .tiles .frame {{ fill: none; stroke: #8b959e; stroke-width: 1; }}
@media (prefers-color-scheme: dark) {{
.tiles text {{ fill: #e8ecef; }} .tiles .paper {{ fill: #15191d; }} .tiles .empty {{ fill: #262d33; }}
.tiles text.quiet {{ fill: #a2acb5; }} .tiles .frame {{ stroke: #66727c; }}
}}
"""


def layer_picture(result: Result, name: str) -> str:
    """Draws the tiles of a layer as the text of an SVG file: for its baseline and for the chosen mapping. Raises
    BadInput if there is no such layer, or no array holds an operand of it.
    """
    if name not in result.prepared.layers or name not in result.program.layers:
        known = ", ".join(one_line(layer) for layer in list(result.prepared.layers)[:8])
        raise BadInput(f"there is no layer {one_line(name)}; the first ones are {known or 'none'}")
    row = next(row for row in result.report.layers if row.name == name)
    best = tiles_of(result.program.layers[name])
    if not best:
        own = {term.operator.name for term in instructions(result.program.layers[name])}
        why = f"it is computed by {', '.join(sorted(own))}" if own else "no instruction computes it"
        raise BadInput(f"{one_line(name)} has no tile of weights in an array: {why}")
    before = baseline_tiles(result.prepared.layers[name], best[0].rows, best[0].columns)
    (baseline, plain), *_ = row.variants.items()
    heads = ((baseline, plain.measures, before), (row.label, row.measures, best))
    panels = [
        ([words, _taken(measures)], replace(tile, count=measures.get("tiles") or tile.count))  # row tiles load it again
        for words, measures, tiles in heads
        for tile in tiles[:1]
    ]
    return tile_picture(f"{one_line(name)}: {one_line(row.operator)}", panels)


def _taken(measures: Mapping[str, int | None]) -> str:
    amounts = [(measures.get(m), m) for m in ("cycles", "tiles")]
    return ", ".join(f"{n:,} {m.removesuffix('s') if n == 1 else m}" for n, m in amounts if n is not None)


def tile_picture(title: str, panels: Sequence[tuple[Sequence[str], Tile]]) -> str:
    """Draws tiles side by side as the text of an SVG file, each under its lines of text."""
    drawn = [_Panel(words, tile) for words, tile in panels]
    head = max((len(panel.words) for panel in drawn), default=0) * _LINE
    wide = max(sum(panel.width + _APART for panel in drawn) - _APART, len(title) * _CHARACTER) + 2 * _MARGIN
    legend = _legend(drawn, wide - 2 * _MARGIN)
    high = _MARGIN * 2 + _LINE + head + max((p.height for p in drawn), default=0.0) + _LINE * (len(legend) + 1.4)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tiles" viewBox="0 0 {wide:.0f} {high:.0f}" '
        f'width="{wide:.0f}" height="{high:.0f}" role="img" aria-label={quoteattr(_printable("tiles of " + title))}>',
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{wide:.0f}" height="{high:.0f}" rx="6"/>',
        _text(_MARGIN, _MARGIN + 8, title, "head"),
    ]
    left = _MARGIN
    for panel in drawn:
        lines += panel.svg(left, _MARGIN + _LINE, head)
        left += panel.width + _APART
    for i, sentence in enumerate(reversed(legend)):
        lines.append(_text(_MARGIN, high - _MARGIN / 2 - i * _LINE, sentence, "quiet"))
    return "\n".join([*lines, "</svg>", ""])


class _Panel:
    """One tile with its captions."""

    def __init__(self, words: Sequence[str], tile: Tile) -> None:
        self.tile = tile
        self.cell = max(_LEAST, min(_SIDE / max(tile.rows, tile.columns), 24.0))
        self.across, self.down = self.cell * tile.columns, self.cell * tile.rows
        places = tile.rows * tile.columns
        self.below = [
            f"tile {tile.number:,} of {tile.count:,}" if tile.count > 1 else "the only tile",
            f"{tile.used:,} of {places:,} places hold a number, {100 * tile.used / places:.1f} %",
        ]
        most = int(max(self.across, _SIDE) / _CHARACTER)
        self.words = [(line, "" if i else "head") for i, text in enumerate(words) for line in _folded(text, most)]
        self.width = max(self.across, *(len(line) * _CHARACTER for line in (*dict(self.words), *self.below)))
        self.height = self.down + _LINE * len(self.below)
        self.numbers = _numbers(tile)
        self.colours, self.axis = _kinds(tile, self.numbers)

    def svg(self, x: float, y: float, head: float) -> list[str]:
        top, rows = y + head + 6, self.numbers.reshape(self.tile.rows, self.tile.columns)
        size = f'width="{self.tile.columns}" height="{self.tile.rows}"'
        lines = [_text(x, y + _LINE * (i + 0.7), *line) for i, line in enumerate(self.words)]
        lines.append(f'<g transform="translate({x:.1f} {top:.1f}) scale({self.cell:.5g})">')
        lines.append(f'<rect class="empty" {size}/>')
        for (colour, shade), path in _paths(rows, self.colours).items():
            opacity = "" if shade >= 1 else f' stroke-opacity="{shade:.2g}"'
            lines.append(f'<path stroke="{COLOURS[colour]}"{opacity} fill="none" d="{path}"/>')
        lines.append(
            f'</g><rect class="frame" x="{x:.1f}" y="{top:.1f}" width="{self.across:.1f}" height="{self.down:.1f}"/>'
        )
        return [*lines, *(_text(x, top + self.down + _LINE * (i + 0.9), s, "quiet") for i, s in enumerate(self.below))]


def _numbers(tile: Tile) -> Array:
    """Returns the number of the element at each position, in row-major order; 0 is an empty one."""
    differences, counts = np.asarray(tile.cells[::2], np.int64), np.asarray(tile.cells[1::2], np.int64)
    return np.cumsum(np.repeat(differences, counts))


def _kinds(tile: Tile, numbers: Array) -> tuple[Mapping[int, tuple[int, float]], str]:
    """Maps each element to a colour and a shade; also says what elements of one colour share.

    A few elements have a colour each. Of many, those with the same index along the first axis that differs share a
    colour; a few of one colour have a shade each.
    """
    distinct = [int(n) for n in np.unique(numbers) if n]
    if len(distinct) <= _OWN:
        return {n: (i % len(COLOURS), _shade(i // len(COLOURS), 2)) for i, n in enumerate(distinct)}, "element"
    index = np.stack([_index(tile, n) for n in distinct])
    differs = [axis for axis in range(index.shape[1]) if np.ptp(index[:, axis])]
    axis = differs[0] if differs else 0
    colours = {int(v): i % len(COLOURS) for i, v in enumerate(np.unique(index[:, axis]))}
    of = {n: colours[int(row[axis])] for n, row in zip(distinct, index, strict=True)}
    alike: dict[int, list[int]] = {}
    for n, row in zip(distinct, index, strict=True):
        alike.setdefault(int(row[axis]), []).append(n)
    shades = {n: _shade(i, len(some)) for some in alike.values() for i, n in enumerate(some)}
    axes = f"index along axis {axis} of {tuple(tile.sources[0].dims)}"
    return {n: (colour, shades[n]) for n, colour in of.items()}, axes


def _shade(number: int, count: int) -> float:
    """Returns the opacity of element `number` of the `count` elements of a colour."""
    return 1.0 if count < 2 or count > _SHADES else round(1 - 0.6 * number / (count - 1), 2)


def _index(tile: Tile, number: int) -> Array:
    """Returns the index of an element in its source, after the number of the source if there are several."""
    left, most = number - 1, max(len(source.dims) for source in tile.sources)
    for which, source in enumerate(tile.sources):
        size = int(np.prod(source.dims, dtype=np.int64))
        if left < size:
            place = [int(i) for i in np.unravel_index(left, source.dims)] if source.dims else []
            several = [which] if len(tile.sources) > 1 else []
            return np.asarray([*several, *place, *[0] * (most - len(place))] or [0])
        left -= size
    raise AssertionError(f"element {number} is of no source")


def _paths(rows: Array, kinds: Mapping[int, tuple[int, float]]) -> dict[tuple[int, float], str]:
    """Returns for each colour and shade a path of lines one element thick: along rows, or down columns if that takes
    fewer.
    """
    across, down = (list(_runs(lines.tolist(), kinds)) for lines in (rows, rows.T))
    fewer, word = (across, "h") if len(across) <= len(down) else (down, "v")
    paths: dict[tuple[int, float], list[str]] = {}
    for kind, line, begin, end in fewer:
        start = f"M{begin} {line}.5" if word == "h" else f"M{line}.5 {begin}"
        paths.setdefault(kind, []).append(f"{start}{word}{end - begin}")
    return {kind: "".join(path) for kind, path in sorted(paths.items())}


def _runs(
    lines: Sequence[Sequence[int]], kinds: Mapping[int, tuple[int, float]]
) -> Iterator[tuple[tuple[int, float], int, int, int]]:
    """Yields (kind, line, begin, end) of each run of neighbours of one kind."""
    for number, line in enumerate(lines):
        at = 0
        for kind, some in groupby(line, kinds.get):
            begin, at = at, at + sum(1 for _ in some)
            if kind is not None:
                yield kind, number, begin, at


def _legend(panels: Sequence[_Panel], wide: float) -> list[str]:
    said = dict.fromkeys(panel.axis for panel in panels)
    names = dict.fromkeys(source.name for panel in panels for source in panel.tile.sources)
    what = f" of {', '.join(names)}" if names else ""
    colours = " or ".join(f"one {axis}" for axis in said)
    sentence = (
        f"Rows of the array go down, columns across. A colour is {colours}{what}; equal shades of it are equal "
        "numbers. Grey places are empty: they multiply zeros."
    )
    return _folded(sentence, max(int(wide / _CHARACTER), 24))


def _folded(text: str, most: int) -> list[str]:
    """Wraps a text to lines of at most `most` characters; a longer word has a line of its own."""
    lines = [""]
    for word in _printable(text).split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(_printable(text))}</text>'
