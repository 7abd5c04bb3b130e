"""Stores state in the axis order in which a program changes it, so that its next value needs no other memory.

A cache ()(batch heads past head) that grows along `past` is stored as ()(past batch heads head): rows stay where they
are when there are more. One whose rows are replaced at indices is stored as the scatter takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from glenside.builder.layout import concatenate, reshape, split_at, transpose, untransposed
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build, rebuild_all
from glenside.ir.types import Dims, Tensor, TupleType


@dataclass(frozen=True)
class StateLayout:
    """The layout of stored state: a permutation of its axes, then a reshape.

    order  the permutation: axis i of the stored array is axis order[i] of the state
    dims   the dims before the permutation and after the reshape; None without a reshape
    """

    order: tuple[int, ...]
    dims: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def stored(self, x: Term) -> Term:
        """Returns a term of the state as it is stored."""
        found = _permuted(x, self.order)
        return found if self.dims is None else _reshaped(found, self.dims[1])

    def state(self, x: Term) -> Term:
        """Returns a stored term as the program reads it."""
        return untransposed(x if self.dims is None else _reshaped(x, self._permuted_dims()), self.order)

    def stored_array(self, array: Array) -> Array:
        """Returns an array of the state as it is stored."""
        found = np.transpose(array, self.order)
        return found if self.dims is None else found.reshape(self.dims[1])

    def array(self, stored: Array) -> Array:
        """Returns the state that an array stores; it shares the memory of that array."""
        found = stored if self.dims is None else stored.reshape(self._permuted_dims())
        return np.transpose(found, np.argsort(self.order))

    def _permuted_dims(self) -> tuple[int, ...]:
        assert self.dims is not None, "there are other dims"
        return tuple(self.dims[0][axis] for axis in self.order)


@dataclass(frozen=True)
class _Change:
    """The operations by which a program computes the next value of a state.

    joins  concatenations of the state and what is behind it, outermost first, and the order of their axes as stored
    start  the operand of a scatter that is the state as it is stored, if there is one
    """

    layout: StateLayout
    joins: tuple[Term, ...] = ()
    order: tuple[int, ...] = ()
    start: Term | None = None


def state_layouts(program: Program, pairs: Mapping[str, str]) -> dict[str, StateLayout]:
    """Returns the layouts of those inputs, of pairs with results, that are not stored in the order of their axes."""
    results, found = program.results(), dict[str, StateLayout]()
    for name, result in pairs.items():
        tensor = program.inputs.get(name)
        change = None if tensor is None or result not in results else _change(tensor, results[result])
        if tensor is not None and change is not None and not _is_same(change.layout, tensor):
            found[name] = change.layout
    return found


def with_state_layouts(program: Program, pairs: Mapping[str, str], layouts: Mapping[str, StateLayout]) -> Program:
    """Returns the program whose inputs and results of these names are stored in layouts."""
    if not layouts:
        return program
    results, leaves, stored, joins = program.results(), dict[str, Tensor](), dict[Term, Term](), dict[Term, _Change]()
    for name, layout in layouts.items():
        leaf = build("access-tensor", program.inputs[name])
        leaves[name] = replace(program.inputs[name], dims=layout.stored(leaf).access.dims)
        change = _change(program.inputs[name], results[pairs[name]])
        if change is not None and change.layout == layout:
            kept = build("access-tensor", leaves[name])
            joins |= dict.fromkeys(change.joins, change)
            stored |= {change.joins[-1]: kept} if change.joins else {}
            stored |= {change.start: split_at(kept, change.start.access.split)} if change.start is not None else {}

    def changed(term: Term, children: tuple[Term, ...]) -> Term | None:
        if term in joins:
            order = joins[term].order
            parts = [stored.get(term) or _permuted(children[0], order), _permuted(children[1], order)]
            return split_at(untransposed(concatenate(parts, 0), order), term.access.split)
        if term in stored:
            return stored[term]
        tensor = term.attributes[0] if term.operator.name == "access-tensor" else None
        if not isinstance(tensor, Tensor) or tensor.name not in leaves:
            return None
        return split_at(layouts[tensor.name].state(build("access-tensor", leaves[tensor.name])), term.access.split)

    roots = rebuild_all([*results.values(), *program.layers.values()], changed)
    own = {pairs[name]: layout for name, layout in layouts.items()}
    items = [own[name].stored(term) if name in own else term for name, term in zip(results, roots, strict=False)]
    term = build("construct-tuple", *items) if isinstance(program.term.type, TupleType) else items[0]
    inputs = tuple(leaves.get(tensor.name, tensor) for tensor in program.signature.inputs)
    return program.with_roots([term, *roots[len(items) :]], signature=replace(program.signature, inputs=inputs))


def _change(tensor: Tensor, result: Term) -> _Change | None:
    """Returns how a result is made of an input, if its rows are appended or replaced; else None."""
    core, order = _transposed(result)
    if core.operator.name == "access-concatenate":
        return _appending(tensor, core, order)
    while core.operator.name in ("access", "access-reshape"):
        (core,) = core.children
    if core.operator.name != "access-scatter-nd":
        return None
    start = core.children[0]
    inner = start
    while inner.operator.name in ("access", "access-reshape"):
        (inner,) = inner.children
    leaf, order = _transposed(inner)
    if not _is_of(leaf, tensor):
        return None
    dims = tuple(tensor.dims), tuple(start.access.dims)
    layout = StateLayout(order, None if tuple(dims[0][axis] for axis in order) == dims[1] else dims)
    return _Change(layout, start=start) if layout.stored(result) == split_at(core, 0) else None


def _appending(tensor: Tensor, core: Term, outer: tuple[int, ...]) -> _Change | None:
    (axis,), joins = core.attributes, [core]
    first = core.children[0]
    while first.operator.name == "access-concatenate" and first.attributes == (axis,):
        joins.append(first)
        first = first.children[0]
    leaf, inner = _transposed(first)
    if not _is_of(leaf, tensor) or any(inner[i] != j for j, i in enumerate(outer)) or not isinstance(axis, int):
        return None
    order = (axis, *(i for i in range(len(inner)) if i != axis))
    return _Change(StateLayout(tuple(inner[i] for i in order)), tuple(joins), order)


def _is_of(leaf: Term, tensor: Tensor) -> bool:
    return leaf.operator.name == "access-tensor" and leaf.attributes[0] == tensor


def _is_same(layout: StateLayout, tensor: Tensor) -> bool:
    """True if the elements are in the order of the axes, and these are the stored ones."""
    moved = [axis for axis in layout.order if tensor.dims[axis] != 1]
    return layout.dims is None and moved == sorted(moved)


def _transposed(x: Term) -> tuple[Term, tuple[int, ...]]:
    """Returns the term whose axes a term reorders: axis i of the term is axis order[i] of it."""
    order = tuple(range(x.access.rank))
    while x.operator.name in ("access", "access-transpose"):
        if x.operator.name == "access-transpose":
            (first,) = x.attributes
            assert isinstance(first, Dims), "the order of axes"
            order = tuple(first[axis] for axis in order)
        (x,) = x.children
    return x, order


def _permuted(x: Term, order: Sequence[int]) -> Term:
    """Returns the term whose axis i is axis order[i] of x, without transposes that undo each other."""
    inner, own = _transposed(x)
    return transpose(inner, [own[axis] for axis in order])


def _reshaped(x: Term, dims: Sequence[int]) -> Term:
    """Returns x with other dims, without reshapes that undo each other."""
    while x.operator.name in ("access", "access-reshape"):
        (x,) = x.children
    return reshape(x, dims)
