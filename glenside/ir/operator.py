"""Defines the record of an operator: text, fields, type rule, meaning and documentation.

Parser, printer, e-graph encoding, e-graph type facts, interpreter and the reference page are short loops over
`OPERATORS` and `COMPUTES`; adding an operator is adding a record to a file of `glenside/ir/operators/`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag
from string import Template
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from glenside.ir.errors import TypeMismatch

if TYPE_CHECKING:
    from glenside.ir.index_map import IndexMap
    from glenside.ir.program import Program
    from glenside.ir.scalar import Primitive, Scalar

P = ParamSpec("P")
Record = TypeVar("Record", bound="Operator | Compute")


class Kind(Enum):
    """The kind of an operator's argument: its form in the text, in a term and in the e-graph."""

    TERM = "term"  # a child
    TERMS = "terms"  # all remaining arguments are children
    INT = "int"  # i64
    INTS = "ints"  # text (list 1 2), e-graph Ints
    SHAPE = "shape"  # text (shape 1 2) or a shape form, e-graph Ints
    ACCESS_SHAPE = "access-shape"  # text (access-shape (shape ..) (shape ..)); two attributes, two Ints
    KEYWORD = "keyword"  # one of `choices`, e-graph String
    NUMBER = "number"  # an exact decimal or fraction, kept as its text, e-graph String
    DTYPE = "dtype"  # e-graph String
    TEXT = "text"  # any text, in quotes; e-graph String
    TENSOR = "tensor"  # text: a tensor's name; attribute: its Tensor record; e-graph: the name as String
    COMPUTE = "compute"  # a compute type: its name, or (name parameter ..), e-graph String


@dataclass(frozen=True, slots=True)
class Field:
    """One argument of an operator; `choices` are the values that a KEYWORD may have."""

    name: str
    kind: Kind
    choices: tuple[str, ...] = ()


def fields(**kinds: Kind | Field) -> tuple[Field, ...]:
    """Returns fields from `fields(a=Kind.TERM, axis=Kind.INT)`, in the order in which arguments are written."""
    return tuple(k if isinstance(k, Field) else Field(name, k) for name, k in kinds.items())


class OperatorKind(Enum):
    """The kind of an operator: movement, computation or others, by its use of elements."""

    LEAF = "leaf"  # no operands: a tensor or numbers
    VIEW = "view"  # the same elements under other indices: nothing is copied
    MOVEMENT = "movement"  # the same elements, copied to other indices
    COMPUTE = "compute"  # new elements
    INSTRUCTION = "instruction"  # new elements, computed by a machine that has the instruction


class Keeps(Flag):
    """Properties that a function of arrays preserves.

    ZERO      it maps zeros to zeros: zero padding may move through it
    ORDER     it is monotone: if no element of the operands decreases, none of the result does
    DISTANCE  it selects and negates without rounding: an error of the result is at most the largest error of the
              operands
    FACTOR    a factor of the first operand is a factor of the result, as in products and quotients
    """

    NOTHING = 0
    ZERO = 1
    ORDER = 2
    DISTANCE = 4
    FACTOR = 8


MOVED = Keeps.ZERO | Keeps.ORDER | Keeps.DISTANCE
"""The properties that movement of elements preserves."""
MONOTONE = Keeps.ZERO | Keeps.ORDER
"""The properties that a monotone function through 0 preserves."""

SIZES = (2, 3, 4, 5, 7)


@dataclass(frozen=True, eq=False)
class Example:
    """A small program that shows a record, for its reference page and for the tests that run it.

    It is a text with sizes as `$letters`, and the dims of its tensors: `Example("(access (access-tensor x) 1)", {"x":
    "m 3 n"})`.
    """

    text: str
    shapes: Mapping[str, str] = field(default_factory=dict)

    def program(self, seed: int = 0) -> Program:
        """Builds the program at sizes drawn by the seed; different letters get different sizes, since squares hide
        errors.
        """
        from glenside.ir.text import parse

        words = [*re.findall(r"\$(\w+)", self.text), *(w for dims in self.shapes.values() for w in dims.split())]
        letters = sorted({word for word in words if not word.isdigit()})
        sizes = dict(zip(letters, random.Random(seed).sample(SIZES, len(letters)), strict=True))
        dims = {
            name: tuple(int(word) if word.isdigit() else sizes[word] for word in said.split())
            for name, said in self.shapes.items()
        }
        return parse(Template(self.text).substitute(sizes), shapes=dims)


def example(text: str, **shapes: str) -> tuple[Example]:
    """Returns the examples of a record that needs one."""
    return (Example(text, shapes),)


def of_compute(kind: str, dims: str = "m k n", dtype: str = "float32") -> tuple[Example]:
    """Returns an example of a compute type whose items are all axes of a tensor but the first."""
    operand = "(access-tensor x)" if dtype == "float32" else f"(cast (access-tensor x) {dtype})"
    return example(f"(compute {kind} (access {operand} 1))", x=dims)


