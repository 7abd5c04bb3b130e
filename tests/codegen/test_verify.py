"""Tests that loops are verified after each pass and before they are compiled or written; boxes agree with enumerated
indices.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import broken_loops
import numpy as np
import pytest
from command_line import completed

import glenside as gl
from glenside.builder import pointwise
from glenside.check.compiled import CheckFailed
from glenside.codegen import pipeline
from glenside.codegen.emit_c.translation_units import Source
from glenside.codegen.loop_ir.faults import Condition
from glenside.codegen.loop_ir.footprints import distinct, footprint_of
from glenside.codegen.loop_ir.index_boxes import Box, contains, is_apart, is_apart_each_step, merged
from glenside.codegen.loop_ir.ir import Loops, Nest
from glenside.codegen.pipeline import Pass, lower
from glenside.codegen.processor.model import MACHINES, Machine, is_here, machine_of
from glenside.codegen.runtime import compile_and_load, compiled_function
from glenside.codegen.runtime.compile_and_load import Loaded, loaded
from glenside.codegen.verify.verifier import Unverified, verified_passes
from glenside.codegen.verify.verify_loops import Checker
from glenside.codegen.verify.written_elements import Written
from glenside.ir.program import Program


def _box(random: Random) -> Box:
    sizes = [random.choice((1, 2, 3, 4)) for _ in range(random.randint(0, 3))]
    strides = [random.choice((1, 2, 3, 4, 5, 6, 8, 12, 16, 24)) for _ in sizes]
    return Box(random.randint(0, 20), merged(zip(strides, sizes, strict=True)))


def _places(box: Box) -> set[int]:
    return {int(place) for place in footprint_of(box).places()}


@pytest.mark.parametrize("span", [1, 40, 1 << 12, 1 << 40])
def test_distinct_values_are_those_of_numpy(span: int) -> None:
    random = np.random.default_rng(span)
    for size in (0, 1, 2, 37, 400):
        values = random.integers(-span, span, (size, 3))
        np.testing.assert_array_equal(distinct(values), np.unique(values))


def test_boxes_say_what_places_say() -> None:
    random, said = Random(0), dict.fromkeys(("within", "apart", "each step"), 0)
    for _ in range(3000):
        a, b = _box(random), _box(random)
        mine, other = _places(a), _places(b)
        assert (min(mine), max(mine)) == (a.first, a.last)
        assert a.size in (None, len(mine))
        if contains(a, b):
            said["within"] += 1
            assert other <= mine
        if is_apart(a, b):
            said["apart"] += 1
            assert not mine & other
        move, count = random.choice((-24, -8, 1, 2, 5, 8, 24, 48)), random.randint(2, 4)
        if is_apart_each_step([a], [a, b], move, count):
            said["each step"] += 1
            for step in range(1, count):
                for sign in (move * step, -move * step):
                    assert not {place + sign for place in mine} & (mine | other), (a, b, move, count)
    assert min(said.values()) > 100, said


def test_boxes_see_what_programs_do() -> None:
    """Rows within a frame, panels of columns, and steps between those, without enumerating indices."""
    inside, left = Box(9, ((1, 6), (8, 6), (64, 3))), Box(8, ((8, 6), (64, 3)))
    assert is_apart(inside, left)
    assert contains(Box(0, ((1, 192),)), inside)
    assert is_apart_each_step([Box(0, ((1, 16), (528, 32)))], [Box(0, ((1, 16), (528, 32)))], 16, 32)
    assert not is_apart_each_step([Box(0, ((1, 17), (528, 32)))], [Box(0, ((1, 17), (528, 32)))], 16, 32)


def test_what_is_written_is_counted_or_looked_at() -> None:
    random = Random(1)
    for _ in range(500):
        written, mask = Written(40), np.zeros(40, bool)
        for _ in range(random.randint(1, 6)):
            box = _box(random) if random.random() < 0.7 else Box(random.choice((0, 20)), ((1, 20),))
            if box.last < 40:
                if random.random() < 0.2:
                    written.add_places(footprint_of(box))
                else:
                    written.add(box)
                mask[list(_places(box))] = True
            assert written.is_whole == mask.all()
            probe = _box(random)
            if probe.last < 40 and written.covers(probe):
                assert mask[list(_places(probe))].all()
        assert (written.mask() == mask).all()


def _convolution() -> Program:
    b = gl.Builder("net")
    y = b.conv(b.input("x", (1, 3, 7, 7)), b.constant("w", (5, 3, 3, 3)), padding=1)
    return b.finish(b.softmax(b.relu(y))).seeded_constants(0)


@pytest.mark.parametrize(
    "machine", ["plain", "avx512", *(pytest.param(name, marks=pytest.mark.slow) for name in ("avx2", "generic"))]
)
def test_known_nests_hide_no_fault(machine: str) -> None:
    """A checker that is used again finds what a new one does."""
    loops = lower(_convolution(), machine_of(machine))
    known = Checker()
    assert list(known.faults(loops)) == []
    found = 0
    for change in (broken_loops.moved, broken_loops.stretched, broken_loops.dropped, broken_loops.shortened):
        for _, wrong in broken_loops.broken(loops, change):
            new = [str(fault) for fault in Checker().faults(wrong)]
            assert [str(fault) for fault in known.faults(wrong)] == new
            found += bool(new)
    assert found > 20
    assert list(known.faults(loops)) == []


def _breaks(nests: list[Nest]) -> list[Nest]:
    """Returns the nests, of which one stores behind its buffer's end."""
    loops = Loops("p", (), tuple(nests), ())
    for _, wrong in broken_loops.broken(loops, broken_loops.stretched):
        if list(Checker().faults(replace(wrong, buffers=tuple({nest.buffer for nest in nests})))):
            return list(wrong.nests)
    raise AssertionError("nothing was broken")


