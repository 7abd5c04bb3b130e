"""Saturates a program with chosen rules, and compares every e-node of every class with its class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np

from glenside.check import check, is_equal
from glenside.egraph.encode import program_nodes, program_text
from glenside.egraph.examples import named_wants, smallest_terms
from glenside.egraph.faults import fault
from glenside.egraph.rule import Parameters, Rule
from glenside.egraph.saturation import Compiled, Limits, Request, Saturation
from glenside.egraph.snapshot import Snapshot
from glenside.fuzzing.oracle import values_of
from glenside.ir.bounds import whole
from glenside.ir.dtypes import is_float
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import AccessType
from glenside.rewrites import RULES
from glenside.semantics.interpreter import evaluate
from glenside.targets import ConvolutionUnit, SystolicArray

_COMPILED = Compiled()
_PARAMETERS = {"scatter": 0, "winograd": 0, "row_strips": 0}
_CHECKED = 25
"""Pairs of one e-graph that are checked exactly, if numbers differ."""
_TRIALS = 3


def saturated(
    program: Program,
    rules: Iterable[Rule],
    limits: Limits,
    parameters: Parameters | None = None,
    wants: str = "",
    compiled: tuple[Rule, ...] = (),
) -> tuple[Snapshot, Saturation]:
    """Returns the program's e-graph under these rules, in this process.

    It becomes void when the next search with the same compiled rules begins: these, or a superset of them.
    """
    search = Saturation(_request(program, tuple(rules), limits, parameters, wants, compiled), _COMPILED)
    search.run()
    return search.snapshot(program.tensors), search


def _request(
    program: Program,
    rules: tuple[Rule, ...],
    limits: Limits,
    parameters: Parameters | None = None,
    wants: str = "",
    compiled: tuple[Rule, ...] = (),
) -> Request:
    nodes = program_nodes(program.term)
    return replace(
        _without_program(compiled or rules, tuple(sorted((parameters or {}).items())), _named(wants)),
        program=f"{program_text(nodes)}\n{named_wants(wants, nodes)}",
        rules=tuple((rule.name, rule.expansive) for rule in rules if not rule.analysis),
        program_size=len(nodes),
        limits=limits,
    )


@lru_cache(16)
def _without_program(
    rules: tuple[Rule, ...], parameters: tuple[tuple[str, int], ...], demanded: frozenset[str]
) -> Request:
    targets = (ConvolutionUnit(), SystolicArray(3, 2))
    given = {name: value for t in targets for name, value in t.rule_parameters().items()}
    given |= _PARAMETERS | dict(parameters)
    return Request.of((), _with_analyses(rules, demanded), given, Limits())


def _named(wants: str) -> frozenset[str]:
    """Returns the names of the relations of demands."""
    return frozenset(re.findall(r"\((\S+)", wants))


def _with_analyses(rules: tuple[Rule, ...], demanded: frozenset[str]) -> list[Rule]:
    """Returns rules and the analyses that add to a relation of theirs, of demands, or of such an analysis."""
    known = dict.fromkeys(rules)
    rest = [rule for rule in RULES.values() if rule.analysis and rule not in known]
    relations = demanded.union(*map(_relations, known))
    while found := [rule for rule in rest if _relations(rule, added=True) & relations]:
        known |= dict.fromkeys(found)
        relations = relations.union(*map(_relations, found))
        rest = [rule for rule in rest if rule not in known]
    return [*known]


@cache
def _relations(rule: Rule, added: bool = False) -> frozenset[str]:
    """Returns the names of the relations and functions of a rule, or of those to which it adds rows."""
    found = ((clause.texts[1], head) for clause in rule.clauses for head in clause.signatures if head.declaration)
    return frozenset(head.name for actions, head in found if not added or f"({head.name} " in actions)


@dataclass(frozen=True)
class RuleReport:
    """The result of `check_rule`.

    fault    the first fault, as text, or ""
    matches  matches over all examples and draws
    e_nodes  e-nodes that were compared with their e-class
    """

    rule: str
    fault: str
    matches: int
    e_nodes: int

    @property
    def ok(self) -> bool:
        """True if no fault was found."""
        return not self.fault

    def __str__(self) -> str:
        counted = f"{self.matches} matches, {self.e_nodes} e-nodes compared with their class"
        return f"{self.rule}: {self.fault or f'sound on its examples, {counted}'}"


_BOUNDS = Limits(nodes=20_000, iterations=30, seconds=60.0)
"""Limits of the search for one example of a rule."""


def check_rule(rule: Rule, *, seeds: int = 3) -> RuleReport:
    """Tests a rule as the rules of Glenside are tested, and returns the first fault, if any.

    The rule runs on each of its examples, at sizes and values drawn `seeds` times. Every e-node of every e-class is
    compared with its class: in type, on small whole numbers, and exactly where these differ. Each clause must match in
    some example. This is a test, not a proof: it does not see a missing guard that holds in all examples. Raises
    BadInput for an argument that is not a rule.
    """
    if not isinstance(rule, Rule):
        raise BadInput(f"a rule is declared by gl.rule, got {rule!r}")
    whole("seeds", seeds, least=1)
    clauses: tuple[Rule, ...] = (rule,)
    if len(rule.clauses) > 1 and not rule.analysis:
        clauses = tuple(replace(rule, name=f"{rule.name}-{i + 1}", clauses=(c,)) for i, c in enumerate(rule.clauses))
    silent, matches, e_nodes = {clause.name: clause for clause in clauses}, 0, 0
    for seed, example in ((seed, example) for seed in range(seeds) for example in rule.examples):
        program, search = example.program(seed), None
        request = _request(program, clauses, _BOUNDS, example.parameters, example.demands)
        try:
            search = Saturation(request, _COMPILED)
            search.run()
        except BaseException as error:  # egglog's panics are not Exceptions
            if isinstance(error, KeyboardInterrupt | SystemExit | GlensideError):
                raise
            why, _ = fault(request, 0 if search is None else search.progress.iterations, error)
            return RuleReport(rule.name, why, matches, e_nodes)
        snapshot = search.snapshot(program.tensors)
        found = {clause.name: search.progress.rules[clause.name].matches for clause in clauses}
        silent = {name: clause for name, clause in silent.items() if not found[name]}
        matches, e_nodes = matches + sum(found.values()), e_nodes + snapshot.e_nodes
        if wrong := unequal(program, snapshot, seed):
            return RuleReport(rule.name, f"it is not sound: {wrong}", matches, e_nodes)
    missed = ", ".join(f"{clause.clauses[0]}" for clause in silent.values())
    return RuleReport(rule.name, f"no example matches {missed}" if missed else "", matches, e_nodes)


def pairs(snapshot: Snapshot, representative: Sequence[Term]) -> list[tuple[Term, Term]]:
    """Pairs each e-node over representatives of its children with the representative of its class, if they differ.

    Raises TypeMismatch for an e-node that is not a legal term.
    """
    found: dict[tuple[Term, Term], None] = {}
    for index, node in enumerate(snapshot.nodes):
        own = representative[snapshot.owner[index]]
        made = snapshot.term_of(node, [representative[c] for c in node.children])
        if made is not own:
            found[made, own] = None
    return list(found)


def ill_typed(compared: Iterable[tuple[Term, Term]]) -> str:
    """Returns the first e-node whose type is not that of its class, as a sentence, or ""."""
    for made, own in compared:
        if made.type != own.type:
            return f"{_spelled_term(made)} has type {made.type}, where its class has {own.type}"
    return ""


def unequal(program: Program, snapshot: Snapshot, seed: int) -> str:
    """Returns the first e-node that differs from its class in type or value, as a sentence, or "".

    By induction, every term of the e-graph then equals every other one of its class.
    """
    compared = pairs(snapshot, smallest_terms(snapshot))
    if wrong := ill_typed(compared):
        return wrong
    compared = [pair for pair in compared if isinstance(pair[0].type, AccessType) and not _has_tuples(pair)]
    for pair in _suspects(program, compared, seed)[:_CHECKED]:
        if not _equal(program, pair, seed):
            return f"{_spelled_term(pair[0])} is not equal to {_spelled_term(pair[1])}"
    return ""


def _suspects(program: Program, compared: Sequence[tuple[Term, Term]], seed: int) -> list[tuple[Term, Term]]:
    """Returns the pairs that differ on some drawn numbers, by a fault or by rounding."""
    roots = list(dict.fromkeys(term for pair in compared for term in pair))
    if not roots:
        return []
    found: dict[tuple[Term, Term], None] = {}
    together = Program(build("construct-tuple", *roots), constants=program.constants)
    for trial in range(_TRIALS):
        values = values_of(together, seed + trial)
        if trial < _TRIALS - 1:  # sums and products of small numbers are exact
            values = {
                n: np.clip(np.round(2 * v), -4, 4).astype(v.dtype) if is_float(v.dtype) else v
                for n, v in values.items()
            }
        arrays = dict(zip(roots, evaluate(roots, values), strict=True))
        found |= {pair: None for pair in compared if not _are_close(arrays[pair[0]], arrays[pair[1]])}
    return list(found)


def _are_close(a: Array, b: Array) -> bool:
    """True if arrays are equal, up to the rounding of floats in another order."""
    a, b = np.asarray(a), np.asarray(b)
    if not is_float(a.dtype):
        return np.array_equal(a, b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    scale = float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0))
    return np.allclose(x, y, 1e-3, 1e-4 * scale, equal_nan=True)


def _equal(program: Program, pair: tuple[Term, Term], seed: int) -> bool:
    """True if the exact check finds no difference, or cannot compare the terms."""
    made, own = (Program(term, constants=program.constants) for term in pair)
    verdict = check(own, made, layers=False, seed=seed).result
    return is_equal(verdict) or verdict.startswith("not checked")


def _has_tuples(pair: tuple[Term, Term]) -> bool:
    return any(not isinstance(term.type, AccessType) for term in postorder(*pair))


def _spelled_term(term: Term) -> str:
    text = " ".join(str(term).split())
    return text if len(text) <= 200 else f"{text[:200]}.."
