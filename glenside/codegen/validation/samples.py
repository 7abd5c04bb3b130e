"""Translation validation of loops at sampled elements: what nests store is what the terms are that they compute.

Of each nest some elements are drawn, at least one for each statement that stores; the steps that make them are run over
residues modulo a prime, with drawn values of all that the nest reads (randomized polynomial identity testing), and
compared with the terms' own elements, computed from operator records and from where terms lie (`Layout`) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from glenside.codegen.loops import Buffer, Layout, Loops, Nest, Number, Role, Sort, Store
from glenside.codegen.validation.demand import Demand
from glenside.codegen.validation.elements import OutOfBounds
from glenside.codegen.validation.meaning import Meaning, NotSampled, flattened, unflattened
from glenside.codegen.validation.run import Run
from glenside.codegen.validation.structure import PRIVATE, Node, Structure, axes_of
from glenside.codegen.validation.values import Values, origin
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.ir.types import TupleType
from glenside.semantics.loop_field import LoopField

_GIVEN = (Role.INPUT, Role.CONSTANT)
_SAMPLES = 24
"""Elements of a nest that are drawn, where it has few statements that store."""
_MOST_SAMPLES = 64
_OF_STORE = 6
_PRODUCTS = 1 << 17
"""Steps of loops that sums take, of all samples together, from which on fewer are drawn."""


@dataclass
class Validation:
    """What was found.

    wrong    sentences, each of a nest that stores something else than its term, or of a result in other places
    skipped  nests that were not sampled, and why
    samples  elements that were compared
    """

    wrong: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    samples: int = 0
    seconds: float = 0.0


def mismatches(
    loops: Loops, program: Term, constants: Mapping[str, Array], seconds: float | None = None, seed: int = 0
) -> Validation:
    """Samples of each nest of loops against the terms of a program, for at most so many seconds."""
    began = perf_counter()
    found = Validation()
    found.wrong += _results(loops, program)
    if found.wrong:
        return found
    run = _Validating(loops, program, Values(LoopField(), loops.packings, constants), seed)
    for number, nest in enumerate(loops.nests):
        if seconds is not None and perf_counter() - began > seconds:
            found.skipped.append(f"{nest.buffer} ({nest.what}): there was no time left")
            continue
        try:
            found.wrong += run.nest(number, nest, found)
        except NotSampled as error:
            found.skipped.append(f"{nest.buffer} ({nest.what}): {error}")
        except OutOfBounds as error:
            found.wrong.append(f"{nest.buffer} ({nest.what}): {error}")
    found.seconds = perf_counter() - began
    return found


def _results(loops: Loops, program: Term) -> Iterator[str]:
    """What is wrong with the buffers of results: how many there are, and what they are declared to be."""
    wanted = list(_flat(program))
    if len(wanted) != len(loops.results):
        yield f"{len(loops.results)} results, where the program has {len(wanted)}"
    for term, buffer in zip(wanted, loops.results, strict=False):
        if tuple(buffer.dims) != tuple(term.access.dims) or buffer.dtype != term.access.dtype:
            yield f"{buffer} has dims {buffer.dims} of {buffer.dtype}, where the result is {term.access}"


def _flat(term: Term) -> Iterator[Term]:
    """The arrays that a program gives, from left to right."""
    if isinstance(term.type, TupleType):
        if term.operator.name == "tuple-get-item":
            yield from _flat(_picked(term))
            return
        for child in term.children:
            yield from _flat(child)
    else:
        yield _picked(term)


def _picked(term: Term) -> Term:
    while term.operator.name == "tuple-get-item" and term.children[0].operator.name == "construct-tuple":
        (number,) = term.attributes
        assert isinstance(number, int), "a place in a tuple is a number"
        term = term.children[0].children[number]
    return term


class _Validating:
    """Samples of the nests of one program, one after the other.

    first  buffer, by its origin -> the first nest that writes it
    lies   term -> where it lies; `held` buffer -> what lies in it
    """

    def __init__(self, loops: Loops, program: Term, values: Values, seed: int) -> None:
        self.loops, self.values, self.seed = loops, values, seed
        self.results = list(_flat(program))
        self.structures = [Structure(nest.body) for nest in loops.nests]
        self.first: dict[str, int] = {}
        for number, structure in enumerate(self.structures):
            for buffer in structure.written:
                self.first.setdefault(origin(buffer), number)
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
        """What is wrong with the samples of a nest."""
        structure = self.structures[number]
        drawn = np.random.default_rng([self.seed, number])
        wanted = _elements(structure, drawn)
        if not wanted:
            return
        buffers = list(dict.fromkeys(buffer for buffer, _ in wanted))
        of = {
            buffer: (
                np.array([i for i, (b, _) in enumerate(wanted) if b is buffer]),
                np.array([place for b, place in wanted if b is buffer]),
            )
            for buffer in buffers
        }
        run = Run(self.values, Demand(structure, len(wanted), of))
        meaning = Meaning(self.values, self._stored(number, of))
        for buffer, (sample, places) in of.items():
            got, known = run.result(buffer, sample, places)
            for layout, own, at in self._terms(buffer, places, nest, known):
                want = self.values.at(buffer, places[own]) if layout is None else self._element(meaning, layout, at)
                report.samples += own.size
                wrong = np.flatnonzero(np.broadcast_to(np.asarray(want), own.shape) != got[own])
                if wrong.size:
                    place = int(places[own[wrong[0]]])
                    what = "what is packed" if layout is None else layout.term.operator.name
                    yield (
                        f"{nest.buffer} ({nest.what}): {buffer}[{place}] is not the element of {what} that lies there"
                        f" ({wrong.size} of {own.size} samples)"
                    )
            if not known.all():
                lost = f"{int((~known).sum())} of {known.size} samples of {buffer} are not known"
                report.skipped.append(f"{nest.buffer} ({nest.what}): {lost}")

    def _element(self, meaning: Meaning, layout: Layout, at: tuple[Array, ...]) -> Array:
        """Elements of a term, computed where they are stored, or read where they lie already."""
        return (meaning.made if self.lies.get(layout.term) is layout else meaning.at)(layout.term, at)

    def _stored(self, number: int, wanted: Mapping[Buffer, tuple[Array, Array]]) -> Callable[[Term], Layout | None]:
        """What tells where a term lies before a nest runs; None where it does not, as of those that the nest stores."""
        places = {origin(buffer): at for buffer, (_, at) in wanted.items()}

        def stored(term: Term) -> Layout | None:
            layout = self.lies.get(term)
            if layout is None or layout.buffer.role in _GIVEN:
                return layout
            buffer = origin(layout.buffer)
            if buffer in places and _element(layout, places[buffer])[0].any():  # it makes some of it
                return None
            return layout if self.first.get(buffer, number) < number else None

        return stored

    def _terms(
        self, buffer: Buffer, places: Array, nest: Nest, known: Array
    ) -> Iterator[tuple[Layout | None, Array, tuple[Array, ...]]]:
        """Which terms are to lie at places, for which of these, and which of their elements; None of what is packed."""
        left = known.copy()
        if origin(buffer) in self.values.packings:
            yield None, np.flatnonzero(left), ()
            return
        terms, held = {*nest.terms}, self.held.get(origin(buffer), [])
        if buffer.role is not Role.RESULT:
            held = [layout for layout in held if layout.term in terms]
        for layout in sorted(held, key=lambda layout: layout.dims.product()):
            inside, at = _element(layout, places)
            own = np.flatnonzero(left & inside)
            if own.size:
                left[own] = False
                yield layout, own, tuple(index[own] for index in at)
        if left.any():
            raise OutOfBounds(f"no term lies at {buffer}[{int(places[np.argmax(left)])}]")


def _in_order(term: Term, buffer: Buffer) -> Layout:
    """A result in row-major order."""
    dims = term.access.dims
    return Layout(term, buffer, dims, (0,) * len(dims), tuple(range(len(dims))), dims)


def _element(layout: Layout, places: Array) -> tuple[Array, tuple[Array, ...]]:
    """Whether places of a buffer are those of elements of a term, and of which."""
    along = unflattened(places, layout.sizes)
    inside = np.ones(places.shape, bool)
    own: list[Array] = [places] * len(layout.dims)
    for index, axis in zip(along, layout.order, strict=True):
        own[axis] = index - layout.offsets[axis]
        inside &= (own[axis] >= 0) & (own[axis] < layout.dims[axis])
    dims = layout.term.access.dims
    if layout.dims != dims:
        own = list(unflattened(flattened(own, layout.dims), dims))
    return inside, tuple(own)


def _elements(structure: Structure, drawn: np.random.Generator) -> list[tuple[Buffer, int]]:
    """Elements that a nest stores, drawn: at least one for each statement that does."""
    stores = [node for node in structure.every if _target(node) is not None]
    stores = [node for node in stores if all(loop.axis.size for loop in node.loops)]
    if not stores:
        return []
    deep = max((_products(node) for node in structure.every if isinstance(node.statement, Store)), default=1)
    most = min(_SAMPLES, max(4, _PRODUCTS // deep))
    if len(stores) > _MOST_SAMPLES:
        stores = [stores[i] for i in sorted(drawn.choice(len(stores), _MOST_SAMPLES, replace=False))]
    computed = [node for node in stores if not _is_constant(node)]
    each = max(1, min(_OF_STORE, most // max(1, len(computed))))
    found: dict[tuple[Buffer, int], None] = {}
    for node in stores:
        found |= dict.fromkeys(_of_store(node, structure, each if node in computed else 1, drawn))
    return list(found)


def _is_constant(node: Node) -> bool:
    return isinstance(node.statement, Store) and isinstance(node.statement.formula, Number)


def _target(node: Node) -> Buffer | None:
    statement = node.statement
    if isinstance(statement, Store):
        return statement.buffer if statement.buffer.role not in PRIVATE else None
    return statement.positions if isinstance(statement, Sort) else None


def _products(node: Node) -> int:
    """Steps of loops that do not count where a statement stores."""
    statement = node.statement
    assert isinstance(statement, Store), "it stores"
    numbers = {axis.number for axis in axes_of(statement.place)}
    return int(np.prod([loop.axis.size for loop in node.loops if loop.axis.number not in numbers] or [1]))


def _of_store(node: Node, structure: Structure, each: int, drawn: np.random.Generator) -> Iterator[tuple[Buffer, int]]:
    """Places at which a statement stores: at ends of loops, and anywhere."""
    statement = node.statement
    assert isinstance(statement, Store | Sort), "it stores"
    buffer = _target(node)
    assert buffer is not None, "it stores"
    tries = 4 * each + 8
    counters: dict[int, Array] = {}
    for loop in node.loops:
        n = loop.axis.size
        steps, ends = drawn.integers(0, n, tries), drawn.random(tries)
        steps = np.where(ends < 0.2, 0, np.where(ends < 0.45, n - 1, steps))
        if each > 2:
            steps[1], steps[2] = n - 1, 0
        counters[loop.axis.number] = steps
    held = np.ones(tries, bool)
    for guard in node.guards:
        held &= np.broadcast_to(guard.evaluate(counters), tries)  # type: ignore[arg-type]
    place = np.broadcast_to(np.asarray(statement.place.evaluate(counters), np.int64), tries).copy()  # type: ignore[arg-type]
    if isinstance(statement, Sort):
        place += drawn.integers(0, max(1, statement.count), tries)
    else:
        for local, step in statement.picked:
            place += drawn.integers(0, structure.sizes.get(local.name, 1), tries) * step
    held &= (place >= 0) & (place < buffer.dims.product())
    for at in np.flatnonzero(held)[:each]:
        yield buffer, int(place[at])
