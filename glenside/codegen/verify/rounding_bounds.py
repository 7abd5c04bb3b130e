"""Bounds the rounding error of each nest: with each value, the maximum error of the compiled value.

A running error analysis (N. Higham, Accuracy and Stability of Numerical Algorithms, section 3.3) of the same loops in
the same order. The error of fl(a + b) is that of a and of b, and a unit in the last place of the sum; in a product the
error of each factor is multiplied by the other factor. So the bound reflects the depth of sums and the constants of
Winograd's transforms. Where rounding may decide a comparison, both branches are within the bound, or the nest is
reported as undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from glenside.codegen.emit_c.amx import bounds_function
from glenside.codegen.emit_c.scalar_primitives import (
    BITS,
    RELATIONS,
    STORED_AS,
    from_memory,
    held,
    in_memory,
    whole_function,
)
from glenside.codegen.emit_c.translation_units import Source
from glenside.codegen.loop_ir.affine_analysis import changed
from glenside.codegen.loop_ir.bf16_split_matmul import MatrixProduct
from glenside.codegen.loop_ir.intrinsics import PARTS
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Convert,
    For,
    Formula,
    Let,
    Local,
    Loops,
    Nest,
    Number,
    Role,
    Statement,
    Store,
    When,
)
from glenside.codegen.verify.residue_program import Plain
from glenside.ir.dtypes import REALS, STORED, WHOLE, fraction_bits, largest_float, least_exponent
from glenside.ir.index_map import Index
from glenside.semantics.native import Native

_FUNCTION_ERROR_ULPS = 16
"""Maximum error of functions of reals, of the library and vectorized, in units in the last place."""
_KINDS = {"float64": 0, "float32": 1, "float16": 2, "bfloat16": 3, **dict.fromkeys(STORED, 4)}
_NUMBERS = r"""
/* v, and how far from it the rounded one is at most. Of a dtype: the unit of rounding, least and largest numbers. */
typedef struct { double v, e; } num;
static int undecided;
int was_undecided(void) { int found = undecided; undecided = 0; return found; }
static inline num exactly(double v) { return (num){v, 0}; }
static inline int fits(double v, int kind)
{
    return kind == 1 ? (double)(float)v == v : kind == 2 ? round_float16(v) == v : kind == 3 && round_bfloat16(v) == v;
}
/* rest: what is left of the exact number in float64, 0 where there is nothing, as error-free transformations say it */
static inline num left(double v, double rest, double e, double unit, double least, double largest, int kind)
{
    if (isinf(v)) return (num){v, e < INFINITY ? 0 : INFINITY};
    if (e == 0 && (kind == 0 ? rest == 0 : fits(v, kind))) return (num){v, 0};
    double most = fabs(v) + e; /* up to half a unit above the largest number it is rounded to that */
    return (num){v, most <= largest * (1 + unit / 2) ? e + unit * most + least : INFINITY};
}
#define OF double unit, double least, double largest, int kind
#define SO unit, least, largest, kind
static inline num rounded(double v, double e, OF) { return left(v, 1, e, SO); }
static inline double underflow(double v) { return fabs(v) >= 0x1p-900 ? 0 : 1; } /* of the rest: below it may be lost */
static inline num sum(num a, num b, OF)
{
    double v = a.v + b.v, c = v - a.v;
    return left(v, (a.v - (v - c)) + (b.v - c), a.e + b.e, SO);
}
static inline num negated(num a) { return (num){-a.v, a.e}; }
static inline num difference(num a, num b, OF) { return sum(a, negated(b), SO); }
static inline num product(num a, num b, OF)
{
    double v = a.v * b.v;
    if (isinf(v)) return (num){v, a.e < INFINITY && b.e < INFINITY ? 0 : INFINITY};
    double rest = a.v == 0 || b.v == 0 ? 0 : fabs(fma(a.v, b.v, -v)) + underflow(v);
    return left(v, rest, fabs(a.v) * b.e + fabs(b.v) * a.e + a.e * b.e, SO);
}
static inline num quotient(num a, num b, OF)
{
    double v = a.v / b.v, m = fabs(b.v) - b.e;
    if (a.e == 0 && b.e == 0) return left(v, a.v == 0 ? 0 : fabs(fma(v, b.v, -a.v)) + underflow(a.v), 0, SO);
    return rounded(v, m > 0 ? (a.e + fabs(v) * b.e) / m : INFINITY, SO);
}
static inline num quotient_by(num a, num b, OF) /* a number, by the inverse of which it may be multiplied */
{
    double v = a.v / b.v, e = a.e / fabs(b.v);
    return v == 0 && e == 0 ? a : rounded(v, e + 2 * unit * (fabs(v) + e), SO);
}
static inline num magnitude(num a) { return (num){fabs(a.v), a.e}; }
static inline num flushed(num a) /* to 0 below the least normal float32 */
{
    return fabs(a.v) - a.e >= 0x1p-126 || (a.v == 0 && a.e == 0) ? a : (num){a.v, a.e + 0x1p-126};
}
static inline num sign_of(num a) { return (num){(a.v > 0) - (a.v < 0), fabs(a.v) <= a.e && a.e > 0 ? 2 : 0}; }
static inline num most(num a, num b)
{
    if (a.v - a.e >= b.v + b.e) return a;
    if (b.v - b.e >= a.v + a.e) return b;
    return (num){a.v != a.v || a.v >= b.v ? a.v : b.v, fmax(a.e, b.e)};
}
static inline num least_of(num a, num b) { return negated(most(negated(a), negated(b))); }
static inline num near(double v, double low, double high, num a, double units, OF)
{
    double e = a.e == 0 ? 0 : fmax(fabs(low - v), fabs(high - v));
    if (a.e != 0 && !(fabs(low - v) + fabs(high - v) < INFINITY)) e = INFINITY;
    e += units * unit * (fabs(v) + e) + (units > 0 ? least / unit : 0);
    return (num){v, isinf(v) && a.e == 0 ? 0 : fabs(v) + e <= largest ? e : INFINITY};
}
static inline double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }
static inline num even(double v, double low, double high, num a, double units, OF) /* cosh, least at 0 */
{
    if (fabs(a.v) < a.e) low = fabs(low - v) > fabs(1 - v) ? low : 1;
    return near(v, low, high, a, units, SO);
}
static inline num between_poles(double v, double low, double high, num a, double units, OF) /* tan */
{
    double pole = floor((a.v - a.e) / 0x1.921fb54442d18p1 + 0.5);
    if (pole != floor((a.v + a.e) / 0x1.921fb54442d18p1 + 0.5)) return (num){v, INFINITY};
    return near(v, low, high, a, units, SO);
}
static inline num wave(double v, num a, double units, OF) { return near(v, v - fmin(a.e, 2), v, a, units, SO); }
static inline num power(num a, num b, double units, OF)
{
    double v = pow(a.v, b.v), low = v, high = v;
    if (a.v - a.e <= 0 && (a.e != 0 || b.e != 0)) return (num){v, INFINITY};
    for (int i = 0; i < 4; i++) {
        double corner = pow(a.v + (i & 1 ? a.e : -a.e), b.v + (i & 2 ? b.e : -b.e));
        low = fmin(low, corner);
        high = fmax(high, corner);
    }
    return near(v, low, high, (num){v, a.e + b.e}, units, SO);
}
static inline num rest(num a, num b, int cut, OF)
{
    double q = cut ? trunc(a.v / b.v) : floor(a.v / b.v), v = fmod(a.v, b.v);
    if (!cut && v != 0 && (v < 0) != (b.v < 0)) v += b.v;
    for (int i = 0; i < 4 && (a.e != 0 || b.e != 0); i++) {
        double corner = (a.v + (i & 1 ? a.e : -a.e)) / (b.v + (i & 2 ? b.e : -b.e));
        if ((cut ? trunc(corner) : floor(corner)) != q) return (num){v, INFINITY};
    }
    return rounded(v, a.e + fabs(q) * b.e, SO);
}

