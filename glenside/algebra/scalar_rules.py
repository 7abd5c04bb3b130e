"""Equations between functions of single elements, each with its reason and guard.

The operands `x`, `y` and `z` stand for any expressions, other letters for any numbers. A rule holds for all values of a
dtype, so also for not-a-number and infinities: `x - x = 0` is a rule for integers only. Zeros may change their sign, as
0 does in x + 0. Results have fewer or cheaper primitives than what they replace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from glenside.ir.dtypes import FLOATS, INTEGERS
from glenside.ir.primitives import PRIMITIVES, maximum, minimum
from glenside.ir.scalar import Number, Scalar, x, y

NUMBERS = (*FLOATS, *INTEGERS)
SIGNED = tuple(name for name in NUMBERS if not name.startswith("uint"))
Numbers = Mapping[str, Fraction]


@dataclass(frozen=True)
class ScalarRule:
    """An equation left = right of functions of single elements.

    reason  why it holds for all values of the dtypes
    dtypes  the dtypes for which it holds
    guard   True for the numbers for which it holds
    values  the numbers of the right side, by name, from those of the left
    """

    name: str
    left: Scalar
    right: Scalar
    reason: str
    dtypes: tuple[str, ...] = NUMBERS
    guard: Callable[[Numbers], bool] = lambda _: True
    values: Mapping[str, Callable[[Numbers], Fraction]] | None = None

    def page(self) -> dict[str, str]:
        """Returns what the command line shows."""
        return {
            "name": self.name,
            "family": "scalar-rules",
            "equation": str(self),
            "sound because": self.reason,
            "dtypes": " ".join(self.dtypes),
        }

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


_A, _B, _C, _LOW, _HIGH = (Number(name) for name in ("a", "b", "c", "low", "high"))
_ABS, _POW = PRIMITIVES["abs"], PRIMITIVES["pow"]
_NEGATIVE, _NOT = PRIMITIVES["negative"], PRIMITIVES["logical-not"]
_LATTICE = "min and max distribute over each other, and pass on not-a-number"


def _is_negative_or_zero(numbers: Numbers) -> bool:
    return numbers["a"] <= 0


_DECLARED = (
    ScalarRule("negative-of-negative", _NEGATIVE(_NEGATIVE(x)), x, "a sign is exact, and wraps back for integers"),
    ScalarRule("negative-of-difference", -(x - y), y - x, "rounding is symmetric"),
    ScalarRule("sum-with-a-negative", x + -y, x - y, "a difference is the sum with the negative"),
    ScalarRule("difference-with-a-negative", x - -y, x + y, "a sum is the difference with the negative"),
    ScalarRule("product-of-negatives", -x * -y, x * y, "signs cancel, and rounding is symmetric"),
    ScalarRule("quotient-of-negatives", -x / -y, x / y, "signs cancel, and rounding is symmetric", FLOATS),
    ScalarRule("product-with-one", x * 1, x, "no rounding"),
    ScalarRule("quotient-by-one", x / 1, x, "no rounding"),
    ScalarRule("sum-with-zero", x + 0, x, "no rounding; only a zero may have another sign"),
    ScalarRule("difference-with-zero", x - 0, x, "no rounding"),
    ScalarRule("product-with-minus-one", x * -1, -x, "no rounding", SIGNED),
    ScalarRule("quotient-by-minus-one", x / -1, -x, "no rounding", FLOATS),
    ScalarRule("difference-of-equals", x - x, Number("0"), "an integer minus itself is 0", INTEGERS),
    ScalarRule("product-with-zero", x * 0, Number("0"), "an integer times 0 is 0", INTEGERS),
    ScalarRule("absolute-value-of-negative", _ABS(-x), _ABS(x), "only the sign differs, and it is dropped", SIGNED),
    ScalarRule("absolute-value-twice", _ABS(_ABS(x)), _ABS(x), "no sign is left, or it wraps to itself", SIGNED),
    ScalarRule("absolute-value-of-square", _ABS(x * x), x * x, "a square has no sign", FLOATS),
    ScalarRule("square-of-absolute-value", _ABS(x) * _ABS(x), x * x, "signs cancel", SIGNED),
    ScalarRule("maximum-of-equals", maximum(x, x), x, "no other value is there"),
    ScalarRule("minimum-of-equals", minimum(x, x), x, "no other value is there"),
    ScalarRule(
        "maximum-of-maximum",
        maximum(maximum(x, _A), _B),
        maximum(x, _C),
        "the larger of both numbers decides: relu of relu is relu",
        values={"c": lambda n: max(n["a"], n["b"])},
    ),
    ScalarRule(
        "minimum-of-minimum",
        minimum(minimum(x, _A), _B),
        minimum(x, _C),
        "the smaller of both numbers decides",
        values={"c": lambda n: min(n["a"], n["b"])},
    ),
    ScalarRule(
        "maximum-of-clip",
        maximum(minimum(maximum(x, _A), _B), _C),
        minimum(maximum(x, _LOW), _HIGH),
        _LATTICE,
        values={"low": lambda n: max(n["a"], n["c"]), "high": lambda n: max(n["b"], n["c"])},
    ),
    ScalarRule(
        "minimum-of-clip",
        minimum(maximum(minimum(x, _B), _A), _C),
        maximum(minimum(x, _HIGH), _LOW),
        _LATTICE,
        values={"low": lambda n: min(n["a"], n["c"]), "high": lambda n: min(n["b"], n["c"])},
    ),
    ScalarRule("minimum-of-negatives", minimum(-x, -y), -maximum(x, y), "a sign reverses order", FLOATS),
    ScalarRule("maximum-of-negatives", maximum(-x, -y), -minimum(x, y), "a sign reverses order", FLOATS),
    ScalarRule("minimum-of-maximum", minimum(maximum(x, y), x), x, "an integer is at most the larger", INTEGERS),
    ScalarRule("maximum-of-minimum", maximum(minimum(x, y), x), x, "an integer is at least the smaller", INTEGERS),
    ScalarRule(
        "maximum-of-absolute-value",
        maximum(_ABS(x), _A),
        _ABS(x),
        "an absolute value is at least 0; not for integers, whose least one wraps to itself",
        FLOATS,
        _is_negative_or_zero,
    ),
    ScalarRule("maximum-of-square", maximum(x * x, _A), x * x, "a square is at least 0", FLOATS, _is_negative_or_zero),
    ScalarRule("power-zero", _POW(x, 0), Number("1"), "also of 0, infinities and not-a-number"),
    ScalarRule("power-one", _POW(x, 1), x, "no rounding"),
    ScalarRule("power-two", _POW(x, 2), x * x, "the power rounds, overflows and wraps as the product"),
    ScalarRule("power-minus-one", _POW(x, -1), 1 / x, "also of zeros and infinities", FLOATS),
    ScalarRule("not-twice", _NOT(_NOT(x)), x, "there are two truth values", ("bool",)),
)

SCALAR_RULES: Mapping[str, ScalarRule] = {rule.name: rule for rule in _DECLARED}
