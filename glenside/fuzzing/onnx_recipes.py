"""Lists the recipes of ONNX operators, and draws whole models from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf, isfinite, prod
from typing import Any

from glenside.fuzzing.models import types_of
from glenside.fuzzing.onnx_movement import (
    concat,
    cut,
    expand,
    gather,
    gather_elements,
    nd,
    pad,
    reshape,
    scatter_elements,
    split,
    squeeze,
    tile,
    transpose,
)
from glenside.fuzzing.onnx_nodes import (
    Draft,
    Recipe,
    Value,
    binary,
    convolution,
    gemm,
    integer_product,
    matmul,
    normalization,
    pool,
    quantize,
    reduction,
    transposed_convolution,
    unary,
    variadic,
    varied,
    with_axis,
)
from glenside.fuzzing.turns import Turn

_ELEMENTS = 6_000


def _where(d: Draft, x: Value) -> list[str]:
    other = d.broadcast(x)
    truth = d.node("Greater", [x[0], other]) if d.model.opset >= 9 else d.node("Less", [x[0], other])
    return d.node("Where", [*truth, x[0], d.broadcast(x)])


def _compare(op: str) -> Recipe:
    def draw(d: Draft, x: Value) -> list[str]:
        made = d.node(op, [x[0], d.broadcast(x)])
        return d.node("Cast", made, to=["dtype", x[1]]) if d.pick.random() < 0.7 else made

    return draw


def _logical(op: str) -> Recipe:
    def draw(d: Draft, x: Value) -> list[str]:
        a = d.cast(x, "bool")
        if op == "Not":
            return d.node(op, [a[0]])
        return d.node(op, [a[0], d.broadcast(a)])

    return draw


def _clip(d: Draft, x: Value) -> list[str]:
    low, high = d.pick.choice(((-1, 1), (0, 6), (-2, 3)))
    if d.model.opset < 11:
        return d.node("Clip", [x[0]], min=float(low), max=float(high))
    ends = [d.numbers([n], x[1], ()) for n in (low, high)]
    return d.node("Clip", [x[0], *d.pick.choice((ends, ends[:1], ["", ends[1]]))])


def _cast(d: Draft, x: Value) -> list[str]:
    dtype = d.pick.choice(("float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool"))
    return [d.cast(x, dtype)[0]]


def _cumsum(d: Draft, x: Value) -> list[str]:
    axis = d.numbers([d.axis(x)], "int64", ())
    return d.node("CumSum", [x[0], axis], exclusive=d.pick.randint(0, 1), reverse=d.pick.randint(0, 1))


def _one_hot(d: Draft, x: Value) -> list[str]:
    indices = d.indices(4, d.pick.choice(((3,), (2, 2), ())))
    values = d.numbers([d.pick.randint(-1, 1), d.pick.randint(2, 3)], "float32")
    return d.node("OneHot", [indices, d.numbers([4], "int64", ()), values], axis=d.pick.choice((-1, 0)))


def _top(d: Draft, x: Value) -> list[str]:
    axis = d.pick.randrange(len(x[2]))
    k = d.pick.randint(1, x[2][axis])
    if d.model.opset < 10:
        return d.node("TopK", [x[0]], 2, axis=axis, k=k)
    how: dict[str, Any] = {"largest": d.pick.randint(0, 1)} if d.model.opset >= 11 else {}
    return d.node("TopK", [x[0], d.numbers([k])], 2, axis=axis, **how)


def _trilu(d: Draft, x: Value) -> list[str]:
    x = d.of_rank(x, max(2, len(x[2])))
    ins = [x[0], d.numbers([d.pick.randint(-2, 2)], "int64", ())][: d.pick.randint(1, 2)]
    return d.node("Trilu", ins, upper=d.pick.randint(0, 1))


def _blocks(op: str) -> Recipe:
    def draw(d: Draft, x: Value) -> list[str]:
        b = d.pick.randint(1, 3)
        n, c, h, w = (d.pick.randint(1, 2), d.pick.randint(1, 3), d.pick.randint(1, 3), d.pick.randint(1, 3))
        if op == "SpaceToDepth":
            return d.node(op, [d.input((n, c, h * b, w * b), "float32")], blocksize=b)
        how: dict[str, Any] = {"mode": d.pick.choice(("DCR", "CRD"))} if d.model.opset >= 11 else {}
        return d.node(op, [d.input((n, c * b * b, h, w), "float32")], blocksize=b, **how)

    return draw


def _resize(d: Draft, x: Value) -> list[str]:
    pick = d.pick
    x = d.of_rank(d.cast(x, "float32"), 4)
    scales = d.numbers([1.0, 1.0, pick.choice((0.5, 1.0, 2.0, 1.5)), pick.choice((1.0, 2.0, 3.0))], "float32")
    mode = pick.choice(("nearest", "linear"))
    if d.model.opset < 10:
        return d.node("Upsample", [x[0], d.numbers([1.0, 1.0, 2.0, 3.0], "float32")], mode=mode)
    if d.model.opset < 11:
        return d.node("Resize", [x[0], scales], mode=mode)
    how: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": pick.choice(("half_pixel", "asymmetric", "align_corners")),
    }
    if mode == "nearest":
        how["nearest_mode"] = pick.choice(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    return d.node("Resize", [x[0], "", scales], **how)


def _recurrent(op: str, gates: int) -> Recipe:
    def draw(d: Draft, x: Value) -> list[str]:
        pick = d.pick
        size = pick.randint(1, 5)
        x = d.spec(d.input((pick.randint(1, 4), pick.randint(1, 3), size)))  # finite: runtimes differ for nans
        hidden, direction = pick.randint(1, 4), pick.choice(("forward", "reverse", "bidirectional"))
        ways = 2 if direction == "bidirectional" else 1
        ins = [x[0], d.weight((ways, gates * hidden, size)), d.weight((ways, gates * hidden, hidden))]
        if pick.random() < 0.6:
            ins.append(d.weight((ways, 2 * gates * hidden)))
        how: dict[str, Any] = {"linear_before_reset": pick.randint(0, 1)} if op == "GRU" else {}
        made = d.node(op, ins, 2, hidden_size=hidden, direction=direction, **how)
        one = d.numbers([1.0], "float32", ())  # runtimes approximate gates, with errors relative to 1
        return [d.node("Add", [result, one])[0] for result in made]

    return draw


def _prelu(d: Draft, x: Value) -> list[str]:
    return d.node("PRelu", [x[0], d.weight(x[2][d.pick.randint(0, len(x[2])) :] or (1,), x[1])])


def _pow(d: Draft, x: Value) -> list[str]:
    if "int" not in x[1]:
        return binary("Pow")(d, x)
    exponents = d.numbers([d.pick.randint(0, 3) for _ in range(x[2][-1])], x[1], x[2][-1:])  # others round large powers
    return d.node("Pow", [x[0], exponents])


def _mod(d: Draft, x: Value) -> list[str]:
    whole = d.pick.random() < 0.5
    x = d.cast(x, "int32" if whole else "float32")
    by = d.numbers([d.pick.choice((3, 5, -4)) for _ in range(x[2][-1])], x[1], x[2][-1:])
    return d.node("Mod", [x[0], by], fmod=0 if whole and d.pick.random() < 0.5 else 1)


def _einsum(d: Draft, x: Value) -> list[str]:
    x = d.of_rank(d.cast(x, "float32"), 2)
    equation = d.pick.choice(("ij,jk->ik", "ij,kj->ki", "ij,jk->ki"))
    other = (d.pick.randint(1, 5), x[2][1]) if "kj" in equation else (x[2][1], d.pick.randint(1, 5))
    return d.node("Einsum", [x[0], d.weight(other)], equation=equation)


def _eye(d: Draft, x: Value) -> list[str]:
    return d.node("EyeLike", [d.of_rank(x, 2)[0]], k=d.pick.randint(-1, 1))


def _constant_of_shape(d: Draft, x: Value) -> list[str]:
    shape = d.node("Shape", [x[0]])
    return d.node("Add", [x[0], d.node("Cast", d.node("ConstantOfShape", shape), to=["dtype", x[1]])[0]])


def _reverse_sequence(d: Draft, x: Value) -> list[str]:
    x = d.of_rank(x, max(2, len(x[2])))
    lengths = d.numbers([d.pick.randint(1, x[2][1]) for _ in range(x[2][0])])
    return d.node("ReverseSequence", [x[0], lengths], batch_axis=0, time_axis=1)


def _fused_matmul(d: Draft, x: Value) -> list[str]:
    x = d.of_rank(d.cast(x, "float32"), 2)
    ta, tb = d.pick.randint(0, 1), d.pick.randint(0, 1)
    depth, n = x[2][0 if ta else 1], d.pick.randint(1, 6)
    ins = [x[0], d.weight((n, depth) if tb else (depth, n))]
    made = d.node("FusedMatMul", ins, domain="com.microsoft", transA=ta, transB=tb, alpha=d.pick.choice((1.0, 0.5)))
    d.model.types[made[0]] = ("float32", (x[2][1 if ta else 0], n))
    return made


def _of_images(op: str) -> Recipe:
    return lambda d, x: d.node(op, [d.of_rank(d.cast(x, "float32"), 4)[0]])


def _microsoft(op: str) -> Recipe:
    def draw(d: Draft, x: Value) -> list[str]:
        x = d.cast(x, "float32")
        made = d.node(op, [x[0]], domain="com.microsoft")
        d.model.types[made[0]] = ("float32", x[2])
        return d.node("Add", [*made, *d.node("Abs", [x[0]])])  # runtimes approximate it, with errors relative to x

    return draw


_FLOAT = (
    "Exp Log Sqrt Tanh Sigmoid Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Reciprocal Softplus Softsign"
)
_ROUNDING = "Softsign Floor Ceil Round Relu Abs Neg Sign Identity HardSwish Mish IsNaN"
_REDUCTIONS = "Sum Max Min Mean Prod L1 L2 LogSum LogSumExp SumSquare"
_ALPHAS = (0.5, 0.25, 1.0)
RECIPES: dict[str, Recipe] = {
    **{op: unary(op) for op in f"{_FLOAT} {_ROUNDING}".split()},
    **{f"Reduce{kind}": reduction(f"Reduce{kind}") for kind in _REDUCTIONS.split()},
    **{op: binary(op) for op in ("Add", "Sub", "Mul", "Div")},
    **{op: variadic(op) for op in ("Sum", "Mean", "Max", "Min")},
    **{op: _compare(op) for op in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")},
    **{op: _logical(op) for op in ("And", "Or", "Xor", "Not")},
    **{op: with_axis(op) for op in ("Softmax", "LogSoftmax", "Hardmax", "Flatten")},
    **{op: with_axis(op, keepdims=(0, 1), select_last_index=(0, 1)) for op in ("ArgMax", "ArgMin")},
    **{op: pool(op) for op in ("MaxPool", "AveragePool", "LpPool")},
    **{op: _of_images(op) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")},
    **{op: unary(op) for op in ("Size", "Shape")},
    **{op: normalization(op) for op in ("BatchNormalization", "InstanceNormalization", "LayerNormalization")},
    **{op: integer_product(op) for op in ("MatMulInteger", "QLinearMatMul")},
    **{op: _blocks(op) for op in ("SpaceToDepth", "DepthToSpace")},
    **{op: nd(op) for op in ("GatherND", "ScatterND")},
    **{op: _microsoft(op) for op in ("Gelu", "FastGelu", "QuickGelu")},
    **{op: _recurrent(op, gates) for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))},
    "LeakyRelu": unary("LeakyRelu", alpha=_ALPHAS),
    "Elu": unary("Elu", alpha=_ALPHAS),
    "Selu": unary("Selu", alpha=_ALPHAS, gamma=_ALPHAS),
    "Celu": unary("Celu", alpha=_ALPHAS),
    "ThresholdedRelu": unary("ThresholdedRelu", alpha=_ALPHAS),
    "HardSigmoid": unary("HardSigmoid", alpha=(0.2, 0.5), beta=_ALPHAS),
    "Shrink": unary("Shrink", bias=_ALPHAS, lambd=_ALPHAS),
    "GeluOfOnnx": unary("Gelu", approximate=("none", "tanh")),
    "IsInf": unary("IsInf", detect_negative=(0, 1), detect_positive=(0, 1)),
    "LRN": lambda d, x: d.node("LRN", [d.of_rank(x, 4)[0]], size=d.pick.choice((1, 3, 5)), alpha=0.1),
    "LpNormalization": with_axis("LpNormalization", p=(1, 2)),
    "MeanVarianceNormalization": lambda d, x: d.node("MeanVarianceNormalization", [varied(d, d.of_rank(x, 4))[0]]),
    "Dropout": unary("Dropout"),
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "MatMul": matmul,
    "Gemm": gemm,
    "QuantizeLinear": quantize,
    "Transpose": transpose,
    "Reshape": reshape,
    "Unsqueeze": squeeze,
    "Slice": cut,
    "Concat": concat,
    "Split": split,
    "Pad": pad,
    "Tile": tile,
    "Expand": expand,
    "Gather": gather,
    "GatherElements": gather_elements,
    "ScatterElements": scatter_elements,
    "Where": _where,
    "Clip": _clip,
    "Cast": _cast,
    "CumSum": _cumsum,
    "OneHot": _one_hot,
    "TopK": _top,
    "Trilu": _trilu,
    "Resize": _resize,
    "PRelu": _prelu,
    "Pow": _pow,
    "Mod": _mod,
    "Einsum": _einsum,
    "EyeLike": _eye,
    "ConstantOfShape": _constant_of_shape,
    "ReverseSequence": _reverse_sequence,
    "FusedMatMul": _fused_matmul,
}
"""Name of an operator -> the function that draws its nodes."""


_VERSIONS, _LATE = range(7, 23), range(14, 23)
"""Versions of ONNX, and those that have all operators."""
_LEFT_OUT = 0.4
"""The share of nodes without some of their attributes."""
_ALONE, _VARIANTS = 6, 2
"""Operators of a model in which each is applied alone, and the ways in which each is."""
_TRIES = 6
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 2.0, -3.0, inf, -inf)


def drawn_model(pick: random.Random, turn: Turn | None = None) -> str:
    """Returns a model of 1 to 6 operators at a drawn version of ONNX, as its description.

    turn  the number of the model, so that a run draws all operators evenly; by default drawn
    """
    alone, turn = (turn or Turn(pick.randrange(1 << 16), pick.randrange(1 << 10))).halved()
    d = Draft(pick, pick.choice(_VERSIONS if pick.random() < 0.4 else _LATE))
    rank = pick.choice((1, 2, 2, 3, 4, 4))
    dtype = pick.choice(("float32", "float32", "float64", "int32", "int64", "int8", "uint8")) if alone else "float32"
    x = d.spec(d.input([pick.choice((1, 2, 3, 4, 5, 7)) for _ in range(rank)], dtype))
    names = turn.of(list(RECIPES), _ALONE if alone else 1)
    ends = _alone(d, x, names) if alone else _chained(d, x, names)
    d.model.outputs = ends or d.node("Identity", [x[0]])
    return d.model.used().text()


def _alone(d: Draft, x: Value, names: Sequence[str]) -> list[str]:
    """Applies each operator in several ways, so that no later one hides its result; returns all results.

    The operand is an input, special values, or if the operator refuses the dtype, floats.
    """
    operands, floats = _and_special(d, x), _and_special(d, d.cast(x, "float32"))
    ends = list[str]()
    for name in [name for name in names for _ in range(_VARIANTS)]:
        for turn in range(_TRIES):
            if made := _added(d, RECIPES[name], d.pick.choice(operands if turn < _TRIES // 2 else floats)):
                ends += made
                break
    return ends


def _and_special(d: Draft, x: Value) -> list[Value]:
    special = _added(d, _special, x)
    return [x, *([d.spec(special[0])] if special else [])]


def _special(d: Draft, x: Value) -> list[str]:
    """Returns values at which operators change their behaviour, computed from an input: 0, halves, infinities."""
    _, dtype, dims = x
    values = [v for v in _SPECIAL if "float" in dtype or isfinite(v)]
    drawn = [d.pick.choice(values) for _ in range(prod(dims))]
    if "float" not in dtype:
        drawn = [max(0.0, v) if dtype == "uint8" else v for v in drawn]
    zeros = d.node("Mul", [x[0], d.numbers([0.0], dtype)])
    return d.node("Add", [*zeros, d.numbers(drawn, dtype, dims)])


def _chained(d: Draft, x: Value, first: Sequence[str]) -> list[str]:
    """Applies operators to each other's results, of which the given ones come first; returns the results."""
    pick, names, ends, seen = d.pick, list(RECIPES), list[str](), list[str]()
    for step in range(pick.randint(1, 6)):
        for _ in range(_TRIES):
            name = first[step] if step < len(first) else pick.choice(names)
            if made := _added(d, RECIPES[name], x):
                seen += [name for name in ends if pick.random() < 0.4]
                ends = made
                x = d.spec(made[0])
                break
    return [*ends, *seen]


def _added(d: Draft, recipe: Recipe, x: Value) -> list[str]:
    """Returns the outputs that a recipe adds; if they are not valid, it adds nothing and returns none."""
    d.leaves_out = d.pick.random() < _LEFT_OUT
    before = len(d.model.nodes), {**d.model.inputs}, {**d.model.constants}, {**d.types}, {**d.model.types}
    try:
        made = recipe(d, x)
        d.model.outputs = made
        d.types |= types_of(d.model)
        if all(name in d.types and 0 < prod(d.types[name][1]) < _ELEMENTS for name in made):
            return made
    except Exception:  # the recipe does not fit the value, or ONNX refuses the node at that version
        pass
    finally:
        d.leaves_out = False
    count, inputs, constants, types, d.model.types = before
    del d.model.nodes[count:]
    d.model.inputs, d.model.constants, d.types = inputs, constants, types
    return []
