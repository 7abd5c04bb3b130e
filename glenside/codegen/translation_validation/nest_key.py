"""Structural keys of nests and their terms: of nests with equal keys, which differ only in buffers, one is sampled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from glenside.codegen.loop_ir.ir import Buffer, Layout, Nest
from glenside.codegen.loop_ir.structural_hash import alike
from glenside.codegen.translation_validation.buffer_values import Values, origin
from glenside.ir.term import Term
from glenside.ir.types import Tensor


def likeness(
    nest: Nest, held: Iterable[Layout], lies: Mapping[Term, Layout], before: Callable[[Buffer], bool], values: Values
) -> Hashable:
    """Returns the key of a nest: its statements, its buffers, and the terms it stores, down to terms stored before."""
    key, buffers = alike(nest.body)
    numbers = {origin(buffer): number for number, buffer in enumerate(buffers)}

    def of_buffer(buffer: Buffer) -> Hashable:
        known = values.known.get(buffer.name) if buffer.dims.product() == 1 else None
        packing = values.packings.get(origin(buffer))
        packed = None
        if packing is not None:
            own = {name: value for name, value in vars(packing).items() if name not in ("buffer", "source")}
            packed = (tuple(own.items()), of_buffer(packing.source))
        value = None if known is None else known.tobytes()
        return numbers.setdefault(origin(buffer), len(numbers)), buffer.dims, buffer.dtype, buffer.role, value, packed

    def of_layout(layout: Layout) -> Hashable:
        return of_buffer(layout.buffer), layout.dims, layout.offsets, layout.axis_order, layout.sizes, layout.copy

    terms: dict[Term, int] = {}
    said: list[Hashable] = []

    def of_term(root: Term) -> Hashable:
        stack = [root]
        while stack:
            term = stack[-1]
            if term in terms:
                stack.pop()
                continue
            layout = lies.get(term)
            ends = layout is not None and before(layout.buffer)
            left = [] if ends else [child for child in term.children if child not in terms]
            if left:
                stack += left
                continue
            stack.pop()
            terms[term] = len(terms)
            where = None if layout is None else of_layout(layout)
            if ends:
                said.append((term.type, where))
                continue
            attributes = tuple(a for a in term.attributes if not isinstance(a, Tensor))
            children = tuple(terms[child] for child in term.children)
            said.append((term.operator.name, attributes, term.type, where, children))
        return terms[root]

    targets = tuple((of_layout(layout), of_term(layout.term)) for layout in held)
    return key, tuple(of_buffer(buffer) for buffer in buffers), targets, tuple(said)
