"""Tests constants: terms, folding, e-graphs, classes and prices agree on which terms are constant."""

from __future__ import annotations

import numpy as np
import pytest

import glenside as gl
from glenside.analysis.liveness import taken
from glenside.egraph.encode import program_text
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.ir.errors import BadInput
from glenside.ir.operator import OPERATORS
from glenside.ir.program import Program
from glenside.ir.term import Term, build, constants_under, postorder
from glenside.ir.types import Dims, Tensor
from glenside.passes.extraction import constant_classes
from glenside.rewrites import of_families
from glenside.targets.mpc.analysis import secrets

VALUE = np.arange(6, dtype=np.float32).reshape(2, 3)


def leaf(name: str, constant: bool) -> Term:
    return build("access-tensor", Tensor(name, Dims((2, 3)), "float32", constant))


W, X, TWO = leaf("w", True), leaf("x", False), build("full", (2, 3), "2", "float32")
BOX = build("opaque", "box", ((), (2, 3)), "float32", W)


def joined(a: Term, b: Term) -> Term:
    return build("access-concatenate", a, b, 0)


CASES = [
    (W, True),
    (X, False),
    (TWO, True),
    (joined(W, TWO), True),
    (joined(W, X), False),
    (BOX, False),
    (build("compute", "relu", BOX), False),
    (joined(BOX, W), False),
    (build("opaque", "box", ((), (2, 3)), "float32"), False),
]


@pytest.mark.parametrize(("term", "constant"), CASES)
def test_one_answer_everywhere(term: Term, constant: bool) -> None:
    program = Program(term, constants={"w": VALUE} if "w" in str(term) else {})
    nodes = list(postorder(term))
    assert constants_under(term)[term] is program.info.constant[term] is constant
    assert f"({'constant' if constant else 'varies'} (program-node {len(nodes) - 1}))" in program_text(nodes)
    request = Request.of(nodes, of_families(("constant-analyses",)), {}, Limits())
    snapshot = Saturation(request).snapshot(program.tensors)
    assert constant_classes(snapshot)[snapshot.program[len(nodes) - 1]] is constant
    folded = gl.fold(program).term
    assert (folded is term) is (not constant or not term.children)
    assert secrets(program, ["w"])[term].secret is not constant


def test_a_black_box_of_constants_takes_memory_as_any_other() -> None:
    with pytest.raises(BadInput, match="the black box box"):
        taken(BOX)


def test_nothing_but_leaves_and_black_boxes_decides() -> None:
    for record in OPERATORS.values():
        assert record.is_constant(()) is not (record.opaque or record.name == "access-tensor")
        assert not record.is_constant([True, False])
