"""Tests variants of layers with open sizes: found at some sizes, and the same at all others."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.check import layer_variants
from glenside.check.layer_variants import LayerVariants
from glenside.check.open_search import Choice, OpenSearch
from glenside.codegen.processor.model import MACHINES
from glenside.egraph.search import SearchResult
from glenside.ir.program import Program
from glenside.semantics.interpreter import evaluate

TARGET = gl.CPU(machine=MACHINES["avx2"])
CHANNELS = 48


def _network(batch: int = 1, height: int = 12, width: int = 12, names: str = "vw") -> Program:
    """Two convolutions of 3 x 3, of which the second adds the first, and a product of the means of channels."""
    b, draw = gl.Builder("network"), np.random.default_rng(0)

    def weight(name: str, *dims: int) -> Any:
        value = draw.standard_normal(dims) / np.sqrt(np.prod(dims[1:]))
        return b.constant(name, dims, value=value.astype("float32"))

    x = b.input("x", (batch, CHANNELS, height, width))
    y = b.relu(b.conv(x, weight(names[0], CHANNELS, CHANNELS, 3, 3), padding=1, name="first"))
    y = b.relu(b.add(y, b.conv(y, weight(names[1], CHANNELS, CHANNELS, 3, 3), padding=1, name="second")))
    return b.finish(b.linear(b.reduce_axes("reduce-mean", y, [2, 3]), weight("u", 7, CHANNELS), name="last"))


def _choice(program: gl.OpenProgram) -> tuple[Choice, list[str]]:
    search = OpenSearch(program, TARGET)
    return search.choice(), search.remarks


def _agrees(choice: Choice, program: gl.OpenProgram, sizes: Mapping[str, int]) -> None:
    written = program.at(sizes)
    own = choice.forms[choice.at(sizes)].of(written, sizes)
    (x,) = written.inputs.values()
    given = {**written.constants, x.name: np.random.default_rng(1).standard_normal(tuple(x.dims)).astype("float32")}
    found, wanted = (np.asarray(evaluate([one.term], given)[0], np.float64) for one in (own, written))
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_convolutions_of_an_open_batch() -> None:
    program = gl.open_program(_network, batch=(1, 9))
    choice, remarks = _choice(program)
    assert remarks == []
    assert [form.taken for form in choice.forms] == [("Winograd F(4x4,3x3) in 2 of 3 layers",)]
    for batch in (1, 2, 9):
        _agrees(choice, program, {"batch": batch})


@pytest.mark.parametrize(("step", "outputs"), [(4, "4x4"), (2, "2x2"), (1, "")])
def test_tiles_divide_images_of_all_sizes(step: int, outputs: str) -> None:
    """Numbers of tiles that are rounded have loops that take long to analyze: smaller tiles are taken, or none."""
    program = gl.open_program(_network, height=(8, 40, step), width=(8, 40, step))
    choice, remarks = _choice(program)
    assert all(remark.startswith("layers are as written: ") for remark in remarks)
    taken = f"Winograd F({outputs},3x3) in 2 of 3 layers"
    assert [form.taken for form in choice.forms] == [(taken,) if outputs else ()]
    for sizes in ((8, 8), (8, 40), (12, 20), (40, 8)):
        _agrees(choice, program, dict(zip(("height", "width"), sizes, strict=True)))


def test_a_variant_that_is_not_equal_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LayerVariants._with

    def wrong(self: LayerVariants, program: Program, recipes: Mapping[str, str]) -> Program:
        return right(self, _network(program.inputs["x"].dims[0], names="wv"), recipes)

    program = gl.open_program(_network, batch=(1, 9))
    monkeypatch.setattr(LayerVariants, "_with", wrong)
    choice, remarks = _choice(program)
    assert [form.taken for form in choice.forms] == [()]
    (remark,) = remarks
    assert "differs" in remark


@pytest.mark.parametrize(("stopped", "raised"), [("interrupted", KeyboardInterrupt), ("time-limit", None)])
def test_a_search_that_ends_early_gives_no_variants(
    monkeypatch: pytest.MonkeyPatch, stopped: str, raised: type[BaseException] | None
) -> None:
    found = layer_variants.search

    def ended(*arguments: Any, **options: Any) -> SearchResult:
        searched = found(*arguments, **options)
        return replace(searched, progress=replace(searched.progress, stopped=stopped))

    monkeypatch.setattr(layer_variants, "search", ended)
    with nullcontext() if raised is None else pytest.raises(raised):
        choice, remarks = _choice(gl.open_program(_network, batch=(1, 9)))
        assert [form.taken for form in choice.forms] == [()]
        assert remarks == [f"layers are as written: the search for variants of layers ended early: {stopped}"]


@pytest.mark.needs_compiler
def test_compiled_variants_agree_at_sizes_between() -> None:
    program = gl.open_program(_network, batch=(1, 5), height=(8, 24, 4))
    f = gl.compile(program)
    assert "Winograd" in str(f.report)
    for batch, height in ((1, 8), (3, 20), (5, 24), (2, 12)):
        written = program.at({"batch": batch, "height": height})
        x = np.random.default_rng(height).standard_normal((batch, CHANNELS, height, 12)).astype("float32")
        (wanted,) = evaluate([written.term], {**written.constants, "x": x})
        np.testing.assert_allclose(f(x), wanted, atol=2e-5)
