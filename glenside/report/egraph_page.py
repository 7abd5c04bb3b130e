"""An e-graph as a file that one walks through in a browser."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from glenside.report.html_file import html_file, joined, source

VIEWER = ("model.js", "walk.js", "draw.js", "layouts.js", "panel.js", "app.js")
"""The modules of the viewer, each after those that it imports."""
_PAGE_STYLE = "html, body { margin: 0; height: 100%; } #egraph { height: 100%; }"
_BODY = '<main id="egraph"><noscript>This page draws an e-graph by a script, and scripts are off.</noscript></main>'


@cache
def widget_module() -> str:
    """The viewer as an ES module for anywidget."""
    return joined(*VIEWER, "widget.js")


@cache
def style() -> str:
    """The style sheet of the viewer."""
    return source("style.css")


def egraph_page(record: Mapping[str, Any]) -> str:
    """The page of a record of `egraph_record`."""
    script, sheet = joined(*VIEWER, "file.js"), f"{_PAGE_STYLE}\n{style()}"
    title = str(record["title"]) or "e-graph"
    return html_file(title, _BODY, script=script, sheet=sheet, records={"record": record})
