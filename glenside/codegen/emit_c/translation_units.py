"""C source of a program as text: one translation unit, or several that are compiled separately."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from glenside.codegen.emit_c.thread_pool import NO_POOL, POOL

_HIDDEN = '__attribute__((visibility("hidden"))) '
_PRELUDE = r"""
static inline float bits_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint32_t float_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

/* IEEE binary16 and bfloat16 as floats that hold the same values; to the nearest, halves to the even one. */
static inline float float_of_float16(uint16_t h)
{
#ifdef __F16C__
    float f;
    __asm__("vmovd %k1, %0\n\tvcvtph2ps %0, %0" : "=x"(f) : "r"(h));
    return f;
#endif
    uint32_t rest = (uint32_t)(h & 0x7fffu) << 13, special = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
    return bits_float(float_bits(bits_float(rest) * 0x1p112f) | special | (uint32_t)(h & 0x8000u) << 16);
}
static inline uint16_t float16_of_float(float f)
{
#ifdef __F16C__
    uint32_t h;
    __asm__("vcvtps2ph $0, %1, %1\n\tvmovd %1, %0" : "=r"(h), "+x"(f));
    return (uint16_t)h;
#endif
    uint32_t u = float_bits(f), rest = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more */
    if (rest < 0x38800000u) /* below 2^-14 */
        return (uint16_t)(sign | (float_bits(bits_float(rest) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (rest + 0xc8000fffu + (rest >> 13 & 1u)) >> 13);
}
/* Rounds a double to odd as a float if it is none: a float that is rounded again is then rounded once. */
static inline float float_to_odd(double d)
{
    float f = (float)d;
    uint32_t u = float_bits(f);
    if ((double)f == d || f != f || isinf(f)) return f;
    return bits_float((fabs((double)f) > fabs(d) ? u - 1 : u) | 1u);
}
static inline uint16_t float16_of_double(double d) { return float16_of_float(float_to_odd(d)); }
static inline float round_float16(double d) { return float_of_float16(float16_of_double(d)); }
static inline float float_of_bfloat16(uint16_t h) { return bits_float((uint32_t)h << 16); }
static inline uint16_t bfloat16_of_float(float f)
{
    uint32_t u = float_bits(f);
    return (uint16_t)(f != f ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
static inline uint16_t bfloat16_of_double(double d) { return bfloat16_of_float(float_to_odd(d)); }
static inline float round_bfloat16(double d) { return float_of_bfloat16(bfloat16_of_double(d)); }
"""


NOW = """/* Of one thread what it took of its processor: what else runs there is nothing of it. */
static double now(int alone)
{
    struct timespec t;
    clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}"""


_MATH = re.compile(
    r"""\b(?:
    (?: a?(?:cos|sin|tan)h? | atan2 | exp2? | expm1 | frexp | ldexp | [il]?logb | log(?:10|1p|2)? | modf | scalbl?n
      | cbrt | fabs | hypot | pow | sqrt | erfc? | [lt]gamma | ceil | floor | nearbyint | l{0,2}r(?:int|ound) | trunc
      | fmod | remainder | remquo | copysign | nan | nextafter | nexttoward | fdim | fmax | fmin | fma )[fl]?
  | fpclassify | is[a-z]+ | signbit | INFINITY | NAN | HUGE_VAL[FL]? )\b""",
    re.VERBOSE,
)
"""Names of <math.h>. A small program compiles in three quarters of the time without it."""
_HEADERS = """#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
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


_OWN = re.compile(r"\b((?:nest|part|each)\d+|run|run_nest|open_sizes)\b")
"""The names of functions that each source has: helpers of one name are alike in all."""


@dataclass(frozen=True)
class Source:
    """C source of a program; `str` is all of it as one text.

    title    a comment
    helpers  functions that the functions of nests call
    nests    the functions of nests, from their result type on
    end      `run`, which calls the nests
    runtime  texts that `end` needs and that are alike in other sources, such as threads
    """

    title: str
    helpers: tuple[str, ...]
    nests: tuple[str, ...]
    end: str
    runtime: tuple[str, ...]

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return self._unit(*self.helpers, *(f"static {text}" for text in self.nests), *self.runtime, self.end)

    def units(self, count: int) -> list[str]:
        """Returns the source as up to `count` + 1 translation units of balanced length, to be compiled and linked."""
        if count < 2:
            return [str(self)]
        parts: list[list[str]] = [[] for _ in range(count)]
        for text in sorted(self.nests, key=len, reverse=True):
            min(parts, key=lambda part: sum(map(len, part))).append(text)
        heads = [text.partition("\n{")[0] + ";" for text in self.nests]
        return [
            self._unit(*(_HIDDEN + head for head in heads), *self.runtime, self.end),
            *(self._unit(*self.helpers, *(_HIDDEN + text for text in part)) + "\n" for part in parts if part),
        ]

    def _unit(self, *texts: str) -> str:
        """Returns texts of C after what they need: headers, and functions of the prelude."""
        text = "\n".join(texts)
        prelude = "\n".join(_used(_PRELUDE, text))
        math = ["#include <math.h>"] if _MATH.search(prelude) or _MATH.search(text) else []
        return "\n".join([self.title, "#define _GNU_SOURCE", *math, _HEADERS, *([prelude] if prelude else []), text])


def joined(title: str, sources: Sequence[Source]) -> Source:
    """Returns several sources as one: the functions of the n-th have the suffix _n; equal helpers are there once."""
    helpers, runtime = dict[str, None](), dict[str, None]()
    nests, ends = list[str](), list[str]()
    for number, own in enumerate(sources, 1):
        texts = [_OWN.sub(rf"\1_{number}", text) for text in (*own.helpers, *own.nests, own.end)]
        count = len(own.helpers)
        helpers |= dict.fromkeys(texts[:count])
        nests += texts[count:-1]
        ends.append(texts[-1])
        runtime |= dict.fromkeys(own.runtime)
    if POOL in runtime:
        runtime.pop(NO_POOL, None)
    return Source(title, tuple(helpers), tuple(nests), "\n".join(ends), tuple(runtime))


def _used(prelude: str, text: str) -> list[str]:
    """Returns the functions of a prelude that a text needs; each may need functions before it."""
    found: list[str] = []
    for function in reversed(re.split(r"\n(?=/[*]|static)", prelude.strip())):
        named = re.search(r"static inline \w+ (\w+)\(", function)
        if named is None or (named[1] in text and re.search(rf"\b{named[1]}\b", text)):  # the quick test rejects most
            found.append(function)
            text += function
    return found[::-1] if any("static" in function for function in found) else []
