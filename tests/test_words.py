"""Tests that documents and `--help` use the field's terms: words that only this project used are banned.

CONTRIBUTING's glossary says what to write instead. Words of its third column that also have a plain meaning cannot be
banned by their spelling, and are not: place, share, lane, turn, border, band, room, known, alike, side, form, bring.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from glenside.cli.application import app

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

BANNED = {
    r"what (it|they) (is|are) made of": "operands",
    r"from afar": "from memory",
    r"lines? of the cache": "cache line",
    r"has held other things": "evicted",
    r"what none takes less than": "lower bound",
    r"in whole numbers": "integer program",
    r"strip by strip": "strip-mined",
    r"stays? in the lanes": "on chip",
    r"from sums to bytes": "requantize",
    r"sums of a tile": "accumulator",
    r"what must hold": "invariant",
    r"what fields cannot count": "legalize",
    r"aimed numbers?": "directed input",
    r"next to each other": "contiguous",
    r"how far apart": "stride",
    r"who (is|are) told": "callback",
    r"slowest chain": "critical path",
    r"written down": "emitted",
    r"told": "predicted, reported; told off by: prediction error",
    r"tells?": "predicts, reports",
    r"lies?": "is stored at, is in",
    r"prices?": "cost, cost model",
    r"lane tables?": "permutation table",
    r"takes? turns": "interleave, alternate",
    r"beforehand": "at compile time",
    r"taken together": "fused",
    r"made least": "minimized",
    r"cuts? off": "clamp, saturate",
    r"so many": "a number with a name and a unit",
    r"what (it|they|each|one|a \w+|an \w+) takes?": "its cost, latency, cycles",
}


def faults(text: str) -> list[str]:
    """Returns a sentence for each banned word in a text, without what stands in code."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    found = []
    for pattern, instead in BANNED.items():
        words = re.compile(rf"\b{pattern}\b".replace(" ", r"\s+"), re.IGNORECASE)
        for match in words.finditer(prose):
            found.append(f"{' '.join(match[0].split())!r} is not a term of the field; write: {instead}")
    return found


def helps() -> dict[str, str]:
    """Returns the text of each command and of its options."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {
        name: "\n".join([command.help or "", *(getattr(option, "help", None) or "" for option in command.params)])
        for name, command in group.commands.items()
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_use_the_fields_terms(path: Path) -> None:
    assert faults(path.read_text()) == []


def test_help_uses_the_fields_terms() -> None:
    assert {name: found for name, text in helps().items() if (found := faults(text))} == {}


def test_banned_words_are_found_over_lines_and_not_in_code() -> None:
    text = "its time cut\noff by 3 %, `cut off`, unfolded\n```\nstrip by strip\n```\nand Strip\n  by strip"
    assert [fault.split("'")[1] for fault in faults(text)] == ["Strip by strip", "cut off"]
    assert faults("untold, foretells, relies, cost") == []
    assert len(helps()) > 15
    assert all(helps().values())
