"""The relations and functions that rules match and set beside e-nodes, with named, typed columns, declared once.

    want_slices = relation("want-slices", access=ACCESS, axis=INT, size=INT)
    cheapest = function("cheapest", INT, "min", product=ACCESS)

A call of a relation is a fact, a call of a function a pattern. A rule brings the declarations that it uses; those at
the end of this file are in every e-graph.
"""

from __future__ import annotations

from collections.abc import Iterable

from glenside.egraph.pattern import Function, Named, Pattern, Relation
from glenside.egraph.sexpr import row_said
from glenside.egraph.sorts import ACCESS, INT, INTS, TEXT, Sort, columns

_MERGES = {
    "": ":no-merge",
    "old": ":merge old",  # for values that are always equal
    "min": ":merge (min old new)",
    "max": ":merge (max old new)",
    "|": ":merge (| old new)",
}
_declared: dict[str, str] = {}


def _declare(name: str, line: str) -> None:
    """Registers a declaration. Raises ValueError if the name is declared otherwise."""
    if _declared.setdefault(name, line) != line:
        raise ValueError(f"{name} is declared twice: {_declared[name]} and {line}")


def relation_text(name: str, sorts: Iterable[str]) -> str:
    """Returns the command that declares a relation, as a function to Unit.

    egglog's own relations are stored as e-nodes: before each join it checks which are subsumed, and indexes the rest.
    """
    return f"(function {name} ({' '.join(sorts)}) Unit :merge old)"


def relation(name: str, *, rows: Iterable[int | str] = (), **sorts: Sort) -> Relation:
    """Declares a relation; `rows`: values of its single column that always hold."""
    line = relation_text(name, [sort.value for sort in sorts.values()])
    _declare(name, line)
    always = [row_said(f"({name} {row})" if isinstance(row, int) else f'({name} "{row}")') for row in rows]
    return Relation(name, columns(**sorts), True, "\n".join([line, *always]))


def function(name: str, result: Sort, merge: str = "", **sorts: Sort) -> Function:
    """Declares a function. `merge` is old, min, max or | (bitwise or); without it, two values are an error."""
    line = f"(function {name} ({' '.join(sort.value for sort in sorts.values())}) {result.value} {_MERGES[merge]})"
    _declare(name, line)
    return Function(name, columns(**sorts), True, line, result)


def inverse(name: str, **sorts: Sort) -> Function:
    """Declares a function to a class, for arguments that determine the class uniquely.

    If two rules add `union(a, name(..))` with equal arguments, congruence merges their classes: no join of all pairs is
    needed.
    """
    line = f"(constructor {name} ({' '.join(sort.value for sort in sorts.values())}) Access)"
    _declare(name, line)
    return Function(name, columns(**sorts), True, line, ACCESS)


def parameter(name: str) -> Pattern:
    """Returns the pattern of a number that the target defines."""
    return Named(name, INT)


class Formula(Function):
    """A function of sizes that the target defines: a call is expanded to its arithmetic."""


def formula(name: str, arguments: str) -> Formula:
    """Declares a formula; `arguments`: names of its arguments, which are sizes."""
    return Formula(name, columns(**dict.fromkeys(arguments.split(), INT)), False)


# The program's own nodes, and whether they depend on inputs.
source = relation("source", access=ACCESS)
constant = relation("constant", access=ACCESS)
varies = relation("varies", access=ACCESS)
given = relation("given", access=ACCESS, operator=TEXT, dims=INTS, split=INT, dtype=TEXT)  # a program node, its type

# Types of e-classes. Without a merge: a union of two classes of different type stops the run.
dims = function("dims", INTS, access=ACCESS)
split = function("split", INT, access=ACCESS)
dtype = function("dtype", TEXT, access=ACCESS)
widened = function("widened", TEXT, dtype=TEXT)  # the dtype in which sums accumulate

# Compute types.
category = relation("category", kind=TEXT, category=TEXT)
compute_dtype = relation("compute-dtype", kind=TEXT, dtype=TEXT)
keeps_zero = relation("keeps-zero", kind=TEXT)

typed = relation("typed", access=ACCESS, dims=INTS, split=INT, dtype=TEXT)  # all three in one row, for one join

BUILT_IN = (source, constant, varies, given, dims, split, dtype, typed, widened, category, compute_dtype, keeps_zero)


def access_at(name: str) -> Pattern:
    """Returns the pattern of a node of an example: `root`, a tensor `x`, or `x2` for the access of x with split 2."""
    return Named(name, ACCESS)
