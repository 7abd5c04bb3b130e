"""What is made of constants alone, and so can be computed before any run: of terms here, of classes in an e-graph.

What an operator adds to it is `Operator.is_constant`; every other place that asks is a loop over that.
"""

from __future__ import annotations

from glenside.ir.term import Term, postorder
from glenside.ir.types import Tensor


def constants_under(*roots: Term) -> dict[Term, bool]:
    """For each term under some roots whether it is made of constants alone: no input, no black box."""
    found: dict[Term, bool] = {}
    for term in postorder(*roots):
        declared = any(isinstance(a, Tensor) and a.constant for a in term.attributes)
        found[term] = term.operator.is_constant((found[c] for c in term.children), declared)
    return found
