"""Operations that change dims but not values. Results are whole tensors, ()(dims); steps that change nothing are
omitted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from glenside.ir.errors import BadInput
from glenside.ir.names import shortened
from glenside.ir.operator import require
from glenside.ir.term import Term, build
from glenside.ir.types import Dims

_FEW = 8  # parts that are concatenated one by one


def require_terms(*operands: object) -> None:
    """Raises BadInput for an operand that is no term, such as a number."""
    for operand in operands:
        if not isinstance(operand, Term):
            got = shortened(" ".join(repr(operand).split()))
            raise BadInput(f"operands are terms of a builder b, such as b.full((), 2) for the number 2, got {got}")


def split_at(x: Term, split: int) -> Term:
    """Returns x with its first `split` axes as the shape."""
    require_terms(x)
    return x if x.access.split == split else build("access", x, split)


def transpose(x: Term, order: Sequence[int]) -> Term:
    """Reorders axes: axis i of the result is axis order[i] of x."""
    x = split_at(x, 0)
    if x.operator.name == "access-transpose" and len(order) == x.access.rank:  # two transposes are one
        (first,) = x.attributes
        assert isinstance(first, Dims)
        x, order = x.children[0], [first[axis] for axis in order]
    return x if list(order) == list(range(x.access.rank)) else build("access-transpose", x, order)


def untransposed(x: Term, order: Sequence[int]) -> Term:
    """Undoes transpose(.., order)."""
    return transpose(x, sorted(range(len(order)), key=order.__getitem__))


def reshape(x: Term, dims: Sequence[int]) -> Term:
    """Returns x in row-major order with other dims; one of them may be -1, which stands for the remaining size."""
    x = split_at(x, 0)
    require(list(dims).count(-1) <= 1, "reshape", "at most one dim of -1", tuple(dims))
    if -1 in dims:
        known = math.prod(n for n in dims if n != -1)
        require(known > 0 and x.access.size % known == 0, "reshape", f"dims that divide {x.access.size}", tuple(dims))
        dims = [x.access.size // known if n == -1 else n for n in dims]
    return x if x.access.dims == tuple(dims) else build("access-reshape", x, ((), dims))


def rearrange(x: Term, parts: Sequence[int], order: Sequence[int], dims: Sequence[int]) -> Term:
    """Cuts the axes of x into parts, reorders the parts, and joins them to dims.

    If only parts of size 1 change places, the elements stay in order, and one reshape is enough.
    """
    moved = [axis for axis in order if parts[axis] != 1]
    if moved == sorted(moved):
        return reshape(x, dims)
    return reshape(transpose(reshape(x, parts), order), dims)


def pad(x: Term, padding: Sequence[tuple[int, int]], kind: str = "zero-padding") -> Term:
    """Pads x with (before, after) elements on each axis, counted from the first."""
    x = split_at(x, 0)
    require(len(padding) == x.access.rank, "pad", f"{x.access.rank} pairs", len(padding))
    for axis, (before, after) in enumerate(padding):
        if before or after:
            x = build("access-pad", x, kind, axis, before, after)
    return x


def pad_or_crop(x: Term, padding: Sequence[tuple[int, int]], kind: str = "zero-padding") -> Term:
    """Pads like `pad`, where a negative number removes elements."""
    x = pad(x, [(max(before, 0), max(after, 0)) for before, after in padding], kind)
    for axis, (before, after) in enumerate(padding):
        size = x.access.dims[axis]
        x = slice_axis(x, axis, max(-before, 0), size - max(-after, 0))
    return x


def spread(x: Term, axis: int, step: int, kind: str = "zero-padding") -> Term:
    """Puts step - 1 elements of a padding between the elements of an axis."""
    dims, size = x.access.dims, x.access.dims[axis]
    if step == 1 or size < 2:
        return x
    columns = reshape(x, (*dims[: axis + 1], 1, *dims[axis + 1 :]))
    columns = pad(columns, [(0, step - 1) if i == axis + 1 else (0, 0) for i in range(columns.access.rank)], kind)
    return slice_axis(reshape(columns, (*dims[:axis], size * step, *dims[axis + 1 :])), axis, 0, (size - 1) * step + 1)


def broadcast(x: Term, dims: Sequence[int]) -> Term:
    """Repeats x to dims, aligned at the last axis as in numpy."""
    missing = len(dims) - x.access.rank
    require(missing >= 0, "broadcast", f"at most {len(dims)} axes", x.access)
    x = reshape(x, (*(1,) * missing, *x.access.dims))
    return x if x.access.dims == tuple(dims) else build("access-broadcast", x, ((), dims))


def concatenate(parts: Sequence[Term], axis: int) -> Term:
    """Concatenates the parts along one axis; a negative axis counts from the end."""
    require(len(parts) > 0, "concatenate", "at least one part", len(parts))
    axis = _axis("concatenate", parts[0], axis)
    joined = [split_at(part, 0) for part in parts]
    while len(joined) > _FEW:  # in pairs, then pairs of pairs: an element is copied a few times, not once per part
        pairs = [build("access-concatenate", a, b, axis) for a, b in zip(joined[::2], joined[1::2], strict=False)]
        joined = pairs + joined[len(pairs) * 2 :]
    return reduce(lambda a, b: build("access-concatenate", a, b, axis), joined)


def stack(parts: Sequence[Term], axis: int = 0) -> Term:
    """Stacks parts of equal dims along a new axis; a negative axis counts from the end of the result."""
    require(len(parts) > 0, "stack", "at least one part", len(parts))
    dims = parts[0].access.dims
    require(-len(dims) <= axis + (axis < 0) <= len(dims), "stack", f"an axis of {len(dims) + 1}", axis)
    at = axis % (len(dims) + 1)
    return concatenate([reshape(part, (*part.access.dims[:at], 1, *part.access.dims[at:])) for part in parts], at)


def element(x: Term, axis: int, position: int) -> Term:
    """Returns one element of an axis of x, without that axis; a negative axis counts from the end."""
    axis = _axis("element", x, axis)
    return reshape(slice_axis(x, axis, position, position + 1), x.access.dims.remove(axis))


def slice_axis(x: Term, axis: int, start: int, stop: int) -> Term:
    """Returns elements start to stop - 1 of one axis; a negative axis counts from the end."""
    axis = _axis("slice axis", x, axis)
    x = split_at(x, 0)
    return x if (start, stop) == (0, x.access.dims[axis]) else build("access-slice", x, axis, start, stop)


def strided(x: Term, steps: Sequence[int]) -> Term:
    """Returns every step-th element of each axis, starting with the first."""
    x = split_at(x, 0)
    dims = x.access.dims
    require(len(steps) == len(dims) and all(t >= 1 for t in steps), "strided", "a step for each axis", tuple(steps))
    stepped = [axis for axis, (n, t) in enumerate(zip(dims, steps, strict=True)) if t > 1 and n > 1]
    if not stepped:
        return x
    first = stepped[0]
    windows = build("access-windows", split_at(x, first), [min(n, 1) for n in dims[first:]], list(steps[first:]))
    return reshape(windows, [-(-n // t) for n, t in zip(dims, steps, strict=True)])


def tile(x: Term, repeats: Sequence[int]) -> Term:
    """Repeats x as a whole along each axis."""
    dims = x.access.dims
    fits = len(repeats) == len(dims) and all(r >= 0 for r in repeats)
    require(fits, "tile", f"a number of repeats for each axis of {x.access}", tuple(repeats))
    apart = [size for n, r in zip(dims, repeats, strict=True) for size in ((1, n) if r != 1 else (n,))]
    repeated = [size for n, r in zip(dims, repeats, strict=True) for size in ((r, n) if r != 1 else (n,))]
    return reshape(broadcast(reshape(x, apart), repeated), [n * r for n, r in zip(dims, repeats, strict=True)])


def repeat(x: Term, counts: Sequence[int]) -> Term:
    """Repeats each element along each axis by the count of that axis: ()(n..) -> ()(count*n..)."""
    dims = x.access.dims
    fits = len(counts) == len(dims) and all(count >= 0 for count in counts)
    require(fits, "repeat", f"a count of at least 0 for each of {len(dims)} axes", tuple(counts))
    apart = [size for n, c in zip(dims, counts, strict=True) for size in ((n, 1) if c != 1 else (n,))]
    repeated = [size for n, c in zip(dims, counts, strict=True) for size in ((n, c) if c != 1 else (n,))]
    return reshape(broadcast(reshape(x, apart), repeated), [n * c for n, c in zip(dims, counts, strict=True)])


def upsample(x: Term, factor: int = 2) -> Term:
    """Repeats each element along all axes but the first two: ()(N C d..) -> ()(N C factor*d..)."""
    require(x.access.rank >= 3 and factor >= 1, "upsample", "x of ()(N C d..), repeated", f"{x.access} by {factor}")
    return repeat(x, (1, 1, *(factor for _ in x.access.dims[2:])))


def surround(x: Term, padding: Sequence[tuple[int, int]], filler: Term) -> Term:
    """Pads x with (before, after) elements on each axis, each equal to the one element of the filler."""
    x = split_at(x, 0)
    require(len(padding) == x.access.rank, "surround", f"{x.access.rank} pairs", len(padding))
    single = reshape(filler, ())
    for axis, (before, after) in enumerate(padding):
        ends = [broadcast(single, x.access.dims.set(axis, n)) if n else None for n in (before, after)]
        x = concatenate([part for part in (ends[0], x, ends[1]) if part is not None], axis)
    return x


def gather(table: Term, indices: Term, axis: int = 0) -> Term:
    """Gathers elements of one axis of a table: ()(V D) at ()(N S) -> ()(N S D), an embedding."""
    return build("access-gather", split_at(table, 0), split_at(indices, 0), _axis("gather", table, axis))


def flip(x: Term, axis: int) -> Term:
    """Reverses one axis; a negative axis counts from the end."""
    return build("access-flip", split_at(x, 0), _axis("flip", x, axis))


def diagonal(x: Term) -> Term:
    """Returns the diagonals of the last two axes, ()(S.. n n) -> ()(S.. n): every n + 1st of their elements."""
    require(x.access.rank >= 2 and x.access.dims[-1] == x.access.dims[-2], "diagonal", "x of ()(S.. n n)", x.access)
    rank, (*shape, n, _) = x.access.rank, x.access.dims
    if n == 0:
        return reshape(x, (*shape, 0))
    rows = split_at(reshape(x, (*shape, n * n)), rank - 2)
    return reshape(build("access-windows", rows, (1,), (n + 1,)), (*shape, n))


def _axis(operation: str, x: Term, axis: int) -> int:
    rank = x.access.rank
    require(-rank <= axis < rank, operation, f"{-rank} <= axis < {rank}", axis)
    return axis % rank


def common_dims(operation: str, *dims: Sequence[int]) -> Dims:
    """Returns the dims that all of these broadcast to, aligned at the last axis."""
    rank = max(map(len, dims))
    padded = [(*(1,) * (rank - len(d)), *d) for d in dims]
    result = [next((n for n in sizes if n != 1), 1) for sizes in zip(*padded, strict=True)]
    fits = all(n in (1, want) for d in padded for n, want in zip(d, result, strict=True))
    require(
        fits, operation, "sizes that agree or are 1, aligned at the last axis", " and ".join(map(str, map(tuple, dims)))
    )
    return Dims(result)


def channel_vector(v: Term, x: Term) -> Term:
    """Repeats a vector ()(C) to the dims of x, ()(N C d..)."""
    dims = x.access.dims
    agree = x.access.rank >= 2 and v.access.dims == (dims[1],)
    require(agree, "channel vector", "()(C) for x of ()(N C d..)", f"{v.access} and {x.access}")
    return broadcast(reshape(v, (dims[1], *(1 for _ in dims[2:]))), dims)
