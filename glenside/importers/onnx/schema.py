"""Decodes attributes of nodes, and checks nodes against ONNX's own schemas."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from glenside.importers.onnx.node import Attribute, Items, Value
from glenside.ir.dtypes import DTYPES, RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened, suggestion


@dataclass(frozen=True)
class Reference:
    """An attribute of a node in a function that takes the value of the function's attribute of this name."""

    name: str


def attributes_of(proto: Any) -> dict[str, Attribute]:
    """Returns the attributes of a node by name. Raises BadInput for a duplicate."""
    result: dict[str, Attribute] = {}
    for attribute in proto.attribute:
        if attribute.name in result:
            raise BadInput(f"attribute {shortened(attribute.name)} is given twice")
        result[attribute.name] = decoded(attribute)
    return result


def decoded(attribute: Any) -> Attribute:
    """Returns the value of an AttributeProto. Raises BadInput for an unknown type."""
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
    """Yields the attributes of a node, with references to the enclosing function's attributes replaced by these values.

    An attribute whose value is missing is omitted. Raises BadInput.
    """
    import onnx

    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            yield attribute
        elif attribute.name in values:
            name, value = attribute.name, values[attribute.name]
            try:  # the type is needed for an empty list
                made = onnx.helper.make_attribute(name, value, attr_type=attribute.type if value == [] else None)
            except (TypeError, ValueError) as error:
                raise BadInput(f"attribute {shortened(name)} requires a value of a known type: {error}") from None
            yield made


