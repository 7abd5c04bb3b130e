"""Tests all forms of transposed convolutions: each equals a plain loop, and phases multiply by no gap."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_checks import assert_all_equal

import glenside as gl
from glenside.analysis.liveness import peak_bytes
from glenside.builder.layout import transpose
from glenside.builder.products import transposed_convolution
from glenside.builder.windows import overlap_add
from glenside.egraph.encode import program_nodes
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.snapshot import Snapshot
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor
from glenside.rewrites import RULES, of_families
from glenside.semantics.interpreter import evaluate

FAMILIES = ("transposed-analyses", "transposed", "transposed-tiles")
ANALYSES = [RULES["sliding-axes-are-known"], RULES["products-have-recipes"]]


@dataclass(frozen=True)
class Layer:
    """One transposed convolution; each tuple has an entry for each axis."""

    batch: int
    per_group: int
    filters: int  # of one group
    groups: int
    sizes: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    more: tuple[int, ...]

    @property
    def x_dims(self) -> tuple[int, ...]:
        return (self.batch, self.groups * self.per_group, *self.sizes)

    @property
    def w_dims(self) -> tuple[int, ...]:
        return (self.groups * self.per_group, self.filters, *self.window)

    @property
    def out(self) -> tuple[int, ...]:
        return tuple(
            t * (n - 1) + d * (k - 1) + 1 + more - lo - hi
            for n, k, t, d, (lo, hi), more in zip(
                self.sizes, self.window, self.strides, self.dilations, self.padding, self.more, strict=True
            )
        )

    def by_definition(self, x: Array, w: Array) -> Array:
        """Each element of x adds a window, one number at a time: ()(N O d'..)."""
        result = np.zeros((self.batch, self.groups * self.filters, *self.out), x.dtype)
        for place, tap in product(np.ndindex(*self.sizes), np.ndindex(*self.window)):
            at = [
                m * t + u * d - lo
                for m, u, t, d, (lo, _) in zip(place, tap, self.strides, self.dilations, self.padding, strict=True)
            ]
            if not all(0 <= y < size for y, size in zip(at, self.out, strict=True)):
                continue
            for g in range(self.groups):
                c, o = slice(g * self.per_group, (g + 1) * self.per_group), g * self.filters
                result[(slice(None), slice(o, o + self.filters), *at)] += (
                    x[(slice(None), c, *place)] @ w[(c, slice(None), *tap)]
                )
        return result

    @property
    def empty(self) -> bool:
        """True if padding cuts off the windows of all elements along some axis."""
        reaches = zip(self.sizes, self.out, self.window, self.strides, self.dilations, self.padding, strict=True)
        return any(
            all(m * t - lo >= size or m * t - lo + (k - 1) * d < 0 for m in range(n))
            for n, size, k, t, d, (lo, _) in reaches
        )

    def pairs(self) -> int:
        """Of places of the result and taps, those where x has an element or a border of zeros, but no gap."""
        counts = [
            sum((y + lo - u * d) % t == 0 for y in range(size) for u in range(k))
            for size, k, t, d, (lo, _) in zip(
                self.out, self.window, self.strides, self.dilations, self.padding, strict=True
            )
        ]
        return math.prod(counts) * self.batch * self.groups * self.filters * self.per_group


@st.composite
def layers(draw: st.DrawFn, axes: int) -> Layer:
    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    strides, dilations = each(1, 4 - axes // 2), each(1, 3)
    sizes, window = each(2, 5 - axes), each(1, 6 - axes)
    more = tuple(draw(st.integers(0, max(t, d) - 1)) for t, d in zip(strides, dilations, strict=True))
    whole = [
        t * (n - 1) + d * (k - 1) + 1 + extra
        for n, k, t, d, extra in zip(sizes, window, strides, dilations, more, strict=True)
    ]
    padding = []
    for size in whole:  # of a result of one place nothing is known to step over windows
        before = draw(st.integers(-1, size - 2))
        padding.append((before, draw(st.integers(-1, max(-1, min(size - 2, size - 2 - before))))))
    few = st.integers(1, 2)
    return Layer(draw(few), draw(few), draw(few), draw(few), sizes, window, strides, dilations, tuple(padding), more)


def tensor(name: str, dims: tuple[int, ...]) -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), "float64"))


