"""Formulas in C: elements, and vectors in GCC's and Clang's extensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from glenside.codegen.affine import coefficient, substituted
from glenside.codegen.c_conversions import conversion, kind_name, memory_dtype, nearest, vector_type
from glenside.codegen.c_primitives import (
    PRIMITIVES_IN_C,
    STORED_AS,
    held,
    whole_function,
)
from glenside.codegen.c_vectors import VECTOR_SYMBOLS, beside_number, vector_function
from glenside.codegen.instructions import Instruction, Operand, expanded
from glenside.codegen.loops import (
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
    Statement,
    Store,
)
from glenside.ir.dtypes import HALVES, INTEGERS, RECORDS, limits
from glenside.ir.errors import BadInput
from glenside.ir.index_map import Axis, Guard, Index, Within

_WORD = "static inline uint32_t word_at(const void *p) { uint32_t u; memcpy(&u, p, 4); return u; }"


class Formulas:
    """What is written of one function after the other.

    functions  helpers that are written, in the order in which they are needed
    names      the buffers of the function that is being written -> their names in it
    written    those of them that it changes
    steps      the counters of unrolled loops -> where they are
    lane       the counter of the vector loop that is being written
    declared   the registers that it has
    vectors    those of them that hold vectors -> their lanes
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
        """What a buffer is called in the function that is being written."""
        return self.names.setdefault(buffer, f"p{len(self.names)}")

    # What elements are, which other numbers (`c_numbers`) have otherwise.

    def memory(self, buffer: Buffer) -> str:
        """The C type of an element in memory."""
        return STORED_AS[buffer.dtype]

    def computed(self, dtype: str) -> str:
        """The C type of a value."""
        return held(dtype)

    def loaded(self, element: str, buffer: Buffer) -> str:
        """An element of a buffer as a value."""
        return f"float_of_{buffer.dtype}({element})" if buffer.dtype in HALVES else element

    def kept(self, value: str, buffer: Buffer) -> str:
        """A value as an element of a buffer."""
        return in_memory(value, buffer.dtype)

    def sorted_as(self, dtype: str) -> str:
        """The dtype as which elements of one are sorted in memory."""
        return dtype

    def number(self, number: Number) -> str:
        """An exact number."""
        return _number(number)

    def decided(self, condition: Formula) -> str:
        """Whether a formula is not 0."""
        return self.formula(condition)

    def formula(self, formula: Formula) -> str:
        """A value, of the C type in which the dtype is computed."""
        if isinstance(formula, Number):
            return self.number(formula)
        if isinstance(formula, Counter):
            return f"(int64_t)({self.index(formula.index)})"
        if isinstance(formula, Local):
            return formula.name
        if isinstance(formula, Load):
            if formula.buffer.role is Role.REGISTER:
                return self.register(formula)
            return self.loaded(f"{self.name(formula.buffer)}[{self.place(formula)}]", formula.buffer)
        if isinstance(formula, Choose):
            guards = " && ".join(self.guard(guard) for guard in formula.guards)
            return f"(({guards}) ? {self.formula(formula.then)} : {self.formula(formula.otherwise)})"
        if isinstance(formula, Convert):
            return self.converted(formula)
        if isinstance(formula.primitive, Instruction):
            return self.formula(expanded(formula))
        return self.applied(formula)

    def converted(self, formula: Convert) -> str:
        """A value in another dtype, or its bits."""
        given, wanted, value = formula.formula.dtype, formula.dtype, self.formula(formula.formula)
        if formula.bits:
            name = f"bits_{given}_{wanted}"
            self.functions.setdefault(
                f"static inline {STORED_AS[wanted]} {name}({STORED_AS[given]} x)"
                f" {{ {STORED_AS[wanted]} y; memcpy(&y, &x, sizeof y); return y; }}"
            )
            found = f"{name}({in_memory(value, given)})"
            return f"float_of_{wanted}({found})" if wanted in HALVES else found
        if wanted == "bool":
            return f"(uint8_t)({value} != 0)"
        if wanted in HALVES:
            return f"round_{wanted}((double){value})"
        if wanted in INTEGERS and RECORDS[given].kind == "float":
            name = f"{wanted}_of_real"
            self.functions.setdefault(whole_function(name, wanted))
            return f"{name}((double){value})"
        return f"({held(wanted)}){value}"

    def applied(self, formula: Apply) -> str:
        """A primitive of values."""
        return self.of_texts(formula, [self.formula(operand) for operand in formula.operands])

    def of_texts(self, formula: Apply, operands: Sequence[str]) -> str:
        """The same of operands that are written already."""
        dtype = formula.operands[-1].dtype
        write = PRIMITIVES_IN_C.get(formula.primitive.name)
        if write is None:
            raise BadInput(f"{formula.primitive.name} is not compiled yet")
        text = write(self, dtype, *operands)
        return f"round_{dtype}({text})" if dtype in HALVES and formula.dtype == dtype else text

    def index(self, index: Index) -> str:
        """A place, at the steps of unrolled loops."""
        return _index(substituted(index, self.steps) if self.steps else index)

    def place(self, access: Load | Store) -> str:
        """Where an element is."""
        return " + ".join([self.index(access.place), *(f"{local.name} * {step}" for local, step in access.picked)])

    def guard(self, guard: Guard) -> str:
        """A condition."""
        return _guard(replace(guard, index=substituted(guard.index, self.steps)) if self.steps else guard)

    def target(self, store: Store) -> str:
        """What is assigned to."""
        if store.buffer.role is Role.REGISTER:
            name = self.register(store)
            if name in self.declared:
                return name
            self.declared.add(name)
            return f"{self._kind(store.buffer.dtype)} {name}"
        self.written.add(store.buffer)
        return f"{self.name(store.buffer)}[{self.place(store)}]"

    def register(self, access: Load | Store) -> str:
        """The variable that an element of a tile, or a vector of it, is in."""
        place = substituted(access.place, self.steps).constant
        if self.lane is not None:
            self.vectors[access.buffer] = self.lane.size
            return f"{access.buffer.name}_{place // self.lane.size}"
        lanes = self.vectors.get(access.buffer, 1)
        return f"{access.buffer.name}_{place // lanes}" + (f"[{place % lanes}]" if lanes > 1 else "")

    # Vectors: GCC's and Clang's extensions of C.

    def _kind(self, dtype: str) -> str:
        """The C type of an element, or of a vector, in a register: halves are floats there."""
        if self.lane is None:
            return held(dtype)
        return self._vectors("float32" if dtype in HALVES else dtype)

    def _vectors(self, dtype: str) -> str:
        """The C type of a vector in memory."""
        assert self.lane is not None
        self.functions.setdefault(vector_type(memory_dtype(dtype), self.lane.size))
        return kind_name(memory_dtype(dtype), self.lane.size)

    def vector_store(self, statement: Statement) -> str:
        """A store of a vector."""
        assert isinstance(statement, Store), "vectors are stored"
        dtype, value = statement.buffer.dtype, self._as_vector(statement.formula)
        if statement.buffer.role is Role.REGISTER:
            return f"{self.target(statement)} = {value};"
        self.written.add(statement.buffer)
        if dtype in HALVES:
            value = self._changed(value, "float32", dtype)
        return f"*({self._vectors(dtype)} *)({self.name(statement.buffer)} + {self._start(statement)}) = {value};"

    def _start(self, access: Load | Store) -> str:
        assert self.lane is not None
        return self.index(substituted(access.place, {self.lane: Index()}))

    def _as_vector(self, formula: Formula) -> str:
        """A formula as a vector, whether its elements differ or not."""
        return self._spread(formula, *self._vector(formula))

    def _spread(self, formula: Formula, text: str, varies: bool) -> str:
        return text if varies else f"({text} - ({self._kind(formula.dtype)}){{0}})"  # -0 - 0 is -0

    def _vector(self, formula: Formula) -> tuple[str, bool]:
        """A formula, and whether it is a vector: what is the same for all lanes is one element."""
        assert self.lane is not None
        if isinstance(formula, Load):
            return self._loaded(formula, self.lane)
        if isinstance(formula, Convert):
            within = clipped_before(formula)
            if within is not None:
                name, texts = nearest(self.lane.size)
                self.functions |= dict.fromkeys(texts)
                return self._changed(f"{name}({self._as_vector(within)})", "int32", formula.dtype), True
            text, varies = self._vector(formula.formula)
            return (self._converted(text, formula), True) if varies else (self.formula(formula), False)
        if not isinstance(formula, Apply):
            return self.formula(formula), False
        if isinstance(formula.primitive, Instruction):
            return self._instructed(formula.primitive, formula), True
        parts = [self._vector(operand) for operand in formula.operands]
        if not any(varies for _, varies in parts):
            return self.formula(formula), False
        text = self._operation(formula, parts)
        if formula.dtype in HALVES:
            text = self._changed(self._changed(text, "float32", formula.dtype), formula.dtype, "float32")
        return text, True

    def _loaded(self, load: Load, lane: Axis) -> tuple[str, bool]:
        if load.buffer.role is Role.REGISTER:
            return self.register(load), True
        if not coefficient(load.place, lane):
            return self.formula(load), False
        text = f"*(const {self._vectors(load.dtype)} *)({self.name(load.buffer)} + {self._start(load)})"
        return (self._changed(text, load.dtype, "float32") if load.dtype in HALVES else text), True

    def _converted(self, text: str, formula: Convert) -> str:
        """A vector in another dtype; of halves, floats that are rounded to them."""
        given, wanted = formula.formula.dtype, formula.dtype
        if wanted in HALVES:
            return self._changed(self._changed(text, "float32", wanted), wanted, "float32")
        return text if given in HALVES else self._changed(text, given, wanted)

    def _changed(self, text: str, given: str, wanted: str) -> str:
        assert self.lane is not None
        name, texts = conversion(given, wanted, self.lane.size)
        for own in texts:
            self.functions.setdefault(own)
        return f"{name}({text})"

    def _operation(self, formula: Apply, parts: Sequence[tuple[str, bool]]) -> str:
        """A primitive of vectors, and of what is the same for all lanes: the texts of both."""
        name, operands, kind = formula.primitive.name, formula.operands, self._kind(formula.dtype)
        assert self.lane is not None
        if name in VECTOR_SYMBOLS and formula.dtype in INTEGERS:  # they wrap
            unsigned = self._kind(f"u{formula.dtype.removeprefix('u')}")
            one = STORED_AS[f"u{formula.dtype.removeprefix('u')}"]
            a, b = (f"({unsigned if varies else one}){text}" for text, varies in parts)
            return f"({kind})({a} {VECTOR_SYMBOLS[name]} {b})"
        if name in VECTOR_SYMBOLS:
            (a, _), (b, _) = parts
            inverse = _inverse(operands[1]) if name == "divide" else None
            return f"({a} * {_number(inverse)})" if inverse else f"({a} {VECTOR_SYMBOLS[name]} {b})"
        if len(operands) == 2 and formula.dtype not in INTEGERS and any(isinstance(o, Number) for o in operands):
            name = beside_number(name)
            turn = -1 if isinstance(operands[0], Number) else 1
            operands, parts = operands[::turn], parts[::turn]
        dtype = "float32" if formula.dtype in HALVES else formula.dtype
        for text in vector_function(name, kind, dtype, self.lane.size):
            self.functions.setdefault(text)
        given = [self._spread(operand, *part) for operand, part in zip(operands, parts, strict=True)]
        return f"{name}_{kind}({', '.join(given)})"

    def _instructed(self, instruction: Instruction, formula: Apply) -> str:
        """An instruction of vectors, of words that are the same in all lanes, and of blocks of several bytes each."""
        assert self.lane is not None
        lanes = self.lane.size
        for dtype in ("int32", "uint32"):
            self.functions.setdefault(vector_type(dtype, lanes))
        for text in instruction.texts(lanes):
            self.functions.setdefault(text)
        texts, rest = [], list(formula.operands)
        for operand in instruction.operands:
            taken, rest = rest[: operand.count], rest[operand.count :]
            if operand is Operand.BLOCK:
                load = taken[0]
                assert isinstance(load, Load), "blocks are in memory"
                texts.append(f"{self.name(load.buffer)} + {self._start(load)}")
            elif operand is Operand.WORD:
                texts.append(self._word(taken))
            else:
                texts.append(self._as_vector(taken[0]) if operand is Operand.VECTOR else self.formula(taken[0]))
        return f"{instruction.name}_x{lanes}({', '.join(texts)})"

    def _word(self, parts: Sequence[Formula]) -> str:
        """Bytes as one number, the first one lowest: those that follow each other are read at once."""
        loads = [part for part in parts if isinstance(part, Load)]
        if not loads:
            numbers = [int(part.value or 0) for part in parts if isinstance(part, Number)]
            return f"{sum((value & 255) << 8 * i for i, value in enumerate(numbers))}u"
        if len(loads) == len(parts) and all(p.place == loads[0].place + i for i, p in enumerate(loads)):
            return f"{self.helper('word_at', _WORD)}({self.name(loads[0].buffer)} + {self.index(loads[0].place)})"
        shifted = [f"(uint32_t)(uint8_t){self.formula(p)}" + (f" << {8 * i}" if i else "") for i, p in enumerate(parts)]
        return f"({' | '.join(t for t, p in zip(shifted, parts, strict=True) if not isinstance(p, Number) or p.value)})"

    def helper(self, name: str, text: str) -> str:
        """A helper, which is written once."""
        self.functions.setdefault(text)
        return name


