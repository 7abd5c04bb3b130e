"""Defines gathers from, and scatters to, computed indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from glenside.ir.dtypes import INTEGERS
from glenside.ir.errors import OutOfBounds
from glenside.ir.operand import Array
from glenside.ir.operator import Field, Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_axis, require_number, spelled
from glenside.ir.scalar import require_computed
from glenside.ir.types import AccessType, Dims


def _within(operator: str, indices: Array, size: int) -> Array:
    """Converts indices to positions: negative ones count from the end. Raises OutOfBounds."""
    if indices.size and not (-size <= int(indices.min()) and int(indices.max()) < size):
        least, most = indices.min(), indices.max()
        raise OutOfBounds(f"{operator} requires indices from {-size} to {size - 1}, got {least} to {most}")
    positions = indices.astype(np.intp, copy=False)
    return np.where(positions < 0, positions + size, positions) if positions.size and positions.min() < 0 else positions


def _position_bytes(indices: Array) -> int:
    """Returns the maximum bytes of positions; indices that are already positions are not copied."""
    return indices.size * 8 * (1 if indices.dtype == np.intp else 2)


def _check_gather(a: AccessType, indices: AccessType, axis: int) -> None:
    require_axis("access-gather", axis, a.rank)
    require(indices.dtype in INTEGERS, "access-gather", "indices of an integer dtype", indices)


def _result_gather(a: AccessType, indices: AccessType, axis: int) -> AccessType:
    dims = a.dims.take(axis).append(indices.dims).append(a.dims.drop(axis + 1))
    return AccessType(dims, a.split + (indices.rank - 1 if axis < a.split else 0), a.dtype)


def _adjoint_gather(terms: Any, g: Any, a: Any, indices: Any, axis: int) -> tuple[Any, Any]:
    """Zeros to which g is added where its elements came from."""
    dims, places = a.access.dims, indices.access.dims
    first = [*range(axis, axis + len(places))]
    moved = terms.transpose(g, [*first, *(i for i in range(g.access.rank) if i not in first)])
    zeros = terms.full((dims[axis], *dims.remove(axis)), 0, a.access.dtype)
    added = terms.scatter_nd(zeros, terms.reshape(indices, (*places, 1)), moved, 0, "add")
    return terms.untransposed(added, [axis, *(i for i in range(len(dims)) if i != axis)]), None


access_gather = operator(
    name="access-gather",
    kind=OperatorKind.MOVEMENT,
    fields=fields(a=Kind.TERM, indices=Kind.TERM, axis=Kind.INT),
    check=_check_gather,
    result=_result_gather,
    evaluate=lambda _, a, indices, axis: np.take(a, _within("access-gather", indices, a.shape[axis]), axis),
    # numpy takes elements of an array in row-major order, and makes it of one that is not.
    scratch=lambda a, indices, axis: _position_bytes(indices) + (0 if a.flags.c_contiguous else a.nbytes),
    adjoint=_adjoint_gather,
    doc="The elements of one axis at computed indices: all axes of the indices stand in place of that axis, "
    "on its side of the split. Indices below 0 count from the end.",
    symbolic=False,  # the side of the split that has the axis is a condition
    examples=example("(access-gather (access (access-tensor x) 1) (cast (access-tensor i) int64) 1)", x="m n k", i="l"),
)


def _check_places(operator: str, a: AccessType, indices: AccessType, shared: int) -> None:
    require(indices.dtype in INTEGERS, operator, "indices of an integer dtype", indices)
    require(indices.rank > 0, operator, "indices of at least one axis", indices)
    require(0 <= shared < indices.rank, operator, f"0 <= shared < {indices.rank}", shared)
    count = indices.dims[-1]
    fits = 1 <= count <= a.rank - shared
    require(fits, operator, f"from 1 to {a.rank - shared} numbers in the last axis of the indices", indices)
    agree = a.dims.take(shared) == indices.dims.take(shared)
    require(agree, operator, f"the first {shared} axes to agree", f"{a} and {indices}")
    require(a.split <= shared, operator, f"a split among the {shared} shared axes", a)


def picked_dims(a: Dims, indices: Dims, shared: int) -> Dims:
    """Returns the dims of a gather by indices of dims `indices` from an array of dims `a`."""
    return indices.take(len(indices) - 1).append(a.drop(shared + indices[-1]))


def _places(operator: str, a: Array, indices: Array, shared: int) -> tuple[Array, ...]:
    """Returns one array of positions per selected axis; they broadcast to each other."""
    lead = indices.shape[:-1]
    grid = [np.arange(n).reshape(tuple(n if j == i else 1 for j in range(len(lead)))) for i, n in enumerate(lead)]
    sizes = a.shape[shared : shared + indices.shape[-1]]
    return (*grid[:shared], *(_within(operator, indices[..., i], n) for i, n in enumerate(sizes)))


access_gather_nd = operator(
    name="access-gather-nd",
    kind=OperatorKind.MOVEMENT,
    fields=fields(a=Kind.TERM, indices=Kind.TERM, shared=Kind.INT),
    check=lambda a, indices, shared: _check_places("access-gather-nd", a, indices, shared),
    result=lambda a, indices, shared: a.with_dims(picked_dims(a.dims, indices.dims, shared)),
    evaluate=lambda _, a, indices, shared: a[_places("access-gather-nd", a, indices, shared)],
    scratch=lambda a, indices, shared: _position_bytes(indices),
    adjoint=lambda terms, g, a, indices, shared: (
        terms.scatter_nd(terms.filled(a, 0), indices, g, shared, "add"),
        None,
    ),
    doc="Elements at computed indices: with a of dims (G, n.., R) and indices of dims (G, M, k), |G| = shared, each k "
    "numbers are an index into the k axes n..; the result has dims (G, M, R). The split is within G.",
    symbolic=False,  # k is a size
    examples=example("(access-gather-nd (access-tensor x) (cast (access-tensor i) int64) 0)", x="m n k", i="l 2"),
)

Step = Callable[[Any, Array, Array], Array]

REDUCTIONS: dict[str, Step] = {
    "replace": lambda _, old, new: new,
    "add": lambda arithmetic, old, new: arithmetic.add(old, new),
    "mul": lambda arithmetic, old, new: arithmetic.multiply(old, new),
    "min": lambda _, old, new: np.minimum(old, new),
    "max": lambda _, old, new: np.maximum(old, new),
}


def _check_scatter(a: AccessType, indices: AccessType, updates: AccessType, shared: int, reduction: str) -> None:
    name = "access-scatter-nd"
    require(reduction in REDUCTIONS, name, " or ".join(REDUCTIONS), reduction)
    _check_places(name, a, indices, shared)
    wanted = picked_dims(a.dims, indices.dims, shared)
    require(updates.dims == wanted, name, f"updates of dims {spelled(wanted)}", updates)
    require(updates.dtype == a.dtype, name, "dtypes to agree", f"{a} and {updates}")
    if reduction != "replace":
        require_computed(name, a.dtype, a)
    if reduction in ("add", "mul"):
        require_number(name, a)


def _rounds(positions: Array) -> list[Array]:
    """Groups positions into rounds, so that no position occurs twice in a round and repeated ones keep their order."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    first = np.searchsorted(ordered, ordered)
    turn = np.arange(len(order)) - first
    by_turn = np.argsort(turn, kind="stable")
    return np.split(order[by_turn], np.cumsum(np.bincount(turn))[:-1]) if len(order) else []


