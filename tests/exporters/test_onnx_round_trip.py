"""Tests import followed by export: the file computes the same, also in onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import numpy_helper  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_exports import agree, run  # noqa: E402
from onnx_failures import reason  # noqa: E402
from onnx_networks import LIGHT, NETWORKS, random_inputs, run_onnxruntime, small  # noqa: E402

from glenside.exporters.onnx import export_onnx  # noqa: E402
from glenside.importers.onnx import load_onnx, program_of_model  # noqa: E402
from glenside.importers.onnx.model import walk  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402
from glenside.ir.program import Program  # noqa: E402
from glenside.ir.term import Term, build  # noqa: E402
from glenside.semantics.interpreter import evaluate  # noqa: E402


def _cases() -> list[Any]:
    """Returns the standard tests of single nodes whose inputs and outputs are tensors, and that pass. Two of three
    are slow, as most are much like the one beside them, and what stands for an operator in other ones, whose own cases
    are here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests' own expected values overflow on purpose
        cases = load_model_tests(kind="node")
    plain = [case for case in cases if reason(case.name) is None and _plain(case)]
    slow = [place % 3 != 0 or "_expanded" in case.name for place, case in enumerate(plain)]
    marks = [], [pytest.mark.slow]
    return [pytest.param(case, id=case.name, marks=marks[own]) for case, own in zip(plain, slow, strict=True)]


def _plain(case: Any) -> bool:
    formals = (*case.model.graph.input, *case.model.graph.output)
    return all(formal.type.WhichOneof("value") == "tensor_type" for formal in formals)


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


@pytest.mark.parametrize("case", _cases())
@pytest.mark.filterwarnings("ignore")
def test_nodes(case: Any) -> None:
    graph = case.model.graph
    initialized = {tensor.name for tensor in graph.initializer}
    names = [i.name for i in graph.input if i.name not in initialized]
    for inputs, _ in case.data_sets:
        arrays = {name: _array(value) for name, value in zip(names, inputs, strict=False)}
        shapes = {name: array.shape for name, array in arrays.items()}
        walked = walk(case.model, {}, shapes, known=arrays)
        terms = [output for output in walked.outputs if isinstance(output, Term)]
        assert len(terms) == len(walked.outputs)
        want = evaluate(terms, {**arrays, **walked.builder.values})
        program = Program(build("construct-tuple", *terms), constants=dict(walked.builder.values))
        # onnxruntime has no casts of floats of 4 bits.
        _agree(program, arrays, want, _by_reference if "float4" in case.name.lower() else run)


def _by_reference(model: Any, inputs: Mapping[str, Array]) -> list[Array]:
    return list(ReferenceEvaluator(model).run(None, dict(inputs)))


def _agree(program: Program, inputs: Mapping[str, Array], want: Any, run: Any = run) -> None:
    model = export_onnx(program)
    onnx.checker.check_model(model, full_check=True)
    agree(run(model, inputs), tuple(want))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    network, model = NETWORKS[name], small(name)
    inputs = random_inputs(model, network.dims, highest=network.highest, seed=0)
    # Between nodes that quantize, onnxruntime's optimizations round elsewhere, as open dimensions let them.
    quantized = any(node.op_type == "DequantizeLinear" for node in model.graph.node)
    program, want = program_of_model(model, dims=network.dims), run_onnxruntime(model, inputs)
    _agree(program, inputs, want, run_onnxruntime if quantized else run)


@pytest.mark.slow
@pytest.mark.parametrize("path", LIGHT, ids=[path.stem for path in LIGHT])
def test_networks_of_the_onnx_package(path: Path) -> None:
    inputs = random_inputs(onnx.load(path), {})
    _agree(load_onnx(path), inputs, run_onnxruntime(str(path), inputs))
