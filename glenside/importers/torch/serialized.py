"""Reads the JSON of an exported program, in the schema of PyTorch's .pt2 files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.importers.torch.graph import Argument, Call, Graph, Meta, Ref, changed_in_place, mapped, with_changed
from glenside.importers.torch.symbols import NO_SIZES, Sizes, number_of, size_of
from glenside.ir.bounds import MOST_NODES
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


def tensor_meta(entry: Any, what: str, sizes: Sizes = NO_SIZES) -> TensorMeta:
    """Returns the layout of a tensor at given sizes. Raises BadInput for another open size or a dtype that we lack."""
    dtype = DTYPES.get(entry["dtype"], str(entry["dtype"]))
    if dtype not in RECORDS and not dtype.startswith("complex"):
        raise BadInput(f"{what} has the dtype {shortened(dtype)}, which is not supported")
    dims, strides = (tuple(size_of(size, what, sizes) for size in entry[key]) for key in ("sizes", "strides"))
    if len(strides) != len(dims):
        raise BadInput(f"{what} requires a stride for each of {len(dims)} axes, got {len(strides)}")
    return TensorMeta(dtype, dims, strides, size_of(entry["storage_offset"], what, sizes))


def _meta(entry: Any, what: str, sizes: Sizes) -> Meta:
    found = tensor_meta(entry, what, sizes)
    expected, step = [], 1
    for size in reversed(found.sizes):
        expected.append(step)
        step *= max(size, 1)
    plain = all(n == 1 or a == b for n, a, b in zip(found.sizes, found.strides, reversed(expected), strict=True))
    return Meta(found.sizes, found.dtype, plain)


def inputs_of_json(program: Any) -> dict[str, Any]:
    """Returns the tensors that the inputs of an exported program are, by name, as the file describes them."""
    module = program["graph_module"]
    specs = (spec["user_input"]["arg"] for spec in module["signature"]["input_specs"] if "user_input" in spec)
    names = [own["as_tensor"]["name"] for own in specs if "as_tensor" in own]
    return {name: module["graph"]["tensor_values"][name] for name in names}


def graph_of_json(program: Any, tensors: Mapping[str, Callable[[], Array]], sizes: Sizes = NO_SIZES) -> Graph:
    """Returns the graph of an exported program, at given sizes of its symbols.

    `tensors` are its weights and constants by name. Raises BadInput.
    """
    module = program["graph_module"]
    graph, signature = module["graph"], module["signature"]
    major = program["schema_version"]["major"]
    if major != 8:
        raise BadInput(f"is of version {major} of the schema of exported programs; 8 is supported")
    if len(graph["nodes"]) > MOST_NODES:
        raise BadInput(f"has {len(graph['nodes'])} nodes; a program may have at most {MOST_NODES}")
    metas = graph["tensor_values"]
    inputs = {n: _meta(own, f"input {shortened(n)}", sizes) for n, own in inputs_of_json(program).items()}
    constants: dict[str, tuple[str, Callable[[], Array]]] = {}
    for spec in signature["input_specs"]:
        ((kind, own),) = spec.items()
        if kind in ("constant_input", "user_input"):
            continue
        names = [key for key in ("parameter_name", "buffer_name", "tensor_constant_name") if key in own]
        if not names:
            raise BadInput(f"has an input that is a {shortened(kind)}, which is not supported")
        name = own[names[0]]
        if name not in tensors:
            raise BadInput(f"has no value of {shortened(name)}")
        constants[own["arg"]["name"]] = name, tensors[name]
    numbers = _numbers(graph, sizes)
    calls = [call for node in graph["nodes"] for call in _calls(node, metas, sizes, numbers)]
    of = {name: _meta(metas[name], f"constant {shortened(name)}", sizes) for name in constants}
    outputs = {name: _known(value, numbers) for name, value in _outputs(module).items()}
    found = Graph("program", inputs, constants, calls, outputs, metas=of)
    specs = [spec.get("user_input_mutation") for spec in module["signature"]["output_specs"]]
    return with_changed(found, {own["user_input_name"]: Ref(own["arg"]["name"]) for own in specs if own})


def _numbers(graph: Any, sizes: Sizes) -> dict[str, Any]:
    """Returns the values of nodes that compute numbers of sizes, by name."""
    found = {}
    for kind in ("sym_int_values", "sym_float_values", "sym_bool_values") if sizes else ():
        for name, entry in graph.get(kind, {}).items():
            found[name] = number_of(entry, f"node {shortened(name)}", sizes)
    return found


def _known(argument: Argument, numbers: Mapping[str, Any]) -> Any:
    """Returns an argument with the numbers of nodes that compute them in place of these nodes."""
    return mapped(argument, lambda ref: numbers.get(ref.name, ref))


def _calls(node: Any, metas: Any, sizes: Sizes, numbers: Mapping[str, Any]) -> Iterator[Call]:
    """Yields the call of a node, and one that takes each of several results; none if its value is a known number."""
    target = node["target"]
    if not isinstance(target, str) or not target.startswith("torch.ops."):
        target = {"_operator.getitem": "getitem"}.get(target, str(target))
    args, kwargs = [], {}
    for argument in node["inputs"]:
        if argument.get("kind") == KEYWORD:
            kwargs[argument["name"]] = _known(_argument(argument["arg"]), numbers)
        else:
            args.append(_known(_argument(argument["arg"]), numbers))
    outputs = node["outputs"]
    listed = [one["name"] for one in outputs[0]["as_tensors"]] if outputs and "as_tensors" in outputs[0] else None
    names = listed if listed is not None else [_name(one) for one in outputs]
    if len(names) == 1 and names[0] in numbers:
        return
    results = [_meta(metas[name], f"node {shortened(name)}", sizes) if name in metas else None for name in names]
    info = node.get("metadata") or {}
    trace, layer = str(info.get("stack_trace") or ""), _layer(str(info.get("nn_module_stack") or ""))
    single = listed is None and len(names) == 1
    name = names[0] if single else f"{node.get('name') or names[0] if names else 'node'}.results"
    yield Call(name, target.removeprefix("torch.ops."), tuple(args), kwargs, results, trace, layer)
    if not single:
        for i, part in enumerate(names):
            if part:
                yield Call(part, "getitem", (Ref(name), i), {}, [results[i]], trace, layer)


def _name(output: Any) -> str:
    """Returns the name of a result: of a tensor, or of a number; an empty text if it has none."""
    value = next(iter(output.values()))
    return str(value.get("name") or value.get("as_name") or "") if isinstance(value, dict) else ""


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
            raise changed_in_place(kind.removesuffix("_mutation"), own[next(k for k in own if k != "arg")])
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
