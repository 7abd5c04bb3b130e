"""Imports counts of n-grams in rows of integers."""

from __future__ import annotations

import numpy as np

from glenside.builder.indexing import scatter_nd
from glenside.builder.layout import concatenate, reshape, split_at, transpose
from glenside.builder.pointwise import add, cast, compare, multiply
from glenside.builder.windows import windows
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.operators.layout import required
from glenside.ir.dtypes import INTEGERS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, build


@onnx_operator("TfIdfVectorizer")
def vectorized(node: Node) -> Term:
    x, mode = node.term(0), node.text("mode", "", "TF", "IDF", "TFIDF")
    if x.access.rank not in (1, 2) or x.access.dtype not in INTEGERS:
        raise BadInput(f"input 0 requires one or two axes of integers, got {x.access}")
    rows = reshape(x, (1, *x.access.dims)) if x.access.rank == 1 else x
    columns = required(node.integers("ngram_indexes"), "attribute ngram_indexes")
    counts = [_counts(node, rows, pool) for pool in _pools(node)]
    found = concatenate(counts, 1) if counts else build("full", (rows.access.dims[0], 0), 0, "int64")
    if not columns or min(columns) < 0 or len(columns) != found.access.dims[1]:
        raise BadInput(f"attribute ngram_indexes requires a column for each of {found.access.dims[1]}, got {columns}")
    scores = cast(found if mode != "IDF" else compare("gt", found, build("full", (), 0, "int64")), "float32")
    weights = node.numbers("weights")
    if mode != "TF" and weights is not None:
        if len(weights) != len(columns):
            raise BadInput(f"attribute weights requires {len(columns)} numbers, got {len(weights)}")
        scores = multiply(scores, node.constant(np.array(weights, np.float32), f"{node.name}.weights"))
    nothing = build("full", (max(columns) + 1, rows.access.dims[0]), 0, "float32")
    places = node.constant(np.array(columns, np.int64).reshape(-1, 1), f"{node.name}.columns")
    result = transpose(scatter_nd(nothing, places, transpose(scores, (1, 0)), 0, "add"), (1, 0))
    return reshape(result, result.access.dims[1:]) if x.access.rank == 1 else result


def _pools(node: Node) -> list[Array]:
    """Returns the n-grams of each length as rows, those of length 1 first. Raises BadInput."""
    pool = required(node.integers("pool_int64s"), "attribute pool_int64s")
    starts = required(node.integers("ngram_counts"), "attribute ngram_counts")
    ends = [*starts[1:], len(pool)]
    if any(not 0 <= a <= b or (b - a) % n for n, (a, b) in enumerate(zip(starts, ends, strict=False), 1)):
        raise BadInput(f"attribute ngram_counts requires starts of 1-grams, 2-grams .. in the pool, got {starts}")
    return [np.array(pool[a:b]).reshape(-1, n) for n, (a, b) in enumerate(zip(starts, ends, strict=False), 1)]


def _counts(node: Node, rows: Term, pool: Array) -> Term:
    """Counts each n-gram of a pool in each row, its elements adjacent or at equal distances: ()(B P)."""
    (batch, length), (grams, n) = rows.access.dims, pool.shape
    shortest, longest = node.integer("min_gram_length", 1), node.integer("max_gram_length", 1)
    total = build("full", (batch, grams), 0, "int64")
    wanted = reshape(node.constant(pool.astype(rows.access.dtype), f"{node.name}.{n}-grams"), (1, 1, grams, n))
    farthest = 1 if n == 1 else min(node.integer("max_skip_count", 0) + 1, length)  # single elements have no distance
    for apart in range(1, farthest + 1) if shortest <= n <= longest and grams else ():
        if (n - 1) * apart >= length:
            break
        seen = windows(split_at(rows, 1), (n,), (1,), (apart,))
        equal = compare("eq", reshape(seen, (batch, seen.access.dims[1], 1, n)), wanted)
        whole = cast(build("compute", "reduce-min", split_at(equal, 3)), "int64")
        total = add(total, split_at(build("compute", "reduce-sum", split_at(transpose(whole, (0, 2, 1)), 2)), 0))
    return total
