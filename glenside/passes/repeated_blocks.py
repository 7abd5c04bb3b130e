"""Cuts a program into stages, many of which are one program with other weights: the blocks of a deep network.

A *cut* is a term on every path from an input to the deepest result: all that later terms know of this input is in it.
Between cuts are segments. The longest repeated run of structurally equal segments is a chain of blocks; what is before
and after it is searched in the same way. Values that several stages read, and that are no weights, such as sines of
positions, are results of the first stage. Putting the stages together gives the terms of the program, which is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from glenside.builder.builder import Again, LazyArrays, Value
from glenside.builder.layout import split_at
from glenside.ir.operand import Array
from glenside.ir.program import Program, Signature, entry_of
from glenside.ir.term import Term, build, constants_under, postorder, rebuild_all, tensors
from glenside.ir.tuples import arrays_of
from glenside.ir.types import Tensor
from glenside.passes.element_functions import operands_of

_LEAST_BLOCKS = 3
"""The fewest repetitions that are a chain of blocks."""
_LEAST_SHARE = 0.2
"""The least share of a program's terms that blocks have after their first one."""
_MOST_INPUTS = 4
"""The inputs from which blocks are looked for."""
_PRIME = (1 << 61) - 1
"""Numbers of paths are counted modulo this prime."""


@dataclass(frozen=True)
class Stage:
    """A part of a program.

    program   its results are those of the stage; blocks name their tensors alike
    kind      stages of one kind have equal terms
    operands  name of each tensor -> the name of the program's tensor, or the number of a value of an earlier stage
    results   for each result, its numbers among the results of the whole program
    values    for each result, its number among the values that later stages read, or None
    """

    program: Program
    kind: int
    operands: Mapping[str, str | int]
    results: tuple[tuple[int, ...], ...]
    values: tuple[int | None, ...]

    @property
    def wiring(self) -> tuple[object, ...]:
        """The kind, operands, results and values, which must be the same at all sizes."""
        return self.kind, tuple(self.operands.items()), self.results, self.values


@dataclass(frozen=True)
class Cut:
    """The cuts of a program, each given by the tensors under it, and the kinds of the stages between them.

    source   the input from which all paths go through the cuts
    result   the number of the result to which they go
    reads    for each cut, the names of the tensors under it
    kinds    of the stages between the cuts
    varying  constants whose dims depend on the sizes
    """

    source: str
    result: int
    reads: tuple[frozenset[str], ...]
    kinds: tuple[int, ...]
    varying: frozenset[str]

    def stages(self, program: Program) -> list[Stage] | None:
        """Returns the stages of a program, which may have other sizes; None if it is not cut there."""
        return _Graph(program, self.varying).stages(self)


def repeated_blocks(program: Program, varying: Collection[str] = ()) -> Cut | None:
    """Returns where a program is cut into repeated blocks; None if it has none.

    varying  constants whose dims depend on the sizes of the program
    """
    return _Graph(program, frozenset(varying)).cut()


def _renamed_arrays(whole: Mapping[str, Array], names: Mapping[str, str]) -> LazyArrays:
    """Returns arrays under other names, name -> the name in the other mapping; they are read from it on demand."""
    known = {name: other for name, other in names.items() if other in whole}
    entries: dict[str, Value] = {
        name: Again(partial(whole.__getitem__, other), entry_of(whole, other)) for name, other in known.items()
    }
    return LazyArrays(entries, lambda _, array: array)


