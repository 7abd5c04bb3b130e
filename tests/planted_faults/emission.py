"""C that means something else: a primitive, a conversion, a bound of a loop, a sort."""

_PRIMITIVES = "glenside/codegen/emit_c/scalar_primitives.py"
_FORMULAS = "glenside/codegen/emit_c/scalar_printer.py"
_C = "glenside/codegen/emit_c/printer.py"

FAULTS = (
    (
        _PRIMITIVES,
        '"min": _helper("least", _NAN_OR % "<", _PLAIN % "<="),',
        '"min": _helper("least", _NAN_OR % "<", _PLAIN % ">="),',
        "the least integer is the largest",
    ),
    (_PRIMITIVES, '_NAN_OR % ">", _PLAIN % ">="', '_NAN_OR % "<", _PLAIN % ">="', "the largest float is the least"),
    (
        _PRIMITIVES,
        "{ return $S && a < 1 ? ($T)(0 - ($U)a) : a; }",
        "{ return a; }",
        "the magnitude of an integer is the integer",
    ),
    (_PRIMITIVES, "return (b < 0) != (m < 0) ? m + b : m;", "return m;", "a remainder has the sign of the dividend"),
    (
        _PRIMITIVES,
        "static inline $T $n($T a) { return 1 / (1 + exp$f(-a)); }",
        "static inline $T $n($T a) { return 1 / (1 + exp$f(a)); }",
        "a sigmoid falls",
    ),
    (
        _PRIMITIVES,
        '"round": _real_function("nearbyint"),',
        '"round": _real_function("round"),',
        "ties are rounded away from zero",
    ),
    (
        _PRIMITIVES,
        'before = f"{a} > {b}" if descending else f"{a} < {b}"',
        'before = f"{a} >= {b}" if descending else f"{a} < {b}"',
        "a descending sort is not stable",
    ),
    (
        _PRIMITIVES,
        "for (int64_t start = 0; start < n; start += 2 * width) {",
        "for (int64_t start = 0; start + width < n; start += 2 * width) {",
        "the odd end of a sort is lost",
    ),
    (
        _PRIMITIVES,
        "    if (b == 0) return 0;\\n    if ($S && b == ($T)-1)",
        "    if (b == 0) return 1;\\n    if ($S && b == ($T)-1)",
        "an integer divided by zero is one",
    ),
    (_PRIMITIVES, '"logical-or": _relation("||"),', '"logical-or": _relation("&&"),', "or means and"),
    (
        _PRIMITIVES,
        "if (e & 1) found *= base; base *= base;",
        "if (e & 1) found *= base; base *= found;",
        "powers of integers are others",
    ),
    (
        _FORMULAS,
        'return f"(uint8_t)({value} != 0)"',
        'return f"(uint8_t)({value} > 0)"',
        "numbers below zero are false",
    ),
    (
        _FORMULAS,
        '            text = f"({moved} % {d})" if atom.remainder else f"({moved} / {d} - {shift})"',
        '            text = f"({moved} % {d})" if atom.remainder else f"({moved} / {d})"',
        "quotients of negative indices are moved",
    ),
    (
        _FORMULAS,
        '    bounds = [f"{text} >= {guard.low}"] if low < guard.low else []',
        '    bounds = [f"{text} > {guard.low}"] if low < guard.low else []',
        "the first place within a guard is outside",
    ),
    (
        _FORMULAS,
        '    bounds += [f"{text} < {guard.high}"] if high >= guard.high else []',
        '    bounds += [f"{text} < {guard.high - 1}"] if high >= guard.high else []',
        "the last place within a guard is outside",
    ),
    (
        _FORMULAS,
        'return f"({text}) % {guard.divisor} == 0"',
        'return f"({text}) % {guard.divisor} != 1"',
        "elements lie between those of a dilation",
    ),
    (
        _C,
        'yield f"if ({name} < 0) {name} += {size};"',
        'yield f"if ({name} < 0) {name} += {size} - 1;"',
        "indices from the end are one off",
    ),
    (
        _C,
        'yield from self._loop(loop, indent, "0", str(loop.axis.size))\n\n    def _product',
        'yield from self._loop(loop, indent, "0", str(max(1, loop.axis.size - (loop.axis.size == 7))))\n\n    def _product',
        "loops of seven steps take six",
    ),
)
