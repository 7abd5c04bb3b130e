"""Loads optional packages, and tells the user how to install a missing one."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.interrupts import undisturbed

_NAME = "glenside"


def load(names: Iterable[str]) -> None:
    """Imports modules that declare records, each one whole: a half-imported one would be imported and declared again.

    Raises KeyboardInterrupt only between two modules.
    """
    for name in names:
        with undisturbed(then=True):
            import_module(name)


def import_onnx() -> Any:
    """Returns the package onnx. Raises BadInput."""
    try:
        return import_module("onnx")
    except ImportError:
        raise _absent("onnx", "ONNX files require") from None


def import_torch() -> Any:
    """Returns the package torch. Raises BadInput."""
    try:
        return import_module("torch")
    except ImportError:
        raise _absent("torch", "programs of PyTorch require", "torch") from None


def import_jax() -> Any:
    """Returns the package jax. Raises BadInput."""
    try:
        return import_module("jax")
    except ImportError:
        raise _absent("jax", "programs of JAX require", "jax") from None


def require_onnxruntime() -> str:
    """Returns the version of onnxruntime without importing it, since it runs in child processes. Raises BadInput."""
    from importlib.metadata import PackageNotFoundError, version

    if find_spec("onnxruntime") is None:
        raise _absent("onnxruntime", "a check in onnxruntime requires")
    try:
        return version("onnxruntime")
    except PackageNotFoundError:  # a build under another name
        return "of an unknown version"


def _absent(name: str, need: str, extra: str = "onnx") -> BadInput:
    return BadInput(f"{need} the package {name}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Returns the pip command that installs an extra of pyproject.toml.

    It names the source folder that this package is run or was installed from, or else the packages of the extra.
    """
    from importlib.metadata import requires  # as slow to import as much of this package

    folder, editable = _source_folder()
    if folder is not None:
        place = "." if folder == Path.cwd() else str(folder)
        return f"pip install {'-e ' if editable else ''}{shlex.quote(f'{place}[{extra}]')}"
    wanted = (re.match(r"([^;]*);.*extra == ['\"]([^'\"]+)", line) for line in requires(_NAME) or ())
    named = [shlex.quote(found[1].strip()) for found in wanted if found is not None and found[2] == extra]
    return f"pip install {' '.join(named)}"


def _source_folder() -> tuple[Path | None, bool]:
    """Returns the source folder, or None if it is gone, and True if the package is run from there."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    own = Path(__file__).resolve().parents[2]
    if (own / "pyproject.toml").is_file():
        return own, True
    try:
        known = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None, False
    url = urlsplit(str(known.get("url", "")))
    folder = Path(unquote(url.path))
    return (folder if url.scheme == "file" and (folder / "pyproject.toml").is_file() else None), False
