"""Storage-only dtypes (moved and cast only, without a C type): conversion of their bits to values, and back.

A float of 8 or 4 bits is a table of its values, as in `ml_dtypes`. Its codes ascend with its values from 0 on, so the
nearest value is found by bisection; ties go to the even code.
"""

from __future__ import annotations

from functools import cache
from string import Template

import ml_dtypes  # noqa: F401  numpy knows these dtypes once it is imported
import numpy as np

from glenside.ir.dtypes import RECORDS

_FLOAT = Template("""static const float values_of_$name[$count] = {$values};
static inline float float_of_$name(uint8_t bits) { return values_of_$name[bits & $mask]; }
static inline uint8_t ${name}_of_double(double d)
{
    double a = fabs(d);
    if (d != d) return $nan;
    int low = 0, high = $finite; /* values[low] <= a < values[high], where the last one stands for what is next */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if ((double)values_of_$name[middle] <= a) low = middle; else high = middle;
    }
    double least = (double)values_of_$name[low];
    double step = (double)(low + 1 < $finite ? values_of_$name[low + 1] - values_of_$name[low] : $step);
    double above = a - least, half = step / 2;
    int code = above > half || (above == half && (low & 1)) ? low + 1 : low;
    if (code >= $finite) return signbit(d) ? $below : $beyond;
    return (uint8_t)(signbit(d) ? code ? code | $sign : $minus : code);
}
static inline uint8_t ${name}_of_float(float f) { return ${name}_of_double((double)f); }
static inline float round_$name(double d) { return float_of_$name(${name}_of_double(d)); }""")
_INTEGER = Template("""static inline $T ${wide}_of_$name(uint8_t bits)
{
    return ($T)(((bits & $mask) ^ $half) - $half);
}
static inline uint8_t ${name}_of_$wide($T value) { return (uint8_t)value & $mask; }
static inline $T ${name}_of_real(double x)
{
    return ${wide}_of_$name((uint8_t)((x >= -0x1p63 && x < 0x1p63 ? (uint64_t)(int64_t)x : 0) & $mask));
}""")


@cache
def functions_of_stored(dtype: str) -> str:
    """Returns C that reads an element, WIDE_of_DTYPE(bits); makes one, DTYPE_of_WIDE(value); and rounds a number:
    round_DTYPE(x) for floats, DTYPE_of_real(x) for integers, which wrap.
    """
    record = RECORDS[dtype]
    if record.kind == "integer":
        half = 1 << record.bits - 1 if record.signed else 0
        kind, wide = f"{record.wider}_t", record.wider
        return _INTEGER.substitute(name=dtype, T=kind, wide=wide, mask=(1 << record.bits) - 1, half=half)
    count = 1 << record.bits
    codes = np.arange(count, dtype=np.uint8)
    with np.errstate(all="ignore"):
        values = codes.view(dtype).astype(np.float32)
        positive = np.isfinite(values[: count // 2])
        finite = int(np.argmin(positive)) if not positive.all() else len(positive)
        named = {"nan": np.nan, "beyond": np.inf, "below": -np.inf, "minus": -0.0}
        made = {name: _code(value, dtype) for name, value in named.items()}
    step = float(values[finite - 1] - values[finite - 2])
    return _FLOAT.substitute(
        made,
        name=dtype,
        count=count,
        mask=count - 1,
        values=", ".join(_value(float(value)) for value in values),
        finite=finite,
        step=_value(step),
        sign=_code(1, dtype) ^ _code(-1, dtype),
    )


def _code(value: float, dtype: str) -> int:
    return int(np.asarray(value, np.float32).astype(dtype).view(np.uint8))


def _value(value: float) -> str:
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"(float){value.hex()}"
