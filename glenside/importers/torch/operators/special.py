"""Imports special functions: angles, signs, shifts of bits, histograms, and running sums of logarithms."""

from __future__ import annotations

from functools import partial

from glenside.builder.functions import angle, is_negative, log1p, shifted
from glenside.builder.indexing import iota
from glenside.builder.layout import reshape
from glenside.builder.pointwise import add, cast, combine, compare, compute, divide, filled, multiply, select, subtract
from glenside.builder.reductions import reduce_axes, running
from glenside.importers.torch.node import Node, Operand, Refused, aten, axis_of, register, with_axis
from glenside.importers.torch.operators.pointwise import in_dtype
from glenside.importers.torch.promotion import Number
from glenside.ir.dtypes import FLOATS, largest_float
from glenside.ir.term import Term


@aten("atan2")
def atan2(node: Node, self: Term, other: Term) -> Term:
    return angle(*in_dtype(node, node.dtype, self, other))


@aten("copysign", "Tensor", "Scalar")
def copysign(node: Node, self: Operand, other: Operand) -> Term:
    x, y = in_dtype(node, node.dtype, self, other)
    magnitude = compute("abs", x)
    return select(is_negative(y), compute("negative", magnitude), magnitude)


@aten("signbit")
def signbit(node: Node, self: Term) -> Term:
    return filled(self, 0) if self.access.dtype == "bool" else is_negative(self)


@aten("hypot")
def hypot(node: Node, self: Term, other: Term) -> Term:
    """Computes sqrt(x^2 + y^2), divided by the larger of both so that squares stay in range."""
    x, y = (compute("abs", part) for part in in_dtype(node, node.dtype, self, other))
    most, least = combine("maximum", x, y), combine("minimum", x, y)
    share = divide(least, select(compare("eq", most, filled(most, 0)), filled(most, 1), most))
    found = multiply(most, compute("sqrt", add(multiply(share, share), filled(share, 1))))
    largest = filled(most, int(largest_float(node.dtype)))
    infinite = combine("logical-or", compare("gt", x, largest), compare("gt", y, largest))  # also with a NaN
    return select(infinite, node.number(float("inf"), node.dtype), found)


def _shifted(left: bool, node: Node, self: Operand, other: Operand) -> Term:
    return shifted(*in_dtype(node, node.dtype, self, other), left=left)


SHIFTS = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
for _name, _left in (("left", True), ("right", False)):
    register(f"bitwise_{_name}_shift", partial(_shifted, _left), SHIFTS, "", __name__)
    register(f"__{_name[0]}shift__", partial(_shifted, _left), ("Tensor", "Scalar"), "", __name__)


@aten("logcumsumexp", "default")
def logcumsumexp(node: Node, self: Term, dim: int) -> Term:
    """Computes log(cumsum(exp(x))) pair by pair as m + log(1 + exp(-|x - y|)), with the larger m of both."""
    x, axis = with_axis(self), axis_of(dim, self.access.rank)
    least = str(-3e38) if node.dtype == "float32" else str(-1e300)

    def joined(a: Term, b: Term) -> Term:
        most = combine("maximum", a, b)
        return add(most, log1p(compute("exp", compute("negative", compute("abs", subtract(a, b))))))

    return reshape(running(joined, x, axis, least), node.dims)


@aten("histc", but="bounds that are those of the elements")
def histc(node: Node, self: Term, bins: int = 100, min: Number = 0, max: Number = 0) -> Term:
    """Counts the elements in each bin, of a given number of bins of equal width; the last includes its upper end."""
    if min == max:
        raise Refused("requires min and max, which else are those of the elements")
    dtype = self.access.dtype if self.access.dtype in FLOATS else "float64"
    x = reshape(cast(self, dtype), (1, self.access.size))
    place = compute("floor", multiply(subtract(x, filled(x, min)), filled(x, bins / (max - min))))
    place = select(compare("eq", x, filled(x, max)), filled(x, bins - 1), place)
    inside = combine("logical-and", compare("ge", x, filled(x, min)), compare("le", x, filled(x, max)))
    found = compare("eq", place, reshape(cast(iota(bins), dtype), (bins, 1)))
    if not self.access.size:
        return node.filled(node.dims, 0, node.dtype)
    return cast(reduce_axes("reduce-sum", cast(combine("logical-and", found, inside), "int64"), [1]), node.dtype)
