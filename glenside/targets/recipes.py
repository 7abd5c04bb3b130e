"""Labels of recipes: the steps of a variant, as rules write them, as text for reports."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

Steps = Sequence[Sequence[str]]


def recipe_label(recipe: str, plain: str = "plain") -> str:
    """Returns the label of a recipe: `winograd:2:2:3 winograd:1:4:3` -> Winograd F(4x2,3x3); no steps: `plain`."""
    steps: dict[str, list[list[str]]] = defaultdict(list)
    for word in recipe.split():
        kind, *numbers = word.split(":")
        steps[kind].append(numbers)
    return ", ".join(_LABELS[kind](found) for kind, found in steps.items()) or plain


def _winograd(steps: Steps) -> str:
    ordered = sorted(steps, key=lambda s: int(s[0]))
    sizes = ",".join("x".join(step[i] for step in ordered) for i in (1, 2))
    axes = "" if len(steps) > 1 else f" along axis {ordered[0][0]}"
    return f"Winograd F({sizes}){axes}"


_LABELS: dict[str, Callable[[Steps], str]] = {
    "winograd": _winograd,
    "phases": lambda steps: f"{math.prod(int(step[1]) for step in steps)} phases",
    "overlap-add": lambda steps: "overlap-add" + (f" along axis {steps[0][0]}" if len(steps) == 1 else ""),
    "elements": lambda _: "products of elements",
    "dilate": lambda _: "zeros put between results",
    "zeros": lambda _: "as a convolution",
    "strips": lambda steps: f"{steps[0][0]} row strips",
}
