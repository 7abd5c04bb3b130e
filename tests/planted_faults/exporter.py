"""ONNX files that mean something else, or that are not valid."""

_FOLDER = "glenside/exporters/onnx/operators"
_ELEMENTS = f"{_FOLDER}/elementwise.py"
_MOVEMENT = f"{_FOLDER}/movement.py"
_WINDOWS = f"{_FOLDER}/windows.py"

FAULTS = (
    (
        _ELEMENTS,
        'attributes={"alpha": float(known)}',
        'attributes={"alpha": 2 * float(known)}',
        "a slope is twice as large",
    ),
    (
        _ELEMENTS,
        'return emit.where(emit.cast(condition, "bool"), then, otherwise)',
        'return emit.where(emit.cast(condition, "bool"), otherwise, then)',
        "the sides of a selection are exchanged",
    ),
    (
        _ELEMENTS,
        '    return emit.where(right, cut, emit.elementwise("Add", cut, y))',
        "    return cut",
        "remainders of floats are cut",
    ),
    (
        _ELEMENTS,
        'quotient = emit.where(negated, emit.run("Neg", [a], a.dims), quotient)',
        "quotient = emit.where(negated, a, quotient)",
        "a quotient by -1 keeps its sign",
    ),
    (
        _ELEMENTS,
        '(_differ if name in ("lt", "gt") else _equal)',
        '(_differ if name in ("lt", "le") else _equal)',
        "comparisons of unsigned numbers are exchanged",
    ),
    (
        _MOVEMENT,
        'fill = emit.number(0, a.access.dtype) if kind == "zero-padding" else emit.lowest(a.access.dtype)\n    return',
        "fill = emit.number(0, a.access.dtype)\n    return",
        "the lowest padding is zero",
    ),
    (
        _MOVEMENT,
        "together = emit.view(padded, x.dims.set(axis, x.dims[axis] * (n + 1)))\n    return emit.slice(together, axis, 0, max(0, x.dims[axis] * (n + 1) - n))",
        "together = emit.view(padded, x.dims.set(axis, x.dims[axis] * (n + 1)))\n    return emit.slice(together, axis, min(n, x.dims[axis]), min(n, x.dims[axis]) + max(0, x.dims[axis] * (n + 1) - n))",
        "dilated elements are moved",
    ),
    (
        _MOVEMENT,
        '{"reduction": reduction}, main=True)',
        '{"reduction": "add"}, main=True)',
        "every reduction of a scatter adds",
    ),
    (_MOVEMENT, '{"batch_dims": shared}', '{"batch_dims": 0}', "shared axes of a gather are forgotten"),
    (
        _MOVEMENT,
        "        numbers = emit.view(emit.counting(lead[axis]), Dims((1,) * len(lead)).set(axis, lead[axis]))",
        "        numbers = emit.view(emit.counting(lead[0]), Dims((1,) * len(lead)).set(0, lead[0]))",
        "numbers of shared axes are those of the first",
    ),
    (
        _MOVEMENT,
        'sizes, "int64", {"reduction": "max"})',
        'sizes, "int64", {"reduction": "min"})',
        "of several updates the first stays, or none",
    ),
    (
        _WINDOWS,
        '            self._stack(axis, [(i, i + last, stride) for i in range(window)], "at", "count", number)',
        '            self._stack(axis, [(i, i + last, 1) for i in range(window)], "at", "count", number)',
        "windows have a stride of 1",
    ),
    (
        _WINDOWS,
        "        elif window == stride:",
        "        elif window >= stride:",
        "overlapping windows do not overlap",
    ),
    (
        _WINDOWS,
        "shifted = [emit.pad(emit.slice(pieces, axis + 1, j, j + 1), axis, j, parts - 1 - j) for j in range(parts)]",
        "shifted = [emit.pad(emit.slice(pieces, axis + 1, j, j + 1), axis, parts - 1 - j, j) for j in range(parts)]",
        "pieces of windows fall on others",
    ),
)
