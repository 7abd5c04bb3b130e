"""Draws e-graphs as DOT, JSON, or an image, without a graphviz program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glenside.egraph.snapshot import ENode, Snapshot
from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from glenside.report.egraph_view import EGraphView


def node_label(node: ENode) -> str:
    """Returns the operator and its attributes: `access-slice 1 0 3`."""
    words = (f"({' '.join(map(str, a))})" if isinstance(a, tuple) else str(a) for a in node.attributes)
    return " ".join([node.operator, *words])


def nearest_classes(snapshot: Snapshot, limit: int) -> list[int]:
    """Returns up to `limit` classes: those nearest to the result first, then those that it does not reach."""
    found: dict[int, None] = {}
    for root in reversed(snapshot.program or (0,)):
        if root in found or len(found) >= limit:
            continue
        found[root] = None
        queue = [root]
        for eclass in queue:
            for index in snapshot.classes[eclass]:
                for child in snapshot.nodes[index].children:
                    if child not in found and len(found) < limit:
                        found[child] = None
                        queue.append(child)
    return list(found)


def left_out(snapshot: Snapshot, limit: int) -> str:
    """States in a sentence what a picture of `limit` classes leaves out; "" if nothing."""
    shown = nearest_classes(snapshot, limit)
    if len(shown) == snapshot.e_classes:
        return ""
    nodes = sum(len(snapshot.classes[c]) for c in shown)
    return (
        f"The picture shows the {len(shown)} of {snapshot.e_classes:,} e-classes that are nearest to the result, with "
        f"{nodes:,} of {snapshot.e_nodes:,} e-nodes; the .json has all of them."
    )


def egraph_dot(snapshot: Snapshot, choice: Mapping[int, int] | None = None, limit: int = 200) -> str:
    """Returns DOT text: a cluster for each e-class, a box for each e-node; chosen ones are filled."""
    chosen, shown = set((choice or {}).values()), nearest_classes(snapshot, limit)
    lines = ["digraph egraph {", "  compound=true; node [shape=box, fontsize=10]; rankdir=TB;"]
    sentence = left_out(snapshot, limit)
    if sentence:
        lines.append(f"  label={json.dumps(sentence)};")
    for c in shown:
        lines.append(f"  subgraph cluster_{c} {{ style=dashed; label={json.dumps(str(snapshot.types[c] or ''))};")
        for i in snapshot.classes[c]:
            fill = ', style=filled, fillcolor="#cfe8cf"' if i in chosen else ""
            lines.append(f"    n{i} [label={json.dumps(node_label(snapshot.nodes[i]))}{fill}];")
        lines.append("  }")
    inside = set(shown)
    for c in shown:
        for i in snapshot.classes[c]:
            for child in snapshot.nodes[i].children:
                if child in inside:
                    lines.append(f"  n{i} -> n{snapshot.classes[child][0]} [lhead=cluster_{child}];")
    return "\n".join([*lines, "}"]) + "\n"


def egraph_json(snapshot: Snapshot, choice: Mapping[int, int] | None = None) -> dict[str, Any]:
    """Returns the whole e-graph: classes with type and e-nodes; e-nodes with operator, attributes, children, and if
    chosen.
    """
    chosen = set((choice or {}).values())
    return {
        "classes": [
            {"type": str(t) if t else None, "nodes": list(members)}
            for t, members in zip(snapshot.types, snapshot.classes, strict=True)
        ],
        "nodes": [
            {
                "operator": node.operator,
                "attributes": [list(a) if isinstance(a, tuple) else a for a in node.attributes],
                "children": list(node.children),
                "class": snapshot.owner[i],
                "chosen": i in chosen,
            }
            for i, node in enumerate(snapshot.nodes)
        ],
        "result": snapshot.program[-1] if snapshot.program else None,
    }


ENDINGS = (".html", ".svg", ".dot", ".gv", ".json", ".png", ".pdf")


def require_ending(path: str) -> str:
    """Returns the ending of a path for an e-graph. Raises BadInput for an unknown one."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise BadInput(f"an e-graph is written as {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, got {path}")
    return ending


def write_egraph(view: EGraphView, path: str) -> str:
    """Writes a view in the format of the ending, one of `ENDINGS`. Returns what it leaves out as a sentence, or "".

    Raises BadInput for another ending or a path that cannot be written.
    """
    from glenside.ir.files import write_text

    snapshot, choice, ending = view.snapshot, view.choice, require_ending(path)
    if ending == ".html":
        write_text(path, view.page())
        return ""
    if ending == ".svg":
        write_text(path, view.picture.svg())
        return view.picture.left_out
    if ending in (".dot", ".gv"):
        write_text(path, egraph_dot(snapshot, choice))
        return left_out(snapshot, 200)
    if ending == ".json":
        write_text(path, json.dumps(egraph_json(snapshot, choice)) + "\n")
        return ""
    from glenside.report.egraph_figure import egraph_figure
    from glenside.report.plots import write_figure

    write_figure(egraph_figure(view.picture), path, dpi="figure")
    return view.picture.left_out
