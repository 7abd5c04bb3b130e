"""The traffic of each operator and compute type with a secret operand, as SPU 0.9.5 runs the output of `export_jax`.

Operators outside these tables are priced by their records: movement to known indices and linear operators send nothing,
matrix instructions send as much as matrix products. None: there is no formula, because it was not measured or depends
on more than the operands. `node_traffic` prices terms and e-nodes alike: an operator with its attributes and operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from glenside.ir.dtypes import FLOATS
from glenside.ir.operator import OPERATORS
from glenside.ir.operators.compute import parse_compute
from glenside.ir.operators.tiled_products import matrices_of
from glenside.ir.rational import exact_numbers
from glenside.ir.term import weave
from glenside.ir.types import AccessType, Dims, Type
from glenside.targets.mpc.analysis import Operand, repeated
from glenside.targets.mpc.semi2k import NOTHING, Semi2k, Traffic

Price = Callable[..., Traffic | None]


def node_traffic(
    protocol: Semi2k, operator: str, attributes: Sequence[Any], operands: Sequence[Operand], result: Type
) -> Traffic | None:
    """Returns the traffic of one node; None without a formula.

    Results of dot products and tile instructions keep twice the fractional bits: a `truncate`, or else
    `product_truncation`, prices their truncation. Elementwise products and linear maps are truncated at once.
    """
    if not any(operand.secret for operand in operands):
        return NOTHING
    record = OPERATORS[operator]
    if operator == "compute":
        compute, parameters = parse_compute(str(attributes[0]))
        if compute.name in COMPUTE_PRICES:
            result = _once(result, repeated(str(attributes[0]), operands[0]))
            return COMPUTE_PRICES[compute.name](protocol, operands[0], result, *parameters)
    elif operator in OPERATOR_PRICES:
        return OPERATOR_PRICES[operator](protocol, operands, result, *attributes)
    arguments = weave(record, [operand.type for operand in operands], attributes)
    if record.matrices is not None:
        groups, rows, depth, columns = record.matrices(*arguments)
        return protocol.matmul(rows, depth, columns, groups) if all(operand.secret for operand in operands) else NOTHING
    return NOTHING if record.is_addressed or record.is_linear(*arguments) else None


def product_truncation(
    protocol: Semi2k, operator: str, attributes: Sequence[Any], operands: Sequence[Operand], result: AccessType
) -> Traffic:
    """Returns the traffic to truncate a product at once; SPU truncates each matmul of a batch separately."""
    if result.dtype not in FLOATS or not any(operand.secret for operand in operands):
        return NOTHING
    if operator == "compute":
        pair = operands[0]
        if attributes[0] != "dot-product" or pair.shared is None:
            return NOTHING
        a, b = pair.parts
        groups, rows, depth, columns = matrices_of(a.access, b.access, pair.shared)
        return protocol.matmul_truncation(rows, depth, columns, groups)
    record = OPERATORS[operator]
    if record.matrices is None:
        return NOTHING
    groups, rows, depth, columns = record.matrices(*weave(record, [o.type for o in operands], attributes))
    return protocol.matmul_truncation(rows, depth, columns, groups)


def _once(result: Type, repeats: frozenset[int]) -> Type:
    """Returns the type of the distinct elements of a result: only these are computed."""
    if not repeats or not isinstance(result, AccessType):
        return result
    return result.with_dims(Dims(1 if axis in repeats else n for axis, n in enumerate(result.dims)))


# Products


def _times(protocol: Semi2k, elements: int, dtype: str, a: bool, b: bool) -> Traffic:
    """Returns the traffic of an elementwise product, secret `a` and `b`: with a public one each party scales its share.

    Fixed-point products are truncated, integers are not.
    """
    product = protocol.multiplication(elements) if a and b else NOTHING
    return product + protocol.truncation(elements) if dtype in FLOATS else product


def _dot_product(protocol: Semi2k, operand: Operand, result: AccessType) -> Traffic | None:
    if operand.shared is None:  # elements are multiplied, then added
        size = operand.access.dims.remove(operand.access.split).product()
        return _folded(operand, lambda a, b: _times(protocol, size, result.dtype, a.secret, b.secret))
    a, b = operand.parts
    groups, rows, depth, columns = matrices_of(a.access, b.access, operand.shared)
    return protocol.matmul(rows, depth, columns, groups) if a.secret and b.secret else NOTHING


def _linear_map(
    protocol: Semi2k, operands: Sequence[Operand], result: AccessType, axis: int, rows: int, coefficients: str
) -> Traffic:
    """Returns the traffic of a linear map: additions, and one product by a constant for each row with denominators."""
    count, numbers = operands[0].access.dims[axis], exact_numbers(coefficients) or ()
    cut = [any(n.denominator != 1 for n in numbers[row * count : (row + 1) * count]) for row in range(rows)]
    return protocol.truncation(result.dims.remove(axis).product() * sum(cut))


# Folds


def _folded(operand: Operand, step: Callable[[Operand, Operand], Traffic | None]) -> Traffic | None:
    """Returns the traffic of a left fold; a step with public operands sends nothing and has a public result."""
    total = NOTHING
    left, *others = operand.along() or (operand,)
    for right in others:
        if left.secret or right.secret:
            sent = step(left, right)
            if sent is None:
                return None
            total += sent
        left = Operand(left.type, left.secret or right.secret)
    return total


def _multiply(protocol: Semi2k, operand: Operand, result: AccessType) -> Traffic | None:
    """Returns the traffic of a product; SPU's compiler merges several public factors into one."""
    total, scaled = NOTHING, False
    left, *others = operand.along()
    if any(part.number == 0 for part in (left, *others)):
        return NOTHING
    for right in others:
        one_public = left.secret != right.secret
        if 1 not in (left.number, right.number) and (left.secret or right.secret) and not (scaled and one_public):
            total += _times(protocol, result.size, result.dtype, left.secret, right.secret)
            scaled = one_public
        left = Operand(left.type, left.secret or right.secret)
    return total


