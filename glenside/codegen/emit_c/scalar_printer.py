"""Prints formulas as scalar C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from glenside.codegen.emit_c.nibbles import nibble
from glenside.codegen.emit_c.scalar_primitives import (
    BITS,
    PRIMITIVES_IN_C,
    STORED_AS,
    from_memory,
    held,
    in_memory,
    needed,
    whole_function,
)
from glenside.codegen.loop_ir.affine_analysis import substituted
from glenside.codegen.loop_ir.intrinsics import Instruction, expanded
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Choose,
    Convert,
    Counter,
    Formula,
    Load,
    Local,
    Number,
    Role,
    Store,
)
from glenside.ir.dtypes import HALVES, RECORDS, STORED, WHOLE, limits
from glenside.ir.errors import BadInput
from glenside.ir.index_map import Axis, Guard, Index, Within
from glenside.ir.open_integer import OpenFraction


class Formulas:
    """Prints formulas, and holds the state of the function that is being printed.

    functions  helper functions, in order of need
    names      buffers of the current function -> their names
    written    buffers that the current function writes
    steps      counters of unrolled loops -> their current values
    lane       counter of the current vector loop
    declared   declared register variables
    vectors    register buffers that hold vectors -> number of lanes
    """

    def __init__(self) -> None:
        self.functions: dict[str, None] = {}
        self.names: dict[Buffer, str] = {}
        self.written: set[Buffer] = set()
        self.steps: dict[Axis, Index] = {}
        self.lane: Axis | None = None
        self.declared: set[str] = set()
        self.vectors: dict[Buffer, int] = {}

    def name(self, buffer: Buffer) -> str:
        """Returns the name of a buffer in the current function."""
        return self.names.setdefault(buffer, f"p{len(self.names)}")

    # Representation of elements; `verify.residue_program` and `verify.rounding_bounds` override it.

    def memory(self, buffer: Buffer) -> str:
        """Returns the C type of an element in memory."""
        return STORED_AS[buffer.dtype]

    def computed(self, dtype: str) -> str:
        """Returns the C type of a value."""
        return held(dtype)

    def loaded(self, element: str, buffer: Buffer) -> str:
        """Converts an element of a buffer to a value."""
        self.need(buffer.dtype)
        return from_memory(element, buffer.dtype)

    def kept(self, value: str, buffer: Buffer) -> str:
        """Converts a value to an element of a buffer."""
        self.need(buffer.dtype)
        return in_memory(value, buffer.dtype)

    def element(self, load: Load) -> str:
        """Returns an element as it is in memory."""
        if load.picked:
            return f"{self.name(load.buffer)}[{self.place(load)}]"
        if load.buffer.nibbles:
            return f"{self.helper(*nibble(load.buffer.nibbles))}({', '.join(self.address(load.buffer, load.place))})"
        return "{}[{}]".format(*self.address(load.buffer, load.place))

    def stored(self, store: Store) -> str:
        """Returns the stored value; a plain copy of a half or storage-only dtype moves the bits."""
        formula, buffer = store.formula, store.buffer
        if (
            isinstance(formula, Load)
            and formula.dtype == buffer.dtype in BITS
            and Role.REGISTER
            not in (
                formula.buffer.role,
                buffer.role,
            )
        ):
            if self.memory(formula.buffer) == self.memory(buffer):
                return self.element(formula)
        return self.kept(self.formula(formula), buffer)

    def need(self, dtype: str) -> None:
        """Adds the helper functions that convert elements of a dtype to values and back."""
        if text := needed(dtype):
            self.functions.setdefault(text)

    def sorted_as(self, dtype: str) -> str:
        """Returns the dtype by which elements in memory are sorted."""
        return dtype

    def number(self, number: Number) -> str:
        """Returns an exact number as C."""
        return number_in_c(number)

    def decided(self, condition: Formula) -> str:
        """Returns a C condition: the formula is not 0."""
        return self.formula(condition)

    def formula(self, formula: Formula) -> str:
        """Returns a formula as C, of the type in which its dtype is computed."""
        if isinstance(formula, Number):
            return self.number(formula)
        if isinstance(formula, Counter):
            return f"(int64_t)({self.index(formula.index)})"
        if isinstance(formula, Local):
            return formula.name
        if isinstance(formula, Load):
            if formula.buffer.role is Role.REGISTER:
                return self.register(formula)
            return self.loaded(self.element(formula), formula.buffer)
        if isinstance(formula, Choose):
            guards = " && ".join(self.guard(guard) for guard in formula.guards)
            return f"(({guards}) ? {self.formula(formula.then)} : {self.formula(formula.otherwise)})"
        if isinstance(formula, Convert):
            return self.converted(formula)
        if isinstance(formula.primitive, Instruction):
            return self.formula(expanded(formula))
        return self.applied(formula)

    def converted(self, formula: Convert) -> str:
        """Returns a cast or a bitcast."""
        given, wanted, value = formula.formula.dtype, formula.dtype, self.formula(formula.formula)
        if formula.bits:
            name = f"bits_{given}_{wanted}"
            self.functions.setdefault(
                f"static inline {STORED_AS[wanted]} {name}({STORED_AS[given]} x)"
                f" {{ {STORED_AS[wanted]} y; memcpy(&y, &x, sizeof y); return y; }}"
            )
            self.need(given)
            self.need(wanted)
            return from_memory(f"{name}({in_memory(value, given)})", wanted)
        if wanted == "bool":
            return f"(uint8_t)({value} != 0)"
        if wanted in HALVES or (wanted in STORED and RECORDS[wanted].kind == "float"):
            self.need(wanted)
            return f"round_{wanted}((double){value})"
        if wanted in WHOLE and RECORDS[given].kind == "float":
            name = f"{wanted}_of_real"
            self.functions.setdefault(whole_function(name, wanted))
            return f"{name}((double){value})"
        return self.wrapped(value, wanted)

    def wrapped(self, value: str, dtype: str) -> str:
        """Casts an integer to another dtype; it wraps."""
        kept = f"({held(dtype)}){value}"
        if dtype not in STORED:
            return kept
        self.need(dtype)
        return from_memory(in_memory(kept, dtype), dtype)

    def applied(self, formula: Apply) -> str:
        """Applies a primitive to its operands."""
        return self.of_texts(formula, [self.formula(operand) for operand in formula.operands])

    def of_texts(self, formula: Apply, operands: Sequence[str]) -> str:
        """Applies a primitive to operands that are C already. Raises BadInput."""
        dtype = formula.operands[-1].dtype
        write = PRIMITIVES_IN_C.get(formula.primitive.name)
        if write is None:
            raise BadInput(f"{formula.primitive.name} is not compiled yet")
        text = write(self, dtype, *operands)
        return f"round_{dtype}({text})" if dtype in HALVES and formula.dtype == dtype else text

    def index(self, index: Index) -> str:
        """Returns an index as C, at the current steps of unrolled loops."""
        return _index(substituted(index, self.steps) if self.steps else index)

    def address(self, buffer: Buffer, place: Index) -> tuple[str, str]:
        """Returns the base pointer of an element of a buffer, and its offset."""
        return self.name(buffer), self.index(place)

    def place(self, access: Load | Store) -> str:
        """Returns the index of an access, with its computed indices."""
        return " + ".join([self.index(access.place), *(f"{local.name} * {step}" for local, step in access.picked)])

    def guard(self, guard: Guard) -> str:
        """Returns a guard as a C condition."""
        return _guard(replace(guard, index=substituted(guard.index, self.steps)) if self.steps else guard)

    def target(self, store: Store) -> str:
        """Returns the left side of an assignment."""
        if store.buffer.role is Role.REGISTER:
            name = self.register(store)
            if name in self.declared:
                return name
            self.declared.add(name)
            return f"{self.kind(store.buffer.dtype)} {name}"
        self.written.add(store.buffer)
        return f"{self.name(store.buffer)}[{self.place(store)}]"

    def kind(self, dtype: str) -> str:
        """Returns the C type of a register variable."""
        return held(dtype)

    def register(self, access: Load | Store) -> str:
        """Returns the variable that holds an element of a register tile, or a vector of it."""
        place = substituted(access.place, self.steps).constant
        if self.lane is not None:
            self.vectors[access.buffer] = self.lane.size
            return f"{access.buffer.name}_{place // self.lane.size}"
        lanes = self.vectors.get(access.buffer, 1)
        return f"{access.buffer.name}_{place // lanes}" + (f"[{place % lanes}]" if lanes > 1 else "")

    def helper(self, name: str, text: str) -> str:
        """Adds a helper function once; returns its name."""
        self.functions.setdefault(text)
        return name


def _index(index: Index) -> str:
    parts = [str(index.constant)] if index.constant or not index.terms else []
    for atom, factor in index.terms:
        if isinstance(atom, Axis):
            text = f"i{atom.number}"
        elif atom.expression.bounds[0] >= 0:
            text = f"({_index(atom.expression)} {'%' if atom.remainder else '/'} {atom.divisor})"
        else:  # floor division, where C truncates
            d = atom.divisor
            shift = (d - 1 - atom.expression.bounds[0]) // d
            moved = f"(({_index(atom.expression)}) + {shift * d})"
            text = f"({moved} % {d})" if atom.remainder else f"({moved} / {d} - {shift})"
        parts.append(text if factor == 1 else f"{factor} * {text}")
    return f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]


def _guard(guard: Guard) -> str:
    text = _index(guard.index)
    if not isinstance(guard, Within):
        return f"({text}) % {guard.divisor} == 0"
    low, high = guard.index.bounds
    bounds = [f"{text} >= {guard.low}"] if low < guard.low else []
    bounds += [f"{text} < {guard.high}"] if high >= guard.high else []
    return " && ".join(bounds) or "1"


def number_in_c(number: Number) -> str:
    """Returns an exact number as a C constant of its dtype."""
    dtype, value = number.dtype, number.value
    kind = RECORDS[dtype].kind
    if value is None:
        return {"float": "-INFINITY", "bool": "0"}.get(kind) or _whole(limits(dtype)[0], dtype)
    if isinstance(value, OpenFraction) and kind == "integer":
        return f"({held(dtype)}){value.above}"
    if kind == "integer":
        return _whole(int(value), dtype)
    if kind == "bool":
        return str(int(bool(value)))
    return _real(value, dtype)


def _whole(value: int, dtype: str) -> str:
    if value == -(1 << 63):
        return "INT64_MIN"
    return f"({held(dtype)}){value}{'u' if value >= 1 << 63 else ''}{'ll' if abs(value) >= 1 << 31 else ''}"


def _real(value: Fraction, dtype: str) -> str:
    text = float(value).hex()
    if isinstance(value, OpenFraction):
        text = f"((double){value.above} / (double){value.below})"
    if dtype == "float64":
        return f"({text})"
    return f"round_{dtype}({text})" if dtype in HALVES else f"(float){text}"
