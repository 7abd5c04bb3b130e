"""Tests the unsound neighbours of the rules: two terms that look equal, which no rule may make equal."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from rule_checks import assert_all_equal, saturated, whole_numbers

import glenside as gl
from glenside.egraph.encode import program_nodes
from glenside.ir.cook_toom import cook_toom, spelled
from glenside.ir.program import Program
from glenside.ir.term import build, postorder
from glenside.ir.text import parse
from glenside.rewrites import RULES, of_families
from glenside.semantics import PrimeField
from glenside.semantics.interpreter import evaluate
from glenside.targets.base import Way

PARAMETERS = {"rows": 3, "columns": 2, "winograd": 1 << 2 | 1 << 4}
DOT = "(compute dot-product {})"
PAIRS = "(access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1))"  # (M, N)(2, K)

WINDOWS = "(access-windows {} (shape {}) (shape {}))"
LINE = "(access (access-tensor a) 1)"
SPREAD = "(access-dilate (access-tensor a) 1 1)"
OF_LINE = "(access-cartesian-product (access-windows (access {} 1) (shape 3) (shape 1)) (access (access-tensor b) 1))"
EVERY_OTHER = (
    "(access (access-reshape (access-windows (access-windows (access (access-tensor a) 1) (shape 5) (shape 1))"
    " (shape 1) (shape 2)) (access-shape (shape 3 3 3) (shape))) 2)"
)
ADDED = "(access-overlap-add {} (shape {}) (shape 2))"
_LONG = f"(access-pad {SPREAD} zero-padding 1 1 1)"
_PHASE = (
    "(access-reshape (compute dot-product (access-cartesian-product (access-windows (access (access-slice"
    " (access-tensor a) 1 0 {0}) 1) (shape {1}) (shape 1)) (access {2} 1))) (access-shape (shape 2 3 1 3) (shape)))"
)
_ENDS = "(access-concatenate (access-slice (access-tensor b) 1 0 1) (access-slice (access-tensor b) 1 2 3) 1)"
_PHASES = [_PHASE.format(3, 1, "(access-slice (access-tensor b) 1 1 2)"), _PHASE.format(4, 2, _ENDS)]
DEPTHWISE = "(compute dot-product (access-product (access (access-tensor a) 2) (access (access-tensor b) 2) 1))"


def _line(stride: int) -> str:
    """Returns windows of 3 along x, (outputs)()."""
    return DOT.format(
        f"(access-product (access-windows (access-tensor x) (shape 3) (shape {stride})) (access-tensor w) 0)"
    )


def _blocks(zeros: str, turned: str, first: int) -> str:
    """Returns windows of 3 in steps of 2 on x of 7, by blocks of 2, each times both blocks of the weights and zeros."""
    blocks = WINDOWS.format("(access-pad (access-tensor x) zero-padding 0 0 1)", 2, 2)
    weights = f"(access-reshape (access-pad (access-tensor w) zero-padding {zeros}) (access-shape (shape) (shape 2 2)))"
    product = DOT.format(f"(access-product {blocks} (access {turned.format(weights)} 1) 0)")
    return f"(access-slice (access-overlap-add (access {product} 1) (shape 5) (shape 1)) 0 {first} {first + 3})"


def _winograd(m: int, lo: int, hi: int, stride: int = 1, weights: str = "(access-tensor w)", at: str = "") -> str:
    """F(m, 3) on x of 9, windows in steps of `stride`, results lo to hi; data are mapped by the points `at`."""
    alpha, usual = m + 2, cook_toom(m, 3)
    data = spelled(cook_toom(m, 3, [Fraction(p) for p in at.split()]).data if at else usual.data)
    tiles = -(-hi // m)
    x = f"(access-pad (access-tensor x) zero-padding 0 0 {max(0, (tiles - 1) * m * stride + alpha - 9)})"
    windows = f'(linear-map (access-windows {x} (shape {alpha}) (shape {m * stride})) 1 {alpha} "{data}")'
    left = f"(access (access-transpose {windows} (list 1 0)) 2)"
    right = f'(access (linear-map {weights} 0 {alpha} "{spelled(usual.filter)}") 1)'
    sums = f'(linear-map {DOT.format(f"(access-product {left} {right} 1)")} 0 {m} "{spelled(usual.output)}")'
    whole = f"(access-reshape (access-transpose {sums} (list 1 0)) (access-shape (shape {tiles * m}) (shape)))"
    return f"(access-slice {whole} 0 {lo} {hi})"


_PRODUCT = "(compute elementwise-mul (access-pair {} {}))"
_ROUNDED = "(cast (cast (access-tensor {}) float8_e5m2) float32)"


# Constants paired with what has a shape: the rules of `folding` name items alone.
_DOT_OF_FOURS = DOT.format(
    "(access-cartesian-product (access (access-tensor x) 1) (access (full (shape 5 4) {} float32) 1))"
)
_SCALED_BY_ROW = (
    f"(compute elementwise-mul (access-cartesian-product (access {_DOT_OF_FOURS.format(2)} 1)"
    " (access (full (shape 5) 3 float32) 0)))"
)
_SCALED_TWICE = (
    "(compute elementwise-mul (access-cartesian-product (compute elementwise-add (access-cartesian-product"
    f" (access {_DOT_OF_FOURS.format(2)} 0) (full (shape 3 5) 7 float32))) (access (full (shape 2 3 5) 3 float32) 1)))"
)
_REPEATED = "(access (access-broadcast (full (shape 1 1) {} float32) (access-shape (shape) (shape 2 3))) 1)"
_REPEATED_SUM = f"(compute elementwise-add (access-cartesian-product {_REPEATED.format(3)} {_REPEATED.format(4)}))"
_FROM_EMPTY = "(access-pad (access-reshape (access (access-tensor x) 2) (access-shape (shape 0 7) (shape))) {})"

# (why it is wrong, left, right, shapes)
_PUT = "(compute reduce-sum (access (access-scatter-nd (full (shape 3 5) {} float32) {} (access-tensor a) 1 {}) 1))"
_IN_ONE_PLACE = "(full (shape 3 2 1) 4 int64)"
UNSOUND = {
    "a scale of rows in the weights, as of a whole tensor": (
        _SCALED_BY_ROW,
        f"(access {_DOT_OF_FOURS.format(6)} 0)",
        {"x": (3, 4)},
    ),
    "a sum times a constant with a shape, as of a whole tensor": (
        _SCALED_TWICE,
        f"(access {_SCALED_TWICE} 0)",
        {"x": (3, 4)},
    ),
    "a sum of repeated constants with a shape, as of one tensor": (
        f"(compute elementwise-add (access-pair {_REPEATED_SUM} (access (access-tensor x) 2)))",
        "(access (compute elementwise-add (access-pair (full (shape 2 2 3) 7 float32) (access-tensor x))) 1)",
        {"x": (2, 2, 3)},
    ),
    "overlap-added windows of two sizes, as windows of one": (
        "(access-concatenate (access-overlap-add (access (access-tensor x) 2) (shape 3) (shape 4))"
        " (access-overlap-add (access (access-tensor y) 2) (shape 3) (shape 4)) 0)",
        "(access-overlap-add (access (access-tensor z) 2) (shape 3) (shape 4))",
        {"x": (2, 1, 3), "y": (2, 1, 1), "z": (4, 1, 3)},
    ),
    "a pad of what was empty, where the rest is of another size": (
        _FROM_EMPTY.format("zero-padding 0 1 2"),
        "(access-pad (access (access-tensor x) 2) zero-padding 0 1 2)",
        {"x": (0, 5)},
    ),
    "the sum of what was added to ones": (
        _PUT.format(1, _IN_ONE_PLACE, "add"),
        "(compute reduce-sum (access (access-tensor a) 1))",
        {"a": (3, 2)},
    ),
    "the sum of what took one another's place": (
        _PUT.format(0, _IN_ONE_PLACE, "replace"),
        "(compute reduce-sum (access (access-tensor a) 1))",
        {"a": (3, 2)},
    ),
    "overlapping windows added up again": (
        f"(access-overlap-add {WINDOWS.format(LINE, 3, 1)} (shape 6) (shape 1))",
        LINE,
        {"a": (2, 6)},
    ),
    "dilating the windows and not what they are taken of": (
        DOT.format(f"(access-cartesian-product {EVERY_OTHER} (access (access-tensor b) 1))"),
        "(access-slice "
        + DOT.format(
            f"(access-cartesian-product (access-dilate {WINDOWS.format(LINE, 3, 1)} 2 1)"
            " (access (access-dilate (access-tensor b) 1 1) 1))"
        )
        + " 1 0 3)",
        {"a": (3, 7), "b": (2, 3)},
    ),
    "cropping windows before they are added up": (
        f"(access-slice {ADDED.format('(access (access-tensor a) 2)', 9)} 1 1 8)",
        ADDED.format("(access-slice (access (access-tensor a) 2) 2 1 2)", 7),
        {"a": (2, 4, 3)},
    ),
    "zeros where an element was cut off, as if it were there": (
        DOT.format(OF_LINE.format(SPREAD)),
        DOT.format(OF_LINE.format(f"(access-pad (access-slice {SPREAD} 1 1 7) zero-padding 1 1 0)")),
        {"a": (2, 4), "b": (3, 3)},
    ),
    "flipped windows that leave a rest": (
        f"(access-flip (access-flip {WINDOWS.format(LINE, 3, 2)} 1) 2)",
        WINDOWS.format(f"(access-flip {LINE} 1)", 3, 2),
        {"a": (2, 6)},
    ),
    "a pad that does not grow when it is dilated": (
        "(access-slice (access-dilate (access-pad (access-tensor a) zero-padding 1 1 0) 1 1) 1 0 6)",
        "(access-pad (access-dilate (access-tensor a) 1 1) zero-padding 1 1 0)",
        {"a": (2, 3)},
    ),
    "zeros between the lowest numbers": (
        "(access-dilate (access-pad (access-tensor a) min-padding 1 1 1) 0 1)",
        "(access-pad (access-dilate (access-tensor a) 0 1) min-padding 1 1 1)",
        {"a": (3, 2)},
    ),
    "phases in another order": (
        f"(access-slice {DOT.format(OF_LINE.format(_LONG))} 1 0 6)",
        "(access-reshape (access-concatenate " + " ".join(_PHASES[::-1]) + " 2) (access-shape (shape 2 6 3) (shape)))",
        {"a": (2, 4), "b": (3, 3)},
    ),
    "flattening across the tuple axis": (
        DOT.format(PAIRS),
        DOT.format(f"(access-reshape {PAIRS} (access-shape (shape 3 4) (shape 10)))"),
        {"a": (3, 5), "b": (4, 5)},
    ),
    "dropping a zero pad of the tuple axis": (
        DOT.format(PAIRS),
        DOT.format(f"(access-pad {PAIRS} zero-padding 2 0 1)"),
        {"a": (3, 5), "b": (4, 5)},
    ),
    "a concatenation of the tuple axis as a sum": (
        DOT.format(f"(access-concatenate {PAIRS} {PAIRS} 2)"),
        f"(compute elementwise-add (access-pair {DOT.format(PAIRS)} {DOT.format(PAIRS)}))",
        {"a": (3, 5), "b": (4, 5)},
    ),
    "a maximum over windows that do not cover the item": (
        "(compute reduce-max (access-tensor a))",
        "(compute reduce-max (access (compute reduce-max (access-windows (access-tensor a) (shape 3) (shape 2))) 0))",
        {"a": (6,)},
    ),
    "a reshape past the split that it relied on": (
        DOT.format("(access-reshape (access (access-tensor a) 1) (access-shape (shape 2 3) (shape 4)))"),
        f"(access-reshape {DOT.format('(access (access-tensor a) 0)')} (access-shape (shape) (shape)))",
        {"a": (6, 4)},
    ),
    "only the first C filters of a channel multiplier": (
        f"(access-slice {DEPTHWISE} 2 0 1)",
        f"(access-slice {DEPTHWISE} 2 1 2)",
        {"a": (3, 5, 4), "b": (3, 2, 4)},
    ),
    "zero padding under reduce-max": (
        "(compute reduce-max (access-tensor a))",
        "(compute reduce-max (access-pad (access-tensor a) zero-padding 0 0 1))",
        {"a": (5,)},
    ),
    "zero padding under reduce-mean": (
        "(compute reduce-mean (access-tensor a))",
        "(compute reduce-mean (access-pad (access-tensor a) zero-padding 0 0 1))",
        {"a": (5,)},
    ),
    "zero padding moved out of softmax": (
        "(compute softmax (access-pad (access (access-tensor a) 1) zero-padding 0 0 1))",
        "(access-pad (compute softmax (access (access-tensor a) 1)) zero-padding 0 0 1)",
        {"a": (3, 5)},
    ),
    "padding the depth with what is not zero": (
        DOT.format(PAIRS),
        DOT.format(f"(access-pad {PAIRS} min-padding 3 0 1)"),
        {"a": (3, 5), "b": (4, 5)},
    ),
    "a transpose that moves the tuple axis": (
        DOT.format("(access (access-tensor a) 1)"),
        DOT.format("(access-transpose (access (access-tensor a) 1) (list 0 2 1))"),
        {"a": (4, 3, 3)},
    ),
    "the place of a maximum after a rearrangement": (
        "(compute argmax (access-tensor a))",
        "(compute argmax (access-transpose (access-tensor a) (list 1 0)))",
        {"a": (4, 3)},
    ),
    "fewer bits and back, as if nothing was rounded": (
        "(cast (cast (access-tensor a) float8_e5m2) float32)",
        "(access-tensor a)",
        {"a": (7,)},
    ),
    "products of what was rounded to fewer bits, rounded after": (
        f"(cast {_PRODUCT.format('(access-tensor a)', '(access-tensor b)')} float8_e4m3fn)",
        f"(cast {_PRODUCT.format(_ROUNDED.format('a'), _ROUNDED.format('b'))} float8_e4m3fn)",
        {"a": (9,), "b": (9,)},
    ),
    "sums of integers of 4 bits that wrapped before": (
        "(compute reduce-sum (cast (cast (access-tensor a) int4) int32))",
        "(cast (cast (compute reduce-sum (cast (access-tensor a) int32)) int4) int32)",
        {"a": (5,)},
    ),
    "the lowest number of fewer bits as that of more": (
        "(cast (access-pad (cast (access-tensor a) int8) min-padding 0 0 1) int32)",
        "(access-pad (cast (cast (access-tensor a) int8) int32) min-padding 0 0 1)",
        {"a": (4,)},
    ),
    "the largest of numbers after they wrapped": (
        "(compute reduce-max (cast (cast (access-tensor a) int4) int8))",
        "(cast (cast (compute reduce-max (access-tensor a)) int4) int8)",
        {"a": (5,)},
    ),
    "Winograd on windows in steps of 2": (_line(2), _winograd(2, 0, 4, stride=2), {"x": (9,), "w": (3,)}),
    "Winograd with the first results cut off": (_line(1), _winograd(2, 1, 8), {"x": (9,), "w": (3,)}),
    "Winograd with another order of points": (
        _line(1),
        _winograd(4, 0, 7, at="0 2 1 -1 -2"),
        {"x": (9,), "w": (3,)},
    ),
    "Winograd with the weights in reverse order": (
        _line(1),
        _winograd(2, 0, 7, weights="(access-flip (access-tensor w) 0)"),
        {"x": (9,), "w": (3,)},
    ),
}


@pytest.mark.parametrize("m", [2, 4])
def test_winograd_is_equal_but_for_what_makes_it_wrong(m: int) -> None:
    left, right = (parse(text, shapes={"x": (9,), "w": (3,)}).term for text in (_line(1), _winograd(m, 0, 7)))
    both = Program(build("construct-tuple", left, right))
    one, other = evaluate(both.term.children, whole_numbers(both.tensors, 0), PrimeField())
    assert np.array_equal(one, other)
    snapshot, _ = saturated(both, RULES.values(), PARAMETERS, iterations=200)
    nodes = program_nodes(both.term)
    assert snapshot.program[nodes.index(left)] == snapshot.program[nodes.index(right)]


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_neighbour_is_refuted(name: str) -> None:
    left_text, right_text, shapes = UNSOUND[name]
    left, right = (parse(text, shapes=shapes).term for text in (left_text, right_text))
    both = Program(build("construct-tuple", left, right))
    differ = left.type != right.type or any(_differ(both, seed) for seed in range(200))
    assert differ, "the pair is not a counterexample"
    snapshot, search = saturated(both, RULES.values(), PARAMETERS, iterations=200)
    nodes = program_nodes(both.term)
    assert search.progress.stopped == "saturated"
    assert_all_equal(snapshot)
    assert snapshot.program[nodes.index(left)] != snapshot.program[nodes.index(right)]


BLOCKS = {
    "the zeros before the weights": ("0 1 0", "(access-flip {} 0)", 1),
    "weights in their own order": ("0 0 1", "{}", 1),
    "the first sums kept": ("0 0 1", "(access-flip {} 0)", 0),
}


@pytest.mark.parametrize("wrong", [None, *BLOCKS])
def test_blocks_of_the_stride_are_refuted_but_for_those_that_are_right(wrong: str | None) -> None:
    """By the rules of the target that adds up what windows of ordinary convolutions give."""
    how = BLOCKS[wrong] if wrong else ("0 0 1", "(access-flip {} 0)", 1)
    left, right = (parse(text, shapes={"x": (7,), "w": (3,)}).term for text in (_line(2), _blocks(*how)))
    both, target = Program(build("construct-tuple", left, right)), gl.MPC()
    assert any(_differ(both, seed) for seed in range(20)) == bool(wrong)
    nodes = program_nodes(both.term)
    rules = of_families(target.families(Way(), nodes))
    snapshot, search = saturated(both, rules, target.rule_parameters(), iterations=200)
    assert search.progress.stopped == "saturated"
    if wrong:
        assert snapshot.program[nodes.index(left)] != snapshot.program[nodes.index(right)]


CUT = "(access-slice (access-tensor a) 1 1 7)"
ADDED_UP = {
    "zeros where an element was cut off, as if it were there": ("(access-tensor a)", "zero-padding", CUT),
    "the lowest numbers around elements, as if they were zeros": (
        "(access-pad (access-tensor a) zero-padding 1 1 0)",
        "min-padding",
        "(access-tensor a)",
    ),
}


@pytest.mark.parametrize("wrong", ADDED_UP)
def test_what_is_around_elements_is_refuted_where_windows_are_added_up(wrong: str) -> None:
    """By the rules of the target that adds up what windows over elements in a row give."""
    own, kind, padded = ADDED_UP[wrong]
    texts = (own, f"(access-pad {padded} {kind} 1 1 0)")
    left, right = (parse(DOT.format(OF_LINE.format(t)), shapes={"a": (2, 7), "b": (3, 3)}).term for t in texts)
    both, target = Program(build("construct-tuple", left, right)), gl.MPC(outputs=())
    assert any(_differ(both, seed) for seed in range(20))
    nodes = program_nodes(both.term)
    snapshot, search = saturated(
        both, of_families(target.families(Way(), nodes)), target.rule_parameters(), iterations=200
    )
    assert search.progress.stopped == "saturated"
    assert snapshot.program[nodes.index(left)] != snapshot.program[nodes.index(right)]
    assert search.progress.rules["windows-are-added-up"].matches > 0


def _differ(both: Program, seed: int) -> bool:
    values = {n: v - 6 for n, v in whole_numbers(both.tensors, seed).items()}  # negative: a zero is the largest
    fractions = any(term.operator.name == "linear-map" for term in postorder(both.term))
    one, other = evaluate(both.term.children, values, PrimeField() if fractions else None)
    return one.shape != other.shape or not np.array_equal(one, other)
