"""Imports products and convolutions, which become the layers of the program."""

from __future__ import annotations

from math import prod

from glenside.builder.layout import pad_or_crop, reshape, slice_axis, transpose, untransposed
from glenside.builder.pointwise import cast
from glenside.importers.jax.equation import Equation, Refused, primitive
from glenside.ir.term import Term


@primitive("dot_general")
def dot_general(equation: Equation, lhs: Term, rhs: Term) -> Term:
    """Multiplies matrices ()(B.. M.. K..) and ()(B.. K.. N..) -> ()(B.. M.. N..), whatever the order of their axes."""
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    lhs, rhs = (cast(x, equation.dtype) for x in (lhs, rhs))
    rows = [i for i in range(lhs.access.rank) if i not in (*left, *left_batch)]
    columns = [i for i in range(rhs.access.rank) if i not in (*right, *right_batch)]

    def sizes(x: Term, axes: tuple[int, ...] | list[int]) -> list[int]:
        return [x.access.dims[i] for i in axes]

    batch, depth = sizes(lhs, left_batch), prod(sizes(lhs, left))
    m, n = prod(sizes(lhs, rows)), prod(sizes(rhs, columns))
    a = reshape(transpose(lhs, (*left_batch, *rows, *left)), (*batch, m, depth))
    b = reshape(transpose(rhs, (*right_batch, *right, *columns)), (*batch, depth, n))
    product = equation.scope.builder.matmul(a, b, name=equation.layer_name())
    return cast(reshape(product, equation.dims), equation.dtype)


@primitive("conv_general_dilated")
def convolution(equation: Equation, lhs: Term, rhs: Term) -> Term:
    """Convolves ()(N C d..) with ()(O C/groups k..), whatever the order of their axes."""
    params, axes = equation.params, lhs.access.rank - 2
    if params["batch_group_count"] != 1:
        raise Refused("groups its batch, as gradients of weights of grouped convolutions do, which is not supported")
    order = params["dimension_numbers"]
    x = transpose(cast(lhs, equation.dtype), order.lhs_spec)
    w = transpose(cast(rhs, equation.dtype), order.rhs_spec)
    for axis, step in enumerate(params["lhs_dilation"], 2):
        x = _spread(x, axis, step)
    x = pad_or_crop(x, [(0, 0), (0, 0), *params["padding"]])
    result = equation.scope.builder.conv(
        x,
        w,
        strides=tuple(params["window_strides"]),
        padding=[(0, 0)] * axes,
        dilations=tuple(params["rhs_dilation"]),
        groups=params["feature_group_count"],
        name=equation.layer_name(),
    )
    return cast(untransposed(result, order.out_spec), equation.dtype)


def _spread(x: Term, axis: int, step: int) -> Term:
    """Puts step - 1 zeros between the elements of an axis."""
    dims, size = x.access.dims, x.access.dims[axis]
    if step == 1 or size < 2:
        return x
    apart = reshape(x, (*dims[: axis + 1], 1, *dims[axis + 1 :]))
    apart = pad_or_crop(apart, [(0, step - 1) if i == axis + 1 else (0, 0) for i in range(apart.access.rank)])
    whole = reshape(apart, (*dims[:axis], size * step, *dims[axis + 1 :]))
    return slice_axis(whole, axis, 0, (size - 1) * step + 1)
