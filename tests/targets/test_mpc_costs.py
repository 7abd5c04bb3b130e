"""Tests the time of secure computation: work counted as in SPU's kernels, unit costs from checked files."""

from __future__ import annotations

from pathlib import Path

import pytest

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.targets import parse_target
from glenside.targets.base import Variant
from glenside.targets.mpc.costs import BUILT_IN, NAMES, Costs, load_costs
from glenside.targets.mpc.semi2k import NOTHING, Traffic
from glenside.targets.mpc.work import NO_WORK, Work, program_work

NUMBERS = "\n".join(f"{name} = {number}.5" for number, name in enumerate(NAMES))
FILE = f'target = "mpc"\nprotocol = "semi2k"\nfield = 64\n[nanoseconds]\n{NUMBERS}\n'


def test_a_layer_computes_products_and_copies_windows() -> None:
    b = gl.Builder()
    program = b.finish(b.conv(b.input("x", (1, 3, 8, 6)), b.constant("w", (5, 3, 3, 3)), padding=1))
    m, k, n = 8 * 6, 27, 5
    pads, windows = 3 * 10 * 6 + 3 * 10 * 8, 3 * (8 * 3) * 8 + 3 * (8 * 3) * (6 * 3)
    assert program_work(program) == Work(m * k * n, k * (m + n), copied=pads + windows, operations=5)


def test_transforms_add_and_what_their_owner_prepares_is_free() -> None:
    text = "(linear-map (access-tensor x) 0 2 (numbers))"
    term = gl.parse(text.replace("(numbers)", '"1 1 0 0 1/2 -1/2"'), shapes={"x": (3, 10)})
    # A sum, a difference that is scaled, and both side by side.
    assert program_work(term) == Work(elements=10 + 10 + 10, copied=20, operations=4)
    b = gl.Builder()
    program = b.finish(b.relu(b.constant("w", (7,))))
    assert program_work(program) == Work(elements=7, operations=1)
    assert program_work(program, prepared=True) == NO_WORK


def test_sums_of_windows_pad_and_add() -> None:
    term = gl.parse("(access-overlap-add (access (access-tensor x) 2) (shape 6) (shape 1))", shapes={"x": (2, 4, 3)})
    assert program_work(term) == Work(elements=2 * 2 * 6, copied=3 * 2 * 6, operations=5)


def test_public_operands_take_nothing() -> None:
    b = gl.Builder()
    program = b.finish(b.linear(b.input("x", (4, 5)), b.input("w", (3, 5))))
    assert program_work(program, {"x", "w"}) == NO_WORK
    one = program_work(program, {"w"})
    assert (one.multiply_adds, one.opened) == (60, 0)


def test_seconds_are_a_sum_of_what_is_counted() -> None:
    costs = Costs(*(10.0**i for i in range(len(NAMES))))
    sent = Traffic(bytes=8 * 3 + 4 * 2 + 5, messages=7, truncated=2)
    work = Work(multiply_adds=1, opened=3, elements=4, copied=6, operations=9)
    wanted = (1, 3, 2, 5, 7, 4, 6, 9)  # in the order of the fields, without the program
    assert costs.seconds(sent, work, 8) == pytest.approx(1e-9 * sum(c * 10.0**i for i, c in enumerate(wanted)))
    assert costs.seconds(NOTHING, NO_WORK, 8) == 0


@pytest.mark.parametrize(
    "link", ["wan", *(pytest.param(link, marks=pytest.mark.slow) for link in ("lan", "1Gbit,5ms"))]
)
def test_nothing_that_is_chosen_is_slower_than_plain(link: str) -> None:
    b = gl.Builder()
    program = b.finish(b.conv(b.input("x", (1, 8, 12, 12)), b.constant("v", (8, 1, 3, 3)), groups=8, padding=1))
    result = gl.optimize(program, gl.MPC(link=link), verify=False)
    assert result.report.objectives == ("time",)
    for row in result.report.layers:
        assert (row.variants["chosen"].measures["time"] or 0) <= (row.variants["plain"].measures["time"] or 0)
    assert (result.cost["time"] or 0) <= (result.report.totals["plain"]["time"] or 0)


def _taken(time: int, sent: int) -> Variant:
    measures = {"time": time, "bytes": sent, "messages": 2, "truncations": 1, "error": 1}
    return Variant(f"{time} us", None, measures, "" if time == 1000 else "step")


def test_what_may_not_be_sooner_is_not_taken() -> None:
    """Of what is computed 8 % of both are in doubt; of what is sent nothing is."""
    at_once, slow = gl.MPC(link="1000GB,0s"), gl.MPC(link="1MB,0s")
    plain = _taken(1000, 900)
    assert at_once.best([plain, _taken(900, 900)]).label == "1000 us"
    assert at_once.best([plain, _taken(840, 900), _taken(850, 100)]).label == "840 us"
    assert slow.best([plain, _taken(950, 850)]).label == "950 us"
    assert gl.MPC(objectives=("bytes",)).best([plain, _taken(2000, 899)]).label == "2000 us"


def test_the_link_is_said() -> None:
    (time, *_) = gl.MPC().measures
    assert (time.name, time.unit) == ("time", "us")
    assert "384 MB/s and 0.15 ms" in time.doc
    assert "44 MB/s and 20 ms" in gl.MPC(link="wan").measures[0].doc


def test_a_file_of_costs_is_a_target(tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    path.write_text(FILE)
    assert load_costs(path).costs == Costs(*(number + 0.5 for number in range(len(NAMES))))
    for text in (str(path), f"mpc:semi2k,costs={path}"):
        target = parse_target(text, link="wan")
        assert isinstance(target, gl.MPC)
        assert target.costs == load_costs(path).costs
        assert target.name == f"mpc:semi2k,costs={path}"
    assert gl.MPC().costs == BUILT_IN[64]
    with pytest.raises(BadInput, match="has costs of semi2k with 64 bits, not of semi2k with 128"):
        parse_target(f"mpc:semi2k,field=128,costs={path}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FILE.replace("semi2k", "aby3"), "a protocol is one of semi2k"),
        (FILE.replace('"semi2k"', "3"), "protocol is a name such as 'semi2k', got 3"),
        (FILE.replace("64", "48"), "field is one of 32, 64, 128, got 48"),
        (FILE.replace("[nanoseconds]", "[seconds]"), "there is no seconds"),
        (FILE.split("[")[0], r"the table [nanoseconds] is missing"),
        (FILE + "watts = 3\n", "there is no watts in [nanoseconds]"),
        (FILE.replace("opened = 1.5", "opened = -1.5"), "opened in [nanoseconds] is a number from 0"),
        (FILE.replace("opened = 1.5", "opened = nan"), "opened in [nanoseconds] is a number from 0"),
        (FILE.replace("opened = 1.5", 'opened = "many"'), "opened in [nanoseconds] is a number from 0"),
        (FILE.replace("opened = 1.5", ""), "opened in [nanoseconds] is a number from 0 to 1e+15, got None"),
        (FILE.replace('"mpc"', '"convolution-unit"'), "the target convolution-unit is not described by a file"),
        (FILE.replace('"mpc"', '"tpu"'), "there is no target 'tpu'"),
        (FILE.replace('"mpc"', "7"), "target is a name, such as 'systolic-array', got 7"),
    ],
)
def test_files_that_are_none(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        parse_target(str(path))
    assert words in str(error.value)
    assert str(path) in str(error.value) or "there is no target" in str(error.value) or "a protocol" in str(error.value)
