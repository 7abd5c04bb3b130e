"""Tests that weights which are integers and scales stay so in compiled programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import run
from small_weights import constants, floats, product

import glenside as gl
from glenside.builder.layout import broadcast, reshape, transpose
from glenside.builder.pointwise import add, cast, multiply, subtract
from glenside.codegen.processor.model import machine_of
from glenside.fuzzing.compiling import machines
from glenside.ir.program import Program
from glenside.ir.term import Term, build

pytestmark = pytest.mark.needs_compiler


def outputs(program: Program, function: gl.Function, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns the results of a function and of the interpreter."""
    (name,) = program.inputs
    x = np.random.default_rng(seed).standard_normal(tuple(program.tensors[name].dims)).astype(np.float32)
    (wanted,) = gl.evaluate([program.term], {**program.constants, name: x})
    return np.asarray(function(x)), np.asarray(wanted)


RANGES = [("int4", -8, 7), ("uint4", 0, 15), ("int8", -128, 127), ("uint8", 0, 255), ("int8", -9, 3)]


QUICK = [("native", RANGES[0]), ("native", RANGES[3]), ("generic", RANGES[0])]
CASES = [
    pytest.param(name, *own, marks=[] if (name, own) in QUICK else pytest.mark.slow)
    for name in machines()
    for own in RANGES
    if name != "plain"
]


@pytest.mark.parametrize(("machine", "dtype", "least", "most"), CASES)
def test_integers_and_scales_are_read_in_every_range(machine: str, dtype: str, least: int, most: int) -> None:
    program = product(3, 70, 128, 32, least, most, "int16")
    function = gl.compile(program, "none", machine=machine, check=True)
    bits = 4 if dtype.endswith("int4") else 8
    assert constants(function) == {dtype: 70 * 128 * bits // 8, "float32": 70 * 4 * 4}
    found, wanted = outputs(program, function)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


SHAPES = [(16, 4096, 16), (17, 360, 24), (65, 72, 8), (33, 384, 384), (257, 96, 24)]


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "block"),
    [
        pytest.param(rows, *shape, marks=[pytest.mark.slow] * ((i + j) % 3 != 0))  # each shape, and each of the rows
        for i, rows in enumerate((1, 5, 40))
        for j, shape in enumerate(SHAPES)
    ],
)
def test_other_shapes_and_blocks(rows: int, columns: int, depth: int, block: int) -> None:
    """Columns of no whole vector, blocks of no whole byte, and rows that share a scaled panel."""
    program = product(rows, columns, depth, block, -8, 7)
    function = gl.compile(program, "none", check=True)
    assert constants(function)["float32"] < 4 * columns * depth
    found, wanted = outputs(program, function)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def _weights(b: gl.Builder, scaled: str) -> Term:
    rng = np.random.default_rng(1)
    q = cast(b.constant("q", (64, 128), "int8", rng.integers(-8, 8, (64, 128)).astype("int8")), "float32")
    s = b.constant("s", (64, 1), value=rng.standard_normal((64, 1)).astype("float32"))
    ways = {
        "a zero point": lambda: multiply(
            subtract(q, broadcast(b.constant("z", (64, 1), value=np.full((64, 1), 3, "float32")), (64, 128))),
            broadcast(s, (64, 128)),
        ),
        "a scale before the integers": lambda: multiply(broadcast(s, (64, 128)), q),
        "transposed": lambda: transpose(
            multiply(transpose(q, (1, 0)), broadcast(reshape(s, (1, 64)), (128, 64))), (1, 0)
        ),
        "a scale of each step": lambda: multiply(
            q, broadcast(b.constant("g", (1, 128), value=floats(rng, 1, 128)), (64, 128))
        ),
        "an addend": lambda: add(multiply(q, broadcast(s, (64, 128))), broadcast(s, (64, 128))),
        "fractions": lambda: multiply(
            subtract(q, broadcast(b.constant("z", (64, 1), value=np.full((64, 1), 0.5, "float32")), (64, 128))),
            broadcast(s, (64, 128)),
        ),
    }
    return ways[scaled]()


