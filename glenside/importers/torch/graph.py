"""Defines an exported graph without PyTorch: calls of ATen operators on named values, as records of plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.names import shortened
from glenside.ir.operand import Array


@dataclass(frozen=True)
class Ref:
    """An argument that is the value of another node."""

    name: str


@dataclass(frozen=True)
class Meta:
    """The dims and dtype of a tensor. `dtype` is PyTorch's name without `torch.`, which may be one that we lack.

    contiguous  True if PyTorch stores it in row-major order
    """

    dims: tuple[int, ...]
    dtype: str
    contiguous: bool = True


Argument = Ref | int | float | str | None | list[Any] | tuple[Any, ...]


@dataclass(frozen=True)
class Call:
    """A call of an operator.

    target   such as aten.add.Tensor; getitem takes an element of several results
    results  dims and dtypes of the results; None for a result that is not a tensor
    trace    the stack trace of the user's source, or an empty text
    layer    the module that calls it, such as layers.0.attention
    """

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: Sequence[Meta | None]
    trace: str = ""
    layer: str = ""

    @property
    def place(self) -> str:
        """The line of the user's source, or an empty text."""
        return place_of(self.trace)

    def described(self) -> str:
        """Returns the node in words, for messages: its name, operator and source line."""
        return f"node {self.name} ({self.target})" + (f", {self.place}" if self.place else "")


NEXT = "next."
"""The beginning of the name of a result that is the new value of an input that the module changes in place."""


@dataclass(frozen=True)
class Graph:
    """An exported graph.

    inputs     placeholder -> dims and dtype, in the order of the module's arguments
    constants  placeholder -> name of a parameter, buffer or constant, and a function that returns its value
    outputs    name of a result -> its value
    remarks    messages to the user
    """

    name: str
    inputs: Mapping[str, Meta]
    constants: Mapping[str, tuple[str, Callable[[], Array]]]
    calls: Sequence[Call]
    outputs: Mapping[str, Argument]
    remarks: tuple[str, ...] = ()
    metas: Mapping[str, Meta] = field(default_factory=dict)
    """Dims and dtypes of the constants."""


def with_changed(graph: Graph, changed: Mapping[str, Argument]) -> Graph:
    """Returns a graph with the new values of inputs that the module changes in place as results, by inputs' names."""
    remarks = [f"the module changes its input {n} in place: the new value is the result {NEXT}{n}" for n in changed]
    outputs = {**graph.outputs, **{f"{NEXT}{name}": value for name, value in changed.items()}}
    return replace(graph, outputs=outputs, remarks=(*graph.remarks, *remarks))


def changed_in_place(what: str, name: str) -> BadInput:
    """Returns the error for a buffer or a parameter that the module changes."""
    hint = "; module.eval() stops batch norms from changing it" if what == "buffer" else ""
    return BadInput(
        f"the module changes its {what} {shortened(name)} in place, which is not supported: return the new value as a"
        f" result instead{hint}"
    )


def mapped(argument: Any, function: Callable[[Ref], Any]) -> Any:
    """Returns an argument with each Ref replaced by the value of a function."""
    if isinstance(argument, Ref):
        return function(argument)
    if isinstance(argument, list | tuple):
        return type(argument)(mapped(part, function) for part in argument)
    return argument


def refs(call: Call) -> Iterator[str]:
    """Yields the names of the values that a call reads."""
    stack = [*call.args, *call.kwargs.values()]
    while stack:
        argument = stack.pop()
        if isinstance(argument, Ref):
            yield argument.name
        elif isinstance(argument, list | tuple):
            stack += argument


_OWN = "glenside/importers/torch/export.py"
"""The file that calls a function of the user as a module."""


def place_of(trace: str) -> str:
    """Returns the last source line of a stack trace, as `model.py:31 in forward: y = x + 1`."""
    lines = [line.strip() for line in trace.strip().splitlines()]
    for i in range(len(lines) - 1, -1, -1):
        if lines[i].startswith("File ") and lines[i].count(", ") >= 2 and _OWN not in lines[i]:
            path, number, scope = lines[i].removeprefix("File ").rsplit(", ", 2)
            where = f"{path.strip(chr(34)).rpartition('/')[2]}:{number.removeprefix('line ')} {scope}"
            code = lines[i + 1] if i + 1 < len(lines) else ""
            return f"{where}: {code[:80]}" if code else where
    return ""
