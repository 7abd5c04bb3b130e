"""Builds small models of every version of every ONNX operator, from ONNX's own test cases of the newest version."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnx.backend.test.case.base
from onnx import defs, helper, numpy_helper

Array = Any


@dataclass(frozen=True)
class Case:
    """One node of one version with its arrays, which are inputs unless they are `fixed`."""

    name: str
    op: str
    domain: str
    version: int
    inputs: tuple[Array | None, ...]
    attributes: tuple[Any, ...]
    outputs: tuple[str, ...]
    fixed: frozenset[int]
    results: tuple[Any, ...] = ()

    @property
    def opset(self) -> int:
        """Returns the version of the standard operators."""
        return self.version if not self.domain else 17

    def model(self) -> onnx.ModelProto:
        """Returns the model of the node; fixed arrays are initializers."""
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.inputs)]
        node = helper.make_node(self.op, names, self.outputs, "it", domain=self.domain)
        node.attribute.extend(self.attributes)
        formals, known = [], []
        for i, (name, x) in enumerate(zip(names, self.inputs, strict=True)):
            if x is None:
                continue
            kind = helper.np_dtype_to_tensor_dtype(x.dtype)
            if i in self.fixed:
                known.append(numpy_helper.from_array(x, name))
            if i not in self.fixed or self.version < 4:  # of IR versions below 4 initializers are inputs too
                formals.append(helper.make_tensor_value_info(name, kind, x.shape))
        results = [onnx.ValueInfoProto(name=name) for name in self.outputs if name]
        graph = helper.make_graph([node], "graph", formals, results, known)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(self.domain, self.version)] if self.domain else []
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8 if self.opset < 19 else 10)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)

    def fed(self) -> dict[str, Array]:
        """Returns the arrays of the inputs by name."""
        return {f"x{i}": x for i, x in enumerate(self.inputs) if x is not None and i not in self.fixed}


_RENAMED = {"constant_value": ("value",), "pads": ("pads", "paddings"), "K": ("k",), "repeats": ("tiles",)}
"""Input -> attribute of older versions, if its name differs."""


@cache
def _newest() -> Sequence[Any]:
    """Returns ONNX's own cases of one node each."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings(), patch.object(onnx.backend.test.case.base, "process_snippet", lambda *a: (a[1], "")):
        warnings.simplefilter("ignore")
        cases = node.collect_testcases(None)
    return [c for c in cases if len(c.model.graph.node) == 1 and "_expanded" not in c.name and c.data_sets]


def versions(domain: str = "") -> dict[str, list[Any]]:
    """Returns operator -> its schemas from the first version on, without deprecated ones."""
    found: dict[str, list[Any]] = {}
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        if schema.domain == domain:
            found.setdefault(schema.name, []).append(schema)
    return found


def _formal(schema: Any, place: int) -> Any:
    formals = schema.inputs
    if place < len(formals):
        return formals[place]
    last = formals[-1] if formals else None
    return last if last is not None and last.option == defs.OpSchema.FormalParameterOption.Variadic else None


def _as_attribute(schema: Any, name: str, x: Array) -> Any:
    """Converts an input to the attribute that it was in older versions."""
    for known in _RENAMED.get(name, (name,)):
        if known in schema.attributes:
            kind = schema.attributes[known].type.name
            values = np.asarray(x).reshape(-1).tolist()
            values = [float(v) for v in values] if kind.startswith("FLOAT") else values
            single = kind in ("INT", "FLOAT")
            if single and len(values) != 1:
                return None
            wanted = onnx.AttributeProto.AttributeType.Value(kind)
            try:
                return helper.make_attribute(known, values[0] if single else values, attr_type=wanted)
            except TypeError:
                return None
    return None


def _default(schema: Any, attribute: Any) -> bool:
    known = schema.attributes.get(attribute.name)
    if known is None:
        return False
    value = helper.get_attribute_value(attribute)
    has = known.default_value
    return (has.type != 0 and helper.get_attribute_value(has) == value) or value in (0, b"", [])


