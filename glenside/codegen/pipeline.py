"""The passes that transform the loop nests of a program, in order. Nothing else knows the order.

A pass is a function from a module to a module: loops that satisfy the conditions of the verifier in, and such loops
out; tests verify after each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from functools import partial

from glenside.codegen.loop_ir.ir import Loops
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.loop_ir.pass_observer import OBSERVER, observe
from glenside.codegen.loop_ir.substitute_buffers import name_packings, share_packings
from glenside.codegen.lowering.lower_terms import Lowering
from glenside.codegen.passes.fuse_padding import fuse_padding
from glenside.codegen.passes.fuse_producer_consumer import fuse_producer_consumer
from glenside.codegen.passes.fuse_softmax_rows import fuse_softmax_rows
from glenside.codegen.passes.hoist_results import hoist_results
from glenside.codegen.passes.interleave_phases import interleave_phases
from glenside.codegen.passes.parallelize import parallelize
from glenside.codegen.processor.model import Machine
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.program import Program
from glenside.ir.stopwatch import stage

LOWER = "lower"


@dataclass(frozen=True)
class Pass:
    """A transformation of loop nests.

    name      of dumps, times and options
    run       the function
    purpose   its effect, in a sentence
    optional  True if a program is right without it
    """

    name: str
    run: Callable[[Module, Machine], Module]
    purpose: str
    optional: bool = True


PIPELINE: tuple[Pass, ...] = (
    Pass("fuse-softmax-rows", fuse_softmax_rows, "Fuses products, softmax and products, some rows at a time."),
    Pass("fuse-producer-consumer", fuse_producer_consumer, "Fuses nests along an axis, so that data stay in cache."),
    Pass("interleave-phases", interleave_phases, "Interleaves nests that store every n-th element of one buffer."),
    Pass("fuse-padding", fuse_padding, "Fuses nests that fill padding into the parallel loop before them."),
    Pass("share-packings", share_packings, "Packs an operand once for all nests that read it in the same order."),
    Pass("name-packings", name_packings, "Numbers packed operands of one name.", optional=False),
    Pass("hoist-results", hoist_results, "Hoists nests of results to directly behind their operands."),
    Pass("parallelize", parallelize, "Makes nests serial that are predicted to cost less on one thread."),
)
OPTIONAL = tuple(one.name for one in PIPELINE if one.optional)
BEFORE: tuple[tuple[str, str], ...] = (
    ("prepare-constants", "Computes what depends on constants alone."),
    (LOWER, "Lowers terms to loop nests; tiles, vectorizes, packs and prefetches each for the machine."),
)
AFTER: tuple[tuple[str, str], ...] = (
    ("pack-constants", "Packs constants in the order in which tiles read them."),
    ("plan-memory", "Assigns offsets to temporaries by their live ranges."),
    ("rematerialize", "Computes values again instead of keeping them, where memory has a budget."),
    ("verify", "Verifies the loops, and samples of what they compute."),
    ("emit-c", "Prints C."),
)
"""Stages around the passes of loop nests: their names and purposes."""
NAMES = (LOWER, *(one.name for one in PIPELINE), "rematerialize")
"""Stages after which there are loops that can be shown."""


def after_each(module: Module, machine: Machine, without: Collection[str] = ()) -> Iterator[tuple[str, Module]]:
    """Yields the name of each pass that runs and the module after it; passes named in `without` are left out."""
    for one in PIPELINE:
        if one.name not in without:
            with stage(one.name):
                module = one.run(module, machine)
            yield one.name, module


def require_optional(names: Collection[str]) -> None:
    """Raises BadInput for a name that is none of an optional pass."""
    if isinstance(names, str):
        raise BadInput(f"without= is a list of passes, such as [{names!r}]")
    for name in names:
        if name not in OPTIONAL:
            what = f"the pass {name} is required" if name in NAMES else f"there is no pass {name!r}"
            raise BadInput(f"{what}: passes that can be left out are {', '.join(OPTIONAL)}{suggestion(name, OPTIONAL)}")


def lower(program: Program, machine: Machine | None = None, without: Collection[str] = ()) -> Loops:
    """Lowers a program to loop nests, for a machine by all passes but those named in `without`; plain loops for None.

    The last loops for a machine are kept until the same program is lowered again, as the answer of a search is.

    Raises BadInput for a black box, by its name, and for the name of no optional pass.
    """
    require_optional(without)
    if machine is None or OBSERVER.get() is not None:
        return _lowered(program, machine, without)
    key = _key(program, machine, without)
    kept = _KEPT.pop(key, None)
    if kept is None:
        kept = _lowered(program, machine, without)
        _KEPT.clear()
        _KEPT[key] = kept
    return kept


_KEPT: dict[Hashable, Loops] = {}
"""The last loops, by what they depend on."""


def _key(program: Program, machine: Machine | None, without: Collection[str]) -> Hashable:
    """Returns what loops depend on: the term, the tensors, values of constants of one element, and the machine."""
    values = [program.constants.get(name) for name, tensor in program.tensors.items() if tensor.dims.product() == 1]
    known = tuple(None if value is None else value.tobytes() for value in values)
    tensors = tuple(program.tensors.items())
    return program.name, program.term, tensors, known, machine, frozenset(without)


def _lowered(program: Program, machine: Machine | None, without: Collection[str]) -> Loops:
    lowering = Lowering(program, machine, partial(_lowered_body, machine=machine, without=without))
    with stage(LOWER):
        module = lowering.module()
    observe(LOWER, partial(lowering.loops, module))
    if machine is not None:
        for name, after in after_each(module, machine, without):
            observe(name, partial(lowering.loops, after))
            module = after
    return lowering.loops(module)


_BODIES: dict[Hashable, Loops] = {}
_MAX_BODIES = 16
"""Bodies of loops that are kept: a search lowers a program several times."""


def _lowered_body(program: Program, machine: Machine | None, without: Collection[str]) -> Loops:
    key = _key(program, machine, without)
    known = None if OBSERVER.get() is not None else _BODIES.get(key)
    if known is None:
        known = _lowered(program, machine, without)
        while len(_BODIES) >= _MAX_BODIES:
            del _BODIES[next(iter(_BODIES))]
        _BODIES[key] = known
    return known
