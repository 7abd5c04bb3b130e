"""Tests that loops compute what programs mean, and that faults are found by verification or by their results."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import broken_loops
import numpy as np
import pytest
from compute_examples import COMPUTES
from example_values import VALUES, Example
from hypothesis import HealthCheck, given, settings
from operator_examples import OPERATORS
from random_terms import terms, values_for
from slow_cases import quick

import glenside as gl
from glenside.builder import layout
from glenside.codegen.loop_ir.accesses import accesses
from glenside.codegen.loop_ir.interpreter import BadLoops, interpret
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Counter,
    For,
    Let,
    Load,
    Local,
    Loops,
    Nest,
    Number,
    Require,
    Role,
    Sort,
    Statement,
    Store,
    Way,
)
from glenside.codegen.memory.buffer_arena import Arena, arena
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES
from glenside.codegen.scheduling.constant_packing import packed_constants
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.dtypes import REALS
from glenside.ir.errors import BadInput
from glenside.ir.index_map import Axis, Index
from glenside.ir.operand import Array, arrays
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType, Dims
from glenside.semantics.loop_field import LoopField

EXAMPLES = [(name, examples) for table in (OPERATORS, COMPUTES) for name, examples in table.items()]
WAYS = {"plain": None, **{name: MACHINES[name] for name in ("avx512", "avx2", "generic")}}
FIELD = LoopField()


def _is_lowered(term: Term) -> bool:
    parts = [part for part in postorder(term) if isinstance(part.type, AccessType)]
    return not any(part.operator.opaque for part in parts)


def _same(want: Array, got: Array) -> bool:
    """Integers exactly, floats but for sums in another order."""
    if (want.shape, want.dtype) != (got.shape, got.dtype):
        return False
    if want.dtype.kind in "iub":
        return bool((want == got).all())
    tolerance = {1: 0, 2: 2e-2, 4: 1e-4, 8: 1e-9}[want.dtype.itemsize]
    a, b = want.astype(float), got.astype(float)
    scale = float(np.max(np.abs(a[np.isfinite(a)]), initial=0))
    return np.allclose(a, b, tolerance, tolerance * scale + 1e-7, equal_nan=True)


def _has_residues(term: Term, values: Mapping[str, Array]) -> bool:
    """True if every number that is given is one."""
    given = [values[name] for name, tensor in Program(term).tensors.items() if tensor.dtype in REALS]
    return all(np.isfinite(array.astype(np.float64)).all() for array in given)


def _holds(term: Term, values: Mapping[str, Array], ways: tuple[str, ...] = tuple(WAYS), floats: bool = True) -> None:
    """Nothing is wrong with the loops of a term, and they give its value, and its residues to the last one."""
    program = Program(term)
    for way in ways:
        loops = lower(program, WAYS[way])
        assert faults(loops, arena(loops)) == [], loops
        if _has_residues(term, values):
            exact = zip(arrays(gl.evaluate([term], values, FIELD)[0]), interpret(loops, values, FIELD), strict=True)
            assert all((want == got).all() for want, got in exact), loops
        if floats:
            found = zip(arrays(gl.evaluate([term], values)[0]), interpret(loops, values), strict=True)
            assert all(_same(want, got) for want, got in found), loops


@pytest.mark.parametrize(("name", "examples"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_every_operator(name: str, examples: list[Example]) -> None:
    for example in examples:
        if _is_lowered(example.term):
            _holds(example.term, VALUES)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_random_terms(term: Term) -> None:
    _random(term)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_many_random_terms(term: Term) -> None:
    _random(term)


def _random(term: Term) -> None:
    values = values_for(term, seed=1)
    try:
        gl.evaluate([term], values)
        gl.evaluate([term], values, FIELD)
    except BadInput:
        return
    if _is_lowered(term):
        _holds(term, values, ("plain", "avx2"))


def _convolution(channels: int, filters: int, size: int, window: int, stride: int, groups: int) -> Program:
    b = gl.Builder("p")
    weight = b.constant("w", (filters, channels // groups, window, window))
    x = b.conv(b.input("x", (1, channels, size, size - 1)), weight, strides=stride, padding=window // 2, groups=groups)
    return b.finish(b.relu(b.add(x, b.constant("b", (1, filters, 1, 1))))).seeded_constants(0)


def _values(program: Program) -> dict[str, Array]:
    draw = np.random.default_rng(0)
    found = dict(program.constants)
    for tensor in program.tensors.values():
        if not tensor.constant:
            whole = draw.integers(0, 2, tensor.dims) if tensor.dtype == "int64" else draw.standard_normal(tensor.dims)
            found[tensor.name] = whole.astype(tensor.dtype)
    return found


CONVOLUTIONS = [
    (3, 24, 11, 3, 2, 1),
    (5, 7, 9, 5, 1, 1),
    (32, 40, 8, 1, 1, 1),
    (24, 24, 10, 3, 1, 24),
    (12, 18, 7, 3, 2, 3),
]


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_convolutions(shape: tuple[int, ...]) -> None:
    program = _convolution(*shape)
    _holds(program.term, _values(program), floats=False)


def test_winograd_is_exact() -> None:
    """Its fractions are those of the field: a rounded one would be another number."""
    program = gl.optimize(_convolution(16, 24, 12, 3, 1, 1), gl.CPU()).program
    assert "linear-map" in str(program)
    _holds(program.term, _values(program), floats=False)


NETWORKS = {
    "unet-small": {"resolution": 16, "base": 4, "levels": 2},
    "bert-base": {"layers": 1, "hidden": 24, "heads": 3, "intermediate": 40, "sequence": 9, "vocabulary": 31},
    "mobilenet-v1": {"resolution": 32},
    "vit-s-16": {"resolution": 32, "layers": 1},
}


@pytest.mark.parametrize("name", quick(NETWORKS, 1))
def test_networks(name: str) -> None:
    program = gl.models.load(name, **NETWORKS[name]).seeded_constants(0)
    _holds(program.term, _values(program), floats=False)


@pytest.mark.parametrize("name", quick(["mobilenet-v1", "resnet-50", "bert-base"], 0))
def test_large_networks_are_checked(name: str) -> None:
    loops = lower(gl.models.load(name), MACHINES["avx512"])
    assert any(statement.way is Way.PARALLEL for statement in _loops_of(loops))
    assert faults(loops, arena(loops)) == []


def _loops_of(loops: Loops) -> list[For]:
    found, stack = [], [statement for nest in loops.nests for statement in nest.body]
    while stack:
        statement = stack.pop()
        stack += getattr(statement, "body", ())
        found += [statement] if isinstance(statement, For) else []
    return found


# Mistakes.

BROKEN = [(program, way) for program in ((3, 24, 11, 3, 2, 1), (4, 6, 6, 3, 1, 1)) for way in ("plain", "avx512")]
CHANGES = {
    change.__name__: change
    for change in (
        broken_loops.moved,
        broken_loops.stretched,
        broken_loops.dropped,
        broken_loops.shortened,
        broken_loops.unguarded,
    )
}
WITHOUT_EFFECT = {("dropped", "border"): "the last row or column, which no step of a window of stride 2 reads"}


@pytest.mark.parametrize(("shape", "way"), quick(BROKEN, 0, 2, 3, unpacked=True), ids=str)
def test_every_mistake_is_found(shape: tuple[int, ...], way: str) -> None:
    """Faults are found by the verifier or by the result; the verifier has found each fault at which the interpreter
    stops.
    """
    program = _convolution(*shape)
    values, loops = _values(program), lower(program, WAYS[way])
    want = arrays(gl.evaluate([program.term], values, FIELD)[0])
    count = 0
    for name, change in CHANGES.items():
        for what, wrong in broken_loops.broken(loops, change):
            count += 1
            if faults(wrong, arena(wrong)):
                continue
            got = interpret(wrong, values, FIELD)
            same = all((a == b).all() for a, b in zip(want, got, strict=True))
            assert not same or (name, what.split(":")[0]) in WITHOUT_EFFECT, f"{name} {what}\n{wrong}"
    assert count > 20


def test_loops_that_no_threads_may_share() -> None:
    program = _convolution(3, 24, 11, 3, 2, 1)
    loops = lower(program)
    kept, found = [], []
    for _, wrong in broken_loops.broken(loops, broken_loops.shared):
        said = faults(wrong)
        (kept if not said else found).append((wrong, said))
    assert (len(kept), len(found)) == (3, 3)  # what the result has, and what is added up for each of its elements
    values = _values(program)
    for wrong, _ in kept:
        assert (interpret(wrong, values, FIELD)[0] == interpret(loops, values, FIELD)[0]).all()
    for wrong, said in found:
        assert any("parallel steps of" in sentence for sentence in said)
        with pytest.raises(BadLoops, match="taken at once"):
            interpret(wrong, values)


def _one(*body: Statement, buffer: Buffer, also: tuple[Buffer, ...] = ()) -> Loops:
    return Loops("p", (*also, buffer), (Nest("made", buffer, body),), (buffer,))


def _at(axis: Axis, factor: int = 1) -> Index:
    return Index(((axis, factor),))


def _picking(held: Statement, picked: tuple[tuple[Local, int], ...]) -> Loops:
    store = Store(Y, _at(I), Load(X, _at(I), picked))
    return _one(For(I, (Let(V, Number(Fraction(5), "int64")), held, store)), buffer=Y, also=(X,))


X = Buffer("x", Dims((12,)), "float32", Role.INPUT)
Y = Buffer("y", Dims((12,)), "float32", Role.RESULT)
T = Buffer("t", Dims((12,)), "float32", Role.TEMPORARY)
I, J, V = Axis(0, 3), Axis(1, 4), Local("v1", "int64")  # noqa: E741
SENTENCES = {
    "y[12], which has 12 elements at i0 = 2, i1 = 3": _one(
        For(I, (For(J, (Store(Y, _at(I, 4) + _at(J) + 1, Number(Fraction(1), "float32")),)),)), buffer=Y
    ),
    "y[3] is a result that no nest writes": _one(
        For(I, (For(Axis(1, 3), (Store(Y, _at(I, 4) + _at(Axis(1, 3)), Number(Fraction(1), "float32")),)),)), buffer=Y
    ),
    "t is a result in memory of the program, not of the caller": _one(
        For(Axis(0, 12), (Store(T, _at(Axis(0, 12)), Number(Fraction(1), "float32")),)), buffer=T
    ),
    "parallel steps of i0 use y[3], and one writes it": _one(
        For(I, (For(J, (Store(Y, _at(I, 3) + _at(J), Load(X, _at(J))),)),), Way.PARALLEL), buffer=Y, also=(X,)
    ),
    "it reads y[1], which is not written before at i0 = 0": _one(
        For(Axis(0, 11), (Store(Y, _at(Axis(0, 11)), Load(Y, _at(Axis(0, 11)) + 1)),)), buffer=Y
    ),
    "i1 has no loop around it": _one(For(I, (Store(Y, _at(I) + _at(J), Load(X, _at(I))),)), buffer=Y, also=(X,)),
    "v1 is used as an index, and no check bounds it to an axis": _one(
        For(I, (Let(V, Number(Fraction(5), "int64")), Store(Y, _at(I), Load(X, Index(), ((V, 1),))))),
        buffer=Y,
        also=(X,),
    ),
    "it may read x[13]": _picking(Require(V, 12, "g"), ((V, 1),)),
    "v1 is an index of x with a stride of 5 elements, 4 of which are along no axis of (12)": _picking(
        Require(V, 4, "g"), ((V, 5),)
    ),
    "add of float32, int64 is float32": _one(
        For(I, (Store(Y, _at(I), Apply(PRIMITIVES["add"], (Load(X, _at(I)), Counter(_at(I))), "float32")),)),
        buffer=Y,
        also=(X,),
    ),
    "y is float32, and the stored value is int64": _one(
        For(I, (Store(Y, _at(I), Number(Fraction(1), "int64")),)), buffer=Y
    ),
    "it writes x, which is an input or constant": _one(
        For(I, (Store(X, _at(I), Load(X, _at(I))),)), buffer=Y, also=(X,)
    ),
    "x[i0*2] is not contiguous along i0": _one(
        For(I, (Store(Y, _at(I), Load(X, _at(I, 2))),), Way.VECTOR), buffer=Y, also=(X,)
    ),
}


@pytest.mark.parametrize("said", SENTENCES)
def test_what_is_said(said: str) -> None:
    found = faults(SENTENCES[said])
    assert any(said in sentence for sentence in found), found


def test_sorts_lie_within_and_are_written() -> None:
    order = Buffer("order", Dims((12,)), "int64", Role.RESULT)
    right = For(I, (Sort(X, order, _at(I, 4), 4, False),), Way.PARALLEL)
    assert faults(_one(right, buffer=order, also=(X,))) == []
    x = np.array([3, 1, 2, 1, 0, 0, np.nan, -1, 5, 6, 7, 8], np.float32)
    (got,) = interpret(_one(right, buffer=order, also=(X,)), {"x": x})
    assert got.tolist() == [1, 3, 2, 0, 3, 0, 1, 2, 0, 1, 2, 3]
    wrong = For(I, (Sort(X, order, _at(I, 4), 5, False),), Way.PARALLEL)
    assert sum("which has 12 elements" in said for said in faults(_one(wrong, buffer=order, also=(X,)))) == 2


def test_what_lies_on_each_other_in_the_arena() -> None:
    b = gl.Builder("p")
    x = b.relu(b.input("x", (1, 12, 9, 8)))
    near = b.conv(x, b.constant("a", (12, 12, 3, 3)), padding=1)
    far = b.conv(x, b.constant("c", (12, 12, 5, 5)), padding=2)
    program = b.finish(layout.concatenate([b.add(near, b.max_pool(x, 3, strides=1, padding=1)), b.add(far, x)], 1))
    loops = lower(program, MACHINES["avx512"])
    plan = arena(loops)
    lives: dict[Buffer, list[int]] = {}
    for time, nest in enumerate(loops.nests):
        for access in accesses(nest.body):
            lives.setdefault(access.buffer, []).append(time)
    pairs = list(itertools.combinations(plan.places, 2))
    meeting = [(a, c) for a, c in pairs if min(lives[a]) <= max(lives[c]) and min(lives[c]) <= max(lives[a])]
    assert len(pairs) > len(meeting) > 3
    end = plan.size
    for a, c in pairs:
        alone = {buffer: end * (i + 2) for i, buffer in enumerate(plan.places)}  # each far from all others
        placed = Arena({**alone, a: 64, c: 0}, end * (len(alone) + 3), plan.bound, 0, {})
        assert bool(faults(loops, placed)) == ((a, c) in meeting), (a, c)
    assert "misaligned or outside of the arena" in faults(loops, replace(plan, size=plan.size - 64))[0]


def test_packed_constants_are_what_their_loops_say() -> None:
    program = _convolution(5, 43, 9, 3, 1, 1)
    for way in ("avx512", "generic"):
        loops = lower(program, WAYS[way])
        sources = {p.source: program.constants[p.source.name] for p in loops.packings if p.source.role is Role.CONSTANT}
        assert sources
        for buffer, packed in packed_constants(loops.packings, sources).items():
            (packing,) = [p for p in loops.packings if p.buffer == buffer]
            result = replace(buffer, role=Role.RESULT)
            body = replace(packing, buffer=result).statements()
            (got,) = interpret(_one(*body, buffer=result, also=(packing.source,)), program.constants)
            assert (got == packed).all()
