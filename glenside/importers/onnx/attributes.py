"""Attributes of nodes as Python values. Strings arrive as bytes and are decoded here, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.names import shortened

Attribute = int | float | str | list[Any] | Any
"""A number, a text, a list of those, or a protobuf message (tensor, graph, type)."""


@dataclass(frozen=True)
class Reference:
    """An attribute of a function's node whose value is that of the function's own attribute of this name."""

    name: str


def attributes_of(proto: Any) -> dict[str, Attribute]:
    """Those of a node by name. Raises BadInput for one that is given twice."""
    result: dict[str, Attribute] = {}
    for attribute in proto.attribute:
        if attribute.name in result:
            raise BadInput(f"attribute {shortened(attribute.name)} is given twice")
        result[attribute.name] = decoded(attribute)
    return result


def decoded(attribute: Any) -> Attribute:
    """The value of an AttributeProto. Raises BadInput for one without a type that we know."""
    from onnx import AttributeProto as Proto

    if attribute.ref_attr_name:
        return Reference(attribute.ref_attr_name)
    kind = attribute.type
    if kind == Proto.STRING:
        return _text(attribute.name, attribute.s)
    if kind == Proto.STRINGS:
        return [_text(attribute.name, text) for text in attribute.strings]
    one = {Proto.INT: "i", Proto.FLOAT: "f", Proto.TENSOR: "t", Proto.GRAPH: "g", Proto.TYPE_PROTO: "tp"}
    one[Proto.SPARSE_TENSOR] = "sparse_tensor"
    many = {Proto.INTS: "ints", Proto.FLOATS: "floats", Proto.TENSORS: "tensors", Proto.GRAPHS: "graphs"}
    if kind in one:
        return getattr(attribute, one[kind])
    if kind in many:
        return list(getattr(attribute, many[kind]))
    raise BadInput(f"attribute {shortened(attribute.name)} requires a value of a known type, got type {kind}")


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"attribute {shortened(name)} requires UTF-8 text, got {value[:20]!r}") from None


def given_attributes(proto: Any, values: Mapping[str, Attribute]) -> Iterator[Any]:
    """The attributes of a node, with these values where they refer to those of the function around it.

    One whose value was not given is left out. Raises BadInput.
    """
    import onnx

    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            yield attribute
        elif attribute.name in values:
            name, value = attribute.name, values[attribute.name]
            try:  # the kind says of which type a list without elements is
                yield onnx.helper.make_attribute(name, value, attr_type=attribute.type if value == [] else None)
            except (TypeError, ValueError) as error:
                raise BadInput(f"attribute {shortened(name)} requires a value of a known type: {error}") from None


def bound(attributes: Mapping[str, Attribute], given: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """The attributes with references replaced by what the function was given; one that was not given is left out."""
    result: dict[str, Attribute] = {}
    for name, value in attributes.items():
        if not isinstance(value, Reference):
            result[name] = value
        elif value.name in given:
            result[name] = given[value.name]
    return result
