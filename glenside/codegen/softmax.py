"""softmax in vectors: the largest, the powers, their sum, the quotients, one row after the other."""

from __future__ import annotations

from glenside.codegen.affine import indices_of, is_affine
from glenside.codegen.blocks import Joined
from glenside.codegen.filling import Filling, under
from glenside.codegen.formulas import apply, number
from glenside.codegen.lanes import in_vectors, joined_in_lanes, lanes_of, run, spread
from glenside.codegen.loops import Formula, Load, Statement, Store
from glenside.codegen.machine import Machine
from glenside.ir.index_map import Index
from glenside.ir.operators.compute import name_of
from glenside.ir.types import Dims


def softmax(nest: Filling, machine: Machine) -> list[Statement] | None:
    """The loops of a softmax along elements that are next to each other; None where they are not, or it is none."""
    (child,) = nest.term.children
    shape, item, dtype = child.access.shape, child.access.item, nest.dtype
    row = Dims((item.product(),))
    if name_of(nest.term) != "softmax" or nest.view.dims != nest.dims or dtype not in ("float32", "float64"):
        return None
    axes, at = nest.counters(shape)
    (along,), (within,) = nest.counters(row)

    def own(place: Index) -> list[Index]:
        return [*at, *under(item, row, (place,))]

    element = nest.pull(child, own(within))
    result = nest.view.place(own(within))
    if not in_vectors(element, dtype) or not all(map(is_affine, (result, *indices_of(element)))):
        return None
    largest = Joined(nest.local(dtype), (along,), "max", number(None, dtype), element, True)
    total = Joined(nest.local(dtype), (along,), "add", number(0, dtype), Load(nest.buffer, result), True)
    parts = [joined_in_lanes(joined, nest.axes, machine) for joined in (largest, total)]
    if parts[0] is None or parts[1] is None:
        return None

    def put(place: Index, value: Formula) -> list[Statement]:
        return [Store(nest.buffer, nest.view.place(own(place)), value)]

    def power(place: Index) -> list[Statement]:
        return put(place, apply("exp", apply("subtract", nest.pull(child, own(place)), largest.local)))

    def quotient(place: Index) -> list[Statement]:
        return put(place, apply("divide", Load(nest.buffer, nest.view.place(own(place))), total.local))

    lanes = lanes_of(dtype, machine)
    body = [
        *parts[0],
        *run(along, nest.axes, lanes, power),
        *parts[1],
        *run(along, nest.axes, lanes, quotient),
    ]
    return spread([axis for axis in axes if axis.size != 1], body, nest.dims.product())
