"""Places boxes and edges of a graph in layers from the top (Sugiyama, Tagawa and Toda 1981).

Edges that would run upwards are reversed, and a box is below all boxes that point to it. An edge that crosses layers
has a position in each, so that it crosses no box. Layers are ordered for few crossings, then positions are chosen to
straighten edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_APART, _PASS, _BETWEEN = 26.0, 16.0, 46.0  # distances in pixels: between boxes, beside an edge, between layers
_TIP = 9.0  # straight end of an edge
_SWEEPS = 12
_STIFF = 6.0  # weight of straightness for edges that cross a layer, relative to others

Vertex = tuple[int, int, int]
"""(box, -1, 0), or the position of the edge (from, to, layer) in a layer that it crosses."""


@dataclass(frozen=True)
class Placed:
    """Left and top of each box, an SVG path for each edge, and the size of the drawing."""

    boxes: Mapping[int, tuple[float, float]]
    paths: Sequence[str]
    width: float
    height: float


@dataclass
class _Layers:
    """Vertices in layers; `below` has the segments to the next layer, after reversed edges were turned."""

    of: list[list[Vertex]]
    half: dict[Vertex, float]
    below: dict[Vertex, list[Vertex]] = field(default_factory=dict)
    above: dict[Vertex, list[Vertex]] = field(default_factory=dict)

    def join(self, upper: Vertex, lower: Vertex) -> None:
        self.below.setdefault(upper, []).append(lower)
        self.above.setdefault(lower, []).append(upper)


def placed(sizes: Mapping[int, tuple[float, float]], edges: Sequence[tuple[int, int, float]]) -> Placed:
    """Returns the layout of boxes of given widths and heights, and of edges (from, to, start on the box's lower side, 0
    to 1).

    In a cycle the last edge runs upwards; an edge from a box to itself has no path.
    """
    pairs = list(dict.fromkeys((a, b) for a, b, _ in edges if a != b))
    backward = _backward(pairs)
    down = [(b, a) if (a, b) in backward else (a, b) for a, b in pairs]
    rank = _ranks(list(sizes), down)
    layers = _layered(sizes, dict.fromkeys(down), rank)
    _order(layers)
    center = _straightened(layers)
    left = min((center[v] - layers.half[v] for v in center), default=0.0)
    center = {v: x - left for v, x in center.items()}
    height = [max((sizes[v[0]][1] for v in some if v[1] < 0), default=0.0) for some in layers.of]
    top = [sum(height[:i]) + i * _BETWEEN for i in range(len(height))]
    boxes = {v[0]: (center[v] - layers.half[v], top[rank[v[0]]]) for v in center if v[1] < 0}

    def path(a: int, b: int, part: float) -> str:
        if a == b:
            return ""
        back = (a, b) in backward
        x = boxes[a][0] + sizes[a][0] * part
        begin, end = (rank[a], rank[b])
        passed = range(begin - 1, end, -1) if back else range(begin + 1, end)
        key = (b, a) if back else (a, b)
        start = boxes[a][1] if back else boxes[a][1] + sizes[a][1]
        near = [top[i] + height[i] if back else top[i] for i in range(len(top))]
        far = [top[i] if back else top[i] + height[i] for i in range(len(top))]
        said, at = [f"M{x:.1f} {start:.1f}V{far[begin]:.1f}"], (x, far[begin])
        for i in passed:
            x = center[*key, i]
            said.append(f"{_bend(at, (x, near[i]))}V{far[i]:.1f}")
            at = x, far[i]
        goal = boxes[b][1] + sizes[b][1] if back else boxes[b][1]
        enter = near[end] + _TIP if back else near[end] - _TIP
        said.append(f"{_bend(at, (center[b, -1, 0], enter))}V{goal:.1f}")
        return "".join(said)

    width = max((center[v] + layers.half[v] for v in center), default=0.0)
    return Placed(boxes, [path(*edge) for edge in edges], width, sum(height) + _BETWEEN * max(0, len(height) - 1))


def _bend(a: tuple[float, float], b: tuple[float, float]) -> str:
    middle = (a[1] + b[1]) / 2
    return f"C{a[0]:.1f} {middle:.1f} {b[0]:.1f} {middle:.1f} {b[0]:.1f} {b[1]:.1f}"


def _backward(pairs: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Returns the edges that close a cycle of edges before them."""
    below: dict[int, list[int]] = {}
    found: set[tuple[int, int]] = set()
    for a, b in pairs:
        reached, stack = {b}, [b]
        while stack and a not in reached:
            new = [c for c in below.get(stack.pop(), ()) if c not in reached]
            reached.update(new)
            stack += new
        if a in reached:
            found.add((a, b))
        else:
            below.setdefault(a, []).append(b)
    return found


