"""Forms whose value is a shape. They are evaluated when a text is read and leave no trace in the term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from glenside.ir.errors import TypeMismatch
from glenside.ir.operator import Field, Kind, fields, require
from glenside.ir.operators.requirements import spelled
from glenside.ir.types import AccessType, Dims, Tensor

ShapeValue = Dims | tuple[Dims, Dims]


@dataclass(frozen=True)
class ShapeForm:
    """A record. `evaluate` takes the arguments: a type for a term, a Tensor, Dims for a shape, an int.

    Its value is a shape (Dims) or an access shape (the pair of shape and item). Raises TypeMismatch.
    """

    name: str
    arguments: tuple[Field, ...]
    evaluate: Callable[..., ShapeValue]
    doc: str


def _get_access_shape(a: AccessType) -> ShapeValue:
    return a.shape, a.item


def _shape_of(tensor: Tensor) -> ShapeValue:
    return tensor.dims


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


_RECORDS = (
    ShapeForm("get-access-shape", fields(a=Kind.TERM), _get_access_shape, "The access shape of a term."),
    ShapeForm("shape-of", fields(tensor=Kind.TENSOR), _shape_of, "The shape of a declared tensor."),
    ShapeForm(
        "slice-shape", fields(shape=Kind.SHAPE, count=Kind.INT), _slice_shape, "The shape without its first dims."
    ),
    ShapeForm(
        "shape-insert-axis", fields(shape=Kind.SHAPE, axis=Kind.INT), _insert_axis, "The shape with a 1 put at axis."
    ),
    ShapeForm(
        "shape-remove-axis",
        fields(shape=Kind.SHAPE, axis=Kind.INT),
        _remove_axis,
        "The shape without the dim at axis, whatever its size.",
    ),
)

SHAPE_FORMS: dict[str, ShapeForm] = {form.name: form for form in _RECORDS}
