"""Tests `f.check()`: residues are exact, each nest is within its rounding bound, and faults are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import broken_loops
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_terms import terms
from slow_cases import quick

import glenside as gl
from glenside.builder import pointwise
from glenside.codegen.emit_c.translation_units import Source
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import Machine, machine_of
from glenside.codegen.runtime import compiled_function
from glenside.codegen.runtime.compile_and_load import Loaded, loaded
from glenside.codegen.translation_validation.validate import Validation
from glenside.codegen.verify.verifier import Unverified
from glenside.codegen.verify.verify_loops import faults
from glenside.ir.dtypes import FLOATS
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.ir.types import AccessType, Dims, Tensor

pytestmark = pytest.mark.needs_compiler


def _convolution(channels: int, filters: int, size: int) -> Program:
    b = gl.Builder("p")
    x = b.conv(b.input("x", (1, channels, size, size)), b.constant("w", (filters, channels, 3, 3)), padding=1)
    return b.finish(b.relu(b.add(x, b.constant("b", (1, filters, 1, 1))))).seeded_constants(0)


@pytest.mark.slow
def test_a_convolution_and_winograd() -> None:
    """Winograd's fractions are exact over residues, and its constants are in the bound of the nest that has them."""
    program = _convolution(16, 24, 12)
    direct, transformed = gl.compile(program, "none").check(), gl.compile(program, gl.CPU(balance=0.1)).check()
    assert direct.ok
    assert transformed.ok, transformed
    assert direct.residues == transformed.residues == "exact"
    assert any("linear-map" in name for name in transformed.nests)
    assert all(0 <= nest.share <= 1 and nest.bound < 1e-4 for nest in transformed.nests.values())
    assert "residues: exact" in str(transformed)
    assert f"{len(transformed.nests)} of {len(transformed.nests)} nests" in str(transformed)


@pytest.mark.parametrize(
    "away", [-np.inf, *(pytest.param(away, marks=pytest.mark.slow) for away in (np.finfo(np.float32).min, -1e9))]
)
@pytest.mark.parametrize("how", quick(["added", "selected", "one number", "scattered"], 0, 3))
def test_masks(away: float, how: str) -> None:
    """Large numbers of masks, however they are combined, do not make the check fail."""
    b = gl.Builder("p")
    scores, number = b.matmul(b.input("q", (3, 4)), b.input("k", (4, 3))), np.float32(away)
    table = np.triu(np.full((3, 3), number), 1)
    if how == "added":
        masked = b.add(scores, b.constant("mask", (3, 3)))
    elif how == "scattered":
        places = build("cast", b.reshape(build("iota", 2, "int64"), (2, 1)), "int64")
        masked, table = (
            b.scatter_nd(b.constant("mask", (3, 3)), places, b.slice_axis(scores, 0, 0, 2)),
            np.full((3, 3), number),
        )
    else:
        own = b.constant("mask", (3, 3) if how == "selected" else (1, 1))
        masked = b.select(b.input("m", (3, 3), "bool"), scores, b.broadcast(own, (3, 3)))
        table = table if how == "selected" else np.full((1, 1), number)
    program = b.finish(b.softmax(masked)).with_constants({"mask": table})
    report = gl.compile(program, "none").check()
    assert report.ok, report


def test_the_bound_follows_the_depth_of_a_sum() -> None:
    found = []
    for depth in (16, 256, 4096):
        b = gl.Builder("p")
        product = b.matmul(b.input("x", (8, depth)), b.constant("w", (depth, 16)))
        report = gl.compile(b.finish(product).seeded_constants(0), "none").check()
        assert report.ok, report
        found.append(max(nest.bound for nest in report.nests.values()))
    assert found[0] < found[1] < found[2] < 4096 * 2.0**-24 * 64


