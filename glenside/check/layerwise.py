"""Programs that differ in what they do with integers alone, as equations between layers: each distinct one once.

An equation says what a layer is in both programs, of what is below it there and said to be equal too: any numbers stand
for that. Where it holds for all numbers, the layer is equal wherever what is below it is. So if all equations hold, all
layers are equal, by induction along the optimized program, and so is the result. Equations that are the same up to the
names of tensors are one. They say more than is asked for: layers may be equal for the numbers only that others give
them, and what is said to be equal beside them is guessed. Where one fails, programs are compared as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from glenside.check.order import dtypes
from glenside.check.stimuli import is_real
from glenside.ir.dtypes import REALS
from glenside.ir.names import primed
from glenside.ir.operators.casting import cast
from glenside.ir.program import Program
from glenside.ir.term import Term, build, make, postorder, rebuild_all, tensors, weave
from glenside.ir.types import AccessType, Tensor


class Equation(NamedTuple):
    """Two terms over the same tensors, which are equal for all values of those."""

    original: Term
    optimized: Term


def equations(original: Program, optimized: Program, names: Sequence[str]) -> dict[Equation, list[str]] | None:
    """The distinct equations, with the layers that each is of, if any; None where one is of reals.

    What is computed in the same way of what is equal, is equal: of that there is none.
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
    sides = [
        _bodies(program.term, terms, cut)
        for program, terms, cut in zip((original, optimized), zip(*pairs, strict=True), cuts, strict=True)
    ]
    of: dict[tuple[Term, Term], list[str]] = {}
    for name in names:
        of.setdefault((original.layers[name], optimized.layers[name]), []).append(name)
    found: dict[Equation, list[str]] = {}
    for pair, *equation in zip((*pairs, None), *sides, strict=True):
        if equation[0] is equation[1]:
            continue
        if is_real(*equation):
            return None
        found.setdefault(_anonymous(equation), []).extend([] if pair is None else of.get(pair, ()))
    return found


def _joints(original: Program, optimized: Program, names: Sequence[str]) -> list[tuple[Term, Term]]:
    """Where reals are made of integers and integers of reals, in both: what is computed of the same layers in the same
    way, however it is moved on the way.
    """
    numbers: dict[Any, int] = {}
    first, second = (_by_computation(program, names, numbers) for program in (original, optimized))
    same = [number for number in first if len(first[number]) == len(second.get(number, ()))]
    return [pair for number in same for pair in zip(first[number], second[number], strict=True)]


def _by_computation(program: Program, names: Sequence[str], numbers: dict[Any, int]) -> dict[int, list[Term]]:
    """Such places by what is computed there, which has a number for both programs."""
    layers = {program.layers[name]: name for name in reversed(names)}
    of: dict[Term, int] = {}
    found: dict[int, dict[Term, None]] = {}
    for term in postorder(program.term):
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
    """Tensors of names that nobody has."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def of(self, term: Term) -> Term:
        """Any numbers, of the type of a term."""
        name = primed(f"%{len(self._taken)}", self._taken)
        self._taken.add(name)
        leaf, split = build("access-tensor", Tensor(name, term.access.dims, term.access.dtype)), term.access.split
        return build("access", leaf, split) if split else leaf


def _bodies(result: Term, terms: Sequence[Term], cut: Mapping[Term, Term]) -> Iterator[Term]:
    """What terms are, and then the result, of those below."""
    done: dict[Term, Term] = {}
    (whole, *_) = rebuild_all([result, *terms], lambda term, _: cut.get(term), done)
    for term in terms:
        children = [done[child] for child in term.children]
        yield make(term.operator, weave(term.operator, children, term.attributes))
    yield whole


def _anonymous(equation: Iterable[Term]) -> Equation:
    """The same for all equations that differ in the names of tensors."""
    first, second = equation
    called: dict[Term, Term] = {}
    for number, leaf in enumerate(tensors(first, second)):
        tensor = leaf.attributes[0]
        assert isinstance(tensor, Tensor)
        called[leaf] = build("access-tensor", replace(tensor, name=f"x{number}"))
    return Equation(*rebuild_all([first, second], lambda term, _: called.get(term)))
