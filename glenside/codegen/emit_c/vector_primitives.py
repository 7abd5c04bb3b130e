"""Vector primitives, in extensions of C by GCC and Clang; each within a few units in the last place.

exp: x = n ln 2 + r, a polynomial of r, and 2^n added to the exponent in two halves, so that both ends of the range are
right. tanh and erf: x P(x^2) / Q(x^2), fitted here by weighted least squares for the least relative error (3e-7 in
float32, measured over the whole range). Other primitives run lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from glenside.codegen.emit_c.scalar_primitives import RELATIONS
from glenside.codegen.emit_c.vector_casts import kind_name, vector_type
from glenside.codegen.loop_ir.ir import Apply, Convert, Formula, Number
from glenside.ir.dtypes import RECORDS
from glenside.ir.open_integer import OpenFraction

VECTOR_SYMBOLS: Mapping[str, str] = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
"""Primitives that are C operators on vectors."""
LANE_BY_LANE = frozenset(
    "sqrt log sin cos tan asin acos atan sinh cosh asinh acosh atanh floor ceil exp tanh erf sigmoid".split()
)
"""Unary functions; those without a vector form here call the library lane by lane."""
IN_VECTORS = frozenset({*VECTOR_SYMBOLS, *LANE_BY_LANE, "negative", "abs", "min", "max", "round"})
"""Primitives with a vector form for floats."""
WHOLE_IN_VECTORS = frozenset(("add", "subtract", "multiply", "min", "max"))
"""Primitives with a vector form for integers, which wrap."""

_CHOSEN = {"min": "<=", "max": ">="}
_INSTRUCTION = """static inline KIND NAME(KIND a, KIND b)
{
#if defined __AVX512F__ && BYTES == 64
    __asm__("vPRIMITIVEpTYPE %1, %2, %0" : "=v"(a) : "vm"(a), "v"(b));
#elif defined __AVX__ && (BYTES == 32 || BYTES == 16)
    __asm__("vPRIMITIVEpTYPE %1, %2, %0" : "=x"(a) : "xm"(a), "x"(b));
#elif defined __aarch64__ && BYTES == 16
    __asm__("fPRIMITIVE %0.LANES, %1.LANES, %2.LANES" : "=w"(a) : "w"(a), "w"(b));
#else
    CHOSEN
#endif
    return a;
}"""
_CHOOSE = (
    "__typeof__(a != a) first = (a {} b) | (a != a);\n"
    "    a = ({})((first & (__typeof__(first))a) | (~first & (__typeof__(first))b));"
)
_ROUND = """static inline KIND NAME(KIND a)
{
#if defined __AVX512F__ && BYTES == 64
    __asm__("vrndscalepTYPE $4, %1, %0" : "=v"(a) : "vm"(a));
#elif defined __AVX__ && (BYTES == 32 || BYTES == 16)
    __asm__("vroundpTYPE $4, %1, %0" : "=x"(a) : "xm"(a));
#elif defined __aarch64__ && BYTES == 16
    __asm__("frintn %0.LANES, %1.LANES" : "=w"(a) : "w"(a));
#else
    for (int i = 0; i < COUNT; i++) a[i] = nearbyintSUFFIX(a[i]);
#endif
    return a;
}"""
_BESIDE_NUMBER = {f"{name}_of_number": name for name in _CHOSEN}
_TANH = (
    9.1,
    (0.99999999857118, 0.1367612173470392, 0.003863573813374942, 2.7911530067416732e-05, 3.035448458295139e-08,
     -1.2032817227986584e-11),
    (1.0, 0.4700945367962996, 0.02722844183510659, 0.00039302487444264927, 1.2806653739965162e-06),
)  # fmt: skip
_ERF = (
    4.0,
    (1.1283790946223788, 0.2070922023878859, 0.05152029220782985, 0.003989005488640443, 0.0001472376910297355,
     -1.9419048904194483e-06, 1.9107949655371108e-08),
    (1.0, 0.5168619444789017, 0.11795687672055377, 0.014955054965822967, 0.0010206947046019503),
)  # fmt: skip


def beside_number(primitive: str) -> str:
    """Returns the name of a primitive of a vector and a constant that is no nan.

    The minimum and maximum of processors return the second operand if either is nan; here the vector is second.
    """
    return f"{primitive}_of_number" if primitive in _CHOSEN else primitive


JOINED_IN_LANES = ("add", "max", "min")
"""Primitives by which the lanes of a register are joined."""


def joined_lanes(primitive: str, lanes: int) -> tuple[str, list[str]]:
    """Returns the function that joins the lanes of a float32 vector in a balanced tree, and its definitions."""
    kind, name = kind_name("float32", lanes), f"lanes_{primitive}_x{lanes}"
    texts = [vector_type("float32", lanes), vector_type("int32", lanes)]
    joined = "a + b"
    if primitive != "add":
        texts += vector_function(primitive, kind, "float32", lanes)
        joined = f"{primitive}_{kind}(a, b)"
    levels = [1 << level for level in range(lanes.bit_length() - 1)]
    body = []
    for apart in levels:
        moved = ", ".join(str(lane ^ apart) for lane in range(lanes))
        body.append(
            f"#ifdef __clang__\n    b = __builtin_shufflevector(a, a, {moved});\n#else\n"
            f"    b = __builtin_shuffle(a, ({kind_name('int32', lanes)}){{{moved}}});\n#endif\n    a = {joined};\n"
        )
    texts.append(f"static inline float {name}({kind} a)\n{{\n    {kind} b;\n{''.join(body)}    return a[0];\n}}")
    return name, texts


def vector_function(primitive: str, kind: str, dtype: str, lanes: int) -> list[str]:
    """Returns the C functions of a primitive on vectors of type `kind`, `PRIMITIVE_KIND` last."""
    name = f"{primitive}_{kind}"
    if primitive in _CHOSEN:
        return [
            f"static inline {kind} {name}({kind} a, {kind} b)\n"
            f"{{\n    {_CHOOSE.format(_CHOSEN[primitive], kind)}\n    return a;\n}}"
        ]
    if primitive in _BESIDE_NUMBER:
        primitive = _BESIDE_NUMBER[primitive]
        text = _INSTRUCTION.replace("CHOSEN", _CHOOSE.format(_CHOSEN[primitive], kind))
        return [_filled(text.replace("PRIMITIVE", primitive), name, kind, dtype, lanes)]
    if primitive == "round":
        return [_filled(_ROUND, name, kind, dtype, lanes)]
    if primitive == "negative":
        return [f"static inline {kind} {name}({kind} a) {{ return -a; }}"]
    if dtype == "float32" and primitive in _MADE:
        return _MADE[primitive](kind, lanes)
    function = {"abs": "fabs"}.get(primitive, primitive) + ("" if dtype == "float64" else "f")
    value = (
        f"1 / (1 + exp{'' if dtype == 'float64' else 'f'}(-a[i]))" if primitive == "sigmoid" else f"{function}(a[i])"
    )
    return [f"static inline {kind} {name}({kind} a) {{ for (int i = 0; i < {lanes}; i++) a[i] = {value}; return a; }}"]


def _filled(text: str, name: str, kind: str, dtype: str, lanes: int) -> str:
    """Fills a template for vectors of a type."""
    wide = dtype == "float64"
    text = text.replace("NAME", name).replace("KIND", kind).replace("TYPE", "d" if wide else "s")
    text = text.replace("BYTES", str(lanes * (8 if wide else 4))).replace("LANES", "2d" if wide else "4s")
    return text.replace("COUNT", str(lanes)).replace("SUFFIX", "" if wide else "f")


def _bounded(kind: str, lanes: int) -> list[str]:
    return [text for name in _BESIDE_NUMBER for text in vector_function(name, kind, "float32", lanes)]


def _exp(kind: str, lanes: int) -> list[str]:
    whole = f"i32x{lanes}"
    powers = " ".join(f"p = p * r + {1 / factorial}f;" for factorial in (720, 120, 24, 6))
    return [
        *_bounded(kind, lanes),
        f"typedef int32_t {whole} __attribute__((vector_size({4 * lanes}), aligned(4), may_alias));",
        f"static inline {kind} exp_{kind}({kind} x)\n"
        "{\n"
        f"    const {kind} zero = {{0}};\n"
        f"    x = max_of_number_{kind}(min_of_number_{kind}(x, zero + 89.0f), zero - 104.0f);\n"
        f"    {kind} shifted = x * 0x1.715476p+0f + 0x1.8p+23f, n = shifted - 0x1.8p+23f;\n"
        f"    {whole} i = ({whole})shifted - 0x4b400000;\n"
        f"    {kind} r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f, p = zero + {1 / 5040}f;\n"
        f"    {powers} p = p * r + 0.5f; p = p * r + 1.0f; p = p * r + 1.0f;\n"
        f"    {whole} half = i >> 1;\n"
        f"    return p * ({kind})((half + 127) << 23) * ({kind})((i - half + 127) << 23);\n"
        "}",
    ]


def _sigmoid(kind: str, lanes: int) -> list[str]:
    return [
        *_exp(kind, lanes),
        f"static inline {kind} sigmoid_{kind}({kind} a) {{ return 1.0f / (1.0f + exp_{kind}(-a)); }}",
    ]


def _rational(
    name: str, top: float, above: Sequence[float], below: Sequence[float], kind: str, lanes: int
) -> list[str]:
    def horner(variable: str, numbers: Sequence[float]) -> str:
        first, *others = [f"{number!r}f" if "e" in repr(number) else f"{number}f" for number in reversed(numbers)]
        return f"{kind} {variable} = zero + {first}; " + " ".join(f"{variable} = {variable} * u + {o};" for o in others)

    return [
        *_bounded(kind, lanes),
        f"static inline {kind} {name}_{kind}({kind} x)\n"
        "{\n"
        f"    const {kind} zero = {{0}};\n"
        f"    x = max_of_number_{kind}(min_of_number_{kind}(x, zero + {top}f), zero - {top}f);\n"
        f"    {kind} u = x * x;\n    {horner('p', above)}\n    {horner('q', below)}\n"
        "    return x * p / q;\n}",
    ]


_MADE: Mapping[str, Callable[[str, int], list[str]]] = {
    "exp": _exp,
    "sigmoid": _sigmoid,
    "tanh": lambda kind, lanes: _rational("tanh", *_TANH, kind, lanes),
    "erf": lambda kind, lanes: _rational("erf", *_ERF, kind, lanes),
}


def comparison_of(choice: Apply) -> tuple[str, Sequence[Formula]]:
    """Returns the relation and operands of the condition of a select; a condition that is no comparison: != 0."""
    own = condition = choice.operands[0]
    while isinstance(own, Convert) and not own.bits:  # a truth stays a truth
        own = own.formula
    if isinstance(own, Apply) and own.primitive.name in RELATIONS:
        return RELATIONS[own.primitive.name], own.operands
    while isinstance(condition, Convert) and not condition.bits and _is_of_truth(condition):
        condition = condition.formula
    return "!=", (condition, Number(Fraction(0), condition.dtype))


def _is_of_truth(formula: Convert) -> bool:
    """True if a cast to a truth, or of such a truth, may be left out: its operand is compared with zero instead."""
    inner = formula.formula
    return formula.dtype == "bool" or (inner.dtype == "bool" and isinstance(inner, Convert))


def is_clamped(formula: Formula, dtype: str) -> bool:
    """True if floats are clamped to the range of 32 bits and cast to integers of fewer bits.

    A nan gives 0 in those, by either way of truncation.
    """
    within = float(1 << 30)
    low = high = False
    while isinstance(formula, Apply) and formula.primitive.name in ("min", "max"):
        number = next((o for o in formula.operands if isinstance(o, Number) and o.value is not None), None)
        if number is None or number.value is None or isinstance(number.value, OpenFraction):
            return False
        if abs(number.value) > within:
            return False
        low, high = low or formula.primitive.name == "max", high or formula.primitive.name == "min"
        formula = next((o for o in formula.operands if o is not number), number)
    return low and high and RECORDS[dtype].bits < 32
