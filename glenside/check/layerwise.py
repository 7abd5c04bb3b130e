"""Splits the equality of two programs into equations between layers.

An equation relates the two forms of a layer; new tensors stand for the layers below it, which are equal by their own
equations. An equation that holds for all values makes a layer equal wherever the layers below it are. If all equations
hold, all layers and the result are equal, by induction along the optimized program. Equations that are the same up to
names of tensors are tested once.

Equations are stronger than equality: layers may be equal only for values that other layers give, and some of the
pairs of inner terms are guessed. If an equation fails, the programs are compared as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from glenside.check.order_dependence import dtypes
from glenside.ir.dtypes import REALS
from glenside.ir.names import primed
from glenside.ir.operators.casting import cast
from glenside.ir.program import Program
from glenside.ir.term import Term, build, make, rebuild_all, tensors, weave
from glenside.ir.types import AccessType, Tensor


class Equation(NamedTuple):
    """Two terms over the same tensors, equal for all values of the tensors."""

    original: Term
    optimized: Term


def equations(original: Program, optimized: Program, names: Sequence[str]) -> dict[Equation, list[str]] | None:
    """Returns the distinct equations, each with the names of its layers; None if two forms of a layer differ in type.

    Terms that both programs compute alike from equal terms need no equation.
    """
    pairs = dict.fromkeys((original.layers[name], optimized.layers[name]) for name in names)
    pairs |= dict.fromkeys(_joints(original, optimized, names))
    stands = _StandIns({*original.tensors, *optimized.tensors})
    cuts: tuple[dict[Term, Term], dict[Term, Term]] = {}, {}
    for first, second in pairs:
        if first.type != second.type or not isinstance(first.type, AccessType):
            return None
        stand_in = cuts[0].get(first) or cuts[0].setdefault(first, stands.of(first))
        cuts[1].setdefault(second, stand_in)
    forms = [first for first, _ in pairs], [second for _, second in pairs]
    sides = [
        _bodies(program.term, terms, cut)
        for program, terms, cut in zip((original, optimized), forms, cuts, strict=True)
    ]
    of: dict[tuple[Term, Term], list[str]] = {}
    for name in names:
        of.setdefault((original.layers[name], optimized.layers[name]), []).append(name)
    found: dict[Equation, list[str]] = {}
    for pair, *equation in zip((*pairs, None), *sides, strict=True):
        if equation[0] is equation[1]:
            continue
        found.setdefault(_anonymous(equation), []).extend([] if pair is None else of.get(pair, ()))
    return found


def _joints(original: Program, optimized: Program, names: Sequence[str]) -> list[tuple[Term, Term]]:
    """Returns pairs of terms at casts between reals and integers that both programs compute alike from the same layers.

    Rearrangements between are ignored.
    """
    numbers: dict[Any, int] = {}
    first, second = (_by_computation(program, names, numbers) for program in (original, optimized))
    same = [number for number in first if len(first[number]) == len(second.get(number, ()))]
    return [pair for number in same for pair in zip(first[number], second[number], strict=True)]


def _by_computation(program: Program, names: Sequence[str], numbers: dict[Any, int]) -> dict[int, list[Term]]:
    """Returns the terms at casts between reals and integers, by the number of the computation in both programs."""
    layers = {program.layers[name]: name for name in reversed(names)}
    of: dict[Term, int] = {}
    found: dict[int, dict[Term, None]] = {}
    for term in program.info.order:
        below = [of[child] for child in term.children]
        if term in layers:
            key: Any = layers[term]
        elif term.operator.moves and len({*below}) == 1:
            key = below[0]
        else:
            key = (term.operator.name, term.attributes, term.type, *below)
        of[term] = key if isinstance(key, int) else numbers.setdefault(key, len(numbers))
        if term.operator is cast and _is_real(term) != _is_real(term.children[0]):
            joint = term if _is_real(term.children[0]) else term.children[0]
            found.setdefault(of[joint], {})[joint] = None
    return {number: [*terms] for number, terms in found.items()}


def _is_real(term: Term) -> bool:
    return any(dtype in REALS for dtype in dtypes(term.type))


class _StandIns:
    """A source of tensors with new names."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def of(self, term: Term) -> Term:
        """Returns a new tensor of the type of a term."""
        name = primed(f"%{len(self._taken)}", self._taken)
        self._taken.add(name)
        leaf, split = build("access-tensor", Tensor(name, term.access.dims, term.access.dtype)), term.access.split
        return build("access", leaf, split) if split else leaf


def _bodies(result: Term, terms: Sequence[Term], cut: Mapping[Term, Term]) -> Iterator[Term]:
    """Yields each term, and then the result, in terms of the tensors that stand for the terms below."""
    done: dict[Term, Term] = {}
    (whole, *_) = rebuild_all([result, *terms], lambda term, _: cut.get(term), done)
    for term in terms:
        children = [done[child] for child in term.children]
        yield make(term.operator, weave(term.operator, children, term.attributes))
    yield whole


def _anonymous(equation: Iterable[Term]) -> Equation:
    """Returns the equation with numbered tensors, equal for equations that differ in the names of tensors only."""
    first, second = equation
    called: dict[Term, Term] = {}
    for number, leaf in enumerate(tensors(first, second)):
        tensor = leaf.attributes[0]
        assert isinstance(tensor, Tensor)
        called[leaf] = build("access-tensor", replace(tensor, name=f"x{number}"))
    return Equation(*rebuild_all([first, second], lambda term, _: called.get(term)))
