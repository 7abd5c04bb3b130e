"""Imports an exported graph: calls the record of each operator, and checks dims and dtypes against PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.importers.scope import Declarations
from glenside.importers.torch.graph import Argument, Call, Graph, Meta, Ref, mapped, refs
from glenside.importers.torch.node import Node, Refused, records
from glenside.ir.bounds import MOST_NODES
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.names import numbered, shortened
from glenside.ir.operators.requirements import spelled
from glenside.ir.program import Program, Signature
from glenside.ir.term import Term, build, postorder

IGNORED = ("layout", "device", "pin_memory", "memory_format", "non_blocking")
"""Arguments of creations and copies that say where and how a tensor is stored."""

MESSAGES = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size")
"""Operators that check or print, and have no result."""


@dataclass
class Scope(Declarations):
    """The values of nodes by name."""

    values: dict[str, Any] = field(default_factory=dict)
    metas: dict[str, Meta] = field(default_factory=dict)

    def is_contiguous(self, argument: Any) -> bool:
        """True if PyTorch is known to store the tensor of an argument in row-major order."""
        return isinstance(argument, Ref) and argument.name in self.metas and self.metas[argument.name].contiguous

    def read(self, argument: Argument) -> Any:
        """Returns an argument with the values of nodes in place of their names."""
        return mapped(argument, lambda ref: self.values[ref.name])


def program_of(graph: Graph) -> Program:
    """Returns the program of a graph; several results are a tuple, and its signature has their names.

    Raises BadInput, which names the node and its source line.
    """
    if len(graph.calls) > MOST_NODES:
        raise BadInput(f"the graph has {len(graph.calls)} nodes; a module may have at most {MOST_NODES}")
    scope = Scope(Builder(graph.name), metas={**graph.inputs, **graph.metas})
    inputs = []
    for name, meta in graph.inputs.items():
        scope.values[name] = scope.builder.input(name, meta.dims, _dtype(meta, f"input {name}"))
        inputs.append(scope.builder.tensors[name])
    weights = _declare_constants(scope, graph)
    made: dict[Term, str] = {}
    for call in graph.calls:
        value = scope.values[call.name] = evaluated(scope, call)
        scope.metas |= {call.name: call.results[0]} if call.results and call.results[0] else {}
        found = [part for part in (value if isinstance(value, list | tuple) else [value]) if isinstance(part, Term)]
        made |= {term: call.described() for term in postorder(*found, without=made) if term.children}
    results, remarks = {}, list(graph.remarks)
    for name, argument in graph.outputs.items():
        value = scope.read(argument)
        if isinstance(value, Term):
            results[name] = value
        else:
            remarks.append(f"output {name} is {value!r}, no tensor: it is left out")
    if not results:
        raise BadInput("the module returns no tensor; a program requires one")
    terms = list(results.values())
    program = scope.builder.finish(terms[0] if len(terms) == 1 else build("construct-tuple", *terms))
    fixed = frozenset(set(program.constants_declared) - weights)
    signature = Signature(tuple(inputs), tuple(results), remarks=tuple(remarks), fixed=fixed)
    return replace(program, signature=signature, nodes=made)


def _declare_constants(scope: Scope, graph: Graph) -> set[str]:
    """Declares parameters, buffers and constants under their names; returns the names of those that have axes."""
    declared: dict[str, Term] = {}
    weights = set()
    for placeholder, (name, value) in graph.constants.items():
        meta = graph.metas[placeholder]
        if name not in declared:
            fresh = numbered(name, scope.builder.tensors)
            dtype = _dtype(meta, f"constant {name}")
            declared[name] = scope.builder.constant(fresh, meta.dims, dtype, value)
            weights |= {fresh} if meta.dims else set()
            if not meta.dims or np.prod(meta.dims) <= _SMALL:
                scope.known.tensors[fresh] = value()
        scope.values[placeholder] = declared[name]
    return weights


_SMALL = 1 << 16
"""Elements of a buffer up to which operators may read its values at import."""


def _dtype(meta: Meta, what: str) -> str:
    """Returns our dtype of a tensor. Raises BadInput."""
    if meta.dtype not in RECORDS:
        why = ": complex numbers have no dtype here" if meta.dtype.startswith("complex") else ""
        raise BadInput(f"{what} has dtype torch.{meta.dtype}, which is not supported{why}")
    return meta.dtype


def evaluated(scope: Scope, call: Call) -> Any:
    """Returns the value of a call: a term, a list or tuple of terms, or a number. Raises BadInput, with its place."""
    try:
        return _evaluated(scope, call)
    except (GlensideError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, GlensideError) and error.status != BadInput.status:
            raise
        words = error.message if isinstance(error, GlensideError) else f"{type(error).__name__}: {error}"
        own = isinstance(error, GlensideError)
        raise Refused(f"{call.described()}: {words}") from (None if own else error)


def _evaluated(scope: Scope, call: Call) -> Any:
    if call.target == "getitem":
        value, index = map(scope.read, call.args)
        return value[index]
    name, overload = target_of(call.target)
    if name in MESSAGES:
        return None
    record = records().get(name)
    if record is None:
        ways = "docs/pytorch.md says which have; torch.compile(backend='glenside') leaves others to PyTorch"
        raise Refused(f"the operator {shortened(call.target)} has no meaning here; {ways}")
    if record.meaning is None:
        raise Refused(f"the operator {name} is refused: {record.why}")
    if overload not in record.overloads:
        raise Refused(
            f"the overload {shortened(overload)} has no meaning here; {name} has {', '.join(record.overloads)}"
        )
    for meta in filter(None, call.results):
        _dtype(meta, "its result")
    for ref in refs(call):
        if ref not in scope.values:
            raise Refused(f"reads {shortened(ref)}, which no node before it defines")
    kwargs = {key: scope.read(value) for key, value in call.kwargs.items() if key not in IGNORED}
    value = record.meaning(Node(call, scope), *(scope.read(argument) for argument in call.args), **kwargs)
    _check(call, value)
    return value


def target_of(target: str) -> tuple[str, str]:
    """Returns (add, Tensor) of aten.add.Tensor; other namespaces keep their name before the operator's."""
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    return (name if namespace == "aten" else f"{namespace}.{name}"), overload or "default"


def _check(call: Call, value: Any) -> None:
    """Raises Refused if the dims or dtype of a result are not PyTorch's: a mistake of ours, or of the file."""
    found = list(value) if isinstance(value, list | tuple) else [value]
    for meta, term in zip(call.results, found, strict=False):
        if meta is None or not isinstance(term, Term):
            continue
        if (tuple(term.access.dims), term.access.dtype) != (meta.dims, meta.dtype):
            want = f"{spelled(meta.dims)} {meta.dtype}"
            raise Refused(f"requires a result of {want}, got {spelled(term.access.dims)} {term.access.dtype}")


def is_supported(call: Call, metas: Mapping[str, Meta]) -> bool:
    """True if a call has a meaning when the tensors that it reads, of these dims and dtypes, are inputs."""
    scope = Scope(Builder(), metas=dict(metas))
    try:
        for name, meta in metas.items():
            scope.values[name] = scope.builder.input(name, meta.dims, _dtype(meta, name))
        evaluated(scope, call)
    except BadInput:
        return False
    return True
