"""Inverted residuals, with squeeze-and-excitation where a network has it: the block of several networks."""

from __future__ import annotations

from dataclasses import dataclass

from glenside.ir.term import Term
from glenside.models.network import Network


@dataclass(frozen=True, slots=True)
class InvertedResidual:
    """The sizes of one block: the window of its depthwise convolution, what it expands to before, projects to after.

    With `expanded` 0 it does not expand. `squeezed` is the number of channels between squeeze and excitation; with 0
    there are none.
    """

    window: int
    expanded: int
    channels: int
    stride: int
    activation: str
    eps: str = "1e-5"
    squeezed: int = 0


def invert(n: Network, name: str, x: Term, block: InvertedResidual) -> Term:
    """Layers NAME.expand, NAME.depthwise, NAME.squeeze, NAME.excite and NAME.project, of which a block has some.

    The input is added where it has the size of the result.
    """
    channels, y = x.access.dims[1], x
    wide = block.expanded or channels
    if block.expanded:
        y = n.convolve(f"{name}.expand", y, wide, window=1, activation=block.activation, eps=block.eps, gain=1)
    y = n.convolve(
        f"{name}.depthwise",
        y,
        wide,
        window=block.window,
        stride=block.stride,
        groups=wide,
        activation=block.activation,
        eps=block.eps,
    )
    if block.squeezed:
        y = squeeze_excite(n, name, y, block.squeezed)
    gain = 4 if block.squeezed else 1  # shares of about a half are a quarter of the variance
    y = n.convolve(f"{name}.project", y, block.channels, window=1, eps=block.eps, gain=gain)
    return n.b.add(x, y) if (block.stride, block.channels) == (1, channels) else y


def squeeze_excite(n: Network, name: str, x: Term, squeezed: int) -> Term:
    """Each channel of x times a hard sigmoid of all channels' means: layers NAME.squeeze and NAME.excite."""
    batch, channels = x.access.dims[:2]
    y = n.linear(f"{name}.squeeze", n.b.global_average_pool(x), squeezed, activation="relu")
    y = n.b.hard_sigmoid(n.linear(f"{name}.excite", y, channels))
    return n.b.multiply(x, n.b.reshape(y, (batch, channels, 1, 1)))
