"""Tests targets: strict parsing of descriptions, cost formulas against counting, bounds that exclude no answer."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import glenside as gl
from glenside.builder import Builder
from glenside.driver import way_of
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.targets.arrays.array import DATAFLOWS, Array, BitWidths
from glenside.targets.base import parse_objectives
from glenside.targets.registry import parse_target

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "targets").glob("*.toml"))
ARRAY = "[array]\nrows = 8\ncolumns = 4\n"
FAST = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

BAD = {
    "empty": ("", "the table [array] is missing"),
    "no rows": ("[array]\ncolumns = 4\n", "rows in [array] is missing: an integer from 1 to 4096"),
    "zero": ("[array]\nrows = 0\ncolumns = 4\n", "t.toml:2: rows in [array] is an integer from 1 to 4096, got 0"),
    "negative": ("[array]\nrows = 8\ncolumns = -4\n", "t.toml:3: columns in [array]"),
    "too large": ("[array]\nrows = 8\ncolumns = 4097\n", "got 4097"),
    "a float": ("[array]\nrows = 8.0\ncolumns = 4\n", "got 8.0"),
    "a bool": ("[array]\nrows = true\ncolumns = 4\n", "got True"),
    "a string": ('[array]\nrows = "8"\ncolumns = 4\n', "got '8'"),
    "unknown key": (ARRAY + "colums = 3\n", "t.toml:4: there is no colums in [array]; did you mean columns?"),
    "unknown table": (ARRAY + "[memry]\ncapacity = 3\n", "t.toml:4: there is no memry; did you mean memory?"),
    "a table that is none": ("memory = 3\n" + ARRAY, "[memory] is a table, got 3"),
    "unknown dataflow": (ARRAY + 'dataflow = "row-stationary"\n', "'weight-stationary'"),
    "no accumulator rows": (ARRAY + "max_rows = 0\n", "max_rows in [array] is an integer from 1 to"),
    "no unit": (ARRAY + '[memory]\ncapacity = "256"\n', "capacity in [memory] is a size such as '256 KiB'"),
    "a plain number": (ARRAY + "[memory]\ncapacity = 256\n", "capacity in [memory] is a size"),
    "wrong unit": (ARRAY + '[memory]\ncapacity = "256 parsecs"\n', "got '256 parsecs'"),
    "half a byte": (ARRAY + '[memory]\ncapacity = "0.5 B"\n', "whole bytes"),
    "negative size": (ARRAY + '[memory]\ncapacity = "-1 KiB"\n', "got '-1 KiB'"),
    "no bits": (ARRAY + '[widths]\ninput = "0 bit"\n', "input in [widths] is a size such as '8 bit'"),
    "widths without unit": (ARRAY + "[widths]\ninput = 8\n", "t.toml:5: input in [widths]"),
    "widths twice": (ARRAY + "[words]\ninput = '8 bit'\n[widths]\ninput = '8 bit'\n", "t.toml:4: there is no words"),
    "rate": (ARRAY + '[vector]\nrate = "fast"\n', "a whole rate such as '128 MAC/cycle'"),
    "an empty vector": (ARRAY + '[vector]\nspeed = "1 MAC/cycle"\n', "there is no speed in [vector]"),
    "objective": ('objective = "watts"\n' + ARRAY, "an objective is one of cycles, bytes, copies, got 'watts'"),
    "objective twice": ('objective = "cycles,cycles"\n' + ARRAY, "each may be given once"),
    "growth": ("max_weight_growth = 0.5\n" + ARRAY, "a number from 1 to 1e+06"),
    "not TOML": ("[array\n", "is not TOML"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_description_is_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    text, words = BAD[name]
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        parse_target(str(path))
    assert words in str(caught.value)
    assert "t.toml" in str(caught.value)
    assert "\n" not in str(caught.value).strip()


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'\n")
    for path in (tmp_path / "none.toml", tmp_path, tmp_path / "latin.toml"):
        with pytest.raises(BadInput):
            parse_target(str(path))


MISSPELT = {
    "systolic-aray:8x8": "systolic-array",
    "cpu:8MB,row_strip=2": "row_strips",
    "mpc:semi2k,truncatoin=late": "truncation",
    "npu:8x8,bandwith=16": "bandwidth",
}


@pytest.mark.parametrize(("text", "meant"), MISSPELT.items())
def test_a_misspelt_target_or_option_is_refused_with_a_suggestion(text: str, meant: str) -> None:
    with pytest.raises(BadInput, match=f"; did you mean {meant}\\?"):
        parse_target(text)


def test_a_misspelt_keyword_objective_or_way_is_refused_with_a_suggestion() -> None:
    with pytest.raises(BadInput, match=r"has no max-row; did you mean max-rows\?"):
        parse_target("systolic-array:8x8", max_row=4)
    for text, objective in (("systolic-array:8x8", "cycle"), ("mpc:semi2k", "messges")):
        with pytest.raises(BadInput, match=f"got '{objective}'; did you mean "):
            parse_target(text, objectives=objective)
    with pytest.raises(BadInput, match=r"got 'messges'; did you mean messages\?"):
        gl.MPC(objectives=["messges"])
    for name, asked in (("mapping", "baselin"), ("blocking", "tile-loop")):
        with pytest.raises(BadInput, match=f"got '{asked}'; did you mean "):
            way_of(gl.SystolicArray(8, 8), **{name: asked})


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("cpu:8MB,bands=2", {}),
        ("mpc:semi2k", {"network": "wan"}),
        ("mpc:semi2k", {"objectives": "microseconds"}),
        ("systolic-array:8x8", {"words": BitWidths()}),
    ],
)
def test_names_of_version_0_4_are_unknown(text: str, options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        parse_target(text, **options)
    parse_target(text.partition(",")[0])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_the_examples_are_used_and_exact(path: Path) -> None:
    b = Builder("small")
    x = b.input("x", (1, 6, 9, 9))
    y = b.relu(b.conv(x, b.constant("w", (6, 1, 3, 3)), padding=1, groups=6, name="dw"))
    program = b.finish(b.conv(y, b.constant("v", (70, 6, 1, 1)), name="pw"))
    target = parse_target(str(path))
    result = gl.optimize(program, target)
    assert result.report.ok
    assert result.report.target == target.name


def test_flags_come_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "T.TOML"
    path.write_text(ARRAY + "max_rows = 7\n")
    assert parse_target(str(path)).name == "T"
    assert parse_target(str(path)).rule_parameters()["max_rows"] == 7
    assert parse_target(str(path), max_rows=9, objectives=("bytes",)).rule_parameters()["max_rows"] == 9


@pytest.mark.parametrize("text", ["", "cycles,", "cycles,bytes,cycles", "seconds"])
def test_objectives_that_contradict_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_objectives(text)


@pytest.mark.parametrize(
    "options", [{"max_rows": 0}, {"vector_rate": 0}, {"max_weight_growth": 0.9}, {"dataflow": "none"}]
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        gl.SystolicArray(4, 4, **options)


arrays = st.builds(
    Array,
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from(DATAFLOWS),
    st.one_of(st.none(), st.integers(1, 9)),
    st.integers(0, 400),
    st.builds(BitWidths, *(st.sampled_from((4, 8, 16, 32)) for _ in range(3))),
)
sizes = st.integers(1, 24)


def simulated(array: Array, g: int, m: int, k: int, n: int) -> tuple[int, int, int]:
    """(cycles, tiles, bytes) one tile after the other, with an explicit memory."""
    r, c = array.rows, array.columns
    cycles = tiles = moved = 0
    size = lambda elements, bits: -(-elements * bits // 8)  # noqa: E731
    stays = array.dataflow == "output-stationary"
    most = r if stays else array.max_rows or m
    mt = math.ceil(m / most)
    rows = r if stays else math.ceil(m / mt)
    nt, depth = math.ceil(n / c), k if stays else math.ceil(k / r) * r
    kt = 1 if stays else depth // r
    for _ in range(g):
        inputs, weights = size(rows * depth, array.widths.input), size(nt * c * depth, array.widths.weight)
        keeps_inputs = nt > 1 and inputs <= array.capacity  # of one column tile they are read once anyhow
        keeps_weights = weights + (inputs if keeps_inputs else 0) <= array.capacity
        weights_there = False
        for _ in range(mt):
            inputs_there = False
            for _ in range(nt):
                moved += 0 if inputs_there else inputs
                inputs_there = keeps_inputs
                for _ in range(kt):
                    tiles += 1
                    if stays:
                        cycles += depth + r + c - 2
                    elif array.dataflow == "double-buffered":
                        cycles += max(r, rows + r + c - 2)
                    else:
                        cycles += rows + 2 * r + c - 2
            moved += 0 if weights_there else weights
            weights_there = keeps_weights
        moved += size(mt * rows * nt * c, array.widths.accumulator)
    return cycles + (r if array.dataflow == "double-buffered" else 0), tiles, moved


@FAST
@given(arrays, st.integers(1, 4), sizes, sizes, sizes)
def test_formulas_count_what_a_machine_does(array: Array, g: int, m: int, k: int, n: int) -> None:
    assert tuple(array.tiled(g, m, k, n)) == simulated(array, g, m, k, n)


@FAST
@given(arrays, st.integers(1, 12), st.integers(1, 40), st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**5))
def test_more_memory_never_moves_more(array: Array, g: int, m: int, k: int, n: int, more: int) -> None:
    larger = replace(array, capacity=array.capacity + more)
    assert larger.tiled(g, m, k, n).bytes <= array.tiled(g, m, k, n).bytes


@FAST
@given(arrays, st.integers(1, 12), st.integers(1, 40), st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**9))
def test_the_bound_is_below_whatever_the_steps_may_reach(
    array: Array, g: int, m: int, k: int, n: int, seed: int
) -> None:
    """Regroup, take rows together, pack and swap at random: each price is at least the bound of every state before."""
    r = random.Random(seed)
    height, window, stride = m, k, r.randrange(1, 4)  # one axis of windows: all rows, all of the item
    states = [(g, m, k, n)]
    q = r.randrange(1, height + 1)
    m, k, n = math.ceil(height / q), window + (q - 1) * stride, n * q
    states.append((g, m, k, n))
    rows = r.randrange(1, m + 1)
    m, k, n = math.ceil(m / rows), k * rows, n * rows
    states.append((g, m, k, n))
    packed = r.randrange(1, g + 1)
    last = (math.ceil(g / packed), m, k * packed, n * packed)
    for swapped in (False, True):
        g2, m2, k2, n2 = last
        price = array.tiled(g2, *((n2, k2, m2) if swapped else (m2, k2, n2)))
        for state in states:
            sg, sm, sk, sn = state
            bound = array.bound(sg * sm * sk * sn, sg * sk, sg * sm * sn, sg * sk * sn)
            assert bound.cycles <= price.cycles
            assert bound.bytes <= price.bytes


def depthwise(channels: int = 12, size: int = 14) -> Program:
    b = Builder("depthwise")
    x = b.input("x", (1, channels, size, size))
    return b.finish(b.conv(x, b.constant("w", (channels, 1, 3, 3)), padding=1, groups=channels, name="dw"))


@pytest.mark.parametrize(
    "flow", [pytest.param(f, marks=pytest.mark.slow if f == "double-buffered" else ()) for f in DATAFLOWS]
)
def test_each_objective_is_the_least_in_its_own_unit(flow: str) -> None:
    found = {}
    for text in ("cycles", "bytes", "cycles,bytes"):
        target = gl.SystolicArray(16, 16, dataflow=flow, capacity=2_000, objectives=parse_objectives(text))
        (found[text],) = gl.optimize(depthwise(), target, verify=False).report.layers
    cycles, moved = ({text: row.measures[what] for text, row in found.items()} for what in ("cycles", "bytes"))
    assert moved["bytes"] <= moved["cycles,bytes"] <= moved["cycles"]
    assert cycles["cycles"] == cycles["cycles,bytes"] <= cycles["bytes"]
    assert all(row.gap == 0 for row in found.values())


def test_a_memory_that_holds_all_moves_no_more_than_one_that_holds_nothing() -> None:
    text = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"
    program = gl.parse(text, shapes={"a": (50, 40), "b": (60, 40)})
    moved = []
    for capacity in (0, 9_000, 1 << 30):
        target = gl.SystolicArray(8, 8, capacity=capacity, objectives=("bytes",))
        moved.append(gl.optimize(program, target, verify=False).cost["bytes"])
    assert moved[0] > moved[1] >= moved[2] >= 4 * (50 * 40 + 60 * 40 + 50 * 60)


def test_a_fast_unit_beside_the_array_takes_the_product_and_a_slow_one_does_not() -> None:
    for rate, words in ((10**6, "on the vector unit"), (1, "per")):
        result = gl.optimize(depthwise(), gl.SystolicArray(16, 16, vector_rate=rate))
        (row,) = result.report.layers
        assert words in row.label
        assert result.report.ok
        assert row.gap == 0
    assert row.measures["cycles"] < math.ceil(row.macs / rate)


@pytest.mark.parametrize("most", [1, 5, 30])
def test_rows_are_cut_for_accumulators_of_limited_depth(most: int) -> None:
    result = gl.optimize(depthwise(), gl.SystolicArray(16, 16, max_rows=most))
    assert result.report.ok
    calls = [n for n in result.egraph.nodes if n.operator == "systolic-array"]
    assert calls
    for node in calls:
        a = result.egraph.types[node.children[0]]
        assert a is not None
        assert a.dims[4] <= most
    with pytest.raises(BadInput, match="blocking tile-loops"):
        gl.optimize(depthwise(), gl.SystolicArray(16, 16, max_rows=most), blocking="unrolled-tiles")


@pytest.mark.parametrize("growth", [1.0, 2.5, 9.0, 64.0])
def test_weights_grow_no_more_than_allowed(growth: float) -> None:
    free = gl.optimize(depthwise(), gl.SystolicArray(16, 16), verify=False).report.layers[0]
    capped = gl.optimize(depthwise(), gl.SystolicArray(16, 16, max_weight_growth=growth)).report.layers[0]
    assert capped.measures["weight bytes"] <= growth * capped.baseline["weight bytes"]
    assert capped.measures["cycles"] >= free.measures["cycles"]
    assert capped.checked == "exact"
    assert free.measures["weight bytes"] > free.baseline["weight bytes"]
