"""Texts of terms that several rules build."""

from __future__ import annotations

DOT = '(= root (compute "dot-product" (access-product a b n)))'
SIDES = "(= da (dims a)) (= sa (split a)) (= db (dims b)) (= sb (split b))"
PRODUCT_SIZES = (
    f"{DOT} {SIDES} (= pa (prefixes da)) (= pb (prefixes db)) (= g (vec-get pa n)) (= m (/ (vec-get pa sa) g))"
    " (= k (/ (vec-get pa (vec-length da)) (vec-get pa sa))) (= o (/ (vec-get pb sb) g))"
)
"""The sizes of a product: g shared, m rows of a, o rows of b, items of k elements. Nothing of size 0 has them."""


def vec(*sizes: object) -> str:
    """A vector of sizes."""
    return f"(vec-of {' '.join(map(str, sizes))})" if sizes else "(vec-empty)"


def dot(a: str, b: str, shared: object = 1) -> str:
    """The dot product of the items of a and b."""
    return f'(compute "dot-product" (access-product {a} {b} {shared}))'


def reshaped(x: str, sizes: str, split: object) -> str:
    """x in row-major order under the dims `sizes`, a vector, of which the first `split` are the shape."""
    return f"(access (access-reshape (access {x} 0) (vec-empty) {sizes}) {split})"


def transposed(x: str, *order: object) -> str:
    """Axis i of the result is axis order[i] of x."""
    return f"(access-transpose {x} {vec(*order)})"


def padded(x: str, axis: object, after: str, before: object = 0) -> str:
    """x with zeros at the ends of one axis."""
    return f'(access-pad {x} "zero-padding" {axis} {before} {after})'


def diagonal(blocks: str, g: object, p: object, o: object, k: object) -> str:
    """Matrices (g, p o)(p k) with the blocks ()(g p o k) on their diagonals, zeros elsewhere.

    p zeros between neighbours put block i at place i (p + 1) of p p places: row i, column i of p x p of them.
    """
    apart = reshaped(f"(access-dilate (access {blocks} 0) 1 {p})", vec(g, p, p, o, k), 0)
    return reshaped(transposed(apart, 0, 1, 3, 2, 4), vec(g, f"(* {p} {o})", f"(* {p} {k})"), 2)


def ceil_div(a: str, b: str) -> str:
    """a / b rounded up."""
    return f"(/ (+ {a} (- {b} 1)) {b})"


def rearranged(x: str, parts: str, order: str, shape: str, item: str) -> str:
    """The elements of x, cut into parts, in that order of the parts, as (shape)(item)."""
    return f"(access-rearrange {x} {parts} {order} {shape} {item})"


def under(x: str, size: str, shape: str, item: str = "(vec-empty)") -> str:
    """x, which has so many elements, as (shape)(item), in the order in which they are."""
    return rearranged(x, f"(vec-of {size})", "(vec-of 0)", shape, item)


def whole(x: str, size: str, dims: str) -> str:
    """x, which has so many elements, as ()(dims)."""
    return under(x, size, "(vec-empty)", dims)
