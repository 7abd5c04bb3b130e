"""Shows e-graphs in notebooks as they grow."""

from __future__ import annotations

from collections.abc import Iterator

from glenside.egraph.encode import program_nodes
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.search import with_program
from glenside.egraph.snapshot import Snapshot
from glenside.ir.program import Program
from glenside.rewrites import of_families
from glenside.targets.base import Target, Way


def growing(
    program: Program, target: Target, blocking: str = "tile-loops"
) -> Iterator[tuple[int, Snapshot, list[str]]]:
    """Yields (iteration, e-graph, rules that matched in it), from the program itself until saturated; e-graphs name the
    rule of each e-node.
    """
    nodes = program_nodes(program.term)
    families = of_families(target.families(Way(blocking), nodes))
    search = Saturation(Request.of(nodes, families, target.rule_parameters(), Limits(), trace=True))
    yield 0, with_program(search.snapshot(), nodes, trace=True), []
    before = {name: 0 for name in search.progress.rules}
    while search.progress.stopped is None:
        search.step()
        now = {name: run.matches for name, run in search.progress.rules.items()}
        snapshot = with_program(search.snapshot(), nodes, trace=True)
        yield search.progress.iterations, snapshot, [n for n in now if now[n] > before[n]]
        before = now
