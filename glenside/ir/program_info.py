"""Facts about the terms of a program that many passes read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from glenside.ir.term import Term, constants_under, postorder


class ProgramInfo:
    """Facts about the terms of a program; each is computed once, when it is first read.

    roots     the result of the program, then its layers
    order     all terms under the result, operands first
    constant  term -> True if it depends on constants alone; also for terms under the layers
    users     term under the result -> the terms that read it, in order, once per operand
    """

    def __init__(self, roots: Sequence[Term]) -> None:
        self.roots = roots

    @cached_property
    def order(self) -> tuple[Term, ...]:
        return tuple(postorder(self.roots[0]))

    @cached_property
    def constant(self) -> Mapping[Term, bool]:
        return constants_under(*self.roots)

    @cached_property
    def users(self) -> Mapping[Term, list[Term]]:
        users: dict[Term, list[Term]] = {term: [] for term in self.order}
        for term in self.order:
            for child in term.children:
                users[child].append(term)
        return users