def clipped_before(formula: Convert) -> Formula | None:
    """Of a float that is rounded, clipped by whole numbers and becomes an integer: the one that is clipped, and then
    becomes the nearest integer at once. No number becomes 0 either way, which is why no zero point comes between.
    """
    if formula.bits or formula.formula.dtype != "float32" or formula.dtype not in ("int8", "uint8", "int16", "uint16"):
        return None
    clips: list[tuple[Apply, Formula]] = []
    inner = formula.formula
    while isinstance(inner, Apply) and inner.primitive.name in ("min", "max", "add"):
        first, second = inner.operands
        x, bound = (first, second) if isinstance(second, Number) else (second, first)
        if not isinstance(bound, Number) or bound.value is None or bound.value.denominator != 1:
            return None
        if inner.primitive.name == "add":
            if bound.value:
                return None
        else:
            clips.append((inner, bound))
        inner = x
    if len(clips) < 2 or not isinstance(inner, Apply) or inner.primitive.name != "round":
        return None
    found = inner.operands[0]
    for clip, bound in reversed(clips):
        found = replace(clip, operands=(found, bound))
    return found


def in_memory(value: str, dtype: str) -> str:
    """A value of the type in which a dtype is computed, as it is stored."""
    return f"{dtype}_of_float({value})" if dtype in HALVES else value


def _index(index: Index) -> str:
    parts = [str(index.constant)] if index.constant or not index.terms else []
    for atom, factor in index.terms:
        if isinstance(atom, Axis):
            text = f"i{atom.number}"
        elif atom.expression.bounds[0] >= 0:
            text = f"({_index(atom.expression)} {'%' if atom.remainder else '/'} {atom.divisor})"
        else:  # rounded down, where C cuts towards zero
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


def _inverse(divisor: Formula) -> Number | None:
    """What to multiply by instead, where that is a normal number: a rounding more, but no division."""
    if not isinstance(divisor, Number) or not divisor.value:
        return None
    return Number(1 / divisor.value, divisor.dtype) if 2.0**-120 < abs(divisor.value) < 2.0**120 else None


def _number(number: Number) -> str:
    dtype, value = number.dtype, number.value
    kind = RECORDS[dtype].kind
    if value is None:
        return {"float": "-INFINITY", "bool": "0"}.get(kind) or _whole(limits(dtype)[0], dtype)
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
    if dtype == "float64":
        return f"({float(value).hex()})"
    if dtype in HALVES:
        return f"round_{dtype}({float(value).hex()})"
    return f"(float){float(value).hex()}"
