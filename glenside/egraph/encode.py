"""Terms as e-nodes: the egglog declarations that operators imply, a program's nodes, and the facts about them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache

from glenside.egraph.pattern import sort_names
from glenside.egraph.schema import BUILT_IN
from glenside.egraph.sexpr import read_all, write
from glenside.egraph.shape_functions import INTS_MAP, SHAPE_FUNCTIONS, demands, written_out
from glenside.egraph.type_rules import type_rules
from glenside.ir.operator import COMPUTES, OPERATORS, Keeps
from glenside.ir.operators.compute import parse_compute
from glenside.ir.term import Attribute, Term, constants_under, postorder
from glenside.ir.types import WIDENED, AccessType, Dims, Tensor, widen

# An e-node that only names a node of the program: it lets a deep term go in one node at a time, and says in which
# class each node ended. It is not an operator and no snapshot shows it.
PROGRAM_NODE = "program-node"


def literal(value: Attribute) -> str:
    """An attribute as an egglog literal."""
    if isinstance(value, Tensor):
        return literal(value.name)
    if isinstance(value, str):
        # egglog takes every character as it is, and knows few of the escapes that JSON has. A line is an action here.
        return '"{}"'.format(value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
    if isinstance(value, Dims):
        return f"(vec-of {' '.join(map(str, value))})" if value else "(vec-empty)"
    return str(value)


def declarations() -> str:
    """Sorts, one constructor for each operator, the type functions and their rules, the shape functions."""
    lines = [
        "(sort Access)",
        "(sort Ints (Vec i64))",
        INTS_MAP,
        "(sort Accesses (Vec Access))",
        "(ruleset types)",
        "(ruleset shapes)",
        "(ruleset demands)",
        f"(constructor {PROGRAM_NODE} (i64) Access)",
        *(built_in.declaration for built_in in BUILT_IN),
        "(rule ((given a d s t)) ((source a) (set (dims a) d) (set (split a) s) (set (dtype a) t)) :ruleset types)",
    ]
    for operator in OPERATORS.values():
        lines.append(f"(constructor {operator.name} ({' '.join(sort_names(operator))}) Access)")
    lines += [function.declarations() for function in SHAPE_FUNCTIONS.values()]
    for rule in type_rules():
        lines += compiled(rule.name, "types", " ".join(rule.facts), " ".join(rule.actions))
    lines += [f'(set (widened "{dtype}") "{widen(dtype)}")' for dtype in _all_dtypes()]
    lines += _compute_facts(COMPUTES)
    return "\n".join(lines)


def _all_dtypes() -> Iterable[str]:
    from glenside.ir.types import DTYPES

    assert set(WIDENED) <= set(DTYPES)
    return DTYPES


def _compute_facts(kinds: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for kind in kinds:
        compute, _ = parse_compute(kind) if kind.startswith("(") else (COMPUTES[kind], ())
        if compute.parameters and not kind.startswith("("):
            continue  # needs its parameters: those of the program are declared with it
        quoted = json.dumps(kind)
        lines.append(f'(category {quoted} "{compute.category.value}")')
        lines.append(f'(compute-dtype {quoted} "{compute.dtype}")')
        if Keeps.ZERO in compute.keeps:
            lines.append(f"(keeps-zero {quoted})")
    return lines


@lru_cache(maxsize=8192)
def compiled(name: str, ruleset: str, facts: str, actions: str) -> tuple[str, ...]:
    """An egglog rule, and for each shape function among its facts the rule that demands it.

    What types demand is met as types are found; what rules demand can wait until there are no more.
    """
    read = written_out(read_all(facts))
    lines = []
    for i, (before, want) in enumerate(demands(read)):
        label = json.dumps(f"{name}: shape {i}")
        wants = "shapes" if ruleset == "types" else "demands"
        lines.append(f"(rule ({' '.join(map(write, before))}) ({write(want)}) :ruleset {wants} :name {label})")
    lines.append(f"(rule ({' '.join(map(write, read))}) ({actions}) :ruleset {ruleset} :name {json.dumps(name)})")
    return tuple(lines)


def node_text(term: Term, children: Sequence[str]) -> str:
    """The e-node of a term over the given texts of its children."""
    from glenside.ir.operator import Kind

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
    """The actions that put terms, given children first, into the e-graph: node i is `(program-node i)`."""
    index = {term: i for i, term in enumerate(nodes)}
    kinds = sorted({str(t.attributes[0]) for t in nodes if t.operator.name == "compute"})
    lines = [line for line in _compute_facts(kinds) if "(" in line[1:]]
    constant = constants_under(*nodes)
    for i, term in enumerate(nodes):
        name = f"({PROGRAM_NODE} {i})"
        children = [f"({PROGRAM_NODE} {index[c]})" for c in term.children]
        lines.append(f"(union {name} {node_text(term, children)})")
        lines.append(f"({'constant' if constant[term] else 'varies'} {name})")
        if isinstance(term.type, AccessType):
            lines.append(f'(given {name} {literal(term.type.dims)} {term.type.split} "{term.type.dtype}")')
        else:
            lines.append(f"(source {name})")
    return "\n".join(lines)


def program_nodes(*roots: Term) -> list[Term]:
    """The distinct nodes of a program, children first."""
    return list(postorder(*roots))
