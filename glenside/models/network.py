"""The layers that built-in networks share, with random constants."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from glenside.builder import Builder
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models.weights import random_near_one, random_normal, read_npz


class Network:
    """A builder of layers with their constants: NAME.weight and so on, for the layer NAME.

    Weights are He-initialised, and batch norms keep the scale of what they see, so that numbers stay moderate.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.seed = seed
        self.b = Builder(name)

    def images(self, batch: int, resolution: int) -> Term:
        """The input of a network for square images: x, ()(batch 3 resolution resolution)."""
        return self.b.input("x", (batch, 3, resolution, resolution))

    def convolve(
        self,
        name: str,
        x: Term,
        filters: int,
        *,
        window: int,
        stride: int = 1,
        groups: int = 1,
        activation: str = "",
        eps: str = "1e-5",
        gain: float = 2,
    ) -> Term:
        """Convolution, padded to keep the size but for the stride, batch norm, and the activation if there is one.

        `gain` is the sum of the weights' squares expected in each filter: 2 after relu, which halves what it sees.
        """
        b, dims = self.b, (filters, x.access.dims[1] // groups, window, window)
        weight = self.normal(f"{name}.weight", dims, math.sqrt(gain / math.prod(dims[1:])))
        y = b.conv(x, weight, strides=stride, padding=window // 2, groups=groups, name=name)
        gamma, beta = self.near_one(f"{name}.gamma", filters), self.normal(f"{name}.beta", (filters,), 0.1)
        mean, var = self.normal(f"{name}.mean", (filters,), 0.1), self.near_one(f"{name}.var", filters)
        return self.activate(activation, b.batch_norm(y, gamma, beta, mean, var, eps=eps))

    def linear(self, name: str, x: Term, features: int, *, activation: str = "", gain: float = 1) -> Term:
        """x times NAME.weight, ()(features K), plus NAME.bias, and the activation if there is one."""
        inputs = x.access.dims[-1]
        weight = self.normal(f"{name}.weight", (features, inputs), math.sqrt(gain / inputs))
        bias = self.normal(f"{name}.bias", (features,), 0.1)
        return self.activate(activation, self.b.linear(x, weight, bias, name=name))

    def layer_norm(self, name: str, x: Term, eps: str) -> Term:
        """Layer norm over the last axis, with NAME.gamma and NAME.beta."""
        length = x.access.dims[-1]
        return self.b.layer_norm(
            x, self.near_one(f"{name}.gamma", length), self.normal(f"{name}.beta", (length,), 0.1), eps
        )

    def activate(self, activation: str, x: Term) -> Term:
        """The builder's method of that name applied to x; "" is none."""
        result: Term = getattr(self.b, activation)(x) if activation else x
        return result

    def classify(self, x: Term, classes: int, name: str = "fc") -> Term:
        """A linear layer and softmax over classes."""
        return self.b.softmax(self.linear(name, x, classes), axis=1)

    def normal(self, name: str, dims: tuple[int, ...], scale: float) -> Term:
        """A constant of normal values with that standard deviation."""
        return self.b.constant(name, dims, value=random_normal(self.seed, name, dims, scale))

    def near_one(self, name: str, length: int) -> Term:
        """A constant vector of values from 0.8 to 1.2."""
        return self.b.constant(name, (length,), value=random_near_one(self.seed, name, (length,), 0.2))

    def finish(self, term: Term, weights: str | Path | None) -> Program:
        """The program, with the constants of an .npz file when one is given. Raises BadInput."""
        program = self.b.finish(term)
        if weights is None:
            return program
        constants = {name: tensor for name, tensor in self.b.tensors.items() if tensor.constant}
        return dataclasses.replace(program, constants=read_npz(weights, constants))


def scaled(channels: int, width: float) -> int:
    """The nearest multiple of 8 that is at least 8 and not more than a tenth below channels * width."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8
