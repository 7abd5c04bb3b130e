"""Builds layers of the built-in networks, with constants that are random or from a file, and checks parameters."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from glenside.builder import Builder
from glenside.builder.builder import fitting
from glenside.ir.bounds import number
from glenside.ir.errors import BadInput
from glenside.ir.files import array_outlines, read_arrays
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.ir.types import Tensor


class Network:
    """A builder of layers with their constants: NAME.weight and so on, for the layer NAME.

    Weights are He-initialised, and batch norms keep the scale of their operands, so that numbers stay moderate.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.seed = seed
        self.b = Builder(name)

    def images(self, batch: int, resolution: int) -> Term:
        """Returns the input of a network for square images: x, ()(batch 3 resolution resolution)."""
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

        `gain` is the sum of the weights' squares expected in each filter: 2 after relu, which halves its operand.
        """
        b, dims = self.b, (filters, x.access.dims[1] // groups, window, window)
        weight = self.normal(f"{name}.weight", dims, math.sqrt(gain / math.prod(dims[1:])))
        y = b.conv(x, weight, strides=stride, padding=window // 2, groups=groups, name=name)
        gamma, beta = self.near_one(f"{name}.gamma", filters), self.normal(f"{name}.beta", (filters,), 0.1)
        mean, var = self.normal(f"{name}.mean", (filters,), 0.1), self.near_one(f"{name}.var", filters)
        return self.activate(activation, b.batch_norm(y, gamma, beta, mean, var, eps=eps))

    def linear(self, name: str, x: Term, features: int, *, activation: str = "", gain: float = 1) -> Term:
        """Multiplies x by NAME.weight, ()(features K), and adds NAME.bias, with an activation if there is one."""
        inputs = x.access.dims[-1]
        weight = self.normal(f"{name}.weight", (features, inputs), math.sqrt(gain / inputs))
        bias = self.normal(f"{name}.bias", (features,), 0.1)
        return self.activate(activation, self.b.linear(x, weight, bias, name=name))

    def layer_norm(self, name: str, x: Term, eps: str) -> Term:
        """Applies a layer norm over the last axis, with NAME.gamma and NAME.beta."""
        length = x.access.dims[-1]
        return self.b.layer_norm(
            x, self.near_one(f"{name}.gamma", length), self.normal(f"{name}.beta", (length,), 0.1), eps
        )

    def project(self, name: str, x: Term, filters: int, window: int = 1) -> Term:
        """Multiplies square windows of x that do not overlap by NAME.weight, and adds NAME.bias."""
        dims = (filters, x.access.dims[1], window, window)
        weight = self.normal(f"{name}.weight", dims, math.prod(dims[1:]) ** -0.5)
        return self.b.conv(x, weight, self.normal(f"{name}.bias", (filters,), 0.1), strides=window, name=name)

    def activate(self, activation: str, x: Term) -> Term:
        """Applies the builder's method of that name to x; "" applies none."""
        result: Term = getattr(self.b, activation)(x) if activation else x
        return result

    def classify(self, x: Term, classes: int, name: str = "fc") -> Term:
        """Applies a linear layer and softmax over classes."""
        return self.b.softmax(self.linear(name, x, classes), axis=1)

    def normal(self, name: str, dims: tuple[int, ...], scale: float) -> Term:
        """Declares a constant of normal values with that standard deviation."""

        def draw() -> Array:
            values = _stream(self.seed, name).standard_normal(dims, dtype=np.float32)
            values *= np.float32(scale)
            return values

        return self.b.constant(name, dims, value=draw)

    def near_one(self, name: str, length: int) -> Term:
        """Declares a constant vector of uniform values from 0.8 to 1.2."""

        def draw() -> Array:
            return _stream(self.seed, name).uniform(0.8, 1.2, length).astype(np.float32)

        return self.b.constant(name, (length,), value=draw)

    def finish(self, term: Term, weights: str | Path | None) -> Program:
        """Returns the program, with the constants of an .npz file if one is given. Raises BadInput."""
        program = self.b.finish(term)
        if weights is None:
            return program
        constants = {name: tensor for name, tensor in self.b.tensors.items() if tensor.constant}
        return dataclasses.replace(program, constants=_read_npz(weights, constants))


def scaled(channels: int, width: float) -> int:
    """Returns the nearest multiple of 8 that is at least 8 and at most a tenth below channels * width."""
    wanted = channels * number("a width", width)
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


def image_network(
    model: str, width: float, resolution: int, batch: int, classes: int, seed: int
) -> tuple[Network, Term]:
    """Starts a classifier of images: returns its network and its input. Raises BadInput, as later calls do."""
    require_integers(model, seed, resolution=resolution, batch=batch, classes=classes)
    if not isinstance(width, int | float) or not (math.isfinite(width) and width > 0):
        raise BadInput(f"{model} requires width to be a number above 0, got {width}")
    n = Network(model.replace("_", "-"), seed)
    return n, n.images(batch, resolution)


def require_integers(model: str, seed: int, **sizes: int) -> None:
    """Checks that each size is an integer of at least 1, and the seed at least 0; messages name `model`."""
    for name, value, least in (*((name, value, 1) for name, value in sizes.items()), ("seed", seed, 0)):
        if not isinstance(value, int) or value < least:
            raise BadInput(f"{model} requires {name} to be an integer of at least {least}, got {value}")


def require_multiple(model: str, name: str, value: int, of: int) -> None:
    """Checks that one size is a multiple of another."""
    if value % of:
        raise BadInput(f"{model} requires {name} to be a multiple of {of}, got {value}")


def _stream(seed: int, name: str) -> np.random.Generator:
    """Returns a separate random stream for each name, so that the order of draws does not matter."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _read_npz(path: str | Path, tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    """Reads the constants of a file, which has exactly these names and shapes. Raises BadInput."""
    try:
        arrays = array_outlines(path)
    except BadInput as error:
        raise BadInput(f"weights require an .npz file of arrays: {error}") from None
    missing, extra = sorted(tensors.keys() - arrays.keys()), sorted(arrays.keys() - tensors.keys())
    if missing or extra:
        got = "; ".join(
            f"{count} {what}, such as {names[0]}"
            for what, names in (("missing", missing), ("unknown", extra))
            if (count := len(names))
        )
        raise BadInput(f"weights require an array for each of {len(tensors)} constants and no others, got {got}")
    for name, tensor in tensors.items():
        fitting(tensor, arrays[name])
    arrays = read_arrays(path)
    return {name: fitting(tensor, arrays[name]) for name, tensor in tensors.items()}
