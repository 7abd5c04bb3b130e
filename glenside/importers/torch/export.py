"""Reads what PyTorch exports: an ExportedProgram or a graph of torch.fx, as a graph of plain records."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from glenside.importers.torch.graph import Argument, Call, Graph, Meta, Ref, changed_in_place, with_changed
from glenside.importers.torch.node import records
from glenside.importers.torch.serialized import output_name
from glenside.importers.torch.walk import program_of
from glenside.ir.errors import BadInput
from glenside.ir.names import numbered
from glenside.ir.open_program import OpenProgram
from glenside.ir.packages import import_torch
from glenside.ir.program import Program
from glenside.ir.torch_tensors import array_of, dtype_name

Sizes = Mapping[Any, int]
"""The symbols of open sizes in an exported graph, and the numbers that stand for them."""


def from_torch(
    module: Any, example_inputs: Any = (), kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None
) -> Program | OpenProgram:
    """Returns the program of a PyTorch module, exported by `torch.export` and decomposed to Core ATen.

      module          an `nn.Module`, a function of tensors, or an `ExportedProgram`, which needs no inputs
      example_inputs  a tuple of arguments; a single tensor is one argument; a dict is arguments by name
      kwargs          further arguments by name
      dynamic_shapes  sizes that stay open, as `torch.export.export` takes them: each a `torch.export.Dim` with `max`.
                      Then the result is an `OpenProgram`, whose ranges have the names of these dims

    Inputs have the names and order of the module's arguments; parameters and buffers keep their names, and share
    memory with the module's tensors. Several results are a tuple, named after the keys of the module's result. Raises
    BadInput, which names the node and its source line.
    """
    torch = import_torch()
    if isinstance(module, torch.export.ExportedProgram):
        return _program_of(decomposed(module), dynamic_shapes)
    if not callable(module):
        raise BadInput(f"from_torch takes an nn.Module, a function or an ExportedProgram, got {type(module).__name__}")
    args, named = _arguments(torch, example_inputs, kwargs)
    own = module if isinstance(module, torch.nn.Module) else _as_module(torch, module, len(args))
    name = type(module).__name__ if own is module else getattr(module, "__name__", "function")
    return _program_of(decomposed(exported(own, args, named, name, dynamic_shapes), name), dynamic_shapes, name)


def _program_of(program: Any, dynamic_shapes: Any, name: str = "") -> Program | OpenProgram:
    """Returns the program of a decomposed ExportedProgram; an open one if a range of sizes is open. Raises BadInput."""
    symbols = _symbols(program)
    if not symbols:
        return program_of(graph_of_export(program, name))
    names = _names_of_dims(program, dynamic_shapes)
    ranges: dict[str, tuple[int, int]] = {}
    for symbol in symbols:
        own = names.get(symbol, str(symbol))
        low, high = (_bound(program.range_constraints[symbol], side) for side in ("lower", "upper"))
        if high is None:
            raise BadInput(f"the size {own} has no greatest value: give torch.export.Dim({own!r}, max=..)")
        ranges[own] = (low or 0, high)

    def make(sizes: Mapping[str, int]) -> Program:
        return program_of(graph_of_export(program, name, {s: sizes[names.get(s, str(s))] for s in symbols}))

    return OpenProgram(make, ranges, name or "program")


def _symbols(program: Any) -> list[Any]:
    """Returns the symbols of the open sizes of a program's inputs, in the order of its inputs."""
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    sizes = (size for value in values if hasattr(value, "shape") for size in value.shape if not isinstance(size, int))
    found = (size.node.expr for size in sizes if size.node.maybe_as_int() is None)
    return list(dict.fromkeys(symbol for expr in found for symbol in sorted(expr.free_symbols, key=str)))


def _names_of_dims(program: Any, dynamic_shapes: Any) -> dict[Any, str]:
    """Returns symbol -> the name of the Dim that was given for it."""
    from torch.utils import _pytree as pytree

    given = list(dynamic_shapes.values()) if isinstance(dynamic_shapes, Mapping) else dynamic_shapes

    def is_shape(value: Any) -> bool:
        keys = value if isinstance(value, Mapping) else ()
        parts = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        leaves = all(not isinstance(part, Mapping | list | tuple) for part in parts)
        return value is None or (bool(parts) and leaves and all(isinstance(key, int) for key in keys))

    shapes = pytree.tree_leaves(given, is_leaf=is_shape)
    inputs = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    metas = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    found: dict[Any, str] = {}
    for name, shape in zip(inputs, shapes, strict=False):
        entries = shape.items() if isinstance(shape, Mapping) else enumerate(shape or ())
        for axis, dim in entries:
            size = getattr(metas.get(name), "shape", ())[axis] if dim is not None else 0
            own = getattr(getattr(dim, "root", dim), "__name__", "")  # 32 * Dim("rows") is derived from a root
            symbols = [] if isinstance(size, int) else [*size.node.expr.free_symbols]
            if own.isidentifier() and len(symbols) == 1:
                found.setdefault(symbols[0], own)
    return found


