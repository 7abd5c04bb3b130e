"""Computes numbers and vectors of patterns on symbolic integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from glenside.proofs.access_patterns import Case, Impossible, NotExpressible
from glenside.proofs.symbolic_integers import Number, at_least, integer, plain, product, quotient, same

Vector = tuple[Number, ...]


def _place(axis: Number, of: str) -> int:
    if not isinstance(axis, int):
        raise NotExpressible(f"{of} at a place that depends on sizes")
    return axis


def _at(v: Vector, axis: Number, of: str, beyond: int = 0) -> int:
    """Returns a place in a vector, as an int. Raises Impossible if there is none: the fact then has no row."""
    k = _place(axis, of)
    if not 0 <= k < len(v) + beyond:
        raise Impossible("no such place in a vector")
    return k


def _divided(case: Case, a: Number, b: Number, rest: bool) -> Number:
    """Divides as the e-graph does, towards zero; so both must be sizes, of which the divisor is not 0."""
    if isinstance(a, int) and isinstance(b, int) and b:
        whole = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return a - b * whole if rest else whole
    if case.owing:
        case.owed += [at_least(b, 1), at_least(a, 0)]
    else:
        case.assume(same(b, 0).negated)
        known = case.known
        if not case.unsolved and not (known.proves(at_least(b, 0)) and known.proves(at_least(a, 0))):
            raise NotExpressible("a division of what may be negative")
    whole_part = quotient(a, b)
    return plain(integer(a) - integer(b) * whole_part if rest else whole_part)


def _extreme(case: Case, a: Number, b: Number, sign: int) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b) if sign > 0 else min(a, b)
    return a if case.decide(at_least(a, b)) == (sign > 0) else b


def _permuted(v: Vector, order: Vector) -> Vector:
    return tuple(v[_at(v, k, "permute")] for k in order)


def _prefixes(v: Vector) -> Vector:
    return tuple(plain(product(v[:k])) for k in range(len(v) + 1))


def _windows(window: Vector, strides: Vector, dims: Vector) -> Vector:
    if not len(window) == len(strides) == len(dims):
        raise Impossible("windows of another rank")
    return tuple(plain(quotient(integer(n) - k, t) + 1) for k, t, n in zip(window, strides, dims, strict=True))


def _highest(v: Vector) -> int:
    return max((-1, *(_place(k, "highest") for k in v)))


def _replaced(v: Vector, axis: Number, *sizes: Number, keep: bool = False) -> Vector:
    k = _at(v, axis, "set", 1 if keep else 0)
    return (*v[:k], *sizes, *v[k + (not keep) :])


def _last_removed(v: Vector) -> Vector:
    if not v:
        raise Impossible("no last place in a vector")
    return v[:-1]


VECTORS: dict[str, Callable[..., Any]] = {
    "+": lambda case, a, b: plain(a + b),
    "-": lambda case, a, b: plain(a - b),
    "*": lambda case, a, b: plain(a * b),
    "/": lambda case, a, b: _divided(case, a, b, rest=False),
    "%": lambda case, a, b: _divided(case, a, b, rest=True),
    "max": lambda case, a, b: _extreme(case, a, b, 1),
    "min": lambda case, a, b: _extreme(case, a, b, -1),
    "vec-of": lambda case, *sizes: tuple(sizes),
    "vec-empty": lambda case: (),
    "vec-append": lambda case, *vectors: tuple(n for v in vectors for n in v),
    "vec-length": lambda case, v: len(v),
    "vec-range": lambda case, n: tuple(range(_place(n, "range"))),
    "vec-get": lambda case, v, axis: v[_at(v, axis, "an element")],
    "vec-set": lambda case, v, axis, size: _replaced(v, axis, size),
    "vec-remove": lambda case, v, axis: _replaced(v, axis),
    "insert": lambda case, v, size, axis: _replaced(v, axis, size, keep=True),
    "vec-push": lambda case, v, size: (*v, size),
    "vec-pop": lambda case, v: _last_removed(v),
    "take": lambda case, v, n: v[: _at(v, n, "take", 1)],
    "drop": lambda case, v, n: v[_at(v, n, "drop", 1) :],
    "shift": lambda case, v, n: tuple(plain(k + n) for k in v),
    "permute": lambda case, v, order: _permuted(v, order),
    "product": lambda case, v: plain(product(v)),
    "prefixes": lambda case, v: _prefixes(v),
    "highest": lambda case, v: _highest(v),
    "windows": lambda case, window, strides, v: _windows(window, strides, v),
}
"""Function of patterns -> its value, of the case and the arguments."""
__all__ = ["VECTORS", "Sequence"]