def bound(attributes: Mapping[str, Attribute], given: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Returns the attributes with references replaced by the function's given values; missing ones are omitted."""
    result: dict[str, Attribute] = {}
    for name, value in attributes.items():
        if not isinstance(value, Reference):
            result[name] = value
        elif value.name in given:
            result[name] = given[value.name]
    return result


@dataclass(frozen=True)
class Formal:
    """An input in a schema: whether it is required, its types, and the letter that inputs of one type share."""

    required: bool
    dtypes: frozenset[str]
    sequence: bool
    letter: str


@dataclass(frozen=True)
class Demands:
    """The requirements of one operator. The last input repeats if `most` exceeds their number."""

    inputs: tuple[Formal, ...]
    least: int
    most: int
    outputs: int
    attributes: Mapping[str, str]
    required: tuple[str, ...]

    def formal(self, i: int) -> Formal:
        return self.inputs[min(i, len(self.inputs) - 1)]


@cache
def demands(op_type: str, version: int, domain: str) -> Demands | None:
    """Returns the requirements of an operator from ONNX, or from onnxruntime for its own; None if neither defines
    it.
    """
    import onnx

    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        runtime = _schemas_of_onnxruntime().get((domain, op_type)) if domain in RUNTIME_DOMAINS else None
        return None if runtime is None else _demands(runtime, {})
    # A later version allows more types for the same function, which are accepted too.
    return _demands(schema, {formal.name: formal.types for formal in onnx.defs.get_schema(op_type, domain).inputs})


RUNTIME_DOMAINS = ("", "com.microsoft", "com.microsoft.nchwc")
"""Domains in which onnxruntime defines operators."""


@cache
def _schemas_of_onnxruntime() -> Mapping[tuple[str, str], Any]:
    """Returns (domain, name) -> the newest schema of each operator of onnxruntime; empty if it is not installed."""
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError:
        return {}
    return {(s.domain, s.name): s for s in sorted(state.get_all_operator_schema(), key=lambda s: s.since_version)}


def _demands(schema: Any, more: Mapping[str, Collection[str]]) -> Demands:
    """Returns the requirements of a schema of onnx or onnxruntime; `more` adds types to inputs by name."""
    letters = {constraint.type_param_str for constraint in schema.type_constraints}
    return Demands(
        inputs=tuple(_formal(f, {*f.types, *more.get(f.name, ())}, letters) for f in schema.inputs),
        least=schema.min_input,
        most=schema.max_input,
        outputs=schema.max_output,
        attributes={name: str(attribute.type.name) for name, attribute in schema.attributes.items()},
        required=tuple(name for name, attribute in schema.attributes.items() if attribute.required),
    )


@cache
def _dtypes_by_name() -> Mapping[str, str]:
    return {record.onnx.lower(): record.name for record in RECORDS.values()}


def _formal(formal: Any, types: Collection[str], letters: set[str]) -> Formal:
    tensors = [re.fullmatch(r"(?:optional\()?tensor\((\w+)\)+", words) for words in types]
    names = {found[1] for found in tensors if found}
    kind, homogeneous = (  # onnxruntime spells these differently from onnx
        (formal.type_str, formal.is_homogeneous)
        if hasattr(formal, "type_str")
        else (formal.typeStr, formal.isHomogeneous)
    )
    return Formal(
        required=formal.option.name == "Single",
        dtypes=frozenset(dtype for name, dtype in _dtypes_by_name().items() if name in names),
        sequence=any("seq(" in words for words in types),
        letter=kind if kind in letters and homogeneous else "",
    )


def check_node(
    needs: Demands,
    names: Sequence[str],
    inputs: Sequence[Value],
    outputs: Sequence[str],
    attributes: Mapping[str, Attribute],
) -> None:
    """Raises BadInput if a node violates its operator's requirements; `names` are those of its inputs."""
    if not needs.least <= len(names) <= needs.most:
        count = str(needs.least) if needs.least == needs.most else f"{needs.least} to {needs.most}"
        wanted = f"at least {needs.least}" if needs.most > 1000 else count
        plural = "" if wanted.split()[-1] == "1" else "s"
        raise BadInput(f"requires {wanted} input{plural}, got {len(names)}")
    if len(outputs) > needs.outputs:
        raise BadInput(f"has at most {needs.outputs} output{'s' * (needs.outputs != 1)}, got {len(outputs)}")
    _check_inputs(needs, names, inputs)
    _check_attributes(needs, attributes)


def _check_inputs(needs: Demands, names: Sequence[str], inputs: Sequence[Value]) -> None:
    agreed: dict[str, str] = {}
    for i, (name, value) in enumerate(zip(names, inputs, strict=True)):
        formal = needs.formal(i)
        if not name and formal.required:
            raise BadInput(f"input {i} is required, got an empty name")
        if value is None:
            continue
        if isinstance(value, Items):
            if not formal.sequence:
                raise BadInput(f"input {i} requires a tensor, got a sequence")
            continue
        dtype = value.access.dtype
        if dtype not in formal.dtypes:
            wanted = [known for known in DTYPES if known in formal.dtypes]
            words = " or ".join(filter(None, (", ".join(wanted[:-1]), *wanted[-1:])))
            raise BadInput(f"input {i} requires {words or 'a sequence'}, got {dtype if words else 'a tensor'}")
        if formal.letter and agreed.setdefault(formal.letter, dtype) != dtype:
            raise BadInput(f"input {i} requires {agreed[formal.letter]} as the inputs before it, got {dtype}")


def _check_attributes(needs: Demands, attributes: Mapping[str, Attribute]) -> None:
    for name, value in attributes.items():
        if name not in needs.attributes:
            known = f"; it has {', '.join(sorted(needs.attributes)) or 'none'}"
            hint = suggestion(name, needs.attributes) or known
            raise BadInput(f"has no attribute {shortened(name, not name)}{hint}")
        if not _is(needs.attributes[name], value):
            raise BadInput(f"attribute {name} requires {_words(needs.attributes[name])}, got {_shown(value)}")
    for name in needs.required:
        if name not in attributes:
            raise BadInput(f"requires the attribute {name}, got none")


KINDS: Mapping[str, tuple[str, str, str]] = {
    "FLOAT": ("float", "a number with a fraction", "numbers with fractions"),
    "INT": ("int", "a whole number", "whole numbers"),
    "STRING": ("str", "a text", "texts"),
    "TENSOR": ("TensorProto", "a tensor", "tensors"),
    "GRAPH": ("GraphProto", "a graph", "graphs"),
    "SPARSE_TENSOR": ("SparseTensorProto", "a sparse tensor", "sparse tensors"),
    "TYPE_PROTO": ("TypeProto", "a type", "types"),
}
"""Kind of an attribute -> (class of its value, singular and plural in messages)."""


def _is(kind: str, value: Attribute) -> bool:
    if kind in KINDS:
        return type(value).__name__ == KINDS[kind][0]
    return isinstance(value, list) and all(_is(kind.removesuffix("S"), part) for part in value)


def _words(kind: str) -> str:
    return KINDS[kind][1] if kind in KINDS else f"a list of {KINDS[kind.removesuffix('S')][2]}"


def _shown(value: Attribute) -> str:
    for _, (name, one, _) in KINDS.items():
        if type(value).__name__ == name:
            return one if name.endswith("Proto") else f"{one}, {shortened(str(value))}"
    return f"a list, {shortened(str(value))}" if isinstance(value, list) else "another"