class _Graph:
    """The terms of a program, and what they depend on."""

    def __init__(self, program: Program, varying: frozenset[str]) -> None:
        self.program, self.varying = program, varying
        self.results = arrays_of(program.term)
        self.order = list(postorder(*self.results))
        self.is_constant = constants_under(*self.results)
        self.inputs = {_name(leaf): leaf for leaf in tensors(*self.results) if not self.is_constant[leaf]}

    @cached_property
    def reads(self) -> dict[Term, int]:
        """The tensors under each term, as bits."""
        found: dict[Term, int] = {}
        for term in self.order:
            own = 1 << self.numbers[_name(term)] if term.operator.name == "access-tensor" else 0
            for child in term.children:
                own |= found[child]
            found[term] = own
        return found

    @cached_property
    def numbers(self) -> dict[str, int]:
        names = dict.fromkeys(_name(leaf) for leaf in self.order if leaf.operator.name == "access-tensor")
        return {name: number for number, name in enumerate(names)}

    def named(self, bits: int) -> frozenset[str]:
        """Returns the names of tensors given as bits."""
        return frozenset(name for name, number in self.numbers.items() if bits >> number & 1)

    def cuts(self, source: Term, target: Term) -> list[Term]:
        """Returns the terms on every path from a term to another, from the first to the last."""
        before, after = {source: 1}, {target: 1}
        for term in self.order:
            if term is not source and (own := sum(before.get(child, 0) for child in term.children)):
                before[term] = own % _PRIME
        if target not in before:
            return []
        for term in reversed(self.order):
            if (own := after.get(term, 0)) and term in before:
                for child in term.children:
                    after[child] = (after.get(child, 0) + own) % _PRIME
        found = [t for t in self.order if t in before and before[t] * after.get(t, 0) % _PRIME == before[target]]
        return [t for t in found if t in (source, target) or not t.operator.is_addressed]

    def cut(self) -> Cut | None:
        """Finds the chains of blocks, from the first of `_first_inputs` that has some."""
        depth: dict[Term, int] = {}
        for term in self.order:
            depth[term] = 1 + max((depth[child] for child in term.children), default=0)
        number = max(range(len(self.results)), key=lambda i: depth[self.results[i]])
        return next(filter(None, (self._cut_from(leaf, number) for leaf in self._first_inputs())), None)

    def _cut_from(self, source: Term, number: int) -> Cut | None:
        """Returns where the paths from an input to a result are cut."""
        terms = self.cuts(source, self.results[number])
        if len(terms) <= _LEAST_BLOCKS:
            return None
        ends, kinds = _Segments(self, terms).stages()
        if len(set(kinds)) == len(kinds):
            return None
        own = tuple(self.named(self.reads[terms[end]]) for end in ends)
        made = Cut(_name(terms[0]), number, own, kinds, self.varying)
        return None if self.stages(made) is None else made

    def _first_inputs(self) -> list[Term]:
        """Returns the inputs on which most terms depend: that of the first block, or one that all blocks read."""
        depending = Counter[str]()
        for term in self.order:
            for name in self.inputs:
                depending[name] += self.reads[term] >> self.numbers[name] & 1
        return [self.inputs[name] for name, _ in depending.most_common(_MOST_INPUTS)]

    def stages(self, cut: Cut) -> list[Stage] | None:
        """Returns the stages between the cuts."""
        if cut.source not in self.inputs or cut.result >= len(self.results):
            return None
        terms = self.cuts(self.inputs[cut.source], self.results[cut.result])
        known: dict[frozenset[str], Term] = {}
        for term in terms:
            known.setdefault(self.named(self.reads[term]), term)
        if any(reads not in known for reads in cut.reads[:-1]):
            return None
        ends = [known[reads] for reads in cut.reads[:-1]] + terms[-1:]
        return _Stages(self, _Segments(self, [terms[0], *ends]), cut).made()


