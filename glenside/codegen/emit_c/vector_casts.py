"""Lane-wise casts of vectors: integers that widen or wrap, and floats, as processors do them.

GCC 12 splits `__builtin_convertvector` into single elements if one type is several times as wide as the other; there
inline assembly is used.
"""

from __future__ import annotations

from glenside.codegen.emit_c.scalar_primitives import STORED_AS
from glenside.codegen.loop_ir.ir import Apply, Convert, Formula, Number
from glenside.ir.dtypes import HALVES, RECORDS, limits
from glenside.ir.open_integer import OpenFraction

_WIDE = ("int32", "uint32")
_NARROW = ("int8", "uint8", "int16", "uint16")
IN_LANES = ("float32", *HALVES, *_WIDE, *_NARROW)
"""Dtypes that one vector formula may mix: their vectors have the lanes of 32-bit dtypes."""
_READ_AS = {"bool": "uint8", "int4": "int8", "uint4": "uint8"}
"""The dtypes as which truths (0 or 1) and integers of 4 bits are read."""
_LETTERS = {"float": "f", "integer": "i"}
_INSTRUCTION = """static inline TO NAME(FROM a)
{
    TO b = {0};
#if defined __AVX512VL__ && defined __AVX512BW__ && LANES >= 8 && !defined __clang__
    __asm__("WORD %1, %0" : "=v"(b) : "v"(a));
#elif defined __AVX2__ && WIDENS && LANES == 8 && !defined __clang__
    __asm__("WORD %1, %0" : "=x"(b) : "x"(a));
#else
    b = __builtin_convertvector(a, TO);
#endif
    return b;
}"""
_NEAREST = """static inline TO NAME(FROM a, float least, float most)
{
    TO b = {0};
    FROM low = (FROM){0} + least, high = (FROM){0} + most;
#if defined __AVX512F__ && SIZE == 64
    __asm__("vmaxps %1, %0, %0" : "+v"(a) : "v"(low));
    __asm__("vminps %1, %0, %0" : "+v"(a) : "v"(high));
    __asm__("vcvtps2dq %1, %0" : "=v"(b) : "v"(a));
#elif defined __AVX__ && (SIZE == 32 || SIZE == 16)
    __asm__("vmaxps %1, %0, %0" : "+x"(a) : "x"(low));
    __asm__("vminps %1, %0, %0" : "+x"(a) : "x"(high));
    __asm__("vcvtps2dq %1, %0" : "=x"(b) : "x"(a));
#elif defined __aarch64__ && SIZE == 16
    __asm__("fmaxnm %0.4s, %0.4s, %1.4s" : "+w"(a) : "w"(low));
    __asm__("fminnm %0.4s, %0.4s, %1.4s" : "+w"(a) : "w"(high));
    __asm__("fcvtns %0.4s, %1.4s" : "=w"(b) : "w"(a));
#else
    for (int i = 0; i < LANES; i++) b[i] = (int32_t)nearbyintf(a[i] >= low[i] ? a[i] < high[i] ? a[i] : most : least);
#endif
    return b;
}"""
_CUT = r"""static inline TO NAME(FROM a)
{
    TO b = {0};
#if defined __AVX512DQ__ && SIZE == 64
    FROM c;
    __asm__("vextractf32x8 $1, %2, %t1\n\tvcvttps2qq %t2, %0\n\tvcvttps2qq %t1, %1\n\t"
            "vpmovqd %0, %t0\n\tvpmovqd %1, %t1\n\tvinserti32x8 $1, %t1, %0, %0"
            : "=&v"(b), "=&v"(c) : "v"(a));
#elif defined __AVX512DQ__ && SIZE == 32
    __asm__("vcvttps2qq %1, %g0\n\tvpmovqd %g0, %0" : "=v"(b) : "v"(a));
#elif defined __AVX512DQ__ && defined __AVX512VL__ && SIZE == 16
    __asm__("vcvttps2qq %1, %t0\n\tvpmovqd %t0, %0" : "=v"(b) : "v"(a));
#else
    for (int i = 0; i < LANES; i++) b[i] = a[i] >= -0x1p63f && a[i] < 0x1p63f ? (int32_t)(int64_t)a[i] : 0;
#endif
    return b;
}"""
_FROM_BFLOAT16 = "static inline TO NAME(FROM a) { return (TO)(CHANGED(a) << 16); }"
_TO_BFLOAT16 = """static inline TO NAME(FROM a)
{
    UNSIGNED u = (UNSIGNED)a, special = (UNSIGNED)(a != a);
    UNSIGNED nearest = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return CHANGED(((u >> 16 | 0x40u) & special) | (nearest & ~special));
}"""


