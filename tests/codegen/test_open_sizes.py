"""Tests programs with open sizes: one compiled function, against the interpreter's program of each size."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.builder import layout, pointwise
from glenside.check.open_function import lowered_open
from glenside.codegen.loop_ir.ir import For
from glenside.codegen.open_sizes.fit import Fitter
from glenside.codegen.processor.model import MACHINES
from glenside.ir.errors import BadInput
from glenside.ir.open_integer import OpenFraction, OpenInteger, common_divisor
from glenside.ir.program import Program
from glenside.ir.size_expression import Expression, Quotient, Size
from glenside.ir.term import build
from tests.oracles.open_programs import PROGRAMS, drawn

MOST = 70
QUICK_PLAIN = ("attention", "cache", "mean_over", "embeddings", "moved")
QUICK = ("columns", "sum_of_products", "embeddings", "mean_over", "short_softmax", "positions")


def _some(quick: tuple[str, ...]) -> list[Any]:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]


def _flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _agrees(function: Any, program: Program, seed: int) -> None:
    given = drawn(program, seed)
    wanted = gl.evaluate([program.term], {**program.constants, **given})[0]
    for own, right in zip(_flat(function(given)), _flat(wanted), strict=True):
        assert (own.shape, own.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(own, right, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(right).max(initial=0))))


@pytest.mark.parametrize("name", _some(QUICK_PLAIN))
def test_plain_loops_of_all_sizes_agree_with_the_program_of_each(name: str) -> None:
    f = gl.compile(gl.open_program(PROGRAMS[name], name, n=(1, MOST)), machine="plain")
    for n in (1, 2, 17, MOST):
        _agrees(f, PROGRAMS[name](n), n)


@pytest.mark.parametrize("name", _some(QUICK))
def test_tiled_loops_of_all_sizes_agree_with_the_program_of_each(name: str) -> None:
    f = gl.compile(gl.open_program(PROGRAMS[name], name, n=(1, MOST)))
    for n in (1, 2, 3, 5, 16, 23, 48, 49, 64, MOST):
        _agrees(f, PROGRAMS[name](n), n)
    assert name == "convolution" or "plain loops" not in f.report


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["plain", "native"])
@pytest.mark.parametrize("seed", range(4))
def test_ranges_that_are_drawn(machine: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    for name, make in PROGRAMS.items():
        low = int(draw.integers(1, 90))
        high = low + int(draw.integers(0, 300))
        f = gl.compile(gl.open_program(make, name, n=(low, high)), machine=machine)
        for n in {low, high, *draw.integers(low, high + 1, 4).tolist()}:
            _agrees(f, make(n), n)


def _step(past: int, seq: int) -> Program:
    b = gl.Builder("step")
    x, k = b.input("x", (1, seq, 32)), b.input("k", (1, past, 32))
    weight = np.random.default_rng(0).standard_normal((32, 32)).astype("float32") / 6
    keys = layout.concatenate([k, b.linear(x, b.constant("w", (32, 32), value=weight))], 1)
    y = b.matmul(b.softmax(b.matmul(x, layout.transpose(keys, (0, 2, 1)))), keys)
    return b.finish(build("construct-tuple", y, keys))


def test_two_open_sizes_and_a_cache_that_stays_in_the_function(tmp_path: Path) -> None:
    f = gl.compile(gl.open_program(_step, past=(0, 12), seq=(1, 4)), machine="plain", state={"k": "output_1"})
    past, draw = np.zeros((1, 0, 32), "float32"), np.random.default_rng(1)
    for seq in (3, 1, 4, 2, 1, 1, 1):
        x = draw.standard_normal((1, seq, 32)).astype("float32")
        p = _step(past.shape[1], seq)
        y, past = gl.evaluate([p.term], {**p.constants, "x": x, "k": past})[0]
        np.testing.assert_allclose(f(x), y, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(f.state["k"], past, rtol=1e-4, atol=1e-4)
    before = f.state["k"].copy()
    with pytest.raises(BadInput, match="past is from 0 to 12, got 13"):
        f(np.zeros((1, 1, 32), "float32"))
    np.testing.assert_array_equal(f.state["k"], before)
    f.save(tmp_path / "state.npz")
    f.reset()
    assert f.state["k"].shape == (1, 0, 32)
    f.load(tmp_path / "state.npz")
    np.testing.assert_array_equal(f.state["k"], before)


def test_state_of_fixed_sizes() -> None:
    b = gl.Builder("counter")
    total, x = b.input("total", (3,)), b.input("x", (3,))
    added = b.add(total, x)
    f = gl.compile(b.finish(build("construct-tuple", b.relu(added), added)), "none", state={"total": "output_1"})
    assert list(f.state) == ["total"]
    for step in range(1, 4):
        np.testing.assert_array_equal(f(np.full(3, -2, "float32")), np.zeros(3))
        np.testing.assert_array_equal(f.state["total"], np.full(3, -2 * step))
    f.state["total"] = np.ones(3, "float32")
    np.testing.assert_array_equal(f(x=np.ones(3, "float32")), np.full(3, 2))
    for wrong, said in (({"total": "y"}, "no result 'y'"), ({"z": "output_1"}, "no input 'z'"), ({}, "at least one")):
        with pytest.raises(BadInput, match=said):
            gl.compile(b.finish(build("construct-tuple", b.relu(added), added)), "none", state=wrong)
    with pytest.raises(BadInput, match="is state"):
        f(np.ones(3, "float32"), total=np.ones(3, "float32"))


def test_what_is_refused() -> None:
    make = PROGRAMS["mlp"]
    f = gl.compile(gl.open_program(make, "mlp", n=(2, 9)), machine="plain")
    for given, said in (
        (np.zeros((10, 40), "float32"), "n is from 2 to 9, got 10"),
        (np.zeros((1, 40), "float32"), "n is from 2 to 9, got 1"),
        (np.zeros((4, 41), "float32"), r"x requires \(4 40\) float32"),
        (np.zeros((4, 40), "float64"), r"x requires \(4 40\) float32"),
        (np.zeros((4, 40, 1), "float32"), "got 3 axes"),
    ):
        with pytest.raises(BadInput, match=said):
            f(given)
    for ranges, said in (({"n": (9, 2)}, "is empty"), ({"n": 5}, "such as"), ({}, "at least one size")):
        with pytest.raises(BadInput, match=said):
            gl.open_program(make, "mlp", **ranges)  # type: ignore[arg-type]
    for target in ("npu:8x8", "cpu:8MB"):
        with pytest.raises(BadInput, match="requires numbers for the open sizes n"):
            gl.compile(gl.open_program(make, "mlp", n=(2, 9)), target)
    with pytest.raises(BadInput, match="memory: not for open sizes"):
        gl.compile(gl.open_program(make, "mlp", n=(2, 9)), memory="1MB")
    with pytest.raises(BadInput, match="not the size of an axis of an input"):
        gl.compile(gl.open_program(lambda n, m: make(n), "mlp", n=(2, 9), m=(1, 3)), machine="plain")

    def by_number(n: int) -> Program:
        b = gl.Builder("reshaped")
        return b.finish(b.reshape(b.input("x", (n, 6)), (4, 3 * n // 2)))

    with pytest.raises(BadInput, match=r"at n = \d+: "):
        gl.compile(gl.open_program(by_number, "reshaped", n=(2, 9)), machine="plain")
    with pytest.raises(BadInput, match=r"^(?!at n = )"):  # it is built at 201, too, which is no size of the range
        gl.compile(gl.open_program(lambda n: by_number(2 * n + 1), "reshaped", n=(1, 4)), machine="plain")


def test_a_program_that_is_another_one_at_some_sizes_is_refused() -> None:
    def other(n: int) -> Program:
        b = gl.Builder("other")
        x = b.input("x", (n, 8))
        return b.finish(b.relu(x) if n < 40 else b.tanh(x))

    with pytest.raises(BadInput, match="at n = 1 "):
        gl.compile(gl.open_program(other, "other", n=(1, 300)), machine="plain")

    def last_rows(n: int) -> Program:
        b = gl.Builder("last")
        return b.finish(b.slice_axis(b.input("x", (n, 6)), 0, max(0, n - 3), n))

    with pytest.raises(BadInput, match=r"at n = 1 .*; a range without these sizes may hold"):
        gl.compile(gl.open_program(last_rows, "last", n=(1, 40)), machine="plain")
    assert gl.compile(gl.open_program(last_rows, "last", n=(3, 40)), machine="plain")


@pytest.mark.needs_compiler
@pytest.mark.parametrize("first", [3, 100, 299])
def test_a_program_whose_operators_read_others_at_some_sizes_is_refused(first: int) -> None:
    def other(n: int) -> Program:
        b = gl.Builder("other")
        outer = pointwise.compute("exp", b.input("x", (n, 4)))
        inner = pointwise.compute("tanh", outer)
        return b.finish(b.subtract(b.multiply(outer, inner), outer if n < first else inner))

    with pytest.raises(BadInput, match=r"has other operands at other sizes|at n = \d+: output has other values"):
        gl.compile(gl.open_program(other, "other", n=(1, 300)), machine="plain")


@pytest.mark.parametrize(("batch", "length"), [(3, 10), (1, 5), (4, 40)])
def test_few_sizes_up_to_the_rows_of_a_table(batch: int, length: int) -> None:
    def with_positions(batch: int, length: int) -> Program:
        b = gl.Builder("positions")
        x, table = b.input("x", (batch, length, 6)), b.input("table", (most, 6))
        return b.finish(pointwise.add(x, layout.slice_axis(table, 0, 0, length)))

    most = length
    f = gl.compile(gl.open_program(with_positions, batch=(1, batch), length=(2, length)), "none")
    for sizes in ((1, 2), (batch, length), (1, length - 1)):
        _agrees(f, with_positions(*sizes), 0)


def test_files_with_open_dimensions(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.eye(6, dtype="float32")[:, :4], "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", kind, ["batch", "seq", 6])],
        [helper.make_tensor_value_info("y", kind, None)],
        [weight],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    f = gl.compile(path, dims={"batch": 2, "seq": (1, 30)}, machine="plain")
    for seq in (1, 7, 30):
        x = np.random.default_rng(seq).standard_normal((2, seq, 6)).astype("float32")
        h = np.exp(x[..., :4])
        np.testing.assert_allclose(f(x), h / h.sum(-1, keepdims=True), rtol=1e-5)
    with pytest.raises(BadInput, match="no open dimension 'length'; there are batch, seq"):
        gl.load(path, dims={"length": (1, 3)})
    with pytest.raises(BadInput, match="dims= is for the path"):
        gl.compile(PROGRAMS["mlp"](3), dims={"n": (1, 2)})


def test_expressions_are_found_and_printed() -> None:
    samples = [
        {"n": n, "m": m} for n, m in zip((131, 150, 163, 177, 190, 201, 222), (7, 19, 5, 12, 9, 31, 17), strict=True)
    ]
    fitter = Fitter(samples)
    for make in (
        lambda n, m: n * m + 3,
        lambda n, m: n // 48,
        lambda n, m: n % 6,
        lambda n, m: (n + 1) // 2,
        lambda n, m: 48 * (n // 48) * m,
        lambda n, m: 5 * n * n - m,
    ):
        found = fitter.fit(tuple(make(**sample) for sample in samples))
        assert found is not None
        assert all(found.at({"n": n, "m": m}) == make(n, m) for n in range(130, 230) for m in range(1, 20))
    q = Quotient(Expression(((1, (Size("n"),)),)), -3, 4)
    assert Expression(((2, (q,)),), 1).in_c({"n": "n[0]"}) == "2 * floor_quotient(n[0] + -3, 4) + 1"


def test_sizes_with_a_step_have_whole_halves() -> None:
    size = Size("rows", 4, 2)
    rows = OpenInteger(22, Expression(((4, (size,)),), 2))
    assert (rows + 2) // 4 == OpenInteger(6, Expression(((1, (size,)),), 1))
    assert rows.expression.at({"rows": 30}) == 30
    assert (str(rows.expression), str((rows // 2).expression)) == ("rows", "2*((rows - 2) / 4) + 1")
    assert rows.expression.in_c({"rows": "n[0]"}) == "4 * ((n[0] - 2) / 4) + 2"
    for change in (
        lambda n: (n + 5) // 6,
        lambda n: ((n + 3) // 3 + 1) // 2,
        lambda n: (n // 2 + 3) // 3,
        lambda n: ((n - 3) // 2 + 1) // 4,
        lambda n: ((n + 1) // 2 + 1) // 2 - (n + 3) // 4,
    ):
        found = change(rows)
        own = found.expression if isinstance(found, OpenInteger) else Expression((), found)
        assert [own.at({"rows": n}) for n in range(2, 99, 4)] == [change(n) for n in range(2, 99, 4)]
    n = OpenInteger(7, Expression(((1, (Size("n"),)),)))
    assert ((n + 1) // 2 + 1) // 2 == (n + 3) // 4  # a quotient of a quotient is one of the first sum
    assert (6 * n + 9) // 15 == (2 * n + 3) // 5


def test_fractions_of_open_sizes_know_their_expressions() -> None:
    n = OpenFraction(OpenInteger(7, Expression(((1, (Size("n"),)),))))
    for change in (
        lambda x: 1 / x,
        lambda x: 3 * x + Fraction(1, 3),
        lambda x: 2 - x / 4,
        lambda x: -x / (x + 1) * Fraction(2, 5),
        lambda x: x - 1,
    ):
        assert [change(n).at({"n": size}) for size in (1, 5, 64)] == [change(Fraction(size)) for size in (1, 5, 64)]
    assert n * 0 == 0


def test_variances_of_groups_of_channels_are_divided_by_the_size_of_the_image() -> None:
    """Variances in vectors, whose divisor becomes a factor."""

    def groups(height: int, width: int) -> Program:
        b, own = gl.Builder("groups"), np.random.default_rng(0).standard_normal((64, 3, 3, 3)).astype("float32")
        y = b.conv(b.input("x", (1, 3, height, width)), b.constant("w", own.shape, value=own), padding=1)
        normed, _, _ = pointwise.standardized(layout.reshape(y, (1, 32, 2 * height * width)), 2)
        return b.finish(normed)

    f = gl.compile(gl.open_program(groups, "groups", height=(4, 60, 4), width=(4, 60, 4)))
    for height, width in ((4, 4), (8, 20), (60, 12)):
        _agrees(f, groups(height, width), height)


@pytest.mark.needs_compiler
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (5, 2)])
def test_convolutions_of_single_channels_are_tiled_for_images_of_any_size(kernel: int, stride: int) -> None:
    """Their windows are of padded rows: places are multiples of products of two sizes, divided by one of them."""

    def depthwise(height: int, width: int, channels: int = 6) -> Program:
        b = gl.Builder("depthwise")
        value = np.random.default_rng(0).standard_normal((channels, 1, kernel, kernel)).astype("float32")
        weights, x = b.constant("w", value.shape, value=value), b.input("x", (1, channels, height, width))
        return b.finish(b.relu(b.conv(x, weights, strides=stride, padding=kernel // 2, groups=channels)))

    f = gl.compile(gl.open_program(depthwise, height=(3, 60), width=(3, 70)), "none")
    for height, width in ((3, 3), (9, 31), (60, 70), (4, 16), (17, 5)):
        _agrees(f, depthwise(height, width), height)
    loops = str(lowered_open(f.program, MACHINES["avx2"]).template.at({"height": 21, "width": 37}, None))
    assert "//" not in loops
    assert "vector" in loops.partition("temporary1[")[2].rpartition("tile")[0]


def test_a_product_of_sums_is_divided_by_one_of_them() -> None:
    height, width = (Expression(((step, (Size(name, step),)),), 0) for name, step in (("h", 4), ("w", 1)))
    one, other = width + Expression((), 2), height * width + height + Expression((), 3)
    assert (one * other).quotient(one) == other
    assert (one * other).quotient(other) == one
    assert (one * one * one).quotient(one) == one * one
    assert (one * other + Expression((), 1)).quotient(one) is None
    assert (height * other).quotient(one) is None
    assert one.quotient(Expression()) is None
    assert Expression().quotient(one) == Expression()


def test_elements_of_images_are_products_of_quotients() -> None:
    draw = Random(1)
    samples = [{"h": 32 * draw.randint(32, 90), "w": 32 * draw.randint(32, 90)} for _ in range(11)]
    fitter = Fitter(samples, [Size("h", 32), Size("w", 32)])

    def above(size: int, by: int) -> int:
        return -(-size // by)

    for make in (
        lambda h, w: above(h, 64),
        lambda h, w: above(w, 512),
        lambda h, w: above(w, 64),
        lambda h, w: 3 * above(h, 64) * above(w, 64),
        lambda h, w: above(h, 64) * above(w, 512),
    ):
        found = fitter.fit(tuple(make(**sample) for sample in samples))
        assert found is not None
        assert all(found.at({"h": h, "w": w}) == make(h, w) for h in range(32, 999, 32) for w in range(32, 999, 96))


def test_positions_behind_strides_of_two_are_one_program() -> None:
    """Half of a length is written as a stride computes it, and as a slice of positions has it."""

    def halved(length: int) -> Program:
        b = gl.Builder("halved")
        weight, table = (
            np.eye(4, dtype="float32").reshape(4, 4, 1, 1),
            np.arange(200, dtype="float32").reshape(1, 4, 1, 50),
        )
        y = b.conv(b.input("x", (1, 4, 1, length)), b.constant("w", weight.shape, value=weight), strides=(1, 2))
        positions = layout.slice_axis(b.constant("table", table.shape, value=table), 3, 0, length // 2)
        return b.finish(b.add(y, positions))

    f = gl.compile(gl.open_program(halved, "halved", length=(2, 98, 2)))
    for length in (2, 6, 34, 98):
        _agrees(f, halved(length), length)
    assert "(1 4 1 length)" in repr(f)
    with pytest.raises(BadInput, match="length is from 2 to 98 by 2, got 7"):
        f(np.zeros((1, 4, 1, 7), "float32"))


def _pyramid(height: int, width: int) -> Program:
    """Features of three strides beyond the step of the sizes: odd sizes are rounded up, and the last ones may be 1."""
    b, draw = gl.Builder("pyramid"), np.random.default_rng(0)
    x, levels = b.input("image", (1, 3, height, width)), []
    for level in range(3):
        value = draw.standard_normal((4, 3 if level == 0 else 4, 3, 3)).astype("float32")
        x = b.relu(b.conv(x, b.constant(f"w{level}", value.shape, value=value), strides=2, padding=1))
        levels.append(layout.reshape(x, (4, x.access.dims[2] * x.access.dims[3])))
    return b.finish(layout.concatenate(levels, 1))


@pytest.mark.slow
def test_images_whose_sizes_become_odd() -> None:
    f = gl.compile(gl.open_program(_pyramid, "pyramid", height=(2, 20), width=(2, 20, 2)))
    for height, width in ((2, 2), (3, 20), (6, 14), (11, 4), (20, 18)):
        _agrees(f, _pyramid(height, width), height)
    assert "plain loops" not in f.report


def _images(batch: int) -> Program:
    b, draw = gl.Builder("images"), np.random.default_rng(0)
    x = b.input("x", (batch, 3, 17, 17))
    for level, inside in enumerate((3, 16)):
        value = draw.standard_normal((16, inside, 3, 3)).astype("float32") / 6
        x = b.conv(b.relu(x), b.constant(f"w{level}", value.shape, value=value), padding=1)
    return b.finish(x)


def test_rows_of_images_are_tiled_where_the_batch_is_open() -> None:
    f = gl.compile(gl.open_program(_images, "images", batch=(1, 8)))
    for batch in (1, 2, 7, 8):
        _agrees(f, _images(batch), batch)
    sizes = {str(number) for number in f.lowered.text.numbers}
    assert not [size for size in sizes if "//" in size], "the batch is not cut into pieces"


def _encoder(batch: int, length: int) -> Program:
    b, heads = gl.Builder("encoder"), (batch, length, 2, 16)
    x = b.input("x", (batch, length, 32))
    draw = np.random.default_rng(0)
    dense = {n: b.constant(n, (32, 32), value=draw.standard_normal((32, 32)).astype("float32") / 6) for n in "qkvo"}
    q, k, v = (layout.transpose(layout.reshape(b.linear(x, dense[n]), heads), (0, 2, 1, 3)) for n in "qkv")
    y = b.matmul(b.softmax(b.matmul(q, layout.transpose(k, (0, 1, 3, 2)))), v)
    y = layout.reshape(layout.transpose(y, (0, 2, 1, 3)), (batch, length, 32))
    return b.finish(b.add(x, b.linear(y, dense["o"])))


def test_rows_of_all_batches_are_tiled_together_and_attention_is_fused() -> None:
    f = gl.compile(gl.open_program(_encoder, "encoder", batch=(1, 5), length=(1, 60)))
    for batch, length in ((1, 1), (1, 7), (2, 3), (3, 60), (5, 13), (5, 59)):
        _agrees(f, _encoder(batch, length), length)
    assert "without" not in f.report
    nests = f.lowered.template.symbolic().nests
    assert any(nest.what.startswith("blocks of") for nest in nests)
    loops = [statement.axis.size for nest in nests for statement in nest.body if isinstance(statement, For)]
    assert any("batch*length" in str(size.expression) for size in loops if isinstance(size, OpenInteger))


def test_sums_of_many_products_are_fitted() -> None:
    """Offsets behind buffers of two open sizes, cut into pieces."""
    draw = Random(0)
    samples = [{"seq": draw.randint(131, 260), "past": draw.randint(131, 260)} for _ in range(14)]
    fitter = Fitter(samples)
    assert fitter.fit(tuple(s["seq"] // 64 for s in samples)) is not None

    def offset(seq: int, past: int) -> int:
        return 4 * seq * (seq + past) + 7 * past + (seq + past) * (seq // 64) * 3 + 5 * (seq // 64) + 11

    found = fitter.fit(tuple(offset(**s) for s in samples))
    assert found is not None
    for seq, past in ((1, 1), (64, 3), (1000, 77)):
        assert found.at({"seq": seq, "past": past}) == offset(seq, past)
    assert fitter.fit(tuple(draw.randint(0, 10**6) for _ in samples)) is None


def test_integers_of_open_sizes_know_their_expressions() -> None:
    sizes = [{"n": 7, "m": 5}, {"n": 1, "m": 1}, {"n": 96, "m": 31}]
    n, m = (OpenInteger(size, Expression(((1, (Size(name),)),))) for name, size in {"n": 7, "m": 5}.items())

    def values(a: Any, b: Any) -> list[Any]:
        return [a + b, 3 * a - b * 2 + 4, a * b + a, (a * 6 + 5) // 3, (a * b) // b, (a * b - 1) // b, a % 4, -a // 2]

    for found, own in zip(values(n, m), zip(*(values(s["n"], s["m"]) for s in sizes), strict=True), strict=True):
        assert [found.expression.at(size) for size in sizes] == list(own)
        assert int(found) == own[0]
    assert n != 7
    assert n * 0 == 0
    assert n - n == 0
    assert n + m - m == n
    assert common_divisor(n * 4, n * m * 2) in (2, n * 2)


@pytest.mark.needs_compiler
def test_state_that_is_no_mapping_or_has_no_pair_is_refused() -> None:
    program = gl.open_program(PROGRAMS["moved"], n=(1, 8))
    with pytest.raises(BadInput, match="state= is True, or"):
        gl.compile(program, machine="plain", state="past")  # type: ignore[call-overload]
    with pytest.raises(BadInput, match="got 3 as a name"):
        gl.compile(program, machine="plain", state={"x": 3})  # type: ignore[call-overload]
    with pytest.raises(BadInput, match="no result is named as the next value of an input"):
        gl.compile(program, machine="plain", state=True)


def test_one_expression_of_other_ranges_is_another_number() -> None:
    """Types are memoized: those of a program whose representative sizes are larger would be compared with smaller."""
    expression = Expression(((1, (Size("n"),)),), 1)
    assert OpenInteger(26, expression) == OpenInteger(26, expression)
    assert OpenInteger(26, expression) != OpenInteger(33, expression)


@pytest.mark.needs_compiler
def test_a_state_of_other_sizes_than_its_next_value_is_refused() -> None:
    def scores(n: int) -> Program:
        b = gl.Builder("scores")
        x = b.input("x", (n, 4))
        return b.finish(b.matmul(x, b.transpose(x, (1, 0))))

    with pytest.raises(BadInput, match="the state x has 4 elements along axis 1, and output has from 1 to 8"):
        gl.compile(gl.open_program(scores, n=(1, 8)), machine="plain", state={"x": "output"})
