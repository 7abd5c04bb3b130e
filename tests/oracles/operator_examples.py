"""Gives an example of every operator: a term, its type as text, and its value from numpy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from example_values import NARROW, SAMPLES, A, B, Example, integers, leaf

from glenside.ir.operand import Array
from glenside.ir.term import build


def _padded(fill: float) -> Array:
    result = np.full((2, 6, 4), fill)
    result[:, 1:4] = A
    return result


def _windows(x: Array, window: Sequence[int], strides: Sequence[int]) -> Array:
    """Computes windows of a whole array, one at a time."""
    counts = [(n - k) // t + 1 for n, k, t in zip(x.shape, window, strides, strict=True)]
    result = np.empty((*counts, *window), x.dtype)
    for at in np.ndindex(*counts):
        result[at] = x[tuple(slice(i * t, i * t + k) for i, t, k in zip(at, strides, window, strict=True))]
    return result


def _overlap_add(windows: Array, out: Sequence[int], strides: Sequence[int]) -> Array:
    result = np.zeros(out, windows.dtype)
    axes = len(out)
    for at in np.ndindex(*windows.shape[:axes]):
        window = windows[at]
        result[tuple(slice(i * t, i * t + k) for i, t, k in zip(at, strides, window.shape, strict=True))] += window
    return result


def _scattered(
    a: Array, b: Array, out: Sequence[int], strides: Sequence[int], dilations: Sequence[int], starts: Sequence[int]
) -> Array:
    """Computes scattered sums of a (M positions)(K) and b (O window)(K): each product is added at its position, one
    number at a time.
    """
    axes = len(out)
    result = np.zeros((a.shape[0], b.shape[0], *out), np.int64)
    for place in np.ndindex(*a.shape[1 : 1 + axes]):
        for tap in np.ndindex(*b.shape[1 : 1 + axes]):
            at = [m * t + u * d - lo for m, u, t, d, lo in zip(place, tap, strides, dilations, starts, strict=True)]
            if all(0 <= y < size for y, size in zip(at, out, strict=True)):
                result[(slice(None), slice(None), *at)] += a[(slice(None), *place)] @ b[(slice(None), *tap)].T
    return result


def _dilated() -> Array:
    result = np.zeros((2, 7, 4))
    result[:, ::3] = A
    return result


def _mapped_tiles() -> Array:
    return np.array([[[A[g, m] @ TILE[g][:, c] for c in range(3)] for m in range(3)] for g in range(2)])


def _doubled(steps: int) -> Array:
    """Computes h' = 2 h + x of the rows of B from the second on."""
    found = [A[0, 0]]
    for step in range(steps):
        found.append(2 * found[-1] + B[0, 1 + step])
    return np.array(found)


ADDED = (
    "(input state (shape 4) float32) (input operand.0 (shape 4) float32) (compute elementwise-add "
    "(access-cartesian-product (access-tensor state) (access-tensor operand.0)))"
)
DOUBLED = ADDED.replace("state)", "state2)").replace(
    "(access-tensor state2)",
    "(compute elementwise-add (access-cartesian-product (access-tensor state) (access-tensor state)))",
)
_LEFT, _RIGHT = integers(2, 4, 3, 5), integers(3, 2, 2, 5, seed=5)
_SPREAD = (leaf(_LEFT, 3), leaf(_RIGHT, 3))
LASTS = np.array([[[row[3], row[1], row[0]] for row in x] for x in A])
TWICE = leaf([[1], [-1], [1]], 0, "int64")
TILE = integers(2, 4, 3, seed=2)
MATRIX = integers(6, 4, seed=3)
WEIGHTS = integers(4, 6, seed=4)
PAIRED = np.stack([np.broadcast_to(A[:, :, None], (2, 3, 5, 4)), np.broadcast_to(B[:, None], (2, 3, 5, 4))], 3)

