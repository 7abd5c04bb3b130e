"""Tests layouts of whole networks: bytes copied before and after, equality of the programs, and the report."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx_images import maxvit
from onnx_networks import NETWORKS, small
from slow_cases import quick

import glenside as gl
from glenside.analysis.copies import Copy, copies_of, total
from glenside.builder import Builder
from glenside.builder.layout import broadcast, reshape
from glenside.builder.pointwise import add, multiply, relu, sigmoid
from glenside.builder.windows import global_average_pool
from glenside.check import check
from glenside.importers.onnx.model import program_of_model
from glenside.ir.program import Program, is_product
from glenside.ir.rearrangement import of_transpose
from glenside.ir.term import Term, constants_under, postorder
from glenside.semantics.interpreter import evaluate
from glenside.targets.arrays.layout_unit import ADDRESSES, AS_WRITTEN, PLACES, copied_bytes, layout_code

UNIT = gl.ConvolutionUnit("nhwc")
SLOW = ("super_resolution_dcr", "super_resolution_nhwc", "super_resolution_nhwc_each", "super_resolution_relu")
SUPER_RESOLUTION = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name in NETWORKS
    if name.startswith("super_resolution")
]


@cache
def _super_resolution(name: str) -> tuple[Program, gl.Result]:
    program = program_of_model(small(name), dims=NETWORKS[name].dims)
    return program, gl.optimize(program, UNIT)


def _copies(program: Program, target: gl.ConvolutionUnit) -> list[Copy]:
    return copies_of(program.term, copied_bytes, layout_code(target.layout))


def _reported(result: gl.Result, when: str = "chosen") -> list[dict[str, Any]]:
    """Returns the copies of the program that was chosen, or of the one as written, as the report lists them."""
    copies: list[dict[str, Any]] = result.report.sections["copies"][when]
    return copies


def _bytes(result: gl.Result, when: str = "chosen") -> dict[str, int]:
    """place -> bytes"""
    by_place: dict[str, int] = result.report.sections["copies"]["bytes"][when]
    return by_place


def _hold_to_its_copies(result: gl.Result, target: gl.ConvolutionUnit) -> None:
    """Both programs are counted as they are, and the one that was chosen copies no more."""
    before, after = total(_copies(result.original, target)), total(_copies(result.program, target))
    assert after == sum(_bytes(result).values()) == result.cost["copies"] <= before
    assert before == sum(_bytes(result, AS_WRITTEN).values()) == result.report.baseline["copies"]
    assert result.cost["copies inside"] == _bytes(result)["inside"]
    assert result.cost["copies made"] == len(_reported(result))


def _computed(program: Program, seed: int = 0) -> list[np.ndarray]:
    """What it gives for random inputs, and for random values of constants that have none, in wide numbers."""
    draws = np.random.default_rng(seed)
    values = {n: draws.standard_normal(t.dims) for n, t in sorted(program.tensors.items())}
    return evaluate([program.term], {n: program.constants.get(n, v).astype("float32") for n, v in values.items()})


def _is_layer(term: Term) -> bool:
    return is_product(term) or term.operator.name == "product-unit"


def _between_products(root: Term) -> list[Term]:
    """What lies on a way from one product to another and is not made of constants alone."""
    terms, constant = list(postorder(root)), constants_under(root)
    behind: set[Term] = set()
    before: set[Term] = set()
    for term in terms:
        if any(_is_layer(c) or c in behind for c in term.children):
            behind.add(term)
    for term in reversed(terms):
        if _is_layer(term) or term in before:
            before.update(term.children)
    return [t for t in terms if t in behind and t in before and not constant[t]]


def _moves(term: Term) -> bool:
    return (
        term.operator.name == "access-transpose"
        and not of_transpose(term.children[0].access.dims, term.attributes[0]).is_identity  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", SUPER_RESOLUTION)
def test_nothing_is_moved_inside_a_super_resolution_network(name: str) -> None:
    program, result = _super_resolution(name)
    assert any(_moves(t) for t in _between_products(program.term))
    assert _bytes(result, AS_WRITTEN)["inside"] > 0
    assert _bytes(result)["inside"] == 0
    assert _bytes(result)["output"] == 0
    assert not any(_moves(t) for t in _between_products(result.program.term))
    _hold_to_its_copies(result, UNIT)
    kinds = [t.operator.name for t in postorder(result.program.term)]
    assert kinds.count("product-unit") == len(program.layers)
    assert list(result.program.layers) == list(program.layers)
    assert (result.report.checked, result.stopped) == ("exact", "saturated")
    assert result.program is not program
    assert result.report.sections["copies"]["kept"] is False
    for before, after in zip(_computed(program), _computed(result.program), strict=True):
        assert before.dtype == after.dtype
        assert np.allclose(before, after, rtol=1e-4, atol=1e-5)


def test_an_input_in_the_layout_of_the_unit_is_not_moved() -> None:
    _, result = _super_resolution("super_resolution_nhwc_each_relu")
    assert _bytes(result) == {"input": 0, "inside": 0, "output": 0}
    _, result = _super_resolution("super_resolution")
    (image,) = _reported(result)  # of 3 channels, float32, read once and written once
    assert (image["place"], image["bytes"]) == ("input", 2 * 4 * 3 * 6 * 10)


def _small_network() -> Program:
    """Returns a convolution, a pool, a block with a skip connection, a concatenation, a convolution."""
    b = Builder("small")

    def conv(x: Term, name: str, filters: int, depth: int, k: int = 3) -> Term:
        return b.conv(x, b.constant(f"{name}.w", (filters, depth, k, k)), padding=k // 2, name=name)

    x = b.max_pool(b.relu(conv(b.input("x", (1, 4, 6, 10)), "stem", 4, 4)), 2)
    y = b.add(x, conv(b.relu(conv(x, "first", 4, 4)), "second", 4, 4))
    return b.finish(conv(b.concatenate([y, x], 1), "last", 4, 8, 1))


_EVERY_UNIT = list(product(("nhwc", "nchw", "nchw4c", "any"), ADDRESSES, ADDRESSES))
_QUICK = [("nhwc", "none", "none"), ("nchw", "all", "runs"), ("nchw4c", "runs", "all"), ("any", "runs", "none")]


@pytest.mark.parametrize(
    ("layout", "loads", "stores"),
    [pytest.param(*unit, marks=[] if unit in _QUICK else [pytest.mark.slow]) for unit in _EVERY_UNIT],
)
def test_no_unit_moves_more_than_before(layout: str, loads: str, stores: str) -> None:
    program, target = _small_network(), gl.ConvolutionUnit(layout, loads=loads, stores=stores)
    result = gl.optimize(program, target)
    _hold_to_its_copies(result, target)
    assert result.report.checked == "exact"
    assert result.report.sections["copies"]["kept"] == (result.program is program)
    assert np.allclose(_computed(program), _computed(result.program), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_only_the_concatenation_is_left_where_every_address_is_free() -> None:
    result = gl.optimize(_small_network(), UNIT)
    assert [copy["what"] for copy in _reported(result) if copy["place"] == "inside"] == ["concatenate"]
    inside = {copy["what"] for copy in _reported(result, AS_WRITTEN) if copy["place"] == "inside"}
    assert "copy into the unit's layout" in inside


def test_nothing_is_moved_inside_a_transformer_block() -> None:
    b = Builder("block")
    x = b.input("x", (2, 5, 12))
    q, k, v = (b.linear(x, b.constant(name, (12, 12)), name=name) for name in "qkv")
    y = b.add(x, b.linear(b.attention(q, k, v, heads=3, name="heads"), b.constant("o", (12, 12)), name="o"))
    program = b.finish(b.linear(b.gelu(b.linear(y, b.constant("up", (24, 12)))), b.constant("down", (12, 24))))
    result = gl.optimize(program, UNIT)
    assert _bytes(result, AS_WRITTEN)["inside"] > 0
    assert _bytes(result) == {"input": 0, "inside": 0, "output": 0}
    assert result.report.checked == "exact"
    assert np.allclose(_computed(program), _computed(result.program), rtol=1e-3, atol=1e-3)


def _scaled(layers: int) -> Program:
    """Products with shifts and scales apart behind each, as converters of other formats leave them."""
    b = Builder("scaled")
    x = b.input("x", (1, 4, 3, 3))
    for i in range(layers):
        x = b.conv(x, b.constant(f"w{i}", (4, 4, 1, 1)))
        for j, change in enumerate((b.add, b.subtract, b.multiply, b.multiply, b.add)):
            x = change(x, b.broadcast(b.constant(f"c{i}{j}", (1, 4, 1, 1)), (1, 4, 3, 3)))
        x = b.relu(x)
    return b.finish(x)


def test_the_search_grows_with_the_layers_where_constants_follow_each_other() -> None:
    reports = [gl.optimize(_scaled(layers), UNIT, verify=False).report for layers in (1, 2, 3)]
    assert [report.stopped for report in reports] == ["saturated"] * 3
    one, two, three = (report.e_nodes for report in reports)
    assert three - two <= 1.1 * (two - one)


def test_one_number_has_no_layout_of_its_own() -> None:
    """What is everywhere the same is equal to all rearrangements of itself: they are not searched."""
    b = Builder("numbers")
    x, scale = b.input("x", (4, 6, 4)), b.constant("s", (1, 1, 1))
    for order in ((2, 0, 1), (1, 0, 2), (0, 2, 1), (2, 1, 0)):
        x = b.multiply(b.transpose(x, order), b.broadcast(scale, [x.access.dims[i] for i in order]))
    result = gl.optimize(b.finish(x), UNIT, verify=False)
    assert result.report.stopped == "saturated"
    assert result.report.e_nodes < 400


class _Random:
    """A network of random steps over images; each step takes and gives ()(N C H W)."""

    def __init__(self, seed: int) -> None:
        self.random, self.b = random.Random(seed), Builder(f"random-{seed}")
        dims = (1, self.random.choice((4, 8)), self.random.choice((4, 6)), self.random.choice((4, 6)))
        self.made = [self.b.input("x", dims, "float64")]  # whole numbers stay exact

    def conv(self, x: Term) -> Term:
        depth, k = x.access.dims[1], self.random.choice((1, 3))
        w = self.b.constant(f"w{len(self.b.tensors)}", (self.random.choice((4, 8)), depth, k, k), "float64")
        return self.b.conv(x, w, padding=k // 2)

    def relu(self, x: Term) -> Term:
        return self.b.relu(x)

    def pool(self, x: Term) -> Term:
        return self.b.max_pool(x, 2, strides=1) if min(x.access.dims[2:]) > 2 else x

    def add(self, x: Term) -> Term:
        return self.b.add(x, self.random.choice([y for y in self.made if y.access.dims == x.access.dims]))

    def concatenate(self, x: Term) -> Term:
        n, _, h, w = x.access.dims
        alike = [y for y in self.made if (y.access.dims[0], *y.access.dims[2:]) == (n, h, w)]
        return self.b.concatenate([x, self.random.choice(alike)], 1)

    def transpose(self, x: Term) -> Term:
        return self.b.transpose(x, (0, *self.random.sample((1, 2, 3), 3)))

    def depth_to_space(self, x: Term) -> Term:
        n, c, h, w = x.access.dims
        if c % 4:
            return x
        parts, order = (
            ((2, 2, c // 4), (3, 4, 1, 5, 2)) if self.random.random() < 0.5 else ((c // 4, 2, 2), (1, 4, 2, 5, 3))
        )
        apart = self.b.transpose(self.b.reshape(x, (n, *parts, h, w)), (0, *order))
        return self.b.reshape(apart, (n, c // 4, 2 * h, 2 * w))

    def program(self, steps: int) -> Program:
        every: list[Callable[[Term], Term]] = [
            self.conv, self.conv, self.relu, self.pool, self.add, self.concatenate, self.transpose, self.depth_to_space
        ]  # fmt: skip
        while len(self.made) <= steps:
            made = self.random.choice(every)(self.made[-1])
            if made.access.size <= 2_000:
                self.made.append(made)
        return self.b.finish(self.conv(self.made[-1]))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 30))])
def test_a_random_network_is_equal_and_moves_no_more(seed: int) -> None:
    program = _Random(seed).program(7)
    draw = random.Random(f"unit {seed}").choice
    layout, loads, stores = (
        draw(names) for names in (("nhwc", "nchw", "nchw4c", "any"), tuple(ADDRESSES), tuple(ADDRESSES))
    )
    target = gl.ConvolutionUnit(layout, loads=loads, stores=stores)
    result = gl.optimize(program, target)
    assert result.report.checked == "exact", result.report.how_checked
    _hold_to_its_copies(result, target)
    draws = np.random.default_rng(seed)
    values = {n: draws.integers(-2, 3, t.dims).astype("float64") for n, t in program.tensors.items()}
    before, after = (evaluate([p.term], values)[0] for p in (program, result.program))
    assert np.array_equal(before, after)


def test_the_report_as_json_adds_up() -> None:
    program, result = _super_resolution("super_resolution")
    content = json.loads(json.dumps(result.report.as_dict()))
    assert content["program"] == program.name
    assert content["target"] == UNIT.name
    assert content["search"]["e_nodes"] >= content["search"]["e_classes"] > 0
    copies = content["copies"]
    assert set(copies) == {AS_WRITTEN, "chosen", "bytes", "kept"}
    for when in (AS_WRITTEN, "chosen"):
        assert set(copies["bytes"][when]) == set(PLACES) == {"input", "inside", "output"}
        for place, size in copies["bytes"][when].items():
            assert size == sum(row["bytes"] for row in copies[when] if row["place"] == place)
        assert content["totals"][when]["copies"] == sum(copies["bytes"][when].values())
        assert all(row["bytes"] == 2 * 4 * np.prod(row["dims"]) for row in copies[when] if row["dtype"] == "float32")
        assert {row["dtype"] for row in copies[when]} == {"float32"}


@pytest.mark.parametrize("layout", quick(["nhwc", "nchw", "any"], 0, 1))
def test_a_product_of_one_number_has_no_axis_to_lie_innermost(layout: str) -> None:
    program = gl.parse(
        "(let ((one (compute dot-product (access-cartesian-product (access-tensor x) (access-tensor x)))))"
        " (compute dot-product (access-cartesian-product"
        " (access-windows (access one 0) (shape) (shape)) one)))",
        shapes={"x": (1,)},
    )
    assert gl.optimize(program, gl.ConvolutionUnit(layout)).check().result == "exact"


def test_a_layer_of_constants_inside_of_what_is_one_constant() -> None:
    """The product of a first state, which is known, with weights: in a recurrent network."""
    b = Builder("known")
    state = b.linear(b.constant("h", (1, 3)), b.constant("r", (4, 3)))
    x = b.linear(b.input("x", (1, 3)), b.constant("w", (4, 3)))
    result = gl.optimize(b.finish(add(x, relu(state))).seeded_constants(0), UNIT)
    assert result.report.checked == "exact"
    assert len(result.report.layers) == 2


@pytest.mark.parametrize("stores", ADDRESSES)
def test_every_layer_is_compared_in_its_own_order(stores: str) -> None:
    """One convolution whose scale is folded away is not there to be compared; a wrong one of the others is found."""
    b = Builder()
    x = b.input("x", (1, 4, 6, 5))
    y = b.conv(x, b.constant("w", (8, 4, 3, 3)), name="first", padding=1)
    y = b.conv(relu(y), b.constant("v", (6, 8, 1, 1)), name="scaled")
    y = multiply(y, broadcast(reshape(b.constant("s", (6,)), (6, 1, 1)), y.access.dims))
    program = b.finish(b.conv(y, b.constant("u", (4, 6, 3, 3)), name="last"))
    result = gl.optimize(program, gl.ConvolutionUnit("nhwc", stores=stores))
    compared = result.answer.compared
    assert list(compared.layers) == ["first", "last"]
    assert all(layer.type == program.layers[name].type for name, layer in compared.layers.items())
    assert [row.checked for row in result.report.layers] == ["exact"] * 3
    wrong = {**compared.layers, "first": relu(compared.layers["first"])}
    seen = check(program, replace(compared, layers=wrong))
    assert (seen.result, seen.layers["last"]) == ("exact", "exact")
    assert seen.layers["first"].startswith("differs in")


def test_squeeze_and_excitation_between_convolutions_is_computed_in_their_layout() -> None:
    """What is averaged and scaled is read twice: both are in the layout that the next convolution wants."""
    b = Builder()
    x = b.input("x", (1, 6, 8, 7))
    y = relu(b.conv(x, b.constant("expand", (6, 6, 1, 1)), b.constant("bias", (6,))))
    y = relu(b.conv(y, b.constant("depthwise", (6, 1, 3, 3)), padding=1, groups=6))
    squeezed = reshape(global_average_pool(y), (1, 6))
    gate = sigmoid(b.linear(relu(b.linear(squeezed, b.constant("in", (4, 6)))), b.constant("out", (6, 4))))
    y = multiply(y, broadcast(reshape(gate, (1, 6, 1, 1)), y.access.dims))
    program = b.finish(b.conv(y, b.constant("project", (8, 6, 1, 1))))
    result = gl.optimize(program, gl.ConvolutionUnit("nhwc"))
    assert result.report.total["copies inside"] == 0
    assert result.check().result == "exact"


@pytest.mark.parametrize("function", [relu, lambda t: multiply(t, sigmoid(t))])
def test_an_input_is_copied_as_it_comes(function: Callable[[Term], Term]) -> None:
    """What is computed of it could be copied as well: then the copy would lie inside of the network."""
    b = Builder()
    y = relu(b.conv(function(b.input("x", (1, 3, 12, 12))), b.constant("first", (8, 3, 3, 3))))
    program = b.finish(b.conv(y, b.constant("second", (8, 8, 3, 3))))
    total = gl.optimize(program, gl.ConvolutionUnit("nhwc"), verify=False).report.total
    assert (total["copies"], total["copies inside"]) == (2 * 3 * 12 * 12 * 4, 0)


def test_pixels_of_windows_lie_in_the_orders_that_the_program_says() -> None:
    """No order that nothing asked for, so each block is searched as fast as the first; and only the input is moved."""
    programs = [program_of_model(maxvit(blocks=blocks, size=4)) for blocks in (1, 2)]
    one, two = (gl.optimize(program, UNIT, verify=False).report for program in programs)
    assert (one.stopped, two.stopped) == ("saturated", "saturated")
    assert two.iterations <= one.iterations + 2 <= 25
    assert two.e_nodes <= 2 * one.e_nodes <= 12_000
    assert [report.total["copies inside"] for report in (one, two)] == [0, 0]
