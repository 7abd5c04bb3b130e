"""Tests programs as JAX functions: text, names and paths. `test_jax_values.py` runs them."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from compute_examples import COMPUTES as COMPUTE_EXAMPLES
from example_values import VALUES, Example
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_examples import OPERATORS as OPERATOR_EXAMPLES
from typer.testing import CliRunner

import glenside as gl
from glenside.cli.application import app
from glenside.exporters.jax import argument_names, export_jax
from glenside.exporters.jax.registry import (
    COMPUTE_EXPORTS,
    OPERATOR_EXPORTS,
    OPERATORS_LEFT_OUT,
    PRIMITIVE_EXPORTS,
)
from glenside.ir.errors import BadInput
from glenside.ir.operator import COMPUTES, OPERATORS
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor
from glenside.semantics.interpreter import evaluate

# Terms of numbers in the program alone are computed while it is written; what is left are tensors.
LEAVES = {name for name, operator in OPERATORS.items() if not operator.fields or name in ("full", "eye", "iota")} | {
    "access-literal",
    "numbers",
}


def tensor(name: str, *dims: int, dtype: str = "float32", constant: bool = False) -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype, constant))


def product(a: Term, b: Term, shared: int = 0) -> Term:
    return build("compute", "dot-product", build("access-product", a, b, shared))


def test_every_operator_and_compute_type_is_written_or_left_out() -> None:
    moved = {name for name, record in OPERATORS.items() if record.index_map is not None}
    assert OPERATOR_EXPORTS.keys() | moved | OPERATORS_LEFT_OUT.keys() | LEAVES | {"scan"} == OPERATORS.keys()
    derived = {name for name, compute in COMPUTES.items() if compute.scalar is not None}
    assert COMPUTE_EXPORTS.keys() | derived == COMPUTES.keys()
    assert PRIMITIVE_EXPORTS.keys() <= PRIMITIVES.keys()
    assert all(p.jax or name in PRIMITIVE_EXPORTS for name, p in PRIMITIVES.items())
    assert not OPERATOR_EXPORTS.keys() & OPERATORS_LEFT_OUT.keys()


def test_the_tables_are_full_whatever_was_imported_before() -> None:
    code = "from glenside.exporters.jax import registry; assert 'reduce-max' in registry.COMPUTE_EXPORTS"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (OPERATOR_EXAMPLES["opaque"][0], "operator opaque"),
        (OPERATOR_EXAMPLES["access-scatter-nd"][0], "access-scatter-nd with replace"),
        (next(e for e in COMPUTE_EXAMPLES["pow"] if e.term.access.dtype == "int32"), "pow of int32"),
    ],
)
def test_what_jax_cannot_say_is_named(example: Example, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        export_jax(Program(example.term))


def _calls(source: str) -> list[str]:
    """Returns the names of all functions that a source calls; what else a statement may be is refused."""
    tree = ast.parse(source)
    allowed = (ast.Expr, ast.Import, ast.ImportFrom, ast.FunctionDef)
    assert all(isinstance(statement, allowed) for statement in tree.body)
    (function,) = (s for s in tree.body if isinstance(s, ast.FunctionDef))
    assert function.name == "program"
    assert all(isinstance(s, ast.Expr | ast.Assign | ast.Return) for s in function.body)
    return [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]


@pytest.mark.parametrize(
    "name",
    ["x", "while", "jnp", "v0", "tensor_3", "a.b", 'x"""\nimport os\n"""', "x\\", "é", "x): #", "\u2028", "_"],
)
def test_no_text_of_the_user_becomes_code(name: str) -> None:
    term = build("compute", "relu", tensor(name, 2, 3))
    source = export_jax(Program(term, name=name))
    assert _calls(source) == ["jnp.maximum", "jnp.float32"]
    function = ast.parse(source).body[-1]
    assert isinstance(function, ast.FunctionDef)
    assert [a.arg for a in function.args.args] == (["x"] if name == "x" else ["tensor_0"])


def test_arguments_keep_the_order_and_names_of_tensors() -> None:
    names = {"b": "b", "a": "a", "a/1": "tensor_2", "lax": "tensor_3"}
    assert argument_names(names) == names
    term = build("construct-tuple", *(tensor(name, 2) for name in names))
    assert "def program(b, a, tensor_2, tensor_3):" in export_jax(Program(term))


def test_docstring_tells_names_shapes_and_dtypes() -> None:
    source = export_jax(Program(build("construct-tuple", tensor("x", 2, 3), tensor("w 1", 4, constant=True))))
    function = ast.parse(source).body[-1]
    assert isinstance(function, ast.FunctionDef)
    doc = ast.get_docstring(function) or ""
    assert "x: input of (2 3) float32" in doc
    assert "tensor_1: constant of (4) float32, which the program calls 'w 1'" in doc


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 3), st.lists(st.integers(1, 3), min_size=3, max_size=3))
def test_a_product_is_one_dot_general(shared: int, sizes: list[int]) -> None:
    groups = sizes[:shared]
    a, b = tensor("a", *groups, 4, 5, 2), tensor("b", *groups, 3, 5, 2)
    calls = _calls(export_jax(Program(product(*(build("access", x, shared + 1) for x in (a, b)), shared))))
    assert calls.count("lax.dot_general") == 1
    assert set(calls) <= {"lax.dot_general", "jnp.reshape"}


def test_a_linear_map_of_whole_numbers_is_additions() -> None:
    term = build("linear-map", tensor("x", 2, 3), 1, 3, "1 -1 0 5 0 -8 -1 0 0")
    calls = set(_calls(export_jax(Program(term))))
    assert calls == {"jnp.add", "jnp.subtract", "jnp.negative", "jnp.concatenate", "lax.slice_in_dim"}


def test_rows_with_denominators_are_one_product() -> None:
    term = build("linear-map", tensor("x", 2, 3), 1, 4, "1 1/2 0 1/3 0 2/3 1 1 1 0 0 -1/6")
    assert _calls(export_jax(Program(term))).count("jnp.multiply") == 1


@pytest.mark.parametrize("sizes", [(20, 3), (3, 20), (17, 17)])
def test_a_concatenation_of_many_elements_keeps_all(sizes: tuple[int, int]) -> None:
    x, y = (build("access", tensor(name, n), 0) for name, n in zip("xy", sizes, strict=True))
    assert "jnp.concatenate([x, y], 0)" in export_jax(Program(build("access-concatenate", x, y, 0)))


def test_equal_expressions_are_written_once() -> None:
    x = build("access-pad", tensor("x", 2, 5), "zero-padding", 1, 1, 1)
    windows = build("access-windows", build("access", x, 1), (3,), (2,))
    calls = _calls(export_jax(Program(build("construct-tuple", windows, build("access", windows, 1)))))
    assert calls.count("lax.pad") == 1
    assert calls.count("lax.slice_in_dim") == 3


def test_large_matrices_of_numbers_are_to_be_constants() -> None:
    values = " ".join(str(i) for i in range(260 * 260))
    term = build("compute", "elementwise-add", build("access", build("numbers", (260, 260), values, "float32"), 0))
    both = build("access-product", build("access", tensor("x", 260, 260), 2), build("access", term.children[0], 2), 2)
    with pytest.raises(BadInput, match="declare them as a constant"):
        export_jax(Program(build("compute", "elementwise-add", both)))


def test_deep_programs_are_written() -> None:
    term = tensor("x", 3)
    for _ in range(20_000):
        term = build("compute", "negative", term)
    assert export_jax(Program(term)).count("\n    v") == 20_000
    for _ in range(2_000):
        term = build("construct-tuple", term)
    assert export_jax(Program(term)).rstrip().endswith("return v21999")


def test_files(tmp_path: Path) -> None:
    term = product(build("access", tensor("x", 2, 3), 1), build("access", tensor("w", 4, 3, constant=True), 1))
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    program = Program(term, constants={"w": weights})
    path = tmp_path / "net.py"
    gl.save(program, path)
    assert path.read_text() == gl.export_jax(program)
    with np.load(tmp_path / "net.npz") as values:
        assert np.array_equal(values["w"], weights)
    with pytest.raises(BadInput, match="written only"):
        gl.load(path)
    gl.save(program, tmp_path / "net.glenside")
    outcome = CliRunner().invoke(
        app, ["optimize", str(tmp_path / "net.glenside"), "--target", "mpc:semi2k", "-o", str(tmp_path / "out.py")]
    )
    assert outcome.exit_code == 0, outcome.output
    assert "lax.dot_general" in (tmp_path / "out.py").read_text()


MOVED = [e for name, es in OPERATOR_EXAMPLES.items() if OPERATORS[name].index_map is not None for e in es]


@pytest.mark.parametrize("example", MOVED, ids=[e.term.operator.name for e in MOVED])
def test_movement_without_an_export_is_addressed(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its index map: a new operator needs no code here. The module runs with numpy in the place of JAX."""
    monkeypatch.delitem(OPERATOR_EXPORTS, example.term.operator.name, raising=False)
    jax = ModuleType("jax")
    jax.__dict__.update(numpy=np, lax=None)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax.numpy", np)
    names: dict[str, Any] = {}
    exec(export_jax(Program(example.term)), names)
    function = next(f for f in names.values() if isinstance(f, FunctionType))
    value = function(*(VALUES[name] for name in inspect.signature(function).parameters))
    assert np.array_equal(value, evaluate([example.term], VALUES)[0])
