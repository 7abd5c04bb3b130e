"""Labels of recipes: the steps of a variant, as rules write them, in English."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Steps = Sequence[Sequence[str]]
_NAMES: dict[str, Callable[[Steps], str]] = {}


def _named(step: str) -> Callable[[Callable[[Steps], str]], Callable[[Steps], str]]:
    def declare(function: Callable[[Steps], str]) -> Callable[[Steps], str]:
        _NAMES[step] = function
        return function

    return declare


def recipe_label(recipe: str, plain: str = "plain") -> str:
    """`winograd:2:2:3 winograd:1:4:3` -> Winograd F(4x2,3x3); a product of no steps is `plain`."""
    steps: dict[str, list[list[str]]] = {}
    for word in recipe.split():
        kind, *numbers = word.split(":")
        steps.setdefault(kind, []).append(numbers)
    return ", ".join(_NAMES[kind](found) for kind, found in steps.items()) or plain


@_named("winograd")
def _winograd(steps: Steps) -> str:
    ordered = sorted(steps, key=lambda s: int(s[0]))
    sizes = ",".join("x".join(step[i] for step in ordered) for i in (1, 2))
    axes = "" if len(steps) > 1 else f" along axis {ordered[0][0]}"
    return f"Winograd F({sizes}){axes}"


@_named("phases")
def _phases(steps: Steps) -> str:
    return f"{math.prod(int(step[1]) for step in steps)} phases"


@_named("overlap-add")
def _overlap_add(steps: Steps) -> str:
    return "overlap-add"


@_named("dilate")
def _dilate(steps: Steps) -> str:
    return "zeros put between results"


@_named("zeros")
def _zeros(steps: Steps) -> str:
    return "zeros put between elements"


@_named("strips")
def _strips(steps: Steps) -> str:
    return f"{steps[0][0]} row strips"
