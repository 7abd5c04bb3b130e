"""Tests prices of secure computation without SPU; `test_spu_computes.py` compares them with SPU."""

from __future__ import annotations

import numpy as np
import pytest
from operator_examples import OPERATORS as OPERATOR_EXAMPLES

import glenside as gl
from glenside.ir.operator import COMPUTES
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor
from glenside.targets.mpc.analysis import Operand, secrets
from glenside.targets.mpc.prices import COMPUTE_PRICES, OPERATOR_PRICES, node_traffic
from glenside.targets.mpc.semi2k import NOTHING, Semi2k, Traffic
from glenside.targets.mpc.traffic import prepare, program_traffic, total


def tensor(name: str, *dims: int, constant: bool = False) -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), "float32", constant))


def product(m: int, k: int, n: int, *groups: int, constant: bool = False) -> Term:
    shared = len(groups)
    a, b = tensor("x", *groups, m, k), tensor("w", *groups, n, k, constant=constant)
    pair = build("access-product", build("access", a, shared + 1), build("access", b, shared + 1), shared)
    return build("compute", "dot-product", pair)


def test_what_has_no_price_is_unknown() -> None:
    """Neither measured, nor moved to places that are known, nor linear: what is sent is not taken for nothing."""
    computes = {name for name, record in COMPUTES.items() if not record.linear} - COMPUTE_PRICES.keys()
    assert computes == {
        *("pow", "mod", "logical-and", "logical-or", "logical-not", "bitwise-and", "bitwise-or", "bitwise-xor"),
        *("argmax", "argmin", "argsort", "sign", "round"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
    }
    unknown = set()
    for name, examples in OPERATOR_EXAMPLES.items():
        for term in (e.term for e in examples):
            operands = [Operand(child.type, True) for child in term.children]
            sent = node_traffic(Semi2k(), name, term.attributes, operands, term.type)
            unknown |= {name} if sent is None and name != "cast" else set()
    assert unknown == {
        "bitcast",
        "access-gather",
        "access-gather-nd",
        "access-scatter-nd",
        "opaque",
        "opaque-items",
        "opaque-pointwise",
        "scan",
    }
    assert OPERATOR_PRICES.keys() & unknown == {"access-gather"}  # whose places may be public


@pytest.mark.parametrize(
    ("term", "sent"),
    [
        (product(1024, 144, 16), Traffic(1_198_080 + 65_536, 2, 16_384)),
        (product(5, 7, 3, 2, 4), Traffic(8 * (8 * 56 + 4 * 15), 16, 120)),
        (build("compute", "relu", tensor("x", 5, 7)), Traffic(2520, 8)),
        (build("compute", "exp", tensor("x", 5, 7)), Traffic(3500, 17)),
        (build("access-transpose", tensor("x", 5, 7), (1, 0)), NOTHING),
        (build("linear-map", tensor("x", 5, 3), 1, 2, "1 -2 3 1/2 0 1"), Traffic(20, 1, 5)),
        (build("linear-map", tensor("x", 5, 3), 1, 2, "1 -2 3 8 0 1"), NOTHING),
    ],
)
def test_what_was_measured(term: Term, sent: Traffic) -> None:
    assert total(program_traffic(Program(term))) == sent


def test_shares_are_as_large_as_the_field() -> None:
    found = {bits: Semi2k(bits).matmul(5, 7, 3).bytes for bits in (32, 64, 128)}
    assert found == {32: 224, 64: 448, 128: 896}
    assert {Semi2k(bits).truncation(15).bytes for bits in (32, 64, 128)} == {60}
    assert Semi2k(32).function("sqrt", 3) is None


def test_what_is_public_is_not_sent() -> None:
    program = Program(product(5, 7, 3))
    assert total(program_traffic(program, ["x", "w"])) == NOTHING
    assert total(program_traffic(program, ["w"])) == Traffic(60, 1, 15)
    known = secrets(program, ["w"])
    assert known[program.term].secret
    assert not known[program.term.children[0].children[1]].secret


def test_what_has_no_formula_is_none() -> None:
    term = OPERATOR_EXAMPLES["bitcast"][0].term
    assert total(program_traffic(Program(term))) is None
    assert total(program_traffic(Program(term), [*Program(term).tensors])) == NOTHING


def test_an_explicit_truncation_takes_the_place_of_the_implied_one() -> None:
    plain = product(4, 7, 3, 2)
    assert total(program_traffic(Program(build("truncate", plain)))) == total(program_traffic(Program(plain)))
    mapped = build("linear-map", plain, 1, 1, "1 1 -1 2")
    both = total(program_traffic(Program(mapped)))
    late = total(program_traffic(Program(build("truncate", mapped))))
    assert both == Traffic(2 * 8 * 49 + 4 * 24, 4, 24)
    assert late == Traffic(2 * 8 * 49 + 4 * 6, 3, 6)
    again = build("construct-tuple", build("truncate", mapped), build("compute", "relu", plain))
    sent = total(program_traffic(Program(again)))
    assert sent is not None
    assert sent.truncated == 24 + 6  # another reads the product as well: it is cut at once


def test_prepared_weights_cost_nothing() -> None:
    weights = build("linear-map", tensor("w", 4, 3, constant=True), 1, 5, "1/2 " * 15)
    pair = build("access-product", build("access", tensor("x", 6, 5), 1), build("access", weights, 1), 0)
    halved = build("full", (6, 4), "1/2", "float32")
    dot = build("compute", "dot-product", pair)
    scaled = build("compute", "elementwise-mul", build("access-product", dot, build("access", halved, 2), 2))
    program = Program(scaled, constants={"w": np.ones((4, 3), np.float32)})
    sent, before = total(program_traffic(program)), total(program_traffic(program, prepared=True))
    assert sent is not None
    assert before is not None
    assert sent.bytes - before.bytes == 4 * 20
    ready = prepare(program)
    assert total(program_traffic(ready)) == before
    assert gl.evaluate([ready.term], {**ready.constants, "x": np.ones((6, 5), np.float32)})[0].shape == (6, 4)
