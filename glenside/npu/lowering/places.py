"""Where the elements of a term come from: those of other terms, moved about, and sums of them.

Index maps of operators are evaluated on numbers of elements, so whatever moves elements to places that are known
becomes addresses: windows, paddings, transposes, regroupings. What computes ends it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.index_map import Fill
from glenside.ir.operand import Array
from glenside.ir.term import Term, build, rebuild_all, weave
from glenside.ir.types import Tensor
from glenside.semantics.interpreter import evaluate


@dataclass(frozen=True)
class Places:
    """Numbers of elements, in the dims of a term: those of each leaf from its first number on; 0 is a zero."""

    numbers: Array
    first: Mapping[Term, int]

    def values(self, given: Mapping[Term, Array], dtype: str) -> Array:
        """The elements themselves, from those of each leaf."""
        every = [np.zeros(1, dtype), *(np.asarray(given[leaf], dtype).ravel() for leaf in self.first)]
        found: Array = np.concatenate(every)[self.numbers]
        return found


def moves(term: Term) -> bool:
    """Whether every element of a term is one of its operands', or a zero."""
    if term.operator.index_map is None or not term.children:
        return False
    map_ = term.index_map
    return map_ is not None and map_.fill is not Fill.LOWEST


def places(term: Term, ends: Container[Term] = ()) -> Places:
    """The elements of a term, by what computes or holds them, or by those of `ends` that it reads."""
    first, count, numbers, stand_ins = dict[Term, int](), 1, dict[str, Array](), dict[Term, Term]()
    for leaf in leaves_of(term, ends):
        first[leaf], of = count, leaf.access
        tensor = Tensor(f"leaf {len(first)}", of.dims, "int64")
        stand_ins[leaf] = build("access", build("access-tensor", tensor), of.split)
        numbers[tensor.name] = np.arange(count, count + of.size, dtype=np.int64).reshape(tuple(of.dims))
        count += of.size
    (moved,) = rebuild_all([term], lambda _, __: None, stand_ins)
    (found,) = evaluate([moved], numbers)
    return Places(np.asarray(found).reshape(tuple(term.access.dims)), first)


def leaves_of(term: Term, ends: Container[Term] = ()) -> list[Term]:
    """The first terms below one, itself included, that are not its elements moved about, or are among `ends`; in order
    of appearance.
    """
    found, stack, seen = list[Term](), [term], set[Term]()
    while stack:
        top = stack.pop()
        if top in seen:
            continue
        seen.add(top)
        if top not in ends and moves(top):
            stack += reversed(top.children)
        else:
            found.append(top)
    return found


def summands(term: Term) -> list[Term]:
    """What a term adds up and moves about; the term itself where it does neither."""
    found = list[Term]()
    for leaf in leaves_of(term):
        found += summands(leaf.children[0]) if _adds(leaf) else [leaf]
    return [*dict.fromkeys(found)]


def _adds(term: Term) -> bool:
    return term.operator.name == "compute" and term.attributes[0] == "reduce-sum"


@dataclass(frozen=True)
class Sums:
    """Each element of a term as a sum of elements of products: their numbers, (dims)(terms); 0 where there are fewer.

    first  product -> the number of its first element
    """

    numbers: Array
    first: Mapping[Term, int]


def sums(term: Term, products: Sequence[Term]) -> Sums:
    """The elements of a term as sums of those of products. Raises BadInput where it computes anything else."""
    first, count = {}, 1
    for product in products:
        first[product] = count
        count += product.access.size
    return Sums(_added(term, first), first)


def _added(term: Term, first: Mapping[Term, int]) -> Array:
    if term in first:
        begin, dims = first[term], tuple(term.access.dims)
        return np.arange(begin, begin + term.access.size, dtype=np.int64).reshape((*dims, 1))
    if moves(term):
        return _moved(term, first)
    if _adds(term):
        below, shape = _added(term.children[0], first), tuple(term.children[0].access.shape)
        return below.reshape((*shape, -1))
    words = weave(term.operator, ["..."] * len(term.children), term.attributes)
    raise BadInput(f"the machine adds up sums, and moves them, and has nothing for {term.operator.name} {words}")


def _moved(term: Term, first: Mapping[Term, int]) -> Array:
    found = places(term)
    below = [_added(leaf, first) for leaf in found.first]
    most = max(each.shape[-1] for each in below)
    rows = [np.zeros((1, most), np.int64)]
    for each in below:
        row = each.reshape(-1, each.shape[-1])
        rows.append(np.pad(row, ((0, 0), (0, most - row.shape[1]))))
    added: Array = np.concatenate(rows)[found.numbers]
    return added
