"""Vector intrinsics, such as dot products of bytes or bfloat16: each has a meaning as a scalar formula, and C text.

The interpreter and scalar C compute the formula. The vector text is selected by the compiler's predefined macros, so
that one source is correct for every processor and fast where the instruction exists. Integer sums never saturate;
beyond 32 bits all texts wrap alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from glenside.codegen.loop_ir.ir import Apply, Formula
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number
from glenside.ir.dtypes import limits
from glenside.ir.operand import Array
from glenside.ir.scalar import REALS, WHOLE, Primitive


class Operand(Enum):
    """The kind of an operand of a vector instruction."""

    VECTOR = "a value in each lane"
    NUMBER = "a number that is the same in all"
    WORD = "four bytes that are the same in all lanes"
    BLOCK = "four bytes of memory for each lane, one lane after the other"
    PAIR = "two bfloat16 that are the same in all lanes"
    PAIRS = "two bfloat16 of memory for each lane, one lane after the other"

    @property
    def count(self) -> int:
        """Returns the number of formulas of the operand."""
        return {Operand.WORD: 4, Operand.BLOCK: 4, Operand.PAIR: 2, Operand.PAIRS: 2}.get(self, 1)

    @property
    def is_in_memory(self) -> bool:
        """True if each lane reads several contiguous elements from memory."""
        return self in (Operand.BLOCK, Operand.PAIRS)


def _nothing_of_its_own(*_: Any, **__: Any) -> Any:
    raise TypeError("an intrinsic equals its formula")


@dataclass(frozen=True, eq=False, kw_only=True)
class Instruction(Primitive):
    """A primitive of the loop IR alone, with a result of dtype int32, float32 or stored bfloat16.

    operands  the kinds of its operands
    meaning   the scalar formula that it computes, from the formulas of its operands
    text      C text with placeholders: NAME, LANES, SHORTS, BYTES, and SIZE, the bytes of a vector of results
    narrow    the scalar formula of text that clamps and wraps to fewer bits; equal to the meaning for operands whose
              ranges leave every clamp and narrow cast without effect, which the verifier requires
    """

    operands: tuple[Operand, ...]
    meaning: Callable[[Sequence[Formula]], Formula]
    text: str
    narrow: Callable[[Sequence[Formula]], Formula] | None = None
    numpy: Callable[..., Any] = field(default=_nothing_of_its_own)
    gives: str = "int32"

    def texts(self, lanes: int) -> list[str]:
        """Returns the vector types, then the function `NAME_xLANES` on vectors of `lanes` lanes."""
        text = self.text.replace("NAME", f"{self.name}_x{lanes}").replace("LANES", str(lanes))
        blocks = f"typedef uint8_t u8x{4 * lanes} __attribute__((vector_size({4 * lanes}), aligned(1), may_alias));"
        shorts = f"typedef int16_t i16x{2 * lanes} __attribute__((vector_size({4 * lanes}), aligned(2), may_alias));"
        text = text.replace("SHORTS", str(2 * lanes)).replace("BYTES", str(4 * lanes))
        halves = f"typedef uint16_t u16x{lanes} __attribute__((vector_size({2 * lanes}), aligned(2), may_alias));"
        return [blocks, shorts, halves, text.replace("SIZE", str(4 * lanes))]

    def blocks(self, formula: Apply) -> list[tuple[Formula, ...]]:
        """Returns the formulas of each operand that is in memory: several elements per lane."""
        found: list[tuple[Formula, ...]] = []
        rest = formula.operands
        for operand in self.operands:
            found += [rest[: operand.count]] if operand.is_in_memory else []
            rest = rest[operand.count :]
        return found


def expanded(formula: Apply) -> Formula:
    """Returns the scalar formula that an instruction computes."""
    assert isinstance(formula.primitive, Instruction), "only instructions expand"
    return formula.primitive.meaning(formula.operands)


def _sum_of_4(operands: Sequence[Formula]) -> Formula:
    """Returns sum + four products: (byte + shift), wrapped and read as unsigned, times a signed byte."""
    return _products_of_4(operands, "uint8")


def _sum_of_4_turned(operands: Sequence[Formula]) -> Formula:
    """Returns sum + four products: (byte + shift), wrapped and read as signed, times an unsigned byte."""
    return _products_of_4(operands, "int8")


def _products_of_4(operands: Sequence[Formula], kind: str) -> Formula:
    total, shift, *bytes_ = operands
    for a, b in zip(bytes_[:4], bytes_[4:], strict=True):
        shifted = convert(convert(apply("add", convert(a, "uint8"), shift), kind), "int32")
        total = apply("add", total, apply("multiply", shifted, convert(b, "int32")))
    return total


_DOT_4 = """static inline i32xLANES NAME(i32xLANES sum, uint8_t shift, uint32_t word, u8xBYTES block)
{
    u32xLANES b = (u32xLANES)block, a = (u32xLANES){0} + word;
    a = (u32xLANES)((u8xBYTES)a + shift);
#if defined __AVX512VNNI__ && (SIZE == 64 || defined __AVX512VL__)
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(UNSIGNED), "vm"(SIGNED));
#elif defined __AVXVNNI__ && SIZE < 64
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(UNSIGNED), "xm"(SIGNED));
#elif (defined __AVX512BW__ && SIZE == 64) || (defined __AVX2__ && SIZE < 64)
    /* two at a time in 16 bits each, which hold both factors: the even bytes, and the odd ones */
    u32xLANES even = UNSIGNED & 0x00ff00ffu, odd = UNSIGNED >> 8 & 0x00ff00ffu;
    i16xSHORTS low = (i16xSHORTS)SIGNED << 8 >> 8, high = (i16xSHORTS)SIGNED >> 8;
    i32xLANES first, second;
    __asm__("vpmaddwd %2, %1, %0" : "=v"(first) : "v"(even), "v"(low));
    __asm__("vpmaddwd %2, %1, %0" : "=v"(second) : "v"(odd), "v"(high));
    sum = (i32xLANES)((u32xLANES)sum + (u32xLANES)first + (u32xLANES)second);
