"""C source of a program as text: one translation unit, or several that are compiled separately."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_HIDDEN = '__attribute__((visibility("hidden"))) '
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


NOW = """/* Of one thread what it took of its processor: what else runs there is nothing of it. */
static double now(int alone)
{
    struct timespec t;
    clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}"""


_HEADERS = """#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined __GNUC__ && !defined __clang__ /* numbers that follow a sum stay in memory, and sums in registers */
#pragma GCC optimize "no-move-loop-invariants"
#endif"""
PUBLIC = """/* Where this text is part of another one, that says that these functions are its own. */
#ifndef PUBLIC
#define PUBLIC
#endif"""


@dataclass(frozen=True)
class Source:
    """C source of a program; `str` is all of it as one text.

    title    a comment
    helpers  functions that the functions of nests call
    nests    the functions of nests, from their result type on
    end      threads, and `run`, which calls the nests
    """

    title: str
    helpers: tuple[str, ...]
    nests: tuple[str, ...]
    end: str

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return "\n".join([self._begin(), *self.helpers, *(f"static {text}" for text in self.nests), self.end])

    def units(self, count: int) -> list[str]:
        """Returns the source as up to `count` + 1 translation units of balanced length, to be compiled and linked."""
        if count < 2:
            return [str(self)]
        parts: list[list[str]] = [[] for _ in range(count)]
        for text in sorted(self.nests, key=len, reverse=True):
            min(parts, key=lambda part: sum(map(len, part))).append(text)
        heads = [text.partition("\n{")[0] + ";" for text in self.nests]
        helpers = [self._begin(), *self.helpers]
        return [
            "\n".join([self._begin(), *(_HIDDEN + head for head in heads), self.end]),
            *("\n".join([*helpers, *(_HIDDEN + text for text in part)]) + "\n" for part in parts if part),
        ]

    def _begin(self) -> str:
        return "\n".join([self.title, _HEADERS, *_used(_PRELUDE, "\n".join([*self.helpers, *self.nests]))])


def _used(prelude: str, text: str) -> list[str]:
    """Returns the functions of a prelude that a text needs; each may need functions before it."""
    found: list[str] = []
    for function in reversed(re.split(r"\n(?=/[*]|static)", prelude.strip())):
        named = re.search(r"static inline \w+ (\w+)\(", function)
        if named is None or (named[1] in text and re.search(rf"\b{named[1]}\b", text)):  # the quick test rejects most
            found.append(function)
            text += function
    return found[::-1] if any("static" in function for function in found) else []