def _divide(protocol: Semi2k, operand: Operand, result: AccessType) -> Traffic | None:
    """Returns the traffic of a quotient; with a public divisor it is a product by its reciprocal."""

    def step(a: Operand, b: Operand) -> Traffic | None:
        if result.dtype not in FLOATS:
            return None
        if not b.secret:  # a product for numbers of the program; for others SPU truncates twice
            return NOTHING if b.number == 1 else protocol.truncation(result.size).times(1 if b.known else 2)
        if a.secret:
            return protocol.function("quotient", result.size)
        reciprocal = protocol.function("reciprocal", result.size)
        return reciprocal if reciprocal is None or a.number == 1 else reciprocal + protocol.truncation(result.size)

    return _folded(operand, step)


def _is_ordered(dtype: str) -> bool:
    """True if the sign of a difference orders two numbers: floats, stored as integers in SPU, and signed integers."""
    return dtype in FLOATS or dtype.startswith("int")


def _maximum(protocol: Semi2k, operand: Operand, result: AccessType) -> Traffic | None:
    return _folded(operand, lambda a, b: protocol.maximum(result.size))


def _compare(protocol: Semi2k, operand: Operand, result: AccessType, relation: str) -> Traffic | None:
    if not _is_ordered(operand.access.dtype):
        return None
    return protocol.equality(result.size) if relation in ("eq", "ne") else protocol.sign(result.size)


def _select(protocol: Semi2k, operand: Operand, result: AccessType) -> Traffic | None:
    """Returns the traffic of a selection, which tests if the condition is 0."""
    condition, then, otherwise = operand.along()
    if not condition.secret:
        return NOTHING
    if not _is_ordered(result.dtype):
        return None
    bit = protocol.equality(result.size) + protocol.ring_number(result.size)
    return bit + protocol.selection(result.size) if then.secret or otherwise.secret else bit


# Elements by themselves


def _each(price: Callable[[Semi2k, int], Traffic | None]) -> Price:
    """Returns a price that depends on the number of result elements alone."""
    return lambda protocol, operand, result, *_: price(protocol, result.size)


def _if_ordered(price: Price) -> Price:
    """Returns a price that is None for dtypes that a sign of a difference does not order."""
    return lambda protocol, operand, result, *parameters: (
        price(protocol, operand, result, *parameters) if _is_ordered(result.dtype) else None
    )


def _function(name: str) -> Price:
    return _each(lambda protocol, n: protocol.function(name, n))


# Whole items


