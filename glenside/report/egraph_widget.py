"""The e-graph's viewer as a widget of notebooks; it needs anywidget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from glenside.report.egraph_page import style, widget_module
from glenside.report.html_file import data, worker_text


class EGraphWidget(anywidget.AnyWidget):
    """The viewer, with the record of an e-graph as JSON and the text of the script that lays it out."""

    _esm = widget_module()
    _css = style()
    record = traitlets.Unicode().tag(sync=True)
    worker = traitlets.Unicode().tag(sync=True)
    height = traitlets.Unicode("640px").tag(sync=True)

    @classmethod
    def of(cls, record: Mapping[str, Any], height: str = "640px") -> EGraphWidget:
        """The widget of a record of `egraph_record`."""
        return cls(record=data(record), worker=worker_text(), height=height)
