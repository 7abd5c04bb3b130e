"""Compares ONNX's movement operators with ONNX's evaluator, in files where only constants are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")

from onnx.helper import (  # noqa: E402
    make_empty_tensor_value_info,
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor_value_info,
    np_dtype_to_tensor_dtype,
)
from onnx.numpy_helper import from_array  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import glenside.importers.onnx.backend as backend  # noqa: E402
from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402
from glenside.ir.term import postorder  # noqa: E402
from glenside.semantics.interpreter import evaluate  # noqa: E402

FIFTY = settings(max_examples=50, deadline=None)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def numbers(*dims: int, dtype: str = "float32", seed: int = 0) -> Array:
    """Different numbers, some of them negative, in no order."""
    size = int(np.prod(dims))
    return (np.random.default_rng(seed).permutation(size) - size // 3).reshape(dims).astype(dtype)


def model_of(
    op: str, inputs: Sequence[Array | None], known: Sequence[int], outputs: int = 1, opset: int = 23, **attributes: Any
) -> Any:
    """One node; inputs of those numbers are initializers, the others are given at run time."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    node = make_node(op, names, made, **attributes)
    formals = [
        make_tensor_value_info(f"x{i}", np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for i, value in enumerate(inputs)
        if value is not None and i not in known
    ]
    constants = [from_array(inputs[i], f"x{i}") for i in known if inputs[i] is not None]
    graph = make_graph([node], op, formals, [make_empty_tensor_value_info(name) for name in made], constants)
    return make_model(graph, opset_imports=[make_opsetid("", opset)])


def ours(model: Any, inputs: Sequence[Array | None]) -> list[Array]:
    program = program_of_model(model)
    values = {f"x{i}": value for i, value in enumerate(inputs) if f"x{i}" in program.inputs}
    (result,) = evaluate([program.term], {**values, **program.constants})  # type: ignore[dict-item]
    return list(result) if isinstance(result, tuple) else [result]


def theirs(model: Any, inputs: Sequence[Array | None]) -> list[Array]:
    names = [i.name for i in model.graph.input]
    result: list[Array] = ReferenceEvaluator(model).run(None, {n: inputs[int(n[1:])] for n in names})
    return result


def same(op: str, *inputs: Array | None, known: Sequence[int] = (), **more: Any) -> None:
    """Asserts that a node gives the values and dtypes of ONNX's evaluator."""
    model = model_of(op, inputs, known, **more)
    got, want = ours(model, inputs), theirs(model, inputs)
    assert [(a.shape, a.dtype) for a in got] == [(np.shape(b), b.dtype) for b in want]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def refused(message: str, op: str, *inputs: Array | None, known: Sequence[int] = (), **more: Any) -> None:
    with pytest.raises(BadInput, match=message):
        program_of_model(model_of(op, inputs, known, **more))


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": min,
    "max": max,
}
X = numbers(2, 3, 4)
SMALL_DIMS = st.lists(st.sampled_from((1, 2, 3, 4, 0)), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("dims", "target", "allowzero"),
    [((2, 3, 4), (0, -1), 0), ((2, 3, 4), (4, 0, -1), 0), ((0, 3), (3, 0), 1), ((2, 0), (0, 0, 5), 0), ((1,), (), 0)],
)
def test_reshape(dims: tuple[int, ...], target: tuple[int, ...], allowzero: int) -> None:
    same("Reshape", numbers(*dims), ints(*target), known=[1], allowzero=allowzero)


PUT = X.copy()
PUT[:, 2] = X[:, 0]


