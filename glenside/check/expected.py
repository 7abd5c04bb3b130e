"""Computes reference results: draws values, runs the interpreter, and decides which differences rounding explains."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from glenside.check.confined import Confined
from glenside.check.indices import counted_from_ends, from_end, index_limits, picks
from glenside.check.input_generators import drawn_within
from glenside.ir.dtypes import REALS, WHOLE, fraction_bits, limits, wider
from glenside.ir.errors import GlensideError
from glenside.ir.names import primed
from glenside.ir.operand import Array, arrays
from glenside.ir.operators.casting import bitcast, cast
from glenside.ir.operators.compute import compute
from glenside.ir.program import Program
from glenside.ir.term import Term, build, items_of, postorder, rebuild_all
from glenside.ir.types import AccessType, Tensor, TupleType
from glenside.semantics import Native
from glenside.semantics.interpreter import evaluate

_TRIALS = 3
_SLACK = 16
"""Tolerance as a multiple of the change that one unit in the last place of the inputs makes."""
_UNITS = 256
"""Tolerance in units in the last place of the largest element of an array."""
_TIES = 5
"""Stream number of the random draw that selects the kind of numbers for a seed."""
_ENDS = 6
"""Stream number of the random draw of whether indices count from the end."""
_EQUAL, _SPECIAL = 0.35, 0.65
"""The share of seeds whose numbers are often equal, and with those whose numbers are special values."""
_SPECIAL_REALS = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, 2.5, -2.5, -3.0, 100.0)
_HALVES, _TIED = (0.5, -0.5, 1.5, -1.5, 2.5, -2.5), 1 / 8
"""Ties of rounding, and their share of numbers that are normal otherwise."""
_HUGE, _TINY = 1e18, 1e-2
_EXACT = frozenset(
    "abs negative sign floor ceil round relu maximum minimum compare select logical-and logical-or logical-not "
    "reduce-max reduce-min argmax argmin argsort".split()
)
"""Compute types that round nothing."""


def values_of(program: Program, seed: int) -> dict[str, Array]:
    """Draws a value for every tensor: the program's own constants, valid indices, and numbers of several kinds."""
    below = index_limits(program.term)
    known = program.seeded_constants(seed).constants
    found: dict[str, Array] = {}
    for name, tensor in program.tensors.items():
        limit = below.get(name)
        if name in program.constants or (tensor.constant and limit is None):
            found[name] = np.asarray(known[name])
        else:
            found[name] = drawn_within(partial(drawn, seed=seed), tensor, limit)
    found = Confined(picks(program.term)).settle(found, Native(), program.constants) or found
    if np.random.default_rng([seed, _ENDS]).random() < 0.5:
        for name in counted_from_ends(program.term) & below.keys() - program.constants.keys():
            found[name] = from_end(found[name], below[name], seed)
    return found


def drawn(tensor: Tensor, limit: int | Array | None = None, *, seed: int) -> Array:
    """Draws floats that are normal with some ties of rounding, small whole numbers, halves or zeros, integers of full
    range or small, or indices.

    For some seeds all tensors are small whole numbers and halves, many of which are equal, with exact sums. For
    others they are values at which operators change their behaviour, such as 0, -1 and the limits of integers.
    """
    rng = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
    dims, dtype = tuple(tensor.dims), tensor.dtype
    if limit is not None and dtype in WHOLE:
        return rng.integers(0, np.clip(limit, 1, min(limits(dtype)[1], 1 << 62) + 1), dims).astype(dtype)
    way, kind = rng.integers(0, 8), np.random.default_rng([seed, _TIES]).random()
    if _EQUAL <= kind < _SPECIAL and dtype != "bool":
        return rng.choice(_special(dtype), dims).astype(dtype)
    if dtype in REALS and kind < _EQUAL:
        way = rng.integers(4, 7)
    if dtype in REALS:
        if way < 4:
            ties = rng.random(dims) < _TIED
            return np.where(ties, rng.choice(_HALVES, dims), rng.standard_normal(dims)).astype(dtype)
        if way < 6:
            return rng.integers(-4, 5, dims).astype(dtype)
        if way == 6:
            return (rng.integers(-6, 7, dims) / 2).astype(dtype)
        return np.where(rng.random(dims) < 0.5, 0, rng.standard_normal(dims)).astype(dtype)
    least, most = limits(dtype)
    if way < 4:
        least, most = max(least, -4), min(most, 4)
    return rng.integers(least, most, dims, np.uint64 if least >= 0 else np.int64, endpoint=True).astype(dtype)


