"""Compares ensembles of decision trees with a walk through the trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_nodes import floats, ours  # noqa: E402

from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402

DOMAIN = "ai.onnx.ml"
HOLDS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)


def tensor(values: Any, dtype: str) -> Any:
    return onnx.numpy_helper.from_array(np.array(values, dtype), "")


def attributes(splits: list[float], **given: Any) -> dict[str, Any]:
    """Nodes of one tree, a chain of conditions `<=` on feature 0 unless it is said otherwise."""
    count = len(splits)
    last = [0] * (count - 1) + [1]
    named: dict[str, Any] = {
        "tree_roots": [0],
        "n_targets": 1,
        "nodes_featureids": [0] * count,
        "nodes_modes": tensor(given.pop("modes", [0] * count), "uint8"),
        "nodes_splits": tensor(splits, "float32"),
        "nodes_truenodeids": list(range(count)),
        "nodes_trueleafs": [1] * count,
        "nodes_falsenodeids": [*range(1, count), count],
        "nodes_falseleafs": last,
        "leaf_targetids": [0] * (count + 1),
        "leaf_weights": tensor(given.pop("weights", range(count + 1)), "float32"),
    }
    return {**named, **given}


def results(x: Array, named: dict[str, Any]) -> Array:
    (y,) = ours("TreeEnsemble", [x], domain=DOMAIN, domain_version=5, **named)
    return np.asarray(y)


@pytest.mark.parametrize("mode", range(6))
def test_a_chain_of_conditions(mode: int) -> None:
    x = np.round(floats(np.random.default_rng(mode), 30, 2))
    splits = [-1.0, 0.0, 1.0]
    want = [next((i for i, s in enumerate(splits) if HOLDS[mode](row, s)), 3) for row in x[:, 1]]
    named = attributes(splits, modes=[mode] * 3, nodes_featureids=[1] * 3)
    np.testing.assert_array_equal(results(x, named)[:, 0], np.float32(want))


def test_missing_values_and_averages() -> None:
    x = np.array([[np.nan], [-5], [5]], np.float32)
    named = attributes([0.0], nodes_missing_value_tracks_true=[1])
    assert results(x, named)[:, 0].tolist() == [0, 0, 1]
    assert results(x, attributes([0.0]))[:, 0].tolist() == [1, 0, 1]
    twice = attributes([0.0], tree_roots=[0, 0], aggregate_function=0)
    assert results(x, twice)[:, 0].tolist() == [1, 0, 1]


def test_branches_that_meet_again_are_one_term() -> None:
    """Each node leads to the next one on both sides: 2^40 ways."""
    count = 40
    named = attributes([0.0] * count, nodes_trueleafs=[0] * (count - 1) + [1])
    named["nodes_truenodeids"] = [*range(1, count), 7]
    assert results(np.float32([[1], [-1]]), named)[:, 0].tolist() == [count, 7]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nodes_falsenodeids": [0], "nodes_falseleafs": [0]}, "at most 64 levels, got more, or a cycle"),
        ({"nodes_falsenodeids": [9]}, "an existing node or leaf"),
        ({"nodes_featureids": [4]}, "features of"),
        ({"tree_roots": [3]}, "nodes from 0 to 0"),
        ({"aggregate_function": 2}, "sums or averages"),
    ],
)
def test_trees_that_are_none(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        results(np.ones((2, 1), np.float32), attributes([0.0], **given))
