"""Compares predicted with measured traffic of single computes in SPU, and of those that its compiler rewrites.
Optional: see spu_simulation.py for the environment it needs.

Optional: see spu_simulation.py for the environment it needs.
"""

from __future__ import annotations

from itertools import product as combinations
from typing import Any

import numpy as np
import pytest
from spu_cases import SUBSETS, Cases, at, fold, matmul, tensor

import glenside as gl
from glenside.builder import layout, pointwise
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims
from glenside.targets.mpc.semi2k import FIELDS

pytestmark = pytest.mark.usefixtures("spu")


def test_matmuls_of_odd_sizes() -> None:
    cases = Cases(1)
    sizes = [(1, 1, 1), (1, 5, 1), (7, 1, 1), (1, 1, 9), (5, 7, 3), (17, 33, 9), (2, 1, 5), (64, 1, 64), (3, 2000, 2)]
    for bits, (m, k, n) in combinations(FIELDS, sizes):
        cases.add(f"{m} {k} {n}", matmul(m, k, n), (), bits, error=0.3 if bits == 32 else None)
    for _ in range(20):
        m, k, n = cases.random.integers(1, 40, 3)
        cases.add(f"{m} {k} {n}", matmul(m, k, n))
    for public in SUBSETS:
        cases.add("5 7 3", matmul(5, 7, 3), public)
    for m, k, n in [(0, 3, 2), (2, 0, 3), (2, 3, 0)]:
        cases.add(f"{m} {k} {n}", matmul(m, k, n))
    for dtype in ("int8", "int32"):
        cases.add(dtype, matmul(5, 7, 3, dtype=dtype))
    assert cases.failures() == []


def test_batched_matmuls() -> None:
    cases = Cases(2)
    for groups, (m, k, n) in combinations(
        [(1,), (4,), (2, 3), (1, 1), (36,)], [(1, 1, 1), (3, 2, 5), (1, 5, 2), (3, 1, 1)]
    ):
        cases.add(f"{groups} {m} {k} {n}", matmul(m, k, n, *groups))
    for public, bits in combinations(SUBSETS, FIELDS):
        cases.add("3 times 5 7 3", matmul(5, 7, 3, 3), public, bits)
    cases.add("tiles", build("systolic-array", 4, 3, at(tensor("x", 2, 5, 4), 2), at(tensor("w", 2, 4, 3), 1)))
    cases.add("one row", build("systolic-array", 4, 3, at(tensor("x", 4), 0), at(tensor("w", 4, 3), 0)))
    cases.add("tiled", build("tiled-product", at(tensor("x", 2, 5, 4), 2), at(tensor("w", 2, 3, 4), 2), 1, 2))
    assert cases.failures() == []


def _numbers(*dims: int, step: int = 1) -> Term:
    size = Dims(dims).product()
    return build("numbers", dims, " ".join(f"{1 + i * step % size}/4" for i in range(size)), "float32")


def test_numbers_in_the_program_are_read_in_their_order() -> None:
    """XLA transposes constants, and SPU 0.9.5 reads those in the order before."""
    cases = Cases(3)
    c, ct = _numbers(2, 3), build("access-transpose", _numbers(3, 2), (1, 0))
    x = at(tensor("x", 5, 3), 1)
    for number, matrix in enumerate((c, ct)):
        matrix = at(matrix, 1)
        for a, b in ((x, matrix), (matrix, x)):
            once = build("compute", "dot-product", build("access-product", a, b, 0))
            cases.add(f"matrix {number}", once)
        images = at(tensor("x", 7, 4, 3), 2)
        once = build("compute", "dot-product", build("access-product", matrix, images, 0))
        moved = at(build("access-transpose", at(once, 0), (1, 0, 2)), 1)
        cases.add(
            f"batch {number}", build("compute", "dot-product", build("access-product", at(moved, 2), at(moved, 2), 1))
        )
    turned = build("access-transpose", at(fold("elementwise-mul", tensor("x", 3, 2), _numbers(3, 2)), 0), (1, 0))
    cases.add("turned", fold("elementwise-mul", turned, ct))
    cases.add("turned after", fold("elementwise-add", build("access-transpose", tensor("x", 3, 2), (1, 0)), c))
    cases.add("divided", fold("elementwise-div", build("access-transpose", tensor("x", 3, 2), (1, 0)), c))
    assert cases.failures() == []


