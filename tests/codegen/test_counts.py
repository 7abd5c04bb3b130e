"""Tests the predicted work of nests: steps counted by hand, bytes from beyond caches, and times of whole programs."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

import numpy as np
import pytest

import glenside as gl
from glenside.codegen.cost.count_work import predicted_nanoseconds, works
from glenside.codegen.loop_ir.ir import Buffer, For, Load, Loops, Nest, Role, Statement, Store, Way
from glenside.codegen.lowering.constant_preparation import prepared
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, Machine
from glenside.codegen.processor.work_record import NAMES, Work, overlapped
from glenside.ir.index_map import Axis, Index
from glenside.ir.program import Program
from glenside.ir.types import Dims

MACHINE = MACHINES["avx512"]


def _lowered(program: Program, machine: Machine = MACHINE) -> Loops:
    return lower(prepared(program, lazily=True), machine)


def _product(m: int, k: int, n: int) -> Program:
    b = gl.Builder("product")
    x = b.relu(b.input("x", (m, k)))
    return b.finish(b.relu(b.linear(x, b.constant("w", (n, k)))))


def _last(loops: Loops, machine: Machine = MACHINE) -> Work:
    return works(loops, machine)[-1]


@pytest.mark.parametrize(("m", "k", "n"), [(28, 64, 64), (56, 96, 32), (14, 128, 96)])
def test_the_sums_of_a_product_are_its_vectors_by_those_of_a_cycle(m: int, k: int, n: int) -> None:
    loops = _lowered(_product(m, k, n))
    least = m * k * n / 16 / MACHINE.products
    assert least <= _last(loops).cycles <= 1.25 * least + 200


def test_a_product_of_twice_the_depth_takes_twice_the_cycles() -> None:
    one, two = (_last(_lowered(_product(28, k, 64))).cycles for k in (128, 256))
    assert 1.9 < two / one < 2.05


def test_narrow_vectors_take_longer() -> None:
    taken = [
        _last(_lowered(_product(28, 64, 64), MACHINES[name]), MACHINES[name]).cycles for name in ("avx512", "avx2")
    ]
    assert taken[1] > 1.5 * taken[0]


def test_what_is_larger_than_a_cache_comes_from_behind_it() -> None:
    b = gl.Builder("large")
    x = b.input("x", (1, 64, 128, 128))
    loops = _lowered(b.finish(b.tanh(b.transpose(b.relu(x), (0, 2, 3, 1)))))
    size = loops.results[0].bytes
    found = _last(loops)
    assert 2 * size * 0.9 <= found.far <= 3 * size  # read once, stored once
    assert found.weights == 0
    small = replace(MACHINE, l2=1 << 30)
    assert works(loops, small)[-1].far == 0


def test_weights_come_from_afar_where_a_program_has_more_than_a_cache_holds() -> None:
    b = gl.Builder("rows")
    x = b.input("x", (8, 1024))
    for step in range(3):
        x = b.relu(b.linear(x, b.constant(f"w{step}", (1024, 1024))))
    loops = _lowered(b.finish(x))
    assert [w.weights for w in works(loops, MACHINE)] == pytest.approx([4 << 20] * 3, rel=0.05)
    assert [w.weights for w in works(loops, replace(MACHINE, l2=1 << 30))] == [0, 0, 0]


@pytest.mark.parametrize(
    ("share", "least", "most"), [(0.5, 0.0, 0.0), (0.9, 0.2, 0.8), (1.1, 0.2, 0.8), (1.8, 1.0, 1.0)]
)
def test_weights_of_about_the_size_of_a_cache_are_missed_in_part(share: float, least: float, most: float) -> None:
    b = gl.Builder("steps of one matrix")
    w = b.constant("w", (512, 512))
    rows = [b.input(f"x{n}", (1, 512)) for n in range(4)]
    loops = _lowered(b.finish(b.concatenate([b.relu(b.linear(row, w)) for row in rows], 0)))
    machine = replace(MACHINE, l2=int((512 * 512 * 4 + 20_000) / share))
    missed = [work.weights / (512 * 512 * 4) for work in works(loops, machine)]
    read = [part for part in missed if part or not most][-4:]
    assert len(read) == 4
    assert all(least <= part <= most * 1.01 for part in read), missed


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_a_part_of_a_vector_counts_as_its_share(factor: int) -> None:
    b = gl.Builder("repeated")
    (work,) = works(_lowered(b.finish(b.upsample(b.input("x", (1, 8, 28, 28)), factor))), MACHINE)
    assert work.stores == pytest.approx(8 * 28 * 28 * factor * factor * 4 / MACHINE.vector, rel=0.15)


def test_prices_are_of_each_kind_of_work() -> None:
    one = Work(**dict.fromkeys(NAMES, 1.0))
    for name in NAMES:
        assert one.priced(Work(**{name: 3.0})) == 3
    assert one.plus(one, 2).amounts() == (3.0,) * len(NAMES)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_computed_while_memory_is_waited_for_takes_no_sum_of_both(seed: int) -> None:
    draw = np.random.default_rng(seed)
    prices, work, more = (Work(*draw.uniform(0, 10, len(NAMES)).tolist()) for _ in range(3))
    computing, waiting, begun = work.parts(prices)
    assert sum(a * b for a, b in zip(work.amounts(), prices.amounts(), strict=True)) == pytest.approx(
        computing + waiting + begun
    )
    assert work.priced(prices) == pytest.approx(computing + waiting + begun)  # a unit for matrices waits
    assert work.priced(prices) < work.plus(more).priced(prices)
    work, more = (replace(own, matrices=0) for own in (work, more))
    computing, waiting, begun = work.parts(prices)
    assert max(computing, waiting) + begun < work.priced(prices) < computing + waiting + begun
    assert work.priced(prices) < work.plus(more).priced(prices)


def test_kinds_of_work_count_as_often_as_is_told_near_some_prices() -> None:
    draw = np.random.default_rng(0)
    works_ = [Work(*draw.uniform(0, 10, len(NAMES)).tolist()) for _ in range(4)]
    works_ += [Work(), *(replace(own, matrices=0) for own in works_)]
    prices, near = (Work(*draw.uniform(1, 1 + far, len(NAMES)).tolist()) for far in (1, 1e-9))
    counted = np.array(overlapped([work.amounts() for work in works_], prices))
    assert counted @ prices.amounts() == pytest.approx([work.priced(prices) for work in works_])
    counted = np.array(overlapped([work.amounts() for work in works_], near))
    moved = np.array(near.amounts()) * (1 + 1e-6 * draw.uniform(-1, 1, len(NAMES)))
    assert counted @ moved == pytest.approx([work.priced(Work(*moved.tolist())) for work in works_], rel=1e-9)


def test_vectors_that_are_stored_are_counted() -> None:
    (work,) = works(_lowered(_product(28, 64, 48)), MACHINE)[-1:]
    assert work.stores == 28 * 48 // 16
    halves = works(_lowered(_product(28, 64, 48), MACHINES["avx2"]), MACHINES["avx2"])[-1]
    assert halves.stores == 2 * work.stores


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8"])
@pytest.mark.parametrize("step", [1, 3])
def test_numbers_that_are_stored_count_as_the_part_of_a_vector_that_they_are(dtype: str, step: int) -> None:
    """One by one, next to each other, so that a compiler makes vectors of them, or not; and as vectors."""
    count, bytes_ = 256, np.dtype(dtype).itemsize
    given, made = (Buffer(n, Dims((step * count,)), dtype, r) for n, r in (("x", Role.INPUT), ("y", Role.RESULT)))

    def stores(*sizes: int, way: Way = Way.LOOP) -> float:
        axes = [Axis(number, size) for number, size in enumerate(sizes)]
        place = Index(tuple((axis, step * prod(sizes[axis.number + 1 :])) for axis in axes))
        body: Statement = Store(made, place, Load(given, place))
        for axis in reversed(axes):
            body = For(axis, (body,), way if axis is axes[-1] else Way.LOOP)
        nest = Nest("copy", made, (body,))
        return works(Loops("copy", (given, made), (nest,), (made,)), MACHINE)[0].stores

    assert stores(count) == stores(8, 32) == stores(count, way=Way.UNROLLED) == count * bytes_ / MACHINE.vector
    if step == 1:
        lanes = MACHINE.vector // bytes_
        assert stores(count // lanes, lanes, way=Way.VECTOR) == stores(count)


@pytest.mark.slow
def test_every_nest_of_a_network_takes_something() -> None:
    network = gl.models.mobilenet_v3_large(resolution=64)
    taken = predicted_nanoseconds(_lowered(network), MACHINE)
    assert all(np.isfinite(own) and own > 0 for own in taken)


def test_nests_say_the_terms_that_they_compute() -> None:
    b = gl.Builder("two")
    x = b.relu(b.conv(b.input("x", (1, 8, 12, 12)), b.constant("w", (16, 8, 3, 3)), padding=1, name="first"))
    program = prepared(b.finish(b.conv(x, b.constant("v", (8, 16, 1, 1)), name="second")), lazily=True)
    loops = lower(program, MACHINE)
    for name, root in program.layers.items():
        assert any(root in nest.terms for nest in loops.nests), name


def test_what_the_last_cache_cannot_hold_comes_from_memory_and_goes_back() -> None:
    b = gl.Builder("larger")
    x = b.input("x", (1, 64, 128, 128))
    loops = _lowered(b.finish(b.tanh(b.transpose(b.relu(x), (0, 2, 3, 1)))))
    size = loops.results[0].bytes
    assert sum(w.memory for w in works(loops, MACHINE)) == 0  # nobody said how large it is
    assert sum(w.memory for w in works(loops, replace(MACHINE, l3=1 << 30))) == 0
    found = sum(w.memory for w in works(loops, replace(MACHINE, l3=1 << 20)))
    assert 3 * size <= found <= 6 * size  # at least what is read, stored, and goes back


def test_weights_come_from_memory_in_each_run_where_the_last_cache_holds_less() -> None:
    b = gl.Builder("rows")
    x = b.input("x", (8, 1024))
    for step in range(3):
        x = b.relu(b.linear(x, b.constant(f"w{step}", (1024, 1024))))
    loops = _lowered(b.finish(x))
    found = [w.memory_weights for w in works(loops, replace(MACHINE, l3=8 << 20))]
    assert found == pytest.approx([4 << 20] * 3, rel=0.05)
    assert [w.memory_weights for w in works(loops, replace(MACHINE, l3=64 << 20))] == [0, 0, 0]


@pytest.mark.parametrize("deep", [False, True])
def test_weights_for_a_unit_for_matrices_come_once_from_behind_caches(deep: bool) -> None:
    """However many pieces the sum is taken in, one after the other, which begin within each other's panels."""
    machine = MACHINES["amx"]
    rows, k, n = (128, 3072, 768) if deep else (256, 1024, 1024)
    loops = _lowered(_product(rows, k, n), machine)
    weights = k * n * 6
    unknown, large, small = (_last(loops, replace(machine, l3=l3)) for l3 in (0, 64 << 20, 2 << 20))
    assert unknown == large
    assert large.matrices == small.matrices > 0
    assert weights <= large.weights < 1.5 * weights
    assert small == large  # what tiles ask for beforehand comes as soon from memory


