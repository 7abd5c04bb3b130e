"""Defines `(compute KIND A)`, the operator of all compute types, which are records of other modules."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from glenside.ir.operand import Array, Operand
from glenside.ir.operator import COMPUTES, Category, Compute, Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_number
from glenside.ir.rational import exact
from glenside.ir.scalar import require_computed
from glenside.ir.term import Term
from glenside.ir.types import AccessType

# The type of (compute KIND A) without its dtype, in the algebra of glenside.ir.types, which the e-graph reads too.
CATEGORY_RESULT: dict[Category, Callable[[Any], Any]] = {
    Category.POINTWISE: lambda a: a,
    Category.FOLD: lambda a: a.with_dims(a.dims.remove(a.split)),
    Category.REDUCTION: lambda a: a.with_dims(a.shape),
    Category.NORMALIZATION: lambda a: a,
    Category.CONTRACTION: lambda a: a.with_dims(a.shape),
}


def compute_text(name: str, *parameters: object) -> str:
    """Returns the canonical text of a compute type: `relu`, `(clip 0 6)`."""
    return f"({' '.join([name, *map(str, parameters)])})" if parameters else name


def name_of(term: Term) -> str:
    """Returns the name of a term for messages: its compute type, or else its operator."""
    return str(term.attributes[0]) if term.operator is compute else term.operator.name


@lru_cache(maxsize=4096)
def parse_compute(text: str) -> tuple[Compute, tuple[str, ...]]:
    """Returns the record and the parameters of a canonical text. Raises TypeMismatch."""
    name, *parameters = (text[1:-1].split() or [""]) if text.startswith("(") else [text]
    require(name in COMPUTES and compute_text(name, *parameters) == text, "compute", "a compute type", text)
    compute = COMPUTES[name]
    wanted = " ".join(f.name for f in compute.parameters) or "none"
    count = len(parameters) == len(compute.parameters)
    require(count, name, f"the parameters {wanted}", " ".join(parameters) or "none")
    for field, parameter in zip(compute.parameters, parameters, strict=True):
        if field.kind is Kind.KEYWORD:
            require(parameter in field.choices, name, f"{field.name} to be {' or '.join(field.choices)}", parameter)
        else:
            require(exact(parameter) is not None, name, f"{field.name} to be an exact number", parameter)
    return compute, tuple(parameters)


def compute_of(term: Term) -> tuple[Compute, tuple[str, ...]]:
    """Returns the record and the parameters of a term's compute type."""
    return parse_compute(str(term.attributes[0]))


def _check_compute(kind: str, a: AccessType) -> None:
    compute, parameters = parse_compute(kind)
    require_computed(compute.name, a.dtype, a)
    if compute.category in (Category.FOLD, Category.CONTRACTION):
        require(a.split < a.rank, compute.name, "an item of at least one axis", a)
    if compute.category is Category.FOLD:
        require(a.item[0] > 0, compute.name, "at least one operand along the first item axis", a)
    if compute.category is Category.CONTRACTION:
        require_number(compute.name, a)
    if compute.check is not None:
        compute.check(a, *parameters)


def _result_compute(kind: str, a: AccessType) -> AccessType:
    compute, _ = parse_compute(kind)
    result: AccessType = CATEGORY_RESULT[compute.category](a)
    if compute.dtype == "widen":
        return result.widened()
    return result if compute.dtype == "same" else result.with_dtype(compute.dtype)


def _evaluate_compute(arithmetic: Any, kind: str, a: Operand, **out: Array) -> Array:
    compute, parameters = parse_compute(kind)
    assert compute.evaluate is not None, "a compute type has a scalar expression or its own evaluate"
    result: Array = compute.evaluate(arithmetic, a, *parameters, **out)
    return result


def _operations(kind: str, a: AccessType) -> int:
    """Counts one operation per element that is computed, or combined with a partial result."""
    record, _ = parse_compute(kind)
    if record.category in (Category.FOLD, Category.CONTRACTION):
        return a.dims.remove(a.split).product() * max(a.item[0] - 1, 1)
    return a.size


def _adjoint(terms: Any, g: Any, kind: str, a: Any) -> tuple[Any]:
    record, parameters = parse_compute(kind)
    if record.adjoint is not None:
        return (record.adjoint(terms, g, a, *parameters),)
    assert record.scalar is not None, f"{record.name} has no derivative"
    return (terms.of_scalar(g, record.expression(*parameters), record.category, kind, a),)


compute = operator(
    name="compute",
    kind=OperatorKind.COMPUTE,
    fields=fields(kind=Kind.COMPUTE, a=Kind.TERM),
    check=_check_compute,
    result=_result_compute,
    evaluate=_evaluate_compute,
    adjoint=_adjoint,
    doc="Computes each item of a, as its compute type defines.",
    linear=lambda kind, a: parse_compute(kind)[0].linear,
    keeps=lambda kind, a: parse_compute(kind)[0].keeps,
    typed=True,
    stores=lambda out, kind, a: parse_compute(kind)[0].scalar is not None,
    operations=_operations,
    examples=example("(compute (clip 0 6) (access (access-tensor x) 1))", x="m n"),
)
