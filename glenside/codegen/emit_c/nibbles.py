"""C that reads integers of 4 bits: one in a byte, or two of them, as `Buffer.nibbles` says."""

from __future__ import annotations

from glenside.codegen.emit_c.vector_casts import kind_name, vector_type

NIBBLES = ("int4", "uint4")
HALF, WIDE_HALF = 16, 64
"""Elements in the low halves of as many bytes, before those in the high halves: of vectors of 16 floats or 64 bytes."""
_NIBBLE = """static inline uint8_t NAME(const uint8_t *p, int64_t e) { return p[PLACE] >> (SHIFT) & 15; }"""
_NIBBLES = """static inline BYTES NAME(const uint8_t *p, int64_t e)
{
    WORDS a = (WORDS)*(const BYTES *)(p + (PLACE));
    return (BYTES)(a >> (SHIFT)) & 15;
}"""
"""Bytes of elements; each word holds whole bytes."""
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


def _at(half: int) -> tuple[str, str]:
    """Returns the index of the byte of element `e`, and the bits by which it is shifted."""
    if not half:
        return "e", "0"
    log = half.bit_length() - 1
    return f"e >> {log + 1} << {log} | (e & {half - 1})", f"(int)(e >> {log - 2} & 4)"


def nibble(half: int) -> tuple[str, str]:
    """Returns the function that reads the bits of one element, and its definition."""
    (place, shift), name = _at(half), f"nibble{half}"
    return name, _NIBBLE.replace("NAME", name).replace("PLACE", place).replace("SHIFT", shift)


def bytes_of_nibbles(half: int, count: int) -> tuple[str, list[str]]:
    """Returns the function that reads elements of no sign as a vector of bytes, and the definitions it needs."""
    (place, shift), name = _at(half), f"nibbles{half}_x{count}"
    text = _NIBBLES.replace("NAME", name).replace("PLACE", place).replace("SHIFT", shift)
    text = text.replace("BYTES", kind_name("uint8", count)).replace("WORDS", kind_name("uint32", count // 4))
    return name, [vector_type("uint8", count), vector_type("uint32", count // 4), text]


def vector_of_nibbles(dtype: str, half: int, wanted: str, lanes: int) -> tuple[str, list[str]]:
    """Returns the function that reads a vector as float32 or int32, and the definitions it needs, in order.

    half  `Buffer.nibbles`
    """
    (place, shift), of = _at(half), f"nibbles{half}" if half else dtype
    bits = f"bits_of_{of}_x{lanes}"
    name = f"{wanted}_of_{f'{of}_of_' if half else ''}{dtype}_x{lanes}"
    sign = 8 if dtype == "int4" else 0
    values = ", ".join(f"{((code ^ sign) - sign)}.0f" for code in range(16))
    kinds = {"BYTES": "uint8", "INTS": "int32", "FLOATS": "float32"}
    texts = []
    for text, own in ((_BITS, bits), (_FLOATS if wanted == "float32" else _INTEGERS, name)):
        text = text.replace("NAME", own).replace("BITS", bits).replace("LANES", str(lanes)).replace("VALUES", values)
        text = text.replace("SIGN", str(sign)).replace("PLACE", f"({place})").replace("SHIFT", shift)
        for word, kind in kinds.items():
            text = text.replace(word, kind_name(kind, lanes))
        texts.append(text)
    return name, [*(vector_type(kind, lanes) for kind in kinds.values()), *texts]
