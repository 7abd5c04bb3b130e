"""Tests layers whose windows are added up: the sum is searched with the product, so that all forms of both are
considered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.analysis.layers import added_up, from_product, product_of, product_sizes
from glenside.builder.layout import slice_axis, transpose
from glenside.builder.windows import overlap_add
from glenside.codegen.processor.model import MACHINES, is_here
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import Dims, Tensor
from glenside.passes.distinct_layers import distinct_layers, of_products, until_added_up
from glenside.targets.cpu.compiled import CompiledCPU
from glenside.targets.cpu.in_loops import InLoops

MACHINE = "avx2"
GRADIENT = "second.input-gradient"


def step_of(channels: int, filters: int, size: int, window: int, stride: int, padding: int) -> Program:
    """Returns a training step of a convolution behind another one, which wants the gradient of its input."""
    b = gl.Builder("net")
    x = b.input("x", (2, 3, size, size))
    y = b.relu(b.conv(x, b.constant("v", (channels, 3, 1, 1)), name="first"))
    w = b.constant("w", (filters, channels, window, window))
    y = b.conv(y, w, strides=stride, padding=padding, name="second")
    return gl.training_step(b.finish(y), "squared-error", gl.SGD("0.1")).program


def drawn(program: Program) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {name: random.standard_normal(t.dims).astype(t.dtype) for name, t in program.tensors.items()}


PHASES, SUMS = (64, 4, 16, 3, 2, 1), (4, 64, 8, 3, 2, 1)
"""Of few filters there is little to multiply, and windows of many channels are added up for long; and the reverse."""


@pytest.mark.parametrize(("sizes", "chosen"), [(PHASES, "as a convolution, 4 phases"), (SUMS, "plain")])
def test_prices_decide_between_phases_and_sums_of_windows(sizes: tuple[int, ...], chosen: str) -> None:
    result = gl.optimize(step_of(*sizes), gl.CPU(machine=MACHINE), exact_order=True)
    assert result.report.checked == "exact"
    row = next(row for row in result.report.layers if row.name == GRADIENT)
    assert (row.label, row.checked) == (chosen, "exact")
    assert row.part == "input-gradient"
    sums = [t for t in postorder(result.program.layers[GRADIENT]) if t.operator.name == "access-overlap-add"]
    assert bool(sums) == (chosen == "plain")
    assert (result.cost["time"] or 0) <= (result.report.totals["plain"]["time"] or 0)


class SlowReaders(CompiledCPU):
    """A processor on which another layer takes long where windows are added up."""

    def _predicted_in_loops(self, program: Program) -> InLoops:
        found = super()._predicted_in_loops(program)
        slow = any(term.operator.name == "access-overlap-add" for term in postorder(program.term))
        other = next(i for i, name in enumerate(found.owners) if name == "first.weight-gradient")
        return replace(found, nanoseconds=[t + 1e8 * slow * (i == other) for i, t in enumerate(found.nanoseconds)])


def test_what_readers_of_sums_of_windows_take_decides_too() -> None:
    """They take less where there are no sums: nobody is told to take less than nothing."""
    result = gl.optimize(step_of(*PHASES), SlowReaders(machine=MACHINE), verify=False, exact_order=True)
    taken = {v.label: v.measures["time"] or 0 for v in result.answer.layers[GRADIENT].variants}
    phases = taken["as a convolution, 4 phases"]
    assert 0 < phases < 1e7 < taken["plain"]
    assert next(row for row in result.report.layers if row.name == GRADIENT).measures["time"] == phases


@pytest.mark.skipif(not is_here(MACHINES[MACHINE]), reason="its vectors are not here")
@pytest.mark.parametrize("sizes", quick([PHASES, SUMS, (6, 4, 9, 5, 3, 2)], 0, 2))
def test_a_compiled_step_gives_what_the_interpreter_does(sizes: tuple[int, ...]) -> None:
    program = step_of(*sizes)
    values = drawn(program)
    found = gl.compile(program, gl.CPU(), machine=MACHINE)(**values)
    (expected,) = gl.evaluate([program.term], values)
    flat = [np.asarray(part) for part in _arrays(found)]
    wanted = [np.asarray(part) for part in _arrays(expected)]
    assert len(flat) == len(wanted) > 2
    for one, other in zip(flat, wanted, strict=True):
        np.testing.assert_allclose(one, other.reshape(one.shape), rtol=1e-3, atol=1e-3)


def _arrays(value: Any) -> list[Any]:
    return [part for item in value for part in _arrays(item)] if isinstance(value, tuple) else [value]


def test_a_budget_of_memory_keeps_the_form_that_needs_less() -> None:
    """Windows of every place are larger than what they add up to."""
    result = gl.optimize(step_of(*PHASES), gl.CPU(), verify=False)
    variants = {v.label: v.measures for v in result.answer.layers[GRADIENT].variants}
    sums, phases = (next(m for label, m in variants.items() if word in label) for word in ("plain", "phases"))
    assert (phases["peak"] or 0) < (sums["peak"] or 0)
    assert (phases["multiply-adds"] or 0) <= (sums["multiply-adds"] or 0)


def test_transposed_convolutions_of_a_network_have_their_phases() -> None:
    b = gl.Builder("decoder")
    x = b.input("x", (2, 16, 5, 4))
    for name, channels, filters in (("up", 16, 8), ("more", 8, 4)):
        w = b.constant(name + ".w", (channels, filters, 4, 4))
        x = b.relu(b.conv_transpose(x, w, strides=2, padding=1, name=name))
    result = gl.optimize(b.finish(x).seeded_constants(0), gl.CPU(machine=MACHINE))
    assert result.report.checked == "exact"
    for row in result.report.layers:
        taken = {v.label: v.measures["time"] for v in result.answer.layers[row.name].variants}
        assert "4 phases" in taken
        assert row.measures["time"] == min(taken.values())
    assert "4 phases" in {row.label for row in result.report.layers}


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_a_gradient_is_cut_where_its_windows_are_added_up(groups: int) -> None:
    """So the layer ends behind both, and no product of padding is asked for."""
    b = gl.Builder("net")
    x, w = b.input("x", (2, 6, 8, 7)), b.input("w", (6, 6 // groups, 3, 3))
    program = b.finish(b.conv(x, w, strides=2, padding=1, groups=groups, name="conv"))
    gradient = gl.gradient(program, "x", cotangent="g")
    (ends,) = added_up(gradient).values()
    assert ends.operator.name == "access-slice"
    assert product_of(ends) in gradient.layers.values()
    assert ends.access.size == 2 * 6 * 8 * 7
    assert product_sizes(ends) == product_sizes(product_of(ends))


def columns(name: str, rows: Term) -> Term:
    w = build("access", build("access-tensor", Tensor(name, Dims((4, 3, 5)), "float32")), 2)
    return build("compute", "dot-product", build("access-product", rows, w, 0))


ROWS = build("access", build("access-tensor", Tensor("x", Dims((2, 6, 5)), "float32")), 2)


def sums(product: Term) -> Term:
    return overlap_add(transpose(product, (0, 2, 1, 3)), (13,), (2,), (1,))


def test_a_layer_ends_where_all_that_is_made_of_it_does() -> None:
    whole = sums(columns("w", ROWS))
    assert added_up(Program(whole)) == {"product-1": whole.children[0] if whole.operator.name == "access" else whole}
    part = slice_axis(slice_axis(whole, 2, 1, 12), 2, 0, 4)
    cut = added_up(Program(part))["product-1"]
    assert cut.operator.name == "access-slice"
    assert cut.access.dims == part.access.dims
    terms = from_product(cut)
    assert terms[0] is cut
    assert is_product(terms[-1])


def test_what_is_used_otherwise_too_stays_a_layer_of_its_own() -> None:
    product = columns("w", ROWS)
    both = Program(build("construct-tuple", sums(product), build("access", product, 0)))
    assert added_up(both) == both.layers
    assert until_added_up(both)[0] is both
    whole = sums(product)
    twice = Program(build("construct-tuple", slice_axis(whole, 2, 0, 4), slice_axis(whole, 2, 4, 9)))
    (end,) = added_up(twice).values()
    assert end.operator.name == "access-overlap-add"


def test_such_layers_are_taken_apart_and_put_together_again() -> None:
    b = gl.Builder("net")
    x = b.input("x", (2, 4, 8, 8))
    for name in ("one", "two", "three"):  # of the same sizes: one distinct layer for all their gradients
        x = b.relu(b.conv(x, b.constant(name + ".w", (4, 4, 3, 3)), padding=1, name=name))
    program = gl.gradient(b.finish(x), "x", cotangent="g")
    grown, _ = until_added_up(program)
    assert [*grown.layers] == [*program.layers]
    assert of_products(grown).layers == program.layers
    layers = distinct_layers(grown)
    assert len(layers.products) < len(distinct_layers(program).places)
    assert sum(not is_product(layer) for layer in layers.products) == 1
