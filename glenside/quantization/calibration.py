"""Quantizes float networks: weights by their largest element, activations by their range on data.

Weights have a scale per output channel, and no zero point. Activations have one scale and zero point per tensor, from
the least to the greatest value seen, as in https://arxiv.org/abs/1712.05877.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from glenside.analysis.element_sources import leaves_of, moves
from glenside.builder.layout import split_at
from glenside.builder.pointwise import cast
from glenside.builder.quantization import dequantize, quantize
from glenside.egraph.search import Search
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.names import primed, spelled_name
from glenside.ir.operand import Array
from glenside.ir.operators.requirements import spelled
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, make, postorder, rebuild_all, weave
from glenside.ir.types import Dims, Tensor
from glenside.passes.element_functions import is_one_number, operands_of, pair_of
from glenside.passes.network import fold_batch_norms, uninterrupted
from glenside.quantization.additions import in_ratio
from glenside.quantization.building import BeyondSums
from glenside.quantization.byte_functions import regions, unviewed
from glenside.quantization.dividing import with_inverses
from glenside.quantization.file_nodes import node_names
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.max_pools import fills_with_least
from glenside.quantization.network import integer_network
from glenside.quantization.normalizing import inside, standardisation
from glenside.quantization.values import largest_tensor, name_in, place_of
from glenside.semantics.interpreter import evaluate

_LEVELS, _LOWEST, _LARGEST = 255, -128, 127
_LEAST = 1e-12
"""Tensors smaller than the largest tensor by this factor count as 0."""
_MOST_ADDED = 1 << 30
"""The largest bias, in steps of sums: together with the sums it fits int32."""
_SUMS = ("elementwise-add", "subtract")
_POOLS = ("reduce-mean", "reduce-sum", "reduce-max")


def quantized(
    program: Program,
    constants: Mapping[str, Array] | None = None,
    data: Mapping[str, Array] | None = None,
    seed: int = 0,
    draw: bool = False,
) -> IntegerNetwork:
    """Returns a float network as integer layers: batch norms are folded, and products and average pools read bytes.

      data  input -> samples, (samples ..) for an input (batch ..), in whole batches. Inputs without data get one batch
            of normal random numbers of `seed`, or integers 0: enough to try a machine, too little to measure accuracy
      draw  True: constants without a value are drawn by `seed`

    Raises BadInput: data that does not fit, constants without a value, and refusals of `integer_network`.
    """
    load = cache(partial(_values, program, constants or {}, seed if draw else None))
    folded = uninterrupted(*fold_batch_norms(program.as_written(), Search(meanwhile=load)))
    made = _Quantizing(with_inverses(folded), load())
    made.calibrate(batches_of(folded, data or {}, seed), node_names(program, made.folded))
    try:
        return integer_network(*made.program(), program)
    except BeyondSums as beyond:
        made.coarsen(beyond)  # once: biases have fixed steps afterwards
        return integer_network(*made.program(), program)


def _values(program: Program, given: Mapping[str, Array], seed: int | None) -> dict[str, Array]:
    """Returns the values of all constants; with a seed, missing ones are drawn. Raises BadInput."""
    known = {**(program if seed is None else program.seeded_constants(seed)).constants, **given}
    missing = [name for name in program.constants_declared if name not in known]
    if missing:
        raise BadInput(f"quantizing requires the value of the constant {spelled_name(missing[0])}")
    return known


def batches_of(program: Program, data: Mapping[str, Array], seed: int) -> Iterator[dict[str, Array]]:
    """Yields the inputs of each run: the data in batches."""
    draw, given = np.random.default_rng(seed), dict[str, Array]()
    for name in data:
        if name not in program.inputs:
            raise BadInput(f"data is given for {spelled_name(name)}, which is not an input of the program")
    for name, tensor in program.inputs.items():
        dims = tuple(tensor.dims)
        if name not in data:
            own = draw.standard_normal(dims) if tensor.dtype in FLOATS else np.zeros(dims)
            given[name] = own.astype(tensor.dtype)
            continue
        array = np.asarray(data[name])
        whole = array.ndim == len(dims) and array.shape[1:] == dims[1:] and array.size
        if not whole or (dims and array.shape[0] % dims[0]):
            need = f"(samples {' '.join(map(str, dims[1:]))}), whole batches of {dims[0] if dims else 1}"
            raise BadInput(f"data for {spelled_name(name)} requires shape {need}, got {spelled(array.shape)}")
        if not np.isfinite(array).all():
            raise BadInput(f"data for {spelled_name(name)} requires finite numbers")
        given[name] = array.astype(tensor.dtype)
    count = max((len(given[name]) // program.inputs[name].dims[0] for name in data if given[name].ndim), default=1)
    for run in range(count):
        yield {name: _batch(array, program.inputs[name], run) for name, array in given.items()}


def _batch(array: Array, tensor: Tensor, run: int) -> Array:
    """Returns one batch of the samples, which repeat cyclically."""
    if not array.ndim:
        return array
    size = tensor.dims[0]
    begin = run % (len(array) // size) * size
    return array[begin : begin + size]


@dataclass
class _Quantizing:
    """A network, and the range of each tensor that becomes bytes."""

    folded: Program
    known: Mapping[str, Array]
    ranges: dict[Term, tuple[float, float]] = field(default_factory=dict)
    """The range of a representative of tensors that share one scale: parts of a concatenation, or a maximum and its
    operand.
    """
    representative: dict[Term, Term] = field(default_factory=dict)
    """Tensor -> its representative."""
    inner: set[Term] = field(default_factory=set)
    """Terms inside layer norms."""
    coarser: dict[Term, Array] = field(default_factory=dict)
    """Weights -> the factor by which each channel's step exceeds the one from its own range."""
    ends: set[Term] = field(default_factory=set)
    """Tensors that become bytes themselves rather than as reordered views.

    A function is applied to elements in their own order, so its reordered operands do; so do tensors with constants in
    them.
    """
    gates: list[Term] = field(default_factory=list)
    """Elementwise products of two tensors that change."""

    def __post_init__(self) -> None:
        self.roots = self.folded.roots
        self.constant = self.folded.info.constant
        order = [*postorder(*self.roots)]
        standard = {t: own for t in order if (own := standardisation(t, self.constant)) is not None}
        self.inner = {part for t, own in standard.items() for part in inside(t, own)}
        curves = regions([t for t in order if t not in self.inner and t not in standard], self.constant)
        self.ends = {base for base in curves.values() if moves(base) and len(leaves_of(base)) == 1}
        self.ends |= {t for t in order if t.operator.name == "access-concatenate" and self._has_constants(t)}
        for operand in self._operands():
            self._join(self._leaves(operand))
        for root in _results(self.roots[0]):  # layer norms at the end run on the machine, other functions on the host
            self._join(x for x in self._leaves(root) if _scaled_from(x, self.constant) in standard)
        needed = {*postorder(*self._operands(), *self.representative)}
        order = [t for t in order if t in needed]
        self.gates = [t for t in order if t not in curves and t not in standard and self._is_gate(t)]
        self._join_results([t for t in order if t not in curves], curves, {*self.gates})
        softmaxes = [t.children[0] for t in order if t.attributes[:1] == ("softmax",)]
        bases = [curves[t] for t in order if t in curves]
        gated = (x for t in self.gates for x in operands_of(t) or ())
        for operand in (*(own.base for t, own in standard.items() if t in needed), *bases, *softmaxes, *gated):
            self._join(self._leaves(operand))
        self._join_parts(order)
        self.ranges = {first: (0.0, 0.0) for first in self.representative.values()}
        squared = (x for own in standard.values() if not own.centred for x in self._leaves(own.base))
        self.balanced = {self.representative[x] for x in (*self._multiplied(), *squared) if x in self.representative}

    def _join_results(self, order: Sequence[Term], curves: Container[Term], gates: Container[Term]) -> None:
        """Makes bytes of the results of functions that others read, and of gates that are scaled per channel.

        The weights of a gate cannot absorb the signs of such scales.
        """
        for term in order:
            self._join(x for c in _read(term) if (x := unviewed(c)) in curves)
            below = operands_of(term) or ()
            if any(self.constant[x] and not is_one_number(x) for x in below):
                self._join(x for c in below if (x := unviewed(c)) in gates)

    def _join_parts(self, order: Sequence[Term]) -> None:
        """Gives all parts of a concatenation one scale if one of them is bytes, and a maximum the scale of its
        operand.
        """
        for term in order:
            if term.operator.name == "access-concatenate":
                leaves = [x for x in self._leaves(term) if not self.constant[x]]
                if any(x in self.representative for x in leaves):
                    self._join(leaves)
        for term in postorder(*self.roots):
            if term in self.representative and term.attributes[:1] == ("reduce-max",):
                self._join([term, *self._leaves(term.children[0])])

    def _multiplied(self) -> Iterator[Term]:
        """Yields operands of products in which both operands change: zero points of both would need unknown sums."""
        for term in postorder(*self.roots):
            both = term.children[0].children if is_product(term) else ()
            if both and not any(self.constant[c] for c in both):
                yield from (leaf for c in both for leaf in self._leaves(c))
        yield from (leaf for t in self.gates for c in operands_of(t) or () for leaf in self._leaves(c))

    def _has_constants(self, term: Term) -> bool:
        """True if it joins constants and others."""
        return len({self.constant[c] for c in term.children}) > 1

    def _is_gate(self, term: Term) -> bool:
        """True if two tensors that change are multiplied elementwise."""
        both = operands_of(term) if term.attributes[:1] == ("elementwise-mul",) and term not in self.inner else None
        return both is not None and not any(self.constant[x] for x in both)

    def _join(self, leaves: Iterable[Term]) -> None:
        """Gives these tensors one scale, together with those that share a scale with any of them."""
        changing = [x for x in leaves if not self.constant[x] and x.access.dtype in FLOATS]
        firsts = {self.representative.setdefault(x, x) for x in changing}
        for x in [x for x, first in self.representative.items() if first in firsts]:
            self.representative[x] = changing[0]

    def _operands(self) -> Iterator[Term]:
        """Yields the operands of products and average pools."""
        for term in postorder(*self.roots):
            if term in self.inner:
                continue
            if is_product(term) and term.children[0].operator.name == "access-product":
                yield from term.children[0].children
            elif term.operator.name == "compute" and term.attributes[0] in _POOLS:
                yield term.children[0]
            else:
                yield from self._added(term)

    def _leaves(self, operand: Term) -> Iterator[Term]:
        """Yields the tensors that movement, including that of max-pools, makes an operand of."""
        for leaf in leaves_of(operand, self.ends):
            if fills_with_least(leaf):
                yield from self._leaves(leaf.children[0])
            else:
                yield leaf

    def _added(self, term: Term) -> tuple[Term, ...]:
        """Returns the operands of an addition of two tensors, as in residual connections."""
        pair = pair_of(term) if term.operator.name == "compute" and term.attributes[0] in _SUMS else None
        both = pair is not None and not any(self.constant[c] for c in pair.children)
        return pair.children if pair is not None and both else ()

    def calibrate(self, runs: Iterator[dict[str, Array]], nodes: Callable[[Term], str]) -> None:
        """Records the range of each tensor. Raises BadInput, with the place and the file's node, for values not
        finite.
        """
        layers = {term: name for name, term in reversed(list(self.folded.layers.items()))}

        def see(term: Term, value: Array) -> None:
            first = self.representative[term]
            low, high = self.ranges[first]
            least, most = float(np.min(value)), float(np.max(value))
            if not np.isfinite([least, most]).all():
                place = place_of(term, layers, self.constant, nodes(term))
                raise BadInput(f"{place}: quantized numbers must be finite, got {least:g} to {most:g}")
            self.ranges[first] = min(low, least), max(high, most)

        for values in runs:
            evaluate([*self.representative], {**self.known, **values}, watch=see)
        for first in self.balanced:
            most = max(map(abs, self.ranges[first])) / _LARGEST
            self.ranges[first] = _LOWEST * most, _LARGEST * most

    def coarsen(self, beyond: BeyondSums) -> None:
        """Enlarges the steps of channels whose bias exceeds int32 in steps of their sums. Raises BadInput.

        Such a bias is large relative to the weights, as where a batch norm left almost nothing of them.
        """
        for name, shift in beyond.shifts.items():
            product = self.folded.layers.get(name)
            own = None if product is None else _weights(product, self.constant)
            if product is None or own is None or shift.ndim not in (0, product.access.rank):
                raise beyond
            operand, axes = own
            added = np.abs(np.broadcast_to(shift, tuple(product.access.dims)))
            most = added.max(tuple(axis for axis in range(added.ndim) if axis not in axes))
            steps = np.maximum(1, most / _MOST_ADDED)
            self.coarser[operand] = steps.reshape(steps.shape + (1,) * (operand.access.rank - steps.ndim))

    def _steps(self) -> dict[Term, float]:
        """Returns the scale of each tensor; addends get scales in a ratio of small integers."""
        found = {first: (high - low) / _LEVELS for first, (low, high) in self.ranges.items()}
        largest = max(found.values(), default=0) or 1
        found = {first: step if step > _LEAST * largest else largest for first, step in found.items()}
        fixed: set[Term] = set()
        for term in postorder(*self.roots):
            leaves = [
                self.representative[x]
                for operand in (() if term in self.inner else self._added(term))
                for x in self._leaves(operand)
                if x in self.representative
            ]
            for first in leaves[1:]:
                if first not in fixed:
                    found[first] = in_ratio(found[first], found[leaves[0]])
            fixed |= {*leaves}
        return found

    def program(self) -> tuple[Program, Mapping[str, Array]]:
        """Returns the network with quantized and dequantized tensors, and all its constants."""
        weights = dict.fromkeys(x for x in self._operands() if self.constant[x] and x.access.dtype in FLOATS)
        kept = postorder(*self.roots, without=weights)
        taken = {name_in(term) for term in kept if term.operator.name == "access-tensor"}
        known, done = dict(self.known), dict[Term, Term]()
        for operand in weights:
            values = np.asarray(evaluate([operand], self.known)[0], np.float64)
            done[operand] = _by_channel(operand, values, known, taken, self.coarser.get(operand, np.ones(())))

        steps = self._steps()

        def changed(term: Term, children: tuple[Term, ...]) -> Term | None:
            first = self.representative.get(term)
            if first is None:
                return None
            own = make(term.operator, weave(term.operator, children, term.attributes))
            return _dequantized(own, self.ranges[first][0], steps[first])

        found = rebuild_all(self.roots, changed, done)
        program = self.folded.with_roots(found, constants={})
        return program, {name: known[name] for name in program.constants_declared}