_FROM_FLOAT16 = """static inline TO NAME(FROM a)
{
    TO b = {0};
#if defined __AVX512F__ && LANES == 16
    __asm__("vcvtph2ps %1, %0" : "=v"(b) : "v"(a));
#elif defined __F16C__ && LANES == 8
    __asm__("vcvtph2ps %1, %0" : "=x"(b) : "x"(a));
#else
    UNSIGNED u = CHANGED(a), special = (UNSIGNED)((u & 0x7c00u) == 0x7c00u);
    b = (TO)((u & 0x7fffu) << 13) * 0x1p112f;
    b = (TO)((UNSIGNED)b | (special & 0x7f800000u) | (u & 0x8000u) << 16);
#endif
    return b;
}"""
_TO_FLOAT16 = """static inline TO NAME(FROM a)
{
#if defined __AVX512F__ && LANES == 16
    TO b = {0};
    __asm__("vcvtps2ph $0, %1, %0" : "=v"(b) : "v"(a));
    return b;
#elif defined __F16C__ && LANES == 8
    TO b = {0};
    __asm__("vcvtps2ph $0, %1, %0" : "=x"(b) : "x"(a));
    return b;
#else
    UNSIGNED u = (UNSIGNED)a, rest = u & 0x7fffffffu, small = (UNSIGNED)(rest < 0x38800000u);
    UNSIGNED large = (UNSIGNED)(rest >= 0x477ff000u), wrong = (UNSIGNED)(rest > 0x7f800000u);
    UNSIGNED below = (UNSIGNED)((FROM)rest + 0.5f) - 0x3f000000u;
    UNSIGNED nearest = (rest + 0xc8000fffu + (rest >> 13 & 1u)) >> 13;
    nearest = (below & small) | (nearest & ~small & ~large) | (0x7c00u & large) | (0x200u & wrong);
    return CHANGED(nearest | (u >> 16 & 0x8000u));
#endif
}"""
_HALVES = {"bfloat16": (_FROM_BFLOAT16, _TO_BFLOAT16), "float16": (_FROM_FLOAT16, _TO_FLOAT16)}


def kind_name(dtype: str, lanes: int) -> str:
    """Returns the C type of a vector of `lanes` elements of a dtype."""
    record = RECORDS[dtype]
    letter = "u" if record.kind == "integer" and not record.signed else _LETTERS.get(record.kind, "u")
    return f"{letter}{record.bits}x{lanes}"


def vector_type(dtype: str, lanes: int) -> str:
    """Returns the declaration of a vector type: aligned as an element, and may alias any type."""
    size = RECORDS[dtype].bits // 8
    how = f"vector_size({size * lanes}), aligned({size}), may_alias"
    return f"typedef {STORED_AS[dtype]} {kind_name(dtype, lanes)} __attribute__(({how}));"


BROADCAST = {
    "bfloat16": ("uint16", "uint32", "return (TO)(((WIDE)((FROM){0} + a)) << 16);"),
    "int8": ("int8", "int32", "return __builtin_convertvector((WIDE)((FROM){0} + a) >> 24, TO);"),
}
"""Dtypes whose elements are broadcast as they are stored, and then cast in all lanes: fewer instructions."""


def broadcast_cast(given: str, lanes: int) -> tuple[str, list[str]]:
    """Returns the function of an element of a dtype of `BROADCAST` to a vector of float32, and its definitions."""
    narrow, wide, body = BROADCAST[given]
    times = RECORDS[wide].bits // RECORDS[narrow].bits
    kinds = {"FROM": (narrow, times * lanes), "WIDE": (wide, lanes), "TO": ("float32", lanes)}
    name = f"float32_of_each_{given}_x{lanes}"
    for word, kind in kinds.items():
        body = body.replace(word, kind_name(*kind))
    text = f"static inline {kind_name('float32', lanes)} {name}({STORED_AS[narrow]} a) {{ {body} }}"
    return name, [*(vector_type(*kind) for kind in kinds.values()), text]


