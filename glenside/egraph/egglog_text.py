"""Writes a search as one egglog text: operators, rules, program, and the schedule of the iterations that ran.

Some shapes are computed by Python functions between iterations (`tables`). The text has their rows as facts: those that
the search demanded. So it needs nothing but egglog.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

from glenside.egraph.rule import Parameters, Rule
from glenside.egraph.saturation import ACTIONS, FACTS, LATE, Limits, Request, Saturation, declared
from glenside.egraph.sexpr import parts
from glenside.ir.term import Term


def egglog_text(nodes: Sequence[Term], rules: Sequence[Rule], parameters: Parameters, limits: Limits) -> str:
    """Returns the search for a program `nodes` (children first), after it ran here under the limits.

    Node i is `(program-node i)`. The last command prints the number of rows of each operator and relation.
    """
    request = Request.of(nodes, rules, parameters, limits)
    search = Saturation(request)
    progress = search.run()
    own = {line for rule in rules for text in rule.egglog(parameters).splitlines() for line in [text.strip()]}
    declared_first = [command for command in parts(declared(rules, parameters)[0]) if command not in own]
    lines = [f"; Operators, types and relations: {len(declared_first)} commands", *declared_first, ""]
    for rule in rules:
        kind = "analysis" if rule.analysis else "rule"
        lines += [f"; The {kind} {rule.name}: {rule.equation}", *parts(rule.egglog(parameters)), ""]
    rows = search.rows_of_tables()
    lines += [f"; Shapes computed outside of egglog: {len(rows)} rows", *_added("rows", rows), ""]
    actions = [line for line in request.program.split("\n") if line]
    lines += [f"; The program: {len(nodes)} nodes, children first", *_added("program", actions)]
    analyses = FACTS.format(" ".join(f"(run {name})" for name in request.analyses))
    first = [f"(run {name})" for name, _ in request.rules if name in request.subsuming]
    then = [f"(run {name})" for name, _ in request.rules if name not in request.subsuming]
    steps = "\n".join([*first, *([analyses] if first else []), LATE, *then, analyses])
    found = f"{progress.rows:,} e-nodes, {progress.stopped}"
    lines += ["", f"; The search: {progress.iterations} iterations, {found}"]
    lines += [f"(run-schedule\n  {analyses}\n  (repeat {progress.iterations} (seq\n{indent(steps, '    ')})))"]
    return "\n".join([*lines, "(print-size)", ""])


def _added(ruleset: str, actions: Sequence[str]) -> list[str]:
    """Returns the commands that run actions, as rules without facts: egglog runs these faster than single commands."""
    lines = [f"(ruleset {ruleset})"]
    for start in range(0, len(actions), ACTIONS):
        some = indent("\n".join(actions[start : start + ACTIONS]), "  ")
        lines.append(f'(rule () (\n{some}\n) :ruleset {ruleset} :name "{ruleset} {start}")')
    return [*lines, f"(run-schedule (run {ruleset}))"]