def _special(dtype: str) -> Array:
    """Returns values at which operators change their behaviour: 0, 1, -1, halves, and the limits of integers."""
    if dtype in REALS:
        return np.array(_SPECIAL_REALS)
    least, most = limits(dtype)
    values = [n for n in (0, 1, -1, 2, -2, 3, -7, least, least + 1, most - 1, most) if least <= n <= most]
    return np.array(values, np.int64 if least < 0 else np.uint64)


def computed(term: Term, values: Mapping[str, Array]) -> list[Array]:
    """Returns the interpreter's results."""
    return [np.asarray(array) for array in arrays(evaluate([term], values)[0])]


def each_result(term: Term) -> list[Term]:
    """Returns every result as ()(dims), with those of inner tuples."""
    return [build("access", item, 0) if item.access.split else item for item in arrays_of(term)]


def arrays_of(term: Term) -> list[Term]:
    """Returns the arrays of a term, with those of inner tuples."""
    if not isinstance(term.type, TupleType):
        return [term]
    return [array for item in items_of(term) for array in arrays_of(item)]


def coarsest(*terms: Term) -> float:
    """Returns the unit in the last place of the coarsest floats of terms; 0 if there are no floats."""
    floats = [d for t in postorder(*terms) for d in _dtypes(t) if d in REALS]
    return max((2.0 ** -fraction_bits(dtype) for dtype in floats), default=0.0)


class Expected:
    """The results of the interpreter, with the uncertainty of each element from rounding of the inputs.

    parts  a term for each result, whose tolerance depends on the floats that it is computed from

    Integer and truth results are uncertain where rounding of a float below changes them. A result is undefined, and
    not compared, if floats are cast to an integer dtype that cannot hold them, or if bits of a nan are cast: machines
    differ there.
    """

    def __init__(self, program: Program, values: Mapping[str, Array], seed: int) -> None:
        self.values, self.seed = values, seed
        self.results = computed(program.term, values)
        self.parts = each_result(program.term)
        self.slack: dict[int, Array] = {}

    def difference(self, found: Sequence[Array], unit: float = 0.0) -> str:
        """Returns how the found results differ from the expected ones; "" if they agree.

        unit  a lower bound of the unit in the last place, for a file that computes in coarser floats than the program
        """
        if len(found) != len(self.results):
            return f"{len(found)} results for {len(self.results)}"
        for number, (want, got) in enumerate(zip(self.results, found, strict=True)):
            got = np.asarray(got)
            if (want.shape, want.dtype) != (got.shape, got.dtype):
                return f"result {number + 1} is {got.dtype} {got.shape}, not {want.dtype} {want.shape}"
            bad = _unequal(want, got)
            if not bad.any():
                continue
            if self._is_undefined(number):
                continue
            if own := max(unit, coarsest(self.parts[number])):
                bad &= self._certain(number, own, want, got)
            if bad.any():
                at = tuple(int(i) for i in np.argwhere(bad)[0])
                return (
                    f"result {number + 1} differs in {int(bad.sum()):,} of {want.size:,} elements, "
                    f"the first at {at}: {got[at]}, where {want[at]} is right"
                )
        return ""

    @property
    def undefined(self) -> bool:
        """True if some result is undefined."""
        return any(map(self._is_undefined, range(len(self.parts))))

    def _is_undefined(self, number: int) -> bool:
        return _casts_undefined(self.parts[number], self.values)

    def _certain(self, number: int, unit: float, want: Array, got: Array) -> Array:
        """Returns a mask of the elements that differ by more than rounding explains."""
        a, b = _plain(want), _plain(got)
        if unit <= coarsest(self.parts[number]) and _is_exact(self.parts[number]):
            return np.isfinite(a)
        with np.errstate(all="ignore"):
            finite = a[np.isfinite(a) & (np.abs(a) < _HUGE)]
            scale = float(np.max(np.abs(finite), initial=0.0))
            own = 2.0 ** -fraction_bits(want.dtype.name) if want.dtype.name in REALS else 0.0
            units = _TINY * unit + _UNITS * max(own, unit) * scale * (want.dtype.name in REALS)
            if want.dtype.name in REALS and bool(np.all(~_unequal(want, got) | (np.abs(a - b) <= units))):
                return np.zeros(want.shape, bool)  # within tolerance without the rounding of the inputs
            if number not in self.slack:
                self.slack[number] = self._uncertainty(number, unit)
            slack = self.slack[number]
            tolerance = units + _SLACK * slack
            known = np.isfinite(slack) & np.isfinite(a) & (np.abs(a) < _HUGE)
            if want.dtype.name not in REALS:
                known &= slack == 0
            return np.asarray(known & ~(np.abs(a - b) <= tolerance))

    def _uncertainty(self, number: int, unit: float) -> Array:
        """Returns the largest change of each element when all floats are moved by units in the last place."""
        rng, want = np.random.default_rng([self.seed, 77]), self.results[number]
        slack = np.zeros(want.shape)
        part, values = _with_listed_numbers(self.parts[number], self.values)
        for _ in range(_TRIALS):
            moved = {name: _moved(array, unit, rng) for name, array in values.items()}
            try:
                (found,) = computed(part, moved)
            except GlensideError:
                return np.full(want.shape, np.inf)
            with np.errstate(all="ignore"):
                change = np.where(_unequal(want, found), np.abs(_plain(want) - _plain(found)), 0.0)
                np.maximum(slack, np.where(np.isnan(change), np.inf, change), out=slack)
        return slack