def test_what_another_temporary_left_in_the_arena_is_as_near_as_it_was() -> None:
    """Images that take turns in memory that the second cache holds are near; where it does not, they are far."""
    b = gl.Builder("turns")
    x = b.input("x", (1, 16, 48, 48))
    for step in range(6):
        x = b.conv(x, b.constant(f"w{step}", (16, 16, 3, 3)))
    loops = _lowered(b.finish(b.tanh(x)))
    far = {l2: [w.far for w in works(loops, replace(MACHINE, l2=l2))] for l2 in (1 << 17, 1 << 20)}
    size = 16 * 4 * 40 * 40
    assert max(far[1 << 20][1:-1]) < size / 4
    assert min(far[1 << 17][1:-1]) > size


def test_what_threads_share_has_prices_of_its_own() -> None:
    loops = _lowered(_product(280, 640, 640))
    machine = replace(MACHINE, nanoseconds=Work(cycles=2), shared=((2, Work(cycles=1)),))
    assert predicted_nanoseconds(loops, machine, 2)[-1] == predicted_nanoseconds(loops, machine)[-1] / 2
    assert predicted_nanoseconds(loops, machine, 2) == [work.cycles for work in works(loops, machine, 2)]
    assert predicted_nanoseconds(loops, machine, 3) == predicted_nanoseconds(loops, machine)  # nobody measured it
    few = _lowered(_product(4, 8, 16))
    assert predicted_nanoseconds(few, machine, 2) == predicted_nanoseconds(few, machine)  # one thread does it


def test_a_compiled_function_has_the_predicted_seconds_of_its_nests() -> None:
    b = gl.Builder("product")
    program = b.finish(b.relu(b.linear(b.input("x", (28, 64)), b.input("w", (64, 64)))))
    f = gl.compile(program, gl.CPU(machine="avx2"), verify=False)
    for threads in (1, 2):
        assert f.predicted(threads) == [1e-9 * own for own in predicted_nanoseconds(f.loops, f.machine, threads)]
    assert len(f.predicted()) == len(f.loops.nests) > 0
    assert gl.compile(program, machine="plain").predicted() == []


@pytest.mark.parametrize("rows", [14 * n for n in (20, 21, 23)])
def test_the_thread_that_does_most_of_a_nest_counts(rows: int) -> None:
    loops = _lowered(_product(rows, 64, 64))
    *_, shared = (s.axis.size for s in loops.nests[-1].body if isinstance(s, For) and s.way is Way.PARALLEL)
    assert shared == rows // 14
    for threads in (2, 3, 5):
        most, alone = (works(loops, MACHINE, many)[-1].cycles for many in (threads, 1))
        assert most / alone == pytest.approx(threads * ceil(shared / threads) / shared)
