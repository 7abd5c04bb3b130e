"""Tests what the fuzzer draws: all combinations in turn, and boundary values."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from glenside.check.expected import drawn, values_of
from glenside.fuzzing import DOORS
from glenside.fuzzing.applications import TOGETHER, Applications, applications
from glenside.fuzzing.cases import Case
from glenside.fuzzing.compiling import arrays_for
from glenside.fuzzing.drawing import drawn_case
from glenside.fuzzing.networks import Networks
from glenside.fuzzing.oracle import Expected
from glenside.fuzzing.rule_programs import varied
from glenside.fuzzing.searching import ONLY, WANTS
from glenside.fuzzing.turns import Turn
from glenside.fuzzing.visiting import visited
from glenside.ir.dtypes import COMPUTED, limits
from glenside.ir.operator import COMPUTES, Category, Compute
from glenside.ir.term import postorder
from glenside.ir.text import parse
from glenside.ir.types import Dims, Tensor
from glenside.rewrites import RULES


@pytest.mark.parametrize("count", [1, 3, 5])
def test_turns_draw_every_item_before_any_twice(count: int) -> None:
    items = "abcdefg"
    found = [item for number in range(7 * 4) for item in Turn(3, number).of(items, count)]
    assert Counter(found) == dict.fromkeys(items, 4 * count)
    for round_ in range(4 * count):
        assert {*found[7 * round_ :][:7]} == {*items}
    assert found[:7] != found[7:14]


def test_every_compute_type_is_drawn_with_every_dtype_it_takes() -> None:
    every = applications()
    taken = {(record.name, dtype) for record, _, dtype in every if isinstance(record, Compute)}
    assert {name for name, _ in taken} == COMPUTES.keys()
    assert {dtype for _, dtype in taken} == {*COMPUTED}
    drawn = set()
    for number in range(0, -(-len(every) // TOGETHER)):
        pick = random.Random(number)
        for term in postorder(Applications(pick).program_of(Turn(1, number).of(every, TOGETHER)).term):
            if term.operator.name == "compute":
                drawn.add((str(term.attributes[0]).strip("()").split(" ")[0], term.children[0].access.dtype))
    assert len(taken - drawn) < len(taken) / 50


def test_every_rule_is_drawn_alone_with_its_demands() -> None:
    names, demanded = set(), 0
    for number in range(len(RULES)):
        lines = varied(random.Random(number), Turn(1, number)).splitlines()
        names.update(name for line in lines if line.startswith(ONLY) for name in line.removeprefix(ONLY).split())
        demanded += any(line.startswith(WANTS) for line in lines)
    assert len(RULES.keys() - names) < 10
    assert demanded > 20


def _of_rule(name: str) -> Case:
    at = next(n for n in range(len(RULES)) if Turn(1, n).of(list(RULES.values()))[0].name == name)
    return Case("program", varied(random.Random(at), Turn(1, at)), at)


@pytest.mark.parametrize("name", ["constants-meet", "slice-sinks-into-compute", "slice-sinks-into-transpose"])
def test_demands_of_all_examples_of_a_rule_are_met_in_one_program(name: str) -> None:
    case = _of_rule(name)
    assert WANTS in case.text
    assert len(parse(case.text).term.children) > 5
    outcome = visited(case, DOORS["rules"])
    assert not outcome.failed
    assert f"rule {name}" in outcome.notes


def test_examples_of_a_rule_have_every_compute_type_of_a_category() -> None:
    reductions = {name for name, kind in COMPUTES.items() if kind.category is Category.REDUCTION}
    found = {
        str(t.attributes[0]) for t in postorder(parse(_of_rule("reductions-ignore-order").text).term) if t.attributes
    }
    assert len(reductions & found) > len(reductions) / 2


def test_equal_operands_of_examples_differ_when_they_are_drawn() -> None:
    rule = RULES["transpose-leaves-pad-and-concatenate"]
    at = next(n for n in range(2 * len(RULES)) if Turn(1, n).of(list(RULES.values())) == [rule])
    for seed in range(6):
        text = varied(random.Random(seed), Turn(1, at + len(RULES)))
        root = parse(text).term
        assert len({*root.children}) == len(root.children)


def test_numbers_are_special_values_for_some_seeds() -> None:
    for dtype in ("int8", "int64", "uint16", "float32"):
        tensor = Tensor("x", Dims((200,)), dtype)
        seen = [{*drawn(tensor, seed=seed).tolist()} for seed in range(60)]
        if dtype == "float32":
            assert any({0.5, 2.5, -1.5, 100.0} <= own for own in seen)
            assert sum({0.5, 1.5, -2.5} <= own for own in seen) > 30, "ties of rounding are among most numbers"
        else:
            assert any({0, 1, *limits(dtype)} <= own and len(own) < 20 for own in seen)


def test_indices_count_from_the_end_for_some_seeds() -> None:
    program = parse(
        "(input x (shape 5 3) float32) (input i (shape 9) int64) (access-gather (access-tensor x) (access-tensor i) 0)"
    )
    lowest = {int(np.min(values_of(program, seed)["i"])) for seed in range(20)}
    assert min(lowest) < -3
    assert max(lowest) >= 0


def test_ties_are_compared_where_nothing_is_rounded() -> None:
    program = parse("(input x (shape 4) float32) (compute round (access-tensor x))")
    values = {"x": np.array([0.5, 1.5, 2.5, -0.5], np.float32)}
    expected = Expected(program, values, 0)
    assert not expected.difference([np.array([0, 2, 2, 0], np.float32)])
    assert expected.difference([np.array([1, 2, 3, -1], np.float32)])


def test_nans_that_are_ordered_are_told() -> None:
    program = parse("(input x (shape 2 2) float32) (compute argmax (access (compute log (access-tensor x)) 1))")
    for value, told in ((2.0, False), (-2.0, True)):
        assert Expected(program, {"x": np.full((2, 2), value, np.float32)}, 0).orders_nans == told


def test_attributes_are_left_out_of_models() -> None:
    pytest.importorskip("onnx")
    from glenside.fuzzing.models import Model

    seen = Counter[tuple[str, str, bool]]()
    wanted = [("Transpose", "perm"), ("Trilu", "upper"), ("ArgMax", "keepdims"), ("Gemm", "alpha")]
    for number in range(600):
        if all(seen[op, name, given] for op, name in wanted for given in (True, False)):
            break
        case = drawn_case(random.Random(number), DOORS["import"], [], Turn(1, number))
        for op, _, _, _, attributes in Model.of(case.text).nodes:
            for name in ("perm", "upper", "axis", "keepdims", "k", "alpha"):
                seen[op, name, name in attributes] += 1
    for op, name in wanted:
        assert seen[op, name, True]
        assert seen[op, name, False]


def test_every_onnx_operator_is_drawn_soon_and_on_special_values() -> None:
    pytest.importorskip("onnx")
    from glenside.fuzzing.models import Model
    from glenside.fuzzing.onnx_recipes import RECIPES

    seen, infinite = Counter[str](), 0
    for number in range(4 * len(RECIPES) // 3):  # every second one applies 6 operators in two ways each
        model = Model.of(drawn_case(random.Random(number), DOORS["import"], [], Turn(1, number)).text)
        seen.update(op for op, *_ in model.nodes)
        drawn = {number for _, _, values in model.constants.values() for number in values or ()}
        infinite += {np.inf, -np.inf} <= drawn
    rare = [op for op in RECIPES if seen[op] < 2 and op not in ("GeluOfOnnx", "Unsqueeze")]
    assert len(rare) < len(RECIPES) / 20, rare
    assert infinite > 20


def test_arrays_for_networks_have_few_tiles() -> None:
    """An npu program has several instructions a tile of weights: 155,000 for three products of 512 x 512 on 2 x 4."""
    small = 0
    for seed in range(200):
        program = Networks(random.Random(seed)).program()
        elements = sum(tensor.dims.product() for tensor in program.tensors.values())
        sizes = arrays_for(program)
        assert sizes == [(16, 16)] or all(elements <= rows * columns << 14 for rows, columns in sizes)
        small += (2, 2) in sizes
    assert small > 150


def test_rounding_of_listed_floats_is_no_fault() -> None:
    """One unit in the last place of exp(10) changes its sine by a thousandth."""
    program = parse('(compute sin (compute exp (numbers (shape 3) "2 2 10" float32)))')
    expected = Expected(program, {}, 0)
    (right,) = expected.results
    moved = np.sin(np.nextafter(np.exp(np.float32([2, 2, 10])), np.float32(np.inf)))
    assert not expected.difference([moved])
    assert expected.difference([right + np.float32([0.01, 0, 0])])
