"""Draws programs for secure computation, one per seed: products with sizes of 1 among them, chains, networks."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import glenside as gl
from glenside.builder import layout, pointwise, reductions, windows
from glenside.ir.program import Program
from glenside.ir.term import Term


def secure_program(seed: int) -> Program:
    """Draws a program of secret inputs x, y, .. and constants w, ..; a simulation takes about a second."""
    pick = Random(seed)
    b = gl.Builder(f"random {seed}")
    x = pick.choice((_convolution, _convolution, _transposed, _matmul, _einsum, _elements, _network))(b, pick)
    for _ in range(pick.choice((0, 0, 1, 2, 4))):
        x = _step(b, pick, x)
    return b.finish(x)


def _new(b: gl.Builder, pick: Random, dims: tuple[int, ...], constant: bool | None = None) -> Term:
    name = f"t{len(b.tensors)}"
    declare = b.constant if (pick.random() < 0.7 if constant is None else constant) else b.input
    return declare(name, dims)


def _convolution(b: gl.Builder, pick: Random, x: Term | None = None) -> Term:
    """Draws a convolution of 1 to 3 axes, grouped, strided, dilated, padded."""
    axes = pick.choice((1, 2, 2, 3)) if x is None else x.access.rank - 2
    if x is None:
        groups = pick.choice((1, 1, 1, 2, 3, 4))
        sizes = [pick.randint(4, 9 if axes > 2 else 14) for _ in range(axes)]
        x = b.input("x", (pick.choice((1, 1, 2, 3)), groups * pick.choice((1, 1, 2, 3)), *sizes))
    channels = x.access.dims[1]
    groups = pick.choice([n for n in range(1, channels + 1) if channels % n == 0])
    window = [pick.randint(1, min(5 if axes == 1 else 3, n)) for n in x.access.dims[2:]]
    wide = any(2 * (k - 1) >= n for k, n in zip(window, x.access.dims[2:], strict=True))
    spread = 1 if wide else pick.choice((1, 1, 1, 2))
    filters = groups * pick.choice((1, 1, 2, 3, 5))
    w = _new(b, pick, (filters, channels // groups, *window), True)
    bias = _new(b, pick, (filters,), True) if pick.random() < 0.3 else None
    steps = [pick.choice((1, 1, 1, 2, 3)) for _ in range(axes)]
    return b.conv(x, w, bias, strides=steps, padding=pick.choice((0, 0, 1)), dilations=spread, groups=groups)


def _transposed(b: gl.Builder, pick: Random) -> Term:
    axes = pick.choice((1, 2))
    groups = pick.choice((1, 1, 2))
    sizes = [pick.randint(2, 6) for _ in range(axes)]
    x = b.input("x", (pick.choice((1, 2)), groups * pick.choice((1, 2)), *sizes))
    window = [pick.randint(1, 4) for _ in range(axes)]
    w = _new(b, pick, (x.access.dims[1], pick.choice((1, 2, 3)), *window), True)
    return b.conv_transpose(x, w, strides=pick.choice((1, 2, 3)), groups=groups)


_SIZES = (1, 1, 1, 2, 3, 5, 8)


def _matmul(b: gl.Builder, pick: Random) -> Term:
    m, k, n = (pick.choice(_SIZES) for _ in range(3))
    batch = pick.choice(((), (), (1,), (3,), (2, 3), (2, 1)))
    x = b.input("x", (*batch, m, k))
    return b.matmul(x, _new(b, pick, (*(batch if pick.random() < 0.7 else ()), k, n)))


def _einsum(b: gl.Builder, pick: Random) -> Term:
    equation = pick.choice(("i,j->ij", "i,i->i", "ij,j->i", "bi,bj->bij", "bij,bj->bi", "bij,bik->bjk", "ab,cb->ac"))
    sizes = {label: pick.choice(_SIZES) for label in "abcijk"}
    left, right = (tuple(sizes[i] for i in part) for part in equation.split("->")[0].split(","))
    return b.einsum(equation, b.input("x", left), _new(b, pick, right))


def _elements(b: gl.Builder, pick: Random) -> Term:
    x = b.input("x", tuple(pick.choice(_SIZES) for _ in range(pick.choice((1, 2, 3, 4)))))
    return _step(b, pick, x)


def _network(b: gl.Builder, pick: Random) -> Term:
    """Draws a few layers with operators between them, among them a residual connection."""
    x = b.input("x", (1, pick.choice((1, 2, 4)), pick.randint(5, 9), pick.randint(5, 9)))
    for _ in range(pick.choice((1, 2))):
        y = pointwise.relu(_convolution(b, pick, x))
        x = pointwise.add(x, y) if x.access.dims == y.access.dims else y
    if pick.random() < 0.5:
        flat = layout.reshape(windows.global_average_pool(x), (1, x.access.dims[1]))
        x = b.linear(flat, _new(b, pick, (pick.choice((1, 3)), x.access.dims[1]), True))
        x = pointwise.softmax(x) if pick.random() < 0.5 else x
    return x


def _step(b: gl.Builder, pick: Random, x: Term) -> Term:
    return pick.choice(_STEPS)(b, pick, x)


def _with_other(combine: Callable[[Term, Term], Term]) -> Callable[[gl.Builder, Random, Term], Term]:
    """Combines with a tensor of the same dims or of one axis, or with a number."""

    def step(b: gl.Builder, pick: Random, x: Term) -> Term:
        dims = x.access.dims
        other = pick.choice(("tensor", "vector", "number"))
        if other == "number":
            return combine(x, b.full(dims, pick.choice(("1/2", "3", "-1/4", "1"))))
        return combine(x, _new(b, pick, tuple(dims) if other == "tensor" or not dims else (dims[-1],)))

    return step


def _by_number(b: gl.Builder, pick: Random, x: Term) -> Term:
    return pointwise.divide(x, b.full(x.access.dims, pick.choice(("2", "3/2", "-4"))))


def _unary(b: gl.Builder, pick: Random, x: Term) -> Term:
    kinds = ("relu", "negative", "abs", "(clip -1/2 1/2)", "(leaky-relu 1/10)", "sigmoid", "tanh", "exp")
    return pointwise.compute(pick.choice(kinds), pointwise.compute("(clip -4 4)", x) if pick.random() < 0.5 else x)


def _moved(b: gl.Builder, pick: Random, x: Term) -> Term:
    dims = x.access.dims
    order = pick.sample(range(len(dims)), len(dims))
    ways: list[Callable[[], Term]] = [lambda: layout.transpose(x, order), lambda: layout.reshape(x, (dims.product(),))]
    if dims:
        axis = pick.randrange(len(dims))
        ways += [
            lambda: layout.flip(x, axis),
            lambda: layout.slice_axis(x, axis, 0, (dims[axis] + 1) // 2),
            lambda: layout.concatenate([x, x], axis),
            lambda: layout.pad(x, [(int(i == axis), 0) for i in range(len(dims))]),
            lambda: layout.broadcast(x, (2, *dims)),
        ]
    return pick.choice(ways)()


def _reduced(b: gl.Builder, pick: Random, x: Term) -> Term:
    axes = pick.sample(range(x.access.rank), pick.randint(0, x.access.rank))
    kind = pick.choice(("reduce-sum", "reduce-mean", "reduce-max", "reduce-min"))
    return reductions.reduce_axes(kind, x, axes, keep=pick.random() < 0.5)


def _pooled(b: gl.Builder, pick: Random, x: Term) -> Term:
    if x.access.rank < 3 or any(n < 2 for n in x.access.dims[2:]):
        return x
    pool = pick.choice((windows.max_pool, windows.average_pool))
    return pool(x, 2, strides=pick.choice((1, 2)))


def _normalized(b: gl.Builder, pick: Random, x: Term) -> Term:
    if not x.access.rank:
        return x
    return pointwise.softmax(x, pick.randrange(x.access.rank), pick.choice(("softmax", "log-softmax")))


def _scaled(b: gl.Builder, pick: Random, x: Term) -> Term:
    """Adds a batch norm."""
    if x.access.rank < 2:
        return x
    gamma, beta, mean, var = (_new(b, pick, (x.access.dims[1],), True) for _ in range(4))
    return pointwise.batch_norm(x, gamma, beta, mean, pointwise.compute("abs", var), "1/2")


def _layer(b: gl.Builder, pick: Random, x: Term) -> Term:
    """Adds one more product."""
    if not x.access.rank:
        return x
    return b.linear(x, _new(b, pick, (pick.choice(_SIZES), x.access.dims[-1])))


_STEPS = (
    *(_with_other(combine) for combine in (pointwise.add, pointwise.subtract, pointwise.multiply)),
    *(_with_other(lambda x, y: pointwise.combine("maximum", x, y)), _by_number, _unary, _unary, _moved, _moved),
    *(_reduced, _pooled, _normalized, _scaled, _layer),
)