def _placed(schema: Any, newest: Any, values: Sequence[Array | None]) -> tuple[list[Array | None], list[Any]] | None:
    """Returns inputs and attributes for a node of an older version; None if it does not support them."""
    inputs: list[Array | None] = []
    attributes = []
    for place, x in enumerate(values):
        old, new = _formal(schema, place), _formal(newest, place)
        if new is None:
            return None
        in_place = old is not None and len(inputs) == place
        if in_place and (place == 0 or old.name.lower() == new.name.lower()):
            inputs.append(x)
        elif x is None:
            continue
        elif (made := _as_attribute(schema, new.name, x)) is not None:
            attributes.append(made)
        elif in_place:
            inputs.append(x)
        elif new.name != "training_mode" or x:
            return None
    return inputs, attributes


def _in_version(case: Any, newest: Any, schema: Any) -> Case | None:
    """Converts a case of the newest version to an older one; None if that cannot express it."""
    node = case.model.graph.node[0]
    arrays, results = case.data_sets[0]
    given = [np.asarray(x) if isinstance(x, np.ndarray | np.generic) else None for x in arrays]
    if any(x is None or x.dtype.kind in "OSUc" for x in given) or len(given) != sum(map(bool, node.input)):
        return None
    rest = iter(given)
    placed = _placed(schema, newest, [next(rest) if name else None for name in node.input])
    if placed is None:
        return None
    inputs, attributes = placed
    for attribute in node.attribute:
        known = schema.attributes.get(attribute.name)
        if known is not None and known.type.value == attribute.type:
            attributes.append(attribute)
        elif not _default(newest, attribute):
            return None
    names = {a.name for a in attributes}
    if any(a.required and n not in names for n, a in schema.attributes.items()):
        return None
    outputs = tuple(f"y{i}" if name else "" for i, name in enumerate(node.output))
    if not (schema.outputs and schema.outputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic):
        outputs = outputs[: len(schema.outputs)]
    small = {i for i, x in enumerate(inputs) if i and x is not None and x.dtype.kind in "ib" and x.size <= 16}
    fixed = frozenset(i for i in small if inputs[i].ndim <= 1)
    name = f"{schema.name}-{schema.since_version}/{case.name}"
    own = (schema.name, schema.domain, schema.since_version)
    return Case(name, *own, tuple(inputs), tuple(attributes), outputs, fixed, tuple(results))


def cases(only: str | None = None) -> Iterator[Case]:
    """Yields every case of ONNX, of one operator or of all, in every version that can express it."""
    by_op: dict[tuple[str, str], list[Any]] = {}
    for case in _newest():
        node = case.model.graph.node[0]
        by_op.setdefault((node.domain if node.domain != "ai.onnx" else "", node.op_type), []).append(case)
    for domain in ("", "ai.onnx.ml"):
        for op, schemas in versions(domain).items():
            for case in by_op.get((domain, op), ()) if only in (None, op) else ():
                own = next((o.version for o in case.model.opset_import if o.domain == domain), 0)
                newest = defs.get_schema(op, own, domain)
                for schema in schemas:
                    if schema.since_version <= own and not schema.deprecated:
                        made = _in_version(case, newest, schema)
                        if made is not None:
                            yield made


def by_hand() -> Iterator[Case]:
    """Yields nodes that mean something else in later versions, or that ONNX's cases lack; with numpy results where no
    runtime has the version.
    """
    yield from _arithmetic()
    yield from _normalizations()
    yield from _images()
    yield from _arranging()
    yield from _recurrent()