def test_the_pass_that_broke_loops_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(one: Pass) -> Pass:
        return replace(
            one, run=lambda module, machine: module.with_nests(_breaks(list(one.run(module, machine).nests)))
        )

    wrong = tuple(broken(one) if one.name == "fuse-padding" else one for one in pipeline.PIPELINE)
    monkeypatch.setattr(pipeline, "PIPELINE", wrong)
    with verified_passes(), pytest.raises(Unverified, match="after the pass 'fuse-padding'"):
        lower(_convolution(), MACHINES["avx2"])


@pytest.fixture
def wrong_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are lowered to loops of which one stores behind its buffer's end."""

    def lowered(program: Program, machine: Machine | None, without: Sequence[str]) -> Loops:
        loops = lower(program, machine, without)
        return replace(loops, nests=tuple(_breaks(list(loops.nests))))

    monkeypatch.setattr(compiled_function, "lower", lowered)


@pytest.mark.usefixtures("wrong_lowering")
def test_wrong_loops_are_not_compiled() -> None:
    with pytest.raises(Unverified, match=r"^the loops of net \(.*(within|written|results): ") as caught:
        gl.compile(_convolution(), machine="plain")
    assert isinstance(caught.value, gl.GlensideError)
    assert caught.value.status == 1


@pytest.mark.needs_compiler
@pytest.mark.usefixtures("wrong_lowering")
def test_wrong_loops_are_neither_loaded_nor_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C compiler runs meanwhile, and what it makes is dropped."""
    kept: list[str] = []
    monkeypatch.setattr(compile_and_load, "keep", lambda key, _: kept.append(key))
    monkeypatch.setattr(compile_and_load, "_opened", lambda _: pytest.fail("it was loaded"))
    with pytest.raises(Unverified):
        gl.compile(_convolution(), machine="plain")
    assert not kept


@pytest.mark.usefixtures("wrong_lowering")
def test_wrong_loops_are_not_written(tmp_path: Path) -> None:
    gl.save(_convolution(), tmp_path / "net.onnx")
    done = completed("compile", "net.onnx", "-o", "net.c", folder=tmp_path)
    assert done.returncode == 1
    assert "It is a mistake of Glenside's compiler" in done.stderr
    assert os.listdir(tmp_path) == ["net.onnx"]


@pytest.fixture
def other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """C of a program has a function that is a little off."""

    def changed(source: Source, machine: Machine | None, *verify: Callable[[], None]) -> Loaded:
        nests = tuple(text.replace("exp", "1.001f * exp") if "exp_f" in text else text for text in source.nests)
        assert nests != source.nests
        return loaded(replace(source, nests=nests), machine, *verify)

    monkeypatch.setattr(compiled_function, "loaded", changed)


def _powers() -> Program:
    b = gl.Builder("net")
    return b.finish(pointwise.compute("exp", b.input("x", (40,))))


@pytest.mark.needs_compiler
@pytest.mark.usefixtures("other_numbers")
def test_a_check_that_fails_gives_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match=r"^net as compiled fails its check: .*elements are off"):
        gl.compile(_powers(), None, check=True)
    gl.save(_powers(), tmp_path / "net.onnx")
    done = completed("compile", "net.onnx", "-o", "net.c", "--check", "--target", "none", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "fails its check" in done.stderr
    assert os.listdir(tmp_path) == ["net.onnx"]


@pytest.mark.needs_compiler
def test_a_check_that_holds(tmp_path: Path) -> None:
    assert gl.compile(_convolution(), check=True).check().ok
    gl.save(_convolution(), tmp_path / "net.onnx")
    assert completed("compile", "net.onnx", "-o", "net.c", "--check", folder=tmp_path).returncode == 0
    absent = next((machine.name for machine in MACHINES.values() if not is_here(machine)), None)
    done = completed("compile", "net.onnx", "-o", "a.c", "--check", "--machine", absent, folder=tmp_path)
    assert done.returncode == 2
    assert "this computer has no" in done.stderr
    assert not (tmp_path / "a.c").exists()


def test_conditions_are_told_apart() -> None:
    assert len({condition.value for condition in Condition}) == len(Condition)


@pytest.mark.needs_compiler
def test_right_loops_run() -> None:
    program = _convolution()
    x = np.random.default_rng(0).standard_normal((1, 3, 7, 7)).astype(np.float32)
    for machine, threads in product(("plain", "native"), (1, 2)):
        found = gl.compile(program, "none", machine=machine)(x, threads=threads)
        assert np.allclose(found, gl.evaluate([program.term], {"x": x, **program.constants})[0], atol=1e-5)