#else
    for (int i = 0; i < 4; i++) {
        u32xLANES signed_byte = (u32xLANES)((i32xLANES)(SIGNED << (24 - 8 * i)) >> 24);
        sum = (i32xLANES)((u32xLANES)sum + (UNSIGNED >> 8 * i & 255u) * signed_byte);
    }
#endif
    return sum;
}"""
QUADS = 4
"""Groups of four products whose sums of pairs 16 bits hold, if one factor has 4 bits: 2 * 4 * 15 * 128 < 2^15."""
_DOT_16 = """static inline i32xLANES NAME(i32xLANES sum, WORDS, BLOCKS)
{
#if defined __AVX2__ && SIZE <= 32
    i16xSHORTS total, pairs;
PAIRS
    __asm__("vpmaddwd %2, %1, %0" : "=x"(pairs) : "x"(total), "x"((i16xSHORTS){0} + (int16_t)1));
    sum = (i32xLANES)((u32xLANES)sum + (u32xLANES)pairs);
#else
    const uint32_t words[] = {W};
    const u8xBYTES blocks[] = {B};
    for (int i = 0; i < 4 * QUADS; i++) {
        u32xLANES byte = (u32xLANES)blocks[i / 4] >> 8 * (i % 4) & 255u;
        sum = (i32xLANES)((u32xLANES)sum + byte * (uint32_t)(int8_t)(words[i / 4] >> 8 * (i % 4)));
    }
#endif
    return sum;
}"""
_PAIRS = """    __asm__("vpmaddubsw %2, %1, %0" : "=x"(GIVES) : "x"(bQUAD), "x"((u32xLANES){0} + wQUAD));"""


def _text_of_16() -> str:
    """Returns C that adds pairs of products in 16 bits, all groups of four, and then both halves in 32 bits."""
    each = range(QUADS)
    lines = [_PAIRS.replace("GIVES", "pairs" if n else "total").replace("QUAD", str(n)) for n in each]
    text = _DOT_16.replace("PAIRS", "\n".join([lines[0], *(f"{line}\n    total += pairs;" for line in lines[1:])]))
    text = text.replace("WORDS", ", ".join(f"uint32_t w{n}" for n in each))
    text = text.replace("BLOCKS", ", ".join(f"u8xBYTES b{n}" for n in each)).replace("QUADS", str(QUADS))
    return text.replace("{W}", f"{{{', '.join(f'w{n}' for n in each)}}}").replace(
        "{B}", f"{{{', '.join(f'b{n}' for n in each)}}}"
    )


def _sum_of_16(operands: Sequence[Formula]) -> Formula:
    """Returns sum + all products of signed and unsigned bytes, as a tree: deep formulas print slowly."""
    total, *rest = operands
    pairs = zip(rest[: 4 * QUADS], rest[4 * QUADS :], strict=True)
    terms = [apply("multiply", convert(a, "int32"), convert(b, "int32")) for a, b in pairs]
    while len(terms) > 1:
        terms = [apply("add", a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return apply("add", total, *terms)


def _narrow_sum_of_16(operands: Sequence[Formula]) -> Formula:
    """Returns the sum as vpmaddubsw and vpaddw compute it: pairs of products saturate to 16 bits, their sums wrap."""
    total, *rest = operands
    products = [
        apply("multiply", convert(convert(a, "int8"), "int32"), convert(convert(b, "uint8"), "int32"))
        for a, b in zip(rest[: 4 * QUADS], rest[4 * QUADS :], strict=True)
    ]
    for half in (0, 2):
        short: Formula = number(0, "int16")
        for first, second in zip(products[half::4], products[half + 1 :: 4], strict=True):
            pair = _saturated(apply("add", first, second))
            short = convert(apply("add", convert(short, "int32"), pair), "int16")
        total = apply("add", total, convert(short, "int32"))
    return total


_DOT_4_SIGNED = """static inline i32xLANES NAME(i32xLANES sum, uint32_t word, u8xBYTES b)
{
#if defined __AVX2__ && SIZE <= 32
    u8xBYTES size, turned;
    i16xSHORTS pairs;
    __asm__("vpabsb %1, %0" : "=x"(size) : "x"(b));
    __asm__("vpsignb %2, %1, %0" : "=x"(turned) : "x"((u32xLANES){0} + word), "x"(b));
    __asm__("vpmaddubsw %2, %1, %0" : "=x"(pairs) : "x"(size), "x"(turned));
    __asm__("vpmaddwd %2, %1, %0" : "=x"(pairs) : "x"(pairs), "x"((i16xSHORTS){0} + (int16_t)1));
    sum = (i32xLANES)((u32xLANES)sum + (u32xLANES)pairs);
#else
    for (int i = 0; i < 4; i++) {
        u32xLANES signed_byte = (u32xLANES)((i32xLANES)((u32xLANES)b << (24 - 8 * i)) >> 24);
        sum = (i32xLANES)((u32xLANES)sum + signed_byte * (uint32_t)(int8_t)(word >> 8 * i));
    }
#endif
    return sum;
}"""


def _sum_of_4_signed(operands: Sequence[Formula]) -> Formula:
    """Returns sum + four products of signed bytes."""
    total, *bytes_ = operands
    for a, b in zip(bytes_[:4], bytes_[4:], strict=True):
        total = apply("add", total, apply("multiply", convert(a, "int32"), convert(b, "int32")))
    return total


def _narrow_sum_of_4_signed(operands: Sequence[Formula]) -> Formula:
    """Returns the sum by vpabsb, vpsignb and vpmaddubsw: the size of b, the negative of a, and pairs are clamped."""
    total, *rest = operands
    products = []
    for a, b in zip(rest[:4], rest[4:], strict=True):
        first, second = (convert(byte, "int32") for byte in (a, b))
        size = convert(convert(apply("abs", second), "uint8"), "int32")
        turned = convert(convert(apply("multiply", apply("sign", second), first), "int8"), "int32")
        products.append(apply("multiply", size, turned))
    for half in (0, 2):
        total = apply("add", total, _saturated(apply("add", *products[half : half + 2])))
    return total


def _saturated(pair: Formula) -> Formula:
    least, most = (number(end, "int32") for end in limits("int16"))
    return apply("max", apply("min", pair, most), least)


_PRODUCT_OF_16 = """static inline i32xLANES NAME(i32xLANES sum, i32xLANES a, i32xLANES b)
{
    b = (i32xLANES)((u32xLANES)b & 0xffffu); /* of each pair of products one is with 0 */
#if defined __AVX512VNNI__ && (SIZE == 64 || defined __AVX512VL__)
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#elif defined __AVXVNNI__ && SIZE < 64
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
#elif (defined __AVX512BW__ && SIZE == 64) || (defined __AVX2__ && SIZE < 64)
    __asm__("vpmaddwd %2, %1, %0" : "=v"(a) : "v"(a), "v"(b));
    sum = (i32xLANES)((u32xLANES)sum + (u32xLANES)a);
#else
    b = (i32xLANES)((u32xLANES)b << 16) >> 16;
    sum = (i32xLANES)((u32xLANES)sum + (u32xLANES)a * (u32xLANES)b);
#endif
    return sum;
}"""

DOT_4 = Instruction(
    "dot4",
    10,
    "A sum, and four products of unsigned and signed bytes, of which a number is added to the first ones.",
    WHOLE,
    operands=(Operand.VECTOR, Operand.NUMBER, Operand.WORD, Operand.BLOCK),
    meaning=_sum_of_4,
    text=_DOT_4.replace("UNSIGNED", "a").replace("SIGNED", "b"),
)
DOT_4_TURNED = Instruction(
    "dot4_turned",
    10,
    "A sum, and four products of signed and unsigned bytes, of which a number is added to the first ones.",
    WHOLE,
    operands=(Operand.VECTOR, Operand.NUMBER, Operand.WORD, Operand.BLOCK),
    meaning=_sum_of_4_turned,
    text=_DOT_4.replace("UNSIGNED", "b").replace("SIGNED", "a"),
)
DOT_4_SIGNED = Instruction(
    "dot4_signed",
    9,
    "A sum, and four products of signed bytes.",
    WHOLE,
    operands=(Operand.VECTOR, Operand.WORD, Operand.BLOCK),
    meaning=_sum_of_4_signed,
    text=_DOT_4_SIGNED,
    narrow=_narrow_sum_of_4_signed,
)
DOT_16 = Instruction(
    "dot16",
    1 + 8 * QUADS,
    "A sum, and products of signed bytes and unsigned ones of 4 bits.",
    WHOLE,
    operands=(Operand.VECTOR, *[Operand.WORD] * QUADS, *[Operand.BLOCK] * QUADS),
    meaning=_sum_of_16,
    text=_text_of_16(),
    narrow=_narrow_sum_of_16,
)
PRODUCT_OF_16 = Instruction(
    "add_product",
    3,
    "A sum, and a product of numbers that 16 bits hold.",
    WHOLE,
    operands=(Operand.VECTOR, Operand.VECTOR, Operand.VECTOR),
    meaning=lambda operands: apply("add", operands[0], apply("multiply", *operands[1:])),
    text=_PRODUCT_OF_16,
)


def _flushed(x: Array, out: Array) -> None:
    np.multiply(x, np.abs(x) >= _LEAST_NORMAL, out=out)


_LEAST_NORMAL = np.float32(2.0**-126)
FLUSHED = Primitive(
    "flushed",
    1,
    "A float32, but 0 with its sign in place of what is less than the least normal number.",
    REALS,
    _flushed,
)


def _sum_of_2(operands: Sequence[Formula]) -> Formula:
    """Returns sum + second product + first product, each added with one rounding; subnormal numbers flush to 0."""
    total, *halves = operands
    first, second, *others = (apply_one(FLUSHED, convert(half, "float32")) for half in halves)
    total = apply_one(FLUSHED, total)
    for a, b in zip((second, first), reversed(others), strict=True):
        total = apply_one(FLUSHED, apply("add", total, apply("multiply", a, b)))
    return total


def apply_one(primitive: Primitive, operand: Formula) -> Formula:
    """Returns a primitive of the loop IR applied to one operand."""
    return Apply(primitive, (operand,), operand.dtype)


# The order and the rounding are those of the "Intel 64 and IA-32 Architectures Software Developer's Manual", VDPBF16PS:
# round to nearest even in any rounding mode, subnormal operands and results flushed to 0.
_DOT_2 = """static inline f32xLANES NAME(f32xLANES sum, uint32_t pair, u8xBYTES b)
{
    u32xLANES a = (u32xLANES){0} + pair;
#if defined __AVX512BF16__ && (SIZE == 64 || defined __AVX512VL__)
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
#else
    sum += (f32xLANES)(a & 0xffff0000u) * (f32xLANES)((u32xLANES)b & 0xffff0000u);
    sum += (f32xLANES)(a << 16) * (f32xLANES)((u32xLANES)b << 16);
#endif
    return sum;
}"""
DOT_2 = Instruction(
    "dot2",
    5,
    "A sum, and two products of bfloat16, the second one added first.",
    REALS,
    operands=(Operand.VECTOR, Operand.PAIR, Operand.PAIRS),
    meaning=_sum_of_2,
    text=_DOT_2,
    gives="float32",
)


def _part(number: int, operands: Sequence[Formula]) -> Formula:
    """Returns part `number` of x: the bfloat16 nearest to x minus the parts before it."""
    (x,) = operands
    found = convert(x, "bfloat16")
    for _ in range(number):
        x = apply("subtract", x, convert(found, "float32"))
        found = convert(x, "bfloat16")
    return found


# Three parts of 8 significant bits, with signs, hold the 24 of a float32. A float32 is the exact sum of its parts if
# the last part is at least the least normal number and the first is finite; after an infinity the others are NaN.
_PART = """static inline u16xLANES NAME(f32xLANES a)
{
    for (int i = 0;; i++) {
        u32xLANES u;
        u16xLANES b;
#if defined __AVX512BF16__ && SIZE == 64
        __asm__("vcvtneps2bf16 %1, %0" : "=v"(b) : "v"(a));
        if (i == NUMBER) return b;
        __asm__("vpmovzxwd %1, %0" : "=v"(u) : "v"(b));
#else
        u32xLANES nearest = (u32xLANES)a, special = (u32xLANES)(a != a);
        u = (nearest >> 16 | 0x40u) & special;
        u |= (nearest + 0x7fffu + (nearest >> 16 & 1u)) >> 16 & ~special;
        b = __builtin_convertvector(u, u16xLANES);
        if (i == NUMBER) return b;
#endif
        a -= (f32xLANES)(u << 16);
    }
}"""
PARTS = tuple(
    Instruction(
        f"part{number}",
        1,
        f"The bfloat16 nearest to a float32 less {number} of those before.",
        REALS,
        operands=(Operand.VECTOR,),
        meaning=partial(_part, number),
        text=_PART.replace("NUMBER", str(number)),
        gives="bfloat16",
    )
    for number in range(3)
)
"""The parts of a float32 as a sum of three bfloat16: high, middle and low."""
INSTRUCTIONS = {own.name: own for own in (DOT_4, DOT_4_TURNED, DOT_4_SIGNED, DOT_16, PRODUCT_OF_16, DOT_2, *PARTS)}


MAX_INTERLEAVE = 8
"""The most vectors whose elements are interleaved in memory by one store."""
