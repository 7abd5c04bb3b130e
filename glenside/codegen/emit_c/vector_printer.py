"""Prints formulas as vector C, in extensions of GCC and Clang."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from glenside.codegen.emit_c.nibbles import NIBBLES, bytes_of_nibbles, vector_of_nibbles
from glenside.codegen.emit_c.scalar_primitives import STORED_AS
from glenside.codegen.emit_c.scalar_printer import Formulas, number_in_c
from glenside.codegen.emit_c.vector_casts import (
    BROADCAST,
    broadcast_cast,
    conversion,
    cut,
    kind_name,
    memory_dtype,
    nearest,
    rounded_within,
    stored_apart,
    stored_repeatedly,
    vector_type,
)
from glenside.codegen.emit_c.vector_primitives import (
    JOINED_IN_LANES,
    VECTOR_SYMBOLS,
    beside_number,
    comparison_of,
    is_clamped,
    joined_lanes,
    vector_function,
)
from glenside.codegen.loop_ir.affine_analysis import coefficient, substituted
from glenside.codegen.loop_ir.intrinsics import Instruction, Operand
from glenside.codegen.loop_ir.ir import Apply, Convert, Formula, Load, Number, Role, Statement, Store
from glenside.ir.dtypes import HALVES, INTEGERS
from glenside.ir.index_map import Axis, Index
from glenside.ir.open_integer import OpenFraction

_WORD = "static inline uint32_t word_at(const void *p) { uint32_t u; memcpy(&u, p, 4); return u; }"


class VectorFormulas(Formulas):
    """Prints formulas; those in vector loops compute all lanes at once."""

    def kind(self, dtype: str) -> str:
        """Returns the C type of an element, or of a vector, in a register: halves are floats there."""
        if self.lane is None:
            return super().kind(dtype)
        return self._vectors("float32" if dtype in HALVES else dtype)

    def _vectors(self, dtype: str) -> str:
        """Returns the C type of a vector in memory."""
        assert self.lane is not None
        self.functions.setdefault(vector_type(memory_dtype(dtype), self.lane.size))
        return kind_name(memory_dtype(dtype), self.lane.size)

    def vector_store(self, statement: Statement, times: int = 1) -> str:
        """Returns a store of a vector, of each lane `times` times in consecutive elements."""
        assert isinstance(statement, Store), "vectors are stored"
        assert self.lane is not None
        dtype, formula = statement.buffer.dtype, statement.formula
        if statement.buffer.role is Role.REGISTER:
            return f"{self.target(statement)} = {self._as_vector(formula)};"
        self.written.add(statement.buffer)
        if _is_copied(formula, dtype, self.lane):
            value = self._in_memory(formula)
        else:
            value = self._as_vector(formula)
            if dtype in HALVES and not gives_halves(formula):
                value = self._changed(value, "float32", dtype)
        begin, apart = (
            self.index(substituted(statement.place, {self.lane: Index()})),
            coefficient(statement.place, self.lane),
        )
        if apart > 1:
            name, texts = (stored_repeatedly if times == apart else stored_apart)(apart, self.lane.size)
            self.functions |= dict.fromkeys(texts)
            return f"{name}({self.name(statement.buffer)} + {begin}, {value});"
        return f"*({self._vectors(dtype)} *)({self.name(statement.buffer)} + {begin}) = {value};"

    def _start(self, load: Load) -> str:
        """Returns the address of the first lane of a vector."""
        assert self.lane is not None
        picked = (f"{local.name} * {step}" for local, step in load.picked)
        return " + ".join((*self.address(load.buffer, substituted(load.place, {self.lane: Index()})), *picked))

    def _as_vector(self, formula: Formula) -> str:
        """Returns a formula as a vector; a value equal in all lanes is broadcast."""
        return self._spread(formula, *self._vector(formula))

    def _spread(self, formula: Formula, text: str, varies: bool) -> str:
        return text if varies else f"({text} - ({self.kind(formula.dtype)}){{0}})"  # -0 - 0 is -0

    def _vector(self, formula: Formula) -> tuple[str, bool]:
        """Returns a formula as C, and True if it is a vector; a value equal in all lanes stays scalar."""
        assert self.lane is not None
        if isinstance(formula, Load):
            return self._loaded(formula, self.lane)
        if isinstance(formula, Convert):
            return self._cast(formula)
        if not isinstance(formula, Apply):
            return self.formula(formula), False
        if isinstance(formula.primitive, Instruction):
            return self._instructed(formula.primitive, formula), True
        if formula.primitive.name == "select":
            return self._one_of_two(formula)
        parts = [self._vector(operand) for operand in formula.operands]
        if not any(varies for _, varies in parts):
            return self.formula(formula), False
        text = self._operation(formula, parts)
        if formula.dtype in HALVES:
            text = self._changed(self._changed(text, "float32", formula.dtype), formula.dtype, "float32")
        return text, True

    def _cast(self, formula: Convert) -> tuple[str, bool]:
        """Returns a cast, and True if it is a vector."""
        inner = formula.formula
        if inner.dtype in NIBBLES and (text := self._of_nibbles(formula)):
            return text, True
        if bytes_ := self._bytes(formula):
            return self._changed(bytes_, "int32", formula.dtype), True
        if formula.dtype == "int32" and isinstance(inner, Convert) and (bytes_ := self._bytes(inner)):
            return bytes_, True
        text, varies = self._vector(inner)
        if varies:
            return self._converted(text, formula), True
        return (self._broadcast(inner), True) if self._is_broadcast(formula) else (self.formula(formula), False)

    def _is_broadcast(self, formula: Convert) -> bool:
        """True if one stored element is cast to float32 for all lanes of a vector."""
        inner = formula.formula
        is_stored = isinstance(inner, Load) and inner.buffer.role is not Role.REGISTER and inner.dtype in BROADCAST
        return is_stored and formula.dtype == "float32" and self.lane is not None and self.lane.size in (4, 8, 16)

    def _broadcast(self, formula: Formula) -> str:
        assert isinstance(formula, Load), "an element is loaded for all lanes"
        assert self.lane is not None, "there are lanes"
        name, texts = broadcast_cast(formula.dtype, self.lane.size)
        self.functions |= dict.fromkeys(texts)
        return f"{name}(*({self._start(formula)}))"

    def _one_of_two(self, choice: Apply) -> tuple[str, bool]:
        """Returns a lane-wise select, and True if it is a vector: C has no `?:` of vectors."""
        assert self.lane is not None
        relation, compared = comparison_of(choice)
        parts = [self._vector(operand) for operand in (*compared, *choice.operands[1:])]
        if not any(varies for _, varies in parts):
            return self.formula(choice), False
        a, b, then, otherwise = (
            self._spread(operand, *part) for operand, part in zip((*compared, *choice.operands[1:]), parts, strict=True)
        )
        kind, whole = self.kind(choice.dtype), "int64" if choice.dtype == "float64" else "int32"
        if not any(varies for _, varies in parts[:2]):  # for GCC, computed and loaded vectors differ in alignment
            return f"({self.formula(choice.operands[0])} != 0 ? ({kind}){then} : ({kind}){otherwise})", True
        self.functions.setdefault(vector_type(whole, self.lane.size))
        mask = kind_name(whole, self.lane.size)
        self.functions.setdefault(
            f"static inline {kind} select_{kind}({mask} held, {kind} a, {kind} b)\n"
            f"{{\n    return ({kind})((held & ({mask})a) | (~held & ({mask})b));\n}}"
        )
        return f"select_{kind}(({mask})({a} {relation} {b}), {then}, {otherwise})", True

    def _bytes(self, formula: Convert) -> str:
        """Returns clip(round(x) + zero, 0, most), cast to uint8 or uint16, as a vector of int32; "" for other formulas.

        A nan gives 0, too.
        """
        assert self.lane is not None
        found = rounded_within(formula)
        if found is None:
            return ""
        x, zero, most = found
        name, texts = nearest(self.lane.size)
        self.functions |= dict.fromkeys(texts)
        text = f"{name}({self._as_vector(x)}, {-zero}.0f, {most - zero}.0f)"
        return f"({text} + {zero})" if zero else text

    def _of_nibbles(self, formula: Convert) -> str:
        """Returns a vector of 4-bit integers in memory as floats or int32; "" for one that is equal in all lanes."""
        load, lane = formula.formula, self.lane
        assert lane is not None
        if not isinstance(load, Load) or not coefficient(load.place, lane):
            return ""
        begin = substituted(load.place, {lane: Index()})
        if load.buffer.nibbles and formula.dtype == load.dtype.replace("4", "8") == "uint8" and lane.size >= 4:
            return self._unpacked(load, begin, lane.size)
        base, place = self.address(load.buffer, begin)
        wanted = "float32" if formula.dtype == "float32" else "int32"
        name, texts = vector_of_nibbles(load.dtype, load.buffer.nibbles, wanted, lane.size)
        self.functions |= dict.fromkeys(texts)
        text = f"{name}({base}, {place})"
        return text if formula.dtype == wanted else self._changed(text, wanted, formula.dtype)

    def _loaded(self, load: Load, lane: Axis) -> tuple[str, bool]:
        if load.buffer.role is Role.REGISTER:
            return self.register(load), True
        if not coefficient(load.place, lane):
            return self.formula(load), False
        text = self._in_memory(load)
        return (self._changed(text, load.dtype, "float32") if load.dtype in HALVES else text), True

    def _in_memory(self, load: Load) -> str:
        """Returns a vector as it is stored."""
        return f"*(const {self._vectors(load.dtype)} *)({self._start(load)})"

    def _converted(self, text: str, formula: Convert) -> str:
        """Casts a vector; halves are floats that are rounded."""
        given, wanted = formula.formula.dtype, formula.dtype
        if wanted in HALVES:
            return self._changed(self._changed(text, "float32", wanted), wanted, "float32")
        if given == "float32" and wanted in INTEGERS and not is_clamped(formula.formula, wanted):
            assert self.lane is not None
            name, texts = cut(self.lane.size)
            self.functions |= dict.fromkeys(texts)
            return self._changed(f"{name}({text})", "int32", wanted) if wanted != "int32" else f"{name}({text})"
        return text if given in HALVES else self._changed(text, given, wanted)

    def _changed(self, text: str, given: str, wanted: str) -> str:
        assert self.lane is not None
        name, texts = conversion(given, wanted, self.lane.size)
        for own in texts:
            self.functions.setdefault(own)
        return f"{name}({text})"

    def _operation(self, formula: Apply, parts: Sequence[tuple[str, bool]]) -> str:
        """Applies a primitive to vectors and scalars; `parts`: C text, and True for a vector."""
        name, operands, kind = formula.primitive.name, formula.operands, self.kind(formula.dtype)
        assert self.lane is not None
        if name in VECTOR_SYMBOLS and formula.dtype in INTEGERS:  # integers wrap
            unsigned = self.kind(f"u{formula.dtype.removeprefix('u')}")
            one = STORED_AS[f"u{formula.dtype.removeprefix('u')}"]
            a, b = (f"({unsigned if varies else one}){text}" for text, varies in parts)
            return f"({kind})({a} {VECTOR_SYMBOLS[name]} {b})"
        if name in VECTOR_SYMBOLS:
            (a, _), (b, _) = parts
            inverse = _inverse(operands[1]) if name == "divide" else None
            return f"({a} * {number_in_c(inverse)})" if inverse else f"({a} {VECTOR_SYMBOLS[name]} {b})"
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
        """Applies an instruction to vectors, words that are equal in all lanes, and blocks of bytes in memory."""
        assert self.lane is not None
        lanes = self.lane.size
        for dtype in dict.fromkeys(("int32", "uint32", memory_dtype(instruction.gives), "float32")):
            self.functions.setdefault(vector_type(dtype, lanes))
        for text in instruction.texts(lanes):
            self.functions.setdefault(text)
        texts, rest = [], list(formula.operands)
        for operand in instruction.operands:
            taken, rest = rest[: operand.count], rest[operand.count :]
            if operand.is_in_memory:
                load = taken[0]
                assert isinstance(load, Load), "blocks are in memory"
                texts.append(self._block(load, 4 * lanes))
            elif operand in (Operand.WORD, Operand.PAIR):
                texts.append(self._word(taken))
            else:
                texts.append(self._as_vector(taken[0]) if operand is Operand.VECTOR else self.formula(taken[0]))
        return f"{instruction.name}_x{lanes}({', '.join(texts)})"

    def applied(self, formula: Apply) -> str:
        """Applies a primitive to scalars; a tree over all lanes of a register takes one instruction for each level."""
        lanes = _lanes_joined(formula) if self.lane is None and formula.dtype == "float32" else []
        first = lanes[0] if lanes else None
        if first is None or self.vectors.get(first.buffer, 1) != len(lanes):
            return super().applied(formula)
        begin = substituted(first.place, self.steps).constant
        if begin % len(lanes) or any(
            n.buffer is not first.buffer or substituted(n.place, self.steps).constant != begin + i
            for i, n in enumerate(lanes)
        ):
            return super().applied(formula)
        name, texts = joined_lanes(formula.primitive.name, len(lanes))
        self.functions |= dict.fromkeys(texts)
        return f"{name}({self.register(first).partition('[')[0]})"

    def _block(self, load: Load, count: int) -> str:
        """Returns a vector of `count` bytes of memory, of lanes with several elements each."""
        if not load.buffer.nibbles:
            return f"*(const u8x{count} *)({self._start(load)})"
        assert self.lane is not None
        return self._unpacked(load, substituted(load.place, {self.lane: Index()}), count)

    def _unpacked(self, load: Load, place: Index, count: int) -> str:
        """Returns elements of 4 bits from an index on as bytes."""
        name, texts = bytes_of_nibbles(load.buffer.nibbles, count)
        self.functions |= dict.fromkeys(texts)
        return f"{name}({', '.join(self.address(load.buffer, place))})"

    def _word(self, parts: Sequence[Formula]) -> str:
        """Packs bytes or halves into one word, the first one lowest; contiguous ones are one load."""
        bits, kind = 32 // len(parts), f"uint{32 // len(parts)}_t"
        loads = [part for part in parts if isinstance(part, Load)]
        if not loads:
            numbers = [int(part.value or 0) for part in parts if isinstance(part, Number)]
            return f"{sum((value & 255) << bits * i for i, value in enumerate(numbers))}u"
        if len(loads) == len(parts) and all(p.place == loads[0].place + i for i, p in enumerate(loads)):
            return f"{self.helper('word_at', _WORD)}({' + '.join(self.address(loads[0].buffer, loads[0].place))})"
        shifted = [f"(uint32_t)({kind}){self._raw(p)}" + (f" << {bits * i}" if i else "") for i, p in enumerate(parts)]
        return f"({' | '.join(t for t, p in zip(shifted, parts, strict=True) if not isinstance(p, Number) or p.value)})"

    def _raw(self, part: Formula) -> str:
        """Returns the bits of a part of a word."""
        if isinstance(part, Load) and part.dtype in HALVES:
            return "{}[{}]".format(*self.address(part.buffer, part.place))
        return self.formula(part)


def _lanes_joined(formula: Formula) -> list[Load]:
    """Returns the leaves of a balanced tree of one primitive, in order, if they are elements of registers; else []."""
    if isinstance(formula, Load):
        return [formula] if formula.buffer.role is Role.REGISTER else []
    if not isinstance(formula, Apply) or formula.primitive.name not in JOINED_IN_LANES:
        return []
    parts = [
        _lanes_joined(part) if isinstance(part, Load) or part.primitive is formula.primitive else []
        for part in formula.operands
        if isinstance(part, Load | Apply)
    ]
    return [*parts[0], *parts[1]] if len(parts) == 2 and len(parts[0]) == len(parts[1]) else []


def _is_copied(formula: Formula, dtype: str, lane: Axis) -> TypeGuard[Load]:
    """True for a vector in memory that is stored as it is: halves in as many lanes as fit, which floats would not."""
    if not isinstance(formula, Load) or formula.buffer.role is Role.REGISTER:
        return False
    return formula.dtype == dtype in HALVES and coefficient(formula.place, lane) != 0


def gives_halves(formula: Formula) -> bool:
    """True if the result of an instruction is halves as stored, not as floats."""
    return isinstance(formula, Apply) and isinstance(formula.primitive, Instruction) and formula.dtype in HALVES


def _inverse(divisor: Formula) -> Number | None:
    """Returns the reciprocal of a constant divisor, if it is a normal number: one more rounding, but no division."""
    if not isinstance(divisor, Number) or not divisor.value:
        return None
    if isinstance(divisor.value, OpenFraction):
        return Number(OpenFraction(divisor.value.below, divisor.value.above), divisor.dtype)
    return Number(1 / divisor.value, divisor.dtype) if 2.0**-120 < abs(divisor.value) < 2.0**120 else None
