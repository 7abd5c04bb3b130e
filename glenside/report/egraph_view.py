"""Shows an e-graph: as a widget in a running notebook, as a still picture elsewhere, and as an HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from glenside.egraph.part import part
from glenside.egraph.snapshot import Snapshot
from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name, suggestion
from glenside.report.egraph_picture import Picture
from glenside.report.egraph_record import egraph_record, priced
from glenside.targets.base import PricesNodes

if TYPE_CHECKING:
    from glenside.report.result import Result


class EGraphView:
    """A view of an e-graph; in a notebook the last value of a cell shows itself.

    what    further arguments of `egraph_record`
    height  height of the widget, in CSS units
    """

    def __init__(
        self, snapshot: Snapshot, choice: Mapping[int, int] | None = None, *, height: str = "640px", **what: Any
    ) -> None:
        self.snapshot, self.choice, self.height = snapshot, choice, height
        self._what = what

    @classmethod
    def of(cls, result: Result, layer: str | None = None) -> EGraphView:
        """Returns the view of the e-graph of a result, or of the part that one layer needs.

        Raises BadInput for an unknown layer.
        """
        target, answer, snapshot, choice = result.target, result.answer, result.egraph, result.choice
        roots, links, title = answer.roots, answer.stands_for, f"{result.original.name} on {target.name}"
        if layer is not None:
            if layer not in roots or not layer:
                known = [name for name in roots if name]
                raise BadInput(f"the program has no layer {spelled_name(layer)}{suggestion(layer, known)}")
            own = part(snapshot, roots[layer])
            links = {own.classes[a]: own.classes[b] for a, b in links.items() if {a, b} <= own.classes.keys()}
            named = {layer: roots[layer], **roots}  # the page begins at the first
            roots = {name: own.classes[c] for name, c in named.items() if c in own.classes}
            snapshot, choice, title = own.snapshot, own.choice(choice), f"{layer} of {title}"
        # E-nodes have costs if they were chosen one by one.
        costs = target.node_costs(snapshot) if isinstance(target, PricesNodes) else None
        costs = priced(snapshot, target.prices) if result.choice else costs
        return cls(snapshot, choice, costs=costs, roots=roots, links=links, known=_known(result), title=title)

    @cached_property
    def record(self) -> dict[str, Any]:
        """The content of the view, as JSON."""
        return egraph_record(self.snapshot, self.choice, **self._what)

    def page(self) -> str:
        """Returns the view as one self-contained HTML file."""
        from glenside.report.egraph_page import egraph_page

        return egraph_page(self.record)

    @cached_property
    def picture(self) -> Picture:
        """The e-classes nearest to the result, as a picture."""
        return Picture(self.record)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Returns the picture, for notebooks without IPython."""
        return {"text/plain": repr(self), "image/svg+xml": self.picture.svg()}

    def _ipython_display_(self) -> None:
        """Shows the picture, and with anywidget the widget, which hides it where it runs.

        They are two outputs: a file of a notebook that no kernel serves, such as static HTML, shows the picture.
        """
        display: Any = import_module("IPython.display").display
        display(self._repr_mimebundle_(), raw=True)
        if find_spec("anywidget") is not None:
            live = self.widget()._repr_mimebundle_()
            display({**(live[0] if isinstance(live, tuple) else live or {}), "text/plain": repr(self)}, raw=True)

    def widget(self) -> Any:
        """Returns the view as a widget. Raises ImportError without anywidget (the extra `notebooks`)."""
        from glenside.report.egraph_widget import EGraphWidget

        return EGraphWidget.of(self.record, self.height)

    def show(self) -> None:
        """Shows the view in a notebook, before the end of its cell."""
        self._ipython_display_()

    def __repr__(self) -> str:
        return f"<{self.snapshot.e_nodes:,} e-nodes in {self.snapshot.e_classes:,} e-classes>"


def _known(result: Result) -> dict[str, str]:
    """Returns a sentence on the cost of each layer, and of the whole program under ""."""
    known: dict[str, str] = {}
    report, objectives = result.report, result.report.objectives
    first = objectives[0] if objectives else ""
    if (amount := report.total.get(first)) is not None:
        proven = "" if report.lower_bound is None else f"; nothing takes less than {report.lower_bound:,}"
        known[""] = f"{amount:,} {report.units.get(first) or first}, layers and all{proven}"
    for row in report.layers:
        if (amount := row.measures.get(first)) is not None:
            proven = "" if row.lower_bound is None else f"; nothing takes less than {row.lower_bound:,}"
            known[row.name] = f"{row.label}: {amount:,} {report.units.get(first) or first}{proven}"
    return known
