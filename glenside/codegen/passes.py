"""The passes over the nests of a program, one after the other, each by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from glenside.codegen.bands import Scheduled, banded
from glenside.codegen.borders import with_borders
from glenside.codegen.early import early
from glenside.codegen.loops import Nest, Packing
from glenside.codegen.machine import Machine
from glenside.codegen.renaming import packed_once, with_distinct_names, with_packings
from glenside.codegen.row_blocks import in_row_blocks
from glenside.codegen.sharing import shared_where_it_pays
from glenside.codegen.softmax import Softmax
from glenside.codegen.turns import taking_turns

After = tuple[str, Sequence[Nest], Sequence[Packing]]
"""A pass, and the nests and packings that it leaves."""


def after_each(
    nests: Sequence[Nest],
    packings: Sequence[Packing],
    scheduled: Mapping[int, Scheduled],
    softmaxes: Mapping[int, Softmax],
    machine: Machine | None,
) -> Iterator[After]:
    """The nests of a program after each pass, from those as they were filled on; the last are those that run.

    A packing that a pass replaces stays until all nests read what replaces it.
    """
    yield "fill", nests, packings
    if machine is None:
        return
    nests, made, *first = in_row_blocks(nests, scheduled, softmaxes, machine)
    known = [*packings, *first[1]]
    yield "row blocks", nests, known
    nests, *second = banded(nests, made, machine)
    known += second[1]
    yield "bands", nests, known
    nests, *third = taking_turns(nests, scheduled.values(), machine)
    yield "turns", nests, [*known, *third[1]]
    nests, found = with_packings(nests, list(packings), (first, second, third))
    yield "packings", nests, found
    nests = with_borders(nests)
    yield "borders", nests, found
    nests, found = with_distinct_names(*packed_once(nests, found))
    yield "packed once", nests, found
    nests, found = early(nests, found)
    yield "early results", nests, found
    yield "sharing", shared_where_it_pays(nests, machine), found
