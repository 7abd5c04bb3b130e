"""Decomposes a graph that was read from a file to operators that have a record, by PyTorch if it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from glenside.importers.torch.graph import Call, Graph, Meta, Ref, changed_in_place, mapped, with_changed
from glenside.importers.torch.node import records
from glenside.importers.torch.walk import MESSAGES, target_of
from glenside.ir.errors import BadInput
from glenside.ir.packages import import_torch

READERS = ("from_file",)
"""Operators that read files, which a graph of a user's file may not call."""


def decomposed(graph: Graph) -> Graph:
    """Returns the graph if each operator has a record, else PyTorch's decomposition of it, if PyTorch is installed.

    Without PyTorch the graph is returned as it is, and importing it names the operator. Nothing is computed: PyTorch
    traces the graph on tensors without elements.
    """
    if all(_has_record(call) for call in graph.calls):
        return graph
    unknown = next(call for call in graph.calls if not _has_record(call))
    if find_spec("torch") is None:
        ways = "install torch, which decomposes it, or save program.run_decompositions()"
        raise BadInput(f"{unknown.described()}: the operator {unknown.target} has no meaning here; {ways}")
    return _retraced(graph)


def _has_record(call: Call) -> bool:
    name, overload = target_of(call.target)
    if call.target == "getitem" or name in MESSAGES:
        return True
    record = records().get(name)
    return record is not None and (record.meaning is None or overload in record.overloads)


def _retraced(graph: Graph) -> Graph:
    from glenside.importers.torch.export import graph_of_fx, traced

    torch = import_torch()
    metas = {**{name: graph.metas[name] for name in graph.constants}, **graph.inputs}
    module = _module(graph, list(metas))
    examples = [torch.empty(meta.dims, dtype=_dtype(torch, meta)) for meta in metas.values()]
    try:
        with torch.fx.traceback.preserve_node_meta():
            found = graph_of_fx(traced(torch.fx.Interpreter(module).run, examples))
    except BadInput:
        raise
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        raise BadInput(f"PyTorch does not decompose the graph: {type(error).__name__}: {words}") from error
    placeholders = list(found.inputs)
    if len(placeholders) != len(metas):
        raise BadInput("PyTorch decomposes the graph to one with other inputs, which is not supported")
    names = dict(zip(placeholders, metas, strict=True))
    calls, changed = [], {}
    for call in found.calls:
        own = _renamed(call, names)
        if own.target != "aten.copy_.default":
            calls.append(own)
            continue
        given, value = own.args[:2]
        if given.name in graph.constants:
            raise changed_in_place("buffer", graph.constants[given.name][0])
        changed[given.name] = value
        names[call.name] = value.name
    outputs = dict(zip(graph.outputs, (_ref(value, names) for value in found.outputs.values()), strict=True))
    constants = {**graph.constants, **found.constants}
    metas = {**graph.metas, **found.metas}
    return with_changed(replace(graph, constants=constants, calls=calls, outputs=outputs, metas=metas), changed)


def _dtype(torch: Any, meta: Meta) -> Any:
    return getattr(torch, meta.dtype)


def _ref(argument: Any, names: Mapping[str, str]) -> Any:
    return mapped(argument, lambda ref: Ref(names.get(ref.name, ref.name)))


def _renamed(call: Call, names: Mapping[str, str]) -> Call:
    kwargs = {key: _ref(value, names) for key, value in call.kwargs.items()}
    return replace(call, args=_ref(call.args, names), kwargs=kwargs)


def _module(graph: Graph, inputs: list[str]) -> Any:
    """Returns a graph as a function of torch.fx that calls ATen operators on its inputs, in that order."""
    torch = import_torch()
    made = torch.fx.Graph()
    values = {name: made.placeholder(name) for name in inputs}
    for call in graph.calls:
        args = mapped(call.args, lambda ref: values[ref.name])
        kwargs = {
            key: _keyword(torch, mapped(value, lambda ref: values[ref.name])) for key, value in call.kwargs.items()
        }
        if call.target == "getitem":
            from operator import getitem

            node = made.call_function(getitem, args)
        else:
            node = made.call_function(_operator(torch, call), tuple(_keyword(torch, a) for a in args), kwargs)
        node.meta["stack_trace"] = call.trace
        values[call.name] = node
    made.output([mapped(value, lambda ref: values[ref.name]) for value in graph.outputs.values()])
    return torch.fx.GraphModule(torch.nn.Module(), made)


def _keyword(torch: Any, value: Any) -> Any:
    """Returns an argument with the dtype of PyTorch in place of its name."""
    found = getattr(torch, value, None) if isinstance(value, str) else None
    return found if isinstance(found, torch.dtype) else value


def _operator(torch: Any, call: Call) -> Any:
    """Returns the overload of ATen that a call names. Raises BadInput for any other function."""
    namespace, _, rest = call.target.partition(".")
    name, _, overload = rest.partition(".")
    packet = getattr(torch.ops.aten, name, None) if namespace == "aten" and name not in READERS else None
    found = getattr(packet, overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload):
        raise BadInput(f"{call.described()}: the operator {call.target} has no meaning here")
    return found
