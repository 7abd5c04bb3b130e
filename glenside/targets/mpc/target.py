"""Secure two-party computation: the cost is the traffic between the parties and their local work on shares."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from glenside.egraph.rule import Parameters
from glenside.egraph.snapshot import Snapshot
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.operators.compute import name_of
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.passes.network import fold_batch_norms
from glenside.passes.variants import ByRecipe
from glenside.targets.base import (
    Amounts,
    Budget,
    Measure,
    NodeCosts,
    Pass,
    Prepares,
    PricesAlgebra,
    PricesNodes,
    ProductPrices,
    Rounds,
    Target,
    Variant,
    Way,
)
from glenside.targets.mpc.analysis import secrets
from glenside.targets.mpc.costs import BUILT_IN, costs_of, read_costs
from glenside.targets.mpc.link import Link, parse_link
from glenside.targets.mpc.precision import error_bound, seen_error
from glenside.targets.mpc.pricing import PUBLIC, Pricing, truncate_late
from glenside.targets.mpc.ring import reach, said
from glenside.targets.mpc.semi2k import FIELDS, FRACTION_BITS, NOTHING, Semi2k, Traffic
from glenside.targets.mpc.traffic import counted, prepare, program_traffic
from glenside.targets.mpc.work import NO_WORK, Work, program_work
from glenside.targets.registry import target, whole_numbers, with_options

PROTOCOLS = ("semi2k",)
COUNTED = ("time", "bytes", "messages", "truncations")
"""The measures that may be objectives."""
DOUBT = 0.08
"""Median relative prediction error of a party's local computation: see `costs.py`."""
TRUNCATIONS = ("early", "late")
_TIE = 1e-6
"""The cost of an element of a sum or of movement, for forms with equal products."""
EVERYWHERE = "Winograd everywhere"


@dataclass(frozen=True, slots=True)
class _JointProducts:
    """The cost of products of two secrets, by what they send; sums of shares cost next to nothing."""

    times_elements: ClassVar[bool] = False
    target: MPC

    def count(self, size: int) -> int:
        """Returns the size."""
        return size

    def product(self, groups: int, rows: int, depth: int, columns: int, read: int) -> float:
        """Returns the cost of products, and of their truncation."""
        sizes, protocol = (rows, depth, columns, groups), self.target.protocol
        return float(self.target.cost(protocol.matmul(*sizes) + protocol.matmul_truncation(*sizes), NO_WORK)[0])

    def elementwise(self, read: int, written: int) -> float:
        """Returns next to nothing: it decides between forms with equal products."""
        return _TIE * (read + written)


