"""Lowers a program with open sizes: at sample sizes, generalized, and verified at the ends of the ranges and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from time import perf_counter

import numpy as np

from glenside.codegen.cost.count_work import is_shared
from glenside.codegen.emit_c.printer import source
from glenside.codegen.loop_ir.ir import Buffer, Loops, Packing, Role, required
from glenside.codegen.loop_ir.results_in_place import in_place
from glenside.codegen.lowering.constant_preparation import prepared
from glenside.codegen.memory.buffer_arena import Arena, arena
from glenside.codegen.open_sizes.callable import OpenCallable, require_inferable
from glenside.codegen.open_sizes.open_terms import have_same, program_of_all_sizes, same_array
from glenside.codegen.open_sizes.samples import Samples, sample_sizes, sizes_of, verified_sizes
from glenside.codegen.open_sizes.source_text import SourceTemplate, tokens_of
from glenside.codegen.open_sizes.template import Misfit, NotUniform, OpenBuffer, Shapes, Template, operands_of, terms_of
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import Machine
from glenside.codegen.runtime.arguments import given_array
from glenside.codegen.scheduling.constant_packing import packed_constants
from glenside.codegen.translation_validation.validate import packed_wrongly
from glenside.codegen.verify.verifier import Unverified, verify
from glenside.codegen.verify.verify_loops import Checker
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.open_program import OpenProgram, sizes_in_words
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term

_SECONDS, _LEAST_VERIFIED, _MOST_VERIFIED = 1.0, 6, 24
"""The time limit of verification, in seconds, and the least and the most sizes that are verified."""


_WINDOWS_TRIED, _MAX_RANK = 6, 5
"""The sizes at which windows of constants are compared, and their most axes."""
_ELSE = "; a range without these sizes may hold"
_TEXTS = 2
"""Sizes, other than the ends of the ranges, of which C is printed and compared."""
_LIKE = 2
"""Samples at which programs that differ in constants are compared."""
_MOST_KEPT = 8
"""Programs of some sizes that are kept."""
_PERIOD = 400
"""The sizes below the greatest ones among which temporaries of rests are largest: more than two tiles together."""
_LEFT_OUT = ("fuse-softmax-rows", "fuse-producer-consumer", "interleave-phases", "fuse-padding", "parallelize")
"""Passes that are left out if loops do not hold at all sizes with them."""


@dataclass(frozen=True)
class Verified:
    """The verification of loops at one choice of sizes.

    whole  False if the program of these sizes has other terms, or its C is shorter, so that its meaning is compared by
           running it
    """

    sizes: Mapping[str, int]
    whole: bool


def _ways(machine: Machine | None) -> list[tuple[Machine | None, Sequence[str]]]:
    """Returns for which machine, and without which passes, loops are lowered, the best first."""
    tiled: list[tuple[Machine | None, Sequence[str]]] = [(machine, ()), (machine, _LEFT_OUT)] if machine else []
    return [*tiled, (None, ())]


class OpenLowered:
    """A program with open sizes as loops and C of all sizes in its ranges.

    prepare   what is done with the program of given sizes before it is lowered
    variants  other forms of the program, whose packed constants are used where they are the same
    infers_sizes  True if each open size must be that of an axis of an input
    made      arrays of constants that are the same at all sizes: of buffers, and of packings
    compiled  the function of it, where it is compiled
    compared  those of these packings that are verified

    Raises BadInput: a program that cannot be built at sizes of its ranges, or whose loops are not uniform; Unverified.
    """

    def __init__(
        self,
        program: OpenProgram,
        machine: Machine | None,
        prepare: Callable[[Program, Mapping[str, int]], Program] = lambda p, _: p,
        variants: Sequence[OpenLowered] = (),
        infers_sizes: bool = True,
    ) -> None:
        self.open, self.machine, self._prepare, self._variants = program, machine, prepare, variants
        self.infers_sizes = infers_sizes
        self.verified: list[Verified] = []
        self.remarks: list[str] = []
        self.compiled: OpenCallable | None = None
        self._programs: dict[tuple[int, ...], Program] = {}
        self._corners = list(program.corners())
        self._varying, self._terms = self._varying_terms()
        self.seconds: dict[str, float] = {}
        self._generalize()
        self._programs.clear()
        self._checker = Checker()  # what it knows of verified loops is not kept

    def _generalize(self) -> None:
        """Makes and verifies the loops and C of all sizes: tiled ones, or plain ones if these do not hold.

        Raises BadInput.
        """
        wrong: list[Exception] = []
        for machine, without in _ways(self.machine):
            for samples in sample_sizes(self.open):
                try:
                    self._make(samples, machine, without)
                except (BadInput, NotUniform, Unverified) as error:
                    wrong.append(error)
                    continue
                if machine is not self.machine:
                    self.remarks.append(f"plain loops, as tiled ones are not the same for all sizes: {wrong[0]}")
                elif without:
                    self.remarks.append(f"without the passes {', '.join(without)}: {wrong[0]}")
                return
        if isinstance(wrong[-1], GlensideError):  # that of sizes in the ranges
            raise wrong[-1]
        ranges = ", ".join(f"{name}: ({a}, {b}, 2)" for name, (a, b, _) in self.open.ranges.items())
        raise BadInput(
            f"{self.open.name} is not one program for all sizes ({wrong[-1]}); "
            f"strides and pools may need sizes by steps, such as {{{ranges}}}"
        )

    def _make(self, samples: Samples, machine: Machine | None, without: Sequence[str]) -> None:
        """Makes and verifies the loops and C of all sizes from samples. Raises BadInput, NotUniform, Unverified."""
        began = perf_counter()
        self.verified = []
        self.made: dict[Buffer | Packing, Array] = {}
        self._compared: set[Buffer | Packing] = set()
        self._checker = Checker()
        programs = [self.program_at(own) for own in samples.sizes]
        self._samples = [(sizes, own.term) for sizes, own in zip(samples.sizes[:_LIKE], programs, strict=False)]
        self.program = program_of_all_sizes(programs, samples.sizes, samples.representative, sizes_of(self.open))
        try:
            loops = lower(self.program, machine, without)
        except (ArithmeticError, LookupError, ValueError, TypeError) as error:  # passes expect fixed integers
            raise NotUniform(f"its loops cannot be chosen for all sizes ({type(error).__name__}: {error})") from error
        self.template = Template(self.program, loops)
        self.buffers: Sequence[OpenBuffer] = self.template.buffers
        self.inputs = [b for b in self.buffers if b.role is Role.INPUT]
        if self.infers_sizes:
            require_inferable(self.open, self.inputs)
        self.planned_elements = self._most_elements()
        self._plan_temporaries()
        self.greatest = self.template.at(self.open.greatest, None, self.planned_elements)
        self.in_place = self._in_place(samples.representative)
        self.operators = [require.operator for require in required(self.greatest)]
        self.arena = arena(self.greatest, in_place=False)
        loops = self.template.symbolic()
        printed = source(loops, self.planned(loops), is_open=True)
        self.text = SourceTemplate(printed, list(self.open.ranges))
        self.written = self.text.source
        self._sort_constants(programs)
        self.seconds["lower"] = perf_counter() - began
        self._verify_some()
        self.seconds["verify"] = perf_counter() - began - self.seconds["lower"]

    def _in_place(self, representative: Mapping[str, int]) -> dict[str, int]:
        """Returns the number of the result that may be stored in the memory of an input, by the input's name."""
        found: dict[str, int] | None = None
        for sizes in (self.open.greatest, representative):
            loops = self.template.at(sizes, None)
            own = {name: loops.buffers.index(result) for name, result in in_place(loops).items()}
            found = own if found is None else {name: n for name, n in found.items() if own.get(name) == n}
        return found or {}

    def _varying_terms(self) -> tuple[list[int], int]:
        """Returns the positions of terms that depend on the sizes, and the number of all terms."""
        for samples in sample_sizes(self.open):
            try:
                pair = [terms_of(self._prepare(self.open.at(sizes), sizes)) for sizes in samples.sizes[:2]]
            except GlensideError:
                continue
            if len(pair[0]) != len(pair[1]):
                continue
            found: dict[Term, int] = {}
            for position, (one, other) in enumerate(zip(*pair, strict=True)):
                varies = (one.type, one.attributes) != (other.type, other.attributes)
                if varies or any(child in found for child in one.children):
                    found[one] = position
            return list(found.values()), len(pair[0])
        return [], 0

    def program_at(self, sizes: Mapping[str, int]) -> Program:
        """Returns the program of given sizes as it is lowered. Raises BadInput, which names the sizes."""
        key = tuple(sizes.values())
        if key in self._programs:
            return self._programs[key]
        try:
            found = self.open.at(sizes)
        except GlensideError as error:
            is_own = all(low <= sizes[name] <= high for name, (low, high, _) in self.open.ranges.items())
            raise BadInput(f"at {sizes_in_words(sizes)}: {error.message}" if is_own else error.message) from None
        found = self._prepare(found, sizes)
        if self.machine is not None:
            terms = terms_of(found)
            is_known = len(terms) == self._terms
            found = prepared(found, [terms[i] for i in self._varying] if is_known else ())
        self._programs[key] = found
        if len(self._programs) > _MOST_KEPT:
            self._programs.pop(next(iter(self._programs)))
        return found

    def planned(self, loops: Loops) -> Arena:
        """Returns the arena for the loops of some sizes: the plan for the greatest ones."""
        own = dict(zip(self.greatest.buffers, loops.buffers, strict=True))
        places = {own[buffer]: place for buffer, place in self.arena.places.items()}
        return replace(self.arena, places=places, in_place={own[a]: own[b] for a, b in self.arena.in_place.items()})

    def with_constants(self, program: OpenProgram, variants: Sequence[OpenLowered]) -> OpenLowered:
        """Returns the same loops and C for a program with other constants. Raises NotUniform, Unverified.

        Raises NotUniform if the program has other terms after the passes, or another constant of one element.
        """
        own = copy(self)
        own.open, own._variants, own._programs, own.made, own._compared = program, variants, {}, {}, set()
        programs = [own.program_at(sizes) for sizes, _ in self._samples]
        if any(found.term is not term for found, (_, term) in zip(programs, self._samples, strict=True)):
            raise NotUniform("blocks differ after the passes")
        single = [name for name, tensor in programs[0].constants_declared.items() if tensor.dims.product() == 1]
        if any(name not in self.fixed or not have_same(name, [self.fixed[name], programs[0]]) for name in single):
            raise NotUniform("blocks have different numbers")
        if not all(have_same(name, programs) for name in self.fixed):
            raise NotUniform("constants depend on the sizes in some blocks alone")
        own.fixed = dict.fromkeys(self.fixed, programs[0])
        if self.windows:
            greatest = own.program_at(self.open.greatest).constants
            own.windows = {name: replace(window, whole=greatest[name]) for name, window in self.windows.items()}
            own.computed = {*self.computed}
            for one in self.verified:
                own._verify_constants(own.program_at(one.sizes), one.sizes)
            if len(own.windows) < len(self.windows):
                raise NotUniform("constants depend on the sizes in some blocks alone")
        own._require_packed()
        own._programs = {}
        return own

    def _require_packed(self) -> None:
        """Raises Unverified if constants of the greatest sizes are not packed from those of the program."""
        packings = [packing for packing in self.greatest.packings if packing.source.name in self.fixed]
        if not packings:
            return
        constants = self.constants_at(self.greatest, self.open.greatest)
        for fault in packed_wrongly(packings, constants, self.fixed[packings[0].source.name].constants):
            raise Unverified(str(fault))

    @property
    def shares(self) -> bool:
        """True if some loop is parallel."""
        return any(map(is_shared, self.greatest.nests))

    @property
    def has_open_constants(self) -> bool:
        """True if constants depend on the sizes."""
        return bool(self.windows or self.computed)

    def require_planned(self, sizes: Mapping[str, int]) -> None:
        """Raises BadInput if a temporary of these sizes is larger than the memory planned for the greatest ones."""
        for (name, most), dims in zip(self._planned_temporaries, self._shapes.at(sizes), strict=True):
            if prod(dims) > most:
                raise BadInput(f"at {sizes_in_words(sizes)} the temporary {name} is larger than was planned")

    def _plan_temporaries(self) -> None:
        """Keeps one temporary of each dims that depend on the sizes, with its planned elements."""
        own = {b.dims: (b.name, most) for b in self.buffers if (most := self.planned_elements.get(b.name)) is not None}
        open_ones = {dims: planned for dims, planned in own.items() if any(size.terms for size in dims)}
        self._planned_temporaries, self._shapes = [*open_ones.values()], Shapes(open_ones)

    def _most_elements(self) -> dict[str, int]:
        """Returns the most elements of each temporary: rests of tiles are not the largest at the greatest sizes."""
        most = [*self.open.corners()]
        for name, (low, high, step) in self.open.ranges.items():
            sizes = range(max(low, high - _PERIOD * step), high, step)
            most += [{**self.open.greatest, name: size} for size in sizes]
        own = [b for b in self.buffers if b.role is Role.TEMPORARY]
        different = list(dict.fromkeys(b.dims for b in own))
        every = [list(map(prod, Shapes(different).at(sizes))) for sizes in most]
        greatest = dict(zip(different, map(max, zip(*every, strict=True)), strict=True))
        return {b.name: greatest[b.dims] for b in own}

    def _sort_constants(self, programs: Sequence[Program]) -> None:
        """Finds the constants that are the same for all sizes, and those that are windows of the greatest one."""
        first = programs[0].constants
        self.windows: dict[str, Window] = {}
        self.computed: set[str] = set()
        self.fixed: dict[str, Program] = {}
        names = [b.name for b in self.buffers if b.role is Role.CONSTANT]
        names += [p.source.name for p in self.greatest.packings if p.source.role is Role.CONSTANT]
        varying: list[str] = []
        for name in dict.fromkeys(name for name in names if name in first):
            if have_same(name, programs):
                self.fixed[name] = programs[0]
            else:
                varying.append(name)
        if not varying:
            return
        tried = list(verified_sizes(self.open, _WINDOWS_TRIED))
        alike = [(sizes, program) for sizes in tried if self._is_alike(program := self.program_at(sizes))]
        found = [(sizes, program.constants) for sizes, program in alike]  # the others name constants differently
        greatest = self.program_at(self.open.greatest).constants
        for name in varying:
            own = [(sizes, constants[name]) for sizes, constants in found if name in constants]
            window = window_of(greatest[name], own, self.open.greatest) if name in greatest else None
            if window is None or not own:
                self.computed.add(name)
            else:
                self.windows[name] = window

    def constants_at(
        self, loops: Loops, sizes: Mapping[str, int], program: Program | None = None
    ) -> dict[Buffer, Array]:
        """Returns the constants of loops of given sizes, in the order in which loops read them."""
        packings = {p.buffer: p for p in loops.packings if p.buffer.role is Role.CONSTANT}
        own = {b: packings.get(b, b) for b in loops.buffers if b.role is Role.CONSTANT} | packings
        names = {b: made.source.name if isinstance(made, Packing) else b.name for b, made in own.items()}
        if program is None and any(name in self.computed for name in names.values()):
            program = self.program_at(sizes)
        given = _Given(lambda buffer: given_array(buffer, self._value(buffer, program, sizes)))
        found = {b: self.made[made] for b, made in own.items() if made in self.made}
        found |= {b: given[b] for b in own if b not in found and b not in packings}
        known = {b: self._of_variants(p) for b, p in packings.items() if b not in found}
        found |= {b: array for b, array in known.items() if array is not None}
        found |= packed_constants([p for b, p in packings.items() if b not in found], given)
        self.made |= {own[b]: array for b, array in found.items() if names[b] in self.fixed}
        return {b: found[b] for b in own}

    def _of_variants(self, packing: Packing) -> Array | None:
        """Returns a packed constant of another variant, if it is the same."""
        name = packing.source.name
        for other in self._variants:
            both = [one.fixed[name] for one in (self, other) if name in one.fixed]
            if len(both) == 2 and have_same(name, both):
                for own, array in other.made.items():
                    if isinstance(own, Packing) and own.source.name == name and own.is_like(packing):
                        return array
        return None

    def _value(self, buffer: Buffer, program: Program | None, sizes: Mapping[str, int]) -> Array:
        if buffer.name in self.fixed:
            return self.fixed[buffer.name].constants[buffer.name]
        if buffer.name in self.windows:
            return np.ascontiguousarray(self.windows[buffer.name].at(tuple(buffer.dims), sizes))
        assert program is not None, "the program of these sizes has been built"
        if buffer.name not in program.constants:
            raise BadInput(f"at {sizes_in_words(sizes)} there is no {buffer.name}, a constant of other sizes{_ELSE}")
        return program.constants[buffer.name]

    def _verify_some(self) -> None:
        began = perf_counter()
        for count, sizes in enumerate(verified_sizes(self.open, _MOST_VERIFIED)):
            if count >= max(_LEAST_VERIFIED, len(list(self.open.corners()))) and perf_counter() - began > _SECONDS:
                return
            self.verified.append(self.verify(sizes))

    def verify(self, sizes: Mapping[str, int]) -> Verified:
        """Verifies the loops and the C of given sizes. Raises BadInput, and Unverified."""
        program = self.program_at(sizes)
        whole = self._is_alike(program)
        try:
            loops = self.template.at(sizes, program if whole else None)
        except Misfit as error:
            raise Unverified(f"at {sizes_in_words(sizes)} {error}: a mistake of Glenside") from error
        self.require_planned(sizes)
        plan = self.planned(loops)
        at = f"at {sizes_in_words(sizes)}"
        if whole:  # others have constants of other names, and results are compared
            self._verify_constants(program, sizes)
        constants = self.constants_at(loops, sizes, program)
        try:
            if whole:
                new = [packing for packing in loops.packings if packing not in self._compared]
                verify(loops, plan, program, constants, new, self._checker)
                self._compared |= self.made.keys() & {*loops.packings}
            else:
                for fault in self._checker.faults(loops, plan):
                    raise Unverified(str(fault))
        except Unverified as error:
            raise BadInput(f"{at} the loops of other sizes do not hold: {error}{_ELSE}") from error
        if not whole or not self._is_printed(sizes):
            return Verified(dict(sizes), whole)
        own, of_all = tokens_of(source(loops, plan, is_open=True)), self.text.at(sizes)
        return Verified(dict(sizes), own == of_all)

    def _is_printed(self, sizes: Mapping[str, int]) -> bool:
        """True if the C of these sizes is compared: the least ones and some that are no ends of the ranges."""
        inner = [own.sizes for own in self.verified if own.sizes not in self._corners]
        return not self.verified or (sizes not in self._corners and len(inner) < _TEXTS)

    def _verify_constants(self, program: Program, sizes: Mapping[str, int]) -> None:
        """Raises BadInput if a constant that is the same for all sizes is another one."""
        for name, first in self.fixed.items():
            if name in program.constants and not have_same(name, [first, program]):
                raise BadInput(f"at {sizes_in_words(sizes)} the constant {name} is another one")
        for name, window in [*self.windows.items()]:
            own = program.constants.get(name)
            if own is not None and not same_array(window.at(own.shape, sizes), own):
                del self.windows[name]
                self.computed.add(name)

    def _is_alike(self, program: Program) -> bool:
        """True if a program has the terms of the samples, but for sizes."""
        return operands_of(terms_of(program)) == operands_of(terms_of(self.program))