def _ranks(boxes: Sequence[int], down: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Returns the layer of each box: below all boxes that point to it."""
    below: dict[int, list[int]] = {}
    waiting = dict.fromkeys(boxes, 0)
    for a, b in down:
        below.setdefault(a, []).append(b)
        waiting[b] += 1
    rank = dict.fromkeys(boxes, 0)
    ready = [box for box in boxes if not waiting[box]]
    for a in ready:  # grows while it is read
        for b in below.get(a, ()):
            rank[b] = max(rank[b], rank[a] + 1)
            waiting[b] -= 1
            if not waiting[b]:
                ready.append(b)
    return rank


def _layered(
    sizes: Mapping[int, tuple[float, float]], down: Mapping[tuple[int, int], None], rank: Mapping[int, int]
) -> _Layers:
    layers = _Layers([[] for _ in range(max(rank.values(), default=-1) + 1)], {})

    def add(vertex: Vertex, layer: int, half: float) -> Vertex:
        layers.of[layer].append(vertex)
        layers.half[vertex] = half
        return vertex

    for box, (width, _) in sizes.items():
        add((box, -1, 0), rank[box], width / 2)
    for a, b in down:
        passed = [add((a, b, i), i, _PASS / 2) for i in range(rank[a] + 1, rank[b])]
        for upper, lower in pairwise([(a, -1, 0), *passed, (b, -1, 0)]):
            layers.join(upper, lower)
    return layers


def _order(layers: _Layers) -> None:
    """Reduces crossings: sorts each layer by the means of its neighbours, down and up; keeps the best order found."""
    best, fewest = [list(some) for some in layers.of], _crossings(layers)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        numbers = range(1, len(layers.of)) if down else range(len(layers.of) - 2, -1, -1)
        for i in numbers:
            beside = layers.of[i - 1 if down else i + 1]
            place = {v: float(n) for n, v in enumerate(beside)}
            near = layers.above if down else layers.below
            own = {v: float(n) for n, v in enumerate(layers.of[i])}
            mean = {v: sum(map(place.__getitem__, n)) / len(n) if (n := near.get(v)) else own[v] for v in own}
            layers.of[i].sort(key=mean.__getitem__)
        if (count := _crossings(layers)) < fewest:
            best, fewest = [list(some) for some in layers.of], count
    layers.of[:] = best


def _crossings(layers: _Layers) -> int:
    count = 0
    for upper, lower in pairwise(layers.of):
        place = {v: i for i, v in enumerate(lower)}
        ends: list[int] = []
        for v in upper:
            own = sorted(place[w] for w in layers.below.get(v, ()))
            count += sum(sum(e > o for e in ends) for o in own)
            ends += own
    return count


def _straightened(layers: _Layers) -> dict[Vertex, float]:
    """Returns centers, each as near to the mean of its neighbours as the order of its layer allows (least squares)."""
    center: dict[Vertex, float] = {}
    for some in layers.of:
        at = 0.0
        for v in some:
            center[v] = at + layers.half[v]
            at += 2 * layers.half[v] + _APART
    for sweep in range(6 * _SWEEPS):
        order = layers.of if sweep % 2 == 0 else layers.of[::-1]
        for some in order:
            wanted = []
            for v in some:
                # Averages both sides: otherwise the next layer would undo the change.
                near = [*layers.above.get(v, ()), *layers.below.get(v, ())]
                pull = [_STIFF if v[1] >= 0 and w[1] >= 0 else 1.0 for w in near]
                total = sum(p * center[w] for p, w in zip(pull, near, strict=True))
                wanted.append(total / sum(pull) if near else center[v])
            weight = [_STIFF if v[1] >= 0 else 1.0 for v in some]
            center.update(zip(some, _spread(wanted, [layers.half[v] for v in some], weight), strict=True))
    return center


def _spread(wanted: Sequence[float], half: Sequence[float], weight: Sequence[float]) -> list[float]:
    """Returns the positions nearest to those wanted that keep neighbours apart (pooled, as in isotonic regression)."""
    offset = [0.0]
    for i in range(1, len(wanted)):
        offset.append(offset[-1] + half[i - 1] + half[i] + _APART)
    pools: list[tuple[float, float, int]] = []  # sum of weight times position, weight, count
    for i, place in enumerate(wanted):
        pools.append((weight[i] * (place - offset[i]), weight[i], 1))
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            last, before = pools.pop(), pools.pop()
            pools.append((before[0] + last[0], before[1] + last[1], before[2] + last[2]))
    places = [total / heavy for total, heavy, count in pools for _ in range(count)]
    return [place + offset[i] for i, place in enumerate(places)]
