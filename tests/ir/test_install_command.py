"""Tests that the command which installs an extra names an existing source."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from glenside.ir import packages
from glenside.ir.packages import install_command

REQUIRES = metadata.requires("glenside")
CLONE = Path(packages.__file__).resolve().parents[2]


class _Installed:
    """What pip notes about where a distribution came from."""

    def __init__(self, text: str | None) -> None:
        self.text, self.requires = text, REQUIRES

    def read_text(self, name: str) -> str | None:
        return self.text


def test_a_clone_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert install_command("onnx") == f"pip install -e '{CLONE}[onnx]'"
    monkeypatch.chdir(CLONE)
    assert install_command("onnx") == "pip install -e '.[onnx]'"


def test_what_was_installed_from_a_folder_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "my clone"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    direct = json.dumps({"url": folder.as_uri(), "dir_info": {}})
    monkeypatch.setattr(packages, "__file__", str(tmp_path / "site-packages" / "glenside" / "ir" / "packages.py"))
    monkeypatch.setattr(metadata, "distribution", lambda name: _Installed(direct))
    assert install_command("rtl") == f"pip install '{folder}[rtl]'"


@pytest.mark.parametrize("direct", [None, "", '{"url": "file:///nowhere/at/all"}', '{"url": "https://x.org/a.whl"}'])
def test_elsewhere_the_packages_are_named(direct: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(packages, "__file__", str(tmp_path / "site-packages" / "glenside" / "ir" / "packages.py"))
    monkeypatch.setattr(metadata, "distribution", lambda name: _Installed(direct))
    found = install_command("onnx")
    assert found.startswith("pip install ")
    assert "'onnx<2,>=1.17'" in found
    assert "glenside" not in found