@pytest.mark.parametrize(
    ("op", "inputs", "more", "expected"),
    [
        ("Reshape", (X,), {"shape": [0, 2, 6], "opset": 1}, [X.reshape(2, 2, 6)]),
        ("Squeeze", (X[:1, :, None],), {"axes": [0, 2], "opset": 11}, [X[0]]),
        ("Unsqueeze", (X,), {"axes": [4, 1], "opset": 11}, [X[:, None, :, :, None]]),
        ("Split", (X,), {"axis": 1, "split": [1, 0, 2], "opset": 11}, [X[:, :1], X[:, :0], X[:, 1:]]),
        ("Split", (X,), {"axis": 2, "opset": 13}, [X[..., :2], X[..., 2:]]),
        ("Slice", (X,), {"starts": [-3, 1], "ends": [2**40, -1], "axes": [2, 1], "opset": 9}, [X[:, 1:-1, -3:]]),
        ("Pad", (X,), {"pads": [0, 0, 1, 0, 0, 2], "value": 1.5, "opset": 2}, [np.insert(X, [0, 4, 4], 1.5, 2)]),
        ("Tile", (X, np.float32(2), np.float32(1)), {"known": [1, 2], "opset": 1}, [np.concatenate([X, X], 1)]),
        ("Concat", (X, X[:, 1:]), {"opset": 1}, [np.concatenate([X, X[:, 1:]], 1)]),
        ("Scatter", (X, np.full((2, 1, 4), 2), X[:, :1]), {"axis": 1, "opset": 9}, [PUT]),
        ("TopK", (X,), {"k": 1, "axis": 2, "opset": 1}, [X.max(2, keepdims=True), X.argmax(2)[..., None]]),
    ],
)
def test_older_opsets(op: str, inputs: tuple[Array, ...], more: dict[str, Any], expected: list[Array]) -> None:
    got = ours(model_of(op, inputs, **{"known": (), "outputs": len(expected), **more}), inputs)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@given(st.data())
@FIFTY
def test_slices(data: st.DataObject) -> None:
    dims = data.draw(SMALL_DIMS)
    axes = data.draw(st.lists(st.integers(0, len(dims) - 1), min_size=1, unique=True))
    bound = st.one_of(st.integers(-6, 6), st.sampled_from((2**63 - 1, -(2**63))))
    starts, ends = ([data.draw(bound) for _ in axes] for _ in range(2))
    steps = [data.draw(st.sampled_from((1, 2, 3, -1, -2, -3, 2**40))) for _ in axes]
    axes = [axis - data.draw(st.sampled_from((0, len(dims)))) for axis in axes]
    x, more = numbers(*dims), [ints(*v) for v in (starts, ends, axes, steps)]
    model = model_of("Slice", (x, *more), [1, 2, 3, 4])
    index: list[Any] = [slice(None)] * len(dims)
    for axis, a, b, t in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(max(a, -dims[axis]) if t < 0 else a, b, t)  # backwards from within the axis, unlike numpy
    np.testing.assert_array_equal(ours(model, [x])[0], x[tuple(index)])


@given(st.data())
@FIFTY
def test_padding(data: st.DataObject) -> None:
    """Also below 0, which takes away before the rest is repeated."""
    dims = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    mode = data.draw(st.sampled_from(("constant", "edge", "reflect", "wrap")))
    dtype = data.draw(st.sampled_from(("float32", "int8", "bool", "float64")))
    ends = [data.draw(st.integers(-1, 5)) for _ in range(2 * len(dims))]
    numeric = np.dtype(dtype).kind in "if"
    lowest = -np.inf if dtype.startswith("f") else np.iinfo(dtype).min if numeric else 0
    value = np.array(data.draw(st.sampled_from((0, 1, 3, lowest) if numeric else (0, 1))), dtype)
    x = numbers(*dims, dtype=dtype)
    computed = data.draw(st.booleans())
    pairs = list(zip(ends[: len(dims)], ends[len(dims) :], strict=True))
    kept = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, dims, strict=True))]
    if not kept.size:
        return
    more = {"constant_values": value} if mode == "constant" else {}
    expected = np.pad(kept, [(max(a, 0), max(b, 0)) for a, b in pairs], mode, **more)  # type: ignore[call-overload]
    inputs = (x, ints(*ends), value)
    model = model_of("Pad", inputs, [1] if computed else [1, 2], mode=mode)
    np.testing.assert_array_equal(ours(model, inputs)[0], expected)


def test_padding_of_some_axes_with_what_is_no_number() -> None:
    inputs = (X, ints(1, 0, 0, 2), np.float32("nan"), ints(-1, 0))
    model = model_of("Pad", inputs, [1, 2, 3])
    np.testing.assert_array_equal(
        ours(model, inputs)[0], np.pad(X, [(0, 2), (0, 0), (1, 0)], constant_values=np.float32("nan"))
    )


