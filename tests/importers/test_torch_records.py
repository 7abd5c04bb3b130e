"""Tests the records of ATen operators and the walk over a graph, without PyTorch."""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest

from glenside.importers.torch.graph import Call, Graph, Meta, Ref, place_of
from glenside.importers.torch.node import records
from glenside.importers.torch.promotion import promoted
from glenside.importers.torch.reference import CORE, markdown
from glenside.importers.torch.walk import program_of, target_of
from glenside.ir.errors import BadInput
from glenside.ir.term import build
from glenside.ir.types import Dims, Tensor
from glenside.semantics.interpreter import evaluate

X = Meta((2, 3), "float32")


def _graph(*calls: Call, **inputs: Meta) -> Graph:
    return Graph("net", inputs or {"x": X}, {}, calls, {"y": Ref(calls[-1].name)})


def _call(target: str, *args: object, meta: Meta | None = X, **kwargs: object) -> Call:
    return Call("n1", target, args, kwargs, [meta], 'File "net.py", line 3, in forward\n    y = f(x)')


def test_records_are_read_without_pytorch() -> None:
    assert len(records()) > 200
    assert "glenside.importers.torch" in sys.modules
    for record in records().values():
        assert record.meaning is not None or record.why, record.name
        assert record.overloads or record.meaning is None, record.name


def test_every_operator_of_core_aten_has_a_record() -> None:
    assert set(CORE) <= set(records())
    table = markdown()
    assert "| `add` | Tensor, Scalar | supported |" in table
    assert "| `nonzero` | default | without tensors that are not known at export |" in table
    assert "| `rand` |  | refused: random numbers without a seed" in table


def test_every_meaning_takes_the_node_first() -> None:
    for record in records().values():
        if record.meaning is not None:
            assert "node" in inspect.signature(record.meaning).parameters, record.name


@pytest.mark.parametrize(
    ("target", "meta", "words"),
    [
        ("aten.rand.default", X, "the operator rand is refused: random numbers without a seed"),
        ("aten._fft_r2c.default", X, "the operator _fft_r2c is refused: complex numbers"),
        (
            "aten.cosine.default",
            X,
            "the operator aten.cosine.default has no meaning here; docs/pytorch.md says which have",
        ),
        ("mylib.scale.default", X, "the operator mylib.scale.default has no meaning here"),
        ("aten.add.out", X, "the overload out has no meaning here; add has Tensor, Scalar"),
        ("aten.cos.default", Meta((2, 3), "complex64"), "its result has dtype torch.complex64"),
        ("aten.nonzero.default", X, "the size of the result depends on data"),
        ("aten._local_scalar_dense.default", None, "requires a value that is known at export"),
        ("aten.cos.default", Meta((3, 2), "float32"), "requires a result of (3 2) float32, got (2 3) float32"),
    ],
)
def test_a_refusal_names_the_node_and_its_line(target: str, meta: Meta | None, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        program_of(_graph(_call(target, Ref("x"), meta=meta)))
    assert caught.value.message.startswith(f"node n1 ({target}), net.py:3 in forward: y = f(x): ")
    assert words in caught.value.message


def test_a_missing_argument_or_value_is_no_traceback() -> None:
    with pytest.raises(BadInput, match="node n1"):
        program_of(_graph(_call("aten.permute.default", Ref("x"))))
    with pytest.raises(BadInput, match="reads other, which no node before it defines"):
        program_of(_graph(_call("aten.cos.default", Ref("other"))))


def test_numbers_that_have_no_exact_text_are_constants() -> None:
    call = _call("aten.full.default", [2, 3], float("-inf"))
    program = program_of(_graph(call))
    (found,) = evaluate([program.term], program.constants)
    assert np.array_equal(found, np.full((2, 3), -np.inf, np.float32))


def test_parameters_of_one_name_are_one_constant() -> None:
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    constants = {"p_a": ("w", lambda: w), "p_b": ("w", lambda: w)}
    graph = Graph("net", {}, constants, [_call("aten.add.Tensor", Ref("p_a"), Ref("p_b"))], {"y": Ref("n1")})
    program = program_of(Graph(**{**vars(graph), "metas": {"p_a": X, "p_b": X}}))
    assert list(program.constants) == ["w"]
    assert np.shares_memory(program.constants["w"], w)


def _tensor(dtype: str, rank: int) -> object:
    return build("access-tensor", Tensor("t", Dims((2,) * rank), dtype))


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [
        (("int64", 1), ("float32", 0), "float32"),
        (("float16", 1), ("float64", 0), "float16"),
        (("float16", 1), ("bfloat16", 1), "float32"),
        (("int8", 1), ("int64", 0), "int8"),
        (("uint8", 1), ("int8", 1), "int16"),
        (("bool", 1), ("int32", 0), "int32"),
        (("bool", 1), ("bool", 0), "bool"),
        (("uint8", 2), ("int32", 1), "int32"),
    ],
)
def test_dtypes_are_promoted_as_in_pytorch(first: tuple[str, int], second: tuple[str, int], want: str) -> None:
    assert promoted(_tensor(*first), _tensor(*second)) == want  # type: ignore[arg-type]
    assert promoted(_tensor(*second), _tensor(*first)) == want  # type: ignore[arg-type]


def test_numbers_count_only_if_they_are_of_a_higher_kind() -> None:
    assert promoted(_tensor("int8", 1), 300) == "int8"  # type: ignore[arg-type]
    assert promoted(_tensor("int8", 1), 0.5) == "float32"  # type: ignore[arg-type]
    assert promoted(_tensor("bfloat16", 0), 0.5) == "bfloat16"  # type: ignore[arg-type]
    assert promoted(_tensor("bool", 1), 1) == "int64"  # type: ignore[arg-type]


def test_a_place_is_the_last_line_of_a_trace() -> None:
    outer = 'File "/a/b/net.py", line 7, in forward\n    h = self.a(x)'
    trace = outer + '\n  File "/a/lin.py", line 9, in forward\n    return w @ x'
    assert place_of(trace) == "lin.py:9 in forward: return w @ x"
    assert place_of("") == ""
    assert place_of("no trace") == ""
    assert target_of("aten.add.Tensor") == ("add", "Tensor")
    assert target_of("aten.relu") == ("relu", "default")
