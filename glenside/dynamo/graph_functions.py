"""Compiles graphs of torch.fx to functions of tensors, and leaves refused operators to PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import getitem
from typing import Any

from glenside.driver import compile as compiled
from glenside.dynamo.options import Options, options_of
from glenside.importers.torch.export import calls_of, decompositions, graph_of_fx, meta_of
from glenside.importers.torch.graph import Call, Meta, Ref, refs
from glenside.importers.torch.walk import is_supported, program_of
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.packages import import_torch
from glenside.ir.torch_tensors import array_of, tensor_of

MOST_VARIANTS = 16
"""Compiled functions of one graph, for different sizes and frozen values; further ones are left to PyTorch."""

Function = Callable[..., Sequence[Any]]
_said: set[str] = set()


def backend(module: Any, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = None) -> Any:
    """Compiles a traced module, as `torch.compile(model, backend="glenside")` asks for. Raises BadInput.

    options  see `glenside.dynamo.options.Options`
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch.nn.attention import SDPBackend, sdpa_kernel

    own = options_of(options)
    table = decompositions()
    # PyTorch's decomposition returns other values for the backward pass than those that it reads.
    table.pop(import_torch().ops.aten._scaled_dot_product_flash_attention_for_cpu.default, None)
    with sdpa_kernel(SDPBackend.MATH):  # products and a softmax, whose gradients have a meaning here, too
        return aot_autograd(fw_compiler=lambda graph, _: _boxed(graph, own), decompositions=table)(
            module, example_inputs
        )


def _boxed(graph: Any, options: Options) -> Any:
    """Returns a graph as a function that takes its arguments in a list, and compiles it when it is first called."""
    from functorch.compile import make_boxed_func

    frozen = _static_inputs(graph) if options.freeze else []
    variants: dict[tuple[Any, ...], Function] = {}

    def run(*args: Any) -> Sequence[Any]:
        key = tuple(_key(value, place in frozen) for place, value in enumerate(args))
        if key not in variants:
            many = len(variants) >= MOST_VARIANTS
            variants[key] = _eager(graph) if many else _function(_specialized(graph, args), args, frozen, options)
        return variants[key](*args)

    return make_boxed_func(run)


def _key(value: Any, frozen: bool) -> Any:
    """Returns what a compiled function depends on: dims and dtype, the value of a number, the version of a weight."""
    torch = import_torch()
    if not isinstance(value, torch.Tensor):
        return value
    own = (tuple(value.shape), value.dtype, value.device.type)
    return (*own, value.data_ptr(), value._version) if frozen else own


