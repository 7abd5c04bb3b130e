"""Determines the results of an integer network: the integers of the machine, and the host's program from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from glenside.analysis.element_sources import places
from glenside.builder.layout import split_at
from glenside.builder.pointwise import cast, combine, multiply
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.names import primed, spelled_name
from glenside.ir.operand import Array
from glenside.ir.operators.compute import name_of
from glenside.ir.program import Program, Signature, is_product
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import Dims, Tensor
from glenside.quantization.affine import Affine
from glenside.quantization.track_values import Follower, Refused
from glenside.quantization.values import BYTES, Bytes, Product, narrow, pulled_back

StandsFor = tuple[Array, Array]
"""(scale, zero point): a real number is scale * (integer - zero)."""


@dataclass
class Results:
    """The results of a tracked program.

    left        (name, term of integers, the real numbers that they represent): the machine's results
    host        the host's program from those to real numbers, with the network's results in order, by name; None if
                the machine's results are the results
    rest        the same in words; empty if nothing is left
    """

    follower: Follower
    left: list[tuple[str, Term, StandsFor]] = field(default_factory=list)
    host: Program | None = None
    rest: str = ""
    _words: list[str] = field(default_factory=list)
    _constants: dict[str, Array] = field(default_factory=dict)
    _names: dict[object, str] = field(default_factory=dict)

    @staticmethod
    def of(follower: Follower) -> Results:
        """Determines the results. Raises BadInput, which names the output that neither machine nor host can compute."""
        found, program = Results(follower), follower.program
        whole = program.term
        roots = whole.children if whole.operator.name == "construct-tuple" else (whole,)
        names, ends = program.result_names(), list[Term]()
        for name, root in zip(names, roots, strict=True):
            try:
                ends.append(split_at(found._result(name, root), 0))
            except BadInput as error:
                more = f"the output {spelled_name(name)}: " if len(roots) > 1 else ""
                raise BadInput(f"{more}{error.message}") from error
        found.rest = "; ".join(dict.fromkeys(found._words))
        if not all(map(_is_left, ends)) or [*names] != [name for name, _, _ in found.left]:
            term = ends[0] if whole.operator.name != "construct-tuple" else build("construct-tuple", *ends)
            found.host = Program(term, name=program.name, signature=Signature(outputs=tuple(names)))
            constants = {**follower.constants, **found._constants}
            known = {n: np.asarray(constants[n]) for n in found.host.constants_declared}
            found.host = replace(found.host, constants=known)
        return found

    def _result(self, name: str, root: Term) -> Term:
        """Returns the host's term for a result. Raises BadInput."""
        if self.follower.constant[root]:
            return root
        order = {t: number for number, t in enumerate(postorder(root))}
        known, steps, words = dict[Term, Term](), set[Term](), list[str]()
        left, why = self._frontier([root], order, steps), ""
        while left:
            term = left.pop()
            try:
                known[term] = self._real(name, term, words)
            except BadInput as error:  # the host computes this step too
                refused = (self.follower.found.get(t) for t in sorted(steps, key=order.__getitem__))
                why = why or next((own.why for own in refused if isinstance(own, Refused)), error.message)
                if not self._may_go_below(term):
                    raise BadInput(why) from error
                steps.add(term)
                left = [t for t in self._frontier([*left, *_read(term)], order, steps) if t not in known]
        words += [
            name_of(t)
            for t in sorted(steps, key=order.__getitem__)
            if t.operator.index_map is None and t.operator.name not in _PLUMBING
        ]
        if words:
            self._words.append(", ".join(dict.fromkeys(words)))
        (found,) = rebuild_all([root], lambda *_: None, known)
        return found

    def _frontier(self, terms: Sequence[Term], order: Mapping[Term, int], steps: set[Term]) -> list[Term]:
        """Returns the terms that the network must compute so that the host can compute `terms` from them in `steps`;
        only one if one suffices.

        Raises BadInput: the host computes no products.
        """
        left, found = [*terms], set[Term]()
        while left:
            term = left.pop()
            if self.follower.constant[term] or term in steps:
                continue
            value = self.follower.found.get(term)
            if isinstance(value, Affine):
                found.add(term)
            elif _is_computed(term) or not term.children:
                raise BadInput("a result must be a tensor, not a tuple" if value is None else value.why)
            else:
                steps.add(term)
                left += _read(term)
        while len(found) > 1 and self._may_go_below(latest := max(found, key=order.__getitem__)):
            steps.add(latest)
            found = found - {latest} | {c for c in _read(latest) if not self.follower.constant[c]}
        return sorted(found, key=order.__getitem__)

    def _may_go_below(self, term: Term) -> bool:
        """True if the host can compute a term itself, from others that the network computes."""
        below = [c for c in _read(term) if not self.follower.constant[c]]
        return (
            not _is_computed(term)
            and bool(below)
            and all(isinstance(self.follower.found.get(c), Affine) for c in below)
        )

    def _real(self, name: str, root: Term, words: list[str]) -> Term:
        """Returns the real numbers of a term that the network computes, from its integers: clipped, in the term's
        dtype.

        Raises BadInput if the host must compute the term.
        """
        value = self.follower.found.get(root)
        assert isinstance(value, Affine), "others are computed by the host"
        said = list[str]()
        if len(value.bytes) == len(value.moved.leaves):
            term, (scale, zero), value = self._of_bytes(value)
        else:
            term, (scale, zero) = self._of_sums(value)
            said += ["scale"] if value.dtype in FLOATS else []
        key = term, np.asarray(scale).tobytes(), np.asarray(zero).tobytes()
        if key not in self._names:
            self._names[key] = _free(name, self)
            self.left.append((self._names[key], term, (np.abs(scale), zero)))
        own = self._names[key]
        dtype = "int32" if bool(np.all(np.abs(scale) == 1)) else "float32"
        found = build("access-tensor", Tensor(own, Dims(value.dims), dtype))
        if np.any(np.asarray(scale) < 0):
            found = multiply(found, self._constant(f"{own}.sign", np.sign(scale).astype(dtype)))
        clips = [
            (kind, end) for kind, end in (("maximum", value.low), ("minimum", value.high)) if np.isfinite(end).any()
        ]
        if clips and not value.fits:
            found = cast(found, value.dtype)
            said.append(f"clip to {float(value.low.max()):.6g} .. {float(value.high.min()):.6g}")
            for kind, end in clips:
                found = combine(kind, found, self._constant(f"{own}.{kind}", end.astype(value.dtype)))
        words += said
        return split_at(cast(found, root.access.dtype), root.access.split)

    def _constant(self, name: str, value: Array) -> Term:
        name = _free(name, self)
        self._constants[name] = value
        return build("access-tensor", Tensor(name, Dims(value.shape), value.dtype.name, constant=True))

    def _of_bytes(self, value: Affine) -> tuple[Term, StandsFor, Affine]:
        """Returns bytes of a result. Raises BadInput."""
        if value.offset is not None:
            value = self.follower.cast(value, "int8")
        leaves = {s: leaf for s, leaf in value.moved.leaves.items() if isinstance(leaf, Bytes)}
        zeros = {leaf.zero for leaf in leaves.values()} | ({0} if value.moved.filled else set())
        if len(zeros) == 1:
            zero: Array = np.asarray(zeros.pop())
        else:
            found = places(value.moved.term)
            every = np.zeros(1 + sum(leaf.access.size for leaf in found.first), np.int64)
            for stand_in, first in found.first.items():
                every[first : first + stand_in.access.size] = leaves[stand_in].zero
            zero = every[found.numbers]
        done = {s: leaf.term for s, leaf in leaves.items()}
        (term,) = rebuild_all([value.moved.term], lambda *_: None, done)
        return split_at(term, 0), (value.scale, narrow(zero - value.shift)), value

    def _of_sums(self, value: Affine) -> tuple[Term, StandsFor]:
        """Returns the last product's int32 sums. Raises BadInput."""
        if value.offset is not None or any(not isinstance(leaf, Product) for leaf in value.moved.leaves.values()):
            none = not any(isinstance(leaf, Product) for leaf in value.moved.leaves.values())
            more = ", and this one is computed from no product: a machine has nothing to run" if none else ""
            raise BadInput(f"a result must be bytes, or sums of a product{more}")
        if value.around() is not None:
            raise BadInput("a result has sums with padding to which a number is added")
        (shifts,) = pulled_back(value.moved, [value.shift], "biases")
        done = {
            stand_in: self.follower.network.result(leaf, shifts[stand_in])
            for stand_in, leaf in value.moved.leaves.items()
            if isinstance(leaf, Product)
        }
        (found,) = rebuild_all([value.moved.term], lambda *_: None, done)
        return split_at(found, 0), (value.scale, np.zeros(()))


_PLUMBING = ("access-product", "construct-tuple", "tuple-get-item", "access")


def _free(name: str, results: Results) -> str:
    """Returns the name, followed by as many primes as are needed to be free in the host's program."""
    taken = {*results.follower.constants, *results._constants, *results._names.values()}
    return primed(name, taken)


def _is_left(term: Term) -> bool:
    """True if a result is the machine's integers, as the real numbers that they represent."""
    while term.operator.name == "access":
        (term,) = term.children
    return term.operator.name == "access-tensor"


def _is_computed(term: Term) -> bool:
    """True if a term is the machine's: a product, or a cast to bytes."""
    return is_product(term) or (term.operator.name == "cast" and term.access.dtype in BYTES)


def _read(term: Term) -> list[Term]:
    return [b for c in term.children for b in (c.children if c.operator.name == "access-product" else (c,))]
