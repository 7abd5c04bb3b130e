"""Programs with open sizes: a function from sizes to programs, for a range of each size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import product
from typing import Any

from glenside.ir.bounds import whole
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.program import Program

Range = tuple[int, int, int]
"""The least and the greatest size, inclusive, and the step between sizes."""
_MOST = (1 << 31) - 1
_ARE_OPEN: ContextVar[bool] = ContextVar("are_open", default=False)


def sizes_are_open() -> bool:
    """True while a program of open sizes is built, whose terms must be the same at all sizes."""
    return _ARE_OPEN.get()


@dataclass(frozen=True)
class OpenProgram:
    """A program whose sizes are open within ranges: `make(sizes)` builds the program of given sizes.

    ranges  name -> the least and the greatest size, inclusive, and the step between sizes, 1 if it is left out
    """

    make: Callable[[Mapping[str, int]], Program]
    ranges: Mapping[str, Sequence[int]]
    name: str = "program"

    def __post_init__(self) -> None:
        if not self.ranges:
            raise BadInput("a program with open sizes requires the range of at least one size")
        checked = {name: range_of(name, value) for name, value in self.ranges.items()}
        object.__setattr__(self, "ranges", checked)

    def __repr__(self) -> str:
        return f"<program {self.name} of open sizes: {', '.join(f'{n} {words_of(r)}' for n, r in self.ranges.items())}>"

    def at(self, sizes: Mapping[str, int]) -> Program:
        """Returns the program of given sizes, also outside of the ranges. Raises BadInput."""
        before = _ARE_OPEN.set(True)
        try:
            return self.make(dict(sizes))
        finally:
            _ARE_OPEN.reset(before)

    def mapped(self, change: Callable[[Program], Program]) -> OpenProgram:
        """Returns the program in which a function has changed that of each choice of sizes."""
        return OpenProgram(lambda sizes: change(self.make(sizes)), self.ranges, self.name)

    def require_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raises BadInput for a size that is missing, unknown or outside of its range."""
        for name in sizes:
            if name not in self.ranges:
                raise BadInput(f"the program has no open size {name!r}{suggestion(name, self.ranges)}")
        for name, (low, high, step) in self.ranges.items():
            if name not in sizes:
                raise BadInput(f"the size {name} is missing")
            if not low <= sizes[name] <= high or (sizes[name] - low) % step:
                raise BadInput(f"{name} is {words_of((low, high, step))}, got {sizes[name]}")

    def corners(self) -> Iterator[dict[str, int]]:
        """Yields the sizes at the ends of the ranges, in all combinations."""
        for chosen in product(*(dict.fromkeys(own[:2]) for own in self.ranges.values())):
            yield dict(zip(self.ranges, chosen, strict=True))

    @property
    def greatest(self) -> dict[str, int]:
        """The greatest size of each range."""
        return {name: high for name, (_, high, _) in self.ranges.items()}


def range_of(name: str, value: object) -> Range:
    """Returns a range of sizes given as (least, greatest) or (least, greatest, step). Raises BadInput."""
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        raise BadInput(
            f"the range of {name} is (least, greatest) or (least, greatest, step), such as (1, 512), got {value!r}"
        )
    low, high = (whole(f"the range of {name}", end, 0, _MOST) for end in value[:2])
    step = whole(f"the step of {name}", value[2], 1, _MOST) if len(value) == 3 else 1
    if low > high:
        raise BadInput(f"the range of {name} is empty: {low} is greater than {high}")
    return low, high - (high - low) % step, step


def words_of(own: Sequence[int]) -> str:
    """Returns a range in words."""
    low, high, step = own
    return f"from {low} to {high}{f' by {step}' if step > 1 else ''}"


def sizes_in_words(sizes: Mapping[str, int]) -> str:
    """Returns sizes by name in words."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def is_range(value: object) -> bool:
    """True if a size is given as a range."""
    return isinstance(value, tuple | list)


def changed(program: Program | OpenProgram, change: Callable[[Program], Program]) -> Any:
    """Returns a program, of fixed or of open sizes, that a function has changed."""
    return program.mapped(change) if isinstance(program, OpenProgram) else change(program)


def open_program(make: Callable[..., Program], name: str = "program", **ranges: Sequence[int]) -> OpenProgram:
    """Returns a program with open sizes from a function that builds the program of given sizes, by keyword.

    `gl.open_program(lambda seq: build(seq), seq=(1, 512))`; a range is (least, greatest) or (least, greatest, step).
    Raises BadInput.
    """
    if not callable(make):
        raise BadInput(f"open sizes require a function that builds the program of given sizes, got {make!r}")

    def made(sizes: Mapping[str, int]) -> Program:
        program = make(**sizes)
        if not isinstance(program, Program):
            raise BadInput(f"the function of open sizes must return a program, got {type(program).__name__}")
        return program

    return OpenProgram(made, ranges, name)
