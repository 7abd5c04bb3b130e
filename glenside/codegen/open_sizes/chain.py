"""A program with open sizes as a chain of functions: repeated blocks are one library, run with the weights of each."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from glenside.codegen.open_sizes.callable import OpenCallable, require_inferable
from glenside.codegen.open_sizes.function import ArenaMemory, OpenFunction, taking
from glenside.codegen.open_sizes.template import NotUniform
from glenside.codegen.runtime.arguments import Kind, address_of, given_array, is_plain, nested, require_own
from glenside.codegen.scheduling.constant_packing import Memory
from glenside.ir.open_program import OpenProgram
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.passes.repeated_blocks import Stage


@dataclass(frozen=True)
class Link:
    """A stage of a chain.

    functions  its variants, which have the same inputs and results
    choose     the number of the variant for given sizes
    """

    stage: Stage
    functions: Sequence[OpenFunction]
    choose: Callable[[Mapping[str, int]], int]

    @property
    def operands(self) -> Sequence[str | int]:
        """For each input of the functions, the name of the program's input, or the number of a value."""
        return [self.stage.operands[buffer.name] for buffer in self.functions[0].inputs]

    def variant(self, sizes: Mapping[str, int]) -> OpenFunction:
        """Returns the function for given sizes."""
        return self.functions[self.choose(sizes) if len(self.functions) > 1 else 0]


class OpenChain(OpenCallable):
    """A compiled program with open sizes whose blocks run one after the other.

    links   the stages; those of one kind share libraries
    sample  the program of some sizes

    Raises NotUniform: a program that cannot be run in this way.
    """

    def __init__(self, program: OpenProgram, sample: Program, links: Sequence[Link]) -> None:
        reading = {of: (link, place) for link in reversed(links) for place, of in enumerate(link.operands)}
        if any(name not in reading for name in sample.inputs):
            raise NotUniform("an input is that of no stage")
        inputs = []
        for name in sample.inputs:
            link, place = reading[name]
            inputs.append(replace(link.functions[0].inputs[place], name=name))
        super().__init__(program, inputs, {*Program(sample.term).tensors}, sample.result_names())
        require_inferable(program, inputs)
        if any(len(set(f.numbers_of_results())) < len(f.result_names) for link in links for f in link.functions):
            raise NotUniform("two results of a stage are one array")
        self.links, self._type = links, sample.term.type
        self.machine = links[0].functions[0].machine
        numbers = {n: (link, place) for link in links for place, own in enumerate(link.stage.results) for n in own[:1]}
        self._unique = list(numbers.values())
        first = list(numbers)
        alike = {n: own[0] for link in links for own in link.stage.results for n in own}
        self._returned = [first.index(alike[n]) for n in range(len(self.result_names))]
        self._in_place = [self._result_in_place(buffer.name) for buffer in inputs]
        self._slots = {value: slot for slot, own in self._shared_slots().items() for value in own}
        self._memory: dict[object, Array] = {}
        every = [f for link in links for f in link.functions]
        self._arena = ArenaMemory(list({id(f.lowered.arena): f.lowered.arena for f in every}.values()))
        self._pooling = next((f for f in every if f.lowered.shares), every[0])

    @cached_property
    def kinds(self) -> Sequence[Link]:
        """The first stage of each kind."""
        return list({link.stage.kind: link for link in reversed(self.links)}.values())[::-1]

    @property
    def source(self) -> str:
        """The C sources of the kinds of stages."""
        return "\n".join(f.source for link in self.kinds for f in link.functions)

    @property
    def report(self) -> str:
        """Says of which stages the function is, and how each kind was made and verified."""
        kinds = [link.stage.kind for link in self.links]
        words = ", ".join(f"{kinds.count(link.stage.kind)} x {link.functions[0].name}" for link in self.kinds)
        return "\n".join([f"Stages: {words}", *(f.report for link in self.kinds for f in link.functions)])

    def __repr__(self) -> str:
        return f"<{self.name} compiled for open sizes {', '.join(self.ranges)} in {len(self.links)} stages>"

    def numbers_of_results(self) -> Sequence[int]:
        return self._returned

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
        return {name: kinds[number] for name, number in zip(self.result_names, self._returned, strict=True)}

    def is_in_place(self, name: str, result: str) -> bool:
        """True if a result may be stored in the memory of an input."""
        place = next((i for i, buffer in enumerate(self.inputs) if buffer.name == name), None)
        return place is not None and self._in_place[place] == self._returned[self.result_names.index(result)]

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
            require_own([(address_of(array), array.nbytes) for array in results], given, self._in_place)
        own = {(id(link), place): address_of(a) for (link, place), a in zip(self._unique, results, strict=True)}
        pool = self._pooling.pooled(threads)
        arena = self._arena.address(1 if pool is None else pool.threads)
        key = tuple(sizes.values())
        for link in self.links:
            function = link.variant(sizes)
            sized = function.sized(key)
            addresses = type(sized.addresses).from_buffer_copy(sized.addresses)
            for at, of in zip(function.input_at, link.operands, strict=True):
                addresses[at] = places[of]
            stored = []
            for place, value in enumerate(link.stage.values):
                address = own.get((id(link), place))
                if address is None:
                    assert value is not None, "a result of a stage is one of the program, or a value"
                    dims, dtype = sized.results[function.numbers_of_results()[place]]
                    address = self._slot(value, prod(dims) * dtype.itemsize)
                if value is not None:
                    places[value] = address
                stored.append(address)
            order = function.stored_order
            function.run_at(addresses, (ctypes.c_void_p * len(order))(*(stored[n] for n in order)), arena, pool)
        return nested(self._type, iter([results[number] for number in self._returned]))

    def _kinds(self, sizes: Mapping[str, int]) -> list[Kind]:
        """Returns the dims and dtypes of the different results."""
        key, found = tuple(sizes[name] for name in self.ranges), []
        for link, place in self._unique:
            function = link.variant(sizes)
            found.append(function.sized(key).results[function.numbers_of_results()[place]])
        return found

    def _slot(self, value: int, size: int) -> int:
        """Returns the address of memory for a value."""
        slot = self._slots[value]
        if slot not in self._memory or self._memory[slot].nbytes < size:
            self._memory[slot] = Memory([size]).array(size, np.uint8)
        return address_of(self._memory[slot])

    def _shared_slots(self) -> dict[object, list[int]]:
        """Returns the values that may be in the same memory: those that the next stage alone reads, of every second
        stage.
        """
        found: dict[object, list[int]] = {}
        for number, link in enumerate(self.links):
            for value in link.stage.values:
                if value is not None:
                    readers = [at for at, other in enumerate(self.links) if value in other.operands]
                    found.setdefault(number % 2 if readers == [number + 1] else f"value {value}", []).append(value)
        return found

    def _result_in_place(self, name: str) -> int | None:
        """Returns the number of the result that may be stored in the memory of an input, or None."""
        readers = [link for link in self.links if name in link.operands]
        if len(readers) != 1:
            return None
        (link,) = readers
        own = link.functions[0].inputs[link.operands.index(name)].name
        for number, (other, place) in enumerate(self._unique):
            if other is link and all(f.is_in_place(own, f.result_names[place]) for f in link.functions):
                return number
        return None
