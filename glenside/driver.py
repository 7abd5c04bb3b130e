"""The driver: prepare -> saturate -> extract -> check -> report, for every target."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, overload

from glenside.algebra.selections import with_known_matrices
from glenside.builder.unrolling import without_loops
from glenside.cache import Cache, CacheFull, search_results
from glenside.check import CheckReport, is_equal
from glenside.check.forked import forked_check
from glenside.egraph.process import Worker
from glenside.egraph.saturation import INTERRUPTED, ITERATION_LIMIT, NODE_LIMIT, SATURATED, Limits
from glenside.egraph.search import Search
from glenside.extract import METHODS
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.interrupts import answered
from glenside.ir.open_program import OpenProgram
from glenside.ir.program import Program, as_program
from glenside.ir.rational import byte_count
from glenside.passes.network import uninterrupted
from glenside.passes.recurrences import with_loops
from glenside.report.progress import Event, Listener, shown, silent
from glenside.report.result import Result
from glenside.stages import Clock, Stages, changes_algebra, with_step_loops
from glenside.targets.base import Compiles, EmitsInstructions, Target, Way
from glenside.targets.chosen import DEFAULT_TARGET, as_target, target_named, target_of_open

if TYPE_CHECKING:
    from glenside.check.compiled import Function
    from glenside.egraph.rule import Rule
    from glenside.ir.operand import Array
    from glenside.npu.program.program import NpuProgram
    from glenside.targets.custom import CostOfNode

REPEATABLE = (SATURATED, NODE_LIMIT, ITERATION_LIMIT)
"""Stop reasons that do not depend on the speed of the computer: only such answers are cached."""


def optimize(
    program: Program,
    target: Target | str | None = None,
    *,
    rules: Iterable[Rule | str] = (),
    cost: CostOfNode | None = None,
    limits: Limits | None = None,
    blocking: str = "tile-loops",
    mapping: str = "best",
    method: str = "auto",
    extract_seconds: float = 60.0,
    explain: bool = False,
    exact_order: bool = False,
    trace: bool = False,
    seed: int = 0,
    verify: bool = True,
    cache: Cache | None = None,
    worker: Callable[[], Worker | None] = lambda: None,
    progress: bool = False,
    listener: Listener = silent,
    on_answer: Callable[[Result], None] = lambda _: None,
    meanwhile: bool = False,
    load_seconds: float = 0.0,
) -> Result:
    """Finds the equal program that uses the target best, and checks that it is equal.

    target    an object or text: `gl.NPU(64)` or "npu:64x64"
    rules     rules of `gl.rule`, and names of families, beside those of the target
    cost      a cost function instead of the target's cost model: (node) -> whole number, summed over distinct nodes, or
              (node, costs of its operands) -> cost of the term; see `gl.target`. Without a target, only `rules` are
              used, by default those that compose and move movement
    limits    limits of each search: e-nodes, seconds, iterations and memory
    exact_order
              True: keep the order of sums and products between layers as it is written. By default they are computed in
              the cheapest equal way, as reals, for processors, arrays, npus and mpc: see `docs/algebra.md`
    blocking, mapping, method, extract_seconds, explain
              how to search, where the target leaves a choice: see `glenside.targets.base.Way`
    trace     True: the e-graph records for each e-node the rule, the iteration and the e-nodes it was made from;
              `explain` records it too
    seed      seed of the random numbers of the check
    verify    False: leave the check to `result.check()`
    cache     stores answers; a stored answer is not searched for again
    worker    starts a search process
    progress  True: show a progress bar in a notebook or on a terminal, with stages, e-nodes and the best cost so far
    listener  callback for each `Event`, with or without a bar
    on_answer callback for the result before its check, so that it can be saved first. It is called earlier for each
              draft, such as the answer chosen by predicted cost before variants are timed
    meanwhile True: check while `on_answer` runs, in a second process where possible. For an `on_answer` that runs long
    load_seconds  seconds that loading the program took, for the report

    A search that a limit or Ctrl-C stops still returns the best program found so far, or the baseline mapping if there
    is none; `result.stopped` is the reason. Raises BadInput, and Unfinished if there was no time for any answer.
    """
    with _told_to(listener, progress) as listener:
        program = as_program(program, "optimized").as_written()
        target, rules = _searched_for(target, cost, rules)
        program = program if isinstance(target, Compiles) else without_loops(program)
        way = replace(way_of(target, blocking, mapping, method, extract_seconds, explain, exact_order), trace=trace)
        limits = limits or Limits()
        fixed: tuple[str, ...] = ()
        if changes_algebra(target, way) and program.gradient_of is None:
            program, fixed = with_known_matrices(program)
        key = (
            search_results.key(program, target, limits, way, seed, verify)
            if cache is not None and target.repeatable and not rules
            else ""
        )
        if cache is not None and key:
            # A search for a trace must break ties as the stored one did: a trace numbers e-classes in another order.
            how = {**way.choices(), "trace": trace}
            again = partial(optimize, program, target, limits=limits, verify=False, listener=listener, **how)
            known = search_results.recall(cache, key, program, target, seed, again)
            if known is not None and _holds(known, cache, on_answer, verify, meanwhile):
                return known
        clock = Clock(load_seconds)
        stages = Stages(program, target, way, Search(limits, worker), listener, clock, seed, on_answer, rules)
        try:
            result = stages.run()
        except KeyboardInterrupt:
            result = stages.at_once()
        if fixed:
            said = f"the program has them as terms, not as constants, since they select elements: {', '.join(fixed)}"
            result.report.remarks = [*result.report.remarks, said]
        try:
            checks = verify and result.stopped != INTERRUPTED  # after Ctrl-C the answer is returned unchecked
            with forked_check(result.compared) if meanwhile and checks else nullcontext(lambda: None) as verdict:
                on_answer(result)
                if checks:
                    waited = time.perf_counter()  # includes the wait for the second process
                    result.check(_told(listener), verdict())
                    result.report.seconds["check"] = time.perf_counter() - waited
        except KeyboardInterrupt:
            answered()
            result.interrupted = True
        clock.finish()
        if cache is not None and key and {result.stopped, stages.stopped} <= {*REPEATABLE} and not result.interrupted:
            try:
                cache.put(key, search_results.text(result))
            except CacheFull as error:  # the answer is complete: the caller reports the error after saving it
                result.not_kept = error
        return result


def export_egglog(
    program: Program,
    target: Target | str,
    *,
    rules: Iterable[Rule | str] = (),
    limits: Limits | None = None,
    way: Way | None = None,
    seed: int = 0,
) -> str:
    """Returns the search of `optimize` as one text that the egglog package runs: operators, rules, program, schedule.

        egglog.bindings.EGraph().run_program(*egglog.bindings.EGraph().parse_program(text))

    The search runs first under the limits, because shapes that Glenside computes in Python are facts of the text. Rules
    with the parameters of the target are those of this target alone. Raises BadInput.
    """
    own, more = _searched_for(target, None, rules)
    program, search = as_program(program, "exported").as_written(), Search(limits or Limits())
    return Stages(program, own, way or way_of(own), search, silent, Clock(0.0), seed, rules=more).egglog()


def _holds(known: Result, cache: Cache, on_answer: Callable[[Result], None], verify: bool, meanwhile: bool) -> bool:
    """Passes a cached answer to `on_answer` and checks it; True if the answer is right.

    With `meanwhile` the check runs during `on_answer`. An error of `on_answer` is raised only if the answer is right.
    """
    compare = partial(search_results.compared, known)
    failed: GlensideError | None = None
    try:
        with forked_check(compare) if meanwhile and verify else nullcontext(lambda: None) as verdict:
            if meanwhile:
                try:
                    on_answer(known)
                except GlensideError as error:
                    failed = error
            why, stopped = _wrong(compare, verdict()) if verify else ("", "")
    except KeyboardInterrupt:
        answered()
        why, stopped = "", INTERRUPTED
    if why:
        cache.distrust(why)
        return False
    if stopped == INTERRUPTED:
        known.interrupted = True
        known.report.forget_checks()
    elif failed is not None:
        raise failed
    if not meanwhile:
        on_answer(known)
    return True


def _wrong(
    compare: Callable[[Callable[[int, int], None]], CheckReport], verdict: CheckReport | None
) -> tuple[str, str]:
    """Returns why a cached answer is wrong, or "", and the reason that stopped the check.

    `verdict` is the report of a second process; without one the check runs here.
    """
    try:
        found = verdict or compare(lambda *_: None)
    except search_results.DAMAGED as error:
        return f"it is no answer: {error!r}", ""
    right = is_equal(found.result) or found.result.startswith("not checked")
    return "" if right else found.result, found.stopped


@overload
def compile(
    program: Program,
    target: Target | str | None = DEFAULT_TARGET,
    *,
    state: None = None,
    **how: Any,
) -> Function: ...


@overload
def compile(
    program: Program | OpenProgram | str | os.PathLike[str],
    target: Target | str | None = DEFAULT_TARGET,
    **how: Any,
) -> Any: ...


def compile(
    program: Program | OpenProgram | str | os.PathLike[str],
    target: Target | str | None = DEFAULT_TARGET,
    *,
    machine: str = "native",
    memory: int | str | None = None,
    check: bool = False,
    without: Sequence[str] = (),
    activations: str = "float32",
    dims: Mapping[str, Any] | None = None,
    state: Mapping[str, str] | bool | None = None,
    **how: Any,
) -> Any:
    """Compiles a program to a function on numpy arrays with the system's C compiler: `f = gl.compile(p); f(x, ..)`.

    program  a program, one with open sizes, or the path of a file
    target   the target to optimize for first, an object or text: `gl.CPU()` or "cpu", the default, minimizes time. A
             program that "cpu" refuses is compiled unoptimized, with a warning. "none" or None compiles any program
             unoptimized, with the scales of batch norms folded into the weights
    machine  native, or another machine of `glenside compile --help` whose instructions this computer has; plain: plain
             loops of the unoptimized program, which compute each step as the interpreter does
    memory   maximum bytes of temporaries and results on one thread, or text such as "64MB". Values that do not fit are
             recomputed, with the least work. With "cpu" it is the budget of `gl.CPU("64MB")`, which the choice of
             variants must respect; other targets have a budget of their own
    check    True: require that `f.check()` is ok: exact over residues, and within the bounds of rounding
    without  loop passes to leave out, such as "fuse-padding" (`glenside compile --emit passes` lists them)
    activations  "int8": round those of products with weights of 4 or 8 bits in blocks, which then are products of
             integers: another result, within the bound that the report gives
    dims     sizes of named dimensions of a file; ranges, such as {"seq": (1, 512)}, stay open: the function takes
             arrays of each size in them. It is compiled once, in the forms that are cheapest at some of its sizes
    state    {input: result}: these results are the inputs of the next call, and stay in the function (`f.state`). True
             pairs them by name: past_key_values.N.key and present.N.key, x and new.x or present.x, and the like
    how      arguments of `optimize`

    Raises BadInput for a black box, a constant without a value, or a missing compiler; CheckFailed if `check` is set
    and the check fails; Unverified if the loops violate an invariant.
    """
    from glenside.check.open_function import compiled_open
    from glenside.codegen.lowering.quantized_activations import with_activations
    from glenside.codegen.processor.model import machine_of
    from glenside.codegen.runtime.stateful import Stateful, laid_out
    from glenside.formats import load

    if isinstance(program, str | os.PathLike):
        program = load(program, dims=dims)
    elif dims is not None:
        raise BadInput("dims= is for the path of a file: gl.open_program gives open sizes to other programs")
    program, layouts = laid_out(program, state)
    if isinstance(program, OpenProgram):
        options = {"memory": memory, "without": without, **how}
        exact_order = options.pop("exact_order", False)
        if others := [name for name, value in options.items() if value]:
            raise BadInput(f"{', '.join(others)}: not for open sizes, whose programs are compiled by all passes")
        of = machine_of(machine)
        wanted = target_of_open(program, target, of)
        function: Any = compiled_open(program, None if exact_order else wanted, of, check, activations)
    else:
        program = with_activations(as_program(program, "compiled"), activations)
        function = _compiled(program, target, machine, memory, check, without, how)
    return function if state is None or state is False else Stateful(function, state, layouts)


def _compiled(
    program: Program,
    target: Target | str | None,
    machine: str,
    memory: int | str | None,
    check: bool,
    without: Sequence[str],
    how: Mapping[str, Any],
) -> Function:
    """Compiles a program of fixed sizes."""
    from glenside.check.compiled import Function  # loading a back end takes as long as many searches
    from glenside.codegen.processor.model import machine_of
    from glenside.codegen.runtime.compiled_function import Lowered, keeping
    from glenside.passes.integer_sums import for_processors

    of = machine_of(machine)
    most = byte_count(memory, "a memory budget") if isinstance(memory, str) else memory
    if most is not None and most <= 0:
        raise BadInput(f"a memory budget is at least 1 byte, got {most}")
    by_default = target == DEFAULT_TARGET
    wanted = target_named(target, memory, of)
    if wanted is not None and most is not None and not by_default:
        raise BadInput(f"memory= is for the target cpu, or none: {wanted.name} has a budget of its own")
    if wanted is not None:
        wanted = wanted.compiled_for(of) if isinstance(wanted, Compiles) else wanted
        better: Callable[[Program], Result] = partial(optimize, target=wanted, **how)
        try:
            result = better(with_step_loops(program, wanted, lambda body: better(body).program))
        except GlensideError as error:
            if not by_default or how or error.status != GlensideError.status:
                raise
            warnings.warn(as_it_is(error), stacklevel=3)
        else:
            of = (isinstance(wanted, Compiles) and wanted.processor) or of
            chosen = keeping([result.program, result.prepared], of, wanted.most_bytes, without)
            function = Function(chosen, of, result.report, wanted.most_bytes)
            return function.checked() if check else function
    elif how:
        raise BadInput(f"{', '.join(how)}: how to search is for programs that are compiled for a target")
    program = program if most is not None else with_loops(program)
    if of is not None:
        program = uninterrupted(*for_processors(program, Search()))
    function = Function(Lowered(program, of, most, without=without), of, None, most)
    return function.checked() if check else function


def _searched_for(
    target: Target | str | None, cost: CostOfNode | None, rules: Iterable[Rule | str]
) -> tuple[Target, tuple[Rule | str, ...]]:
    """Returns the target, and the rules to add to those of the target. Raises BadInput."""
    from glenside.rewrites import known_rules

    if target is None and cost is None:
        raise BadInput("give a target, such as 'cpu' or gl.NPU(16), or a cost function")
    own, more = None if target is None else as_target(target), known_rules(rules)
    if cost is not None:
        from glenside.targets.custom import CostTarget

        return CostTarget(cost, rules=more, over=own), ()
    assert own is not None
    return own, more


def as_it_is(error: GlensideError) -> str:
    """Returns the warning for a program that the default target refuses."""
    return f"the program is compiled as it is, not optimized: {error}"


@contextmanager
def _told_to(listener: Listener, progress: bool) -> Iterator[Listener]:
    """Yields the listener, joined with a progress bar if one is wanted and can be shown."""
    if not progress:
        yield listener
        return
    with shown("fold") as bar:

        def both(event: Event) -> None:
            bar(event)
            listener(event)

        yield listener if bar is silent else both


def _told(listener: Listener) -> Callable[[int, int], None]:
    """Returns a callback that reports the progress of a check to the listener, at most every `_SEEN` seconds."""
    last = -_SEEN

    def tell(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() >= last + _SEEN:
            last = time.monotonic()
            listener(Event("check", f"{done} of {total}", done / max(total, 1)))

    return tell


_SEEN = 0.05  # seconds


def npu_program(
    program: Program,
    target: Target | str,
    *,
    quantize: str | Mapping[str, Array] | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    **how: Any,
) -> NpuProgram:
    """Compiles a program to npu instructions: `gl.npu_program(p, gl.NPU(64), quantize="random")`.

    A network that is quantized, by itself or by `quantize`, becomes one instruction program from inputs to results. Of
    any other network each layer becomes a separate piece with random int8 operands.

    quantize  "random", or calibration samples by input name, shape (samples ..) in whole batches: weights are quantized
              per output channel, activations per tensor
    seed      seed of constants without a value, random samples, and the inputs in DRAM
    limits    limits of the search; its seconds also bound lowering, which then returns the best program so far with a
              warning. Without limits lowering runs to its end. Outside the main thread, or if a timer is already set,
              no timer is set: lowering then checks the time before each layer
    how       arguments of `optimize`; `verify` is False by default

    To check the program, run it with `glenside.npu.model.execute.run` or `glenside.npu.rtl.verilator.run`, and pass the
    resulting DRAM to `glenside.npu.model.reference_results.wrong`.

    Raises BadInput for a target without instructions, a layer that the machine does not run, or a network that is
    already quantized or cannot be; Unfinished if the time was over before there was a program; KeyboardInterrupt also
    if Ctrl-C ended the search.
    """
    from glenside.ir.stopwatch import watched
    from glenside.npu.lowering.pipeline.time_limit import InTime
    from glenside.passes.answer import Unfinished
    from glenside.quantization.quantize_program import integers

    target = as_target(target)
    if not isinstance(target, EmitsInstructions):
        raise BadInput(f"{target.name} has no instructions: a program of an npu is for the target npu:RxC")
    asked = integers(as_program(program, "run on an npu"), quantize, seed)
    how = {"verify": False, "limits": limits, **how}
    result = optimize(program if asked is None else asked.network.program, target, seed=seed, **how)
    if result.interrupted or result.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    result.require_mapped()
    lowering = InTime(inf if limits is None or limits.seconds is None else limits.seconds)
    with watched() as watch:
        if asked is None:
            find = partial(target.machine_code, result.program, result.prepared, seed)
            lowering.make(lambda show, keep: find(show), None, watch)
        else:
            whole = partial(target.network_code, result, asked.network, seed)
            lowering.make(whole, partial(whole, quick=True), watch)
    said = lowering.said("limits.seconds")
    if lowering.made is None:
        raise Unfinished(f"the program: {said}")
    if said:
        warnings.warn(said, stacklevel=2)
    return lowering.made


def way_of(
    target: Target,
    blocking: str = "tile-loops",
    mapping: str = "best",
    method: str = "auto",
    extract_seconds: float = 60.0,
    explain: bool = False,
    exact_order: bool = False,
) -> Way:
    """Returns the options of the search as a `Way`. Raises BadInput for an option that the target does not have."""
    if method not in METHODS:
        raise BadInput(f"a method of extraction is one of {', '.join(METHODS)}, got {method!r}")
    seconds = extract_seconds if method == "exact" else Way.extract_seconds
    way = Way(blocking, mapping, method, seconds, explain, exact_order)
    target.accept(way)
    return way
