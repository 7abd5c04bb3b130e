"""Tests that tiled integer programs are exact on every machine, and that instructions compute their formulas."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from quantized_network import network, values
from slow_cases import quick

import glenside as gl
from glenside.builder import layout, pointwise, quantization
from glenside.codegen.c_library.export import library
from glenside.codegen.emit_c.printer import source
from glenside.codegen.loop_ir.interpreter import interpret
from glenside.codegen.loop_ir.intrinsics import (
    DOT_4,
    DOT_4_TURNED,
    INSTRUCTIONS,
    PRODUCT_OF_16,
    Instruction,
)
from glenside.codegen.loop_ir.ir import Apply, Buffer, For, Formula, Load, Loops, Nest, Role, Store, Way
from glenside.codegen.loop_ir.scalar_expr import convert, number
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, Machine, is_here
from glenside.codegen.runtime.arguments import pointers
from glenside.codegen.runtime.compile_and_load import compiler, flags, loaded
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.index_map import Axis, Index
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims
from glenside.passes.integer_sums import integer_sums

pytestmark = pytest.mark.needs_compiler

HERE = [name for name, machine in MACHINES.items() if is_here(machine)]
DOTS = [name for name in HERE if name in ("avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2")]


def _ran(loops: Loops, values: dict[str, np.ndarray], machine: Machine | None) -> np.ndarray:
    """What compiled loops give."""
    (result,) = loops.results
    out = np.zeros(tuple(result.dims), result.dtype)
    given = [values[b.name] for b in loops.buffers if b.role is Role.INPUT]
    assert loaded(source(loops), machine).library.run(pointers(given), pointers([out]), None, None, None) == 0
    return out


def _of_vectors(lanes: int, rows: int, formula: Formula, given: list[Buffer]) -> Loops:
    """Returns rows of vectors of a formula of the axes i0, the row, and i1, the lane."""
    result = Buffer("y", Dims((rows, lanes)), formula.dtype, Role.RESULT)
    row, lane = Axis(0, rows), Axis(1, lanes)
    store = Store(result, Index(((row, lanes), (lane, 1))), formula)
    body = For(row, (For(lane, (store,), Way.VECTOR),))
    return Loops("p", (*given, result), (Nest("all", result, (body,)),), (result,))


EDGES = {"uint8": (0, 1, 127, 128, 255), "int8": (-128, -127, -1, 0, 127)}


@pytest.mark.parametrize(("lanes", "shift"), quick(product([4, 8, 16], [0, 77, 128]), 0, 8, unpacked=True))
@pytest.mark.parametrize(("dot", "first", "second"), [(DOT_4, "uint8", "int8"), (DOT_4_TURNED, "int8", "uint8")])
def test_four_products_at_a_time(dot: Instruction, first: str, second: str, lanes: int, shift: int) -> None:
    words = np.array(list(product(EDGES[first], repeat=4))[::5], first)
    rows = len(words)
    draw = np.random.default_rng(0)
    blocks = draw.choice(EDGES[second], (rows, lanes, 4)).astype(second)
    blocks[:9] = EDGES[second][0 if second == "int8" else -1]
    sums = draw.choice([-(1 << 31), -1, 0, (1 << 31) - 1], (rows, lanes)).astype(np.int32)
    values = {"s": sums, "a": words, "b": blocks}
    buffers = [Buffer(name, Dims(v.shape), str(v.dtype), Role.INPUT) for name, v in values.items()]
    s, a, b = buffers
    row, lane = Axis(0, rows), Axis(1, lanes)
    operands = [
        Load(s, Index(((row, lanes), (lane, 1)))),
        number(shift, "uint8"),
        *(Load(a, Index(((row, 4),), i)) for i in range(4)),
        *(Load(b, Index(((row, 4 * lanes), (lane, 4)), i)) for i in range(4)),
    ]
    loops = _of_vectors(lanes, rows, Apply(dot, tuple(operands), "int32"), buffers)
    assert faults(loops) == []
    own = (words.astype(np.int64) + shift).astype(first).astype(np.int64)  # wraps
    want = (sums + np.einsum("rk,rlk->rl", own, blocks.astype(np.int64))).astype(np.int32)  # wraps
    assert np.array_equal(interpret(loops, values)[0], want)
    for name in HERE:
        assert np.array_equal(_ran(loops, values, MACHINES[name]), want), name
    assert np.array_equal(_ran(loops, values, None), want)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_products_of_16_bits(lanes: int) -> None:
    edges = np.array([-(1 << 15), -129, -1, 0, 1, 255, (1 << 15) - 1], np.int16)
    pairs = np.array(list(product(edges, repeat=2)), np.int16)
    a, b = (np.repeat(column[:, None], lanes, 1).copy() for column in pairs.T)
    sums = np.random.default_rng(0).choice([-(1 << 31), 0, (1 << 31) - 1], a.shape).astype(np.int32)
    values = {"s": sums, "a": a, "b": b}
    buffers = [Buffer(name, Dims(v.shape), str(v.dtype), Role.INPUT) for name, v in values.items()]
    place = Index(((Axis(0, len(pairs)), lanes), (Axis(1, lanes), 1)))
    operands = tuple(convert(Load(buffer, place), "int32") for buffer in buffers)
    loops = _of_vectors(lanes, len(pairs), Apply(PRODUCT_OF_16, operands, "int32"), buffers)
    want = (sums + a.astype(np.int64) * b).astype(np.int32)
    assert np.array_equal(interpret(loops, values)[0], want)
    for name in HERE:
        assert np.array_equal(_ran(loops, values, MACHINES[name]), want), name


def test_blocks_lie_beside_each_other() -> None:
    given = Buffer("b", Dims((128,)), "int8", Role.INPUT)
    lane = Axis(1, 8)
    for step, apart in ((3, 1), (4, 2)):
        block = [Load(given, Index(((lane, step),), apart * i)) for i in range(4)]
        operands = (number(0, "int32"), number(0, "uint8"), *[number(1, "uint8")] * 4, *block)
        loops = _of_vectors(8, 1, Apply(DOT_4, operands, "int32"), [given])
        assert any("is not contiguous with the other operands of an instruction" in said for said in faults(loops))


def test_every_instruction_is_told() -> None:
    for name, instruction in INSTRUCTIONS.items():
        assert instruction.name == name
        assert instruction.arity == sum(operand.count for operand in instruction.operands)
        assert f"{name}_x8(" in instruction.texts(8)[-1]


def _values(program: Program, seed: int) -> dict[str, np.ndarray]:
    """Returns numbers of all sizes, the least and the largest ones often."""
    draw = np.random.default_rng(seed)
    found = {}
    for name, tensor in program.tensors.items():
        info = np.iinfo(tensor.dtype)
        drawn = draw.integers(info.min, info.max + 1, tensor.dims).astype(tensor.dtype)
        found[name] = np.where(draw.random(tensor.dims) < 0.2, info.min, drawn).astype(tensor.dtype)
    return found


def _is_exact(program: Program, machines: list[str], seed: int = 0) -> str:
    """Asserts that compiled code and interpreted loops compute the terms; returns the C for the first machine."""
    values = _values(program, seed)
    constants = {name: values[name] for name, t in program.tensors.items() if t.constant}
    program = replace(program, constants=constants)
    (want,) = gl.evaluate([program.term], values)
    given = [values[name] for name, t in program.tensors.items() if not t.constant]
    texts = []
    for name in machines:
        compiled = gl.compile(program, "none", machine=name)
        assert faults(compiled.loops, compiled.arena) == []
        for threads in (1, 2):
            assert np.array_equal(compiled(*given, threads=threads), want), name
        texts.append(compiled.source)
    loops = lower(program, MACHINES[machines[0]])
    assert np.array_equal(interpret(loops, values)[0].reshape(want.shape), want)
    return texts[0]


CONVOLUTIONS = [
    (3, 24, 11, 3, 2, 1),
    (5, 7, 9, 5, 1, 1),
    (32, 40, 8, 1, 1, 1),
    (24, 24, 10, 3, 1, 24),
    (12, 18, 7, 3, 2, 3),
    (64, 100, 7, 3, 1, 1),
]


REPEATED = CONVOLUTIONS[0], CONVOLUTIONS[5]
"""Windows and strides that others have too."""


@pytest.mark.parametrize("dtype", ["int8", pytest.param("uint8", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "shape", [pytest.param(s, marks=pytest.mark.slow if s in REPEATED else ()) for s in CONVOLUTIONS], ids=str
)
def test_convolutions_of_bytes(shape: tuple[int, ...], dtype: str) -> None:
    channels, filters, size, window, stride, groups = shape
    b = gl.Builder("p")
    weight = b.constant("w", (filters, channels // groups, window, window), dtype=dtype)
    x = b.input("x", (1, channels, size, size - 1), dtype=dtype)
    program = b.finish(b.conv(x, weight, strides=stride, padding=window // 2, groups=groups))
    text = _is_exact(program, HERE if shape == CONVOLUTIONS[1] and dtype == "int8" else HERE[:1])
    dot = "dot4_x" if dtype == "int8" else "dot4_turned_x"
    assert (dot if groups < channels else "add_product_x") in text


@pytest.mark.parametrize("zero", quick([0, 3, 255], 1))
def test_zero_points(zero: int) -> None:
    """Unsigned bytes with signed weights, and zero points as padding."""
    b = gl.Builder("p")
    x, w = b.input("x", (1, 9, 7, 7), dtype="uint8"), b.constant("w", (33, 9, 3, 3), dtype="int8")
    narrow = pointwise.filled(x, zero)
    padded = pointwise.add(
        layout.pad(pointwise.subtract(x, narrow), [(0, 0), (0, 0), (1, 1), (1, 1)]),
        pointwise.filled(layout.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), zero),
    )
    wide = pointwise.cast(padded, "int32")
    own = pointwise.subtract(wide, pointwise.filled(wide, zero))
    program = b.finish(b.conv(own, pointwise.cast(w, "int32")))
    assert "dot4_x" in _is_exact(program, HERE[:1])


@pytest.mark.parametrize("weights", quick(["int8", "uint8"], 1))
def test_zero_points_that_programs_compute(weights: str) -> None:
    """Around unsigned bytes from which one zero point is taken, added again, and another number taken off."""
    b = gl.Builder("p")
    x, w = b.input("x", (1, 9, 7, 7), dtype="uint8"), b.constant("w", (33, 9, 3, 3), dtype=weights)
    zero = b.input("zero", (1,), dtype="uint8")
    around = [(0, 0), (0, 0), (1, 1), (1, 1)]
    padded = layout.pad(pointwise.subtract(x, layout.broadcast(zero, x.access.dims)), around)
    moved = pointwise.add(padded, layout.broadcast(zero, padded.access.dims))
    moved = pointwise.subtract(moved, pointwise.filled(moved, 3))
    program = b.finish(b.conv(pointwise.cast(moved, "int32"), pointwise.cast(w, "int32")))
    assert ("dot4_x" if weights == "int8" else "dot4_turned_x") in _is_exact(program, HERE[:1])


@pytest.mark.parametrize(("words", "directions"), [(6, 2), (1, 3)])
def test_zero_points_of_several_weights(words: int, directions: int) -> None:
    """What is taken off for a zero point is of the weights: a tile has rows of one direction of a recurrence."""
    b = gl.Builder("p")
    x, w = b.input("x", (1, words, 16), dtype="uint8"), b.constant("w", (directions, 16, 32), dtype="int8")
    wide = pointwise.cast(layout.broadcast(x, (directions, words, 16)), "int32")
    own = pointwise.subtract(wide, pointwise.filled(wide, 128))
    program = b.finish(b.matmul(own, pointwise.cast(w, "int32")))
    assert "dot4_x" in _is_exact(program, HERE[:1])


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_random_products(seed: int) -> None:
    """Matrices of odd sizes, followed by operations on integers and floats."""
    draw = np.random.default_rng(seed)
    rows, columns, depth = (int(n) for n in draw.integers(1, 70, 3))
    b = gl.Builder("p")
    x, w = b.input("x", (rows, depth), dtype="int8"), b.constant("w", (depth, columns), dtype="int8")
    sums = b.matmul(x, w)
    real = pointwise.multiply(pointwise.cast(sums, "float32"), pointwise.filled(pointwise.cast(sums, "float32"), 0.125))
    dtype = ("uint8", "int8", "int16")[seed % 3]
    results: list[Term] = [sums, quantization.rounded(real, None, dtype)]
    for result in results:
        _is_exact(Program(result), HERE[:1], seed)


@pytest.mark.parametrize("machine", DOTS)
def test_instructions_of_processors_are_used(machine: str) -> None:
    b = gl.Builder("p")
    x, w = b.input("x", (64, 64), dtype="int8"), b.constant("w", (64, 64), dtype="int8")
    program = b.finish(b.matmul(x, w)).seeded_constants(0)
    found = MACHINES[machine]
    packings = Lowered(program, found).loops.packings
    assert [p.deep for p in packings] == [4]
    assert (machine in ("avx512bf16", "avx512vnni", "avxvnni")) == any("vnni" in flag for flag in found.flags)


ACTIVATIONS = ("float32", "bfloat16", "int32", "int16", "uint16", "int8", "uint8")


@pytest.mark.parametrize("given", ACTIVATIONS)
def test_conversions(given: str) -> None:
    """To each other dtype, of lengths that are no whole vectors; what is cut to integers is clipped before."""
    draw = np.random.default_rng(0)
    whole = np.issubdtype(np.dtype(given), np.integer)
    array = draw.integers(-(1 << 31), 1 << 31, (3, 45)) if whole else draw.standard_normal((3, 45)) * 300
    array = array.astype(given)
    array.reshape(-1)[:3] = 0 if whole else [np.nan, np.inf, -np.inf]
    b = gl.Builder("p")
    x = b.input("x", array.shape, dtype=given)
    y = x if whole else pointwise.compute("(clip -40000 70000)", pointwise.compute("round", x))
    wanted = [name for name in ACTIVATIONS if whole or name != "int32"]  # no number is no int32
    program = Program(build("construct-tuple", *(pointwise.cast(pointwise.add(y, y), name) for name in wanted)))
    want = gl.evaluate([program.term], {"x": array})[0]
    for machine in {HERE[0], "generic"} if given in ("uint8", "float32") else HERE[:1]:
        got = gl.compile(program, "none", machine=machine)(array)
        for name, one, other in zip(wanted, want, got, strict=True):
            assert np.array_equal(one.astype(np.float64), other.astype(np.float64), equal_nan=True), name


@pytest.mark.parametrize("machine", sorted({*HERE[:1], *(name for name in HERE if name == "avx2"), "generic"}))
def test_floats_are_cut_in_vectors_as_by_themselves(machine: str) -> None:
    """Includes numbers beyond 32 bits, of which the low bits are kept, and nan."""
    draw = np.random.default_rng(0)
    array = (draw.standard_normal((3, 45)) * 10.0 ** draw.integers(-3, 20, (3, 45))).astype(np.float32)
    array.reshape(-1)[:9] = [np.nan, np.inf, -np.inf, -3e9, 2.0**31, 2.0**40 + 2.0**20, -(2.0**63), 1e30, -0.5]
    x = gl.Builder("p").input("x", array.shape)
    casts = [pointwise.cast(x, name) for name in ("int32", "int16", "uint16", "int8", "uint8")]
    program = Program(build("construct-tuple", *casts))
    fast, plain = gl.compile(program, "none", machine=machine), gl.compile(program, machine="plain")
    assert "cut_x" in fast.source
    assert "cut_x" not in plain.source
    for one, other in zip(fast(array), plain(array), strict=True):
        assert np.array_equal(one, other), one.dtype


@pytest.mark.parametrize("machine", sorted({*HERE[:1], "generic"}))
def test_bfloat16_in_float32_tiles(machine: str) -> None:
    b = gl.Builder("p")
    x, w = b.input("x", (1, 12, 9, 8), dtype="bfloat16"), b.constant("w", (20, 12, 3, 3), dtype="bfloat16")
    program = b.finish(b.relu(b.conv(x, w, padding=1)))
    draw = np.random.default_rng(0)  # whole numbers, of which sums are exact
    values = {n: draw.integers(-8, 9, t.dims).astype(t.dtype) for n, t in program.tensors.items()}
    (want,) = gl.evaluate([program.term], values)
    compiled = gl.compile(replace(program, constants={"w": values["w"]}), "none", machine=machine)
    assert any(b.role is Role.REGISTER for b in _buffers(compiled.loops))
    assert np.array_equal(np.asarray(compiled(values["x"])).view(np.uint16), np.asarray(want).view(np.uint16))


def _buffers(loops: Loops) -> set[Buffer]:
    found: set[Buffer] = set()
    stack = [statement for nest in loops.nests for statement in nest.body]
    while stack:
        statement = stack.pop()
        stack += statement.body if isinstance(statement, For) else ()
        found |= {statement.buffer} if isinstance(statement, Store) else set()
    return found


@pytest.mark.parametrize(("zero", "least"), [(0, 0), (3, 0), (-7, 0), (0, -128)])
def test_rounding_to_bytes(zero: int, least: int) -> None:
    """Ties round to even, and nan becomes 0, whatever follows in vectors."""
    values = [np.nan, np.inf, -np.inf, *np.arange(-300.0, 300.0, 0.5), 1e9, -1e9, 8388609.0, 2.0**31]
    array = np.array(values, np.float32)
    dtype = "uint8" if least == 0 else "int8"
    b = gl.Builder("p")
    x = pointwise.compute("round", b.input("x", array.shape))
    x = pointwise.add(x, pointwise.filled(x, zero)) if zero else x
    narrow = pointwise.cast(pointwise.compute(f"(clip {least} {least + 255})", x), dtype)
    wide = pointwise.cast(pointwise.cast(narrow, "int32"), "float32")
    program = Program(build("construct-tuple", narrow, wide))
    want = gl.evaluate([program.term], {"x": array})[0]
    for machine in HERE:
        got = gl.compile(program, "none", machine=machine)(array)
        assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True)), machine


def _of_bytes(activation: str) -> tuple[Program, dict[str, np.ndarray]]:
    """Returns a network with its constants, and its input."""
    program = network(True, activation)
    given = values(program, 0)
    return replace(program, constants={name: given[name] for name in program.constants_declared}), given


@pytest.mark.parametrize("activation", ["uint8", pytest.param("int8", marks=pytest.mark.slow)])
def test_networks_of_bytes(activation: str) -> None:
    program, given = _of_bytes(activation)
    (want,) = gl.evaluate([program.term], given)
    for machine in HERE[:1] + HERE[-1:]:
        compiled = gl.compile(program, "none", machine=machine)
        assert faults(compiled.loops, compiled.arena) == []
        assert np.array_equal(compiled(given["x"]), want)
    assert "dot4_x" in compiled.source
    stored = [b.dtype for b in compiled.loops.buffers if b.role is Role.TEMPORARY]
    assert set(stored) <= {"uint8", "int8", "int32"}
    assert stored.count("int32") <= 1  # the last sum, whose result lies in another order
    assert "residues: exact" in str(compiled.check())


@pytest.mark.slow
@pytest.mark.parametrize("machine", HERE)
def test_no_byte_outside_of_bytes(machine: str, tmp_path: Path) -> None:
    lowered = Lowered(integer_sums(_of_bytes("uint8")[0]), MACHINES[machine])
    made = library([lowered], "net")
    (tmp_path / "net.weights").write_bytes(made.weights)
    for path, text in made.texts.items():
        (tmp_path / path).write_text(text)
    told = [*compiler(), *flags(MACHINES[machine]), "-O1", "-g", "-fsanitize=address,undefined", "-DNET_MAIN"]
    subprocess.run([*told, "net.c", "-o", "net", "-lm", "-pthread"], cwd=tmp_path, check=True, timeout=300)
    ran = subprocess.run(["./net", "net.weights", "2"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (ran.returncode, ran.stderr) == (0, "")
