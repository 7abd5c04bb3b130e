"""Draws small programs that select by computed indices, and programs equal to them.

Floats are float64, in which all that is computed here is exact: no maximum, comparison or cut depends on rounding.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from equal_rewrites import equals
from stepped_programs import by, full, plus, tensor, times

from glenside.builder.indexing import gather_elements, gather_nd, scatter_elements, scatter_nd, top
from glenside.builder.layout import concatenate, flip, gather, reshape, slice_axis, transpose
from glenside.builder.pointwise import add, cast, combine, compute, multiply
from glenside.builder.reductions import position
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import GlensideError
from glenside.ir.operators.compute import compute as compute_of
from glenside.ir.operators.compute import parse_compute
from glenside.ir.scalar import primitives
from glenside.ir.term import Term, build, postorder, rebuild
from glenside.semantics.dual_field import DERIVATIVES

REAL = "float64"
_KINDS = ("relu", "abs", "floor", "ceil", "round", "sign", "negative", "(clip -1 2)", "(leaky-relu 1/8)")
_WHOLE_KINDS = ("abs", "relu", "negative", "sign", "(clip -3 2)")


def indexed(pick: random.Random) -> Term:
    """Draws a program of one or two selections by indices, with up to three steps before and after each."""
    dims = (pick.choice((2, 3, 4)), pick.choice((1, 2, 3, 5)))
    x = tensor("x", dims, pick.choice((REAL, REAL, REAL, "int32")))
    for number in range(pick.choice((1, 1, 2))):
        for step in range(pick.choice((0, 1, 1, 2, 3))):
            x = _step(pick, x, f"{number}{step}")
        x = _selection(pick, x, str(number))
    for step in range(pick.choice((0, 0, 1))):
        x = _step(pick, x, f"e{step}")
    return x


def _step(pick: random.Random, x: Term, number: str) -> Term:
    dtype, dims = x.access.dtype, tuple(x.access.dims)
    real = dtype in FLOATS
    match pick.randrange(8):
        case 0 | 1:
            return compute(pick.choice(_KINDS if real else _WHOLE_KINDS), x)
        case 2:
            return add(x, tensor(f"y{number}", dims, dtype))
        case 3:
            return times(x, pick.choice(("1/2", "3", "-1", "1/8") if real else ("2", "3", "-1")))
        case 4:
            return plus(x, pick.choice(("1/2", "-1", "5") if real else ("1", "-2")))
        case 5:
            return multiply(x, x) if pick.random() < 0.5 else by("maximum", x, pick.choice(("0", "1")))
        case 6:
            return flip(x, pick.randrange(len(dims)))
    return transpose(x, tuple(reversed(range(len(dims)))))


def _selection(pick: random.Random, x: Term, number: str) -> Term:
    """Selects elements of x or of a table, at indices that are computed from x or given."""
    axis = pick.randrange(x.access.rank)
    size = x.access.dims[axis]
    table = tensor(f"t{number}", (size, pick.choice((1, 2))), pick.choice((REAL, "int32")))
    ways: tuple[Callable[[], Term], ...] = (
        lambda: top(x, pick.randint(1, size), axis, largest=pick.random() < 0.7)[0],
        lambda: top(x, pick.randint(1, size), axis, largest=pick.random() < 0.7)[1],
        lambda: _both(x, *top(x, pick.randint(1, size), axis)),
        lambda: gather(table, _best(pick, x, axis)),
        lambda: _beside(pick, x, gather(table, _best(pick, x, axis))),
        lambda: gather(_rows(x, axis), _within(pick, x, size)),
        lambda: gather(table, _whole(pick, x)),
        lambda: gather(_rows(x, axis), _whole(pick, tensor(f"i{number}", (3,), "int64"))),
        lambda: gather(_rows(x, axis), tensor(f"i{number}", (3,), "int64")),
        lambda: gather_elements(x, top(tensor(f"z{number}", tuple(x.access.dims)), size, axis)[1], axis),
        lambda: gather_nd(_rows(x, axis), reshape(_best(pick, x, axis), (-1, 1))),
        lambda: scatter_nd(
            table, reshape(_best(pick, x, axis), (-1, 1)), _updates(number, table, x, axis), 0, _reduction(pick)
        ),
        lambda: scatter_elements(x, top(x, size, axis)[1], flip(x, axis), axis, _reduction(pick)),
        lambda: gather(table, slice_axis(tensor(f"j{number}", (5,), "int64"), 0, 1, 4)),
    )
    try:
        found = pick.choice(ways)()
    except GlensideError:
        found = top(x, 1, axis)[0]
    flat = found if found.access.rank and found.access.size <= 40 else top(x, 1, axis)[0]
    return flat if flat.access.rank == 2 else reshape(flat, (-1, 1))


def _rows(x: Term, axis: int) -> Term:
    return x if axis == 0 else transpose(x, (1, 0))


def _both(x: Term, values: Term, places: Term) -> Term:
    return concatenate([values, cast(places, x.access.dtype)], 0)


def _beside(pick: random.Random, x: Term, picked: Term) -> Term:
    """Returns the selected elements together with x."""
    flat = [reshape(cast(t, REAL), (-1, 1)) for t in (x, picked)]
    return concatenate(flat if pick.random() < 0.5 else flat[::-1], 0)


def _best(pick: random.Random, x: Term, axis: int) -> Term:
    return cast(position(pick.choice(("argmax", "argmin")), x, axis), "int64") if axis == 0 else _first(pick, x, axis)


def _first(pick: random.Random, x: Term, axis: int) -> Term:
    return reshape(slice_axis(top(x, 1, axis)[1], axis, 0, 1), (-1,))


def _whole(pick: random.Random, x: Term) -> Term:
    """Returns indices that are valid for some numbers only."""
    if x.access.dtype in FLOATS:
        kind = pick.choice(("floor", "ceil", "round", None))
        return reshape(cast(compute(kind, x) if kind else x, "int64"), (-1,))
    i = reshape(cast(x, "int64"), (-1,))
    match pick.randrange(6):
        case 0:
            return plus(i, pick.choice(("1", "-1", "-2")))
        case 1:
            return times(i, pick.choice(("2", "-1")))
        case 2:
            return compute(pick.choice(("abs", "negative", "relu")), i)
        case 3:
            return multiply(i, i)
        case 4:
            return by("maximum", i, "0")
    return i


def _within(pick: random.Random, x: Term, size: int) -> Term:
    """Returns indices that are valid for all numbers."""
    return compute(f"(clip {pick.choice((0, -size))} {size - 1})", _whole(pick, x))


def _updates(number: str, table: Term, x: Term, axis: int) -> Term:
    return tensor(f"u{number}", (x.access.size // x.access.dims[axis], *table.access.dims[1:]), table.access.dtype)


def _reduction(pick: random.Random) -> str:
    return pick.choice(("replace", "add", "mul", "max", "min"))


def is_exact(*roots: Term) -> bool:
    """True if no rounding function such as exp occurs; comparisons after such a function are unreliable in numpy."""
    for term in postorder(*roots):
        if term.operator is compute_of:
            record, parameters = parse_compute(str(term.attributes[0]))
            if record.scalar is None and record.name not in _EXACT:
                return False
            if record.scalar is not None and primitives(record.expression(*parameters)) & {*DERIVATIVES, "pow"}:
                return False
    return True


_EXACT = ("dot-product", "argmax", "argmin", "argsort")


def _same_places(t: Term, pick: random.Random) -> Term | None:
    """Adds a step that keeps the order before computed positions, or keeps indices valid after them."""
    if t.operator is not compute_of or str(t.attributes[0]).strip("()").split()[0] not in _EXACT[1:]:
        return None
    (x,) = t.children
    if x.access.dtype not in FLOATS:
        return None
    off, by_ = (build("access", full(x, n), x.access.split) for n in ("3/4", "2"))
    found = combine("elementwise-add", x, off) if pick.random() < 0.5 else combine("elementwise-mul", x, by_)
    return build("compute", t.attributes[0], build("access", found, x.access.split))


def _same_elements(t: Term, pick: random.Random) -> Term | None:
    """Rewrites a gather with negative indices made explicit, or clipped to the axis."""
    if t.operator.name != "access-gather":
        return None
    a, indices = t.children
    size = a.access.dims[int(str(t.attributes[0]))]
    if indices.access.dtype != "int64" or not size:
        return None
    if pick.random() < 0.5:
        other = compute(f"(clip {-size} {size - 1})", indices)
    else:
        other = compute(f"(clip 0 {size - 1})", combine("(mod floor)", indices, full(indices, size)))
    return build("access-gather", a, build("access", other, indices.access.split), *t.attributes)


def equal_ones(term: Term, pick: random.Random) -> Iterator[tuple[str, Term]]:
    """Yields programs that are equal to one, and the names of the changes."""
    ways = (_same_places, _same_elements)
    while True:
        way = pick.choice(ways)
        places = [(t, other) for t in postorder(term) if (other := way(t, pick)) is not None]
        if places and pick.random() < 0.6:
            at, new = pick.choice(places)
            changed = rebuild(term, lambda t, _, at=at, new=new: new if t is at else None)  # type: ignore[misc]
            if changed.type == term.type:
                yield way.__name__, changed
        else:
            yield next(equals(term, pick))
