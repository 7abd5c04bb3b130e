"""Imports products and convolutions, which become the layers of the program."""

from __future__ import annotations

from math import prod

from glenside.builder.layout import pad_or_crop, reshape, spread, transpose, untransposed
from glenside.builder.pointwise import cast, compare, filled
from glenside.importers.jax.equation import Equation, primitive
from glenside.ir.term import Term


@primitive("dot_general")
def dot_general(equation: Equation, lhs: Term, rhs: Term) -> Term:
    """Multiplies matrices ()(B.. M.. K..) and ()(B.. K.. N..) -> ()(B.. M.. N..), whatever the order of their axes.

    A product of truths is whether any pair of them is true.
    """
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    dtype = "int32" if equation.dtype == "bool" else equation.dtype
    lhs, rhs = (cast(x, dtype) for x in (lhs, rhs))
    rows = [i for i in range(lhs.access.rank) if i not in (*left, *left_batch)]
    columns = [i for i in range(rhs.access.rank) if i not in (*right, *right_batch)]

    def sizes(x: Term, axes: tuple[int, ...] | list[int]) -> list[int]:
        return [x.access.dims[i] for i in axes]

    batch, depth = sizes(lhs, left_batch), prod(sizes(lhs, left))
    m, n = prod(sizes(lhs, rows)), prod(sizes(rhs, columns))
    a = reshape(transpose(lhs, (*left_batch, *rows, *left)), (*batch, m, depth))
    b = reshape(transpose(rhs, (*right_batch, *right, *columns)), (*batch, depth, n))
    product = equation.scope.builder.matmul(a, b, name=equation.layer_name())
    product = compare("ne", product, filled(product, 0)) if equation.dtype == "bool" else product
    return cast(reshape(product, equation.dims), equation.dtype)


@primitive("conv_general_dilated")
def convolution(equation: Equation, lhs: Term, rhs: Term) -> Term:
    """Convolves ()(N C d..) with ()(O C/groups k..), whatever the order of their axes."""
    params, axes = equation.params, lhs.access.rank - 2
    order = params["dimension_numbers"]
    x = transpose(cast(lhs, equation.dtype), order.lhs_spec)
    w = transpose(cast(rhs, equation.dtype), order.rhs_spec)
    x, groups = _with_grouped_channels(x, params["batch_group_count"]), params["batch_group_count"]
    for axis, step in enumerate(params["lhs_dilation"], 2):
        x = spread(x, axis, step)
    x = pad_or_crop(x, [(0, 0), (0, 0), *params["padding"]])
    result = equation.scope.builder.conv(
        x,
        w,
        strides=tuple(params["window_strides"]),
        padding=[(0, 0)] * axes,
        dilations=tuple(params["rhs_dilation"]),
        groups=params["feature_group_count"] * groups,
        name=equation.layer_name(),
    )
    return cast(untransposed(result, order.out_spec), equation.dtype)


def _with_grouped_channels(x: Term, groups: int) -> Term:
    """Makes groups of a batch to groups of channels: ()(G*N C d..) -> ()(N G*C d..)."""
    if groups == 1:
        return x
    batch, channels, *rest = x.access.dims
    apart = transpose(reshape(x, (groups, batch // groups, channels, *rest)), (1, 0, *range(2, x.access.rank + 1)))
    return reshape(apart, (batch // groups, groups * channels, *rest))
