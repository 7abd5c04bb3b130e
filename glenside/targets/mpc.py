"""Secure computation by two parties: what costs is what they send each other."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from glenside.egraph.rule import Parameters
from glenside.egraph.snapshot import Snapshot
from glenside.extraction import cheapest, constant_classes, derivable, derivations, reachable
from glenside.form_names import form_name
from glenside.ir.errors import BadInput
from glenside.ir.program import Program, constant_terms
from glenside.ir.rational import exact_numbers
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import FLOATS, AccessType, Tensor
from glenside.network import arranged
from glenside.secure.network import Network, parse_network
from glenside.secure.precision import error_bound
from glenside.secure.semi2k import FIELDS, FRACTION_BITS, NOTHING, Semi2k, Traffic
from glenside.secure.traffic import node_traffic
from glenside.target import Instruction, Spent, Target
from glenside.target.form_target import Candidate, FormTarget, Measure
from glenside.targets.registry import target

PROTOCOLS = ("semi2k",)
TRUNCATIONS = ("early", "late")
EVERYWHERE = "Winograd everywhere"
_PUBLIC = "#public"


class MPC(FormTarget):
    """Two parties that compute on shares: bytes sent, messages and truncations of every form of a layer.

    protocol    "semi2k", as SPU 0.9.5 has it
    field       bits of a share: 32, 64 or 128
    parties     2
    truncation  "early": each product is truncated at once, as SPU does today; "late": where that is fewest elements
    prepared    whether the owner of the weights rearranges and transforms them before sharing them
    public      names of tensors that both parties know; what is computed of public tensors alone is public
    network     a link, "lan", "wan" or RATE,LATENCY: then time is made least, else bytes
    outputs     the m of F(m, r) that are looked for along each axis
    magnitude   the largest absolute value of a tensor, for the bound of errors

    Raises BadInput.
    """

    def __init__(
        self,
        protocol: str = "semi2k",
        field: int = 64,
        parties: int = 2,
        *,
        truncation: str = "early",
        prepared: bool = True,
        public: Collection[str] = (),
        network: Network | str | None = None,
        outputs: Sequence[int] = (2, 4),
        magnitude: float = 1.0,
    ) -> None:
        _check(protocol, field, parties, truncation, outputs, magnitude)
        self.protocol, self.late, self.prepared = Semi2k(field), truncation == "late", prepared
        self.public, self.magnitude = frozenset(public), magnitude
        self.network = parse_network(network) if isinstance(network, str) else network
        self.bits = FRACTION_BITS[field]
        options = ("" if field == 64 else f",field={field}") + (",truncation=late" if self.late else "")
        self.name = f"mpc:{protocol}{options}" + ("" if prepared else ",weights=shared")
        self.doc = inspect.cleandoc(MPC.__doc__ or "")
        self.families = ("analyses", "form-analyses", "winograd", *(() if self.late else ("early-truncations",)))
        self.wants = " ".join(f"(winograd-outputs {m})" for m in dict.fromkeys(outputs))
        self.measures = (
            *((Measure("microseconds", "us", "on the network"),) if self.network else ()),
            Measure("bytes", "bytes", "that one party sends"),
            Measure("messages", "messages", "that one party sends, each after the last"),
            Measure("truncations", "elements", "cut back after a product"),
            Measure("error", f"2^-{self.bits}", "the most by which a result may be wrong", adds=False),
        )

    def rule_parameters(self) -> Parameters:
        return {}

    def prepare(self, program: Program) -> Program:
        """With late truncations: each product truncated, and truncations moved and merged to where they are fewest."""
        if not self.late:
            return program
        products = {p for p in program.layers.values() if p.access.dtype in FLOATS}

        def cut(term: Term, children: tuple[Term, ...]) -> Term | None:
            if term not in products:
                return None
            made = term if children == term.children else build(term.operator.name, *term.attributes, *children)
            return build("truncate", made)

        (term,) = rebuild_all([program.term], cut)
        truncated = Program(term, program.name, {}, {}, program.constants)
        return arranged(_with_names(program, truncated), _LATE).program

    def leaf_kind(self, program: Program) -> Callable[[Term], str]:
        """Leaves that both parties know are others than secret ones."""
        secret = _secret_terms(program, self.public)
        return lambda leaf: "" if secret[leaf] else _PUBLIC

    def root(self, product: Term) -> Term:
        """A product, truncated; late truncations stand behind it already where they are cheapest."""
        return build("truncate", product) if product.access.dtype in FLOATS and not self.late else product
