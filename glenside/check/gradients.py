"""Checks exactly that a program is the gradient of another one, by the adjoint test on dual numbers over prime fields.

With J the Jacobian of the original's results by its tensors, <u, J v> = <J^T u, v>. The left side is computed from the
original alone: its operators run on dual numbers, without any derivative rule of terms. The right side is the result of
the gradient program. For a wrong gradient and a random v both sides agree with probability 1/p only. If they differ, v
is bisected down to one element, which the report names.

Maxima, comparisons, clips and sorts are fixed selections, since numbers are at random positions off every corner. The
derivative at a corner is a convention, which no check can decide. Functions of reals are formal: each is a
pseudo-random function with its derivative rule and the laws of `glenside.semantics.formal_field`.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from glenside.check.branch_outcomes import CAST
from glenside.check.branches import Branches, Missing
from glenside.check.comparison import Clock, Progress, Trial, observe, steps
from glenside.check.confined import Confined
from glenside.check.gradient_pairs import Pair, pair_of, types
from glenside.check.indices import index_limits, opaque_limit, picks
from glenside.check.input_generators import declared, draw_near, drawn_within
from glenside.check.memory import least_bytes, shortage
from glenside.check.trials import Field, Trials
from glenside.check.verdicts import EXACT, ending, is_equal, verdict_of
from glenside.ir.dtypes import REALS
from glenside.ir.errors import BadInput, OutOfBounds
from glenside.ir.names import spelled_name
from glenside.ir.operand import Array, arrays
from glenside.ir.operators.casting import cast
from glenside.ir.operators.compute import compute
from glenside.ir.program import Program, as_program
from glenside.ir.term import Term, nearest, postorder
from glenside.ir.threads import BLAS_ON_ONE_THREAD
from glenside.ir.types import Tensor
from glenside.semantics.dual_field import DualField
from glenside.semantics.formal_field import FormalField, FormalNumbers
from glenside.semantics.prime_field import PRIMES, PrimeField

_JITTER = 1e-3
"""Relative distance from the positions at which an equality check draws numbers: off every corner."""
_LEAST = 2  # rounds
_SMALL = 3  # every third round draws the tensors of wrt as small as weights
_WIDTH = 16  # bytes of a number
_VALUE = ""  # the key of the original's results, among the names of tensors


@dataclass(frozen=True, slots=True)
class GradientReport:
    """The verdicts of `check_gradient`.

    A verdict is "exact", "equal where reached" with the branch outcome that no input reached, or a sentence with the
    difference or with the reason why nothing was compared.

    gradients  tensor -> the verdict on the gradient with respect to it, in the order of wrt
    value      the verdict on the original's results, if the gradient program returns them too; else ""
    how        one sentence: the kind of numbers, the seed, and the functions that pseudo-random ones replace
    stopped    "", "time-limit" or "interrupted"
    """

    gradients: dict[str, str]
    value: str
    how: str
    seconds: float
    stopped: str = ""

    @property
    def ok(self) -> bool:
        """True if every gradient, and the value if there is one, is right."""
        return all(map(is_equal, self.gradients.values())) and (not self.value or is_equal(self.value))

    def __str__(self) -> str:
        exact = sum(verdict == EXACT for verdict in self.gradients.values())
        lines = [f"value: {self.value}"] if self.value else []
        lines += [f"gradients: {exact} of {len(self.gradients)} exact"]
        lines += [f"{name}: {verdict}" for name, verdict in self.gradients.items() if verdict != EXACT]
        return "\n".join([*lines, f"{self.how} ({self.seconds:.2f} s)"])


def check_gradient(
    program: Program,
    gradient: Program,
    wrt: str | Sequence[str],
    *,
    of: str | Sequence[str] | None = None,
    cotangents: Sequence[str] = (),
    given: Mapping[str, Array] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    deadline: float | None = None,
) -> GradientReport:
    """Checks exactly that a gradient program is the gradient of a program.

    gradient    its result is the tuple of gradients with respect to the tensors `wrt`, in that order, or the one
                gradient; the program's results may come before
    of          names of the results, layers and other named terms that are differentiated; without it, all results
    cotangents  names of the tensors of the gradient that are u, one for each float result, in order. Default: the
                tensors called NAME.RESULT, or for one result, the only tensor that the program does not have.
                Without any, the result is one number, and u is 1.
    given       values of tensors by name; all other tensors are drawn

    All other tensors of the gradient are tensors of the program, or constants with known values. `progress` and
    `deadline` are those of `check`.

    Raises BadInput: a tensor does not exist or has integers, types of gradients do not fit, or the results have more
    than one number and there are no cotangents.
    """
    started = time.perf_counter()
    program, gradient = (as_program(each, "checked") for each in (program, gradient))
    pair = pair_of(program, gradient, [wrt] if isinstance(wrt, str) else wrt, of, cotangents, given or {})
    trials = Trials(seed, program, *reversed(pair.roots))
    branches = Branches(pair.roots)
    clock = Clock(0, deadline, progress)
    clock.total = max(_LEAST, trials.count) * sum(len(steps([root])) for root in pair.roots)
    comparison = _AdjointTest(pair, trials, branches, clock)
    with ending(shortage(least_bytes(declared(*pair.roots).values(), _WIDTH, *pair.roots))) as end:
        while not (end.reason or comparison.settled):
            if comparison.turns >= max(_LEAST, trials.count) and not trials.go_on(len(_missing(branches))):
                break
            comparison.turn()
    verdicts = comparison.verdicts(end.reason, max(_LEAST, trials.count, comparison.turns))
    value = verdicts.pop(_VALUE, "")
    return GradientReport(verdicts, value, comparison.how(seed), time.perf_counter() - started, end.stopped)


def _missing(branches: Branches) -> list[Missing]:
    """Returns the branch outcomes that no round reached, without corners, at which no number is drawn."""
    return [m for m in branches.missing() if m.side not in _corners(m)]


_CORNERS: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(("lt", "le", "gt", "ge", "sign"), (2,)),
    "eq": (0,),
    "ne": (1,),
    **dict.fromkeys(("floor", "ceil"), (0,)),
    "round": (0, 1),
    "cast": range(len(CAST)),
}
"""Primitive -> its branch outcomes at corners: equal numbers, 0, and rounding of a whole number or a half.

