"""Bounds the error of integers that are rounded from floats: near a half, rounding may give either integer (level).

Such an integer is a level, and how far below and above it the compiled integer may be, modulo 2^bits, as integers wrap:
sums and products keep this. Where the integer is compared, widened or cast to a float, none of its possible values may
have wrapped; otherwise the nest is reported as undecided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from glenside.codegen.emit_c.scalar_primitives import RELATIONS, STORED_AS, whole_function
from glenside.codegen.emit_c.translation_units import Source
from glenside.codegen.loop_ir.intrinsics import Instruction, expanded
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Choose,
    Convert,
    Fence,
    For,
    Formula,
    Let,
    Load,
    Local,
    Loops,
    Nest,
    Number,
    Prefetch,
    Require,
    Sort,
    Statement,
    Store,
    When,
)
from glenside.codegen.verify.rounding_bounds import Bounds, OneText, of_dtype
from glenside.ir.dtypes import INTEGERS, REALS, RECORDS, limits

_LEVELS = r"""
typedef struct { int64_t v; double less, more; } level;
static inline level level_of(int64_t v) { return (level){v, 0, 0}; }
static inline int is_sure(level a) { return a.less == 0 && a.more == 0; }
static inline int64_t sure(level a) { if (!is_sure(a)) undecided = 1; return a.v; }
static inline num lying(level a, double low, double high) /* in a dtype, where none of what it may be has wrapped */
{
    if (!is_sure(a) && ((double)a.v - a.less < low || (double)a.v + a.more > high)) undecided = 1;
    return (num){(double)a.v, fmax(a.less, a.more)};
}
static inline level widened(level a, double low, double high) { (void)lying(a, low, high); return a; }
/* Towards zero, in v: what lies between low and high; is_whole says that it is a whole number, rounded or not. */
static inline level cut(num a, int64_t v, int is_whole, double low, double high)
{
    double whole = trunc(a.v), below = a.v - a.e, above = a.v + a.e;
    below = fmax(is_whole ? ceil(below) : trunc(below), low);
    above = fmin(is_whole ? floor(above) : trunc(above), high);
    if (a.e == 0 || (below == whole && above == whole)) return level_of(v);
    if (below > -0x1p53 && above < 0x1p53 && below <= whole && whole <= above)
        return (level){v, whole - below, above - whole};
    undecided = 1;
    return level_of(v);
}
static inline level level_add(level a, level b)
{
    return (level){(int64_t)((uint64_t)a.v + (uint64_t)b.v), a.less + b.less, a.more + b.more};
}
static inline level level_subtract(level a, level b)
{
    return (level){(int64_t)((uint64_t)a.v - (uint64_t)b.v), a.less + b.more, a.more + b.less};
}
static inline level level_negative(level a) { return level_subtract(level_of(0), a); }
static inline level level_multiply(level a, level b)
{
    int64_t v = (int64_t)((uint64_t)a.v * (uint64_t)b.v);
    if (is_sure(a)) { level c = a; a = b; b = c; }
    double x = (double)a.v, y = (double)b.v, far = fmax(b.less, b.more), e = fmax(a.less, a.more);
    if (far > 0) e = e * (fabs(y) + far) + fabs(x) * far;
    else return y < 0 ? (level){v, -y * a.more, -y * a.less} : (level){v, y * a.less, y * a.more};
    return (level){v, e, e};
}
static inline level level_max(level a, level b)
{
    level c = a.v >= b.v ? a : b, d = a.v >= b.v ? b : a;
    double above = fmax((double)c.v + c.more, (double)d.v + d.more) - (double)c.v;
    return (level){c.v, fmin(c.less, (double)c.v - (double)d.v + d.less), above};
}
static inline level level_min(level a, level b)
{
    return level_negative(level_max(level_negative(a), level_negative(b)));
}
"""
_CUT = """static inline level DTYPE_cut(num a, int is_whole, double low, double high)
{
    return cut(a, (int64_t)DTYPE_of_real(a.v), is_whole, low, high);
}"""
_WRAPPING = ("add", "subtract", "multiply", "negative")
_ORDERED = ("min", "max")
_TO_WHOLE = ("round", "floor", "ceil")
_Held = Buffer | Local


def unsure(nest: Nest) -> frozenset[_Held] | None:
    """Returns the buffers and variables of a nest that hold integers rounded from floats.

    None if the nest uses such integers in a way that levels do not model: with 64 bits, or as indices.
    """
    statements = list(_all(nest.body))
    found: set[_Held] = set()
    while True:
        made = {_target(s) for s in statements if isinstance(s, Store | Let) and _is_unsure(s.formula, found)}
        if made <= found:
            break
        found |= made
    held = frozenset(found)
    return None if any(_beyond(s, held) for s in statements) else held


def _all(body: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, For | When):
            yield from _all(statement.body)


def _target(statement: Store | Let) -> _Held:
    return statement.buffer if isinstance(statement, Store) else statement.local


def _parts(formula: Formula) -> tuple[Formula, ...]:
    if isinstance(formula, Convert):
        return (formula.formula,)
    if isinstance(formula, Choose):
        return formula.then, formula.otherwise
    return formula.operands if isinstance(formula, Apply) else ()


def _plain(formula: Formula) -> Formula:
    return expanded(formula) if isinstance(formula, Apply) and isinstance(formula.primitive, Instruction) else formula


def _is_unsure(formula: Formula, held: set[_Held] | frozenset[_Held]) -> bool:
    """True if the result of a formula is an integer that depends on rounded floats."""
    formula = _plain(formula)
    if formula.dtype not in INTEGERS:
        return False
    if isinstance(formula, Convert) and formula.formula.dtype in REALS:
        return not formula.bits
    if isinstance(formula, Load | Local):
        return (formula.buffer if isinstance(formula, Load) else formula) in held
    return any(_is_unsure(part, held) for part in _parts(formula))


def _beyond(statement: Statement, held: frozenset[_Held]) -> bool:
    """True if a statement uses rounded integers in a way that levels do not model."""
    if isinstance(statement, Require):
        return statement.local in held
    if isinstance(statement, Sort):
        return statement.items in held
    if isinstance(statement, When):
        return statement.condition is not None and _goes_beyond(statement.condition, held)
    return isinstance(statement, Store | Let) and _goes_beyond(statement.formula, held)


def _goes_beyond(formula: Formula, held: frozenset[_Held]) -> bool:
    formula = _plain(formula)
    wide = formula.dtype in INTEGERS and RECORDS[formula.dtype].bits > 32 and _is_unsure(formula, held)
    bits = isinstance(formula, Convert) and formula.bits and _is_unsure(formula.formula, held)
    picked = isinstance(formula, Load) and any(local in held for local, _ in formula.picked)
    return wide or bits or picked or any(_goes_beyond(part, held) for part in _parts(formula))


class Levels(Bounds):
    """Prints error bounds of integers too: buffers and variables of `unsure` have C type `level`."""

    def __init__(self, loops: Loops) -> None:
        super().__init__(loops)
        self.functions[_LEVELS] = None
        self.unsure: frozenset[_Held] | None = None

    def _step(self, nest: Nest) -> Iterator[str]:
        self.unsure = unsure(nest)
        yield from super()._step(nest)

    def _is_unsure(self, formula: Formula) -> bool:
        return self.unsure is not None and _is_unsure(formula, self.unsure)

    def memory(self, buffer: Buffer) -> str:
        return "level" if buffer in (self.unsure or ()) else super().memory(buffer)

    def variable(self, held: Buffer | Local) -> str:
        return "level" if held in (self.unsure or ()) else super().variable(held)

    def _simple(self, statement: Let | Store | Require | Sort | Prefetch | Fence) -> Iterator[str]:
        if isinstance(statement, Store) and statement.buffer in (self.unsure or ()):
            yield f"{self.target(statement)} = {self._level(statement.formula)};"
        elif isinstance(statement, Let) and statement.local in (self.unsure or ()):
            kind = "" if statement.known else "level "
            yield f"{kind}{statement.local.name} = {self._level(statement.formula)};"
        else:
            yield from super()._simple(statement)

    def _level(self, formula: Formula) -> str:
        """Returns an integer formula as a C `level`."""
        text = self.formula(formula)
        return text if self._is_unsure(formula) else f"level_of((int64_t){text})"

    def _lying(self, formula: Formula) -> str:
        """Returns an integer formula as a C `num`."""
        low, high = limits(formula.dtype)
        return f"lying({self._level(formula)}, {float(low)}, {float(high)})"

    def formula(self, formula: Formula) -> str:
        if isinstance(formula, Choose) and self._is_unsure(formula):
            guards = " && ".join(self.guard(guard) for guard in formula.guards)
            return f"(({guards}) ? {self._level(formula.then)} : {self._level(formula.otherwise)})"
        return super().formula(formula)

    def truth(self, formula: Formula) -> str:
        return f"differs({self._lying(formula)})" if self._is_unsure(formula) else super().truth(formula)

    def converted(self, formula: Convert) -> str:
        given, wanted = formula.formula.dtype, formula.dtype
        if self._is_unsure(formula) and given in REALS:
            self.functions.setdefault(whole_function(f"{wanted}_of_real", wanted))
            low, high = _range(formula.formula)
            self.functions.setdefault(_CUT.replace("DTYPE", wanted))
            value, is_whole = self.formula(formula.formula), int(_is_whole(formula.formula))
            return f"{wanted}_cut({value}, {is_whole}, {_text(low)}, {_text(high)})"
        if not self._is_unsure(formula.formula) or wanted == "bool":
            return super().converted(formula)
        if wanted in REALS:
            text = f"static inline num {wanted}_of(num a) {{ return rounded(a.v, a.e, {of_dtype(wanted)}); }}"
            self.functions.setdefault(text)
            return f"{wanted}_of({self._lying(formula.formula)})"
        value, (low, high) = self.formula(formula.formula), limits(given)
        if RECORDS[wanted].bits > RECORDS[given].bits:
            value = f"widened({value}, {float(low)}, {float(high)})"
        return self._wrapped(wanted, value)

    def _wrapped(self, dtype: str, level: str) -> str:
        kept = self.wrapped("a.v", dtype)
        text = f"static inline level {dtype}_level(level a) {{ return (level){{{kept}, a.less, a.more}}; }}"
        self.functions.setdefault(text)
        return f"{dtype}_level({level})"

    def applied(self, formula: Apply) -> str:
        name, operands = formula.primitive.name, formula.operands
        if name in RELATIONS and any(map(self._is_unsure, operands)):
            return self.related(name, [self._lying(operand) for operand in operands])
        if not self._is_unsure(formula):
            return super().applied(formula)
        if name == "select":
            return f"(decided({self.truth(operands[0])}) ? {self._level(operands[1])} : {self._level(operands[2])})"
        levels = [self._level(operand) for operand in operands]
        if name in _ORDERED:
            low, high = limits(formula.dtype)
            levels = [f"widened({level}, {float(low)}, {float(high)})" for level in levels]
        if name in _WRAPPING or name in _ORDERED:
            return self._wrapped(formula.dtype, f"level_{name}({', '.join(levels)})")
        kind = STORED_AS[formula.dtype]
        return f"level_of((int64_t){self.of_texts(formula, [f'({kind})sure({level})' for level in levels])})"


def _range(formula: Formula) -> tuple[float, float]:
    """Returns the interval of a formula that follows from its `min` and `max`."""
    if isinstance(formula, Number) and formula.value is not None:
        return float(formula.value), float(formula.value)
    if isinstance(formula, Apply) and formula.primitive.name in _ORDERED:
        (a, b), (c, d) = map(_range, formula.operands)
        return (max(a, c), max(b, d)) if formula.primitive.name == "max" else (min(a, c), min(b, d))
    return -math.inf, math.inf


def _is_whole(formula: Formula) -> bool:
    """True if a float formula is always a whole number, however it is rounded."""
    if isinstance(formula, Number):
        return formula.value is not None and formula.value.denominator == 1
    if isinstance(formula, Convert):
        return formula.formula.dtype in INTEGERS or _is_whole(formula.formula)
    if isinstance(formula, Apply):
        keeps = formula.primitive.name in (*_WRAPPING, *_ORDERED) and all(map(_is_whole, formula.operands))
        return keeps or formula.primitive.name in _TO_WHOLE
    return False


def _text(number: float) -> str:
    return number.hex() if math.isfinite(number) else "INFINITY" if number > 0 else "-INFINITY"


def bounds(loops: Loops) -> Source:
    """Returns C that bounds, for each nest alone, the error of its results. Raises BadInput."""
    found = Levels(loops).source()
    return OneText(found.title, found.helpers, found.nests, found.end, found.runtime)
