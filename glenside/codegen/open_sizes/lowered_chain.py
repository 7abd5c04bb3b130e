"""A program with open sizes lowered in stages: equal stages share loops and C, and each has its own constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from glenside.codegen.emit_c.translation_units import Source, joined
from glenside.codegen.memory.buffer_arena import LINE, Arena
from glenside.codegen.open_sizes.callable import OpenCallable, require_inferable
from glenside.codegen.open_sizes.lowered import OpenLowered, Verified
from glenside.codegen.open_sizes.template import NotUniform, OpenBuffer
from glenside.ir.dtypes import RECORDS
from glenside.ir.open_program import OpenProgram
from glenside.ir.program import Program
from glenside.passes.repeated_blocks import Stage


@dataclass(frozen=True)
class LoweredStage:
    """A stage of a chain.

    variants  its forms, which have the same inputs and results
    choose    the number of the variant for given sizes
    """

    stage: Stage
    variants: Sequence[OpenLowered]
    choose: Callable[[Mapping[str, int]], int]

    @property
    def operands(self) -> Sequence[str | int]:
        """For each input of the variants, the name of the program's input, or the number of a value."""
        return [self.stage.operands[buffer.name] for buffer in self.variants[0].inputs]

    def is_in_place(self, name: str, place: int) -> bool:
        """True if all variants may store a result in the memory of an input."""
        return all(own.in_place.get(name) == own.template.results[place] for own in self.variants)


class LoweredChain:
    """A lowered program with open sizes whose stages run one after the other.

    open      the program
    sample    the program of some sizes
    stages    in their order
    inputs    of the program
    unique    its different results: (number of the stage, number among the results of this stage)
    returned  for each result of the program, its number in `unique`
    in_place  for each input, the number in `unique` of the result that may be stored in its memory, or None
    compiled  the function of it, where it is compiled
    slots     value -> its memory, which values of disjoint live ranges share

    Raises NotUniform: a program that cannot be run in this way.
    """

    def __init__(self, program: OpenProgram, sample: Program, stages: Sequence[LoweredStage]) -> None:
        self.open, self.sample, self.stages = program, sample, stages
        self.compiled: OpenCallable | None = None
        self.machine = stages[0].variants[0].machine
        reading = {of: (own, place) for own in reversed(stages) for place, of in enumerate(own.operands)}
        if any(name not in reading for name in sample.inputs):
            raise NotUniform("an input is that of no stage")
        self.inputs: list[OpenBuffer] = []
        for name in sample.inputs:
            stage, place = reading[name]
            self.inputs.append(replace(stage.variants[0].inputs[place], name=name))
        require_inferable(program, self.inputs)
        for own in stages:
            if any(len({*one.template.results}) < len(one.template.results) for one in own.variants):
                raise NotUniform("two results of a stage are one array")
        first = {n[0]: (at, place) for at, own in enumerate(stages) for place, n in enumerate(own.stage.results) if n}
        alike = {n: own[0] for stage in stages for own in stage.stage.results for n in own}
        self.unique = list(first.values())
        self.returned = [[*first].index(alike[n]) for n in range(len(alike))]
        self.in_place = [self._result_in_place(buffer.name) for buffer in self.inputs]
        self.slots = {value: slot for slot, own in self._shared_slots().items() for value in own}
        self.remarks = [f"stages: {self.said}"]

    @cached_property
    def kinds(self) -> Sequence[LoweredStage]:
        """The first stage of each kind."""
        return list({own.stage.kind: own for own in reversed(self.stages)}.values())[::-1]

    @property
    def said(self) -> str:
        """Says of which stages the program is."""
        kinds = [own.stage.kind for own in self.stages]
        return ", ".join(f"{kinds.count(own.stage.kind)} x {own.stage.program.name}" for own in self.kinds)

    @property
    def verified(self) -> list[Verified]:
        """The sizes at which all stages are verified."""
        first, *others = ([dict(one.sizes) for one in own.variants[0].verified] for own in self.kinds)
        return [Verified(sizes, True) for sizes in first if all(sizes in own for own in others)]

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of each phase, summed over the kinds of stages."""
        found = dict[str, float]()
        for one in (own for stage in self.kinds for own in stage.variants):
            for what, seconds in one.seconds.items():
                found[what] = found.get(what, 0.0) + seconds
        return found

    @cached_property
    def written(self) -> Source:
        """The C of the first variant of each kind: `run_N` and `open_sizes_N` are those of the N-th."""
        return joined(f"/* {self.open.name} */", [own.variants[0].written for own in self.kinds])

    @cached_property
    def slot_bytes(self) -> Mapping[object, int]:
        """The most bytes of each slot at the corners of the ranges."""
        found = dict[object, int]()
        corners, unique = [*self.open.corners()], {*self.unique}
        for own, value in self.values():
            if own in unique:  # it is in the memory of the result
                continue
            buffer, slot = self.result(*own), self.slots[value]
            most = max(prod(buffer.at(sizes)) for sizes in corners) * RECORDS[buffer.dtype].numpy.itemsize
            found[slot] = max(found.get(slot, 0), -(-most // LINE) * LINE)
        return found

    @property
    def between(self) -> int:
        """The bytes of values between stages in C."""
        return sum(self.slot_bytes.values())

    @property
    def arena(self) -> Arena:
        """The memory of C: values between stages, and the temporaries of one stage at a time."""
        size, bound, scratch, least = (
            max(getattr(own.variants[0].arena, what) for own in self.kinds)
            for what in ("size", "bound", "scratch", "scratch_bound")
        )
        return Arena({}, self.between + size, bound, scratch, {}, least)

    def result(self, stage: int, place: int) -> OpenBuffer:
        """Returns the array of a result of a stage."""
        first = self.stages[stage].variants[0]
        return first.buffers[first.template.results[place]]

    def values(self) -> Iterator[tuple[tuple[int, int], int]]:
        """Yields (number of the stage, number among its results) and the number of each value."""
        for number, own in enumerate(self.stages):
            for place, value in enumerate(own.stage.values):
                if value is not None:
                    yield (number, place), value

    def _shared_slots(self) -> dict[object, list[int]]:
        """Returns the values that may be in the same memory: those that the next stage alone reads, of every second
        stage.
        """
        found: dict[object, list[int]] = {}
        for (number, place), value in self.values():
            readers = [at for at, other in enumerate(self.stages) if value in other.operands]
            slot = (number % 2, place) if readers == [number + 1] else f"value {value}"
            found.setdefault(slot, []).append(value)
        return found

    def _result_in_place(self, name: str) -> int | None:
        """Returns the number of the result that may be stored in the memory of an input, or None."""
        readers = [number for number, own in enumerate(self.stages) if name in own.operands]
        if len(readers) != 1:
            return None
        stage = self.stages[readers[0]]
        own = stage.variants[0].inputs[stage.operands.index(name)].name
        for number, (at, place) in enumerate(self.unique):
            if at == readers[0] and stage.is_in_place(own, place):
                return number
        return None