@dataclass(frozen=True)
class _Given:
    """Arrays of buffers, made when they are read."""

    made: Callable[[Buffer], Array]

    def __getitem__(self, buffer: Buffer) -> Array:
        return self.made(buffer)


@dataclass(frozen=True)
class Window:
    """The constants of all sizes as windows of that of the greatest sizes.

    begins  for each axis, the size by whose distance from the greatest one the window is moved; "" if it is not
    """

    whole: Array
    begins: tuple[str, ...]
    greatest: Mapping[str, int]

    def at(self, dims: Sequence[int], sizes: Mapping[str, int]) -> Array:
        """Returns the window of these dims; it is empty or smaller if it does not fit."""
        first = [self.greatest[name] - sizes[name] if name else 0 for name in self.begins]
        return self.whole[tuple(slice(begin, begin + n) for begin, n in zip(first, dims, strict=True))]


def window_of(
    whole: Array, others: Sequence[tuple[Mapping[str, int], Array]], greatest: Mapping[str, int]
) -> Window | None:
    """Returns the window that constants of several sizes are, or None."""
    if any(own.ndim != whole.ndim for _, own in others):
        return None
    for begins in product(*([("", *greatest)] * whole.ndim if whole.ndim <= _MAX_RANK else ())):
        found = Window(whole, begins, greatest)
        if all(same_array(found.at(own.shape, sizes), own) for sizes, own in others):
            return found
    return None


__all__ = ["NotUniform", "OpenLowered", "Verified"]
