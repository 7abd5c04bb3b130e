"""What rules find and say beside e-nodes: relations and functions with named, typed columns, declared once.

    want_slices = relation("want-slices", access=ACCESS, axis=INT, size=INT)
    cheapest = function("cheapest", INT, "min", product=ACCESS)

Called, a relation gives a fact and a function a pattern. A rule brings the declarations of what it uses with it; what
stands at the end of this file is in every e-graph.
"""

from __future__ import annotations

from collections.abc import Iterable

from glenside.egraph.pattern import Function, Named, Pattern, Relation
from glenside.egraph.sexpr import row_said
from glenside.egraph.sorts import ACCESS, INT, INTS, TEXT, Sort, columns

_MERGES = {
    "": ":no-merge",
    "old": ":merge old",  # one is enough: all of them are equal
    "min": ":merge (min old new)",
    "max": ":merge (max old new)",
    "|": ":merge (| old new)",
}
_declared: dict[str, str] = {}


def _declare(name: str, line: str) -> None:
    """Raises ValueError when something else has this name."""
    if _declared.setdefault(name, line) != line:
        raise ValueError(f"{name} is declared twice: {_declared[name]} and {line}")


def relation_text(name: str, sorts: Iterable[str]) -> str:
    """The command that declares a relation. It is a function, since egglog keeps e-nodes under its own name of them:
    which of those are subsumed it asks before each join, and then builds an index of the rest.
    """
    return f"(function {name} ({' '.join(sorts)}) Unit :merge old)"


def relation(name: str, *, rows: Iterable[int | str] = (), **sorts: Sort) -> Relation:
    """Declare a relation; `rows` are facts of it that always hold, of its one column."""
    line = relation_text(name, [sort.value for sort in sorts.values()])
    _declare(name, line)
    always = [row_said(f"({name} {row})" if isinstance(row, int) else f'({name} "{row}")') for row in rows]
    return Relation(name, columns(**sorts), True, "\n".join([line, *always]))


def function(name: str, result: Sort, merge: str = "", **sorts: Sort) -> Function:
    """Declare a function. `merge` is old, min, max or | (the bits of both); without it, two values are an error."""
    line = f"(function {name} ({' '.join(sort.value for sort in sorts.values())}) {result.value} {_MERGES[merge]})"
    _declare(name, line)
    return Function(name, columns(**sorts), True, line, result)


def inverse(name: str, **sorts: Sort) -> Function:
    """Declare a function to a class that a rule names by what it is the only answer to.

    Where two rules say `union(a, name(..))` of equal arguments, their classes become one, without a join of all with
    all: congruence does it.
    """
    line = f"(constructor {name} ({' '.join(sort.value for sort in sorts.values())}) Access)"
    _declare(name, line)
    return Function(name, columns(**sorts), True, line, ACCESS)


def parameter(name: str) -> Pattern:
    """A number that a target gives to its rules."""
    return Named(name, INT)


class Formula(Function):
    """A function of sizes that a target gives to its rules: a call is written out as its arithmetic."""


def formula(name: str, arguments: str) -> Formula:
    """Declare a formula by its arguments, sizes all."""
    return Formula(name, columns(**dict.fromkeys(arguments.split(), INT)), False)


# Where the program's own nodes are, and which depend on what is only known when it runs.
source = relation("source", access=ACCESS)
constant = relation("constant", access=ACCESS)
varies = relation("varies", access=ACCESS)
given = relation("given", access=ACCESS, operator=TEXT, dims=INTS, split=INT, dtype=TEXT)  # a program's node, its type

# Types of e-classes. No merge: to unite two classes of different type stops the run.
dims = function("dims", INTS, access=ACCESS)
split = function("split", INT, access=ACCESS)
dtype = function("dtype", TEXT, access=ACCESS)
widened = function("widened", TEXT, dtype=TEXT)  # the dtype in which sums accumulate

# Compute types.
category = relation("category", kind=TEXT, category=TEXT)
compute_dtype = relation("compute-dtype", kind=TEXT, dtype=TEXT)
keeps_zero = relation("keeps-zero", kind=TEXT)

typed = relation("typed", access=ACCESS, dims=INTS, split=INT, dtype=TEXT)  # all three, where that is one join

BUILT_IN = (source, constant, varies, given, dims, split, dtype, typed, widened, category, compute_dtype, keeps_zero)


def access_at(name: str) -> Pattern:
    """A node of an example's program: `root`, a tensor `x`, or `x2` for the access of x with split 2."""
    return Named(name, ACCESS)
