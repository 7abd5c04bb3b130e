"""Targets that choose between forms of each layer: equal programs of other products, such as Winograd's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from glenside.egraph.rule import Parameters
from glenside.egraph.snapshot import Snapshot
from glenside.ir.program import Program
from glenside.ir.term import Term


@dataclass(frozen=True)
class Measure:
    """One thing that a form takes, such as bytes sent; amounts are whole numbers of `unit`."""

    name: str
    unit: str
    doc: str
    adds: bool = True
    """Whether that of a program is the sum of those of its parts."""


@dataclass(frozen=True)
class Candidate:
    """One equal program of a layer, and what it takes: measure -> amount, infinite where nothing bounds it."""

    form: str
    """In words: "plain", "Winograd F(2x2,3x3)", "4 phases", with how large its tiles are where that is a choice."""
    term: Term
    measures: Mapping[str, float]
    words: str = ""
    """The steps from the layer's own product, as rules write them."""
    remarks: Sequence[str] = ()
    """What must be said of the measures."""


class FormTarget(ABC):
    """A machine for which the algorithm of each layer is chosen, and not only how products are cut into tiles."""

    name: str
    doc: str
    families: tuple[str, ...]
    """Rules for one layer."""
    measures: tuple[Measure, ...]
    """What is counted, the one that tables compare first."""
    axes: tuple[str, str]
    """The two measures that are traded for each other."""
    compared: tuple[str, ...]
    """The measures that tables show for every policy, and not for the answer alone."""

    def families_for(self, nodes: Sequence[Term]) -> tuple[str, ...]:
        """Those that can find anything in layers of these nodes: others would only take the time to load them."""
        return self.families

    @abstractmethod
    def rule_parameters(self) -> Parameters:
        """What `$name` in a rule stands for."""

    def prepare(self, program: Program) -> Program:
        """The program before its layers are searched, where the machine wants it changed as a whole."""
        return program

    def leaf_kind(self, program: Program) -> Callable[[Term], str]:
        """What tells leaves of layers apart that the machine does not treat alike: a part of their formal names."""
        return lambda leaf: ""

    def root(self, product: Term) -> Term:
        """What is searched for a product of the program: itself, or what the machine makes of it."""
        return product

    @abstractmethod
    def candidates(self, snapshot: Snapshot, root: int, term: Term) -> Sequence[Candidate]:
        """The forms of one layer, the one as written first: `root` is its class, `term` what was searched for it."""

    @abstractmethod
    def aim(self, candidate: Candidate) -> tuple[float, ...]:
        """What is made least, the first first."""

    @abstractmethod
    def policies(self, candidates: Sequence[Candidate]) -> Mapping[str, Candidate]:
        """What a user would pick for every layer alike, by name, such as "plain" and "Winograd everywhere"."""

    @abstractmethod
    def whole(self, program: Program) -> Mapping[str, float]:
        """Measures of a whole program."""

    def note_whole(self, measures: Mapping[str, float]) -> str:
        """What is wrong with a whole program of those measures; "" for nothing."""
        return ""

    def ready(self, program: Program, seed: int) -> Program:
        """What the machine is given to run: with whatever is computed beforehand, where that is not the same to it.
        Constants without a value are drawn by the seed.
        """
        return program

    def remarks(self, program: Program) -> Sequence[str]:
        """What must be said of the measures of a program, such as what they leave out."""
        return ()

    def note(self, measures: Mapping[str, float]) -> str:
        """What is wrong with a whole program of those measures, such as by how much it exceeds a budget; "" for
        nothing.
        """
        return ""

    def held(self, program: Program) -> Mapping[str, int]:
        """Layer -> bytes of other values that live while it is computed, where there is a budget."""
        return {}

    def pressure(self, candidate: Candidate, held: int) -> float:
        """How much of a budget a form takes, with what lives beside it."""
        return 0

    def smaller(self, candidates: Sequence[Candidate], current: Candidate) -> Candidate | None:
        """The best form that takes less of a budget than the current one."""
        return None
