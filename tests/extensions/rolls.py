"""Rules from outside the package: a family of their own, in one file."""

from __future__ import annotations

from access_roll import access_roll

from glenside.rewrites.declare import Clauses, Example, V, rewrite, rule
from glenside.rewrites.facts import dims

FAMILY = "rolls"


@rule(FAMILY, Example("(access-roll (access-roll (access-tensor x) 1 2) 1 4)", {"x": "m 5"}))
def rolls_add_up(a: V, axis: V, n: V, m: V, d: V) -> Clauses:
    """roll(roll(a, axis, n), axis, m) = roll(a, axis, (n + m) mod size).

    Sound because the second moves each element further by m places of the same axis, which has `size` of them.
    """
    rolled = access_roll(access_roll(a, axis, n), axis, m)
    return rewrite(rolled, access_roll(a, axis, (n + m) % d[axis]), d == dims(a))


@rule(FAMILY, Example("(access-roll (access-tensor x) 0 0)", {"x": "m n"}))
def roll_by_nothing_is_nothing(a: V, axis: V) -> Clauses:
    """roll(a, axis, 0) = a.

    Sound because no element moves.
    """
    return rewrite(access_roll(a, axis, 0), a)