def converts(given: str, wanted: str) -> bool:
    """True if vectors of dtype `given` can be cast to dtype `wanted`."""
    if given == wanted:
        return True
    pair = given, wanted = _READ_AS.get(given, given), wanted
    if "float32" in pair:
        return pair != ("uint32", "float32") and wanted != "uint32" and {*pair} <= {*IN_LANES}
    return {*pair} <= {*_WIDE, *_NARROW}


def conversion(given: str, wanted: str, lanes: int) -> tuple[str, list[str]]:
    """Returns the vector cast function and the definitions it needs, in dependency order.

    Halves are their bits, uint16, in memory.
    """
    given = _READ_AS.get(given, given)
    name = f"{wanted}_of_{given}_x{lanes}"
    between = _between(given, wanted)
    if between:
        first, texts = conversion(given, between, lanes)
        second, others = conversion(between, wanted, lanes)
        text = "static inline TO NAME(FROM a) { return SECOND(FIRST(a)); }".replace("FIRST", first)
        return name, [*texts, *others, _filled(text.replace("SECOND", second), name, given, wanted, lanes)]
    texts = [vector_type(memory_dtype(dtype), lanes) for dtype in (given, wanted)]
    half = next((dtype for dtype in (given, wanted) if dtype in HALVES), None)
    if half is None:
        return name, [*texts, _filled(_direct(given, wanted), name, given, wanted, lanes)]
    change, others = conversion(*(("uint16", "uint32") if half == given else ("uint32", "uint16")), lanes)
    text = _HALVES[half][half == wanted].replace("CHANGED", change)
    text = text.replace("UNSIGNED", kind_name("uint32", lanes))
    return name, [*texts, *others, _filled(text, name, given, wanted, lanes)]


def nearest(lanes: int) -> tuple[str, list[str]]:
    """Returns the function that clamps a float vector and rounds it to int32, ties to even, and its definitions.

    A nan gives the lower bound.
    """
    name = f"nearest_x{lanes}"
    types = [vector_type(dtype, lanes) for dtype in ("float32", "int32")]
    text = _filled(_NEAREST.replace("SIZE", str(4 * lanes)), name, "float32", "int32", lanes)
    return name, [*types, text]


def cut(lanes: int) -> tuple[str, list[str]]:
    """Returns the function that truncates a float vector to int64 and keeps the low 32 bits, as scalars do."""
    name = f"cut_x{lanes}"
    types = [vector_type(dtype, lanes) for dtype in ("float32", "int32")]
    return name, [*types, _filled(_CUT.replace("SIZE", str(4 * lanes)), name, "float32", "int32", lanes)]


def rounded_within(formula: Convert) -> tuple[Formula, int, int] | None:
    """Returns (x, zero, most) if a formula is clip(round(x) + zero, 0, most), cast to uint8 or uint16; else None."""
    if formula.bits or formula.formula.dtype != "float32" or formula.dtype not in ("uint8", "uint16"):
        return None
    inner = formula.formula
    bounds: dict[str, int] = {}
    while isinstance(inner, Apply) and inner.primitive.name in ("min", "max", "add") and "add" not in bounds:
        x, number = inner.operands if isinstance(inner.operands[1], Number) else inner.operands[::-1]
        if not isinstance(number, Number) or number.value is None or number.value.denominator != 1:
            return None
        if inner.primitive.name in bounds or abs(number.value) > 1 << 16 or isinstance(number.value, OpenFraction):
            return None
        bounds[inner.primitive.name] = int(number.value)
        inner = x
    if not isinstance(inner, Apply) or inner.primitive.name != "round" or bounds.get("max") != 0:
        return None
    most = bounds.get("min", -1)
    return (inner.operands[0], bounds.get("add", 0), most) if 0 <= most <= limits(formula.dtype)[1] else None