OPERATORS: Mapping[str, Sequence[Example]] = {
    "access-tensor": [Example(leaf(A, 0).children[0], "()(2 3 4) float32", A)],
    "access-literal": [
        Example(build("access-literal", "1/3", "float64"), "()() float64", 1 / 3),
        Example(build("access-literal", "-128", "int8"), "()() int8", -128),
    ],
    "full": [
        Example(build("full", (2, 0, 3), "1.5", "float16"), "()(2 0 3) float16", np.full((2, 0, 3), 1.5)),
        Example(build("full", (3, 2), "7", "uint8"), "()(3 2) uint8", np.full((3, 2), 7)),
    ],
    "iota": [
        Example(build("iota", 5, "int8"), "()(5) int8", np.array([0, 1, 2, 3, 4])),
        Example(build("iota", 3, "float64"), "()(3) float64", np.array([0.0, 1.0, 2.0])),
    ],
    "eye": [Example(build("eye", 3, "int32"), "()(3 3) int32", np.eye(3))],
    "numbers": [
        Example(
            build("numbers", (2, 3), "1 0 -1/2 1e1 2.5 -3", "float32"),
            "()(2 3) float32",
            np.array([[1, 0, -0.5], [10, 2.5, -3]]),
        ),
        Example(build("numbers", (), "-128", "int8"), "()() int8", -128),
        Example(build("numbers", (2, 0), "", "float64"), "()(2 0) float64", np.zeros((2, 0))),
    ],
    "linear-map": [
        Example(
            build("linear-map", leaf(A, 1), 1, 4, "1 0 -1 0 0 0 -1/2 1 3 0 -5 0"),
            "(2)(4 4) float32",
            np.stack([A[:, 0] - A[:, 2], 0 * A[:, 0], -A[:, 0] / 2 + A[:, 1] + 3 * A[:, 2], -5 * A[:, 1]], 1),
        ),
        Example(
            build("linear-map", leaf(NARROW, 0, "int8"), 0, 1, "-2 3"),
            "()(1 3) int8",
            np.array([[(-2 * int(a) + 3 * int(b) + 128) % 256 - 128 for a, b in NARROW.T]]),
        ),
        Example(build("linear-map", leaf(A, 2), 2, 0, ""), "(2 3)(0) float32", np.zeros((2, 3, 0))),
        Example(build("linear-map", leaf(A[:, :0], 1), 1, 2, ""), "(2)(2 4) float32", np.zeros((2, 2, 4))),
    ],
    "truncate": [Example(build("truncate", leaf(SAMPLES, 1)), "(2)(3) float32", SAMPLES)],
    "access": [Example(build("access", leaf(A, 1), 2), "(2 3)(4) float32", A)],
    "access-transpose": [
        Example(build("access-transpose", leaf(A, 1), (2, 0, 1)), "(4)(2 3) float32", np.transpose(A, (2, 0, 1)))
    ],
    "access-rearrange": [
        Example(
            build("access-rearrange", leaf(A, 1), (2, 3, 4), (1, 2, 0), ((3,), (8,))),
            "(3)(8) float32",
            A.transpose(1, 2, 0).reshape(3, 8),
        ),
        Example(
            build("access-rearrange", leaf(A), (6, 2, 2), (2, 0, 1), ((2, 6), (2,))),
            "(2 6)(2) float32",
            A.reshape(6, 2, 2).transpose(2, 0, 1),
        ),
    ],
    "product-unit": [
        Example(
            build(
                "product-unit", 0, leaf(A), (2, 3, 4), (0, 1, 2), 2, leaf(B[0]), (5, 4), (0, 1), 1, (2, 3, 5), (2, 0, 1)
            ),
            "()(5 2 3) float32",
            np.einsum("abk,nk->nab", A, B[0]),
        ),
        Example(
            build(
                "product-unit",
                1,
                leaf(A),
                (2, 3, 4),
                (0, 2, 1),
                2,
                leaf(A),
                (2, 3, 4),
                (0, 2, 1),
                2,
                (2, 4, 4),
                (0, 1, 2),
            ),
            "()(2 4 4) float32",
            np.einsum("gkm,gkn->gmn", A, A),
        ),
        Example(
            build(
                "product-unit",
                0,
                leaf(NARROW, 0, "int8"),
                (2, 3),
                (0, 1),
                1,
                leaf(NARROW, 0, "int8"),
                (2, 3),
                (0, 1),
                1,
                (2, 2),
                (0, 1),
            ),
            "()(2 2) int32",
            NARROW.astype(np.int32) @ NARROW.T,
        ),
    ],
    "access-reshape": [
        Example(
            build("access-reshape", leaf(A, 2), ((3, 2), (2, 1, 2))), "(3 2)(2 1 2) float32", A.reshape(3, 2, 2, 1, 2)
        ),
        Example(
            build("access-reshape", leaf(np.zeros((0, 3)), 1), ((4, 0), (3,))), "(4 0)(3) float32", np.zeros((4, 0, 3))
        ),
    ],
    "access-flatten": [
        Example(build("access-flatten", leaf(A, 2)), "(6)(4) float32", A.reshape(6, 4)),
        Example(build("access-flatten", leaf(A, 0)), "()(24) float32", A.reshape(24)),
        Example(build("access-flatten", leaf(A, 3)), "(24)() float32", A.reshape(24)),
    ],
    "access-shift-right": [Example(build("access-shift-right", leaf(A, 2)), "(2)(3 4) float32", A)],
    "access-flip": [Example(build("access-flip", leaf(A, 1), 2), "(2)(3 4) float32", A[:, :, ::-1])],
    "access-insert-axis": [
        Example(build("access-insert-axis", leaf(A, 1), 1), "(2 1)(3 4) float32", A[:, None]),
        Example(build("access-insert-axis", leaf(A, 1), 2), "(2)(3 1 4) float32", A[:, :, None]),
    ],
    "access-squeeze": [
        Example(build("access-squeeze", leaf(A[:, :1], 1), 1), "(2)(4) float32", A[:, 0]),
        Example(build("access-squeeze", leaf(A[:1], 1), 0), "()(3 4) float32", A[0]),
    ],
    "access-broadcast": [
        Example(
            build("access-broadcast", leaf(A[:, :1], 1), ((2,), (5, 4))),
            "(2)(5 4) float32",
            np.repeat(A[:, :1], 5, axis=1),
        ),
        Example(build("access-broadcast", leaf([[7]], 1), ((0,), (3,))), "(0)(3) float32", np.zeros((0, 3))),
    ],
    "access-slice": [
        Example(build("access-slice", leaf(A, 1), 1, 1, 3), "(2)(2 4) float32", A[:, 1:3]),
        Example(build("access-slice", leaf(A, 1), 2, 4, 4), "(2)(3 0) float32", A[:, :, 4:]),
    ],
    "access-concatenate": [
        Example(
            build("access-concatenate", leaf(A, 1), leaf(B, 1), 1),
            "(2)(8 4) float32",
            np.array([[*A[0], *B[0]], [*A[1], *B[1]]]),
        )
    ],
    "access-pad": [
        Example(build("access-pad", leaf(A, 1), "zero-padding", 1, 1, 2), "(2)(6 4) float32", _padded(0)),
        Example(build("access-pad", leaf(A, 1), "min-padding", 1, 1, 2), "(2)(6 4) float32", _padded(-np.inf)),
        Example(build("access-pad", leaf(A, 1, "int8"), "min-padding", 1, 1, 2), "(2)(6 4) int8", _padded(-128)),
        Example(
            build("access-pad", leaf([True], 0, "bool"), "min-padding", 0, 0, 1), "()(2) bool", np.array([True, False])
        ),
    ],
    "access-dilate": [
        Example(build("access-dilate", leaf(A, 1), 1, 2), "(2)(7 4) float32", _dilated()),
        Example(build("access-dilate", leaf(A[:, :0], 1), 1, 2), "(2)(0 4) float32", A[:, :0]),
    ],
    "access-windows": [
        Example(
            build("access-windows", leaf(MATRIX, 0), (3, 2), (2, 1)),
            "(2 3)(3 2) float32",
            _windows(MATRIX, (3, 2), (2, 1)),
        ),
        Example(
            build("access-windows", leaf(A, 1), (3, 2), (1, 2)),
            "(2 1 2)(3 2) float32",
            np.array([_windows(x, (3, 2), (1, 2)) for x in A]),
        ),
        Example(build("access-windows", leaf(5), (), ()), "()() float32", np.array(5)),
    ],
    "access-overlap-add": [
        Example(
            build("access-overlap-add", leaf(integers(2, 3, 3, 2), 2), (6, 4), (2, 1)),
            "()(6 4) float32",
            _overlap_add(integers(2, 3, 3, 2), (6, 4), (2, 1)),
        ),
        Example(
            build("access-overlap-add", leaf(integers(2, 3, 3), 2, "int64"), (8,), (2,)),
            "(2)(8) int64",
            np.array([_overlap_add(x, (8,), (2,)) for x in integers(2, 3, 3)]),
        ),
    ],
    "overlap-add-product": [
        Example(
            build("overlap-add-product", *_SPREAD, 0, (7, 9), (2, 1), (1, 3), (1, -2), tile),
            "(2 3 7 9)() float32",
            sums,
        )
        for sums in [_scattered(_LEFT, _RIGHT, (7, 9), (2, 1), (1, 3), (1, -2))]
        for tile in (1, 2, 5, 8, 100)
    ]
    + [
        Example(
            build(
                "overlap-add-product", leaf(_LEFT, 3, "int8"), leaf(_RIGHT[:2], 3, "int8"), 1, (9,), (3,), (1,), (0,), 2
            ),
            "(2 4 2 9)() int32",
            np.array([_scattered(_LEFT[g], _RIGHT[g], (9,), (3,), (1,), (0,)) for g in range(2)]),
        )
    ],
    "access-product": [
        Example(
            build("access-product", leaf(A[0], 1), leaf(B[0], 1), 0),
            "(3 5)(2 4) float32",
            np.array([[[x, y] for y in B[0]] for x in A[0]]),
        ),
        Example(build("access-product", leaf(A, 2), leaf(B, 2), 1), "(2 3 5)(2 4) float32", PAIRED),
        Example(
            build("access-product", leaf(A, 1), leaf(A + 1, 1), 1),
            "(2)(2 3 4) float32",
            np.array([[x, x + 1] for x in A]),
        ),
    ],
    "access-gather": [
        Example(
            build("access-gather", leaf(A, 1), leaf([[2, 0], [1, 1], [0, 2]], 0, "int64"), 1),
            "(2)(3 2 4) float32",
            np.array([[[x[2], x[0]], [x[1], x[1]], [x[0], x[2]]] for x in A]),
        ),
        Example(build("access-gather", leaf(A, 1), leaf(1, 0, "uint8"), 0), "()(3 4) float32", A[1]),
        Example(build("access-gather", leaf(A, 0), leaf([-1, 1, -4], 0, "int8"), 2), "()(2 3 3) float32", LASTS),
    ],
    "access-gather-nd": [
        Example(
            build("access-gather-nd", leaf(A, 0), leaf([[1, 2], [0, -1]], 0, "int32"), 0),
            "()(2 4) float32",
            np.array([A[1, 2], A[0, 2]]),
        ),
        Example(
            build("access-gather-nd", leaf(A, 1), leaf([[[2], [2], [0]], [[-3], [1], [1]]], 0, "int64"), 1),
            "(2)(3 4) float32",
            np.array([[A[0, 2], A[0, 2], A[0, 0]], [A[1, 0], A[1, 1], A[1, 1]]]),
        ),
        Example(
            build("access-gather-nd", leaf(A, 0), leaf(np.zeros((0, 2, 3)), 0, "int64"), 0),
            "()(0 2) float32",
            np.zeros((0, 2)),
        ),
    ],
    "access-scatter-nd": [
        *(
            Example(
                build("access-scatter-nd", leaf([9, 4, 2, 7], 0, dtype), TWICE, leaf([5, 1, 3], 0, dtype), 0, kind),
                f"()(4) {dtype}",
                np.array(value),
            )
            for dtype in ("float32", "int16")
            for kind, value in {
                "replace": [9, 3, 2, 1],
                "add": [9, 12, 2, 8],
                "mul": [9, 60, 2, 7],
                "min": [9, 3, 2, 1],
                "max": [9, 5, 2, 7],
            }.items()
        ),
        Example(
            build("access-scatter-nd", leaf(A, 1), leaf([[[2]], [[0]]], 0, "int64"), leaf(B[:, :1], 0), 1, "replace"),
            "(2)(3 4) float32",
            np.array([[A[0, 0], A[0, 1], B[0, 0]], [B[1, 0], A[1, 1], A[1, 2]]]),
        ),
    ],
    "cast": [
        Example(build("cast", leaf(SAMPLES, 1), "int8"), "(2)(3) int8", np.array([[-2, 0, 0], [0, 1, 3]])),
        Example(build("cast", leaf(SAMPLES, 1), "bool"), "(2)(3) bool", SAMPLES != 0),
        Example(build("cast", leaf([300, -1], 0, "int32"), "uint8"), "()(2) uint8", np.array([44, 255])),
    ],
    "bitcast": [
        Example(
            build("bitcast", leaf([1.0, -0.0, 0.15625]), "uint32"),
            "()(3) uint32",
            np.array([127 << 23, 1 << 31, (124 << 23) + (1 << 21)]),
        ),
        Example(
            build("bitcast", leaf([[15 << 10], [-(1 << 15)]], 1, "int16"), "float16"),
            "(2)(1) float16",
            np.array([[1.0], [-0.0]]),
        ),
        Example(build("bitcast", leaf([[200, -1]], 1, "int32"), "uint32"), "(1)(2) uint32", [[200, 2**32 - 1]]),
        Example(build("bitcast", leaf([0, 2], 0, "uint8"), "bool"), "()(2) bool", [False, True]),
    ],
    "construct-tuple": [
        Example(build("construct-tuple", leaf(A, 1), leaf(B, 2)), "(tuple (2)(3 4) float32 (2 5)(4) float32)", (A, B))
    ],
    "tuple-get-item": [
        Example(build("tuple-get-item", build("construct-tuple", leaf(A, 1), leaf(B, 2)), 1), "(2 5)(4) float32", B)
    ],
    "scan": [
        Example(build("scan", leaf(A[0, 0], 0), 2, (1,), DOUBLED, leaf(B[0], 0)), "()(3 4) float32", _doubled(2)),
        Example(build("scan", leaf(A[0, 0], 0), 0, (1,), DOUBLED, leaf(B[0], 1)), "()(1 4) float32", _doubled(0)),
        Example(
            build("scan", leaf(A[0, 0], 0), 3, (), ADDED, leaf(B[0, 0], 0)),
            "()(4 4) float32",
            A[0, 0] + np.arange(4)[:, None] * B[0, 0],
        ),
    ],
    "tiled-product": [
        Example(build("tiled-product", leaf(A, 2), leaf(TILE[0].T, 1), 0, 2), "(2 3 3)() float32", A @ TILE[0]),
        Example(
            build("tiled-product", leaf(A, 2), leaf(np.swapaxes(TILE, 1, 2), 2), 1, 100),
            "(2 3 3)() float32",
            _mapped_tiles(),
        ),
        Example(
            build("tiled-product", leaf(NARROW, 1, "int8"), leaf(NARROW, 1, "int8"), 0, 1),
            "(2 2)() int32",
            NARROW @ NARROW.T,
        ),
        Example(
            build("tiled-product", leaf(A[:, :0], 2), leaf(A[:, :0], 2), 1, 1), "(2 0 0)() float32", np.zeros((2, 0, 0))
        ),
        Example(
            build("tiled-product", leaf(A[..., :0], 2), leaf(A[0, :, :0], 1), 0, 1),
            "(2 3 3)() float32",
            np.zeros((2, 3, 3)),
        ),
    ],
    "systolic-array": [
        Example(build("systolic-array", 4, 3, leaf(A[0], 1), leaf(TILE[0], 0)), "(3 3)() float32", A[0] @ TILE[0]),
        Example(build("systolic-array", 4, 3, leaf(A[0, 0], 0), leaf(TILE[0], 0)), "(3)() float32", A[0, 0] @ TILE[0]),
        Example(build("systolic-array", 4, 3, leaf(A, 2), leaf(TILE, 1)), "(2 3 3)() float32", _mapped_tiles()),
        Example(
            build("systolic-array", 4, 3, leaf(A[:, 0], 1), leaf(TILE, 1)), "(2 3)() float32", _mapped_tiles()[:, 0]
        ),
        Example(
            build("systolic-array", 3, 2, leaf(NARROW, 1, "int8"), leaf(NARROW.T, 0, "int8")),
            "(2 2)() int32",
            NARROW @ NARROW.T,
        ),
    ],
    "systolic-array-output-stationary": [
        Example(
            build("systolic-array-output-stationary", 3, 3, leaf(A, 2), leaf(TILE, 1)),
            "(2 3 3)() float32",
            _mapped_tiles(),
        ),
        Example(
            build("systolic-array-output-stationary", 2, 2, leaf(NARROW, 1, "int8"), leaf(NARROW.T, 0, "int8")),
            "(2 2)() int32",
            NARROW @ NARROW.T,
        ),
    ],
    "systolic-array-with-blocking": [
        Example(
            build("systolic-array-with-blocking", 2, 3, leaf(MATRIX, 1), leaf(WEIGHTS, 0)),
            "(6 6)() float32",
            MATRIX @ WEIGHTS,
        ),
        Example(
            build("systolic-array-with-blocking", 4, 3, leaf(MATRIX[1], 0), leaf(WEIGHTS, 0)),
            "(6)() float32",
            MATRIX[1] @ WEIGHTS,
        ),
    ],
    # Pseudo-random, but always the same: two processes must agree on it.
    "opaque": [
        Example(
            build("opaque", "mystery/1#0", ((2,), (3,)), "float32", leaf(A, 1), leaf([1, 2], 0, "int64")),
            "(2)(3) float32",
            np.array([[-2, 0, 0], [0, -2, 0]]),
        ),
        Example(build("opaque", "mystery/1#0", ((), (4,)), "uint8"), "()(4) uint8", np.array([32, 90, 7, 91])),
        Example(build("opaque", "mystery/1#0", ((), (0,)), "bool", leaf(A)), "()(0) bool", np.zeros(0)),
    ],
    "opaque-pointwise": [
        Example(
            build("opaque-pointwise", "f", leaf(A, 1), "uint8", (), ()),
            "(2)(3 4) uint8",
            np.array(
                [
                    [[48, 53, 93, 64], [20, 92, 46, 53], [24, 52, 0, 52]],
                    [[38, 24, 48, 10], [5, 20, 20, 48], [10, 20, 68, 38]],
                ]
            ),
        ),
    ],
    "opaque-items": [
        Example(
            build("opaque-items", "f", leaf(A, 1), "uint8", (2, 3, 4), (2, 0)),
            "(2)(3 4) uint8",
            np.array(
                [
                    [[70, 34, 87, 12], [5, 25, 65, 0], [13, 36, 66, 35]],
                    [[91, 59, 72, 56], [33, 66, 73, 86], [87, 90, 46, 34]],
                ]
            ),
        ),
    ],
    "compute": [Example(build("compute", "relu", leaf(A, 1)), "(2)(3 4) float32", np.where(A > 0, A, 0))],
}
