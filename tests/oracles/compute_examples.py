"""Gives an example of every compute type: a term, its type as text, and its value from numpy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from example_values import NARROW, POSITIVE, SAMPLES, A, B, Example, integers, leaf

from glenside.ir.operand import Array
from glenside.ir.term import build


def _pointwise(kind: str, samples: Array, value: Any) -> list[Example]:
    return [Example(build("compute", kind, leaf(samples, 1, "float64")), "(2)(3) float64", value)]


def _fold(kind: str, operands: Any, value: Any, dtype: str = "float32", result: str = "") -> Example:
    """Makes an example on operands stacked in the item of a shape (2)."""
    term = build("compute", kind, leaf(np.moveaxis(np.asarray(operands), 0, 1), 1, dtype))
    return Example(term, f"({len(value)})({' '.join(map(str, value.shape[1:]))}) {result or dtype}", value)


def _reduction(kind: str, value: Any, dtype: str = "float32") -> list[Example]:
    """Makes an example on the items of (2)(3 4)."""
    return [Example(build("compute", kind, leaf(A, 1)), f"(2)() {dtype}", np.asarray(value))]


def _softmax(x: Array) -> Array:
    powers = np.array([np.exp(row - row.max()) for row in x])
    return np.array([row / row.sum() for row in powers])


LESS, MORE = integers(2, 3, seed=5), integers(2, 3, seed=6)
THIRD = integers(2, 3, seed=7)
TRUTHS = np.array([[[True, False, True], [False, False, True]], [[True, True, False], [False, True, True]]])

ANGLES = {
    **dict.fromkeys(("sin", "cos", "tan", "atan", "sinh", "cosh", "asinh"), SAMPLES),
    **dict.fromkeys(("asin", "acos", "atanh"), SAMPLES / 4),
    "acosh": 4 * POSITIVE,
}

COMPUTES: Mapping[str, Sequence[Example]] = {
    "dot-product": [
        Example(
            build("compute", "dot-product", build("access-product", leaf(A, 2), leaf(B, 2), 1)),
            "(2 3 5)() float32",
            np.array([a @ b.T for a, b in zip(A, B, strict=True)]),
        ),
        Example(
            build("compute", "dot-product", build("access-product", leaf(A, 1), leaf(A + 1, 1), 1)),
            "(2)() float32",
            np.array([(x * (x + 1)).sum() for x in A]),
        ),
        Example(
            build("compute", "dot-product", build("access-product", leaf(3), leaf(-4), 0)),
            "()() float32",
            np.array(-12),
        ),
        Example(build("compute", "dot-product", leaf(A, 1)), "(2)() float32", np.array([x.prod(0).sum() for x in A])),
        Example(
            build("compute", "dot-product", leaf(NARROW, 0, "int8")),
            "()() int32",
            np.array((NARROW[0] * NARROW[1]).sum()),
        ),
        Example(build("compute", "dot-product", leaf(A[:, :0], 1)), "(2)() float32", np.array([4.0, 4.0])),
    ],
    "reduce-sum": [
        *_reduction("reduce-sum", [A[0].sum(), A[1].sum()]),
        Example(build("compute", "reduce-sum", leaf(NARROW, 0, "int8")), "()() int32", np.array(NARROW.sum())),
        Example(build("compute", "reduce-sum", leaf(A[:, :0], 1)), "(2)() float32", np.zeros(2)),
        Example(build("compute", "reduce-sum", leaf(A, 3)), "(2 3 4)() float32", A),
    ],
    "reduce-prod": [
        Example(
            build("compute", "reduce-prod", leaf(A, 2)),
            "(2 3)() float32",
            A[..., 0] * A[..., 1] * A[..., 2] * A[..., 3],
        ),
        Example(build("compute", "reduce-prod", leaf([100, 3], 0, "int8")), "()() int8", np.array(300 - 256)),
    ],
    "reduce-mean": _reduction("reduce-mean", [sum(x.ravel().tolist()) / 12 for x in A]),
    "reduce-max": _reduction("reduce-max", [max(x.ravel().tolist()) for x in A]),
    "reduce-min": _reduction("reduce-min", [min(x.ravel().tolist()) for x in A]),
    "argmax": _reduction("argmax", [x.ravel().tolist().index(x.max()) for x in A], "int64"),
    "argmin": _reduction("argmin", [x.ravel().tolist().index(x.min()) for x in A], "int64"),
    "argsort": [
        Example(
            build("compute", "(argsort ascending)", leaf([[3, -1, 3, 0], [2, 2, -5, 2]], 1)),
            "(2)(4) int64",
            np.array([[1, 3, 0, 2], [2, 0, 1, 3]]),
        ),
        Example(
            build("compute", "(argsort descending)", leaf([[3, -1], [3, 0]], 0, "int8")),
            "()(2 2) int64",
            np.array([[0, 2], [3, 1]]),
        ),
        Example(build("compute", "(argsort ascending)", leaf(5)), "()() int64", np.array(0)),
    ],
    "elementwise-add": [
        _fold("elementwise-add", [LESS, MORE, THIRD], LESS + MORE + THIRD),
        Example(
            build("compute", "elementwise-add", build("access-product", leaf(A, 2), leaf(B, 2), 1)),
            "(2 3 5)(4) float32",
            A[:, :, None] + B[:, None],
        ),
    ],
    "elementwise-mul": [_fold("elementwise-mul", [LESS, MORE, THIRD], LESS * MORE * THIRD)],
    "elementwise-div": [
        _fold("elementwise-div", [LESS, POSITIVE, POSITIVE], LESS / POSITIVE / POSITIVE, "float64"),
        _fold(
            "elementwise-div",
            [[[7, -7, 7], [-7, 0, 5]], [[2, 2, -2], [-2, 3, 0]]],
            np.array([[3, -3, -3], [3, 0, 0]]),
            "int32",
        ),
    ],
    "subtract": [_fold("subtract", [LESS, MORE, THIRD], LESS - MORE - THIRD)],
    "pow": [
        _fold("pow", [POSITIVE, SAMPLES], np.exp(np.log(POSITIVE) * SAMPLES), "float64"),
        _fold("pow", [[[2, -3, 0]], [[9, 3, 0]]], np.array([[0, -27, 1]]), "int8"),
        _fold("pow", [[[1, -1, -1]], [[-2, -3, -4]]], np.array([[1, -1, 1]]), "int32"),
        _fold("pow", [[[2, 5, 0]], [[-1, -2, -1]]], np.array([[0, 0, 0]]), "int64"),
        _fold("pow", [[[3, 2]], [[3, 40]]], np.array([[27, 0]]), "uint32"),
    ],
    "mod": [
        _fold("(mod floor)", [[[7, -7, 7, -7, 5]], [[3, 3, -3, -3, 0]]], np.array([[1, 2, -2, -1, 0]]), "int16"),
        _fold("(mod truncate)", [[[7, -7, 7, -7, 5]], [[3, 3, -3, -3, 0]]], np.array([[1, -1, 1, -1, 0]]), "int16"),
        _fold("(mod floor)", [[[5.5, -5.5, -2.0]], [[2, 2, np.inf]]], np.array([[1.5, 0.5, np.inf]])),
        _fold("(mod truncate)", [[[5.5, -5.5, -2.0]], [[2, 2, np.inf]]], np.array([[1.5, -1.5, -2.0]])),
        _fold("(mod floor)", [[[250, 7]], [[7, 250]]], np.array([[5, 7]]), "uint8"),
    ],
    "minimum": [_fold("minimum", [LESS, MORE, THIRD], np.where(LESS < MORE, LESS, MORE).clip(None, THIRD))],
    "maximum": [_fold("maximum", [LESS, MORE, THIRD], np.where(LESS > MORE, LESS, MORE).clip(THIRD, None))],
    "logical-and": [_fold("logical-and", TRUTHS, TRUTHS[0] * TRUTHS[1], "bool")],
    "logical-or": [_fold("logical-or", TRUTHS, ~(~TRUTHS[0] * ~TRUTHS[1]), "bool")],
    "bitwise-and": [_fold("bitwise-and", [[[12, -1]], [[10, 5]]], np.array([[8, 5]]), "int8")],
    "bitwise-or": [_fold("bitwise-or", [[[12, -8]], [[10, 5]]], np.array([[14, -3]]), "int8")],
    "bitwise-xor": [_fold("bitwise-xor", [[[12, 255]], [[10, 5]], [[1, 0]]], np.array([[7, 250]]), "uint8")],
    "compare": [
        _fold("(compare lt)", [LESS, MORE], LESS - MORE < 0, result="bool"),
        _fold("(compare le)", [LESS, MORE], LESS - MORE <= 0, result="bool"),
        _fold("(compare gt)", [LESS, MORE], LESS - MORE > 0, result="bool"),
        _fold("(compare ge)", [LESS, MORE], LESS - MORE >= 0, result="bool"),
        _fold("(compare eq)", [LESS, LESS * (MORE > 0)], LESS * (MORE <= 0) == 0, result="bool"),
        _fold("(compare ne)", [LESS, LESS * (MORE > 0)], LESS * (MORE <= 0) != 0, result="bool"),
    ],
    "select": [_fold("select", [TRUTHS[0], LESS, MORE], TRUTHS[0] * LESS + ~TRUTHS[0] * MORE)],
    "relu": _pointwise("relu", LESS, (LESS + abs(LESS)) / 2),
    "negative": _pointwise("negative", SAMPLES, 0 - SAMPLES),
    "abs": _pointwise("abs", LESS, np.where(LESS < 0, -LESS, LESS)),
    "sign": _pointwise("sign", LESS, (LESS > 0) * 1 - (LESS < 0)),
    "sqrt": _pointwise("sqrt", POSITIVE, POSITIVE**0.5),
    "exp": _pointwise("exp", SAMPLES, np.e**SAMPLES),
    "log": _pointwise("log", POSITIVE, np.log2(POSITIVE) / np.log2(np.e)),
    "tanh": _pointwise("tanh", SAMPLES, 1 - 2 / (np.exp(2 * SAMPLES) + 1)),
    "sigmoid": _pointwise("sigmoid", SAMPLES, (1 + np.tanh(SAMPLES / 2)) / 2),
    "erf": _pointwise("erf", SAMPLES, np.array([[math.erf(x) for x in row] for row in SAMPLES.tolist()])),
    **{name: _pointwise(name, x, np.vectorize(getattr(math, name))(x)) for name, x in ANGLES.items()},
    "floor": _pointwise("floor", SAMPLES, np.array([[-3, -1, 0], [0, 1, 3]])),
    "ceil": _pointwise("ceil", SAMPLES, np.array([[-2, 0, 0], [1, 2, 4]])),
    "round": _pointwise("round", SAMPLES, np.array([[-2, 0, 0], [0, 2, 3]])),
    "logical-not": [
        Example(build("compute", "logical-not", leaf(TRUTHS[0], 1, "bool")), "(2)(3) bool", TRUTHS[0] == 0)
    ],
    "clip": _pointwise("(clip -1/2 2)", SAMPLES, np.array([[-0.5, -0.5, 0.0], [0.5, 1.5, 2.0]])),
    "leaky-relu": _pointwise("(leaky-relu 0.5)", SAMPLES, np.array([[-1.25, -0.25, 0.0], [0.5, 1.5, 3.25]])),
    "softmax": _pointwise("softmax", 100 * SAMPLES, _softmax(100 * SAMPLES)),
    "log-softmax": _pointwise("log-softmax", SAMPLES, np.log(_softmax(SAMPLES))),
}
