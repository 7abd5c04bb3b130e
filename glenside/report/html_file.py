"""Writes pages as one HTML file that fetches nothing and runs only its own scripts; its Content-Security-Policy lists
them by hash.
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
from pathlib import Path
from typing import Any

from glenside.ir.errors import BadInput

_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


@cache
def source(name: str) -> str:
    """Returns a file of the pages' folder."""
    return (files("glenside.report") / "page" / name).read_text(encoding="utf-8")


def joined(*names: str) -> str:
    """Joins modules into one script: each is in the scope of those before it, so imports and exports are removed."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", source(name))) for name in names)


@cache
def worker_text() -> str:
    """Returns the script that computes layouts: dagre, and the conversion to columns and edges."""
    vendored = re.sub(r"^//# sourceMappingURL=.*$", "", source("vendor/dagre.min.js"), flags=re.MULTILINE)
    licence = "\n".join(f"// {line}" for line in source("vendor/dagre.LICENSE").strip().splitlines())
    return f"// @dagrejs/dagre\n{licence}\n{vendored}\n{joined('layout.js', 'worker.js')}"


def html_file(title: str, body: str, *, script: str, sheet: str, records: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a page. `body` is trusted markup. Texts from elsewhere are in `records`, which become data blocks by
    their ids; the script makes text nodes of them, never markup.
    """
    worker = worker_text()
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
    blocks = (
        f'<script id="{name}" type="application/json">{data(record)}</script>' for name, record in records.items()
    )
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy, quote=False)}">',
            '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">',
            f"<title>{html.escape(title)}</title><style>{sheet}</style></head>",
            f"<body>{body}",
            *blocks,
            f'<script id="worker" type="text/plain">{worker}</script>',
            f'<script type="module">{script}</script></body></html>',
            "",
        )
    )


def require_page(path: str | None) -> None:
    """Raises BadInput unless a page can be written to the path."""
    if path is not None and Path(path).suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"a page is written as .html, got {path}")


def data(record: Mapping[str, Any]) -> str:
    """Returns JSON that cannot end a script element: without `<`, and in ASCII."""
    return json.dumps(record, separators=(",", ":")).replace("<", "\\u003c")


def _hashed(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest())
    return f"'sha256-{digest.decode('ascii')}'"
