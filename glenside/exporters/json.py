"""Writes and reads programs as JSON, for tools that do not read S-expressions; nothing is lost in either direction.

  {"format": "glenside-program", "version": 1, "name": "net",
   "tensors": [{"name": "x", "shape": [2, 3], "dtype": "float32", "constant": false}],
   "nodes": [{"operator": "access-tensor", "attributes": {"tensor": "x"}, "children": [],
              "type": {"shape": [], "item": [2, 3], "dtype": "float32"}},
             {"operator": "access", "attributes": {"split": 1}, "children": [0],
              "type": {"shape": [2], "item": [3], "dtype": "float32"}}],
   "result": 1, "layers": {}, "labels": {}, "names": {}, "values": [], "outputs": ["y"]}

A child, a result and a name refer to a node by its position; nodes come after their children. `values` are the names of
the constants whose arrays are in an .npz file next to it; `outputs` are the names of the results, if they have any.
`type`, `layers`, `labels`, `names`, `values` and `outputs` are optional; a given type is checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from glenside.ir.errors import BadInput, TypeMismatch
from glenside.ir.files import read_arrays, read_text, require_same_program, write_with_arrays
from glenside.ir.names import shortened, spelled_name
from glenside.ir.operand import Array
from glenside.ir.operator import OPERATORS, Field, Kind, Operator
from glenside.ir.program import Program, Signature
from glenside.ir.replacing import PathLike, WrittenWrong
from glenside.ir.term import Term, postorder, weave
from glenside.ir.text.building import make_term
from glenside.ir.types import Dims, Tensor, TupleType, Type

FORMAT, VERSION = "glenside-program", 1

_CHILDREN = (Kind.TERM, Kind.TERMS)


def program_json(program: Program) -> dict[str, Any]:
    """Returns the program as a JSON object, as the module describes, without the values of constants."""
    nodes = [*postorder(*program.roots, *program.names.values())]
    positions = {node: place for place, node in enumerate(nodes)}
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": program.name,
        "tensors": [
            {"name": t.name, "shape": [*t.dims], "dtype": t.dtype, "constant": t.constant}
            for t in program.tensors.values()
        ],
        "nodes": [_node_json(node, positions) for node in nodes],
        "result": positions[program.term],
        "layers": {name: positions[node] for name, node in program.layers.items()},
        "labels": dict(program.labels),
        "names": {name: positions[node] for name, node in program.names.items()},
        "values": [*program.constants],
        **({"outputs": [*program.signature.outputs]} if program.signature.outputs else {}),
    }


def _node_json(node: Term, positions: Mapping[Term, int]) -> dict[str, Any]:
    fields = [field for field in node.operator.fields if field.kind not in _CHILDREN]
    placeholders = [None] * len(node.children)
    values = [v for v in weave(node.operator, placeholders, node.attributes) if v is not None]
    attributes = {field.name: _attribute_json(value) for field, value in zip(fields, values, strict=True)}
    children = [positions[child] for child in node.children]
    return {
        "operator": node.operator.name,
        "attributes": attributes,
        "children": children,
        "type": _type_json(node.type),
    }


def _attribute_json(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.name
    if isinstance(value, Dims):
        return [*value]
    return {"shape": [*value[0]], "item": [*value[1]]} if isinstance(value, tuple) else value


def _type_json(type: Type) -> dict[str, Any]:
    if isinstance(type, TupleType):
        return {"tuple": len(type.items)}  # the items are the children's types: nested types could be deep
    return {"shape": [*type.shape], "item": [*type.item], "dtype": type.dtype}


def save_json(program: Program, path: PathLike) -> None:
    """Writes the program, one node a line, and the values of constants as .npz next to it: both or neither."""

    def verify(text: str) -> None:
        found = program_of_json(json.loads(text))
        require_same_program(path, found, program)
        if (found.name, dict(found.labels), found.signature.outputs) != (
            program.name,
            dict(program.labels),
            program.signature.outputs,
        ) or (found.layers, found.names) != (dict(program.layers), dict(program.names)):
            raise WrittenWrong(path, "its names differ")

    write_with_arrays(path, _text(program_json(program)), program.constants, verify)


def _text(document: Mapping[str, Any]) -> str:
    """Returns one line for each entry, and one for each element of its lists."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            value = "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
        else:
            value = json.dumps(value)
        lines.append(f"  {json.dumps(key)}: {value}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load_json(path: PathLike, weights: PathLike | None = None) -> Program:
    """Returns the program of a JSON file, with the values that it names from an .npz file, by default the one next to
    it.

    Raises BadInput, which names the place in the file.
    """
    text = read_text(path)
    try:
        document = json.loads(text, object_pairs_hook=_object)
        named = _values(document)
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}:{error.colno}: a program requires JSON, got {error.msg}") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{path} requires JSON of a program, got lists that are too deep or a number too long") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error.message}") from None
    arrays: dict[str, Array] = {}
    if weights is not None or named:
        beside = weights if weights is not None else Path(path).with_suffix(".npz")
        arrays = read_arrays(beside)
        missing = [name for name in named if name not in arrays]
        if missing:
            raise BadInput(f"{beside} requires the constant {spelled_name(missing[0])}, which {path} names, got none")
    try:
        return program_of_json(document, arrays)
    except BadInput as error:
        raise BadInput(f"{path}: {error.message}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BadInput(f"an object requires different names, got {json.dumps(name)} twice")
        found[name] = value
    return found


def program_of_json(document: Any, constants: Mapping[str, Array] | None = None) -> Program:
    """Returns the program of a JSON object, with values for constants. Raises BadInput, which names the place."""
    _values(document)
    program = _Reader(document).program()
    return program.with_constants(constants) if constants else program


def _values(document: Any) -> list[str]:
    """Returns the names of constants that have values, after checking that the document is a program."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadInput(f'a program requires an object with "format": "{FORMAT}", got {_abbreviated(document)}')
    if document.get("version") != VERSION:
        raise BadInput(
            f"a program requires version {VERSION} of the format, got {_abbreviated(document.get('version'))}"
        )
    names = document.get("values", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadInput(f"values requires a list of names, got {_abbreviated(names)}")
    return names


def _is_integer(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_integer, value))


def _is_access_shape(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"shape", "item"} and all(map(_is_sizes, value.values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


# The requirement of an attribute of a kind, and its predicate.
_KINDS: dict[Kind, tuple[str, Callable[[Any], bool]]] = {
    Kind.INT: ("an integer", _is_integer),
    Kind.INTS: ("a list of integers", _is_sizes),
    Kind.SHAPE: ("a list of integers", _is_sizes),
    Kind.ACCESS_SHAPE: ('an object of two lists of integers, "shape" and "item"', _is_access_shape),
    Kind.KEYWORD: ("a string", _is_text),
    Kind.NUMBER: ("a number as a string", _is_text),
    Kind.DTYPE: ("the name of a dtype", _is_text),
    Kind.COMPUTE: ("a compute type as a string", _is_text),
    Kind.TEXT: ("a string", _is_text),
    Kind.TENSOR: ("the name of a tensor", _is_text),
}


def _require(holds: bool, place: str, need: str, got: Any) -> None:
    if not holds:
        raise BadInput(f"{place} requires {need}, got {_abbreviated(got)}")


def _abbreviated(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    return shortened(json.dumps(value))


class _Reader:
    """Reads one document; nodes are checked in order, so that an error names the position of a node."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Term] = []

    def program(self) -> Program:
        for place, entry in enumerate(self._list("tensors")):
            tensor = self._tensor(f"tensor {place}", entry)
            _require(tensor.name not in self.tensors, f"tensor {place}", "a name that no other has", tensor.name)
            self.tensors[tensor.name] = tensor
        for place, entry in enumerate(self._list("nodes")):
            self.nodes.append(self._node(f"node {place}", entry))
        name: Any = self.document.get("name")
        _require(_is_text(name), "name", "a string", name)
        labels = self._object("labels")
        for layer, label in labels.items():
            _require(_is_text(label), f"the label of {spelled_name(layer)}", "a string", label)
        result = self._reference("result", self.document.get("result"))
        outputs = [*self._list("outputs")] if "outputs" in self.document else []
        _require(all(map(_is_text, outputs)), "outputs", "a list of names", outputs)
        layers, names = self._references("layers"), self._references("names")
        inputs = tuple(tensor for tensor in self.tensors.values() if not tensor.constant)
        signature = Signature(inputs=inputs, outputs=tuple(outputs))
        return Program(result, name, layers, labels, {}, names, signature)

    def _list(self, key: str) -> list[Any]:
        value: Any = self.document.get(key)
        _require(isinstance(value, list), key, "a list", value)
        return [*value]

    def _object(self, key: str) -> dict[str, Any]:
        value: Any = self.document.get(key, {})
        _require(isinstance(value, dict), key, "an object", value)
        return {**value}

    def _references(self, key: str) -> dict[str, Term]:
        entries = self._object(key).items()
        return {name: self._reference(f"{key}: {spelled_name(name)}", value) for name, value in entries}

    def _reference(self, place: str, value: Any) -> Term:
        count = len(self.nodes)
        known = _is_integer(value) and 0 <= value < count
        _require(known, place, f"the position of one of the {count} nodes before it", value)
        return self.nodes[int(value)]

    def _tensor(self, place: str, entry: Any) -> Tensor:
        self._keys(place, entry, {"name", "shape", "dtype", "constant"}, set())
        name, shape, dtype, constant = (entry[key] for key in ("name", "shape", "dtype", "constant"))
        _require(_is_text(name), f"the name of {place}", "a string", name)
        place = f"tensor {spelled_name(name)}"
        _require(_is_sizes(shape), f"the shape of {place}", "a list of integers", shape)
        _require(_is_text(dtype), f"the dtype of {place}", "a string", dtype)
        _require(isinstance(constant, bool), f"constant of {place}", "true or false", constant)
        return Tensor(name, Dims(shape), dtype, constant)

    def _keys(self, place: str, entry: Any, required: set[str], optional: set[str]) -> None:
        need = f"an object of {', '.join(sorted(required))}"
        _require(isinstance(entry, dict), place, need, entry)
        for key in sorted(required):
            _require(key in entry, place, need, f"none of {key}")
        for key in entry:
            _require(key in required | optional, place, need, key)

    def _node(self, place: str, entry: Any) -> Term:
        self._keys(place, entry, {"operator", "attributes", "children"}, {"type"})
        name = entry["operator"]
        _require(_is_text(name) and name in OPERATORS, f"the operator of {place}", "the name of an operator", name)
        place, operator = f"{place} ({name})", OPERATORS[name]
        _require(isinstance(entry["children"], list), f"children of {place}", "a list of positions", entry["children"])
        children = [self._reference(f"child {i} of {place}", value) for i, value in enumerate(entry["children"])]
        arguments = self._arguments(place, operator, entry["attributes"], children)
        try:
            node = make_term(name, name, arguments)
        except TypeMismatch as error:
            raise BadInput(f"{place}: {error.message}") from None
        if "type" in entry and entry["type"] != _type_json(node.type):
            raise BadInput(f"{place} is of type {node.type}, which is not the type that the file gives")
        return node

    def _arguments(self, place: str, operator: Operator, attributes: Any, children: Sequence[Term]) -> list[Any]:
        """Returns children and attributes in the order of the fields."""
        names = [field.name for field in operator.fields if field.kind not in _CHILDREN]
        named = isinstance(attributes, dict)
        got = ", ".join(map(str, attributes)) if named else attributes
        _require(named and attributes.keys() == {*names}, place, f"the attributes {', '.join(names) or '(none)'}", got)
        kinds = [field.kind for field in operator.fields]
        count = kinds.count(Kind.TERM)
        enough = len(children) == count or (Kind.TERMS in kinds and len(children) > count)
        _require(enough, place, f"{count} children", len(children))
        rest = iter(children)
        arguments: list[Any] = []
        for field in operator.fields:
            if field.kind is Kind.TERM:
                arguments.append(next(rest))
            elif field.kind is not Kind.TERMS:
                arguments.append(self._attribute(f"{field.name} of {place}", field, attributes[field.name]))
        return [*arguments, *rest]

    def _attribute(self, place: str, field: Field, value: Any) -> Any:
        need, fits = _KINDS[field.kind]
        _require(fits(value), place, need, value)
        if field.kind is Kind.ACCESS_SHAPE:
            return Dims(value["shape"]), Dims(value["item"])
        if field.kind is Kind.TENSOR:
            _require(value in self.tensors, place, "the name of a tensor that the file declares", value)
            return self.tensors[value]
        return value
