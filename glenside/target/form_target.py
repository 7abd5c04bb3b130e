"""Targets that choose between forms of each layer: equal programs of other products, such as Winograd's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glenside.egraph.rule import Parameters
from glenside.egraph.snapshot import Snapshot
from glenside.ir.term import Term


@dataclass(frozen=True)
class Measure:
    """One thing that a form takes, such as bytes sent; amounts are whole numbers of `unit`."""

    name: str
    unit: str
    doc: str


@dataclass(frozen=True)
class Candidate:
    """One equal program of a layer, and what it takes: measure -> amount."""

    form: str
    """In words: "plain", "Winograd F(2x2,3x3)", "4 phases", with how large its tiles are where that is a choice."""
    term: Term
    measures: Mapping[str, int]


class FormTarget(ABC):
    """A machine for which the algorithm of each layer is chosen, and not only how products are cut into tiles."""

    name: str
    doc: str
    families: tuple[str, ...]
    """Rules for one layer."""
    measures: tuple[Measure, ...]

    @abstractmethod
    def rule_parameters(self) -> Parameters:
        """What `$name` in a rule stands for."""

    @abstractmethod
    def root(self, product: Term) -> Term:
        """What is searched for a product of the program: itself, or what the machine makes of it."""

    @abstractmethod
    def candidates(self, snapshot: Snapshot, root: int, term: Term) -> Sequence[Candidate]:
        """The forms of one layer that no other beats in every measure that counts, the plain one first.

        `root` is the class of the layer, `term` what it was searched for.
        """

    @abstractmethod
    def aim(self, candidate: Candidate) -> tuple[int, ...]:
        """What is made least, the first first."""
