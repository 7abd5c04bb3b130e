"""Draws well-typed terms at small odd shapes, for property tests of anything that takes terms.

`terms()` is a hypothesis strategy; `values_for(term)` draws small integers, so that sums and products are exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st

from glenside.ir.operand import Array
from glenside.ir.term import Term, build, tensors
from glenside.ir.types import AccessType, Dims, Tensor

Draw = Callable[..., int]

# Of one term, so that programs of a dozen steps evaluate in milliseconds.
MOST_ELEMENTS = 600
MOST_AXES = 6

SIZES = (1, 2, 3, 4, 5)
POINTWISE = ("relu", "negative", "abs", "sign", "(clip -2 3)")
# min and max are exact on any numbers; means and quotients are not, and stay out.
REDUCTIONS = ("reduce-sum", "reduce-max", "reduce-min", "reduce-prod")
FOLDS = ("elementwise-add", "elementwise-mul", "subtract", "minimum", "maximum")


class _Steps:
    """Methods that apply one operator to a term, with random valid arguments; None if there are none."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int], pool: list[Term]) -> None:
        self.draw, self.pool = draw, pool

    def number(self, lowest: int, highest: int) -> int:
        return self.draw(st.integers(lowest, highest))

    def axis(self, a: Term) -> int | None:
        return self.number(0, a.access.rank - 1) if a.access.rank else None

    def access(self, a: Term) -> Term | None:
        return build("access", a, self.number(0, a.access.rank))

    def transpose(self, a: Term) -> Term | None:
        order = self.draw(st.permutations(range(a.access.rank)))  # type: ignore[arg-type]
        return build("access-transpose", a, order)

    def slice(self, a: Term) -> Term | None:
        axis = self.axis(a)
        if axis is None or not a.access.dims[axis]:
            return None
        lo = self.number(0, a.access.dims[axis] - 1)
        return build("access-slice", a, axis, lo, self.number(lo + 1, a.access.dims[axis]))

    def concatenate(self, a: Term) -> Term | None:
        axis = self.axis(a)
        if axis is None:
            return None
        others = [b for b in self.pool if _agree_but(a.access, b.access, axis)]
        return build("access-concatenate", a, others[self.number(0, len(others) - 1)], axis)

    def pad(self, a: Term) -> Term | None:
        axis = self.axis(a)
        if axis is None:
            return None
        return build("access-pad", a, "zero-padding", axis, self.number(0, 2), self.number(0, 1))

    def reshape(self, a: Term) -> Term | None:
        shape, item = _regrouped(a.access.shape, self.number(0, 2)), _regrouped(a.access.item, self.number(0, 2))
        return build("access-reshape", a, (shape, item))

    def flatten(self, a: Term) -> Term | None:
        return build("access-flatten", a)

    def shift_right(self, a: Term) -> Term | None:
        return build("access-shift-right", a) if a.access.split else None

    def flip(self, a: Term) -> Term | None:
        axis = self.axis(a)
        return None if axis is None else build("access-flip", a, axis)

    def dilate(self, a: Term) -> Term | None:
        axis = self.axis(a)
        return None if axis is None else build("access-dilate", a, axis, self.number(0, 2))

    def insert_axis(self, a: Term) -> Term | None:
        return build("access-insert-axis", a, self.number(0, a.access.rank))

    def squeeze(self, a: Term) -> Term | None:
        single = [axis for axis, size in enumerate(a.access.dims) if size == 1]
        return build("access-squeeze", a, single[self.number(0, len(single) - 1)]) if single else None

    def broadcast(self, a: Term) -> Term | None:
        dims = [self.number(1, 3) if size == 1 else size for size in a.access.dims]
        return build("access-broadcast", a, (dims[: a.access.split], dims[a.access.split :]))

    def windows(self, a: Term) -> Term | None:
        if 0 in a.access.item:
            return None
        window = [self.number(1, size) for size in a.access.item]
        return build("access-windows", a, window, [self.number(1, 3) for _ in window])

    def pair(self, a: Term) -> Term | None:
        others = [b for b in self.pool if b.access == a.access]
        return build("access-product", a, others[self.number(0, len(others) - 1)], a.access.split)

    def product(self, a: Term) -> Term | None:
        others = [b for b in self.pool if (b.access.item, b.access.dtype) == (a.access.item, a.access.dtype)]
        b = others[self.number(0, len(others) - 1)]
        shared = 0
        while shared < min(a.access.split, b.access.split) and a.access.dims[shared] == b.access.dims[shared]:
            shared += 1
        return build("access-product", a, b, self.number(0, shared))

    def dot_product(self, a: Term) -> Term | None:
        product = self.product(a)
        return build("compute", "dot-product", product) if product is not None and _fits(product) else None

    def pointwise(self, a: Term) -> Term | None:
        return build("compute", POINTWISE[self.number(0, len(POINTWISE) - 1)], a)

    def reduction(self, a: Term) -> Term | None:
        if not a.access.item.product():
            return None
        return build("compute", REDUCTIONS[self.number(0, len(REDUCTIONS) - 1)], a)

    def linear_map(self, a: Term) -> Term | None:
        axis = self.axis(a)
        if axis is None:
            return None
        rows = self.number(1, 3)
        coefficients = [self.number(-2, 2) for _ in range(rows * a.access.dims[axis])]
        return build("linear-map", a, axis, rows, " ".join(map(str, coefficients)))

    def truncate(self, a: Term) -> Term:
        return build("truncate", a)

    def opaque(self, a: Term) -> Term:
        operands = [a, *self.pool[: self.number(0, 2)]]
        dims = [self.number(1, 4) for _ in range(self.number(0, 3))]
        split = self.number(0, len(dims))
        return build("opaque", f'box-{self.number(0, 1)} é"\\', (dims[:split], dims[split:]), "float32", *operands)

    def fold(self, a: Term) -> Term | None:
        if not a.access.item or not a.access.item[0]:
            return None
        return build("compute", FOLDS[self.number(0, len(FOLDS) - 1)], a)