def stored_apart(apart: int, lanes: int) -> tuple[str, list[str]]:
    """Returns the function that stores a float vector with a stride of `apart` elements, and its definitions."""
    name, kinds = f"store_{apart}_x{lanes}", [vector_type(dtype, lanes) for dtype in ("float32", "int32")]
    parts = []
    for part in range(apart):
        places = [part * lanes + i for i in range(lanes)]
        picked = ", ".join(str(place // apart) for place in places)
        mask = sum(1 << i for i, place in enumerate(places) if place % apart == 0)
        parts.append(  # the indices are in memory: registers for them would be taken from the tile
            f"    static const int32_t at{part}[16] = {{{picked}}};\n"
            f'    __asm__("vmovdqu32 %2, %1\\n\\tvpermps %3, %1, %1\\n\\tvmovups %1, %0%{{%4%}}"\n'
            f'            : "+m"(*(f32x16 *)(p + {part * lanes})), "=&v"(b)\n'
            f'            : "m"(at{part}), "v"(a), "Yk"((unsigned short){mask}));\n'
        )
    plain = f"    for (int i = 0; i < {lanes}; i++) p[{apart} * i] = a[i];\n"
    if lanes == 16:
        plain = f"#ifdef __AVX512F__\n    f32x16 b;\n{''.join(parts)}#else\n{plain}#endif\n"
    return name, [*kinds, f"static inline void {name}(float *p, f32x{lanes} a)\n{{\n{plain}}}"]


def stored_repeatedly(times: int, lanes: int) -> tuple[str, list[str]]:
    """Returns the function that stores each lane of a float vector `times` times, and its definitions."""
    name, kinds = f"repeat_{times}_x{lanes}", [vector_type(dtype, lanes) for dtype in ("float32", "int32")]
    parts = [
        (part * lanes, ", ".join(str((part * lanes + lane) // times) for lane in range(lanes))) for part in range(times)
    ]
    of_clang = "".join(f"    *(f32x{lanes} *)(p + {n}) = __builtin_shufflevector(a, a, {at});\n" for n, at in parts)
    of_gcc = "".join(
        f"    *(f32x{lanes} *)(p + {n}) = __builtin_shuffle(a, (i32x{lanes}){{{at}}});\n" for n, at in parts
    )
    body = f"#ifdef __clang__\n{of_clang}#else\n{of_gcc}#endif\n"
    return name, [*kinds, f"static inline void {name}(float *p, f32x{lanes} a)\n{{\n{body}}}"]


def memory_dtype(dtype: str) -> str:
    """Returns the dtype of the elements of a vector in memory."""
    return "uint16" if dtype in HALVES else dtype


def _between(given: str, wanted: str) -> str:
    """Returns the intermediate dtype of a cast; "" if one instruction does it."""
    if given in HALVES or wanted in HALVES:
        return "" if "float32" in (given, wanted) else "float32"
    return "int32" if "float32" in (given, wanted) and {given, wanted} & {*_NARROW} else ""


def _direct(given: str, wanted: str) -> str:
    """Returns the template of a cast by one instruction."""
    a, b = RECORDS[given], RECORDS[wanted]
    letters = {8: "b", 16: "w", 32: "d"}
    if "float32" in (given, wanted) or a.bits == b.bits:
        return "static inline TO NAME(FROM a) { return __builtin_convertvector(a, TO); }"
    if a.bits > b.bits:
        return _INSTRUCTION.replace("WORD", f"vpmov{letters[a.bits]}{letters[b.bits]}").replace("WIDENS", "0")
    word = f"vpmov{'s' if a.signed else 'z'}x{letters[a.bits]}{letters[b.bits]}"
    return _INSTRUCTION.replace("WORD", word).replace("WIDENS", "1")


def _filled(text: str, name: str, given: str, wanted: str, lanes: int) -> str:
    kinds = (kind_name(memory_dtype(dtype), lanes) for dtype in (given, wanted))
    text = text.replace("LANES", str(lanes))
    return text.replace("NAME", name).replace("FROM", next(kinds)).replace("TO", next(kinds))
