"""Terms, clauses and examples that the equations share.

The left side of an equation, applied to terms instead of variables, is its example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glenside.egraph.clause import flat
from glenside.egraph.pattern import Call, Fact, Variable
from glenside.egraph.sorts import ACCESS
from glenside.ir.term import Term, build
from glenside.ir.text import print_term
from glenside.ir.types import Dims, Tensor
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clause, Example, Facts, V, union, when
from glenside.rewrites.facts import dtype, widened
from glenside.rewrites.terms import variables, vec_range

FAMILY = "product-algebra"


def operand(name: str, sizes: str, at: int, dtype: str = "float32") -> Term:
    """Returns a tensor of these sizes, split after `at` axes."""
    tensor = Tensor(name, Dims(map(int, sizes.split())), dtype)
    return build("access", build("access-tensor", tensor), at)


A, B, C, D = operand("a", "2 3 4", 2), operand("b", "2 5 4", 2), operand("c", "2 6 5", 2), operand("d", "2 5 6", 2)
"""Operands (G M)(K), (G N)(K), (G O)(N) and (G N)(O)."""


def example(term: Term) -> Example:
    """Returns the example that is this program."""
    tensors = {t.name: t for leaf in _leaves(term) for t in leaf.attributes if isinstance(t, Tensor)}
    return Example(print_term(term), {name: " ".join(map(str, t.dims)) for name, t in tensors.items()})


def _leaves(term: Term) -> list[Term]:
    return [leaf for child in term.children for leaf in _leaves(child)] if term.children else [term]


def pairwise(compute: Callable[..., Any], a: Any, b: Any, n: Any) -> Any:
    """Returns the compute type of elements of a and b, of which the first n axes are the same."""
    return compute(op.product(a, b, n))


def plus(a: Any, b: Any, n: Any) -> Any:
    """Returns the sum of two arrays of n shape axes, all shared."""
    return pairwise(op.elementwise_add, a, b, n)


def times(a: Any, b: Any, n: Any) -> Any:
    """Returns the elementwise product."""
    return pairwise(op.elementwise_mul, a, b, n)


def over(a: Any, b: Any, n: Any) -> Any:
    """Returns the elementwise quotient."""
    return pairwise(op.elementwise_div, a, b, n)


def block(first: Any, end: Any) -> Any:
    """Returns the axes from `first` to before `end`."""
    return vec_range(end).drop(first)


_TABLES = {"take", "drop", "shift", "permute", "product", "vec-range"}


def stated(left: Any, right: Any, *guards: Facts) -> Clause:
    """Returns the clause left = right. Facts of their own bind the results of vector functions, as e-graphs need."""
    facts: list[Fact] = []
    known: dict[str, Variable] = {}

    def named(part: Any, inside: bool = True) -> Any:
        if isinstance(part, Fact):
            binds = part.head.name == "=" and any(isinstance(a, Variable) for a in part.arguments)
            return Fact(part.head, tuple(named(a, not binds) for a in part.arguments))
        if not isinstance(part, Call) or (part.sort is ACCESS and not inside):
            return part
        call = Call(part.head, tuple(map(named, part.arguments)), part.sort or ACCESS)
        if not inside or part.head.name not in _TABLES:
            return call
        if call.egglog() not in known:
            found = known[call.egglog()] = Variable(f"v{len(known)}", part.sort)
            facts.append(found == call)
        return known[call.egglog()]

    for guard in flat(guards):
        fact = named(guard)  # binds what the fact reads
        facts.append(fact)
    result = named(right)
    return when(ROOT == left, *facts).then(union(ROOT, result))


def unwidened(a: V) -> Facts:
    """Matches an a whose products have its own dtype: sums in a narrower one would wrap."""
    dt, wide = variables("dt wide")
    return dt == dtype(a), wide == widened(dt), wide == dt


def is_real(a: V) -> Facts:
    """Matches an a of reals, which have reciprocals."""
    dt = next(variables("dt"))
    return dt == dtype(a), dt == "float32"