@given(st.data())
@FIFTY
def test_elements_by_index(data: st.DataObject) -> None:
    """Gather, GatherElements, and ScatterElements in places that occur twice, at indices below 0 too."""
    dims = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(dims), len(dims) - 1))
    size = dims[axis]
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = data.draw(st.sampled_from(("int64", "int32")))
    known = [1] if data.draw(st.booleans()) else []
    smaller = [data.draw(st.integers(0, n)) for n in dims]
    smaller[axis] = data.draw(st.integers(0, 5))
    x = numbers(*dims)
    indices = random.integers(-size, size, smaller).astype(dtype)
    same("Gather", x, indices, known=known, axis=axis)
    updates = random.integers(-4, 5, smaller).astype("float32")
    reduction, step = data.draw(st.sampled_from(sorted(STEPS.items())))
    picked, put = np.empty(smaller, "float32"), x.copy()
    for at in np.ndindex(*smaller):
        place = (*at[: axis % len(dims)], indices[at], *at[axis % len(dims) + 1 :])
        picked[at] = x[place]
        put[place] = step(put[place], updates[at])
    inputs = (x, indices, updates)
    elements = model_of("GatherElements", inputs[:2], known, axis=axis)
    np.testing.assert_array_equal(ours(elements, inputs)[0], picked)
    scattered = model_of("ScatterElements", inputs, known, axis=axis, reduction=reduction)
    np.testing.assert_array_equal(ours(scattered, inputs)[0], put)


@given(st.data())
@FIFTY
def test_places_of_several_numbers(data: st.DataObject) -> None:
    """GatherND with any number of shared axes, and ScatterND, whose places occur twice."""
    dims = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    shared = data.draw(st.integers(0, len(dims) - 1))
    count = data.draw(st.integers(1, len(dims) - shared))
    lead = [*dims[:shared], *data.draw(st.lists(st.integers(0, 3), max_size=2))]
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    picked = dims[shared : shared + count]
    indices = np.stack([random.integers(-n, n, lead) for n in picked], -1)
    x, known = numbers(*dims), [1] if data.draw(st.booleans()) else []
    same("GatherND", x, indices, known=known, batch_dims=shared)
    if shared == 0:
        updates = random.integers(-4, 5, (*lead, *dims[count:])).astype("float32")
        reduction = data.draw(st.sampled_from(("add", "mul", "min", "max")))
        same("ScatterND", x, indices, updates, known=known, reduction=reduction)


@given(st.data())
@FIFTY
def test_the_largest_come_first_and_of_equals_the_first(data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    axis, largest = data.draw(st.integers(-len(dims), len(dims) - 1)), data.draw(st.booleans())
    dtype = data.draw(st.sampled_from(("float32", "float16", "uint8", "int64")))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 4, dims).astype(dtype)
    k = data.draw(st.integers(0, dims[axis]))
    order = np.argsort(-x.astype(int) if largest else x, axis, kind="stable").take(range(k), axis)
    inputs = (x, ints(k))
    values, places = ours(model_of("TopK", inputs, [1], 2, axis=axis, largest=int(largest)), inputs)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


