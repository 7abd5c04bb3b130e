"""From windows that a program adds up itself to a convolution of an input with zeros between its elements.

`columns y product order spread`: axis i of y is axis order[i] of the product, its elements spread[i] apart.
`inserting root product x w e`: for a sum `root` of the windows of the product, x is its first operand with zeros along
the first e axes that are added up, and w the second one with those of its windows reversed.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.tables import table
from glenside.ir.types import Dims
from rewrites.convolution.transposed import ANALYSES, FAMILY
from rewrites.convolution.transposed import RELATIONS as TRANSPOSED
from rewrites.declare import rule
from rewrites.expressions import dot, reshaped

_OWN = """
(relation columns (Access Access Ints Ints))
(relation inserting (Access Access Access Access i64))
"""
RELATIONS = TRANSPOSED + _OWN


@table(order=Dims, spread=Dims)
def as_it_stands(rank: int) -> tuple[Dims, Dims]:
    """Every axis at its place, its elements side by side."""
    return Dims(range(rank)), Dims((1,) * rank)


@table(places=Dims, rows=Dims, reach=Dims)
def windows_of_product(
    order: Dims, spread: Dims, axes: int, da: Dims, sa: int, m: int, db: Dims, sb: int
) -> tuple[Dims, Dims, Dims] | None:
    """The axes of a that are positions, those of b that are windows, and how far each window reaches behind its first.

    None where positions or windows are of another operand, or anything else is spread.
    """
    split = len(order) - axes
    places, rows = order[split - axes : split], [axis - sa + m for axis in order[split:]]
    if not all(m <= axis < sa for axis in places) or not all(m <= axis < sb for axis in rows):
        return None
    if any(n != 1 for n in spread[:split]) or any(db[row] == 0 for row in rows):
        return None
    reach = Dims((db[row] - 1) * d for row, d in zip(rows, spread[split:], strict=True))
    return Dims(places), Dims(rows), reach


@table(turned=Dims, spans=Dims, ones=Dims, apart=Dims, sizes=Dims, back=Dims, weights=Dims, result=Dims)
def inserted(
    order: Dims, spread: Dims, out: Dims, da: Dims, sa: int, m: int, db: Dims, sb: int, places: Dims, rows: Dims
) -> tuple[Dims, Dims, Dims, Dims, Dims, Dims, Dims, Dims]:
    """How windows of the first operand with zeros are taken, how the second one goes with them, and how root is of it.

    The order in which its positions are the item; the windows, one element of each `apart`; the dims then, and their
    order as an operand; that of the second operand; that of the result.
    """
    axes, rank = len(out), len(da)
    first = [axis for axis in range(rank) if axis not in places]
    apart = spread[len(order) - axes :]
    spans = [(db[row] - 1) * d + 1 for row, d in zip(rows, apart, strict=True)]
    turned = (*first, *places)
    dims = (*(da[axis] for axis in first), *out, *(db[row] for row in rows))
    back = (*(turned.index(axis) for axis in range(rank)), *range(rank, rank + axes))
    own = [axis for axis in range(sb) if axis not in rows]
    kept = [sa + row - m for row in own if row >= m]
    lead = [axis if axis < sa else sa + kept.index(axis) for axis in order[: len(order) - 2 * axes]]
    return (
        Dims(turned),
        Dims(spans),
        Dims((1,) * axes),
        Dims(apart),
        Dims(dims),
        Dims(back),
        Dims((*own, *range(sb, len(db)), *rows)),
        Dims((*lead, *places)),
    )


_DOT = "(compute dot-product (access-product (access (access-tensor x) {0}) (access (access-tensor w) {1}) {2}))"
_LINE = Example(
    "(access-slice (access-overlap-add (access (access-transpose (access-dilate"
    f" {_DOT.format(2, 2, 0)} 3 1) (list 0 2 1 3)) 3) (shape 14) (shape 3)) 2 1 12)",
    {"x": "n 4 c", "w": "o 3 c"},
)
_PLANE = Example(
    f"(access-overlap-add (access (access-transpose {_DOT.format(4, 4, 1)} (list 0 1 4 3 2 6 5)) 5) (shape 8 5)"
    " (shape 2 1))",
    {"x": "2 n 4 3 c", "w": "2 o 2 3 c"},
)


@rule(ANALYSES, _LINE, _PLANE, relations=RELATIONS)
def columns_are_known() -> tuple[Clause, ...]:
    """Which axes of what is added up are those of a product of the program.

    An analysis: it adds no e-node. Sound because it only reads what is there.
    """
    return (
        Clause(
            '(source root) (= root (compute "dot-product" p)) (= d (dims root)) (= rank (vec-length d))'
            " (= order (as-it-stands-order rank)) (= spread (as-it-stands-spread rank))",
            "(columns root root order spread)",
        ),
        Clause(
            "(columns a inner order spread) (= root (access a s)) (source root)", "(columns root inner order spread)"
        ),
        Clause(
            "(columns a inner order spread) (= root (access-transpose a p)) (source root) (= moved (permute order p))"
            " (= moved-spread (permute spread p))",
            "(columns root inner moved moved-spread)",
        ),
        Clause(
            "(columns a inner order spread) (= root (access-dilate a x n)) (source root) (= 1 (vec-get spread x))",
            "(columns root inner order (vec-set spread x (+ n 1)))",
        ),
    )


@rule(FAMILY, _LINE, _PLANE, relations=RELATIONS)
def zeros_are_put_between() -> tuple[Clause, ...]:
    """overlap-add(dot(x x w)) = dot(windows(pad(dilate(x))) x flip(w)).

    What a program adds up itself is a transposed convolution too, so it has all forms of one. Only for sums and
    products of the program: those of the other forms are made of such a convolution. Sound because element u of the
    window of position m is added to place t m + d u, where window t m + d u of the spread input has position m at
    element k - 1 - u.
    """
    product = '(= inner (compute "dot-product" (access-product a b m)))'
    sides = "(= da (dims a)) (= sa (split a)) (= db (dims b)) (= sb (split b))"
    found = (
        f"(source root) (= root (access-overlap-add y out t)) (columns y inner order spread) {product} {sides}"
        " (= axes (vec-length out))"
        + "".join(
            f" (= {v} (windows-of-product-{v} order spread axes da sa m db sb))" for v in ("places", "rows", "reach")
        )
    )
    step = (
        f"(inserting root inner x w e) {found} (< e axes) (= axis (vec-get places e))"
        " (= size (+ (vec-get out e) (vec-get reach e)))"
    )
    spread = "(access-dilate x axis (- (vec-get t e) 1))"
    results = ("turned", "spans", "ones", "apart", "sizes", "back", "weights", "result")
    key = "order spread out da sa m db sb places rows"
    windows = "(access-windows (access-windows (access (access-transpose x turned) first) spans ones) ones apart)"
    return (
        Clause(found, "(inserting root inner a b 0)"),
        Clause(step, f"(want-section {spread} axis (- 0 (vec-get reach e)) size)"),
        Clause(
            f"{step} (= begin (- 0 (vec-get reach e))) (= n (- (vec-get t e) 1)) (= wide (access-dilate x axis n))"
            " (= longer (section wide axis begin size))",
            "(inserting root inner longer (access-flip w (vec-get rows e)) (+ e 1))",
        ),
        Clause(
            f"{found} (inserting root inner x w axes)"
            + "".join(f" (= {v} (inserted-{v} {key}))" for v in results)
            + " (= first (- (vec-length da) axes)) (= lead (split root))",
            f"(let operand (access (access-transpose {reshaped(windows, 'sizes', 0)} back) sa))"
            " (let weighted (access (access-transpose w weights) (- sb axes)))"
            f" (let convolved {dot('operand', 'weighted', 'm')})"
            " (union root (access (access-transpose convolved result) lead)) (unfolding convolved 0 1)"
            ' (form convolved "zeros")',
        ),
    )
