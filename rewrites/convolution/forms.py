"""The forms of a layer: equal programs that compute it by other products.

`form c words`: the product c stands for a product of the program, in the form that the words name, one word for each
step from the program's own product, which has none. A form may need several products: all of them have its words.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from rewrites.declare import rule

FAMILY = "form-analyses"
RELATIONS = "(relation form (Access String))"

_MATMUL = Example(
    "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))",
    {"x": "m k", "w": "n k"},
)


@rule(FAMILY, _MATMUL, relations=RELATIONS)
def products_have_forms() -> tuple[Clause, ...]:
    """A product of the program is a form of itself, of no steps.

    An analysis: it adds no e-node. Sound because it only reads what is there.
    """
    return (Clause('(source root) (= root (compute "dot-product" p))', '(form root "")'),)
