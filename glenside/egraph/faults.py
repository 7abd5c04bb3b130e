"""Diagnoses a failed search: finds the rule that united two terms of different types, and these terms.

An egglog panic names a type function but no rule. So the search is replayed up to the iteration that failed, then rule
by rule; and once more, with a copy of the wrong rule that records its unions instead of making them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from glenside.egraph.examples import smallest_terms
from glenside.egraph.queries import DEMANDS
from glenside.egraph.saturation import TYPES, Request, Saturation
from glenside.egraph.schema import relation_text
from glenside.egraph.sexpr import Sexpr, parts, read_all, write
from glenside.egraph.snapshot import Snapshot
from glenside.ir.term import Term
from glenside.ir.types import Tensor

_UNITED, _COPY = "united-by-rule", "{}-noted"
_LONGEST = 160
"""Maximum characters of a term quoted in a message."""


class _Replay(Saturation):
    """A replayed search that can stop at a rule. The last entry of `trail` is the running analysis."""

    def __init__(self, request: Request, trail: list[str]) -> None:
        self._trail = trail
        super().__init__(request)

    def _find_facts(self) -> bool:
        """Runs the facts to their fixed point, one analysis at a time."""
        anything = changed = True
        while changed:
            changed = self._changes("", TYPES)
            for name in self.request.analyses:
                changed |= self._changes(name, f"(run {name})")
            changed |= self._changes("", f"(run {DEMANDS})")
            anything |= changed
        return anything

    def _changes(self, name: str, schedule: str) -> bool:
        self._trail.append(name)
        (done,) = self._command(f"(run-schedule {schedule})")
        self._trail.append("")
        return bool(done.report.updated)

    def steps_before(self, iterations: int, rule: str | None) -> Iterator[Callable[[], object]]:
        """Yields the steps of `iterations` iterations, then of the next one up to a rule, or to its end."""
        for _ in range(iterations):
            yield self.step
        first, active = self.request.subsuming, self._active()
        for name in sorted(active, key=lambda name: name not in first):
            if name == rule:
                return
            yield partial(self._run_alone, name)

    def rule_that_fails(self, iterations: int) -> str | None:
        """Returns the rule that fails within or after `iterations` iterations; None if no single step fails."""
        for step in self.steps_before(iterations, None):
            try:
                step()
            except BaseException:  # egglog's panics are not Exceptions
                return self._trail[-1] or (step.args[0] if isinstance(step, partial) else None)
        return None

    def note(self, ruleset: str) -> None:
        """Runs rules that only add terms and rows, and infers their types."""
        self._demand()
        self._command(f"(run-schedule (run {ruleset}))")
        self._find_facts()

    def _run_alone(self, name: str) -> None:
        if name not in self.request.subsuming:
            self._demand()
        self._run_each([name])
        self._analyze()


def raw_fault(error: BaseException) -> str:
    """Returns the message of a failed search without a known rule."""
    return f"the e-graph failed with {type(error).__name__}: {' '.join(str(error).split())}"


def fault(request: Request, iterations: int, error: BaseException) -> tuple[str, str]:
    """Returns the message of a failed search, with the wrong rule and its union, and the rule's name or "".

    Takes as long as the search.
    """
    trail: list[str] = [""]
    with suppress(BaseException):  # the replay may fail in another way: then this fault is reported
        rule = None
        try:
            rule = _Replay(request, trail).rule_that_fails(iterations)
        except BaseException:  # before the first iteration
            rule = trail[-1] or None
        if rule is not None:
            with suppress(BaseException):
                if united := _united(request, iterations, rule):
                    return f"the rule {rule} is wrong: {united}", rule
            return f"the rule {rule} is wrong: {raw_fault(error)}", rule
    return raw_fault(error), ""


def _united(request: Request, iterations: int, rule: str) -> str:
    """Returns a sentence on the first two terms of different types that the rule unites, or ""."""
    copies = [write(copy) for command in parts(request.declarations) for copy in _copies(command, rule)]
    noted = [relation_text(_UNITED, ["Access", "Access"]), f"(ruleset {_COPY.format(rule)})", *copies]
    declared = "\n".join([request.declarations, *noted])
    search = _Replay(replace(request, declarations=declared, reported=(_UNITED,), trace=False), [""])
    for before in search.steps_before(iterations, rule):
        before()
    search.note(_COPY.format(rule))
    snapshot = search.snapshot()
    snapshot = replace(snapshot, tensors=_tensors(snapshot))
    terms: list[Term] = []
    for left, right in snapshot.facts[_UNITED]:
        one, other = snapshot.types[left], snapshot.types[right]
        if one != other:
            terms = terms or smallest_terms(snapshot)
            return f"it makes {_quoted(terms[left])}, of type {one}, equal to {_quoted(terms[right])}, of type {other}"
    return ""


def _copies(command: str, rule: str) -> Iterator[list[Any]]:
    """Yields a copy of a command of the rule, with rows of a relation in place of unions."""
    if not command.startswith("(rule ") or f":ruleset {rule} " not in command:
        return
    (read,) = read_all(command)
    assert isinstance(read, list)
    _, facts, actions, _, _, _, name = read
    assert isinstance(name, str)
    yield ["rule", facts, list(map(_noted, actions)), ":ruleset", _COPY.format(rule), ":name", f'{name[:-1]} noted"']


def _noted(action: Sexpr) -> Sexpr:
    match action:
        case ["union", left, right]:
            return ["set", [_UNITED, left, right], []]
        case _:
            return action


def _tensors(snapshot: Snapshot) -> dict[str, Tensor]:
    """Returns the tensors of a snapshot, from their names and the types of their classes."""
    found = {}
    for node, owner in zip(snapshot.nodes, snapshot.owner, strict=True):
        type_ = snapshot.types[owner]
        if node.operator == "access-tensor" and type_ is not None:
            found[node.attributes[0]] = Tensor(node.attributes[0], type_.dims, type_.dtype)
    return found


def _quoted(term: Term) -> str:
    text = " ".join(str(term).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} .."