def test_elements() -> None:
    cases = Cases(4)
    x, w = tensor("x", 5, 7), tensor("w", 5, 7)
    positive = {"x": cases.random.uniform(0.5, 2, (5, 7)).astype("float32")}
    divisor = {"w": cases.random.uniform(0.5, 2, (5, 7)).astype("float32")}
    folds = ["elementwise-add", "elementwise-mul", "subtract", "maximum", "minimum", "(compare lt)", "(compare ge)"]
    for bits, public in combinations(FIELDS, SUBSETS):
        for kind in folds:
            cases.add(kind, fold(kind, x, w), public, bits)
        if bits > 32:
            cases.add("div", fold("elementwise-div", x, w), public, bits, divisor)
            cases.add("eq", fold("(compare eq)", x, w), public, bits)
    exact = ["relu", "negative", "abs", "(clip -1/2 1/2)", "(leaky-relu 1/10)", "floor", "ceil"]
    for bits in FIELDS:
        for kind in exact:
            cases.add(kind, build("compute", kind, x), (), bits)
        cases.add("tanh", build("compute", "tanh", x), (), bits, error=0.1)
    for bits in (64, 128):
        for kind in ("log", "sqrt", "sigmoid", "erf", "exp"):
            cases.add(kind, build("compute", kind, x), (), bits, positive, error=0.1)
    cases.add("whole", build("cast", x, "int32"))
    cases.add("real", build("cast", tensor("x", 5, dtype="int32"), "float32"))
    assert cases.failures() == []


def test_items() -> None:
    cases = Cases(5)
    x = tensor("x", 5, 7)
    for bits, split in combinations(FIELDS, (0, 1, 2)):
        for kind in ("reduce-sum", "reduce-mean", "reduce-max", "reduce-min", "reduce-prod"):
            cases.add(f"{kind} {split}", build("compute", kind, at(x, split)), (), bits)
        for kind in ("softmax", "log-softmax") if bits > 32 else ():
            cases.add(f"{kind} {split}", build("compute", kind, at(x, split)), (), bits, error=0.01)
    for count, shape in combinations((1, 2, 3, 5, 8, 12, 21, 33), ((), (1,), (4,))):
        cases.add(f"maximum of {count}", build("compute", "reduce-max", at(tensor("x", *shape, count), len(shape))))
    padded = build("access-pad", tensor("x", 2, 5, 6), "min-padding", 1, 1, 1)
    cases.add(
        "maximum of windows", build("compute", "reduce-max", build("access-windows", at(padded, 1), (3, 3), (1, 2)))
    )
    assert cases.failures() == []


def _stacked(*names: str) -> Term:
    parts = [at(build("access-insert-axis", tensor(name, 5, 7), 0), 0) for name in names]
    stack = parts[0]
    for part in parts[1:]:
        stack = build("access-concatenate", stack, part, 0)
    return stack


def test_stacks_and_known_numbers() -> None:
    cases = Cases(6)
    x = tensor("x", 5, 7)
    for public in [(), ("x",), ("w",), ("w", "z"), ("x", "w")]:
        for kind in ("select", "elementwise-mul", "maximum"):
            cases.add(kind, build("compute", kind, _stacked("x", "w", "z")), public)
    positive = {"x": cases.random.uniform(0.5, 2, (5, 7)).astype("float32")}
    for value in ("1", "2", "-1", "1/3"):
        number = build("full", (5, 7), value, "float32")
        cases.add(f"times {value}", fold("elementwise-mul", x, number))
        cases.add(f"{value} times", fold("elementwise-mul", number, x))
        cases.add(f"by {value}", fold("elementwise-div", x, number))
        cases.add(f"{value} by", fold("elementwise-div", number, x), (), 64, positive)
    many = tensor("x", 3, 5, 7)
    for kind, split in combinations(("elementwise-mul", "dot-product"), (0, 1)):
        cases.add(kind, build("compute", kind, at(many, split)))
    assert cases.failures() == []


def _repeated(x: Term) -> Term:
    return build("access-broadcast", at(build("access-insert-axis", at(x, 0), 0), 0), ((), (3, *x.access.dims)))


def _after_each_other(first: str, second: str, between: Any) -> Term:
    """x times a factor, moved, times another factor."""
    once = fold("elementwise-mul", tensor("x", 5, 7), _factor(first, 5, 7))
    moved = between(at(once, 0))
    return fold("elementwise-mul", moved, _factor(second, *moved.access.dims))


def _factor(kind: str, *dims: int) -> Term:
    if kind == "number":
        return build("full", dims, "1/3", "float32")
    return _numbers(*dims) if kind == "numbers" else tensor(f"p{dims}", *dims)


