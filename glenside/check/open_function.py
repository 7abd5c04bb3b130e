"""Compiles programs with open sizes, and checks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import TypeVar

from glenside.check.compiled import CheckFailed
from glenside.check.open_search import OpenForm, OpenSearch
from glenside.codegen.lowering.quantized_activations import with_activations
from glenside.codegen.open_sizes.chain import OpenChain
from glenside.codegen.open_sizes.function import OpenFunction
from glenside.codegen.open_sizes.lowered import OpenLowered
from glenside.codegen.open_sizes.lowered_chain import LoweredChain, LoweredStage
from glenside.codegen.open_sizes.open_blocks import OpenBlocks
from glenside.codegen.open_sizes.template import NotUniform
from glenside.codegen.open_sizes.variants import OpenVariants
from glenside.codegen.processor.model import Machine, is_here
from glenside.codegen.verify.verifier import Unverified
from glenside.ir.errors import BadInput
from glenside.ir.open_program import OpenProgram
from glenside.ir.program import Program
from glenside.passes.integer_sums import for_processors, integer_sums
from glenside.passes.network import uninterrupted
from glenside.targets.base import PricesAlgebra

_Callable = TypeVar("_Callable", OpenFunction, OpenChain)
_Finished = TypeVar("_Finished")


def compiled_open(
    program: OpenProgram, target: PricesAlgebra | None, of: Machine | None, check: bool, activations: str
) -> OpenFunction | OpenVariants | OpenChain:
    """Compiles a program with open sizes for a machine; with a target, in the forms that are cheapest at its sizes.

    Repeated blocks of a program are compiled once. Raises BadInput; CheckFailed if `check` is set and fails.
    """
    if of is not None and not is_here(of):
        raise BadInput(f"this computer has no {of.name}")
    remarks = list[str]()
    chain = _in_stages(program, target, of, activations, lambda own: _checked(OpenChain(own), check), remarks)
    if chain is not None:
        return chain
    variants, choose = lowered_variants(_rounding(program, activations), of, target)
    variants[0].remarks += remarks
    functions = [checked_function(one, check) for one in variants]
    return functions[0] if len(functions) == 1 else OpenVariants(functions, choose)


def lowered_for_c(
    program: OpenProgram, target: PricesAlgebra | None, of: Machine | None, check: bool, activations: str = "float32"
) -> OpenLowered | LoweredChain:
    """Lowers a program with open sizes that is written as C for a machine; where it is here, compiles it, too.

    Repeated blocks of a program are lowered once. Raises BadInput, Unverified; CheckFailed if `check` is set and fails.
    """
    compiles, remarks = of is None or is_here(of), list[str]()

    def finish(chain: LoweredChain) -> LoweredChain:
        if compiles:
            chain.compiled = _checked(OpenChain(chain), check)
        return chain

    chain = _in_stages(program, target, of, activations, finish, remarks)
    if chain is not None:
        found: OpenLowered | LoweredChain = chain
        counts = [len(own.variants) for own in chain.stages]
    else:
        variants, _ = lowered_variants(_rounding(program, activations), of, target)
        found, counts = variants[0], [len(variants)]
        if compiles:
            found.compiled = checked_function(found, check)
    found.remarks += remarks
    found.remarks += [f"C has one variant: {max(counts)} pay in Python"] if max(counts) > 1 else []
    return found


def _rounding(program: OpenProgram, activations: str, require: bool = True) -> OpenProgram:
    return program.mapped(lambda own: with_activations(own, activations, require=require))


def _in_stages(
    program: OpenProgram,
    target: PricesAlgebra | None,
    of: Machine | None,
    activations: str,
    finish: Callable[[LoweredChain], _Finished],
    remarks: list[str],
) -> _Finished | None:
    """Lowers the repeated blocks of a program once; None if it has none, or they differ, which is then a remark."""
    try:
        chain = _lowered_chain(program, target, of, activations)
        return None if chain is None else finish(chain)
    except (BadInput, NotUniform, Unverified) as error:
        remarks.append(f"repeated blocks are compiled one by one: {error}")
        return None


def _lowered_chain(
    program: OpenProgram, target: PricesAlgebra | None, of: Machine | None, activations: str
) -> LoweredChain | None:
    """Lowers a program as a chain of blocks; None if it has no repeated ones.

    Raises BadInput, NotUniform, Unverified: blocks that are not the same at all sizes.
    """
    blocks = OpenBlocks.of(program)
    if blocks is None:
        return None
    with_activations(blocks.sample, activations)  # some stages may have no products
    known: dict[int, LoweredStage] = {}
    stages = list[LoweredStage]()
    for number, stage in enumerate(blocks.first):
        own = _rounding(blocks.program(number), activations, require=False)
        if stage.kind not in known:
            known[stage.kind] = LoweredStage(stage, *lowered_variants(own, of, target, infers_sizes=False))
            stages.append(known[stage.kind])
            continue
        like, variants = known[stage.kind], list[OpenLowered]()
        for one in like.variants:
            variants.append(one.with_constants(own, [*variants]))
        stages.append(LoweredStage(stage, variants, like.choose))
    return LoweredChain(_rounding(program, activations), blocks.sample, stages)


def lowered_variants(
    program: OpenProgram, of: Machine | None, target: PricesAlgebra | None, infers_sizes: bool = True
) -> tuple[list[OpenLowered], Callable[[Mapping[str, int]], int]]:
    """Lowers the forms of a program with open sizes that are cheapest at some of them; without a target, as written.

    of  the machine, or None for plain loops

    Returns them, the one that saves most first, and which is the cheapest at given sizes. Raises BadInput, Unverified.
    """
    if target is None or of is None:
        return [lowered_open(program, of, infers_sizes)], lambda _: 0
    began, prepare = perf_counter(), prepared_for_processors()
    search = OpenSearch(program, target, prepare)
    choice = search.choice()
    seconds, found = perf_counter() - began, list[OpenLowered]()
    for form in choice.forms:
        lowered = OpenLowered(program, of, partial(_formed, form, prepare), found, infers_sizes)
        lowered.seconds = {"search": seconds, **lowered.seconds}
        lowered.remarks += [*search.remarks, *([str(form)] if form.taken or len(choice.forms) > 1 else [])]
        found.append(lowered)
    return found, choice.at


def lowered_open(program: OpenProgram, of: Machine | None, infers_sizes: bool = True) -> OpenLowered:
    """Lowers a program with open sizes as it is written for a machine, or to plain loops for None.

    Raises BadInput, Unverified.
    """
    if of is None:
        return OpenLowered(program, of, infers_sizes=infers_sizes)
    prepare = partial(_formed, OpenForm(), prepared_for_processors())
    return OpenLowered(program, of, prepare, infers_sizes=infers_sizes)


def _formed(form: OpenForm, prepare: Callable[[Program], Program], own: Program, sizes: Mapping[str, int]) -> Program:
    """Returns a form of the program of given sizes, after the passes of processors."""
    return form.of(own, sizes) if form.is_for(own, sizes) else prepare(own)


def prepared_for_processors() -> Callable[[Program], Program]:
    """Returns the passes for programs of several sizes: integer sums, and batch norms folded into weights."""
    changes = [True]

    def prepare(own: Program) -> Program:
        if not changes[0]:
            return integer_sums(own)
        found = uninterrupted(*for_processors(own))
        changes[0] = found.term is not integer_sums(own).term  # batch norms are in programs of all sizes, or in none
        return found

    return prepare


def checked_function(lowered: OpenLowered, check: bool) -> OpenFunction:
    """Compiles a lowered program, and with `check` compares its results. Raises BadInput, CheckFailed."""
    return _checked(OpenFunction(lowered), check)


def _checked(function: _Callable, check: bool) -> _Callable:
    if check and (wrong := function.wrong()):
        raise CheckFailed(f"{function.name} as compiled fails its check {'; '.join(wrong)}")
    return function
