"""Defines text forms that are not operators: other spellings of an operator, and forms whose value is a shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glenside.ir.errors import TypeMismatch
from glenside.ir.operator import Field, Kind, fields, require
from glenside.ir.operators.requirements import spelled
from glenside.ir.types import Dims

ShapeValue = Dims | tuple[Dims, Dims]


@dataclass(frozen=True)
class Spelling:
    """Another text of an operator: the parser reads it as the operator, and the printer uses it where it is shorter.

    `expand` maps the arguments of this text to those of the operator; it may raise TypeMismatch. `contract` is its
    inverse: it returns None for a term that has no such text.
    """

    name: str
    operator: str
    fields: tuple[Field, ...]
    expand: Callable[..., tuple[Any, ...]]
    contract: Callable[..., tuple[Any, ...] | None]
    doc: str


def _expand_pair(a: Any, b: Any) -> tuple[Any, ...]:
    require(a.access.shape == b.access.shape, "access-pair", "shapes to agree", f"{a.type} and {b.type}")
    return a, b, a.access.split


def _contract_pair(a: Any, b: Any, n: int) -> tuple[Any, ...] | None:
    return (a, b) if n == a.access.split == b.access.split else None


_SPELLINGS = (
    Spelling(
        name="access-cartesian-product",
        operator="access-product",
        fields=fields(a=Kind.TERM, b=Kind.TERM),
        expand=lambda a, b: (a, b, 0),
        contract=lambda a, b, n: (a, b) if n == 0 else None,
        doc="Every item of a with every item of b: (SA ++ SB)(2, I).",
    ),
    Spelling(
        name="access-pair",
        operator="access-product",
        fields=fields(a=Kind.TERM, b=Kind.TERM),
        expand=_expand_pair,
        contract=_contract_pair,
        doc="Each item of a with the item of b at the same index: (S)(2, I).",
    ),
)

# The first that applies is printed: a product of two single items is a cartesian product.
SPELLINGS: dict[str, Spelling] = {spelling.name: spelling for spelling in _SPELLINGS}

# Operators whose access shape may be written as a plain shape, split like the first operand.
SPLIT_AS_OPERAND = frozenset({"access-broadcast"})


@dataclass(frozen=True)
class ShapeForm:
    """A form whose value is a shape. It is evaluated when a text is read, and is not part of the term.

    `evaluate` takes the arguments: a type for a term, a Tensor, Dims for a shape, an int. It returns a shape (Dims) or
    an access shape (the pair of shape and item). Raises TypeMismatch.
    """

    name: str
    arguments: tuple[Field, ...]
    evaluate: Callable[..., ShapeValue]
    doc: str


def _plain(form: str, shape: ShapeValue) -> Dims:
    if isinstance(shape, Dims):
        return shape
    raise TypeMismatch(f"{form} requires a shape, got {''.join(map(spelled, shape))}")


def _slice_shape(shape: ShapeValue, count: int) -> ShapeValue:
    plain = _plain("slice-shape", shape)
    require(0 <= count <= len(plain), "slice-shape", f"0 <= count <= {len(plain)}", count)
    return plain.drop(count)


def _insert_axis(shape: ShapeValue, axis: int) -> ShapeValue:
    plain = _plain("shape-insert-axis", shape)
    require(0 <= axis <= len(plain), "shape-insert-axis", f"0 <= axis <= {len(plain)}", axis)
    return plain.insert(axis, 1)


def _remove_axis(shape: ShapeValue, axis: int) -> ShapeValue:
    plain = _plain("shape-remove-axis", shape)
    require(0 <= axis < len(plain), "shape-remove-axis", f"0 <= axis < {len(plain)}", axis)
    return plain.remove(axis)


_SHAPE_FORMS = (
    ShapeForm("get-access-shape", fields(a=Kind.TERM), lambda a: (a.shape, a.item), "The access shape of a term."),
    ShapeForm("shape-of", fields(tensor=Kind.TENSOR), lambda tensor: tensor.dims, "The shape of a declared tensor."),
    ShapeForm(
        "slice-shape", fields(shape=Kind.SHAPE, count=Kind.INT), _slice_shape, "The shape without its first dims."
    ),
    ShapeForm(
        "shape-insert-axis",
        fields(shape=Kind.SHAPE, axis=Kind.INT),
        _insert_axis,
        "The shape with a dim of 1 inserted at axis.",
    ),
    ShapeForm(
        "shape-remove-axis",
        fields(shape=Kind.SHAPE, axis=Kind.INT),
        _remove_axis,
        "The shape without the dim at axis, whatever its size.",
    ),
)

SHAPE_FORMS: dict[str, ShapeForm] = {form.name: form for form in _SHAPE_FORMS}
