"""Measures the numerical noise of a model: the differences between its own results when it is computed differently.

The accuracy of a result is limited by the model's arithmetic: to one unit in the last place of its least exact floats,
and to one level where it rounds to levels. So the model runs at each of onnxruntime's optimization levels, which fuse
and reorder, and on inputs and weights that are perturbed by that much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from glenside.importers.onnx.sessions import LEVELS, CannotRun, Session
from glenside.ir.dtypes import is_float, wider
from glenside.ir.operand import Array
from glenside.ir.packages import import_onnx
from glenside.ir.replacing import PathLike

ROUNDS = frozenset("QuantizeLinear DynamicQuantizeLinear Round Floor Ceil Sign Mod".split())
"""Operators that round to levels, where a slightly larger number may give the next level."""
_ONE_IN = 100  # each number is moved by a level with probability 1 / _ONE_IN
_LEVEL = 1 / 255  # one level of 8 bits, as a share of the range


def read_original(path: PathLike, weights: bool = True) -> Any:
    """Reads the model of a file, with external weights if `weights`. Raises CannotRun."""
    onnx = import_onnx()
    try:
        return onnx.load(str(path), load_external_data=weights)
    except Exception as error:  # of protobuf, of onnx, of the system
        raise CannotRun(f"onnx cannot read {Path(path).name}: {error}") from None


def content_of(model: Any) -> bytes:
    """Serializes a model for onnxruntime. Raises CannotRun when it is too large."""
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # the class for a too large model differs between versions of protobuf
        raise CannotRun(f"the original is too large to be changed in memory: {error}") from None


def variants(model: Any, inputs: Mapping[str, Array], seed: int) -> Iterator[Sequence[Any]]:
    """Yields the results of equally valid computations of the model, except those that onnxruntime cannot run."""
    content = content_of(model)
    for level in LEVELS[1:]:
        with suppress(CannotRun):
            yield Session(content, "the original", level).run(inputs)
    rng = np.random.default_rng([seed, 5])
    share, rounds = _precision(model), _rounds(model)
    as_it_stands = Session(content, "the original")
    for _ in range(2):
        with suppress(CannotRun):
            yield as_it_stands.run({name: _moved(array, share, rounds, rng) for name, array in inputs.items()})
    changed = type(model).FromString(content)
    for tensor in changed.graph.initializer:
        _move_weight(tensor, share, rounds, rng)
    with suppress(CannotRun):
        yield Session(content_of(changed), "the original").run(inputs)


def _precision(model: Any) -> float:
    """Returns the relative unit in the last place of the least exact floats of a model."""
    onnx = import_onnx()
    half, brain = onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16
    kinds = {tensor.data_type for tensor in model.graph.initializer}
    kinds |= {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.value_info)}
    kinds |= {a.i for node in model.graph.node if node.op_type == "Cast" for a in node.attribute if a.name == "to"}
    return 2.0**-7 if brain in kinds else 2.0**-10 if half in kinds else 2.0**-23


def _rounds(model: Any) -> bool:
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    return any(node.op_type in ROUNDS or "Integer" in node.op_type or "QLinear" in node.op_type for node in nodes)


def _moved(array: Array, share: float, rounds: bool, rng: np.random.Generator) -> Array:
    """Perturbs floats by the share, and with `rounds`, a few of them by a level."""
    if not is_float(array.dtype) or not array.size:
        return array
    dtype, array = array.dtype, array.astype(wider(array.dtype.name), copy=False)
    moved = array * (1 + share * rng.uniform(-1, 1, array.shape))
    if rounds:
        span = float(np.ptp(array[np.isfinite(array)])) if np.isfinite(array).any() else 0.0
        few = rng.random(array.shape) < 1 / _ONE_IN
        few.reshape(-1)[rng.integers(array.size)] = True
        moved = moved + few * rng.choice((-1, 1), array.shape) * span * _LEVEL
    return np.asarray(moved).astype(dtype)


def _move_weight(tensor: Any, share: float, rounds: bool, rng: np.random.Generator) -> None:
    """Perturbs a matrix or a filter in place; constants of fewer axes may be exact sizes and thresholds."""
    onnx = import_onnx()
    if len(tensor.dims) < 2 or tensor.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
        return
    moved = onnx.numpy_helper.from_array(_moved(onnx.numpy_helper.to_array(tensor), share, rounds, rng), tensor.name)
    tensor.CopyFrom(moved)