def _reduced(protocol: Semi2k, operand: Operand, each: Callable[[int], Traffic]) -> Traffic:
    """Returns the traffic of a tree reduction of each item; an item of equal elements counts as a single one."""
    count = operand.access.item.product()
    if count < 2:
        return NOTHING
    rounds = (count - 1).bit_length()
    sent, one = each(operand.rows * (rounds if operand.item_repeats else count - 1)), each(1)
    return Traffic(sent.bytes, one.messages * rounds if sent.bytes else 0, sent.truncated)


def _extreme(protocol: Semi2k, operand: Operand, result: AccessType) -> Traffic:
    return _reduced(protocol, operand, protocol.maximum)


def _reduce_prod(protocol: Semi2k, operand: Operand, result: AccessType) -> Traffic:
    return _reduced(protocol, operand, lambda n: _times(protocol, n, result.dtype, True, True))


def _mean(protocol: Semi2k, operand: Operand, result: AccessType) -> Traffic:
    """Returns the traffic of a mean: one truncation, none for items of equal elements."""
    return (
        protocol.truncation(result.size) if operand.access.item.product() > 1 and not operand.item_repeats else NOTHING
    )


def _powers(protocol: Semi2k, operand: Operand, last: str, elements: int) -> Traffic | None:
    """Returns the traffic of a softmax: the maximum of each item, exp of the differences, and one more function."""
    rows = prod(n for axis, n in enumerate(operand.access.shape) if axis not in operand.repeats)
    powers, final = protocol.function("exp", rows * operand.access.item.product()), protocol.function(last, elements)
    if powers is None or final is None:
        return None
    return _reduced(protocol, operand, protocol.maximum) + powers + final


def _softmax(protocol: Semi2k, operand: Operand, result: AccessType) -> Traffic | None:
    if operand.access.item.product() == 1:
        return protocol.function("exp", result.size)
    return _powers(protocol, operand, "quotient", result.size)


def _log_softmax(protocol: Semi2k, operand: Operand, result: AccessType) -> Traffic | None:
    if operand.access.item.product() == 1:
        return NOTHING
    return _powers(protocol, operand, "log", result.shape.product() if result.size else 0)


# Other dtypes, computed places


def _cast(protocol: Semi2k, operands: Sequence[Operand], result: AccessType, dtype: str) -> Traffic | None:
    """Returns the traffic of a cast: floats round towards zero to integers; that of bits depends on their origin."""
    given = operands[0].access.dtype
    if dtype == given or (dtype in FLOATS and given != "bool"):
        return NOTHING
    return protocol.whole(result.size) if given in FLOATS and dtype in ("int32", "int64") else None


def _gather(protocol: Semi2k, operands: Sequence[Operand], result: AccessType, axis: int) -> Traffic | None:
    """Returns the traffic of a gather: nothing for public indices, else unknown."""
    return None if operands[1].secret else NOTHING


# (protocol, operands, type of the result, *attributes)
OPERATOR_PRICES: Mapping[str, Price] = {
    "truncate": lambda protocol, operands, result: protocol.truncation(result.size),
    "linear-map": _linear_map,
    "cast": _cast,
    "access-gather": _gather,
}

# (protocol, operand, type of the result, *parameters)
COMPUTE_PRICES: Mapping[str, Price] = {
    "dot-product": _dot_product,
    "elementwise-mul": _multiply,
    "elementwise-div": _divide,
    "maximum": _if_ordered(_maximum),
    "minimum": _if_ordered(_maximum),
    "compare": _compare,
    "select": _select,
    "relu": _if_ordered(_each(Semi2k.maximum)),
    "clip": _if_ordered(_each(lambda protocol, n: protocol.maximum(n).times(2))),
    "abs": _if_ordered(_each(Semi2k.absolute)),
    "leaky-relu": _each(lambda protocol, n: protocol.maximum(n) + protocol.truncation(n)),
    "floor": _each(Semi2k.bits),
    "ceil": _each(Semi2k.bits),
    **{name: _function(name) for name in ("exp", "log", "sqrt", "sigmoid", "tanh", "erf")},
    "reduce-max": _if_ordered(_extreme),
    "reduce-min": _if_ordered(_extreme),
    "reduce-prod": _reduce_prod,
    "reduce-mean": _mean,
    "softmax": _softmax,
    "log-softmax": _log_softmax,
}
