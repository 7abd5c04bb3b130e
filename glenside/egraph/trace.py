"""The trace of a search: which rule made each e-node, in which iteration, and from what it matched.

Rules say `(made-now node operator rule source)` of what they build. After each iteration the driver says which one it
was, `(now iteration)`, and the ruleset `trace` writes that into `made`, of which the earliest stays.
"""

from __future__ import annotations

from glenside.egraph.sexpr import Sexpr, read_all, write
from glenside.ir.operator import OPERATORS

MADE, RULESET = "made", "trace"
DECLARATIONS = f"""
(relation made-now (Access String String Access))
(relation now (i64))
(function {MADE} (Access String String Access) i64 :merge (min old new))
(ruleset {RULESET})
(rule ((now ?n) (made-now ?node ?operator ?rule ?source))
      ((set ({MADE} ?node ?operator ?rule ?source) ?n) (delete (made-now ?node ?operator ?rule ?source)))
      :ruleset {RULESET} :name "what was made")
(rule ((now ?n)) ((delete (now ?n))) :ruleset {RULESET} :name "no longer now")
"""
"""Facts `made`: (class, operator, rule, class that the rule matched at) -> iteration."""


def made(actions: str, rule: str, source: str) -> str:
    """The actions that say which e-nodes these actions of a rule build, which matched at the class `source`."""
    nodes: dict[str, None] = {}

    def visit(expression: Sexpr) -> None:
        if isinstance(expression, list) and expression and expression[0] != "subsume":
            for part in expression[1:]:
                visit(part)
            if expression[0] in OPERATORS:
                nodes[f'(made-now {write(expression)} "{expression[0]}" "{rule}" {source})'] = None

    for action in read_all(actions):
        visit(action)
    return " ".join(nodes)
