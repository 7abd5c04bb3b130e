"""Transposed convolutions, the adjoints of convolutions, as convolutions of inputs with zeros between elements."""

from __future__ import annotations

from dataclasses import replace

from glenside.builder.layout import pad_or_crop, reshape, transpose
from glenside.builder.products import Layer, convolution, sizes_label
from glenside.builder.windows import Padding, Sizes, pairs_per_axis, per_axis
from glenside.ir.operator import require
from glenside.ir.operators.requirements import spelled
from glenside.ir.term import Term, build

_NAME = "conv_transpose"


def layer(
    x: Term, w: Term, strides: Sizes, padding: Padding, output_padding: Sizes, dilations: Sizes, groups: int
) -> Layer:
    """x of ()(N C d..) with w of ()(C O/groups k..) -> ()(N O d'..): each element of x adds a window, a multiple of w.

    What a place of the result gets is a product of the elements near it with w backwards: so it is a convolution of
    stride 1, over an input with strides - 1 zeros between its elements.
    """
    _check(x, w, groups)
    axes = x.access.rank - 2
    window = w.access.dims.drop(2)
    steps, spread = per_axis(_NAME, "strides", strides, axes), per_axis(_NAME, "dilations", dilations, axes)
    more = per_axis(_NAME, "output padding", output_padding, axes, least=0)
    fits = all(extra < max(t, d) for extra, t, d in zip(more, steps, spread, strict=True))
    bounds = tuple(map(max, steps, spread))
    require(fits, _NAME, f"output padding below {spelled(bounds)}, the larger of stride and dilation", spelled(more))
    pairs = pairs_per_axis(_NAME, padding, axes, least=None)
    edges = []
    for axis, (k, d, (before, after)) in enumerate(zip(window, spread, pairs, strict=True)):
        x = x if steps[axis] == 1 else build("access-dilate", x, axis + 2, steps[axis] - 1)
        edges.append(((k - 1) * d - before, (k - 1) * d - after + more[axis]))
    x = pad_or_crop(x, [(0, 0), (0, 0), *edges])
    made = convolution(x, _backwards(w, groups), 1, 0, spread, groups)
    return replace(made, label=f"transposed conv {sizes_label(window, steps, spread)}")


def _check(x: Term, w: Term, groups: int) -> None:
    dims, filters = x.access.dims, w.access.dims
    fits = len(dims) == len(filters) >= 3 and dims[1] == filters[0]
    require(fits, _NAME, "x of ()(N C d..) and w of ()(C O/groups k..)", f"{x.access} and {w.access}")
    require(all(n >= 1 for n in (*dims[2:], *filters[2:])), _NAME, "sizes of at least 1", f"{x.access} and {w.access}")
    require(groups >= 1 and dims[1] % groups == 0, _NAME, f"groups that divide {dims[1]} channels", groups)


def _backwards(w: Term, groups: int) -> Term:
    """()(C O/groups k..) -> ()(O C/groups k..), each axis k in reverse order."""
    channels, filters, *window = w.access.dims
    apart = reshape(w, (groups, channels // groups, filters, *window))
    turned = transpose(apart, (0, 2, 1, *range(3, apart.access.rank)))
    turned = reshape(turned, (groups * filters, channels // groups, *window))
    for axis, k in enumerate(window, 2):
        turned = build("access-flip", turned, axis) if k > 1 else turned
    return turned
