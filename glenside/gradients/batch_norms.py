"""Lets batch norms use the statistics of their batch in training, and update running averages for inference.

Batch norms are matched in the form that `glenside.builder.pointwise.batch_norm` and the ONNX importer build: x * scale
+ shift with scale = gamma / sqrt(variance + eps) and shift = beta - mean * scale, both from constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from glenside.builder.pointwise import add, cast, filled, multiply
from glenside.builder.reductions import channel_statistics
from glenside.ir.dtypes import FLOATS
from glenside.ir.program import Program
from glenside.ir.rational import one_minus
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import Tensor

_MOVES = ("access", "access-reshape", "access-broadcast", "cast")
"""Operators between a vector of channels and the tensor that it scales."""


@dataclass(frozen=True)
class _BatchNorm:
    """A matched batch norm: its result, add(multiply(x, scale), shift), the positions of its operands, and its channel
    axis.
    """

    result: Term
    mean: Term
    variance: Term
    scaled: int
    x: int
    axis: int


def batch_statistics(program: Program, momentum: str) -> tuple[Program, Mapping[str, Term]]:
    """Returns the network with batch statistics, and the next running averages by name.

    An average becomes momentum * average + (1 - momentum) * statistic. Variances are those of the batch, divided by its
    size, as in ONNX. If two batch norms share a constant, both are unchanged.
    """
    found = {norm.result: norm for norm in _batch_norms(program.term)}
    after: dict[str, Term] = {}

    def changed(term: Term, children: tuple[Term, ...]) -> Term | None:
        norm = found.get(term)
        if norm is None:
            return None
        scaled, shift = (_operands(term)[i] for i in (norm.scaled, 1 - norm.scaled))
        scale = _operands(scaled)[1 - norm.x]
        x = _operands(children[0].children[norm.scaled])[norm.x]
        now = dict(zip((norm.mean, norm.variance), channel_statistics(x, norm.axis), strict=True))
        now = {leaf: cast(statistic, leaf.access.dtype) for leaf, statistic in now.items()}
        for leaf, statistic in now.items():
            share = multiply(statistic, build("full", statistic.access.dims, one_minus(momentum), leaf.access.dtype))
            after[_name(leaf)] = add(multiply(leaf, filled(leaf, momentum)), share)
        scale, shift = rebuild_all([scale, shift], lambda leaf, _: now.get(leaf))
        return add(multiply(x, scale), shift)

    roots = rebuild_all([*program.roots, *program.names.values()], changed)
    return program.with_roots(roots), after


def _batch_norms(root: Term) -> Iterator[_BatchNorm]:
    terms = [*postorder(root)]
    uses: dict[Term, list[Term]] = {}
    for term in terms:
        for operand in {_unmoved(operand) for operand in _operands(term)}:
            uses.setdefault(operand, []).append(term)
    for scale in terms:
        variance = _variance(scale)
        norm = None if variance is None else _batch_norm_of(scale, variance, uses)
        if norm is not None and len(uses[norm.mean]) == len(uses[norm.variance]) == 1:
            yield norm


def _batch_norm_of(scale: Term, variance: Term, uses: Mapping[Term, Sequence[Term]]) -> _BatchNorm | None:
    """Returns the batch norm of a scale, or None."""
    products = [t for t in uses.get(scale, ()) if _kind(t) == "elementwise-mul"]
    means = [t for t in products if any(_is_constant(_unmoved(o)) and o.access.rank == 1 for o in _operands(t))]
    if len(products) != 2 or len(means) != 1:
        return None
    (scaled,) = (t for t in products if t is not means[0])
    shifts = [t for t in uses.get(means[0], ()) if _kind(t) == "subtract" and _unmoved(_operands(t)[1]) is means[0]]
    results = [t for t in uses.get(scaled, ()) if _kind(t) == "elementwise-add"]
    if len(shifts) != 1 or len(results) != 1:
        return None
    cores = [_unmoved(o) for o in _operands(results[0])]
    vector = next(o for o in _operands(scaled) if _unmoved(o) is scale)
    axis = _channels(vector)
    if {*cores} != {scaled, shifts[0]} or axis is None:
        return None
    mean = next(core for o in _operands(means[0]) if (core := _unmoved(o)) is not scale)
    return _BatchNorm(results[0], mean, variance, cores.index(scaled), 1 - _operands(scaled).index(vector), axis)


def _variance(scale: Term) -> Term | None:
    """Returns the constant v of gamma / sqrt(v + eps)."""
    if _kind(scale) != "elementwise-div":
        return None
    root = _unmoved(_operands(scale)[1])
    total = _unmoved(root.children[0]) if root.operator.name == "compute" and root.attributes[0] == "sqrt" else root
    if _kind(total) != "elementwise-add":
        return None
    leaf, epsilon = map(_unmoved, _operands(total))
    return leaf if _is_constant(leaf) and epsilon.operator.name == "full" else None


def _channels(vector: Term) -> int | None:
    """Returns the axis of a vector of channels before it is broadcast."""
    while vector.operator.name in ("access", "access-broadcast"):
        (vector,) = vector.children
    long = [axis for axis, size in enumerate(vector.access.dims) if size != 1]
    if len(long) > 1 or vector.access.rank < 2:
        return None
    return long[0] if long else 1


def _operands(term: Term) -> tuple[Term, ...]:
    """Returns the two operands of a pairwise computation, or an empty tuple."""
    if term.operator.name != "compute" or term.children[0].operator.name != "access-product":
        return ()
    return term.children[0].children


def _kind(term: Term) -> str:
    return str(term.attributes[0]) if _operands(term) else ""


def _unmoved(term: Term) -> Term:
    while term.operator.name in _MOVES:
        (term,) = term.children
    return term


def _is_constant(term: Term) -> bool:
    tensor = term.attributes[0] if term.attributes else None
    return isinstance(tensor, Tensor) and tensor.constant and tensor.dtype in FLOATS


def _name(leaf: Term) -> str:
    tensor = leaf.attributes[0]
    assert isinstance(tensor, Tensor)
    return tensor.name
