"""`glenside models`, `ops`, `rules` and `targets`: listings."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from glenside.cli.options import Json
from glenside.ir.errors import BadInput
from glenside.ir.names import one_line

OperatorName = Annotated[str | None, typer.Argument(metavar="NAME", help="An operator or a compute type to show.")]
RuleName = Annotated[str | None, typer.Argument(metavar="NAME", help="A rule to show.")]


def models(as_json: Json = False) -> None:
    """List the built-in models."""
    from glenside.models import models as known

    _listing([{"name": name, "about": line} for name, line in known().items()], as_json)


def ops(name: OperatorName = None, as_json: Json = False) -> None:
    """List the operators and compute types, or show one: its syntax, kind, properties and element mapping."""
    import glenside.ir.operators
    from glenside.ir.names import suggestion
    from glenside.ir.operator import COMPUTES, OPERATORS
    from glenside.ir.reference import described

    assert glenside.ir.operators
    if name is not None:
        record = OPERATORS.get(name) or COMPUTES.get(name)
        if record is None:
            hint = suggestion(name, {**OPERATORS, **COMPUTES}) or "; `glenside ops` lists them"
            raise BadInput(f"unknown operator {one_line(name)}{hint}")
        row = described(record)
        print(json.dumps(row, indent=1) if as_json else "\n".join(f"{what}: {words}" for what, words in row.items()))
        return
    rows = [
        {"name": o.name, "arguments": " ".join(f.name for f in o.fields), "about": _line(o.doc)}
        for o in OPERATORS.values()
    ]
    rows += [
        {"name": f"compute {c.name}", "arguments": " ".join(f.name for f in c.parameters), "about": _line(c.doc)}
        for c in COMPUTES.values()
    ]
    _listing(sorted(rows, key=lambda row: row["name"]), as_json)


def rules(name: RuleName = None, as_json: Json = False) -> None:
    """List the rewrite rules, by family, or show one: its equation, clauses, reason and an example."""
    from glenside.algebra.scalar_rules import SCALAR_RULES
    from glenside.ir.names import suggestion
    from glenside.proofs.status import summary
    from glenside.report.rule_page import rule_page
    from glenside.rewrites import all_rules

    known = all_rules()
    if name is not None and name in SCALAR_RULES:
        page = SCALAR_RULES[name].page()
        print(json.dumps(page, indent=2) if as_json else "\n".join(f"{key}: {value}" for key, value in page.items()))
        return
    if name is not None:
        if name not in known:
            hint = suggestion(name, [*known, *SCALAR_RULES]) or "; `glenside rules` lists them"
            raise BadInput(f"unknown rule {one_line(name)}{hint}")
        shown = rule_page(known[name])
        print(json.dumps(asdict(shown), indent=2) if as_json else shown)
        return
    by_family = sorted(known.values(), key=lambda r: (r.family, r.name))
    rows = [{"name": r.name, "family": r.family, "proofs": summary(r), "about": r.equation} for r in by_family]
    scalar = SCALAR_RULES.values()
    rows += [{"name": r.name, "family": "scalar-rules", "proofs": "by tests", "about": f"{r}."} for r in scalar]
    _listing(rows, as_json)


def targets(as_json: Json = False) -> None:
    """List the targets."""
    from glenside.targets import TARGETS

    _listing([{"name": entry.usage, "about": _line(entry.doc)} for entry in TARGETS.values()], as_json)


def _line(doc: str) -> str:
    return " ".join(doc.split("\n\n")[0].split())


def _listing(rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.table import Table

    from glenside.cli.table import console

    table = Table(box=None, show_header=False, pad_edge=False)
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for row in rows:
        table.add_row(*row.values())
    console().print(table, markup=False)
