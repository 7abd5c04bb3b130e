"""Implements the standard `onnx.backend` interface.

  from glenside.importers.onnx import backend
  backend.run_model(model, inputs)

A model is imported at each run, when the input arrays are known: a shape or an axis that is an input is a constant of
that run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from glenside.importers.onnx.model import walk
from glenside.importers.onnx.node import Items, Value
from glenside.importers.onnx.tensors import array_of, element_type
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.semantics.interpreter import evaluate


class GlensideBackendRep(BackendRep):  # type: ignore[misc]
    """A model that runs."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Returns the outputs for these inputs, given in order or by name. Raises BadInput."""
        initialized = {tensor.name for tensor in self.model.graph.initializer}
        names = [i.name for i in self.model.graph.input if i.name not in initialized]
        if isinstance(inputs, Mapping):
            given = {name: inputs[name] for name in names if name in inputs}
        else:
            values = inputs if isinstance(inputs, list | tuple) else [inputs]
            given = dict(zip(names, values, strict=False))
        missing = [name for name in names if name not in given]
        if missing:
            raise BadInput(f"the model requires the input {missing[0]}, got none")
        kinds = {i.name: i.type.WhichOneof("value") for i in self.model.graph.input}
        composed = {
            name: _elements(given.pop(name)) for name in names if kinds[name] in ("sequence_type", "optional_type")
        }
        arrays = {name: _array(value) for name, value in given.items()}
        shapes = {name: array.shape for name, array in arrays.items()}
        walked = walk(self.model, {}, shapes, known=arrays, composed=composed)
        results = _evaluated(walked.outputs, {**arrays, **walked.builder.values})
        names = [output.name for output in self.model.graph.output]
        outcome: tuple[Any, ...] = namedtupledict("Outputs", names)(*results)
        return outcome


def _evaluated(outputs: Sequence[Value], values: Mapping[str, Array]) -> list[Any]:
    arrays = iter(evaluate(list(_terms(outputs)), values))

    def result(value: Value) -> Any:
        if isinstance(value, Items):
            return [result(part) for part in value.values]
        return None if value is None else next(arrays)

    return [result(value) for value in outputs]


def _terms(values: Sequence[Value]) -> Iterator[Term]:
    for value in values:
        if isinstance(value, Items):
            yield from _terms(value.values)
        elif value is not None:
            yield value


def _array(value: Any) -> Array:
    return array_of(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _elements(value: Any) -> Any:
    """Converts the elements of a sequence or an optional value to arrays."""
    if value is None:
        return None
    return [_array(element) for element in value] if isinstance(value, list | tuple) else _array(value)


def _formal(name: str, value: Any) -> Any:
    """Declares an input by its value: an array, or a list of arrays."""
    if not isinstance(value, list):
        return onnx.helper.make_tensor_value_info(name, element_type(value.dtype), value.shape)
    dtype = element_type(value[0].dtype if value else "float32")
    return onnx.helper.make_tensor_sequence_value_info(name, dtype, None)


class GlensideBackend(Backend):  # type: ignore[misc]
    """The programs of ONNX models, run by the interpreter."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> GlensideBackendRep:
        """Prepares a model to run. Raises BadInput for a device other than the CPU."""
        if not cls.supports_device(device):
            raise BadInput(f"a device is CPU, got {device}")
        return GlensideBackendRep(model)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Runs one node on arrays, at the newest opset or at `opset_version`."""
        arrays = [_elements(value) for value in inputs]
        names = [name for name in node.input if name]
        formals = [_formal(name, value) for name, value in zip(names, arrays, strict=True)]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", formals, outputs)
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        opsets = [onnx.helper.make_opsetid(node.domain, version)]
        return cls.prepare(onnx.helper.make_model(graph, opset_imports=opsets), device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return bool(device.split(":")[0] == "CPU")


is_compatible = GlensideBackend.is_compatible
prepare = GlensideBackend.prepare
run_model = GlensideBackend.run_model
run_node = GlensideBackend.run_node
supports_device = GlensideBackend.supports_device
