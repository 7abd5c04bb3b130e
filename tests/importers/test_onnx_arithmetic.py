"""Tests ONNX's arithmetic, activations, reductions and casts beyond ONNX's own suite: other shapes, dtypes and
versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.importers.onnx import backend as onnx_backend  # noqa: E402
from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402
from glenside.ir.term import postorder  # noqa: E402

FLOATS = ("float16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5, -0.5, 1e-4, -30.0]


def model_of(
    op: str, arrays: list[Array | None], version: int, outputs: int = 1, constants: int = 0, **attributes: Any
) -> Any:
    """One node; the last `constants` of its inputs are constants."""
    given = {f"x{i}": array for i, array in enumerate(arrays) if array is not None}
    fixed = list(given)[len(given) - constants :]
    names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], name="n", **attributes)
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in given.items()}
    formals = [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in given.items() if n not in fixed]
    results = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    initializers = [onnx.numpy_helper.from_array(given[n], n) for n in fixed]
    graph = helper.make_graph([node], "g", formals, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])


def run(op: str, *arrays: Array | None, version: int = 21, outputs: int = 1, **attributes: Any) -> Any:
    model = model_of(op, list(arrays), version, outputs, **attributes)
    results = onnx_backend.run_model(model, [array for array in arrays if array is not None])
    return results[0] if outputs == 1 else tuple(results)


def as_the_reference(op: str, *arrays: Array | None, version: int = 21, **attributes: Any) -> None:
    """The same dtype, shape and values as ONNX's own evaluator."""
    model = model_of(op, list(arrays), version, **attributes)
    with np.errstate(all="ignore"):
        given = {f"x{i}": array for i, array in enumerate(arrays) if array is not None}
        (want,) = ReferenceEvaluator(model).run(None, given)
    got = run(op, *arrays, version=version, **attributes)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    narrow = got.dtype == np.float16
    np.testing.assert_allclose(got, want, rtol=1e-2 if narrow else 2e-6, atol=2e-3 if narrow else 1e-6)


def drawn(dtype: str, *dims: int, seed: int = 0) -> Array:
    rng = np.random.default_rng((seed, *dims))
    if dtype in FLOATS:
        return (2 * rng.standard_normal(dims)).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, dims).astype(bool)
    return rng.integers(0 if dtype in UNSIGNED else -9, 10, dims).astype(dtype)


UNARY = (
    "Abs Neg Sign Ceil Floor Round Sqrt Exp Log Erf Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh "
    "Atanh Sigmoid Relu LeakyRelu Elu Selu Celu Gelu HardSigmoid HardSwish Mish Softplus Softsign ThresholdedRelu "
    "IsNaN IsInf Shrink"
).split()


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_number(op: str) -> None:
    for dtype in FLOATS:
        as_the_reference(op, drawn(dtype, 2, 3, 4))
        scalar = np.array(0.75, dtype)
        np.testing.assert_array_equal(run(op, scalar), run(op, scalar[None])[0], strict=True)
        as_the_reference(op, np.zeros((2, 0), dtype))
    as_the_reference(op, np.array(SPECIAL, "float32"))


ATTRIBUTES: list[tuple[str, int, dict[str, Any]]] = [
    ("LeakyRelu", 16, {"alpha": 0.3}),
    ("Elu", 6, {"alpha": 2.0}),
    ("Selu", 6, {"alpha": 1.5, "gamma": 0.7}),
    ("Celu", 12, {"alpha": 3.0}),
    ("Gelu", 20, {"approximate": "tanh"}),
    ("HardSigmoid", 6, {"alpha": 0.3, "beta": 0.6}),
    ("ThresholdedRelu", 10, {"alpha": 0.5}),
    ("Shrink", 9, {"lambd": 1.5, "bias": 1.0}),
    ("IsInf", 10, {"detect_negative": 0}),
    ("IsInf", 10, {"detect_positive": 0}),
    ("IsInf", 10, {"detect_positive": 0, "detect_negative": 0}),
    ("Clip", 6, {"min": -1.0, "max": 0.5}),
    ("Clip", 11, {}),
]


