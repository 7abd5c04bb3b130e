"""Primitives in C, one row each: an expression, or a helper function that is printed once for each dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import Template
from typing import Protocol

from glenside.codegen.emit_c.storage_only_dtypes import functions_of_stored
from glenside.ir.dtypes import HALVES, INTEGERS, RECORDS, STORED

STORED_AS: Mapping[str, str] = {
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "bool": "uint8_t",
    **{name: f"{name}_t" for name in INTEGERS},
    **dict.fromkeys(STORED, "uint8_t"),
}
"""dtype -> the C type of an element in memory."""
RELATIONS: Mapping[str, str] = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
"""Comparison primitive -> C operator."""


class Printer(Protocol):
    """An object that collects helper functions."""

    def helper(self, name: str, text: str) -> str: ...


BITS = (*HALVES, *STORED)
"""Dtypes without a C type: bits in memory, computed in a wider type."""


def held(dtype: str) -> str:
    """Returns the C type in which a dtype is computed."""
    if dtype in BITS:
        return "float" if RECORDS[dtype].kind == "float" else f"{RECORDS[dtype].wider}_t"
    return STORED_AS[dtype]


def from_memory(element: str, dtype: str) -> str:
    """Converts a stored element to a value; `needed` returns the helper functions."""
    return f"{_held_name(dtype)}_of_{dtype}({element})" if dtype in BITS else element


def in_memory(value: str, dtype: str) -> str:
    """Converts a value to a stored element."""
    return f"{dtype}_of_{_held_name(dtype)}({value})" if dtype in BITS else value


def needed(dtype: str) -> str:
    """Returns the helper functions of `from_memory` and `in_memory` that are not in every program, or ""."""
    return functions_of_stored(dtype) if dtype in STORED else ""


def _held_name(dtype: str) -> str:
    return held(dtype).removesuffix("_t")


def _unsigned(dtype: str) -> str:
    return "uint64_t" if RECORDS[dtype].bits == 64 else "uint32_t"


def _binary(symbol: str) -> Callable[..., str]:
    """Returns the printer of a sum, difference or product; integers wrap."""

    def write(_: Printer, dtype: str, a: str, b: str) -> str:
        if RECORDS[dtype].kind == "float":
            return f"({a} {symbol} {b})"
        wide = _unsigned(dtype)
        return f"({held(dtype)})(({wide}){a} {symbol} ({wide}){b})"

    return write


def _relation(symbol: str) -> Callable[..., str]:
    return lambda printer, dtype, a, b: f"(uint8_t)({a} {symbol} {b})"


def _bits(symbol: str) -> Callable[..., str]:
    return lambda printer, dtype, a, b: f"({held(dtype)})({a} {symbol} {b})"


def _real_function(name: str) -> Callable[..., str]:
    """Returns the printer of a function of the math library; halves are computed in float."""
    return lambda printer, dtype, a: f"{name}{'' if dtype == 'float64' else 'f'}({a})"


def _helper(name: str, real: str, whole: str = "") -> Callable[..., str]:
    """Returns the printer of a call of a helper function, made from a template for each dtype.

    $n: its name, $T: the type, $f: the suffix of library functions, $S: 1 for signed integers, $U: the unsigned type.
    """

    def write(printer: Printer, dtype: str, *operands: str) -> str:
        record = RECORDS[dtype]
        text = Template(real if record.kind == "float" or not whole else whole).substitute(
            n=f"{name}_{dtype}",
            T=held(dtype),
            f="" if dtype == "float64" else "f",
            S=int(record.kind == "integer" and record.signed),
            U="uint32_t" if record.kind == "bool" else _unsigned(dtype),
        )
        return f"{printer.helper(f'{name}_{dtype}', text)}({', '.join(operands)})"

    return write


_NAN_OR = "static inline $T $n($T a, $T b) { $T found = b %s a ? b : a; return b != b ? b : found; }"  # no branches
# Integers are compared with 1, not 0: compilers warn about unsigned comparisons with 0.
_PLAIN = "static inline $T $n($T a, $T b) { return a %s b ? a : b; }"
PRIMITIVES_IN_C: Mapping[str, Callable[..., str]] = {
    "add": _binary("+"),
    "subtract": _binary("-"),
    "multiply": _binary("*"),
    "divide": _helper(
        "divide",
        "static inline $T $n($T a, $T b) { return a / b; }",
        "static inline $T $n($T a, $T b)\n"
        "{\n    if (b == 0) return 0;\n    if ($S && b == ($T)-1) return ($T)(0 - ($U)a);\n    return ($T)(a / b);\n}",
    ),
    "pow": _helper(
        "power",
        "static inline $T $n($T a, $T b) { return pow$f(a, b); }",
        "static inline $T $n($T a, $T b)\n"
        "{\n    if ($S && b != 0 && b < 1) return a == 1 ? 1 : a == ($T)-1 ? (b & 1 ? ($T)-1 : 1) : 0;\n"
        "    $U found = 1, base = ($U)a;\n"
        "    for (uint64_t e = (uint64_t)b; e; e >>= 1) { if (e & 1) found *= base; base *= base; }\n"
        "    return ($T)found;\n}",
    ),
    "mod": _helper(
        "modulo",
        "static inline $T $n($T a, $T b)\n"
        "{\n    $T m = fmod$f(a, b);\n    if (b == 0) return m;\n    if (m == 0) return copysign$f(0, b);\n"
        "    return (b < 0) != (m < 0) ? m + b : m;\n}",
        "static inline $T $n($T a, $T b)\n"
        "{\n    if (b == 0 || ($S && b == ($T)-1)) return 0;\n    $T m = ($T)(a % b);\n"
        "    return ($T)($S && m != 0 && (m < 1) != (b < 1) ? m + b : m);\n}",
    ),
    "rem": _helper(
        "remainder",
        "static inline $T $n($T a, $T b) { return fmod$f(a, b); }",
        "static inline $T $n($T a, $T b) { return b == 0 || ($S && b == ($T)-1) ? 0 : ($T)(a % b); }",
    ),
    "negative": lambda printer, dtype, a: (
        f"(-{a})" if RECORDS[dtype].kind == "float" else f"({held(dtype)})(0 - ({_unsigned(dtype)}){a})"
    ),
    "abs": _helper(
        "absolute",
        "static inline $T $n($T a) { return fabs$f(a); }",
        "static inline $T $n($T a) { return $S && a < 1 ? ($T)(0 - ($U)a) : a; }",
    ),
    "sign": _helper(
        "sign",
        "static inline $T $n($T a) { return a != a ? a : ($T)((a > 0) - (a < 0)); }",
        "static inline $T $n($T a) { return ($T)((a > 0) - ($S && a != 0 && a < 1)); }",
    ),
    "min": _helper("least", _NAN_OR % "<", _PLAIN % "<="),
    "max": _helper("most", _NAN_OR % ">", _PLAIN % ">="),
    **{name: _relation(symbol) for name, symbol in RELATIONS.items()},
    "select": lambda printer, dtype, c, a, b: f"({c} != 0 ? {a} : {b})",
    "logical-not": lambda printer, dtype, a: f"(uint8_t)!{a}",
    "logical-and": _relation("&&"),
    "logical-or": _relation("||"),
    "bitwise-and": _bits("&"),
    "bitwise-or": _bits("|"),
    "bitwise-xor": _bits("^"),
    "sigmoid": _helper("sigmoid", "static inline $T $n($T a) { return 1 / (1 + exp$f(-a)); }"),
    "flushed": _helper("flushed", "static inline $T $n($T a) { return fabs$f(a) < 0x1p-126$f ? a * 0 : a; }"),
    "round": _real_function("nearbyint"),
    **{
        name: _real_function(name)
        for name in "sqrt exp log tanh erf sin cos tan asin acos atan sinh cosh asinh acosh atanh floor ceil".split()
    },
}


def whole_function(name: str, dtype: str) -> str:
    """Returns C that truncates a real to an integer that wraps; beyond 64 bits, the result is the processor's."""
    if dtype in STORED:
        return functions_of_stored(dtype)
    kind = STORED_AS[dtype]
    if dtype == "uint64":
        body = "return x >= 0x1p63 ? (uint64_t)(int64_t)(x - 0x1p63) + (1ull << 63) : (uint64_t)(int64_t)x;"
    else:
        body = f"return x >= -0x1p63 && x < 0x1p63 ? ({kind})(int64_t)x : ({kind})INT64_MIN;"
    return f"static inline {kind} {name}(double x) {{ {body} }}"