@pytest.mark.parametrize("dims", [(), (2, 3), (0, 2)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_one_hot(dims: tuple[int, ...], axis: int) -> None:
    """Indices below 0 count from the end; those outside are nowhere."""
    indices = np.random.default_rng(3).integers(-7, 8, dims)
    for depth in (4, 0):
        same("OneHot", indices, np.array(depth), np.array([2.5, 7], "float32"), known=[1], axis=axis)


@pytest.mark.parametrize("dims", [(3, 4), (4, 3), (2, 1, 5), (0, 3)])
def test_triangles_and_diagonals(dims: tuple[int, ...]) -> None:
    for k in (-9, -2, 0, 1, 4):
        for upper in (0, 1):
            same("Trilu", numbers(*dims, dtype="int64"), np.array(k), known=[1] if upper else [], upper=upper)
        if len(dims) == 2:
            same("EyeLike", numbers(*dims), k=k, dtype=onnx.TensorProto.INT32)
    same("Trilu", numbers(*dims) > 0)


@pytest.mark.parametrize(
    ("start", "limit", "step", "dtype"),
    [(3, 20, 4, "int64"), (5, -6, -2, "int16"), (2, 2, 1, "int32"), (4, 1, 2, "int64"), (0.5, 3, 0.25, "float32")],
)
def test_range(start: float, limit: float, step: float, dtype: str) -> None:
    same("Range", *(np.array(n, dtype) for n in (start, limit, step)), known=[0, 1, 2])


@pytest.mark.parametrize(
    ("op", "inputs", "more"),
    [
        ("Transpose", (X,), {}),
        ("Squeeze", (X[:1, :, :1],), {}),
        ("Flatten", (X,), {"axis": -3}),
        ("Flatten", (X,), {"axis": 3}),
        ("Expand", (X[:, :1], ints(5, 2, 3, 1)), {"known": [1]}),
        ("Tile", (X, ints(2, 1, 3)), {"known": [1]}),
        ("Tile", (X, ints(0, 1, 2)), {"known": [1]}),
        ("Concat", (X, X[..., :0], X), {"axis": -1}),
        ("Split", (X,), {"axis": 2, "num_outputs": 3, "outputs": 3}),
        ("Split", (X, ints(3, 0)), {"known": [1], "axis": 1, "outputs": 2}),
        ("DepthToSpace", (numbers(2, 18, 2, 5),), {"blocksize": 3, "mode": "CRD"}),
        ("DepthToSpace", (numbers(2, 18, 2, 5),), {"blocksize": 3}),
        ("SpaceToDepth", (numbers(2, 3, 4, 6),), {"blocksize": 2}),
        ("SpaceToDepth", (numbers(2, 3, 4, 6),), {"blocksize": 2, "mode": "CRD", "opset": 28}),
        ("Compress", (X, np.array([False, True])), {"known": [1], "axis": 1}),
        ("Compress", (X, np.arange(20) % 3 == 0), {"known": [1]}),
        ("NonZero", (X[0] * (X[0] % 2),), {"known": [0]}),
        ("NonZero", (np.array([[0, 0]]),), {"known": [0]}),
        ("ReverseSequence", (numbers(3, 4, 2), ints(4, 0, 3)), {"batch_axis": 0, "time_axis": 1}),
        ("ReverseSequence", (numbers(4, 3), ints(1, 4, 2)), {"known": [1]}),
        ("TensorScatter", (numbers(2, 3, 5, 2), numbers(2, 3, 2, 2), ints(3, 1)), {}),
        ("TensorScatter", (numbers(2, 5, 3), numbers(2, 4, 3), ints(3, 1)), {"axis": 1, "mode": "circular"}),
        ("TensorScatter", (numbers(2, 5, 3), numbers(2, 4, 3)), {"axis": 1}),
        ("Unique", (X.reshape(-1) % 5,), {"known": [0], "sorted": 0, "outputs": 4}),
        ("Unique", (X[:, [0, 2, 0]] % 2,), {"known": [0], "axis": 1, "outputs": 4}),
    ],
)
def test_more_movement(op: str, inputs: tuple[Array, ...], more: dict[str, Any]) -> None:
    same(op, *inputs, **{"opset": 24, **more})


def test_ends_of_text_in_ngrams() -> None:
    """Counts of 1-grams and of 2-grams up to one apart, in columns of another order, with weights."""
    x = np.array([[1, 2, 1, 3, 2], [2, 2, 2, 1, 2]], np.int32)
    more = {
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 1,
        "ngram_counts": [0, 2],
        "ngram_indexes": [3, 0, 1, 2],
        "pool_int64s": [1, 2, 1, 2, 2, 2],
        "weights": [2.0, 3.0, 0.5, 1.0],
    }
    got = {
        mode: ours(model_of("TfIdfVectorizer", [x], [], mode=mode, **more), [x])[0] for mode in ("TF", "IDF", "TFIDF")
    }
    counts = np.array([[2, 2, 0, 2], [4, 1, 4, 1]], "float32")
    weights = np.array([3.0, 0.5, 1.0, 2.0])
    np.testing.assert_array_equal(got["TF"], counts)
    np.testing.assert_array_equal(got["IDF"], (counts > 0) * weights)
    np.testing.assert_array_equal(got["TFIDF"], counts * weights)


@pytest.mark.parametrize("centred", [0, 1])
def test_boxes_that_overlap_better_ones_are_suppressed(centred: int) -> None:
    random = np.random.default_rng(5)
    boxes = random.uniform(0.1, 1, (2, 12, 4)).astype("float32")
    scores = random.uniform(size=(2, 3, 12)).astype("float32")
    same(
        "NonMaxSuppression",
        *(boxes, scores, np.array([4]), np.array([0.3], "float32"), np.array([0.2], "float32")),
        known=range(5),
        center_point_box=centred,
    )


def test_a_known_index_is_a_slice() -> None:
    inputs = (X, np.array(-1))
    program = program_of_model(model_of("Gather", inputs, [1], axis=2))
    assert not any(t.operator.name == "access-gather" for t in postorder(program.term))
    np.testing.assert_array_equal(evaluate([program.term], {"x0": X})[0], X[..., -1])


def test_sequences() -> None:
    """Parts taken apart, one put elsewhere, one taken away, and the rest together again."""
    nodes = [
        make_node("SplitToSequence", ["x", "two"], ["parts"], axis=2),
        make_node("SequenceAt", ["parts", "last"], ["end"]),
        make_node("SequenceInsert", ["parts", "end", "one"], ["more"]),
        make_node("SequenceErase", ["more", "last"], ["fewer"]),
        make_node("ConcatFromSequence", ["fewer"], ["y0"], axis=-3, new_axis=1),
        make_node("SequenceLength", ["fewer"], ["y1"]),
    ]
    constants = [from_array(np.array(n), name) for name, n in (("two", 2), ("last", -1), ("one", 1))]
    formal = make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3, 4])
    outputs = [make_empty_tensor_value_info(name) for name in ("y0", "y1")]
    model = make_model(make_graph(nodes, "g", [formal], outputs, constants), opset_imports=[make_opsetid("", 17)])
    program = program_of_model(model)
    first, count = evaluate([program.term], {"x": X, **program.constants})[0]
    np.testing.assert_array_equal(first, np.stack([X[..., :2], X[..., 2:]], 1))
    assert count == 2


