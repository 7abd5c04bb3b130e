"""The local computation of each party: counts of SPU's kernels for the JAX function that `export_jax` writes.

Counts, not seconds: `costs.py` has the time of each. Views (transposes, reshapes, slices, splits) cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import gcd, lcm
from typing import Any

from glenside.ir.operator import OPERATORS, Category
from glenside.ir.operators.compute import parse_compute
from glenside.ir.operators.tiled_products import matrices_of
from glenside.ir.program import Program
from glenside.ir.rational import exact_numbers
from glenside.ir.term import weave
from glenside.ir.types import AccessType, Type
from glenside.targets.mpc.analysis import Operand, secrets
from glenside.targets.mpc.semi2k import of_elements


@dataclass(frozen=True, slots=True)
class Work:
    """The local computation of one party.

    multiply_adds  multiply-adds of matrix products of shares
    opened         operand elements of products of two secrets, which are masked and opened to the other party
    elements       elements of elementwise operations, such as sums
    copied         elements moved by padding and concatenation
    operations     SPU operations, without views
    """

    multiply_adds: int = 0
    opened: int = 0
    elements: int = 0
    copied: int = 0
    operations: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


NO_WORK = Work()


def program_work(program: Program, public: Iterable[str] = (), prepared: bool = False) -> Work:
    """Returns the computation of one party for the program; parameters as for `program_traffic`."""
    known = secrets(program, public)
    constant = program.info.constant if prepared else {}
    works = (
        node_work(term.operator.name, term.attributes, [known[child] for child in term.children], term.type)
        for term in program.info.order
        if not constant.get(term)
    )
    return sum(works, NO_WORK)


def node_work(operator: str, attributes: Sequence[Any], operands: Sequence[Operand], result: Type) -> Work:
    """Returns the computation of one party for one node; assumed to be nothing for public operands alone."""
    if not any(operand.secret for operand in operands) or not isinstance(result, AccessType):
        return NO_WORK
    if operator in _WRITTEN:
        return _WRITTEN[operator](operands, result, *attributes)
    record = OPERATORS[operator]
    if operator == "compute":
        return _computed(operands[0], result, str(attributes[0]))
    if record.matrices is not None:
        return _matmul(record.matrices(*weave(record, [o.type for o in operands], attributes)), operands)
    return NO_WORK


def _each(elements: int) -> Work:
    return Work(elements=elements, operations=1 if elements else 0)


def _computed(operand: Operand, result: AccessType, kind: str) -> Work:
    if kind == "dot-product" and operand.shared is not None:
        a, b = operand.parts
        return _matmul(matrices_of(a.access, b.access, operand.shared), operand.parts)
    category = parse_compute(kind)[0].category
    if category is Category.POINTWISE:
        return _each(result.size)
    if category not in (Category.FOLD, Category.CONTRACTION):
        return _each(operand.access.size)
    count = len(operand.along()) if operand.parts else operand.access.item[0]
    secret = sum(part.secret for part in operand.along()) if operand.parts else count
    size = operand.access.size // max(operand.access.item[0], 1)
    steps = _each(size * max(count - 1, 1))
    products = kind in ("elementwise-mul", "dot-product") and secret > 1
    return steps + Work(opened=2 * size * (secret - 1)) if products else steps


def _matmul(sizes: tuple[int, int, int, int], operands: Sequence[Operand]) -> Work:
    groups, m, k, n = sizes
    if not groups * m * k * n:
        return NO_WORK
    secret = all(operand.secret for operand in operands[:2])
    if of_elements(m, k, n):
        return Work(opened=2 * groups * m * n if secret else 0, elements=groups * m * n, operations=1)
    k = max(k, 2)
    return Work(groups * m * k * n, groups * k * (m + n) if secret else 0, operations=groups)


def _windows(operands: Sequence[Operand], result: AccessType, window: Sequence[int], strides: Sequence[int]) -> Work:
    """Returns the copies of windows: one axis at a time, with the elements of a window concatenated."""
    given = operands[0].access
    size, work = given.size, NO_WORK
    for axis, k in enumerate(window, given.split):
        size = size // max(given.dims[axis], 1) * result.dims[axis] * k
        if k > 1 and not (result.dims[axis] == 1 and k == given.dims[axis]):
            work += Work(copied=size, operations=1)
    return work


def _overlap_add(operands: Sequence[Operand], result: AccessType, out: Sequence[int], strides: Sequence[int]) -> Work:
    """Returns the work of an overlap-add: one axis at a time, the last first, each window element padded and added."""
    given = operands[0].access
    size, work, first = given.size, NO_WORK, given.rank - 2 * len(out)
    for axis in reversed(range(len(out))):
        count, k = given.dims[first + axis], given.dims[given.rank - len(out) + axis]
        size = size // max(count * k, 1) * out[axis]
        if k > 1 or count != out[axis]:
            work += Work(elements=size * (k - 1), copied=size * k, operations=2 * k - 1)
    return work


def _linear_map(operands: Sequence[Operand], result: AccessType, axis: int, rows: int, coefficients: str) -> Work:
    """Returns the additions of each row, with multiples by double-and-add; then the concatenation of the rows.

    Each multiple is computed once; rows with denominators are scaled together.
    """
    numbers, count = exact_numbers(coefficients) or (), operands[0].access.dims[axis]
    each, added, scaled = result.size // max(rows, 1), 0, 0
    multiples: set[tuple[int, int]] = set()
    for row in (numbers[i * count : (i + 1) * count] for i in range(rows)):
        below = lcm(*(n.denominator for n in row))
        divisor = gcd(*(int(n * below) for n in row)) if below > 1 else 1
        factors = {(i, abs(int(n * below)) // divisor) for i, n in enumerate(row) if n}
        added += max(len(factors) - 1, 0 if any(n > 0 for n in row) else 1)
        added += sum(n.bit_length() + n.bit_count() - 2 for _, n in factors - multiples)
        multiples |= factors
        scaled += below > 1
    joined = Work(copied=each * (rows + (scaled if scaled > 1 else 0)), operations=1) if rows > 1 else NO_WORK
    return Work(elements=each * (added + scaled), operations=added + bool(scaled)) + joined


def _copied(operands: Sequence[Operand], result: AccessType, *_: Any) -> Work:
    return Work(copied=result.size, operations=1 if result.size else 0)


# (operands, type of the result, *attributes) -> what is computed
_WRITTEN: Mapping[str, Callable[..., Work]] = {
    "access-windows": _windows,
    "access-overlap-add": _overlap_add,
    "linear-map": _linear_map,
    "cast": lambda operands, result, *_: _each(result.size),
    **dict.fromkeys(("access-pad", "access-dilate", "access-concatenate"), _copied),
    **dict.fromkeys(("access-gather", "access-gather-nd", "access-scatter-nd"), _copied),
}