MOVEMENTS = {
    "nothing": lambda x: x,
    "transpose": lambda x: build("access-transpose", x, (1, 0)),
    "reshape": lambda x: build("access-reshape", x, ((), (7, 5))),
    "flip": lambda x: build("access-flip", x, 1),
    "slice": lambda x: build("access-slice", x, 1, 1, 4),
    "pad": lambda x: build("access-pad", x, "zero-padding", 1, 1, 0),
    "repeat": _repeated,
}


def test_products_by_what_is_public_after_each_other() -> None:
    """SPU's compiler makes one of two."""
    cases = Cases(7)
    for first, second in combinations(("number", "numbers", "tensor"), repeat=2):
        for name, between in MOVEMENTS.items():
            term = _after_each_other(first, second, between)
            known = [n for n in Program(term).tensors if n != "x"]
            cases.add(f"{first}, {name}, {second}", term, known, error=0.01)
    x = tensor("x", 5, 7)
    for kind in ("relu", "exp"):
        cases.add(f"{kind} repeated", build("compute", kind, _repeated(x)), error=0.05)
    cases.add("maximum repeated", fold("maximum", _repeated(x), build("full", (3, 5, 7), "1/3", "float32")))
    cases.add("product repeated", fold("elementwise-mul", _repeated(x), _repeated(tensor("w", 5, 7))))
    assert cases.failures() == []


MAPS = [(3, "1 0 -1 0 1 1 0 -1 1"), (4, "1 1/2 3 0 0 0 -1 -2 -3 5/6 7 -9"), (1, "-1 0 0"), (2, "4 -8 16 5 6 7")]


def test_linear_maps() -> None:
    cases = Cases(8)
    for bits, axis, (rows, numbers) in combinations(FIELDS, (0, 1, 2), MAPS):
        dims = [4, 5, 6]
        dims[axis] = 3
        term = build("linear-map", tensor("x", *dims), axis, rows, numbers)
        cases.add(f"{numbers} along {axis}", term, (), bits, error=0.5 if bits == 32 else None)
        if bits == 64:
            cases.add(
                f"{numbers} twice", build("linear-map", term, (axis + 1) % 3, 1, "1/2 " + "1 " * (dims[axis - 2] - 1))
            )
            cases.add(f"{numbers} of a public one", term, ("x",))
    assert cases.failures() == []


def test_movement_sends_nothing() -> None:
    cases = Cases(9)
    x = tensor("x", 2, 5, 6)
    padded = build("access-pad", x, "zero-padding", 1, 1, 1)
    cases.add("windows", build("access-windows", at(padded, 1), (3, 3), (1, 2)))
    cases.add("overlap-add", build("access-overlap-add", at(tensor("x", 2, 3, 4, 3, 2), 3), (7, 9), (2, 2)))
    cases.add("dilate", build("access-dilate", x, 1, 2))
    cases.add("flip", build("access-flip", x, 2))
    places = {"i": np.array([3, -1, 0], np.int32)}
    cases.add("gather", build("access-gather", x, tensor("i", 3, dtype="int32"), 1), ("i",), 64, places)
    cases.add("tuple", build("construct-tuple", x, build("compute", "relu", x)))
    assert cases.failures() == []


