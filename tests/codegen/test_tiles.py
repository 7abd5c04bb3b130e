"""Compares tiled, vectorized and parallel loops with plain loops."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.builder import layout, pointwise, reductions
from glenside.codegen.loop_ir.affine_analysis import coefficient
from glenside.codegen.loop_ir.ir import Role, Store, Way
from glenside.codegen.memory.buffer_arena import arena
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, is_here, machine_of
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term, build

pytestmark = pytest.mark.needs_compiler


def _drawn(program: Program, seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(t.dims).astype(t.dtype) for t in program.tensors.values() if not t.constant]


def _agrees(program: Program, machine: str = "native", target: Any = None, tolerance: float = 1e-5) -> None:
    arrays = _drawn(program)
    want = np.asarray(gl.compile(program, machine="plain")(*arrays))
    compiled = gl.compile(program, target, machine=machine)
    for threads in (1, 3):
        got = np.asarray(compiled(*arrays, threads=threads))
        assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


def _convolution(channels: int, filters: int, size: int, window: int, stride: int, groups: int) -> Program:
    """With a bias, what is added, and an activation, all of which follow in registers."""
    b = gl.Builder("p")
    weight = b.constant("w", (filters, channels // groups, window, window))
    x = b.conv(b.input("x", (1, channels, size, size - 1)), weight, strides=stride, padding=window // 2, groups=groups)
    bias = b.constant("b", (1, filters, 1, 1))
    return b.finish(b.relu(b.add(x, bias))).seeded_constants(0)


CONVOLUTIONS = [
    (3, 24, 11, 3, 2, 1),
    (5, 7, 9, 5, 1, 1),
    (32, 40, 8, 1, 1, 1),
    (24, 24, 10, 3, 1, 24),
    (12, 18, 7, 3, 2, 3),
    (64, 100, 7, 3, 1, 1),
]


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_convolutions(shape: tuple[int, ...]) -> None:
    _agrees(_convolution(*shape))


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine(name: str) -> None:
    program = _convolution(17, 43, 9, 3, 1, 1)
    if is_here(MACHINES[name]):
        _agrees(program, name)
    else:
        with pytest.raises(BadInput, match=f"this computer has no {name}"):
            gl.compile(program, "none", machine=name)
    tiles = [b for nest in lower(program, MACHINES[name]).nests for b in _registers(nest.body)]
    lanes = MACHINES[name].vector // 4
    assert tiles
    assert all(b.dims.product() <= lanes * MACHINES[name].registers for b in tiles)


def _registers(body: Any) -> set[Any]:
    found = set()
    for statement in body:
        found |= _registers(getattr(statement, "body", ()))
        if getattr(getattr(statement, "buffer", None), "role", None) is Role.REGISTER:
            found.add(statement.buffer)
    return found


@pytest.mark.parametrize("size", [3, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 5))])
def test_winograd_of_few_windows(size: int) -> None:
    """Where an image is one window, or two, the rows of a tile are of weights that differ."""
    b = gl.Builder("p")
    x = b.conv(b.input("x", (1, 12, size, size)), b.constant("w", (80, 12, 3, 3)), padding=1)
    program = b.finish(x).seeded_constants(0)
    found = gl.optimize(program, gl.CPU()).program
    for machine in MACHINES.values():
        lowered = Lowered(found, machine)
        assert faults(lowered.loops, lowered.arena) == []
    _agrees(program, target=gl.CPU(), tolerance=1e-4)


def test_winograd_out_of_the_search() -> None:
    program = _convolution(16, 24, 12, 3, 1, 1)
    found = gl.optimize(program, gl.CPU()).program
    assert "linear-map" in str(found)
    _agrees(program, target=gl.CPU(), tolerance=1e-4)


FUNCTIONS = ("exp", "tanh", "erf", "sigmoid", "sqrt", "log", "abs", "negative")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_in_vectors(name: str) -> None:
    """Over the whole range, at its ends, and for nan: a few units in the last place."""
    x = gl.Builder("p").input("x", (4099,))
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 88.7, 89.5, -87.3, -103.0, -110.0, 1e9, -1e9]
    values = np.concatenate([np.linspace(-20, 20, 4099 - len(ends)), ends]).astype(np.float32)
    with np.errstate(all="ignore"):
        got = np.asarray(gl.compile(Program(pointwise.compute(name, x)), "none")(values))
        want = gl.evaluate([pointwise.compute(name, x)], {"x": values})[0]
        assert (np.isnan(got) == np.isnan(want)).all()
        assert (np.isinf(got) == np.isinf(want)).all()
        finite = np.isfinite(want)
        assert np.allclose(got[finite], np.asarray(want)[finite], rtol=1e-6, atol=1e-44)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("relation", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_choices_in_vectors(relation: str, dtype: str) -> None:
    """By comparisons, of what is no number too, and by truths that are read; -0 and nan are chosen as they are."""
    b = gl.Builder("p")
    x, y = (b.input(name, (1027,), dtype) for name in "xy")
    truth = b.input("c", (1027,), dtype)
    compared = pointwise.select(pointwise.compare(relation, x, y), x, pointwise.filled(y, 0))
    program = Program(pointwise.select(pointwise.cast(truth, "bool"), compared, y))
    draw = np.random.default_rng(0)
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1.5, 2.0], dtype)
    given = {name: draw.choice(values, 1027) for name in "xyc"}
    with np.errstate(all="ignore"):
        want = np.asarray(gl.evaluate([program.term], given)[0])
    compiled = gl.compile(program, "none")
    got = compiled(given)
    assert _vectors(lower(program, machine_of("native")).nests[0].body)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def _vectors(body: Any) -> bool:
    return any(
        getattr(statement, "way", None) is Way.VECTOR or _vectors(getattr(statement, "body", ())) for statement in body
    )


def test_the_gradient_of_relu_follows_its_product_in_registers() -> None:
    """A choice by what was made on the way there, of sums that nobody stores."""
    b = gl.Builder("p")
    hidden = b.relu(b.linear(b.input("x", (64, 48)), b.constant("w", (32, 48)), b.constant("c", (32,))))
    program = b.finish(b.linear(hidden, b.constant("v", (40, 32)), b.constant("d", (40,)))).seeded_constants(0)
    gradients = gl.gradient(program, ["w", "v"], cotangent="g")
    lowered = lower(gradients, machine_of("native"))
    assert not any("select" in nest.what and not _registers(nest.body) for nest in lowered.nests)
    assert gl.compile(gradients, "none").check().ok


@pytest.mark.parametrize(
    ("examples", "rows", "columns", "panels_first"),
    [(1000, 256, 784, True), (60, 256, 784, True), (60, 784, 256, False), (60, 256, 64, False)],
)
def test_operands_as_they_lie_are_read_panel_by_panel_where_they_are_large(
    examples: int, rows: int, columns: int, panels_first: bool
) -> None:
    """The gradient of a weight reads both operands along their rows: a large one is not read for every few rows, and
    of two that are near threads share the larger one, but for few panels.
    """
    b = gl.Builder("p")
    x, g = b.input("x", (examples, columns)), b.input("g", (examples, rows))
    turned = [build("access", build("access-transpose", t, (1, 0)), 1) for t in (g, x)]
    nest = lower(
        Program(build("compute", "dot-product", build("access-product", *turned, 0))), MACHINES["avx512"]
    ).nests[-1]
    outer = next(loop for loop in nest.body if getattr(loop, "way", None) is Way.PARALLEL)
    moves = {coefficient(store.place, outer.axis) for store in _stores(outer.body) if store.buffer is nest.buffer}
    assert all((move < columns) is panels_first for move in moves), moves


def _stores(body: Any) -> list[Store]:
    inner = [store for statement in body for store in _stores(getattr(statement, "body", ()))]
    return [*inner, *(statement for statement in body if isinstance(statement, Store))]


@pytest.mark.parametrize("shape", [(3, 40), (2, 5, 7), (1, 1), (2, 3, 130)], ids=str)
def test_softmax(shape: tuple[int, ...]) -> None:
    x = build("access", gl.Builder("p").input("x", shape), 1)
    _agrees(Program(build("compute", "softmax", x)))


@pytest.mark.parametrize(
    ("constant", "image"), quick(itertools.product([False, True], [(), (7, 7)]), 1, 2, unpacked=True), ids=str
)
def test_a_product_is_tiled_if_a_transposed_operand_is_added(image: tuple[int, ...], constant: bool) -> None:
    """As in MLP-Mixer, where the residual is stored with channels first and the product with channels last."""

    def program(transposed: bool) -> Program:
        b = gl.Builder("p")
        own = (40, *(image or (49,))) if transposed else (*(image or (49,)), 40)
        r = b.constant("r", own) if constant else b.input("r", own)
        r = b.transpose(r, (*range(1, len(own)), 0)) if transposed else r
        x = b.linear(b.input("x", (49, 256)), b.constant("w", (40, 256)))
        return b.finish(b.add(r, b.reshape(x, r.access.dims))).seeded_constants(0)

    _agrees(program(True))
    across, along = (gl.compile(program(kind), "none").predicted() for kind in (True, False))
    assert sum(across) < 2 * sum(along)


@pytest.mark.parametrize(
    ("kind", "size"), quick(itertools.product(["sum", "max", "mean"], [3, 16, 70, 257]), 0, 3, 5, 6, 10, unpacked=True)
)
def test_what_is_joined_along_lanes(kind: str, size: int) -> None:
    x = build("access", gl.Builder("p").input("x", (5, size)), 1)
    _agrees(Program(build("compute", f"reduce-{kind}", x)), tolerance=1e-5)


def _padded_twice(x: Term) -> Term:
    """Returns a tensor that is read within two borders, by windows, and as it is."""
    b = gl.Builder("p")
    y = b.relu(x)
    pool = b.max_pool(y, 3, strides=1, padding=1)
    near = b.conv(y, b.constant("a", (6, 6, 3, 3)), padding=1)
    far = b.conv(y, b.constant("c", (6, 6, 5, 5)), padding=2)
    return layout.concatenate([b.add(near, pool), b.add(far, y)], 1)


HERE = [name for name, machine in MACHINES.items() if is_here(machine)]


@pytest.mark.parametrize("machine", HERE)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_one_of_two_in_vectors(dtype: str, machine: str) -> None:
    """Selection by less, by nonzero numbers and by truths, also for nan and -0."""
    b = gl.Builder("p")
    x, y, held = (
        b.input("x", (5, 37), dtype=dtype),
        b.input("y", (5, 37), dtype=dtype),
        b.input("held", (5, 37), dtype="bool"),
    )
    less = pointwise.select(pointwise.compare("lt", x, y), pointwise.multiply(x, y), x)
    other = pointwise.select(x, less, pointwise.add(x, y))
    program = b.finish(pointwise.add(pointwise.select(pointwise.cast(held, dtype), other, y), other))
    draw = np.random.default_rng(0)
    values = {name: draw.standard_normal((5, 37)).astype(RECORDS[dtype].numpy) for name in ("x", "y")}
    values["x"][0, :8] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, 2, np.nan]
    values["y"][0, :8] = [1, np.nan, np.inf, -0.0, 0.0, 1, np.nan, np.nan]
    values["held"] = draw.integers(0, 2, (5, 37)).astype(bool)
    (want,) = gl.evaluate([program.term], values)
    found = gl.compile(program, "none", machine=machine)
    assert np.array_equal(np.asarray(found(values), np.float64), np.asarray(want, np.float64), equal_nan=True)
    assert "select_" in found.source


def test_a_product_with_truths_is_tiled() -> None:
    """An embedding by one-hot rows."""
    b = gl.Builder("p")
    x = pointwise.cast(b.input("x", (33, 65), dtype="bool"), "float32")
    program = b.finish(b.matmul(x, b.constant("w", (65, 48)))).seeded_constants(0)
    assert "unrolled" in str(lower(program, machine_of("avx2")))
    given = np.random.default_rng(0).integers(0, 2, (33, 65)).astype(bool)
    want = gl.compile(program, machine="plain")(given)
    assert np.abs(gl.compile(program, "none")(given) - want).max() < 1e-4


def test_a_minimum_is_found_in_vectors() -> None:
    """It starts with the first element, as there is no highest number; combining that one twice changes nothing."""
    b = gl.Builder("p")
    program = b.finish(reductions.reduce_axes("reduce-min", b.input("x", (5, 103)), (1,)))
    assert "vector" in str(lower(program, machine_of("avx2")))
    _agrees(program, tolerance=0)


def test_constants_are_packed_once() -> None:
    """The steps of a recurrence read the same copy of their weights."""
    b = gl.Builder("p")
    x, w = b.input("x", (1, 64)), b.constant("w", (64, 64))
    for _ in range(4):
        x = b.relu(b.matmul(x, w))
    program = b.finish(x).seeded_constants(0)
    lowered = Lowered(program, machine_of("avx2"))
    assert sum(array.nbytes for array in lowered.constants.values()) == 64 * 64 * 4
    assert faults(lowered.loops, lowered.arena) == []
    _agrees(program)


def test_no_pair_of_operands_is_stored() -> None:
    """A formula that is too large is cut where something is computed."""
    b = gl.Builder("p")
    x = b.input("x", (8, 16))
    for _ in range(12):
        x = pointwise.multiply(pointwise.add(x, pointwise.tanh(x)), pointwise.add(pointwise.sigmoid(x), x))
    loops = lower(b.finish(x), machine_of("avx2"))
    assert len(loops.nests) > 1
    assert not any("access-product" in title for title in loops.titles)


def test_what_is_flat_lies_as_what_it_is_made_of() -> None:
    """Elements of an image that are taken one by one, in one row, may have their channels last."""
    b = gl.Builder("p")
    x = b.relu(b.conv(b.input("x", (1, 8, 9, 9)), b.constant("a", (16, 8, 1, 1))))
    flat = layout.reshape(x, (16 * 81,))
    flat = pointwise.add(pointwise.multiply(flat, flat), flat)
    program = b.finish(b.conv(layout.reshape(flat, (1, 16, 9, 9)), b.constant("c", (24, 16, 1, 1)))).seeded_constants(0)
    loops = lower(program, machine_of("avx2"))
    assert faults(loops) == []
    assert [buffer.dims[-1] for buffer in loops.buffers if buffer.role is Role.TEMPORARY] == [16, 24], str(loops)
    _agrees(program)


def test_what_has_another_border_is_padded_once() -> None:
    """What has a border of one size in memory, and is read within another one, is copied into that."""
    b = gl.Builder("p")
    x = b.relu(b.input("x", (1, 16, 10, 10)))
    rows = layout.pad(x, [(0, 0), (0, 0), (1, 1), (0, 0)])
    near = b.conv(rows, b.constant("a", (16, 16, 3, 1)))
    far = b.conv(layout.pad(rows, [(0, 0), (0, 0), (0, 0), (1, 1)]), b.constant("c", (24, 16, 3, 3)), strides=2)
    program = Program(build("construct-tuple", near, far)).seeded_constants(0)
    assert " if " not in str(lower(program, machine_of("avx2")))
    arrays = _drawn(program)
    for got, want in zip(
        gl.compile(program, "none")(*arrays), gl.compile(program, machine="plain")(*arrays), strict=True
    ):
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def test_borders_and_parts_lie_in_one_buffer() -> None:
    term = _padded_twice(gl.Builder("p").input("x", (1, 6, 9, 8)))
    _agrees(Program(gl.Builder("p").relu(term)).seeded_constants(0))


def test_the_arena_is_what_is_needed_at_a_time() -> None:
    program = gl.models.load("mobilenet-v1", resolution=32).seeded_constants(0)
    loops = lower(program, machine_of("generic"))
    plan = arena(loops)
    sizes = {b: b.dims.product() * 4 for b in plan.places}
    assert plan.bound <= plan.size <= 1.2 * plan.bound
    assert plan.size < sum(sizes.values()) / 4
    assert all(plan.places[b] + size <= plan.size and plan.places[b] % 64 == 0 for b, size in sizes.items())
    assert any(Way.PARALLEL.value in line for line in str(loops).splitlines())


def test_calls_at_once_and_results_that_are_given() -> None:
    program = _convolution(16, 32, 20, 3, 1, 1)
    compiled = gl.compile(program, "none")
    given = [_drawn(program, seed) for seed in range(12)]
    want = [compiled(*arrays, threads=1) for arrays in given]
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda arrays: compiled(*arrays, threads=2), given * 5))
    assert all((a == b).all() for a, b in zip(want * 5, got, strict=True))
    out = np.zeros_like(want[0])
    assert compiled(*given[0], out=out) is out
    assert (out == want[0]).all()
    for wrong, words in (
        (out[:, :, ::2], "requires (1 32 20 19) float32"),
        (np.zeros(out.shape[::-1], np.float32).T, "in C order"),
        ([out, out], "out= requires one array for each result (1), got 2"),
    ):
        with pytest.raises(BadInput) as caught:
            compiled(*given[0], out=wrong)
        assert words in str(caught.value)
    with pytest.raises(BadInput, match="threads is a whole number from 1"):
        compiled(*given[0], threads=0)


def test_arrays_of_others() -> None:
    """What speaks DLPack is taken as it is."""

    class Other:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **how: Any) -> Any:
            return self.array.__dlpack__(**how)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    compiled = gl.compile(Program(pointwise.relu(gl.Builder("p").input("x", (3,)))), "none")
    assert compiled(Other(np.array([-1, 2, 3], np.float32))).tolist() == [0, 2, 3]
