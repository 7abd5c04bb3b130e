"""Imports the operators of backward graphs: derivatives of windows and norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from glenside.builder import products
from glenside.builder.indexing import scatter_nd
from glenside.builder.layout import reshape
from glenside.builder.pointwise import cast, divide, filled, multiply, subtract
from glenside.builder.reductions import reduce_axes
from glenside.gradients.reverse import reverse
from glenside.importers.torch.node import Node, aten, register
from glenside.importers.torch.operators.products import per_axis
from glenside.importers.torch.operators.windows import adaptive_average, average_pool, batched
from glenside.ir.dtypes import HALVES
from glenside.ir.term import Term, build, rebuild_all
from glenside.ir.types import Tensor


def pulled_back(function: Callable[..., Term], operands: Sequence[Term], grad: Term) -> list[Term]:
    """Returns the derivatives of a function by its operands, weighted by `grad`.

    The function is applied to new tensors, since an operand may be computed from another one.
    """
    given = [*operands, grad]
    leaves = [build("access-tensor", Tensor(f"~{i}", x.access.dims, x.access.dtype)) for i, x in enumerate(given)]
    found = reverse({function(*leaves[:-1]): leaves[-1]}, leaves[:-1]).found
    places = dict(zip(leaves, given, strict=True))
    zeros = [build("full", x.access.dims, 0, x.access.dtype) for x in operands]
    whole = [zero if part is None else part for part, zero in zip(found, zeros, strict=True)]
    return rebuild_all(whole, lambda term, _: places.get(term))


@aten("convolution_backward")
def convolution_backward(
    node: Node,
    grad_output: Term,
    input: Term,
    weight: Term,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Term | None, ...]:
    axes = weight.access.rank - 2
    pairs = [(n, n) for n in per_axis(padding, axes)]
    steps, spread, more = (per_axis(value, axes) for value in (stride, dilation, output_padding))

    def convolved(x: Term, w: Term) -> Term:
        if transposed:
            return products.transposed_convolution(x, w, steps, pairs, more, spread, groups).result
        return products.convolution(x, w, steps, pairs, spread, groups).result

    x, grad = batched(input, axes), batched(grad_output, axes)
    by_input, by_weight = pulled_back(convolved, [x, weight], grad)
    by_bias = reduce_axes("reduce-sum", grad, [axis for axis in range(axes + 2) if axis != 1])
    found = (reshape(by_input, input.access.dims), by_weight, by_bias)
    return tuple(part if kept else None for part, kept in zip(found, output_mask, strict=True))


def _average_pool_backward(
    axes: int,
    node: Node,
    grad_output: Term,
    self: Term,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Term:
    def pooled(x: Term) -> Term:
        own = node.of_result(grad_output)
        how = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return average_pool(axes, own, x, *how)

    return pulled_back(pooled, [self], grad_output)[0]


@aten("avg_pool2d_backward")
def average_pool2d_backward(node: Node, grad_output: Term, self: Term, *how: object) -> Term:
    return _average_pool_backward(2, node, grad_output, self, *how)  # type: ignore[arg-type]


@aten("avg_pool3d_backward")
def average_pool3d_backward(node: Node, grad_output: Term, self: Term, *how: object) -> Term:
    return _average_pool_backward(3, node, grad_output, self, *how)  # type: ignore[arg-type]


def _adaptive_backward(axes: int, node: Node, grad_output: Term, self: Term) -> Term:
    sizes = grad_output.access.dims[-axes:]
    own = node.of_result(grad_output)
    return pulled_back(lambda x: adaptive_average(axes, own, x, sizes), [self], grad_output)[0]


@aten("_adaptive_avg_pool2d_backward")
def adaptive_average2d_backward(node: Node, grad_output: Term, self: Term) -> Term:
    return _adaptive_backward(2, node, grad_output, self)


def max_pool_backward(node: Node, grad_output: Term, self: Term, *how: object) -> Term:
    """Adds each element to the place in its channel's image that its window's maximum had."""
    indices = how[-1]
    assert isinstance(indices, Term)
    axes = 2
    lead = self.access.dims[: self.access.rank - axes]
    channels, size = prod(lead), prod(self.access.dims[len(lead) :])
    places = reshape(indices, (channels, indices.access.size // max(channels, 1), 1))
    zeros = node.filled((channels, size), 0, node.dtype)
    updates = reshape(grad_output, places.access.dims[:2])
    return reshape(scatter_nd(zeros, places, updates, 1, "add"), node.dims)


register("max_pool2d_with_indices_backward", max_pool_backward, ("default",), "", __name__)


def _standardized_backward(x: Term, g: Term, mean: Term, inverse: Term, axes: Sequence[int]) -> tuple[Term, Term]:
    """Returns the standardized x, and the derivative by x of its standardization over axes."""
    count = prod(x.access.dims[axis] for axis in axes)
    standard = multiply(subtract(x, mean), inverse)

    def average(y: Term) -> Term:
        total = reduce_axes("reduce-sum", y, axes, keep=True)
        return divide(total, filled(total, count))

    rest = subtract(subtract(g, average(g)), multiply(standard, average(multiply(g, standard))))
    return standard, multiply(rest, inverse)


@aten("native_layer_norm_backward")
def layer_norm_backward(
    node: Node,
    grad_out: Term,
    input: Term,
    normalized_shape: Sequence[int],
    mean: Term,
    rstd: Term,
    weight: Term | None,
    bias: Term | None,
    output_mask: Sequence[bool],
) -> tuple[Term | None, ...]:
    dtype = "float32" if node.dtype in HALVES else node.dtype
    g, x, mean, rstd = (cast(t, dtype) for t in (grad_out, input, mean, rstd))
    first = x.access.rank - len(normalized_shape)
    scaled = g if weight is None else multiply(g, cast(weight, dtype))
    standard, by_input = _standardized_backward(x, scaled, mean, rstd, range(first, x.access.rank))
    lead = range(first)
    by_weight = reduce_axes("reduce-sum", multiply(g, standard), lead)
    found = (by_input, by_weight, reduce_axes("reduce-sum", g, lead))
    return tuple(cast(part, node.dtype) if kept else None for part, kept in zip(found, output_mask, strict=True))


@aten("native_group_norm_backward")
def group_norm_backward(
    node: Node,
    grad_out: Term,
    input: Term,
    mean: Term,
    rstd: Term,
    weight: Term | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Term | None, ...]:
    dtype = "float32" if node.dtype in HALVES else node.dtype
    size = input.access.size // max(N * C, 1)
    g, x = (reshape(cast(t, dtype), (N, group, C // group, size)) for t in (grad_out, input))
    mean, rstd = (reshape(cast(t, dtype), (N, group, 1, 1)) for t in (mean, rstd))
    scaled = g if weight is None else multiply(g, reshape(cast(weight, dtype), (1, group, C // group, 1)))
    standard, by_input = _standardized_backward(x, scaled, mean, rstd, (2, 3))
    by_weight = reduce_axes("reduce-sum", multiply(g, standard), (0, 3))
    by_bias = reduce_axes("reduce-sum", g, (0, 3))
    found = (reshape(by_input, input.access.dims), reshape(by_weight, (C,)), reshape(by_bias, (C,)))
    return tuple(cast(part, node.dtype) if kept else None for part, kept in zip(found, output_mask, strict=True))
