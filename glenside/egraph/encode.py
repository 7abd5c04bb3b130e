"""Encodes terms as e-nodes: the egglog declarations of operators, a program's nodes, and facts about them.

The trace of a search records for each e-node the rule, the iteration and the class of the match that made it. Rules add
rows `(made-now-OPERATOR columns.. rule source)` for the e-nodes they build; the columns identify the e-node within its
class. After each iteration `(made-in iteration)` is added, and the ruleset `trace` writes the earliest iteration into
`made-first-OPERATOR`: the facts `made` of a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from glenside.egraph.pattern import sort_names
from glenside.egraph.queries import DEMANDS, LATE_DEMANDS, compiled
from glenside.egraph.schema import BUILT_IN, relation_text
from glenside.egraph.sexpr import Sexpr, literal, read_all, row_said, write
from glenside.egraph.shape_functions import INTS_MAP, SHAPE_FUNCTIONS
from glenside.egraph.tables import ANSWERED, NUMBERED, ROWS
from glenside.egraph.type_rules import type_rules
from glenside.ir.dtypes import DTYPES, widen
from glenside.ir.operator import COMPUTES, OPERATORS, Compute, Keeps, Kind
from glenside.ir.operators.compute import parse_compute
from glenside.ir.term import Term, constants_under, postorder
from glenside.ir.types import AccessType

# An e-node that names a node of the program: with it a deep term is added one node at a time, and the class of each
# node can be read back. It is not an operator and is in no snapshot.
PROGRAM_NODE = "program-node"


def declarations() -> str:
    """Returns the declarations: sorts, one constructor for each operator, type functions and rules, shape functions."""
    lines = [
        "(sort Access)",
        "(sort Ints (Vec i64))",
        INTS_MAP,
        "(sort Accesses (Vec Access))",
        "(ruleset types)",
        "(ruleset shapes)",
        f"(ruleset {DEMANDS})",
        f"(ruleset {LATE_DEMANDS})",
        f"(ruleset {ANSWERED})",
        f"(ruleset {ROWS})",
        *(f"(function {name} (i64) {sort.value} :no-merge)" for sort, name in NUMBERED.items()),
        f"(constructor {PROGRAM_NODE} (i64) Access)",
        *(built_in.declaration for built_in in BUILT_IN),
        "(rule ((given a o d s t)) ((set (source a) ()) (set (dims a) d) (set (split a) s) (set (dtype a) t)"
        " (set (typed a d s t) ())) :ruleset types)",
    ]
    for operator in OPERATORS.values():
        lines.append(f"(constructor {operator.name} ({' '.join(sort_names(operator))}) Access)")
    lines += SHAPE_FUNCTIONS.values()
    for name, facts, actions in type_rules():
        lines += compiled(name, "types", facts, actions)
    lines += [f'(set (widened "{dtype}") "{widen(dtype)}")' for dtype in DTYPES]
    # Compute types with parameters are declared with the program that has them.
    lines += _compute_facts({name: compute for name, compute in COMPUTES.items() if not compute.parameters})
    return "\n".join(lines)


def _compute_facts(kinds: Mapping[str, Compute]) -> list[str]:
    lines: list[str] = []
    for kind, compute in kinds.items():
        quoted = json.dumps(kind)
        lines += [f'(category {quoted} "{compute.category.value}")', f'(compute-dtype {quoted} "{compute.dtype}")']
        if Keeps.ZERO in compute.keeps:
            lines.append(f"(keeps-zero {quoted})")
    return list(map(row_said, lines))


def node_text(term: Term, children: Sequence[str]) -> str:
    """Returns the text of a term's e-node over the texts of its children."""
    child, attribute = iter(children), iter(term.attributes)
    parts = [term.operator.name]
    for field in term.operator.fields:
        if field.kind is Kind.TERM:
            parts.append(next(child))
        elif field.kind is Kind.TERMS:
            rest = list(child)
            parts.append(f"(vec-of {' '.join(rest)})" if rest else "(vec-empty)")
        elif field.kind is Kind.ACCESS_SHAPE:
            parts += [literal(next(attribute)), literal(next(attribute))]
        else:
            parts.append(literal(next(attribute)))
    return f"({' '.join(parts)})"


def program_text(nodes: Sequence[Term]) -> str:
    """Returns the actions that add terms, children first, to the e-graph: node i is `(program-node i)`."""
    index = {term: i for i, term in enumerate(nodes)}
    kinds = sorted({str(t.attributes[0]) for t in nodes if t.operator.name == "compute"})
    lines = _compute_facts({kind: parse_compute(kind)[0] for kind in kinds if kind.startswith("(")})
    constant = constants_under(*nodes)
    for i, term in enumerate(nodes):
        name = f"({PROGRAM_NODE} {i})"
        children = [f"({PROGRAM_NODE} {index[c]})" for c in term.children]
        lines.append(f"(union {name} {node_text(term, children)})")
        lines.append(row_said(f"({'constant' if constant[term] else 'varies'} {name})"))
        if isinstance(term.type, AccessType):
            type_ = f'{literal(term.type.dims)} {term.type.split} "{term.type.dtype}"'
            lines.append(row_said(f'(given {name} "{term.operator.name}" {type_})'))
        else:
            lines.append(row_said(f"(source {name})"))
    return "\n".join(lines)


def program_nodes(*roots: Term) -> list[Term]:
    """Returns the distinct nodes of a program, children first."""
    return list(postorder(*roots))


MADE, WRITTEN, FIRST, NOW, TRACE = "made", "written", "made-first", "made-now", "trace"


def trace_declarations() -> str:
    """Returns the declarations of the trace.

    `made-first-OPERATOR`: (columns of the e-node.., rule, class that the rule matched at) -> iteration.
    """
    lines = ["(relation made-in (i64))", f"(ruleset {TRACE})"]
    for operator in OPERATORS.values():
        sorts = " ".join((*sort_names(operator), "String", "Access"))
        row = " ".join(f"?{i}" for i in range(len(sorts.split())))
        now, first = f"({NOW}-{operator.name} {row})", f"({FIRST}-{operator.name} {row})"
        lines += [
            relation_text(f"{NOW}-{operator.name}", sorts.split()),
            f"(function {FIRST}-{operator.name} ({sorts}) i64 :merge (min old new))",
            f"(rule ((made-in ?n) {now}) ((set {first} ?n) (delete {now}))",
            f'      :ruleset {TRACE} :name "{operator.name} was made")',
        ]
    lines.append(f'(rule ((made-in ?n)) ((delete (made-in ?n))) :ruleset {TRACE} :name "no longer now")')
    return "\n".join(lines)


def made(actions: str, rule: str, source: str) -> str:
    """Returns the actions that record the e-nodes built by these actions of a rule matched at the class `source`."""
    nodes: dict[str, None] = {}

    def visit(expression: Sexpr) -> None:
        if isinstance(expression, list) and expression and expression[0] != "subsume":
            for part in expression[1:]:
                visit(part)
            if expression[0] in OPERATORS:
                columns = " ".join(map(write, expression[1:]))
                nodes[row_said(f'({NOW}-{expression[0]} {columns} "{rule}" {source})')] = None

    for action in read_all(actions):
        visit(action)
    return " ".join(nodes)
