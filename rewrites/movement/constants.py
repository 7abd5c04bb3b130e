"""Finds classes that depend only on constants, so that they can be computed before run time, and all other classes."""

from __future__ import annotations

from glenside.egraph.pattern import of_operator
from glenside.ir.operator import OPERATORS, Kind, Operator
from glenside.rewrites.declare import ROOT, Clauses, Example, analysis, when
from glenside.rewrites.facts import ACCESS, access_at, constant, varies
from glenside.rewrites.terms import Variable


def _propagated(operator: Operator) -> Clauses:
    node = of_operator(operator)
    arguments = [Variable(column.name, column.sort) for column in node.columns]
    operands = [argument for argument in arguments if argument.sort is ACCESS]
    root = ROOT == node(*arguments)
    return (
        when(root, *map(constant, operands)).then(constant(ROOT)),
        *(when(root, varies(operand)).then(varies(ROOT)) for operand in operands),
    )


@analysis(
    "constant-analyses",
    Example(
        "(compute relu (access-pad (access (access-tensor x) 1) zero-padding 0 1 1))",
        {"x": "m n"},
        [constant(access_at("x"))],
    ),
)
def what_is_made_of_constants_is_constant() -> Clauses:
    """constant(f(a, b)) where constant(a) and constant(b), varies(f(a, b)) where either does, for all but black boxes.

    An analysis: it adds no e-node. Sound because an operator's value depends on those of its operands alone.
    """
    known = ((operator, {f.kind for f in operator.fields}) for operator in OPERATORS.values() if not operator.opaque)
    return tuple(_propagated(operator) for operator, has in known if Kind.TERM in has and Kind.TERMS not in has)
