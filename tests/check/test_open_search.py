"""Tests the search over programs with open sizes: forms that pay at some sizes, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
import glenside.check.open_search as searching
from glenside.algebra.factoring import Computed, Factoring
from glenside.algebra.monomials import NormalForm
from glenside.algebra.search import Algebra
from glenside.builder import layout, pointwise
from glenside.check.exact import CheckReport
from glenside.check.open_search import Choice, OpenSearch
from glenside.codegen.open_sizes import lowered
from glenside.codegen.open_sizes.function import OpenFunction
from glenside.codegen.open_sizes.samples import verified_sizes
from glenside.codegen.open_sizes.variants import OpenVariants
from glenside.codegen.processor.model import MACHINES
from glenside.ir.open_program import OpenProgram
from glenside.ir.program import Program
from glenside.ir.term import build
from glenside.semantics.interpreter import evaluate

TARGET = gl.CPU(machine=MACHINES["avx2"])


def _attention(n: int, width: int = 32) -> Program:
    """(q k^T) v, without a softmax: q (k^T v) where there are more rows than columns."""
    b = gl.Builder("attention")
    q, k, v = (b.input(name, (n, width)) for name in "qkv")
    return b.finish(b.matmul(b.matmul(q, layout.transpose(k, (1, 0))), v))


def _update(rows: int, width: int = 256) -> Program:
    """x (W + A B), where A and B are inputs."""
    b = gl.Builder("update")
    x, w = b.input("x", (rows, width)), b.input("w", (width, width))
    return b.finish(b.matmul(x, b.add(w, b.matmul(b.input("a", (width, 4)), b.input("b", (4, width))))))


def _latent(rows: int, past: int, heads: int = 4, head: int = 32, latent: int = 48, width: int = 64) -> Program:
    """Attention over a cache of latent vectors, from which keys and values are computed."""
    b, length = gl.Builder("latent"), past + rows
    x, cache = b.input("x", (rows, width)), b.input("past", (past, latent))
    draw = np.random.default_rng(0)

    def weight(name: str, *dims: int) -> Any:
        return b.constant(name, dims, value=(draw.standard_normal(dims) / 8).astype("float32"))

    kept = layout.concatenate([cache, b.linear(x, weight("wc", latent, width))], 0)
    q = layout.reshape(b.linear(x, weight("wq", heads * head, width)), (rows, heads, head))
    k = layout.reshape(b.linear(kept, weight("wk", heads * head, latent)), (length, heads, head))
    v = layout.reshape(b.linear(kept, weight("wv", heads * head, latent)), (length, heads, head))
    scores = b.softmax(b.matmul(layout.transpose(q, (1, 0, 2)), layout.transpose(k, (1, 2, 0))))
    y = layout.transpose(b.matmul(scores, layout.transpose(v, (1, 0, 2))), (1, 0, 2))
    return b.finish(build("construct-tuple", layout.reshape(y, (rows, heads * head)), kept))


def _mean(n: int) -> Program:
    """The mean of x W over its rows, whose number is open: mean(x) W for a fixed number."""
    b = gl.Builder("mean")
    product = b.matmul(b.input("x", (n, 64)), b.constant("w", (64, 64), value=np.eye(64, dtype="float32") * 2))
    return b.finish(b.reduce_axes("reduce-mean", product, [0]))


def _choice(make: Callable[..., Program], **ranges: tuple[int, int]) -> Choice:
    search = OpenSearch(gl.open_program(make, **ranges), TARGET)
    choice = search.choice()
    assert search.remarks == []
    return choice


def _agrees(f: OpenFunction | OpenVariants, program: OpenProgram, sizes: Mapping[str, int]) -> None:
    own = f.variant(sizes) if isinstance(f, OpenVariants) else f
    given, written = own.drawn(sizes), program.at(sizes)
    (wanted,) = evaluate([written.term], {**written.constants, **given})
    found = f(given)
    both = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for ours, theirs in both:
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * max(1, np.abs(theirs).max(initial=0)))


def test_the_form_for_each_size_is_chosen() -> None:
    choice = _choice(_attention, n=(1, 1024))
    large = str(choice.forms[choice.at({"n": 1000})])
    assert "products-associate" in large
    assert [str(choice.forms[choice.at({"n": n})]) for n in (1, 700)] == ["As it is written", large]


def test_updates_of_few_rows_stay_factors() -> None:
    choice = _choice(_update, rows=(1, 2048))
    assert choice.forms[choice.at({"rows": 1})].taken
    assert not choice.forms[choice.at({"rows": 2048})].taken


def test_latent_attention_is_absorbed_for_few_rows() -> None:
    choice = _choice(_latent, rows=(1, 64), past=(0, 2048))
    assert choice.forms[choice.at({"rows": 1, "past": 2000})].taken
    assert not choice.forms[choice.at({"rows": 64, "past": 0})].taken


@pytest.mark.parametrize("past", [0, 2])
def test_sizes_between_points_take_the_nearest_one(past: int) -> None:
    form = searching.OpenForm()
    choice = Choice([form, form], {"n": [1, 8, 64]}, {(0,): 0, (1,): 1, (2,): 0})
    assert [choice.at({"n": n}) for n in (past, 3, 22, 23, 500)] == [0, 1, 1, 0, 0]


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    ("make", "ranges"),
    quick([(_attention, {"n": (0, 300)}), (_mean, {"n": (1, 100)})], 0, unpacked=True),
)
def test_compiled_variants_agree_with_the_program(
    make: Callable[..., Program], ranges: dict[str, tuple[int, int]]
) -> None:
    program = gl.open_program(make, **ranges)
    f = gl.compile(program)
    assert "search" in f.report
    ends = [{name: own[end] for name, own in ranges.items()} for end in (0, 1)]
    between = [{name: own[0] + (own[1] - own[0]) // part for name, own in ranges.items()} for part in (2, 3, 7, 50)]
    for sizes in (*ends, *between):
        _agrees(f, program, sizes)


@pytest.mark.needs_compiler
@pytest.mark.slow
def test_state_is_kept_across_variants() -> None:
    """A prompt runs in the form for many rows and tokens in that for one, on the same cache."""
    program = gl.open_program(_latent, rows=(1, 64), past=(0, 200))
    f = gl.compile(program, state={"past": "output_1"})
    assert isinstance(f.function, OpenVariants)
    addresses = [{array.ctypes.data for array in one.lowered.made.values()} for one in f.function.functions]
    assert addresses[0] & addresses[1]  # the variants share packed constants
    draw, rows, seen = np.random.default_rng(1), (64, 1, 1, 5, 1), []
    for count in rows:
        seen.append(draw.standard_normal((count, 64)).astype("float32"))
        y = f(seen[-1])
    whole = program.at({"rows": sum(rows), "past": 0})
    given = {"x": np.concatenate(seen), "past": np.zeros((0, 48), "float32")}
    (wanted,) = evaluate([whole.term], {**whole.constants, **given})
    np.testing.assert_allclose(y[-1], wanted[0][-1], rtol=1e-3, atol=1e-4)
    assert f.state["past"].shape == (sum(rows), 48)


@pytest.mark.needs_compiler
def test_no_search_is_as_written() -> None:
    program = gl.open_program(_attention, n=(1, 200))
    f = gl.compile(program, exact_order=True)
    assert isinstance(f, OpenFunction)
    assert "search" not in f.report


def test_a_wrong_form_of_the_program_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = searching.cheapest_algebra

    def doubled(program: Program, *arguments: Any) -> Algebra:
        found = right(program, *arguments)
        two = pointwise.filled(layout.split_at(found.program.term, 0), "2")
        term = pointwise.multiply(two, layout.split_at(found.program.term, 0))
        return replace(found, program=replace(found.program, term=term))

    monkeypatch.setattr(searching, "cheapest_algebra", doubled)
    search = OpenSearch(gl.open_program(_attention, n=(1, 1024)), TARGET)
    assert [*map(str, search.choice().forms)] == ["As it is written"]
    assert "left out: differs" in search.remarks[0]


def test_a_wrong_form_of_a_region_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Factoring.best

    def negated(self: Factoring, form: NormalForm) -> Computed | None:
        found = right(self, form)
        return found and replace(found, term=pointwise.compute("negative", found.term))

    monkeypatch.setattr(Factoring, "best", negated)
    search = OpenSearch(gl.open_program(_attention, n=(1, 1024)), TARGET)
    assert [*map(str, search.choice().forms)] == ["As it is written"]


def test_an_interrupt_of_a_check_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that is interrupted returns what it has; a search does not go on with that."""
    right = searching.check

    def interrupted(*programs: Program, **how: Any) -> CheckReport:
        return replace(right(*programs, **how), result="not checked: interrupted", stopped="interrupted")

    monkeypatch.setattr(searching, "check", interrupted)
    with pytest.raises(KeyboardInterrupt):
        OpenSearch(gl.open_program(_attention, n=(1, 1024)), TARGET).choice()


@pytest.mark.parametrize("make", [_attention, _update, _mean])
def test_a_program_that_is_another_one_at_some_sizes_is_refused(
    make: Callable[[int], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs that loops are made of are of other sizes; those that are verified are not."""
    monkeypatch.setattr(lowered, "_LEAST_VERIFIED", 6)

    def other(n: int) -> Program:
        program = make(n)
        return replace(program, term=pointwise.compute("relu", program.term)) if n == 977 else program

    program = gl.open_program(other, n=(1, 1024))
    assert {"n": 977} in [*verified_sizes(program, 6)]
    with pytest.raises(gl.GlensideError, match="is not that of the others: at n = "):
        gl.compile(program, TARGET)
