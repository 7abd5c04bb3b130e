"""Which classes are made of constants alone, so that what is done to them is done beforehand, and which are not."""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.type_rules import columns
from glenside.ir.operator import OPERATORS, Kind
from rewrites.declare import rule

ANALYSES = "constant-analyses"


def _propagated() -> tuple[Clause, ...]:
    clauses = []
    for operator in OPERATORS.values():
        names = [c for c, sort in columns(operator) if sort == "Access"]
        several = any(f.kind is Kind.TERMS for f in operator.fields)
        if names and not several and operator.is_constant([True] * len(names)):
            node = f"({' '.join([operator.name, *(c for c, _ in columns(operator))])})"
            clauses.append(Clause(f"(= root {node}) {' '.join(f'(constant {n})' for n in names)}", "(constant root)"))
            clauses += [Clause(f"(= root {node}) (varies {n})", "(varies root)") for n in names]
    return tuple(clauses)


@rule(
    ANALYSES,
    Example(
        "(compute relu (access-pad (access (access-tensor x) 1) zero-padding 0 1 1))", {"x": "m n"}, "(constant $x)"
    ),
)
def what_is_made_of_constants_is_constant() -> tuple[Clause, ...]:
    """constant(f(a, b)) where constant(a) and constant(b), varies(f(a, b)) where either does, for every operator but
    black boxes.

    An analysis: it adds no e-node. Sound because an operator's value depends on those of its operands alone.
    """
    return _propagated()