# Computes of computes: the second is a secret too.
NESTED: dict[str, Any] = {
    "x / sqrt": lambda x, v, _: pointwise.divide(x, pointwise.compute("sqrt", v)),
    "1 / sqrt": lambda x, v, b: pointwise.add(x, pointwise.divide(b.full((5,), 1), pointwise.compute("sqrt", v))),
    "2 / sqrt": lambda x, v, b: pointwise.add(x, pointwise.divide(b.full((5,), 2), pointwise.compute("sqrt", v))),
    "x / sqrt + sqrt": lambda x, v, _: pointwise.add(root := pointwise.compute("sqrt", v), pointwise.divide(x, root)),
    "x / exp": lambda x, v, _: pointwise.divide(x, pointwise.compute("exp", v)),
    "x / exp + exp": lambda x, v, _: pointwise.add(power := pointwise.compute("exp", v), pointwise.divide(x, power)),
    "exp / exp": lambda x, v, _: pointwise.divide(pointwise.compute("exp", x), pointwise.compute("exp", v)),
    "exp exp": lambda x, v, _: pointwise.multiply(pointwise.compute("exp", x), pointwise.compute("exp", v)),
    "exp exp + exp": lambda x, v, _: pointwise.add(
        pointwise.multiply(pointwise.compute("exp", x), power := pointwise.compute("exp", v)), power
    ),
    "log exp": lambda x, v, _: pointwise.add(x, pointwise.compute("log", pointwise.compute("exp", v))),
    "x / sigmoid": lambda x, v, _: pointwise.divide(x, pointwise.sigmoid(v)),
    "relu relu": lambda x, v, _: pointwise.add(v, pointwise.relu(pointwise.relu(x))),
    "abs abs": lambda x, v, _: pointwise.add(v, pointwise.compute("abs", pointwise.compute("abs", x))),
    "abs relu": lambda x, v, _: pointwise.add(v, pointwise.compute("abs", pointwise.relu(x))),
    "abs clip abs": lambda x, v, _: pointwise.add(
        v, pointwise.compute("abs", pointwise.compute("(clip -4 4)", pointwise.compute("abs", x)))
    ),
    "abs clip": lambda x, v, _: pointwise.add(v, pointwise.compute("abs", pointwise.compute("(clip -4 4)", x))),
    "abs clip above": lambda x, v, _: pointwise.add(v, pointwise.compute("abs", pointwise.compute("(clip 0 4)", x))),
    "abs square": lambda x, v, _: pointwise.add(v, pointwise.compute("abs", pointwise.multiply(x, x))),
    "abs maximum": lambda x, v, _: pointwise.compute("abs", pointwise.combine("maximum", x, pointwise.relu(v))),
    "abs minimum": lambda x, v, _: pointwise.compute("abs", pointwise.combine("minimum", x, pointwise.relu(v))),
    "relu abs": lambda x, v, _: pointwise.add(v, pointwise.relu(pointwise.compute("abs", x))),
    "(x / v) / v": lambda x, v, _: pointwise.divide(pointwise.divide(x, v), v),
    "x / (v / x)": lambda x, v, _: pointwise.divide(x, pointwise.divide(v, x)),
    "(x / v) / (v / x)": lambda x, v, _: pointwise.divide(pointwise.divide(x, v), pointwise.divide(v, x)),
    "(x / v) / v + x / v": lambda x, v, _: pointwise.add(y := pointwise.divide(x, v), pointwise.divide(y, v)),
    "((x / v) / v) / v": lambda x, v, _: pointwise.divide(pointwise.divide(pointwise.divide(x, v), v), v),
    "(x / sqrt) / v": lambda x, v, _: pointwise.divide(pointwise.divide(x, pointwise.compute("sqrt", v)), v),
    "x / (2 / v)": lambda x, v, b: pointwise.divide(x, pointwise.divide(b.full((5,), 2), v)),
    "(2 / v) / x": lambda x, v, b: pointwise.divide(pointwise.divide(b.full((5,), 2), v), x),
    "(x / 2) / v": lambda x, v, b: pointwise.divide(pointwise.divide(x, b.full((5,), 2)), v),
    "x 0": lambda x, v, b: pointwise.add(v, pointwise.multiply(x, b.full((5,), 0))),
}


def test_computes_of_computes() -> None:
    cases = Cases(16)
    for name, made in NESTED.items():
        b = gl.Builder(name)
        values = {n: cases.random.uniform(0.5, 1.5, 5).astype("float32") for n in "xv"}
        cases.add(name, b.finish(made(b.input("x", (5,)), b.input("v", (5,)), b)), (), 64, values, 0.01)
    assert cases.failures() == []


def test_a_scale_goes_where_numbers_are_repeated() -> None:
    """(x * c) * repeated(w) is x * repeated(w * c)."""
    cases = Cases(18)
    b = gl.Builder("scales")
    y, v = b.input("y", (2, 5, 3)), b.constant("v", (2, 5, 3))
    few = (b.constant("w", (5, 1)), b.input("t", (1,)), b.input("u", (2, 1, 3)))
    wide = [layout.broadcast(w, (2, 5, 3)) for w in few]
    scaled = pointwise.multiply(y, pointwise.filled(y, "-1/4"))
    for name, term in {
        **{f"scale {w.access.dims}": pointwise.multiply(scaled, w_wide) for w, w_wide in zip(few, wide, strict=True)},
        "relu": pointwise.multiply(scaled, pointwise.relu(wide[0])),
        "twice": pointwise.multiply(pointwise.divide(scaled, pointwise.filled(y, -4)), wide[0]),
        "moved": pointwise.multiply(layout.transpose(scaled, (1, 0, 2)), layout.transpose(wide[0], (1, 0, 2))),
        "whole": pointwise.multiply(scaled, v),
        "after": pointwise.multiply(pointwise.multiply(scaled, wide[0]), wide[2]),
        "between": pointwise.multiply(
            pointwise.multiply(pointwise.multiply(y, wide[0]), pointwise.filled(y, "-1/4")), wide[2]
        ),
        "both": pointwise.multiply(scaled, pointwise.multiply(wide[0], pointwise.filled(y, "1/2"))),
        "both whole": pointwise.multiply(scaled, pointwise.multiply(v, pointwise.filled(y, "1/2"))),
        "quotient": pointwise.divide(scaled, wide[0]),
        "read twice": pointwise.add(pointwise.multiply(scaled, wide[0]), pointwise.multiply(scaled, wide[2])),
        "read by another": pointwise.add(pointwise.multiply(scaled, wide[0]), scaled),
        "read by another, whole": pointwise.add(pointwise.multiply(scaled, v), scaled),
    }.items():
        cases.add(name, Program(term).seeded_constants(0), error=0.1)
    assert cases.failures() == []