def _read(term: Term) -> Iterator[Term]:
    """Yields the operands of a term, through pairs."""
    for child in term.children:
        yield from child.children if child.operator.name == "access-product" else (child,)


def _results(root: Term) -> Sequence[Term]:
    return root.children if root.operator.name == "construct-tuple" else (root,)


def _scaled_from(term: Term, constant: Mapping[Term, bool]) -> Term:
    """Returns the term below additions of, and multiplications by, constants."""
    while (below := operands_of(term)) is not None and sum(not constant[x] for x in below) == 1:
        (term,) = (x for x in below if not constant[x])
    return term


def _weights(product: Term, constant: Mapping[Term, bool]) -> tuple[Term, list[int]] | None:
    """Returns the constant operand of a product, and the axes of the product that are its shape."""
    pair = product.children[0]
    if not is_product(product) or pair.operator.name != "access-product":
        return None
    a, b = pair.children
    shared, rank = int(str(pair.attributes[-1])), product.access.rank
    if constant[b] and not constant[a]:
        return b, [*range(shared), *range(rank - (b.access.split - shared), rank)]
    return (a, [*range(a.access.split)]) if constant[a] and not constant[b] else None


def _by_channel(operand: Term, values: Array, known: dict[str, Array], taken: set[str], coarser: Array) -> Term:
    """Returns constant weights, (channels)(item), as int8 with a scale per channel; adds these constants to `known`."""
    split = operand.access.split
    if not np.isfinite(values).all():
        raise BadInput(f"weights must be finite, and those of {spelled_name(largest_tensor(operand))} are not")
    item = tuple(range(split, values.ndim))
    least, most = values.min(item, keepdims=True, initial=0), values.max(item, keepdims=True, initial=0)
    largest = np.maximum(-least, most)
    scale = (np.where(largest > 0, largest / _LARGEST, 1) * coarser).astype(np.float32)
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    name = primed(largest_tensor(operand), taken)
    of_scale = primed(f"{name}.scale", {*taken, name})
    taken |= {name, of_scale}
    steps = values / scale
    np.clip(np.rint(steps, out=steps), -_LARGEST, _LARGEST, out=steps)
    whole = _constant(name, steps.astype(np.int8), known)
    by = _constant(of_scale, scale, known)
    return split_at(cast(dequantize(whole, by, None), operand.access.dtype), split)


def _constant(name: str, values: Array, known: dict[str, Array]) -> Term:
    known[name] = values
    return build("access-tensor", Tensor(name, Dims(values.shape), values.dtype.name, constant=True))


def _dequantized(x: Term, low: float, step: float) -> Term:
    """Quantizes a tensor to bytes that begin at about `low`, and dequantizes it."""
    zero = int(np.clip(np.rint(_LOWEST - low / step), _LOWEST, _LARGEST))
    scale, point = build("full", (), repr(float(np.float32(step))), "float32"), build("full", (), zero, "int8")
    real = dequantize(quantize(cast(x, "float32"), scale, point, "int8"), scale, point)
    return split_at(cast(real, x.access.dtype), x.access.split)