class _Segments:
    """The terms between cuts: segment i leads from cut i to the next one.

    at      term -> its segment, for terms that depend on the first cut
    used    other term -> the segments that read it
    shared  those of these that are values which several segments read, in the order of their first use
    """

    def __init__(self, graph: _Graph, cuts: Sequence[Term]) -> None:
        self.graph, self.cuts = graph, cuts
        number = {term: i for i, term in enumerate(cuts)}
        level: dict[Term, int] = {}
        self.at: dict[Term, int] = {}
        for term in graph.order:
            own = max((level[child] for child in term.children), default=-1)
            if term in number:
                level[term], self.at[term] = number[term], max(number[term] - 1, 0)
            else:
                level[term] = own
                if own >= 0:
                    self.at[term] = own
        self.used: dict[Term, set[int]] = {}
        for term in reversed(graph.order):
            own_segments = {self.at[term]} if term in self.at else self.used.get(term, set())
            for child in term.children:
                if child not in self.at:
                    self.used.setdefault(child, set()).update(own_segments)
        self.shared = self._shared()

    def _shared(self) -> dict[Term, int]:
        stored, inputs, found = self._stored(), {*self.graph.inputs.values()}, dict[Term, int]()
        for term in self.graph.order:
            segments = {self.at[term]} if term in self.at else self.used.get(term, set())
            if len(segments) != 1:
                continue
            for child in term.children:
                if len(self.used.get(child, ())) > 1:
                    for value in stored[child]:
                        if value not in inputs:
                            found.setdefault(value, len(found))
        return found

    def _stored(self) -> dict[Term, dict[Term, None]]:
        """Returns the values that are stored for a term which several segments read. Each segment computes the rest:
        what moves elements, is cheap and larger than its operands, or depends on constants alone.
        """
        graph, found = self.graph, dict[Term, dict[Term, None]]()
        for term in graph.order:
            if term in self.at:
                continue
            if term.operator.name == "access-tensor":
                is_weight = graph.is_constant[term] and _name(term) not in graph.varying
                found[term] = {} if is_weight else {term: None}
                continue
            below = {value: None for child in term.children for value in found[child]}
            read, own = sum(value.access.size for value in below), term.access.size
            is_elementwise = term.operator.name == "compute" and operands_of(term) is not None
            computed = (term.operator.moves and read <= own) or (is_elementwise and 2 * read <= own)
            found[term] = below if computed or not below else {term: None}
        return found

    def stages(self) -> tuple[list[int], tuple[int, ...]]:
        """Returns the cuts at which stages end, and the kinds of the stages: repeated blocks have one kind."""
        keys = self._keys()
        weights = [0] * len(keys)
        for own in self.at.values():
            weights[min(own, len(keys) - 1)] += 1
        least = _LEAST_SHARE * sum(weights)
        runs = list(_runs(keys, weights, 0, len(keys), least))
        ends, kinds, kind = list[int](), list[int](), 0
        begin, unread = 0, len(self.graph.program.inputs) > len(self.graph.inputs)
        for first, period, count in sorted(runs):
            if not first and (self.shared or unread):  # these are of the first stage alone
                first, count = first + period, count - 1
            if first > begin:
                ends.append(first)
                kinds.append(kind := kind + 1)
            kind += 1
            for block in range(count):
                ends.append(first + (block + 1) * period)
                kinds.append(kind)
            begin = first + count * period
        if begin < len(keys):
            ends.append(len(keys))
            kinds.append(kind + 1)
        return ends, tuple(kinds)

    def _keys(self) -> list[int]:
        """Returns for each segment the number of its structure, in which tensors have no names."""
        known: dict[object, int] = {}
        found: dict[Term, int] = {}
        inner = [*self.cuts[1:-1]]
        ends = {term: i for i, term in enumerate(self.cuts)}
        for term in self.graph.order:
            own: object
            if term in self.shared:
                own = "shared", self.shared[term]
            elif term.operator.name == "access-tensor":
                (tensor,) = term.attributes
                assert isinstance(tensor, Tensor)
                own = tensor.dims, tensor.dtype, tensor.constant, self._number(tensor)
            else:
                children = tuple("cut" if self._enters(term, c, ends) else found[c] for c in term.children)
                own = term.operator.name, term.attributes, children
            found[term] = known.setdefault(own, len(known))
        outer: dict[int, list[int]] = {}
        for term in self.graph.results:
            if term in self.at and term not in inner:
                outer.setdefault(self.at[term], []).append(found[term])
        keys = []
        for number, (begin, end) in enumerate(zip(self.cuts, self.cuts[1:], strict=False)):
            kind = begin.access.dims, begin.access.dtype, begin.access.split
            key = (found[end], kind, tuple(outer.get(number, ())), end in self.graph.results)
            keys.append(known.setdefault(key, len(known)))
        return keys

    def _number(self, tensor: Tensor) -> bytes:
        """Returns the value of a constant of one element, which is compiled into the code."""
        constants = self.graph.program.constants
        is_number = tensor.constant and tensor.dims.product() == 1 and tensor.name in constants
        return constants[tensor.name].tobytes() if is_number else b""

    def _enters(self, term: Term, child: Term, ends: Mapping[Term, int]) -> bool:
        """True if a child is the cut with which the segment of a term begins."""
        return child in ends and term in self.at and ends[child] == self.at[term]


