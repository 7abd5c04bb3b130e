"""Tests of products of bytes in 16 bits: exact where the verifier proves ranges, clamped one step beyond them."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from small_weights import product

import glenside as gl
from glenside.codegen.emit_c.printer import source
from glenside.codegen.loop_ir.faults import Condition
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.intrinsics import DOT_4_SIGNED, DOT_16, QUADS
from glenside.codegen.loop_ir.ir import Apply, Buffer, For, Formula, Load, Loops, Nest, Role, Store, Way
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number
from glenside.codegen.lowering.quantized_activations import with_activations
from glenside.codegen.processor.model import MACHINES, is_here
from glenside.codegen.runtime.arguments import pointers
from glenside.codegen.runtime.compile_and_load import loaded
from glenside.codegen.verify.value_ranges import narrow_faults
from glenside.codegen.verify.verify_loops import Checker
from glenside.ir.index_map import Axis, Index
from glenside.ir.term import Term, build, rebuild_all
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
def test_weights_of_few_bits_use_them(rows: int) -> None:
    rng, b = np.random.default_rng(0), gl.Builder()
    x = b.input("x", (rows, 256))
    w = b.constant("w", (72, 256), value=rng.standard_normal((72, 256)).astype("f4"))
    program = b.finish(b.linear(x, w))
    for weights, dot in (("int4", "dot16"), ("int8", "dot4_signed")):
        small = gl.quantize_weights(program, weights, 32)
        function = gl.compile(small, "none", machine="avx2", activations="int8", check=True)
        assert f"{dot}(" in str(function.loops)


def _signed(least: int, formula: str = "instruction") -> Loops:
    """Returns loops that clamp activations to a least one, and then add four products with int8 weights."""
    a, given = (Buffer(n, Dims((ROWS, size)), "int8", Role.INPUT) for n, size in (("a", 4), ("b", 4 * LANES)))
    s, y = (Buffer(n, Dims((ROWS, LANES)), "int32", r) for n, r in (("s", Role.INPUT), ("y", Role.RESULT)))
    own = Buffer("u", a.dims, "int8", Role.TEMPORARY)
    each, row, lane = Axis(0, a.dims.product()), Axis(1, ROWS), Axis(2, LANES)
    clamped = apply("max", Load(a, Index(((each, 1),))), number(least, "int8"))
    words = [Load(own, Index(((row, 4),), i)) for i in range(4)]
    block = [Load(given, Index(((row, 4 * LANES), (lane, 4)), i)) for i in range(4)]
    place = Index(((row, LANES), (lane, 1)))
    operands: tuple[Formula, ...] = (Load(s, place), *words, *block)
    assert DOT_4_SIGNED.narrow is not None
    is_text = formula == "text"
    value = DOT_4_SIGNED.narrow(operands) if is_text else Apply(DOT_4_SIGNED, operands, "int32")
    inner = For(lane, (Store(y, place, value),), Way.LOOP if is_text else Way.VECTOR)
    nests = (
        Nest("activations", own, (For(each, (Store(own, Index(((each, 1),)), clamped),)),)),
        Nest("products", y, (For(row, (inner,)),)),
    )
    return Loops("p", (a, given, s, own, y), nests, (y,))


def _signed_values(least: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    a = draw.choice([least, -1, 0, 1, 127], (ROWS, 4)).astype(np.int8)
    b = draw.choice([-128, -127, -1, 0, 1, 127], (ROWS, 4 * LANES)).astype(np.int8)
    a[:4], b[:4], a[4:8], b[4:8] = least, -128, 127, -128  # the largest sums
    return {"a": a, "b": b, "s": draw.choice([-(1 << 31), 0, (1 << 31) - 1], (ROWS, LANES)).astype(np.int32)}


def test_products_of_signed_bytes() -> None:
    """Weights may be -128, activations may not: they have no negative, which the text takes."""
    loops, values = _signed(-127), _signed_values(-127)
    assert not _narrow(loops)
    products = np.einsum(
        "ri,rli->rl", values["a"].astype(np.int64), values["b"].reshape(ROWS, LANES, 4).astype(np.int64)
    )
    want = (values["s"] + products).astype(np.int32)
    assert np.array_equal(interpret(loops, values)[0], want)
    assert np.array_equal(interpret(_signed(-127, "text"), values)[0], want)
    for name in HERE:
        assert np.array_equal(_ran(loops, values, name), want), name
    beyond, values = _signed(-128), _signed_values(-128)
    assert _narrow(beyond) == ["a step of dot4_signed gives -128..128, beyond -128..127"]
    clamped = interpret(_signed(-128, "text"), values)[0]
    assert not np.array_equal(clamped, interpret(beyond, values)[0])
    if "avx2" in HERE:
        assert np.array_equal(_ran(beyond, values, "avx2"), clamped)


@pytest.mark.skipif("avx2" not in HERE, reason="no AVX2")
@pytest.mark.parametrize(("least", "dot"), [(-127, "dot4_signed"), (-128, "dot4_turned")])
def test_clamps_of_activations_choose_the_instruction(least: int, dot: str) -> None:
    """A program whose activations may be -128 is compiled with the instruction for all int8."""

    def clamped(term: Term, _: tuple[Term, ...]) -> Term | None:
        is_end = term.operator.name == "full" and term.attributes[1] == "-127"
        return build("full", term.attributes[0], least, "float32") if is_end else None

    rng = np.random.default_rng(0)
    program = with_activations(product(2, 64, 128, 32, -128, 127), "int8")
    program = program.with_roots(rebuild_all(program.roots, clamped))
    function = gl.compile(program, "none", machine="avx2")
    x = rng.standard_normal((2, 128)).astype(np.float32)
    wanted = gl.evaluate([program.term], {**program.constants, "x": x})[0]
    assert np.allclose(function(x), wanted, atol=1e-5 * abs(wanted).max())
    assert f"{dot}(" in str(function.loops)
