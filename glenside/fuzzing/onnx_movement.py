"""Draws ONNX nodes that move elements: slices, pads, gathers, scatters and the like."""

from __future__ import annotations

from typing import Any

from glenside.fuzzing.onnx_nodes import Draft, Recipe, Value


def transpose(d: Draft, x: Value) -> list[str]:
    """Permutes axes, or reverses them."""
    rank = len(x[2])
    how: dict[str, Any] = {"perm": d.pick.sample(range(rank), rank)} if d.pick.random() < 0.8 else {}
    return d.node("Transpose", [x[0]], **how)


def reshape(d: Draft, x: Value) -> list[str]:
    """Reshapes, with -1 or 0 among the dims."""
    dims = list(x[2])
    way = d.pick.randrange(4)
    if way == 0:
        dims = [-1]
    elif way == 1 and dims:
        dims[d.pick.randrange(len(dims))] = -1 if 0 not in dims else 0
    elif way == 2 and len(dims) > 1:
        dims = [dims[0] * dims[1], *dims[2:]]
    else:
        dims = [0 if n and d.pick.random() < 0.3 else n for n in dims]
    return d.node("Reshape", [x[0], d.numbers(dims)])


def squeeze(d: Draft, x: Value) -> list[str]:
    """Inserts an axis of size 1, perhaps removed again."""
    rank = len(x[2])
    axes = sorted(d.pick.sample(range(rank + 1), 1))
    if d.model.opset >= 13:
        wide = d.node("Unsqueeze", [x[0], d.numbers(axes)])
        return d.node("Squeeze", [*wide, d.numbers(axes)]) if d.pick.random() < 0.4 else wide
    wide = d.node("Unsqueeze", [x[0]], axes=axes)
    return d.node("Squeeze", wide, axes=axes) if d.pick.random() < 0.4 else wide


def cut(d: Draft, x: Value) -> list[str]:
    """Slices with steps and ends of any sign."""
    pick, rank = d.pick, len(x[2])
    axes = sorted(pick.sample(range(rank), pick.randint(1, rank)))
    starts = [pick.randint(-x[2][a] - 1, x[2][a] - 1) for a in axes]
    ends = [pick.randint(-1, x[2][a] + 2) if pick.random() < 0.5 else 1 << 31 for a in axes]
    if d.model.opset < 10:
        return d.node("Slice", [x[0]], starts=[max(0, s) for s in starts], ends=ends, axes=axes)
    steps = [pick.choice((1, 1, 2, 3, -1, -2)) for _ in axes]
    ends = [-(1 << 31) if step < 0 and pick.random() < 0.5 else end for step, end in zip(steps, ends, strict=True)]
    axes = [a - rank if pick.random() < 0.3 else a for a in axes]
    return d.node("Slice", [x[0], *(d.numbers(values) for values in (starts, ends, axes, steps))])


def concat(d: Draft, x: Value) -> list[str]:
    """Concatenates with weights, and with itself."""
    axis = d.pick.randrange(len(x[2]))
    dims = [d.pick.randint(1, 3) if i == axis else n for i, n in enumerate(x[2])]
    return d.node("Concat", [x[0], d.weight(dims, x[1]), x[0]][: d.pick.randint(1, 3)], axis=axis)


def split(d: Draft, x: Value) -> list[str]:
    """Splits into two parts."""
    axis = d.pick.randrange(len(x[2]))
    size = x[2][axis]
    first = d.pick.randint(0, size)
    parts = [first, size - first]
    if d.model.opset >= 13:
        return d.node("Split", [x[0], d.numbers(parts)], 2, axis=axis)
    return d.node("Split", [x[0]], 2, axis=axis, split=parts)


def pad(d: Draft, x: Value) -> list[str]:
    """Pads in each mode, by negative numbers too."""
    pick = d.pick
    mode = pick.choice(("constant", "reflect", "edge"))
    pads = [pick.randint(0, max(0, min(2, n - 1))) for n in x[2] * 2]
    if mode == "constant" and pick.random() < 0.3:
        pads = [pick.randint(-1, 2) if n > 3 else p for p, n in zip(pads, x[2] * 2, strict=True)]
    if d.model.opset < 11:
        return d.node("Pad", [x[0]], pads=pads, mode=mode)
    ins = [x[0], d.numbers(pads)]
    if mode == "constant" and pick.random() < 0.5:
        ins.append(d.numbers([pick.choice((0, 1, 2))], x[1], ()))
    return d.node("Pad", ins, mode=mode)


def tile(d: Draft, x: Value) -> list[str]:
    """Repeats."""
    return d.node("Tile", [x[0], d.numbers([d.pick.randint(1, 2) for _ in x[2]])])


def expand(d: Draft, x: Value) -> list[str]:
    """Broadcasts."""
    dims = [d.pick.randint(1, 3) if n == 1 else d.pick.choice((1, n)) for n in x[2]]
    return d.node("Expand", [x[0], d.numbers([*([2] if d.pick.random() < 0.3 else []), *dims])])


def gather(d: Draft, x: Value) -> list[str]:
    """Gathers elements at indices, from the end too."""
    axis = d.pick.randrange(len(x[2]))
    dims = d.pick.choice(((), (), (2,), (3,), (2, 2)))
    indices = d.indices(x[2][axis], dims, d.model.opset >= 11)
    return d.node("Gather", [x[0], indices], axis=axis - len(x[2]) if d.pick.random() < 0.2 else axis)


def gather_elements(d: Draft, x: Value) -> list[str]:
    """Gathers elements at an index each."""
    axis = d.pick.randrange(len(x[2]))
    dims = [d.pick.randint(1, 3) if i == axis else d.pick.randint(1, n) for i, n in enumerate(x[2])]
    return d.node("GatherElements", [x[0], d.indices(x[2][axis], dims)], axis=axis)


def scatter_elements(d: Draft, x: Value) -> list[str]:
    """Scatters updates to distinct indices."""
    axis = d.pick.randrange(len(x[2]))
    size = x[2][axis]
    dims = [d.pick.randint(1, n) for n in x[2]]
    dims[axis] = 1  # distinct indices
    indices = d.indices(size, dims, d.model.opset >= 11)
    how: dict[str, Any] = {"axis": axis}
    if d.model.opset >= 16 and d.pick.random() < 0.6:
        how["reduction"] = d.pick.choice(("add", "mul", *(("min", "max") if d.model.opset >= 18 else ())))
    op = "ScatterElements" if d.model.opset >= 11 else "Scatter"
    return d.node(op, [x[0], indices, d.weight(dims, x[1])], **how)


def nd(op: str) -> Recipe:
    """Gathers elements from, or scatters updates to, index tuples."""

    def draw(d: Draft, x: Value) -> list[str]:
        rank, pick = len(x[2]), d.pick
        count, rows = pick.randint(1, rank), pick.randint(1, min(x[2]) if op == "ScatterND" else 3)
        places = [[pick.randrange(x[2][axis]) for axis in range(count)] for _ in range(rows)]
        if op == "ScatterND":  # distinct indices
            places = [[row, *place[1:]] for row, place in enumerate(places)]
        indices = d.numbers([n for place in places for n in place], "int64", (rows, count))
        if op == "GatherND":
            return d.node(op, [x[0], indices])
        how: dict[str, Any] = {}
        if d.model.opset >= 16 and pick.random() < 0.6:
            how["reduction"] = pick.choice(("add", "mul", *(("min", "max") if d.model.opset >= 18 else ())))
        return d.node(op, [x[0], indices, d.weight((rows, *x[2][count:]), x[1])], **how)

    return draw
