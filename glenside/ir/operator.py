"""One operator, one record: text, fields, type rule, meaning and documentation.

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
    """What an argument of an operator is, in the text, in a term and in the e-graph."""

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
    """One argument of an operator; `choices` are what a KEYWORD may be."""

    name: str
    kind: Kind
    choices: tuple[str, ...] = ()


def fields(**kinds: Kind | Field) -> tuple[Field, ...]:
    """`fields(a=Kind.TERM, axis=Kind.INT)`, in the order in which the arguments are written."""
    return tuple(k if isinstance(k, Field) else Field(name, k) for name, k in kinds.items())


class OperatorKind(Enum):
    """What becomes of the elements of the operands."""

    LEAF = "leaf"  # no operands: a tensor or numbers
    VIEW = "view"  # the same elements, found by addressing: none is written again
    MOVEMENT = "movement"  # the same elements, copied to other places
    COMPUTE = "compute"  # new elements
    INSTRUCTION = "instruction"  # new elements, by a machine that has it


class Keeps(Flag):
    """What a function of arrays leaves as it is.

    ZERO      it maps zeros to zeros: zero padding may move through it
    ORDER     where no element of the operands becomes less, none of the result does
    DISTANCE  by choices and signs alone, without rounding: no element of the result changes by more than some element
              of the operands, so that it is as far from the right one as they are
    FACTOR    a factor of the first operand is one of the result, as in products and quotients
    """

    NOTHING = 0
    ZERO = 1
    ORDER = 2
    DISTANCE = 4
    FACTOR = 8


MOVED = Keeps.ZERO | Keeps.ORDER | Keeps.DISTANCE
"""What is kept where elements are only moved."""
MONOTONE = Keeps.ZERO | Keeps.ORDER
"""What a function keeps that rises through 0."""

SIZES = (2, 3, 4, 5, 7)


@dataclass(frozen=True, eq=False)
class Example:
    """A small program that shows a record at work, for its reference and for the tests that hold it to account.

    A text with sizes as `$letters`, and the dims of its tensors: `Example("(access (access-tensor x) 1)",
    {"x": "m 3 n"})`.
    """

    text: str
    shapes: Mapping[str, str] = field(default_factory=dict)

    def program(self, seed: int = 0) -> Program:
        """The program at sizes drawn by the seed; different letters get different sizes: a square hides errors."""
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
    """The examples of a record that needs one."""
    return (Example(text, shapes),)


def of_compute(kind: str, dims: str = "m k n", dtype: str = "float32") -> tuple[Example]:
    """A compute type over the items of a tensor, which are all axes but the first."""
    operand = "(access-tensor x)" if dtype == "float32" else f"(cast (access-tensor x) {dtype})"
    return example(f"(compute {kind} (access {operand} 1))", x=dims)


@dataclass(frozen=True, eq=False, repr=False)
class Operator:
    """A record. `check` and `result` take the arguments in field order: types for terms, plain values for the rest.

    kind      what becomes of the elements; what machines, analyses and exports do by default follows from it
    check     raises TypeMismatch, through `require`, when a term cannot be built
    result    the type rule, in the algebra of `glenside.ir.types`
    evaluate  the meaning: (arithmetic, *arguments) with arrays for terms; returns the array of all axes
    symbolic  False when `result` uses more than the algebra: then rules of the e-graph must not build this operator
    linear    whether the result is a sum of elements of the operands, each times a number that the arguments say; a
              function of the arguments where it depends on them. What is moved to places that are known is, if nothing
              says otherwise
    keeps     what else it leaves as it is, as `linear`; what is moved to places that are known keeps all but FACTOR
    index_map  where each element of the result comes from: a function of the arguments as types. None where elements
              are computed, or moved to places that are
    matrices  (groups, rows, depth, columns) of the matrix products that it computes: a function of the arguments as
              types
    typed     True when `evaluate` takes each term as an `Operand`: its type and its value, perhaps not in memory
    examples  programs that show it; every record but an opaque one has some
    opaque    True when nobody here knows the meaning: a check draws one, and nothing is run or folded with it
    shares    True when the array that `evaluate` gives is a view of operands, or a copy only where numpy cannot reshape
              without one; a function of evaluate's arguments where it depends on them. All else gives a new array in
              row-major order. Views do, if nothing says otherwise
    places    where each operand lies in the result, for operators that only move their operands: a function of an array
              like the result, and of the arguments as types. Views of that array, None where there is no such view
    stores    whether evaluate takes `out=`, an array in which the result is stored, which may have gaps: a function of
              that array and of the arguments as types. What has places and gives a new array takes any
    scratch   bytes that evaluate needs beside operands and result: a function of its arguments, and their strides
    operations  additions, multiplications and the like of one evaluation, a multiplication that is added being one:
              a function of the arguments as types
    adjoint   the derivative, backwards: (terms, g, *arguments), with g like the result but of split 0, and terms for
              operands -> what comes of g for each operand, None for nothing; or a sentence that says why there is none.
              `terms` is what they are built with (`glenside.gradients.algebra`), as `arithmetic` is for evaluate
    moved     bytes read and written, a function of evaluate's arguments, where it is not each operand and the result
              once
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
        """Whether each element of the result is one of an operand, or fills a gap between them."""
        return self.kind in (OperatorKind.VIEW, OperatorKind.MOVEMENT)

    @property
    def is_addressed(self) -> bool:
        """Whether it moves elements to places that do not depend on any."""
        return self.kind is OperatorKind.VIEW or self.index_map is not None

    def is_constant(self, operands: Iterable[bool], tensor_is_constant: bool = False) -> bool:
        """Whether a node is made of constants alone, where that is said of its operands: nothing is of a black box, and
        a tensor is what it was declared to be.
        """
        if self.kind is OperatorKind.LEAF and any(field.kind is Kind.TENSOR for field in self.fields):
            return tensor_is_constant
        return not self.opaque and all(operands)

    @property
    def is_priced(self) -> bool:
        """Whether the record says what a node takes: nothing for addressing, its elements for movement, else so many
        operations or matrix products.
        """
        new = self.kind in (OperatorKind.COMPUTE, OperatorKind.INSTRUCTION)
        return not new or self.operations is not None or self.matrices is not None

    def is_linear(self, *arguments: Any) -> bool:
        """`linear` for a node's arguments."""
        return bool(_said(self.linear, arguments, self.is_addressed))

    def kept(self, *arguments: Any) -> Keeps:
        """`keeps` for a node's arguments."""
        return Keeps(_said(self.keeps, arguments, MOVED if self.is_addressed else Keeps.NOTHING))

    def is_shared(self, *arguments: Any) -> bool:
        """`shares` for the arguments of an evaluation."""
        return bool(_said(self.shares, arguments, self.kind is OperatorKind.VIEW))

    def __call__(self, *arguments: Any) -> Any:
        """Build the term: the arguments in field order. Raises TypeMismatch. Patterns give a pattern."""
        for argument in arguments:
            if hasattr(argument, "__applied__"):
                return argument.__applied__(self, arguments)
        from glenside.ir.term import make

        return make(self, arguments)


