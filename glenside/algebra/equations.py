"""Names the equations that each step of the algebra uses: `glenside rules NAME` shows each, with its proof."""

from __future__ import annotations

from collections.abc import Mapping

from glenside.algebra.monomials import NormalForm
from glenside.algebra.row_operators import Affine
from glenside.ir.term import Term, postorder

ASSOCIATE = "products-associate"
COMMUTE = "products-and-sums-commute"
DISTRIBUTE = "products-distribute-over-sums"
SIGNS = "signs-quotients-and-means-are-factors"
MERGE = "products-that-share-an-operand-are-one"
SLICES = "consecutive-slices-are-one"
DEPTH = "depth-is-split"
FACTORS = "factors-cross-products"
LINEAR = "factors-cross-what-is-linear"
NAMES = "names-of-indices-cross-products"
ROWS = "row-operators-cross-products"
COMPOSE = "row-operators-compose"
IDENTITY = "identity-matrices-change-nothing"
ADJOINT = "overlap-add-is-the-adjoint-of-windows"

OF_MOVEMENT: Mapping[str, str] = {
    **dict.fromkeys(("access", "access-reshape", "access-squeeze", "access-insert-axis"), NAMES),
    **dict.fromkeys(("access-transpose", "access-broadcast"), NAMES),
    **dict.fromkeys(("access-windows", "access-slice", "access-pad", "access-gather"), ROWS),
    "access-concatenate": DEPTH,
    "full": FACTORS,
}
"""Operator that a normal form expands -> the equation by which it does."""
OF_COMPUTES: Mapping[str, str] = {
    **dict.fromkeys(("elementwise-add", "reduce-sum"), DISTRIBUTE),
    **dict.fromkeys(("negative", "subtract", "elementwise-div", "reduce-mean"), SIGNS),
    "elementwise-mul": FACTORS,
    "dot-product": ASSOCIATE,
}
"""Compute type that a normal form expands -> the equation by which it does."""


def of_step(term: Term) -> str | None:
    """Returns the equation by which a normal form expands a term."""
    if term.operator.name == "compute":
        return OF_COMPUTES.get(str(term.attributes[0]))
    return OF_MOVEMENT.get(term.operator.name)


def of_form(form: NormalForm) -> tuple[str, ...]:
    """Returns the equations between a term and the monomials of its normal form, in any order of their operands."""
    terms = [*postorder(form.term, without={*form.leaves})]
    steps = [of_step(term) for term in terms]
    found = dict.fromkeys(name for name in steps if name is not None)
    several = [one for one in form.monomials if len(one.operands) + (one.scale != 1) > 1]
    rows = [row for one in several for row in one.rows]
    holds = {
        ASSOCIATE: any(len(one.operands) > 2 for one in form.monomials),
        DISTRIBUTE: len(form.monomials) > 1,
        ROWS: bool(rows),
        FACTORS: bool(several),
    }
    names = [name for name in found if holds.get(name, True)]
    names += [LINEAR] if FACTORS in names and (rows or DEPTH in names) else []
    padded = any(isinstance(row, Affine) and not row.is_total for one in form.monomials for row in one.rows)
    left_out = not padded and any(term.operator.name == "access-pad" for term in terms)
    names += [DEPTH] if left_out and DEPTH not in names else []  # zeros that nothing but a sum reads
    names += [COMPOSE] if steps.count(ROWS) > len({*rows}) else []
    names += [COMMUTE] if {ASSOCIATE, DISTRIBUTE}.intersection(names) else []
    return tuple(sorted(names, key=_ORDER.index))


_ORDER = [ASSOCIATE, DISTRIBUTE, DEPTH, ROWS, COMPOSE, FACTORS, LINEAR, SIGNS, NAMES, COMMUTE]
"""The equations of forms: first those that change most."""
