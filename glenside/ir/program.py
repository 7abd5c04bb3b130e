"""Defines programs: a term, the names of its layers, and the values of its constants."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from glenside.ir.dtypes import DTYPES, FLOATS, REALS, limits, wider
from glenside.ir.errors import BadInput
from glenside.ir.names import numbered, spelled_name, suggestion
from glenside.ir.operand import Array, as_array
from glenside.ir.operators.requirements import spelled
from glenside.ir.program_info import ProgramInfo
from glenside.ir.term import Replace, Term, build, items_of, postorder, rebuild_all, tensors
from glenside.ir.types import Tensor, TupleType


def is_product(term: Term) -> bool:
    """True if the term is the product of a layer: (compute dot-product ..)."""
    return term.operator.name == "compute" and term.attributes[0] == "dot-product"


def default_layer_name(position: int) -> str:
    """Returns the default name of the n-th product of a program, counted from 1 in network order."""
    return f"product-{position}"


@dataclass(frozen=True)
class Signature:
    """The interface of the file that a program came from, on which its other readers rely.

    inputs   in their order, also unused ones. A program completes them: undeclared inputs of its term follow in order
             of first use, so that `replace(program, term=..)` keeps the order of arguments
    outputs  the names of the results, in their order; empty if they have none
    values   of its inputs that are constants of the program
    fixed    constants that are not weights: all but the initializers that have axes
    remarks  messages to the user about how the file was read
    """

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[str, ...] = ()
    values: Mapping[str, Array] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    fixed: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Program:
    """A term with its names and constants.

      layers     name -> node in network order. In a program as written these are all of its products; unnamed products
                 get a default name. In an optimized program they are the replacements of the original's products
      labels     layer name -> words such as "conv 3x3/2"; a text does not keep them
      constants  name -> value, for constants whose value is known; a mapping other than a dict is read only when needed
      names      let name -> other node of the text that it came from; the printer uses these names again
      signature  the order of inputs, also of unused ones, and the names of results; a text keeps only the inputs
      origins    term -> the file's node that computed it, as a black box of the same operands; a text does not keep
                 them
      nodes      term -> the file's node that it belongs to, in words; a text does not keep them
      gradient_of  the program of which its results are the gradients; a text or a program of another term drops it

    Names of nodes that the term does not contain are dropped, so `replace(program, term=...)` is a valid program.
    Raises BadInput: two different tensors of one name, a value that does not fit.
    """

    term: Term
    name: str = "program"
    layers: Mapping[str, Term] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    names: Mapping[str, Term] = field(default_factory=dict)
    signature: Signature = Signature()
    origins: Mapping[Term, Term] = field(default_factory=dict)
    nodes: Mapping[Term, str] = field(default_factory=dict)
    gradient_of: GradientOf | None = None

    def __post_init__(self) -> None:
        if self.gradient_of is not None and self.gradient_of.term is not self.term:
            object.__setattr__(self, "gradient_of", None)
        inputs = self._declared_inputs()  # report duplicate names now, not when something reads them
        if inputs != self.signature.inputs:
            object.__setattr__(self, "signature", replace(self.signature, inputs=inputs))
        optimized = any(not is_product(node) for node in self.layers.values())
        layers = self.layers
        if not optimized:
            products = {name: node for name, node in self.names.items() if is_product(node)}
            layers = _complete(self.term, {**products, **self.layers}, self.names)
        constants = self.constants
        if isinstance(constants, dict):
            constants = {
                n: as_array(f"constant {spelled_name(n)}", v)
                for n, v in constants.items()
                if n in self.constants_declared
            }
            for name, value in constants.items():
                _check_value(self.constants_declared[name], value)
        elif any(name not in self.constants_declared for name in constants):
            constants = _Subset(constants, self.constants_declared)
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "labels", {n: words for n, words in self.labels.items() if n in layers})
        object.__setattr__(self, "constants", constants)
        object.__setattr__(self, "names", {n: node for n, node in self.names.items() if n not in layers})

    @property
    def roots(self) -> tuple[Term, ...]:
        """The result and the layers."""
        return (self.term, *self.layers.values())

    def with_roots(self, roots: Sequence[Term], **fields: Any) -> Program:
        """The program of other terms: its result, layers and names in order, names only if there are more terms.

        `fields` are other fields to replace.
        """
        layers = dict(zip(self.layers, roots[1:], strict=False))
        names = dict(zip(self.names, roots[1 + len(layers) :], strict=False))
        return replace(self, term=roots[0], layers=layers, names=names, **fields)

    @cached_property
    def info(self) -> ProgramInfo:
        """Facts about the terms, for all passes."""
        return ProgramInfo(self.roots)

    def _declared_inputs(self) -> tuple[Tensor, ...]:
        """Returns the inputs of the signature, as the term reads them if it does, then other inputs of the term."""
        declared = {t.name: self._read.get(t.name, t) for t in self.signature.inputs}
        return tuple(t for t in {**declared, **self._read}.values() if not t.constant)

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Inputs and constants by name: constants in order of first use, inputs in the order of the signature."""
        inputs = iter(self.signature.inputs)
        read = [tensor if tensor.constant else next(inputs) for tensor in self._read.values()]
        return {tensor.name: tensor for tensor in (*read, *inputs)}

    @cached_property
    def _read(self) -> Mapping[str, Tensor]:
        """The tensors that the term reads, by name, in order of first use. Raises BadInput: two of one name."""
        found: dict[str, Tensor] = {}
        for leaf in tensors(self.term):
            tensor = leaf.attributes[0]
            assert isinstance(tensor, Tensor)
            if found.setdefault(tensor.name, tensor) != tensor:
                raise BadInput(f"a program requires one tensor of each name, got {found[tensor.name]} and {tensor}")
        return found

    @property
    def inputs(self) -> Mapping[str, Tensor]:
        """The tensors that change from run to run, in the order of arguments, also those that the term does not
        read.
        """
        return {name: tensor for name, tensor in self.tensors.items() if not tensor.constant}

    @cached_property
    def constants_declared(self) -> Mapping[str, Tensor]:
        """The tensors that are constant, whether their values are known or not."""
        return {name: tensor for name, tensor in self.tensors.items() if tensor.constant}

    def with_constants(self, values: Mapping[str, Array]) -> Program:
        """Returns the program with these values of constants added or replaced. Raises BadInput."""
        for name in values:
            if name in self.inputs:
                raise BadInput(f"the value of a constant requires a constant, got the input {spelled_name(name)}")
            if name not in self.constants_declared:
                hint = suggestion(name, self.constants_declared)
                raise BadInput(f"the program has no constant {spelled_name(name)}{hint}")
        return replace(self, constants={**self.constants, **values})

    def with_values(self, values: Mapping[str, Any]) -> Program:
        """Returns the program with values of tensors, as `valued` takes them: an input with a value becomes a constant.

        Raises BadInput.
        """
        if not values:
            return self
        for name in values:
            if name not in self.tensors:
                hint = suggestion(name, self.tensors)
                raise BadInput(f"a value is given for {spelled_name(name)}, which the program does not have{hint}")
        arrays = {name: valued(self.tensors[name], value) for name, value in values.items()}

        roots = rebuild_all([*self.roots, *self.names.values()], _made_constant(arrays, True))
        left = tuple(tensor for tensor in self.signature.inputs if tensor.name not in values)
        fixed = {name: array for name, array in arrays.items() if name in self._read and name in self.inputs}
        signature = replace(self.signature, inputs=left, values={**self.signature.values, **fixed})
        changed = self.with_roots(roots, signature=signature)
        return changed.with_constants({name: array for name, array in arrays.items() if name in self._read})

    def with_inputs_open(self) -> tuple[Program, Mapping[str, Array]]:
        """Returns the program in which inputs that were given values are inputs again, and those values."""
        values = {name: self.constants[name] for name in self.signature.values if name in self.constants}
        constants = {name: array for name, array in self.constants.items() if name not in values}
        return self.with_roots(rebuild_all(self.roots, _made_constant(values, False)), constants=constants), values

    def results(self) -> dict[str, Term]:
        """Returns the results by name."""
        return dict(zip(self.result_names(), items_of(self.term), strict=True))

    def result_names(self) -> list[str]:
        """Returns the names of the results: those of the file, or else output, or output_0, output_1 .."""
        items = self.term.type.items if isinstance(self.term.type, TupleType) else None
        if len(self.signature.outputs) == (1 if items is None else len(items)):
            return [*self.signature.outputs]
        return ["output"] if items is None else [f"output_{i}" for i in range(len(items))]

    def as_written(self) -> Program:
        """Returns the program with its own products as layers, also if it is the optimized form of another program."""
        products = {name: node for name, node in self.layers.items() if is_product(node)}
        if len(products) == len(self.layers):
            return self
        return replace(self, layers=products, names={**self.names, **self.layers})

    def seeded_constants(self, seed: int) -> Program:
        """Returns the program with a value for every constant; missing ones are drawn by the seed and their name
        alone.
        """
        missing = [t for n, t in self.constants_declared.items() if n not in self.constants]
        if not missing:  # values that are decoded when they are read stay so
            return self
        return replace(self, constants={**self.constants, **{t.name: seeded(t, seed) for t in missing}})

    def __repr__(self) -> str:
        counts = [(len(self.inputs), "input"), (len(self.constants_declared), "constant"), (len(self.layers), "layer")]
        held = ", ".join(f"{n:,} {what}{'' if n == 1 else 's'}" for n, what in counts)
        return f"<program {spelled_name(self.name)}: {held} -> {self.term.type}>"

    def __str__(self) -> str:
        from glenside.ir.text import print_program

        return print_program(self)


