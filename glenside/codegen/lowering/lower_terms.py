"""Lowers terms to loop nests: data movement becomes indices, elementwise computation becomes formulas.

A nest pulls each element that it stores from its operands, down to buffers: index maps give the source of an element,
scalar expressions its value. A term has a nest of its own if it must be materialized: several nests read it, one nest
reads its elements repeatedly, or it is not computed element by element. A sum is computed where it is read, if each of
its elements is read once: bias, activation and residual are fused with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import count, product
from typing import Any

from glenside.codegen.loop_ir.accesses import used_buffers
from glenside.codegen.loop_ir.affine_analysis import affine, is_asking
from glenside.codegen.loop_ir.compute_block import Block, Joined, ScheduledBlock
from glenside.codegen.loop_ir.ir import Counter, Formula, Load, Loops, Nest, Number, Packing, Role, Statement
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.loop_ir.nest_builder import Filling, Memory, Places, View, under
from glenside.codegen.loop_ir.scalar_expr import applied, apply, choose, convert, never, number, sums_in
from glenside.codegen.loop_ir.step_loops import nests_of
from glenside.codegen.lowering import recurrences
from glenside.codegen.lowering.concat_in_place import (
    Hosting,
    are_interleaved,
    bordered,
    hosting,
    is_reshaped,
    layouts_of,
    parts_of,
    permuted_concatenation,
)
from glenside.codegen.lowering.constant_preparation import single
from glenside.codegen.lowering.fill_rules import filler, mapped, mapped_rows
from glenside.codegen.lowering.gather_scatter import position_of
from glenside.codegen.lowering.inline_gathers import InlineGathers, inline_gathers, source_indices
from glenside.codegen.lowering.inline_reductions import join_of
from glenside.codegen.lowering.layout_assignment import best_order, is_narrow, lanes_to_fill
from glenside.codegen.lowering.materialize import addressed_by, is_inline, is_sorting, stored_terms
from glenside.codegen.lowering.quantized_activations import is_symmetric
from glenside.codegen.lowering.quantized_weights import scaled_activations
from glenside.codegen.lowering.recurrences import LowerBody
from glenside.codegen.lowering.reductions import normalized
from glenside.codegen.lowering.term_reads import asking_of, dims_of_parts
from glenside.codegen.passes.fuse_padding import BORDER
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.gathered_rows import Position, gathered_rows
from glenside.codegen.scheduling.operand_packing import filling
from glenside.codegen.scheduling.select_schedule import scheduled
from glenside.codegen.scheduling.softmax_template import Softmax, softmax
from glenside.codegen.scheduling.vectorize import lanes_of, shared
from glenside.ir.elementwise import folds
from glenside.ir.errors import BadInput
from glenside.ir.index_map import Axis, Fill, Index, Within
from glenside.ir.operator import Category
from glenside.ir.operators.compute import compute_of, name_of
from glenside.ir.program import Program
from glenside.ir.rational import exact
from glenside.ir.term import Term, build, postorder
from glenside.ir.tuples import arrays_of
from glenside.ir.types import Dims, TupleType
from glenside.passes.loop_bodies import body_program

_SOFTMAX_STEPS_PER_ELEMENT = 20
"""Loop steps that one element of a softmax costs: its exponential is computed twice."""


_LONG_ROW = 32
"""Elements of a row of a softmax from which on it is made contiguous: a copy takes less than scalar exponentials."""


class Lowering:
    """The lowering of one program: the stored terms, their memory, and the nests that fill them.

    views    term -> its view of memory: tensors, and stored terms
    hosted   concatenated or padded term -> the terms stored within its buffer
    filled   terms whose nests are built -> their memory
    inside   concatenated or padded terms within such a buffer
    joined   reductions of the current formula: (term, indices) -> the reduction, and the formula of its result
    inline   gathers, and sums of gathered elements that are computed where they are read
    positions  computed indices of the current formula: (index, size of the axis) -> its variable
    single   constants of one element -> its value
    normalized  operands of softmaxes with long rows; `in_rows` are their memories, whose last axis is contiguous
    sorted   sort results, states of loops and their operands: their rows get no padding
    looped   loops of steps
    computed  terms that the current nest computes
    """

    def __init__(self, program: Program, machine: Machine | None, lower_body: LowerBody) -> None:
        self.program, self.machine, self.lower_body = program, machine, lower_body
        self.results = arrays_of(program.term)
        self.terms = [t for t in postorder(*self.results) if not isinstance(t.type, TupleType)]
        for term in self.terms:
            if term.operator.opaque:
                raise BadInput(f"{term.operator.name} {term.attributes[0]!r} cannot be compiled: it has no definition")
            if not is_inline(term) and join_of(term) is None and filler(term) is None and term.operator.name != "scan":
                raise BadInput(f"{name_of(term)} is not compiled yet")
        self.views: dict[Term, View] = {}
        self.hosted: dict[Term, Hosting] = {}
        self.inside: set[Term] = set()
        self.joined: dict[tuple[Term, tuple[Index, ...]], tuple[Joined, Formula]] = {}
        self.filled: dict[Term, Memory] = {}
        self.single: dict[Term, Formula] = {}
        self.computed: dict[Term, None] = {}
        self.memories: list[Memory] = []
        self.nests: list[Nest] = []
        self.block: Block | Softmax | None = None
        self.packed: tuple[Packing, ...] = ()
        self.packings: list[Packing] = []
        self.numbers = count(1)
        self.inline = inline_gathers(self.terms) if machine else InlineGathers()
        self.positions: dict[tuple[Formula, int], Position] = {}
        self.addressed = {child for term in self.terms for child in addressed_by(term, self.inline)}
        self.normalized = {_below_reshapes(term.children[0]) for term in self.terms if _has_long_rows(term)}
        self.in_rows: set[Memory] = set()
        self.sorted = {own for term in self.terms if is_sorting(term) for own in (term, *term.children)}
        self.looped: list[recurrences.Lowered] = []
        scans = [term for term in self.terms if term.operator.name == "scan"]
        self.sorted |= {own for term in scans for own in (term, *recurrences.stored_operands(term))}
        self.apart = {*self.addressed, *scans}  # in memory of their own: read at computed indices, or stored by steps
        self._vectors: dict[object, Callable[[Filling], list[Statement] | None]] = {
            normalized: self._normalized,
            mapped: self._mapped,
        }
        scaled = scaled_activations(self.terms) if machine else frozenset()
        host = self._host if machine else lambda *_: ()
        self.stored = stored_terms(self.terms, self.results, host, self.inline, scaled)

    def module(self) -> Module:
        """Returns the nests of the program, each with the block from which it was scheduled."""
        for tensor in self.program.tensors.values():
            role = Role.CONSTANT if tensor.constant else Role.INPUT
            memory = Memory(tensor.name, tensor.dims, tensor.dtype, role)
            memory.row_major()
            self.memories.append(memory)
            leaf = build("access-tensor", tensor)
            self.views[leaf] = View.whole(memory)
            if tensor.dims.product() == 1 and tensor.name in self.program.constants:
                self.single |= single(leaf, self.program.constants[tensor.name].item())
        for term in self.terms:
            if term in self.stored:
                self.filled[term] = self._fill(term)
        return Module(tuple(self.nests), tuple(self.packings))

    def loops(self, module: Module) -> Loops:
        """Returns the loops of a module: its nests, the buffers that they use, results, and layouts."""
        every = [*(memory.buffer for memory in self.memories), *(packing.buffer for packing in module.packings)]
        every += [buffer for own in self.looped for buffer in own.temporaries]
        read = {buffer for nest in module.nests for buffer in used_buffers(nest.body)}
        buffers = [b for b in every if b in read or b.role in (Role.INPUT, Role.RESULT)]
        results = tuple(self.filled[t].buffer for t in self.results)
        layouts = layouts_of(self.views, self.hosted.values())
        bodies = tuple(own.loop for own in self.looped)
        return Loops(self.program.name, tuple(buffers), module.nests, results, module.packings, layouts, bodies)

    def _memory(self, term: Term, dims: Dims | None = None, **layout: Any) -> Memory:
        """Returns the memory of a term: of results and of terms read at computed indices row-major by default."""
        role = Role.RESULT if term in self.results else Role.TEMPORARY
        name = f"{role.value}{next(self.numbers)}"
        apart = role is Role.TEMPORARY and self.machine is not None and term not in self.sorted
        layout |= {"symmetric": is_symmetric(term)}
        memory = Memory(name, term.access.dims if dims is None else dims, term.access.dtype, role, apart, **layout)
        if role is Role.RESULT or term in self.addressed:
            memory.row_major()
        if term in self.normalized:
            self.in_rows.add(memory)
        self.memories.append(memory)
        return memory

    def _host(self, term: Term, kept: bool) -> list[Term]:
        """Returns the terms stored because a concatenated or padded term is stored."""
        if not kept or term in self.views or term in self.inside or term in self.addressed:
            return []
        if parts_of(term) is None:
            return self._host_permuted(term) if term in self.results else []
        memory = self._memory(term)
        apart = [*self.views, *self.apart, *(t for t in self.results if t is not term)]
        found = self.hosted[term] = hosting(term, memory, apart)
        self.inside |= found.inside
        self.views |= {term: View.whole(memory), **found.views}
        return [term, *found.views]

    def _host_permuted(self, result: Term) -> list[Term]:
        """Returns the terms stored in a result that permutes a concatenation: sums are interleaved in its buffer."""
        assert self.machine is not None, "vectors are of a machine"
        term, order = permuted_concatenation(result) or (result, ())
        lanes = lanes_of("float32", self.machine)
        if not order or term in self.results or term in self.sorted or not are_interleaved(term, order, lanes):
            return []
        memory = self._memory(result, term.access.dims, axis_order=order, shown=result.access.dims)
        hosted = hosting(term, memory, [*self.views, *self.apart])
        if hosted.copies or hosted.borders:
            self.memories.remove(memory)
            return []
        self.hosted[result] = hosted
        self.inside |= {term, *hosted.inside}
        whole = View(memory, memory.dims, (0,) * len(memory.dims))
        self.views |= {result: whole, term: whole, **hosted.views}
        return [result, *hosted.views]

    def _fill(self, term: Term) -> Memory:
        """Builds the nests of a stored term."""
        if term in self.hosted:
            hosted = self.hosted[term]
            for copied, view in hosted.copies:
                self._nest(f"copy of {name_of(copied)}", Filling(self, copied, view))
            if hosted.borders:
                self._nest(BORDER, Filling(self, term, self.views[term]), partial(bordered, hosted.borders))
            return self.views[term].memory
        if term.operator.name == "scan":
            return self._loop(term)
        tensor = term.operator.name == "access-tensor"
        new = tensor or term not in self.views
        view = View.whole(self._memory(term, self._dims(term))) if new else self.views[term]
        self._nest(name_of(term), Filling(self, term, view), None if term in self.inline.sources else filler(term))
        self.views.setdefault(term, view)  # a tensor that is a result is still read from its own memory
        return view.memory

    def _loop(self, term: Term) -> Memory:
        """Builds the nests of a loop of steps: of its initial state, and of its body."""
        memory = self._memory(term)
        memory.row_major()
        view, initial = View.whole(memory), term.children[0]
        self.views.setdefault(term, view)
        self._nest("initial state", Filling(self, initial, View(memory, Dims((1, *initial.access.dims)), (0, 0))))
        self.nests[-1] = replace(self.nests[-1], terms=(*self.nests[-1].terms, term))
        body = body_program(term, f"{self.program.name}, step", self.program.constants)
        constants = {own.name: own.buffer for own in self.memories if own.role is Role.CONSTANT}
        made = recurrences.lowered(term, len(self.looped), view, self.views, constants, body, self.lower_body(body))
        self.looped.append(made)
        self.packings += made.packings
        self.nests += nests_of(made.loop)
        return memory

    def _dims(self, term: Term) -> Dims | None:
        """Returns the dims in which a term is stored, if these differ from its own."""
        if self.machine is None or term in self.results or term in self.addressed or filler(term) is not None:
            return None
        return dims_of_parts(term, self.views)

    def _nest(self, what: str, nest: Filling, make: Callable[[Filling], list[Statement]] | None = None) -> None:
        around, self.computed = self.computed, {nest.term: None}
        memory, better = nest.view.memory, self._vectors.get(make) if self.machine else None
        if self.machine is None or make not in (None, mapped):
            memory.row_major()
        statements = better(nest) if better else None
        if statements is None:
            if make is mapped:
                memory.row_major()
            statements = make(nest) if make else self._scheduled(nest)
            if self.machine and make is normalized:
                statements = shared(statements, _SOFTMAX_STEPS_PER_ELEMENT * nest.dims.product())
        terms = tuple(self.computed)
        self.nests.append(Nest(what, nest.buffer, tuple(statements), terms, self.block, self.packed))
        self.computed, self.block, self.packed = around, None, ()

    def _scheduled(self, nest: Filling) -> list[Statement]:
        """Returns the loops of a term that is computed element by element: tiled, if machine and block allow it."""
        if self.machine is None:
            return self._block(nest).plain()
        block = self._ordered(nest)
        if block is None:
            nest = self._restarted(nest)
            block = self._block(nest)
        if self.positions and self.joined:  # sums of gathered elements have loops of their own
            self._store_terms([t for t in self.computed if t in self.inline.sums and t is not nest.term])
            return self._scheduled(self._restarted(nest))
        return self._of_block(nest, block, self.machine)

    def _of_block(self, nest: Filling, block: Block, machine: Machine) -> list[Statement]:
        """Returns the loops of a block: tiled, if machine and block allow it."""
        if self.positions:
            return gathered_rows(block, [*self.positions.values()], nest.axes, machine)
        if len(block.joined) > 1:  # registers hold one sum
            self._store_terms([term for term, _ in self.joined][:-1])
            nest = self._restarted(nest)
            block = self._block(nest)
        made = None if self._is_better_stored(nest, block) else scheduled(block, nest.axes, machine)
        if made is None and self.joined and nest.term not in {term for term, _ in self.joined}:
            self._store_terms([term for term, _ in self.joined])
            return self._scheduled(self._restarted(nest))
        if self.joined and (made is None or is_asking(block)) and (asking := asking_of(nest.term, self.views)):
            self._store_terms(asking)
            return self._scheduled(self._restarted(nest))
        if made is None:
            return block.plain()
        self.packings += made.packings
        for packing in made.packings:
            if packing.source.role is not Role.CONSTANT:
                self.nests.append(filling(packing, tuple(self.computed), machine))
        self._keep(block, nest, made)
        return made.statements

    def _keep(self, block: Block, nest: Filling, made: ScheduledBlock) -> None:
        """Keeps the block from which loops were scheduled for their nest, if its indices are affine."""
        self.block = affine(block, nest.axes)
        self.packed = () if self.block is None else made.packings

    def _is_better_stored(self, nest: Filling, block: Block) -> bool:
        """True if a sum is better stored, in its own layout, than computed where it is read."""
        found = affine(block, nest.axes) if self.joined and nest.term not in {term for term, _ in self.joined} else None
        return found is not None and self.machine is not None and is_narrow(found, self.machine)

    def _store_terms(self, terms: Sequence[Term]) -> None:
        """Stores terms that could also be computed where they are read."""
        for term in terms:
            if term not in self.views:
                self.filled[term] = self._fill(term)

    def _restarted(self, nest: Filling) -> Filling:
        return Filling(self, nest.term, nest.view)

    def _normalized(self, nest: Filling) -> list[Statement] | None:
        """Returns vectorized loops of softmax or log-softmax; None for a sort, or if elements are not contiguous."""
        self.nest, self.joined = nest, {}
        found = softmax(nest)
        assert self.machine is not None, "vectors are of a machine"
        statements = None if found is None else found.statements(nest.axes, self.machine)
        if found is None or statements is None:
            return None
        if not found.logarithm and found.is_affine:
            self.block = found
        return statements

    def _mapped(self, nest: Filling) -> list[Statement] | None:
        """Returns loops of a product with a constant matrix: all rows at once, vectorized along contiguous elements."""
        axis = nest.term.arguments()[1]
        if nest.view.dims != nest.dims or not nest.dims[axis]:
            return None
        self.nest, self.joined = nest, {}
        axes, at = nest.counters(nest.dims.remove(axis))
        rows = mapped_rows(nest, at)
        order = best_order([*axes[:axis], Axis(next(nest.axes), 1), *axes[axis:]], [], rows[0][1])
        if not nest.view.memory.is_fixed:
            nest.view.memory.assign((axis, *(i for i in order if i != axis)))
        (place, value), *beside = [(nest.view.place(places), found) for places, found in rows]
        own = [axes[i - (i > axis)] for i in nest.view.memory.axis_order if i != axis]
        assert self.machine is not None, "vectors are of a machine"
        block = Block(tuple(own), (), nest.buffer, place, value, tuple(beside))
        made = scheduled(block, nest.axes, self.machine)
        if made is None:
            return None
        self.packings += made.packings
        self._keep(block, nest, made)
        return made.statements

    def _block(self, nest: Filling) -> Block:
        return self._of_value(nest, *self._value(nest))

    def _of_value(self, nest: Filling, axes: Sequence[Axis], at: Places, value: Formula) -> Block:
        own = [axes[axis] for axis in nest.view.memory.axis_order]
        return Block(tuple(own), tuple(j for j, _ in self.joined.values()), nest.buffer, nest.view.place(at), value)

    def _value(self, nest: Filling) -> tuple[list[Axis], Places, Formula]:
        """Returns the axes of a view, their counters, and the formula of its element; sets `joined`."""
        self.joined, self.positions, self.nest = {}, {}, nest
        axes, at = nest.counters(nest.view.dims)
        places = at if nest.view.dims == nest.dims else under(nest.dims, nest.view.dims, at)
        return axes, at, convert(self._computed_element(nest.term, places), nest.dtype)

    def _ordered(self, nest: Filling) -> Block | None:
        """Returns the block of a nest, and chooses the axis order of its memory unless that is fixed.

        None if sums were stored instead, because the fixed order has another last axis: the block must be built again.
        """
        axes, at, value = self._value(nest)
        joined = [j for j, _ in self.joined.values()]
        assert self.machine is not None, "vectors are of a machine"
        order = best_order(axes, joined, value, lanes_to_fill(joined, nest.dtype, self.machine))
        memory, last = nest.view.memory, len(axes) - 1
        if memory in self.in_rows and not memory.is_fixed and nest.term not in {term for term, _ in self.joined}:
            memory.assign((*(axis for axis in order if axis != last), last))
        if not memory.is_fixed:
            memory.assign(order)
        elif joined and order[-1:] != memory.axis_order[-1:]:
            self._store_terms([term for term, _ in self.joined if term is not nest.term])
            return None
        return self._of_value(nest, axes, at, value)

    def _computed_element(self, term: Term, places: Places) -> Formula:
        """Returns the formula of an element of the term that a nest computes (for other nests, it is a buffer)."""
        if term.operator.name == "access-tensor" or term in self.filled:
            return self.pull(term, places)
        return self._element(term, places)

    def pull(self, term: Term, places: Places) -> Formula:
        """Returns one element of a term: a constant, a load, a reduction, or a formula."""
        if term in self.single:
            return self.single[term]
        if term in self.views:
            view = self.views[term]
            return Load(view.buffer, view.place(places, term.access.dims))
        return self._element(term, places)

    def _element(self, term: Term, places: Places) -> Formula:
        """Returns one element of a term that is not in memory: a reduction, or a formula."""
        if term in self.inline.sums:
            return self._few_summed(term, places)
        return self._join(term, places) if join_of(term) else self.formula(term, places)

    def _few_summed(self, term: Term, places: Places) -> Formula:
        """Returns a sum of gathered elements, unrolled."""
        self.computed[term] = None
        (child,) = term.children
        inner, item = sums_in(child.access.dtype), child.access.item
        within = product(*(range(size) for size in item))
        parts = [convert(self.pull(child, (*places, *(Index() + i for i in own))), inner) for own in within]
        return convert(reduce(partial(apply, "add"), parts), term.access.dtype)

    def _gathered(self, term: Term, places: Places) -> Formula:
        """Returns one gathered element, at a computed index that is added to `positions`."""
        a, indices, axis = term.arguments()
        source, along, steps = self.inline.sources[term]
        rank, view = indices.access.rank, self.views[source]
        key = position_of(self.pull(indices, places[axis : axis + rank])), a.access.dims[axis]
        if key not in self.positions:
            self.positions[key] = Position(self.nest.local("int64"), *key, "access-gather")
        found = source_indices(a, source, (*places[:axis], Index(), *places[axis + rank :]))
        stride = steps * view.stride(along, source.access.dims)
        return Load(view.buffer, view.place(found), ((self.positions[key].local, stride),))

    def _join(self, term: Term, places: Places) -> Formula:
        """Returns an element that is a reduction, which is added to `joined`."""
        key = term, tuple(places)
        self.computed[term] = None
        if key not in self.joined:
            make = join_of(term)
            assert make is not None, f"{name_of(term)} is joined"
            join = make(term, self.pull, places)
            axes, within = self.nest.counters(join.item)
            local = self.nest.local(join.start.dtype)
            made = Joined(local, tuple(axes), join.combine, join.start, join.element(within), join.exact)
            self.joined[key] = made, join.finish(local)
        return self.joined[key][1]

    def formula(self, term: Term, places: Places) -> Formula:
        """Returns one element of a term that is computed where it is read."""
        self.computed[term] = None
        name, dtype = term.operator.name, term.access.dtype
        if name == "access-gather":
            return self._gathered(term, places)
        if name in ("access-literal", "full"):
            return Number(exact(str(term.attributes[-2])), dtype)
        if name == "iota":
            return convert(Counter(places[0]), dtype)
        if name == "eye":
            same = Within(places[0] - places[1], 0, 1)
            return choose((same,), number(1, dtype), number(0, dtype))
        if term.operator.moves:
            return self._moved(term, places)
        if name in ("cast", "bitcast"):
            return convert(self.pull(term.children[0], places), dtype, bits=name == "bitcast")
        kind, parameters = compute_of(term)
        expression, (child,) = kind.expression(*parameters), term.children
        if kind.category is Category.POINTWISE:
            return applied(expression, [self.pull(child, places)])
        split = child.access.split
        parts = [
            self.pull(child, (*places[:split], Index() + part, *places[split:])) for part in range(child.access.item[0])
        ]
        if not folds(expression):
            return applied(expression, parts)
        found = parts[0]
        for part in parts[1:]:
            found = applied(expression, [found, part])
        return found

    def _moved(self, term: Term, places: Places) -> Formula:
        found = term.index_map
        assert found is not None, f"{term.operator.name} moves elements to places that are known"
        pieces = [piece.at(places) for piece in found.pieces]
        pieces = [piece for piece in pieces if not any(map(never, piece.guards))]
        dtype = term.access.dtype
        if found.fill is None and pieces:
            *pieces, last = pieces
            result = self.pull(term.children[last.operand], last.indices)
        else:
            result = number(None if found.fill is Fill.LOWEST else 0, dtype)
        for piece in reversed(pieces):
            result = choose(piece.guards, self.pull(term.children[piece.operand], piece.indices), result)
        return result


def _has_long_rows(term: Term) -> bool:
    """True for a softmax of rows that are longer than vectors: an element takes less time if rows are contiguous."""
    is_softmax = term.operator.name == "compute" and filler(term) is normalized and not is_sorting(term)
    return is_softmax and len(term.children[0].access.item) == 1 and term.children[0].access.item[0] >= _LONG_ROW


def _below_reshapes(term: Term) -> Term:
    """Returns the operand of the reshapes above a term that keep its rows."""
    while is_reshaped(term) or (
        term.operator.name == "access-reshape" and term.access.dims[-1:] == term.children[0].access.dims[-1:]
    ):
        (term,) = term.children
    return term
