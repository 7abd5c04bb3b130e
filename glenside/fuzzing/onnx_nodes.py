"""Draws ONNX nodes: operands and attributes of each operator, for an existing value."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from glenside.fuzzing.models import Model, Spec, types_of

Value = tuple[str, str, tuple[int, ...]]
"""A name, a dtype and dims."""
Recipe = Callable[["Draft", Value], list[str]]


_STRUCTURAL = ("group", "num_groups", "batch_axis", "time_axis", "kernel_shape", "equation", "size", "num_heads")
"""Attributes without whose value operands do not fit."""
_ALONG_AXIS = ("GatherElements", "ScatterElements", "Scatter", "LayerNormalization", "Split", "Concat")
"""Operators whose other operands fit one axis only."""
_NEEDED = (("direction", "bidirectional"), ("transA", "1"), ("transB", "1"))
"""Values of attributes for which operands have another shape than by default."""


class Draft:
    """A model to which nodes are added; an invalid node is removed again."""

    def __init__(self, pick: random.Random, opset: int) -> None:
        self.pick, self.model, self.count = pick, Model(opset), 0
        self.leaves_out = False
        self.types: dict[str, Spec] = {}

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def input(self, dims: Sequence[int], dtype: str = "float32") -> str:
        """Adds an input."""
        name = self.name("x")
        self.model.inputs[name] = self.types[name] = (dtype, tuple(dims))
        return name

    def weight(self, dims: Sequence[int], dtype: str = "float32") -> str:
        """Adds a constant of drawn values, or rarely an input."""
        if self.pick.random() < 0.15:
            return self.input(dims, dtype)
        name = self.name("w")
        self.model.constants[name] = (dtype, tuple(dims), None)
        self.types[name] = (dtype, tuple(dims))
        return name

    def numbers(self, values: Sequence[float], dtype: str = "int64", dims: Sequence[int] | None = None) -> str:
        """Adds a constant of these values."""
        name = self.name("c")
        dims = (len(values),) if dims is None else tuple(dims)
        self.model.constants[name] = (dtype, tuple(dims), list(values))
        self.types[name] = (dtype, tuple(dims))
        return name

    def node(self, op: str, ins: Sequence[str], outs: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        """Adds a node, in some models without some of its attributes, and returns its outputs."""
        if self.leaves_out and not domain:
            needed = {*_STRUCTURAL, *(("strides",) if "output_padding" in attributes else ())}
            needed |= {"axis"} if op in _ALONG_AXIS else set()
            kept = {
                name: name in needed or (name, str(value)) in _NEEDED or self.pick.random() < 0.5
                for name, value in attributes.items()
            }
            attributes = {name: value for name, value in attributes.items() if kept[name]}
        names = [self.name("t") for _ in range(outs)]
        self.model.nodes.append((op, domain, list(ins), names, attributes))
        return names

    def spec(self, name: str) -> Value:
        """Returns a value with its type. Raises KeyError if that is unknown."""
        if name not in self.types:
            self.types |= types_of(self.model)
        return (name, *self.types[name])

    def of_rank(self, x: Value, rank: int) -> Value:
        """Reshapes the value to a rank, by axes of size 1 or by merging the first axes."""
        name, dtype, dims = x
        if len(dims) == rank:
            return x
        if len(dims) < rank:
            new = (*(1 for _ in range(rank - len(dims))), *dims)
        else:
            kept = len(dims) - rank + 1
            new = (prod(dims[:kept]), *dims[kept:])
        made = self.node("Reshape", [name, self.numbers(new)]) if self.model.opset >= 5 else [name]
        return made[0], dtype, tuple(new)

    def cast(self, x: Value, dtype: str) -> Value:
        if x[1] == dtype:
            return x
        return self.node("Cast", [x[0]], to=["dtype", dtype])[0], dtype, x[2]

    def broadcast(self, x: Value) -> str:
        """Returns an operand that broadcasts with a value: of the same dims, fewer, or with sizes of 1."""
        name, dtype, dims = x
        if self.pick.random() < 0.1:
            return name
        own = [1 if self.pick.random() < 0.25 else n for n in dims]
        return self.weight(own[self.pick.choice((0, 0, self.pick.randint(0, len(own)))) :], dtype)

    def axis(self, x: Value) -> int:
        rank = len(x[2])
        return self.pick.randint(-rank, rank - 1)

    def indices(self, size: int, dims: Sequence[int], negative: bool = True) -> str:
        low = -size if negative and self.pick.random() < 0.6 else 0
        values = [self.pick.randint(low, size - 1) for _ in range(prod(dims))]
        return self.numbers(values, self.pick.choice(("int64", "int32")), dims)


def _windowed(d: Draft, size: Sequence[int], pool: bool = False) -> dict[str, Any]:
    """Returns kernel_shape, strides, dilations and padding of windows that fit."""
    pick = d.pick
    kernel = [pick.randint(1, min(3, n)) for n in size]
    found: dict[str, Any] = {"kernel_shape": kernel}
    if pick.random() < 0.6:
        found["strides"] = [pick.randint(1, 3) for _ in size]
    dilates = pick.random() < 0.3 and (not pool or d.model.opset >= 10)
    if dilates:
        found["dilations"] = [
            pick.randint(1, 2) if k > 1 and n > 2 * (k - 1) else 1 for k, n in zip(kernel, size, strict=True)
        ]
    way = pick.random()
    if way < 0.5:
        found["pads"] = [pick.randint(0, k - 1) for k in kernel * 2]
    elif way < 0.7 and not dilates:
        found["auto_pad"] = pick.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    if pool and d.model.opset >= 10 and pick.random() < 0.4 and "auto_pad" not in found:
        found["ceil_mode"] = int(not _starts_outside(found, size))
    return found


def _starts_outside(windows: Mapping[str, Any], size: Sequence[int]) -> bool:
    """True if rounding up adds a window that starts outside; onnx counts it in shapes, runtimes do not."""
    ones, zeros = [1] * len(size), [0] * len(size)
    pads = windows.get("pads", zeros * 2)
    each = zip(
        size,
        windows["kernel_shape"],
        windows.get("strides", ones),
        windows.get("dilations", ones),
        pads[: len(size)],
        pads[len(size) :],
        strict=True,
    )
    return any(
        -(-(n + begin + end - 1 - (k - 1) * dilation) // stride) * stride >= n + begin
        for n, k, stride, dilation, begin, end in each
    )


def convolution(d: Draft, x: Value) -> list[str]:
    """Draws a convolution of any rank, grouped or dilated."""
    x = d.of_rank(d.cast(x, "float32"), d.pick.choice((3, 4, 4, 4)))
    _, _, (_, channels, *size) = x
    groups = d.pick.choice([1, 1, channels, *(g for g in (2, 3) if channels % g == 0)])
    filters = groups * d.pick.randint(1, 4)
    how = _windowed(d, size)
    ins = [x[0], d.weight((filters, channels // groups, *how["kernel_shape"]))]
    if d.pick.random() < 0.5:
        ins.append(d.weight((filters,)))
    if groups > 1:
        how["group"] = groups
    return d.node("Conv", ins, **how)


def transposed_convolution(d: Draft, x: Value) -> list[str]:
    """Draws a transposed convolution."""
    pick = d.pick
    x = d.of_rank(d.cast(x, "float32"), pick.choice((3, 4, 4)))
    _, _, (_, channels, *size) = x
    groups = pick.choice([1, 1, channels])
    kernel = [pick.randint(1, 3) for _ in size]
    how: dict[str, Any] = {"kernel_shape": kernel, "strides": [pick.randint(1, 3) for _ in size]}
    if pick.random() < 0.5:
        how["pads"] = [pick.randint(0, k - 1) for k in kernel * 2]
    if pick.random() < 0.4:
        how["output_padding"] = [pick.randint(0, s - 1) for s in how["strides"]]
    return d.node("ConvTranspose", [x[0], d.weight((channels, pick.randint(1, 4), *kernel))], group=groups, **how)


def pool(op: str) -> Recipe:
    """Draws a pooling operator."""

    def draw(d: Draft, x: Value) -> list[str]:
        x = d.of_rank(d.cast(x, "float32"), d.pick.choice((3, 4, 4)))
        how = _windowed(d, x[2][2:], pool=op != "LpPool" or d.model.opset >= 18)
        if op == "AveragePool" and d.pick.random() < 0.5 and d.model.opset >= 7:
            how["count_include_pad"] = d.pick.randint(0, 1)
        if op == "AveragePool" and d.model.opset < 19:
            how.pop("dilations", None)
        if op == "LpPool":
            how["p"] = d.pick.randint(1, 3)
        return d.node(op, [x[0]], **how)

    return draw


def normalization(op: str) -> Recipe:
    """Draws a normalization with weights."""

    def draw(d: Draft, x: Value) -> list[str]:
        x = d.of_rank(d.cast(x, "float32"), d.pick.choice((3, 4)))
        channels = x[2][1]
        how: dict[str, Any] = {"epsilon": d.pick.choice((1e-5, 1e-3, 0.1))}
        if op == "InstanceNormalization":
            x = varied(d, x)
        if op == "BatchNormalization":
            variance = d.numbers([d.pick.choice((0.5, 1.0, 2.0)) for _ in range(channels)], "float32")
            return d.node(op, [x[0], *(d.weight((channels,)) for _ in range(3)), variance], **how)
        if op == "LayerNormalization":
            axis = d.pick.randint(-len(x[2]), -1)
            return d.node(op, [x[0], d.weight(x[2][axis:]), d.weight(x[2][axis:])], axis=axis, **how)
        return d.node(op, [x[0], d.weight((channels,)), d.weight((channels,))], **how)

    return draw


def varied(d: Draft, x: Value) -> Value:
    """Returns a value times weights: runtimes lose digits of rows of equal elements. Raises ValueError."""
    if prod(x[2][2:]) < 2:
        raise ValueError("a row has one element")
    return d.spec(d.node("Mul", [x[0], d.weight(x[2][2:])])[0])


def matmul(d: Draft, x: Value) -> list[str]:
    """Draws a product with a matrix, a vector or a batch of matrices."""
    if not x[2]:
        x = d.of_rank(x, 1)
    x = d.cast(x, "float32")
    other = d.pick.choice(((x[2][-1], d.pick.randint(1, 9)), (x[2][-1],), (2, 1, x[2][-1], 3)))
    return d.node("MatMul", [x[0], d.weight(other)])


def gemm(d: Draft, x: Value) -> list[str]:
    """Draws a product with transposes, scales and an addend."""
    pick = d.pick
    x = d.of_rank(d.cast(x, "float32"), 2)
    ta, tb, n = pick.randint(0, 1), pick.randint(0, 1), pick.randint(1, 9)
    rows, depth = x[2] if not ta else x[2][::-1]
    ins = [x[0], d.weight((n, depth) if tb else (depth, n))]
    if pick.random() < 0.7 or d.model.opset < 11:
        ins.append(d.weight(pick.choice(((n,), (1, n), (rows, 1), (rows, n), ()))))
    return d.node("Gemm", ins, transA=ta, transB=tb, alpha=pick.choice((1.0, 0.5, 2.0)), beta=pick.choice((1.0, 0.25)))


def integer_product(op: str) -> Recipe:
    """Draws a product of bytes with zero points."""

    def draw(d: Draft, x: Value) -> list[str]:
        pick = d.pick
        a, b = pick.choice(("int8", "uint8")), pick.choice(("int8", "uint8"))
        x = d.cast(d.of_rank(x, 2), a)
        w = d.weight((x[2][-1], pick.randint(1, 7)), b)
        zeros = [d.numbers([pick.randint(0, 5)], a, ()), d.numbers([pick.randint(0, 5)], b, ())]
        if op == "MatMulInteger":
            return d.node(op, [x[0], w, *zeros])
        scales = [d.numbers([pick.choice((0.5, 0.25))], "float32", ()) for _ in range(2)]
        scales.append(d.numbers([7 / 64], "float32", ()))  # no quotient is halfway between integers
        end = d.numbers([pick.randint(0, 9)], a, ())
        return d.node("QLinearMatMul", [x[0], scales[0], zeros[0], w, scales[1], zeros[1], scales[2], end])

    return draw


def quantize(d: Draft, x: Value) -> list[str]:
    """Quantizes, and mostly dequantizes again."""
    pick = d.pick
    x = d.cast(x, "float32")
    dtype = pick.choice(("int8", "uint8"))
    scale, zero = d.numbers([pick.choice((0.5, 0.125, 0.1))], "float32", ()), d.numbers([pick.randint(0, 9)], dtype, ())
    made = d.node("QuantizeLinear", [x[0], scale, zero])
    return d.node("DequantizeLinear", [made[0], scale, zero]) if pick.random() < 0.7 else made


def reduction(op: str) -> Recipe:
    """Draws a reduction over drawn axes, which are an attribute or an input."""

    def draw(d: Draft, x: Value) -> list[str]:
        if op == "ReduceLogSumExp" and "int" in x[1]:  # runtimes round integers at different steps
            x = d.cast(x, "float32")
        rank = len(x[2])
        axes = d.pick.sample(range(rank), d.pick.randint(1, rank)) if rank else []
        axes = [axis - rank if d.model.opset >= 11 and d.pick.random() < 0.3 else axis for axis in axes]
        how: dict[str, Any] = {"keepdims": d.pick.randint(0, 1)}
        if not axes or d.pick.random() < 0.2:
            return d.node(op, [x[0]], **how)
        if d.model.opset >= (13 if op == "ReduceSum" else 18):
            return d.node(op, [x[0], d.numbers(axes)], **how)
        return d.node(op, [x[0]], axes=axes, **how)

    return draw


def with_axis(op: str, **more: Sequence[Any]) -> Recipe:
    """Draws an operator along one axis, with other attributes from the given ones."""

    def draw(d: Draft, x: Value) -> list[str]:
        x = d.of_rank(x, max(len(x[2]), 1 if d.model.opset >= 13 else 2))  # the axis was 1 by default
        how: dict[str, Any] = {name: d.pick.choice(values) for name, values in more.items() if d.pick.random() < 0.75}
        axis = d.axis(x)
        if d.model.opset < 11:
            axis %= len(x[2])
        if d.pick.random() < 0.8:
            how["axis"] = axis
        return d.node(op, [x[0]], **how)

    return draw


def unary(op: str, **more: Sequence[Any]) -> Recipe:
    """Draws an operator of one operand, with attributes from the given ones."""

    def draw(d: Draft, x: Value) -> list[str]:
        return d.node(op, [x[0]], **{name: d.pick.choice(v) for name, v in more.items() if d.pick.random() < 0.6})

    return draw


def binary(op: str, dtype: str = "") -> Recipe:
    """Draws an operator of two operands that broadcast."""

    def draw(d: Draft, x: Value) -> list[str]:
        x = d.cast(x, dtype) if dtype else x
        pair = [x[0], d.broadcast(x)]
        if d.pick.random() < 0.3:
            pair.reverse()
        return d.node(op, pair)

    return draw


def variadic(op: str) -> Recipe:
    """Draws an operator of one to three operands that broadcast."""

    def draw(d: Draft, x: Value) -> list[str]:
        return d.node(op, [x[0], *(d.broadcast(x) for _ in range(d.pick.randint(0, 2)))])

    return draw
