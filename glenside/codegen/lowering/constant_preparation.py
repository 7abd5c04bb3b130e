"""Folds constants before a program is lowered."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from math import copysign, isfinite

from glenside.codegen.loop_ir.ir import Formula
from glenside.codegen.loop_ir.scalar_expr import number
from glenside.codegen.lowering.concat_in_place import parts_of
from glenside.codegen.lowering.materialize import is_widening
from glenside.codegen.lowering.quantized_weights import quantized_weights
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.passes.constant_folding import fold


def prepared(program: Program, keep: Collection[Term] = (), *, lazily: bool = False) -> Program:
    """Folds computed or concatenated constants; constants that are only moved are read in place.

    keep  terms that are not folded

    Weights of products that are stored as integers and scales stay so.
    """
    kept = {*quantized_weights(program), *keep}
    return fold(program, [t for t in program.info.order if t in kept or _is_read_in_place(t)], lazily=lazily)


def _is_read_in_place(term: Term) -> bool:
    """True if a term of constants is read in place; a concatenation is not, as each run would copy its parts."""
    return (term.operator.moves and parts_of(term) is None) or (is_widening(term) and term.access.size > 1)


def single(leaf: Term, value: object) -> dict[Term, Formula]:
    """Returns a constant of one element as a number; empty for infinities, not-a-number and -0."""
    if not isinstance(value, bool | int | float) or not isfinite(value) or (value == 0 and copysign(1, value) < 0):
        return {}
    return {leaf: number(Fraction(value), leaf.access.dtype)}
