"""Networks of floats as networks of bytes: weights by their largest element, activations by what data makes of them.

Weights have a scale for each output channel, and no zero point; activations one scale and zero point for each tensor,
from the least to the greatest value seen, as in https://arxiv.org/abs/1712.05877.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from glenside.analysis.places import leaves_of, moves
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
from glenside.ir.term import Term, build, constants_under, make, postorder, rebuild_all, weave
from glenside.ir.types import Dims, Tensor
from glenside.passes.element_functions import is_one_number, operands_of, pair_of
from glenside.passes.network import fold_batch_norms, uninterrupted
from glenside.quantization.additions import in_ratio
from glenside.quantization.building import BeyondSums
from glenside.quantization.curves import regions, unviewed
from glenside.quantization.dividing import with_inverses
from glenside.quantization.file_nodes import node_names
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.maxima import fills_with_least
from glenside.quantization.network import integer_network
from glenside.quantization.normalizing import inside, standardisation
from glenside.quantization.values import largest_tensor, name_in, place_of
from glenside.semantics.interpreter import evaluate

_LEVELS, _LOWEST, _LARGEST = 255, -128, 127
_LEAST = 1e-12
"""What is smaller than the largest tensor by that is 0."""
_MOST_ADDED = 1 << 30
"""Steps of sums that are added to them, at most: with the sums themselves they fit int32."""
_SUMS = ("elementwise-add", "subtract")
_POOLS = ("reduce-mean", "reduce-sum", "reduce-max")


def quantized(
    program: Program,
    constants: Mapping[str, Array] | None = None,
    data: Mapping[str, Array] | None = None,
    seed: int = 0,
    draw: bool = False,
) -> IntegerNetwork:
    """A network of floats as integer layers: batch norms are folded, and what products and average pools read is bytes.

    data  input -> samples, (samples ..) where the input is (batch ..), whole batches. Those that are not given are one
          batch of normal random numbers of that seed, or of integers 0: enough to try a machine, too little to trust it
    draw  whether constants without a value are drawn by that seed

    Raises BadInput: data that does not fit, constants without a value, and what `integer_network` refuses.
    """
    load = cache(partial(_values, program, constants or {}, seed if draw else None))
    folded = uninterrupted(*fold_batch_norms(program.as_written(), Search(meanwhile=load)))
    made = _Quantizing(with_inverses(folded), load())
    made.calibrate(batches_of(folded, data or {}, seed), node_names(program, made.folded))
    try:
        return integer_network(*made.program(), program)
    except BeyondSums as beyond:
        made.coarsen(beyond)  # once: what is added is in steps that are fixed then
        return integer_network(*made.program(), program)


def _values(program: Program, given: Mapping[str, Array], seed: int | None) -> dict[str, Array]:
    """Of all constants; those without one are drawn where there is a seed for them. Raises BadInput."""
    known = {**(program if seed is None else program.seeded_constants(seed)).constants, **given}
    missing = [name for name in program.constants_declared if name not in known]
    if missing:
        raise BadInput(f"quantizing requires the value of the constant {spelled_name(missing[0])}")
    return known


def batches_of(program: Program, data: Mapping[str, Array], seed: int) -> Iterator[dict[str, Array]]:
    """The inputs of each run: the data in batches."""
    draw, given = np.random.default_rng(seed), dict[str, Array]()
    for name in data:
        if name not in program.inputs:
            raise BadInput(f"data is given for {spelled_name(name)}, which is no input of the program")
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
    """One batch of the samples, which begin again at their end."""
    if not array.ndim:
        return array
    size = tensor.dims[0]
    begin = run % (len(array) // size) * size
    return array[begin : begin + size]


@dataclass
class _Quantizing:
    """A network, and the least and the greatest value of each tensor that is to be bytes."""

    folded: Program
    known: Mapping[str, Array]
    ranges: dict[Term, tuple[float, float]] = field(default_factory=dict)
    """Of one of those tensors that have one scale: they are joined, or a maximum is taken of one."""
    alike: dict[Term, Term] = field(default_factory=dict)
    """Tensor -> that one."""
    inner: set[Term] = field(default_factory=set)
    """What layer norms are made of."""
    coarser: dict[Term, Array] = field(default_factory=dict)
    """Weights -> how many times as large as by their own numbers the steps of each channel are."""
    ends: set[Term] = field(default_factory=set)
    """Tensors that others are in another order, of which functions are taken: these are bytes, for a function knows no
    other place than its own. And those that have constants among them: these are bytes like the others then."""
    gates: list[Term] = field(default_factory=list)
    """Products of two tensors that change, element by element."""

    def __post_init__(self) -> None:
        self.roots = self.folded.roots
        self.constant = constants_under(*self.roots)
        order = [*postorder(*self.roots)]
        standard = {t: own for t in order if (own := standardisation(t, self.constant)) is not None}
        self.inner = {part for t, own in standard.items() for part in inside(t, own)}
        curves = regions([t for t in order if t not in self.inner and t not in standard], self.constant)
        self.ends = {base for base in curves.values() if moves(base) and len(leaves_of(base)) == 1}
        self.ends |= {t for t in order if t.operator.name == "access-concatenate" and self._has_constants(t)}
        for operand in self._operands():
            self._join(self._leaves(operand))
        for root in _results(self.roots[0]):  # layer norms at the end are the machine's, and other functions the host's
            self._join(x for x in self._leaves(root) if _scaled_from(x, self.constant) in standard)
        needed = {*postorder(*self._operands(), *self.alike)}
        order = [t for t in order if t in needed]
        self.gates = [t for t in order if t not in curves and t not in standard and self._is_gate(t)]
        self._join_results([t for t in order if t not in curves], curves, {*self.gates})
        softmaxes = [t.children[0] for t in order if t.attributes[:1] == ("softmax",)]
        bases = [curves[t] for t in order if t in curves]
        gated = (x for t in self.gates for x in operands_of(t) or ())
        for operand in (*(own.base for t, own in standard.items() if t in needed), *bases, *softmaxes, *gated):
            self._join(self._leaves(operand))
        self._join_parts(order)
        self.ranges = {first: (0.0, 0.0) for first in self.alike.values()}
        squared = (x for own in standard.values() if not own.centred for x in self._leaves(own.base))
        self.balanced = {self.alike[x] for x in (*self._multiplied(), *squared) if x in self.alike}

    def _join_results(self, order: Sequence[Term], curves: Container[Term], gates: Container[Term]) -> None:
        """Results that are bytes of their own: of functions, for what is none of them; and of gates, for what takes
        channels times a number each, whose sign no weights of a gate take.
        """
        for term in order:
            self._join(x for c in _read(term) if (x := unviewed(c)) in curves)
            below = operands_of(term) or ()
            if any(self.constant[x] and not is_one_number(x) for x in below):
                self._join(x for c in below if (x := unviewed(c)) in gates)

    def _join_parts(self, order: Sequence[Term]) -> None:
        """What is joined is bytes, or sums, all of it; and a maximum has the scale of what it is taken of."""
        for term in order:
            if term.operator.name == "access-concatenate":
                leaves = [x for x in self._leaves(term) if not self.constant[x]]
                if any(x in self.alike for x in leaves):
                    self._join(leaves)
        for term in postorder(*self.roots):
            if term in self.alike and term.attributes[:1] == ("reduce-max",):
                self._join([term, *self._leaves(term.children[0])])

    def _multiplied(self) -> Iterator[Term]:
        """What is multiplied by what changes too: zero points of both would take sums that are not known before."""
        for term in postorder(*self.roots):
            both = term.children[0].children if is_product(term) else ()
            if both and not any(self.constant[c] for c in both):
                yield from (leaf for c in both for leaf in self._leaves(c))
        yield from (leaf for t in self.gates for c in operands_of(t) or () for leaf in self._leaves(c))

    def _has_constants(self, term: Term) -> bool:
        """Whether it is made of constants and others."""
        return len({self.constant[c] for c in term.children}) > 1

    def _is_gate(self, term: Term) -> bool:
        """Whether two tensors that change are multiplied, element by element."""
        both = operands_of(term) if term.attributes[:1] == ("elementwise-mul",) and term not in self.inner else None
        return both is not None and not any(self.constant[x] for x in both)

    def _join(self, leaves: Iterable[Term]) -> None:
        """These have one scale, and those that have one with any of them."""
        changing = [x for x in leaves if not self.constant[x] and x.access.dtype in FLOATS]
        firsts = {self.alike.setdefault(x, x) for x in changing}
        for x in [x for x, first in self.alike.items() if first in firsts]:
            self.alike[x] = changing[0]

    def _operands(self) -> Iterator[Term]:
        """What products and average pools read."""
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
        """What an operand is made of by moves, also those of max-pools."""
        for leaf in leaves_of(operand, self.ends):
            if fills_with_least(leaf):
                yield from self._leaves(leaf.children[0])
            else:
                yield leaf

    def _added(self, term: Term) -> tuple[Term, ...]:
        """Two tensors that are added, as residual connections do."""
        pair = pair_of(term) if term.operator.name == "compute" and term.attributes[0] in _SUMS else None
        both = pair is not None and not any(self.constant[c] for c in pair.children)
        return pair.children if pair is not None and both else ()

    def calibrate(self, runs: Iterator[dict[str, Array]], nodes: Callable[[Term], str]) -> None:
        """See what values tensors take. Raises BadInput, which names the place and the node of the file, where they are
        not finite.
        """
        layers = {term: name for name, term in reversed(list(self.folded.layers.items()))}

        def see(term: Term, value: Array) -> None:
            first = self.alike[term]
            low, high = self.ranges[first]
            least, most = float(np.min(value)), float(np.max(value))
            if not np.isfinite([least, most]).all():
                place = place_of(term, layers, self.constant, nodes(term))
                raise BadInput(f"{place}: numbers that are quantized are finite, got {least:g} to {most:g}")
            self.ranges[first] = min(low, least), max(high, most)

        for values in runs:
            evaluate([*self.alike], {**self.known, **values}, watch=see)
        for first in self.balanced:
            most = max(map(abs, self.ranges[first])) / _LARGEST
            self.ranges[first] = _LOWEST * most, _LARGEST * most

    def coarsen(self, beyond: BeyondSums) -> None:
        """Larger steps for channels to which more is added than int32 holds in steps of their sums: what is added is
        that much more than their weights, as where a batch norm left next to nothing of them. Raises BadInput.
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
        """The scale of each tensor. What is added to another one has a scale in a ratio of small numbers to its."""
        found = {first: (high - low) / _LEVELS for first, (low, high) in self.ranges.items()}
        largest = max(found.values(), default=0) or 1
        found = {first: step if step > _LEAST * largest else largest for first, step in found.items()}
        fixed: set[Term] = set()
        for term in postorder(*self.roots):
            leaves = [
                self.alike[x]
                for operand in (() if term in self.inner else self._added(term))
                for x in self._leaves(operand)
                if x in self.alike
            ]
            for first in leaves[1:]:
                if first not in fixed:
                    found[first] = in_ratio(found[first], found[leaves[0]])
            fixed |= {*leaves}
        return found

    def program(self) -> tuple[Program, Mapping[str, Array]]:
        """The network with what is to be bytes quantized and dequantized, and all its constants."""
        weights = dict.fromkeys(x for x in self._operands() if self.constant[x] and x.access.dtype in FLOATS)
        kept = postorder(*self.roots, without=weights)
        taken = {name_in(term) for term in kept if term.operator.name == "access-tensor"}
        known, done = dict(self.known), dict[Term, Term]()
        for operand in weights:
            values = np.asarray(evaluate([operand], self.known)[0], np.float64)
            done[operand] = _by_channel(operand, values, known, taken, self.coarser.get(operand, np.ones(())))

        steps = self._steps()

        def changed(term: Term, children: tuple[Term, ...]) -> Term | None:
            first = self.alike.get(term)
            if first is None:
                return None
            own = make(term.operator, weave(term.operator, children, term.attributes))
            return _dequantized(own, self.ranges[first][0], steps[first])

        found = rebuild_all(self.roots, changed, done)
        program = self.folded.with_roots(found, constants={})
        return program, {name: known[name] for name in program.constants_declared}


