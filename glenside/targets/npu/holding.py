"""What a mapped product needs of an NPU's memories: bytes from and to DRAM for its layer alone, and buffers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from glenside.analysis.layers import ProductSizes
from glenside.analysis.places import distinct_elements
from glenside.ir.term import Term, constants_under
from glenside.targets.npu.array import NpuArray
from glenside.targets.systolic_array.plan import Plan


@dataclass(frozen=True)
class Operands:
    """Elements of a product as written, one byte each: those read of either operand, however often, and the results.

    `given` says of either operand whether it is constant, so that it comes from DRAM.
    """

    left: int
    right: int
    results: int
    given: tuple[bool, bool]

    @classmethod
    def of(cls, product: Term) -> Operands:
        pairs = product.children[0]
        if pairs.operator.name != "access-product":  # what is multiplied comes from one operand
            return cls(distinct_elements(pairs), 0, product.access.size, (False, False))
        left, right = pairs.children
        constant = constants_under(pairs)
        given = constant[left], constant[right]
        return cls(distinct_elements(left), distinct_elements(right), product.access.size, given)


@dataclass(frozen=True)
class Holding:
    """Bytes of a layer by itself.

    streamed  elements that stream through the array, each once: zeros at borders are made on chip
    loaded    rows of weights as they lie in DRAM, C bytes each; `zeros` of these fill rows up, or stand between the
              blocks of a diagonal or beside the elements of a window; `copies` are elements that stand there before
    stored    results
    off_chip  what comes from DRAM even where tensors stay on chip: what is constant, and what is loaded as weights
    lanes     of scratchpad, where the streamed rows of all tiles lie, each lane with copies of its own
    weights   of weight memory, for all tiles
    """

    streamed: int = 0
    loaded: int = 0
    zeros: int = 0
    copies: int = 0
    stored: int = 0
    off_chip: int = 0
    lanes: int = 0
    weights: int = 0

    @classmethod
    def of(cls, array: NpuArray, operands: Operands, written: ProductSizes, plan: Plan | None = None) -> Holding:
        """Of a plan for a product of such sizes as it is written, or of the product as it is written.

        Weights stand once for each output of a window, and for each of the rows that are taken together. Swapped, what
        was on the left is loaded as weights, whole rows of it, and the weights stream.
        """
        sizes, swapped = (written, False) if plan is None else (plan.sizes, plan.swapped)
        times = 1 if plan is None else plan.rows * prod(factor for _, factor in plan.windows)
        entries = sizes.groups * sizes.k * sizes.n if swapped else written.weights * times
        streamed, kept = (operands.right, operands.left) if swapped else (operands.left, operands.right)
        loaded = array.stationary(sizes.groups, sizes.k, sizes.n)
        lanes = array.streaming(sizes.groups, sizes.m, sizes.k)
        off_chip = loaded + (streamed if operands.given[swapped] else 0)
        copies = max(entries - kept, 0)
        return cls(streamed, loaded, loaded - entries, copies, operands.results, off_chip, lanes, loaded)

    @property
    def bytes(self) -> int:
        """From and to DRAM."""
        return self.streamed + self.loaded + self.stored

    @property
    def buffers(self) -> int:
        """Of lanes and of weight memory."""
        return self.lanes + self.weights

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