All outcomes of casts are corners, since integers do not change.
"""


def _corners(missing: Missing) -> Sequence[int]:
    if missing.primitive != "select" or missing.term.attributes[:1] != ("select",):
        return _CORNERS.get(missing.primitive, ())
    deciding = _deciding(missing.term)
    if not deciding:  # numbers that are not truths are never 0
        return (1,)
    return (0,) if deciding == {"(compare eq)"} else (1,) if deciding == {"(compare ne)"} else ()


def _deciding(select: Term) -> set[str]:
    """Returns the names of the computations from which a select has its truth values, moved or cast."""
    found = nearest(*select.children, stops=lambda t: not (t.operator.moves or t.operator is cast))
    truths = (term for term in found if term.access.dtype == "bool")
    return {str(term.attributes[0]) if term.operator is compute else term.operator.name for term in truths}


class _Residues(FormalField, Field):
    """A formal field that records which functions were replaced."""

    def apply(self, function: str, a: Array, keeps_zero: bool) -> Array:
        self.replaced.add(function)
        return super().apply(function, a, keeps_zero)


class _Point(NamedTuple):
    """A point at which both programs run.

    numbers     the arithmetic
    values      the value of each tensor
    begin       is called with each term before it is evaluated
    cotangents  u for each float result
    found       the gradients at this point
    results     the values that the gradient program returns
    """

    numbers: FormalNumbers
    values: Mapping[str, Array]
    begin: Callable[[Term | None], None]
    cotangents: Sequence[Array]
    found: Mapping[str, Array]
    results: Sequence[Array]


class _OutsideGradient(Exception):
    """The gradient program has an index outside its axis, and the original has none."""


class _AdjointTest:
    """The adjoint test <u, J v> = <J^T u, v>, and its verdicts over all rounds."""

    def __init__(self, pair: Pair, trials: Trials, branches: Branches, clock: Clock) -> None:
        self.pair, self.trials, self.branches, self.clock = pair, trials, branches, clock
        self.turns = 0
        self.differs: dict[str, str] = {}
        self.equal: dict[str, int] = dict.fromkeys([*pair.gradients, *([_VALUE] if pair.values else [])], 0)
        self.replaced: set[str] = set()
        self.fields = [_Residues(p) for p in PRIMES]
        self._limits = index_limits(pair.original, others=[pair.gradient])
        self._confined = Confined(picks(pair.original))
        self._below = opaque_limit(*pair.roots)

    @property
    def settled(self) -> bool:
        """True if everything differs."""
        return all(name in self.differs for name in self.equal)

    def turn(self) -> None:
        """Runs a round: compares at one more point.

        A difference counts only if it shows again in other residues of the same positions: numbers that are 0 by chance
        are not 0 there.
        """
        known = dict(self.differs)
        try:
            found = self._compare(self._point(self.turns, 0))
        except _OutsideGradient as error:
            found = {}
            known |= {n: f"differs: {error}, where the original is within" for n in self.equal if n not in known}
        if found:
            again = self._compare(self._point(self.turns, 1))
            found = {name: text for name, text in found.items() if name in again}
        self.differs = {**known, **found}
        for name in self.equal:
            self.equal[name] += name not in self.differs
        self.turns += 1

    # Numbers.

    def _point(self, turn: int, again: int) -> _Point:
        field = self.fields[(turn + again) % len(self.fields)]
        numbers = FormalNumbers(field)
        numbers.opaque_below = self._below
        self.branches.watched(numbers)
        values = {name: self._draw(numbers, tensor, turn, again) for name, tensor in self.pair.tensors.items()}
        self.branches.begin(None)
        settled = self._confined.settle(values, numbers, self.pair.given)
        if settled is None:
            raise BadInput("no drawn numbers lead to indices within their axes")
        values = settled
        u = self._cotangents(numbers, values, turn, again)
        terms = self.pair.gradients
        seen: dict[Term, Any] = {}
        with BLAS_ON_ONE_THREAD:
            roots = [*terms.values(), *self.pair.values]
            try:
                observe(roots, Trial(numbers, values, self.branches.begin), self.clock, seen.__setitem__)
            except OutOfBounds as error:
                trial = Trial(numbers, values, self.branches.begin)
                observe([self.pair.original], trial, self.clock, lambda *_: None)  # it may raise OutOfBounds too
                raise _OutsideGradient(str(error)) from error
        found = {name: np.asarray(seen[term].imag, np.float32) for name, term in terms.items()}
        return _Point(numbers, values, self.branches.begin, u, found, [seen[term] for term in self.pair.values])

    def _draw(self, numbers: FormalNumbers, tensor: Tensor, turn: int, again: int) -> Array:
        """Draws numbers near those of an equality check; floats have random residues."""
        name, limit = tensor.name, self._limits.get(tensor.name)
        if name in self.pair.given:
            return numbers.encode(name, np.asarray(self.pair.given[name]), tensor.dtype)
        weights = {*self.trials.weights, *(self.pair.gradients if turn % _SMALL == 0 else ())}
        draw = partial(draw_near, seed=self.trials.seed, turn=turn, among=self.trials.calm, weights=weights)
        near = drawn_within(draw, tensor, limit)
        if tensor.dtype not in REALS:
            return numbers.encode(name, near, tensor.dtype)
        jitter = self._stream(name, turn, 0).standard_normal(tensor.dims)
        scale = float(np.std(near)) if near.size > 1 else 1.0
        place = near + _JITTER * np.maximum(scale or 1.0, np.abs(near)) * jitter
        return np.asarray(place + 1j * self._residues(numbers, name, tensor.dims, turn, again))

    def _residues(self, numbers: FormalNumbers, name: str, dims: Sequence[int], turn: int, again: int) -> Array:
        half = numbers.field.half
        drawn = self._stream(name, turn, 1 + again).integers(-half, half, tuple(dims), endpoint=True)
        return np.asarray(drawn, np.float64)

    def _stream(self, name: str, turn: int, what: int) -> np.random.Generator:
        return np.random.default_rng([self.trials.seed, turn, 7 + what, zlib.crc32(name.encode())])

    def _cotangents(
        self, numbers: FormalNumbers, values: Mapping[str, Array], turn: int, again: int
    ) -> Sequence[Array]:
        """Returns u for each float result: the value of the cotangent, or random residues if it is not read."""
        if not self.pair.cotangents:
            return [np.ones((), np.float64)]
        kinds = [kind for kind in types(self.pair.original) if kind.dtype in REALS]
        return [
            values[name].imag if name in values else self._residues(numbers, name, kind.dims, turn, again)
            for name, kind in zip(self.pair.cotangents, kinds, strict=True)
        ]

    # The two sides.

    def _compare(self, point: _Point) -> dict[str, str]:
        """Returns the gradients that differ at a point and did not differ before."""
        found: dict[str, str] = {}
        moved = {name: self._direction(point, name) for name in self.equal if name and name not in self.differs}
        forward, results = self._forward(point, moved)
        self._compare_values(point, results, found)
        field = point.numbers.field
        whole = sum([_dot(field, point.found[name], v) for name, v in moved.items()])
        if (forward - whole) % field.p:
            for name, v in moved.items():
                if self._is_wrong(point, name, v):
                    found[name] = self._where(point, name, v)
        return found

    def _compare_values(self, point: _Point, results: Sequence[Array], found: dict[str, str]) -> None:
        if not self.pair.values or _VALUE in self.differs:
            return
        for i, (mine, other) in enumerate(zip(results, point.results, strict=True)):
            wrong = np.asarray(point.numbers.identity(mine) != point.numbers.identity(other))
            if wrong.any():
                first = tuple(map(int, np.unravel_index(int(np.argmax(wrong)), wrong.shape)))
                found[_VALUE] = f"differs: result {i}, first at {_spelled(first)}"
                return

    def _direction(self, point: _Point, name: str) -> Array:
        half = point.numbers.field.half
        drawn = self._stream(name, self.turns, 3).integers(-half, half, tuple(self.pair.tensors[name].dims))
        return np.asarray(drawn, np.float64)

    def _forward(self, point: _Point, moved: Mapping[str, Array]) -> tuple[int, list[Array]]:
        """Returns <u, J v> for a direction v that is 0 for all other tensors, and the results."""
        dual = DualField(point.numbers, self.pair.two_over_root_pi)
        values = {
            name: dual.dual(value, moved.get(name, 0.0)) if value.dtype.kind == "c" else value
            for name, value in point.values.items()
        }
        found: list[Any] = []
        with BLAS_ON_ONE_THREAD:
            trial = Trial(dual, values, point.begin)
            observe([self.pair.original], trial, self.clock, lambda _, value: found.append(value))
        field, total, results = point.numbers.field, 0, list[Array]()
        weights = iter(point.cotangents)
        for array in arrays(found.pop()):
            number, change = dual.parts(array)
            results.append(number)
            if array.dtype.kind == "c":
                total += _dot(field, np.broadcast_to(next(weights), change.shape), change)
        return total, results

    def _is_wrong(self, point: _Point, name: str, v: Array) -> bool:
        field = point.numbers.field
        return (self._forward(point, {name: v})[0] - _dot(field, point.found[name], v)) % field.p != 0

    def _where(self, point: _Point, name: str, v: Array) -> str:
        """Finds the first wrong element of a gradient by bisection, and returns the sentence that names it."""
        first, last = 0, v.size
        while last - first > 1:
            middle = (first + last) // 2
            part = np.zeros(v.size)
            part[first:middle] = v.ravel()[first:middle]
            if self._is_wrong(point, name, part.reshape(v.shape)):
                last = middle
            else:
                first = middle
        place = tuple(map(int, np.unravel_index(first, v.shape)))
        return f"differs: gradient with respect to {spelled_name(name)}, first at {_spelled(place)}"

    # What is said.

    def verdicts(self, reason: str, trials: int) -> dict[str, str]:
        """Returns the verdict on each gradient after `trials` rounds, or at a stop for a reason."""
        missing = _missing(self.branches)
        own = {name: [m for m in missing if self._concerns(name, m.term)] for name in self.equal}
        return {
            name: self.differs.get(name) or verdict_of(equal, trials, reason, own[name])
            for name, equal in self.equal.items()
        }

    def _concerns(self, name: str, term: Term) -> bool:
        """True if a gradient depends on the branch outcome of a term: in the original, a term above its tensor."""
        if name == _VALUE:
            return term in {*postorder(self.pair.original, *self.pair.values)}
        return name in declared(term) or term in {*postorder(self.pair.gradients[name])}

    def how(self, seed: int) -> str:
        """Returns the sentence on the numbers, the seed, and the functions that were replaced."""
        primes = " or ".join(str(field.p) for field in self.fields[: max(1, min(self.turns, len(self.fields)))])
        times = "once" if self.turns == 1 else f"{self.turns} times"
        text = f"dual numbers at random points, drawn {times}, in a prime field, p = {primes}, seed {seed}"
        replaced = sorted({name for field in self.fields for name in field.replaced})
        rules = f"; pseudo-random functions with their derivative rules stand for {', '.join(replaced)}"
        return text + rules if replaced else text


def _spelled(place: Sequence[int]) -> str:
    return f"({', '.join(map(str, place))})"


def _dot(field: PrimeField, a: Array, b: Array) -> int:
    """Returns the inner product of residues, modulo p."""
    if not prod(a.shape):
        return 0
    products = field.multiply(np.asarray(a, np.float64), np.asarray(b, np.float64))
    return int(products.sum(dtype=np.float64)) % field.p
