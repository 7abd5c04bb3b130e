"""Reads sizes of exported programs that depend on symbols: expressions of sympy as text, without sympy or `eval`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, prod, trunc
from types import MappingProxyType
from typing import Any

from glenside.ir.bounds import whole
from glenside.ir.errors import BadInput
from glenside.ir.names import shortened

Sizes = Mapping[str, int]
"""Numbers in place of symbols and of names of sizes."""
NO_SIZES: Sizes = MappingProxyType({})
_LONGEST, _MOST_EXPONENT = 10_000, 16
"""The most characters of an expression, and the greatest exponent."""


def size_of(entry: Any, what: str, sizes: Sizes = NO_SIZES) -> int:
    """Returns a size of a file at given sizes. Raises BadInput if it depends on others, which it names."""
    if "as_int" in entry:
        return whole(f"a size of {what}", entry["as_int"])
    found = number_of(entry, what, sizes)
    return whole(f"a size of {what}", found)


def number_of(entry: Any, what: str, sizes: Sizes) -> Any:
    """Returns a number, or truth, of a file at given sizes. Raises BadInput."""
    if "as_expr" not in entry:
        ((_, value),) = entry.items()
        return value
    text = str(entry["as_expr"].get("expr_str", ""))
    unknown = [name for name in symbols_of(entry) if name not in sizes]
    if unknown:
        depends = any(name.startswith(("u", "zuf")) for name in unknown)
        why = "depends on data" if depends else "is open"
        raise BadInput(f"{what}: the size {' and '.join(unknown)} {why}; a program has fixed sizes")
    try:
        return _value(_parsed(text), sizes)
    except (ArithmeticError, AttributeError, IndexError, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise BadInput(f"{what}: the size {shortened(text)} has no meaning here") from error


def symbols_of(entry: Any) -> list[str]:
    """Returns the symbols of a size of a file, in the order in which it names them."""
    text = str(entry.get("as_expr", {}).get("expr_str", ""))
    return list(dict.fromkeys(re.findall(r"Symbol\('(\w+)'", text)))


def ranges_of(program: Any, inputs: Mapping[str, Any]) -> dict[str, tuple[int, int | None]]:
    """Returns the symbols of the sizes of inputs -> their least and greatest values; None: any.

    program  the JSON of an exported program
    inputs   the metas of its inputs, in their order
    """
    found: dict[str, tuple[int, int | None]] = {}
    for meta in inputs.values():
        for symbol in (symbol for size in meta["sizes"] for symbol in symbols_of(size)):
            own = program.get("range_constraints", {}).get(symbol, {})
            low, high = own.get("min_val"), own.get("max_val")
            high = whole(f"the greatest {symbol}", high) if high is not None and high < 1 << 31 else None
            found.setdefault(symbol, (max(0, whole(f"the least {symbol}", low or 0, -(1 << 31))), high))
    return found


def places_of(symbol: str, inputs: Mapping[str, Any]) -> str:
    """Describes the axes of inputs that have a symbol: `axis 0 of x and axis 1 of mask`."""
    found = [
        f"axis {axis} of {shortened(name)}"
        for name, meta in inputs.items()
        for axis, size in enumerate(meta["sizes"])
        if symbol in symbols_of(size)
    ]
    return " and ".join([*found[:3], *([".."] if len(found) > 3 else [])])


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise ValueError("too long")
    return ast.parse(text, mode="eval").body


def _value(node: ast.expr, sizes: Sizes) -> Any:
    """Returns the value of an expression of calls, such as Mul(Integer(2), Symbol('s0')). Raises ValueError."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, sizes)
    if isinstance(node, ast.Name):
        return {"true": True, "false": False}[node.id]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("no call of a function")
    parts = [_value(part, sizes) for part in node.args]
    return sizes[parts[0]] if node.func.id == "Symbol" else _FUNCTIONS[node.func.id](*parts)


def _power(base: Any, exponent: Any) -> Any:
    if not -_MOST_EXPONENT <= exponent <= _MOST_EXPONENT:
        raise ValueError("too large")
    return base**exponent


def _product(*parts: Any) -> Any:
    found = prod(parts)
    return int(found) if isinstance(found, Fraction) and found.denominator == 1 else found


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Integer": int,
    "Float": float,
    "Rational": Fraction,
    "Add": lambda *parts: sum(parts),
    "Mul": _product,
    "Pow": _power,
    "PowByNatural": _power,
    "FloatPow": _power,
    "Min": min,
    "Max": max,
    "Abs": abs,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "CeilDiv": lambda a, b: -(-a // b),
    "ModularIndexing": lambda a, b, c: a // b % c,
    "IntTrueDiv": lambda a, b: a / b,
    "FloatTrueDiv": lambda a, b: a / b,
    "ToFloat": float,
    "Identity": lambda value: value,
    "floor": floor,
    "FloorToInt": floor,
    "ceiling": ceil,
    "CeilToInt": ceil,
    "TruncToInt": trunc,
    "TruncToFloat": lambda value: float(trunc(value)),
    "RoundToInt": round,
    "Equality": lambda a, b: a == b,
    "Unequality": lambda a, b: a != b,
    "StrictLessThan": lambda a, b: a < b,
    "LessThan": lambda a, b: a <= b,
    "StrictGreaterThan": lambda a, b: a > b,
    "GreaterThan": lambda a, b: a >= b,
    "And": lambda *parts: all(parts),
    "Or": lambda *parts: any(parts),
    "Not": lambda value: not value,
    "Where": lambda condition, one, other: one if condition else other,
    **{f"OpaqueUnaryFn_{name}": getattr(math, name) for name in ("sqrt", "exp", "log", "log2")},
}
"""The functions of expressions in files."""
