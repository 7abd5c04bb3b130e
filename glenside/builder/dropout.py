"""Dropout, whose random numbers are computed from a seed by integer arithmetic alone.

A mask is therefore the same wherever a program runs: in the interpreter, as C or in onnxruntime.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod

from glenside.builder.indexing import iota
from glenside.builder.layout import broadcast, reshape
from glenside.builder.pointwise import add, cast, combine, compare, divide, filled, multiply
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.operator import require
from glenside.ir.rational import exact
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

SEED = Tensor("dropout-seed", Dims(), "uint32")
"""The input from which all masks of a program are computed."""

_WORD = 1 << 32
_MIX = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))
"""Shifts and factors of the last steps of MurmurHash3 (Austin Appleby, public domain), which make each bit of a word
depend on all of its bits.
"""
_APART = 0x9E3779B9
"""2^32 over the golden ratio, whose multiples are far from each other."""


def mask(x: Term, rate: float | str, stream: int = 0) -> Term:
    """Computes which elements of x are kept, as bool: each is left out with probability `rate`, from 0 to below 1.

    `stream` distinguishes the masks of one seed. Raises BadInput.
    """
    words = noise(tuple(x.access.dims), stream)
    least = min(round(_share(rate) * _WORD), _WORD - 1)
    return compare("ge", words, filled(words, str(least)))


def masked(x: Term, mask: Term, rate: float | str) -> Term:
    """Computes x / (1 - rate) where the mask keeps x, and 0 elsewhere. Raises BadInput, TypeMismatch."""
    require(x.access.dtype in FLOATS, "dropout", f"a float dtype ({', '.join(FLOATS)})", x.access)
    return multiply(x, multiply(cast(mask, x.access.dtype), filled(x, str(1 / (1 - _share(rate))))))


def _share(rate: float | str) -> Fraction:
    share = exact(str(rate))
    if share is None or not 0 <= share < 1:
        raise BadInput(f"dropout requires a rate of at least 0 and below 1, got {str(rate)!r:.40}")
    return share


def noise(dims: tuple[int, ...], stream: int = 0) -> Term:
    """Computes words that look random, ()(dims) uint32, from the seed, the stream and the position of each element."""
    seed = build("access-tensor", SEED)
    first = _mixed(add(seed, filled(seed, str((stream + 1) * _APART % _WORD))))
    places = iota(prod(dims), dtype="uint32")
    spread = multiply(places, filled(places, str(_APART)))
    whole = broadcast(reshape(first, (1,)), spread.access.dims)
    return reshape(_mixed(combine("bitwise-xor", _mixed(add(spread, filled(spread, "1"))), whole)), dims)


def _mixed(word: Term) -> Term:
    for shift, factor in _MIX:
        word = combine("bitwise-xor", word, divide(word, filled(word, str(1 << shift))))
        word = word if factor == 1 else multiply(word, filled(word, str(factor)))
    return word
