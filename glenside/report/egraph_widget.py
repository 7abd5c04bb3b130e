"""Provides the e-graph viewer as a notebook widget; requires anywidget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from glenside.report.egraph_page import style, widget_module
from glenside.report.html_file import data, worker_text


class EGraphWidget(anywidget.AnyWidget):
    """The viewer with its traits: the record of an e-graph as JSON, and the script that computes layouts."""

    _esm = widget_module()
    _css = style()
    record = traitlets.Unicode().tag(sync=True)
    worker = traitlets.Unicode().tag(sync=True)
    height = traitlets.Unicode("640px").tag(sync=True)

    @classmethod
    def of(cls, record: Mapping[str, Any], height: str = "640px") -> EGraphWidget:
        """Returns the widget of a record of `egraph_record`."""
        return cls(record=data(record), worker=worker_text(), height=height)
