"""The repeated blocks of a program with open sizes: at each choice of sizes it is cut at the same places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glenside.codegen.open_sizes.samples import sample_sizes
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.open_program import OpenProgram, sizes_in_words
from glenside.ir.program import Program
from glenside.passes.repeated_blocks import Cut, Stage, repeated_blocks

_MOST_KEPT = 32
"""The choices of sizes whose stages are kept."""


class OpenBlocks:
    """The stages of a program with open sizes.

    sample  the program of some sizes, and `first` its stages
    """

    def __init__(self, program: OpenProgram, cut: Cut, sample: Program, first: Sequence[Stage]) -> None:
        self.whole, self.cut, self.sample, self.first = program, cut, sample, first
        self._known: dict[tuple[int, ...], Sequence[Stage]] = {}

    @classmethod
    def of(cls, program: OpenProgram) -> OpenBlocks | None:
        """Returns the blocks of a program; None if it has no repeated ones."""
        for samples in sample_sizes(program):
            try:
                one, other = (program.at(sizes) for sizes in samples.sizes[:2])
            except GlensideError:
                continue
            others = other.constants_declared
            varying = {n for n, tensor in one.constants_declared.items() if n in others and others[n] != tensor}
            cut = repeated_blocks(one, varying)
            stages = None if cut is None else cut.stages(one)
            return None if cut is None or stages is None else cls(program, cut, one, stages)
        return None

    def program(self, number: int) -> OpenProgram:
        """Returns the program of a stage."""
        name = self.first[number].program.name
        return OpenProgram(lambda sizes: self.at(sizes)[number].program, self.whole.ranges, name)

    def at(self, sizes: Mapping[str, int]) -> Sequence[Stage]:
        """Returns the stages at given sizes. Raises BadInput if they are not those of the other sizes."""
        key = tuple(sizes.values())
        if key not in self._known:
            found = self.cut.stages(self.whole.at(sizes))
            if found is None or [stage.wiring for stage in found] != [stage.wiring for stage in self.first]:
                raise BadInput(f"at {sizes_in_words(sizes)} the program has other blocks")
            if len(self._known) >= _MOST_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = found
        return self._known[key]