def _runs(
    keys: Sequence[int], weights: Sequence[int], begin: int, end: int, least: float
) -> Iterator[tuple[int, int, int]]:
    """Yields (first segment, segments of a block, blocks) of repeated runs between two cuts, each the best one left."""
    best: tuple[int, int, int, int] | None = None
    for period in range(1, (end - begin) // _LEAST_BLOCKS + 1):
        first = begin
        while first + period < end:
            same = 0
            while first + same + period < end and keys[first + same] == keys[first + same + period]:
                same += 1
            count = same // period + 1
            saved = sum(weights[first + period : first + count * period])
            if count >= _LEAST_BLOCKS and saved >= least and (best is None or saved > best[0]):
                best = saved, first, period, count
            first += same + 1
    if best is None:
        return
    _, first, period, count = best
    yield first, period, count
    yield from _runs(keys, weights, begin, first, least)
    yield from _runs(keys, weights, first + period * count, end, least)


class _Stages:
    """Makes the programs of stages."""

    def __init__(self, graph: _Graph, segments: _Segments, cut: Cut) -> None:
        self.graph, self.segments, self.cut = graph, segments, cut
        self.values: dict[Term, int] = {term: number for term, number in segments.shared.items()}
        for term in segments.cuts[1:-1]:
            self.values.setdefault(term, len(self.values))
        self.whole: dict[int, Term] = {number: term for term, number in self.values.items()}

    def made(self) -> list[Stage] | None:
        """Returns the stages, or None if they are not those of the cut."""
        results: dict[Term, list[int]] = {}
        for number, term in enumerate(self.graph.results):
            results.setdefault(term, []).append(number)
        count = len(self.cut.kinds)
        roots: list[list[Term]] = [[] for _ in range(count)]
        roots[0] += self.segments.shared
        for number, term in enumerate(self.segments.cuts[1:-1]):
            roots[number].append(term)
        for term in results:
            at = min(self.segments.at.get(term, 0), count - 1)
            if term not in roots[at]:
                roots[at].append(term)
        found: list[Stage] = []
        repeated = {kind for kind in self.cut.kinds if self.cut.kinds.count(kind) > 1}
        for number, kind in enumerate(self.cut.kinds):
            stage = self._stage(number, kind, roots[number], results, kind in repeated)
            if stage is None or not self._is_whole(stage, roots[number]):
                return None
            found.append(stage)
        first = {stage.kind: stage for stage in reversed(found)}
        return found if all(stage.program.term is first[stage.kind].program.term for stage in found) else None

    def _stage(
        self, number: int, kind: int, roots: Sequence[Term], results: Mapping[Term, Sequence[int]], is_block: bool
    ) -> Stage | None:
        taken = {*self.graph.numbers}
        holes: dict[Term, Term] = {}
        operands: dict[str, str | int] = {}
        for term, value in self.values.items() if number else ():
            if value in range(len(self.segments.shared)) or term is self.segments.cuts[number]:
                name = f"value.{value if term in self.segments.shared else 'x'}"
                while not is_block and name in taken:
                    name += "'"
                tensor = Tensor(name, term.access.dims, term.access.dtype)
                holes[term] = split_at(build("access-tensor", tensor), term.access.split)
                operands[name] = value
        if is_block and not number:  # the input itself is what other blocks get from the one before
            source = self.segments.cuts[0]
            holes[source] = build("access-tensor", Tensor("value.x", source.access.dims, source.access.dtype))
            operands["value.x"] = self.cut.source
        if any(0 <= self.segments.at.get(term, number) < number for term in postorder(*roots, without=holes)):
            return None
        names: dict[str, str] = {}

        def renamed(term: Term, _: tuple[Term, ...]) -> Term | None:
            if term.operator.name != "access-tensor":
                return None
            (tensor,) = term.attributes
            assert isinstance(tensor, Tensor)
            name = f"{'weight' if tensor.constant else 'input'}.{len(names)}" if is_block else tensor.name
            names[name] = tensor.name
            return build("access-tensor", replace(tensor, name=name)) if is_block else None

        own = rebuild_all(roots, renamed, dict(holes))
        read = {_name(leaf) for leaf in tensors(*own)}
        operands = {**{name: value for name, value in operands.items() if name in read}, **names}
        term = build("construct-tuple", *own) if len(own) != 1 else own[0]
        whole = self.graph.program
        inputs = () if is_block or number else tuple(t for t in whole.signature.inputs if not t.constant)
        unread = [t for t in inputs if t.name not in self.graph.inputs or t.name in read]
        program = Program(
            term,
            f"{whole.name}.{'block' if is_block else 'part'}{kind}",
            constants=_renamed_arrays(whole.constants, names),
            signature=Signature(inputs=tuple(unread)),
        )
        if number == 0:
            operands |= {t.name: t.name for t in unread}
        return Stage(
            program,
            kind,
            operands,
            tuple(tuple(results.get(root, ())) for root in roots),
            tuple(self.values.get(root) for root in roots),
        )

    def _is_whole(self, stage: Stage, roots: Sequence[Term]) -> bool:
        """True if a stage with the operands of the program has the terms of the program."""

        def put_back(term: Term, _: tuple[Term, ...]) -> Term | None:
            if term.operator.name != "access-tensor":
                return None
            (tensor,) = term.attributes
            assert isinstance(tensor, Tensor)
            of = stage.operands[tensor.name]
            if isinstance(of, int):
                return None
            return build("access-tensor", replace(tensor, name=of))

        done: dict[Term, Term] = {}
        for leaf in tensors(stage.program.term):
            of = stage.operands[_name(leaf)]
            if isinstance(of, int):
                term = self.whole[of]
                done[split_at(leaf, term.access.split)] = term
        items = list(stage.program.term.children) if len(roots) != 1 else [stage.program.term]
        return rebuild_all(items, put_back, done) == [*roots]


def _name(leaf: Term) -> str:
    (tensor,) = leaf.attributes
    assert isinstance(tensor, Tensor)
    return tensor.name
