"""Tests the order of the terms of a program, and facts that are computed once for it."""

from __future__ import annotations

import glenside as gl
from glenside.ir.program import Program
from glenside.ir.term import build, constants_under, postorder, rebuild_all
from glenside.ir.types import Dims, Tensor


def test_children_come_first_left_to_right_and_once() -> None:
    x, y = (build("access-tensor", Tensor(name, Dims((2,)), "float32")) for name in "xy")
    pair = build("access-product", y, x, 0)
    root = build("compute", "elementwise-add", pair)
    assert [*postorder(root, x)] == [y, x, pair, root]
    assert [*postorder(root, x)] == [*postorder(root), *postorder(x, without={x})]
    assert [*postorder(root, without={pair})] == [root]


def test_information_of_a_program_is_that_of_its_terms() -> None:
    w, x = (build("access-tensor", Tensor(n, Dims((2,)), "float32", constant=n == "w")) for n in "wx")
    double = build("compute", "elementwise-add", build("access-product", w, w, 0))
    total = build("compute", "elementwise-add", pair := build("access-product", x, double, 0))
    program = Program(total, layers={"doubled": double, "other": (other := build("compute", "negative", w))})
    info = program.info
    assert program.info is info
    assert info.order == tuple(postorder(total))
    assert info.users == {
        term: [user for user in info.order for child in user.children if child is term] for term in info.order
    }
    assert len(info.users[w]) == 2
    assert info.constant == constants_under(total, double, other)
    assert {term: info.constant[term] for term in (w, double, x, pair, other)} == {
        w: True, double: True, x: False, pair: False, other: True,
    }  # fmt: skip


def test_roots_are_replaced_with_the_names_of_a_program() -> None:
    program = gl.parse("(input x (shape 2) float32) (let ((a (compute relu (access-tensor x)))) (compute negative a))")
    (relu,) = program.names.values()
    terms = [*program.roots, relu]
    changed = rebuild_all(terms, lambda t, _: build("compute", "abs", *t.children) if t is relu else None)
    renamed = program.with_roots(changed)
    assert renamed.term is changed[0]
    assert renamed.names == {"a": renamed.term.children[0]}
    assert program.with_roots(changed[:1]).names == {}
