"""Validates loops at sampled elements: compares what nests store with the elements of their terms.

For each nest, elements are sampled, at least one for each store statement. The loop steps that compute them are run
over residues modulo a prime, with random values for all operands (randomized polynomial identity testing). The results
are compared with elements of the terms, computed from operator records and layouts (`Layout`) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import thread_time

import numpy as np

from glenside.codegen.loop_ir.accesses import used_buffers
from glenside.codegen.loop_ir.bf16_split_matmul import PartPacking
from glenside.codegen.loop_ir.block_packing import OffsetPacking
from glenside.codegen.loop_ir.faults import Condition, Fault
from glenside.codegen.loop_ir.ir import Buffer, For, Layout, Loops, Nest, Packing, Role, Sort, Statement, Store, When
from glenside.codegen.loop_ir.pass_observer import OBSERVER
from glenside.codegen.scheduling.constant_packing import elements_at
from glenside.codegen.translation_validation.backward_slice import Demand
from glenside.codegen.translation_validation.buffer_values import Values, origin, source_places
from glenside.codegen.translation_validation.element_indices import NotSampled, flattened, unflattened
from glenside.codegen.translation_validation.nest_key import likeness
from glenside.codegen.translation_validation.nest_structure import PRIVATE, Structure
from glenside.codegen.translation_validation.run_slice import Run
from glenside.codegen.translation_validation.run_state import OutOfBounds
from glenside.codegen.translation_validation.sample_elements import elements
from glenside.codegen.translation_validation.term_elements import Meaning
from glenside.ir.operand import Array
from glenside.ir.operators.compute import name_of
from glenside.ir.term import Term, tensors
from glenside.ir.tuples import arrays_of
from glenside.ir.types import Tensor
from glenside.semantics.loop_field import LoopField

_GIVEN = (Role.INPUT, Role.CONSTANT)
_MAX_NAMED = 3
"""Skipped nests that the report names."""
_SAMPLES_PER_PACKING = 256
"""Elements of each packed constant that are compared."""
_SAMPLE_THINNING = 2
"""If all samples cost too much, one of this many is kept."""
_MIN_SAMPLES = 1
"""Number of samples that are always validated."""
_MAX_PRODUCTS = 1 << 16
"""Maximum cost of more than `_MIN_SAMPLES` samples of a nest: elements times steps of sums."""


@dataclass
class Validation:
    """The result of a validation.

    wrong    nests that store other elements than those of their terms, or results that differ from their declaration
    skipped  nests that were not sampled, with the reason
    alike    number of nests that are structurally equal to a sampled nest
    samples  number of elements compared
    """

    wrong: list[Fault] = field(default_factory=list)
    skipped: list[Fault] = field(default_factory=list)
    alike: int = 0
    samples: int = 0
    seconds: float = 0.0

    def plus(self, other: Validation) -> Validation:
        """Returns the validation of both."""
        wrong, skipped = [*self.wrong, *other.wrong], [*self.skipped, *other.skipped]
        seconds = self.seconds + other.seconds
        return Validation(wrong, skipped, self.alike + other.alike, self.samples + other.samples, seconds)

    def __str__(self) -> str:
        alike = f", {self.alike:,} nests are structurally equal to others" if self.alike else ""
        left = "; ".join(map(str, self.skipped[:_MAX_NAMED])) + ("; .." if len(self.skipped) > _MAX_NAMED else "")
        skipped = f"; {len(self.skipped):,} are not sampled: {left}" if self.skipped else ""
        return f"Verified: {self.samples:,} sampled elements equal the program's{alike}{skipped}."


def mismatches(
    loops: Loops, program: Term, constants: Mapping[str, Array], seconds: float | None = None, seed: int = 0
) -> Validation:
    """Compares samples of each nest with the terms of a program, for at most `seconds` of this thread."""
    began = thread_time()
    found = Validation()
    found.wrong += _results(loops, program)
    single = [leaf.attributes[0] for leaf in tensors(program) if leaf.access.dims.product() == 1]
    known = {one.name: constants[one.name] for one in single if isinstance(one, Tensor) and one.name in constants}
    run = None if found.wrong else _Validating(loops, program, Values(LoopField(), loops.packings, known), seed)
    for number, nest in enumerate(loops.nests if run is not None else ()):
        assert run is not None, "results are as declared"
        if nest.steps is not None:  # of a loop, whose body is compared by itself
            continue
        if seconds is not None and thread_time() - began > seconds:
            found.skipped.append(Fault(Condition.MEANING, "there was no time left to sample it", nest))
            continue
        try:
            found.wrong += [Fault(Condition.MEANING, said, nest) for said in run.nest(number, nest, found)]
        except NotSampled as error:
            found.skipped.append(Fault(Condition.MEANING, str(error), nest))
        except OutOfBounds as error:
            found.wrong.append(Fault(Condition.MEANING, str(error), nest))
        except Exception as error:  # a mistake of this validation, not of the loops: tests raise it
            if OBSERVER.get() is not None:
                raise
            found.skipped.append(Fault(Condition.MEANING, f"it was not sampled: {error!r}", nest))
    found.seconds = thread_time() - began
    return found


def packed_wrongly(
    packings: Iterable[Packing], packed: Mapping[Buffer, Array], constants: Mapping[str, Array]
) -> Iterator[Fault]:
    """Yields a fault for each packed constant that differs from its source at a sampled element."""
    for packing in packings:
        size = packing.buffer.dims.product()
        if packing.buffer.role is not Role.CONSTANT or not size:
            continue
        places = np.random.default_rng(size).integers(0, size, _SAMPLES_PER_PACKING)
        source, is_value = source_places(packing, places)
        got = elements_at(packing.buffer, packed[packing.buffer], places)
        want = constants[packing.source.name].reshape(-1)[np.where(is_value, source, 0)]
        want = packing.packed(want) if isinstance(packing, OffsetPacking) else want.astype(got.dtype)
        if not isinstance(packing, PartPacking) or packing.parts == 1:
            want = np.where(is_value, want, got.dtype.type(0))
        else:
            got, want = got[is_value], want[is_value]
        if got.tobytes() != want.tobytes():  # bitwise, because of nan
            yield Fault(Condition.MEANING, f"{packing.buffer} differs from the packing of {packing.source}")


def _results(loops: Loops, program: Term) -> Iterator[Fault]:
    """Yields a fault if the number, dims or dtypes of the result buffers differ from the program's."""
    wanted = arrays_of(program)
    if len(wanted) != len(loops.results):
        yield Fault(Condition.MEANING, f"{len(loops.results)} results, where the program has {len(wanted)}")
    for term, buffer in zip(wanted, loops.results, strict=False):
        if tuple(buffer.dims) != tuple(term.access.dims) or buffer.dtype != term.access.dtype:
            said = f"{buffer} has dims {buffer.dims} of {buffer.dtype}, where the result is {term.access}"
            yield Fault(Condition.MEANING, said)


