"""Tests the installation: one package name, which shadows no other."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["rewrites", "extract"])
def test_a_module_of_a_user_beside_his_script_is_his(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("mine = True\n")
    script = f"""
import {name}, glenside as gl
assert {name}.mine
p = gl.parse("(compute relu (access (access-tensor x) 1))", shapes={{"x": (3, 4)}})
print(gl.optimize(p, gl.SystolicArray(2, 2)).check().result)
"""
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "exact", "")


@pytest.mark.parametrize("name", ["rewrites", "extract"])
def test_a_folder_of_the_repository_has_one_name(name: str) -> None:
    command = [sys.executable, "-c", f"import {name}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == f"ImportError: the package is glenside.{name}: import it by that name"


@pytest.mark.slow
def test_a_wheel_holds_the_package_glenside_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {name.split("/")[0] for name in names} == {"glenside", f"glenside-{version}.dist-info"}
    for folder in ("rewrites", "extract"):
        own = {str(p.relative_to(ROOT)) for p in (ROOT / folder).rglob("*.py")}
        assert own
        assert {f"glenside/{name}" for name in own} <= set(names)
