"""The module that loop passes transform: nests in the order in which they run, and packed operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from glenside.codegen.loop_ir.ir import Nest, Packing


@dataclass(frozen=True)
class Module:
    """Loop nests in execution order, and the packings that they read.

    nests     each with the block from which its loops were scheduled, while a pass may schedule it anew
    packings  operands in the order in which tiles read them: constants are packed before the program runs, other
              operands by a nest
    """

    nests: tuple[Nest, ...]
    packings: tuple[Packing, ...]

    def with_nests(self, nests: Sequence[Nest]) -> Module:
        """Returns the module with other nests."""
        return replace(self, nests=tuple(nests))

    def rescheduled(self, nests: Sequence[Nest], dropped: Sequence[Packing], added: Sequence[Packing]) -> Module:
        """Returns the module with other nests, without packings that no nest reads any more, and with new ones."""
        gone = {packing.buffer for packing in dropped}
        kept = (packing for packing in self.packings if packing.buffer not in gone)
        return Module(tuple(nest for nest in nests if nest.buffer not in gone), (*kept, *added))
