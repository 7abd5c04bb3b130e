"""What built-in networks are made of: layers with random constants, and the checks of their parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from glenside.builder import Builder
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models.weights import random_near_one, random_normal, read_npz

Activation = Callable[[Term], Term] | None


def check_parameters(model: str, sizes: Mapping[str, int], seed: int, width: float = 1.0) -> None:
    """Raises BadInput for a size below 1, a seed below 0, or a width that is no number above 0."""
    for name, value in sizes.items():
        if not isinstance(value, int) or value < 1:
            raise BadInput(f"{model} requires {name} to be an integer of at least 1, got {value}")
    if not isinstance(seed, int) or seed < 0:
        raise BadInput(f"{model} requires seed to be an integer of at least 0, got {seed}")
    if not isinstance(width, int | float) or not (math.isfinite(width) and width > 0):
        raise BadInput(f"{model} requires width to be a number above 0, got {width}")


def scaled(channels: float, width: float = 1.0) -> int:
    """The nearest multiple of 8 that is at least 8 and not more than a tenth below channels * width."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


class Network:
    """A network while it is built: random constants by name, He-initialised weights, norms that keep the scale."""

    def __init__(self, name: str, seed: int) -> None:
        self.seed = seed
        self.b = Builder(name)

    def convolve(
        self,
        name: str,
        x: Term,
        filters: int,
        *,
        window: int,
        stride: int = 1,
        groups: int = 1,
        activation: Activation = Builder.relu,
    ) -> Term:
        """Convolution padded by half a window, batch norm and activation."""
        b, dims = self.b, (filters, x.access.dims[1] // groups, window, window)
        weight = self.normal(f"{name}.weight", dims, math.sqrt(2 / math.prod(dims[1:])))
        y = b.conv(x, weight, strides=stride, padding=window // 2, groups=groups, name=name)
        gamma, beta = self.near_one(f"{name}.gamma", filters), self.normal(f"{name}.beta", (filters,), 0.1)
        mean, var = self.normal(f"{name}.mean", (filters,), 0.1), self.near_one(f"{name}.var", filters)
        y = b.batch_norm(y, gamma, beta, mean, var, eps="1e-5")
        return y if activation is None else activation(y)

    def dense(self, name: str, x: Term, features: int) -> Term:
        """A matrix product with weights and a bias."""
        k = x.access.dims[-1]
        weight = self.normal(f"{name}.weight", (features, k), 1 / math.sqrt(k))
        return self.b.linear(x, weight, self.normal(f"{name}.bias", (features,), 0.1), name=name)

    def normal(self, name: str, dims: tuple[int, ...], scale: float) -> Term:
        """A constant of normal values with that standard deviation."""
        return self.b.constant(name, dims, value=random_normal(self.seed, name, dims, scale))

    def near_one(self, name: str, length: int) -> Term:
        """A constant vector of values near 1."""
        return self.b.constant(name, (length,), value=random_near_one(self.seed, name, (length,), 0.2))

    def finish(self, result: Term, weights: str | Path | None) -> Program:
        """The program, with the arrays of an .npz file in place of random ones if one is given. Raises BadInput."""
        program = self.b.finish(result)
        if weights is None:
            return program
        constants = {name: tensor for name, tensor in self.b.tensors.items() if tensor.constant}
        return dataclasses.replace(program, constants=read_npz(weights, constants))
