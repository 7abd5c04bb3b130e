"""Orders the trials of a layer's variants, so that few are tried.

The variants that compute the same outputs along all axes come first: F(2 x 2), F(4 x 4), .., and the layer as written.
Then come the neighbours of the best of them, towards the second best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from glenside.targets.base import Variant

_STEP = "winograd:"


def first_trials(variants: Sequence[Variant]) -> list[Variant]:
    """Returns the variants to try first: all if none but the first computes the same outputs along all axes."""
    axes = {axis for variant in variants for axis in _outputs(variant) or ()}
    found = [variant for variant in variants if _is_even(variant, axes)]
    return found if len(found) > 1 else [*variants]


def next_trials(
    variants: Sequence[Variant], tried: Sequence[Variant], rank: Callable[[Variant], tuple[float, ...]]
) -> list[Variant]:
    """Returns the untried neighbours of the best of the tried variants: one step along one axis towards the second."""
    best, *others = sorted(tried, key=rank)
    known = {variant.recipe for variant in tried}
    given = [outputs for variant in variants if (outputs := _outputs(variant)) is not None]
    levels = sorted({1, *(m for outputs in given for m in outputs.values())})
    axes = sorted({axis for outputs in given for axis in outputs})

    def level(outputs: Mapping[int, int]) -> list[int]:
        return [levels.index(outputs.get(axis, 1)) for axis in axes]

    ends = [outputs for variant in (best, *others[:1]) if (outputs := _outputs(variant)) is not None]
    if len(ends) < 2:
        return []
    here, there = map(level, ends)
    found = []
    for variant in variants:
        outputs = None if variant.recipe in known else _outputs(variant)
        if outputs is not None:
            steps = [
                (own - of) * (1 if to > of else -1) for own, of, to in zip(level(outputs), here, there, strict=True)
            ]
            if sorted(steps) == [*[0] * (len(axes) - 1), 1]:
                found.append(variant)
    return found


def _is_even(variant: Variant, axes: set[int]) -> bool:
    outputs = _outputs(variant)
    return not outputs or (set(outputs) == axes and len(set(outputs.values())) == 1)


def _outputs(variant: Variant) -> dict[int, int] | None:
    """Returns axis -> m of the F(m, r) of a variant; None if it has other steps."""
    words = variant.recipe.split()
    if not all(word.startswith(_STEP) for word in words):
        return None
    steps = [word.split(":") for word in words]
    return {int(axis): int(m) for _, axis, m, _ in steps}
