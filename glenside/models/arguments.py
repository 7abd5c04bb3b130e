"""What built-in models require of their parameters. Each function raises BadInput, with the model's Python name."""

from __future__ import annotations

import math

from glenside.ir.errors import BadInput


def require_sizes(model: str, **sizes: int) -> None:
    """Each is an integer of at least 1."""
    for name, value in sizes.items():
        if not isinstance(value, int) or value < 1:
            raise BadInput(f"{model} requires {name} to be an integer of at least 1, got {value}")


def require_seed(model: str, seed: int) -> None:
    """It is an integer of at least 0."""
    if not isinstance(seed, int) or seed < 0:
        raise BadInput(f"{model} requires seed to be an integer of at least 0, got {seed}")


def require_width(model: str, width: float) -> None:
    """It is a finite number above 0."""
    if not isinstance(width, int | float) or not (math.isfinite(width) and width > 0):
        raise BadInput(f"{model} requires width to be a number above 0, got {width}")


def require_multiple(model: str, name: str, value: int, of: int) -> None:
    """One size is a multiple of another."""
    if value % of:
        raise BadInput(f"{model} requires {name} to be a multiple of {of}, got {value}")


def require_image_network(model: str, width: float, resolution: int, batch: int, classes: int, seed: int) -> None:
    """The parameters that all classifiers of images have."""
    require_sizes(model, resolution=resolution, batch=batch, classes=classes)
    require_seed(model, seed)
    require_width(model, width)