class GradientOf(NamedTuple):
    """The claim that a term computes gradients, which a check verifies.

    program     the program that was differentiated
    wrt         the tensors by which, in the order of the term's last results
    of          the names of the differentiated results, layers or other terms; None for all results
    cotangents  the tensors that weight these; none if the only one is a number
    """

    term: Term
    program: Program
    wrt: Sequence[str]
    of: Sequence[str] | None
    cotangents: Sequence[str]


def entry_of(constants: Mapping[str, Array], name: str) -> object:
    """Returns a constant's array, or the function that computes it: constants of one entry have one value."""
    entry: Callable[[str], object] = getattr(constants, "entry", constants.__getitem__)
    return entry(name)


class _Subset(Mapping[str, Array]):
    """A subset of another mapping by names; values are read from it on demand."""

    def __init__(self, whole: Mapping[str, Array], names: Container[str]) -> None:
        self._whole = whole
        self._names = dict.fromkeys(name for name in whole if name in names)

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._whole[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def entry(self, name: str) -> object:
        """Returns the array or function of a name, as in the other mapping."""
        return entry_of(self._whole, name)

    def read(self, name: str) -> Array | None:
        """Returns an array that needs no call, as in the other mapping; None for others."""
        read: Callable[[str], Array | None] = getattr(self._whole, "read", self._whole.get)
        return read(name) if name in self._names else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def as_program(given: object, use: str) -> Program:
    """Returns the argument of a public function if it is a program. Raises BadInput."""
    if not isinstance(given, Program):
        raise BadInput(f"only a program, such as gl.load returns, can be {use}, got {type(given).__name__}")
    return given


def by_node(names: Mapping[str, Term]) -> dict[Term, list[str]]:
    """Returns the names of each node, in their order."""
    named: dict[Term, list[str]] = {}
    for name, node in names.items():
        named.setdefault(node, []).append(name)
    return named


def _complete(term: Term, given: Mapping[str, Term], others: Mapping[str, Term]) -> dict[str, Term]:
    """Returns every product of the term by name, in network order; default names avoid names in `others`."""
    names = by_node(given)
    products = [node for node in postorder(term) if is_product(node)]
    taken = {name for node in products for name in names.get(node, ())} | others.keys()
    layers: dict[str, Term] = {}
    for position, node in enumerate(products, 1):
        for name in names.get(node) or [numbered(default_layer_name(position), taken)]:
            layers[name] = node
            taken.add(name)
    return layers


def has_default_name(program: Program, name: str, position: int) -> bool:
    """True if the n-th product would get that name by default."""
    default = default_layer_name(position)
    taken = default in program.layers or default in program.names
    return name == default or (taken and re.fullmatch(rf"{default}-\d+", name) is not None)


def _made_constant(names: Container[str], constant: bool) -> Replace:
    """Replaces the leaves of these names by constants, or by inputs."""

    def changed(term: Term, _: tuple[Term, ...]) -> Term | None:
        tensor = term.attributes[0] if term.attributes else None
        if not isinstance(tensor, Tensor) or tensor.constant is constant or tensor.name not in names:
            return None
        return build("access-tensor", replace(tensor, constant=constant))

    return changed


def valued(tensor: Tensor, value: Any) -> Array:
    """Returns a value of a tensor: an array of its shape and dtype, or Python numbers, converted to its dtype.

    A single number is repeated everywhere. Raises BadInput if the dtype cannot hold the numbers.
    """
    plain = not isinstance(value, np.ndarray | np.generic)
    try:
        array = as_array(f"the value of {spelled_name(tensor.name)}", value)
    except (ValueError, OverflowError):
        array = np.asarray(None)
    name = spelled_name(tensor.name)
    if array.dtype.kind not in "biuf" and array.dtype.name not in DTYPES:
        raise BadInput(f"the value of {name} requires a number, or a list of lists of equal lengths, got {value!r:.40}")
    if plain:
        with np.errstate(all="ignore"):
            cast = array.astype(tensor.dtype)
            if tensor.dtype in FLOATS:
                same = np.isfinite(cast) | ~np.isfinite(array)
            else:
                same = cast.astype(wider(tensor.dtype)) == array
        if not np.all(same):
            raise BadInput(f"the value of {name} requires numbers of {tensor.dtype}, got {value!r:.40}")
        array = np.broadcast_to(cast, tensor.dims).copy() if array.ndim == 0 else cast
    if array.shape != tensor.dims:
        raise BadInput(f"the value of {name} requires shape {spelled(tensor.dims)}, got {spelled(array.shape)}")
    if array.dtype.name != tensor.dtype:
        raise BadInput(f"the value of {name} requires dtype {tensor.dtype}, got {array.dtype}")
    return array


def _check_value(tensor: Tensor, value: Array) -> None:
    constant = f"constant {spelled_name(tensor.name)}"
    if value.shape != tensor.dims:
        raise BadInput(f"{constant} requires shape {spelled(tensor.dims)}, got {spelled(value.shape)}")
    if value.dtype.name != tensor.dtype:
        raise BadInput(f"{constant} requires dtype {tensor.dtype}, got {value.dtype}")


def seeded(tensor: Tensor, seed: int) -> Array:
    """Draws a value that keeps a network's numbers moderate, from the seed and the tensor's name alone."""
    digest = hashlib.sha256(f"{seed} {tensor.name}".encode()).digest()
    random = np.random.default_rng(int.from_bytes(digest[:16], "big"))
    if tensor.dtype not in REALS:
        least, most = limits(tensor.dtype)
        lowest, end = max(-3, least), min(3, most) + 1
        return random.integers(lowest, end, tensor.dims).astype(tensor.dtype)
    if len(tensor.dims) < 2:
        # A vector may be a variance: it must be positive and not close to 0.
        return random.uniform(0.5, 1.5, tensor.dims).astype(tensor.dtype)
    # Weights, outputs first: sums over the other axes keep the magnitude of their operands.
    scale = 1 / sqrt(max(1, tensor.dims.drop(1).product()))
    return (random.standard_normal(tensor.dims) * scale).astype(tensor.dtype)
