"""Declares rules from outside the package: their own family, in one file, by public names."""

from access_roll import access_roll

import glenside as gl

FAMILY = "rolls"


@gl.rule(FAMILY, gl.Example("(access-roll (access-roll (access-tensor x) 1 2) 1 4)", {"x": "m 5"}))
def rolls_add_up(a, axis, n, m, d):
    """roll(roll(a, axis, n), axis, m) = roll(a, axis, (n + m) mod size).

    Sound because the second roll moves each element by m more along the same axis, which has `size` elements.
    """
    rolled = access_roll(access_roll(a, axis, n), axis, m)
    return gl.rewrite(rolled, access_roll(a, axis, (n + m) % d[axis]), d == gl.facts.dims(a))


@gl.rule(FAMILY, gl.Example("(access-roll (access-tensor x) 0 0)", {"x": "m n"}))
def roll_by_nothing_is_nothing(a, axis):
    """roll(a, axis, 0) = a.

    Sound because no element moves.
    """
    return gl.rewrite(access_roll(a, axis, 0), a)
