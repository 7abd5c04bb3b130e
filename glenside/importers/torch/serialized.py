"""Reads the JSON of an exported program, in the schema of PyTorch's .pt2 files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.importers.torch.graph import Argument, Call, Graph, Meta, Ref, with_changed
from glenside.ir.bounds import MOST_NODES, whole
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.names import numbered, shortened
from glenside.ir.operand import Array

DTYPES = {
    **dict(enumerate("uint8 int8 int16 int32 int64 float16 float32 float64".split(), 1)),
    **dict(enumerate("complex32 complex64 complex128 bool bfloat16".split(), 9)),
    **dict(
        enumerate(
            "uint16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu uint32 uint64".split(), 28
        )
    ),
}
"""Number of a dtype in a file -> its name."""
KEYWORD = 2
"""The kind of an argument that is given by name."""


class Pickled(BadInput):
    """A value that only a pickle would give."""


@dataclass(frozen=True)
class TensorMeta:
    """Dtype, sizes and strides of a tensor, and the element of its storage at which it begins."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def tensor_meta(entry: Any, what: str) -> TensorMeta:
    """Returns the layout of a tensor. Raises BadInput for an open size or a dtype that we lack."""
    dtype = DTYPES.get(entry["dtype"], str(entry["dtype"]))
    if dtype not in RECORDS and not dtype.startswith("complex"):
        raise BadInput(f"{what} has the dtype {shortened(dtype)}, which is not supported")
    sizes = tuple(_size(size, what) for size in entry["sizes"])
    strides = tuple(_size(size, what) for size in entry["strides"])
    if len(strides) != len(sizes):
        raise BadInput(f"{what} requires a stride for each of {len(sizes)} axes, got {len(strides)}")
    return TensorMeta(dtype, sizes, strides, _size(entry["storage_offset"], what))


def _size(entry: Any, what: str) -> int:
    if "as_int" not in entry:
        expression = str(entry.get("as_expr", {}).get("expr_str", ""))
        symbols = dict.fromkeys(re.findall(r"Symbol\('(\w+)'", expression))
        words = " and ".join(symbols) or shortened(expression)
        raise BadInput(
            f"{what}: the size {words} is open, which is not supported yet; export it without dynamic_shapes"
        )
    return whole(f"a size of {what}", entry["as_int"])


def _meta(entry: Any, what: str) -> Meta:
    found = tensor_meta(entry, what)
    expected, step = [], 1
    for size in reversed(found.sizes):
        expected.append(step)
        step *= max(size, 1)
    plain = all(n == 1 or a == b for n, a, b in zip(found.sizes, found.strides, reversed(expected), strict=True))
    return Meta(found.sizes, found.dtype, plain)


def graph_of_json(program: Any, tensors: Mapping[str, Callable[[], Array]]) -> Graph:
    """Returns the graph of an exported program; `tensors` are its weights and constants by name. Raises BadInput."""
    module = program["graph_module"]
    graph, signature = module["graph"], module["signature"]
    major = program["schema_version"]["major"]
    if major != 8:
        raise BadInput(f"is of version {major} of the schema of exported programs; 8 is supported")
    if len(graph["nodes"]) > MOST_NODES:
        raise BadInput(f"has {len(graph['nodes'])} nodes; a program may have at most {MOST_NODES}")
    metas = graph["tensor_values"]
    inputs: dict[str, Meta] = {}
    constants: dict[str, tuple[str, Callable[[], Array]]] = {}
    for spec in signature["input_specs"]:
        ((kind, own),) = spec.items()
        if kind == "constant_input":
            continue
        if kind == "user_input":
            ((sort, argument),) = own["arg"].items()
            if sort == "as_tensor":
                inputs[argument["name"]] = _meta(metas[argument["name"]], f"input {shortened(argument['name'])}")
            continue
        names = [key for key in ("parameter_name", "buffer_name", "tensor_constant_name") if key in own]
        if not names:
            raise BadInput(f"has an input that is a {shortened(kind)}, which is not supported")
        name = own[names[0]]
        if name not in tensors:
            raise BadInput(f"has no value of {shortened(name)}")
        constants[own["arg"]["name"]] = name, tensors[name]
    calls = [call for node in graph["nodes"] for call in _calls(node, metas)]
    of = {name: _meta(metas[name], f"constant {shortened(name)}") for name in constants}
    found = Graph("program", inputs, constants, calls, _outputs(module), metas=of)
    specs = [spec.get("user_input_mutation") for spec in module["signature"]["output_specs"]]
    return with_changed(found, {own["user_input_name"]: Ref(own["arg"]["name"]) for own in specs if own})