/* Truths: 1 or 0, and 2 more where rounding may decide. */
static inline uint8_t choice(int holds, num a, num b)
{
    double e = a.e + b.e;
    return (uint8_t)(holds | (e > 0 && fabs(a.v - b.v) <= e) << 1);
}
static inline uint8_t choice_of_alike(int holds, num a, num b) /* of equal elements the same is computed */
{
    return a.v == b.v && a.e == b.e && a.e < INFINITY ? (uint8_t)holds : choice(holds, a, b);
}
static inline uint8_t differs(num a) { return choice(a.v != 0, a, exactly(0)); } /* from 0 */
static inline int decided(uint8_t c) { if (c & 2) undecided = 1; return c & 1; }
static inline uint8_t not_(uint8_t a) { return (uint8_t)((a & 2) | !(a & 1)); }
static inline uint8_t both(uint8_t a, uint8_t b) { return !a || !b ? 0 : (uint8_t)((a & b & 1) | ((a | b) & 2)); }
static inline uint8_t either(uint8_t a, uint8_t b) { return a == 1 || b == 1 ? 1 : a | b; }
static inline uint8_t one_of(uint8_t a, uint8_t b) { return (uint8_t)(((a ^ b) & 1) | ((a | b) & 2)); }
static inline num of_truth(uint8_t c) { return (num){c & 1, c & 2 ? 1 : 0}; }
static inline num chosen(uint8_t c, num a, num b)
{
    num found = c & 1 ? a : b, other = c & 1 ? b : a;
    if (c & 2) found.e = fmax(found.e, fabs(other.v - found.v) + other.e);
    return found;
}
static inline uint8_t truth_chosen(uint8_t c, uint8_t a, uint8_t b)
{
    return !(c & 2) || a == b ? (c & 1 ? a : b) : (uint8_t)((c & 1 ? a : b) | 2);
}
static inline double whole(num a)
{
    if (a.e != 0 && trunc(a.v - a.e) != trunc(a.v + a.e)) undecided = 1;
    return a.v;
}
static inline double known(num a) { if (a.e != 0) undecided = 1; return a.v; }
"""
_OPERATIONS = {
    "add": "sum",
    "subtract": "difference",
    "multiply": "product",
    "divide": "quotient",
    "divide by number": "quotient_by",
}
_EXACT = {"negative": "negated", "abs": "magnitude", "sign": "sign_of", "min": "least_of", "max": "most"}
_EXACT |= {"flushed": "flushed"}
_TRUTHS = {
    "logical-and": "both",
    "logical-or": "either",
    "logical-not": "not_",
    "bitwise-and": "both",
    "bitwise-or": "either",
    "bitwise-xor": "one_of",
}
_WHOLE = {"floor": "floor", "ceil": "ceil", "round": "nearbyint"}
_SHAPES = {"cosh": "even", "tan": "between_poles"}


class Bounds(Plain):
    """Prints `int run(int64_t nest, int64_t step, const void *const *given, void *const *results, unsigned char *arena,
    void *own)`.

    `run` reads other buffers as exact values; the nest fills `own`, of C type `num` if it holds floats.
    """

    def __init__(self, loops: Loops) -> None:
        super().__init__(loops)
        self.functions[_NUMBERS] = None
        self.filled: Buffer | None = None
        self.made: dict[str, set[Formula]] = {}

    def entries(self, given: str, steps: Sequence[str]) -> Iterator[str]:
        yield from self.switch(f"int run(int64_t nest, int64_t step, {given}, void *own)", "own", steps)

    def _step(self, nest: Nest) -> Iterator[str]:
        self.filled, self.made = nest.buffer, _made_by(nest.body)
        yield from super()._step(nest)

    def pointer(self, buffer: Buffer, number: int, place: int) -> str:
        if buffer is self.filled:
            return f"{self.memory(buffer)} *b{number} = own;"
        return super().pointer(buffer, number, place)

    def _product(self, product: MatrixProduct) -> str:
        kind = self.memory(product.a)
        self.functions.setdefault(bounds_function(product.parts, kind))
        return self._called(f"bounds_{product.parts}_{kind}", product)

    def stored(self, store: Store) -> str:
        """Returns a stored value; of bf16 parts in scratch memory, the first is the whole number, the others are 0."""
        formula = store.formula
        is_part = isinstance(formula, Apply) and formula.primitive in PARTS
        if not isinstance(formula, Apply) or not is_part or store.buffer.role is not Role.SCRATCH:
            return super().stored(store)
        return self.formula(formula.operands[0]) if formula.primitive is PARTS[0] else "exactly(0)"

    def memory(self, buffer: Buffer) -> str:
        return "num" if self._is_own(buffer) else super().memory(buffer)

    def _is_own(self, buffer: Buffer) -> bool:
        return buffer.dtype in REALS and (buffer is self.filled or buffer.role is Role.SCRATCH)

    def computed(self, dtype: str) -> str:
        return "num" if dtype in REALS else super().computed(dtype)

    def loaded(self, element: str, buffer: Buffer) -> str:
        if self._is_own(buffer):
            return element
        value = super().loaded(element, buffer)
        return f"exactly({value})" if buffer.dtype in REALS else value

    def kept(self, value: str, buffer: Buffer) -> str:
        return value if buffer.dtype in REALS else super().kept(value, buffer)

    def number(self, number: Number) -> str:
        if number.dtype not in REALS:
            return super().number(number)
        if number.value is None:
            return "exactly(-INFINITY)"
        found = Fraction(float(Native().constant(number.value, number.dtype)))
        return f"((num){{{float(number.value).hex()}, {float(abs(found - number.value)).hex()}}})"

    def decided(self, condition: Formula) -> str:
        return f"decided({self.truth(condition)})"

    def truth(self, formula: Formula) -> str:
        """Returns a C truth value: whether a formula is not 0, and whether rounding may decide that."""
        value = self.formula(formula)
        if formula.dtype == "bool":
            return value
        return f"differs({value})" if formula.dtype in REALS else f"(uint8_t)({value} != 0)"

    def converted(self, formula: Convert) -> str:
        given, wanted = formula.formula.dtype, formula.dtype
        if formula.bits:
            return self._bits(formula)
        if wanted == "bool":
            return self.truth(formula.formula)
        value = self.formula(formula.formula)
        if given == "bool":
            return f"of_truth({value})" if wanted in REALS else self.wrapped(f"decided({value})", wanted)
        if given in REALS and wanted in REALS:
            return self._as(wanted, value)
        if wanted in STORED and wanted in REALS:
            return self._as(wanted, f"exactly((double){value})")
        if wanted in REALS:
            if wanted in ("float32", "float64"):  # integers are rounded once, to nearest
                return f"exactly((double)({held(wanted)}){value})"
            return f"rounded((double){value}, 0, {of_dtype(wanted)})"
        if given in REALS and wanted in WHOLE:
            self.functions.setdefault(whole_function(f"{wanted}_of_real", wanted))
            return f"{wanted}_of_real(whole({value}))"
        return super().converted(formula)

    def _as(self, dtype: str, value: str) -> str:
        """Casts a value; for float32 and storage-only dtypes the rounding of an exact input is known."""
        text = f"return rounded(a.v, a.e, {of_dtype(dtype)});"
        if dtype == "float32":  # an exact input is rounded once, to nearest
            text = f"if (a.e == 0) return exactly((double)(float)a.v); {text}"
        elif dtype == "float64":
            text = "return a;"
        elif dtype in STORED:
            self.need(dtype)
            text = f"if (a.e == 0) return exactly(round_{dtype}(a.v)); {text}"
        self.functions.setdefault(f"static inline num as_{dtype}(num a) {{ {text} }}")
        return f"as_{dtype}({value})"

    def _bits(self, formula: Convert) -> str:
        """Returns a bitcast; its operand must be exact, otherwise the nest is undecided."""
        given, wanted = formula.formula.dtype, formula.dtype
        value = self.formula(formula.formula)
        if given in REALS:
            value = f"({held(given)})known({value})"
        elif given == "bool":
            value = f"(uint8_t)decided({value})"
        self.need(given)
        self.need(wanted)
        value = in_memory(value, given)
        name = f"bits_{given}_{wanted}"
        self.functions.setdefault(
            f"static inline {STORED_AS[wanted]} {name}({STORED_AS[given]} x)"
            f" {{ {STORED_AS[wanted]} y; memcpy(&y, &x, sizeof y); return y; }}"
        )
        found = from_memory(f"{name}({value})", wanted)
        return f"exactly((double){found})" if wanted in REALS else found

    def applied(self, formula: Apply) -> str:
        name, operands = formula.primitive.name, formula.operands
        if name == "select":
            return self._selected(formula)
        texts = [self.formula(operand) for operand in operands]
        if operands[-1].dtype == "bool":
            if name in _TRUTHS:
                return f"{_TRUTHS[name]}({', '.join(texts)})"
            return self.of_texts(formula, [f"(uint8_t)decided({text})" for text in texts])
        if operands[-1].dtype not in REALS:
            return super().applied(formula)
        if name in RELATIONS:
            return self.related(name, texts, self._are_made_alike(operands))
        by_number = name == "divide" and isinstance(operands[1], Number)
        return self._real("divide by number" if by_number else name, texts, operands[-1].dtype)

    def related(self, name: str, texts: Sequence[str], alike: bool = False) -> str:
        """Returns a comparison of two numbers, and whether rounding may decide it.

        `alike`: both come from one formula, so that equal values compare equal.
        """
        kind = "choice_of_alike" if alike else "choice"
        text = f"return {kind}(a.v {RELATIONS[name]} b.v, a, b);"
        self.functions.setdefault(f"static inline uint8_t {kind}_{name}(num a, num b) {{ {text} }}")
        return f"{kind}_{name}({', '.join(texts)})"

    def _are_made_alike(self, operands: Sequence[Formula]) -> bool:
        """True if two variables are assigned by one formula, of elements at different indices."""
        a, b = operands
        if not isinstance(a, Local) or not isinstance(b, Local):
            return False
        return a == b or (len(self.made[a.name] | self.made[b.name]) == 1)

    def _real(self, name: str, texts: list[str], dtype: str) -> str:
        given, of = ", ".join(texts), of_dtype(dtype)
        if name in _EXACT:
            return f"{_EXACT[name]}({given})"
        if name in _OPERATIONS:
            return f"{_OPERATIONS[name]}({given}, {of})"
        if name == "pow":
            return f"power({given}, {_FUNCTION_ERROR_ULPS}, {of})"
        if name in ("mod", "rem"):
            return f"rest({given}, {int(name == 'rem')}, {of})"
        function, units = (
            _WHOLE.get(name, "sigmoid_of" if name == "sigmoid" else name),
            0 if name in _WHOLE else _FUNCTION_ERROR_ULPS,
        )
        ends = "" if name in ("sin", "cos") else f"{function}(a.v - a.e), {function}(a.v + a.e), "
        kind = "wave" if name in ("sin", "cos") else _SHAPES.get(name, "near")
        text = f"return {kind}({function}(a.v), {ends}a, {units}, {of});"
        self.functions.setdefault(f"static inline num {name}_{dtype}_near(num a) {{ {text} }}")
        return f"{name}_{dtype}_near({given})"

    def _selected(self, formula: Apply) -> str:
        condition, (then, otherwise) = self.truth(formula.operands[0]), map(self.formula, formula.operands[1:])
        if formula.dtype in REALS:
            return f"chosen({condition}, {then}, {otherwise})"
        if formula.dtype == "bool":
            return f"truth_chosen({condition}, {then}, {otherwise})"
        return f"(decided({condition}) ? {then} : {otherwise})"


def _made_by(body: Sequence[Statement]) -> dict[str, set[Formula]]:
    """Returns the formulas assigned to each variable of a nest, with the indices of loads left out."""
    found: dict[str, set[Formula]] = {}
    known: list[tuple[str, str]] = []
    stack = list(body)
    while stack:
        statement = stack.pop()
        if isinstance(statement, For | When):
            stack += statement.body
        elif isinstance(statement, Let):
            if isinstance(statement.formula, Local):
                known.append((statement.local.name, statement.formula.name))
            else:
                made = changed(statement.formula, lambda _: Index())
                found.setdefault(statement.local.name, set()).add(made)
    for _ in known:  # copies of variables are transitive
        for name, other in known:
            found.setdefault(name, set()).update(found.get(other, ()))
    return found


def of_dtype(dtype: str) -> str:
    """Returns the C arguments of a dtype: unit roundoff, least and largest number, and kind.

    The unit roundoff includes that of float64, in which values are computed.
    """
    unit = 2.0 ** -(fraction_bits(dtype) + 1) + 2.0**-53 + (2.0**-24 if dtype in BITS else 0)
    least = 2.0 ** max(-1074, least_exponent(dtype) - fraction_bits(dtype))
    return f"{unit.hex()}, {least.hex()}, {largest_float(dtype).hex()}, {_KINDS[dtype]}"


class OneText(Source):
    """Source in one translation unit: its functions share the `undecided` flag."""

    def units(self, count: int) -> list[str]:
        return [str(self)]