def _read(term: Term) -> Iterator[Term]:
    """What a term reads, through pairs."""
    for child in term.children:
        yield from child.children if child.operator.name == "access-product" else (child,)


def _results(root: Term) -> Sequence[Term]:
    return root.children if root.operator.name == "construct-tuple" else (root,)


def _scaled_from(term: Term, constant: Mapping[Term, bool]) -> Term:
    """What a term is with constants added to it, or multiplied by them."""
    while (below := operands_of(term)) is not None and sum(not constant[x] for x in below) == 1:
        (term,) = (x for x in below if not constant[x])
    return term


def _weights(product: Term, constant: Mapping[Term, bool]) -> tuple[Term, list[int]] | None:
    """The operand of a product that is constant, and the axes of the product that are those of its shape."""
    pair = product.children[0]
    if not is_product(product) or pair.operator.name != "access-product":
        return None
    a, b = pair.children
    shared, rank = int(str(pair.attributes[-1])), product.access.rank
    if constant[b] and not constant[a]:
        return b, [*range(shared), *range(rank - (b.access.split - shared), rank)]
    return (a, [*range(a.access.split)]) if constant[a] and not constant[b] else None


def _by_channel(operand: Term, values: Array, known: dict[str, Array], taken: set[str], coarser: Array) -> Term:
    """Constant weights, (channels)(item), as int8 and a scale of each channel; what those are is `known` then."""
    split = operand.access.split
    if not np.isfinite(values).all():
        raise BadInput(f"weights are finite numbers, which {spelled_name(largest_tensor(operand))} are not")
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
    """A tensor of bytes from about that number on, and what they stand for."""
    zero = int(np.clip(np.rint(_LOWEST - low / step), _LOWEST, _LARGEST))
    scale, point = build("full", (), repr(float(np.float32(step))), "float32"), build("full", (), zero, "int8")
    real = dequantize(quantize(cast(x, "float32"), scale, point, "int8"), scale, point)
    return split_at(cast(real, x.access.dtype), x.access.split)