def _casts_undefined(term: Term, values: Mapping[str, Array]) -> bool:
    """True if a float is cast to an integer dtype that cannot hold it, or the bits of a nan are cast."""
    casts = [t for t in postorder(term) if t.operator in (cast, bitcast) and t.access.dtype in WHOLE]
    casts = [t for t in casts if t.children[0].access.dtype in REALS]
    if not casts:
        return False
    for made, operand in zip(casts, evaluate([t.children[0] for t in casts], values), strict=True):
        least, most = limits(made.access.dtype)
        plain = _plain(np.asarray(operand))
        if made.operator is bitcast:
            if np.isnan(plain).any():
                return True
            continue
        if plain.size and not bool(np.all((plain > least - 1) & (plain < most + 1))):
            return True
    return False


def _is_exact(term: Term) -> bool:
    """True if nothing is rounded: elements are only moved, chosen, compared, and rounded to whole numbers."""
    return all(
        t.operator.name in ("access-tensor", "construct-tuple", "tuple-get-item")
        or t.index_map is not None
        or (t.operator is compute and str(t.attributes[0]).strip("()").split(" ")[0] in _EXACT)
        for t in postorder(term)
    )


def _with_listed_numbers(term: Term, values: Mapping[str, Array]) -> tuple[Term, Mapping[str, Array]]:
    """Replaces floats that a term lists by tensors, to be moved like inputs; returns the values of all tensors too."""
    found = dict(values)

    def named(leaf: Term, _: tuple[Term, ...]) -> Term | None:
        if leaf.operator.name != "numbers" or leaf.access.dtype not in REALS:
            return None
        name = primed("numbers", found)
        (found[name],) = computed(leaf, {})
        return build(
            "access", build("access-tensor", Tensor(name, leaf.access.dims, leaf.access.dtype)), leaf.access.split
        )

    return rebuild_all([term], named)[0], found


def _moved(array: Array, unit: float, rng: np.random.Generator) -> Array:
    if array.dtype.name not in REALS or not array.size:
        return array
    by = 1 + unit * rng.choice([-4.0, -1.0, 1.0, 4.0], array.shape)
    return np.asarray(array.astype(np.float64) * by + 1e-9 * unit * rng.standard_normal(array.shape)).astype(
        array.dtype
    )


def _plain(array: Array) -> Array:
    return np.asarray(array.astype(wider(array.dtype.name)).astype(np.float64))


def _unequal(a: Array, b: Array) -> Array:
    """Returns where elements differ, with nan equal to nan."""
    if a.dtype.name in REALS:
        x, y = _plain(a), _plain(b)
        return np.asarray((x != y) & ~(np.isnan(x) & np.isnan(y)))
    return np.asarray(a != b)


def _dtypes(term: Term) -> tuple[str, ...]:
    return (term.type.dtype,) if isinstance(term.type, AccessType) else ()