KINDS: dict[str, Callable[[Term], Term]] = {
    "softmax": lambda x: build("compute", "softmax", build("access", x, 1)),
    "sort": lambda x: build("compute", "(argsort descending)", build("access", x, 1)),
    "argmax": lambda x: build("compute", "argmax", build("access", x, 1)),
    "gelu": lambda x: pointwise.multiply(x, pointwise.compute("erf", x)),
    "steps": lambda x: pointwise.compute("floor", pointwise.multiply(x, pointwise.filled(x, 3))),
    "halves": lambda x: pointwise.compute("sqrt", pointwise.compute("abs", build("cast", x, "float16"))),
    "whole": lambda x: build("cast", pointwise.multiply(x, pointwise.filled(x, 100)), "int16"),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_no_sum(name: str) -> None:
    x = gl.Builder("p").input("x", (5, 37))
    report = gl.compile(Program(KINDS[name](x)), "none").check()
    assert report.ok, report


def test_choices_that_rounding_may_decide_are_told() -> None:
    """Which of two sums that are the same number is larger: nobody knows."""
    x = gl.Builder("p").input("x", (64,))
    third = pointwise.multiply(x, pointwise.filled(x, "1/3"))
    both = pointwise.multiply(x, pointwise.filled(x, "2/3"))
    above = pointwise.cast(pointwise.compare("lt", pointwise.add(third, third), both), "int32")
    report = gl.compile(Program(above), "none").check()
    assert report.residues == "exact"
    assert [nest.verdict for nest in report.nests.values()] == ["not bounded: what it chooses may depend on rounding"]
    assert not report.ok


def _ok(*results: Term) -> None:
    report = gl.compile(Program(build("construct-tuple", *results) if len(results) > 1 else results[0])).check()
    assert report.ok, report


@pytest.mark.parametrize("dtype", quick(FLOATS, 0, 3))
def test_what_is_exact_is_compared_exactly(dtype: str) -> None:
    """Sums, products and quotients of small whole numbers, and truths that are stored as they are."""
    b = gl.Builder("p")
    k, n = (pointwise.cast(b.input(name, (6, 7), "int8"), dtype) for name in "kn")
    half = pointwise.multiply(pointwise.add(k, n), pointwise.filled(k, "1/2"))
    quotient = pointwise.divide(pointwise.multiply(k, pointwise.filled(k, 6)), pointwise.filled(k, 2))
    _ok(
        pointwise.compare("le", half, k),
        pointwise.compare("eq", quotient, pointwise.multiply(k, pointwise.filled(k, 3))),
        pointwise.compute("floor", pointwise.subtract(half, pointwise.filled(k, "1/2"))),
        pointwise.cast(pointwise.compute("round", half), "int32"),
    )


@pytest.mark.parametrize(
    ("kind", "dtype"),
    quick(product(["argmax", "argmin"], ["float16", "float32", "float64"]), 0, unpacked=True),
)
def test_equal_elements_of_one_formula_are_equal(kind: str, dtype: str) -> None:
    """Levels times a scale that no float is, as of a quantized network: what is computed of equal ones is equal."""
    b = gl.Builder("p")
    x = pointwise.cast(b.input("x", (5, 40), "int8"), dtype)
    scaled = pointwise.multiply(x, pointwise.filled(x, "1/10"))
    for split in (0, 1):
        _ok(build("compute", kind, build("access", scaled, split)))
        if dtype != "float16":  # of which roots are too near to each other
            root = pointwise.compute("sqrt", pointwise.compute("abs", scaled))
            _ok(build("compute", kind, build("access", root, split)))


def test_truths_that_rounding_may_decide_are_no_difference() -> None:
    b = gl.Builder("p")
    x = pointwise.cast(b.input("x", (50,), "int8"), "float64")
    tenth = pointwise.divide(x, pointwise.filled(x, "1/10"))
    _ok(pointwise.compare("lt", tenth, pointwise.divide(x, pointwise.filled(x, "1/10"))))


def _levels(x: Term, dtype: str, factor: str = "1000/3") -> Term:
    """What a number is rounded to, as quantization does: some are so near to a half that nobody knows."""
    rounded = pointwise.compute("round", pointwise.multiply(x, pointwise.filled(x, factor)))
    low, high = (0, 255) if dtype == "uint8" else (-30000, 30000)
    return pointwise.cast(pointwise.compute(f"(clip {low} {high})", rounded), dtype)


OF_LEVELS: tuple[Callable[[Term, str], Term], ...] = (
    lambda x, by: _levels(x, "int16", by),
    lambda x, by: pointwise.subtract(_levels(x, "uint8", by), pointwise.filled(_levels(x, "uint8", by), 123)),
    lambda x, by: pointwise.cast(_levels(x, "uint8", by), "int32"),
    lambda x, by: pointwise.multiply(_levels(x, "int16", by), pointwise.filled(_levels(x, "int16", by), -3)),
    lambda x, by: pointwise.multiply(*[pointwise.cast(_levels(x, "int16", by), "int32")] * 2),
    lambda x, by: pointwise.combine("maximum", _levels(x, "int16", by), pointwise.filled(_levels(x, "int16", by), 7)),
    lambda x, by: pointwise.multiply(pointwise.cast(_levels(x, "int16", by), "float32"), x),
    lambda x, by: _levels(pointwise.cast(_levels(x, "int16", by), "float32"), "int16", "1/7"),
)


def _nests_of_levels(*terms: Term) -> list[tuple[float, str]]:
    """Of one nest for each of the terms, the bound and the verdict."""
    report = gl.compile(Program(build("construct-tuple", *terms)), "none").check()
    assert report.residues == "exact"
    assert len(report.nests) == len(terms)
    return [(nest.bound, nest.verdict) for nest in report.nests.values()]


def test_levels_that_rounding_may_decide_are_bounded() -> None:
    """Rounding may decide between two levels, and each nest stays within its bound nevertheless."""
    x = gl.Builder("p").input("x", (1 << 20,))
    found = _nests_of_levels(*(of(x, f"{1000 + i}/3") for i, of in enumerate(OF_LEVELS)))
    assert all(verdict == "within its bound" and bound > 1e-7 for bound, verdict in found), found


def test_levels_that_are_read_as_more_than_numbers_are_told() -> None:
    """A rest may be another one altogether; what is compared, another truth."""
    x = gl.Builder("p").input("x", (1 << 20,))
    cut = pointwise.cast(pointwise.multiply(x, pointwise.filled(x, "1001/3")), "int16")
    levels = [_levels(x, "int16", f"{1000 + i}/3") for i in range(3)]
    found = _nests_of_levels(
        pointwise.combine("(mod floor)", levels[0], pointwise.filled(levels[0], 3)),
        pointwise.cast(pointwise.compare("gt", levels[1], cut), "int32"),
        pointwise.cast(levels[2], "int64"),
    )
    assert {verdict for _, verdict in found} == {"not bounded: what it chooses may depend on rounding"}


@pytest.mark.parametrize("factor", quick([1.00001, 1.001], 0))
def test_levels_that_are_wrong(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Of a scale that is a little off, which moves few numbers to the next level."""
    right = (1000 / 3).hex()
    x = gl.Builder("p").input("x", (1 << 20,))

    def changed(source: Source, machine: Machine | None, *verify: Callable[[], None]) -> Loaded:
        nests = tuple(text.replace(right, (float.fromhex(right) * factor).hex()) for text in source.nests)
        assert nests != source.nests
        return loaded(replace(source, nests=nests), machine, *verify)

    monkeypatch.setattr(compiled_function, "loaded", changed)
    report = gl.compile(Program(_levels(x, "int16")), "none").check()
    (nest,) = report.nests.values()
    assert "elements are off" in nest.verdict


def test_loops_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such loops are not even compiled; if they read nothing outside, the residues would differ too."""
    program = _convolution(3, 5, 7)
    changes = (broken_loops.moved, broken_loops.stretched)
    mistakes = [m for change in changes for m in broken_loops.broken(lower(program, machine_of("native")), change)]
    outside = [wrong for _, wrong in mistakes if faults(wrong)]
    inside = [wrong for _, wrong in mistakes if not faults(wrong)]
    assert outside
    assert inside
    for wrong in (*outside[::4], *inside[:2]):
        monkeypatch.setattr(compiled_function, "lower", lambda *_, wrong=wrong: wrong)
        with pytest.raises(Unverified, match=r"^the loops of p .*mistake of Glenside's compiler"):
            gl.compile(program, "none")
    monkeypatch.setattr(compiled_function, "verify", lambda *_: Validation())
    for wrong in inside[:2]:
        monkeypatch.setattr(compiled_function, "lower", lambda *_, wrong=wrong: wrong)
        report = gl.compile(program, "none").check()
        assert not report.ok
        assert report.residues.startswith("result 1 differs in")


@pytest.mark.parametrize("old", quick([(1 / 3).hex(), "0.1367612173470392f", "exp_f"], 0, 2))
def test_rounding_that_is_wrong(monkeypatch: pytest.MonkeyPatch, old: str) -> None:
    """A constant, a coefficient and a function that are off by a few millionths: far below any guessed tolerance."""
    x = gl.Builder("p").input("x", (40,))
    y = pointwise.add(pointwise.tanh(pointwise.multiply(x, pointwise.filled(x, "1/3"))), pointwise.compute("exp", x))
    assert gl.compile(Program(y), "none").check().ok
    new = {"exp_f": "1.000003f * exp_f"}.get(old) or _off(old)

    def off(line: str) -> str:
        return line.replace(old, new) if " = " in line and "inline" not in line else line

    def changed(source: Source, machine: Machine | None, *verify: Callable[[], None]) -> Loaded:
        texts = [tuple("\n".join(map(off, t.splitlines())) for t in part) for part in (source.helpers, source.nests)]
        assert texts != [source.helpers, source.nests]
        return loaded(replace(source, helpers=texts[0], nests=texts[1]), machine, *verify)

    monkeypatch.setattr(compiled_function, "loaded", changed)
    report = gl.compile(Program(y), "none").check()
    assert report.residues == "exact"
    (nest,) = report.nests.values()
    assert "elements are off, the first by" in nest.verdict
    assert not report.ok


def _off(number: str) -> str:
    if number.startswith("0x"):
        return (float.fromhex(number) * 1.000004).hex()
    return f"{float(number[:-1]) * 1.0003}f"


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_random_terms(term: Term) -> None:
    _random(term)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms())
def test_many_random_terms(term: Term) -> None:
    _random(term)


def _random(term: Term) -> None:
    parts = [part for part in postorder(term) if isinstance(part.type, AccessType)]
    if any(part.operator.opaque for part in parts):
        return
    report = gl.compile(Program(term).seeded_constants(0), "none").check()
    assert not report.faults
    assert report.residues == "exact" or report.residues.startswith("not compared: ")
    assert not any("are off" in nest.verdict or "differs" in nest.verdict for nest in report.nests.values()), report


NETWORKS = {
    "unet-small": {"resolution": 16, "base": 4, "levels": 2},
    "bert-base": {"layers": 1, "hidden": 24, "heads": 3, "intermediate": 40, "sequence": 9, "vocabulary": 31},
    "mobilenet-v2": {"resolution": 64},
    "resnet-18": {"resolution": 64},
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if "resolution" in NETWORKS[n] else ()) for n in NETWORKS]
)
def test_networks(name: str) -> None:
    program = gl.models.load(name, **NETWORKS[name]).seeded_constants(0)
    for target in (None, gl.CPU()) if name != "bert-base" else (None,):
        report = gl.compile(program, target).check()
        assert report.ok, report


@pytest.mark.parametrize("exponent", quick(["-64", "-2", "0", "1", "3", "64", "65", "0.5"], 0, 2, 6, 7))
def test_powers_of_small_whole_exponents_are_products_over_residues(exponent: str) -> None:
    x = build("access-tensor", Tensor("x", Dims((3, 5)), "float32"))
    program = Program(pointwise.combine("pow", x, pointwise.filled(x, exponent)))
    assert gl.compile(program, "none").check().residues == "exact"
