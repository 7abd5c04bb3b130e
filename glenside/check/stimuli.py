"""The random numbers that two programs are compared on."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, postorder, tensors
from glenside.ir.types import FLOATS, Tensor, TupleType, Type
from glenside.semantics import Native


def declared(*roots: Term) -> dict[str, Tensor]:
    """The tensors that the terms read. Raises BadInput when two of one name differ."""
    found: dict[str, Tensor] = {}
    for leaf in tensors(*roots):
        tensor = leaf.attributes[0]
        assert isinstance(tensor, Tensor)
        known = found.setdefault(tensor.name, tensor)
        if known != tensor:
            raise BadInput(f"a check requires both programs to declare {tensor.name} alike, got {known} and {tensor}")
    return found


def dtypes(kind: Type) -> Iterable[str]:
    """The dtypes of a term's type."""
    return [d for item in kind.items for d in dtypes(item)] if isinstance(kind, TupleType) else [kind.dtype]


def is_real(*roots: Term) -> bool:
    """Whether floats occur anywhere."""
    return any(dtype in FLOATS for term in postorder(*roots) for dtype in dtypes(term.type))


def index_limits(*roots: Term) -> dict[str, int]:
    """Tensors that serve as indices -> the size of the smallest axis that they pick from."""
    limits: dict[str, int] = {}
    for indices, size in _picks(*roots):
        for name in declared(indices):
            limits[name] = min(size, limits.get(name, size))
    return limits


def opaque_limit(*roots: Term) -> int:
    """What all whole numbers of black boxes must be below: some may serve as indices."""
    sizes = [size for indices, size in _picks(*roots) if any(t.operator.opaque for t in postorder(indices))]
    return max(1, min([Native.opaque_below, *sizes]))


def _picks(*roots: Term) -> Iterator[tuple[Term, int]]:
    """Terms of indices, with the sizes of the axes that they pick from."""
    for term in postorder(*roots):
        arguments = dict(zip((f.name for f in term.operator.fields), term.arguments(), strict=False))
        if "indices" in arguments:
            yield arguments["indices"], _picked_size(arguments)


def _picked_size(arguments: Mapping[str, Any]) -> int:
    """The smallest axis that indices pick from: the one that is named, or those that each place has a number for."""
    dims = arguments["a"].access.dims
    if "axis" in arguments:
        return int(dims[arguments["axis"]])
    first, count = arguments["shared"], arguments["indices"].access.dims[-1]
    return int(min(dims[first : first + count]))


def _stream(seed: int, salt: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, salt, zlib.crc32(name.encode())])


def draw_integers(tensor: Tensor, seed: int, limit: int | None = None) -> Array:
    """Integers over the full range of the dtype, or valid indices below a limit."""
    rng = _stream(seed, 0, tensor.name)
    if tensor.dtype == "bool":
        return rng.integers(0, 2, tensor.dims, dtype=np.bool_)
    dtype = np.dtype(tensor.dtype)
    if limit is not None:
        return rng.integers(0, max(1, min(limit, int(np.iinfo(dtype).max))), tensor.dims).astype(dtype)
    bounds = np.iinfo(dtype)
    return rng.integers(bounds.min, bounds.max, tensor.dims, dtype, endpoint=True)


def draw_residues(declarations: Mapping[str, Tensor], limits: Mapping[str, int], seed: int, p: int) -> dict[str, Array]:
    """Residues modulo p, as signed representatives, for floats; integers for the rest."""
    half = (p - 1) // 2

    def draw(tensor: Tensor) -> Array:
        if tensor.dtype not in FLOATS:
            return draw_integers(tensor, seed, limits.get(tensor.name))
        residues = _stream(seed, p, tensor.name).integers(-half, half, tensor.dims, np.int32, endpoint=True)
        return residues.astype(np.float32)

    return {name: draw(tensor) for name, tensor in declarations.items()}


def draw_reals(tensor: Tensor, seed: int, limit: int | None = None) -> Array:
    """Normal values for floats; integers for the rest."""
    if tensor.dtype not in FLOATS:
        return draw_integers(tensor, seed, limit)
    return _stream(seed, 1, tensor.name).standard_normal(tensor.dims).astype(tensor.dtype)