def sort_function(name: str, dtype: str, descending: bool) -> str:
    """Returns C of a stable merge sort of positions by their items, nan last; -1 if memory does not suffice."""
    kind = STORED_AS[dtype]
    read = f"float_of_{dtype}" if dtype in HALVES else ""
    real = RECORDS[dtype].kind == "float"
    a, b = f"{read}(x[p])", f"{read}(x[q])"
    before = f"{a} > {b}" if descending else f"{a} < {b}"
    if real:
        before = f"{a} != {a} ? {b} == {b} : {before}" if descending else f"{b} != {b} ? {a} == {a} : {before}"
    return (
        f"static inline int {name}_before(const {kind} *x, int64_t p, int64_t q) {{ return {before}; }}\n"
        f"static int {name}(const {kind} *x, int64_t *order, int64_t n)\n"
        "{\n"
        "    for (int64_t i = 0; i < n; i++) order[i] = i;\n"
        "    if (n < 2) return 0;\n"
        "    int64_t *other = malloc((size_t)n * sizeof *other), *from = order, *to = other;\n"
        "    if (!other) return -1;\n"
        "    for (int64_t width = 1; width < n; width *= 2) {\n"
        "        for (int64_t start = 0; start < n; start += 2 * width) {\n"
        "            int64_t a = start, middle = start + width < n ? start + width : n;\n"
        "            int64_t b = middle, end = start + 2 * width < n ? start + 2 * width : n;\n"
        "            for (int64_t i = start; i < end; i++)\n"
        f"                to[i] = a < middle && (b == end || !{name}_before(x, from[b], from[a]))"
        " ? from[a++] : from[b++];\n"
        "        }\n"
        "        int64_t *swap = from; from = to; to = swap;\n"
        "    }\n"
        "    if (from != order) memcpy(order, from, (size_t)n * sizeof *order);\n"
        "    free(other);\n"
        "    return 0;\n"
        "}"
    )
