"""Rounds the activations of products with weights of 4 and 8 bits to int8, a block of steps at a time: on request.

    x (rows)(blocks steps) becomes q s, with s = largest magnitude of a block / 127 and q = round(x / s)

The products are then of integers. The result is another one: an element changes by half a scale at most.
"""

from __future__ import annotations

from dataclasses import replace

from glenside.builder.layout import broadcast, split_at
from glenside.builder.pointwise import cast, combine, compute, divide, filled, multiply
from glenside.builder.reductions import reduce_axes
from glenside.codegen.lowering.quantized_weights import is_stored_so, with_quantized_weights
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, rebuild_all

ACTIVATIONS = ("float32", "int8")
_MOST = 127
_LEAST_MAGNITUDE = "1e-30"
"""Magnitudes below are rounded to 0: the inverse of their scale would not be finite."""
_DEEP = 4
"""Steps of a block that an instruction adds: blocks of other lengths stay floats."""


def with_activations(program: Program, dtype: str, *, require: bool = True) -> Program:
    """Rounds activations of products with weights of few bits to a dtype of `ACTIVATIONS`; float32 keeps them.

    A remark of the program gives the number of products, and the bound of the error. Raises BadInput if there is none,
    unless `require` is False.
    """
    if dtype not in ACTIVATIONS:
        raise BadInput(
            f"activations are {' or '.join(ACTIVATIONS)}, got {dtype!r}{suggestion(str(dtype), ACTIVATIONS)}"
        )
    if dtype == ACTIVATIONS[0]:
        return program
    if missing := [name for name in program.constants_declared if name not in program.constants]:
        raise BadInput(f"rounding activations requires the values of constants, got none of {', '.join(missing)}")
    program, found, count = with_quantized_weights(program), dict[Term, Term](), 0

    def replaced(term: Term, children: tuple[Term, ...]) -> Term | None:
        nonlocal count
        given = term.children[0].children if is_product(term) else ()
        if len(given) != 2 or not any(map(_is_weights, given)):
            return None
        (pair,) = children
        other, weights = pair.children if _is_weights(given[1]) else pair.children[::-1]
        if other not in found:
            found[other] = _rounded(other)
        own = (found[other], weights) if weights is pair.children[1] else (weights, found[other])
        count += 1
        return build("compute", "dot-product", build("access-product", *own, *pair.attributes))

    roots = rebuild_all(program.roots, replaced)
    if not count and not require:
        return program
    if not count:
        raise BadInput(
            "activations are rounded to int8 for products with weights of 4 or 8 bits, of at least 4,096 elements and "
            f"16 columns, in blocks of a multiple of {_DEEP} steps, and {program.name} has none: gl.quantize_weights "
            "rounds weights"
        )
    products = "product is" if count == 1 else "products are"
    said = (
        f"the activations of {count} {products} rounded to int8, by the blocks of the weights: an element changes by "
        f"at most 1/{2 * _MOST - 1} of the largest magnitude of its block"
    )
    signature = replace(program.signature, remarks=(*program.signature.remarks, said))
    return program.with_roots(roots, signature=signature)


def is_symmetric(term: Term) -> bool:
    """True if a term casts to int8 what it has clamped to -127..127: its negative is int8 too."""
    if term.operator.name != "cast" or term.access.dtype != "int8":
        return False
    value, ends = term.children[0], dict[str, str]()
    while value.operator.name == "compute" and value.attributes[0] in ("minimum", "maximum"):
        kind, pair = value.attributes[0], value.children[0].children
        if len(pair) != 2 or pair[1].operator.name != "full":
            return False
        value, ends[str(kind)] = pair[0], str(pair[1].attributes[1])
    return ends == {"minimum": f"{_MOST}", "maximum": f"-{_MOST}"}


def _is_weights(operand: Term) -> bool:
    return is_stored_so(operand) and operand.access.dims[-1] % _DEEP == 0


def _rounded(x: Term) -> Term:
    """Returns x (rows)(blocks steps) as int8 times a scale for each block."""
    dims, last = x.access.dims, x.access.rank - 1
    flat = split_at(x, len(dims))
    largest = reduce_axes("reduce-max", compute("abs", flat), [last], keep=True)
    largest = combine("maximum", largest, filled(largest, _LEAST_MAGNITUDE))
    inverse = divide(filled(largest, _MOST), largest)
    rounded = compute("round", multiply(flat, broadcast(inverse, dims)))
    least = combine("maximum", rounded, filled(rounded, -_MOST))
    integers = cast(combine("minimum", least, filled(rounded, _MOST)), "int8")
    scale = divide(largest, filled(largest, _MOST))
    return split_at(multiply(cast(integers, "float32"), broadcast(scale, dims)), x.access.split)
