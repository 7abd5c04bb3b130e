"""A plain processor with a memory budget: what counts is how much is computed, and the most memory held at a time."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from extract.pareto import Entry, Step, pareto
from glenside.analysis.liveness import Memory, Simulation, bytes_moved, held_buffers, live_through, operations, prepared
from glenside.egraph.rule import Parameters
from glenside.egraph.snapshot import Snapshot
from glenside.form_target import Candidate, FormTarget, Measure
from glenside.ir.errors import BadInput
from glenside.ir.operand import Operand, Value
from glenside.ir.operator import OPERATORS
from glenside.ir.operators.tiled_products import gathered
from glenside.ir.program import Program
from glenside.ir.quantities import byte_count
from glenside.ir.term import Term, build, weave
from glenside.ir.types import Tensor
from glenside.targets.recipes import form_name
from glenside.targets.registry import target, whole_numbers, with_options

PEAK, MOVED, WORK, TIME = "peak", "moved", "multiply-adds", "time"
LEAST_MEMORY = "least memory"
AT_ONCE = "im2col"


class CPU(FormTarget):
    """A plain processor: multiply-adds, bytes moved, and the most bytes held at a time, by every form of a layer.

    memory    the budget of temporaries and results, in bytes or as text such as "8MB"; None is no budget
    balance   multiply-adds that take as long as moving one byte: time is multiply-adds + balance x bytes moved
    outputs   the m of Winograd's F(m, r) that are looked for along each axis
    bands     up to how many bands of rows, a power of 2 up to 16, a layer may be computed in, each in a form of its own

    Inputs, constants and what is computed of constants alone are there before: they are not counted. Raises BadInput.
    """

    def __init__(
        self, memory: int | str | None = None, *, balance: float = 0, outputs: Sequence[int] = (2, 4), bands: int = 1
    ) -> None:
        self.memory = byte_count(memory, "a memory budget") if isinstance(memory, str) else memory
        if self.memory is not None and self.memory <= 0:
            raise BadInput(f"a memory budget is at least 1 byte, got {self.memory}")
        if not (math.isfinite(balance) and balance >= 0):
            raise BadInput(f"the balance of a processor is a number of at least 0, got {balance}")
        if not all(isinstance(m, int) and 2 <= m <= 16 for m in outputs):
            raise BadInput(f"the outputs of F(m, r) are from 2 to 16, got {', '.join(map(str, outputs))}")
        if bands not in (1, 2, 4, 8, 16):
            raise BadInput(f"bands are 1, 2, 4, 8 or 16, got {bands}")
        self.balance, self.outputs, self.bands = balance, tuple(dict.fromkeys(outputs)), bands
        self.name = f"cpu:{'unlimited' if memory is None else memory}"
        self.name += (f",balance={balance}" if balance else "") + (f",bands={bands}" if bands > 1 else "")
        self.doc = inspect.cleandoc(CPU.__doc__ or "")
        self.families = (
            *("analyses", "form-analyses", "winograd", "cpu-products"),
            *("transposed-analyses", "transposed", "transposed-tiles"),
            *(("band-analyses", "bands") if bands > 1 else ()),
        )
        self.axes = self.compared = (TIME if balance else WORK, PEAK)
        self.measures = (
            *((Measure(TIME, "multiply-adds", "multiply-adds, and bytes moved times the balance"),) if balance else ()),
            Measure(WORK, "operations", "a multiplication that is added, or any other operation on an element"),
            Measure(PEAK, "bytes", "the most that temporaries and results hold at a time", adds=False),
            Measure(MOVED, "bytes", "read and written, windows as often as they are"),
        )

    def families_for(self, nodes: Sequence[Term]) -> tuple[str, ...]:
        """All, or those without transposed convolutions where nothing is spread or added up in windows."""
        if any(term.operator.name in ("access-dilate", "access-overlap-add") for term in nodes):
            return self.families
        return tuple(name for name in self.families if not name.startswith("transposed"))

    def rule_parameters(self) -> Parameters:
        return {"winograd": sum(1 << m for m in self.outputs), "bands": self.bands, "scatter": 0}

    def candidates(self, snapshot: Snapshot, root: int, term: Term) -> Sequence[Candidate]:
        """The layer as written, all rows gathered at once; then the forms that no other beats in time and peak, least
        time first.

        Raises BadInput for a budget below the layer's own result.
        """
        own = term.access
        result = own.size * np.dtype(own.dtype).itemsize
        if self.memory is not None and result > self.memory:
            raise BadInput(f"a layer's result of {result:,} bytes is larger than the memory budget of {self.memory:,}")
        layer = _Layer(snapshot, self.balance)
        plain = self._candidate(_at_once(term), ("",))
        forms = [self._candidate(entry.value.term, layer.words(entry)) for entry in layer.entries(root)]
        return [plain, *(c for c in self._front([plain, *forms]) if c is not plain)]

    def _candidate(self, term: Term, words: Sequence[str]) -> Candidate:
        run = _Watched([term])
        spent = run.finish()
        measures = {WORK: spent.operations, PEAK: spent.peak.bytes, MOVED: spent.moved}
        if self.balance:
            measures = {TIME: _time(spent.operations, spent.moved, self.balance), **measures}
        names = [*filter(None, dict.fromkeys(part for w in words for part in form_name(w, "").split(", ")))]
        tiles = run.tiles()
        said = [" and ".join(names)] if names else []
        said += [tiles] if tiles and not (names and tiles == AT_ONCE) else []
        return Candidate(", ".join(said) or "plain", term, measures, " | ".join(words))

    def _time(self, candidate: Candidate) -> float:
        return candidate.measures[TIME if self.balance else WORK]

    def _front(self, forms: Sequence[Candidate]) -> list[Candidate]:
        """Those that no other beats in time and peak, least time first; of equal ones that which moves least."""
        kept: list[Candidate] = []
        for form in sorted(forms, key=lambda c: (self._time(c), c.measures[PEAK], c.measures[MOVED])):
            if not kept or form.measures[PEAK] < kept[-1].measures[PEAK]:
                kept.append(form)
        return kept

    def aim(self, candidate: Candidate) -> tuple[float, ...]:
        """Least time of what fits, then least peak and bytes moved; of what does not fit, least peak."""
        peak, time, moved = candidate.measures[PEAK], self._time(candidate), candidate.measures[MOVED]
        return (1, peak, time, moved) if self._excess(peak) > 0 else (0, time, peak, moved)

    def _excess(self, peak: float) -> float:
        return 0 if self.memory is None else peak - self.memory

    def note(self, measures: Mapping[str, float]) -> str:
        """By how much a whole program exceeds the budget."""
        excess = self._excess(measures[PEAK])
        return f"the program exceeds the memory budget by {excess:,} bytes: no form takes less" if excess > 0 else ""

    def pressure(self, candidate: Candidate, held: int) -> float:
        return candidate.measures[PEAK] + held

    def smaller(self, candidates: Sequence[Candidate], current: Candidate) -> Candidate | None:
        """The fastest one of a smaller peak."""
        less = [c for c in candidates if c.measures[PEAK] < current.measures[PEAK]]
        return min(less, key=lambda c: (self._time(c), c.measures[PEAK], c.measures[MOVED]), default=None)

    def policies(self, candidates: Sequence[Candidate]) -> Mapping[str, Candidate]:
        """As written, all rows of windows gathered at once; the form of least memory."""
        return {
            "plain": candidates[0],
            LEAST_MEMORY: min(candidates, key=lambda c: (c.measures[PEAK], self._time(c))),
        }

    def whole(self, program: Program) -> Mapping[str, float]:
        """What all of a program takes."""
        return self._candidate(program.term, ()).measures

    def held(self, program: Program) -> Mapping[str, int]:
        return live_through(program)


def _time(work: int, moved: int, balance: float) -> int:
    return work + round(balance * moved)


@dataclass(frozen=True, slots=True, eq=False)
class _Value:
    """What an entry stands for: a term, the stand-in for its value, and whether it is computed beforehand."""

    term: Term
    value: Value
    fixed: bool


class _Watched(Simulation):
    """A run that sees how many rows products gather at a time, of how many, and how many positions are added up."""

    def __init__(self, roots: Sequence[Term]) -> None:
        super().__init__(roots)
        self.gathered: list[tuple[int, int]] = []
        self.added: list[tuple[int, int]] = []

    def apply(self, term: Term, arguments: Sequence[Any]) -> Value:
        if term.operator.name == "tiled-product":
            a, _, n, tile = arguments
            rows = gathered(a, n, tile)
            self.gathered += [(rows, a.access.shape.drop(n).product())] if rows else []
        elif term.operator.name == "overlap-add-product":
            a, _, _, out, *_, tile = arguments
            positions = a.access.shape.drop(a.split - len(out)).product()
            self.added.append((min(tile, positions), positions))
        return super().apply(term, arguments)

    def tiles(self) -> str:
        """In words; "" where nothing is gathered or added up."""
        if self.added:
            most, whole = max(self.added)
            return "overlap-add" if most == whole else f"overlap-add in tiles of {most} positions"
        if not self.gathered:
            return ""
        if all(rows == whole for rows, whole in self.gathered):
            return AT_ONCE
        most = max(rows for rows, _ in self.gathered)
        return f"tiles of {most} rows" if most > 1 else "row by row"


class _Layer:
    """What each e-node takes, over entries of its children."""

    def __init__(self, snapshot: Snapshot, balance: float) -> None:
        self.snapshot, self.balance, self.memory = snapshot, balance, Memory()
        self.usable = dict(snapshot.usable())
        self.numbers: list[int] = []
        """What the nodes of entries are in the snapshot."""
        self.forms = _words(snapshot)
        self.tiled = {
            c for c, own in self.usable.items() if any(snapshot.nodes[n].operator == "tiled-product" for n in own)
        }

    def entries(self, root: int) -> list[Entry]:
        classes = [self.usable[c] if self._has_type(c) else () for c in range(len(self.snapshot.classes))]
        self.numbers = [n for own in classes for n in own]
        place = {n: i for i, n in enumerate(self.numbers)}
        return pareto(
            [[place[n] for n in own] for own in classes],
            [self.snapshot.nodes[n].children for n in self.numbers],
            root,
            lambda n, parts: self.step(self.numbers[n], parts),
        )

    def words(self, entry: Entry) -> tuple[str, ...]:
        """Those of the forms of its products."""
        snapshot = self.snapshot
        nodes = [self.numbers[e.node] for e in (*entry.used, entry)]
        owners = [snapshot.owner[n] for n in nodes if snapshot.nodes[n].operator in ("tiled-product", "compute")]
        return tuple(dict.fromkeys(self.forms[c] for c in owners if c in self.forms))

    def _has_type(self, eclass: int) -> bool:
        return self.snapshot.types[eclass] is not None

    def step(self, n: int, parts: Sequence[Entry]) -> Step | None:
        node = self.snapshot.nodes[n]
        term = self.snapshot.term_of(node, [p.value.term for p in parts])
        fixed = all(p.value.fixed for p in parts) and not _is_input(term)
        product = node.operator == "compute" and node.attributes[0] == "dot-product"
        if product and not fixed and self.snapshot.owner[n] in self.tiled:
            return None  # the instruction takes its place: what it needs is known exactly
        if OPERATORS[node.operator].opaque:
            return None
        if fixed and node.operator != "access-product":
            return Step(0, 0, 0, {}, _Value(term, prepared(term, self.memory), True))
        if not parts:
            return Step(0, 0, 0, {}, _Value(term, self.memory.given(term.access.dims, term.access.dtype), False))
        return self._computed(term, parts, fixed)

    def _computed(self, term: Term, parts: Sequence[Entry], fixed: bool) -> Step:
        operands: list[Any] = [p.value.value for p in parts]
        if term.operator.typed:
            operands = [Operand(c.type, v) for c, v in zip(term.children, operands, strict=True)]
        arguments = weave(term.operator, operands, term.attributes)
        live = self.memory.live
        self.memory.step(None)
        value = self.memory.apply(term, arguments)
        peak, copied = self.memory.most - live, self.memory.live - live
        moved = bytes_moved(term, arguments, value, copied)
        held = {id(buffer): buffer.counted for buffer in held_buffers(value)}
        time = _time(operations(term), moved, self.balance)
        return Step(time, moved, peak, held, _Value(term, value, fixed))


def _is_input(term: Term) -> bool:
    tensor = term.attributes[0] if term.operator.name == "access-tensor" else None
    return isinstance(tensor, Tensor) and not tensor.constant


def _at_once(term: Term) -> Term:
    """The product of a layer as one tile."""
    pair = term.children[0]
    if term.operator.name != "compute" or pair.operator.name != "access-product":
        return term
    a, b = pair.children
    shared = pair.attributes[0]
    assert isinstance(shared, int)
    return build("tiled-product", a, b, shared, max(1, a.access.shape.drop(shared).product()))


def _words(snapshot: Snapshot) -> dict[int, str]:
    """class -> the words of its form, the fewest where there are several."""
    found: dict[int, str] = {}
    for eclass, words in snapshot.facts.get("form", ()):
        known = found.get(eclass)
        if known is None or (words.count(":"), words) < (known.count(":"), known):
            found[eclass] = words
    return found


_READ = with_options("cpu", {"balance": float, "outputs": whole_numbers, "bands": int})


@target("cpu", "cpu:8MB", read=_READ, options=CPU)
def _cpu(memory: str, given: Mapping[str, Any], **options: Any) -> CPU:
    """A plain processor with a memory budget; counts multiply-adds, bytes moved and the peak of what is held."""
    return CPU(memory, **{**given, **options})