def _agree_but(a: AccessType, b: AccessType, axis: int) -> bool:
    return a.rank == b.rank and a.split == b.split and a.dims.remove(axis) == b.dims.remove(axis)


def _regrouped(dims: tuple[int, ...], way: int) -> tuple[int, ...]:
    """Reshapes a term: to one axis, to reversed dims, or with an additional axis of size 1."""
    size = int(np.prod(dims))
    return {0: (size,), 1: dims[::-1], 2: (*dims, 1)}[way]


def _fits(term: Term) -> bool:
    return term.access.size <= MOST_ELEMENTS and term.access.rank <= MOST_AXES


STEPS = tuple(name for name in vars(_Steps) if not name.startswith("_") and name not in ("number", "axis"))


def tensor(*dims: int, constant: bool = False, dtype: str = "float32") -> Term:
    """Returns a leaf whose name contains its dims, so that equal names are equal tensors."""
    name = "_".join(["w" if constant else "x", *map(str, dims)])
    return build("access-tensor", Tensor(name, Dims(dims), dtype, constant))


MOVES = (
    *("access", "transpose", "slice", "concatenate", "pad", "reshape", "flatten", "shift_right", "flip", "dilate"),
    *("insert_axis", "squeeze", "broadcast", "windows", "pair"),
)
"""Names of the steps that only move elements."""


@st.composite
def terms(
    draw: Draw, steps: int = 12, operators: tuple[str, ...] = STEPS, dtypes: tuple[str, ...] = ("float32",)
) -> Term:
    """Draws a term of one of the dtypes, with a limited number of operators; sharing is common. `operators` are names
    of steps to draw from.
    """
    dtype = draw(st.sampled_from(dtypes))
    pool: list[Term] = []
    for _ in range(draw(st.integers(1, 3))):
        dims = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3))
        pool.append(tensor(*dims, constant=draw(st.booleans()), dtype=dtype))  # type: ignore[misc,arg-type]
    apply = _Steps(draw, pool)
    for _ in range(draw(st.integers(1, steps))):
        # Most steps go on from the last term: programs are deep rather than wide.
        index = draw(st.one_of(st.just(len(pool) - 1), st.integers(0, len(pool) - 1)))
        step = draw(st.sampled_from(operators))
        new = getattr(apply, step)(pool[index])  # type: ignore[call-overload]
        if new is not None and _fits(new):
            pool.append(new)
    return pool[-1]


def drawn(seed: int, count: int, **how: tuple[str, ...]) -> list[Term]:
    """Returns a number of `terms`, the same for equal seeds, without shrinking."""
    kept: list[Term] = []

    @with_seed(seed)
    @settings(
        max_examples=count,
        derandomize=False,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(terms(**how))
    def draw(term: Term) -> None:
        kept.append(term)

    draw()
    return kept


def values_for(*roots: Term, seed: int = 0, most: int = 3) -> dict[str, Array]:
    """Draws small integers for every tensor under the roots, in its dtype, from the seed and its name alone."""
    values: dict[str, Array] = {}
    for leaf in tensors(*roots):
        record = leaf.attributes[0]
        assert isinstance(record, Tensor)
        digest = hashlib.sha256(f"{seed} {record.name}".encode()).digest()
        random = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        values[record.name] = random.integers(-most, most + 1, record.dims).astype(record.dtype)
    return values
