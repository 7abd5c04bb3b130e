"""Capabilities that only some targets have. A target inherits those that it has; users test `isinstance`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from glenside.egraph.snapshot import Snapshot
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.targets.base.product_prices import ProductPrices
from glenside.targets.base.records import NodeCosts, Variant
from glenside.targets.base.target import Target


class Compiles(ABC):
    """Programs are compiled for a processor, whose other runtimes have kernels of their own."""

    processor: Any = None
    """The machine to compile for; None if any machine will do."""

    @abstractmethod
    def compiled_for(self, machine: Any) -> Target:
        """Returns the target with a machine to compile for, unless it has one already; None means plain loops."""

    @property
    @abstractmethod
    def leaves_variants_to_runtimes(self) -> bool:
        """True if a file of standard operators keeps each layer as one operator, whose kernel the runtime chooses."""


class EmitsInstructions(ABC):
    """Mapped programs are lowered to instructions."""

    @property
    @abstractmethod
    def gates(self) -> float:
        """The area of the machine with its memories, in two-input NAND gates."""

    @abstractmethod
    def load_back_end(self) -> None:
        """Imports the modules that lower answers to instructions; called while the search runs in its process."""

    @abstractmethod
    def runs(self, term: Term) -> bool:
        """True if the machine can run a layer as the term maps it."""

    @abstractmethod
    def machine_code(
        self, mapped: Program, written: Program, seed: int = 0, show: Callable[[str, float], None] = lambda *_: None
    ) -> Any:
        """Lowers a mapped program to instructions of the machine.

        `written` is the program before mapping; `show` is called with each layer and the fraction done. Raises BadInput
        for a layer that the machine does not run.
        """

    @abstractmethod
    def network_code(
        self,
        result: Any,
        network: Any,
        seed: int = 0,
        show: Callable[[str, float], None] = lambda *_: None,
        keep: Callable[[Any], None] = lambda _: None,
        quick: bool = False,
    ) -> Any:
        """Lowers an optimized `glenside.quantization.layers.IntegerNetwork` to instructions, from inputs to results.

        keep   callback for the best program so far, while faster ones are searched for
        quick  True: return the first program

        Raises BadInput for a layer that the machine does not run.
        """


class TracksMemory(ABC):
    """Live bytes of temporaries and results are counted."""

    @abstractmethod
    def held(self, program: Program) -> Mapping[str, int]:
        """Returns layer -> the amount of the budget that other live values take while it is computed."""

    @abstractmethod
    def memory_over_time(self, program: Program) -> Sequence[tuple[str, str, int]]:
        """Returns (step, layer whose result it is or "", maximum live bytes during it) for each step of a program."""


class MovesLayouts(ABC):
    """Copies that change the layout of tensors are counted."""

    leaves_layouts_to_runtimes: ClassVar[bool] = False
    """True if a file of standard operators uses the chosen layouts only where they also move fewer bytes there.

    Standard operators fix a layout of their own. The file must not have more nodes of any operator either.
    """

    @abstractmethod
    def copies(self, program: Program) -> Sequence[tuple[Term, Any]]:
        """Returns every copy of a program with the term that is the copy or needs it."""


class Rounds(ABC):
    """The machine computes in a number format of its own, which rounds."""

    @abstractmethod
    def rounds(self, program: Program) -> bool:
        """True if the program has numbers that are rounded: then no answer is exact."""

    @abstractmethod
    def observed(self, variants: Sequence[Variant], seed: int) -> str:
        """Returns a sentence on the error of the variants on random inputs drawn from the seed."""

    @abstractmethod
    def left_out(self, layers: Collection[Sequence[Variant]]) -> Sequence[str]:
        """Returns sentences on better variants that an error limit excluded; `layers` has the variants of each."""


class Prepares(ABC):
    """Layers are changed before the search, and programs before they run."""

    @abstractmethod
    def leaf_kind(self, program: Program) -> Callable[[Term], str]:
        """Returns leaf -> its kind, a part of its formal name: layers with leaves of different kinds are distinct."""

    @abstractmethod
    def root(self, product: Term) -> Term:
        """Returns the term to search for a product of the program."""

    @abstractmethod
    def ready(self, program: Program, seed: int) -> Program:
        """Returns the program to run; constants without a value are drawn from the seed."""


class PricesNodes(ABC):
    """E-nodes have costs that `Target.prices` do not give."""

    @abstractmethod
    def node_costs(self, snapshot: Snapshot) -> NodeCosts:
        """Returns the costs of the e-nodes of an e-graph."""


class PricesAlgebra(ABC):
    """The algebra between layers may be chosen by cost: other orders of products, common factors, folded scales."""

    @abstractmethod
    def product_prices(self) -> ProductPrices | None:
        """Returns the costs of single sums and products, in the unit of the first objective; None: keep their order."""

    def predicted(self, program: Program) -> float | None:
        """Returns the predicted cost of a program in the same unit, before its search; None if it is not known."""
        return None

    def admits(self, given: Program, other: Program) -> bool:
        """True if another form of a part of a program respects the limits of the target, as far as `given` does."""
        return True


class BoundsProducts(ABC):
    """The first objective has a lower bound for any program with a given number of multiply-accumulates."""

    @abstractmethod
    def bound(self, macs: int) -> int:
        """Returns the lower bound; 0 if unknown."""


class BoundsVariants(ABC):
    """The first objective has a lower bound for the variants of a layer, at peak rate."""

    @abstractmethod
    def least(self, variants: Sequence[Variant]) -> int | None:
        """Returns the lower bound; None if unknown."""

    @abstractmethod
    def least_words(self, least: int, taken: int) -> Sequence[str]:
        """Returns sentences that compare the lower bound of all layers with their cost."""
