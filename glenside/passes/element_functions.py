"""Extracts elementwise functions of one tensor from a program, and puts them back.

A function may have constants that vary between elements, such as the scale and shift of each channel. It is a term over
the tensor `element`, ()(sizes): one element for each index along the axes on which the constants vary; ()() if none do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import mul

from glenside.builder import layout
from glenside.builder.layout import broadcast, split_at, transpose
from glenside.ir.operator import Category
from glenside.ir.operators.compute import compute_of, name_of
from glenside.ir.rearrangement import canonical_axes
from glenside.ir.term import Term, build, constants_under, postorder, rebuild_all, tensors
from glenside.ir.types import AccessType, Dims, Tensor

ELEMENT = "element"
_SPREADS = ("access-broadcast", "access-reshape", "access", "cast")
"""Operators that map a tensor with equal elements to a tensor with equal elements."""


def reshape(x: Term, dims: Sequence[int]) -> Term:
    """Reshapes x, in row-major order, and merges the reshapes below."""
    while x.operator.name in ("access-reshape", "access"):
        x = x.children[0]
    return layout.reshape(x, dims)


def pair_of(term: Term) -> Term | None:
    """Returns the operand pair of an elementwise function of two whole tensors; None for other terms."""
    if term.operator.name != "compute" or compute_of(term)[0].category is not Category.FOLD:
        return None
    pair = term.children[0]
    whole = pair.operator.name == "access-product" and all(
        isinstance(c.type, AccessType) and c.access.split == 0 and c.access.dims == term.access.dims
        for c in pair.children
    )
    return pair if whole else None


def operands_of(term: Term) -> Sequence[Term] | None:
    """Returns the operands of an elementwise function; None for other terms and for tensors without elements."""
    if not isinstance(term.type, AccessType) or term.access.split or not term.access.size:
        return None
    if (pair := pair_of(term)) is not None:
        return pair.children
    pointwise = term.operator.name == "compute" and compute_of(term)[0].category
    return term.children if pointwise is Category.POINTWISE or term.operator.name == "cast" else None


def narrowed(constant: Term) -> Term:
    """Returns the constant before its broadcast: ()(sizes), each size that of the constant or 1."""
    dims = constant.access.dims
    if is_one_number(constant):
        return reshape(number_of(constant), [1] * len(dims))
    dtypes: list[str] = []
    while constant.operator.name in ("access-broadcast", "access", "cast"):
        if constant.operator.name == "cast":
            dtypes.append(constant.access.dtype)
        constant = constant.children[0]
    narrow = split_at(constant, 0)
    for dtype in reversed(dtypes):
        narrow = build("cast", narrow, dtype)
    return narrow


def is_one_number(term: Term) -> bool:
    """True if all elements of a constant are equal."""
    while isinstance(term.type, AccessType):
        if term.access.size == 1 or term.operator.name == "full":
            return True
        if term.operator.name not in _SPREADS:
            return False
        term = term.children[0]
    return False


def number_of(term: Term) -> Term:
    """Returns the value of a constant with equal elements, ()()."""
    if term.operator.name == "full":
        return build("full", (), *term.attributes[1:])
    if term.access.size == 1:
        return reshape(term, ())
    inner = number_of(term.children[0])
    return build("cast", inner, term.access.dtype) if term.operator.name == "cast" else inner


def function_of(term: Term, base: Term, constant: Mapping[Term, bool]) -> tuple[Term, Dims, Dims]:
    """Returns the function of a term on each element of its base, and the parts and axes along which it varies."""
    dims = base.access.dims
    narrow = {c: narrowed(c) for c in _constants_read(term, base, constant)}
    axes = [axis for axis, n in enumerate(dims) if n != 1 and any(z.access.dims[axis] != 1 for z in narrow.values())]
    sizes = Dims(dims[axis] for axis in axes)
    done = {base: build("access-tensor", Tensor(ELEMENT, sizes, base.access.dtype))}
    for c, z in narrow.items():
        done[c] = broadcast(reshape(z, [z.access.dims[axis] for axis in axes]), sizes)
    parts, kept = canonical_axes(dims, axes)
    return rebuild_all([term], lambda *_: None, done)[0], Dims(parts), Dims(kept)


def _constants_read(term: Term, base: Term, constant: Mapping[Term, bool]) -> Iterator[Term]:
    """Yields the constants that an elementwise function of the base reads."""
    stack, seen = [term], {base}
    while stack:
        part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        if constant[part]:
            yield part
        else:
            stack += operands_of(part) or ()


def applied(function: Term, x: Term, parts: Dims, axes: Dims) -> Term:
    """Applies a function to each element of x; it may depend on the element's index along `axes` of `parts`."""
    constant = constants_under(function)
    (element,) = (leaf for leaf in tensors(function) if not constant[leaf])
    z, runs = _seen_by_parts(x, parts, axes)
    sizes = tuple(parts[axis] for axis in axes)

    def placed(c: Term) -> Term:
        """Returns a constant broadcast along the axes; a value per item is the same at all their indices."""
        if c.access.dims != element.access.dims:
            return reshape(c, [1] * z.access.rank)
        own = narrowed(c)
        if element.access.dims != sizes:
            own = reshape(c, sizes)
        own = transpose(own, sorted(range(len(axes)), key=axes.__getitem__))
        there = [1] * z.access.rank
        for n, axis in zip(own.access.dims, sorted(axes), strict=True):
            for place in runs[axis] if n != 1 else ():
                there[place] = z.access.dims[place]
        return broadcast(reshape(own, there), z.access.dims)

    done = {c: placed(c) for c in _constants_in(function, constant)}
    (made,) = rebuild_all(
        [function], partial(_at_places, z, [i for run in runs.values() for i in run]), {**done, element: z}
    )
    return split_at(reshape(made, x.access.dims), x.access.split)