def drawn_values(layer_: Layer) -> dict[str, Array]:
    dims = {"x": layer_.x_dims, "w": layer_.w_dims}
    return {n: np.random.default_rng(i).integers(-9, 10, d).astype("float64") for i, (n, d) in enumerate(dims.items())}


def saturated(root: Term) -> Snapshot:
    search = Saturation(
        Request.of(
            program_nodes(root),
            [*ANALYSES, *of_families(FAMILIES)],
            {"scatter": 0},
            Limits(iterations=100),
            reported=("recipe",),
        )
    )
    search.run()
    assert search.progress.stopped == "saturated"
    return search.snapshot(Program(root).tensors)


def found_forms(layer_: Layer) -> Snapshot:
    """Returns the e-graph of a layer, whose term as it is built is what it should be."""
    x, w = tensor("x", layer_.x_dims), tensor("w", layer_.w_dims)
    made = transposed_convolution(x, w, layer_.strides, layer_.padding, layer_.more, layer_.dilations, layer_.groups)
    values = drawn_values(layer_)
    (result,) = evaluate([made.result], values)
    assert np.array_equal(result, layer_.by_definition(values["x"], values["w"]))
    return saturated(made.dot)


def words_of(layer_: Layer, step: str) -> str:
    """Returns the words of the form that takes this step on every axis with gaps."""
    first = 1 + (layer_.groups > 1)
    return " ".join(f"{step}:{first + axis}:{t}" for axis, t in enumerate(layer_.strides) if t > 1)


def multiplications(snapshot: Snapshot, words: str) -> int:
    """Of all products of a form, but for those that are a part of another one."""
    total, forms = 0, {eclass for eclass, said in snapshot.facts["recipe"] if said == words}
    joined = [snapshot.nodes[n] for eclass in forms for n in snapshot.classes[eclass]]
    parts = {child for node in joined if node.operator == "access-concatenate" for child in node.children}
    for eclass, said in snapshot.facts["recipe"]:
        if eclass in parts:
            continue
        own_nodes = (snapshot.nodes[n] for n in snapshot.classes[eclass])
        node = next((node for node in own_nodes if node.operator == "compute"), None)
        if node is None:  # a sum in tiles, of a product that is counted
            continue
        pairs = snapshot.types[node.children[0]]
        own = snapshot.types[eclass]
        assert pairs is not None
        assert own is not None
        total += own.size * pairs.item.drop(1).product() if said == words else 0
    return total


@pytest.mark.parametrize("axes", [1, 2])
@settings(max_examples=6, deadline=None, derandomize=True)
@given(data=st.data())
def test_all_forms_are_equal_and_phases_multiply_by_no_gap(axes: int, data: st.DataObject) -> None:
    assert_forms(data.draw(layers(axes)))


@settings(max_examples=3, deadline=None, derandomize=True)
@given(drawn=layers(3))
def test_all_forms_of_volumes_are_equal(drawn: Layer) -> None:
    assert_forms(drawn)


def assert_forms(drawn: Layer) -> None:
    snapshot = found_forms(drawn)
    assert_all_equal(snapshot)
    plain = all(k == 1 for k in drawn.window)  # a product of rows: zeros between them go without windows
    said = {words for _, words in snapshot.facts["recipe"]}
    operators = {snapshot.nodes[n].operator for c in range(len(snapshot.classes)) for n in snapshot.classes[c]}
    if all(t == 1 for t in drawn.strides):
        assert said == {""}
    elif plain:
        assert drawn.empty or words_of(drawn, "dilate") in said
    else:
        if not drawn.empty:
            assert words_of(drawn, "overlap-add") in said
            assert {"access-overlap-add", "overlap-add-product"} <= operators
        assert drawn.pairs() == 0 or words_of(drawn, "phases") in said
        assert multiplications(snapshot, words_of(drawn, "phases")) == drawn.pairs()


