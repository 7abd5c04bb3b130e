"""Instructions that add up several products at once: each with its meaning, a formula, and what it is in C.

The meaning is what loops say, their interpreter computes and plain C has. The text of a vector is chosen by the
compiler's own macros, so that one source is right wherever it is compiled, and fast where the processor has the
instruction. Sums of integers are exact: none saturates, and those beyond 32 bits wrap in every text alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from glenside.codegen.loop_ir.ir import Apply, Formula
from glenside.codegen.loop_ir.scalar_expr import apply, convert
from glenside.ir.operand import Array
from glenside.ir.scalar import REALS, WHOLE, Primitive


class Operand(Enum):
    """What an instruction on vectors takes."""

    VECTOR = "a value in each lane"
    NUMBER = "a number that is the same in all"
    WORD = "four bytes that are the same in all lanes"
    BLOCK = "four bytes of memory for each lane, one lane after the other"
    PAIR = "two bfloat16 that are the same in all lanes"
    PAIRS = "two bfloat16 of memory for each lane, one lane after the other"

    @property
    def count(self) -> int:
        """Of how many formulas it is."""
        return {Operand.WORD: 4, Operand.BLOCK: 4, Operand.PAIR: 2, Operand.PAIRS: 2}.get(self, 1)

    @property
    def is_in_memory(self) -> bool:
        """Whether each lane takes several elements that lie beside each other."""
        return self in (Operand.BLOCK, Operand.PAIRS)


def _nothing_of_its_own(*_: Any, **__: Any) -> Any:
    raise TypeError("an instruction is what its formula is")


@dataclass(frozen=True, eq=False, kw_only=True)
class Instruction(Primitive):
    """A primitive of loops alone, whose result is an int32, a float32 or a bfloat16 as it is stored.

    operands  what it takes
    meaning   the formula that it is of the formulas that those are
    text      C of it: NAME, LANES, and SIZE, the bytes of a vector of results
    """

    operands: tuple[Operand, ...]
    meaning: Callable[[Sequence[Formula]], Formula]
    text: str
    numpy: Callable[..., Any] = field(default=_nothing_of_its_own)
    gives: str = "int32"

    def texts(self, lanes: int) -> list[str]:
        """The function on vectors of so many lanes, `NAME_xLANES`, after the types that it takes."""
        text = self.text.replace("NAME", f"{self.name}_x{lanes}").replace("LANES", str(lanes))
        blocks = f"typedef uint8_t u8x{4 * lanes} __attribute__((vector_size({4 * lanes}), aligned(1), may_alias));"
        shorts = f"typedef int16_t i16x{2 * lanes} __attribute__((vector_size({4 * lanes}), aligned(2), may_alias));"
        text = text.replace("SHORTS", str(2 * lanes)).replace("BYTES", str(4 * lanes))
        halves = f"typedef uint16_t u16x{lanes} __attribute__((vector_size({2 * lanes}), aligned(2), may_alias));"
        return [blocks, shorts, halves, text.replace("SIZE", str(4 * lanes))]

    def blocks(self, formula: Apply) -> list[Formula]:
        """The operands of which each lane takes several."""
        found: list[Formula] = []
        rest = list(formula.operands)
        for operand in self.operands:
            found += rest[: operand.count] if operand.is_in_memory else []
            rest = rest[operand.count :]
        return found


def expanded(formula: Apply) -> Formula:
    """The meaning of an instruction."""
    assert isinstance(formula.primitive, Instruction), "primitives are what they are"
    return formula.primitive.meaning(formula.operands)


def _sum_of_4(operands: Sequence[Formula]) -> Formula:
    """sum + the products of (byte + shift, which wraps) as an unsigned number, and of a signed one."""
    return _products_of_4(operands, "uint8")


def _sum_of_4_turned(operands: Sequence[Formula]) -> Formula:
    """sum + the products of (byte + shift, which wraps) as a signed number, and of an unsigned one."""
    return _products_of_4(operands, "int8")


def _products_of_4(operands: Sequence[Formula], kind: str) -> Formula:
    total, shift, *bytes_ = operands
    for a, b in zip(bytes_[:4], bytes_[4:], strict=True):
        shifted = convert(convert(apply("add", convert(a, "uint8"), shift), kind), "int32")
        total = apply("add", total, apply("multiply", shifted, convert(b, "int32")))
    return total


_DOT_4 = """static inline i32xLANES NAME(i32xLANES sum, uint8_t shift, uint32_t word, const void *block)
{
    u32xLANES b = (u32xLANES)*(const u8xBYTES *)block, a = (u32xLANES){0} + word;
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
    """sum + the second product + the first one, each added with one rounding, and nothing less than normal numbers."""
    total, *halves = operands
    first, second, *others = (apply_one(FLUSHED, convert(half, "float32")) for half in halves)
    total = apply_one(FLUSHED, total)
    for a, b in zip((second, first), reversed(others), strict=True):
        total = apply_one(FLUSHED, apply("add", total, apply("multiply", a, b)))
    return total


def apply_one(primitive: Primitive, operand: Formula) -> Formula:
    """A primitive of loops alone, of one operand."""
    return Apply(primitive, (operand,), operand.dtype)


# The order and the rounding are those of the "Intel 64 and IA-32 Architectures Software Developer's Manual", VDPBF16PS:
# to the nearest even one whatever the process has set, numbers below the normal ones taken and given as 0.
_DOT_2 = """static inline f32xLANES NAME(f32xLANES sum, uint32_t pair, const void *block)
{
    u8xBYTES b = *(const u8xBYTES *)block;
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
    """The bfloat16 nearest to x, the one nearest to what that leaves, or the one nearest to what both leave."""
    (x,) = operands
    found = convert(x, "bfloat16")
    for _ in range(number):
        x = apply("subtract", x, convert(found, "float32"))
        found = convert(x, "bfloat16")
    return found


# Three times eight binary digits, with signs, are the 24 of a float32: it is the sum of its parts where the last one is
# no less than the least normal number, and the first one no infinity, of which the others are not numbers.
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
"""A float32 as a sum of bfloat16: high, middle and low."""
INSTRUCTIONS = {instruction.name: instruction for instruction in (DOT_4, DOT_4_TURNED, PRODUCT_OF_16, DOT_2, *PARTS)}


MAX_INTERLEAVE = 8
"""Elements that take turns in memory, at most, where each is a vector that is stored by so many instructions."""
