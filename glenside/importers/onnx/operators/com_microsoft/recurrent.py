"""Imports networks with states: quantized LSTMs, whose products quantize their inputs, and causal convolutions."""

from __future__ import annotations

from glenside.builder.layout import concatenate, element, repeat, reshape, slice_axis, stack, transpose
from glenside.builder.pointwise import cast, compute, multiply
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.operators.com_microsoft import runtime_operator
from glenside.importers.onnx.operators.quantized import dynamically_quantized, integer_product
from glenside.importers.onnx.operators.recurrent import Network, unrolled_lstm
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, build

SCALES = {"of_inputs": 8, "of_state": 10}
"""Product -> the input that is the scale of its weights; the next input is their zero point."""


class QuantizedNetwork(Network):
    """An LSTM with weights (D I 4*H) in narrow integers, with a scale and a zero point per direction or per row."""

    def __init__(self, node: Node) -> None:
        weights = node.term(1), node.term(2)
        if any(w.access.rank != 3 for w in weights):
            raise BadInput(f"inputs 1 and 2 require three axes, got {weights[0].access} and {weights[1].access}")
        if node.optional(4) is not None and not self._whole(node):
            raise BadInput(
                "input 4 requires lengths that all equal the input's: shorter ones would change the quantization"
            )
        w, r = (transpose(x, (0, 2, 1)) for x in weights)
        super().__init__(node, 4, 4, (w, r))

    @staticmethod
    def _whole(node: Node) -> bool:
        lengths = node.scope.known(node.term(4))
        return lengths is not None and bool((lengths == node.term(0).access.dims[0]).all())

    def of_inputs(self, x: Term, weights: Term) -> Term:
        steps, batch, size = x.access.dims
        rows = self._rows("of_inputs", weights.access.dims[0])
        product = self._product(reshape(x, (steps * batch, size)), weights, rows, ".inputs")
        return reshape(product, (steps, batch, weights.access.dims[0]))

    def of_state(self, state: Term, weights: Term, name: str) -> Term:
        directions, rows, _ = weights.access.dims
        scale, zero = (reshape(x, (directions, rows)) for x in self._rows("of_state", directions * rows))
        parts = ([element(x, 0, i) for x in (state, weights, scale, zero)] for i in range(directions))
        return stack([self._product(x, w, (s, z), name) for x, w, s, z in parts])

    def _rows(self, product: str, rows: int) -> tuple[Term, Term]:
        """Returns the scale and the zero point of each row of the weights of all directions."""
        directions, made = len(self.backward), []
        for i in (SCALES[product], SCALES[product] + 1):
            x = self.node.term(i)
            if x.access.size not in (directions, rows):
                raise BadInput(f"input {i} requires {directions} numbers, or {rows}, got {x.access}")
            made.append(repeat(reshape(x, (x.access.size,)), (rows // x.access.size,)))
        return made[0], made[1]

    def _product(self, x: Term, w: Term, rows: tuple[Term, Term], name: str) -> Term:
        values, scale, zero = dynamically_quantized(x)
        sums = integer_product(self.node, (values, transpose(w, (1, 0))), (zero, rows[1]), name)
        return multiply(cast(sums, "float32"), multiply(scale, rows[0]))


@runtime_operator("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(node: Node) -> list[Term]:
    return unrolled_lstm(node, QuantizedNetwork(node))


@runtime_operator("CausalConvWithState")
def causal_conv_with_state(node: Node) -> list[Term]:
    """Convolves the state and the new input depthwise; the last positions become the next state."""
    for name, standard in (("ndim", 1), ("channels_last", 0), ("state_window", 0)):
        if node.integer(name, standard) != standard:
            raise BadInput(f"attribute {name} requires {standard}, got {node.integer(name, standard)}")
    x, w, past = node.term(0), node.term(1), node.optional(3)
    if x.access.rank != 3 or w.access.rank != 3:
        raise BadInput(f"inputs 0 and 1 require (batch channels length) and filters, got {x.access} and {w.access}")
    (batch, channels, _), dilation = x.access.dims, node.integer("dilation", 1)
    size = (w.access.dims[2] - 1) * dilation
    if past is None:
        past = build("full", (batch, channels, size), 0, x.access.dtype)
    if past.access.dims != (batch, channels, size):
        raise BadInput(f"input 3 requires a state of ({batch} {channels} {size}), got {past.access}")
    whole = concatenate([past, x], 2)
    bias, name = node.optional(2), node.layer_name()
    y = node.builder.conv(whole, w, bias, dilations=dilation, groups=channels, name=name)
    if node.text("activation", "none", "none", "silu", "swish") != "none":
        y = multiply(y, compute("sigmoid", y))
    length = whole.access.dims[2]
    return [y, slice_axis(whole, 2, length - size, length)]
