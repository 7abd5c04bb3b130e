"""The memory needs of a mapped product on an npu: DRAM traffic of its layer alone, and buffers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from glenside.analysis.element_sources import distinct_elements
from glenside.analysis.layers import ProductSizes
from glenside.ir.term import Term, constants_under
from glenside.targets.arrays.plan import Plan
from glenside.targets.npu.array import NpuArray


@dataclass(frozen=True)
class Operands:
    """The bytes of a product as written: distinct elements that are read of each operand, and results, one byte each.

    `given`: for each operand, True if it is constant and so is loaded from DRAM.
    """

    left: int
    right: int
    results: int
    given: tuple[bool, bool]

    @classmethod
    def of(cls, product: Term) -> Operands:
        pairs = product.children[0]
        if pairs.operator.name != "access-product":  # both factors come from one operand
            return cls(distinct_elements(pairs), 0, product.access.size, (False, False))
        left, right = pairs.children
        constant = constants_under(pairs)
        given = constant[left], constant[right]
        return cls(distinct_elements(left), distinct_elements(right), product.access.size, given)


@dataclass(frozen=True)
class Holding:
    """Bytes of a layer alone.

    streamed  distinct elements that stream through the array; padding zeros are made on chip
    loaded    weight rows as stored in DRAM, C bytes each
    zeros     zeros among the loaded bytes: they pad rows, or fill block diagonals and windows
    copies    duplicated elements among the loaded bytes
    stored    results
    off_chip  DRAM loads even if tensors stay on chip: constants, and the operand that is loaded as weights
    lanes     scratchpad for the streamed rows of all tiles, each bank with its own copies
    weights   weight memory for all tiles
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
        """Computes the bytes of a plan for a product; without a plan, of the product as written.

        Weights are duplicated for each output of a window and each of the combined rows. With swapped operands whole
        rows of the left operand are loaded as weights, and the weights are streamed.
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
        """DRAM traffic, loads and stores."""
        return self.streamed + self.loaded + self.stored

    @property
    def buffers(self) -> int:
        """Bytes of scratchpad and weight memory."""
        return self.lanes + self.weights

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
