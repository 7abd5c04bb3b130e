"""Compares gradients in float64 with JAX's gradients of the exported program, where JAX is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differences import doubled, results
from test_derivatives import MORE, RECORDS, drawn, is_real

import glenside as gl
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.operator import Example

jax = pytest.importorskip("jax")
EXAMPLES = [*(example for record in RECORDS for example in record.examples), *MORE]
NOT_IN_JAX = {
    "replace": "of several updates for one place any may be there",
    "mul": "no derivative where places repeat",
    "min)": "no derivative",
    "max)": "no derivative",
}
"""Of scatters."""


def function(program: gl.Program) -> Any:
    """Returns the exported source as a function of arrays, in the order of its tensors."""
    scope: dict[str, Any] = {}
    exec(gl.export_jax(program), scope)  # what we wrote ourselves
    return scope["program"]


@pytest.mark.parametrize("seed", [5, 6])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.text)
def test_gradients_are_those_of_jax(example: Example, seed: int) -> None:
    """At the sizes that a seed draws for the letters of an example."""
    program = doubled(example.program(seed))
    names = [name for name, tensor in program.tensors.items() if tensor.dtype in FLOATS and name != "i"]
    if not is_real(program) or not names:
        pytest.skip("nothing to differentiate")
    if "scatter" in example.text and any(how in example.text for how in NOT_IN_JAX):
        pytest.skip("JAX has no such derivative")
    try:
        exported = function(program)
    except BadInput as error:
        pytest.skip(str(error))
    values = drawn(program, seed)
    with jax.enable_x64(True):
        given = {name: jax.numpy.asarray(value) for name, value in values.items()}

        def of(*reals: Any) -> Any:
            arrays = {**given, **dict(zip(names, reals, strict=True))}
            found = exported(*(arrays[name] for name in program.tensors))
            return found if isinstance(found, tuple) else (found,)

        wanted, back = jax.vjp(of, *(given[name] for name in names))
        random = np.random.default_rng(7)
        cotangents = [random.standard_normal(found.shape) for found in wanted]
        expected = back(tuple(map(jax.numpy.asarray, cotangents)))
    labels = [f"cotangent{i}" for i in range(len(cotangents))]
    program = gl.gradient(program, names, cotangent=labels)
    found = results(program, {**values, **dict(zip(labels, cotangents, strict=True))})
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("kind", "of_jax"),
    [
        ("relu", lambda x: jax.nn.relu(x)),
        ("(clip 0 2)", lambda x: jax.lax.clamp(0.0, x, 2.0)),
        ("abs", lambda x: jax.numpy.abs(x)),
        ("sign", lambda x: jax.numpy.sign(x)),
        ("round", lambda x: jax.numpy.round(x)),
        ("floor", lambda x: jax.numpy.floor(x)),
        ("(leaky-relu 1/4)", lambda x: jax.nn.leaky_relu(x, 0.25)),
    ],
)
def test_corners_are_those_of_jax(kind: str, of_jax: Any) -> None:
    at = np.array([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0])
    b = gl.Builder()
    program = gl.gradient(b.finish(b.compute(kind, b.input("x", (7,), "float64"))), "x", cotangent="g")
    with jax.enable_x64(True):
        theirs = np.asarray(jax.grad(lambda x: of_jax(x).sum())(jax.numpy.asarray(at)))
    np.testing.assert_array_equal(results(program, {"x": at, "g": np.ones(7)})[0], theirs)


def test_equal_operands_and_powers_of_zero_are_those_of_jax() -> None:
    b = gl.Builder()
    x, y = b.input("x", (7,), "float64"), b.input("y", (7,), "float64")
    at = {"x": np.array([1.0, 2, 3, 2, 0, 0, 0]), "y": np.array([1.0, 1, 4, 0, 0, 1, 2])}
    for kind, of_jax in (
        ("maximum", jax.numpy.maximum),
        ("minimum", jax.numpy.minimum),
        ("pow", jax.numpy.power),
    ):
        program = gl.gradient(b.finish(b.combine(kind, x, y)), ["x", "y"], cotangent="g")
        ours = results(program, {**at, "g": np.ones(7)})
        with jax.enable_x64(True):
            theirs = jax.grad(lambda x, y, of_jax=of_jax: of_jax(x, y).sum(), (0, 1))(
                *(jax.numpy.asarray(at[n]) for n in "xy")
            )
        np.testing.assert_allclose(ours, [np.asarray(part) for part in theirs])