def _arithmetic() -> Iterator[Case]:
    draw = np.random.default_rng(5)
    x, v = (draw.uniform(0.5, 2, dims).astype(np.float32) for dims in ((2, 3, 4), (3,)))
    along = v[:, None]
    arithmetic = {"Add": x + along, "Sub": x - along, "Mul": x * along, "Div": x / along, "Pow": x**along}
    for op, result in arithmetic.items():
        for version in (1,) if op == "Pow" else (1, 6):
            yield _case(op, version, [x, v], [result], broadcast=1, axis=1)
        yield _case(op, 7, [x, along], [result])
    for op, result in {"Less": x < along, "Greater": x > along}.items():
        yield _case(op, 1, [x, v], [result], broadcast=1, axis=1)
    whole, part = (draw.integers(0, 2, dims) for dims in ((2, 3, 4), (3,)))
    yield _case("Equal", 1, [whole, part], [whole == part[:, None]], broadcast=1, axis=1)
    for op, f in {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}.items():
        a, b = whole.astype(bool), part.astype(bool)
        yield _case(op, 1, [a, b], [f(a, b[:, None])], broadcast=1, axis=1)
    a, b, c = (draw.standard_normal(dims).astype(np.float32) for dims in ((3, 2), (3, 4), (4,)))
    for version in (1, 6):
        result = 2 * (a.T @ b) + 0.5 * c
        yield _case("Gemm", version, [a, b, c], [result], transA=1, alpha=2.0, beta=0.5, broadcast=1)


def _normalizations() -> Iterator[Case]:
    draw = np.random.default_rng(6)
    x, v = (draw.uniform(0.5, 2, dims).astype(np.float32) for dims in ((2, 3, 4), (3,)))
    along = v[:, None]
    for version in (1, 11):
        for op in ("Hardmax", "Softmax", "LogSoftmax"):
            for axis in (0, 1, 2):
                yield _case(op, version, [x], axis=axis)
            yield _case(op, version, [x])
    yield from (_case("PRelu", n, [x - 1, v], [np.where(x < 1, (x - 1) * along, x - 1)]) for n in (1, 6))
    mean, variance = (draw.uniform(0.5, 2, 3).astype(np.float32) for _ in "mv")
    normal = (x - mean[:, None]) / np.sqrt(variance[:, None] + np.float32(1e-5)) * along + along
    for version, more in (
        (1, {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}),
        (6, {"is_test": 1}),
        (7, {}),
        (9, {}),
    ):
        yield _case("BatchNormalization", version, [x, v, v, mean, variance], [normal], **more)
    yield from (_case("Dropout", n, [x], [x], is_test=1, ratio=0.4) for n in (1, 6))
    yield from (_case("Dropout", n, [x], [x], ratio=0.4) for n in (7, 10))
    yield from (_case("Dropout", n, [x], [x]) for n in (12, 13, 22))
    yield _case("Cast", 1, [x], [x.astype(np.int32)], to="INT32")
    yield from (_case("Cast", n, [x], [x.astype(np.int32)], to=6) for n in (6, 9, 13, 19, 21, 23, 24, 25))
    yield _case("Split", 1, [x], [x[..., :1], x[..., 1:]], split=[1, 3], axis=2)
    yield _case("Tile", 1, [x, np.float32(3), np.float32(1)], [np.tile(x, (1, 3, 1))], fixed=(1, 2))
    yield _case("Clip", 1, [x], [np.clip(x, 0.75, 1.5)], min=0.75, max=1.5)


