"""Declares an operator from outside the package: one record, in one file, by public names."""

import numpy as np

import glenside as gl


def _check(a, axis, n):
    gl.require(0 <= axis < a.rank, "access-roll", f"0 <= axis < {a.rank}", axis)
    gl.require(0 <= n <= a.dims[axis], "access-roll", f"0 <= n <= {a.dims[axis]}", n)


def _index_map(a, axis, n):
    size = a.dims[axis]
    return gl.index_map.mapped(a.dims, gl.index_map.along(a.dims, axis, lambda i: (i + (size - n)) % size))


access_roll = gl.operator(
    "access-roll",
    "movement",
    fields={"a": "term", "axis": "int", "n": "int"},
    check=_check,
    result=lambda a, axis, n: a,
    index_map=_index_map,
    evaluate=lambda _, a, axis, n: np.roll(a, n, axis),
    adjoint=lambda terms, g, a, axis, n: (access_roll(g, axis, a.access.dims[axis] - n),),
    doc="Rotates the elements of one axis by n.",
    examples=gl.Example("(access-roll (access (access-tensor x) 1) 1 2)", {"x": "m 5 n"}),
)