def _bound(constraint: Any, side: str) -> int | None:
    """Returns an end of the range of a symbol; None if it is open."""
    bound = getattr(constraint, side)
    return int(bound) if bound.is_Integer and abs(int(bound)) < 1 << 31 else None


def _arguments(torch: Any, inputs: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), {**inputs, **(kwargs or {})}
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if not isinstance(inputs, tuple | list):
        raise BadInput(f"example_inputs is a tuple of arguments, a tensor or a dict, got {type(inputs).__name__}")
    return tuple(inputs), dict(kwargs or {})


def _as_module(torch: Any, function: Callable[..., Any], arguments: int) -> Any:
    """Returns a function as a module whose arguments have the function's names, which `dynamic_shapes` may use."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    try:
        own = inspect.signature(function)
    except (TypeError, ValueError):  # functions in C have none
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own = inspect.Signature([inspect.Parameter(f"args_{i}", kind) for i in range(arguments)])
    forward.__signature__ = own  # type: ignore[attr-defined]
    module = torch.nn.Module()
    module.forward = forward
    return module


def exported(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, dynamic_shapes: Any = None) -> Any:
    """Returns a module as an ExportedProgram. Raises BadInput with PyTorch's reason."""
    torch = import_torch()
    try:
        with _quiet():
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:
        raise BadInput(f"torch.export does not export {name}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Returns PyTorch's reason in one sentence; what depends on data is named as such."""
    words = " ".join(str(error).split("\n\n")[0].split())[:300]
    if "data-dependent" in words or type(error).__name__ == "GuardOnDataDependentSymNode":
        return f"its shapes or branches depend on data: {words}"
    return f"{type(error).__name__}: {words}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses PyTorch's warnings about its own interfaces, and the graph that it prints when an export fails."""
    with warnings.catch_warnings(), redirect_stderr(StringIO()), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(level)


def decompositions() -> Any:
    """Returns PyTorch's table of decompositions to Core ATen, without the operators that have a record here."""
    torch = import_torch()
    table = torch.export.default_decompositions()
    return {op: how for op, how in table.items() if not _is_recorded(op)}


def _is_recorded(operator: Any) -> bool:
    namespace, _, rest = str(operator).partition(".")
    name, _, overload = rest.partition(".")
    record = records().get(name if namespace == "aten" else f"{namespace}.{name}")
    return record is not None and record.meaning is not None and (overload or "default") in record.overloads


def decomposed(program: Any, name: str = "") -> Any:
    """Returns an ExportedProgram whose operators have records here, or are Core ATen. Raises BadInput."""
    try:
        with _quiet():
            return program.run_decompositions(decompositions())
    except Exception as error:
        raise BadInput(f"PyTorch does not decompose the graph of {name}: {_reason(error)}") from error


def graph_of_export(program: Any, name: str = "", sizes: Sizes = MappingProxyType({})) -> Graph:
    """Returns the graph of a decomposed ExportedProgram at given sizes. Raises BadInput for state that changes."""
    torch = import_torch()
    signature = program.graph_signature
    _require_no_mutation(signature)
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs: dict[str, Meta] = {}
    constants: dict[str, tuple[str, Callable[[], Any]]] = {}
    metas: dict[str, Meta] = {}
    tensors = {**program.state_dict, **program.constants}
    first: dict[Any, str] = {}
    for spec in signature.input_specs:
        kind, own = spec.kind.name, getattr(spec.arg, "name", "")
        meta = meta_of(placeholders[own].meta.get("val"), f"input {own}", sizes) if own in placeholders else None
        if kind == "USER_INPUT":
            if meta is not None:
                inputs[own] = meta
        elif kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR") and meta is not None:
            tensor = tensors[spec.target]
            if isinstance(tensor, torch._subclasses.FakeTensor):
                raise BadInput(f"{spec.target} has no value: the module was made on tensors without elements")
            same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else spec.target
            constants[own] = first.setdefault(same, spec.target), partial(array_of, tensor)
            metas[own] = meta
        else:
            raise BadInput(f"input {own or spec.target} is {kind.lower().replace('_', ' ')}, which is not supported")
    numbers = {node.name: node.meta["val"] for node in program.graph.nodes if sizes and _is_size(node.meta.get("val"))}
    outputs = {key: _number_of(value, numbers, sizes) for key, value in _outputs(program).items()}
    name = name or type(program).__name__
    found = Graph(name, inputs, constants, list(calls_of(program.graph, sizes)), outputs, metas=metas)
    changed = [spec for spec in signature.output_specs if spec.kind.name == "USER_INPUT_MUTATION"]
    return with_changed(found, {spec.target: _argument(spec) for spec in changed})


def _require_no_mutation(signature: Any) -> None:
    for spec in signature.output_specs:
        kind = spec.kind.name
        if kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
            raise changed_in_place(kind.removesuffix("_MUTATION").lower(), spec.target)


def _outputs(program: Any) -> dict[str, Argument]:
    """Returns the results by name: the keys that lead to them, or output, or output_0, output_1 .."""
    from torch.utils import _pytree as pytree

    spec = program.call_spec.out_spec
    values = [
        _argument(s) for s in program.graph_signature.output_specs if s.kind.name in ("USER_OUTPUT", "LOSS_OUTPUT")
    ]
    paths: list[Any] = [None] * len(values)
    if spec is not None and spec.num_leaves == len(values):
        tree = pytree.tree_unflatten(list(range(len(values))), spec)
        for path, place in pytree.tree_flatten_with_path(tree)[0]:
            if isinstance(place, int):
                paths[place] = path
    found: dict[str, Argument] = {}
    for place, (path, value) in enumerate(zip(paths, values, strict=True)):
        keys = [getattr(key, "key", getattr(key, "idx", getattr(key, "name", place))) for key in path or ()]
        name = output_name(".".join(map(str, keys)), place, len(values))
        found[numbered(name, found)] = value
    return found


def _argument(spec: Any) -> Argument:
    return spec.arg.value if type(spec.arg).__name__ == "ConstantArgument" else Ref(spec.arg.name)


def calls_of(graph: Any, sizes: Sizes = MappingProxyType({}), *, leniently: bool = False) -> Iterator[Call]:
    """Yields the calls of a graph of torch.fx, but for those that compute sizes.

    Raises BadInput for a node that has no meaning here, which is left out if the graph is read `leniently`.
    """
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output") or (sizes and _is_size(node.meta.get("val"))):
            continue
        try:
            yield _call(node, sizes)
        except BadInput:
            if not leniently:
                raise


def _call(node: Any, sizes: Sizes) -> Call:
    if node.op != "call_function":
        raise BadInput(f"node {node.name}: a node of kind {node.op} has no meaning here")
    target = "getitem" if node.target.__name__ == "getitem" else _target(node.target)
    value = node.meta.get("val")
    several = list(value) if isinstance(value, list | tuple) else [value]
    results = [meta_of(one, f"node {node.name} ({target})", sizes) for one in several]
    kwargs = {key: argument_of(part, sizes) for key, part in node.kwargs.items()}
    args = tuple(argument_of(part, sizes) for part in node.args)
    return Call(node.name, target, args, kwargs, results, str(node.meta.get("stack_trace") or ""), _layer(node))


def _target(target: Any) -> str:
    """Returns aten.add.Tensor of an overload; a function of Python or a higher-order operator keeps its name."""
    words = str(target)
    return words if words.count(".") >= 2 and " " not in words else getattr(target, "__name__", words)


def _layer(node: Any) -> str:
    """Returns the path of the module that calls a node, such as layers.0.attention."""
    stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    path = str([*stack.values()][-1][0]) if stack else ""
    return path.removeprefix("L['self'].")


def _is_size(value: Any) -> bool:
    """True for a number that is computed from sizes."""
    torch = import_torch()
    return isinstance(value, int | float | torch.SymInt | torch.SymFloat | torch.SymBool)


def _number(value: Any, sizes: Sizes) -> Any:
    """Returns a number that is computed from sizes; None if it depends on others."""
    if isinstance(value, int | float):
        return value
    known = value.node.expr.subs(dict(sizes)) if sizes else value.node.expr
    if not known.is_number and known not in (True, False):
        return None
    kind = type(value).__name__
    return bool(known) if kind == "SymBool" else float(known) if kind == "SymFloat" else int(known)


def _number_of(argument: Argument, numbers: Mapping[str, Any], sizes: Sizes) -> Argument:
    """Returns the number that a result is, if its node computes one from sizes; else the result."""
    is_number = isinstance(argument, Ref) and argument.name in numbers
    return _number(numbers[argument.name], sizes) if is_number else argument  # type: ignore[union-attr]


def argument_of(argument: Any, sizes: Sizes = MappingProxyType({})) -> Any:
    """Returns an argument of a node with names of nodes, dtypes and numbers of plain Python. Raises BadInput."""
    torch = import_torch()
    if isinstance(argument, torch.fx.Node):
        value = argument.meta.get("val")
        return _number(value, sizes) if sizes and _is_size(value) else Ref(argument.name)
    if isinstance(argument, list | tuple):
        return [argument_of(part, sizes) for part in argument]
    if isinstance(argument, torch.dtype):
        return dtype_name(argument)
    if isinstance(argument, torch.SymInt | torch.SymFloat | torch.SymBool):
        found = _number(argument, sizes)
        if found is None:
            raise BadInput(f"the size {argument} is not known; give numbers")
        return found
    if isinstance(argument, complex):
        raise BadInput(f"the number {argument} is complex, and complex numbers have no dtype here")
    return argument if isinstance(argument, int | float | str | None) else str(argument)


def meta_of(value: Any, what: str, open_sizes: Sizes = MappingProxyType({})) -> Meta | None:
    """Returns the dims and dtype of a fake tensor, None for anything else. Raises BadInput for a size that is open."""
    torch = import_torch()
    if not isinstance(value, torch.Tensor):
        return None
    sizes = [_number(size, open_sizes) for size in value.shape]
    if None in sizes:
        open_ = [str(size) for size, known in zip(value.shape, sizes, strict=True) if known is None]
        depends = any(size.startswith(("u", "Max(", "Min(")) for size in open_)
        why = "depends on data" if depends else "is open"
        raise BadInput(f"{what}: the size {open_[0]} {why}; a program has fixed sizes")
    if value.device.type != "cpu":
        raise BadInput(f"{what}: requires a tensor of the CPU, got one on {value.device}; move the module with .cpu()")
    if value.layout != torch.strided:
        raise BadInput(f"{what}: requires dense tensors, got the layout {value.layout}")
    return Meta(tuple(sizes), dtype_name(value.dtype), value.is_contiguous())


def traced(function: Callable[..., Any], tensors: Sequence[Any], table: Any = None) -> Any:
    """Returns a function of tensors as a graph of Core ATen without changes in place; no elements are computed."""
    from torch.fx.experimental.proxy_tensor import make_fx

    torch = import_torch()
    table = decompositions() if table is None else table
    with torch.no_grad(), _quiet(), torch.backends.mkldnn.flags(enabled=False):  # its recurrent layers are opaque
        found: Any = function
        for _ in range(2):  # a decomposition may change its own tensors in place, which the second pass removes
            plain = torch.func.functionalize(found)
            found = make_fx(plain, decomposition_table=table, tracing_mode="fake")(*tensors)
            names = [str(node.target).partition(".")[2].partition(".")[0] for node in found.graph.nodes]
            if not any(name.endswith("_") for name in names):
                break
    return found


def graph_of_fx(module: Any, name: str = "torch") -> Graph:
    """Returns a graph of torch.fx: its placeholders are inputs, its attributes constants. Raises BadInput."""
    inputs: dict[str, Meta] = {}
    constants: dict[str, tuple[str, Callable[[], Any]]] = {}
    metas: dict[str, Meta] = {}
    outputs: dict[str, Argument] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            meta = meta_of(node.meta.get("val"), f"input {node.name}")
            if meta is None and not node.users:
                continue
            if meta is None:
                raise BadInput(f"input {node.name} is {node.meta.get('val')!r}, no tensor")
            inputs[node.name] = meta
        elif node.op == "get_attr":
            tensor = attrgetter(node.target)(module)
            meta = meta_of(tensor, f"attribute {node.target}")
            if meta is None:
                raise BadInput(f"attribute {node.target} is {type(tensor).__name__}, no tensor")
            constants[node.name], metas[node.name] = (node.target, partial(array_of, tensor)), meta
        elif node.op == "output":
            values = node.args[0] if isinstance(node.args[0], list | tuple) else [node.args[0]]
            outputs = {f"output_{place}": argument_of(value) for place, value in enumerate(values)}
    return Graph(name, inputs, constants, list(calls_of(module.graph)), outputs, metas=metas)