def _images() -> Iterator[Case]:
    draw = np.random.default_rng(7)
    image = draw.standard_normal((1, 2, 3, 4)).astype(np.float32)
    large = image.repeat(2, 2).repeat(3, 3)
    yield _case("Upsample", 1, [image], [large], height_scale=2.0, width_scale=3.0)
    yield _case("Upsample", 7, [image], [large], scales=[1.0, 1.0, 2.0, 3.0])
    scales = np.array([1, 1, 2, 3], np.float32)
    yield _case("Upsample", 9, [image, scales], fixed=(1,), mode="linear")
    yield _case("Resize", 10, [image, scales / 2], fixed=(1,), mode="nearest")
    yield _case("Resize", 10, [image, scales], fixed=(1,), mode="linear")
    roi = np.zeros(0, np.float32)
    for version in (11, 13, 18, 19):
        for way in ("half_pixel", "asymmetric", "align_corners"):
            yield _case(
                "Resize", version, [image, roi, scales], fixed=(1, 2), mode="linear", coordinate_transformation_mode=way
            )
    yield _case("LpPool", 1, [image], p=3.0, kernel_shape=[2, 2])
    yield _case("GlobalLpPool", 1, [image], [(abs(image) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)], p=3.0)
    norm = (abs(image) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)
    yield from (_case("GlobalLpPool", n, [image], [norm.astype(np.float32)], p=3) for n in (2, 22))
    for n in (9, 13):
        yield _case("MeanVarianceNormalization", n, [image], axes=[0, 2, 3])


def _arranging() -> Iterator[Case]:
    rows, at = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([[2, 0, 1, 2]])
    scattered = rows.copy()
    np.put_along_axis(scattered, at, np.float32([[90, 91, 92, 93]]), 0)
    for op, n in (("Scatter", 9), ("ScatterElements", 11)):
        yield _case(op, n, [rows, at, np.float32([[90, 91, 92, 93]])], [scattered], fixed=(), axis=0)
    for n in (9, 13):
        yield _case("NonZero", n, [np.array([[1, 0], [2, 3]], np.float32)], fixed=(0,))
    for n in (9, 11):
        yield _case("OneHot", n, [at, np.array(4), np.float32([0, 1])], fixed=(1, 2), axis=1)
    for n in (9, 20, 21, 23):
        yield _case("ConstantOfShape", n, [np.array([2, 3])], [np.zeros((2, 3), np.float32)], fixed=(0,))
    yield _case("Range", 11, [np.array(1), np.array(9), np.array(3)], fixed=(0, 1, 2))


def _recurrent() -> Iterator[Case]:
    draw = np.random.default_rng(8)
    x = draw.standard_normal((2, 3, 4)).astype(np.float32)
    for n in (1, 7, 14):
        w, r = (draw.standard_normal(dims).astype(np.float32) for dims in ((1, 20, 4), (1, 20, 5)))
        yield _case("LSTM", n, [x, w, r], outputs=3, hidden_size=5)
        yield _case("GRU", n, [x, w[:, :15], r[:, :15]], outputs=2, hidden_size=5)
        if n > 1:  # nobody runs the first
            yield _case("RNN", n, [x, w[:, :5], r[:, :5]], outputs=2, hidden_size=5)


def _case(
    op: str,
    version: int,
    inputs: Sequence[Array],
    results: Sequence[Array] = (),
    fixed: Sequence[int] = (),
    outputs: int = 0,
    **attributes: Any,
) -> Case:
    names = tuple(f"y{i}" for i in range(outputs or len(results) or 1))
    made = tuple(helper.make_attribute(name, value) for name, value in sorted(attributes.items()))
    words = ",".join(f"{name}={value}" for name, value in attributes.items())
    given = tuple(map(np.asarray, inputs))
    return Case(f"{op}-{version}/{words}", op, "", version, given, made, names, frozenset(fixed), tuple(results))


NO_ORACLE: Mapping[str, str] = {
    r"MaxUnpool-\d+/.*output_shape": "onnxruntime counts places in another shape than ONNX's own cases",
    r"DFT-.*": "onnxruntime's errors of float32 are above the tolerance",
    r"Attention-\d+/.*bf16": "one step of bfloat16 apart",
    r"Celu-\d+/.*bfloat16": "one step of bfloat16 apart",
    r"Attention-23/.*_with_past_and_present_qk_matmul_bias.*_causal": "onnxruntime's scores are those of opset 24",
    r"Dropout-\d+/test_training_dropout(_default)?(_mask)?": "the results are random",
    r"Dropout-(1|6|7|10)/.*mask.*": "the mask of an inference was not specified, and onnxruntime's is all false",
    r"AveragePool-1/.*": "ONNX's reference counts the padding, which the converter of versions says it does not",
    r"ReduceMax-\d+/.*empty_set_bool": "bool is no dtype of that version",
}
"""Cases whose oracle is known to be wrong or inexact, with the reason."""


