"""Derives a compute type's evaluation, temporaries and type rule from its scalar expression.

A single primitive of whole operands is one call. Other expressions are computed in blocks, straight into the result
where a primitive takes a destination, so a chain such as min(max(x, lo), hi) needs no memory besides its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import glenside.ir.primitives  # noqa: F401 (fills the table that expressions are built with)
from glenside.ir.blockwise import PART, block_size, blocks, row_major
from glenside.ir.errors import TypeMismatch
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Category, Compute, Example, Keeps, of_compute, require
from glenside.ir.scalar import Applied, Element, Number, Scalar, arity, gives, is_linear, keeps, orders, typed
from glenside.ir.types import AccessType


def derived(record: Compute) -> dict[str, Any]:
    """Returns the fields of a POINTWISE or FOLD record that derive from its scalar expression."""
    names = [f.choices or (f.name,) for f in record.parameters]
    general = [record.expression(*parameters) for parameters in product(*names)]
    return {
        "evaluate": partial(_evaluate, record),
        "scratch": partial(_scratch, record),
        "check": partial(_check, record, record.check),
        "dtype": gives(general[0]),
        "linear": all(map(is_linear, general)),
        "orders": any(map(orders, general)),
        "examples": record.examples or _examples(record, general[0]),
        "keeps": reduce(Keeps.__and__, map(keeps, general)),
    }


def _examples(record: Compute, expression: Scalar) -> tuple[Example, ...]:
    """Returns one example, or none if parameters are numbers, for which no default is known."""
    if any(not field.choices for field in record.parameters):
        return ()
    kind = " ".join([record.name, *(field.choices[0] for field in record.parameters)])
    dims = f"m {arity(expression)} n" if record.category is Category.FOLD else "m k n"
    return of_compute(f"({kind})" if record.parameters else kind, dims, _dtype_taken(expression))


def _dtype_taken(expression: Scalar) -> str:
    """Returns the first dtype that an expression takes, of one per domain."""
    for dtype in ("float32", "int8"):
        with suppress(TypeMismatch):
            typed("", expression, dtype, "")
            return dtype
    return "bool"


def folds(expression: Scalar) -> bool:
    """True if each operand is combined with the result so far; otherwise the expression reads a fixed number of
    operands.
    """
    return arity(expression) == 2 and gives(expression) == "same"


def _check(record: Compute, also: Callable[..., None] | None, a: AccessType, *parameters: str) -> None:
    if also is not None:
        also(a, *parameters)
    expression = record.expression(*parameters)
    if record.category is Category.FOLD and not folds(expression):
        count = arity(expression)
        words = {2: "two operands", 3: "three operands"}.get(count, "one operand")
        require(a.item[0] == count, record.name, f"{words} along the first item axis", a)
    typed(record.name, expression, a.dtype, a)


def _parts(record: Compute, a: Operand) -> list[Array]:
    return a.parts() if record.category is Category.FOLD else [a.array]


def _direct(expression: Scalar, parts: Sequence[Array]) -> bool:
    """True if the expression is one primitive of whole operands."""
    return len(parts) == _whole_operands(expression)


def _whole_operands(expression: Scalar) -> int:
    """Returns the number of whole operands of a single primitive; 0 if the expression has several primitives."""
    arguments = expression.arguments if isinstance(expression, Applied) else ()
    plain = not any(isinstance(argument, Applied) for argument in arguments)
    return arity(expression) if plain and any(isinstance(a, Element) for a in arguments) else 0


class _Meaning(NamedTuple):
    """A scalar expression as a function of arrays (see `_compiled`), memoized by the arithmetic."""

    value: Callable[[Sequence[Array], Array | None], Array]
    whole_operands: int
    truth: bool
    folds: bool


def _meaning(record: Compute, arithmetic: Any, parameters: tuple[str, ...], dtype: str) -> _Meaning:
    known: dict[Any, _Meaning] = arithmetic.meanings
    key = record, parameters, dtype
    if key not in known:
        expression = record.expression(*parameters)
        value, folded = _compiled(expression, arithmetic, dtype), record.category is Category.FOLD and folds(expression)
        known[key] = _Meaning(value, _whole_operands(expression), gives(expression) == "bool", folded)
    return known[key]


def _evaluate(record: Compute, arithmetic: Any, a: Operand, *parameters: str, out: Array | None = None) -> Array:
    meaning, parts = _meaning(record, arithmetic, parameters, a.access.dtype), _parts(record, a)
    value = meaning.value
    if out is None:
        if len(parts) == meaning.whole_operands:
            return value(parts, None)
        out = np.empty(parts[0].shape, np.bool_ if meaning.truth else parts[0].dtype)
    folded = meaning.folds and len(parts) != 2

    def compute(block: list[Array], target: Array) -> None:
        result = reduce(lambda left, right: value([left, right], None), block) if folded else value(block, target)
        if result is not target:
            target[...] = result

    if 0 < out.size <= PART:
        compute(parts, out)
        return out
    for index in blocks(out.shape, PART):
        compute([part[(*index, ...)] for part in parts], out[(*index, ...)])
    return out


def _compiled(expression: Scalar, arithmetic: Any, dtype: str) -> Callable[[Sequence[Array], Array | None], Array]:
    """Compiles an expression to (operands, destination) -> array.

    The array is the destination if one is given and used, otherwise a new array or an operand.
    """
    if isinstance(expression, Element):
        position = expression.position
        return lambda operands, out: operands[position]
    if isinstance(expression, Number):
        constant: Array = arithmetic.constant(expression.value, dtype)
        return lambda operands, out: constant
    assert isinstance(expression, Applied)
    primitive, heir, truth = expression.primitive, _in_place_argument(expression), gives(expression) == "bool"
    own = arithmetic.own.get(primitive.name)
    steps = [(_compiled(argument, arithmetic, dtype), i == heir) for i, argument in enumerate(expression.arguments)]

    def run(operands: Sequence[Array], out: Array | None) -> Array:
        arguments = [step(operands, out if inherits else None) for step, inherits in steps]
        if own is not None:
            return np.asarray(own(*arguments))
        if primitive.arithmetic is not None:
            return np.asarray(primitive.arithmetic(arithmetic, *arguments))
        if out is None:
            return row_major(primitive.numpy, *arguments, dtype=np.bool_ if truth else arguments[-1].dtype)
        primitive.numpy(*arguments, out=out)
        return out

    return run


def _dtype(expression: Scalar, dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.bool_) if gives(expression) == "bool" else dtype


def _in_place_argument(expression: Applied) -> int | None:
    """Returns the number of the argument that may be computed into the destination of the whole expression, or None."""
    if expression.primitive.arithmetic is not None or expression.primitive.gives != "same":
        return None
    alike = gives(expression)
    return next((i for i, a in enumerate(expression.arguments) if isinstance(a, Applied) and gives(a) == alike), None)


def _scratch(record: Compute, a: Operand, *parameters: str) -> int:
    """Returns the bytes that evaluation in numpy's numbers needs besides operands and result."""
    expression, parts = record.expression(*parameters), _parts(record, a)
    if _direct(expression, parts):
        return _outermost_scratch(expression, parts[0].shape, parts[0].dtype)
    return block_scratch(record, a, *parameters)


