"""The order of the terms of a program: children first, and kept of the last large programs alone."""

from __future__ import annotations

import gc
import weakref

from glenside.ir import term as terms
from glenside.ir.term import Term, build, postorder, rebuild
from glenside.ir.types import Dims, Tensor


def _chain(name: str, length: int) -> Term:
    term = build("access-tensor", Tensor(name, Dims((2, 3)), "float32"))
    for _ in range(length):
        term = build("compute", "negative", build("compute", "elementwise-add", build("access-product", term, term, 0)))
    return term


def test_children_come_first_left_to_right_and_once() -> None:
    x, y = (build("access-tensor", Tensor(name, Dims((2,)), "float32")) for name in "xy")
    pair = build("access-product", y, x, 0)
    root = build("compute", "elementwise-add", pair)
    assert [*postorder(root, x)] == [y, x, pair, root]
    assert [*postorder(root, x)] == [*postorder(root), *postorder(x, without={x})]
    assert [*postorder(root, without={pair})] == [root]


def test_what_is_asked_twice_is_the_same_and_may_be_changed_in_between() -> None:
    root = _chain("twice", 1_000)
    before = [*postorder(root)]
    assert len(before) == 3_001
    other = rebuild(root, lambda term, _: before[-1].children[0] if not term.children else None)
    assert other is not root
    assert [*postorder(root)] == before


def test_no_more_than_a_few_large_programs_are_kept() -> None:
    kept = []
    for i in range(8):
        root = _chain(f"kept-{i}", 400)
        assert sum(1 for _ in postorder(root)) == 1_201
        kept.append(weakref.ref(root))
    del root
    gc.collect()
    assert len(terms._ORDERS) <= 4
    assert [ref() is None for ref in kept[:4]] == [True] * 4
