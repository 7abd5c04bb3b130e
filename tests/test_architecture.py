"""Tests the architecture: which package may import which, and that everything declared is documented."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

import glenside.ir.operators
from glenside.ir.operator import COMPUTES, OPERATORS
from glenside.targets import TARGETS, load_all
from glenside.targets.base import Target

ROOT = Path(__file__).parent.parent
LINKED = ("rewrites", "extract")  # folders of the repository that are packages of glenside
FILES = [p for name in ("glenside", *LINKED) for p in sorted((ROOT / name).rglob("*.py"))]

# From the ground up: a package imports its own line and the lines before it, and no other.
STOREYS = (
    ("glenside.extract",),
    ("glenside.ir",),
    ("glenside.cache.store",),
    ("glenside.cache.objects",),
    ("glenside.semantics",),
    ("glenside.egraph",),
    ("glenside.targets.base",),
    ("glenside.rewrites",),
    ("glenside.proofs",),
    ("glenside.builder",),
    ("glenside.models",),
    ("glenside.analysis",),
    ("glenside.gradients",),
    ("glenside.algebra",),
    ("glenside.passes",),
    ("glenside.quantization",),
    ("glenside.codegen",),
    ("glenside.npu",),
    ("glenside.targets",),
    ("glenside.importers",),
    ("glenside.exporters",),
    ("glenside.formats",),
    ("glenside.execution",),
    ("glenside.check",),
    ("glenside.report",),
    ("glenside.cache",),
    ("glenside",),  # the door and the driver
    ("glenside.dynamo",),
    ("glenside.training",),
    ("glenside.sweep",),
    ("glenside.fuzzing",),
    ("glenside.cli",),
    ("glenside.__main__",),
)
OUR_OWN = (
    "glenside.egraph.process",
    "glenside.egraph.worker",
    "glenside.npu.lowering.emission.infer_synchronization_forked",
)
HEIGHT = {name: height for height, names in enumerate(STOREYS) for name in names}


def _module(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return f"glenside.{name}" if name.split(".")[0] in LINKED else name


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imports(path: Path) -> set[str]:
    """What a file imports, those inside functions too; not what only the type checker sees."""
    found: set[str] = set()
    stack: list[ast.AST] = [_tree(path)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            stack += node.orelse
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            stack += ast.iter_child_nodes(node)
    return found


def _within(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in prefixes)


@cache
def _storey(module: str) -> str:
    return next(name for name in sorted(HEIGHT, key=len, reverse=True) if _within(module, (name,)))


def test_nothing_imports_upwards() -> None:
    upwards = []
    for path in FILES:
        own = _storey(_module(path))
        for imported in _imports(path):
            if not _within(imported, ("glenside",)) or imported == "glenside":
                continue
            other = _storey(imported)
            if own != other and HEIGHT[other] >= HEIGHT[own]:
                upwards.append(f"{_module(path)}, of {own}, imports {imported}")
    assert upwards == []


def test_the_top_holds_the_door_and_the_driver_alone() -> None:
    top = {p.name for p in (ROOT / "glenside").glob("*.py")}
    assert top == {"__init__.py", "__main__.py", "driver.py", "stages.py"}


def _subclasses(kind: type) -> set[type]:
    return {kind}.union(*(_subclasses(below) for below in kind.__subclasses__()))


def test_no_code_but_that_of_targets_asks_which_target_it_has() -> None:
    load_all()
    names = {kind.__name__ for kind in _subclasses(Target)}
    assert {"Target", "SystolicArray", "MPC", "CPU", "ConvolutionUnit"} <= names
    names.remove("Target")  # whether something is one at all may be asked of what a user gives
    asking = []
    for path in (p for p in FILES if not _within(_module(p), ("glenside.targets",))):
        for node in ast.walk(_tree(path)):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id
            if called in ("isinstance", "issubclass") and isinstance(node, ast.Call):
                asked = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                asked |= {n.attr for n in ast.walk(node.args[1]) if isinstance(n, ast.Attribute)}
                asking += [f"{_module(path)}:{node.lineno} {name}" for name in sorted(asked & names)]
            elif isinstance(node, ast.MatchClass):
                what = node.cls
                name = what.id if isinstance(what, ast.Name) else what.attr if isinstance(what, ast.Attribute) else ""
                asking += [f"{_module(path)}:{what.lineno} {name}"] if name in names else []
    assert asking == []


def _circles(graph: nx.DiGraph) -> list[set[str]]:
    return [circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1]


@cache
def _import_graph(in_functions: bool) -> nx.DiGraph:
    """Returns module -> the modules that it imports at run time, inside functions too if these count."""
    modules = {_module(path): path for path in FILES}
    graph = nx.DiGraph()
    for name, path in modules.items():
        stack: list[ast.AST] = [_tree(path)]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                stack += node.orelse
            elif isinstance(node, ast.ImportFrom) and node.module:
                found = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys() or {node.module}
                graph.add_edges_from((name, other) for other in found if other in modules and other != "glenside")
            elif in_functions or not isinstance(node, ast.FunctionDef):
                stack += ast.iter_child_nodes(node)
    return graph


def test_no_modules_import_each_other() -> None:
    graph = _import_graph(in_functions=False)
    assert graph.number_of_edges() > 2_000
    assert _circles(graph) == []


def test_functions_import_in_a_circle_only_where_an_object_prints_or_runs_itself() -> None:
    """A term prints itself by the printer, a program of the npu runs itself, a `CPU` may be a compiled one."""
    circles = _circles(_import_graph(in_functions=True))
    inside = [{name for name in ("glenside.ir", "glenside.npu", "glenside.targets.cpu") if
               all(_within(module, (name,)) for module in circle)} for circle in circles]  # fmt: skip
    assert sorted(map(sorted, inside)) == [["glenside.ir"], ["glenside.npu"], ["glenside.targets.cpu"]]


@pytest.mark.parametrize("package", ["codegen", "rewrites", "passes", "targets"])
def test_folders_import_each_other_in_no_circle(package: str) -> None:
    packages = {_module(path) for path in FILES if path.name == "__init__.py"}
    graph = nx.DiGraph()
    for name, other in _import_graph(in_functions=True).edges:
        own, theirs = (n if n in packages else n.rpartition(".")[0] for n in (name, other))
        apart = not _within(own, (theirs,)) and not _within(theirs, (own,))
        if apart and all(_within(n, (f"glenside.{package}",)) for n in (own, theirs)):
            graph.add_edge(own, theirs)
    assert _circles(graph) == []


def test_targets_do_not_import_sibling_targets() -> None:
    folders = {path.parent for path in (ROOT / "glenside" / "targets").glob("*/target.py")}
    packages = {f"glenside.targets.{folder.name}" for folder in folders} - {"glenside.targets.base"}
    assert len(packages) >= 5
    wrong = [
        f"{_module(path)} imports {imported}"
        for path in FILES
        for own in packages
        if _within(_module(path), (own,))
        for imported in _imports(path)
        if _within(imported, tuple(packages - {own}))
    ]
    assert wrong == []


def test_one_module_imports_egglog() -> None:
    users = [_module(p) for p in FILES if "egglog" in {name.split(".")[0] for name in _imports(p)}]
    assert users == []  # the native module is loaded by its name, without the Python language around it
    typed = [_module(p) for p in FILES if "from egglog import" in p.read_text(encoding="utf-8")]
    assert typed == ["glenside.egraph.saturation"]


def test_nothing_is_evaluated_or_unpickled_but_between_our_own_processes() -> None:
    for path in FILES:
        calls = [n.func for n in ast.walk(_tree(path)) if isinstance(n, ast.Call)]
        names = {c.id for c in calls if isinstance(c, ast.Name)} | {
            f"{c.value.id}.{c.attr}" for c in calls if isinstance(c, ast.Attribute) and isinstance(c.value, ast.Name)
        }
        assert not names & {"eval", "exec", "compile"}, path
        if _module(path) not in OUR_OWN:
            assert not names & {"pickle.load", "pickle.loads"}, path


def test_everything_declared_is_documented() -> None:
    assert glenside.ir.operators.__doc__
    for record in (*OPERATORS.values(), *COMPUTES.values()):
        assert record.doc.endswith("."), record.name
    assert all(entry.doc for entry in TARGETS.values())


def test_no_file_is_long() -> None:
    assert [path for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > 500] == []
