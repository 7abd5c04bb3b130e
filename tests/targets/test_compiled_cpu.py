"""Tests the compiled processor target: the predicted time of layers in their program, and the choice by it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import glenside as gl
from glenside.codegen.processor.model import MACHINES, is_here, machine_of
from glenside.codegen.processor.work_record import Work
from glenside.ir.cook_toom import cook_toom
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.targets.cpu.compiled import CompiledCPU

MACHINE = "avx2"


def _windows(channels: int = 32, size: int = 28, layers: int = 2) -> Program:
    b = gl.Builder("windows")
    x = b.input("x", (1, channels, size, size))
    for step in range(layers):
        w = b.constant(f"w{step}", (channels, channels, 3, 3))
        x = b.relu(b.conv(x, w, padding=1, name=f"conv{step}"))
    return b.finish(x).seeded_constants(0)


def _target(**options: object) -> CompiledCPU:
    found = gl.CPU(machine=MACHINE, **options)
    assert isinstance(found, CompiledCPU)
    return found


def test_the_variant_that_takes_the_least_is_chosen() -> None:
    result = gl.optimize(_windows(), _target())
    assert result.report.checked == "exact"
    for row in result.report.layers:
        least = min(choice.measures["time"] or 0 for choice in _variants(result, row.name))
        assert row.variants["chosen"].measures["time"] == least
    assert "Winograd" in result.report.layers[0].variants["chosen"].label
    assert (result.cost["time"] or 0) < (result.report.totals["plain"]["time"] or 0)


def _variants(result: gl.Result, name: str) -> list:
    return [*result.answer.layers[name].variants]  # type: ignore[attr-defined]


def test_layers_take_what_their_program_does() -> None:
    result = gl.optimize(_windows(), _target(), verify=False)
    taken = sum(row.variants["chosen"].measures["time"] or 0 for row in result.report.layers)
    between = result.report.between_layers["chosen"]["time"] or 0
    assert between >= 0
    assert 0 <= taken + between - result.cost["time"] <= len(result.report.layers)  # each layer is rounded


def test_prices_decide() -> None:
    """Where only nests cost anything, the fewest are taken; where only steps do, those are."""
    machine = MACHINES[MACHINE]
    counted = replace(machine, name="counted", nanoseconds=Work(nests=1))
    issued = replace(machine, name="issued", nanoseconds=Work(cycles=1))
    labels = []
    for of in (counted, issued):
        result = gl.optimize(_windows(), gl.CPU(machine=of), verify=False)
        row = result.report.layers[0]
        taken = {v.label: v.measures["time"] for v in _variants(result, row.name)}
        assert len(set(taken.values())) > 1
        assert row.variants["chosen"].measures["time"] == min(taken.values())
        labels.append(row.variants["chosen"].label)
    assert labels[0] != "Winograd F(4x4,3x3)"  # its transforms are nests of their own
    assert labels[1] == "Winograd F(4x4,3x3)"


def test_phases_of_a_transposed_convolution_are_a_variant_with_a_price() -> None:
    b = gl.Builder("up")
    x = b.relu(b.input("x", (1, 16, 9, 7)))
    program = b.finish(b.relu(b.conv_transpose(x, b.constant("w", (16, 8, 4, 4)), strides=2, name="up")))
    result = gl.optimize(program.seeded_constants(0), _target())
    taken = {v.label: v.measures["time"] for v in _variants(result, "up")}
    assert "4 phases" in taken
    assert all(taken.values())
    assert result.report.checked == "exact"


def test_a_budget_is_held_by_what_is_compiled() -> None:
    free = gl.optimize(_windows(64, 56), _target(), verify=False)
    most = (free.cost["peak"] or 0) - 1
    held = gl.optimize(_windows(64, 56), _target(memory=most), verify=False)
    assert (held.cost["peak"] or 0) <= most
    assert (held.cost["time"] or 0) > (free.cost["time"] or 0)
    none = gl.optimize(_windows(64, 56), _target(memory=1000), verify=False)
    assert "exceeds the memory budget" in none.report.notes[0]


@pytest.mark.skipif(not is_here(MACHINES[MACHINE]), reason="its vectors are not here")
def test_compiling_for_a_cpu_takes_what_the_machine_takes_the_least_for() -> None:
    program = _windows()
    f = gl.compile(program, gl.CPU(), machine=MACHINE)
    assert f.report.found.target == f"cpu:unlimited,machine={MACHINE}"  # type: ignore[attr-defined]
    x = np.random.default_rng(0).standard_normal((1, 32, 28, 28)).astype("float32")
    (expected,) = gl.evaluate([program.term], {**program.constants, "x": x})
    np.testing.assert_allclose(f(x), np.asarray(expected).reshape(f(x).shape), rtol=1e-4, atol=1e-3)


@pytest.mark.skipif(not is_here(MACHINES[MACHINE]), reason="its vectors are not here")
def test_variants_are_timed_in_turn_and_what_was_timed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glenside.targets.cpu import compiled

    monkeypatch.setenv("GLENSIDE_CACHE", str(tmp_path))
    program = _windows(16, 12, 1)
    first = gl.optimize(program, _target(tune=True))
    assert first.report.checked == "exact"
    assert all(v.measures["time"] for v in _variants(first, "conv0"))
    monkeypatch.setattr(compiled, "_ROUNDS", 0)  # nothing is timed any more
    steps: list[gl.Event] = []
    again = gl.optimize(program, _target(tune=True), listener=steps.append)
    assert any(step.detail.startswith("compiling") and step.fraction == 0 for step in steps)
    assert again.cost == first.cost
    assert str(again.program) == str(first.program)


@pytest.mark.skipif(not is_here(MACHINES[MACHINE]), reason="its vectors are not here")
@pytest.mark.parametrize(
    "at", ["second draft", *(pytest.param(at, marks=pytest.mark.slow) for at in ("compiling 3", "timing 3"))]
)
def test_timing_that_is_interrupted_leaves_the_last_draft(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLENSIDE_CACHE", str(tmp_path))
    program = _windows(16, 14)
    told = gl.optimize(program, _target(), verify=False)

    def listen(event: gl.Event) -> None:
        if event.detail.startswith(at):
            raise KeyboardInterrupt

    given: list[gl.Result] = []

    def keep(result: gl.Result) -> None:
        if at == "second draft" and len(given) == 1:
            given.append(result)
            raise KeyboardInterrupt
        given.append(result)

    result = gl.optimize(program, _target(tune=True), listener=listen, on_answer=keep)
    assert result.stopped == "interrupted"
    assert result.report.checked == "not checked"
    assert given[-1] is result is given[0]
    assert len(given) == (3 if at == "second draft" else 2)
    assert any("nothing was timed" in remark for remark in result.report.remarks)
    assert str(result.program) == str(told.program)


def test_timing_ends_where_its_time_does(monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_here(MACHINES[MACHINE]):
        pytest.skip("its vectors are not here")
    own = _target(tune=True)
    limits = gl.Limits(seconds=30.0)
    clock = iter([0.0, *[31.0] * 100])
    monkeypatch.setattr("glenside.stages.time.monotonic", lambda: next(clock))
    result = gl.optimize(_windows(16, 12, 1), own, limits=limits, verify=False)
    assert result.stopped == "time-limit"
    assert any("nothing was timed" in remark for remark in result.report.remarks)


def test_rounding_errors_grow_no_more_than_is_allowed() -> None:
    labels = []
    for most in (1, 3, 8, 400):
        result = gl.optimize(_windows(layers=1), _target(max_growth=most), verify=False)
        kept = [v.label for v in _variants(result, "conv0")]
        assert kept[0] == "plain"
        labels.append(kept)
    assert labels[0] == ["plain"]
    assert {*labels[1]} == {"plain", "Winograd F(2,3) along axis 1", "Winograd F(2,3) along axis 2"}
    assert {*labels[2]} - {*labels[1]} == {"Winograd F(2x2,3x3)"}
    assert "Winograd F(4x4,3x3)" in labels[3]
    said = {v.label: v.remarks for v in _variants(result, "conv0")}
    assert "256 times that of the plain layer" in said["Winograd F(4x4,3x3)"][0]
    assert said["plain"] == ()


def test_what_growth_bounds_is_seen() -> None:
    """The rounding of F(2, 3) and F(4, 3) in float32, against their bounds and each other."""
    draw = np.random.default_rng(0)
    d, g = draw.standard_normal((2000, 6)), draw.standard_normal((2000, 3))
    seen = []
    for m in (2, 4):
        found = cook_toom(m, 3)
        data, filters, output = (
            np.array(x, float).astype(np.float32) for x in (found.data, found.filter, found.output)
        )
        own = (d[:, : m + 2].astype(np.float32) @ data.T) * (g.astype(np.float32) @ filters.T)
        exact = np.stack([(d[:, i : i + 3] * g).sum(1) for i in range(m)], 1)
        largest = np.abs(d[:, : m + 2]).max(1) * np.abs(g).max(1)
        error = (np.abs(own @ output.T - exact).max(1) / largest / 3).max()
        assert error <= float(found.growth) * 12 * 2.0**-24
        seen.append(error)
    assert seen[0] < seen[1]


@pytest.mark.parametrize(("seconds", "labels"), [(0.0, 1), (60.0, 3)])
def test_whoever_interrupts_has_what_can_be_told_soon(
    monkeypatch: pytest.MonkeyPatch, seconds: float, labels: int
) -> None:
    tried, calls = CompiledCPU._tried, 0

    def interrupted(*arguments: object) -> list:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        return tried(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CompiledCPU, "_tried", interrupted)
    monkeypatch.setattr("glenside.targets.cpu.compiled._INTERRUPT_SECONDS", seconds)
    result = gl.optimize(_windows(layers=1), gl.CPU(machine=MACHINE))
    assert result.stopped == "interrupted"
    assert result.cost["time"]
    assert len(_variants(result, "conv0")) == labels


def test_options_on_the_command_line() -> None:
    target = gl.parse_target("cpu:8MB,machine=avx512,outputs=2")
    assert isinstance(target, CompiledCPU)
    assert (target.memory, target.processor.name, target.outputs) == (8 << 20, "avx512", (2,))
    assert isinstance(gl.parse_target("cpu:8MB"), gl.CPU)
    assert not isinstance(gl.parse_target("cpu:8MB"), CompiledCPU)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cpu:8MB,machine=plain", "a machine of plain loops has no prices"),
        ("cpu:8MB,machine=mill", "a machine is native, plain"),
        ("cpu:8MB,machine=avx2,balance=2", "balance and row strips are of a processor that no programs"),
        ("cpu:8MB,max_growth=0.5", "max_growth of a processor is a number from 1"),
        ("cpu:8MB,tune=yes,balance=2", "balance and row strips are of a processor that no programs"),
        ("cpu:8MB,machine=avx2,tune=maybe", "the option tune of cpu cannot be 'maybe'"),
        ("cpu:8MB,machine=nowhere.toml", "nowhere.toml"),
        ("cpu:8MB,machine=", "a machine is native, plain"),
        ("cpu:8MB,max_growth=0", "max_growth of a processor is a number from 1"),
    ],
)
def test_bad_options_are_sentences(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        gl.parse_target(text)


def test_only_this_computer_is_timed() -> None:
    other = next(name for name, machine in MACHINES.items() if not is_here(machine))
    with pytest.raises(BadInput, match=f"this computer has no {other}"):
        gl.CPU(machine=other, tune=True)


def test_a_machine_file_has_prices(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('target = "cpu"\nlike = "avx2"\nl1 = 65536\n[nanoseconds]\nfar = 0.5\n[fit]\nmean_error = 0.1\n')
    machine = machine_of(str(path))
    assert machine is not None
    assert (machine.l1, machine.name) == (65536, "mine")
    assert asdict(machine.nanoseconds) == asdict(MACHINES["avx2"].nanoseconds) | {"far": 0.5}
    target = gl.parse_target(str(path))
    assert isinstance(target, CompiledCPU)
    assert (target.processor, target.memory) == (machine, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nanoseconds = 3", "nanoseconds is a table of numbers, got 3"),
        ("[nanoseconds]\nfarther = 1", "unknown key farther of nanoseconds"),
        ("[nanoseconds]\nfar = -1", "nanoseconds of far are a number from 0 to 1e9, got -1"),
        ("peak = -1", "peak is a number from 0 to 1000000, got -1"),
        ("threads = 3", "threads has a table of nanoseconds for each number of threads, got 3"),
        ("[threads.one]\nfar = 1", "threads are numbers from 2 to 1024, got 'one'"),
        ("[threads.2]\nfarther = 1", "unknown key farther of nanoseconds"),
        ("[nanoseconds]\nfar = nan", "nanoseconds of far are a number from 0 to 1e9, got nan"),
        ("l1 = 10", "l1 is a whole number from 1024"),
    ],
)
def test_bad_prices_are_sentences(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'like = "avx2"\n{text}\n')
    with pytest.raises(BadInput, match=words):
        machine_of(str(path))


def test_prices_of_so_many_threads_decide() -> None:
    """Where the bytes of weights are dear for two threads, larger weights of fewer products are not worth it."""
    program, machine = _windows(256, 14, 1), MACHINES["avx512"]
    shared = ((2, replace(machine.nanoseconds, weights=50)),)
    dear = replace(machine, name="dear", nanoseconds=replace(machine.nanoseconds, weights=0), shared=shared)
    one, two, three = (gl.optimize(program, gl.CPU(machine=dear, threads=n), verify=False) for n in (1, 2, 3))
    labels = [result.report.layers[0].variants["chosen"].label for result in (one, two, three)]
    assert "Winograd" in labels[0]
    assert "Winograd" not in labels[1]
    assert labels[2] == labels[0]  # of which nobody measured the prices, as is said
    assert any("no costs were measured for 3 threads" in remark for remark in three.report.remarks)
    assert not any("no costs were measured" in remark for remark in (*one.report.remarks, *two.report.remarks))


def test_the_least_that_products_take_is_told_where_the_peak_was_measured() -> None:
    machine, program = MACHINES["avx512"], _windows(64, 28, 1)
    fast = replace(machine, name="fast", peak=100.0)
    plain = 28 * 28 * 9 * 64 * 64
    for threads in (1, 2):
        result = gl.optimize(program, gl.CPU(machine=fast, threads=threads), verify=False)
        (row,) = result.report.layers
        variants = [v.label for v in _variants(result, row.name)]
        assert any("F(4" in label for label in variants)
        assert row.lower_bound == 49 * 36 * 64 * 64 // (100 * threads)  # of F(4, 3) along both axes, the fewest
        assert row.lower_bound + (row.gap or 0) == row.measures["time"]
        assert any(f"take {row.lower_bound:,} ns at the peak" in remark for remark in result.report.remarks)
    only = gl.optimize(program, gl.CPU(machine=fast, max_growth=1), verify=False).report.layers[0]
    assert only.lower_bound == plain // 100
    assert gl.optimize(program, gl.CPU(machine=machine), verify=False).report.layers[0].lower_bound is None


@pytest.mark.parametrize("threads", [0, -1, 1.5, 5000])
def test_threads_of_a_processor_are_numbers(threads: object) -> None:
    with pytest.raises(BadInput, match="threads of a processor"):
        gl.CPU(machine=MACHINE, threads=threads)