def _evaluate_scatter(arithmetic: Any, a: Array, indices: Array, updates: Array, shared: int, reduction: str) -> Array:
    places = _places("access-scatter-nd", a, indices, shared)
    sizes = a.shape[: len(places)]
    result = np.array(a, order="C")
    if not updates.size:
        return result
    positions = np.ravel_multi_index(places, sizes).reshape(-1)
    flat = result.reshape((-1, *a.shape[len(places) :]))
    new = updates.reshape((len(positions), *a.shape[len(places) :]))
    for turn in _rounds(positions):
        at = positions[turn]
        flat[at] = REDUCTIONS[reduction](arithmetic, flat[at], new[turn])
    return result


def _adjoint_replaced(terms: Any, g: Any, a: Any, indices: Any, updates: Any, shared: int) -> tuple[Any, None, Any]:
    """Passes g to the last update of each index: scattering the updates' numbers shows which one is last."""
    count = updates.access.size
    numbers = terms.reshape(terms.iota(count + 1, "int64"), (count + 1,))
    own = terms.reshape(terms.slice(numbers, 0, 1, count + 1), updates.access.dims)
    put = terms.scatter_nd(terms.full(a.access.dims, 0, "int64"), indices, own, shared, "replace")
    stays = terms.compare("eq", terms.gather_nd(put, indices, shared), own)
    there = terms.gather_nd(g, indices, shared)
    kept = terms.compare("eq", put, terms.filled(put, 0))
    return terms.select(kept, g, 0), None, terms.select(stays, there, 0)