@pytest.mark.parametrize(("op", "version", "attributes"), ATTRIBUTES)
def test_functions_with_attributes(op: str, version: int, attributes: dict[str, Any]) -> None:
    as_the_reference(op, np.array([*SPECIAL, 1.5, -1.5], "float32"), version=version, **attributes)


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
@pytest.mark.parametrize("bias", [0.0, 0.5, 1.0, 2.75])
def test_shrink_of_integers_adds_fractions_before_it_truncates(dtype: str, bias: float) -> None:
    x = drawn(dtype, 3, 5)
    wide = x.astype(np.float64)
    wanted = np.where(wide > 1.5, wide - bias, np.where(wide < -1.5, wide + bias, 0)).astype(dtype)
    np.testing.assert_array_equal(run("Shrink", x, lambd=1.5, bias=bias), wanted, strict=True)


def test_erf_takes_integers_before_version_13() -> None:
    for dtype in (*SIGNED, *UNSIGNED):
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        near = np.arange(max(-9, least), 10)
        as_the_reference("Erf", np.array([*near, least, most], dtype), version=9)


def test_swish_scales_what_its_sigmoid_sees() -> None:
    x = drawn("float32", 5)
    np.testing.assert_allclose(run("Swish", x, alpha=0.3), x / (1 + np.exp(-np.float32(0.3) * x)), rtol=1e-6)


def test_old_selu_has_other_constants() -> None:
    np.testing.assert_allclose(run("Selu", np.ones(1, "float32"), version=1), [1.0507], rtol=1e-7)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Min", "Max", "Sum", "Mod"])
def test_arithmetic_broadcasts_both_ways(op: str) -> None:
    for dtype in (*FLOATS, *((*SIGNED, *UNSIGNED) if op != "Sum" else ())):
        attributes = {"fmod": 1} if op == "Mod" and dtype in FLOATS else {}
        x, y = (
            drawn(dtype, 3, 1, 4),
            drawn(dtype, 2, 1, seed=1) + np.dtype(dtype).type(3 if op in ("Div", "Mod") else 0),
        )
        as_the_reference(op, x, np.where(y == 0, np.dtype(dtype).type(5), y), **attributes)
        as_the_reference(op, np.zeros((0, 4), dtype), x[0], **attributes)


def test_integers_divide_and_leave_remainders_of_either_sign() -> None:
    x, y = np.array([7, -7, 7, -7], "int32"), np.array([2, 2, -2, -2], "int32")
    assert run("Div", x, y).tolist() == [3, -3, -3, 3]
    assert run("Mod", x, y).tolist() == [1, 1, -1, -1]
    assert run("Mod", x, y, fmod=1).tolist() == [1, -1, 1, -1]


def test_variadic_operators() -> None:
    parts = [drawn("float32", 3, 1), drawn("float32", 4, seed=1), drawn("float32", 2, 1, 1, seed=2)]
    np.testing.assert_allclose(run("Mean", *parts), sum(parts) / 3, rtol=1e-6)
    np.testing.assert_array_equal(run("Max", *parts), np.maximum(np.maximum(*parts[:2]), parts[2]))
    assert run("Sum", parts[0]) is not None
    with pytest.raises(BadInput, match=r"node n .*: requires at least 1 input, got 0"):
        run("Min")


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float64", "int64"])
def test_powers_of_two_dtypes(dtype: str) -> None:
    exponent = np.abs(drawn(dtype, 4))
    as_the_reference("Pow", np.abs(drawn("float32", 3, 4)), exponent)
    as_the_reference("Pow", np.array([[3], [2]]), exponent)
    as_the_reference("Pow", drawn("int32", 3, 1), np.array([[2]], dtype))


