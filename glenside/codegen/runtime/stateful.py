"""Functions with state: inputs that are results of the call before, kept inside of the function."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from glenside.codegen.runtime.arguments import Kind
from glenside.codegen.scheduling.constant_packing import Memory
from glenside.ir.errors import BadInput
from glenside.ir.files import read_arrays, write_arrays
from glenside.ir.names import suggestion
from glenside.ir.open_program import OpenProgram, changed
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.torch_tensors import as_tensors, is_tensor
from glenside.passes.state_layout import StateLayout, state_layouts, with_state_layouts


class Runs(Protocol):
    """A compiled function whose results can be stored in given arrays."""

    @property
    def report(self) -> Any:
        """The report of compilation and verification."""
        ...

    def input_kinds(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the inputs by name."""
        ...

    def result_kinds(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        """Returns the dims and dtypes of the results by name."""
        ...

    def sizes_of(self, arrays: Mapping[str, Any]) -> dict[str, int]:
        """Returns the open sizes of arrays of inputs."""
        ...

    def least_sizes(self) -> dict[str, int]:
        """Returns the least open sizes."""
        ...

    def greatest_sizes(self) -> dict[str, int]:
        """Returns the greatest open sizes."""
        ...

    def is_in_place(self, name: str, result: str) -> bool:
        """True if a result may be stored in the memory of an input."""
        ...

    def run_into(self, arrays: Mapping[str, Any], results: Mapping[str, Array], threads: int | None) -> None:
        """Runs the program on arrays by name, and stores all results in arrays by name."""
        ...


_NEXT = (
    ("present.", ""),
    ("new.", ""),
    ("next.", ""),
    ("present", "past_key_values"),
    ("present", "past"),
    ("next_", ""),
)
"""Pairs of prefixes: of a result's name, and of the input to which the result is passed in the next call."""


def paired_by_name(inputs: Sequence[str], results: Sequence[str]) -> dict[str, str]:
    """Returns input -> the result that it is in the next call, found by their names. Raises BadInput."""
    found: dict[str, str] = {}
    for result in results:
        names = (result.replace(old, new, 1) for old, new in _NEXT if result.startswith(old))
        name = next((name for name in names if name in inputs and name not in found), None)
        if name is not None:
            found[name] = result
    if not found:
        raise BadInput(
            f"no result is named as the next value of an input, such as present.0.key of past_key_values.0.key: "
            f"there are the inputs {', '.join(inputs)} and the results {', '.join(results)}"
        )
    return found


def laid_out(program: Any, state: Mapping[str, str] | bool | None) -> tuple[Any, dict[str, StateLayout]]:
    """Returns a program whose state is stored in the axis order in which it changes, and the layouts by input.

    Other programs than those of fixed and of open sizes, and pairs that `Stateful` refuses, stay. Raises BadInput.
    """
    if not isinstance(program, Program | OpenProgram) or not (state is True or isinstance(state, Mapping)):
        return program, {}
    sample = program.at(program.greatest) if isinstance(program, OpenProgram) else program
    pairs = paired_by_name([*sample.inputs], sample.result_names()) if state is True else state
    layouts = state_layouts(sample, pairs)
    return changed(program, lambda own: with_state_layouts(own, pairs, layouts)), layouts


class Stateful:
    """A compiled function that keeps state: `f(x, ..)` takes the other inputs and returns the other results.

    state     name of each state input -> its array, which is assigned by `f.state[name] = array`
    function  the function without state, of a program that `laid_out` returned
    layouts   how states are stored, by name, if not in the order of their axes
    """

    def __init__(
        self, function: Runs, state: Mapping[str, str] | bool, layouts: Mapping[str, StateLayout] | None = None
    ) -> None:
        greatest = function.greatest_sizes()
        inputs, results = function.input_kinds(greatest), function.result_kinds(greatest)
        least = function.least_sizes() if greatest else {}
        least_inputs, least_results = function.input_kinds(least), function.result_kinds(least)
        if not isinstance(state, bool | Mapping):
            raise BadInput(f"state= is True, or {{input: result}} such as {{'past_k': 'present_k'}}, got {state!r}")
        state = paired_by_name([*inputs], [*results]) if isinstance(state, bool) else state
        self.function, self._pairs, self._layouts = function, dict(state), layouts or {}
        if not state:
            raise BadInput("state= names at least one input and the result that it is in the next call")
        for name, result in state.items():
            _require_named("input", name, inputs)
            _require_named("result", result, results)
            own, next_ = inputs[name], results[result]
            if own[1] != next_[1] or len(own[0]) != len(next_[0]):
                raise BadInput(
                    f"the state {name} is {len(own[0])} axes of {own[1]}, and {result} is {len(next_[0])} of {next_[1]}"
                )
            if not greatest and own != next_:
                raise BadInput(f"the state {name} has shape {own[0]}, and {result} has {next_[0]}")
            ends = zip(least_inputs[name][0], own[0], least_results[result][0], next_[0], strict=True)
            for axis, (low, n, begin, end) in enumerate(ends):
                if low == n and {begin, end} != {n}:
                    what = f"has {n} elements along axis {axis}, and {result} has from {begin} to {end}"
                    raise BadInput(f"the state {name} {what}")
        if len({*state.values()}) < len(state):
            raise BadInput("each state requires a result of its own")
        self._inputs = [name for name in inputs if name not in state]
        self._others = [name for name in results if name not in state.values()]
        kinds = [inputs[name] for name in state] + [results[name] for name in state.values()]
        capacity = [max(prod(inputs[a][0]), prod(results[b][0])) for a, b in state.items()]
        every = [(n, kind[1]) for n, kind in zip(capacity, kinds, strict=False)]
        twice = [own for own, pair in zip(every, state.items(), strict=True) if not function.is_in_place(*pair)]
        memory = Memory([n * dtype.itemsize for n, dtype in (*every, *twice)])
        self._now = {name: memory.array(*own) for name, own in zip(state, every, strict=True)}
        self._next = {
            name: self._now[name] if function.is_in_place(*pair) else memory.array(*own)
            for (name, own), pair in zip(zip(state, every, strict=True), state.items(), strict=True)
        }
        self.state = State(self)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.reset()

    def __call__(self, /, *arrays: Any, threads: int | None = None, **named: Any) -> Any:
        """Runs the program on the inputs that are no state; the state becomes the results of this call.

        Raises BadInput, and leaves the state as it was.
        """
        given = self._given(arrays, named)
        every = {**given, **{name: self._stored(name) for name in self._pairs}}
        results = {name: np.empty(*kind) for name, kind in self._kinds(every).items()}
        shapes = {name: results[result].shape for name, result in self._pairs.items()}
        for name, result in self._pairs.items():
            results[result] = self._next[name][: prod(shapes[name])].reshape(shapes[name])
        self.function.run_into(every, results, threads)
        self._now, self._next, self.shapes = self._next, self._now, shapes
        found = [results[name] for name in self._others]
        value: Any = found[0] if len(found) == 1 else tuple(found)
        return as_tensors(value) if any(map(is_tensor, given.values())) else value

    def __repr__(self) -> str:
        return f"<{', '.join(self._inputs)} -> {', '.join(self._others)}, with {self.state!r}>"

    @property
    def report(self) -> Any:
        """The report of compilation and verification of the function without state."""
        return self.function.report

    def reset(self, **sizes: int) -> None:
        """Fills the state with zeros, of the least sizes; `sizes` are others."""
        least = self.function.least_sizes()
        for name in sizes:
            _require_named("open size", name, least)
        kinds = self.function.input_kinds({**least, **sizes})
        for name in self._pairs:
            self._keep(name, np.zeros(*kinds[name]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state to an .npz file, from which `load` reads it."""
        write_arrays(path, {name: self.state[name] for name in self._pairs})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads the state from an .npz file. Raises BadInput, and leaves the state as it was."""
        found = read_arrays(path)
        missing = [name for name in self._pairs if name not in found]
        if missing:
            raise BadInput(f"{os.fspath(path)} has no {missing[0]}: it is not a state of this function")
        if others := [name for name in found if name not in self._pairs]:
            raise BadInput(f"{os.fspath(path)} has {others[0]}, too: it is a state of another function")
        for name in self._pairs:
            self._require_fits(name, found[name])
        for name in self._pairs:
            self.state[name] = found[name]

    def _given(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        placed = [array for array in arrays if not isinstance(array, Mapping)]
        if len(placed) > len(self._inputs):
            raise BadInput(f"the function takes at most {len(self._inputs)} arrays beside its state, got {len(placed)}")
        found = dict(zip(self._inputs, placed, strict=False))
        for own in (*(array for array in arrays if isinstance(array, Mapping)), named):
            for name, array in own.items():
                if name in self._pairs:
                    raise BadInput(f"{name} is state: it is set by f.state[{name!r}]")
                if name in found:
                    raise BadInput(f"{name} was given twice")
                _require_named("input", name, dict.fromkeys(self._inputs))
                found[name] = array
        return found

    def _kinds(self, arrays: Mapping[str, Any]) -> dict[str, Kind]:
        sizes = self.function.sizes_of({name: _shaped(array) for name, array in arrays.items()})
        return self.function.result_kinds(sizes)

    def _require_fits(self, name: str, array: Array) -> None:
        stored, dtype = self.function.input_kinds(self.function.greatest_sizes())[name]
        dims = self._shown(name, np.broadcast_to(np.zeros((), dtype), stored)).shape
        if array.dtype != dtype or array.ndim != len(dims):
            raise BadInput(f"the state {name} is {len(dims)} axes of {dtype}, got {array.ndim} of {array.dtype}")
        if array.size > self._now[name].size or (not self.function.greatest_sizes() and array.shape != dims):
            raise BadInput(f"the state {name} has at most shape {dims}, got {array.shape}")

    def _shown(self, name: str, stored: Array) -> Array:
        """Returns a state as the program has it from its array as it is stored."""
        return self._layouts[name].array(stored) if name in self._layouts else stored

    def _stored(self, name: str) -> Array:
        shape = self.shapes[name]
        return self._now[name][: prod(shape)].reshape(shape)

    def _keep(self, name: str, stored: Array) -> None:
        self._now[name][: stored.size] = stored.reshape(-1)
        self.shapes[name] = stored.shape

    def assign(self, name: str, array: Any) -> None:
        """Sets the state of that name to a copy of an array. Raises BadInput."""
        _require_named("state", name, self._pairs)
        value = np.asarray(array)
        self._require_fits(name, value)
        self._keep(name, self._layouts[name].stored_array(value) if name in self._layouts else value)

    def value(self, name: str) -> Array:
        """Returns the state of that name: the memory of the function itself, until the next call."""
        _require_named("state", name, self._pairs)
        return self._shown(name, self._stored(name))

    def is_in_place(self, name: str) -> bool:
        """True if the next value of a state is stored in its memory; else the state is copied at each call."""
        return self._now[name] is self._next[name]

    def names(self) -> Iterator[str]:
        """Yields the names of the state."""
        yield from self._pairs


class State:
    """The state of a function, by the names of its inputs."""

    def __init__(self, function: Stateful) -> None:
        self._function = function

    def __getitem__(self, name: str) -> Array:
        return self._function.value(name)

    def __setitem__(self, name: str, array: Any) -> None:
        self._function.assign(name, array)

    def __iter__(self) -> Iterator[str]:
        return self._function.names()

    def __len__(self) -> int:
        return len(list(self._function.names()))

    def __repr__(self) -> str:
        words = (f"{name} {self[name].shape}{'' if self._function.is_in_place(name) else ' copied'}" for name in self)
        return f"<state {', '.join(words)}>"


def _shaped(array: Any) -> Any:
    return array if hasattr(array, "shape") else np.asarray(array)


def _require_named(what: str, name: str, known: Mapping[str, Any]) -> None:
    if not isinstance(name, str):
        raise BadInput(
            f"state= is True, or {{input: result}} such as {{'past_k': 'present_k'}}, got {name!r} as a name"
        )
    if name not in known:
        raise BadInput(f"there is no {what} {name!r}{suggestion(name, known)}; there are {', '.join(known) or 'none'}")