class MPC(Target, Prepares, PricesAlgebra, PricesNodes, Rounds):
    """Two parties that compute on shares: counts time, bytes, messages and truncations of every variant of a layer.

    protocol    "semi2k", as in SPU 0.9.5
    field       bits of a share: 32, 64 or 128
    parties     2
    truncation  "early": truncate each product at once, as SPU does; "late": where the fewest elements are truncated
    prepared    True: the owner of the weights rearranges and transforms them before sharing
    public      names of tensors that both parties know; terms over public tensors alone are public
    link        "lan" (384 MB/s and 0.15 ms), "wan" (44 MB/s and 20 ms) or RATE,LATENCY
    costs       file of local computation costs, written by `glenside calibrate`; by default measurements on one machine
    objectives  measures to minimize, in order, of time, bytes, messages, truncations; by default time
    outputs     the m of Winograd's F(m, r) to search for along each axis
    magnitude   the largest absolute value of a tensor, for error bounds
    max_error   maximum error bound of a layer's result; the plain variant is always allowed. By default twice the bound
                of the plain variant, one bit; inf: no limit

    Raises BadInput.
    """

    strategy = ByRecipe
    machine = "spu"

    def __init__(
        self,
        protocol: str = "semi2k",
        field: int = 64,
        parties: int = 2,
        *,
        truncation: str = "early",
        prepared: bool = True,
        public: Collection[str] = (),
        link: Link | str | None = None,
        costs: str | None = None,
        outputs: Sequence[int] = (2, 4),
        magnitude: float = 1.0,
        max_error: float | None = None,
        objectives: Sequence[str] = (),
    ) -> None:
        _check(protocol, field, parties, truncation, outputs)
        for what, value in (("magnitude", magnitude), ("max_error", max_error)):
            if value is not None and not (value > 0 and (what == "max_error" or math.isfinite(value))):
                raise BadInput(f"{what} is a number above 0, got {value}")
        self.protocol, self.late, self.prepared = Semi2k(field), truncation == "late", prepared
        self.public, self.magnitude, self.max_error = frozenset(public), magnitude, max_error
        said = "lan" if link is None else link
        self.link = parse_link(said) if isinstance(said, str) else said
        self.costs = BUILT_IN[field] if costs is None else costs_of(costs, protocol, field)
        self.bits = FRACTION_BITS[field]
        options = ("" if field == 64 else f",field={field}") + (",truncation=late" if self.late else "")
        options += "" if costs is None else f",costs={costs}"
        self.name = f"mpc:{protocol}{options}" + ("" if prepared else ",weights=shared")
        self.doc = inspect.cleandoc(MPC.__doc__ or "")
        self._families = (
            "analyses",
            "recipe-analyses",
            "winograd",
            *(() if self.late else ("early-truncations", "products-of-elements")),
        )
        self.outputs = tuple(dict.fromkeys(outputs))
        self.front = ("bytes", "messages")
        unknown = next((name for name in objectives if name not in COUNTED), None)
        if unknown is not None:
            hint = suggestion(unknown, COUNTED)
            raise BadInput(f"an objective of {protocol} is one of {', '.join(COUNTED)}, got {unknown!r}{hint}")
        self.compared = self.objectives = tuple(dict.fromkeys(objectives)) or COUNTED[:1]
        if max_error is not None and math.isfinite(max_error):
            most = max_error * 2**self.bits
            self.budget = Budget("error", most, f"2^-{self.bits}", "bound of errors", spares_baseline=True)
        measures = (
            Measure("time", "us", f"of the link ({self.link}), and of what a party computes"),
            Measure("bytes", "bytes", "that one party sends"),
            Measure("messages", "messages", "that one party sends, each after the last"),
            Measure("truncations", "elements", "cut back after a product"),
            Measure("error", f"2^-{self.bits}", "the most by which a result may be wrong", adds=False),
        )
        self.measures = tuple(sorted(measures, key=lambda m: [*self.objectives, m.name].index(m.name)))

    def passes(self, way: Way) -> Sequence[Pass]:
        """Returns batch-norm folding; with late truncation also the pass that moves and merges truncations."""
        return (fold_batch_norms, partial(truncate_late, self.protocol)) if self.late else (fold_batch_norms,)

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        """Returns the families; with windows also those that add them up: additions are free, sent windows are not."""
        windows = any(term.operator.name in ("access-windows", "access-dilate", "access-overlap-add") for term in nodes)
        return (*self._families, *(("transposed-analyses", "transposed") if windows else ()))

    def rule_parameters(self) -> Parameters:
        return {"winograd": sum(1 << m for m in self.outputs), "scatter": 1}

    def leaf_kind(self, program: Program) -> Callable[[Term], str]:
        """Returns leaf -> its kind: public leaves differ from secret ones."""
        if not self.public:
            return lambda leaf: ""
        known = secrets(program, self.public)
        return lambda leaf: "" if known[leaf].secret else PUBLIC

    def root(self, product: Term) -> Term:
        """Returns the truncated product; with late truncation the product alone, which is truncated later."""
        return build("truncate", product) if product.access.dtype in FLOATS and not self.late else product

    def node_costs(self, snapshot: Snapshot) -> NodeCosts:
        """Returns the prices of e-nodes, as for variants, without the late truncation of a layer's result."""
        pricing, words = self.pricing(snapshot), {"time": "ns", "bytes": "bytes sent"}
        names = [(words.get(name, name).split()[0], words.get(name, name)) for name in self.amounts(NOTHING, NO_WORK)]
        return NodeCosts(
            [("unknown", "steps of no exact formula"), *names, ("nodes", "e-nodes")],
            lambda n: pricing.cost(n) if pricing.possible(n) else None,
            "What cuts a layer's result behind it is not in them." if self.late else "",
        )

    def pricing(self, snapshot: Snapshot) -> Pricing:
        """Returns the prices of an e-graph."""
        return Pricing(snapshot, self)

    def seconds(self, sent: Traffic, work: Work) -> float:
        """Returns the seconds of the link, with messages in sequence, plus those of a party's local work."""
        return self.link.seconds(sent) + self.costs.seconds(sent, work, self.protocol.share)

    def amounts(self, sent: Traffic, work: Work) -> dict[str, int]:
        """Returns the measures, in the order of the objectives."""
        amounts = {"bytes": sent.bytes, "messages": sent.messages, "truncations": sent.truncated}
        amounts = {"time": round(1e6 * self.seconds(sent, work)), **amounts}
        return {name: amounts[name] for name in dict.fromkeys((*self.objectives, *amounts))}

    def cost(self, sent: Traffic, work: Work) -> tuple[int, ...]:
        """Returns the amounts of an e-node, with time in nanoseconds: some take less than one microsecond."""
        amounts = {**self.amounts(sent, work), "time": round(1e9 * self.seconds(sent, work))}
        return tuple(amounts.values())

    def best(self, variants: Sequence[Variant]) -> Variant:
        """Returns the variant with the least objectives whose error bound respects `max_error`.

        For time, its predicted gain over the plain variant must exceed the prediction error.
        """
        clear = self._clear(variants)
        if self.max_error is not None:
            return super().best(clear)
        plain = variants[0].measures["error"]
        near = (v for v in clear[1:] if not self._is_worse(v.measures["error"], plain))
        return super().best([clear[0], *near])

    def _clear(self, variants: Sequence[Variant]) -> Sequence[Variant]:
        """Returns the plain variant and, if time is minimized, those faster by more than the prediction error."""
        plain, *others = variants
        if self.objectives[0] != "time":
            return variants
        before, computed = self._time(plain)
        return [plain, *(v for v in others if (t := self._time(v))[0] + DOUBT * (computed + t[1]) < before)]

    def _time(self, variant: Variant) -> tuple[float, float]:
        """Returns the microseconds of a variant, and the share of local computation in them."""
        time, sent, messages = (variant.measures[name] or 0 for name in ("time", "bytes", "messages"))
        return time, time - 1e6 * self.link.seconds(Traffic(sent, messages))

    def left_out(self, layers: Collection[Sequence[Variant]]) -> Sequence[str]:
        """Returns a sentence on how much less the layers would cost without an error limit."""
        measure = next(m for m in self.measures if m.name == self.objectives[0])

        def least(variants: Sequence[Variant]) -> int:
            return min((n for v in variants if (n := v.measures[measure.name]) is not None), default=0)

        saved = [n for of_layer in layers if (n := least([self.best(of_layer)]) - least(self._clear(of_layer))) > 0]
        if not saved:
            return []
        which = "1 layer" if len(saved) == 1 else f"{len(saved)} layers"
        return [
            f"the limit of errors leaves out variants of {which} that take {sum(saved):,} {measure.unit} less in all; "
            "max_error=inf allows them"
        ]

    @staticmethod
    def _is_worse(error: int | None, plain: int | None) -> bool:
        """True if the error bound is more than twice the plain variant's, or either is unknown."""
        return error is None or plain is None or error > 2 * plain

    def rounds(self, program: Program) -> bool:
        """True if the program has floats: fixed-point numbers are truncated after products, integers are not."""
        return any(tensor.dtype in FLOATS for tensor in program.tensors.values())

    def observed(self, variants: Sequence[Variant], seed: int) -> str:
        """Returns a sentence on the fixed-point error: its bound, and the error observed on random numbers."""
        if not variants:
            return f"fixed point of {self.bits} bits is not exact, and errors between layers have no bound here"
        terms = dict.fromkeys(v.term for v in variants if v.term is not None)
        seen = max((self._seen(term, seed) for term in terms), default=0.0)
        bounds = [v.measures["error"] for v in variants]
        known = [error for error in bounds if error is not None]
        bound = f"{max(known, default=0) * 2.0**-self.bits:.2g}" if len(known) == len(bounds) else "an unknown error"
        return (
            f"fixed point of {self.bits} bits is not exact: a layer may be wrong by {bound} for numbers up to "
            f"{self.magnitude:g}; {seen:.2g} was seen on random ones"
        )

    def _seen(self, term: Term, seed: int) -> float:
        """Returns the error of a layer's term on random numbers; prepared weights are rounded once."""
        constant = Program(term).info.constant if self.prepared else {}
        offline = {t for t, is_constant in constant.items() if is_constant}
        return seen_error(term, self.bits, lambda _: self.magnitude, offline, seed)

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        """Returns the plain variant, and F(2, r) along as many axes as possible."""
        everywhere = [v for v in variants if all(re.match(r"winograd:\d+:2:", step) for step in v.recipe.split())]
        return {"plain": variants[0], EVERYWHERE: max(everywhere, key=lambda v: len(v.recipe.split()))}

    def product_prices(self) -> ProductPrices | None:
        """Returns costs in nanoseconds or in the first objective.

        None for public tensors and late truncation: what is cheap then depends on what else the program computes.
        """
        return None if self.public or self.late else _JointProducts(self)

    def predicted(self, program: Program) -> float | None:
        """Returns the first objective of a program that is computed as it is written, with time in nanoseconds."""
        sent = program_traffic(program, (), self.prepared, self.protocol)
        return float(self.cost(counted(sent), program_work(program, (), self.prepared))[0])

    def admits(self, given: Program, other: Program) -> bool:
        """True if another form has at most twice the bound of errors, or respects `max_error`."""
        bounds = [self._error(program) for program in (given, other)]
        return bounds[1] <= max(2 * bounds[0], 0 if self.max_error is None else self.max_error * 2**self.bits)

    def _error(self, program: Program) -> float:
        constant = program.info.constant if self.prepared else {}
        offline = {term for term, known in constant.items() if known}
        return error_bound(program.term, self.bits, lambda _: self.magnitude, offline).error

    def whole(self, program: Program) -> Amounts:
        """Returns the measures of a program, as far as there are exact formulas."""
        sent = program_traffic(program, self.public, self.prepared, self.protocol)
        return self.amounts(counted(sent), program_work(program, self.public, self.prepared))

    def ready(self, program: Program, seed: int) -> Program:
        """Returns the program with prepared weights, if they are prepared."""
        return prepare(program.seeded_constants(seed), self.public) if self.prepared else program

    def remarks(self, program: Program) -> Sequence[str]:
        """Returns remarks on overflow of the ring, missing error bounds, and operators without a traffic formula."""
        sent = program_traffic(program, self.public, self.prepared, self.protocol)
        unknown = (t for t, traffic in sent.items() if traffic is None)
        left = ", ".join(dict.fromkeys(map(name_of, unknown)))
        sends = [f"what {left} sends is not counted: there is no exact formula for it here"] if left else []
        found = reach(program, self.bits, self.protocol.field, self.magnitude)
        return [*said(found, self.bits, self.protocol.field, self.magnitude), *sends]


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


_READ = with_options(
    "mpc",
    {
        "field": int,
        "parties": int,
        "truncation": str,
        "weights": {"prepared": True, "shared": False}.__getitem__,
        "public": lambda text: text.split("+"),
        "outputs": whole_numbers,
        "magnitude": float,
        "max_error": float,
        "costs": str,
    },
)


def _load(path: str, content: Mapping[str, Any], **options: Any) -> MPC:
    """Builds the target of a `glenside calibrate` file, with its costs, protocol and field."""
    found = read_costs(content, path)
    return MPC(found.protocol, found.field, costs=path, **options)


@target("mpc", "mpc:semi2k", read=_READ, options=MPC, objectives=COUNTED, load=_load)
def _mpc(protocol: str, given: Mapping[str, Any], **options: Any) -> MPC:
    """Secure computation by two parties, as SPU's semi2k; counts time, bytes, messages, truncations."""
    own = {"prepared" if name == "weights" else name: value for name, value in given.items()}
    return MPC(protocol, **{**own, **options})
