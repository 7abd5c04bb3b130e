"""Late truncation: products are cut back where that is fewest elements, and not each at once."""

from __future__ import annotations

from dataclasses import dataclass

from glenside.egraph.saturation import SATURATED
from glenside.ir.program import Program
from glenside.ir.term import Term, build, make, rebuild_all, weave
from glenside.ir.types import FLOATS
from glenside.passes.network import Search, rewritten
from glenside.targets.base import Instruction, InstructionCost, Prices, free
from glenside.targets.mpc.semi2k import Semi2k

FAMILIES = ("constant-analyses", "late-truncations")


@dataclass(frozen=True)
class LateTruncation:
    """The pass that truncates each product, then moves and merges truncations to where the protocol sends least."""

    protocol: Semi2k

    def __call__(self, program: Program, search: Search) -> tuple[Program, str]:
        truncated = _with_truncations(program)
        found = rewritten(truncated, FAMILIES, {}, self._prices(), search)
        return (found.program if len(found.program.layers) == len(program.layers) else truncated), SATURATED

    def _prices(self) -> Prices:
        """What truncations send; the products are those of the layers, and searched next."""
        truncation = Instruction(
            "truncate", lambda _, __, own: InstructionCost(0, 1, self.protocol.truncation(own.size).bytes), "products"
        )
        return Prices((truncation,), ("bytes",), fallback=free)


def _with_truncations(program: Program) -> Program:
    """The program with every product of floats truncated at once."""
    products = {p for p in program.layers.values() if p.access.dtype in FLOATS}
    rebuilt: dict[Term, Term] = {}

    def truncate(term: Term, children: tuple[Term, ...]) -> Term | None:
        if term not in products:
            return None
        rebuilt[term] = make(term.operator, weave(term.operator, children, term.attributes))
        return build("truncate", rebuilt[term])

    (term,) = rebuild_all([program.term], truncate)
    layers = {name: rebuilt[product] for name, product in program.layers.items() if product in rebuilt}
    return Program(term, program.name, layers, program.labels, program.constants)
