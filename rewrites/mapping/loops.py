"""Products as loops of instructions: the counts of tiles are leading axes of one mapped call, so a product of any size
is a few e-nodes.

`mapping call plan sizes` says which plan a call came from, and the sizes (g m k o) that it left, for reports.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.schema import relation
from glenside.egraph.sorts import ACCESS, INTS
from rewrites.declare import rule
from rewrites.expressions import ceil_div, padded, reshaped, transposed, vec
from rewrites.mapping.matrices import MATRICES

want_call = relation("want-call", product=ACCESS, plan=INTS)
_WANT_CALL = "(relation want-call (Access Ints))"
_MAPPING = "(relation mapping (Access Ints Ints))"
RELATIONS = "\n".join([MATRICES, _WANT_CALL, _MAPPING])

_MATRICES = "(compute dot-product (access-product (access (access-tensor x) 2) (access (access-tensor w) 2) 1))"
_SIZES = {"x": "2 7 8", "w": "2 3 8"}
_WANTS = "(matrices $root $x2 $w2 2 7 8 3) (want-call $root (vec-of 1 1 0))"
_LIMITED = {"rows": 3, "columns": 2, "max_rows": 3}
_WHOLE = {"rows": 8, "columns": 3, "max_rows": 7}
_TALL = {"rows": 3, "columns": 8, "max_rows": 100}


def _product(product: str) -> str:
    """The rest of the way from the results of the calls, (g mt ms nt C)(kt), to the product (g m o)."""
    whole = reshaped(product, vec("g", "(* mt ms)", "(* nt $columns)"), 3)
    return f"(access-slice (access-slice {whole} 1 0 m) 2 0 o)"


@rule(
    "weight-stationary",
    Example(_MATRICES, _SIZES, wants=_WANTS, parameters=_LIMITED),
    Example(_MATRICES, _SIZES, wants=_WANTS, parameters=_WHOLE),
    Example(_MATRICES, _SIZES, wants=_WANTS, parameters=_TALL),
    relations=RELATIONS,
)
def product_is_loops_of_weight_tiles() -> tuple[Clause, ...]:
    """dot(a x b) = sum over k-tiles of systolic-array over (groups, row tiles, column tiles, k-tiles).

    Sound because padding the depth adds pairs of 0 x 0, because rows and columns added to fill up tiles are cut off
    again, and because a sum over all k is the sum over tiles of the sums within each.
    """
    left = padded(padded("a", 2, "(- (* kt $rows) k)"), 1, "(- (* mt ms) m)")
    left = transposed(reshaped(left, vec("g", "mt", "ms", 1, "kt", "$rows"), 5), 0, 1, 3, 4, 2, 5)
    left = f"(access-broadcast {left} {vec('g', 'mt', 'nt', 'kt', 'ms')} {vec('$rows')})"
    right = padded(padded("b", 2, "(- (* kt $rows) k)"), 1, "(- (* nt $columns) o)")
    right = transposed(reshaped(right, vec("g", 1, "nt", "$columns", "kt", "$rows"), 4), 0, 1, 2, 4, 5, 3)
    right = f"(access-broadcast {right} {vec('g', 'mt', 'nt', 'kt')} {vec('$rows', '$columns')})"
    parts = f"(access {transposed('call', 0, 1, 4, 2, 5, 3)} 5)"
    return (
        Clause(
            "(want-call root plan) (matrices root a b g m k o)"
            f" (= kt {ceil_div('k', '$rows')}) (= nt {ceil_div('o', '$columns')})"
            f" (= mt {ceil_div('m', '$max_rows')}) (= ms {ceil_div('m', 'mt')})",
            f"(let call (systolic-array $rows $columns {left} {right})) (mapping call plan (vec-of g m k o))"
            f' (let sums (compute "reduce-sum" {parts})) (union root {_product("sums")})',
        ),
    )


@rule(
    "output-stationary",
    Example(_MATRICES, _SIZES, wants=_WANTS, parameters=_LIMITED),
    Example(_MATRICES, _SIZES, wants=_WANTS, parameters={**_WHOLE, "rows": 7}),
    relations=RELATIONS,
)
def product_is_loops_of_result_tiles() -> tuple[Clause, ...]:
    """dot(a x b) = systolic-array-output-stationary over (groups, row tiles, column tiles), put side by side.

    Sound because rows and columns added to fill up tiles are cut off again.
    """
    left = reshaped(padded("a", 1, "(- (* mt $rows) m)"), vec("g", "mt", 1, "$rows", "k"), 4)
    left = f"(access-broadcast {left} {vec('g', 'mt', 'nt', '$rows')} {vec('k')})"
    right = reshaped(padded("b", 1, "(- (* nt $columns) o)"), vec("g", 1, "nt", "$columns", "k"), 3)
    right = f"(access-broadcast {transposed(right, 0, 1, 2, 4, 3)} {vec('g', 'mt', 'nt')} {vec('k', '$columns')})"
    return (
        Clause(
            "(want-call root plan) (matrices root a b g m k o)"
            f" (= nt {ceil_div('o', '$columns')}) (= mt {ceil_div('m', '$rows')}) (= ms $rows)",
            f"(let call (systolic-array-output-stationary $rows $columns {left} {right}))"
            f" (mapping call plan (vec-of g m k o)) (let tiles {transposed('call', 0, 1, 3, 2, 4)})"
            f" (union root {_product('tiles')})",
        ),
    )
