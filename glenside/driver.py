"""The driver: prepare -> saturate -> extract -> check -> report, for every target."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from glenside.cache import Cache, CacheFull, answers
from glenside.check import CheckReport, is_equal
from glenside.check.beside import beside
from glenside.egraph.process import Worker
from glenside.egraph.saturation import INTERRUPTED, ITERATION_LIMIT, NODE_LIMIT, SATURATED, Limits
from glenside.extract import METHODS
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.interrupts import answered
from glenside.ir.program import Program
from glenside.ir.rational import byte_count
from glenside.passes.network import Search, uninterrupted
from glenside.report.progress import Event, Listener, shown, silent
from glenside.report.result import Result
from glenside.stages import Clock, Stages
from glenside.targets.base import Target, Way

if TYPE_CHECKING:
    from glenside.check.compiled import Function
    from glenside.codegen.processor.model import Machine
    from glenside.ir.operand import Array
    from glenside.npu.program.program import NpuProgram

REPEATABLE = (SATURATED, NODE_LIMIT, ITERATION_LIMIT)
"""Why a search stopped when every machine stops it at the same place: such an answer may be kept."""


def optimize(
    program: Program,
    target: Target | str,
    *,
    limits: Limits | None = None,
    blocking: str = "tile-loops",
    mapping: str = "best",
    method: str = "auto",
    extract_seconds: float = 60.0,
    explain: bool = False,
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
    """Find the equal program that uses the target best, and check that it is equal.

    target    as an object or as text: `gl.NPU(64)` or "npu:64x64"
    limits    of each search
    blocking, mapping, method, extract_seconds, explain
              how to search, where the target leaves a choice: see `glenside.targets.base.Way`
    trace     whether the e-graph says which rule made each e-node, when and from what; `explain` has it say so too
    cache     where answers are kept: one that is there is not searched for again
    progress  whether a bar shows how far it is, in a notebook or on a terminal: stages, e-nodes, the best so far
    worker    starts a search process; `listener` is told what is being done, with or without a bar
    on_answer is given the result before it is checked, so that it can be kept whatever comes; before that any result
              that is still refined, as the one that prices tell before variants are timed
    meanwhile whether it is checked while it is kept, by a second process where there may be one: for what takes long

    Stopping early, by a limit or by Ctrl-C, still gives the best program found by then, the baseline mapping where none
    was; `result.stopped` says why. With `verify=False` the check is left to `result.check()`. Raises BadInput, and
    Unfinished where there was no time for any answer.
    """
    with _told_to(listener, progress) as listener:
        program, target = _program(program, "optimized").as_written(), as_target(target)
        way = replace(way_of(target, blocking, mapping, method, extract_seconds, explain), trace=trace)
        limits = limits or Limits()
        key = answers.key(program, target, limits, way, seed, verify) if cache is not None and target.repeatable else ""
        if cache is not None and key:
            # The same search, or other e-nodes would be the first among equals: a trace numbers classes otherwise.
            how = {**way.choices(), "trace": trace}
            again = partial(optimize, program, target, limits=limits, verify=False, listener=listener, **how)
            known = answers.recall(cache, key, program, target, seed, again)
            if known is not None and _holds(known, cache, on_answer, verify, meanwhile):
                return known
        clock = Clock(load_seconds)
        stages = Stages(program, target, way, Search(limits, worker), listener, clock, seed, on_answer)
        try:
            result = stages.run()
        except KeyboardInterrupt:
            result = stages.at_once()
        try:
            checks = verify and result.stopped != INTERRUPTED  # whoever pressed Ctrl-C wants the answer now
            with beside(result.compared) if meanwhile and checks else nullcontext(lambda: None) as verdict:
                on_answer(result)
                if checks:
                    waited = time.perf_counter()  # for the verdict, too
                    result.check(_told(listener), verdict())
                    result.report.seconds["check"] = time.perf_counter() - waited
        except KeyboardInterrupt:
            answered()
            result.interrupted = True
        clock.finish()
        if cache is not None and key and {result.stopped, stages.stopped} <= {*REPEATABLE} and not result.interrupted:
            try:
                cache.put(key, answers.text(result))
            except CacheFull as error:  # the answer itself is whole: the caller says so after it is safe
                result.not_kept = error
        return result


def _holds(known: Result, cache: Cache, on_answer: Callable[[Result], None], verify: bool, meanwhile: bool) -> bool:
    """Give an answer of the cache on, and check it; whether it is one. With `meanwhile` it is checked while it is given
    on, and whatever is wrong then is said only if it is an answer.
    """
    compare = partial(answers.compared, known)
    failed: GlensideError | None = None
    try:
        with beside(compare) if meanwhile and verify else nullcontext(lambda: None) as verdict:
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
    """Why an answer of the cache is none, or "": what was found out by others, or is now; and what ended the check."""
    try:
        found = verdict or compare(lambda *_: None)
    except answers.DAMAGED as error:
        return f"it is no answer: {error!r}", ""
    right = is_equal(found.result) or found.result.startswith("not checked")
    return "" if right else found.result, found.stopped


DEFAULT_TARGET, AS_IT_IS = "cpu", "none"
"""The target of `compile` and `glenside compile`; and what leaves a program as it is."""


def compile(
    program: Program,
    target: Target | str | None = DEFAULT_TARGET,
    *,
    machine: str = "native",
    memory: int | str | None = None,
    check: bool = False,
    without: Sequence[str] = (),
    **how: Any,
) -> Function:
    """The program as a function on numpy arrays, made by the system's C compiler: `f = gl.compile(p); f(x, ..)`.

    target   what the program is optimized for first, as an object or as text: `gl.CPU()` or "cpu", which is the
             default, takes the least time on the machine. A program that "cpu" does not take is compiled as it is,
             with a warning. "none" or None compiles any program as it is, with the scales of batch norms in the weights
    machine  native, or another one of `glenside compile --help` that this computer is too; plain for plain loops of the
             program as it is, which compute each step as the interpreter does
    memory   the bytes that temporaries and results may take on one thread, or text such as "64MB": what does not fit is
             computed again, for the least work. With "cpu" it is the budget of `gl.CPU("64MB")`, which variants of
             layers keep to first; other targets have a budget of their own
    check    whether `f.check()` must be ok: exact over residues, and within bounds of rounding
    without  passes over loops that are left out, such as "fuse-padding" (`glenside compile --emit passes` lists them)
    how      see `optimize`

    Raises BadInput: a black box, a constant without a value, no compiler; CheckFailed, where a check is asked for and
    fails; Unverified, where loops break a condition.
    """
    from glenside.check.compiled import Function  # a back end takes as long to load as many a search
    from glenside.codegen.processor.model import machine_of
    from glenside.codegen.runtime.compiled_function import Lowered, keeping
    from glenside.passes.integer_sums import for_processors

    _program(program, "compiled")
    of = machine_of(machine)
    most = byte_count(memory, "a memory budget") if isinstance(memory, str) else memory
    if most is not None and most <= 0:
        raise BadInput(f"a memory budget is at least 1 byte, got {most}")
    by_default = target == DEFAULT_TARGET
    wanted = target_named(target, memory, of)
    if wanted is not None and most is not None and not by_default:
        raise BadInput(f"memory= is for the target cpu, or none: {wanted.name} has a budget of its own")
    if wanted is not None:
        wanted = wanted.compiled_for(of)
        try:
            result = optimize(program, wanted, **how)
        except GlensideError as error:
            if not by_default or how or error.status != GlensideError.status:
                raise
            warnings.warn(as_it_is(error), stacklevel=2)
        else:
            of = wanted.processor or of
            chosen = keeping([result.program, result.prepared], of, wanted.most_bytes, without)
            function = Function(chosen, of, result.report, wanted.most_bytes)
            return function.checked() if check else function
    elif how:
        raise BadInput(f"{', '.join(how)}: how to search is for programs that are compiled for a target")
    if of is not None:
        program = uninterrupted(*for_processors(program, Search()))
    function = Function(Lowered(program, of, most, without=without), of, None, most)
    return function.checked() if check else function


def target_named(target: Target | str | None, memory: int | str | None, machine: Machine | None) -> Target | None:
    """The target of an object or a text, "cpu" with that budget of memory; None for a program as it is, which plain
    loops are of. Raises BadInput.
    """
    if target is None or target == AS_IT_IS:
        return None
    if isinstance(target, str) and target == DEFAULT_TARGET:
        return None if machine is None else as_target(DEFAULT_TARGET if memory is None else f"cpu:{memory}")
    return as_target(target)


def as_target(target: Target | str) -> Target:
    """The target of an object or a text. Raises BadInput."""
    from glenside.targets import parse_target

    if isinstance(target, str):
        return parse_target(target)
    if not isinstance(target, Target):
        raise BadInput(f"a target is one such as gl.CPU(), or text such as 'cpu:8MB', got {target!r}")
    return target


def _program(given: Program, use: str) -> Program:
    """A program, which it must be. Raises BadInput."""
    if not isinstance(given, Program):
        raise BadInput(f"what is {use} is a program, such as gl.load gives, got {type(given).__name__}")
    return given


def as_it_is(error: GlensideError) -> str:
    """The words for a program that the default target does not take."""
    return f"the program is compiled as it is, not optimized: {error}"


@contextmanager
def _told_to(listener: Listener, progress: bool) -> Iterator[Listener]:
    """Whom to tell what is being done: the listener, and a bar where one is wanted and somebody looks."""
    if not progress:
        yield listener
        return
    with shown("fold") as bar:

        def both(event: Event) -> None:
            bar(event)
            listener(event)

        yield listener if bar is silent else both


def _told(listener: Listener) -> Callable[[int, int], None]:
    """What tells a listener how far a check is, as often as anybody sees."""
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
    """The instructions of a program on a machine, `gl.npu_program(p, gl.NPU(64), quantize="random")`: of a quantized
    network, or of one that is quantized here, input to result in one program; of another one each layer apart, on int8
    operands that are drawn.

    quantize  "random", or samples by input, (samples ..) in whole batches: weights are quantized by output channel,
              activations by tensor
    seed      of constants without a value, random samples, and what DRAM holds of inputs
    limits    of the search; its seconds bound lowering too, which then ends with the best program so far, and a warning
              says so. Without limits, lowering takes as long as it takes. No timer is set outside the main thread, or
              where there is one: then lowering looks at the time before each layer
    how       see `optimize`; run it to check it: by `glenside.npu.model.execute.run` or
              `glenside.npu.rtl.verilator.run`, and `glenside.npu.model.reference_results.wrong` of the DRAM they leave

    Raises BadInput: a target without instructions, a layer that the machine does not run, and what is not quantized.
    Unfinished: the time was over before there was a program.
    """
    from glenside.ir.stopwatch import watched
    from glenside.npu.lowering.pipeline.time_limit import InTime
    from glenside.passes.answer import Unfinished
    from glenside.quantization.asked import integers

    target = as_target(target)
    if not target.has_code:
        raise BadInput(f"{target.name} has no instructions: a program of an npu is for the target npu:RxC")
    asked = integers(_program(program, "run on an npu"), quantize, seed)
    how = {"verify": False, "limits": limits, **how}
    result = optimize(program if asked is None else asked.network.program, target, seed=seed, **how)
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
) -> Way:
    """How the target is to be searched for. Raises BadInput for a way that it does not have."""
    if method not in METHODS:
        raise BadInput(f"a method of extraction is one of {', '.join(METHODS)}, got {method!r}")
    way = Way(blocking, mapping, method, extract_seconds if method == "exact" else Way.extract_seconds, explain)
    target.accept(way)
    return way
