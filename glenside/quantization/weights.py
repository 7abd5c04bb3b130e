"""Rounds the weights of products to few bits; activations and sums stay floats."""

from __future__ import annotations

import numpy as np

from glenside.builder.layout import broadcast, reshape, split_at
from glenside.builder.pointwise import cast, multiply
from glenside.ir.dtypes import limits
from glenside.ir.errors import BadInput
from glenside.ir.names import primed, suggestion
from glenside.ir.operand import Array
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, rebuild_all, tensors
from glenside.ir.types import Dims, Tensor
from glenside.semantics.interpreter import evaluate

_DTYPES = ("int4", "int8")
_LEAST_ELEMENTS = 1 << 12
"""The fewest elements of weights that are rounded."""
_LEAST_BLOCK = 8
_LEAST_NORMAL = 2.0**-14
"""The least float16 with all its digits."""


def quantize_weights(program: Program, dtype: str = "int4", block: int = 32) -> Program:
    """Rounds constant weights of products to integers, with a scale for each block of reduction steps.

    program  a program with the values of its constants
    dtype    "int4" or "int8"
    block    the steps of a product that share a scale; it divides the depth of each product

    Weights (rows)(depth) become integers (rows depth/block block) times scales (rows depth/block 1), the largest
    magnitude of a block over the largest integer, in float16 if all are in its range. The result computes something
    else: an element of the weights changes by half a scale at most. Weights of convolutions and those with fewer than
    4,096 elements stay as they are. `gl.compile` keeps the integers in memory. Raises BadInput.
    """
    if not isinstance(program, Program):
        raise BadInput(f"quantize_weights takes a program, got {type(program).__name__}")
    if dtype not in _DTYPES:
        raise BadInput(f"weights are rounded to {' or '.join(_DTYPES)}, got {dtype!r}{suggestion(dtype, _DTYPES)}")
    if isinstance(block, bool) or not isinstance(block, int) or block < _LEAST_BLOCK:
        raise BadInput(f"a block has at least {_LEAST_BLOCK} steps, got {block!r}")
    missing = [name for name in program.constants_declared if name not in program.constants]
    if missing:
        raise BadInput(f"rounding weights requires the values of constants, got none of {', '.join(missing)}")
    constant, values = program.info.constant, dict[str, Array]()
    taken = {t.name for leaf in tensors(*program.roots) for t in leaf.attributes if isinstance(t, Tensor)}
    found: dict[Term, Term] = {}

    def rounded(operand: Term) -> Term:
        if operand not in found:
            found[operand] = _rounded(operand, program, dtype, block, taken, values)
        return found[operand]

    def replaced(term: Term, children: tuple[Term, ...]) -> Term | None:
        given = term.children[0].children if is_product(term) else ()
        if len(given) != 2 or sum(constant[operand] for operand in given) != 1:
            return None
        (pair,) = children
        own = [rounded(a) if constant[a] and _is_large(a) else b for a, b in zip(given, pair.children, strict=True)]
        return build("compute", "dot-product", build("access-product", *own, *pair.attributes))

    roots = rebuild_all(program.roots, replaced)
    if not values:
        raise BadInput(f"{program.name} has no product with constant weights of {_LEAST_ELEMENTS:,} elements or more")
    kept = {name: program.constants[name] for name in Program(roots[0]).constants_declared if name in program.constants}
    return program.with_roots(roots, constants={**kept, **values})


def _is_large(operand: Term) -> bool:
    access = operand.access
    return len(access.item) == 1 and access.dtype == "float32" and access.size >= _LEAST_ELEMENTS


def _rounded(
    operand: Term, program: Program, dtype: str, block: int, taken: set[str], values: dict[str, Array]
) -> Term:
    """Returns weights (rows)(depth) as integers times scales; adds both to `values`."""
    rows, (depth,) = operand.access.shape, operand.access.item
    name = next((t.name for leaf in tensors(operand) for t in leaf.attributes if isinstance(t, Tensor)), "weights")
    if depth % block:
        raise BadInput(f"a block of {block} does not divide the {depth} steps of the product with {name}")
    blocks = np.asarray(evaluate([operand], program.constants)[0]).reshape(*rows, depth // block, block)
    if not np.isfinite(blocks).all():
        raise BadInput(f"the weights {name} must be finite to be rounded")
    least, most = limits(dtype)
    scales = np.abs(blocks).max(-1, keepdims=True) / np.float32(most)
    scales[scales == 0] = 1
    if scales.min() >= _LEAST_NORMAL and scales.max() <= np.finfo(np.float16).max:
        scales = scales.astype(np.float16)
    integers = np.clip(np.rint(blocks / scales.astype(np.float32)), least, most)

    def leaf(suffix: str, value: Array) -> Term:
        own = primed(f"{name}.{suffix}", taken)
        taken.add(own)
        values[own] = value
        return build("access-tensor", Tensor(own, Dims(value.shape), str(value.dtype), constant=True))

    scaled = multiply(
        cast(leaf("integers", integers.astype(dtype)), "float32"),
        broadcast(cast(leaf("scales", scales), "float32"), blocks.shape),
    )
    return split_at(reshape(scaled, (*rows, depth)), len(rows))
