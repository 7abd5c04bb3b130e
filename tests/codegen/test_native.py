"""Compares compiled programs with the interpreter, for every operator, random terms and networks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compute_examples import COMPUTES
from example_values import VALUES, Example
from hypothesis import HealthCheck, given, settings
from operator_examples import OPERATORS
from random_terms import terms, values_for
from slow_cases import quick

import glenside as gl
from glenside.codegen.c_library.export import library
from glenside.codegen.emit_c.scalar_primitives import PRIMITIVES_IN_C
from glenside.codegen.loop_ir.intrinsics import FLUSHED
from glenside.codegen.passes import fuse_producer_consumer
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import machine_of
from glenside.codegen.runtime.compile_and_load import flags
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array, arrays
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import AccessType

pytestmark = pytest.mark.needs_compiler

EXAMPLES = [(name, examples) for table in (OPERATORS, COMPUTES) for name, examples in table.items()]


def agrees(term: Term, values: Mapping[str, Array]) -> bool:
    """True if the function gives the interpreter's results: integers exactly, floats up to another order of sums."""
    known = {name: values[name] for name, tensor in Program(term).tensors.items() if tensor.constant}
    compiled = gl.compile(Program(term, constants=known), "none")
    got = compiled(*(values[buffer.name] for buffer in compiled.inputs))
    want = arrays(gl.evaluate([term], values)[0])
    return all(_close(a, b) for a, b in zip(want, got if isinstance(got, tuple) else (got,), strict=True))


def _close(want: Array, got: Array) -> bool:
    if (want.shape, want.dtype) != (got.shape, got.dtype):
        return False
    if want.dtype.kind in "iub":
        return bool((want == got).all())
    tolerance = {1: 0, 2: 2e-2, 4: 1e-4, 8: 1e-9}[want.dtype.itemsize]
    a, b = want.astype(float), got.astype(float)
    finite = a[np.isfinite(a)]
    return np.allclose(a, b, tolerance, tolerance * float(np.max(np.abs(finite), initial=0)) + 1e-7, equal_nan=True)


def _is_compiled(term: Term) -> bool:
    parts = [part for part in postorder(term) if isinstance(part.type, AccessType)]
    return not any(part.operator.opaque for part in parts)


TOGETHER = [EXAMPLES[first : first + 8] for first in range(0, len(EXAMPLES), 8)]
"""What is compiled at once: to start a compiler takes longer than most of them."""


@pytest.mark.parametrize("examples", TOGETHER, ids=[f"{own[0][0]} to {own[-1][0]}" for own in TOGETHER])
def test_every_operator(examples: list[tuple[str, list[Example]]]) -> None:
    compiled = [example.term for _, own in examples for example in own if _is_compiled(example.term)]
    whole = [term for term in compiled if isinstance(term.type, AccessType)]
    for term in (term for term in compiled if term not in whole):
        assert agrees(term, VALUES), term
    if whole and not agrees(build("construct-tuple", *whole), VALUES):
        pytest.fail(f"together, and by themselves {[str(term) for term in whole if not agrees(term, VALUES)]}")


def test_every_primitive_is_written() -> None:
    assert PRIMITIVES_IN_C.keys() == {*PRIMITIVES, FLUSHED.name}


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_random_terms(term: Term) -> None:
    _random(term)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_many_random_terms(term: Term) -> None:
    _random(term)


