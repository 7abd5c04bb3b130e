"""A program with open sizes as a chain of functions: repeated blocks are one library, run with the weights of each."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from glenside.codegen.open_sizes.callable import OpenCallable
from glenside.codegen.open_sizes.function import ArenaMemory, OpenFunction, taking
from glenside.codegen.open_sizes.lowered_chain import LoweredChain, LoweredStage
from glenside.codegen.runtime.arguments import Kind, address_of, given_array, is_plain, nested, require_own
from glenside.codegen.scheduling.constant_packing import Memory
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.passes.repeated_blocks import Stage


@dataclass(frozen=True)
class Link:
    """A stage of a chain as compiled.

    functions  of its variants
    """

    lowered: LoweredStage
    functions: Sequence[OpenFunction]

    @property
    def stage(self) -> Stage:
        return self.lowered.stage

    @cached_property
    def operands(self) -> Sequence[str | int]:
        """For each input of the functions, the name of the program's input, or the number of a value."""
        return self.lowered.operands

    def variant(self, sizes: Mapping[str, int]) -> OpenFunction:
        """Returns the function for given sizes."""
        return self.functions[self.lowered.choose(sizes) if len(self.functions) > 1 else 0]


class OpenChain(OpenCallable):
    """A compiled program with open sizes whose blocks run one after the other.

    lowered  the program in stages
    links    the stages; those of one kind share libraries
    """

    def __init__(self, lowered: LoweredChain) -> None:
        sample = lowered.sample
        super().__init__(lowered.open, lowered.inputs, {*Program(sample.term).tensors}, sample.result_names())
        self.lowered, self.machine, self._type = lowered, lowered.machine, sample.term.type
        known: dict[int, Link] = {}
        self.links: list[Link] = []
        for own in lowered.stages:
            like = known.get(own.stage.kind)
            functions = [
                OpenFunction(one) if like is None else like.functions[number].with_constants(one)
                for number, one in enumerate(own.variants)
            ]
            self.links.append(Link(own, functions))
            known.setdefault(own.stage.kind, self.links[-1])
        self.kinds = list(known.values())
        self._places = {place: number for number, place in enumerate(lowered.unique)}
        self._memory: dict[object, Array] = {}
        every = [f for link in self.kinds for f in link.functions]
        self._arena = ArenaMemory([f.lowered.arena for f in every])
        self._pooling = next((f for f in every if f.lowered.shares), every[0])

    @property
    def source(self) -> str:
        """The C sources of the kinds of stages."""
        return "\n".join(f.source for link in self.kinds for f in link.functions)

    @property
    def report(self) -> str:
        """Says of which stages the function is, and how each kind was made and verified."""
        return "\n".join([f"Stages: {self.lowered.said}", *(f.report for link in self.kinds for f in link.functions)])

    def __repr__(self) -> str:
        return f"<{self.name} compiled for open sizes {', '.join(self.ranges)} in {len(self.links)} stages>"

    def numbers_of_results(self) -> Sequence[int]:
        return self.lowered.returned

    def verify(self, **sizes: int) -> None:
        """Verifies each kind of stage at given sizes, too. Raises BadInput if it does not hold there."""
        self.program.require_sizes(sizes)
        for link in self.kinds:
            link.variant(sizes).verify(**sizes)

    def wrong(self) -> list[str]:
        """Returns how results differ from the interpreter's: of each kind at its verified sizes, and of the program at
        the least sizes.
        """
        from glenside.codegen.open_sizes.compare import differences

        said = [one for link in self.kinds for f in link.functions for one in f.wrong()]
        return said + list(differences(self, self.program, [self.least_sizes()]))

    def result_kinds(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the results at given sizes, by name."""
        kinds = self._kinds(sizes)
        return {name: kinds[number] for name, number in zip(self.result_names, self.lowered.returned, strict=True)}

    def is_in_place(self, name: str, result: str) -> bool:
        """True if a result may be stored in the memory of an input."""
        place = next((i for i, buffer in enumerate(self.inputs) if buffer.name == name), None)
        returned = self.lowered.returned[self.result_names.index(result)]
        return place is not None and self.lowered.in_place[place] == returned

    def _ran(
        self,
        arrays: Mapping[str, Any],
        sizes: Mapping[str, int],
        out: Array | Sequence[Array] | None,
        threads: int | None,
    ) -> Any:
        inputs = []
        for buffer, kind in zip(self.inputs, self.input_kinds(sizes).values(), strict=True):
            array = arrays[buffer.name] if buffer.name in arrays else np.zeros(*kind)
            if not is_plain(array, kind):
                array = given_array(buffer.of(kind[0]), array)
            inputs.append(array)
        kinds = self._kinds(sizes)
        results = [np.empty(*kind) for kind in kinds] if out is None else taking(out, kinds)
        places: dict[str | int, int] = {b.name: address_of(a) for b, a in zip(self.inputs, inputs, strict=True)}
        if out is not None:
            given = [(places[b.name], a.nbytes) for b, a in zip(self.inputs, inputs, strict=True)]
            require_own([(address_of(array), array.nbytes) for array in results], given, self.lowered.in_place)
        pool = self._pooling.pooled(threads)
        arena = self._arena.address(1 if pool is None else pool.threads)
        key = tuple(sizes.values())
        for number, link in enumerate(self.links):
            function = link.variant(sizes)
            sized = function.sized(key)
            addresses = type(sized.addresses).from_buffer_copy(sized.addresses)
            for at, of in zip(function.input_at, link.operands, strict=True):
                addresses[at] = places[of]
            stored = []
            for place, value in enumerate(link.stage.values):
                own = self._places.get((number, place))
                if own is not None:
                    address = address_of(results[own])
                else:
                    assert value is not None, "a result of a stage is one of the program, or a value"
                    dims, dtype = sized.results[function.numbers_of_results()[place]]
                    address = self._slot(value, prod(dims) * dtype.itemsize)
                if value is not None:
                    places[value] = address
                stored.append(address)
            order = function.stored_order
            function.run_at(addresses, (ctypes.c_void_p * len(order))(*(stored[n] for n in order)), arena, pool)
        return nested(self._type, iter([results[number] for number in self.lowered.returned]))

    def _kinds(self, sizes: Mapping[str, int]) -> list[Kind]:
        """Returns the dims and dtypes of the different results."""
        key, found = tuple(sizes[name] for name in self.ranges), []
        for number, place in self.lowered.unique:
            function = self.links[number].variant(sizes)
            found.append(function.sized(key).results[function.numbers_of_results()[place]])
        return found

    def _slot(self, value: int, size: int) -> int:
        """Returns the address of memory for a value."""
        slot = self.lowered.slots[value]
        if slot not in self._memory or self._memory[slot].nbytes < size:
            self._memory[slot] = Memory([size]).array(size, np.uint8)
        return address_of(self._memory[slot])
