"""Secure computation by two parties: what costs is what they send each other."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from glenside.egraph.rule import Parameters
from glenside.egraph.snapshot import Snapshot
from glenside.form_target import Candidate, FormTarget, Measure
from glenside.ir.errors import BadInput
from glenside.ir.operators.compute import name_of
from glenside.ir.program import Program
from glenside.ir.term import Term, build, make, rebuild_all, weave
from glenside.ir.types import FLOATS
from glenside.passes.extraction import cheapest, derivable, reachable
from glenside.passes.network import arranged
from glenside.targets.base import Instruction, Spent, Target
from glenside.targets.mpc.network import Network, parse_network
from glenside.targets.mpc.precision import error_bound
from glenside.targets.mpc.pricing import PUBLIC, Pricing
from glenside.targets.mpc.semi2k import FIELDS, FRACTION_BITS, NOTHING, Semi2k, Traffic
from glenside.targets.mpc.traffic import prepare, program_traffic, secrets
from glenside.targets.recipes import form_name
from glenside.targets.registry import target, whole_numbers, with_options

PROTOCOLS = ("semi2k",)
TRUNCATIONS = ("early", "late")
EVERYWHERE = "Winograd everywhere"


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
    max_error   the most by which a result of a layer may be wrong: a form whose bound is above is not taken, unless it
                is the plain one

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
        max_error: float | None = None,
    ) -> None:
        _check(protocol, field, parties, truncation, outputs)
        for what, value in (("magnitude", magnitude), ("max_error", max_error)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise BadInput(f"{what} is a number above 0, got {value}")
        self.protocol, self.late, self.prepared = Semi2k(field), truncation == "late", prepared
        self.public, self.magnitude, self.max_error = frozenset(public), magnitude, max_error
        self.network = parse_network(network) if isinstance(network, str) else network
        self.bits = FRACTION_BITS[field]
        options = ("" if field == 64 else f",field={field}") + (",truncation=late" if self.late else "")
        self.name = f"mpc:{protocol}{options}" + ("" if prepared else ",weights=shared")
        self.doc = inspect.cleandoc(MPC.__doc__ or "")
        self.families = ("analyses", "form-analyses", "winograd", *(() if self.late else ("early-truncations",)))
        self.outputs = tuple(dict.fromkeys(outputs))
        self.axes = ("bytes", "messages")
        self.compared = ("microseconds",) if self.network else ("bytes",)
        self.measures = (
            *((Measure("microseconds", "us", "on the network"),) if self.network else ()),
            Measure("bytes", "bytes", "that one party sends"),
            Measure("messages", "messages", "that one party sends, each after the last"),
            Measure("truncations", "elements", "cut back after a product"),
            Measure("error", f"2^-{self.bits}", "the most by which a result may be wrong", adds=False),
        )

    def families_for(self, nodes: Sequence[Term]) -> tuple[str, ...]:
        """Also those that add up windows, where there are any: additions are free, windows are sent many times over."""
        windows = any(term.operator.name in ("access-windows", "access-dilate", "access-overlap-add") for term in nodes)
        return (*self.families, *(("transposed-analyses", "transposed") if windows else ()))

    def rule_parameters(self) -> Parameters:
        return {"winograd": sum(1 << m for m in self.outputs), "scatter": 1}

    def prepare(self, program: Program) -> Program:
        """With late truncations: each product truncated, and truncations moved and merged to where they are fewest."""
        if not self.late:
            return program
        products = {p for p in program.layers.values() if p.access.dtype in FLOATS}

        def cut(term: Term, children: tuple[Term, ...]) -> Term | None:
            if term not in products:
                return None
            made = make(term.operator, weave(term.operator, children, term.attributes))
            again[term] = made
            return build("truncate", made)

        again: dict[Term, Term] = {}
        (term,) = rebuild_all([program.term], cut)
        layers = {name: again[product] for name, product in program.layers.items() if product in again}
        labels = program.labels
        truncated = Program(term, program.name, layers, labels, program.constants)
        found = arranged(truncated, self._late_target()).program
        return found if len(found.layers) == len(program.layers) else truncated

    def _late_target(self) -> Target:
        """What late truncations cost a network: its products are those of its layers."""
        price = Instruction(
            "truncate", lambda _, __, own: Spent(0, 1, self.protocol.truncation(own.size).bytes), "products"
        )
        return Target(
            name=self.name,
            doc=self.doc,
            instructions=(price,),
            families={"network": ("constant-analyses", "late-truncations")},
            parameters={},
            tile={},
            peak=1,
            price=lambda *_: Spent(0, 0),
            bound=lambda *_: Spent(0, 0),
            objectives=("bytes",),
            beside=lambda *_: Spent(0, 0),
        )

    def leaf_kind(self, program: Program) -> Callable[[Term], str]:
        """Leaves that both parties know are others than secret ones."""
        if not self.public:
            return lambda leaf: ""
        known = secrets(program, self.public)
        return lambda leaf: "" if known[leaf].secret else PUBLIC

    def root(self, product: Term) -> Term:
        """A product, truncated; late truncations stand behind it already, where they are fewest."""
        return build("truncate", product) if product.access.dtype in FLOATS and not self.late else product

    def _pricing(self, snapshot: Snapshot) -> Pricing:
        return Pricing(snapshot, self.protocol, late=self.late, prepared=self.prepared, public=self.public)

    def candidates(self, snapshot: Snapshot, root: int, term: Term) -> Sequence[Candidate]:
        """Every form of a layer, the plain one first, each extracted for itself."""
        pricing = self._pricing(snapshot)
        needed = reachable(snapshot, root)
        forms: dict[str, set[int]] = defaultdict(set)
        for eclass, words in snapshot.facts.get("form", ()):
            if eclass in needed:
                forms[words].add(eclass)
        found = []
        for words in sorted(forms, key=lambda w: (w.count(":"), w)):
            candidate = self._candidate(pricing, root, words, forms[words], needed)
            found += [candidate] if candidate is not None else []
        return found

    def _candidate(
        self, pricing: Pricing, root: int, words: str, products: Collection[int], needed: Collection[int]
    ) -> Candidate | None:
        """The cheapest term of one form: its products are those, and no others."""
        snapshot = pricing.snapshot

        def allowed(n: int) -> bool:
            own = snapshot.owner[n]
            if own not in needed or not pricing.possible(n):
                return False
            return own in products or not pricing.is_product(n)

        members = derivable(snapshot, allowed)
        if root not in members:
            return None

        def cost(n: int) -> tuple[int, ...]:
            sent = pricing.traffic(n)
            return (int(sent is None), *self._amounts(sent or NOTHING).values(), 1)

        nodes, _ = cheapest(snapshot, [root], cost, members=members, method="dag")
        traffic = [pricing.traffic(n) or NOTHING for n in nodes.values()]
        own = snapshot.types[root]
        assert own is not None
        if self.late and own.dtype in FLOATS:  # its result is cut behind it
            traffic.append(pricing.truncation(own.size))
        made = snapshot.terms(nodes, [root])
        offline = {t for c, t in snapshot.terms(nodes, [root]).items() if pricing.offline[c]}
        error = error_bound(made[root], self.bits, lambda _: self.magnitude, offline)
        measures: dict[str, float] = {**self._amounts(sum(traffic, NOTHING))}
        measures["error"] = error.error if error.unknown else math.ceil(error.error + self.late)
        remarks = tuple(f"no error bound for {name}" for name in error.unknown)
        return Candidate(form_name(words), made[root], measures, words, remarks)

    def _amounts(self, sent: Traffic) -> dict[str, int]:
        """Measures of traffic, in the order in which they are made least."""
        time = {"microseconds": self.network.microseconds(sent)} if self.network else {}
        return time | {"bytes": sent.bytes, "messages": sent.messages, "truncations": sent.truncated}

    def aim(self, candidate: Candidate) -> tuple[float, ...]:
        """Nothing that may be too wrong; then time where there is a network, bytes, messages, truncations, error."""
        wrong = self.max_error is not None and candidate.measures["error"] > self.max_error * 2**self.bits
        return (int(wrong and candidate.words != ""), *candidate.measures.values())

    def policies(self, candidates: Sequence[Candidate]) -> Mapping[str, Candidate]:
        """Every layer plain; F(2, r) along every axis wherever windows overlap."""
        everywhere = [c for c in candidates if all(_is_smallest(step) for step in c.words.split())]
        return {"plain": candidates[0], EVERYWHERE: max(everywhere, key=lambda c: len(c.words.split()))}

    def whole(self, program: Program) -> Mapping[str, int]:
        """What all of a program sends, as far as there are exact formulas."""
        sent = program_traffic(program, self.public, self.prepared, self.protocol)
        return self._amounts(sum((t for t in sent.values() if t is not None), NOTHING))

    def ready(self, program: Program, seed: int) -> Program:
        """With weights rearranged and transformed by their owner, where they are prepared."""
        return prepare(program.seeded_constants(seed), self.public) if self.prepared else program

    def remarks(self, program: Program) -> Sequence[str]:
        """Operators whose traffic is not counted, because no exact formula for it is known."""
        sent = program_traffic(program, self.public, self.prepared, self.protocol)
        unknown = (t for t, traffic in sent.items() if traffic is None)
        left = ", ".join(dict.fromkeys(map(name_of, unknown)))
        return [f"what {left} sends is not counted: there is no exact formula for it here"] if left else []


def _is_smallest(step: str) -> bool:
    return step.startswith("winograd:") and step.split(":")[2] == "2"


def _check(protocol: str, field: int, parties: int, truncation: str, outputs: Sequence[int]) -> None:
    if protocol not in PROTOCOLS:
        raise BadInput(f"a protocol is one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    if field not in FIELDS:
        raise BadInput(f"a field has {', '.join(map(str, FIELDS))} bits, got {field}")
    if parties != 2:
        raise BadInput(f"{protocol} is priced for 2 parties, got {parties}")
    if truncation not in TRUNCATIONS:
        raise BadInput(f"truncation is {' or '.join(TRUNCATIONS)}, got {truncation!r}")
    if not all(isinstance(m, int) and 2 <= m <= 16 for m in outputs):
        raise BadInput(f"the outputs of F(m, r) are from 2 to 16, got {', '.join(map(str, outputs))}")


def _prepared(text: str) -> bool:
    if text not in ("prepared", "shared"):
        raise ValueError(text)
    return text == "prepared"


_READ = with_options(
    "mpc",
    {
        "field": int,
        "parties": int,
        "truncation": str,
        "weights": _prepared,
        "public": lambda text: text.split("+"),
        "outputs": whole_numbers,
        "magnitude": float,
        "max_error": float,
    },
)


@target("mpc", "mpc:semi2k", read=_READ, options=MPC)
def _mpc(protocol: str, given: Mapping[str, Any], **options: Any) -> MPC:
    """Secure computation by two parties, as SPU's semi2k; counts bytes, messages, truncations."""
    own = dict(given)
    if "weights" in own:
        own["prepared"] = own.pop("weights")
    return MPC(protocol, **{**own, **options})
