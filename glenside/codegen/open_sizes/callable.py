"""The interface of functions of open sizes: their arguments, and the inference of the sizes from these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from threading import RLock
from typing import Any

import numpy as np

from glenside.codegen.open_sizes.template import OpenBuffer, Shapes
from glenside.codegen.runtime.arguments import Kind, all_arrays, stored_once
from glenside.codegen.runtime.compiled_function import NO_MEMORY
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.ir.open_program import OpenProgram
from glenside.ir.operand import Array
from glenside.ir.torch_tensors import array_of, as_tensors, is_tensor


class OpenCallable(ABC):
    """A compiled program with open sizes: `f(x, ..)` for arrays of any sizes in the ranges.

    program  the program; `ranges` are its open sizes, name -> (least, greatest, step)
    inputs   in the order of arguments
    read     the names of the inputs that the program reads
    names    of the results
    """

    def __init__(self, program: OpenProgram, inputs: Sequence[OpenBuffer], read: set[str], names: list[str]) -> None:
        self.program, self.name, self.ranges = program, program.name, program.ranges
        self.inputs, self.read, self.result_names = inputs, read, names
        self._lock = RLock()
        self._inferable = [(buffer, list(buffer.inferable())) for buffer in inputs]
        self._input_shapes = Shapes(buffer.dims for buffer in inputs)
        self._dtypes = [RECORDS[buffer.dtype].numpy for buffer in inputs]

    def __call__(
        self,
        /,
        *arrays: Array | Mapping[str, Array],
        out: Array | Sequence[Array] | None = None,
        threads: int | None = None,
        **named: Array,
    ) -> Any:
        """Runs the program on arrays; the open sizes are those of the arrays. Returns an array or a tuple.

        Arguments are those of a compiled function of fixed sizes. Calls from several threads run one after the other.
        Raises BadInput: a size outside its range, or sizes that contradict each other.
        """
        given = self.named(arrays, named)
        found = self.called(given, self.sizes_of(given), out, threads)
        return as_tensors(found) if any(map(is_tensor, all_arrays(arrays, named))) and out is None else found

    def called(
        self,
        arrays: Mapping[str, Any],
        sizes: Mapping[str, int],
        out: Array | Sequence[Array] | None,
        threads: int | None,
    ) -> Any:
        """Runs the program on arrays by name, of which `sizes_of` gave the sizes. Raises BadInput."""
        self.require_given(arrays)
        with self._lock:
            try:
                return self._ran(arrays, sizes, out, threads)
            except MemoryError as error:
                raise BadInput(NO_MEMORY) from error

    @abstractmethod
    def _ran(
        self,
        arrays: Mapping[str, Any],
        sizes: Mapping[str, int],
        out: Array | Sequence[Array] | None,
        threads: int | None,
    ) -> Any:
        """Runs the program, one call at a time."""

    @abstractmethod
    def numbers_of_results(self) -> Sequence[int]:
        """Returns for each result its number among those in `out`: equal terms are one result."""

    def run_into(self, arrays: Mapping[str, Any], results: Mapping[str, Array], threads: int | None) -> None:
        """Runs the program on arrays by name, and stores all results in arrays by name."""
        numbers = zip(self.result_names, self.numbers_of_results(), strict=True)
        pairs = ((number, results[name]) for name, number in numbers)
        given = {name: as_array(array) for name, array in arrays.items()}
        sizes = self.sizes_of(given)
        stored_once(pairs, lambda own: self.called(given, sizes, [own[number] for number in range(len(own))], threads))

    def named(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arrays of a call by the names of inputs. Raises BadInput."""
        names = [buffer.name for buffer in self.inputs]
        dicts = [array for array in arrays if isinstance(array, Mapping)]
        placed = [array for array in arrays if not isinstance(array, Mapping)]
        if len(placed) > len(names):
            raise BadInput(f"the program takes at most {len(names)} arrays, got {len(placed)}")
        found = dict(zip(names, map(as_array, placed), strict=False))
        for name, array in chain(*(own.items() for own in dicts), named.items()):
            if name not in names or name in found:
                raise BadInput(f"{name} is not an input of the program, or was given twice")
            found[name] = as_array(array)
        return found

    def require_given(self, arrays: Mapping[str, Any]) -> None:
        """Raises BadInput if an input that the program reads is missing."""
        missing = [b.name for b in self.inputs if b.name not in arrays and b.name in self.read]
        if missing:
            raise BadInput(f"missing inputs: {', '.join(missing)}")

    def sizes_of(self, arrays: Mapping[str, Any]) -> dict[str, int]:
        """Returns the open sizes of arrays of inputs, by name. Raises BadInput."""
        found: dict[str, int] = {}
        said: dict[str, str] = {}
        for buffer, inferable in self._inferable:
            array = arrays.get(buffer.name)
            if array is None:
                continue
            shape = tuple(array.shape)
            if len(shape) != len(buffer.dims):
                raise BadInput(f"{_required(buffer)}, got {len(shape)} axes")
            for of, axis, factor, constant in inferable:
                size, rest = divmod(of.step * (shape[axis] - constant), factor)
                if rest:
                    raise BadInput(f"{_required(buffer)}, got size {shape[axis]} of axis {axis}")
                name, size = of.name, size + of.above
                if found.setdefault(name, size) != size:
                    raise BadInput(f"{name} is {found[name]} in {said[name]} and {size} in {buffer.name}")
                said.setdefault(name, buffer.name)
        missing = [name for name in self.ranges if name not in found]
        if missing:
            raise BadInput(f"the size {missing[0]} is not known: no input that has it is given")
        self.program.require_sizes(found)
        return {name: found[name] for name in self.ranges}

    def least_sizes(self) -> dict[str, int]:
        """Returns the least sizes of the ranges."""
        return {name: own[0] for name, own in self.ranges.items()}

    def greatest_sizes(self) -> dict[str, int]:
        """Returns the greatest sizes of the ranges."""
        return self.program.greatest

    def input_kinds(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the inputs at given sizes, by name."""
        own = zip(self.inputs, self._input_shapes.at(sizes), self._dtypes, strict=True)
        return {buffer.name: (dims, dtype) for buffer, dims, dtype in own}

    def drawn(self, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
        """Returns random arrays for the inputs at given sizes; integers and truths are 0 or 1."""
        found = {}
        for place, (name, (dims, dtype)) in enumerate(self.input_kinds(sizes).items()):
            draw = np.random.default_rng(seed + place)
            real = RECORDS[self.inputs[place].dtype].kind == "float"
            found[name] = (draw.standard_normal(dims) if real else draw.integers(0, 2, dims)).astype(dtype)
        return found


def require_inferable(program: OpenProgram, inputs: Sequence[OpenBuffer]) -> None:
    """Raises BadInput for an open size that is not the size of an axis of an input."""
    known = {size.name for buffer in inputs for size, *_ in buffer.inferable()}
    for name in program.ranges:
        if name not in known:
            raise BadInput(f"the open size {name} is not the size of an axis of an input")


def as_array(array: Any) -> Any:
    """Returns an argument as an array of numpy, without a copy where its memory can be read."""
    if isinstance(array, np.ndarray):
        return array
    if is_tensor(array):
        return array_of(array)
    return np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)


def _required(buffer: OpenBuffer) -> str:
    return f"{buffer.name} requires ({' '.join(map(str, buffer.dims))}) {buffer.dtype}"
