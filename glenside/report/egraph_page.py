"""An e-graph as a file that one walks through in a browser: one HTML page that fetches nothing and runs only its own
script, which its Content-Security-Policy names by hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

_MODULES = ("model.js", "walk.js", "draw.js", "layouts.js", "panel.js", "app.js")
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_PAGE_STYLE = "html, body { margin: 0; height: 100%; } #egraph { height: 100%; }"


@cache
def _source(name: str) -> str:
    return (files("glenside.report") / "page" / name).read_text(encoding="utf-8")


def joined(*names: str) -> str:
    """Modules as one script: each is in the scope of those before it, so imports and exports fall away."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _source(name))) for name in names)


@cache
def worker_text() -> str:
    """The script that lays out: dagre, and what makes columns and edges of it."""
    vendored = re.sub(r"^//# sourceMappingURL=.*$", "", _source("vendor/dagre.min.js"), flags=re.MULTILINE)
    licence = "\n".join(f"// {line}" for line in _source("vendor/dagre.LICENSE").strip().splitlines())
    return f"// @dagrejs/dagre\n{licence}\n{vendored}\n{joined('layout.js', 'worker.js')}"


@cache
def widget_module() -> str:
    """The viewer as an ES module for anywidget."""
    return joined(*_MODULES, "widget.js")


@cache
def style() -> str:
    """The style sheet of the viewer."""
    return _source("style.css")


def egraph_page(record: Mapping[str, Any]) -> str:
    """The page of a record of `egraph_record`, whose texts stand in it as data and become text nodes, never markup."""
    script, worker = joined(*_MODULES, "file.js"), worker_text()
    sheet = f"{_PAGE_STYLE}\n{style()}"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hashed(script)} {_hashed(worker)}",
            f"style-src {_hashed(sheet)}",
            "worker-src blob:",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    title = html.escape(str(record["title"]) or "e-graph")
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy, quote=False)}">',
            '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">',
            f"<title>{title}</title><style>{sheet}</style></head>",
            '<body><main id="egraph"><noscript>This page draws an e-graph by a script, and scripts are off.</noscript>',
            f'</main><script id="record" type="application/json">{data(record)}</script>',
            f'<script id="worker" type="text/plain">{worker}</script>',
            f'<script type="module">{script}</script></body></html>',
            "",
        )
    )


def data(record: Mapping[str, Any]) -> str:
    """JSON that no text in it can end: it has no `<`, and nothing beyond ASCII."""
    return json.dumps(record, separators=(",", ":")).replace("<", "\\u003c")


def _hashed(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest())
    return f"'sha256-{digest.decode('ascii')}'"