@dataclass(frozen=True, eq=False, repr=False)
class Operator:
    """A record of an operator. `check` and `result` take the arguments in field order: types for terms, plain values
    else.

      kind      what it does with elements; defaults of machines, analyses and exports follow from it
      check     raises TypeMismatch, through `require`, if a term cannot be built
      result    the type rule, in the algebra of `glenside.ir.types`
      evaluate  the meaning: (arithmetic, *arguments) with arrays for terms; returns the array of all axes
      symbolic  False if `result` uses more than the algebra: then rules of the e-graph must not build this operator
      linear    True if the result is a sum of elements of the operands, each times a number that the arguments give; or
                a function of the arguments. By default, movement to known indices is linear
      keeps     the properties that it preserves, or a function like `linear`; by default, movement to known indices
                preserves all but FACTOR
      index_map  the operand's element of each element of the result: a function of the arguments as types. None if
                 elements are computed, or moved to computed indices
      matrices  (groups, rows, depth, columns) of the matrix products that it computes: a function of the arguments as
                types
      typed     True if `evaluate` takes each term as an `Operand`: its type and its value, which need not be in memory
      examples  programs that show it; every record but an opaque one has some
      opaque    True if the meaning is unknown: a check draws one, and nothing is run or folded with it
      shares    True if `evaluate` returns a view of operands, or a copy only where numpy cannot reshape without one; or
                a function of evaluate's arguments. Other operators return a new array in row-major order. By default, a
                VIEW shares
      places    the part of the result that each operand fills, for operators that only move their operands: a function
                of an array like the result, and of the arguments as types; returns views, None where a part is no view
      stores    True if evaluate takes `out=`, an array, perhaps strided, for the result: a function of that array and
                of the arguments as types. Operators with `places` that return a new array take any
      scratch   bytes that evaluate needs besides operands and result: a function of its arguments and their strides
      operations  arithmetic operations of one evaluation, a multiply-add counting as one: a function of the arguments
                  as types
      adjoint   the derivative in reverse mode: (terms, g, *arguments) -> the cotangent of each operand, None for zero;
                or a sentence that says why there is none. g has the result's dims and split 0; operands are terms;
                `terms` builds terms (`glenside.gradients.algebra`), as `arithmetic` does for evaluate
      moved     bytes read and written, a function of evaluate's arguments, if not each operand and the result once
    """

    name: str
    kind: OperatorKind
    fields: tuple[Field, ...]
    check: Callable[..., None]
    result: Callable[..., Any]
    evaluate: Callable[..., Any]
    doc: str
    linear: bool | Callable[..., bool] | None = None
    keeps: Keeps | Callable[..., Keeps] | None = None
    index_map: Callable[..., IndexMap] | None = None
    matrices: Callable[..., tuple[int, int, int, int]] | None = None
    symbolic: bool = True
    typed: bool = False
    opaque: bool = False
    examples: tuple[Example, ...] = ()
    shares: bool | Callable[..., bool] | None = None
    places: Callable[..., Any] | None = None
    stores: Callable[..., bool] | None = None
    scratch: Callable[..., int] | None = None
    operations: Callable[..., int] | None = None
    moved: Callable[..., int] | None = None
    adjoint: Callable[..., tuple[Any, ...]] | str | None = None

    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    @property
    def moves(self) -> bool:
        """True if each element of the result is an operand's element, or fills a gap between them."""
        return self.kind in (OperatorKind.VIEW, OperatorKind.MOVEMENT)

    @property
    def is_addressed(self) -> bool:
        """True if it moves elements to indices that do not depend on data."""
        return self.kind is OperatorKind.VIEW or self.index_map is not None

    def is_constant(self, operands: Iterable[bool], tensor_is_constant: bool = False) -> bool:
        """True if a node is constant, given which operands are; black boxes are not, and a tensor is as declared."""
        if self.kind is OperatorKind.LEAF and any(field.kind is Kind.TENSOR for field in self.fields):
            return tensor_is_constant
        return not self.opaque and all(operands)

    @property
    def is_priced(self) -> bool:
        """True if the record gives the cost of a node: nothing for views, elements for movement, else operations or
        matrices.
        """
        new = self.kind in (OperatorKind.COMPUTE, OperatorKind.INSTRUCTION)
        return not new or self.operations is not None or self.matrices is not None

    def is_linear(self, *arguments: Any) -> bool:
        """Returns `linear` for a node's arguments."""
        return bool(_fact(self.linear, arguments, self.is_addressed))

    def kept(self, *arguments: Any) -> Keeps:
        """Returns `keeps` for a node's arguments."""
        return Keeps(_fact(self.keeps, arguments, MOVED if self.is_addressed else Keeps.NOTHING))

    def is_shared(self, *arguments: Any) -> bool:
        """Returns `shares` for the arguments of an evaluation."""
        return bool(_fact(self.shares, arguments, self.kind is OperatorKind.VIEW))

    def __call__(self, *arguments: Any) -> Any:
        """Builds the term from the arguments in field order. Raises TypeMismatch. Given patterns, builds a pattern."""
        for argument in arguments:
            if hasattr(argument, "__applied__"):
                return argument.__applied__(self, arguments)
        from glenside.ir.term import make

        return make(self, arguments)


