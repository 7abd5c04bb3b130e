"""Compares a function of open sizes with the interpreter at sizes whose programs have other terms than the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from glenside.builder.builder import LazyArrays
from glenside.ir.dtypes import RECORDS
from glenside.ir.open_program import OpenProgram
from glenside.ir.operand import Array
from glenside.ir.program import Program, entry_of
from glenside.ir.term import Term, build, postorder, rebuild
from glenside.ir.types import Tensor
from glenside.semantics.interpreter import evaluate

if TYPE_CHECKING:
    from glenside.codegen.open_sizes.function import OpenFunction

_TOLERANCE = 1e-4
"""The largest difference of a float, relative to the largest number of a result: sums may be in another order."""
_OF_ROUNDED, _MEAN_OF_ROUNDED = 0.05, 0.01
"""The same for a program that rounds once: some values are rounded to the next number, and what follows differs. The
bound grows with the root of the number of terms that round, as independent errors do. The root of the mean square of
differences is bounded, too, relative to that of the numbers. Activations of 8 bits: 0.04 and 0.007 after 6 blocks."""


def differences(function: OpenFunction, program: OpenProgram, choices: Sequence[Mapping[str, int]]) -> Iterator[str]:
    """Yields a sentence for each result that differs from the interpreter's, on random inputs of several sizes.

    The programs of these sizes are evaluated together: constants that are the same are read and unpacked once.
    """
    programs = [program.at(sizes) for sizes in choices]
    constants, roots, values = programs[0].constants if programs else {}, [], dict[str, Callable[[], Array]]()
    found = []
    for number, (own, sizes) in enumerate(zip(programs, choices, strict=True)):
        given = function.drawn(sizes)
        found.append(function(given))
        names = {name: f"{name}@{number}" for name in given}
        for name in own.constants_declared:
            is_shared = name in constants and entry_of(own.constants, name) is entry_of(constants, name)
            names[name] = name if is_shared else f"{name}@{number}"
            values[names[name]] = partial(own.constants.__getitem__, name)
        values |= {names[name]: partial(given.__getitem__, name) for name in given}
        roots.append(_with_names(own.term, names))
    wanted = evaluate(roots, LazyArrays(values, lambda _, array: array), together=True)
    for own, sizes, ours, theirs in zip(programs, choices, found, wanted, strict=True):
        at = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        yield from (f"at {at}: {said}" for said in _differences(own, ours, theirs))


def _with_names(term: Term, names: Mapping[str, str]) -> Term:
    """Returns a term with other names of tensors."""

    def renamed(one: Term, _: tuple[Term, ...]) -> Term | None:
        tensor = one.attributes[0] if one.operator.name == "access-tensor" else None
        if not isinstance(tensor, Tensor) or names.get(tensor.name, tensor.name) == tensor.name:
            return None
        return build("access-tensor", replace(tensor, name=names[tensor.name]))

    return rebuild(term, renamed)


def _differences(program: Program, found: object, wanted: object) -> Iterator[str]:
    roundings = sum(map(rounds, postorder(program.term)))
    pairs = zip(_flat(found), _flat(wanted), program.result_names(), strict=True)
    for own, right, name in pairs:
        if own.shape != right.shape or own.dtype != right.dtype:
            yield f"{name} is {own.shape} {own.dtype}, and {right.shape} {right.dtype} in the program of these sizes"
        elif own.size and not _is_near(own, right, roundings):
            yield f"{name} has other values"


def _is_near(own: Array, right: Array, roundings: int) -> bool:
    """True if two arrays of one shape and dtype are equal within the tolerance for a program that rounds so often."""
    is_small = own.dtype.kind in "iu" and own.dtype.itemsize == 1
    if not (_is_float(own) or (roundings and is_small)):
        return np.array_equal(own, right)
    own, right = own.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((own == right) | (np.isnan(own) & np.isnan(right)), 0.0, np.abs(own - right))
    finite = right[np.isfinite(right)]
    most = float(np.max(np.abs(finite), initial=1.0))
    if not roundings:
        return bool(np.all(apart <= _TOLERANCE * most))
    mean = max(float(np.mean(finite**2)) if finite.size else 0.0, _TOLERANCE)
    is_near = np.all(apart <= _OF_ROUNDED * sqrt(roundings) * most)
    return bool(is_near and np.mean(apart**2) <= _MEAN_OF_ROUNDED**2 * roundings * mean)


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