def test_sequences_and_optional_values_are_inputs_of_a_call() -> None:
    element = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    kind = onnx.helper.make_optional_type_proto(onnx.helper.make_sequence_type_proto(element))
    nodes = [make_node("OptionalHasElement", ["x"], ["y0"])]
    outputs = [make_empty_tensor_value_info(name) for name in ("y0", "y1")]
    opsets = [make_opsetid("", 18)]

    def model(nodes: Sequence[Any], count: int) -> Any:
        formals = [onnx.helper.make_value_info("x", kind)]
        return make_model(make_graph(nodes, "g", formals, outputs[:count]), opset_imports=opsets)

    assert not backend.run_model(model(nodes, 1), [None])[0]
    nodes += [make_node("OptionalGetElement", ["x"], ["s"]), make_node("Identity", ["s"], ["y1"])]
    there, elements = backend.run_model(model(nodes, 2), [[X, X[0]]])
    assert there
    assert [e.shape for e in elements] == [(2, 3, 4), (3, 4)]
    with pytest.raises(BadInput, match="an optional value that is present"):
        backend.run_model(model(nodes, 2), [None])
    with pytest.raises(BadInput, match="input x/1 requires dtype float32, got int64"):
        backend.run_model(model(nodes, 2), [[X, ints(1)]])
    (joined,) = backend.run_node(make_node("ConcatFromSequence", ["s"], ["y"], axis=0), [[X, X[:1]]])
    np.testing.assert_array_equal(joined, np.concatenate([X, X[:1]]))
    with pytest.raises(BadInput, match="input x requires a tensor, got optional"):
        program_of_model(model(nodes, 2))


