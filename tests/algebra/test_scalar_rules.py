"""Each scalar rule holds for all values: exactly over the reals, and on not-a-number, infinities and zeros."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run

import glenside as gl
from glenside.algebra.scalar_rules import NUMBERS, SCALAR_RULES, SIGNED, ScalarRule
from glenside.builder.pointwise import combine, compute, filled
from glenside.check import check
from glenside.ir.dtypes import FLOATS, INTEGERS
from glenside.ir.program import Program
from glenside.ir.scalar import Applied, Element, Number, Scalar
from glenside.ir.term import Term, build, postorder
from glenside.passes.scalar_simplification import simplified
from glenside.semantics.interpreter import evaluate

KINDS = {"add": "elementwise-add", "multiply": "elementwise-mul", "divide": "elementwise-div"}
KINDS |= {"max": "maximum", "min": "minimum"}
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-45, -1e30, 3e38]
INTEGER = [0, 1, -1, 2, -3, 7]
VALUES = (Fraction(-2), Fraction(0), Fraction(1), Fraction(3, 2), Fraction(6))


def numbers_of(expression: Scalar) -> set[str]:
    """Returns the names of the numbers of a pattern."""
    if isinstance(expression, Applied):
        return set().union(*map(numbers_of, expression.arguments))
    return {expression.text} if isinstance(expression, Number) and expression.value is None else set()


def term_of(expression: Scalar, operands: Mapping[str, Term], numbers: Mapping[str, Fraction]) -> Term:
    """Builds an expression, one compute type for each primitive."""
    if isinstance(expression, Element):
        return operands[str(expression)]
    if isinstance(expression, Number):
        text = str(numbers[expression.text]) if expression.value is None else expression.text
        return filled(next(iter(operands.values())), text)
    assert isinstance(expression, Applied)
    parts = [term_of(part, operands, numbers) for part in expression.arguments]
    kind = KINDS.get(expression.primitive.name, expression.primitive.name)
    return compute(kind, parts[0]) if len(parts) == 1 else combine(kind, *parts)


def cases(rule: ScalarRule, dtype: str) -> list[dict[str, Fraction]]:
    """Returns numbers for which the guard holds."""
    names = sorted(numbers_of(rule.left))
    values = [v for v in VALUES if dtype in FLOATS or v.denominator == 1]
    drawn = [dict(zip(names, chosen, strict=True)) for chosen in product(values, repeat=len(names))]
    return [each for each in drawn if rule.guard(each) and not (dtype.startswith("u") and min([0, *each.values()]) < 0)]


def programs(rule: ScalarRule, dtype: str, numbers: Mapping[str, Fraction], size: int = 4) -> tuple[Program, Program]:
    """Returns both sides, over the operands x and y."""
    b = gl.Builder(rule.name)
    operands = {name: b.input(name, (size,), dtype) for name in "xy"}
    known = {**numbers, **{name: value(numbers) for name, value in (rule.values or {}).items()}}
    left, right = (term_of(side, operands, known) for side in (rule.left, rule.right))
    return Program(left), Program(right)


RULES = list(SCALAR_RULES.values())
DTYPES = ("float32", "float64", "float16", "int32", "int8", "uint8", "bool")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_holds_on_special_values(rule: ScalarRule) -> None:
    """Zeros may differ in their sign alone; not-a-number and infinities are the same."""
    for dtype in DTYPES:
        if dtype not in rule.dtypes:
            continue
        if dtype in FLOATS:
            with np.errstate(all="ignore"):
                values = np.array(SPECIAL, "float64").astype(dtype)
        else:
            least = [] if dtype == "bool" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
            values = np.array([*INTEGER, *least], "int64").astype(dtype)
        x, y = (each.ravel() for each in np.meshgrid(values, values))
        for numbers in cases(rule, dtype):
            left, right = programs(rule, dtype, numbers, x.size)
            with np.errstate(all="ignore"):
                results = evaluate([left.term, right.term], {"x": x, "y": y})
            np.testing.assert_array_equal(*results, err_msg=f"{rule} for {numbers} in {dtype}")


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_exact(rule: ScalarRule) -> None:
    dtype = next(each for each in DTYPES if each in rule.dtypes)
    for numbers in cases(rule, dtype)[-1:]:
        left, right = programs(rule, dtype, numbers)
        assert check(left, right).ok, rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_applied(rule: ScalarRule) -> None:
    dtype = next(each for each in DTYPES if each in rule.dtypes)
    left, _ = programs(rule, dtype, cases(rule, dtype)[-1])
    found, applied = simplified(left)
    assert applied
    assert found.term is not left.term


@pytest.mark.parametrize("rule", [r for r in RULES if set(r.dtypes) >= {"float32"}], ids=lambda rule: rule.name)
def test_a_rule_is_proven_over_the_reals(rule: ScalarRule) -> None:
    z3 = pytest.importorskip("z3")
    reals = {name: z3.Real(name) for name in "xy"}

    def of(expression: Scalar, numbers: Mapping[str, Fraction]) -> Any:
        if isinstance(expression, Element):
            return reals[str(expression)]
        if isinstance(expression, Number):
            return z3.RealVal(str(numbers[expression.text] if expression.value is None else expression.value))
        assert isinstance(expression, Applied)
        a, *rest = (of(part, numbers) for part in expression.arguments)
        b = rest[0] if rest else a
        return {
            "add": lambda: a + b,
            "subtract": lambda: a - b,
            "multiply": lambda: a * b,
            "divide": lambda: solver.add(b != 0) or a / b,
            "negative": lambda: -a,
            "abs": lambda: z3.If(a < 0, -a, a),
            "max": lambda: z3.If(a > b, a, b),
            "min": lambda: z3.If(a < b, a, b),
            "pow": lambda: {"0": z3.RealVal(1), "1": a, "2": a * a, "-1": 1 / a}[str(b)],  # no 0 to the power -1
        }[expression.primitive.name]()

    for numbers in cases(rule, "float32"):
        solver = z3.Solver()
        known = {**numbers, **{name: value(numbers) for name, value in (rule.values or {}).items()}}
        solver.add(reals["x"] != 0) if rule.name == "power-minus-one" else None
        solver.add(of(rule.left, known) != of(rule.right, known))
        assert solver.check() == z3.unsat, f"{rule}: {solver.model()}"


def random_program(seed: int) -> Program:
    """Draws elementwise functions with much that can be left out."""
    pick = random.Random(seed)
    b = gl.Builder(f"elements {seed}")
    dtype = pick.choice(("float32", "float32", "int32"))
    terms = [b.input(f"t{k}", (len(SPECIAL) ** 2,), dtype) for k in range(2)]
    for _ in range(pick.randint(3, 12)):
        a, other = pick.choice(terms[-3:]), pick.choice(terms[-3:])
        number = filled(a, pick.choice(("0", "1", "-1", "2", "6")))
        kind = pick.choice(("elementwise-add", "elementwise-mul", "subtract", "maximum", "minimum"))
        ways = [
            lambda a=a: compute(pick.choice(("negative", "abs", "relu", "(clip 0 6)", "(clip -1 2)")), a),
            lambda a=a, other=other, kind=kind: combine(kind, a, other),
            lambda a=a, number=number, kind=kind: combine(kind, a, number),
        ]
        terms.append(pick.choice(ways)())
    return b.finish(terms[-1])


def test_random_functions_of_elements_stay_equal() -> None:
    """On special values, bit by bit but for the signs of zeros."""
    changed = 0
    for seed in range(300):
        program = random_program(seed)
        found, applied = simplified(program)
        changed += bool(applied)
        dtype = program.term.access.dtype
        given = np.array(SPECIAL if dtype in FLOATS else INTEGER).astype(dtype)
        x, y = (each.ravel() for each in np.meshgrid(given, given))
        values = {name: np.resize(each, len(SPECIAL) ** 2) for name, each in (("t0", x), ("t1", y))}
        with np.errstate(all="ignore"):
            results = evaluate([program.term, found.term], {name: values[name] for name in program.tensors})
        np.testing.assert_array_equal(*results, err_msg=f"seed {seed}, {dict(applied)}\n{program}\n{found}")
    assert changed > 100


@pytest.mark.slow
def test_many_random_functions_of_elements_are_exact() -> None:
    for seed in range(1_000, 1_200):
        program = random_program(seed)
        found, applied = simplified(program)
        assert check(program, found).ok, f"seed {seed}, {dict(applied)}\n{program}\n{found}"


def _of_floats(form: Any) -> Program:
    b = gl.Builder("neighbour")
    return b.finish(form(b.input("x", (4,)), b))


@pytest.mark.parametrize(
    "form",
    [
        lambda x, b: b.subtract(x, x),
        lambda x, b: b.divide(x, x),
        lambda x, b: b.multiply(x, filled(x, "0")),
        lambda x, b: combine("minimum", combine("maximum", x, b.input("y", (4,))), x),
        lambda x, b: compute("exp", compute("log", x)),
        lambda x, b: b.multiply(compute("sqrt", x), compute("sqrt", x)),
        lambda x, b: combine("pow", x, filled(x, "1/2")),
        lambda x, b: combine("maximum", compute("abs", x), filled(x, "1")),
    ],
    ids=["x - x", "x / x", "x * 0", "absorption", "exp(log x)", "sqrt x * sqrt x", "x ^ 1/2", "max(|x|, 1)"],
)
def test_what_differs_on_special_values_stays(form: Any) -> None:
    program = _of_floats(form)
    assert simplified(program) == (program, {})


def test_what_others_read_is_not_computed_again() -> None:
    """min(-x, -y) with -x and -y as results too: -max(x, y) would be one more step."""
    b = gl.Builder("shared")
    x, y = (compute("negative", b.input(name, (4,))) for name in "xy")
    program = b.finish(build("construct-tuple", x, y, combine("minimum", x, y)))
    assert simplified(program) == (program, {})


def test_clips_are_one() -> None:
    b = gl.Builder("clips")
    x = b.relu6(b.relu(b.relu6(b.input("x", (4,)))))
    found, _ = simplified(b.finish(x))
    assert [t.attributes[0] for t in postorder(found.term) if t.operator.name == "compute"] == ["(clip 0 6)"]


@pytest.mark.parametrize("target", ["cpu:unlimited,machine=avx512", "systolic-array:16x16"])
def test_a_target_that_prices_elements_applies_the_rules(target: str) -> None:
    b = gl.Builder("a network")
    hidden = b.relu6(b.relu(b.matmul(b.input("x", (8, 16)), b.constant("w", (16, 4)))))
    result = gl.optimize(b.finish(combine("pow", hidden, filled(hidden, "2"))).seeded_constants(0), target)
    assert result.report.checked == "exact"
    found = [rule for candidate in result.report.algebra for rule in candidate.equations]
    assert found == (["maximum-of-maximum", "power-two"] if target.startswith("cpu") else [])


def test_the_documentation_lists_each_rule() -> None:
    text = (Path(__file__).parents[2] / "docs/algebra.md").read_text()
    assert all(row_of(rule) in text for rule in RULES)


def row_of(rule: ScalarRule) -> str:
    """Returns the row of a rule in the documentation."""
    kinds = {
        NUMBERS: "numbers",
        SIGNED: "signed numbers",
        FLOATS: "floats",
        INTEGERS: "integers",
        ("bool",): "truth values",
    }
    return f"| `{rule.name}` | `{rule}` | {kinds[rule.dtypes]} | {rule.reason} |"


def test_the_command_line_shows_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules", "maximum-of-maximum") == 0
    assert "the larger of both numbers decides" in capsys.readouterr().out
    assert run("rules", "--json") == 0
    assert "difference-of-equals" in capsys.readouterr().out
