"""Keys of report.json as version 0.4 had them: they go with the next version; `deprecated` says what became of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glenside.report.report import Choice, LayerRow, Report

_OF_ARRAYS = {"cycles": "cycles", "tiles": "tiles", "bytes": "bytes", "weight_bytes": "weight bytes"}
_RENAMED = {
    "layers[].cycles, tiles, bytes": "layers[].variants.chosen.measures",
    "layers[].usual_cycles": "layers[].variants.baseline.measures.cycles",
    "layers[].weight_bytes, mapped_weight_bytes": "layers[].variants.*.measures['weight bytes']",
    "layers[].mapping, layers[].choices.*.form": "layers[].label, layers[].variants.*.label",
    "layers[].choices": "layers[].variants",
    "totals.cycles ..": "totals.chosen.cycles ..",
    "units": "measures.*.unit",
    "before, after, bytes": "copies",
}


def with_old_keys(report: Report, content: dict[str, Any]) -> dict[str, Any]:
    """The content with the keys of version 0.4 beside those of today."""
    for row, made in zip(report.layers, content["layers"], strict=True):
        made.update(_layer(report, row))
    if "weight bytes" in report.total:
        sums = {name: sum(made[name] or 0 for made in content["layers"]) for name in (*_SUMS, "macs")}
        content["totals"] |= {"layers": len(report.layers), "mapped": report.mapped, **sums}
    content["units"] = dict(report.units)
    if "copies" in content:
        copies = content["copies"]
        content |= {"before": copies["as written"], "after": copies["chosen"]}
        content["bytes"] = {"before": copies["bytes"]["as written"], "after": copies["bytes"]["chosen"]}
        content |= {key: content["search"][key] for key in ("e_nodes", "e_classes", "iterations", "stopped")}
        content["kept"] = copies["kept"]
    return {**content, "deprecated": _RENAMED}


_SUMS = ("tiles", "cycles", "usual_cycles", "lower_bound", "gap", "bytes", "weight_bytes", "mapped_weight_bytes")


def _layer(report: Report, row: LayerRow) -> dict[str, Any]:
    old: dict[str, Any] = {
        "choices": {name: _choice(c) for name, c in row.variants.items()},
        "front": [_choice(c) for c in row.front],
    }
    if "weight bytes" in row.measures:
        measures, baseline = row.measures, row.baseline
        old |= {name: measures.get(name) for name in ("cycles", "tiles", "bytes")}
        old |= {"usual_cycles": baseline["cycles"], "mapping": row.label}
        old |= {"weight_bytes": baseline["weight bytes"], "mapped_weight_bytes": measures["weight bytes"]}
    return old


def _choice(choice: Choice) -> dict[str, Any]:
    return {"label": choice.label, "form": choice.label, "measures": dict(choice.measures)}
