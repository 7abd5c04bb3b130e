"""C of loop nests: one function, plain C11, every element as the records of dtypes and primitives say.

Integers wrap, in unsigned arithmetic; halves are floats that are rounded after each step, as numpy has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from glenside.codegen.c_primitives import PRIMITIVES_IN_C, STORED_AS, held, sort_function, whole_function
from glenside.codegen.loops import (
    Apply,
    Buffer,
    Choose,
    Convert,
    Counter,
    For,
    Formula,
    Let,
    Load,
    Local,
    Loops,
    Number,
    Require,
    Role,
    Sort,
    Statement,
    Store,
    When,
)
from glenside.ir.dtypes import HALVES, INTEGERS, RECORDS, STORED, limits
from glenside.ir.errors import BadInput
from glenside.ir.index_map import Axis, Guard, Index, Within

_PRELUDE = r"""
static inline float bits_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint32_t float_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

/* IEEE binary16 and bfloat16 as floats that hold the same values; to the nearest, halves to the even one. */
static inline float float_of_float16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
    if (exponent == 31) return bits_float(sign | 0x7f800000u | fraction << 13);
    if (exponent) return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
    float f = (float)fraction * 0x1p-24f;
    return sign ? -f : f;
}
static inline uint16_t float16_of_double(double d)
{
    uint64_t u; memcpy(&u, &d, 8);
    uint16_t sign = (uint16_t)(u >> 48 & 0x8000u);
    double a = fabs(d);
    if (a != a) return (uint16_t)(sign | 0x7e00u);
    if (a >= 65520.0) return (uint16_t)(sign | 0x7c00u);
    if (a < 0x1p-14) return (uint16_t)(sign | (uint16_t)nearbyint(a * 0x1p24));
    int exponent; double m = frexp(a, &exponent);
    uint32_t fraction = (uint32_t)nearbyint(m * 2048.0);
    if (fraction == 2048) { fraction = 1024; exponent++; }
    return (uint16_t)(sign | (uint16_t)((uint32_t)(exponent + 14) << 10 | (fraction & 1023u)));
}
static inline float round_float16(double d) { return float_of_float16(float16_of_double(d)); }
static inline uint16_t float16_of_float(float f) { return float16_of_double((double)f); }
static inline float float_of_bfloat16(uint16_t h) { return bits_float((uint32_t)h << 16); }
static inline uint16_t bfloat16_of_double(double d)
{
    float f = (float)d;
    uint32_t u = float_bits(f);
    if (f != f) return (uint16_t)(u >> 16 | 0x40u);
    if ((double)f != d && !isinf(f)) { /* rounded to odd on the way: once, not twice */
        if (fabs((double)f) > fabs(d)) u--;
        u |= 1u;
    }
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
static inline float round_bfloat16(double d) { return float_of_bfloat16(bfloat16_of_double(d)); }
static inline uint16_t bfloat16_of_float(float f) { return bfloat16_of_double((double)f); }
"""


def source(loops: Loops, function: str = "run") -> str:
    """C of the function `int FUNCTION(const void *const *given, void *const *results, unsigned char *arena)`.

    It gives 0; n where an index lies outside of its axis that the nth `Require` of the loops asks for; -1 where memory
    does not suffice. Tensors and results are given in the order of their buffers; temporaries lie in the arena. Raises
    BadInput for dtypes that are only stored.
    """
    for buffer in loops.buffers:
        if buffer.dtype in STORED:
            raise BadInput(f"{buffer.name} has dtype {buffer.dtype}, which is not compiled yet")
    return "\n".join(_Printer(loops, function).lines()) + "\n"


def arena(loops: Loops) -> tuple[dict[Buffer, int], int]:
    """Where each temporary begins, in bytes, one behind the other, and where the last one ends."""
    places: dict[Buffer, int] = {}
    end = 0
    for buffer in loops.buffers:
        if buffer.role is Role.TEMPORARY:
            places[buffer] = end
            end += -(-buffer.dims.product() * RECORDS[buffer.dtype].numpy.itemsize // 64) * 64
    return places, end


class _Printer:
    def __init__(self, loops: Loops, function: str) -> None:
        self.loops, self.function = loops, function
        self.names = {buffer: f"b{i}" for i, buffer in enumerate(loops.buffers)}
        self.functions: dict[str, None] = {}
        self.required = 0

    def lines(self) -> Iterator[str]:
        body = list(self._body())
        yield f"/* {re.sub('[^ -~]|[*]/', '?', self.loops.name)} */"
        yield "#include <math.h>\n#include <stdint.h>\n#include <stdlib.h>\n#include <string.h>"
        yield _PRELUDE
        yield from self.functions
        yield f"int {self.function}(const void *const *given, void *const *results, unsigned char *arena)"
        yield from ("{", *body, "    return 0;", "}")

    def _body(self) -> Iterator[str]:
        given = results = 0
        places, _ = arena(self.loops)
        yield "    (void)given; (void)results; (void)arena;"
        for buffer, name in self.names.items():
            kind = STORED_AS[buffer.dtype]
            if buffer.role in (Role.INPUT, Role.CONSTANT):
                yield f"    const {kind} *restrict {name} = (const {kind} *)given[{given}]; /* {_said(buffer)} */"
                given += 1
            elif buffer.role is Role.RESULT:
                yield f"    {kind} *restrict {name} = ({kind} *)results[{results}]; /* {_said(buffer)} */"
                results += 1
            else:
                place = f"(void *)(arena + {places[buffer]})"
                yield f"    {kind} *restrict {name} = ({kind} *){place}; /* {_said(buffer)} */"
            yield f"    (void){name};"
        for nest in self.loops.nests:
            yield f"    {{ /* {nest.what} */"
            yield from self._statements(nest.body, "        ")
            yield "    }"

    def _statements(self, body: Sequence[Statement], indent: str) -> Iterator[str]:
        for statement in body:
            if isinstance(statement, For):
                counter = f"i{statement.axis.number}"
                yield f"{indent}for (int64_t {counter} = 0; {counter} < {statement.axis.size}; {counter}++) {{"
                yield from self._statements(statement.body, indent + "    ")
                yield indent + "}"
            elif isinstance(statement, When):
                conditions = [_guard(guard) for guard in statement.guards]
                if statement.condition is not None:
                    conditions.append(self.formula(statement.condition))
                yield f"{indent}if ({' && '.join(conditions) or '1'}) {{"
                yield from self._statements(statement.body, indent + "    ")
                yield indent + "}"
            elif isinstance(statement, Let):
                kind = "" if statement.known else f"{held(statement.local.dtype)} "
                yield f"{indent}{kind}{statement.local.name} = {self.formula(statement.formula)};"
            elif isinstance(statement, Store):
                place = _place(statement.place, statement.picked)
                value = self.formula(statement.formula)
                yield f"{indent}{self.names[statement.buffer]}[{place}] = {_in_memory(value, statement.buffer.dtype)};"
            elif isinstance(statement, Require):
                self.required += 1
                name, size = statement.local.name, statement.size
                yield f"{indent}if ({name} < -{size} || {name} >= {size}) return {self.required};"
                yield f"{indent}if ({name} < 0) {name} += {size};"
            else:
                yield f"{indent}if ({self._sort(statement)}) return -1;"

    def _sort(self, statement: Sort) -> str:
        kind, items, order = statement.items.dtype, self.names[statement.items], self.names[statement.positions]
        name = f"sort_{kind}_{'down' if statement.descending else 'up'}"
        self.functions.setdefault(sort_function(name, kind, statement.descending))
        place = _index(statement.place)
        return f"{name}({items} + {place}, {order} + {place}, {statement.count})"

    def formula(self, formula: Formula) -> str:
        """A value, of the C type in which the dtype is computed."""
        if isinstance(formula, Number):
            return _number(formula)
        if isinstance(formula, Counter):
            return f"(int64_t)({_index(formula.index)})"
        if isinstance(formula, Local):
            return formula.name
        if isinstance(formula, Load):
            element = f"{self.names[formula.buffer]}[{_place(formula.place, formula.picked)}]"
            return f"float_of_{formula.dtype}({element})" if formula.dtype in HALVES else element
        if isinstance(formula, Choose):
            guards = " && ".join(_guard(guard) for guard in formula.guards)
            return f"(({guards}) ? {self.formula(formula.then)} : {self.formula(formula.otherwise)})"
        if isinstance(formula, Convert):
            return self._convert(formula)
        return self._apply(formula)

    def _convert(self, formula: Convert) -> str:
        given, wanted, value = formula.formula.dtype, formula.dtype, self.formula(formula.formula)
        if formula.bits:
            name = f"bits_{given}_{wanted}"
            self.functions.setdefault(
                f"static inline {STORED_AS[wanted]} {name}({STORED_AS[given]} x)"
                f" {{ {STORED_AS[wanted]} y; memcpy(&y, &x, sizeof y); return y; }}"
            )
            found = f"{name}({_in_memory(value, given)})"
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

    def _apply(self, formula: Apply) -> str:
        operands = [self.formula(operand) for operand in formula.operands]
        dtype = formula.operands[-1].dtype
        write = PRIMITIVES_IN_C.get(formula.primitive.name)
        if write is None:
            raise BadInput(f"{formula.primitive.name} is not compiled yet")
        text = write(self, dtype, *operands)
        return f"round_{dtype}({text})" if dtype in HALVES and formula.dtype == dtype else text

    def helper(self, name: str, text: str) -> str:
        """A helper, which is written once."""
        self.functions.setdefault(text)
        return name


def _said(buffer: Buffer) -> str:
    name = re.sub("[^ -~]|[*]/", "?", buffer.name)
    return f"{name}, {' '.join(map(str, buffer.dims)) or 'one'} {buffer.dtype}"


def _in_memory(value: str, dtype: str) -> str:
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


def _place(index: Index, picked: Sequence[tuple[Local, int]]) -> str:
    return " + ".join([_index(index), *(f"{local.name} * {step}" for local, step in picked)])


def _guard(guard: Guard) -> str:
    text = _index(guard.index)
    if not isinstance(guard, Within):
        return f"({text}) % {guard.divisor} == 0"
    low, high = guard.index.bounds
    bounds = [f"{text} >= {guard.low}"] if low < guard.low else []
    bounds += [f"{text} < {guard.high}"] if high >= guard.high else []
    return " && ".join(bounds) or "1"


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