def block_scratch(record: Compute, a: Operand, *parameters: str) -> int:
    """Returns the same for a result that is computed in blocks, into an existing array."""
    expression, parts = record.expression(*parameters), _parts(record, a)
    dims, dtype = parts[0].shape, parts[0].dtype
    count = block_size(dims, PART)
    if record.category is not Category.FOLD or not folds(expression) or len(parts) == 2:
        return _peak_bytes(expression, count, dtype, True)
    return _peak_bytes(expression, count, dtype, False) + count * dtype.itemsize if len(parts) > 2 else 0


def _outermost_scratch(expression: Scalar, dims: Sequence[int], dtype: np.dtype[Any]) -> int:
    """Returns the temporaries of the outermost primitive, in bytes."""
    if not isinstance(expression, Applied) or expression.primitive.scratch is None:
        return 0
    return expression.primitive.scratch(dims, *(_dtype(argument, dtype) for argument in expression.arguments))


def _peak_bytes(expression: Scalar, count: int, dtype: np.dtype[Any], into: bool) -> int:
    """Returns the peak bytes held while a block of `count` elements is computed, including its result."""
    if not isinstance(expression, Applied):
        return 0
    most = held = 0
    handed = _in_place_argument(expression) if into else None
    for i, argument in enumerate(expression.arguments):
        most = max(most, held + _peak_bytes(argument, count, dtype, i == handed))
        held += _size(argument, count, dtype, i == handed)
    return max(most, held + _size(expression, count, dtype, into) + _outermost_scratch(expression, (count,), dtype))


def _size(expression: Scalar, count: int, dtype: np.dtype[Any], into: bool) -> int:
    """Returns the bytes of a block's value, unless it is an operand or the destination."""
    if not isinstance(expression, Applied) or (into and expression.primitive.arithmetic is None):
        return 0
    return count * _dtype(expression, dtype).itemsize