@pytest.mark.parametrize(
    ("message", "op", "inputs", "more"),
    [
        ("input 1 requires a value that is known", "Reshape", (X, ints(24)), {}),
        ("shape requires sizes of 24 elements, got", "Reshape", (X, ints(5, 5)), {"known": [1]}),
        ("shape requires each 0 at one of the 3 axes", "Reshape", (X, ints(2, 3, 4, 0)), {"known": [1]}),
        ("attribute perm requires an order of 3 axes", "Transpose", (X,), {"perm": [0, 1, 1]}),
        ("attribute perm requires a list of whole", "Transpose", (X,), {"perm": [0.5, 1.0]}),
        ("axes requires axes of size 1", "Squeeze", (X, ints(1)), {"known": [1]}),
        ("axes requires different axes", "Unsqueeze", (X, ints(1, -4)), {"known": [1]}),
        ("attribute axis requires a number from -3 to 3", "Flatten", (X,), {"axis": 4}),
        ("sizes that agree or are 1", "Expand", (X, ints(2, 2, 4)), {"known": [1]}),
        ("repeats requires 3 numbers of at least 0", "Tile", (X, ints(1, -1, 1)), {"known": [1]}),
        ("operands that differ on axis 0 at most", "Concat", (X, X[:, 1:]), {"axis": 0}),
        ("split requires sizes that add up to 4", "Split", (X, ints(1, 2)), {"known": [1], "axis": 2, "outputs": 2}),
        ("requires 2 outputs", "Split", (X, ints(2, 2)), {"known": [1], "axis": 2, "outputs": 3}),
        (
            "steps requires numbers other than 0",
            "Slice",
            (X, ints(0), ints(1), ints(0), ints(0)),
            {"known": [1, 2, 3, 4]},
        ),
        ("requires as many starts", "Slice", (X, ints(0, 1), ints(1)), {"known": [1, 2]}),
        ("attribute mode is one of constant", "Pad", (X, ints(*[1] * 6)), {"known": [1], "mode": "mirror"}),
        ("leave axis 1 of 3", "Pad", (X, ints(0, -2, 0, 0, -2, 0)), {"known": [1]}),
        ("input 2 requires float32 as the inputs before it", "Pad", (X, ints(*[1] * 6), ints(1)), {"known": [1]}),
        ("one whose square divides 2 channels", "DepthToSpace", (X[None],), {"blocksize": 2}),
        ("blocksize requires a number of at least 1", "SpaceToDepth", (X[None],), {"blocksize": 0}),
        ("input 1 requires indices from -3 to 2, got 0 to 3", "Gather", (X, ints(0, 3)), {"known": [1], "axis": 1}),
        ("indices within", "GatherElements", (X, np.zeros((3, 1, 1), int)), {"axis": 1}),
        ("batch_dims requires a number from 0 to 1", "GatherND", (X, np.zeros((2, 1), int)), {"batch_dims": 2}),
        ("from -3 to 2, got 3 to 3", "ScatterND", (X, np.array([[0, 3]]), X[:1, 0]), {"known": [1]}),
        ("attribute reduction is one of", "ScatterND", (X, np.array([[0, 2]]), X[:1, 0]), {"reduction": "sum"}),
        ("updates like", "ScatterElements", (X, np.zeros((1, 1, 1), int), X), {}),
        ("input 2 requires two values", "OneHot", (ints(1), ints(3), X[0, 0]), {"known": [1]}),
        ("a step other than 0", "Range", (ints(1), ints(3), ints(0)), {"known": [0, 1, 2]}),
        ("k requires one number from 0 to 4", "TopK", (X, ints(5)), {"known": [1], "outputs": 2}),
        ("requires 3 lengths", "ReverseSequence", (X, ints(1, 2)), {}),
        ("lengths from 0 to 2, got 1 to 3", "ReverseSequence", (X, ints(1, 2, 3)), {"known": [1]}),
        ("depends on data", "NonZero", (X,), {}),
        ("boxes \\(B N 4\\)", "NonMaxSuppression", (X, X), {"known": [0, 1]}),
        ("input 0 requires a sequence, got a tensor", "SequenceAt", (X, ints(1)), {"known": [1]}),
    ],
)
def test_what_does_not_fit_is_refused(message: str, op: str, inputs: tuple[Array, ...], more: dict[str, Any]) -> None:
    refused(f"node #0 \\({op}\\): .*{message}", op, *inputs, **more)
