"""The builder of one program: it declares tensors, names layers, and offers all other operations as methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from glenside.builder import dropout, indexing, layout, pointwise, products, reductions, windows
from glenside.builder.einsum import einsum
from glenside.builder.products import Layer
from glenside.builder.windows import Padding, Sizes
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program, Signature
from glenside.ir.term import Term, build
from glenside.ir.types import Dims, Tensor

Value = Array | Callable[[], Array]


class Again:
    """A function of an array that is cheap to compute again, such as one that decodes a mapped file: it is not kept.

    of  what it reads, if it gives the value of another entry: entries that read the same have one value
    """

    def __init__(self, function: Callable[[], Array], of: object = None) -> None:
        self.function = function
        self.of = self if of is None else of

    def __call__(self) -> Array:
        return self.function()


class LazyArrays(Mapping[str, Array]):
    """A mapping of names to arrays, in which a function is called once, when its name is first read; `Again` each time.

    A network can thus be compiled without generating its weights.
    """

    def __init__(self, entries: Mapping[str, Value], check: Callable[[str, Array], Array]) -> None:
        self._entries = dict(entries)
        self._check = check

    def __getitem__(self, name: str) -> Array:
        entry = self._entries[name]
        if isinstance(entry, Again):
            return self._check(name, entry())
        if callable(entry):
            entry = self._entries[name] = self._check(name, entry())
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def entry(self, name: str) -> object:
        """Returns the array or function of a name: names of one entry have one value."""
        entry = self._entries[name]
        return entry.of if isinstance(entry, Again) else entry

    def read(self, name: str) -> Array | None:
        """Returns an array that needs no call; None for others."""
        entry = self._entries.get(name)
        return None if entry is None or callable(entry) else entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"LazyArrays({', '.join(self._entries)})"


def chosen(constants: Mapping[str, Array], names: Iterable[str], more: Mapping[str, Value]) -> Mapping[str, Array]:
    """Returns those of some names that constants have, and more values; arrays that are made when read stay so."""
    known = [name for name in names if name in constants]
    if isinstance(constants, LazyArrays):
        lazy: dict[str, Value] = {
            name: Again(partial(constants.__getitem__, name), constants.entry(name)) for name in known
        }
        return LazyArrays({**lazy, **more}, lambda _, array: array)
    return {**{name: constants[name] for name in known}, **{n: v() if callable(v) else v for n, v in more.items()}}


def fitting(tensor: Tensor, value: Array) -> Array:
    """Returns the value of a constant as an array. Raises BadInput if it differs from the declaration."""
    array = np.asarray(value)
    if array.shape != tensor.dims or array.dtype.name != tensor.dtype:
        need, have = f"{tuple(tensor.dims)} {tensor.dtype}", f"{array.shape} {array.dtype}"
        raise BadInput(f"constant {tensor.name} requires an array of {need}, got {have}")
    return array


class Builder:
    """Builds one program. All tensors are whole, ()(dims), with channels first; `finish` returns the Program.

    Products (conv, linear, matmul) become the layers of the program, in the order of the calls. A layer without a
    `name` is named after the operation, with a number. Raises TypeMismatch for operands that do not fit.
    """

    add = staticmethod(pointwise.add)
    subtract = staticmethod(pointwise.subtract)
    multiply = staticmethod(pointwise.multiply)
    divide = staticmethod(pointwise.divide)
    combine = staticmethod(pointwise.combine)
    compute = staticmethod(pointwise.compute)
    relu = staticmethod(pointwise.relu)
    relu6 = staticmethod(pointwise.relu6)
    sigmoid = staticmethod(pointwise.sigmoid)
    tanh = staticmethod(pointwise.tanh)
    hard_sigmoid = staticmethod(pointwise.hard_sigmoid)
    hard_swish = staticmethod(pointwise.hard_swish)
    gelu = staticmethod(pointwise.gelu)
    batch_norm = staticmethod(pointwise.batch_norm)
    layer_norm = staticmethod(pointwise.layer_norm)
    standardized = staticmethod(pointwise.standardized)
    softmax = staticmethod(pointwise.softmax)
    select = staticmethod(pointwise.select)
    compare = staticmethod(pointwise.compare)
    reduce_axes = staticmethod(reductions.reduce_axes)
    max_pool = staticmethod(windows.max_pool)
    average_pool = staticmethod(windows.average_pool)
    lp_pool = staticmethod(windows.lp_pool)
    global_average_pool = staticmethod(windows.global_average_pool)
    reshape = staticmethod(layout.reshape)
    transpose = staticmethod(layout.transpose)
    pad = staticmethod(layout.pad)
    pad_or_crop = staticmethod(layout.pad_or_crop)
    broadcast = staticmethod(layout.broadcast)
    concatenate = staticmethod(layout.concatenate)
    slice_axis = staticmethod(layout.slice_axis)
    flip = staticmethod(layout.flip)
    strided = staticmethod(layout.strided)
    tile = staticmethod(layout.tile)
    surround = staticmethod(layout.surround)
    gather = staticmethod(layout.gather)
    gather_nd = staticmethod(indexing.gather_nd)
    gather_elements = staticmethod(indexing.gather_elements)
    scatter_nd = staticmethod(indexing.scatter_nd)
    scatter_elements = staticmethod(indexing.scatter_elements)
    top = staticmethod(indexing.top)
    upsample = staticmethod(layout.upsample)

    def __init__(self, name: str = "program") -> None:
        self.name = name
        self._tensors: dict[str, Tensor] = {}
        self._values: dict[str, Value] = {}
        self._layers: dict[str, Term] = {}
        self._labels: dict[str, str] = {}
        self._masks = 0

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The declarations so far, by name."""
        return self._tensors

    @property
    def values(self) -> Mapping[str, Array]:
        """The values of the constants so far; each is computed when it is first read."""
        return LazyArrays(self._values, lambda name, value: fitting(self._tensors[name], value))

    @property
    def layers(self) -> Mapping[str, Term]:
        """The products so far, by name."""
        return self._layers

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Term:
        """Declares a tensor that is given at run time."""
        return self._declare(Tensor(name, Dims(shape), dtype))

    def constant(self, name: str, shape: Sequence[int], dtype: str = "float32", value: Value | None = None) -> Term:
        """Declares a tensor that is known before run time. Its value is an array, a function that returns one, or left
        open.
        """
        leaf = self._declare(Tensor(name, Dims(shape), dtype, constant=True))
        if value is not None:
            if not callable(value):
                fitting(self._tensors[name], value)
            self._values[name] = value
        return leaf

    def full(self, shape: Sequence[int], value: float | str, dtype: str = "float32") -> Term:
        """Returns a tensor with one number everywhere."""
        return build("full", shape, value, dtype)

    def dropout(self, x: Term, rate: float | str) -> Term:
        """Computes x / (1 - rate), or 0 with probability `rate`, from the input dropout-seed, ()() uint32. Raises
        BadInput.
        """
        return dropout.masked(x, self.dropout_mask(x, rate), rate)

    def dropout_mask(self, x: Term, rate: float | str) -> Term:
        """Computes which elements of x a dropout keeps, as bool; each call for one seed gives another mask. Raises
        BadInput.
        """
        self._masks += 1
        if dropout.SEED.name not in self._tensors:
            self._declare(dropout.SEED)
        return dropout.mask(x, rate, self._masks - 1)

    def conv(
        self,
        x: Term,
        w: Term,
        bias: Term | None = None,
        *,
        strides: Sizes = 1,
        padding: Padding = 0,
        dilations: Sizes = 1,
        groups: int = 1,
        name: str | None = None,
    ) -> Term:
        """Convolves x ()(N C d..) with w ()(O C/groups k..) -> ()(N O d'..); padding is (before, after) for each
        axis.
        """
        result = self._layer("conv", name, products.convolution(x, w, strides, padding, dilations, groups))
        return result if bias is None else pointwise.add(result, layout.channel_vector(bias, result))

    def conv_transpose(
        self,
        x: Term,
        w: Term,
        bias: Term | None = None,
        *,
        strides: Sizes = 1,
        padding: Padding = 0,
        output_padding: Sizes = 0,
        dilations: Sizes = 1,
        groups: int = 1,
        name: str | None = None,
    ) -> Term:
        """Convolves, transposed: x ()(N C d..) with w ()(C O/groups k..) -> ()(N O d'..), the adjoint of `conv`.

        d' = strides * (d - 1) + dilations * (k - 1) + 1 + output_padding - padding; negative padding adds zeros.
        """
        layer = products.transposed_convolution(x, w, strides, padding, output_padding, dilations, groups)
        result = self._layer("conv_transpose", name, layer)
        return result if bias is None else pointwise.add(result, layout.channel_vector(bias, result))

    def linear(self, x: Term, w: Term, bias: Term | None = None, *, name: str | None = None) -> Term:
        """Multiplies x ()(M.. K) by the transpose of w ()(N K), and adds a bias ()(N) -> ()(M.. N)."""
        result = self._layer("linear", name, products.linear(x, w))
        return result if bias is None else pointwise.add(result, bias)

    def matmul(self, x: Term, y: Term, *, name: str | None = None) -> Term:
        """Computes the matrix product of the last two axes; leading axes broadcast as in numpy."""
        return self._layer("matmul", name, products.matmul(x, y))

    def einsum(self, equation: str, *operands: Term, name: str | None = None) -> Term:
        """Computes sums of products as in numpy, such as `bij,bjk->bik`; further products are named NAME.2, NAME.3,
        ...
        """
        count = 0

        def product(x: Term, y: Term) -> Term:
            nonlocal count
            count += 1
            return self.matmul(x, y, name=name if name is None or count == 1 else f"{name}.{count}")

        return einsum(equation, operands, product)

    def attention(
        self, q: Term, k: Term, v: Term, mask: Term | None = None, *, heads: int, name: str | None = None
    ) -> Term:
        """Computes softmax(q k^T / sqrt(D / heads) + mask) v for each head: q ()(N S D), k ()(N T D), v ()(N T E) ->
        ()(N S E).

        It has two products, NAME.scores and NAME.context. The mask broadcasts to the scores, ()(N heads S T).
        """

        def product(part: str, x: Term, y: Term) -> Term:
            return self.matmul(x, y, name=None if name is None else f"{name}.{part}")

        return products.attention(q, k, v, mask, heads, product)

    def finish(self, term: Term) -> Program:
        """Returns the program with that term as its result; its inputs are in the order of declaration."""
        layout.require_terms(term)
        inputs = tuple(tensor for tensor in self._tensors.values() if not tensor.constant)
        signature = Signature(inputs=inputs)
        return Program(term, self.name, dict(self._layers), dict(self._labels), self.values, signature=signature)

    def _declare(self, tensor: Tensor) -> Term:
        if tensor.name in self._tensors:
            raise BadInput(f"a program requires tensors of different names, got {tensor.name} twice")
        leaf = build("access-tensor", tensor)
        self._tensors[tensor.name] = tensor
        return leaf

    def _layer(self, operation: str, name: str | None, layer: Layer) -> Term:
        if name is None:
            number = len(self._layers) + 1
            while f"{operation}{number}" in self._layers:
                number += 1
            name = f"{operation}{number}"
        if name in self._layers:
            raise BadInput(f"a program requires layers of different names, got {name} twice")
        self._layers[name], self._labels[name] = layer.dot, layer.label
        return layer.result