def test_small_known_powers_are_products() -> None:
    for exponent, products in ((1, 0), (2, 1), (3, 2), (4, 0)):
        model = model_of("Pow", [drawn("float32", 3), np.array(exponent, "float32")], 15, constants=1)
        term = program_of_model(model).term
        kinds = [t.attributes[0] for t in postorder(term) if t.operator.name == "compute"]
        assert kinds.count("elementwise-mul") == products
        assert kinds.count("pow") == (exponent == 4)


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_shifts_by_any_amount(dtype: str) -> None:
    """As ONNX 28 has it: arithmetic to the right, and beyond the width only signs are left."""
    limits, bits = np.iinfo(dtype), 8 * np.dtype(dtype).itemsize
    x = np.array([[1], [5], [limits.max], [limits.min], [limits.max // 3]], dtype)
    amounts = [0, 1, 2, bits - 1, bits, bits + 3, *([-1] if dtype in SIGNED else [])]
    right = [[int(v) >> (n if n >= 0 else bits) for n in amounts] for v in x[:, 0]]
    assert run("BitShift", x, np.array(amounts, dtype), direction="RIGHT").tolist() == right
    left = np.array([[(int(v) << n) % 2**bits if n >= 0 else 0 for n in amounts] for v in x[:, 0]], f"uint{bits}")
    got = run("BitShift", x, np.array(amounts, dtype), direction="LEFT")
    np.testing.assert_array_equal(got.view(f"uint{bits}"), left)


def test_logic_and_bits() -> None:
    a, b = drawn("bool", 3, 1, 4), drawn("bool", 2, 1, seed=1)
    for op in ("And", "Or", "Xor", "Equal"):
        as_the_reference(op, a, b)
    for dtype in ("int8", "uint16", "int64"):
        as_the_reference("BitwiseNot", drawn(dtype, 5))
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            as_the_reference(op, drawn(dtype, 3, 1), drawn(dtype, 4, seed=1))


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons(op: str) -> None:
    special = np.array(SPECIAL, "float32")
    as_the_reference(op, special[:, None], special)
    as_the_reference(op, drawn("uint8", 3, 1), drawn("uint8", 4, seed=1))


OLD: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Div": np.divide,
    "Pow": np.power,
    "Less": np.less,
    "And": np.logical_and,
}


@pytest.mark.parametrize("op", OLD)
@pytest.mark.parametrize(
    ("dims", "axis", "like"), [((4, 5), None, (1, 4, 5)), ((4,), 1, (1, 4, 1)), ((3, 4), 0, (3, 4, 1)), ((), None, ())]
)
def test_old_operators_broadcast_from_an_axis_on(op: str, dims: tuple[int, ...], axis: int | None, like: Any) -> None:
    dtype = "bool" if op == "And" else "float32"
    x, y = np.abs(drawn(dtype, 3, 4, 5)), np.abs(drawn(dtype, *dims, seed=1))
    attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    got = run(op, x, y, version=6 if op != "And" else 1, **attributes)
    np.testing.assert_allclose(got, OLD[op](x, y.reshape(like)), rtol=1e-6)


def test_slopes_of_old_prelu_are_of_channels() -> None:
    x, slope = drawn("float32", 2, 3, 4, 3), np.array([0.1, 10, -1], "float32")
    want = np.where(x < 0, x * slope[:, None, None], x)
    np.testing.assert_allclose(run("PRelu", x, slope, version=6), want, rtol=1e-6)
    np.testing.assert_allclose(run("PRelu", x, slope, version=7), np.where(x < 0, x * slope, x), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8"])
def test_clip(dtype: str) -> None:
    x = drawn(dtype, 3, 4)
    two, five = np.array(2, dtype), np.array([5], dtype)
    as_the_reference("Clip", x, two, five)
    np.testing.assert_array_equal(run("Clip", x, five, two), np.full_like(x, 2))  # limits that cross: the upper one
    np.testing.assert_array_equal(run("Clip", x, None, two), np.minimum(x, two))
    np.testing.assert_array_equal(run("Clip", x, np.array(0, dtype)), np.maximum(x, 0))


def test_known_limits_of_clip_are_one_compute_type() -> None:
    limits = [np.array(0, "float32"), np.array(6, "float32")]
    x = drawn("float32", 3)
    assert (
        repr(program_of_model(model_of("Clip", [x, *limits], 13, constants=2)).term)
        == "(compute (clip 0.0 6.0) (access-tensor x0))"
    )
    given = program_of_model(model_of("Clip", [x, *limits], 13)).term  # limits that are inputs of the model
    assert {t.attributes[0] for t in postorder(given) if t.operator.name == "compute"} == {"maximum", "minimum"}


def test_where_and_casts_keep_dtypes() -> None:
    for dtype in (*FLOATS, *SIGNED, *UNSIGNED, "bool"):
        as_the_reference("Where", drawn("bool", 3, 1), drawn(dtype, 4), drawn(dtype, 2, 1, 1, seed=1))
        for to in (*FLOATS, *SIGNED, *UNSIGNED, "bool"):
            as_the_reference("Cast", np.abs(drawn(dtype, 3, 4)), to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    x = np.array([300, -1, 2**33 + 5])
    assert run("Cast", x, to=onnx.TensorProto.UINT8).tolist() == [44, 255, 5]
    assert run("CastLike", x, np.zeros(1, bool)).dtype == bool


@pytest.mark.parametrize("version", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_shares_over_one_axis_or_before_version_13_over_all_that_follow(version: int, axis: int) -> None:
    x = drawn("float32", 3, 4, 5)
    lead = x.shape[: axis % 3]
    flat = x.astype(np.float64).reshape((*lead, -1)) if version < 13 else np.moveaxis(x.astype(np.float64), axis, -1)
    share = np.exp(flat) / np.exp(flat).sum(-1, keepdims=True)
    most = np.eye(flat.shape[-1])[flat.argmax(-1)]
    for op, want in (("Softmax", share), ("LogSoftmax", np.log(share)), ("Hardmax", most)):
        want = want.reshape(x.shape) if version < 13 else np.moveaxis(want, -1, axis)
        np.testing.assert_allclose(run(op, x, version=version, axis=axis), want, rtol=1e-4)


def test_shares_of_equal_and_of_no_scores() -> None:
    assert run("Hardmax", np.array([[1, 2, 2], [3, 3, 1]], "float32")).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert run("Softmax", np.zeros((2, 0), "float32")).shape == (2, 0)


def test_dropout_at_inference_gives_its_input() -> None:
    x = drawn("float32", 3, 4)
    for version, dtype in ((7, "float32"), (10, "bool"), (22, "bool")):
        value, mask = run("Dropout", x, version=version, outputs=2)
        np.testing.assert_array_equal(value, x)
        assert mask.dtype == dtype
        assert mask.all()
    zero, training = np.array(0, "float32"), np.array(True)
    np.testing.assert_array_equal(run("Dropout", x, zero, training, version=22), x)


def test_dropout_in_training_is_made_of_a_seed_that_is_an_input() -> None:
    node = "y, mask = Dropout(x, ratio, training)  z = Dropout(x, ratio, training)"
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[50,40] x) => (float[50,40] y, bool[50,40] mask, float[50,40] z)
        <float ratio = {{0.2}}, bool training = {{1}}> {{ {node} }}""")
    program = program_of_model(model)
    assert [*program.inputs] == ["x", "dropout-seed"]
    assert [t.name for t in program.signature.inputs] == ["x", "dropout-seed"]
    x = np.ones((50, 40), "float32")
    masks = []
    for seed in (0, 1, 0):
        values = {"x": x, "dropout-seed": np.array(seed, "uint32")}
        ((y, mask, z),) = gl.evaluate([program.term], values)
        np.testing.assert_allclose(y, np.where(mask, 1.25, 0))
        assert 0.75 < mask.mean() < 0.85
        assert not np.array_equal(y, z)
        masks.append(mask)
    assert np.array_equal(masks[0], masks[2])
    assert not np.array_equal(masks[0], masks[1])


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, **over: np.abs(x).sum(**over),
    "ReduceL2": lambda x, **over: np.sqrt((x * x).sum(**over)),
    "ReduceSumSquare": lambda x, **over: (x * x).sum(**over),
    "ReduceLogSum": lambda x, **over: np.log(x.sum(**over)),
    "ReduceLogSumExp": lambda x, **over: np.log(np.exp(x).sum(**over)),
}


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint64"])
def test_reductions(op: str, dtype: str) -> None:
    """Axes as an attribute and as an input, from either end, none and all."""
    x = np.minimum(np.abs(drawn(dtype, 2, 3, 4)), 1) + np.dtype(dtype).type(1)
    for axes in ([0], [1, 2], [-1, 0], None):
        for keep in (0, 1):
            over = {"axis": None if axes is None else tuple(axes), "keepdims": bool(keep)}
            want = REDUCTIONS[op](x.astype("float64"), **over).astype(dtype)
            indices = None if axes is None else np.array(axes)
            given = {} if axes is None else {"axes": axes}
            for got in (run(op, x, indices, version=18, keepdims=keep), run(op, x, version=11, keepdims=keep, **given)):
                assert (got.dtype, got.shape) == (want.dtype, want.shape)
                np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_of_nothing_and_over_no_axes(op: str) -> None:
    empty, axis = np.zeros((2, 0, 3), "float32"), np.array([1])
    sums = {"ReduceProd": 1, "ReduceMean": np.nan, "ReduceMax": -np.inf, "ReduceMin": np.inf}
    neutral = sums.get(op, -np.inf if "Log" in op else 0)
    np.testing.assert_array_equal(run(op, empty, axis), np.full((2, 1, 3), neutral, "float32"))
    assert run(op, empty, np.array([0])).shape == (1, 0, 3)
    x = np.array([[2, -3]], "int32")
    single = REDUCTIONS[op](x.astype(float)[None], axis=0, keepdims=False) if "Log" not in op else x
    if "LogSum" != op[6:]:
        np.testing.assert_array_equal(run(op, x, noop_with_empty_axes=1), single)


def test_limits_of_integers_and_of_truth() -> None:
    for dtype, least, most in (("int8", -128, 127), ("uint8", 0, 255), ("bool", False, True)):
        x = np.zeros((0, 2), dtype)
        np.testing.assert_array_equal(run("ReduceMax", x, np.array([0]), keepdims=0), np.array([least] * 2, dtype))
        np.testing.assert_array_equal(run("ReduceMin", x, np.array([0]), keepdims=0), np.array([most] * 2, dtype))
    assert run("ReduceMax", np.array([[False, True], [False, False]]), np.array([1])).tolist() == [[True], [False]]


def test_log_sum_exp_neither_overflows_nor_loses_infinities() -> None:
    x = np.array([[1000, 1000], [np.inf, 1], [-np.inf, -np.inf], [np.nan, 0]], "float32")
    got = run("ReduceLogSumExp", x, np.array([1]), keepdims=0)
    np.testing.assert_allclose(got, [1000 + np.log(2), np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_positions(op: str) -> None:
    for dtype in ("float32", "int8", "uint8"):
        x = (drawn(dtype, 3, 4, 5) / 2).astype(dtype)  # many that are equal
        for axis in (0, 1, -1):
            for last in (0, 1):
                as_the_reference(op, x, axis=axis, keepdims=last, select_last_index=last, version=13)
                as_the_reference(op, x, axis=axis, keepdims=1 - last, select_last_index=last, version=13)


@pytest.mark.parametrize(("op", "of"), [("CumSum", np.cumsum), ("CumProd", np.cumprod)])
def test_running_sums_and_products(op: str, of: Callable[..., Any]) -> None:
    for dtype in ("float64", "int32", "uint64"):
        x = drawn(dtype, 3, 5)
        np.testing.assert_allclose(run(op, x, np.array(-1)), of(x, axis=1, dtype=dtype), rtol=1e-12)
        np.testing.assert_allclose(
            run(op, x, np.array(0), reverse=1), of(x[::-1], axis=0, dtype=dtype)[::-1], rtol=1e-12
        )
        before = np.concatenate([np.full((3, 1), of is np.cumprod, dtype), x[:, :-1]], 1)
        np.testing.assert_allclose(run(op, x, np.array([1]), exclusive=1), of(before, axis=1, dtype=dtype), rtol=1e-12)


def test_products_of_einsum_are_layers() -> None:
    x, y = drawn("float32", 2, 3, 4), drawn("float32", 4, 5)
    model = model_of("Einsum", [x, y], 12, equation="bij,jk->bki")
    np.testing.assert_allclose(onnx_backend.run_model(model, [x, y])[0], np.swapaxes(x @ y, 1, 2), rtol=1e-5)
    assert list(program_of_model(model).layers) == ["n"]


def test_determinants_of_stacked_matrices() -> None:
    x = drawn("float32", 2, 3, 4, 4)
    np.testing.assert_allclose(run("Det", x), np.linalg.det(x), rtol=1e-4)


def test_bits_are_kept() -> None:
    x = np.array(SPECIAL, "float32")
    np.testing.assert_array_equal(run("BitCast", x, to=onnx.TensorProto.INT32), x.view("int32"))
    np.testing.assert_array_equal(run("BitCast", x.view("uint32"), to=onnx.TensorProto.FLOAT), x)


X, N = drawn("float32", 2, 3), drawn("int32", 2, 3)
REFUSED: list[tuple[str, list[Array | None], dict[str, Any], str]] = [
    ("Add", [X, drawn("float32", 2)], {}, "sizes that agree or are 1"),
    ("Add", [X, X[0]], {"version": 6}, "requires inputs of one shape, as attribute broadcast is 0"),
    ("Add", [X, X[:, :2]], {"version": 6, "broadcast": 1, "axis": 1}, "input 1 requires at most the 1 axes of"),
    ("Add", [X, N], {}, "input 1 requires float32 as the inputs before it, got int32"),
    ("Xor", [N, N], {}, "input 0 requires bool, got int32"),
    ("Where", [X, X, X], {}, "input 0 requires bool, got float32"),
    ("BitShift", [N, N], {"direction": "UP"}, "attribute direction is one of LEFT, RIGHT, got 'UP'"),
    ("BitShift", [X, X], {"direction": "LEFT"}, "input 0 requires int8, .*, got float32"),
    ("BitwiseNot", [X], {}, "input 0 requires int8, .*, got float32"),
    ("Gelu", [X], {"approximate": "erf"}, "attribute approximate is one of none, tanh, got 'erf'"),
    ("LeakyRelu", [X], {"alpha": "a"}, "attribute alpha requires a number with a fraction, got a text, a"),
    ("Clip", [X, X[0]], {}, "input 1 requires one number"),
    ("Cast", [X], {}, "requires the attribute to, got none"),
    ("Cast", [X], {"to": 8}, "attribute to: an element type is one of .*, got string"),
    ("Cast", [X], {"to": 999}, "attribute to: an element type requires a number that ONNX knows, got 999"),
    ("BitCast", [X], {"to": 7}, "bitcast requires a dtype of 32 bits"),
    ("Softmax", [X], {"axis": 2}, "attribute axis requires a number from -2 to 1, got 2"),
    ("ReduceSum", [X, np.array([2])], {}, "an axis requires a number from -2 to 1, got 2"),
    ("ReduceMax", [X, np.array([0, -2])], {}, r"requires axes that are different, got \[0, -2\]"),
    ("ReduceMax", [X, np.array([0.5])], {}, "input 1 requires int64, got float64"),
    ("ReduceMean", [X], {"keepdims": 1.0}, "attribute keepdims requires a whole number, got a number .*, 1.0"),
    ("ArgMax", [np.zeros((0, 2), "float32")], {}, "argmax requires an item of at least one element"),
    ("CumSum", [X, np.array([0, 1])], {}, r"input 1 requires one axis, got \[0, 1\]"),
    ("CumSum", [X, np.array(-3)], {}, "input 1 requires a number from -2 to 1, got -3"),
    ("Einsum", [X], {"equation": "ij->k"}, "einsum requires labels of the result"),
    ("Det", [X], {}, r"determinant requires x of \(\)\(S.. n n\)"),
]


@pytest.mark.parametrize(
    ("op", "arrays", "attributes", "message"), REFUSED, ids=[f"{op}-{m}" for op, _, _, m in REFUSED]
)
def test_bad_nodes_are_named(op: str, arrays: list[Array | None], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=rf"^node n \({op}\): .*{message}"):
        run(op, *arrays, **attributes)
