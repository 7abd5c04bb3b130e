"""Gives gradients written by hand: right ones, and plausibly wrong ones.

Each is a program of a result y, the tensors that it is differentiated by, and for each of those the gradient from u, of
the dims of y: J^T u.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from glenside.builder.indexing import scatter_nd
from glenside.builder.layout import concatenate, flip, gather, pad, reshape, slice_axis, transpose, upsample
from glenside.builder.pointwise import (
    add,
    cast,
    compare,
    compute,
    divide,
    filled,
    gelu,
    layer_norm,
    multiply,
    relu,
    softmax,
    square_root,
    standardized,
    subtract,
)
from glenside.builder.products import convolution, linear, matmul, transposed_convolution
from glenside.builder.reductions import reduce_axes
from glenside.builder.windows import average_pool, max_pool
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor


class Gradient(NamedTuple):
    """A program, its gradient with the cotangent u, and the tensors to differentiate by."""

    program: Program
    gradient: Program
    wrt: tuple[str, ...]

    @staticmethod
    def of(y: Term, **gradients: Term) -> Gradient:
        """Returns the gradient with respect to each named tensor."""
        terms = [build("access", term, 0) for term in gradients.values()]
        return Gradient(Program(y), Program(build("construct-tuple", *terms)), tuple(gradients))


def tensor(name: str, *dims: int, dtype: str = "float32") -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype))


def like(y: Term) -> Term:
    """Returns the cotangent of y."""
    return tensor("u", *y.access.dims)


def times(x: Term, number: str) -> Term:
    return multiply(x, filled(x, number))


def real(x: Term) -> Term:
    return cast(x, "float32")


def above(x: Term, number: str) -> Term:
    return real(compare("gt", x, filled(x, number)))


def total(x: Term, axis: int) -> Term:
    return reduce_axes("reduce-sum", x, [axis], keep=True)


def turned(x: Term) -> Term:
    """Exchanges the first two axes."""
    return transpose(x, (1, 0, *range(2, x.access.rank)))


def dense(*, transposed: bool = True, summed: bool = True) -> Gradient:
    x, w, b = tensor("x", 4, 4), tensor("w", 4, 4), tensor("b", 4)
    y = add(linear(x, w).result, b)
    u = like(y)
    by_bias = reduce_axes("reduce-sum", u, [0]) if summed else reshape(slice_axis(u, 0, 0, 1), (4,))
    by_x = matmul(u, w if transposed else transpose(w, (1, 0))).result
    return Gradient.of(y, x=by_x, w=matmul(transpose(u, (1, 0)), x).result, b=by_bias)


def convolved(*, dilated: bool = True, flipped: bool = True, padding: int = 1) -> Gradient:
    """Convolves with strides of 2, which are dilations in the gradient by the weights."""
    x, w = tensor("x", 2, 2, 7, 7), tensor("w", 3, 2, 3, 3)
    y = convolution(x, w, 2, 1, 1, 1).result
    u = like(y)
    kernel = w if flipped else flip(flip(w, 2), 3)
    by_x = transposed_convolution(u, kernel, 2, padding, 2 * padding - 2, 1, 1).result
    strides, dilations, last = (1, 2, 1) if dilated else (2, 1, 0)
    by_w = convolution(turned(x), turned(u), strides, ((1, last), (1, last)), dilations, 1).result
    return Gradient.of(y, x=by_x, w=turned(by_w))


def depthwise() -> Gradient:
    x, w = tensor("x", 1, 3, 6, 5), tensor("w", 3, 1, 3, 3)
    y = convolution(x, w, 1, 1, 1, 3).result
    u = like(y)
    by_w = convolution(x, turned(u), 1, 1, 1, 3).result
    return Gradient.of(y, x=transposed_convolution(u, w, 1, 1, 0, 1, 3).result, w=turned(by_w))


def pooled_mean(*, scale: str = "1/4") -> Gradient:
    x = tensor("x", 1, 2, 4, 6)
    y = average_pool(x, 2)
    return Gradient.of(y, x=times(upsample(like(y)), scale))


def pooled_max(*, elsewhere: bool = False) -> Gradient:
    x = tensor("x", 1, 2, 4, 6)
    y = max_pool(x, 2)
    chosen = real(compare("eq", x, upsample(y)))
    return Gradient.of(y, x=multiply(upsample(like(y)), flip(chosen, 3) if elsewhere else chosen))


def rectified(*, threshold: str = "0") -> Gradient:
    x = tensor("x", 3, 5)
    y = relu(x)
    return Gradient.of(y, x=multiply(like(y), above(x, threshold)))


def clipped(*, upper: bool = True) -> Gradient:
    x = tensor("x", 3, 5)
    y = compute("(clip 0 6)", x)
    inside = above(x, "0")
    if upper:
        inside = multiply(inside, above(times(x, "-1"), "-6"))
    return Gradient.of(y, x=multiply(like(y), inside))


def softmaxed(*, centred: bool = True) -> Gradient:
    x = tensor("x", 3, 5)
    y = softmax(x)
    u = like(y)
    mean = total(multiply(u, y), 1)
    return Gradient.of(y, x=multiply(y, subtract(u, mean) if centred else u))


def normalized(*, by_deviation: bool = True) -> Gradient:
    x, gamma, beta = tensor("x", 3, 5), tensor("gamma", 5), tensor("beta", 5)
    y = layer_norm(x, gamma, beta)
    u = like(y)
    hat, _, deviation = standardized(x, 1)
    g = multiply(u, gamma)
    inner = subtract(g, times(total(g, 1), "1/5"))
    if by_deviation:
        inner = subtract(inner, multiply(hat, times(total(multiply(g, hat), 1), "1/5")))
    by_gamma, by_beta = (reduce_axes("reduce-sum", t, [0]) for t in (multiply(u, hat), u))
    return Gradient.of(y, x=divide(inner, deviation), gamma=by_gamma, beta=by_beta)


def gathered(*, added: bool = True) -> Gradient:
    table, indices = tensor("table", 4, 3), tensor("i", 6, dtype="int64")
    y = gather(table, indices)
    places = reshape(indices, (6, 1))
    zeros = build("full", (4, 3), 0, "float32")
    return Gradient.of(y, table=scatter_nd(zeros, places, like(y), 0, "add" if added else "replace"))


def moved(*, start: int = 1) -> Gradient:
    """Concatenates, pads and slices."""
    x, z = tensor("x", 3, 4), tensor("z", 2, 4)
    y = pad(slice_axis(concatenate([x, z], 0), 0, 1, 5), [(0, 0), (2, 1)])
    u = like(y)
    inner = pad(slice_axis(u, 1, start + 1, start + 5), [(1, 0), (0, 0)])
    return Gradient.of(y, x=slice_axis(inner, 0, 0, 3), z=slice_axis(inner, 0, 3, 5))


def pointwise(*, sign: str = "1", at: str = "x") -> Gradient:
    """Computes exp(x) + log(x) + tanh(x) * sigmoid(x), with tanh in terms of exp."""
    x = tensor("x", 3, 5)
    tanh, sigmoid = compute("tanh", x), compute("sigmoid", x)
    y = add(add(compute("exp", x), compute("log", x)), multiply(tanh, sigmoid))
    where = x if at == "x" else y
    by_tanh = times(subtract(filled(x, 1), multiply(tanh, tanh)), sign)
    less = compute("exp", times(x, "-1"))  # another way to write sigmoid's derivative
    by_sigmoid = divide(less, multiply(add(less, filled(x, 1)), add(less, filled(x, 1))))
    slope = add(compute("exp", where), divide(filled(x, 1), x))
    slope = add(slope, add(multiply(by_tanh, sigmoid), multiply(tanh, by_sigmoid)))
    return Gradient.of(y, x=multiply(like(y), slope))


def gelued(*, second_path: bool = True) -> Gradient:
    x = tensor("x", 3, 5)
    y = gelu(x)
    root = square_root(2, "float32")
    z = divide(x, root)
    slope = divide(add(compute("erf", z), filled(x, 1)), filled(x, 2))
    if second_path:
        density = times(compute("exp", times(multiply(z, z), "-1")), "1.1283791670955126")
        slope = add(slope, times(multiply(x, divide(density, root)), "1/2"))
    return Gradient.of(y, x=multiply(like(y), slope))


def cross_entropy(*, minus: bool = True) -> Gradient:
    """Computes - sum(labels * log-softmax(x)), one number; there is no u."""
    x, labels = tensor("x", 3, 5), tensor("labels", 3, 5)
    y = times(reduce_axes("reduce-sum", multiply(labels, softmax(x, kind="log-softmax")), [0, 1]), "-1")
    expected = multiply(softmax(x), total(labels, 1))
    return Gradient.of(
        y, x=subtract(expected, labels) if minus else expected, labels=times(softmax(x, kind="log-softmax"), "-1")
    )


def squared(*, factor: str = "2") -> Gradient:
    x = tensor("x", 3, 5)
    y = build("compute", "reduce-sum", multiply(x, x))
    return Gradient.of(y, x=times(multiply(x, filled(x, 1)), factor))


def averaged(*, scale: str = "1/15") -> Gradient:
    x = tensor("x", 3, 5)
    y = build("compute", "reduce-mean", multiply(x, x))
    return Gradient.of(y, x=times(times(x, "2"), scale))


RIGHT: dict[str, Callable[[], Gradient]] = {
    "dense layer": dense,
    "strided convolution": convolved,
    "depthwise convolution": depthwise,
    "average pool": pooled_mean,
    "max pool": pooled_max,
    "relu": rectified,
    "clip": clipped,
    "softmax": softmaxed,
    "layer norm": normalized,
    "gather": gathered,
    "concatenate, slice and pad": moved,
    "exp, log, tanh, sigmoid": pointwise,
    "gelu": gelued,
    "cross-entropy": cross_entropy,
    "sum of squares": squared,
    "mean of squares": averaged,
}

WRONG: dict[str, tuple[Callable[[], Gradient], str]] = {
    "a missing transpose": (lambda: dense(transposed=False), "x"),
    "a broadcast that is not summed": (lambda: dense(summed=False), "b"),
    "stride in place of dilation": (lambda: convolved(dilated=False), "w"),
    "a kernel that is not flipped": (lambda: convolved(flipped=False), "x"),
    "a pool's gradient without 1/n": (lambda: pooled_mean(scale="1"), "x"),
    "a pool's gradient in the wrong place": (lambda: pooled_max(elsewhere=True), "x"),
    "another threshold": (lambda: rectified(threshold="1/8"), "x"),
    "a clip of which one end is forgotten": (lambda: clipped(upper=False), "x"),
    "a softmax without the mean": (lambda: softmaxed(centred=False), "x"),
    "a layer norm whose deviation is constant": (lambda: normalized(by_deviation=False), "x"),
    "a gather whose gradient is not added": (lambda: gathered(added=False), "table"),
    "padding that is off by one": (lambda: moved(start=0), "x z"),
    "a wrong sign": (lambda: pointwise(sign="-1"), "x"),
    "a derivative at the wrong argument": (lambda: pointwise(at="y"), "x"),
    "a missing second path": (lambda: gelued(second_path=False), "x"),
    "a cross-entropy without the labels": (lambda: cross_entropy(minus=False), "x"),
    "a forgotten factor 2": (lambda: squared(factor="1"), "x"),
    "a mean without 1/n": (lambda: averaged(scale="1"), "x"),
}
