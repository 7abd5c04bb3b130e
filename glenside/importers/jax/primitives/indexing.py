"""Imports reads and writes at computed indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from glenside.builder import indexing
from glenside.builder.indexing import iota
from glenside.builder.layout import broadcast, concatenate, reshape, slice_axis, transpose
from glenside.builder.layout import gather as gather_rows
from glenside.builder.pointwise import add, cast, combine, compare, filled, multiply, select, subtract
from glenside.importers.jax.equation import Equation, Refused, primitive, register
from glenside.ir.dtypes import FLOATS, limits
from glenside.ir.operand import Array
from glenside.ir.term import Term


@dataclass(frozen=True)
class Windows:
    """Windows of an operand at computed places.

    dims      of the operand
    sizes     of a window along each axis of the operand
    dropped   axes of the operand that windows have size 1 along, and that the result has not
    mapped    axis of the operand -> column of the indices
    batching  axis of the operand -> axis of the indices that counts along it
    offset    axes of the result that count within a window
    """

    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    dropped: tuple[int, ...]
    mapped: dict[int, int]
    batching: dict[int, int]
    offset: tuple[int, ...]

    def batch(self, rank: int) -> list[int]:
        """Returns the axes of the result, of that rank, that count windows."""
        return [axis for axis in range(rank) if axis not in self.offset]

    def start(self, axis: int, indices: Term, rank: int) -> Term | None:
        """Returns the starts along an axis of the operand, in the rank of the result; None if all are 0."""
        batch = self.batch(rank)
        sizes = [1] * rank
        if axis in self.batching:
            place = batch[self.batching[axis]]
            return iota(self.dims[axis], place, rank)
        if axis not in self.mapped:
            return None
        for place, size in zip(batch, indices.access.dims[:-1], strict=True):
            sizes[place] = size
        column = self.mapped[axis]
        return cast(reshape(slice_axis(indices, indices.access.rank - 1, column, column + 1), sizes), "int64")

    def inside(self, indices: Term, rank: int) -> Term | None:
        """Returns whether a window is within the operand, in the rank of the result; None if nothing is mapped."""
        found: Term | None = None
        for axis in self.mapped:
            start = self.start(axis, indices, rank)
            assert start is not None
            most = filled(start, self.dims[axis] - self.sizes[axis])
            own = combine("logical-and", compare("ge", start, filled(start, 0)), compare("le", start, most))
            found = own if found is None else combine("logical-and", found, own)
        return found

    def places(self, indices: Term, dims: Sequence[int]) -> Term:
        """Returns where each element of the result is in the operand, in row-major order; windows are moved inside."""
        rank, kept = len(dims), [axis for axis in range(len(self.dims)) if axis not in (*self.dropped, *self.batching)]
        within = dict(zip(kept, self.offset, strict=True))
        total: Term = reshape(iota(1), (1,) * rank)
        for axis, size in enumerate(self.dims):
            start, stride = self.start(axis, indices, rank), prod(self.dims[axis + 1 :])
            parts = []
            if start is not None and axis in self.mapped:
                start = combine("maximum", start, filled(start, 0))
                start = combine("minimum", start, filled(start, max(size - self.sizes[axis], 0)))
            if start is not None:
                parts.append(start)
            if axis in within:
                parts.append(iota(self.sizes[axis], within[axis], rank))
            for part in parts:
                total = add(total, multiply(part, filled(part, stride)))
        return broadcast(total, dims)


def _is_within(equation: Equation, windows: Windows, indices: Term) -> bool:
    """True if all windows are known to be within the operand."""
    mode = str(equation.params.get("mode", "")).upper()
    if "CLIP" in mode or "PROMISE" in mode or not windows.mapped:
        return True
    known = equation.known(indices)
    return known is not None and all(
        ((known[..., column] >= 0) & (known[..., column] <= windows.dims[axis] - windows.sizes[axis])).all()
        for axis, column in windows.mapped.items()
    )


@primitive("gather")
def gather(equation: Equation, x: Term, indices: Term) -> Term:
    numbers, sizes = equation.params["dimension_numbers"], tuple(equation.params["slice_sizes"])
    windows = Windows(
        tuple(x.access.dims),
        sizes,
        tuple(numbers.collapsed_slice_dims),
        {axis: column for column, axis in enumerate(numbers.start_index_map)},
        dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)),
        tuple(numbers.offset_dims),
    )
    known = equation.known(indices)
    within = _is_within(equation, windows, indices)
    found = None if known is None or not within else _sliced(equation, windows, x, known)
    found = found or _rows(equation, windows, x, indices)
    if found is None:
        found = gather_rows(reshape(x, (x.access.size,)), windows.places(indices, equation.dims))
    if within:
        return found
    mask = windows.inside(indices, len(equation.dims))
    assert mask is not None
    return select(mask, found, equation.filled(equation.dims, _fill(equation), equation.dtype))


def _fill(equation: Equation) -> float:
    """Returns what is read outside the operand: NaN, the least integer, the largest without a sign."""
    if equation.params.get("fill_value") is not None:
        return float(equation.params["fill_value"])
    if equation.dtype in FLOATS:
        return float("nan")
    if equation.dtype == "bool":
        return 1
    low, high = limits(equation.dtype)
    return low if low else high


def _sliced(equation: Equation, windows: Windows, x: Term, known: Array) -> Term | None:
    """Returns the slice that a gather of one known window is, or None."""
    if known.ndim != 1 or windows.batching:
        return None
    for axis, column in windows.mapped.items():
        start = min(max(int(known[column]), 0), windows.dims[axis] - windows.sizes[axis])
        x = slice_axis(x, axis, start, start + windows.sizes[axis])
    for axis, size in enumerate(windows.sizes):
        x = slice_axis(x, axis, 0, size) if axis not in windows.mapped else x
    return reshape(x, equation.dims)


def _rows(equation: Equation, windows: Windows, x: Term, indices: Term) -> Term | None:
    """Returns the gather of one axis that a gather of windows is, if all other axes are whole, or None."""
    whole = [axis for axis in range(len(windows.dims)) if windows.sizes[axis] == windows.dims[axis]]
    if windows.batching or len(windows.mapped) != 1:
        return None
    ((axis, _),) = windows.mapped.items()
    if axis not in windows.dropped or any(i not in whole for i in range(len(windows.dims)) if i != axis):
        return None
    if windows.dropped != (axis,):
        return None
    places = cast(reshape(indices, indices.access.dims[:-1]), "int64")
    places = combine("maximum", places, filled(places, 0))
    places = combine("minimum", places, filled(places, max(windows.dims[axis] - 1, 0)))
    found = gather_rows(x, places, axis)  # the axes of the places stand where the axis was
    count, rank = places.access.rank, len(equation.dims)
    own = iter(range(axis, axis + count))
    others = iter([*range(axis), *range(axis + count, rank)])
    return transpose(found, [next(others) if i in windows.offset else next(own) for i in range(rank)])


REDUCTIONS = {
    "scatter": "replace",
    "scatter-add": "add",
    "scatter_add": "add",
    "scatter-mul": "mul",
    "scatter_mul": "mul",
    "scatter-min": "min",
    "scatter_min": "min",
    "scatter-max": "max",
    "scatter_max": "max",
}


def scatter(equation: Equation, x: Term, indices: Term, updates: Term) -> Term:
    """Writes windows; those that are not within the operand are left out."""
    body = equation.params.get("update_jaxpr")
    if equation.primitive == "scatter" and body is not None and list(body.outvars) != list(body.invars[1:]):
        raise Refused("applies a function to the elements that it replaces; gather them, apply it, and set them")
    numbers = equation.params["dimension_numbers"]
    batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    dims, dropped = tuple(x.access.dims), tuple(numbers.inserted_window_dims)
    own = iter(numbers.update_window_dims)
    sizes = [1 if axis in dropped or axis in batching else updates.access.dims[next(own)] for axis in range(len(dims))]
    mapped = {axis: column for column, axis in enumerate(numbers.scatter_dims_to_operand_dims)}
    windows = Windows(dims, tuple(sizes), dropped, mapped, batching, tuple(numbers.update_window_dims))
    places, count = windows.places(indices, updates.access.dims), x.access.size
    flat = reshape(x, (count,))
    within = _is_within(equation, windows, indices)
    if not within:
        mask = windows.inside(indices, updates.access.rank)
        assert mask is not None
        places = select(broadcast(mask, updates.access.dims), places, filled(places, count))
        flat = concatenate([flat, equation.filled((1,), 0, x.access.dtype)], 0)
    changes = reshape(updates, (updates.access.size,))
    place = reshape(places, (updates.access.size, 1))
    found = indexing.scatter_nd(flat, place, changes, 0, REDUCTIONS[equation.primitive])
    return reshape(found if within else slice_axis(found, 0, 0, count), equation.dims)


for _name in REDUCTIONS:
    register(_name, scatter)


def _starts(equation: Equation, starts: Sequence[Term], dims: Sequence[int], sizes: Sequence[int]) -> list[Term | int]:
    """Returns starts, as numbers where they are known, moved so that all elements are within."""
    found: list[Term | int] = []
    for start, dim, size in zip(starts, dims, sizes, strict=True):
        known = equation.known(start)
        if known is not None or dim == size:
            found.append(min(max(int(known), 0), dim - size) if known is not None else 0)
        else:
            number = cast(start, "int64")
            lowest = combine("maximum", number, filled(number, 0))
            found.append(combine("minimum", lowest, filled(number, dim - size)))
    return found


@primitive("dynamic_slice")
def dynamic_slice(equation: Equation, x: Term, *starts: Term) -> Term:
    sizes = equation.params["slice_sizes"]
    for axis, start in enumerate(_starts(equation, starts, x.access.dims, sizes)):
        if isinstance(start, int):
            x = slice_axis(x, axis, start, start + sizes[axis])
        else:
            x = gather_rows(x, add(iota(sizes[axis]), start), axis)
    return x


@primitive("dynamic_update_slice")
def dynamic_update_slice(equation: Equation, x: Term, update: Term, *starts: Term) -> Term:
    """Replaces a part: rows of one axis by a scatter, known places by a concatenation, others by a choice."""
    dims, sizes = x.access.dims, update.access.dims
    found = _starts(equation, starts, dims, sizes)
    partial = [axis for axis in range(len(dims)) if dims[axis] != sizes[axis]]
    if not partial:
        return update
    first = found[partial[0]]
    if len(partial) == 1 and isinstance(first, Term):
        return _rows_replaced(x, update, partial[0], first)
    if len(partial) == 1 and isinstance(first, int):
        return concatenate(_parts_replaced(x, update, partial[0], first), partial[0])
    mask: Term | None = None
    for axis in partial:
        at, start, zero = iota(dims[axis]), found[axis], filled(iota(dims[axis]), 0)
        within = subtract(at, start if isinstance(start, Term) else filled(at, start))
        last = filled(at, sizes[axis] - 1)
        update = gather_rows(update, combine("minimum", combine("maximum", within, zero), last), axis)
        own = combine("logical-and", compare("ge", within, zero), compare("le", within, last))
        own = reshape(own, [dims[axis] if i == axis else 1 for i in range(len(dims))])
        mask = own if mask is None else combine("logical-and", mask, own)
    assert mask is not None
    return select(broadcast(mask, dims), update, x)


def _parts_replaced(x: Term, update: Term, axis: int, start: int) -> list[Term]:
    """Returns x in parts along an axis, one of which is the update; the others are those that x consists of."""
    stop, place, found = start + update.access.dims[axis], 0, []
    for part in _parts(x, axis):
        size = part.access.dims[axis]
        for low, high in ((0, min(start - place, size)), (max(stop - place, 0), size)):
            if low < high:
                found.append((place + low, slice_axis(part, axis, low, high)))
        place += size
    return [part for _, part in sorted([*found, (start, update)], key=lambda own: own[0])]


def _parts(x: Term, axis: int) -> list[Term]:
    """Returns the parts that a term joins along an axis: itself alone, if it is no concatenation of them."""
    if x.operator.name != "access-concatenate" or x.attributes[0] != axis:
        return [x]
    return [part for own in x.children for part in _parts(own, axis)]


def _rows_replaced(x: Term, update: Term, axis: int, start: Term) -> Term:
    """Replaces elements of one axis from a computed start."""
    rank, size = x.access.rank, update.access.dims[axis]
    first = [axis, *(i for i in range(rank) if i != axis)]
    back = sorted(range(rank), key=first.__getitem__)
    places = reshape(add(iota(size), start), (size, 1))
    found = indexing.scatter_nd(transpose(x, first), places, transpose(update, first))
    return transpose(found, back)