def _constants_in(function: Term, constant: Mapping[Term, bool]) -> set[Term]:
    """Returns the maximal terms of a function over constants alone."""
    return {c for part in postorder(function) if not constant[part] for c in part.children if constant[c]}


def _at_places(z: Term, item: Sequence[int], part: Term, children: tuple[Term, ...]) -> Term | None:
    """Applies a part of a function to all of z, whose item is the axes `item`; a value per item has size 1 there."""
    if part.operator.name == "access-reshape":
        return children[0]
    if part.operator.name == "access-broadcast":
        return broadcast(children[0], z.access.dims)
    if part.operator.name == "access-product":
        both = [max(sizes) for sizes in zip(*(c.access.dims for c in children), strict=True)]
        return build("access-product", *(broadcast(c, both) for c in children), *part.attributes)
    if part.operator.name != "compute" or compute_of(part)[0].category is not Category.REDUCTION:
        return None
    dims, rank = z.access.dims, z.access.rank
    ones = [1 if axis in item else n for axis, n in enumerate(dims)]
    kept = rank - len(item)
    if sorted(item) == [*range(kept, rank)]:
        seen = split_at(children[0], kept)
    else:  # one window that covers the item: a view
        window = [n if axis in item else 1 for axis, n in enumerate(dims)]
        seen = build("access-windows", split_at(children[0], 0), window, [1] * rank)
    return layout.reshape(build("compute", part.attributes[0], seen), ones)


def _seen_by_parts(x: Term, parts: Dims, axes: Dims) -> tuple[Term, Mapping[int, Sequence[int]]]:
    """Returns a view of x in which each axis of `axes` is a run of dims, and these runs: axis -> dims.

    Uses the dims of x or of its operands if they have such runs; otherwise reshapes x to `parts`.
    """
    views = [split_at(x, 0)]
    while x.operator.name in ("access-reshape", "access"):
        x = x.children[0]
        views.append(split_at(x, 0))
    for view in reversed(views):
        if (runs := _runs(view.access.dims, parts, axes)) is not None:
            return view, runs
    return reshape(views[0], parts), {axis: [axis] for axis in axes}


def _runs(dims: Dims, parts: Dims, axes: Dims) -> Mapping[int, Sequence[int]] | None:
    """Returns axis of the parts -> the run of dims with the same elements; None if an axis has no run."""
    ends, of_parts = ([*accumulate(sizes, mul, initial=1)] for sizes in (dims, parts))
    runs: dict[int, Sequence[int]] = {}
    for axis in axes:
        first, last = of_parts[axis], of_parts[axis + 1]
        if first not in ends or last not in ends:
            return None
        runs[axis] = [i for i, n in enumerate(dims) if n != 1 and first <= ends[i] and ends[i + 1] <= last]
    return runs


def steps(function: Term) -> list[str]:
    """Returns the names of a function's operators, in order of evaluation."""
    constant = constants_under(function)
    computed = [part for part in postorder(function) if part.children and not constant[part]]
    return [name_of(part) for part in computed if part.operator.name != "access-product"]