def _static_inputs(graph: Any) -> list[int]:
    """Returns the places of inputs that are parameters or buffers, as AOTAutograd knows them."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    known = getattr(getattr(context, "fw_metadata", None), "static_input_indices", None)
    return list(known or ())


def _specialized(graph: Any, args: Sequence[Any]) -> Any:
    """Returns the graph for the sizes of these arguments; a graph of fixed sizes as it is."""
    from torch.fx.experimental.proxy_tensor import make_fx

    torch = import_torch()
    if not any(isinstance(size, torch.SymInt) for node in graph.graph.nodes for size in _sizes(node.meta.get("val"))):
        return graph
    with torch.no_grad():
        return make_fx(graph, tracing_mode="fake")(*args)


def _sizes(value: Any) -> Sequence[Any]:
    return value.shape if hasattr(value, "shape") else value if isinstance(value, tuple | list) else [value]


def _eager(graph: Any) -> Function:
    function: Function = graph.forward
    return function


def _function(graph: Any, args: Sequence[Any], frozen: Sequence[int], options: Options) -> Function:
    """Returns a compiled graph; if it is refused, with the operators that are refused left to PyTorch."""
    try:
        return _compiled(graph, args, frozen, options)
    except GlensideError as error:
        _say(error.message)
    return _eager(_partitioned(graph, options))


def _say(reason: str) -> None:
    """Warns that PyTorch runs a part, once for each reason."""
    operator = reason.partition("(")[2].partition(")")[0] or reason
    if operator not in _said:
        _said.add(operator)
        warnings.warn(f"glenside leaves a part to PyTorch: {reason}", stacklevel=3)


def _compiled(graph: Any, args: Sequence[Any] | None, frozen: Sequence[int], options: Options) -> Function:
    """Returns a graph as a function of tensors. Raises GlensideError."""
    torch = import_torch()
    exported = graph_of_fx(graph)
    places = {node.name: i for i, node in enumerate(n for n in graph.graph.nodes if n.op == "placeholder")}
    computed = {
        name: value for name, value in exported.outputs.items() if isinstance(value, Ref) and value.name not in places
    }
    if not computed:
        return _eager(graph)
    program = program_of(replace(exported, outputs=computed))
    for name in computed.keys() - set(program.signature.outputs):
        own = next(node for node in graph.graph.nodes if node.name == computed[name].name)
        source = own.args[0] if own.target is getitem else own
        raise BadInput(f"node {own.name} ({source.target}): this result of the operator has no meaning here")
    if args is not None:
        values = {name: array_of(args[place]) for name, place in places.items() if place in frozen}
        program = program.with_values({name: value for name, value in values.items() if name in program.inputs})
    read = [places[name] for name in program.inputs]
    function = compiled(program, options.target)
    strides = [_strides(node) for node in _outputs(graph)]

    def run(*given: Any) -> Sequence[Any]:
        with torch.no_grad():
            found = function(*(array_of(given[place]) for place in read), threads=options.threads)
            tensors = iter(found if isinstance(found, tuple) else (found,))
            outputs: list[Any] = []
            for (name, value), stride in zip(exported.outputs.items(), strides, strict=True):
                if name in computed:
                    outputs.append(_laid_out(torch, tensor_of(next(tensors)), stride))
                else:
                    outputs.append(given[places[value.name]] if isinstance(value, Ref) else value)
            return outputs

    return run


def _outputs(graph: Any) -> Sequence[Any]:
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    value = output.args[0]
    return value if isinstance(value, tuple | list) else [value]


def _strides(node: Any) -> tuple[int, ...] | None:
    """Returns the strides that PyTorch expects of an output."""
    value: Any = getattr(node, "meta", {}).get("val")
    return tuple(value.stride()) if hasattr(value, "stride") else None


def _laid_out(torch: Any, tensor: Any, strides: tuple[int, ...] | None) -> Any:
    """Returns a tensor with these strides, as views of it later rely on them."""
    if strides is None or tensor.stride() == strides or tensor.numel() <= 1:
        return tensor
    found = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
    once = tuple(slice(None) if stride else slice(1) for stride in strides)  # of an axis that is expanded, one element
    found[once].copy_(tensor[once])
    return found


def _partitioned(graph: Any, options: Options) -> Any:
    """Returns a graph in which each connected part of supported operators is compiled."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import create_op_support

    supported: dict[str, bool] = {}
    for call in calls_of(graph.graph, leniently=True):
        of = call.args[0].name if call.target == "getitem" else ""
        supported[call.name] = supported.get(of, False) if of else is_supported(call, _metas(graph, call))
    support = create_op_support(lambda _, node: supported.get(node.name, False))
    partitioner = CapabilityBasedPartitioner(graph, support)
    parted = partitioner.fuse_partitions(partitioner.propose_partitions())
    for name, part in list(parted.named_children()):
        try:
            function = _compiled(part, None, (), options)
        except GlensideError as error:
            _say(error.message)
        else:
            single = not isinstance(next(n for n in part.graph.nodes if n.op == "output").args[0], tuple | list)
            setattr(parted, name, _part(function, single))
    return parted


def _metas(graph: Any, call: Call) -> dict[str, Meta]:
    """Returns the dims and dtypes of the tensors that a call reads."""
    names = set(refs(call))
    metas = {node.name: meta_of(node.meta.get("val"), node.name) for node in graph.graph.nodes if node.name in names}
    return {name: meta for name, meta in metas.items() if meta is not None}


def _part(function: Function, single: bool) -> Any:
    """Returns a function as a module, which replaces a part of a graph."""
    module = import_torch().nn.Module()
    module.forward = (lambda *args: function(*args)[0]) if single else function
    return module
