"""Names of version 0.4, in report.json and in Python: they go with the next version, and say what became of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from glenside.ir.errors import renamed
from glenside.targets.base import Amounts

if TYPE_CHECKING:
    from glenside.report.report import Choice, LayerRow, Report

_Names = Mapping[str, tuple[str, Callable[[Any], Any]]]

_OF_JSON = {
    "layers[].cycles, tiles, bytes": "layers[].variants.chosen.measures",
    "layers[].usual_cycles": "layers[].variants.baseline.measures.cycles",
    "layers[].weight_bytes, mapped_weight_bytes": "layers[].variants.*.measures['weight bytes']",
    "layers[].mapping, layers[].choices.*.form": "layers[].label, layers[].variants.*.label",
    "layers[].choices": "layers[].variants",
    "totals.cycles ..": "totals.chosen.cycles ..",
    "units": "measures.*.unit",
    "before, after, bytes": "copies",
}
_OF_ARRAYS: Mapping[str, tuple[str, Callable[[LayerRow], int | None]]] = {
    "cycles": ("measures['cycles']", lambda row: row.measures["cycles"]),
    "tiles": ("measures['tiles']", lambda row: row.measures["tiles"]),
    "bytes": ("measures['bytes']", lambda row: row.measures["bytes"]),
    "usual_cycles": ("baseline['cycles']", lambda row: row.baseline["cycles"]),
    "weight_bytes": ("baseline['weight bytes']", lambda row: row.baseline["weight bytes"]),
    "mapped_weight_bytes": ("measures['weight bytes']", lambda row: row.measures["weight bytes"]),
}
_SUMS = (*_OF_ARRAYS, "lower_bound", "gap", "macs")
_OF_TOTALS = {
    **{name: new.replace("measures", "total") for name, (new, _) in _OF_ARRAYS.items()},
    **{"layers": "layers", "mapped": "mapped", "macs": "macs", "lower_bound": "lower_bound", "gap": "gap"},
}


class OldNames:
    """Attributes under their old names: `OLD` is the old name -> the new one in words, and what it stands for."""

    OLD: ClassVar[_Names] = {}

    if not TYPE_CHECKING:  # a type checker knows the new names only

        def __getattr__(self, name: str) -> Any:
            if name not in self.OLD:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            new, value_of = self.OLD[name]
            renamed(f"{type(self).__name__}.{name}", new)
            return value_of(self)


class OldChoiceNames(OldNames):
    """Of a variant of a layer."""

    OLD: ClassVar[_Names] = {"form": ("label", lambda choice: choice.label)}


class OldRowNames(OldNames):
    """Of a layer."""

    OLD: ClassVar[_Names] = {
        **_OF_ARRAYS,
        "mapping": ("label", lambda row: row.label),
        "choices": ("variants", lambda row: row.variants),
        "plan": ("details['plan']", lambda row: row.details.get("plan")),
    }


class OldReportNames(OldNames):
    """Of a report."""

    OLD: ClassVar[_Names] = {
        "rest": ("between_layers", lambda report: report.between_layers),
        "axes": ("front", lambda report: report.front),
    }


class OldResultNames(OldNames):
    """Of a result."""

    OLD: ClassVar[_Names] = {"policies": ("baselines", lambda result: result.baselines)}


class _Totals(dict[str, Amounts]):
    """Totals of baselines and of the answer, in which the sums over layers of an array are still found."""

    report: Report

    def __missing__(self, name: str) -> int | None:
        if name not in _OF_TOTALS or "weight bytes" not in self.report.total:
            raise KeyError(name)
        renamed(f"totals[{name!r}]", f"report.{_OF_TOTALS[name]}")
        return _sums(self.report)[name]


class _Cost(dict[str, "int | None"]):
    """What a whole program takes, in which measures are still attributes."""

    parts: Mapping[str, int]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            amounts = {**self.__dict__.get("parts", {}), **self}
            if name not in amounts:
                raise AttributeError(f"a cost has no attribute {name!r}")
            renamed(f"cost.{name}", f"cost[{name!r}]" if name in self else f"report.cost[{name!r}]")
            return amounts[name]


def with_old_totals(report: Report) -> Mapping[str, Amounts]:
    """The totals of a report, old names of sums included."""
    totals = _Totals(report.totals)
    totals.report = report
    return totals


def with_old_parts(report: Report) -> Amounts:
    """What the answer takes as a whole, parts of its cost included under their old names."""
    cost = _Cost(report.total)
    cost.parts = report.cost
    return cost


def with_old_keys(report: Report, content: dict[str, Any]) -> dict[str, Any]:
    """The content of report.json with the keys of version 0.4 beside those of today."""
    for row, made in zip(report.layers, content["layers"], strict=True):
        made.update(_layer(row))
    if "weight bytes" in report.total:
        content["totals"] |= _sums(report)
    content["units"] = dict(report.units)
    if "copies" in content:
        copies = content["copies"]
        content |= {"before": copies["as written"], "after": copies["chosen"]}
        content["bytes"] = {"before": copies["bytes"]["as written"], "after": copies["bytes"]["chosen"]}
        content |= {key: content["search"][key] for key in ("e_nodes", "e_classes", "iterations", "stopped")}
        content["kept"] = copies["kept"]
    return {**content, "deprecated": _OF_JSON}


def _sums(report: Report) -> dict[str, int]:
    """Sums over the layers of an array."""
    values = {name: value_of for name, (_, value_of) in _OF_ARRAYS.items()}
    sums = {
        name: sum((values[name](row) if name in values else getattr(row, name)) or 0 for row in report.layers)
        for name in _SUMS
    }
    return {"layers": len(report.layers), "mapped": report.mapped, **sums}


def _layer(row: LayerRow) -> dict[str, Any]:
    old: dict[str, Any] = {
        "choices": {name: _choice(c) for name, c in row.variants.items()},
        "front": [_choice(c) for c in row.front],
    }
    if "weight bytes" in row.measures:
        old |= {name: value_of(row) for name, (_, value_of) in _OF_ARRAYS.items()}
        old["mapping"] = row.label
    return old


def _choice(choice: Choice) -> dict[str, Any]:
    return {"label": choice.label, "form": choice.label, "measures": dict(choice.measures)}