@pytest.mark.parametrize(
    ("scaled", "stays"),
    [
        ("a zero point", True),
        ("a scale before the integers", True),
        ("transposed", True),
        ("a scale of each step", False),
        ("an addend", False),
        ("fractions", False),
    ],
)
def test_only_what_is_integers_times_scales_of_blocks_stays_so(scaled: str, stays: bool) -> None:
    b = gl.Builder()
    program = b.finish(b.linear(b.input("x", (2, 128)), _weights(b, scaled)))
    function = gl.compile(program, "none", check=True)
    assert ("float32" not in constants(function) or constants(function)["float32"] < 64 * 128) == stays
    found, wanted = outputs(program, function)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_two_products_of_one_input_keep_their_integers_through_the_search() -> None:
    rng, b = np.random.default_rng(0), gl.Builder()
    x, results = b.input("x", (1, 128)), []
    for name in "uv":
        q = b.constant(f"q{name}", (64, 128), "int8", rng.integers(-8, 8, (64, 128)).astype("int8"))
        s = b.constant(f"s{name}", (64, 1), value=floats(rng, 64, 1))
        results.append(b.linear(x, multiply(cast(q, "float32"), broadcast(s, (64, 128)))))
    function = gl.compile(b.finish(build("construct-tuple", *results)), check=True)
    assert constants(function) == {"int8": 2 * 64 * 128, "float32": 2 * 64 * 4}


def test_written_c_has_two_integers_in_a_byte(tmp_path: Path) -> None:
    gl.save(product(2, 64, 128, 32, -8, 7), tmp_path / "p.glenside")
    assert run("compile", tmp_path / "p.glenside", "--target", "none", "-o", tmp_path / "net.c") == 0
    (weights,) = tmp_path.glob("*.weights")
    assert weights.stat().st_size < 64 * 128 // 2 + 64 * 4 * 4 + 256


def test_a_wrong_scale_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification compares with the program as given, not with the rewritten weights alone."""
    from glenside.codegen.lowering import quantized_weights

    monkeypatch.setattr(quantized_weights, "_block", lambda scales: 32)
    function = gl.compile(product(2, 64, 128, 16, -8, 7), "none")
    assert "int4" not in constants(function)


def test_machines_of_other_vectors_are_lowered() -> None:
    from glenside.codegen.runtime.compiled_function import Lowered

    program = product(2, 64, 128, 32, -8, 7)
    for name in ("avx2", "avx512", "generic", "neon"):
        assert any(b.nibbles for b in Lowered(program, machine_of(name)).loops.buffers)


def test_weights_of_windows_are_folded() -> None:
    """Cut into blocks, the elements of windows would have no affine indices."""
    rng, b = np.random.default_rng(0), gl.Builder()
    q = b.constant("q", (64, 8, 3, 3), "int8", rng.integers(-8, 8, (64, 8, 3, 3)).astype("int8"))
    scale = broadcast(b.constant("s", (64, 1, 1, 1), value=floats(rng, 64, 1, 1, 1)), (64, 8, 3, 3))
    program = b.finish(b.conv(b.input("x", (1, 8, 10, 10)), multiply(cast(q, "float32"), scale), padding=1))
    assert constants(gl.compile(program, "none", check=True)) == {"float32": 4 * 64 * 8 * 3 * 3}


def test_an_answer_with_integers_is_compared_with_the_program_as_it_was() -> None:
    """The integers and scales are other constants than those of the program."""
    result = gl.optimize(product(3, 70, 128, 32, -8, 7, "int16"), gl.CPU(machine="avx2"))
    assert result.prepared.constants_declared.keys() != result.original.constants_declared.keys()
    assert result.report.checked == "exact"
