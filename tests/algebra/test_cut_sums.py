"""Sums over concatenations are cut in both operands of a product at once, however each operand moves the index."""

from __future__ import annotations

import random

import pytest

import glenside as gl
from glenside.algebra.factoring import Factoring
from glenside.algebra.normal_form import normal_form
from glenside.builder import layout
from glenside.check import check
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.targets.base import Roofline

PRICES = Roofline(50.0, 0.01, 0.08)
WAYS = ("plain", "product", "slice", "pad", "concatenate", "reshape", "gather", "windows", "transpose")


class Drawn:
    """Matrices whose columns come about in random ways."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.builder = gl.Builder(f"cut {seed}")

    def leaf(self, dims: tuple[int, ...]) -> Term:
        return self.builder.input(f"t{len(self.builder.tensors)}", dims)

    def matrix(self, rows: int, columns: int, depth: int = 2) -> Term:
        """Draws a matrix."""
        pick, b = self.pick, self.builder
        way = pick.choice(WAYS) if depth else "plain"
        if way == "product":
            return b.matmul(self.matrix(rows, 3, depth - 1), self.matrix(3, columns, depth - 1))
        if way == "slice":
            low, high = pick.randint(0, 2), pick.randint(0, 2)
            return layout.slice_axis(self.matrix(rows, columns + low + high, depth - 1), 1, low, low + columns)
        if way == "pad" and columns > 2:
            low = pick.randint(0, 1)
            return layout.pad(self.matrix(rows, columns - 1, depth - 1), [(0, 0), (low, 1 - low)])
        if way == "concatenate" and columns > 1:
            at = pick.randint(1, columns - 1)
            parts = [self.matrix(rows, n, depth - 1) for n in (at, columns - at)]
            return layout.concatenate(parts, 1)
        if way == "reshape" and columns % 2 == 0:
            return layout.reshape(self.leaf((rows, columns // 2, 2)), (rows, columns))
        if way == "gather":
            places = b.input(f"t{len(b.tensors)}", (columns,), "int64")
            return layout.gather(self.matrix(rows, columns, depth - 1), places, 1)
        if way == "windows":
            x = self.leaf((rows, 1, columns + 1))
            w = self.leaf((1, 1, 2))
            return layout.reshape(b.conv(x, w), (rows, columns))
        if way == "transpose":
            return layout.transpose(self.matrix(columns, rows, depth - 1), (1, 0))
        return self.leaf((rows, columns))

    def program(self) -> Program:
        """Draws a product of two matrices, of which the first has a concatenation along the depth, or the second."""
        depth = self.pick.choice((4, 6, 8))
        at = self.pick.randint(1, depth - 1)
        first = layout.concatenate([self.matrix(3, n) for n in (at, depth - at)], 1)
        sides = [first, self.matrix(2, depth)]
        self.pick.shuffle(sides)
        a, b = sides
        return self.builder.finish(self.builder.matmul(a, layout.transpose(b, (1, 0))))


def assert_forms_are_equal(seeds: range) -> int:
    """Compares each program with the best form of its normal form; returns how many have one."""
    found = 0
    for seed in seeds:
        program = Drawn(seed).program()
        for cuts_all in (False, True):
            form = normal_form(program.term, lambda _: True, cuts_all=cuts_all)
            best = None if form is None else Factoring(lambda _: False, PRICES).best(form)
            if best is not None:
                found += 1
                assert check(program, Program(best.term), layers=False).ok, program
    return found


def test_sums_over_concatenations_are_cut_in_both_operands() -> None:
    assert assert_forms_are_equal(range(60)) > 60


@pytest.mark.slow
def test_many_sums_over_concatenations_are_cut() -> None:
    assert assert_forms_are_equal(range(100, 700)) > 600


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("sliced", [False, True])
def test_a_divisor_that_is_a_concatenation_stays_an_operand(axis: int, sliced: bool) -> None:
    """Nothing is summed over the axis, or all of it: it is not cut."""
    b = gl.Builder("divisor")
    x = b.matmul(b.input("x", (6, 5)), b.constant("w", (5, 6)))
    half = (3, 6) if axis == 0 else (6, 3)
    parts = [layout.transpose(b.compute("exp", b.input(name, half[::-1])), (1, 0)) for name in "cd"]
    divisor = layout.concatenate(parts, axis)
    y = layout.slice_axis(x, axis, 1, 5) if sliced else x
    divisor = layout.slice_axis(divisor, axis, 1, 5) if sliced else divisor
    program = b.finish(b.matmul(b.divide(y, divisor), b.constant("v", (y.access.dims[1], 2)))).seeded_constants(0)
    assert gl.optimize(program, "systolic-array:4x4").report.checked == "exact"