def _said(fact: Any, arguments: tuple[Any, ...], default: Any) -> Any:
    """What a record says of these arguments."""
    if fact is None:
        return default
    return fact(*arguments) if callable(fact) else fact


class Category(Enum):
    """What a compute type does to (S)(I)."""

    POINTWISE = "pointwise"  # (S)(I), each element by itself
    FOLD = "fold"  # (S)(I[1:]), folds the first item axis, left to right
    REDUCTION = "reduction"  # (S)(), over the whole item
    NORMALIZATION = "normalization"  # (S)(I), each item as a whole
    CONTRACTION = "contraction"  # (S)(), product along the first item axis, sum of the rest


@dataclass(frozen=True, eq=False)
class Compute:
    """A compute type: what `(compute NAME A)` or `(compute (NAME parameter ..) A)` means.

    scalar         for POINTWISE and FOLD types: the expression of one element, or a function from parameters to it.
                   `evaluate`, `scratch`, `dtype`, `linear`, `keeps`, `examples` and derivatives follow, and more of
                   `check`
    combine        for REDUCTION types: the primitive that joins an item's elements to one, in some order
    check          raises TypeMismatch for an operand type (type, *parameters) it cannot take
    evaluate       (arithmetic, operand, *parameters) -> array; the operand is an `Operand`, parameters are their texts
    dtype          the result's dtype: "same", "widen", or a dtype
    linear         whether the result is a sum of elements, each times a number: of all operands together
    orders         whether it depends on which of two numbers is the larger one
    keeps          what else it leaves as it is
    examples       programs that show it
    scratch        bytes that evaluate needs beside operand and result: a function of (operand, *parameters)
    adjoint        (terms, g, operand, *parameters) -> what comes of g for the operand, as for operators, where there is
                   no scalar expression. What gives no reals needs none
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
        """The scalar expression for parameters by their texts."""
        assert self.scalar is not None, f"{self.name} has no scalar expression"
        return self.scalar(*parameters) if callable(self.scalar) else self.scalar

    def __call__(self, *arguments: Any) -> Any:
        """The term `(compute NAME A)`, or the pattern of such a term: its parameters, then A. Raises TypeMismatch."""
        from glenside.ir.operators.compute import compute, compute_text

        *parameters, operand = arguments
        return compute(compute_text(self.name, *parameters), operand)


OPERATORS: dict[str, Operator] = {}
COMPUTES: dict[str, Compute] = {}


def register(record: Record) -> Record:
    """Put a record into the tables. Two records of one name are a mistake in the code, not in the input."""
    table: dict[str, Any] = OPERATORS if isinstance(record, Operator) else COMPUTES
    if record.name in table:
        raise ValueError(f"{record.name} is declared twice")
    if not record.examples and not (isinstance(record, Operator) and record.opaque):
        raise ValueError(f"{record.name} has no example")
    table[record.name] = record
    return record


def _declaring(make: Callable[P, Record]) -> Callable[P, Record]:
    """The constructor of records which also puts them into the tables."""
    return lambda *values, **named: register(make(*values, **named))


operator = _declaring(Operator)
compute_type = _declaring(Compute)


def require(condition: bool, operator: str, requirement: str, got: object) -> None:
    """Raise "OPERATOR requires REQUIREMENT, got GOT" unless the condition holds."""
    if not condition:
        raise TypeMismatch(f"{operator} requires {requirement}, got {got}")
