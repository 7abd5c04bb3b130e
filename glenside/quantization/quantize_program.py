"""Returns the integer network of a quantized program, or of a float program that a user wants quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name
from glenside.ir.operand import Array
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, nearest, tensors
from glenside.ir.types import AccessType
from glenside.passes.empty_tensors import without_empty_tensors
from glenside.quantization.calibration import quantized
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.network import integer_network
from glenside.quantization.values import BYTES, name_in

RANDOM = "random"
_HOW = "weights by output channel, activations by tensor"


@dataclass(frozen=True)
class Integers:
    """An integer network, and a sentence about its origin."""

    network: IntegerNetwork
    origin: str

    def __post_init__(self) -> None:
        own = {layer.normalised.kind: layer.normalised.precision for layer in self.network.layers if layer.normalised}
        more = [sentence for sentence in own.values() if sentence not in self.origin]
        object.__setattr__(self, "origin", " ".join([self.origin, *more]))


def integers(program: Program, quantize: str | Mapping[str, Array] | None, seed: int = 0) -> Integers | None:
    """Returns the integer network of a program; None for a float program without `quantize`.

      quantize  "random", or samples by input, from which activations get their ranges; None for a quantized program
      seed      of constants without a value, and of random samples

    Raises BadInput: `quantize` for a quantized program, and refusals of `integer_network` and `quantized`.
    """
    if isinstance(quantize, str) and quantize != RANDOM:
        raise BadInput(f"a network is quantized on samples by input, or {RANDOM}, got {quantize!r}")
    given = {tensor.name: tensor for tensor in (*program.inputs.values(), *program.signature.inputs)}
    program = without_empty_tensors(program.as_written())
    used = {name_in(leaf) for leaf in tensors(program.term)}
    left = {name: tensor for name, tensor in given.items() if name not in used}
    read = tuple(tensor for tensor in program.signature.inputs if tensor.name not in left)
    program = replace(program, signature=replace(program.signature, inputs=read))
    if quantize is not None and not isinstance(quantize, str):
        quantize = {name: samples for name, samples in quantize.items() if name not in left}
    found = _integers(program, quantize, seed)
    return None if found is None else replace(found, network=replace(found.network, unread=left))


def _integers(program: Program, quantize: str | Mapping[str, Array] | None, seed: int) -> Integers | None:
    drawn = len(program.constants_declared) > len(program.constants)
    weights = " Weights without a value are random too." if drawn else ""
    if of_bytes(program):
        if quantize is not None:
            raise BadInput("the network is already quantized: its products are of bytes")
        return Integers(
            integer_network(program.seeded_constants(seed)),
            f"The network is already quantized: its integers are unchanged.{weights}",
        )
    if quantize is None:
        return None
    if quantize == RANDOM:
        origin = (
            f"on one batch of normal random numbers (seed {seed}): enough to try a machine, but not to measure accuracy"
        )
        return Integers(quantized(program, None, None, seed, draw=True), f"Quantized ({_HOW}) {origin}.{weights}")
    assert not isinstance(quantize, str), "it is samples"
    network = quantized(program, None, quantize, seed, draw=True)
    others = [spelled_name(name) for name in program.inputs if name not in quantize]
    samples = " and ".join(f"{len(array):,} samples of {spelled_name(name)}" for name, array in quantize.items())
    more = f", and on normal random numbers for {', '.join(others)}" if others else ""
    return Integers(network, f"Quantized ({_HOW}) on {samples or 'no samples'}{more}.{weights}")


def of_bytes(program: Program) -> bool:
    """True if a product of the program has bytes in both operands, dequantized or direct.

    A program without products, such as a softmax of bytes, must compute bytes.
    """
    program = program.as_written()
    if not program.layers:
        return _has_bytes(program.term)
    return any(all(map(_has_bytes, product.children[0].children)) for product in program.layers.values())


def _has_bytes(operand: Term) -> bool:
    """True if an operand contains bytes, above other products."""

    def is_bytes(term: Term) -> bool:
        return isinstance(term.type, AccessType) and term.type.dtype in BYTES

    return not all(map(is_product, nearest(operand, stops=lambda t: is_product(t) or is_bytes(t))))
