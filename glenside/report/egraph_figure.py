"""Converts the still picture of an e-graph to a matplotlib figure, for formats other than SVG.

Each SVG element is drawn at the same position, in the colours of the light style.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

from glenside.report.egraph_picture import Picture

_SVG = "{http://www.w3.org/2000/svg}"
_INCH = 96.0  # pixels
_SHARP = 1.5  # pixels of the file for one of the picture
_INK, _QUIET, _EDGE, _CHOSEN = "#1b1f24", "#5c6670", "#a4adb5", "#0072b2"
_FILLED = {"row": "#f2f4f6", "row chosen": "#dcedf8", "paper": "#ffffff", "frame": "#ffffff", "frame chosen": "#ffffff"}


def egraph_figure(picture: Picture) -> Any:
    """Returns the matplotlib figure of a picture, at 96 pixels per inch."""
    from matplotlib.figure import Figure

    root = ElementTree.fromstring(picture.svg())
    wide, high = float(root.attrib["width"]), float(root.attrib["height"])
    figure = Figure(figsize=(wide / _INCH, high / _INCH), dpi=_INCH * _SHARP)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, wide), ylim=(high, 0))
    axes.axis("off")
    _draw(axes, root, 0.0, 0.0)
    return figure


def _draw(axes: Any, parent: ElementTree.Element, x: float, y: float) -> None:
    """Draws the children of an SVG element, translated by (x, y)."""
    for element in parent:
        kind = element.tag.removeprefix(_SVG)
        if kind == "g":
            dx, dy = (float(n) for n in re.findall(r"-?[\d.]+", element.attrib["transform"]))
            _draw(axes, element, x + dx, y + dy)
        elif kind in _DRAWN:
            _DRAWN[kind](axes, element, x, y)


def _rect(axes: Any, element: ElementTree.Element, x: float, y: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    left, top, wide, high, round_ = (float(element.get(name, 0)) for name in ("x", "y", "width", "height", "rx"))
    which = element.attrib["class"].strip()
    framed = which.startswith("frame")
    line: dict[str, Any] = {
        "edgecolor": _CHOSEN if "chosen" in which else _EDGE,
        "linewidth": 1.8 if "chosen" in which else 0.9,
    }
    look: dict[str, Any] = {"facecolor": _FILLED[which], **(line if framed else {"linewidth": 0.0})}
    shape = f"round,pad=0,rounding_size={round_}" if round_ else "square,pad=0"
    axes.add_patch(FancyBboxPatch((x + left, y + top), wide, high, boxstyle=shape, **look))


def _text(axes: Any, element: ElementTree.Element, x: float, y: float) -> None:
    words = element.attrib["class"].split()
    axes.text(
        x + float(element.attrib["x"]),
        y + float(element.attrib["y"]),
        element.text or "",
        ha="right" if element.get("text-anchor") == "end" else "left",
        va="baseline",
        color=_CHOSEN if "chosen" in words else _QUIET if "quiet" in words else _INK,
        fontfamily="DejaVu Sans Mono",
        fontsize=12 * 72 / _INCH,
        fontweight="bold" if {"chosen", "name", "cost"} & {*words} else "normal",
        parse_math=False,
    )


def _path(axes: Any, element: ElementTree.Element, x: float, y: float) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    chosen = "chosen" in element.attrib["class"]
    vertices, codes = list[tuple[float, float]](), list[Any]()
    for command, numbers in re.findall(r"([MVC])([^MVC]*)", element.attrib["d"]):
        at = [float(n) for n in numbers.split()]
        if command == "V":
            at = [vertices[-1][0] - x, *at]
        vertices += [(x + a, y + b) for a, b in zip(at[::2], at[1::2], strict=True)]
        codes += {"M": [Path.MOVETO], "V": [Path.LINETO], "C": [Path.CURVE4] * 3}[command]
    look: dict[str, Any] = {"color": _CHOSEN if chosen else _EDGE, "linewidth": 1.6 if chosen else 0.8, "fill": False}
    arrow = FancyArrowPatch(path=Path(vertices, codes), arrowstyle="-|>,head_length=4,head_width=2.5", **look)
    axes.add_patch(arrow)


_DRAWN = {"rect": _rect, "text": _text, "path": _path}
