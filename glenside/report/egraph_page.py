"""Writes an e-graph as an interactive HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from glenside.report.egraph_picture import STYLE, Picture
from glenside.report.html_file import html_file, joined, source

VIEWER = ("model.js", "walk.js", "draw.js", "layouts.js", "panel.js", "app.js")
"""The modules of the viewer, each after those that it imports."""
_PAGE_STYLE = """html, body { margin: 0; height: 100%; } #egraph { position: relative; height: 100%; }
#still { position: absolute; inset: 0; z-index: 3; overflow: auto; background: Canvas; }"""
_BODY = (
    '<main id="egraph"></main><div id="still">{}<noscript>Scripts are off: this is the first picture of the e-graph, '
    "which cannot be opened further.</noscript></div>"
)


@cache
def widget_module() -> str:
    """Returns the viewer as an ES module for anywidget."""
    return joined(*VIEWER, "widget.js")


@cache
def style() -> str:
    """Returns the style sheet of the viewer."""
    return source("style.css")


def egraph_page(record: Mapping[str, Any]) -> str:
    """Returns the page of a record of `egraph_record`.

    The page has a still picture from the start, which shows until the script has drawn its own: a screenshot or a print
    is never blank, without scripts either.
    """
    script, sheet = joined(*VIEWER, "file.js"), f"{_PAGE_STYLE}\n{STYLE}\n{style()}"
    title = str(record["title"]) or "e-graph"
    body = _BODY.format(Picture(record).svg(styled=False))
    return html_file(title, body, script=script, sheet=sheet, records={"record": record})
