"""Imports classical machine learning (ai.onnx.ml): feature selection, thresholds, ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np

from glenside.builder.layout import concatenate, gather, reshape, slice_axis
from glenside.builder.pointwise import add, cast, combine, compare, divide, filled, select
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.operators.indexing import check_indices
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, build

classical_operator = partial(onnx_operator, domain="ai.onnx.ml")

TREES = 1 << 13
"""The maximum nodes of an ensemble: each becomes a select."""
DEEPEST = 64


@classical_operator("ArrayFeatureExtractor")
def array_feature_extractor(node: Node) -> Term:
    x = node.term(0)
    if not x.access.rank:
        raise BadInput("input 0 requires at least one axis, got a number")
    places = check_indices(node, 1, [x.access.dims[-1]])
    rows = reshape(x, (1, x.access.size)) if x.access.rank == 1 else x
    return gather(rows, reshape(places, (places.access.size,)), -1)


@classical_operator("Binarizer")
def binarizer(node: Node) -> Term:
    x = node.term(0)
    return cast(compare("gt", x, filled(x, node.number("threshold", 0.0))), x.access.dtype)


MODES = ("le", "lt", "ge", "gt", "eq", "ne")
MEMBER = len(MODES)
AVERAGE, SUM = 0, 1


@dataclass(frozen=True)
class Ensemble:
    """Trees in the layout of the attributes: one list for each property of a node or a leaf."""

    x: Term
    modes: Array
    splits: Array
    features: Sequence[int]
    truths: tuple[Sequence[int], Sequence[int]]
    falses: tuple[Sequence[int], Sequence[int]]
    missing: Sequence[int]
    targets: Sequence[int]
    weights: Array
    members: Sequence[Array]
    count: int
    made: dict[tuple[int, bool], Term] = field(default_factory=dict)
    """Nodes and leaves so far: several branches may lead to one."""

    def holds(self, i: int) -> Term:
        """True per row if it takes the true branch at node i, ()(N 1)."""
        x = slice_axis(self.x, 1, self.features[i], self.features[i] + 1)
        if self.modes[i] == MEMBER:
            position = int(np.count_nonzero(self.modes[:i] == MEMBER))
            values = [compare("eq", x, filled(x, float(v))) for v in self.members[position]]
            found = reduce(partial(combine, "logical-or"), values, build("full", x.access.dims, 0, "bool"))
        else:
            found = compare(MODES[self.modes[i]], x, filled(x, float(self.splits[i])))
        if not self.missing[i]:
            return found
        return combine("logical-or", found, compare("ne", x, x))

    def _leaf(self, i: int) -> Term:
        """Returns the weights that leaf i adds to each target, ()(N T)."""
        rows = self.x.access.dims[0]
        row = [float(self.weights[i]) if t == self.targets[i] else 0.0 for t in range(self.count)]
        return concatenate([build("full", (rows, 1), value, self.x.access.dtype) for value in row], 1)

    def tree(self, i: int, is_leaf: bool, depth: int = 0) -> Term:
        """Returns the result of a tree from node i on, ()(N T). Raises BadInput if it is too deep."""
        if depth > DEEPEST:
            raise BadInput(f"trees require at most {DEEPEST} levels, got more, or a cycle")
        if (i, is_leaf) not in self.made:
            self.made[i, is_leaf] = self._leaf(i) if is_leaf else self._branch(i, depth + 1)
        return self.made[i, is_leaf]

    def _branch(self, i: int, depth: int) -> Term:
        yes, no = (self.tree(places[i], bool(leaves[i]), depth) for places, leaves in (self.truths, self.falses))
        return select(self.holds(i), yes, no)


def _members(node: Node) -> Sequence[Array]:
    """Returns the values of each membership test; NaN ends each."""
    if "membership_values" not in node.attributes:
        return []
    values = node.tensor("membership_values").reshape(-1)
    ends = np.flatnonzero(np.isnan(values))
    return [part[~np.isnan(part)] for part in np.split(values, ends)]


@classical_operator("TreeEnsemble")
def tree_ensemble(node: Node) -> Term:
    x, aggregate = node.term(0), node.integer("aggregate_function", SUM)
    if x.access.rank != 2 or node.integer("post_transform", 0) or aggregate not in (AVERAGE, SUM):
        raise BadInput("requires rows of features, sums or averages of trees, and no post_transform")

    def listed(name: str, size: int | None = None) -> list[int]:
        values = node.integers(name, [0] * size if size is not None else None) or []
        if size is not None and len(values) != size:
            raise BadInput(f"attribute {name} requires {size} numbers, got {len(values)}")
        return values

    features = listed("nodes_featureids")
    count, roots, targets = len(features), listed("tree_roots"), listed("leaf_targetids")
    if count > TREES:
        raise BadInput(f"requires at most {TREES} nodes, got {count}")
    tensors: dict[str, Any] = {name: node.tensor(name).reshape(-1) for name in ("nodes_modes", "nodes_splits")}
    ensemble = Ensemble(
        x,
        tensors["nodes_modes"],
        tensors["nodes_splits"],
        features,
        (listed("nodes_truenodeids", count), listed("nodes_trueleafs", count)),
        (listed("nodes_falsenodeids", count), listed("nodes_falseleafs", count)),
        listed("nodes_missing_value_tracks_true", count),
        targets,
        node.tensor("leaf_weights").reshape(-1),
        _members(node),
        node.integer("n_targets", 1),
    )
    _check(ensemble, roots)
    total = reduce(add, [ensemble.tree(root, False) for root in roots])
    return divide(total, filled(total, len(roots))) if aggregate == AVERAGE else total


def _check(ensemble: Ensemble, roots: Sequence[int]) -> None:
    """Raises BadInput if a tree refers to a missing node or leaf."""
    count, leaves = len(ensemble.features), len(ensemble.targets)
    if not roots or not all(0 <= root < count for root in roots):
        raise BadInput(f"attribute tree_roots requires nodes from 0 to {count - 1}, got {list(roots)[:8]}")
    if len(ensemble.modes) != count or len(ensemble.splits) != count or len(ensemble.weights) != leaves:
        raise BadInput(f"requires modes and splits of {count} nodes and weights of {leaves} leaves")
    if not all(0 <= feature < ensemble.x.access.dims[1] for feature in ensemble.features):
        raise BadInput(f"attribute nodes_featureids requires features of {ensemble.x.access}")
    if not all(0 <= mode <= MEMBER for mode in ensemble.modes):
        raise BadInput(f"attribute nodes_modes requires 0 to {MEMBER}")
    if int(np.count_nonzero(ensemble.modes == MEMBER)) > len(ensemble.members):
        raise BadInput("attribute membership_values requires values for each test of membership")
    for places, kinds in (ensemble.truths, ensemble.falses):
        if not all(0 <= at < (leaves if leaf else count) for at, leaf in zip(places, kinds, strict=True)):
            raise BadInput("a branch requires an existing node or leaf")