class _Validating:
    """The validation of the nests of one program, one after the other.

    first  origin of a buffer -> the first nest that writes it
    lies   term -> its layout
    held   origin of a buffer -> layouts of the terms stored in it
    """

    def __init__(self, loops: Loops, program: Term, values: Values, seed: int) -> None:
        self.loops, self.values, self.seed = loops, values, seed
        self.results = arrays_of(program)
        self.written = [dict.fromkeys(b for b in _filled(nest.body) if b.role not in PRIVATE) for nest in loops.nests]
        self.first: dict[str, int] = {}
        for number, buffers in enumerate(self.written):
            for buffer in buffers:
                self.first.setdefault(origin(buffer), number)
        self.seen: set[Hashable] = set()
        self.lies: dict[Term, Layout] = {}
        self.held: dict[str, list[Layout]] = {}
        declared = [_in_order(term, buffer) for term, buffer in zip(self.results, loops.results, strict=True)]
        for layout in declared:
            if layout.term.operator.name != "access-tensor":
                self.lies[layout.term] = layout
            self.held[origin(layout.buffer)] = [layout]
        for layout in loops.layouts:
            if not layout.copy:
                self.lies.setdefault(layout.term, layout)
            if layout.buffer.role is not Role.RESULT:
                self.held.setdefault(origin(layout.buffer), []).append(layout)

    def nest(self, number: int, nest: Nest, report: Validation) -> Iterator[str]:
        """Yields the faults of the samples of a nest."""
        written = self.written[number]
        held = {buffer: self._layouts_in(buffer, nest) for buffer in written}
        key = likeness(
            nest,
            [layout for own in held.values() for layout in own],
            self.lies,
            lambda buffer: buffer not in written and self.first.get(origin(buffer), -1) < number,
            self.values,
        )
        if key in self.seen:
            report.alike += 1
            return
        self.seen.add(key)
        structure = Structure(nest.body)
        wanted = elements(structure, np.random.default_rng([self.seed, number]))
        while wanted:
            try:
                yield from self._sampled(number, nest, structure, wanted, held, report)
                return
            except NotSampled:
                if len(wanted) == 1:
                    raise
            wanted = wanted[::_SAMPLE_THINNING]

    def _sampled(
        self,
        number: int,
        nest: Nest,
        structure: Structure,
        wanted: Sequence[tuple[Buffer, int]],
        held: Mapping[Buffer, Sequence[Layout]],
        report: Validation,
    ) -> Iterator[str]:
        places = {buffer: [place for b, place in wanted if b is buffer] for buffer, _ in wanted}
        sample = {buffer: np.array([i for i, (b, _) in enumerate(wanted) if b is buffer]) for buffer in places}
        of = {buffer: (sample[buffer], np.array(own)) for buffer, own in places.items()}
        demand = Demand(structure, len(wanted), of)
        if demand.products > _MAX_PRODUCTS and len(wanted) > _MIN_SAMPLES:
            raise NotSampled(f"{demand.products:,} products")
        run, meaning = Run(self.values, demand), Meaning(self.values, self._stored(number, of))
        again = Meaning(self.values, self._stored(number, of, self._buffers_read(nest)))
        for buffer, (samples, at) in of.items():
            got, known = run.result(buffer, samples, at)
            report.samples += int(known.sum())
            wrong = list(self._differences(buffer, at, held[buffer], known, got, meaning))
            if wrong:  # the nest may recompute a term that is stored, instead of reading it
                with suppress(NotSampled):
                    wrong = list(self._differences(buffer, at, held[buffer], known, got, again))
            yield from wrong
            if not known.all():
                lost = f"{int((~known).sum())} of {known.size} samples of {buffer} are not known"
                report.skipped.append(Fault(Condition.MEANING, lost, nest))

    def _differences(
        self, buffer: Buffer, at: Array, held: Sequence[Layout], known: Array, got: Array, meaning: Meaning
    ) -> Iterator[str]:
        """Yields a sentence for each term whose elements differ from the samples of a buffer; `at`: their indices."""
        for what, own, want in self._expected(buffer, at, held, known, meaning):
            wrong = np.flatnonzero(want != got[own])
            if wrong.size:
                count = f"{wrong.size} of {own.size} samples"
                yield f"{buffer}[{int(at[own[wrong[0]]])}] is not the element of {what} that is stored there ({count})"

    def _buffers_read(self, nest: Nest) -> set[str]:
        """Returns the origins of the buffers that a nest uses, and of the sources of packed ones."""
        found = {origin(buffer) for buffer in used_buffers(nest.body)}
        return found | {origin(self.values.packings[name].source) for name in found & self.values.packings.keys()}

    def _layouts_in(self, buffer: Buffer, nest: Nest) -> list[Layout]:
        """Returns the layouts of the terms that a nest stores in a buffer, the smallest first."""
        found = self.held.get(origin(buffer), [])
        if buffer.role is not Role.RESULT:
            found = [layout for layout in found if layout.term in nest.terms]
        return sorted(found, key=lambda layout: layout.dims.product())

    def _expected(
        self, buffer: Buffer, places: Array, held: Sequence[Layout], known: Array, meaning: Meaning
    ) -> Iterator[tuple[str, Array, Array]]:
        """Yields the expected elements: the name of a term, positions in `places`, and its elements there."""
        left = known.copy()
        if origin(buffer) in self.values.packings:
            yield "what is packed", np.flatnonzero(left), self.values.at(buffer, places[left])
            return
        for layout in held:
            inside, at = _element(layout, places)
            own = np.flatnonzero(left & inside)
            if own.size:
                left[own] = False
                read = meaning.made if self.lies.get(layout.term) is layout else meaning.at
                want = read(layout.term, tuple(index[own] for index in at))
                yield name_of(layout.term), own, np.broadcast_to(np.asarray(want), own.shape)
        if left.any():
            raise OutOfBounds(f"no term is stored at {buffer}[{int(places[np.argmax(left)])}]")

    def _stored(
        self, number: int, wanted: Mapping[Buffer, tuple[Array, Array]], read: Container[str] | None = None
    ) -> Callable[[Term], Layout | None]:
        """Returns a function: term -> its layout if it is stored before a nest runs, else None.

        None also for terms that the nest stores itself, and for terms outside of the buffers `read`, if given.
        """
        places = {origin(buffer): at for buffer, (_, at) in wanted.items()}

        def stored(term: Term) -> Layout | None:
            layout = self.lies.get(term)
            if layout is None or layout.buffer.role in _GIVEN:
                return layout
            buffer = origin(layout.buffer)
            if buffer in places and _element(layout, places[buffer])[0].any():  # the nest stores part of it
                return None
            if read is not None and buffer not in read:
                return None
            return layout if self.first.get(buffer, number) < number else None

        return stored