def wanted(case: Case, model: onnx.ModelProto) -> tuple[str, list[Sequence[Array]]]:
    """Returns the oracle's name and its accepted results: onnxruntime if it has the version, else ONNX's reference, and
    the results of ONNX's newest case or of numpy.
    """
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = [case.results] if case.results else []
    if any(re.fullmatch(pattern, case.name) for pattern in NO_ORACLE):
        return "none", []
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return "onnxruntime", [session.run(None, case.fed())]
    except Exception:
        pass
    try:
        return "reference", [ReferenceEvaluator(model).run(None, case.fed()), *given]
    except Exception:
        return "expectation" if given else "none", given


def same(found: Sequence[Array], right: Sequence[Array]) -> bool:
    """True if the arrays are equal, floats within 1e-3."""
    if len(found) > len(right):
        return False
    for one, other in zip(found, right, strict=False):
        a, b = np.asarray(one), np.asarray(other)
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        exact = a.dtype.kind in "iub"
        if not (np.array_equal(a, b) if exact else np.allclose(a.astype(float), b.astype(float), 1e-3, 1e-3, True)):
            return False
    return True


def verdict(case: Case) -> tuple[str, str]:
    """Imports, exports and imports a case again; returns the verdict and a description. "ok", "refused", "no model",
    "no oracle" and "no tensors" are no faults; "wrong .." and "invalid" are.
    """
    from glenside.importers.onnx.model import program_of_model
    from glenside.importers.onnx.node import NoTerm
    from glenside.ir.errors import BadInput

    try:
        model = case.model()
    except (ValueError, RuntimeError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return "no model", str(error)[-200:]
    oracle, right = wanted(case, model)
    if not right:
        return "no oracle", ""
    if not all(isinstance(each, np.ndarray | np.generic) for each in right[0]):
        return "no tensors", ""
    try:
        program = program_of_model(model)
    except NoTerm as error:
        every = frozenset(i for i, x in enumerate(case.inputs) if x is not None)
        more = every - {0} if not every - {0} <= case.fixed else every
        return ("refused", error.message) if more == case.fixed else verdict(replace(case, fixed=more))
    except BadInput as error:
        return "refused", error.message
    if not any(same(_values(program, case), each) for each in right):
        return "wrong when read", oracle
    return _written(program, case, oracle, right)


def _values(program: Any, case: Case) -> Sequence[Array]:
    from glenside.semantics.interpreter import evaluate

    own = {name: case.fed()[name] for name in program.inputs}
    found = evaluate([program.term], {**program.constants, **own})[0]
    return found if isinstance(found, tuple) else (found,)


def _written(program: Any, case: Case, oracle: str, right: Sequence[Sequence[Array]]) -> tuple[str, str]:
    """Returns the verdict on the exported file."""
    from glenside.exporters.onnx import export_onnx
    from glenside.importers.onnx.model import program_of_model

    written = export_onnx(program)
    try:
        onnx.checker.check_model(written, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return "invalid", str(error)[-300:]
    if not any(same(_values(program_of_model(written), case), each) for each in right):
        return "wrong when written", f"{oracle}: {[node.op_type for node in written.graph.node]}"
    session = _run(written, {name: case.fed()[name] for name in program.inputs})
    if session is not None and not any(same(session, each) for each in right):
        return "wrong when written", f"{oracle}: onnxruntime runs {[node.op_type for node in written.graph.node]}"
    return "ok", oracle


def _run(model: onnx.ModelProto, fed: Mapping[str, Array]) -> Sequence[Array] | None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, dict(fed))
    except Exception:
        return None
