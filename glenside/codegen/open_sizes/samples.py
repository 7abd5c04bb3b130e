"""Chooses sizes: those at which programs are built, and those at which loops are made and verified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from glenside.ir.open_program import OpenProgram
from glenside.ir.size_expression import Size

SAMPLES = 8
"""Sizes at which a program is built, for one open size."""
_MORE = 3
"""More of them for each further open size."""
_LEAST, _MOST = 131, 700
"""Samples are between these where the range allows it: a few of the largest tiles."""
_LEAST_STEPS = 32
"""The least steps of samples of a range with steps: images are divided by more than the step."""

_FEWEST = 3
"""The fewest different sizes of a range that samples have several times."""

_PRIMES = (211, 223, 227, 229, 233, 239)
"""Steps from the least size to the representative one."""
_FEW = (53, 59, 61, 67, 71, 73)
"""The same for ranges of fewer steps than these: more than the rows of several tiles."""


@dataclass(frozen=True)
class Samples:
    """Sizes at which a program is built, and those at which schedules of all sizes are chosen."""

    sizes: list[dict[str, int]]
    representative: dict[str, int]


def sample_sizes(program: OpenProgram, seed: int = 0) -> Iterator[Samples]:
    """Yields choices of sizes: large ones, then the greatest ones in the ranges.

    A program of small sizes may be another one; one of large sizes may not exist. For a range of fewer sizes than are
    required, others are above it, or occur several times.
    """
    count = SAMPLES + _MORE * (len(program.ranges) - 1)
    large: dict[str, range] = {}
    greatest: dict[str, range] = {}
    for name, (low, high, step) in program.ranges.items():
        least = low + -(-max(0, _LEAST - low, (step > 1) * _LEAST_STEPS * step - low) // step) * step
        own = range(least, max(least + max(count, (step > 1) * 2 * _LEAST_STEPS) * step, _MOST), step)
        here = range(least, min(own.stop, high + 1), step)
        large[name] = here if len(here) >= count else own
        greatest[name] = range(max(low, 2 * step), high, step)[-3 * count :]  # at the end a table may be whole
    many = {name: own if len(own) >= count else large[name] for name, own in greatest.items()}
    few = {name: own if len(own) >= _FEWEST else large[name] for name, own in greatest.items()}
    choices = [large, many, few]
    for number, chosen in enumerate(choices):
        if chosen in choices[:number]:
            continue
        draw = Random(seed)
        drawn = [
            draw.sample([own[i % len(own)] for i in range(max(count, len(own)))], count) for own in chosen.values()
        ]
        sizes = {own: dict(zip(chosen, own, strict=True)) for own in zip(*drawn, strict=True)}
        representative = program.greatest if number else _representative(program)
        yield Samples([*sizes.values()], representative)


def sizes_of(program: OpenProgram) -> list[Size]:
    """Returns the open sizes of a program, with the steps of their ranges."""
    return [Size(name, step, low % step) for name, (low, _, step) in program.ranges.items()]


def _representative(program: OpenProgram) -> dict[str, int]:
    """Returns the sizes at which schedules are chosen: primes, of which no tile is a divisor."""
    found = {}
    for number, (name, (low, high, step)) in enumerate(program.ranges.items()):
        few = _FEW[number % len(_FEW)]
        found[name] = low + step * (few if (high - low) // step < few else _PRIMES[number % len(_PRIMES)])
    return found


def verified_sizes(program: OpenProgram, most: int, seed: int = 0) -> Iterator[dict[str, int]]:
    """Yields at most some different sizes in the ranges: ends first, then sizes beside them, then drawn ones."""
    draw, seen = Random(seed), set[tuple[int, ...]]()

    def new(sizes: Mapping[str, int]) -> bool:
        key = tuple(sizes.values())
        if key in seen or len(seen) >= most:
            return False
        seen.add(key)
        return True

    yield from (sizes for sizes in program.corners() if new(sizes))
    for _ in range(20 * most):
        sizes = {}
        for name, (low, high, step) in program.ranges.items():
            count = (high - low) // step
            near = draw.choice((draw.randint(0, min(count, 40)), draw.randint(0, count), count - min(count, 1)))
            sizes[name] = low + step * near
        if new(sizes):
            yield sizes
