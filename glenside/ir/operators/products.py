"""Defines the product of access patterns: pairs of items."""

from __future__ import annotations

from glenside.ir.index_map import Index, IndexMap, Piece, Within, axes_of
from glenside.ir.operand import Product
from glenside.ir.operator import Kind, OperatorKind, example, fields, operator, require
from glenside.ir.types import AccessType


def check_pairs(name: str, a: AccessType, b: AccessType, n: int) -> None:
    """Requires n equal leading axes, equal items and equal dtypes. Raises TypeMismatch."""
    most = min(a.split, b.split)
    require(0 <= n <= most, name, f"0 <= n <= {most} shared axes", n)
    agree = {
        f"the first {n} axes": a.dims.take(n) == b.dims.take(n),
        "items": a.item == b.item,
        "dtypes": a.dtype == b.dtype,
    }
    for what, holds in agree.items():
        if not holds:  # spell types only for the message
            require(False, name, f"{what} to agree", f"{a} and {b}")


def _map_product(a: AccessType, b: AccessType, n: int) -> IndexMap:
    """Maps elements: along the tuple axis a is before b."""
    dims = a.shape.append(b.shape.drop(n)).append([2]).append(a.item)
    axes, tuples = axes_of(dims), a.split + b.split - n

    def piece(operand: int, shape: list[Index]) -> Piece:
        return Piece(operand, (*shape, *axes[tuples + 1 :]), (Within(axes[tuples], operand, operand + 1),))

    return IndexMap(dims, (piece(0, axes[: a.split]), piece(1, axes[:n] + axes[a.split : tuples])))


access_product = operator(
    name="access-product",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM, b=Kind.TERM, n=Kind.INT),
    check=lambda a, b, n: check_pairs("access-product", a, b, n),
    result=lambda a, b, n: a.with_dims(a.shape.append(b.shape.drop(n)).append([2]).append(a.item)).with_split(
        a.split + b.split - n
    ),
    index_map=_map_product,
    evaluate=lambda _, a, b, n: Product(a.array, b.array, n, a.access.rank - a.split),
    adjoint=lambda terms, g, a, b, n: terms.paired(
        a, b, n, *(terms.element(g, a.access.split + b.access.split - n, i) for i in (0, 1))
    ),
    doc="Pairs of items with n leading shared axes: (G, A)(I) x (G, B)(I) -> (G, A, B)(2, I). "
    "n = 0 is written access-cartesian-product, n = the whole shape access-pair.",
    typed=True,
    examples=example(
        "(access-product (access (access-tensor x) 2) (access (access-tensor y) 2) 1)", x="g m k", y="g n k"
    ),
)
