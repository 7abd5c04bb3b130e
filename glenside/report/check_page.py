"""Builds the page of a check: the parts compared, the method, and the verdict on each part."""

from __future__ import annotations

from collections.abc import Mapping

from glenside.check import is_equal
from glenside.ir.names import one_line
from glenside.report.document import Document, Facts, Grid, Section, asked
from glenside.report.text import Column, Table, table_html


def check_document(
    title: str, what: str, verdicts: Mapping[str, str], result: str, how: str, facts: Mapping[str, str]
) -> Document:
    """Returns the page of a check. `what` names the parts that have a verdict, such as a layer; `result` is the verdict
    on the whole, or "".
    """
    wrong = frozenset(i for i, verdict in enumerate(verdicts.values()) if not is_equal(verdict))
    table = Table(
        [
            Column(what, [*verdicts], words=True, folds=True),
            Column("verdict", [*map(one_line, verdicts.values())], words=True, folds=True),
        ],
        wrong,
    )
    good = len(verdicts) - len(wrong)
    whole = f"The result: {one_line(result)}. " if result else ""
    parts = f"Of {len(verdicts)} {what}s {good} are equal." if verdicts else ""
    sections = [
        Section("What was compared", [Grid("", table)] if verdicts else []),
        Section("How it was checked", [Facts([*([("result", result)] if result else []), ("how", how)])]),
        asked(facts.items()),
    ]
    return Document(title, f"{whole}{parts}".strip(), sections, plain=table_html(table))
