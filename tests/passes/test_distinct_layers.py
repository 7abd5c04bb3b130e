"""Tests splitting a program into its distinct layers, and assembling it from the results for these."""

from __future__ import annotations

from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import Dims, Tensor
from glenside.passes.distinct_layers import distinct_layers, reassembled

SIZE = 6


def leaf(name: str) -> Term:
    return build("access-tensor", Tensor(name, Dims((4, SIZE)), "int32"))


def product(a: Term, b: Term) -> Term:
    pair = build("access-product", build("access", a, 1), build("access", b, 1), 0)
    return build("compute", "dot-product", pair)


def test_layers_that_are_views_are_in_the_program_as_they_are() -> None:
    """As mapped layers are: a split of one that is taken for another's would leave none of it to compare."""
    layer = product(leaf("x"), leaf("w"))
    result = build("compute", "relu", build("access", layer, 0))
    program = Program(result, layers={"one": layer})
    apart = distinct_layers(program)
    views = [build("access", build("access", own, 0), own.access.split) for own in apart.products]
    found = reassembled(program, apart, views, apart.body)
    assert found.layers["one"].operator.name == "access"
    assert found.layers["one"] in {*postorder(found.term)}
    assert found.layers["one"].type == layer.type
