"""Names the operators that are refused, and why."""

from __future__ import annotations

from glenside.importers.torch.node import Node, Refused, aten, register
from glenside.importers.torch.promotion import Number
from glenside.ir.term import Term

RANDOM = "random numbers without a seed; draw them before, and pass them as an input"
COMPLEX = "complex numbers have no dtype here; a dense product with the matrix of the transform is equal"
SYMBOLIC = "sizes and strides of open shapes; give numbers"

for _why, _names in {
    RANDOM: "rand randn randperm randint rand_like randn_like randint_like bernoulli multinomial normal uniform "
    "exponential",
    COMPLEX: "_fft_r2c _fft_c2r _fft_c2c view_as_real view_as_complex complex polar",
    SYMBOLIC: "sym_stride sym_storage_offset",
    "the size of the result depends on data": "unique_consecutive _unique2 masked_select repeat_interleave bincount",
}.items():
    for _name in _names.split():
        register(_name, None, (), _why, __name__)


@aten("native_dropout", but="dropout in training: call module.eval(), in which dropout does nothing")
def native_dropout(node: Node, input: Term, p: float, train: bool | None) -> tuple[Term, Term]:
    if train and p > 0:
        raise Refused(f"dropout in training draws {RANDOM}; in module.eval() dropout does nothing")
    return input, node.filled(input.access.dims, 1, "bool")


@aten("dropout", but="dropout in training")
def dropout(node: Node, input: Term, p: Number, train: bool) -> Term:
    return native_dropout(node, input, float(p), train)[0]
