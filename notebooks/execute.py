"""Run the notebooks and keep what they show: python notebooks/execute.py [NOTEBOOK..], with the extra `notebooks`.

What only a running kernel can show is left out, as are times and versions: of an e-graph its still picture stays, which
every reader of notebooks draws. Who runs a cell again has the widget.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
LIVE = "application/vnd.jupyter.widget-view+json"


def kept(outputs: list[Any]) -> list[Any]:
    """Outputs without widgets, and without those of which nothing is left, such as a bar of progress that is over."""
    for output in outputs:
        data = output.get("data", {})
        if data.pop(LIVE, None):
            data.pop("text/html", None)  # in which a widget says what it is, where none can be shown
    return [o for o in outputs if o.output_type in ("stream", "error") or any(_said(o, kind) for kind in o.data)]


def _said(output: Any, kind: str) -> bool:
    return bool(output.data[kind]) and kind != "text/plain" or output.output_type == "execute_result"


def execute(path: Path) -> None:
    """Run one from top to bottom in the root of the repository, and write it back. Raises what a cell raises."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(HERE.parent)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where, store_widget_state=False).execute()
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = kept(cell.outputs)
    nbformat.write(notebook, path)


def main() -> None:
    """Run those that are named, or all."""
    for path in [Path(name) for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
        execute(path)
        print(f"{path.name:<48}{path.stat().st_size:>8,} bytes")


if __name__ == "__main__":
    main()
