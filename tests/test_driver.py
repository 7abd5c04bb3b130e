"""Tests the whole pipeline: random programs and small networks, optimized for every target, equal to the original."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from fuzzing import Fuzzing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_terms import MOVES, drawn, terms
from rule_checks import assert_all_equal, saturated

import glenside as gl
from glenside.analysis.layers import product_sizes
from glenside.builder import Builder
from glenside.check import is_equal
from glenside.egraph.clause import rewrite
from glenside.egraph.pattern import variables
from glenside.egraph.rule import Example, Rule
from glenside.egraph.search import SearchResult
from glenside.ir.dtypes import STORED
from glenside.ir.errors import BadInput
from glenside.ir.operators.compute import compute
from glenside.ir.operators.products import access_product
from glenside.ir.operators.tiled_products import tiled_product
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.passes.variants import Cheapest
from glenside.rewrites import RULES, of_families
from glenside.rewrites.secure.truncations import LATE
from glenside.semantics.interpreter import evaluate
from glenside.targets.base import Cone, Instruction, InstructionCost, Measure, Prices, Target, Variant, Way

# Two ways that mean the same.
BASELINE = ({"blocking": "unrolled-tiles"}, {"blocking": "tile-loops", "mapping": "baseline"})
DOT = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_every_rule_on_random_programs_is_sound_and_ends(term: Term) -> None:
    assert_sound(term)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms(operators=MOVES, dtypes=STORED))
def test_every_rule_on_random_movement_of_what_is_only_stored_is_sound_and_ends(term: Term) -> None:
    assert_sound(term)


@pytest.mark.slow
def test_every_rule_on_many_random_movements_of_what_is_only_stored_is_sound(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(5):
        for term in drawn(seed, 20, operators=MOVES, dtypes=STORED):
            assert_sound(term)
            assert_optimized_equals(term, 3, 4)


@pytest.mark.slow
def test_many_random_programs_of_bfloat16_optimized_equal_the_original(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(5):
        for term in drawn(seed, 20, dtypes=("bfloat16",)):
            assert_optimized_equals(term, 3, 4)


@pytest.mark.slow
def test_every_rule_on_many_random_programs_is_sound_and_ends(fuzzing: Fuzzing) -> None:
    """The rules in another order for each program: none may rely on which one ran before it."""
    for seed in fuzzing.seeds(10):
        for term in drawn(seed, 20):
            assert_sound(term, seed)


@pytest.mark.slow
def test_many_random_programs_optimized_equal_the_original(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(10):
        for term in drawn(seed, 20):
            assert_optimized_equals(term, 3, 4)


def assert_sound(term: Term, order: int | None = None) -> None:
    """Of all rules but late truncations: their own search has no rules of movement, with which they never end."""
    late = of_families([LATE])
    for rules in (tuple(rule for rule in RULES.values() if rule not in late), late):
        some = rules if order is None else random.Random(order).sample(rules, len(rules))
        snapshot, search = saturated(Program(term), some, {}, iterations=300, compiled=rules)
        assert search.progress.stopped == "saturated"
        assert_all_equal(snapshot)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms(), st.integers(1, 4), st.integers(1, 4))
def test_random_programs_optimized_equal_the_original(term: Term, rows: int, columns: int) -> None:
    assert_optimized_equals(term, rows, columns)


def assert_optimized_equals(term: Term, rows: int, columns: int) -> None:
    result = gl.optimize(Program(term), gl.SystolicArray(rows, columns))
    assert is_equal(result.report.checked), result.report.checked
    assert result.stopped == "saturated"
    assert result.program.term.type == term.type


def test_targets_are_objects_or_text() -> None:
    program = gl.parse(DOT, shapes={"a": (5, 7), "b": (3, 7)})
    by_text, by_object = gl.optimize(program, "systolic-array:2x3"), gl.optimize(program, gl.SystolicArray(2, 3))
    assert by_text.program.term == by_object.program.term
    for wrong in ("none", "2x3", None, 3):
        with pytest.raises(BadInput, match="target"):
            gl.optimize(program, wrong)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="target"):
            gl.npu_program(program, wrong)  # type: ignore[arg-type]
    for run in (gl.optimize, gl.npu_program):
        with pytest.raises(BadInput, match=r"only a program, such as gl\.load returns, can be .*, got str"):
            run(DOT, "npu:2x3")  # type: ignore[operator]
    with pytest.raises(BadInput, match="cannot read"):
        gl.compile(DOT, "npu:2x3")  # a text is the path of a file


MORE = [pytest.param(rows, columns, marks=pytest.mark.slow) for rows, columns in ((8, 2), (64, 64))]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (4, 4), (3, 7), *MORE])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (5, 7, 3), (2, 16, 9), (9, 33, 10)])
@pytest.mark.parametrize("way", BASELINE)
def test_a_product_becomes_whole_tiles(rows: int, columns: int, m: int, k: int, n: int, way: dict[str, str]) -> None:
    program = gl.parse(DOT, shapes={"a": (m, k), "b": (n, k)})
    result = gl.optimize(program, gl.SystolicArray(rows, columns), **way)
    (row,) = result.report.layers
    tiles = math.ceil(k / rows) * math.ceil(n / columns)
    assert row.mapped
    assert row.checked == "exact"
    assert (row.groups, row.m, row.k, row.n, row.macs) == (1, m, k, n, m * k * n)
    cycles = tiles * (m + 2 * rows + columns - 2)
    assert (row.measures["tiles"], row.measures["cycles"]) == (tiles, cycles)
    assert row.utilization == pytest.approx(row.macs / (cycles * rows * columns))


def _network(rows: int) -> Program:
    """All that a layer can be: strided, dilated, grouped, depthwise with a multiplier, pointwise, dense, batched."""
    b = Builder("mixed")
    x = b.input("x", (2, 4, 9, 7))
    y = b.relu(b.conv(x, b.constant("w1", (6, 4, 3, 3)), strides=(2, 1), padding=1, name="strided"))
    y = b.conv(y, b.constant("w2", (6, 2, 3, 2)), groups=3, dilations=(1, 2), padding=1, name="grouped")
    y = b.relu(b.conv(y, b.constant("w3", (12, 1, 3, 3)), groups=6, padding=1, name="depthwise"))
    y = b.conv(y, b.constant("w4", (5, 12, 1, 1)), name="pointwise")
    flat = b.global_average_pool(y)
    flat = b.reshape(flat, (2, 5))
    return b.finish(b.softmax(b.linear(flat, b.constant("w5", (rows, 5)), b.constant("c", (rows,)), name="fc"), 1))


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (5, 3), (16, 8)])
@pytest.mark.parametrize("way", [*BASELINE, {}])
def test_a_network_of_every_kind_of_layer(rows: int, columns: int, way: dict[str, str]) -> None:
    program = _network(7)
    result = gl.optimize(program, gl.SystolicArray(rows, columns), **way, exact_order=True)
    assert [row.name for row in result.report.layers] == ["strided", "grouped", "depthwise", "pointwise", "fc"]
    assert result.report.ok, [(row.name, row.checked, row.nearest_miss) for row in result.report.layers]
    for row in result.report.layers:
        tiles = row.groups * math.ceil(row.k / rows) * math.ceil(row.n / columns)
        baseline, cycles = tiles * (row.m + 2 * rows + columns - 2), row.measures["cycles"]
        assert row.baseline["cycles"] == baseline
        assert (row.measures["tiles"], cycles) == (tiles, baseline) if way else cycles <= baseline
    values = program.seeded_constants(0).constants
    values = {**values, "x": np.random.default_rng(0).standard_normal((2, 4, 9, 7)).astype(np.float32)}
    before, after = (evaluate([p.term], values)[0] for p in (program, result.program))
    np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-5)


def test_a_grouped_product_is_one_instruction() -> None:
    b = Builder("depthwise")
    x = b.input("x", (1, 9, 8, 8))
    program = b.finish(b.conv(x, b.constant("w", (9, 1, 3, 3)), groups=9, padding=1, name="dw"))
    result = gl.optimize(program, gl.SystolicArray(16, 4))
    (row,) = result.report.layers
    assert row.measures["tiles"] == 9
    assert sum(node.operator == "systolic-array" for node in result.egraph.nodes) == 1


def test_what_cannot_be_mapped_comes_out_and_is_named() -> None:
    program = gl.parse("(compute dot-product (access (access-tensor p) 1))", shapes={"p": (3, 2, 5)})
    result = gl.optimize(program, gl.SystolicArray(4, 4))
    (row,) = result.report.layers
    assert not row.mapped
    assert row.checked == "exact"
    assert "not a product of two operands" in row.nearest_miss
    assert "1 of 1 products stayed off the machine: product-1" in result.report.unmapped_sentence()
    assert not result.report.ok


def test_stopping_early_still_gives_a_checked_program() -> None:
    program = gl.parse(DOT, shapes={"a": (5, 40), "b": (30, 40)})
    for iterations in (1, 2, 4):
        result = gl.optimize(program, gl.SystolicArray(4, 4), limits=gl.Limits(iterations=iterations))
        assert result.stopped == "iteration-limit"
        assert result.report.checked == "exact"
    assert "iteration-limit" in result.report.layers[0].nearest_miss or result.report.layers[0].mapped


def test_layers_that_are_the_same_are_counted_once() -> None:
    text = f"(let ((p {DOT})) (compute elementwise-add (access-pair p p)))"
    result = gl.optimize(gl.parse(text, shapes={"a": (3, 4), "b": (2, 4)}), gl.SystolicArray(4, 2))
    assert len(result.report.layers) == 1
    assert result.report.total["tiles"] == 1


def test_integer_programs_are_checked_in_their_own_arithmetic() -> None:
    text = f"(input a (shape 5 9) int8) (constant b (shape 3 9) int8) {DOT}"
    result = gl.optimize(gl.parse(text), gl.SystolicArray(4, 2))
    assert result.report.ok
    assert result.program.term.access.dtype == "int32"


def test_sizes_of_zero_are_legal() -> None:
    for m, k, n in ((0, 3, 2), (3, 0, 2), (3, 2, 0)):
        result = gl.optimize(gl.parse(DOT, shapes={"a": (m, k), "b": (n, k)}), gl.SystolicArray(2, 2))
        assert result.report.checked == "exact"


def test_the_answer_is_the_same_every_time() -> None:
    texts = [str(gl.optimize(_network(5), gl.SystolicArray(4, 3), verify=False).program) for _ in range(2)]
    assert texts[0] == texts[1]


@pytest.mark.slow
@pytest.mark.parametrize("verify", [False, True])
def test_the_baseline_mapping_of_mobilenet_v1(verify: bool) -> None:
    """The figures of the baseline mapping (SCALE-Sim's, without its -1 for each product)."""
    way = {"blocking": "unrolled-tiles", "verify": verify}
    result = gl.optimize(gl.models.mobilenet_v1(), gl.SystolicArray(64, 64), **way)
    report = result.report
    assert (len(report.layers), report.mapped, report.total["tiles"]) == (28, 28, 5_984)
    assert (report.total["cycles"], report.baseline["cycles"], report.macs) == (3_219_520, 3_219_520, 568_740_352)
    assert result.stopped == "saturated"
    assert result.report.ok or not verify


_A, _B = "(access (access-tensor a) 1)", "(access (access-tensor b) 1)"
_PAIRS = f"(access-cartesian-product {_A} {_B})"


@pytest.mark.parametrize(
    "pairs",
    [
        f"(access-slice {_PAIRS} 0 1 4)",
        f"(access-slice {_PAIRS} 1 1 4)",
        f"(access-pad {_PAIRS} zero-padding 3 1 4)",
        f"(access-transpose {_PAIRS} (list 1 0 2 3))",
        f"(access-reshape {_PAIRS} (access-shape (shape 2 3 4) (shape 2 9)))",
        f"(access-concatenate {_PAIRS} {_PAIRS} 0)",
        f"(access-concatenate {_PAIRS} {_PAIRS} 3)",
    ],
)
def test_what_stands_between_the_pairs_and_their_sum_moves_out_of_the_way(pairs: str) -> None:
    program = gl.parse(f"(compute dot-product {pairs})", shapes={"a": (6, 9), "b": (4, 9)})
    assert gl.optimize(program, gl.SystolicArray(4, 3)).report.ok


EVERY: dict[str, Callable[[], Target]] = {
    "array": lambda: gl.SystolicArray(4, 3),
    "vector unit": lambda: gl.SystolicArray(16, 16, vector_rate=10**6),
    "mpc": gl.MPC,
    "late": lambda: gl.MPC(truncation="late", link="lan"),
    "cpu": lambda: gl.CPU("1MB", balance=2),
    "unit": gl.ConvolutionUnit,
}


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_every_target_gives_one_kind_of_result(make: Callable[[], Target], tmp_path: Path) -> None:
    program, target = _residual(), make()
    with gl.Cache(tmp_path / "answers.sqlite") as cache:
        result = gl.optimize(program, target, cache=cache)
        assert len(cache) == target.repeatable
        again = gl.optimize(program, target, cache=cache)
    assert again.report.cached == target.repeatable
    assert str(again.program) == str(result.program)
    report, names = result.report, [m.name for m in target.measures]
    assert (result.original, result.target, result.seed, result.stopped) == (program, target, 0, "saturated")
    assert report.ok
    said = "equal as reals" if target.name.startswith("mpc") else "exact"  # fixed point rounds
    assert {row.checked for row in report.layers} == {report.checked} == {said}
    assert report.units == {m.name: m.unit for m in target.measures}
    assert all(m.unit and m.doc for m in target.measures)
    assert result.cost == report.total
    assert set(report.objectives) <= {*names}
    for amounts in report.totals.values():
        assert [*amounts] == names
    first = report.objectives[0]
    assert (report.total[first] or 0) <= (report.baseline[first] or 0)
    for row in report.layers:
        assert row.chosen is row.variants["chosen"]
        assert [*row.variants] == [*report.totals]
        assert all([*variant.measures] == names and variant.label for variant in row.variants.values())
        assert row.macs == row.groups * row.m * row.k * row.n
    for name, baseline in result.baselines.items():
        assert name in report.totals
        assert baseline.term.type == program.term.type
    assert result.egraph.e_nodes == report.e_nodes
    assert set(result.choice) <= set(range(result.egraph.e_classes))
    content = json.loads(json.dumps(report.as_dict()))
    assert content["totals"]["chosen"].items() >= report.total.items()
    assert [layer["name"] for layer in content["layers"]] == [*program.layers] == ["first", "second"]
    assert repr(result).startswith(f"<residual on {target.name}: 2 of 2 layers mapped, ")
    assert f"{report.total[first]:,} {first}" in repr(result)


def _residual() -> Program:
    """Two convolutions of other sizes, with an activation and a sum that has two users."""
    b = Builder("residual")
    x = b.input("x", (1, 4, 6, 7))
    y = b.relu(b.conv(x, b.constant("v", (4, 4, 3, 3)), padding=1, name="first"))
    return b.finish(b.conv(b.add(x, y), b.constant("w", (6, 4, 1, 1)), name="second"))


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_a_program_without_products_is_reported_too(make: Callable[[], Target]) -> None:
    b = Builder("none")
    result = gl.optimize(b.finish(b.relu(b.input("x", (2, 3)))), make())
    assert result.report.layers == []
    assert is_equal(result.report.checked)
    assert json.loads(json.dumps(result.report.as_dict()))["layers"] == []
    assert "no product" in result.report.unmapped_sentence()


@pytest.mark.parametrize("target", [gl.MPC(), gl.CPU(), gl.ConvolutionUnit()], ids=lambda t: t.name)
def test_a_target_names_the_options_that_it_does_not_have(target: Target) -> None:
    with pytest.raises(BadInput, match=f"{target.name} has no option --blocking"):
        gl.optimize(_residual(), target, blocking="unrolled-tiles")


A, B, N = variables("a b n")
HALVES = Rule(
    "a-product-runs-two-rows-at-a-time",
    "toy",
    "A B = A B, two rows of A at a time.",
    (rewrite(compute("dot-product", access_product(A, B, N)), tiled_product(A, B, N, 2)),),
    (Example("(access-tensor x)", {"x": "m"}),),
)


class Toy(Target):
    """A machine that multiplies two rows at a time, declared outside the package."""

    name, doc = "toy", "A toy."
    measures = (Measure("steps", "steps", "of two rows"),)
    objectives = ("steps",)
    strategy = Cheapest
    prices = Prices(
        (Instruction("tiled-product", lambda attributes, operands, own: InstructionCost(own.size // 2, 1), "any"),)
    )

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        return ("toy",)

    def rule_parameters(self) -> dict[str, int]:
        return {}

    def variant(self, product: Term, cone: Cone, term: Term, searched: SearchResult) -> Variant:
        steps = sum(taken.cycles for taken in cone.instructions)
        return Variant("in halves" if cone.instructions else "by hand", term, {"steps": steps})

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        sizes = product_sizes(product)
        return {"by hand": Variant("by hand", product, {"steps": sizes.groups * sizes.m * sizes.n})}


def test_a_target_of_one_class_and_a_rule_of_its_own_are_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, HALVES.name, HALVES)
    program = _residual()
    result = gl.optimize(program, Toy())
    first, second = 4 * 6 * 7, 6 * 6 * 7
    assert [row.label for row in result.report.layers] == ["in halves"] * 2
    assert [row.measures["steps"] for row in result.report.layers] == [first // 2, second // 2]
    assert (result.cost["steps"], result.report.baseline["steps"]) == ((first + second) // 2, first + second)
    assert result.report.ok
    assert [t.operator.name for t in postorder(result.program.term)].count("tiled-product") == 2
    assert str(result.baselines["by hand"].term) == str(program.term)
    assert repr(result) == f"<residual on toy: 2 of 2 layers mapped, {(first + second) // 2:,} steps, saturated>"
