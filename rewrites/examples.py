"""Builds texts of examples, the programs that illustrate rules: `from glenside.rewrites import examples as ex`."""

from __future__ import annotations


def access(name: str, split: int) -> str:
    """Returns the tensor of that name, split after that many axes."""
    return f"(access (access-tensor {name}) {split})"


def windows(x: str, sizes: str, strides: str) -> str:
    """Returns windows of those sizes over the item of x."""
    return f"(access-windows {x} (shape {sizes}) (shape {strides}))"


def dilated(of_all: str, apart: str, dims: str, split: int) -> str:
    """Selects elements of windows, `apart` on each axis, and reshapes them to `dims`."""
    picked = windows(of_all, " ".join("1" for _ in apart.split()), apart)
    return f"(access (access-reshape {picked} (access-shape (shape {dims}) (shape))) {split})"


def reshaped(x: str, shape: str, item: str) -> str:
    """Returns the elements of x in row-major order, as (shape)(item)."""
    return f"(access-reshape {x} (access-shape (shape {shape}) (shape {item})))"


def in_every_form(of_plane: str, dims: str) -> str:
    """Returns windows of a plane, viewed with those dims, under every form that keeps their axes."""
    padded = f"(access-pad (access {reshaped(f'(access {of_plane} 0)', '', dims)} 4) zero-padding 4 0 1)"
    return f"(access-transpose (access-slice {padded} 4 0 2) (list 0 1 3 2 5 4))"


def rearranged(x: str, parts: str | int, order: str | int, shape: str | int, item: str | int) -> str:
    """Returns the elements of x, cut into parts, in that order of the parts, as (shape)(item)."""
    return f"(access-rearrange {x} (shape {parts}) (list {order}) (access-shape (shape {shape}) (shape {item})))"


def moved(parts: str, order: str, shape: str, item: str) -> str:
    """Returns the tensor x, rearranged."""
    return rearranged("(access-tensor x)", parts, order, shape, item)


def pairs(compute: str, a: str, b: str) -> str:
    """Returns the compute type of every item of a with every item of b."""
    return f"(compute {compute} (access-cartesian-product {a} {b}))"


def dot(a: str, b: str, shared: int) -> str:
    """Returns the dot product of the items of a and b, which share that many axes."""
    return f"(compute dot-product (access-product {a} {b} {shared}))"


X, W = access("x", 1), access("w", 1)
MATMUL = pairs("dot-product", X, W)
MATMULS = dot(access("x", 2), access("w", 2), 1)
