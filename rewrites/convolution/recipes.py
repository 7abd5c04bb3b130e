"""The forms of a layer: equal programs that compute it by other products.

A product of the program is a form of itself; each step from there adds a word to `words`. A form may need several
products: all of them have its words.
"""

from __future__ import annotations

from glenside.egraph.clause import ROOT, when
from glenside.egraph.rule import Example
from glenside.egraph.schema import relation, source
from glenside.egraph.sorts import ACCESS, TEXT
from glenside.ir.operators.reductions import dot_product
from rewrites.declare import Clauses, V, analysis

recipe = relation("recipe", product=ACCESS, steps=TEXT)

_MATMUL = Example(
    "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))",
    {"x": "m k", "w": "n k"},
)


@analysis("recipe-analyses", _MATMUL)
def products_have_recipes(p: V) -> Clauses:
    """A product of the program is a form of itself, of no steps.

    An analysis: it adds no e-node. Sound because it only reads what is there.
    """
    return when(source(ROOT), ROOT == dot_product(p)).then(recipe(ROOT, steps=""))
