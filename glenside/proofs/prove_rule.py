"""Proves the clauses of a rule for all sizes, case by case of ranks, splits, axes and permutations."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product

from glenside.egraph.clause import Clause
from glenside.egraph.pattern import Fact, Literal, Pattern
from glenside.egraph.rule import Rule
from glenside.ir.dtypes import DTYPES as DTYPE_RECORDS
from glenside.proofs.access_patterns import Access, Case, Choices, Impossible, NoSuchCase, NotExpressible
from glenside.proofs.assumptions import Effort, OutOfTime
from glenside.proofs.clause_cases import ClauseCase, equations, lets
from glenside.proofs.counterexamples import Counterexample, counterexample, witness
from glenside.proofs.equality import equal
from glenside.proofs.inlined_relations import Variant, variants
from glenside.proofs.symbolic_integers import same, variable, within

RANKS = 3
"""The most axes of an operand of which nothing is known."""
SECONDS = 8.0
"""Processor seconds for a clause."""
DTYPES = ("float32", "int8")
"""A dtype whose sums have that dtype, and one whose sums are wider."""
_OPEN = 12  # cases for which a counterexample is looked for
_TRIES = 8  # concrete programs for each case that is not proven


class Verdict(Enum):
    """The result of proving a clause."""

    PROVEN = "proven"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    NOT_EXPRESSIBLE = "not expressible"
    VACUOUS = "vacuous"


@dataclass(frozen=True)
class Status:
    """The verdict on a clause, and what it rests on.

    `cases`: the cases proven. `reason`: why the clause is not proven. `example`: a program that the left side matches,
    of which both sides were evaluated; `counterexample`: two programs that the clause makes equal and that differ.
    """

    verdict: Verdict
    cases: int = 0
    reason: str = ""
    lemmas: Sequence[str] = ()
    example: str = ""
    counterexample: Counterexample | None = None


@dataclass
class _Progress:
    """The outcomes of the cases so far."""

    proven: int = 0
    empty: int = 0
    open: list[str] = field(default_factory=list)
    example: str = ""
    refutation: Counterexample | None = None


def prove_rule(rule: Rule, seconds: float = SECONDS) -> list[Status | None]:
    """Returns the status of each clause; None for a clause without an equation."""
    return [prove_clause(clause, seconds) for clause in rule.clauses]


def prove_clause(clause: Clause, seconds: float = SECONDS, max_rank: int = RANKS) -> Status | None:
    """Returns the status of a clause, None for one without an equation.

    If no case of these ranks has a left side, operands may have one axis more.
    """
    if not equations(clause):
        return None
    effort, progress = Effort(seconds), _Progress()
    try:
        ways = variants(clause.facts)
        for rank in (max_rank, max_rank + 1):
            for way, dtype in product(ways, _dtypes(clause)):
                _prove_cases(clause, way, effort, dtype, rank, progress)
            if progress.proven or progress.open or progress.refutation:
                break
    except NotExpressible as reason:
        return Status(Verdict.NOT_EXPRESSIBLE, reason=str(reason))
    except OutOfTime:
        why = f"not done in {seconds:g} s, after {progress.proven} cases"
        return Status(Verdict.UNDECIDED, progress.proven, why)
    except RecursionError:
        return Status(Verdict.UNDECIDED, progress.proven, "quotients are nested too deeply")
    return _concluded(progress, sorted(set[str]().union(*(way.lemmas for way in ways))))


def _concluded(progress: _Progress, lemmas: Sequence[str]) -> Status:
    """Returns the status after all cases."""
    if progress.refutation:
        return Status(Verdict.REFUTED, counterexample=progress.refutation)
    if progress.open:
        return Status(Verdict.UNDECIDED, progress.proven, progress.open[0], lemmas)
    if not progress.proven:
        return Status(Verdict.VACUOUS, reason="no case has facts that hold together and an element")
    if not progress.example:
        return Status(Verdict.UNDECIDED, progress.proven, "no program was found that the left side matches", lemmas)
    return Status(Verdict.PROVEN, progress.proven, "", lemmas, progress.example)


def _dtypes(clause: Clause) -> Sequence[str]:
    """Returns the dtypes of operands: one of each kind, and those that the clause names."""
    named = {str(n.value) for n in clause.nodes if isinstance(n, Literal) and n.value in DTYPE_RECORDS}
    return [*DTYPES, *sorted(named.difference(DTYPES))]


def _prove_cases(clause: Clause, way: Variant, effort: Effort, dtype: str, max_rank: int, progress: _Progress) -> None:
    choices, more = Choices(), progress.refutation is None
    while more:
        effort.check()
        case = Case(choices, effort, dtype, max_rank)
        try:
            found = _matched(way.facts, case)
            _prove_case(clause, found, progress)
        except Impossible:
            pass
        if progress.refutation:
            return
        more = choices.advance()


def _matched(facts: Sequence[Fact], case: Case) -> ClauseCase:
    """Returns the case after its facts are assumed, and the equations among them solved. Raises Impossible."""
    for _ in range(12):
        case.restarted()
        found = ClauseCase(facts, case)
        found.match()
        if not case.unsolved:
            if case.known.contradictory:
                raise Impossible("the facts contradict each other")
            return found
    raise NotExpressible("equations that do not end")


def _prove_case(clause: Clause, found: ClauseCase, progress: _Progress) -> None:
    """Proves one case. Raises Impossible if it has no left side."""
    case, reason = found.case, None
    pairs = equations(clause)
    for name, value in lets(clause):
        found.let(name, value)
    found.bind_all(part for pair in pairs for part in pair)
    if case.unsolved:
        raise NotExpressible("equations among what no fact binds")
    for pair in pairs:
        try:
            left = found.build(pair[0])
            case.owing = True
            for name, value in lets(clause):
                found.values[name] = found.build(value)
            right = found.build(pair[1])
        except NoSuchCase:
            raise
        except Impossible as why:
            if not case.owing:
                raise
            reason = f"the right side cannot be built: {why}"
        else:
            reason = _compared(case, left, right)
        if reason is not None:
            _refute(clause, pair, found, progress, reason)
            return
    _count(clause, pairs[0], found, left, progress)


def _refute(clause: Clause, pair: tuple[Pattern, Pattern], found: ClauseCase, progress: _Progress, reason: str) -> None:
    """Records a case that is not proven; looks for a counterexample, if all facts of the clause were used."""
    if not found.forgotten and len(progress.open) < _OPEN:
        rng = random.Random(len(progress.open))
        progress.refutation = counterexample(clause, pair, found, found.case.known, rng, _TRIES)
    facts = f", without {', '.join(sorted(found.forgotten))}" if found.forgotten else ""
    progress.open.append(f"{reason} {_described(found)}{facts}")


def _compared(case: Case, left: Access, right: Access) -> str | None:
    """Returns why the two sides may differ, None if they are proven equal."""
    if (left.rank, left.split, left.dtype) != (right.rank, right.split, right.dtype):
        return f"types {left.type} and {right.type}"
    known = case.known
    if known.contradictory:
        raise Impossible("a case distinction of the right side contradicts the facts")
    for condition in (*map(same, left.dims, right.dims), *case.owed):
        if not known.proves(condition.substitute(case.solved)):
            return f"it does not follow that {condition}"
    index = tuple(variable(f"i{k}") for k in range(left.rank))
    dims = [n.substitute(case.solved) for n in left.dims]
    inside = known.assuming(*within(index, dims))
    case.assumed += within(index, left.dims)
    try:
        elements = [side.at(index).substitute(case.solved) for side in (left, right)]
        same_elements = equal(inside, elements[0], elements[1])
    finally:
        del case.assumed[len(case.assumed) - 2 * left.rank :]
    return None if same_elements else "elements"


def _count(clause: Clause, pair: tuple[Pattern, Pattern], found: ClauseCase, left: Access, progress: _Progress) -> None:
    """Counts a proven case: of those without any element, only that they were met."""
    found.case.owing = False
    index = tuple(variable(f"i{k}") for k in range(left.rank))
    if found.case.known.assuming(*within(index, [n.substitute(found.case.solved) for n in left.dims])).contradictory:
        progress.empty += 1
        return
    progress.proven += 1
    if not progress.example:
        progress.example = witness(clause, pair, found, random.Random(progress.proven))


def _described(found: ClauseCase) -> str:
    ranks = [f"{name}: {a.rank} axes, split {a.split}" for name, a in found.leaves.items()]
    fixed = [f"{k} = {v}" for k, v in found.values.items() if isinstance(v, int | str) and not k.startswith("?")]
    return f"({'; '.join((*ranks, *fixed))})"
