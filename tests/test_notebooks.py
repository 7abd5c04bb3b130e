"""Tests the notebooks: they run from top to bottom, hold declarations but no logic, and their pictures are as
committed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


LONG = ("02_mobilenet", "03_the_best_mapping", "04_variants_of_a_convolution", "06_train_on_digits",
        "07_layouts_of_super_resolution", "08_a_decoder")  # fmt: skip
RUN = [pytest.param(path, marks=[pytest.mark.slow] if path.stem in LONG else []) for path in NOTEBOOKS]


@pytest.mark.parametrize("path", RUN, ids=lambda p: p.stem)
def test_notebook_runs(path: Path) -> None:
    from nbclient import NotebookClient

    notebook = _read(path)
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}})
    client.execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_shows_pictures_and_defines_only_what_it_declares(path: Path) -> None:
    cells = [c for c in _read(path).cells if c.cell_type == "code"]
    pictures = [o for c in cells for o in c.outputs if {"image/png", "image/svg+xml"} & o.get("data", {}).keys()]
    assert len(pictures) >= 2
    for cell in cells:
        code = "\n".join(line for line in cell.source.splitlines() if not line.startswith("%"))
        assert not _logic(ast.parse(code))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_committed_outputs_are_for_every_reader(path: Path) -> None:
    """All cells were run, in order, and nothing went wrong; no widget that needs a kernel, no place of a machine."""
    notebook = _read(path)
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    assert [c.execution_count for c in cells] == [*range(1, len(cells) + 1)]
    assert "widgets" not in notebook.metadata
    assert path.stat().st_size < 400_000
    for output in (o for c in cells for o in c.outputs):
        assert output.output_type in ("stream", "execute_result", "display_data")
        assert output.get("name") != "stderr"
        said = str(output)
        assert not any(
            word in said for word in ("Traceback", "Warning", "widget-view", "/home/", "/work/", "/tmp/", "/root/")
        )
        picture = output.get("data", {}).get("image/svg+xml")
        assert picture is None or float(re.findall(r'width="([\d.]+)"', picture)[0]) <= 980  # a column of a notebook


def _read(path: Path) -> Any:
    import nbformat  # loading it takes seconds, which each process that collects tests would need

    return nbformat.read(path, as_version=4)


def _logic(tree: ast.Module) -> list[str]:
    """Returns the functions and classes that are neither a rule, nor a target, nor inside one."""
    declared: set[ast.AST] = set()
    for node in ast.walk(tree):
        words = node.decorator_list if isinstance(node, ast.FunctionDef) else getattr(node, "bases", [])
        names = {ast.unparse(word).partition("(")[0] for word in words}
        if names & {"rule", "target", "Target", "gl.rule", "gl.target"}:
            declared |= set(ast.walk(node))
    defined = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    return [n.name for n in defined if n not in declared]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 5
