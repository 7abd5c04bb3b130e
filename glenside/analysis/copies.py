"""Counts the bytes that a program moves without computing: transposes, concatenations, copies into other layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glenside.ir.program import is_product
from glenside.ir.term import Term, constants_under, postorder
from glenside.ir.types import AccessType, Tensor
from glenside.rewrites.layout import addressing
from glenside.targets.base.prices import Copied


@dataclass(frozen=True)
class Copy:
    """One copy: each element is read once and written once.

    place  "inside", or "input" or "output": only there to change the layout in which the program is given or gives
    """

    what: str
    dims: tuple[int, ...]
    dtype: str
    bytes: int
    place: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def copies_of(root: Term, copied: Copied, layout: int) -> list[Copy]:
    """Returns all copies of the computation of `root`, in its order, on a unit with that operand layout and cost of
    copies.
    """
    return [copy for _, copy in placed_copies(root, copied, layout)]


def placed_copies(root: Term, copied: Copied, layout: int) -> list[tuple[Term, Copy]]:
    """Returns the same copies, each with the term that it is, or the product that it is made for.

    A product that is not yet an instruction reads its operand in the unit's layout: an operand in another layout is
    copied first.
    """
    constant = constants_under(root)
    place = _places(root, constant)
    found: list[tuple[Term, Copy]] = []
    for term in postorder(root):
        if constant[term] or not isinstance(term.type, AccessType):
            continue
        operands = [child.access for child in term.children if isinstance(child.type, AccessType)]
        moved = copied(term.operator.name, term.attributes, operands, term.type)
        if moved:
            name = term.operator.name.removeprefix("access-").replace("rearrange", "transpose")
            found.append((term, Copy(name, tuple(term.access.dims), term.access.dtype, moved, place[term])))
        if is_product(term):
            found += [(term, copy) for copy in _copies_of_operands(term, copied, layout, place)]
    return found


def _copies_of_operands(product: Term, copied: Copied, layout: int, place: dict[Term, str]) -> Iterable[Copy]:
    """Returns the copy of the tensor under the windows of a product, if the unit does not accept it as it is stored."""
    pairs = product.children[0]
    if pairs.operator.name != "access-product":
        return
    a, b = pairs.children[:2]
    windows = a
    while windows.operator.name in ("access", "access-squeeze", "access-reshape"):
        windows = windows.children[0]
    if windows.operator.name != "access-windows":
        return
    stored = windows.children[0]
    axis = addressing.innermost.function(windows.attributes[0], stored.access.dims)
    size, other = a.access.size, b.access.size
    read = axis and addressing.unit.function(
        *((size,), (0,), a.access.dims, a.access.split, (other,), (0,), b.access.dims, b.access.split),
        *(
            pairs.attributes[0],
            windows.access.dims,
            axis[0],
            1,
            layout,
            addressing.ALL,
            addressing.ALL,
            1,
        ),
    )
    if read is None:
        while stored.operator.name in ("access", "access-pad"):
            stored = stored.children[0]
        order = (*range(1, stored.access.rank), 0)
        own = stored.access.with_dims(stored.access.dims.permute(order)).with_split(0)
        moved = copied("access-rearrange", ((2, 2), (1, 0)), [stored.access], own)
        yield Copy("copy into the unit's layout", tuple(stored.access.dims), own.dtype, moved, place[stored])


def _places(root: Term, constant: Mapping[Term, bool]) -> dict[Term, str]:
    """For each term, True if only movement separates it from the inputs, or from the result."""
    of_input: set[Term] = set()
    terms = list(postorder(root))
    for term in terms:
        tensor = term.attributes[0] if term.operator.name == "access-tensor" else None
        own = isinstance(tensor, Tensor) and not tensor.constant
        moved = term.operator.index_map is not None and any(c in of_input for c in term.children)
        if own or (moved and all(c in of_input or constant[c] for c in term.children)):
            of_input.add(term)
    users = [t for t in terms if t.operator.index_map is None and t.operator.name != "construct-tuple"]
    inner = {c for term in users for c in term.children}
    for term in reversed(terms):  # movement of an inner term is read inside
        if term in inner and term.operator.index_map is not None:
            inner.update(term.children)
    return {t: "input" if t in of_input else "inside" if t in inner else "output" for t in terms}


def total(found: Sequence[Copy], *places: str) -> int:
    """Sums the bytes of the copies at these places, or of all."""
    return sum(m.bytes for m in found if not places or m.place in places)