def test_products_of_what_is_repeated() -> None:
    """Both along the same axes, or one a number: then the product is repeated. A mean scales as a number does."""
    cases = Cases(19)
    b = gl.Builder("repeated")
    dims = (2, 5, 3)
    y, z, v = b.input("y", dims), b.input("z", (*dims, 4)), b.constant("v", dims)
    few = (b.constant("w", (5, 1)), b.input("t", (1,)), b.input("u", (2, 1, 3)), b.constant("k", (2, 5, 1)))
    wide = [v, *(layout.broadcast(w, dims) for w in few)]

    def mean(x: Term) -> Term:
        return at(build("compute", "reduce-mean", at(x, x.access.rank - 1)), 0)

    def scaled(x: Term) -> Term:
        return pointwise.multiply(x, pointwise.filled(x, "-1/4"))

    means = mean(y), mean(layout.transpose(y, (0, 2, 1)))
    left = {
        "whole": mean(z),
        "of rows": layout.broadcast(layout.reshape(means[0], (2, 5, 1)), dims),
        "of columns": layout.broadcast(layout.reshape(means[1], (2, 1, 3)), dims),
        "scaled": layout.broadcast(scaled(b.input("q", (5, 1))), dims),
    }
    for name, x in left.items():
        for w in wide:
            cases.add(f"{name} {w.children}", Program(pointwise.multiply(x, w)).seeded_constants(0), error=0.1)
        for kind, term in {
            "scaled": pointwise.multiply(scaled(x), wide[1]),
            "scaled other": pointwise.multiply(x, scaled(wide[1])),
            "twice": pointwise.add(pointwise.multiply(x, wide[1]), pointwise.multiply(x, wide[3])),
        }.items():
            cases.add(f"{name} {kind}", Program(term).seeded_constants(0), error=0.1)
    assert cases.failures() == []


@pytest.mark.parametrize("kind", ["reduce-mean", "reduce-max", "reduce-prod", "softmax", "log-softmax"])
def test_reductions_of_what_is_repeated(kind: str) -> None:
    """Rows that are the same are reduced once, but for sums; so are windows of them, whatever reduces those."""
    cases = Cases(20)
    b = gl.Builder("rows")
    x, y = b.input("x", (1, 3)), b.input("y", (1, 6))
    rows, wide = layout.broadcast(x, (4, 3)), layout.broadcast(y, (4, 6))
    operands = {"rows": at(rows, 1), "windows": build("access-windows", at(wide, 1), (2,), (1,))}
    operands["windows of a quotient"] = build("access-windows", at(_third(wide), 1), (2,), (1,))
    operands |= {"rows of a quotient": at(_third(rows), 1), "a quotient": at(_third(x), 1)}
    if "softmax" not in kind:
        operands["what is the same"] = at(layout.transpose(rows, (1, 0)), 1)
    for name, operand in operands.items():
        cases.add(f"{kind} of {name}", Program(build("compute", kind, operand)).seeded_constants(0), error=0.1)
    assert cases.failures() == []


def _third(x: Term) -> Term:
    return pointwise.divide(x, pointwise.filled(x, 3))


def test_products_of_one_column_among_others() -> None:
    """SPU's compiler makes products of elements of some, by what is around them."""
    cases = Cases(17)
    for (m, n), groups in combinations([(1, 1), (1, 4), (5, 1), (2, 2), (5, 4)], [(), (3,)]):
        product = at(matmul(m, 1, n, *groups), 0)
        first = build("access-slice", product, 0, 0, 1)
        for name, other in (
            ("doubled", product),
            ("with the first", build("access-broadcast", first, ((), product.access.dims))),
        ):
            for public in SUBSETS[:3]:
                cases.add(f"{groups} {m} {n} {name}", fold("elementwise-add", product, other), public)
    assert cases.failures() == []
