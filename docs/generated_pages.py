"""Generates the reference pages of the site from the records of the package, whenever MkDocs builds it."""

from __future__ import annotations

import ast
import csv
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import glenside as gl
from glenside.ir.reference import markdown
from glenside.npu.isa.encoding import bits, layout, operations, words
from glenside.npu.isa.fields import UNITS
from glenside.npu.isa.host_registers import in_markdown
from glenside.rewrites import RULES
from glenside.targets import TARGETS

ROOT = Path(__file__).parent.parent
_ROWS = 40  # of a table on the page of measurements


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages to the pages of the site."""
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=_escaped(make())))
    return files


def _escaped(text: str) -> str:
    """Escapes brackets outside of code and links, so that an index such as a[i][j] is no link."""
    parts = re.split(r"(```.*?```|`[^`\n]*`|^    [^\n]*$)", text, flags=re.DOTALL | re.MULTILINE)
    code = ("`", "    ")
    return "".join(part if part.startswith(code) else re.sub(r"\[(?![^\]]*\]\()", r"\\[", part) for part in parts)


def python() -> str:
    """Returns a page with a directive for mkdocstrings for each public name."""
    names = sorted(set(gl._EXPORTS) - gl._MODULES, key=str.lower)
    return "\n\n".join(
        ["# Python", "`import glenside as gl`. Names below are attributes of `gl`.", *map(_object, names)]
    )


def _object(name: str) -> str:
    return f"::: glenside.{name}"


def operators() -> str:
    """Returns the page of all operators, compute types and shape forms."""
    import glenside.ir.operators  # registers the records

    assert glenside.ir.operators
    return markdown()


def rules() -> str:
    """Returns the page of all rewrite rules, by family."""
    lines = [
        "# Rewrite rules",
        "",
        f"{len(RULES)} rules. `glenside rules NAME` prints the clauses and an example of a rule.",
    ]
    ordered = sorted(RULES.values(), key=lambda rule: (rule.family, rule.name))
    for family, members in groupby(ordered, key=lambda rule: rule.family):
        lines += ["", f"## {family}"]
        for rule in members:
            lines += ["", f"### {rule.name}", "", "```text", rule.doc, "```"]
    return "\n".join(lines)


def targets() -> str:
    """Returns the page of the built-in targets."""
    lines = ["# Targets", "", "A target is taken as text by every command and by `gl.parse_target`."]
    for entry in TARGETS.values():
        options = ", ".join(f"`{option.replace('_', '-')}`" for option in sorted(entry.options))
        lines += [
            "",
            f"## `{entry.usage}`",
            "",
            entry.doc,
            "",
            f"Objectives: {', '.join(f'`{o}`' for o in entry.objectives)}.",
        ]
        lines += ["", f"Options: {options or 'none'}."]
    return "\n".join(lines)


def npu_instructions() -> str:
    """Returns the page of the instructions and host registers of the npu."""
    lines = [
        "# Instructions of the npu",
        "",
        "Each unit has a queue of its own. [The npu](../npu.md) explains the machine.",
    ]
    for unit in UNITS:
        lines += ["", f"## {unit}", "", f"{bits(unit)} bits in {words(unit)} words. Layout, from bit 0 on:", ""]
        lines.append(", ".join(f"`{p.name}` {p.bits}{' signed' if p.signed else ''}" for p in layout(unit)) + ".")
        for code, kind in operations(unit).items():
            lines += [
                "",
                f"### {kind.mnemonic()}",
                "",
                f"Operation {code}. {' '.join((kind.__doc__ or '').split())}",
                "",
            ]
            lines += [f"- `{name}`: {field.doc}" for name, field in kind.kinds().items() if name != "wait"]
    return "\n".join([*lines, "", "## Host registers", "", in_markdown()])


def tutorial() -> str:
    """Returns the page of the tutorial: comments at the head of a section as text, the rest as code."""
    source = (ROOT / "examples" / "glenside_in_300_lines.py").read_text()
    said = "One file to run, on numpy alone. All of its source is on this page: `examples/glenside_in_300_lines.py`."
    head, *sections = re.split(r"^# --- (.*?) -*$\n", source, flags=re.MULTILINE)
    lines = ["# The idea in 300 lines", said, _code(head)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        comment = re.match(r"(?:#.*\n)*", body)
        assert comment is not None
        words = re.sub("^# ?", "", comment[0], flags=re.MULTILINE)
        lines += [f"## {title}", words, _code(body[comment.end() :])]
    return "\n\n".join(lines)


def _code(source: str) -> str:
    return f"```python\n{source.strip()}\n```"


def measurements() -> str:
    """Returns the page of all measurements, a table of each file of benchmarks/results."""
    lines = [
        "# Measurements",
        "",
        "All files of `benchmarks/results`, as the programs beside them wrote them. The first line of ",
    ]
    lines[-1] += "a file says on which machine. Most figures on other pages are taken from here."
    introduced = None
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.csv")):
        program = re.sub(r"(_xeon|_zen4|_busy|_others|_growth|_mpc|_cpu)+$", "", path.stem)
        lines += ["", f"## {path.stem.removeprefix('bench_').replace('_', ' ')}", ""]
        lines += _introduction(ROOT / "benchmarks" / f"{program}.py") if program != introduced else []
        introduced = program
        lines += _table(path.read_text())
    return "\n".join(lines)


def _introduction(program: Path) -> list[str]:
    """Returns the name and the docstring of a benchmark; nothing for a file that no benchmark wrote."""
    if not program.exists():
        return []
    return [f"`benchmarks/{program.name}`", "", ast.get_docstring(ast.parse(program.read_text())) or "", ""]


def _table(text: str) -> list[str]:
    """Formats a CSV file, whose comments begin with #, as a Markdown table; of a long one the first rows."""
    comments = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    header, *rows = csv.reader(line for line in text.splitlines() if line and not line.startswith("#"))
    width = max(map(len, [header, *rows[:_ROWS]]))
    cells = [[cell.replace("|", "/") for cell in row] + [""] * (width - len(row)) for row in (header, *rows[:_ROWS])]
    lines = [*(f"{comment}\n" for comment in comments), *(f"| {' | '.join(row)} |" for row in cells)]
    lines.insert(len(comments) + 1, "|" + "---|" * width)
    return lines + ([f"\n{len(rows) - _ROWS} more rows are in the file."] if len(rows) > _ROWS else [])


def changelog() -> str:
    """Returns the changelog, without links."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", (ROOT / "CHANGELOG.md").read_text())


def pytorch_operators() -> str:
    """Returns the page of the operators of PyTorch."""
    from glenside.importers.torch.reference import markdown

    return markdown()


PAGES = {
    "tutorial.md": tutorial,
    "reference/python.md": python,
    "reference/operators.md": operators,
    "reference/rules.md": rules,
    "reference/targets.md": targets,
    "reference/pytorch-operators.md": pytorch_operators,
    "reference/instructions.md": npu_instructions,
    "measurements.md": measurements,
    "changelog.md": changelog,
}
