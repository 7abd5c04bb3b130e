"""Draws leaves of random programs: tensors and constants of every dtype, rank and kind of size."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from glenside.fuzzing.adapting import SIZE_LIMIT
from glenside.ir.dtypes import DTYPES, FLOATS, INTEGERS, STORED, limits
from glenside.ir.errors import GlensideError
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

_SMALL = (1, 2, 3, 4, 5, 7, 8, 9)
LARGE = (15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128)
ROW_BYTES = 2048
"""Rows whose bytes are a multiple of this have a special layout, and cross pages."""
PAGES = (ROW_BYTES // 4, ROW_BYTES // 2, ROW_BYTES, ROW_BYTES // 4 + 1)
"""Row sizes around `ROW_BYTES`, for float32 and for bytes."""
NUMBERS = ("0", "1", "-1", "2", "1/2", "-3", "3", "1/4", "6", "-1/8", "10", "100")


@dataclass(frozen=True)
class Settings:
    """The content of programs.

    steps     the maximum number of applied operators
    dtypes    of leaves; casts lead to any other
    wide      the share of programs with one long axis
    empty     the share of programs that may have axes of size 0
    opaque    True if black boxes occur
    """

    steps: int = 10
    dtypes: Sequence[str] = ()
    wide: float = 0.25
    empty: float = 0.1
    opaque: bool = False


class Leaves:
    """Draws the leaves of one program."""

    def __init__(self, pick: random.Random, settings: Settings) -> None:
        self.pick, self.settings = pick, settings
        self.names: set[str] = set()
        self.empty = pick.random() < settings.empty
        self.wide = pick.random() < settings.wide

    def dtype(self) -> str:
        """Returns a dtype of a leaf: float32 in half of all cases."""
        if self.settings.dtypes:
            return self.pick.choice(self.settings.dtypes)
        return "float32" if self.pick.random() < 0.5 else self.pick.choice(DTYPES)

    def size(self) -> int:
        """Returns the size of an axis; 0 only in programs that may be empty."""
        if self.empty and self.pick.random() < 0.1:
            return 0
        return self.pick.choice(_SMALL)

    def dims(self, rank: int | None = None) -> tuple[int, ...]:
        """Returns sizes of a tensor of 0 to 6 axes, mostly of 1 to 3; one axis is long in some programs."""
        rank = self.pick.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 6)) if rank is None else rank
        dims = [self.size() for _ in range(rank)]
        while prod(dims) > 2000:
            dims[self.pick.randrange(rank)] = 1
        if rank and self.wide:
            long = self.pick.choice(LARGE if self.pick.random() < 0.5 else PAGES)
            at = self.pick.choice((rank - 1, rank - 1, self.pick.randrange(rank)))
            dims[at] = long
            while prod(dims) > SIZE_LIMIT // 4:
                others = [axis for axis in range(rank) if axis != at and dims[axis] > 1]
                dims[self.pick.choice(others)] = 1
        return tuple(dims)

    def leaf(self, dims: Sequence[int], dtype: str) -> Term:
        """Returns an input, a constant tensor, or numbers."""
        dims, pick = tuple(dims), self.pick
        way = pick.random()
        if way < 0.72:
            return self.input(dims, dtype, constant=way > 0.5)
        try:
            if way < 0.8 and prod(dims) <= 24:
                return build("numbers", dims, " ".join(self.number(dtype) for _ in range(prod(dims))), dtype)
            if way < 0.86 and len(dims) == 1:
                return build("iota", dims[0], dtype)
            if way < 0.9 and len(dims) == 2 and dims[0] == dims[1]:
                return build("eye", dims[0], dtype)
            if way < 0.92 and not dims:
                return build("access-literal", self.number(dtype), dtype)
            return build("full", dims, self.number(dtype), dtype)
        except GlensideError:
            return build("full", dims, "1", dtype)

    def known_leaf(self) -> Term:
        """Returns a leaf whose values are part of the program: a count, an identity, or numbers."""
        size, dtype = self.pick.choice(_SMALL), self.dtype()
        try:
            match self.pick.randrange(3):
                case 0:
                    return build("iota", size, dtype)
                case 1:
                    return build("eye", size, dtype)
                case _:
                    return build("numbers", (size,), " ".join(self.number(dtype) for _ in range(size)), dtype)
        except GlensideError:
            return self.input((size,), dtype)

    def input(self, dims: Sequence[int], dtype: str, constant: bool = False) -> Term:
        """Returns a new tensor."""
        name = self.fresh("w" if constant else "x")
        return build("access-tensor", Tensor(name, Dims(dims), dtype, constant))

    def fresh(self, prefix: str) -> str:
        """Returns a name that no tensor has."""
        number = len(self.names)
        while f"{prefix}{number}" in self.names:
            number += 1
        self.names.add(f"{prefix}{number}")
        return f"{prefix}{number}"

    def number(self, dtype: str) -> str:
        """Returns an exact number that a dtype holds."""
        if dtype == "bool":
            return self.pick.choice("01")
        if dtype in INTEGERS or (dtype in STORED and "int" in dtype):
            least, most = limits(dtype)
            return str(self.pick.choice((0, 1, most, least, max(least, -1), min(most, 2), min(most, 3))))
        return self.pick.choice(NUMBERS if dtype in FLOATS else ("0", "1", "2", "-1"))
