"""Products with known matrices of zeros and ones are movement, or zero."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.algebra.search import cheapest_algebra
from glenside.algebra.selections import MAX_RUNS, with_known_matrices
from glenside.builder import layout
from glenside.check import check
from glenside.ir.operand import Array
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder
from glenside.semantics.interpreter import evaluate
from glenside.targets.base import Roofline

PRICES = Roofline(50.0, 0.01, 0.08)


def _eye(n: int) -> Term:
    return build("eye", n, "float32")


def _shuffled(n: int) -> Term:
    return layout.reshape(layout.transpose(layout.reshape(_eye(n), (2, n // 2, n)), (1, 0, 2)), (n, n))


MATRICES: dict[str, Callable[[int], Term]] = {
    "identity": _eye,
    "reversed": lambda n: layout.flip(_eye(n), 0),
    "shuffled": _shuffled,
    "shuffled back": lambda n: layout.transpose(_shuffled(n), (1, 0)),
    "slice": lambda n: layout.slice_axis(_eye(n), 1, 1, n - 2),
    "padded": lambda n: layout.pad(_eye(n), [(0, 0), (2, 1)]),
    "slice of rows": lambda n: layout.pad(_eye(n - 3), [(1, 2), (0, 0)]),
    "both": lambda n: layout.pad(layout.slice_axis(_eye(n), 1, 2, n), [(0, 0), (3, 0)]),
    "swapped halves": lambda n: layout.concatenate(
        [layout.slice_axis(_eye(n), 1, n // 2, n), layout.slice_axis(_eye(n), 1, 0, n // 2)], 1
    ),
    "swapped halves around zeros": lambda n: layout.concatenate(
        [
            layout.slice_axis(_eye(n), 1, n // 2, n),
            build("full", (n, 2), "0", "float32"),
            layout.slice_axis(_eye(n), 1, 0, n // 2),
        ],
        1,
    ),
    "zero": lambda n: build("full", (n, n + 1), "0", "float32"),
}


def _program(matrix: Term, pick: random.Random) -> Program:
    """Returns a product with a matrix on either side, in any orientation, for one group or several."""
    b = gl.Builder("selection")
    rows, columns = matrix.access.dims
    lead = tuple(pick.choice((1, 2, 3)) for _ in range(pick.choice((0, 0, 1, 2))))
    if pick.random() < 0.5:
        product = b.matmul(b.input("x", (*lead, pick.choice((1, 4)), rows)), matrix)
    else:
        product = b.matmul(matrix, b.input("x", (*lead, columns, pick.choice((1, 4)))))
    return b.finish(product)


@pytest.mark.parametrize("name", MATRICES)
def test_products_with_selections_are_movement(name: str) -> None:
    for seed in range(6):
        program = _program(MATRICES[name](8), random.Random(seed))
        found = cheapest_algebra(program, PRICES)
        assert not any(map(is_product, postorder(found.program.term))), str(program.term)
        assert [one.taken for one in found.candidates] == [True]
        assert check(program, found.program, layers=False).result == "exact"


@pytest.mark.parametrize(
    "matrix",
    [
        lambda: layout.concatenate([_eye(4), _eye(4)], 0),
        lambda: layout.concatenate([layout.slice_axis(_eye(8), 1, n, n + 1) for n in (0, 1, 3, 2)], 1),
        lambda: build("full", (8, 8), "2", "float32"),
    ],
)
def test_other_matrices_stay(matrix: Callable[[], Term]) -> None:
    program = _program(matrix(), random.Random(0))
    found = cheapest_algebra(program, PRICES)
    assert check(program, found.program, layers=False).result == "exact"


def test_declared_constants_are_not_looked_at() -> None:
    """Their values may be replaced, and the exact check draws them."""
    b = gl.Builder("constant")
    program = b.finish(b.relu(b.matmul(b.input("x", (4, 8)), b.constant("w", (8, 8))))).seeded_constants(0)
    assert not cheapest_algebra(program, PRICES).candidates


def _value(matrix: Term) -> Array:
    return np.ascontiguousarray(evaluate([matrix], {})[0])


@pytest.mark.parametrize("target", quick(["cpu", "systolic-array:8x8"], 0))
@pytest.mark.parametrize("name", MATRICES)
def test_constants_that_select_elements_become_movement(name: str, target: str) -> None:
    value = 2 * _value(MATRICES[name](8))
    b = gl.Builder("constant")
    x = b.relu(b.input("x", (4, len(value))))
    program = b.finish(b.relu(b.matmul(x, b.constant("p", value.shape, value=value))))
    result = gl.optimize(program, target)
    assert result.report.checked == "exact"
    assert not any(map(is_product, result.program.info.order))
    assert not result.program.constants
    assert any(remark.endswith(": p") for remark in result.report.remarks)
    kept = gl.optimize(program, target, exact_order=True, verify=False)
    assert any(is_product(term) or "systolic" in term.operator.name for term in kept.program.info.order)


@pytest.mark.parametrize("seed", range(40))
def test_a_constant_that_selects_elements_is_a_term_with_its_values(seed: int) -> None:
    draw = random.Random(seed)
    rows, depth = draw.randint(1, 9), draw.randint(1, 9)
    value = np.zeros((rows, depth), np.float32)
    for row in range(rows):
        if draw.random() < 0.8:
            value[row, (row + draw.choice((0, 0, 0, 1))) % depth] = draw.choice((1, 0.5)) if seed % 4 == 0 else -3
    b = gl.Builder("constant")
    program = b.finish(b.relu(b.constant("p", value.shape, value=value)))
    found, names = with_known_matrices(program)
    if names:
        assert not found.constants
        assert np.array_equal(evaluate([found.term], {})[0], np.maximum(value, 0))
    else:
        places = [int(np.argmax(row != 0)) if row.any() else -1 for row in value]
        runs = 1 + sum(b != (-1 if a < 0 else a + 1) for a, b in pairwise(places))
        assert len({*value[value != 0]}) > 1 or runs > MAX_RUNS


@pytest.mark.parametrize(
    "value",
    [
        np.diag([1, 2, 3]),
        np.eye(3) + np.eye(3)[::-1],
        np.where(np.eye(3) > 0, 1, -0.0),
        np.where(np.eye(3) > 0, np.inf, 0),
        np.where(np.eye(3) > 0, np.nan, 0),
        np.eye(32)[np.random.default_rng(0).permutation(32)],
    ],
)
def test_other_constants_stay_constants(value: Array) -> None:
    b = gl.Builder("constant")
    program = b.finish(b.relu(b.constant("p", value.shape, value=value.astype(np.float32))))
    assert with_known_matrices(program) == (program, ())


def test_constants_that_are_not_read_yet_are_not_read() -> None:
    read: list[str] = []

    def generated() -> Array:
        read.append("w")
        return np.eye(4, dtype=np.float32)

    b = gl.Builder("lazy")
    x = b.matmul(
        b.matmul(b.input("x", (4, 4)), b.constant("w", (4, 4), value=generated)),
        b.constant("p", (4, 4), value=np.eye(4, dtype=np.float32)),
    )
    found, names = with_known_matrices(b.finish(x))
    assert names == ("p",)
    assert not read
    assert list(found.constants) == ["w"]


def test_a_gradient_keeps_its_constants() -> None:
    """It is compared with the program that it differentiates, for any values of constants."""
    b = gl.Builder("loss")
    y = b.matmul(b.input("x", (4, 8)), b.constant("p", (8, 8), value=np.eye(8, dtype=np.float32)))
    loss = b.finish(b.reduce_axes("reduce-sum", b.multiply(y, y), [0, 1]))
    result = gl.optimize(gl.gradient(loss, ["x"]), "cpu")
    assert result.report.checked == "exact"
    assert "p" in result.program.constants


def test_a_product_with_an_identity_disappears_between_products() -> None:
    """x W I V is x (W V): the identity does not end a region."""
    b = gl.Builder("between")
    hidden = b.matmul(b.matmul(b.input("x", (16, 64)), b.constant("w", (64, 256))), _eye(256))
    program = b.finish(b.matmul(hidden, b.constant("v", (256, 64)))).seeded_constants(0)
    result = gl.optimize(program, "systolic-array:8x8")
    assert result.report.checked == "exact"
    assert sum(is_product(term) and not result.prepared.info.constant[term] for term in result.prepared.info.order) == 1


def test_only_constant_operands_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search does not walk the terms below a computed operand for each product, which would be quadratic."""
    seen: list[Term] = []
    monkeypatch.setattr("glenside.algebra.selections._known", seen.append)
    b = gl.Builder("chain")
    x = b.input("x", (4, 8))
    for n in range(3):
        x = b.matmul(x, b.constant(f"w{n}", (8, 8)))
    cheapest_algebra(b.finish(x).seeded_constants(0), PRICES)
    assert len(seen) == 3
