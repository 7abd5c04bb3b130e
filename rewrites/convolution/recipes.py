"""The forms of a layer: equal programs that compute it by means of other products.

A product of the program is a form of itself; each further step adds a word to `words`. If a form needs several
products, all of them have its words.
"""

from __future__ import annotations

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, V, analysis, when
from glenside.rewrites.facts import ACCESS, TEXT, relation, source

recipe = relation("recipe", product=ACCESS, steps=TEXT)


@analysis("recipe-analyses", Example(ex.MATMUL, {"x": "m k", "w": "n k"}))
def products_have_recipes(p: V) -> Clauses:
    """Records the empty recipe for each product of the program.

    An analysis: it adds no e-node. Sound because it only reads facts that hold.
    """
    return when(source(ROOT), ROOT == op.dot_product(p)).then(recipe(ROOT, steps=""))