def _filled(body: Sequence[Statement]) -> Iterator[Buffer]:
    """Yields the buffers that statements store to."""
    for statement in body:
        if isinstance(statement, For | When):
            yield from _filled(statement.body)
        elif isinstance(statement, Store):
            yield statement.buffer
        elif isinstance(statement, Sort):
            yield statement.positions


def _in_order(term: Term, buffer: Buffer) -> Layout:
    """Returns the layout of a result in row-major order."""
    dims = term.access.dims
    return Layout(term, buffer, dims, (0,) * len(dims), tuple(range(len(dims))), dims)


def _element(layout: Layout, places: Array) -> tuple[Array, tuple[Array, ...]]:
    """Maps indices of a buffer to a term: a mask of those that hold its elements, and the indices of the elements."""
    along = unflattened(places, layout.sizes)
    inside = np.ones(places.shape, bool)
    own: list[Array] = [places] * len(layout.dims)
    for index, axis in zip(along, layout.axis_order, strict=True):
        own[axis] = index - layout.offsets[axis]
        inside &= (own[axis] >= 0) & (own[axis] < layout.dims[axis])
    dims = layout.term.access.dims
    if layout.dims != dims:
        own = list(unflattened(flattened(own, layout.dims), dims))
    return inside, tuple(own)
