"""Tests a network in one e-graph: scales of products are folded, layers keep their names, growth is linear in the
network.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.builder import Builder
from glenside.builder.layout import broadcast
from glenside.builder.pointwise import multiply
from glenside.check import check
from glenside.egraph.saturation import Progress
from glenside.egraph.search import Search
from glenside.ir.program import Program
from glenside.ir.term import Term, constants_under, postorder, tensors
from glenside.passes.network import Rewritten, fold_batch_norms, has_scales_of_products, rewritten
from glenside.semantics.interpreter import evaluate
from glenside.targets.base import Target, Way

ARRAY, UNIT = gl.SystolicArray(8, 8), gl.ConvolutionUnit("nhwc")
SHIFTS = ("beta", "mean")

After = Callable[[Builder, Term, str], Term]
"""What follows a product: it takes its result and its name."""


def _rewritten(program: Program, search: Search | None = None) -> Rewritten:
    """Returns the network that the unit makes of it."""
    families = UNIT.families(Way(), list(postorder(program.term)))
    return rewritten(program, families, UNIT.rule_parameters(), UNIT.prices, search)


def _vectors(b: Builder, name: str, size: int) -> list[Term]:
    """gamma, beta, mean and var with values, so that the program can be run."""
    draws = np.random.default_rng(sum(map(ord, name)))
    return [
        b.constant(
            f"{name}.{part}", (size,), value=draws.uniform(-0.5 if part in SHIFTS else 0.5, 1.5, size).astype("float32")
        )
        for part in ("gamma", "beta", "mean", "var")
    ]


def _norm(b: Builder, y: Term, name: str) -> Term:
    return b.batch_norm(y, *_vectors(b, name, y.access.dims[1]))


def _bias(b: Builder, y: Term, name: str) -> Term:
    return b.add(y, b.reshape(_vectors(b, name, y.access.dims[1])[1], (1, y.access.dims[1], 1, 1)))


def _nothing(b: Builder, y: Term, name: str) -> Term:
    return y


def _conv(b: Builder, x: Term, name: str, filters: int, after: After, **how: int) -> Term:
    depth, groups = x.access.dims[1], how.get("groups", 1)
    value = np.random.default_rng(len(b.tensors)).standard_normal((filters, depth // groups, 3, 3)).astype("float32")
    w = b.constant(f"{name}.w", value.shape, value=value)
    return after(b, b.conv(x, w, padding=1, name=name, **how), name)


def _residual(blocks: int, after: After) -> Program:
    """Blocks of two convolutions with a skip connection, all of the same sizes."""
    b = Builder("residual")
    x = b.relu(_conv(b, b.input("x", (1, 3, 6, 5)), "stem", 4, after))
    for i in range(blocks):
        y = b.relu(_conv(b, x, f"{i}.first", 4, after))
        x = b.relu(b.add(x, _conv(b, y, f"{i}.second", 4, after)))
    return b.finish(x)


def _stack(after: After) -> Program:
    """Convolutions with a stride, with groups, and a matrix product behind a pool."""
    b = Builder("stack")
    x = b.relu6(_conv(b, b.input("x", (2, 3, 9, 8)), "stem", 8, after, strides=2))
    x = b.max_pool(b.relu(_conv(b, x, "depthwise", 8, after, groups=8)), 2)
    return b.finish(b.linear(b.global_average_pool(_conv(b, x, "last", 12, after)), b.constant("head.w", (5, 12))))


def _value(program: Program, seed: int = 0) -> np.ndarray:
    draws = np.random.default_rng(seed)
    open_ones = {n: t for n, t in sorted(program.tensors.items()) if n not in program.constants}
    drawn = {n: draws.standard_normal(t.dims).astype(t.dtype) for n, t in open_ones.items()}
    return evaluate([program.term], {**program.constants, **drawn})[0]


def _products_of_numbers(program: Program) -> list[Term]:
    """Multiplications of what is not made of constants alone."""
    constant = constants_under(program.term)
    found = [t for t in postorder(program.term) if t.operator.name == "compute" and not constant[t]]
    return [t for t in found if t.attributes[0] in ("elementwise-mul", "elementwise-div")]


@pytest.mark.parametrize("make", quick([_stack, lambda after: _residual(2, after)], 0), ids=["stack", "residual"])
def test_batch_norms_behind_convolutions_cost_nothing(make: Callable[[After], Program]) -> None:
    program = make(_norm)
    assert _products_of_numbers(program)
    result = gl.optimize(program, ARRAY, exact_order=True)
    assert result.stopped == "saturated"
    assert not _products_of_numbers(result.program)
    assert result.check().ok
    plain = gl.optimize(make(_nothing), ARRAY, verify=False, exact_order=True)
    assert result.cost["cycles"] == plain.cost["cycles"] != 0
    assert result.report.cost["unmapped"] == 0
    assert list(result.program.layers) == list(program.layers)
    before, after = _value(program), _value(result.program)
    assert np.allclose(before, after, rtol=1e-3, atol=1e-3 * float(np.abs(before).max()))


def test_a_batch_norm_before_the_activation_only_is_folded() -> None:
    b = Builder("behind")
    y = _conv(b, b.input("x", (1, 3, 6, 5)), "conv", 4, _nothing)
    program = b.finish(_norm(b, b.relu(y), "norm"))
    assert _products_of_numbers(fold_batch_norms(program)[0])
    assert _products_of_numbers(gl.optimize(program, ARRAY).program)


def test_a_product_that_is_read_twice_keeps_what_it_was_for_the_other() -> None:
    b = Builder("twice")
    y = _conv(b, b.input("x", (1, 3, 6, 5)), "conv", 4, _nothing)
    program = b.finish(b.add(_norm(b, y, "norm"), b.relu(y)))
    found, _ = fold_batch_norms(program)
    assert np.allclose(_value(program), _value(found), rtol=1e-4, atol=1e-4)
    assert gl.optimize(program, ARRAY).check().ok


@pytest.mark.parametrize("length", [5, 7, 8])
def test_a_number_after_transposed_heads_goes_into_weights_at_every_length(length: int) -> None:
    """The number of heads need not divide the length: else programs of open sizes have no form of all sizes."""
    b = Builder("heads")
    weight = b.constant("w", (32, 32), value=np.eye(32, dtype="float32"))
    y = b.linear(b.input("x", (2 * length, 32)), weight)
    heads = b.transpose(b.reshape(y, (2, length, 4, 8)), (0, 2, 1, 3))
    program = b.finish(multiply(heads, broadcast(b.full((1, 1, 1, 1), 0.5), heads.access.dims)))
    assert not _products_of_numbers(fold_batch_norms(program)[0])


@pytest.mark.parametrize("after", [_nothing, _bias], ids=["nothing", "bias"])
def test_a_program_without_scales_stays_itself(after: After) -> None:
    program = _stack(after)
    assert not has_scales_of_products(program)
    found, stopped = fold_batch_norms(program)
    assert found is program
    assert stopped == "saturated"
    result = gl.optimize(program, ARRAY, verify=False, exact_order=True)
    assert result.prepared is program


@pytest.mark.slow
@pytest.mark.parametrize("least", [2, 4])
def test_the_e_graph_of_a_network_grows_as_the_network(least: int) -> None:
    sizes = [_rewritten(_residual(n, _norm)).egraph.e_nodes for n in (least, 2 * least, 4 * least)]
    first, second = sizes[1] - sizes[0], (sizes[2] - sizes[1]) / 2
    assert second == pytest.approx(first, rel=0.2)


def test_no_product_is_computed_twice_to_save_a_copy() -> None:
    program = _residual(1, _nothing)
    found = _rewritten(program).program
    kinds = [t.operator.name for t in postorder(found.term)]
    assert kinds.count("product-unit") == len(program.layers) == len(found.layers)


@pytest.mark.parametrize("iterations", quick([2, 5], 1))
def test_a_search_that_is_cut_short_gives_an_equal_program(iterations: int) -> None:
    program = _residual(2, _norm)
    found = _rewritten(program, Search(gl.Limits(iterations=iterations)))
    assert found.stopped == "iteration-limit"
    assert found.progress.iterations == iterations
    assert check(program, found.program).result == "exact"
    result = gl.optimize(program, ARRAY, limits=gl.Limits(iterations=iterations))
    assert result.check().ok


@pytest.mark.slow
def test_a_search_that_is_interrupted_gives_an_equal_program() -> None:
    program = _residual(2, _norm)

    def interrupt(progress: Progress) -> None:
        if progress.iterations >= 2:
            raise KeyboardInterrupt

    found = _rewritten(program, Search(on_progress=interrupt))
    assert found.stopped == "interrupted"
    assert check(program, found.program).result == "exact"
    assert fold_batch_norms(program, Search(on_progress=interrupt))[1] == "interrupted"


def _weights(product: Term) -> set[str]:
    leaves = (leaf.attributes[0] for leaf in tensors(product))
    return {t.name for t in leaves if t.name.endswith(".w")}  # type: ignore[union-attr]


@pytest.mark.parametrize("target", [UNIT, ARRAY], ids=["unit", "array"])
def test_layers_keep_their_names(target: Target) -> None:
    program = _residual(3, _norm)
    found = _rewritten(program).program if target is UNIT else fold_batch_norms(program)[0]
    assert found is not program
    assert list(found.layers) == list(program.layers)
    for name, product in found.layers.items():
        assert product in set(postorder(found.term))
        assert f"{name}.w" in _weights(product)


def test_a_product_of_constants_inside_of_a_constant_is_a_layer() -> None:
    """As that of a recurrent layer's first state, which is 0, with its weights."""
    b = Builder()
    gates = b.concatenate([b.constant("u", (1, 2)), b.constant("v", (1, 2))], 1)
    first = b.add(b.matmul(b.constant("state", (8, 1)), gates), b.constant("bias", (8, 4)))
    product = b.matmul(b.input("x", (8, 3)), b.constant("w", (3, 4)))
    program = b.finish(b.add(product, first))
    result = gl.optimize(program, UNIT)
    assert len(program.layers) == 2
    assert list(result.answer.layers) == list(program.layers)
    assert result.check().ok


def test_an_answer_whose_folding_ran_out_of_time_says_so_and_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = _stack(_norm)
    folding = "glenside.targets.arrays.matrix_array.fold_batch_norms"
    monkeypatch.setattr(folding, lambda program, search: (program, "time-limit"))
    with gl.Cache(tmp_path / "answers.sqlite") as cache:
        result = gl.optimize(program, ARRAY, verify=False, cache=cache)
        assert result.stopped == "time-limit"
        assert len(cache) == 0