def _adjoint_multiplied(terms: Any, g: Any, a: Any, indices: Any, updates: Any, shared: int) -> tuple[Any, None, Any]:
    """Multiplies g by the product of all other factors of an element, counting zeros.

    Where two updates of one index are 0, second derivatives are taken as 0.
    """
    ones = terms.filled(a, 1)
    of_updates = terms.scatter_nd(ones, indices, updates, shared, "mul")
    is_zero = terms.compare("eq", updates, terms.filled(updates, 0))
    others = terms.scatter_nd(ones, indices, terms.select(is_zero, 1, updates), shared, "mul")
    zeros = terms.scatter_nd(
        terms.filled(a, 0), indices, terms.select(is_zero, terms.filled(updates, 1), 0), shared, "add"
    )
    found, count = terms.gather_nd(others, indices, shared), terms.gather_nd(zeros, indices, shared)
    none, only = (terms.compare("eq", count, terms.filled(count, n)) for n in (0, 1))
    without = terms.select(
        is_zero,
        terms.select(only, found, 0),
        terms.select(none, terms.divide(found, terms.select(is_zero, 1, updates)), 0),
    )
    there = terms.gather_nd(terms.multiply(g, a), indices, shared)
    return terms.multiply(g, of_updates), None, terms.multiply(there, without)


def _adjoint_extreme(
    terms: Any, g: Any, a: Any, indices: Any, updates: Any, shared: int, reduction: str
) -> tuple[Any, None, Any]:
    """Divides g equally among all elements that attain the extreme."""
    result = terms.scatter_nd(a, indices, updates, shared, reduction)
    own = terms.compare("eq", a, result)
    theirs = terms.compare("eq", updates, terms.gather_nd(result, indices, shared))
    count = terms.scatter_nd(
        terms.select(own, terms.filled(a, 1), 0),
        indices,
        terms.select(theirs, terms.filled(updates, 1), 0),
        shared,
        "add",
    )
    share = terms.divide(g, count)
    return terms.select(own, share, 0), None, terms.select(theirs, terms.gather_nd(share, indices, shared), 0)


def _adjoint_scatter(
    terms: Any, g: Any, a: Any, indices: Any, updates: Any, shared: int, reduction: str
) -> tuple[Any, None, Any]:
    if reduction == "add":
        return g, None, terms.gather_nd(g, indices, shared)
    if reduction == "replace":
        return _adjoint_replaced(terms, g, a, indices, updates, shared)
    if reduction == "mul":
        return _adjoint_multiplied(terms, g, a, indices, updates, shared)
    return _adjoint_extreme(terms, g, a, indices, updates, shared, reduction)


access_scatter_nd = operator(
    name="access-scatter-nd",
    kind=OperatorKind.COMPUTE,
    fields=fields(
        a=Kind.TERM,
        indices=Kind.TERM,
        updates=Kind.TERM,
        shared=Kind.INT,
        reduction=Field("reduction", Kind.KEYWORD, tuple(REDUCTIONS)),
    ),
    check=_check_scatter,
    result=lambda a, indices, updates, shared, reduction: a,
    evaluate=_evaluate_scatter,
    scratch=lambda a, indices, updates, shared, reduction: 5 * _position_bytes(indices) + 2 * updates.nbytes,
    operations=lambda a, indices, updates, shared, reduction: updates.size if reduction != "replace" else 0,
    adjoint=_adjoint_scatter,
    doc="a with updates at the indices from which access-gather-nd would read: they replace elements, or are combined "
    "with them. Several updates of one index apply in row-major order.",
    examples=example(
        "(access-scatter-nd (access-tensor x) (cast (access-tensor i) int64) (access-tensor y) 0 add)",
        x="m n k",
        i="l 2",
        y="l k",
    ),
)