@contextmanager
def every_band() -> Iterator[None]:
    """Bands where they do not pay either."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_LEAST_BYTES", "_LEAST_ROWS", "_LEAST_BANDS"):
            patch.setattr(fuse_producer_consumer, name, 1)
        yield


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_many_random_terms_in_bands(term: Term) -> None:
    with every_band():
        _random(term)


def _random(term: Term) -> None:
    values = values_for(term, seed=1)
    try:
        gl.evaluate([term], values)
    except BadInput:
        return
    if _is_compiled(term):
        assert agrees(term, values)


NETWORKS = {
    "mobilenet-v1": {"resolution": 32},
    "unet-small": {"resolution": 16, "base": 4, "levels": 2},
    "vit-s-16": {"resolution": 32, "layers": 1, "hidden": 12, "heads": 3},
    "bert-base": {"layers": 1, "hidden": 24, "heads": 3, "intermediate": 40, "sequence": 9, "vocabulary": 31},
}


LARGE = pytest.param("mobilenet-v1", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", quick(NETWORKS, 2))
def test_networks(name: str) -> None:
    _network(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_in_bands(name: str) -> None:
    with every_band():
        _network(name)


def _network(name: str) -> None:
    program = gl.models.load(name, **NETWORKS[name]).seeded_constants(0)
    draw = np.random.default_rng(0)
    inputs = {
        tensor.name: (
            draw.integers(0, 2, tensor.dims) if tensor.dtype == "int64" else draw.standard_normal(tensor.dims)
        )
        for tensor in program.tensors.values()
        if not tensor.constant
    }
    values = {name: array.astype(program.tensors[name].dtype) for name, array in inputs.items()}
    assert agrees(program.term, {**program.constants, **values})


def test_what_was_found_for_an_array() -> None:
    b = gl.Builder("p")
    x = b.conv(b.input("x", (1, 4, 9, 7)), b.constant("w", (5, 4, 3, 3)), padding=1)
    program = b.finish(b.relu(x)).seeded_constants(0)
    found = gl.optimize(program, gl.SystolicArray(3, 2)).program
    assert "systolic-array" in str(lower(found))
    assert agrees(found.term, {**values_for(found.term, seed=0), **program.constants})


def test_tensors_are_given_by_place_or_by_name() -> None:
    b = gl.Builder("p")
    x, y = b.input("x", (2, 3)), b.input("y", (2, 3))
    compiled = gl.compile(b.finish(b.subtract(x, y)), "none")
    one, two = np.ones((2, 3), np.float32), np.full((3, 2), 5, np.float32).T
    for got in (compiled(one, two), compiled(y=two, x=one), compiled(one, y=two)):
        assert (np.asarray(got) == -4).all()
    assert "int run(" in compiled.source
    for arguments, named, words in (
        ((one,), {}, "missing inputs: y"),
        ((one, one, one), {}, "takes at most 2 arrays, got 3"),
        ((one, one), {"x": one}, "x is not an input of the program, or was given twice"),
        ((one,), {"z": one}, "z is not an input of the program, or was given twice"),
        ((one, one.T), {}, "requires (2 3) float32, got (3, 2) float32"),
        ((one, one.astype(np.float64)), {}, "requires (2 3) float32, got (2, 3) float64"),
    ):
        with pytest.raises(BadInput) as caught:
            compiled(*arguments, **named)
        assert words in str(caught.value)


def test_an_index_outside_of_its_axis() -> None:
    b = gl.Builder("p")
    compiled = gl.compile(b.finish(b.gather(b.input("x", (4, 3)), b.input("i", (2,), "int64"))), "none")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert (np.asarray(compiled(x, np.array([-1, 0]))) == x[[3, 0]]).all()
    with pytest.raises(BadInput, match="access-gather requires indices from -4 to 3, got one that is outside"):
        compiled(x, np.array([0, 4]))


def test_what_cannot_be_compiled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    b = gl.Builder("p")
    x, w = b.input("x", (2, 3)), b.constant("w", (2, 3))
    with pytest.raises(BadInput, match="values of its constants, got none of w"):
        gl.compile(b.finish(b.add(x, w)), "none")
    with pytest.raises(BadInput, match="'f' cannot be compiled: it has no definition"):
        gl.compile(Program(build("opaque-pointwise", "f", x, "int8", (), ())), "none")
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(BadInput, match="/nowhere/cc does not run"):
        gl.compile(Program(x), "none")


def _named_like_options() -> Program:
    b = gl.Builder("p")
    x = b.subtract(b.input("out", (2, 3)), b.input("threads", (2, 3)))
    return b.finish(b.multiply(b.multiply(x, b.input("self", (2, 3))), b.input("a b", (2, 3))))


def test_any_name_can_be_given() -> None:
    compiled = gl.compile(_named_like_options(), "none")
    one, two = np.ones((2, 3), np.float32), np.full((2, 3), 5, np.float32)
    out = np.empty((2, 3), np.float32)
    for got in (
        compiled(one, two, two, one),
        compiled({"threads": two, "out": one, "a b": one, "self": two}),
        compiled({"threads": two, "out": one}, self=two, out=out, threads=2, **{"a b": one}),
        compiled(one, {"threads": two}, {"self": two, "a b": one}),
    ):
        assert (got == -20).all()
    assert (out == -20).all()
    for arguments, named, words in (
        (
            (),
            {"self": two, "a b": one},
            r"missing inputs: out, threads; an input named like an option is passed in a dict: f\({'out': ..}\)",
        ),
        ((one, {"out": one}), {}, "out is not an input of the program, or was given twice"),
        (({"out": one, "x": one},), {}, "x is not an input of the program, or was given twice"),
    ):
        with pytest.raises(BadInput, match=words):
            compiled(*arguments, **named)


class _Elsewhere:
    """An array on a device that is not this computer."""

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("it is on a device")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_arrays_of_other_libraries() -> None:
    class Other:
        def __init__(self, array: Array) -> None:
            self.array = array

        def __dlpack__(self, **how: object) -> object:
            return self.array.__dlpack__(**how)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    b = gl.Builder("p")
    compiled = gl.compile(b.finish(b.relu(b.input("x", (2, 3)))), "none")
    x = np.array([[-1, 0, 1], [2, -3, 4]], np.float32)
    result = compiled(Other(x))
    assert (result == np.maximum(x, 0)).all()
    assert np.shares_memory(np.from_dlpack(result), result)
    with pytest.raises(BadInput, match=r"x requires an array in this computer's memory, got none: it is on a device"):
        compiled(_Elsewhere())


def test_arrays_of_any_layout_and_what_is_none() -> None:
    b = gl.Builder("p")
    compiled = gl.compile(b.finish(b.relu(b.input("x", (2, 3)))), "none")
    x = np.array([[-1, 0, 1], [2, -3, 4]], np.float32)
    odd = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)
    wide = np.zeros((2, 6), np.float32)
    wide[:, ::2] = x
    for array in (odd, wide[:, ::2], np.asfortranarray(x), x[::-1, ::-1][::-1, ::-1], np.broadcast_to(x, (1, 2, 3))[0]):
        assert (compiled(array) == np.maximum(x, 0)).all()
    for wrong in (x.tolist(), [[1], [2, 3]], "text", None, x.astype(">f4"), x[0], _named_like_options):
        with pytest.raises(BadInput, match="x requires"):
            compiled(wrong)
    frozen = np.empty((2, 3), np.float32)
    frozen.flags.writeable = False
    shifted = np.empty(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    for out, words in (
        (frozen, "requires a writable array in C order"),
        (shifted, "requires a writable array in C order"),
        (np.empty((3, 2), np.float32).T, "requires a writable array in C order"),
        (x, "memory of its own"),
        ((), r"out= requires one array for each result \(1\), got 0"),
        ("text", "out= requires a numpy array"),
        (3, "out= requires a numpy array"),
    ):
        with pytest.raises(BadInput, match=words):
            compiled(x, out=out)


@pytest.mark.parametrize("threads", [0, -1, 2.5, "2.5", "2", True, None, 1 << 70, [1], np.float32(1)], ids=repr)
def test_how_many_threads(threads: object) -> None:
    b = gl.Builder("p")
    compiled = gl.compile(b.finish(b.relu(b.input("x", (2, 3)))), machine="plain")
    x = np.ones((2, 3), np.float32)
    assert (compiled(x, threads=np.int64(2)) == 1).all()
    if threads is None:
        assert (compiled(x, threads=threads) == 1).all()
        return
    with pytest.raises(BadInput, match="threads is a whole number from 1 to 1024, got"):
        compiled(x, threads=threads)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads of a process are counted in /proc")
def test_one_pool_of_threads_is_kept() -> None:
    b = gl.Builder("p")
    x = b.input("x", (64, 1024))
    compiled = gl.compile(b.finish(b.relu(b.matmul(b.softmax(x, 1), b.input("y", (1024, 256))))), "none")
    assert compiled._shares
    arrays = compiled.drawn()

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = threads()
    want = compiled(*arrays, threads=1)
    for count in (*range(2, 12), 2):
        assert np.array_equal(compiled(*arrays, threads=count), want)
        assert threads() <= before + count - 1
    assert threads() == before + 1


def test_a_masked_array_is_refused() -> None:
    """Its mask would be lost."""
    b = gl.Builder("p")
    program = b.finish(b.relu(b.input("x", (2, 3))))
    compiled = gl.compile(program, machine="plain")
    whole = np.ma.array(np.ones((2, 3), np.float32))  # type: ignore[no-untyped-call]
    masked = np.ma.array(np.ones((2, 3), np.float32), mask=[[1, 0, 0], [0, 0, 0]])  # type: ignore[no-untyped-call]
    assert (compiled(whole) == 1).all()
    for run in (compiled, lambda x: gl.evaluate([program.term], {"x": x}), lambda x: program.with_values({"x": x})):
        with pytest.raises(BadInput, match=r"x requires an array without masked elements; x\.filled\(0\)"):
            run(masked)


def test_the_report_says_how_it_was_made() -> None:
    b = gl.Builder("p")
    x = b.input("x", (1, 4, 8, 8))
    for name in ("v", "w"):
        x = b.relu(b.conv(x, b.constant(name, (4, 4, 3, 3)), padding=1))
    program = b.finish(x).seeded_constants(0)
    first, again = gl.compile(program, "none").report, gl.compile(program, gl.CPU(balance=2)).report
    assert first.weights == 2 * 4 * 4 * 9 * 4
    assert first.nests >= 2
    assert first.functions >= 1
    assert first.arena.size >= first.arena.bound > 0
    assert f"{first.nests} nests of loops, {first.functions} functions, for " in str(first)
    assert first.found is None
    assert again.found is not None
    assert gl.compile(program, "none").report.kept
    with pytest.raises(BadInput, match="blocking: how to search is for programs that are compiled for a target"):
        gl.compile(program, "none", blocking="tile-loops")


@pytest.mark.parametrize(
    ("program", "target", "machine", "words"),
    [
        (8, None, "native", "only a program, such as gl.load returns, can be compiled, got int"),
        ("x.onnx", None, "native", "x.onnx: cannot be read: No such file"),
        (
            None,
            8,
            "native",
            r"a target is one such as gl.CPU\(\), or text such as 'cpu:8MB', got 8",
        ),
        (None, None, None, "a machine is native, plain, .* or a .toml file, got None"),
    ],
)
def test_what_is_something_else_is_named(program: Any, target: Any, machine: Any, words: str) -> None:
    b = gl.Builder("p")
    program = program or b.finish(b.relu(b.input("x", (2,))))
    with pytest.raises(BadInput, match=words):
        gl.compile(program, target, machine=machine)


@pytest.mark.parametrize("command", ["gcc", "clang"])
@pytest.mark.parametrize("machine", ["native", "plain"])
def test_no_compiler_warns(tmp_path: Path, command: str, machine: str) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command}")
    examples = [example.term for _, row in EXAMPLES for example in row if _is_compiled(example.term)]
    whole = [term for term in examples if isinstance(term.type, AccessType)]
    program = Program(build("construct-tuple", *whole))
    known = {name: VALUES[name] for name, tensor in program.tensors.items() if tensor.constant}
    of = machine_of(machine)
    for name, text in library([Lowered(Program(program.term, constants=known), of)], "net").texts.items():
        (tmp_path / name).write_text(text)
    told = [*flags(of), "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "net.c"]
    done = subprocess.run([command, *told], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_more_than_memory_holds() -> None:
    b = gl.Builder("p")
    x = b.input("x", (1,))
    compiled = gl.compile(Program(build("access-broadcast", x, ((), (1 << 50,)))), "none")
    with pytest.raises(BadInput, match="memory does not suffice"):
        compiled(np.ones(1, np.float32))


@pytest.mark.parametrize("size", [3, 700])
def test_arrays_for_results_are_kept(size: int) -> None:
    """They begin at lines, fit, and are taken again and again; calls that are given none make others."""
    b = gl.Builder("p")
    x = b.input("x", (size, size))
    f = gl.compile(b.finish(build("construct-tuple", b.relu(x), b.add(x, x))), "none")
    own = f.results()
    assert [a.shape for a in own] == [(size, size)] * 2
    assert all(a.ctypes.data % 64 == 0 for a in own)
    for seed in (0, 1):
        values = np.random.default_rng(seed).standard_normal((size, size), np.float32)
        first, second = f(values, out=own)
        assert first is own[0]
        assert second is own[1]
        assert np.array_equal(first, np.maximum(values, 0))
        assert np.array_equal(second, values + values)
    again = f.results()
    assert not any(np.shares_memory(a, b) for a in own for b in again)