@pytest.mark.parametrize("dilations", [(1, 1), (2, 1)])
def test_windows_that_a_program_adds_up_have_all_forms(dilations: tuple[int, int]) -> None:
    whole = Layer(2, 3, 2, 1, (3, 2), (2, 3), (3, 2), dilations, ((0, 0), (0, 0)), (1, 0))
    x, w = tensor("x", whole.x_dims), tensor("w", whole.w_dims)
    rows, columns = (build("access", transpose(t, p), 3) for t, p in ((x, (0, 2, 3, 1)), (w, (1, 2, 3, 0))))
    product_ = build("compute", "dot-product", build("access-product", rows, columns, 0))
    sums = overlap_add(transpose(product_, (0, 3, 1, 2, 4, 5)), whole.out, whole.strides, dilations)
    values = drawn_values(whole)
    (result,) = evaluate([sums], values)
    assert np.array_equal(result, whole.by_definition(values["x"], values["w"]))
    snapshot = saturated(sums)
    assert_all_equal(snapshot)
    both = {words for step in ("phases", "overlap-add") for words in [f"zeros {step}:1:3 {step}:2:2"]}
    assert {"", "zeros", *both} <= {words for _, words in snapshot.facts["recipe"]}
    assert multiplications(snapshot, "zeros phases:1:3 phases:2:2") == whole.pairs()


@pytest.mark.parametrize(("strides", "padding", "groups"), [((2, 2), 1, 1), ((2, 3), 0, 1), ((2, 2), 1, 2)])
def test_gradients_of_strided_convolutions_have_all_forms(strides: tuple[int, int], padding: int, groups: int) -> None:
    """By their input: what `gl.gradient` gives is a transposed convolution, and its phases multiply by no gap."""
    b = gl.Builder("p")
    x, w = b.input("x", (2, 4, 7, 9)), b.input("w", (6, 4 // groups, 3, 2))
    forward = b.finish(b.conv(x, w, strides=strides, padding=padding, groups=groups, name="conv"))
    snapshot = saturated(gl.gradient(forward, "x", cotangent="g").term)
    assert_all_equal(snapshot)
    said = {words for _, words in snapshot.facts["recipe"]}
    axis = 1 if groups == 1 else 2
    forms = [f"zeros {step}:{axis}:{strides[0]} {step}:{axis + 1}:{strides[1]}" for step in ("phases", "overlap-add")]
    assert {"", "zeros", *forms} <= said
    (height, width), window = [n + 2 * padding for n in (7, 9)], (3, 2)
    sizes = [(n - k) // t + 1 for n, k, t in zip((height, width), window, strides, strict=True)]
    more = [n - t * (m - 1) - k for n, t, m, k in zip((height, width), strides, sizes, window, strict=True)]
    cut = ((padding, padding),) * 2  # of the padding no gradient is asked
    kept = Layer(2, 6 // groups, 4 // groups, groups, (*sizes,), window, strides, (1, 1), cut, (*more,))
    assert multiplications(snapshot, forms[0]) == kept.pairs()


@pytest.mark.parametrize("tile", [500, 4000, 100_000])
def test_tiles_bound_what_is_held(tile: int) -> None:
    """The result and the products of one tile: what is told is what numpy allocates."""
    x = build("access", build("access-tensor", Tensor("x", Dims((2, 96, 8000)))), 0)
    rows = build("access", transpose(x, (0, 2, 1)), 2)
    w = build("access", build("access-tensor", Tensor("w", Dims((48, 4, 96)), constant=True)), 2)
    term = build("overlap-add-product", rows, w, 0, (16_002,), (2,), (1,), (0,), tile)
    values = {"x": np.ones((2, 96, 8000), "float32"), "w": np.ones((48, 4, 96), "float32")}
    evaluate([term], values)
    tracemalloc.start()
    evaluate([term], values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    predicted = peak_bytes(term).bytes
    assert 0.99 * predicted < peak < 1.02 * predicted
    # Rows of two batches never lie as one matrix, so they are gathered.
    assert predicted == 4 * (term.access.size + 2 * min(tile, 8000) * (48 * 4 + 96))
