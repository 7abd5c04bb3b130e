"""The trace of a search: which rule made each e-node, in which iteration, and from what it matched.

Rules say `(made-now node operator rule source)` of what they build. After each iteration the driver says which one it
was, `(made-in iteration)`, and the ruleset `trace` writes the earliest into `made-first`: a snapshot's facts `made`.
"""

from __future__ import annotations

from glenside.egraph.sexpr import Sexpr, read_all, write
from glenside.ir.operator import OPERATORS

MADE, FIRST, RULESET = "made", "made-first", "trace"
DECLARATIONS = f"""
(relation made-now (Access String String Access))
(relation made-in (i64))
(function {FIRST} (Access String String Access) i64 :merge (min old new))
(ruleset {RULESET})
(rule ((made-in ?n) (made-now ?node ?operator ?rule ?source))
      ((set ({FIRST} ?node ?operator ?rule ?source) ?n) (delete (made-now ?node ?operator ?rule ?source)))
      :ruleset {RULESET} :name "what was made")
(rule ((made-in ?n)) ((delete (made-in ?n))) :ruleset {RULESET} :name "no longer now")
"""
"""`made-first` is (class, operator, rule, class that the rule matched at) -> iteration."""


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
