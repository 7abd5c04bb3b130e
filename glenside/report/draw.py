"""Pictures of e-graphs: DOT, JSON, or an image drawn here, so that no graphviz program is needed."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glenside.egraph.snapshot import ENode, Snapshot
from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from glenside.report.egraph_view import EGraphView

LARGEST = 60  # classes that a picture can show and a person can read
_WIDE, _HIGH = 3.0, 1.5  # inches for a class


def node_label(node: ENode) -> str:
    """`access-slice 1 0 3`: the operator and its attributes."""
    words = (f"({' '.join(map(str, a))})" if isinstance(a, tuple) else str(a) for a in node.attributes)
    return " ".join([node.operator, *words])


def nearest_classes(snapshot: Snapshot, limit: int) -> list[int]:
    """Up to `limit` classes, those nearest to the result first, then what it does not reach: layers on their own."""
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
    """What a picture of that many classes does not show, as a sentence; empty when it shows all."""
    shown = nearest_classes(snapshot, limit)
    if len(shown) == snapshot.e_classes:
        return ""
    nodes = sum(len(snapshot.classes[c]) for c in shown)
    return (
        f"The picture shows the {len(shown)} of {snapshot.e_classes:,} e-classes that are nearest to the result, with "
        f"{nodes:,} of {snapshot.e_nodes:,} e-nodes; the .json has all of them."
    )


def egraph_dot(snapshot: Snapshot, choice: Mapping[int, int] | None = None, limit: int = 200) -> str:
    """DOT text: a cluster for each e-class, a box for each e-node; those chosen are filled."""
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
    """All of it: classes with type and e-nodes, e-nodes with operator, attributes, children, whether chosen."""
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


def levels(snapshot: Snapshot, shown: Sequence[int]) -> list[list[int]]:
    """Rows of a drawing: operands stand below what reads them, except around cycles."""
    inside = set(shown)
    depth: dict[int, int] = {}
    for root in shown:  # what an earlier root reaches has its place already
        waiting = [] if root in depth else [(root, 0)]
        while waiting:
            c, level = waiting.pop()
            # A class sinks below its lowest reader; on a cycle it stops once it is as deep as there are classes.
            if depth.get(c, -1) >= level or level >= len(shown):
                continue
            depth[c] = level
            for i in snapshot.classes[c]:
                ahead = snapshot.nodes[i].children
                waiting += [(d, level + 1) for d in ahead if d in inside and d not in depth]
    rows: list[list[int]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for c in shown:
        rows[depth.get(c, 0)].append(c)
    return [row for row in rows if row]


def egraph_figure(snapshot: Snapshot, choice: Mapping[int, int] | None = None, limit: int = LARGEST) -> Any:
    """A matplotlib figure: a dashed box for each e-class with its type, its e-nodes inside, the chosen ones filled."""
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    shown = nearest_classes(snapshot, limit)
    rows, chosen = levels(snapshot, shown), set((choice or {}).values())
    width = max(len(row) for row in rows) * _WIDE
    tall = [max(len(snapshot.classes[c]) for c in row) * 0.28 + 1.0 for row in rows]
    figure = Figure(figsize=(max(width, 4.0), sum(tall) + 0.3), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(0, max(width, 4.0)), ylim=(-sum(tall) - 0.3, 0.1))
    axes.axis("off")
    place: dict[int, tuple[float, float, float]] = {}
    at: dict[int, tuple[float, float]] = {}
    top = 0.0
    for row, height in zip(rows, tall, strict=True):
        for position, c in enumerate(row):
            x = max(width, 4.0) * (position + 0.5) / len(row)
            size = len(snapshot.classes[c]) * 0.28 + 0.35
            place[c] = (x, top, size)
            box = FancyBboxPatch((x - 1.35, top - size), 2.7, size, boxstyle="round,pad=0.04", fill=False, ls="--")
            box.set_edgecolor("#888888")
            axes.add_patch(box)
            axes.text(x, top - 0.03, str(snapshot.types[c] or ""), ha="center", va="top", fontsize=7, color="#555555")
            for line, i in enumerate(snapshot.classes[c]):
                y = top - 0.38 - 0.28 * line
                at[i] = (x, y)
                label = node_label(snapshot.nodes[i])
                label = label if len(label) <= 42 else label[:40] + ".."
                fill = {"facecolor": "#cfe8cf" if i in chosen else "white", "edgecolor": "#444444", "pad": 1.5}
                axes.text(x, y, label, ha="center", va="center", fontsize=7, bbox=fill, zorder=3)
        top -= height
    for i, (x, y) in at.items():
        for d in dict.fromkeys(snapshot.nodes[i].children):
            if d in place:
                arrow = {"arrowstyle": "->", "lw": 0.7, "color": "#3366aa" if i in chosen else "#bbbbbb"}
                axes.annotate("", xy=(place[d][0], place[d][1] + 0.04), xytext=(x, y - 0.1), arrowprops=arrow, zorder=1)
    sentence = left_out(snapshot, limit)
    if sentence:
        axes.text(0, -sum(tall) - 0.2, sentence, fontsize=7, va="bottom")
    return figure


ENDINGS = (".html", ".svg", ".dot", ".gv", ".json", ".png", ".pdf")


def require_ending(path: str) -> str:
    """The ending of a path that an e-graph is written to. Raises BadInput for another."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise BadInput(f"an e-graph is written as {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, got {path}")
    return ending


def write_egraph(view: EGraphView, path: str) -> str:
    """Write a view by the ending, one of `ENDINGS`. Returns what it leaves out, in a sentence, or nothing.

    Raises BadInput for another ending or a path that cannot be written.
    """
    from glenside.ir.files import write_bytes, write_text

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
    picture = io.BytesIO()
    egraph_figure(snapshot, choice).savefig(picture, format=ending[1:], dpi=110)
    write_bytes(path, picture.getvalue())
    return left_out(snapshot, LARGEST)
