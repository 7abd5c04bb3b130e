"""Tests the exact check: equal programs are found exact, unequal ones are found unequal with the place."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from glenside.builder import Builder
from glenside.builder.layout import broadcast
from glenside.check import EXACT, check, check_floating, is_equal
from glenside.check.comparison import difference, digest
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor


def leaf(name: str, *dims: int, dtype: str = "float32") -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype))


def pair(a: Term, b: Term) -> Term:
    return build("access-product", a, b, a.access.split)


def compute(kind: str, a: Term) -> Term:
    return build("compute", kind, a)


def full(value: object, *dims: int, dtype: str = "float32") -> Term:
    return build("full", dims, value, dtype)


def verdict(a: Term, b: Term) -> str:
    """Returns the verdict on the results; products of unrelated terms have default names, which do not match."""
    report = check(Program(a), Program(b))
    assert report.ok == all(map(is_equal, (report.result, *report.layers.values())))
    return report.result


add, subtract, multiply, divide = Builder.add, Builder.subtract, Builder.multiply, Builder.divide
X, Y, Z = (leaf(name, 5, 7) for name in "xyz")
I8, J8 = leaf("i8", 4, 300, dtype="int8"), leaf("j8", 6, 300, dtype="int8")
I32, J32 = leaf("i32", 5, 7, dtype="int32"), leaf("j32", 5, 7, dtype="int32")


def matmul(a: Term, b: Term) -> Term:
    """a (M)(K) times b (N)(K)."""
    return compute("dot-product", build("access-product", build("access", a, 1), build("access", b, 1), 0))


def split_k(a: Term, b: Term, at: int) -> Term:
    def part(t: Term, lo: int, hi: int) -> Term:
        return build("access-slice", t, 1, lo, hi)

    size = a.access.dims[1]
    low, high = matmul(part(a, 0, at), part(b, 0, at)), matmul(part(a, at, size), part(b, at, size))
    return compute("elementwise-add", pair(low, high))


def mean_as_sum(x: Term) -> Term:
    sums = compute("reduce-sum", build("access", x, 1))
    return compute("elementwise-mul", pair(sums, build("access", full("1/7", 5), 1)))


def softmax_in_steps(x: Term) -> Term:
    powers = compute("exp", x)
    sums = compute("reduce-sum", build("access", powers, 1))
    return build("access", divide(powers, Builder.reshape(sums, (5, 1))), 1)


EQUAL: dict[str, tuple[Term, Term]] = {
    "reassociation": (add(add(X, Y), Z), add(X, add(Y, Z))),
    "distribution": (multiply(X, add(Y, Z)), add(multiply(X, Y), multiply(X, Z))),
    "division": (divide(multiply(X, Y), Y), X),
    "quotients": (add(divide(X, Y), divide(Z, Y)), divide(add(X, Z), Y)),
    "decimals": (multiply(full("0.1", 5, 7), full("30", 5, 7)), full("3", 5, 7)),
    "mean": (compute("reduce-mean", build("access", X, 1)), mean_as_sum(X)),
    "matmul in parts": (matmul(X, Y), split_k(X, Y, 3)),
    "a mapped instruction": (
        matmul(X, Y),
        build("systolic-array", 7, 5, build("access", X, 1), Builder.transpose(Y, (1, 0))),
    ),
    "matmul swapped": (matmul(X, Y), build("access-transpose", matmul(Y, X), (1, 0))),
    "integers in parts": (matmul(I8, J8), split_k(I8, J8, 123)),
    "integers wrap": (multiply(add(I32, J32), I32), add(multiply(I32, I32), multiply(J32, I32))),
    "relu": (compute("relu", X), Builder.combine("maximum", X, full(0, 5, 7))),
    "a leaky relu as a maximum": (
        compute("(leaky-relu 1/4)", X),
        Builder.combine("maximum", X, multiply(X, full("1/4", 5, 7))),
    ),
    "the absolute value as a maximum": (compute("abs", X), Builder.combine("maximum", X, compute("negative", X))),
    "clips of a half": (
        compute("(clip -1/2 1/2)", X),
        compute("negative", compute("(clip -1/2 1/2)", compute("negative", X))),
    ),
    "thresholds scaled": (
        compute("(compare lt)", pair(X, Y)),
        compute("(compare lt)", pair(multiply(X, full("1/3", 5, 7)), multiply(Y, full("1/3", 5, 7)))),
    ),
    "rounding": (compute("floor", add(X, full("3", 5, 7))), add(compute("floor", X), full("3", 5, 7))),
    "two relus": (compute("relu", compute("relu", X)), compute("relu", X)),
    "movement under exp": (compute("exp", Builder.transpose(X, (1, 0))), Builder.transpose(compute("exp", X), (1, 0))),
    "softmax": (compute("softmax", build("access", X, 1)), softmax_in_steps(X)),
    "scalars": (multiply(leaf("s"), add(leaf("s"), leaf("t"))), multiply(add(leaf("t"), leaf("s")), leaf("s"))),
    "bool": (compute("logical-not", compute("(compare lt)", pair(X, Y))), compute("(compare ge)", pair(X, Y))),
    "integers among reals": (
        multiply(build("cast", I32, "float32"), X),
        multiply(X, build("cast", I32, "float32")),
    ),
    "indices": (
        build("access-gather", add(X, Y), leaf("at", 3, dtype="int64"), 0),
        add(*(build("access-gather", t, leaf("at", 3, dtype="int64"), 0) for t in (X, Y))),
    ),
    "empty": (add(leaf("e", 0, 3), leaf("f", 0, 3)), add(leaf("f", 0, 3), leaf("e", 0, 3))),
    "tuples": (build("construct-tuple", X, add(X, Y)), build("construct-tuple", X, add(Y, X))),
}


def thirds(x: Term) -> Term:
    """By a third and back, which rounds."""
    return multiply(multiply(x, full("1/3", *x.access.dims)), full("3", *x.access.dims))


def likely(x: Term) -> Term:
    """Returns the softmax of (3)(5 5) along its first axis, twice."""
    for _ in range(2):
        x = build("access", compute("softmax", build("access", Builder.transpose(x, (1, 2, 0)), 2)), 0)
        x = Builder.transpose(x, (2, 0, 1))
    return x


def highest(x: Term) -> Term:
    return compute("argmax", build("access", x, x.access.rank - 1))


W = leaf("w", 5, 7)
CUBE = likely(leaf("cube", 3, 5, 5))
CALLED_DIFFERENT_BEFORE: dict[str, tuple[Term, Term]] = {
    "large numbers between halves": (build("cast", X, "int32"), build("cast", thirds(X), "int32")),
    "large products": (
        build("cast", build("access", matmul(X, W), 0), "int32"),
        build("cast", thirds(build("access", matmul(X, W), 0)), "int32"),
    ),
    "what is equal by laws of exponents": (highest(CUBE), highest(add(CUBE, full("1/3", 3, 5, 5)))),
}


@pytest.mark.parametrize("name", CALLED_DIFFERENT_BEFORE)
def test_equal_whatever_rounds(name: str) -> None:
    for seed in range(3):
        assert check(*map(Program, CALLED_DIFFERENT_BEFORE[name]), seed=seed).ok


@pytest.mark.parametrize("name", EQUAL)
def test_equal(name: str) -> None:
    assert verdict(*EQUAL[name]) == EXACT


def max_pool(x: Term, size: int, padding: str) -> Term:
    """Returns windows of (C)(H)(W), padded by size // 2 on each side."""
    for axis in (1, 2):
        x = build("access-pad", x, padding, axis, size // 2, size // 2)
    windows = build("access-windows", build("access", x, 1), (size, size), (1, 1))
    return compute("reduce-max", windows)


def argmax(x: Term) -> Term:
    return compute("argmax", build("access", x, 1))


IMAGE = leaf("image", 2, 8, 8)
SEVEN = full("7", 5, 7)
FIRST_COLUMN = build("access-pad", full("1", 5, 1), "zero-padding", 1, 0, 6)
INT_IMAGE = leaf("pixels", 2, 8, 8, dtype="int32")
UNEQUAL: dict[str, tuple[Term, Term]] = {
    "cut to less than a half": (
        compute("(clip -1/2 1/2)", X),
        compute("(clip -1/2 1/2)", add(add(X, X), SEVEN)),
    ),
    "a constant that is the lowest residue": (Builder.combine("minimum", X, full("1/2", 5, 7)), full("1/2", 5, 7)),
    "a comparison turned round": (
        compute("(compare lt)", pair(X, full("1/2", 5, 7))),
        compute("(compare lt)", pair(compute("negative", X), full("1/2", 5, 7))),
    ),
    "a threshold a little off": (
        compute("(compare lt)", pair(X, full("5", 5, 7))),
        compute("(compare lt)", pair(X, full("81/16", 5, 7))),
    ),
    "5x5 windows padded by zeros": (max_pool(IMAGE, 5, "min-padding"), max_pool(IMAGE, 5, "zero-padding")),
    "7x7 windows padded by zeros": (max_pool(IMAGE, 7, "min-padding"), max_pool(IMAGE, 7, "zero-padding")),
    "windows of integers padded by zeros": (
        max_pool(INT_IMAGE, 5, "min-padding"),
        max_pool(INT_IMAGE, 5, "zero-padding"),
    ),
    "a row dropped before a maximum": (
        compute("reduce-max", build("access", IMAGE, 1)),
        compute("reduce-max", build("access", build("access-slice", IMAGE, 1, 0, 7), 1)),
    ),
    "an element changed before a maximum is sought": (argmax(X), argmax(add(X, FIRST_COLUMN))),
    "order": (subtract(X, Y), subtract(Y, X)),
    "sign": (compute("relu", X), X),
    "relu of a sum": (compute("relu", add(X, Y)), add(compute("relu", X), compute("relu", Y))),
    "constants": (multiply(X, full("0.1", 5, 7)), multiply(X, full("0.1000001", 5, 7))),
    "a dropped epsilon": (compute("sqrt", add(X, full("1e-5", 5, 7))), compute("sqrt", X)),
    "functions": (compute("exp", X), compute("tanh", X)),
    "one element": (X, add(X, Builder.pad(full("1e-6", 1, 1), [(4, 0), (2, 4)]))),
    "integer division": (multiply(divide(I32, full(3, 5, 7, dtype="int32")), full(3, 5, 7, dtype="int32")), I32),
    "integers that wrap": (
        build("cast", add(I32, J32), "int64"),
        add(build("cast", I32, "int64"), build("cast", J32, "int64")),
    ),
    "tuples": (build("construct-tuple", X, Y), build("construct-tuple", X, add(X, Y))),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_unequal(name: str) -> None:
    assert "differs in " in verdict(*UNEQUAL[name])


def flattened_tuple_axis() -> tuple[Term, Term]:
    product = build("access-product", build("access", X, 1), build("access", Y, 1), 0)
    wrong = compute("dot-product", build("access-flatten", product))
    return compute("dot-product", product), build("access-reshape", wrong, ((5, 5), ()))


def dropped_slice_on_tuple_axis() -> tuple[Term, Term]:
    product = build("access-product", build("access", X, 1), build("access", Y, 1), 0)
    padded = build("access-pad", build("access-slice", product, 2, 0, 1), "zero-padding", 2, 0, 1)
    return compute("dot-product", product), compute("dot-product", padded)


def concatenation_on_tuple_axis() -> tuple[Term, Term]:
    one, two = (build("access-insert-axis", build("access", t, 1), 2) for t in (X, Y))
    one, two = (build("access-transpose", t, (0, 2, 1)) for t in (one, two))
    parts = pair(compute("dot-product", one), compute("dot-product", two))
    return compute("dot-product", build("access-concatenate", one, two, 1)), compute("elementwise-add", parts)


def max_of_windows_that_do_not_cover() -> tuple[Term, Term]:
    rows = build("access", leaf("x", 9, 6), 1)
    windows = compute("reduce-max", build("access-windows", rows, (3,), (2,)))
    return compute("reduce-max", rows), compute("reduce-max", build("access", windows, 1))


def reshape_past_a_split() -> tuple[Term, Term]:
    x = leaf("x", 4, 6)
    rows = compute("softmax", build("access", x, 1))
    return Builder.reshape(rows, (24,)), compute("softmax", Builder.reshape(x, (24,)))


def first_filters_of_a_multiplier() -> tuple[Term, Term]:
    x, w = leaf("x", 1, 3, 6, 5), leaf("w", 6, 1, 3, 3)
    first = build("access-slice", w, 0, 0, 3)
    right = Builder().conv(x, w, groups=3)
    return right, Builder().conv(x, build("access-concatenate", first, first, 0), groups=3)


def zeros_under(kind: str, *, drop: bool = False) -> tuple[Term, Term]:
    rows = build("access", leaf("x", 30, 2), 1)
    padded = compute(kind, build("access-pad", rows, "zero-padding", 1, 0, 1))
    return compute(kind, rows), build("access-slice", padded, 1, 0, 2) if drop else padded


UNSOUND: dict[str, Callable[[], tuple[Term, Term]]] = {
    "1 flatten across the tuple axis": flattened_tuple_axis,
    "2 slice and pad of the tuple axis": dropped_slice_on_tuple_axis,
    "3 concatenation on the tuple axis": concatenation_on_tuple_axis,
    "4 windows that drop the tail": max_of_windows_that_do_not_cover,
    "5 reshape past a split": reshape_past_a_split,
    "6 channel multiplier": first_filters_of_a_multiplier,
    "7 zeros under a maximum": lambda: zeros_under("reduce-max"),
    "7 zeros under a mean": lambda: zeros_under("reduce-mean"),
    "7 zeros under softmax": lambda: zeros_under("softmax", drop=True),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_rules_are_refuted(name: str) -> None:
    right, wrong = UNSOUND[name]()
    assert right.type == wrong.type
    assert "differs in " in verdict(right, wrong)
    assert verdict(right, right) == EXACT


def test_a_difference_is_counted_and_located() -> None:
    report = check(Program(X), Program(UNEQUAL["one element"][1]))
    assert report.result == "differs in 1 of 35 elements, first at (4, 2)"
    assert not report.ok


def test_another_type_is_a_difference() -> None:
    assert (
        verdict(X, build("access", X, 1)) == "differs in type: (5)(7) float32, where the original has ()(5 7) float32"
    )


def test_how_says_what_was_done() -> None:
    assert check(Program(I8), Program(I8), seed=3).how == "random integers, large and small, seed 3"
    exact = check(Program(X), Program(X)).how
    assert exact == "random residues in two prime fields, p = 4194301 and 4194287, seed 0"
    functions = compute("softmax", compute("sqrt", X))
    assert check(Program(functions), Program(functions)).how.endswith("; pseudo-random functions stand for exp, sqrt")
    rest = compute(
        "(mod floor)", build("bitcast", build("bitcast", build("access-slice", X, 0, 0, 2), "int32"), "float32")
    )
    assert check(Program(rest), Program(rest)).how.endswith("; pseudo-random functions stand for bitcast, mod floor")


def test_declarations_must_agree() -> None:
    with pytest.raises(BadInput, match="a check requires both programs to declare x alike"):
        check(Program(X), Program(leaf("x", 5, 8)))


# Layers


def network(*wrong: int, layers: int = 4, wrong_end: bool = False) -> Program:
    """Returns a chain of layers with a skip over each; those that are wrong compute something else."""
    b = Builder()
    x = b.input("x", (3, 6))
    for i in range(1, layers + 1):
        w = b.constant(f"w{i}", (6, 6))
        y = b.linear(x, b.transpose(w, (1, 0)) if i in wrong else w, name=f"l{i}")
        x = b.add(x, b.relu(y))
    return b.finish(b.multiply(x, x) if wrong_end else x)


def test_every_layer_has_its_own_verdict() -> None:
    report = check(network(), network(2))
    assert report.layers["l2"].startswith("differs in ")
    assert [report.layers[name] for name in ("l1", "l3", "l4")] == [EXACT] * 3
    assert report.result.startswith("differs in ")
    assert not report.ok
    assert report.stopped == ""


def test_several_wrong_layers_and_a_wrong_end() -> None:
    report = check(network(layers=6), network(1, 4, 5, layers=6, wrong_end=True))
    assert [name for name, text in report.layers.items() if text != EXACT] == ["l1", "l4", "l5"]
    end = check(network(), network(wrong_end=True))
    assert set(end.layers.values()) == {EXACT}
    assert end.result.startswith("differs in ")


def test_layers_are_compared_by_name_where_both_have_them() -> None:
    original, other = network(), network()
    swapped = dict(other.layers)
    swapped["l1"], swapped["l2"] = swapped["l2"], swapped["l1"]
    del swapped["l4"]
    report = check(original, Program(other.term, layers=swapped))
    assert list(report.layers) == ["l1", "l2", "l3"]
    assert report.layers["l1"].startswith("differs in ")
    assert report.layers["l2"].startswith("differs in ")
    assert report.layers["l3"] == EXACT
    assert report.result == EXACT


def test_layers_of_another_type_differ_and_others_are_still_compared() -> None:
    original = network()
    layers = dict(original.layers)
    layers["l2"] = build("access", layers["l2"], 0)
    report = check(original, Program(original.term, layers=layers))
    assert report.layers["l2"].startswith("differs in type: ")
    assert [report.layers[name] for name in ("l1", "l3", "l4")] == [EXACT] * 3
    assert report.result == EXACT


def test_layers_may_share_a_term() -> None:
    original = network()
    layers = {**original.layers, "again": original.layers["l2"]}
    shared = Program(original.term, layers=layers)
    assert check(shared, shared).ok
    report = check(shared, Program(original.term, layers={**layers, "again": original.layers["l3"]}))
    assert [name for name, text in report.layers.items() if text != EXACT] == ["again"]


# Size


@pytest.mark.slow
def _rounded(order: Sequence[int], more: int = 0) -> Program:
    """Returns a sum in some order under a corner, between two layers, and what comes of that."""
    b = Builder("rounded")
    parts = [b.input(name, (1, 3), "float64") for name in "abcd"]
    x = parts[order[0]]
    for i in order[1:]:
        x = b.add(x, parts[i])
    w, v = b.input("w", (2, 3), "float64"), b.input("v", (4, 2), "float64")
    y = b.linear(b.relu(b.linear(x, w, name="first")), v, name="second")
    return b.finish(b.add(y, y) if not more else b.add(y, b.add(y, y)))


def test_a_corner_that_rounding_crosses_is_no_difference() -> None:
    """The sum is 5000: floats give that, or less than 0, and the layer after relu differs, and so does the result."""
    given = {n: np.full((1, 3), x) for n, x in zip("abcd", (1e20, -1e20, -2.5e4, 3e4), strict=True)}
    given["w"] = np.ones((2, 3))
    verdict = check(_rounded((0, 1, 2, 3)), _rounded((0, 2, 1, 3)), given=given)
    assert verdict.ok, verdict
    wrong = check(_rounded((0, 1, 2, 3)), _rounded((0, 2, 1, 3), more=1), given=given)
    assert is_equal(wrong.layers["second"])
    assert wrong.result == "differs in 4 of 4 elements, first at (0, 0)"


def test_deep_terms() -> None:
    def chain(end: Term) -> Term:
        x = end
        for _ in range(5_000):
            x = compute("negative", x)
        return x

    assert verdict(chain(X), X) == EXACT
    assert verdict(chain(X), compute("negative", X)).startswith("differs in ")


def test_shared_terms_are_evaluated_once() -> None:
    x = y = X
    for _ in range(200):
        x, y = add(x, x), multiply(y, full(2, 5, 7))
    assert verdict(x, y) == EXACT


def test_a_whole_mobilenet() -> None:
    from glenside.models import load

    program = load("mobilenet_v1")
    report = check(program, program)
    assert report.ok
    assert list(report.layers) == list(program.layers)
    assert report.seconds < 30, "about 0.7 s on 2 idle cores"


# Stopping


def test_a_deadline_that_has_passed() -> None:
    report = check(network(), network(2), deadline=time.monotonic() - 1)
    assert report.layers["l2"] == report.result == "not checked: time ran out"
    assert report.stopped == "time-limit"
    assert not report.ok


@pytest.mark.parametrize("share", [0.1, 0.35, 0.45, 0.8, 0.95])
def test_ctrl_c_keeps_what_was_found(share: float) -> None:
    def interrupt(done: int, total: int) -> None:
        if done >= share * total:
            raise KeyboardInterrupt

    report = check(network(), network(2), progress=interrupt)
    assert report.stopped == "interrupted"
    assert EXACT not in report.layers.values(), "no layer was compared in both fields"
    assert report.layers["l4"].startswith("not checked: interrupted")
    if share > 0.5:
        assert re.fullmatch(r"not checked: interrupted \(equal in \d+ of \d+ trials\)", report.layers["l1"])
        assert report.layers["l2"].startswith("differs in ")
        assert report.result.startswith("differs in ")


def test_progress_reaches_its_total() -> None:
    seen: list[tuple[int, int]] = []
    whole = {"given": {"unused": np.zeros(1)}}  # no equations between layers
    check(network(), network(), progress=lambda done, total: seen.append((done, total)), **whole)
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == len(seen)


def test_what_cannot_be_evaluated_is_not_called_equal() -> None:
    at = add(leaf("at", 3, dtype="int64"), full(100, 3, dtype="int64"))
    outside = build("compute", "(clip 100 200)", at)
    term = build("access-gather", X, outside, 0)
    assert check(Program(build("access-gather", X, at, 0)), Program(build("access-gather", X, at, 0))).ok
    report = check(Program(term), Program(term))
    assert report.result.startswith("not checked: access-gather requires indices from -5 to 4")
    assert not report.ok


# Comparing


def test_digests_are_those_of_values() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert digest(x) == digest(x.T.copy().T)
    assert digest(np.array([0.0])) == digest(np.array([-0.0]))
    assert len({digest(v) for v in (x, x.T, x.ravel(), x.astype(np.float32), x + 1, (x, x))}) == 6
    assert difference((x, x), (x, x + 1)) == "item 1 of the tuple differs in 6 of 6 elements, first at (0, 0)"


# Floating point


def test_floating_point_errors_are_those_of_the_numbers() -> None:
    split = multiply(compute("exp", X), compute("exp", Y))
    whole = compute("exp", add(X, Y))
    assert verdict(whole, split).startswith("differs in ")
    report = check_floating(Program(whole), Program(split))
    assert 0 < report.result == report.largest < 1e-5
    assert check_floating(Program(whole), Program(compute("exp", subtract(X, Y)))).result > 0.1


def test_floating_point_per_layer_with_the_constants_own_values() -> None:
    def scaled(factor: float) -> Program:
        b = Builder()
        w = b.constant("w", (4, 6), value=np.full((4, 6), 0.5, np.float32))
        y = b.linear(b.input("x", (3, 6)), w, name="fc")
        return b.finish(b.multiply(y, b.full((3, 4), factor)))

    report = check_floating(scaled(1), scaled(1.5))
    assert dict(report.layers) == {"fc": 0.0}
    assert report.result == pytest.approx(0.5)
    assert check_floating(scaled(1), scaled(1)).largest == 0


def test_floating_point_of_other_types_and_past_the_deadline() -> None:
    assert check_floating(Program(X), Program(build("access", X, 1))).result == math.inf
    late: Any = check_floating(network(), network(), deadline=time.monotonic() - 1)
    assert math.isnan(late.largest)


# A source


def test_the_result_of_the_source_is_compared_too() -> None:
    right, wrong = Program(compute("relu", add(X, Y))), Program(compute("relu", subtract(X, Y)))
    assert check(right, right, source=right).result == "exact"
    assert check(right, right, source=wrong).result.startswith("differs in ")
    assert check(right, wrong, source=right).result.startswith("differs in ")
    other = Program(build("access", right.term, 1))
    assert check(right, right, source=other).result.startswith("differs in type: ")


def test_a_source_that_was_not_reached_is_not_equal() -> None:
    right, source = Program(compute("relu", add(X, Y))), Program(compute("relu", add(Y, X)))
    told: list[int] = []
    assert check(right, right, source=source, progress=lambda _, total: told.append(total)).ok
    for moment in (1, told[0] // 2, told[0] - 1):  # of what has to be done

        def stop(done: int, _: int, moment: int = moment) -> None:
            if done == moment:
                raise KeyboardInterrupt

        report = check(right, right, source=source, progress=stop)
        assert report.stopped == "interrupted"
        assert report.result.startswith("not checked: interrupted")


def test_of_no_elements_there_is_nothing_to_reach() -> None:
    x = leaf("x", 0, 3)
    assert verdict(compute("relu", x), compute("(clip 0 6)", x)) == EXACT
    joined = build("access-concatenate", leaf("y", 2, 3), compute("relu", x), 0)
    assert verdict(joined, build("access-concatenate", leaf("y", 2, 3), x, 0)) == EXACT


def weighed(*, wrong: bool = False, other: bool = False) -> Program:
    """x in bytes, by weights whose sum is such as seldom is drawn; a wrong one adds 1 where it is that."""
    b = Builder("p")
    x, w = b.input("x", (4, 6)), b.constant("w", (40,), value=np.arange(40, dtype=np.float32) / 16 + other)
    total = compute("reduce-sum", w)
    hit = build("cast", compute("(compare eq)", pair(total, full("195/4"))), "float32")
    y = build("cast", build("cast", x, "int8"), "float32")
    y = multiply(y, broadcast(total, (4, 6)))
    return b.finish(add(y, broadcast(hit, (4, 6))) if wrong else y)


def test_where_integers_are_made_constants_have_their_own_values_too() -> None:
    assert check(weighed(), weighed(wrong=True)).result.startswith("differs in 24 of 24")
    assert check(weighed(), weighed()).ok
    assert check(weighed(), weighed(other=True)).ok  # of one name, they are drawn
