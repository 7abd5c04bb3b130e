"""The direction of dependence, and that everything declared is documented."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import glenside.ir.operators
from glenside.ir.operator import COMPUTES, OPERATORS
from glenside.targets import TARGETS

ROOT = Path(__file__).parent.parent
FILES = [p for name in ("glenside", "rewrites", "extract") for p in sorted((ROOT / name).rglob("*.py"))]

# What a layer may import of ours; the longest prefix of a module's name decides.
LAYERS = {
    "glenside.ir": ("glenside.ir",),
    "glenside.target": ("glenside.ir", "glenside.target"),
    "glenside.egraph": ("glenside.ir", "glenside.egraph"),
    "rewrites": (
        "glenside.ir",
        "glenside.target",
        "glenside.egraph.rule",
        "glenside.egraph.tables",
        "glenside.egraph.type_rules",
        "rewrites",
    ),
    "extract": ("glenside.ir", "extract"),
}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def _within(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in prefixes)


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_layers_depend_in_one_direction(path: Path) -> None:
    layer = next((p for p in LAYERS if _within(_module(path), (p,))), None)
    ours = {m for m in _imports(path) if _within(m, ("glenside", "rewrites", "extract"))}
    if layer is not None:
        assert all(_within(m, LAYERS[layer]) for m in ours), f"{path} imports {ours}"


def test_one_module_imports_egglog() -> None:
    users = [_module(p) for p in FILES if any(_within(m, ("egglog",)) for m in _imports(p))]
    assert users == ["glenside.egraph.saturation"]


def test_nothing_is_evaluated_or_unpickled_but_between_our_own_processes() -> None:
    for path in FILES:
        calls = [n.func for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
        names = {c.id for c in calls if isinstance(c, ast.Name)} | {
            f"{c.value.id}.{c.attr}" for c in calls if isinstance(c, ast.Attribute) and isinstance(c.value, ast.Name)
        }
        assert not names & {"eval", "exec", "compile"}, path
        if _module(path) not in ("glenside.egraph.search", "glenside.egraph.worker"):
            assert not names & {"pickle.load", "pickle.loads"}, path


def test_everything_declared_is_documented() -> None:
    assert glenside.ir.operators.__doc__
    for record in (*OPERATORS.values(), *COMPUTES.values()):
        assert record.doc.endswith("."), record.name
    assert all(entry.doc for entry in TARGETS.values())


@pytest.mark.parametrize("path", FILES, ids=_module)
def test_a_file_is_one_idea(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 420
