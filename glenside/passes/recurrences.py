"""Finds steps of recurrences that are written one after the other, and makes them loops (the operator scan).

A step is found by comparing a term with an earlier term of the same form: both are walked down together, until the
later one reads what the earlier one computes. These terms are the state. All steps must then be the same term of the
state before, of the same terms outside, and of consecutive elements of tensors: equal terms are one object, so that
this comparison proves that the loop computes the same.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from glenside.builder.layout import concatenate, reshape, slice_axis, split_at
from glenside.ir.operators.scan import body_text
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder, rebuild_all, shared
from glenside.ir.types import TupleType
from glenside.passes.loop_operands import Operands
from glenside.passes.loop_states import joined, stacks
from glenside.passes.recurrence_steps import Step, is_alike, step_of

MIN_STEPS = 8
"""Fewer steps stay as they are."""
_MIN_STEPS_WITHOUT_PRODUCT = 32
"""The same for steps without a product, whose nests loops may fuse."""
_MAX_OUTPUTS = 4
"""Maximum terms of a step that are read outside and are no states."""
_FORM_LEVELS = 8
"""Levels below a term that terms of one form have in common."""
_MAX_TRIED = 3
"""Maximum earlier terms of one form that are compared with a term."""
_MAX_SEARCHED = 300
"""Maximum terms that are searched for an earlier one of the same form."""


def with_loops(program: Program) -> Program:
    """Returns a program whose recurrences of at least `MIN_STEPS` steps are loops; gradients are left as they are."""
    if program.gradient_of is not None:
        return program
    count = len(program.info.order)
    while (found := _found(program.term)) is not None:
        changed = _with_terms(program, found)
        before, count = count, len(changed.info.order)
        if count >= before:  # a part of it is computed outside of the loop, too
            break
        program = changed
    return program


def _with_terms(program: Program, made: Mapping[Term, Term]) -> Program:
    """Returns a program with terms replaced."""
    done = dict(made)
    (term,) = rebuild_all([program.term], lambda *_: None, done)
    kept = set(postorder(term))
    layers, names = (
        {name: done[node] for name, node in known.items() if done.get(node) in kept}
        for known in (program.layers, program.names)
    )
    return replace(program, term=term, layers=layers, names=names)


def _found(root: Term) -> dict[Term, Term] | None:
    """Returns the replacements of the terms of the last recurrence; None if there is none."""
    order = list(postorder(root))
    number = {term: i for i, term in enumerate(order)}
    form, failed = _forms(order), set[Hashable]()
    count = Counter(form.values())
    steps: list[Step] = []
    for term in reversed(order):
        if term.operator.name != "compute" or form[term] in failed or count[form[term]] < MIN_STEPS:
            continue
        failed.add(form[term])
        steps += filter(None, (step_of(term, earlier, number) for earlier in _earlier(term, form, number)))
    for step in sorted(steps, key=lambda step: step.size):  # a step may be cut at several places
        made = _Recurrence(number, step).replacements()
        if made is not None:
            return made
    return None


def _forms(order: Sequence[Term]) -> dict[Term, Hashable]:
    """Returns a hash of each term and those near below it, which are equal if they differ in slices alone."""
    own = {t: hash((t.operator, t.type, () if t.operator.name == "access-slice" else t.attributes)) for t in order}
    form = own
    for _ in range(_FORM_LEVELS):
        form = {t: hash((own[t], *[form[child] for child in t.children])) for t in order}
    return dict(form)


def _earlier(term: Term, form: Mapping[Term, Hashable], number: Mapping[Term, int]) -> Iterator[Term]:
    """Yields terms below a term that have its form, the latest first."""
    waiting, seen = [(-number[c], c) for c in term.children], set(term.children)
    heapq.heapify(waiting)
    found = 0
    while waiting and len(seen) < _MAX_SEARCHED and found < _MAX_TRIED:
        _, below = heapq.heappop(waiting)
        if form[below] == form[term]:
            found += 1
            yield below
        for child in below.children:
            if child not in seen:
                seen.add(child)
                heapq.heappush(waiting, (-number[child], child))


class _Recurrence:
    """A recurrence, followed back from its last step.

    instances  of each step, the last one first: the terms of the last step -> its own
    carried    the terms of the last step that the loop keeps: the next states, then others that are read outside
    """

    def __init__(self, order: dict[Term, int], step: Step) -> None:
        """Follows a step through the terms of a program, operands first."""
        self.order, self.step, self.ahead = order, step, 0
        own = {term: term for term in (*step.terms, *step.states)}
        self.instances = [own]
        while (earlier := self._earlier(self.instances[-1])) is not None:
            self.instances.append(earlier)
        while (later := self._later(self.instances[0])) is not None:
            if not any(later[term] in order for term in step.terms):
                break
            self.instances.insert(0, later)
            self.ahead += 1
        self._absorb()
        self.read = {term: read for read, term in step.states.items()}
        self.last = {own[term]: term for own in self.instances for term in step.terms}
        outside = [next(reversed(order)), *(c for t in order if t not in self.last for c in t.children)]
        of_state = {*step.states}
        for term in self.step.terms:
            of_state |= {term} if any(child in of_state for child in term.children) else set()
        others = [self.last[t] for t in outside if self.last.get(t) in of_state]  # the rest is computed outside, too
        self.carried = list(dict.fromkeys([*self.read, *others]))

    def _earlier(self, own: Mapping[Term, Term]) -> dict[Term, Term] | None:
        """Returns the terms of the step before one; None if that is another step."""
        step, back = self.step, len(self.instances)
        made: dict[Term, Term] = {}
        stack = [(term, own[read]) for read, term in step.states.items()]
        while stack:
            term, other = stack.pop()
            known = made.get(term, term if term in step.fixed else None)
            if known is not None:
                if known is not other:
                    return None
                continue
            made[term] = other
            if term in step.elements:
                if other is not step.elements[term].back(back):
                    return None
            elif term not in step.states:
                if not is_alike(term, other):
                    return None
                stack += zip(term.children, other.children, strict=True)
        if not step.states.keys() <= made.keys():
            return None
        return self._completed(made, back)

    def _later(self, own: Mapping[Term, Term]) -> dict[Term, Term] | None:
        """Returns the terms of the step after one; None if a tensor has no more elements."""
        return self._completed({read: own[term] for read, term in self.step.states.items()}, -1 - self.ahead)

    def _completed(self, made: dict[Term, Term], back: int) -> dict[Term, Term] | None:
        """Adds the other terms of a step, the one `back` steps before the first that was found."""
        for element in self.step.elements.values():
            if element.back(back) is None:
                return None
        for term in self.step.terms:
            if term not in made:
                made[term] = self._instance(term, made, back)
        return made

    def _instance(self, term: Term, made: Mapping[Term, Term], back: int) -> Term:
        """Returns a term of the last step in the step `back` steps before it."""
        children = [
            element.back(back) if (element := self.step.elements.get(c)) else made.get(c, c) for c in term.children
        ]
        return shared(term.operator, tuple(c for c in children if c is not None), term.attributes)

    def _absorb(self) -> None:
        """Adds terms of which each step has one, and which no later step reads, such as outputs with a mask."""
        step, order = self.step, self.order
        users: dict[Term, list[Term]] = {}
        depends = {own[term] for own in self.instances for term in step.terms}
        for term in order:
            for child in term.children:
                users.setdefault(child, []).append(term)
            if any(child in depends for child in term.children):
                depends.add(term)
        waiting, new, fixed = [*step.terms], list[Term](), dict.fromkeys(step.fixed)
        while waiting:
            for user in users.get(waiting.pop(), ()):
                inner = {*step.terms, *step.states, *step.elements}
                outside = [c for c in user.children if c not in inner]
                if user in inner or any(c in depends for c in outside):
                    continue
                made = [self._instance(user, own, back - self.ahead) for back, own in enumerate(self.instances)]
                if all(one in order for one in made) and len(set(made)) == len(made):
                    step.terms.append(user)
                    fixed |= dict.fromkeys(outside)
                    for own, one in zip(self.instances, made, strict=True):
                        own[user] = one
                    waiting.append(user)
                    new.append(user)
        self.step = replace(step, fixed=[*fixed])
        self._drop_views(new)

    def _drop_views(self, added: Sequence[Term]) -> None:
        """Leaves out reshapes that no other term of the step reads: these are not worth a part of the state."""
        used = set[Term]()
        for term in reversed(added):
            if term.operator.name in ("access-reshape", "access") and term not in used:
                self.step.terms.remove(term)
                for own in self.instances:
                    del own[term]
            else:
                used |= {*term.children}

    def replacements(self) -> dict[Term, Term] | None:
        """Returns what each term that is read outside becomes; None if a loop would not do."""
        if not self._fits():
            return None
        dtype, first = self.carried[0].access.dtype, self.instances[-1]
        operands = Operands(self.step, len(self.instances) - 1 - self.ahead)
        offsets = [0, *accumulate(term.access.size for term in self.carried)]
        body = operands.body(self.carried, self.read, offsets)
        if body is None:
            return None
        parts = [
            reshape(first[self.read[t]], (t.access.size,))
            if t in self.read
            else build("full", (t.access.size,), 0, dtype)
            for t in self.carried
        ]
        initial, count = concatenate(parts, 0), len(self.instances)
        loop = build("scan", initial, count, operands.starts, body_text(body), *operands.operands)
        return self._read_outside(loop, offsets)

    def _fits(self) -> bool:
        """True if a loop can compute the steps, and pays."""
        terms, step = self.step.terms, self.step
        least = MIN_STEPS if any(map(is_product, terms)) else _MIN_STEPS_WITHOUT_PRODUCT
        if len(self.instances) < least or len(self.carried) > len(self.read) + _MAX_OUTPUTS:
            return False
        if any(isinstance(t.type, TupleType) or t.operator.opaque or "argsort" in t.attributes for t in terms):
            return False
        if len({term.access.dtype for term in self.carried}) > 1:
            return False
        if len(self.read) < len(step.states) or any(read.type != term.type for term, read in self.read.items()):
            return False
        given = [*step.fixed, *(element.tensor for element in step.elements.values())]
        return self.last.keys().isdisjoint(postorder(*given, *(self.instances[-1][read] for read in step.states)))

    def _read_outside(self, loop: Term, offsets: Sequence[int]) -> dict[Term, Term]:
        """Returns each kept term of the steps as a part of the loop's states; outermost concatenations as one part."""
        count, rows = len(self.instances), dict[Term, tuple[int, int]]()
        for number, term in enumerate(self.carried):
            for back, own in enumerate(self.instances):
                rows[own[term]] = count - back, number
            if term in self.read:
                rows.setdefault(self.instances[-1][self.read[term]], (0, number))

        def part(row: int, end: int, number: int) -> Term:
            return slice_axis(slice_axis(loop, 0, row, end), 1, offsets[number], offsets[number + 1])

        made = dict[Term, Term]()
        for term, (row, number) in rows.items():
            if row:
                whole = reshape(part(row, row + 1, number), term.access.dims)
                made[term] = split_at(whole, term.access.split)
        return made | {term: joined(leaves, axis, rows, part, made) for term, axis, leaves in stacks(self.order, rows)}
