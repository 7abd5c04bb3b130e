"""Tests the layerwise check of integer networks: each distinct layer is checked once, and a fault anywhere is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from slow_cases import quick

from glenside.builder import Builder
from glenside.check import EXACT, CheckReport, check, exact
from glenside.check.layerwise import Equation, equations
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

SIZE, NAMES = 6, ("one", "two", "three")
Layer = Callable[[Term, Term], Term]
Between = Callable[[Term], Term]


def leaf(name: str, *dims: int, dtype: str = "int8") -> Term:
    return build("access-tensor", Tensor(name, Dims(dims), dtype))


def compute(kind: str, a: Term) -> Term:
    return build("compute", kind, a)


def product(a: Term, b: Term) -> Term:
    return compute("dot-product", build("access-product", build("access", a, 1), build("access", b, 1), 0))


def added(a: Term, b: Term) -> Term:
    return build("access", Builder.add(*(build("access", t, 0) for t in (a, b))), a.access.split)


def in_parts(a: Term, b: Term) -> Term:
    """Returns the same in two parts."""
    parts = [[build("access-slice", t, 1, *ends) for t in (a, b)] for ends in ((0, 2), (2, SIZE))]
    return added(*(product(*part) for part in parts))


def forgets(a: Term, b: Term) -> Term:
    """Returns the same without the last number."""
    return product(*(build("access-slice", t, 1, 0, SIZE - 1) for t in (a, b)))


def as_bytes(sums: Term, scale: str = "1/8", least: int = -128, offset: int = 0) -> Term:
    real = build("cast", build("access", sums, 0), "float32")
    scaled = Builder.multiply(real, build("full", sums.access.dims, scale, "float32"))
    moved = Builder.add(compute("round", scaled), build("full", sums.access.dims, offset, "float32"))
    return build("cast", compute(f"(clip {least} 127)", moved), "int8")


def network(layers: Sequence[Layer], between: Sequence[Between] = (as_bytes, as_bytes)) -> Program:
    value, sums = leaf("x", SIZE, SIZE), dict[str, Term]()
    for place, (name, layer) in enumerate(zip(NAMES, layers, strict=True)):
        sums[name] = layer(value, leaf(f"w{place}", SIZE, SIZE))
        if place < len(between):
            value = between[place](sums[name])
    return Program(sums[NAMES[-1]], layers=sums)


PLAIN = network([product] * 3)


def compared(other: Program, original: Program = PLAIN) -> CheckReport:
    return check(original, other)


def test_layers_that_are_alike_are_one_equation() -> None:
    found = equations(PLAIN, network([in_parts] * 3), NAMES)
    assert found is not None
    ((equation, names),) = found.items()
    assert names == [*NAMES]
    assert {t.name for p in map(Program, equation) for t in p.tensors.values()} == {"x0", "x1"}
    report = compared(network([in_parts] * 3))
    assert (report.result, report.layers) == (EXACT, dict.fromkeys(NAMES, EXACT))
    assert report.how == "random integers, large and small, seed 0"
    other = compared(network([in_parts, forgets_nothing, in_parts]))
    assert other.ok
    assert other.how.endswith("for each of 2 distinct layers")


def forgets_nothing(a: Term, b: Term) -> Term:
    """Returns the same with the last number apart."""
    ends = (0, SIZE - 1), (SIZE - 1, SIZE)
    return added(*(product(*(build("access-slice", t, 1, *end) for t in (a, b))) for end in ends))


@pytest.mark.parametrize("place", quick(range(3), 1))
def test_the_layer_that_is_wrong_is_named(place: int) -> None:
    report = compared(network([forgets if i == place else in_parts for i in range(3)]))
    assert not report.ok
    assert report.layers[NAMES[place]].startswith("differs in")
    assert [report.layers[name] for i, name in enumerate(NAMES) if i != place] == [EXACT] * 2


@pytest.mark.parametrize("how", [{"scale": "1/9"}, {"least": 0}, {"offset": 1}])
@pytest.mark.parametrize("place", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_other_bytes_between_layers_are_seen(place: int, how: dict[str, int]) -> None:
    between = [(lambda sums: as_bytes(sums, **how)) if i == place else as_bytes for i in range(2)]
    assert not compared(network([in_parts] * 3, between)).ok


def test_layers_that_read_each_others_operands_are_seen() -> None:
    def exchanged(a: Term, b: Term) -> Term:
        return in_parts(b, a)

    assert not compared(network([in_parts, exchanged, in_parts])).ok
    names = dict(zip(NAMES, reversed(PLAIN.layers.values()), strict=True))
    assert not check(PLAIN, Program(PLAIN.term, layers=names, names={"optimized": PLAIN.term})).ok


def test_what_is_equal_for_the_numbers_that_come_alone_is_checked_as_a_whole() -> None:
    """|a| is a for bytes that are not below 0, and for no others."""

    def of_magnitudes(a: Term, b: Term) -> Term:
        return in_parts(build("cast", compute("abs", build("cast", a, "int32")), "int8"), b)

    between: Sequence[Between] = [lambda sums: as_bytes(sums, least=0)] * 2
    original = network([product] * 3, between)
    found = compared(network([in_parts, of_magnitudes, of_magnitudes], between), original)
    assert found.result == EXACT or found.result.startswith("equal where reached")
    assert "real" in found.how or "prime field" in found.how
    without = compared(network([in_parts, of_magnitudes, in_parts]))
    assert not without.ok


def test_reals_in_a_layer_are_an_equation() -> None:
    def of_reals(a: Term, b: Term) -> Term:
        return product(*(build("cast", t, "float32") for t in (a, b)))

    def split(a: Term, b: Term) -> Term:
        return in_parts(*(build("cast", t, "float32") for t in (a, b)))

    def forgets_one(a: Term, b: Term) -> Term:
        return forgets(*(build("cast", t, "float32") for t in (a, b)))

    original, other, wrong = (network([own, product, product]) for own in (of_reals, split, forgets_one))
    found = equations(original, other, NAMES)
    assert found is not None
    assert list(found.values()) == [["one"]]
    assert compared(other, original).layers == dict.fromkeys(NAMES, EXACT)
    report = compared(wrong, original)
    assert report.layers["one"].startswith("differs in")
    assert not report.ok


def test_a_source_is_compared_by_equations_too() -> None:
    other = network([in_parts] * 3)
    report = check(PLAIN, other, source=network([forgets_nothing] * 3))
    assert report.ok
    assert "2 distinct layers" in report.how
    assert not check(PLAIN, other, source=network([forgets_nothing, forgets, in_parts])).ok
    assert check(PLAIN, other, source=Program(network([in_parts] * 3).term)).ok
    assert not check(PLAIN, other, source=network([in_parts] * 3, [lambda sums: as_bytes(sums, offset=1)] * 2)).ok


def test_an_outcome_that_an_equation_misses_is_told_of_its_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    def seldom(layer: Layer) -> Layer:
        def above(a: Term, b: Term) -> Term:
            real = build("cast", build("access", layer(a, b), 0), "float32")
            limit = build("full", real.access.dims, "1000000000", "float32")
            return build("access", build("cast", Builder.combine("minimum", real, limit), "int32"), 1)

        return above

    original, other = (network([product, seldom(own), product]) for own in (product, in_parts))
    whole = compared(other, original)
    monkeypatch.setattr(exact, "_SMALL", 0)
    report = compared(other, original)
    assert report.ok
    assert report.layers["two"].startswith("equal where reached") == whole.layers["two"].startswith("equal where")
    assert report.layers["two"] == report.result
    assert report.layers["one"] == report.layers["three"] == EXACT
    assert not compared(network([product, seldom(forgets), product]), original).ok


def test_equal_programs_need_no_equations() -> None:
    assert equations(PLAIN, PLAIN, NAMES) == {}
    assert compared(PLAIN).ok


def test_a_deadline_says_which_layers_were_not_reached() -> None:
    report = check(PLAIN, network([in_parts] * 3), deadline=0.0)
    assert report.stopped == "time-limit"
    assert set(report.layers.values()) == {report.result} == {"not checked: time ran out"}


def test_equations_are_of_both_sides() -> None:
    found = equations(PLAIN, network([in_parts, product, product]), NAMES)
    assert found is not None
    ((equation, names),) = found.items()
    assert isinstance(equation, Equation)
    assert names == ["one"]
    assert equation.original.type == equation.optimized.type
