"""Layouts of whole networks: what is moved before and after, that the programs are equal, and the report of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from onnx_networks import NETWORKS, small

import glenside as gl
from glenside.analysis.copies import movements, total
from glenside.builder import Builder
from glenside.importers.onnx.model import program_of_model
from glenside.ir.constants import constants_under
from glenside.ir.errors import BadInput
from glenside.ir.program import Program, is_product
from glenside.ir.rearrangement import of_transpose
from glenside.ir.term import Term, postorder
from glenside.layout import LayoutReport, arrange_layout
from glenside.semantics.interpreter import evaluate
from glenside.targets.convolution_unit.target import ADDRESSES

UNIT = gl.ConvolutionUnit("nhwc")
SLOW = ("super_resolution_dcr", "super_resolution_nhwc", "super_resolution_nhwc_each", "super_resolution_relu")
SUPER_RESOLUTION = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name in NETWORKS
    if name.startswith("super_resolution")
]


@cache
def _super_resolution(name: str) -> tuple[Program, LayoutReport]:
    program = program_of_model(small(name), dims=NETWORKS[name].dims)
    return program, arrange_layout(program, UNIT)


def _computed(program: Program, seed: int = 0) -> list[np.ndarray]:
    """What it gives for random inputs, and for random values of constants that have none, in wide numbers."""
    draws = np.random.default_rng(seed)
    values = {n: draws.standard_normal(t.dims) for n, t in sorted(program.tensors.items())}
    return evaluate([program.term], {n: program.constants.get(n, v).astype("float32") for n, v in values.items()})


def _is_layer(term: Term) -> bool:
    return is_product(term) or term.operator.name == "product-unit"


def _between_products(root: Term) -> list[Term]:
    """What lies on a way from one product to another and is not made of constants alone."""
    terms, constant = list(postorder(root)), constants_under(root)
    behind: set[Term] = set()
    before: set[Term] = set()
    for term in terms:
        if any(_is_layer(c) or c in behind for c in term.children):
            behind.add(term)
    for term in reversed(terms):
        if _is_layer(term) or term in before:
            before.update(term.children)
    return [t for t in terms if t in behind and t in before and not constant[t]]


def _moves(term: Term) -> bool:
    return (
        term.operator.name == "access-transpose"
        and not of_transpose(term.children[0].access.dims, term.attributes[0]).is_identity  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", SUPER_RESOLUTION)
def test_nothing_is_moved_inside_a_super_resolution_network(name: str) -> None:
    program, report = _super_resolution(name)
    assert any(_moves(t) for t in _between_products(program.term))
    assert report.totals["before"]["inside"] > 0
    assert report.totals["after"]["inside"] == 0
    assert report.totals["after"]["output"] == 0
    assert not any(_moves(t) for t in _between_products(report.program.term))
    assert total(movements(report.program, UNIT)) == total(report.after) <= total(report.before)
    kinds = [t.operator.name for t in postorder(report.program.term)]
    assert kinds.count("product-unit") == len(program.layers)
    assert list(report.program.layers) == list(program.layers)
    assert (report.checked, report.stopped, report.kept) == ("exact", "saturated", False)
    for before, after in zip(_computed(program), _computed(report.program), strict=True):
        assert before.dtype == after.dtype
        assert np.allclose(before, after, rtol=1e-4, atol=1e-5)


def test_an_input_in_the_layout_of_the_unit_is_not_moved() -> None:
    _, report = _super_resolution("super_resolution_nhwc_each_relu")
    assert report.totals["after"] == {"input": 0, "inside": 0, "output": 0}
    _, report = _super_resolution("super_resolution")
    (image,) = report.after  # of 3 channels, float32, read once and written once
    assert (image.place, image.bytes) == ("input", 2 * 4 * 3 * 6 * 10)


def _small_network() -> Program:
    """A convolution, a pool, a block with a skip connection, a concatenation, a convolution."""
    b = Builder("small")

    def conv(x: Term, name: str, filters: int, depth: int, k: int = 3) -> Term:
        return b.conv(x, b.constant(f"{name}.w", (filters, depth, k, k)), padding=k // 2, name=name)

    x = b.max_pool(b.relu(conv(b.input("x", (1, 4, 6, 10)), "stem", 4, 4)), 2)
    y = b.add(x, conv(b.relu(conv(x, "first", 4, 4)), "second", 4, 4))
    return b.finish(conv(b.concatenate([y, x], 1), "last", 4, 8, 1))


_EVERY_UNIT = list(product(("nhwc", "nchw", "nchw4c", "any"), ADDRESSES, ADDRESSES))
_QUICK = [("nhwc", "none", "none"), ("nchw", "all", "runs"), ("nchw4c", "runs", "all"), ("any", "runs", "none")]


@pytest.mark.parametrize(
    ("layout", "loads", "stores"),
    [pytest.param(*unit, marks=[] if unit in _QUICK else [pytest.mark.slow]) for unit in _EVERY_UNIT],
)
def test_no_unit_moves_more_than_before(layout: str, loads: str, stores: str) -> None:
    program, target = _small_network(), gl.ConvolutionUnit(layout, loads=loads, stores=stores)
    report = arrange_layout(program, target)
    assert total(movements(report.program, target)) == total(report.after) <= total(report.before)
    assert total(report.before) == total(movements(program, target))
    assert report.checked == "exact"
    assert report.kept == (report.program is program)
    assert np.allclose(_computed(program), _computed(report.program), rtol=1e-4, atol=1e-4)


def test_only_the_concatenation_is_left_where_every_address_is_free() -> None:
    report = arrange_layout(_small_network(), UNIT)
    assert [m.what for m in report.after if m.place == "inside"] == ["concatenate"]
    assert "copy into the unit's layout" in {m.what for m in report.before if m.place == "inside"}


def test_nothing_is_moved_inside_a_transformer_block() -> None:
    b = Builder("block")
    x = b.input("x", (2, 5, 12))
    q, k, v = (b.linear(x, b.constant(name, (12, 12)), name=name) for name in "qkv")
    y = b.add(x, b.linear(b.attention(q, k, v, heads=3, name="heads"), b.constant("o", (12, 12)), name="o"))
    program = b.finish(b.linear(b.gelu(b.linear(y, b.constant("up", (24, 12)))), b.constant("down", (12, 24))))
    report = arrange_layout(program, UNIT)
    assert report.totals["before"]["inside"] > 0
    assert report.totals["after"] == {"input": 0, "inside": 0, "output": 0}
    assert report.checked == "exact"
    assert np.allclose(_computed(program), _computed(report.program), rtol=1e-3, atol=1e-3)


class _Random:
    """A network of random steps over images; each step takes and gives ()(N C H W)."""

    def __init__(self, seed: int) -> None:
        self.random, self.b = random.Random(seed), Builder(f"random-{seed}")
        dims = (1, self.random.choice((4, 8)), self.random.choice((4, 6)), self.random.choice((4, 6)))
        self.made = [self.b.input("x", dims, "float64")]  # whole numbers stay exact

    def conv(self, x: Term) -> Term:
        depth, k = x.access.dims[1], self.random.choice((1, 3))
        w = self.b.constant(f"w{len(self.b.tensors)}", (self.random.choice((4, 8)), depth, k, k), "float64")
        return self.b.conv(x, w, padding=k // 2)

    def relu(self, x: Term) -> Term:
        return self.b.relu(x)

    def pool(self, x: Term) -> Term:
        return self.b.max_pool(x, 2, strides=1) if min(x.access.dims[2:]) > 2 else x

    def add(self, x: Term) -> Term:
        return self.b.add(x, self.random.choice([y for y in self.made if y.access.dims == x.access.dims]))

    def concatenate(self, x: Term) -> Term:
        n, _, h, w = x.access.dims
        alike = [y for y in self.made if (y.access.dims[0], *y.access.dims[2:]) == (n, h, w)]
        return self.b.concatenate([x, self.random.choice(alike)], 1)

    def transpose(self, x: Term) -> Term:
        return self.b.transpose(x, (0, *self.random.sample((1, 2, 3), 3)))

    def depth_to_space(self, x: Term) -> Term:
        n, c, h, w = x.access.dims
        if c % 4:
            return x
        parts, order = (
            ((2, 2, c // 4), (3, 4, 1, 5, 2)) if self.random.random() < 0.5 else ((c // 4, 2, 2), (1, 4, 2, 5, 3))
        )
        apart = self.b.transpose(self.b.reshape(x, (n, *parts, h, w)), (0, *order))
        return self.b.reshape(apart, (n, c // 4, 2 * h, 2 * w))

    def program(self, steps: int) -> Program:
        every: list[Callable[[Term], Term]] = [
            self.conv, self.conv, self.relu, self.pool, self.add, self.concatenate, self.transpose, self.depth_to_space
        ]  # fmt: skip
        while len(self.made) <= steps:
            made = self.random.choice(every)(self.made[-1])
            if made.access.size <= 2_000:
                self.made.append(made)
        return self.b.finish(self.conv(self.made[-1]))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 30))])
def test_a_random_network_is_equal_and_moves_no_more(seed: int) -> None:
    program = _Random(seed).program(7)
    draw = random.Random(f"unit {seed}").choice
    layout, loads, stores = (
        draw(names) for names in (("nhwc", "nchw", "nchw4c", "any"), tuple(ADDRESSES), tuple(ADDRESSES))
    )
    target = gl.ConvolutionUnit(layout, loads=loads, stores=stores)
    report = arrange_layout(program, target)
    assert report.checked == "exact", report.how_checked
    assert total(movements(report.program, target)) == total(report.after) <= total(report.before)
    draws = np.random.default_rng(seed)
    values = {n: draws.integers(-2, 3, t.dims).astype("float64") for n, t in program.tensors.items()}
    before, after = (evaluate([p.term], values)[0] for p in (program, report.program))
    assert np.array_equal(before, after)


def test_the_report_as_json_adds_up() -> None:
    program, report = _super_resolution("super_resolution")
    content = json.loads(json.dumps(report.as_dict()))
    fields = "program target before after bytes e_nodes e_classes iterations stopped seconds checked how_checked kept"
    assert set(content) == set(fields.split())
    assert content["program"] == program.name
    assert content["target"] == UNIT.name
    assert content["e_nodes"] >= content["e_classes"] > 0
    for when in ("before", "after"):
        assert set(content["bytes"][when]) == {"input", "inside", "output"}
        for place, size in content["bytes"][when].items():
            assert size == sum(row["bytes"] for row in content[when] if row["place"] == place)
        assert all(row["bytes"] == 2 * 4 * np.prod(row["dims"]) for row in content[when] if row["dtype"] == "float32")
        assert {row["dtype"] for row in content[when]} == {"float32"}


CONV = """(input x (shape 1 5 7 4)) (constant w (shape 3 4 2 2))
(compute dot-product (access-cartesian-product
  (access-windows (access (access-transpose (access-transpose (compute relu (access-transpose (access-tensor x)
    (list 0 3 1 2))) (list 0 2 3 1)) (list 0 3 1 2)) 1) (shape 4 2 2) (shape 1 1 1))
  (access (access-tensor w) 1)))"""


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "conv.glenside"
    path.write_text(CONV)
    return path


def test_the_command_prints_reports_and_writes_the_program(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, out = tmp_path / "report.json", tmp_path / "out.glenside"
    assert run("layout", network, "--json", report, "-o", out) == 0
    content = json.loads(report.read_text())
    printed = capsys.readouterr().out
    inside = content["bytes"]["before"]["inside"]
    assert inside > 0 == content["bytes"]["after"]["inside"]
    assert f"{inside:,} bytes before, 0 bytes after" in printed
    assert content["checked"] == "exact"
    found = gl.load(out)
    assert "product-unit" in {t.operator.name for t in postorder(found.term)}
    assert not any(_moves(t) for t in postorder(found.term) if not constants_under(found.term)[t])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--unit", "nwhc"], "a layout is nhwc, nchw, any"),
        (["--unit", "nchw2c"], "at least 4 channels"),
        (["--loads", "foo"], "loads are none, runs, all, got 'foo'"),
        (["--stores", "foo"], "stores are none, runs, all, got 'foo'"),
    ],
)
def test_a_unit_that_there_is_not_is_said_in_a_sentence(
    network: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("layout", network, *options) == 2
    printed = capsys.readouterr()
    assert sentence in " ".join(printed.err.split())
    assert "Traceback" not in printed.err
    assert printed.out == ""
    with pytest.raises(BadInput, match=r"^(a layout is|loads are|stores are) "):
        gl.ConvolutionUnit(**{"layout" if k == "--unit" else k[2:]: v for k, v in [options]})
