"""A unit for convolutions and matrix products that takes its operands in one layout.

What is asked of it is not how long a product takes but what is moved for its sake: bytes of copies that only put data
into another order, each read once and written once. A product counts first, as one cycle: computing it again in
another layout is no way to save a copy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.index_map import IndexMap, Multiple
from glenside.ir.operator import OPERATORS, OperatorKind
from glenside.ir.rearrangement import Rearrangement
from glenside.ir.term import weave
from glenside.ir.types import AccessType
from glenside.targets.base import Instruction, Spent, Target
from glenside.targets.registry import target
from rewrites.layout import addressing

ADDRESSES = {"none": addressing.NONE, "runs": addressing.RUNS, "all": addressing.ALL}
"""Which orders of an operand or a result are free: none but that of memory, those that keep runs of neighbours
together, all affine ones."""
_LAYOUTS = {"any": addressing.ANY, "nhwc": addressing.CHANNELS_LAST, "nchw": addressing.CHANNELS_FIRST}


def layout_code(layout: str) -> int:
    """nhwc, nchw, any, or blocks such as nchw16c -> what rules read. Raises BadInput."""
    block = re.fullmatch(r"nchw(\d{1,4})c", layout)
    if block and int(block[1]) >= 4:
        return int(block[1])
    if layout not in _LAYOUTS:
        raise BadInput(f"a layout is nhwc, nchw, any, or blocks of at least 4 channels as nchw16c, got {layout!r}")
    return _LAYOUTS[layout]


def convolution_unit(layout: str = "nhwc", *, loads: str = "all", stores: str = "all") -> Target:
    """A unit that wants its operands in that layout; `loads` and `stores` say which other orders cost nothing.

    With loads and stores "none" it is an instruction as of a library: operands and results lie in its own layout.
    Raises BadInput.
    """
    for what, got in (("loads", loads), ("stores", stores)):
        if got not in ADDRESSES:
            raise BadInput(f"{what} are {', '.join(ADDRESSES)}, got {got!r}")
    parameters = {"layout": layout_code(layout), "loads": ADDRESSES[loads], "stores": ADDRESSES[stores]}
    families = ["constant-analyses", "rearranging", "folding", "layout", "product-unit-analyses", "product-unit"]
    return Target(
        name=f"convolution-unit:{layout}",
        doc="A unit that takes its operands in one layout; what is counted are the bytes of copies.",
        instructions=(Instruction("product-unit", lambda *_: Spent(1, 1), f"operands in {layout}"),),
        families={"network": tuple(families)},
        parameters=parameters,
        tile={},
        peak=1,
        price=lambda *_: Spent(1, 1),
        bound=lambda *_: Spent(0, 0),
        objectives=("cycles", "bytes"),
        description=f"{layout} loads {loads} stores {stores}",
        copied=copied_bytes,
    )


def copied_bytes(operator: str, attributes: Sequence[Any], operands: Sequence[AccessType], own: AccessType) -> int:
    """What an e-node moves only to put data elsewhere: read once, written once.

    Reshapes, splits, slices, windows, broadcasts and pads are done by addressing; several operands, elements apart and
    reversed axes are not.
    """
    record = OPERATORS[operator]
    if record.kind is not OperatorKind.MOVEMENT or record.index_map is None:
        return 0
    if operator == "access-transpose":
        copies = _moves(operands[0].dims, attributes[0])
    elif operator == "access-rearrange":
        copies = _moves(attributes[0], attributes[1])
    else:
        copies = not _is_addressed(record.index_map(*weave(record, operands, attributes)))
    return 2 * own.size * np.dtype(own.dtype).itemsize if copies else 0


def _is_addressed(found: IndexMap) -> bool:
    """Whether it is one operand, read forwards, between bounds at most."""
    if len(found.pieces) != 1:
        return False
    (piece,) = found.pieces
    forwards = all(factor > 0 for index in piece.indices for _, factor in index.terms)
    return forwards and not any(isinstance(guard, Multiple) for guard in piece.guards)


def _moves(parts: Sequence[int], order: Sequence[int]) -> bool:
    return not Rearrangement(tuple(parts), tuple(order)).is_identity


@target("convolution-unit", "convolution-unit:nhwc", read=lambda text: (text,), options=convolution_unit)
def _convolution_unit(layout: str, **options: Any) -> Target:
    """A unit that takes its operands in one layout (nhwc, nchw, nchw16c); counts the bytes of copies."""
    return convolution_unit(layout, **options)
