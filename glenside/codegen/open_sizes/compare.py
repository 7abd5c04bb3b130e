"""Compares a function of open sizes with the interpreter at sizes whose programs have other terms than the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from glenside.builder.builder import LazyArrays
from glenside.ir.dtypes import RECORDS
from glenside.ir.open_program import OpenProgram, sizes_in_words
from glenside.ir.operand import Array
from glenside.ir.program import Program, entry_of
from glenside.ir.term import Term, build, postorder, rebuild
from glenside.ir.types import Tensor
from glenside.semantics.interpreter import evaluate
from glenside.semantics.native import Native

if TYPE_CHECKING:
    from glenside.codegen.open_sizes.callable import OpenCallable

_TOLERANCE = 1e-4
"""The largest difference of a float, relative to the largest number of a result: sums may be in another order."""
_OF_ROUNDED, _MEAN_OF_ROUNDED = 0.05, 0.01
"""The same for programs that round, and the root of the mean square of differences, relative to that of the numbers:
some values are rounded to the next number, and what follows differs."""
_NOISE = 3.0
"""Deeper programs that round may differ more: by this factor of what differs if all values that are rounded are moved
a little, as other orders of sums do."""
_MOST_OF_ROUNDED, _MOST_MEAN_OF_ROUNDED = 0.5, 0.3
"""The largest of these bounds: beyond them, a comparison says nothing."""
_MOVED, _MOVED_OF_FLOAT = 0.01, 1e-5
"""By how much values are moved before they are rounded to integers, and to floats, relative to their size."""


class Moved(Native):
    """The numbers of numpy, where values are moved a little before they are rounded: up or down, by their last bits."""

    own: Mapping[str, Callable[..., Array]] = MappingProxyType(
        {"round": lambda a: np.round(a + (_MOVED * _direction(a)).astype(a.dtype))}
    )

    def cast(self, a: Array, dtype: str) -> Array:
        if _is_float(a) and RECORDS[dtype].kind == "float" and RECORDS[dtype].bits < 8 * a.dtype.itemsize:
            a = a * (1 + _MOVED_OF_FLOAT * _direction(a)).astype(a.dtype)
        return super().cast(a, dtype)


def _direction(a: Array) -> Array:
    """Returns pseudo-random numbers from -1 to 1, each of a value alone: threads compute parts of an array."""
    many = a.astype(np.float64) * 7919.7
    return np.asarray(2 * (many - np.floor(many)) - 1)


def differences(function: OpenCallable, program: OpenProgram, choices: Sequence[Mapping[str, int]]) -> Iterator[str]:
    """Yields a sentence for each result that differs from the interpreter's, on random inputs of several sizes.

    The programs of these sizes are evaluated together: constants that are the same are read and unpacked once.
    """
    programs = [program.at(sizes) for sizes in choices]
    constants, roots, values = programs[0].constants if programs else {}, [], dict[str, Callable[[], Array]]()
    found = []
    for number, (own, sizes) in enumerate(zip(programs, choices, strict=True)):
        given = function.drawn(sizes)
        found.append(function.called(given, {name: sizes[name] for name in function.ranges}, None, None))
        names = {name: f"{name}@{number}" for name in given}
        for name in own.constants_declared:
            is_shared = name in constants and entry_of(own.constants, name) is entry_of(constants, name)
            names[name] = name if is_shared else f"{name}@{number}"
            values[names[name]] = partial(own.constants.__getitem__, name)
        values |= {names[name]: partial(given.__getitem__, name) for name in given}
        roots.append(_with_names(own.term, names))
    read = LazyArrays(values, lambda _, array: array)
    wanted = evaluate(roots, read, together=True)
    for own, root, sizes, ours, theirs in zip(programs, roots, choices, found, wanted, strict=True):
        said = list(_differences(own, ours, theirs))
        if said and any(map(rounds, postorder(root))):
            (moved,) = evaluate([root], read, Moved())
            said = list(_differences(own, ours, theirs, moved))
        yield from (f"at {sizes_in_words(sizes)}: {one}" for one in said)


def _with_names(term: Term, names: Mapping[str, str]) -> Term:
    """Returns a term with other names of tensors."""

    def renamed(one: Term, _: tuple[Term, ...]) -> Term | None:
        tensor = one.attributes[0] if one.operator.name == "access-tensor" else None
        if not isinstance(tensor, Tensor) or names.get(tensor.name, tensor.name) == tensor.name:
            return None
        return build("access-tensor", replace(tensor, name=names[tensor.name]))

    return rebuild(term, renamed)


def _differences(program: Program, found: object, wanted: object, moved: object = None) -> Iterator[str]:
    """Yields a sentence for each result that differs.

    moved  results of the interpreter with values moved before they are rounded, if they are known
    """
    does_round = any(map(rounds, postorder(program.term)))
    others = _flat(wanted if moved is None else moved)
    for own, right, other, name in zip(_flat(found), _flat(wanted), others, program.result_names(), strict=True):
        if own.shape != right.shape or own.dtype != right.dtype:
            yield f"{name} is {own.shape} {own.dtype}, and {right.shape} {right.dtype} in the program of these sizes"
        elif own.size and not is_near(own, right, does_round, other):
            yield f"{name} has other values"


def is_near(own: Array, right: Array, does_round: bool, moved: Array | None = None) -> bool:
    """True if two arrays of one shape and dtype are equal within the tolerance for a program.

    moved  what `right` is if values are moved before they are rounded, for a program that rounds
    """
    is_small = own.dtype.kind in "iu" and own.dtype.itemsize == 1
    if not (_is_float(own) or (does_round and is_small)):
        return np.array_equal(own, right)
    apart, finite = _apart(own, right), right.astype(np.float64)
    finite = finite[np.isfinite(finite)]
    most = float(np.max(np.abs(finite), initial=1.0))
    if not does_round:
        return bool(np.all(apart <= _TOLERANCE * most))
    mean = max(float(np.mean(finite**2)) if finite.size else 0.0, _TOLERANCE) ** 0.5
    noise = _apart(right if moved is None else moved, right)
    largest = max(_OF_ROUNDED * most, min(_NOISE * float(np.max(noise)), _MOST_OF_ROUNDED * most))
    root = max(_MEAN_OF_ROUNDED * mean, min(_NOISE * float(np.mean(noise**2)) ** 0.5, _MOST_MEAN_OF_ROUNDED * mean))
    return bool(np.all(apart <= largest) and np.mean(apart**2) <= root**2)


def _apart(a: Array, b: Array) -> Array:
    """Returns the differences of two arrays; those of equal infinities, and of not-a-number, are 0."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))


def rounds(term: Term) -> bool:
    """True if a term rounds to integers or to a float of fewer bits."""
    if term.operator.name == "cast":
        own, source = (RECORDS[t.access.dtype] for t in (term, term.children[0]))
        return own.kind == source.kind == "float" and own.bits < source.bits
    return "round" in term.attributes


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype in [r.numpy for r in RECORDS.values() if r.kind == "float"]


def _flat(value: object) -> Iterator[Array]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flat(item)
    else:
        yield np.asarray(value)
