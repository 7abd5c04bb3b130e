"""Tests a user's operator, rule, target and cost, declared with public names alone: they work, and mistakes are
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.ir.operator import COMPUTES, OPERATORS
from glenside.rewrites import RULES
from glenside.targets import TARGETS

RELU = "(compute relu (compute relu (access (access-tensor x) 1)))"
EXAMPLE = gl.Example(RELU, {"x": "m n"})
TWICE = "(compute relu (compute relu (compute relu (access (access-tensor x) 1))))"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    tables: tuple[dict[str, Any], ...] = (OPERATORS, COMPUTES, RULES, TARGETS)  # type: ignore[assignment]
    before = [dict(table) for table in tables]
    yield
    for table, known in zip(tables, before, strict=True):
        for name in set(table) - set(known):
            del table[name]


def idempotent() -> Any:
    @gl.rule(EXAMPLE)
    def relu_is_idempotent(a):  # type: ignore[no-untyped-def]
        """relu(relu(a)) = relu(a).

        Sound because relu keeps elements that are not negative.
        """
        return gl.rewrite(gl.op.compute("relu", gl.op.compute("relu", a)), gl.op.compute("relu", a))

    return relu_is_idempotent


def reversal(**changed: Any) -> Any:
    given: dict[str, Any] = {
        "fields": {"a": "term", "axis": "int"},
        "result": lambda a, axis: a,
        "evaluate": lambda _, a, axis: np.flip(a, axis),
        "index_map": lambda a, axis: gl.index_map.mapped(
            a.dims, gl.index_map.along(a.dims, axis, lambda i: i * -1 + (a.dims[axis] - 1))
        ),
        "doc": "Reverses an axis.",
        "examples": gl.Example("(my-flip (access-tensor x) 1)", {"x": "m n"}),
    }
    return gl.operator("my-flip", changed.pop("kind", "movement"), **(given | changed))


def test_an_operator_works_in_programs_search_check_and_compiled_code() -> None:
    flip = reversal()
    hat = gl.operator(
        "hat",
        "pointwise",
        scalar=lambda x: gl.primitives.maximum(1 - x * x, 0),
        doc="A hat.",
        examples=gl.Example("(compute hat (access-tensor x))", {"x": "m n"}),
    )
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    program = gl.parse("(compute hat (my-flip (my-flip (my-flip (access-tensor x) 1) 1) 1))", shapes={"x": (3, 4)})

    @gl.rule(gl.Example("(my-flip (my-flip (access-tensor x) 0) 0)", {"x": "m n"}))
    def my_flips_cancel(a, axis):  # type: ignore[no-untyped-def]
        """flip(flip(a)) = a.

        Sound because an axis that is reversed twice is in its order.
        """
        return gl.rewrite(flip(flip(a, axis), axis), a)

    @gl.rule(gl.Example("(compute hat (my-flip (access-tensor x) 0))", {"x": "m n"}))
    def flip_leaves_hat(a, axis):  # type: ignore[no-untyped-def]
        """hat(flip(a)) = flip(hat(a)).

        Sound because hat is a function of single elements.
        """
        return gl.rewrite(hat(flip(a, axis)), flip(hat(a), axis))

    assert gl.check_rule(my_flips_cancel).ok
    assert gl.check_rule(flip_leaves_hat).ok
    result = gl.optimize(program, cost=lambda node: 1, rules=[my_flips_cancel, flip_leaves_hat])
    assert (result.cost["cost"], result.report.baseline["cost"], result.report.checked) == (3, 5, "exact")
    expected = np.maximum(1 - np.flip(x, 1) ** 2, 0)
    np.testing.assert_allclose(gl.evaluate([result.program.term], {"x": x})[0], expected, rtol=1e-6)
    np.testing.assert_allclose(gl.compile(result.program, None)(x), expected, rtol=1e-5)


def test_the_same_operator_and_rule_may_be_declared_again() -> None:
    for _ in range(2):
        reversal()
        idempotent()
    assert gl.check_rule(idempotent(), seeds=1).ok


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "movment"}, "a kind is one of .* got 'movment'; did you mean movement"),
        ({"fields": {"a": "trem", "axis": "int"}}, "got 'trem'; did you mean term"),
        ({"fields": None}, "fields= is missing"),
        ({"evalute": 1}, "there is no evalute=; did you mean evaluate"),
        ({"doc": ""}, "doc= is empty"),
        ({"examples": ()}, "it has no example"),
        ({"examples": gl.Example("(my-flap (access-tensor x) 1)", {"x": "m n"})}, "unknown operator my-flap"),
        ({"examples": gl.Example("(access-tensor x)", {"x": "m n"})}, "its example .* does not have it"),
        ({"result": lambda a: a}, "its example cannot be read: TypeError"),
        ({"evaluate": lambda _, a: a}, "evaluate fails on its example: TypeError"),
        ({"evaluate": lambda _, a, axis: a[:1]}, r"evaluate returns \(1 .*\) float32 where the type rule says"),
        ({"evaluate": lambda _, a, axis: a * 2}, "index_map and evaluate disagree"),
        ({"index_map": lambda a, axis: 3}, "index_map fails on its example: AttributeError"),
        ({"examples": "(my-flip (access-tensor x) 1)"}, "an example is made by gl.Example"),
        ({"result": lambda a, axis: None}, "the type rule returns None instead of a type"),
    ],
)
def test_a_mistake_in_an_operator_is_one_sentence_with_its_line(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(gl.GlensideError, match=rf"^test_own_declarations.py:\d+:1: the operator my-flip: .*{message}"):
        reversal(**changed)
    assert "my-flip" not in OPERATORS
    reversal()  # the mended declaration is accepted


@pytest.mark.parametrize(
    ("scalar", "message"),
    [
        (lambda x: x if x > 0 else 0, "x > 0 is true or false for each element: choose by select, maximum or minimum"),
        (lambda x: max(1 - x * x, 0), "is true or false for each element"),
        (lambda x: 3, "scalar returns 3 instead of an expression of elements"),
        (lambda x: x.real, "scalar fails: AttributeError"),
    ],
)
def test_a_mistake_in_a_function_of_elements_is_one_sentence(scalar: Callable[..., Any], message: str) -> None:
    example = gl.Example("(compute mine (access-tensor x))", {"x": "m n"})
    with pytest.raises(gl.GlensideError, match=message):
        gl.operator("mine", "pointwise", scalar=scalar, doc="Mine.", examples=example)
    assert "mine" not in COMPUTES


def test_a_wrong_rule_is_told_from_a_right_one() -> None:
    assert str(gl.check_rule(idempotent())).startswith("relu-is-idempotent: sound on its examples, 9 matches")

    @gl.rule(EXAMPLE)
    def relu_is_nothing(a):  # type: ignore[no-untyped-def]
        """relu(a) = a. Sound because .. it is not."""
        return gl.rewrite(gl.op.compute("relu", a), a)

    assert "is not equal to" in gl.check_rule(relu_is_nothing).fault

    @gl.rule(gl.Example("(compute reduce-sum (access (access-tensor x) 1))", {"x": "m n"}))
    def sum_is_nothing(a):  # type: ignore[no-untyped-def]
        """sum(a) = a. Sound because .. it is not."""
        return gl.rewrite(gl.op.compute("reduce-sum", a), a)

    assert "of type (5)() float32, equal to" in gl.check_rule(sum_is_nothing).fault

    @gl.rule(gl.Example("(compute relu (access-tensor x))", {"x": "m n"}))
    def never_matches(a):  # type: ignore[no-untyped-def]
        """tanh(tanh(a)) = a. Sound because .. it is not."""
        return gl.rewrite(gl.op.compute("tanh", gl.op.compute("tanh", a)), a)

    assert "no example matches tanh(tanh(a)) = a" in gl.check_rule(never_matches).fault


def _rule(clause: Callable[..., Any], *given: Any, doc: str = "a = a. Sound because .. not.") -> Any:
    def mistaken(a):  # type: ignore[no-untyped-def]
        return clause(a)

    mistaken.__doc__ = doc
    return gl.rule(*(given or (EXAMPLE,)))(mistaken)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: _rule(lambda a: gl.rewrite(a, gl.op.compute("relu", a))), "the left side of a rewrite is an operator"),
        (lambda: _rule(lambda a: gl.rewrite(gl.op.compute("relu", a), 3)), "the right side .* is a pattern, got 3"),
        (lambda: _rule(lambda a: gl.op.compute("relu", a)), r"returns relu\(a\) instead of a clause"),
        (lambda: _rule(lambda a: gl.rewrite(gl.op.compute("rleu", a), a)), "did you mean relu"),
        (lambda: _rule(lambda a: gl.rewrite(gl.op.comptue("relu", a), a)), "did you mean compute"),
        (lambda: _rule(lambda a: gl.rewrite(gl.op.compute("relu", a), a, 3)), "a fact is an equation .* got 3"),
        (lambda: _rule(lambda a: 1 / 0), "ZeroDivisionError"),
        (lambda: _rule(lambda a: a, EXAMPLE, doc="a = a."), "'Sound because'"),
        (lambda: _rule(lambda a: a, "family"), "needs an example"),
    ],
)
def test_a_mistake_in_a_rule_is_one_sentence_with_its_line(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(gl.GlensideError, match=rf"^test_own_declarations.py:\d+:1: the rule mistaken.*{message}"):
        declare()
    assert "mistaken" not in RULES


def test_a_target_and_a_cost_optimize_check_and_report() -> None:
    rule = idempotent()
    program = gl.parse(TWICE, shapes={"x": (3, 5)})

    @gl.target("slow-relu", rules=[rule], measure="work", unit="elements")
    def slow_relu(node, *, lanes):  # type: ignore[no-untyped-def]
        """A machine for which relu is slow."""
        return -(-node.type.size // lanes) if node.name == "relu" else 0

    for given in (slow_relu(2), "slow-relu:2"):
        result = gl.optimize(program, given)
        assert (result.cost, result.report.baseline) == ({"work": 8}, {"work": 24})
        assert (result.report.target, result.report.checked) == ("slow-relu:2", "exact")
    depth = gl.optimize(program, cost=lambda node, operands: 1 + max(operands, default=0), rules=[rule])
    assert (depth.cost, depth.report.baseline) == ({"cost": 3}, {"cost": 5})
    for wrong, message in (
        (lambda: gl.parse_target("slow-relu"), "is written slow-relu:LANES"),
        (lambda: slow_relu("2"), "takes lanes, each a whole number"),
        (lambda: gl.target("cpu")(lambda node: 1), "needs a docstring"),
        (lambda: gl.optimize(program), "give a target"),
        (
            lambda: gl.optimize(program, cost=lambda node: 0.5),
            "a cost is a whole number of at least 0, or None, got 0.5",
        ),
        (lambda: gl.optimize(program, cost=lambda: 1), "got 0 parameters"),
        (
            lambda: gl.optimize(program, cost=lambda node, c: 2 if c else 3, rules=[rule]),
            "at least that of each operand",
        ),
        (lambda: gl.optimize(program, "cpu", rules=["algbra"]), "no family of rules 'algbra'; did you mean algebra"),
    ):
        with pytest.raises(gl.GlensideError, match=message):
            wrong()


def test_an_operator_without_a_cost_is_replaced_or_named() -> None:
    program = gl.parse(TWICE, shapes={"x": (3, 5)})
    without = gl.optimize(program, cost=lambda node: None if node.name == "relu" else 1)
    assert (without.cost, without.report.remarks) == ({"cost": None}, ["no cost for relu"])

    @gl.rule(gl.Example("(compute relu (access-tensor x))", {"x": "m n"}))
    def relu_is_a_maximum(a):  # type: ignore[no-untyped-def]
        """relu(a) = clip(a, 0, 1e9). Sound because .. of numbers below 1e9: it is only for this test."""
        return gl.rewrite(gl.op.compute("relu", a), gl.op.compute("(clip 0 1000000000)", a))

    replaced = gl.optimize(
        program, cost=lambda node: None if node.name == "relu" else 1, rules=[relu_is_a_maximum], verify=False
    )
    assert (replaced.cost, replaced.report.remarks) == ({"cost": 5}, [])


def test_a_cost_chooses_between_what_shares_and_what_does_not() -> None:
    """Costs of nodes are summed over distinct nodes; a cost over operands counts a shared operand at each use."""
    b = gl.Builder("shared")
    x = b.relu(b.input("x", (4, 4)))
    program = b.finish(b.add(x, x))
    assert gl.optimize(program, cost=lambda node: int(node.name == "relu")).cost == {"cost": 1}
    tree = gl.optimize(program, cost=lambda node, operands: int(node.name == "relu") + sum(operands))
    assert tree.cost == {"cost": 2}


def test_rules_of_a_user_run_for_a_target_of_ours() -> None:
    product = "(compute dot-product (access-product (access (access-tensor a) 1) (access (access-tensor b) 1) 0))"
    program = gl.parse(f"(compute relu (compute relu {product}))", shapes={"a": (3, 5), "b": (7, 5)})
    result = gl.optimize(program, "systolic-array:4x4", rules=[idempotent()])
    assert result.report.rules["relu-is-idempotent"].matches > 0
    assert "".join(str(result.program).split()).count("computerelu") == 1
    own = gl.optimize(
        program, "systolic-array:4x4", cost=lambda node: node.macs
    )  # the array's instructions cost nothing
    assert own.cost == {"cost": 0}
    assert "systolic-array" in str(own.program)
