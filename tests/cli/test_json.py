"""Every command that prints a table prints the same as JSON, alone on standard output, with keys that stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from command_line import run

from glenside.cli.application import app

WITHOUT = {"optimize": "prints a program; --emit report is JSON", "assemble": "prints a program"}
"""Commands that print no table."""
PROGRAM = """(input x (shape 4 6))
(constant w (shape 8 6))
(compute relu (compute dot-product (access-product (access (access-tensor x) 1) (access (access-tensor w) 1) 0)))
"""
NETWORK = """(input x (shape 2 6))
(constant w (shape 3 6))
(compute dot-product (access-product (access (access-tensor x) 1) (access (access-tensor w) 1) 0))
"""
RESULT = {"program", "target", "objectives", "measures", "layers", "totals", "search", "seconds", "checked", "notes"}
COMMANDS: dict[str, tuple[list[str], set[str]]] = {
    "tensorize": (["p.glenside", "--array", "4x4"], RESULT),
    "compare": (["p.glenside", "--array", "4x4"], RESULT),
    "layout": (["p.glenside"], RESULT),
    "sweep": (["p.glenside", "--arrays", "4x4"], {"cells", "interrupted"}),
    "extract": (["egraph.json"], {"dag_cost", "tree_cost", "bound", "proven", "stopped"}),
    "winograd": (["2", "3"], set()),
    "models": ([], {"name", "about"}),
    "ops": ([], {"name", "arguments", "about"}),
    "rules": ([], {"name", "family", "about"}),
    "targets": ([], {"name", "about"}),
    "check": (["p.glenside", "p.glenside"], {"program", "other", "ok", "result", "layers", "how", "seconds"}),
    "compile": (["p.glenside", "--emit", "passes"], {"program", "machines"}),
    "bench": (["p.glenside", "--rounds", "2", "--peers", "none"], {"program", "machine", "rows", "nests", "notes"}),
    "train": (["n.glenside", "d.npz", "--epochs", "2"], {"program", "epochs", "interrupted"}),
}
ELSEWHERE = {
    "run": "with --on spu and of an npu: tests/npu, tests/execution",
    "calibrate": "takes minutes: tests/execution",
    "area": "needs Yosys: tests/npu",
    "fuzz": "tests/fuzzing",
}


def commands() -> dict[str, Any]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return dict(group.commands)


def test_every_command_with_a_table_has_json() -> None:
    having = {name for name, c in commands().items() if any("--json" in p.opts for p in c.params)}
    assert having == set(commands()) - set(WITHOUT)
    assert having == set(COMMANDS) | set(ELSEWHERE)


NEEDS_COMPILER = ("compile", "bench")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.needs_compiler] * (n in NEEDS_COMPILER)) for n in COMMANDS]
)
def test_json_is_alone_and_has_its_keys(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.glenside").write_text(PROGRAM)
    Path("n.glenside").write_text(NETWORK)
    generator = np.random.default_rng(0)
    np.savez("d.npz", x=generator.standard_normal((8, 6)).astype("f4"), labels=generator.integers(0, 3, 8))
    node = {"op": "a", "children": [], "eclass": "c", "cost": 1.0}
    Path("egraph.json").write_text(json.dumps({"nodes": {"n": node}, "root_eclasses": ["c"]}))
    arguments, keys = COMMANDS[name]
    assert run(name, *arguments, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert keys <= set(found[0] if isinstance(found, list) else found)
    takes_file = any("--json" in p.opts and not p.is_flag for p in commands()[name].params)
    if takes_file and name not in ("bench", "train"):
        assert run(name, *arguments, "--json", "out.json") == 0
        printed = capsys.readouterr().out
        assert printed.strip()
        assert not printed.startswith("{")
        assert set(json.loads(Path("out.json").read_text())) == set(found)


def test_json_is_refused_where_it_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.glenside").write_text(PROGRAM)
    for name in ("check", "compile", "bench"):
        assert (
            run(
                name,
                tmp_path / "p.glenside",
                "--emit=passes" if name == "compile" else "--seed=0",
                "--json",
                tmp_path / "no" / "x",
            )
            == 2
        )
        assert "there is no folder" in capsys.readouterr().err