def _fact(fact: Any, arguments: tuple[Any, ...], default: Any) -> Any:
    """Returns a fact of the record for these arguments."""
    if fact is None:
        return default
    return fact(*arguments) if callable(fact) else fact


class Category(Enum):
    """The effect of a compute type on (S)(I)."""

    POINTWISE = "pointwise"  # (S)(I), each element by itself
    FOLD = "fold"  # (S)(I[1:]), folds the first item axis, left to right
    REDUCTION = "reduction"  # (S)(), over the whole item
    NORMALIZATION = "normalization"  # (S)(I), each item as a whole
    CONTRACTION = "contraction"  # (S)(), product along the first item axis, sum of the rest


@dataclass(frozen=True, eq=False)
class Compute:
    """A compute type: the meaning of `(compute NAME A)` or `(compute (NAME parameter ..) A)`.

    scalar         for POINTWISE and FOLD types: the expression of one element, or a function from parameters to it.
                   `evaluate`, `scratch`, `dtype`, `linear`, `keeps`, `examples`, derivatives and part of `check`
                   derive from it
    combine        for REDUCTION types: the primitive that reduces an item's elements to one, in some order
    check          raises TypeMismatch for an operand type (type, *parameters) that it cannot take
    evaluate       (arithmetic, operand, *parameters) -> array; the operand is an `Operand`, parameters are their
                   texts
    dtype          the result's dtype: "same", "widen", or a dtype
    linear         True if the result is a sum of elements of all operands, each times a number
    orders         True if it depends on which of two numbers is larger
    keeps          the other properties that it preserves
    examples       programs that show it
    scratch        bytes that evaluate needs besides operand and result: a function of (operand, *parameters)
    adjoint        (terms, g, operand, *parameters) -> the operand's cotangent, as for operators, if there is no
                   scalar expression. A type whose results are no reals needs none
    """

    name: str
    category: Category
    doc: str
    parameters: tuple[Field, ...] = ()
    scalar: Scalar | Callable[..., Scalar] | None = None
    combine: Primitive | None = None
    check: Callable[..., None] | None = None
    evaluate: Callable[..., Any] | None = None
    dtype: str = "same"
    linear: bool = False
    orders: bool = False
    keeps: Keeps = Keeps.NOTHING
    examples: tuple[Example, ...] = ()
    scratch: Callable[..., int] | None = None
    adjoint: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        from glenside.ir.elementwise import derived

        for name, value in derived(self).items() if self.scalar is not None else ():
            object.__setattr__(self, name, value)

    def expression(self, *parameters: str) -> Scalar:
        """Returns the scalar expression for parameters by their texts."""
        assert self.scalar is not None, f"{self.name} has no scalar expression"
        return self.scalar(*parameters) if callable(self.scalar) else self.scalar

    def __call__(self, *arguments: Any) -> Any:
        """Builds the term `(compute NAME A)`, or its pattern, from its parameters and A. Raises TypeMismatch."""
        from glenside.ir.operators.compute import compute, compute_text

        *parameters, operand = arguments
        return compute(compute_text(self.name, *parameters), operand)


OPERATORS: dict[str, Operator] = {}
COMPUTES: dict[str, Compute] = {}


def register(record: Record) -> Record:
    """Puts a record into the tables. Two records of one name are an error in the code, not in the input."""
    table: dict[str, Any] = OPERATORS if isinstance(record, Operator) else COMPUTES
    if record.name in table:
        raise ValueError(f"{record.name} is declared twice")
    if not record.examples and not (isinstance(record, Operator) and record.opaque):
        raise ValueError(f"{record.name} has no example")
    table[record.name] = record
    return record


def _declaring(make: Callable[P, Record]) -> Callable[P, Record]:
    """Returns a constructor of records that also puts them into the tables."""
    return lambda *values, **named: register(make(*values, **named))


operator = _declaring(Operator)
compute_type = _declaring(Compute)


def require(condition: bool, operator: str, requirement: str, got: object) -> None:
    """Raises "OPERATOR requires REQUIREMENT, got GOT" unless the condition holds."""
    if not condition:
        raise TypeMismatch(f"{operator} requires {requirement}, got {got}")
