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
from glenside.ir.operand import Array
from glenside.ir.torch_tensors import as_tensors, is_tensor


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

    def appends(self, name: str, result: str) -> bool:
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


class Stateful:
    """A compiled function that keeps state: `f(x, ..)` takes the other inputs and returns the other results.

    state     name of each state input -> its array, which is assigned by `f.state[name] = array`
    function  the function without state
    """

    def __init__(self, function: Runs, state: Mapping[str, str] | bool) -> None:
        greatest = function.greatest_sizes()
        inputs, results = function.input_kinds(greatest), function.result_kinds(greatest)
        if not isinstance(state, bool | Mapping):
            raise BadInput(f"state= is True, or {{input: result}} such as {{'past_k': 'present_k'}}, got {state!r}")
        state = paired_by_name([*inputs], [*results]) if isinstance(state, bool) else state
        self.function, self._pairs = function, dict(state)
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
        if len({*state.values()}) < len(state):
            raise BadInput("each state requires a result of its own")
        self._inputs = [name for name in inputs if name not in state]
        self._others = [name for name in results if name not in state.values()]
        kinds = [inputs[name] for name in state] + [results[name] for name in state.values()]
        capacity = [max(prod(inputs[a][0]), prod(results[b][0])) for a, b in state.items()]
        every = [(n, kind[1]) for n, kind in zip(capacity, kinds, strict=False)]
        twice = [own for own, pair in zip(every, state.items(), strict=True) if not function.appends(*pair)]
        memory = Memory([n * dtype.itemsize for n, dtype in (*every, *twice)])
        self._now = {name: memory.array(*own) for name, own in zip(state, every, strict=True)}
        self._next = {
            name: self._now[name] if function.appends(*pair) else memory.array(*own)
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
        every = {**given, **{name: self.state[name] for name in self._pairs}}
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
            self.state[name] = np.zeros(*kinds[name])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state to an .npz file, from which `load` reads it."""
        write_arrays(path, {name: self.state[name] for name in self._pairs})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads the state from an .npz file. Raises BadInput, and leaves the state as it was."""
        found = read_arrays(path)
        missing = [name for name in self._pairs if name not in found]
        if missing:
            raise BadInput(f"{os.fspath(path)} has no {missing[0]}: it is not a state of this function")
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
        dims, dtype = self.function.input_kinds(self.function.greatest_sizes())[name]
        if array.dtype != dtype or array.ndim != len(dims):
            raise BadInput(f"the state {name} is {len(dims)} axes of {dtype}, got {array.ndim} of {array.dtype}")
        if array.size > self._now[name].size or (not self.function.greatest_sizes() and array.shape != dims):
            raise BadInput(f"the state {name} has at most shape {dims}, got {array.shape}")

    def assign(self, name: str, array: Any) -> None:
        """Sets the state of that name to a copy of an array. Raises BadInput."""
        _require_named("state", name, self._pairs)
        value = np.ascontiguousarray(array)
        self._require_fits(name, value)
        self._now[name][: value.size] = value.reshape(-1)
        self.shapes[name] = value.shape

    def value(self, name: str) -> Array:
        """Returns the state of that name: the memory of the function itself, until the next call."""
        _require_named("state", name, self._pairs)
        shape = self.shapes[name]
        return self._now[name][: prod(shape)].reshape(shape)

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
        return f"<state {', '.join(f'{name} {self[name].shape}' for name in self)}>"


def _shaped(array: Any) -> Any:
    return array if hasattr(array, "shape") else np.asarray(array)


def _require_named(what: str, name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        raise BadInput(f"there is no {what} {name!r}{suggestion(name, known)}; there are {', '.join(known) or 'none'}")
