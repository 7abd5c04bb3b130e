"""Tests of products of bytes in 16 bits: exact where the verifier proves ranges, clamped one step beyond them."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

import glenside as gl
from glenside.codegen.emit_c.printer import source
from glenside.codegen.loop_ir.faults import Condition
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.intrinsics import DOT_16, QUADS
from glenside.codegen.loop_ir.ir import Apply, Buffer, For, Formula, Load, Loops, Nest, Role, Store, Way
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number
from glenside.codegen.processor.model import MACHINES, is_here
from glenside.codegen.runtime.arguments import pointers
from glenside.codegen.runtime.compile_and_load import loaded
from glenside.codegen.verify.value_ranges import narrow_faults
from glenside.codegen.verify.verify_loops import Checker
from glenside.ir.index_map import Axis, Index
from glenside.ir.types import Dims

pytestmark = pytest.mark.needs_compiler
HERE = [name for name, machine in MACHINES.items() if is_here(machine)]
LANES, ROWS, DEPTH = 8, 64, 4 * QUADS
LARGEST = 32
"""The largest weight with which the sums of pairs, -128 * 32 * 8, are in 16 bits."""


def _place(axis: Axis, lane: Axis, group: int, i: int) -> Index:
    return Index(((axis, DEPTH * LANES), (lane, 4)), group * 4 * LANES + i)


def _loops(largest: int, formula: str = "instruction", zero: bool = False) -> Loops:
    """Returns loops that clamp weights to a largest one, and then add products with them.

    formula  the instruction, or the formula of its text, element by element
    zero     True if activations are also clamped to 0 and more
    """
    a, given = (
        Buffer("a", Dims((ROWS, DEPTH)), "int8", Role.INPUT),
        Buffer("b", Dims((ROWS * DEPTH * LANES,)), "uint8", Role.INPUT),
    )
    s, y = (Buffer(n, Dims((ROWS, LANES)), "int32", r) for n, r in (("s", Role.INPUT), ("y", Role.RESULT)))
    weights, own = Buffer("t", given.dims, "uint8", Role.TEMPORARY), Buffer("u", a.dims, "int8", Role.TEMPORARY)
    every, each = Axis(0, given.dims.product()), Axis(0, a.dims.product())
    clamped = apply("min", Load(given, Index(((every, 1),))), number(largest, "uint8"))
    least = apply("max", Load(a, Index(((each, 1),))), number(0 if zero else -128, "int8"))
    row, lane = Axis(1, ROWS), Axis(2, LANES)
    words = [Load(own, Index(((row, DEPTH),), i)) for i in range(DEPTH)]
    blocks = [Load(weights, _place(row, lane, n, i)) for n in range(QUADS) for i in range(4)]
    place = Index(((row, LANES), (lane, 1)))
    operands: tuple[Formula, ...] = (Load(s, place), *words, *blocks)
    assert DOT_16.narrow is not None
    value = Apply(DOT_16, operands, "int32") if formula == "instruction" else DOT_16.narrow(operands)
    inner = For(lane, (Store(y, place, value),), Way.VECTOR if formula == "instruction" else Way.LOOP)
    nests = (
        Nest("weights", weights, (For(every, (Store(weights, Index(((every, 1),)), clamped),)),)),
        Nest("activations", own, (For(each, (Store(own, Index(((each, 1),)), least),)),)),
        Nest("products", y, (For(row, (inner,)),)),
    )
    return Loops("p", (a, given, s, weights, own, y), nests, (y,))


def _values(largest: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    a = draw.choice([-128, -127, -1, 0, 127], (ROWS, DEPTH)).astype(np.int8)
    b = draw.choice([0, 1, largest], ROWS * DEPTH * LANES).astype(np.uint8)
    a[:8], b[: 8 * DEPTH * LANES] = -128, largest  # the least sum
    s = draw.choice([-(1 << 31), -1, 0, (1 << 31) - 1], (ROWS, LANES)).astype(np.int32)
    return {"a": a, "b": b, "s": s}


def _exact(values: dict[str, np.ndarray]) -> np.ndarray:
    blocks = values["b"].reshape(ROWS, QUADS, LANES, 4).astype(np.int64)
    sums = np.einsum("rqi,rqli->rl", values["a"].reshape(ROWS, QUADS, 4).astype(np.int64), blocks)
    return (values["s"] + sums).astype(np.int32)  # wraps


def _ran(loops: Loops, values: dict[str, np.ndarray], name: str) -> np.ndarray:
    out = np.zeros((ROWS, LANES), np.int32)
    scratch = np.zeros(1 << 17, np.uint8)
    built = loaded(source(loops), MACHINES[name])
    given = pointers([values[n] for n in ("a", "b", "s")])
    assert built.library.run(given, pointers([out]), ctypes.c_void_p(scratch.ctypes.data), None, None) == 0
    return out


def _narrow(loops: Loops) -> list[str]:
    return [fault.said for fault in Checker().faults(loops) if fault.condition is Condition.NARROW]


@pytest.mark.parametrize("largest", [15, LARGEST])
def test_products_of_proven_ranges_are_exact(largest: int) -> None:
    loops, values = _loops(largest), _values(largest)
    assert not _narrow(loops)
    want = _exact(values)
    assert np.array_equal(interpret(loops, values)[0], want)
    assert np.array_equal(interpret(_loops(largest, "text"), values)[0], want)
    for name in HERE:
        assert np.array_equal(_ran(loops, values, name), want), name


def test_a_range_that_is_one_too_large_is_refused() -> None:
    """The text is wrong for a weight of 33, as its formula says, and right again for activations without a sign."""
    loops, values = _loops(LARGEST + 1), _values(LARGEST + 1)
    assert _narrow(loops) == ["a step of dot16 gives -33792..33528, beyond -32768..32767"]
    clamped = interpret(_loops(LARGEST + 1, "text"), values)[0]
    assert not np.array_equal(clamped, _exact(values))
    if "avx2" in HERE:
        assert np.array_equal(_ran(loops, values, "avx2"), clamped)
    assert _narrow(_loops(LARGEST, zero=True)) == []
    assert _narrow(_loops(LARGEST + 1, zero=True)) != []  # 127 * 33 * 8


def test_pairs_saturate_before_their_sum_wraps() -> None:
    loops, values = _loops(255), _values(255)
    assert "beyond" in _narrow(loops)[0]
    if "avx2" in HERE:
        assert np.array_equal(_ran(loops, values, "avx2"), interpret(_loops(255, "text"), values)[0])


def test_unknown_ranges_are_those_of_dtypes() -> None:
    """A buffer that is computed from itself, or that nothing clamps, may hold every value."""
    loops = _loops(LARGEST)
    fill = loops.nests[0]
    (loop,) = fill.body
    assert isinstance(loop, For)
    (store,) = loop.body
    assert isinstance(store, Store)
    itself = apply("add", Load(fill.buffer, store.place), number(1, "uint8"))
    for value in (itself, convert(Load(loops.buffers[0], Index()), "uint8")):
        again = replace(fill, body=(loop, replace(loop, body=(replace(store, formula=value),))))
        assert list(narrow_faults(replace(loops, nests=(again, *loops.nests[1:]))))


@pytest.mark.skipif("avx2" not in HERE, reason="no AVX2")
@pytest.mark.parametrize("rows", [1, 13])
def test_weights_of_4_bits_use_them(rows: int) -> None:
    rng, b = np.random.default_rng(0), gl.Builder()
    x = b.input("x", (rows, 256))
    w = b.constant("w", (72, 256), value=rng.standard_normal((72, 256)).astype("f4"))
    program = b.finish(b.linear(x, w))
    for weights, used in (("int4", True), ("int8", False)):
        small = gl.quantize_weights(program, weights, 32)
        function = gl.compile(small, "none", machine="avx2", activations="int8", check=True)
        assert ("dot16(" in str(function.loops)) == used
