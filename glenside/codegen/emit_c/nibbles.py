"""C that reads integers of 4 bits: one in a byte, or two of them, as `Buffer.nibbles` says."""

from __future__ import annotations

from glenside.codegen.emit_c.vector_casts import kind_name, vector_type

NIBBLES = ("int4", "uint4")
HALF = 16
"""Elements in the low halves of as many bytes, before those in the high halves."""
NIBBLE = """static inline uint8_t nibble(const uint8_t *p, int64_t e)
{
    return p[e >> 5 << 4 | (e & 15)] >> (e >> 2 & 4) & 15;
}"""
_BITS = """static inline INTS NAME(const uint8_t *p, int64_t e)
{
    BYTES a = *(const BYTES *)(p + PLACE);
    INTS b = {0};
#if defined __AVX512VL__ && defined __AVX512BW__ && LANES >= 8 && !defined __clang__
    __asm__("vpmovzxbd %1, %0" : "=v"(b) : "v"(a));
#elif defined __AVX2__ && LANES == 8 && !defined __clang__
    __asm__("vpmovzxbd %1, %0" : "=x"(b) : "x"(a));
#else
    b = __builtin_convertvector(a, INTS);
#endif
    return b >> SHIFT;
}"""
"""Lanes whose lowest 4 bits are the elements."""
_INTEGERS = "static inline INTS NAME(const uint8_t *p, int64_t e) { return ((BITS(p, e) & 15) ^ SIGN) - SIGN; }"
_FLOATS = """static inline FLOATS NAME(const uint8_t *p, int64_t e)
{
#if defined __AVX512F__ && LANES == 16 && !defined __clang__
    const FLOATS values = {VALUES};
    return __builtin_shuffle(values, BITS(p, e)); /* reads the lowest 4 bits of an index */
#else
    return __builtin_convertvector(((BITS(p, e) & 15) ^ SIGN) - SIGN, FLOATS);
#endif
}"""


def vector_of_nibbles(dtype: str, two: bool, wanted: str, lanes: int) -> tuple[str, list[str]]:
    """Returns the function that reads a vector as float32 or int32, and the definitions it needs, in order.

    two  True if two elements are in a byte
    """
    bits = f"bits_of_{'nibbles' if two else dtype}_x{lanes}"
    name = f"{wanted}_of_{'nibbles_of_' if two else ''}{dtype}_x{lanes}"
    sign = 8 if dtype == "int4" else 0
    values = ", ".join(f"{((code ^ sign) - sign)}.0f" for code in range(16))
    kinds = {"BYTES": "uint8", "INTS": "int32", "FLOATS": "float32"}
    texts = []
    for text, own in ((_BITS, bits), (_FLOATS if wanted == "float32" else _INTEGERS, name)):
        text = text.replace("NAME", own).replace("BITS", bits).replace("LANES", str(lanes)).replace("VALUES", values)
        text = text.replace("SIGN", str(sign)).replace("PLACE", "(e >> 5 << 4 | (e & 15))" if two else "e")
        text = text.replace("SHIFT", "(int)(e >> 2 & 4)" if two else "0")
        for word, kind in kinds.items():
            text = text.replace(word, kind_name(kind, lanes))
        texts.append(text)
    return name, [*(vector_type(kind, lanes) for kind in kinds.values()), *texts]