def _calls(node: Any, metas: Any) -> Iterator[Call]:
    """Yields the call of a node, and one that takes each of several results."""
    target = node["target"]
    if not isinstance(target, str) or not target.startswith("torch.ops."):
        target = {"_operator.getitem": "getitem"}.get(target, str(target))
    args, kwargs = [], {}
    for argument in node["inputs"]:
        if argument.get("kind") == KEYWORD:
            kwargs[argument["name"]] = _argument(argument["arg"])
        else:
            args.append(_argument(argument["arg"]))
    outputs = node["outputs"]
    listed = [one["name"] for one in outputs[0]["as_tensors"]] if outputs and "as_tensors" in outputs[0] else None
    names = (
        listed if listed is not None else [next(iter(one.values()))["name"] if _named(one) else "" for one in outputs]
    )
    results = [_meta(metas[name], f"node {shortened(name)}") if name in metas else None for name in names]
    info = node.get("metadata") or {}
    trace, layer = str(info.get("stack_trace") or ""), _layer(str(info.get("nn_module_stack") or ""))
    single = listed is None and len(names) == 1
    name = names[0] if single else f"{node.get('name') or names[0] if names else 'node'}.results"
    yield Call(name, target.removeprefix("torch.ops."), tuple(args), kwargs, results, trace, layer)
    if not single:
        for i, part in enumerate(names):
            if part:
                yield Call(part, "getitem", (Ref(name), i), {}, [results[i]], trace, layer)


def _named(output: Any) -> bool:
    value = next(iter(output.values()))
    return isinstance(value, dict) and "name" in value


def _layer(stack: str) -> str:
    """Returns the path of the innermost module of `key,path,type;..`."""
    parts = stack.rpartition(";")[2].split(",")
    return parts[1] if len(parts) >= 3 else ""


def _argument(entry: Any) -> Any:
    """Returns an argument of a node. Raises BadInput for one of a kind that has no meaning here."""
    ((kind, value),) = entry.items()
    read = _ARGUMENTS.get(kind)
    if read is None:
        raise BadInput(f"has an argument of the kind {shortened(kind.removeprefix('as_'))}, which has no meaning here")
    return read(value)


def _symbol(entry: Any) -> Any:
    """Returns a number that is given, or that a node computes."""
    ((_, value),) = entry.items()
    return Ref(value) if isinstance(value, str) else value


_ARGUMENTS: Mapping[str, Callable[[Any], Any]] = {
    "as_none": lambda value: None,
    "as_tensor": lambda value: Ref(value["name"]),
    "as_tensors": lambda value: [Ref(one["name"]) for one in value],
    "as_nested_tensors": lambda value: [[Ref(one["name"]) for one in row] for row in value],
    "as_optional_tensor": _argument,
    "as_optional_tensors": lambda value: [_argument(one) for one in value],
    "as_float": float,
    **dict.fromkeys(("as_int", "as_bool", "as_string"), lambda value: value),
    **dict.fromkeys(("as_ints", "as_floats", "as_bools", "as_strings", "as_int_lists", "as_float_lists"), list),
    "as_scalar_type": lambda value: DTYPES.get(value, str(value)),
    **dict.fromkeys(("as_memory_format", "as_layout", "as_device"), lambda value: None),
    **dict.fromkeys(("as_sym_int", "as_sym_float", "as_sym_bool"), _symbol),
    **dict.fromkeys(("as_sym_ints", "as_sym_floats", "as_sym_bools"), lambda value: [_symbol(one) for one in value]),
}


def _outputs(module: Any) -> dict[str, Argument]:
    """Returns the results by name. Raises BadInput for state that changes in place."""
    values = []
    for spec in module["signature"]["output_specs"]:
        ((kind, own),) = spec.items()
        if kind == "user_input_mutation":
            continue
        if kind.endswith("_mutation"):
            what, name = kind.removesuffix("_mutation"), next(k for k in own if k != "arg")
            raise BadInput(
                f"the module changes its {what} {shortened(own[name])} in place, which is not supported: return the"
                " new value as a result instead"
            )
        values.append(_argument(own["arg"]) if kind == "user_output" else Ref(own["arg"]["name"]))
    paths = list(_paths(module)) or [""] * len(values)
    paths = paths if len(paths) == len(values) else [""] * len(values)
    found: dict[str, Argument] = {}
    for place, (path, value) in enumerate(zip(paths, values, strict=True)):
        found[numbered(output_name(path, place, len(values)), found)] = value
    return found


def output_name(path: str, place: int, count: int) -> str:
    """Returns the name of a result: the keys that lead to it, or output, or output_0, output_1 .."""
    if path and not path[0].isdigit():
        return path
    return f"output_{path or place}" if count > 1 else "output"


def _paths(module: Any) -> Iterator[str]:
    """Yields the keys that lead to each result, as far as they are of tuples, lists and dicts."""
    entries = [e for e in module.get("module_call_graph") or () if e.get("fqn") == "" and e.get("signature")]
    if entries:
        yield from _leaves(json.loads(entries[0]["signature"]["out_spec"])[1], ())


def _leaves(spec: Any, path: Sequence[str]) -> Iterator[str]:
    children = spec.get("children_spec") or []
    if spec.get("type") is None:
        yield ".".join(path)
        return
    keys = json.loads(spec["context"]) if spec["type"] in ("builtins.dict", "collections.OrderedDict") else None
    for place, child in enumerate(children):
        yield from _leaves(child, (*path, str(keys[place] if isinstance(keys, list) else place)))
