"""Conversions of vectors, lane by lane: integers that widen or wrap, and floats, as processors have them.

GCC 12 takes `__builtin_convertvector` apart into single elements where one type is several times as wide as the other
one; there the instruction is written out.
"""

from __future__ import annotations

from glenside.codegen.c_primitives import STORED_AS
from glenside.ir.dtypes import RECORDS

_WIDE = ("int32", "uint32")
_NARROW = ("int8", "uint8", "int16", "uint16")
IN_LANES = ("float32", "bfloat16", *_WIDE, *_NARROW)
"""Dtypes that are together in one formula of vectors: all have as many lanes as those of 32 bits."""
_LETTERS = {"float": "f", "integer": "i"}
_INSTRUCTION = """static inline TO NAME(FROM a)
{
    TO b;
#if defined __AVX512VL__ && defined __AVX512BW__ && LANES >= 8 && !defined __clang__
    __asm__("WORD %1, %0" : "=v"(b) : "v"(a));
#elif defined __AVX2__ && WIDENS && LANES == 8 && !defined __clang__
    __asm__("WORD %1, %0" : "=x"(b) : "x"(a));
#else
    b = __builtin_convertvector(a, TO);
#endif
    return b;
}"""
_NEAREST = """static inline TO NAME(FROM a)
{
    TO b;
#if defined __AVX512F__ && SIZE == 64
    __asm__("vcvtps2dq %1, %0" : "=v"(b) : "vm"(a));
#elif defined __AVX__ && (SIZE == 32 || SIZE == 16)
    __asm__("vcvtps2dq %1, %0" : "=x"(b) : "xm"(a));
#elif defined __aarch64__ && SIZE == 16
    __asm__("fcvtns %0.4s, %1.4s" : "=w"(b) : "w"(a));
#else
    for (int i = 0; i < LANES; i++) b[i] = (int32_t)nearbyintf(a[i]);
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


def kind_name(dtype: str, lanes: int) -> str:
    """The C type of so many elements of a dtype."""
    record = RECORDS[dtype]
    letter = "u" if record.kind == "integer" and not record.signed else _LETTERS.get(record.kind, "u")
    return f"{letter}{record.bits}x{lanes}"


def vector_type(dtype: str, lanes: int) -> str:
    """Its declaration: a vector may lie anywhere an element may, and be of memory of any type."""
    size = RECORDS[dtype].bits // 8
    how = f"vector_size({size * lanes}), aligned({size}), may_alias"
    return f"typedef {STORED_AS[dtype]} {kind_name(dtype, lanes)} __attribute__(({how}));"


def converts(given: str, wanted: str) -> bool:
    """Whether vectors of one dtype become another one. What is cut to an integer must fit into
    32 bits: see `lanes.fits`."""
    if given == wanted:
        return True
    pair = given, wanted
    if "float32" in pair:
        return pair != ("uint32", "float32") and wanted != "uint32" and {*pair} <= {*IN_LANES}
    return {*pair} <= {*_WIDE, *_NARROW}


def conversion(given: str, wanted: str, lanes: int) -> tuple[str, list[str]]:
    """The function from vectors of one dtype to another one, and the texts that it takes, it last.

    A bfloat16 is its bits, uint16, in memory.
    """
    name = f"{wanted}_of_{given}_x{lanes}"
    between = _between(given, wanted)
    if between:
        first, texts = conversion(given, between, lanes)
        second, others = conversion(between, wanted, lanes)
        text = "static inline TO NAME(FROM a) { return SECOND(FIRST(a)); }".replace("FIRST", first)
        return name, [*texts, *others, _filled(text.replace("SECOND", second), name, given, wanted, lanes)]
    texts = [vector_type(memory_dtype(dtype), lanes) for dtype in (given, wanted)]
    if "bfloat16" not in (given, wanted):
        return name, [*texts, _filled(_direct(given, wanted), name, given, wanted, lanes)]
    change, others = conversion(*(("uint16", "uint32") if given == "bfloat16" else ("uint32", "uint16")), lanes)
    text = (_FROM_BFLOAT16 if given == "bfloat16" else _TO_BFLOAT16).replace("CHANGED", change)
    text = text.replace("UNSIGNED", kind_name("uint32", lanes))
    return name, [*texts, *others, _filled(text, name, given, wanted, lanes)]


def nearest(lanes: int) -> tuple[str, list[str]]:
    """The same of floats that 32 bits hold and the nearest integers, halves to the even one."""
    name = f"nearest_x{lanes}"
    types = [vector_type(dtype, lanes) for dtype in ("float32", "int32")]
    text = _filled(_NEAREST.replace("SIZE", str(4 * lanes)), name, "float32", "int32", lanes)
    return name, [*types, text]


def memory_dtype(dtype: str) -> str:
    """What vectors of a dtype are of in memory."""
    return "uint16" if dtype == "bfloat16" else dtype


def _between(given: str, wanted: str) -> str:
    """By way of which dtype one becomes another; "" where there is an instruction."""
    if "bfloat16" in (given, wanted):
        return "" if "float32" in (given, wanted) else "float32"
    return "int32" if "float32" in (given, wanted) and {given, wanted} & {*_NARROW} else ""


def _direct(given: str, wanted: str) -> str:
    """By one instruction."""
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
