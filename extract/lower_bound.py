"""What no answer can avoid: landmark classes, and the cost that hangs on one class alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extract.graph import Live

LANDMARK_LIMIT = 20_000
"""Classes above which only direct consequences are drawn: exact landmarks take a bit for each pair of classes."""
SWEEP_LIMIT = 50


def exclusive_costs(live: Live, scope: Sequence[int]) -> list[int]:
    """class -> a lower bound on the weight that goes when the class is no longer needed.

    Children that c dominates are reached through nothing else, and dominator subtrees of two of them do not overlap,
    so their bounds add up.
    """
    exclusive = [0] * len(live.nodes)
    for c in live.members():
        exclusive[c] = min(exclusive_cost(live, scope, exclusive, c, n) for n in live.nodes[c])
    return exclusive


def exclusive_cost(live: Live, scope: Sequence[int], exclusive: Sequence[int], c: int, n: int) -> int:
    """The same for the choice of e-node n in its class c."""
    return live.problem.weights[n] + sum(exclusive[d] for d in live.kids[n] if scope[d] == c)


def lower_bound(forced: Iterable[int], exclusive: Sequence[int]) -> int:
    """Packed weight that no answer undercuts; `forced` must be the roots that the scopes were computed for."""
    return sum(exclusive[c] for c in forced)


def landmarks(live: Live) -> list[int]:
    """The classes that every answer contains, roots included.

    The greatest solution of: a class needs itself, and what all of its e-nodes need (in planning: fact landmarks).
    """
    members = list(live.members())
    if len(members) > LANDMARK_LIMIT:
        return _direct(live)
    bit = {c: 1 << i for i, c in enumerate(members)}
    needs = [0] * len(live.nodes)
    for group in live.order:
        if len(group) == 1:
            needs[group[0]] = bit[group[0]] | _common(live, needs, group[0])
        else:
            _sweep(live, needs, bit, group)
    wanted = 0
    for root in live.roots:
        wanted |= needs[root]
    text = bin(wanted)[:1:-1]
    return [c for c, digit in zip(members, text, strict=False) if digit == "1"]


def _common(live: Live, needs: list[int], c: int) -> int:
    common = -1
    for n in live.nodes[c]:
        any_kid = 0
        for d in live.kids[n]:
            any_kid |= needs[d]
        common &= any_kid
    return common


def _sweep(live: Live, needs: list[int], bit: dict[int, int], group: list[int]) -> None:
    everything = (bit[group[-1]] << 1) - 1
    for c in group:
        needs[c] = everything
    for _ in range(SWEEP_LIMIT):
        changed = False
        for c in group:
            new = bit[c] | _common(live, needs, c)
            if new != needs[c]:
                needs[c], changed = new, True
        if not changed:
            return
    for c in group:  # Not at the fixed point, so too much: a class needing just itself is always true.
        needs[c] = bit[c]


def _direct(live: Live) -> list[int]:
    forced = dict.fromkeys(live.roots)
    stack = list(forced)
    while stack:
        first, *others = live.nodes[stack.pop()]
        for d in live.kids[first]:
            if d not in forced and all(d in live.kids[n] for n in others):
                forced[d] = None
                stack.append(d)
    return list(forced)
