"""Generates random well-typed programs from the records of operators, so that a new operator needs no code here.

Each step applies one record to terms that were drawn before, in one of three ways: an example of the record at drawn
sizes, with earlier terms adapted to its operands; the same with other attributes; or arguments drawn by their kinds.
The record's own type rule decides which are legal.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from math import prod
from string import Template
from typing import Any

from glenside.builder.layout import split_at
from glenside.fuzzing.adapting import SIZE_LIMIT, adapted, below, cast_to, fits
from glenside.fuzzing.leaves import LARGE, NUMBERS, PAGES, Leaves, Settings
from glenside.ir.dtypes import COMPUTED, DTYPES, limits
from glenside.ir.errors import GlensideError
from glenside.ir.operator import COMPUTES, OPERATORS, Compute, Example, Field, Kind, Operator, OperatorKind
from glenside.ir.operators.compute import compute, compute_text
from glenside.ir.program import Program
from glenside.ir.term import Term, build, make, postorder, rebuild, tensors, weave
from glenside.ir.text import parse
from glenside.ir.types import AccessType, Dims, Tensor

_TRIES = 8
_WHOLE = 0.3
"""The share of steps that apply a whole example, if examples are given."""


class Generator(Leaves):
    """Draws one program. Equal random number generators give equal programs."""

    def __init__(
        self,
        pick: random.Random,
        settings: Settings | None = None,
        pool: Sequence[Term] = (),
        examples: Sequence[Example] = (),
    ) -> None:
        super().__init__(pick, settings or Settings())
        self.examples = examples
        self.only = ""
        self.pool = [term for term in pool if isinstance(term.type, AccessType) and fits(term)]
        self.names |= {tensor.attributes[0].name for tensor in tensors(*pool)}  # type: ignore[union-attr]
        every: list[Operator | Compute] = [*OPERATORS.values(), *COMPUTES.values()]
        self.records = tuple(
            record
            for record in every
            if record is not compute
            and not (isinstance(record, Operator) and (record.kind is OperatorKind.LEAF or _ends(record)))
            and (self.settings.opaque or not (isinstance(record, Operator) and record.opaque))
        )

    def term(self) -> Term:
        """Draws a term of one or several results."""
        pick = self.pick
        self.pool.append(self.input(self.dims(), self.dtype()))
        for _ in range(pick.randint(0, 2)):
            self.pool.append(self.leaf(self.dims(), self.dtype()) if pick.random() < 0.6 else self.known_leaf())
        for _ in range(pick.randint(1, self.settings.steps)):
            whole = bool(self.examples) and pick.random() < _WHOLE
            record = pick.choice(self.examples) if whole else pick.choice(self.records)
            for _ in range(_TRIES):
                new = self.applied(record)
                if new is not None:
                    self.pool.append(new)
                    break
        roots = [self.pool[-1]]
        if pick.random() < 0.2:
            roots += pick.sample(self.pool, min(len(self.pool), pick.randint(1, 2)))
        if len(roots) == 1:
            return roots[0]
        made = build("construct-tuple", *roots)
        return build("tuple-get-item", made, pick.randrange(len(roots))) if pick.random() < 0.3 else made

    def program(self) -> Program:
        """Draws a program."""
        return Program(self.term())

    # Steps.

    def operand(self) -> Term:
        """Returns an earlier term: mostly the last one, so that programs are deep rather than wide."""
        return self.pool[-1] if self.pick.random() < 0.6 else self.pick.choice(self.pool)

    def like(self, dims: Sequence[int], dtype: str) -> Term:
        """Returns a term of type ()(dims): an earlier one adapted, or a leaf."""
        if self.pick.random() < 0.75:
            try:
                found = adapted(self.operand(), dims, dtype, self.pick)
                if found is not None and fits(found):
                    return found
            except GlensideError:
                pass
        return self.leaf(dims, dtype)

    def applied(self, record: Operator | Compute | Example) -> Term | None:
        """Returns one application of the record, or a whole example; None if the draw was not legal."""
        try:
            way = self.pick.random()
            if isinstance(record, Example):
                drawn = self.instance(record)
                new = None if drawn is None else self.over_terms(drawn)
            else:
                new = self.of_example(record, way < 0.25) if way < 0.5 else self.of_kinds(record)
        except (GlensideError, IndexError, ValueError):
            return None
        if new is None or not isinstance(new.type, AccessType) or not fits(new):
            return None
        return new

    def of_example(self, record: Operator | Compute, other: bool) -> Term | None:
        """Returns an example of the record at drawn sizes, over earlier terms; with `other`, its attributes change
        too.
        """
        if not record.examples:
            return self.of_kinds(record)
        program = self.instance(self.pick.choice(record.examples))
        if program is None:
            return None
        found = self.over_terms(program)
        if found is None or not other:
            return found
        return self.changed(found)

    def instance(self, example: Example) -> Term | None:
        """Returns the term of an example at drawn sizes."""
        words = [*re.findall(r"\$(\w+)", example.text), *(w for dims in example.shapes.values() for w in dims.split())]
        sizes = {word: self.size() for word in sorted(set(words)) if not word.isdigit()}
        if sizes and self.wide:
            sizes[self.pick.choice(sorted(sizes))] = self.pick.choice((*PAGES, *LARGE))
        shapes = {
            name: tuple(int(word) if word.isdigit() else sizes[word] for word in dims.split())
            for name, dims in example.shapes.items()
        }
        if any(prod(dims) > SIZE_LIMIT // 4 for dims in shapes.values()):
            return None
        return parse(Template(example.text).substitute(sizes), shapes=shapes).term

    def over_terms(self, example: Term) -> Term | None:
        """Returns the example with other terms for its tensors, and legal indices for its indices."""
        picks: dict[Term, Term] = {}
        for node in postorder(example):
            arguments = dict(zip((f.name for f in node.operator.fields), node.arguments(), strict=False))
            if "indices" in arguments:
                indices = arguments["indices"]
                found = self.indices(indices.access.dims, picked_size(arguments), indices.access.dtype)
                if found is None:
                    return None
                picks[indices] = found
        inside = {*postorder(*picks)}

        def replace(term: Term, children: tuple[Term, ...]) -> Term | None:
            if term in picks:
                return picks[term]
            if term.operator.name == "access-tensor" and term not in inside:
                return self.like(term.access.dims, self.dtype_for(term))
            return None

        return self.apart(rebuild(example, replace))

    def dtype_for(self, leaf: Term) -> str:
        """Returns the dtype of the operand for a leaf of an example."""
        return self.only if self.only and leaf.access.dtype == "float32" else leaf.access.dtype

    def apart(self, term: Term) -> Term:
        """Returns the term with other tensors for the second of equal operands, which hide which of them is read."""

        def replace(own: Term, children: tuple[Term, ...]) -> Term | None:
            if len(children) < 2 or children[0] is not children[1]:
                return None
            copy = rebuild(children[1], lambda leaf, _: self.renamed(leaf))
            return make(own.operator, weave(own.operator, (children[0], copy, *children[2:]), own.attributes))

        return rebuild(term, replace)

    def renamed(self, leaf: Term) -> Term | None:
        """Returns a new tensor like a leaf; None for other terms."""
        if leaf.operator.name != "access-tensor":
            return None
        return self.input(leaf.access.dims, leaf.access.dtype, leaf.attributes[0].constant)  # type: ignore[union-attr]

    def indices(self, dims: Sequence[int], size: int, dtype: str = "") -> Term | None:
        """Returns indices below a size: a tensor, numbers, or computed from an earlier term."""
        pick = self.pick
        dtype = dtype or pick.choice(("int64", "int64", "int32", "uint8", "int8"))
        if size < 1:
            return None if prod(dims) else build("access-tensor", Tensor(self.fresh("i"), Dims(dims), dtype))
        way = pick.random()
        if way < 0.3:
            return build("access-tensor", Tensor(self.fresh("i"), Dims(dims), dtype, pick.random() < 0.2))
        if way < 0.45 and prod(dims) <= 24:
            most = min(size, limits(dtype)[1] + 1)
            return build("numbers", dims, " ".join(str(pick.randrange(most)) for _ in range(prod(dims))), dtype)
        return below(self.operand(), size, dims, dtype, pick)

    def changed(self, term: Term) -> Term | None:
        """Returns the same operator with one attribute changed."""
        if not term.attributes:
            return None
        at = self.pick.randrange(len(term.attributes))
        attributes = list(term.attributes)
        value = attributes[at]
        if isinstance(value, int):
            attributes[at] = max(0, value + self.pick.choice((-2, -1, 1, 2, 3)))
        elif isinstance(value, Dims):
            sizes = list(value)
            if self.pick.random() < 0.5 and len(sizes) > 1:
                self.pick.shuffle(sizes)
            elif sizes:
                place = self.pick.randrange(len(sizes))
                sizes[place] = max(0, sizes[place] + self.pick.choice((-2, -1, 1, 2)))
            attributes[at] = Dims(sizes)
        else:
            return None
        return make(term.operator, weave(term.operator, term.children, attributes))

    def of_kinds(self, record: Operator | Compute) -> Term | None:
        """Returns the record applied to arguments that are drawn by their kinds."""
        if isinstance(record, Compute):
            return self.of_compute(record)
        operands: list[Term] = []
        arguments: dict[str, Any] = {}
        for field in sorted(record.fields, key=lambda f: f.kind not in (Kind.TERM, Kind.TERMS)):
            if field.name == "indices" and operands:
                continue
            arguments[field.name] = self.argument(field, operands)
        if any(field.name == "indices" for field in record.fields):
            a = operands[0]
            axis = arguments.get("axis", arguments.get("shared", 0))
            size = a.access.dims[axis]
            rank = self.pick.randint(0, 2)
            dims = tuple(self.size() for _ in range(rank))
            if "axis" not in arguments:
                count = self.pick.randint(1, max(1, a.access.rank - axis))
                size = min(a.access.dims[axis : axis + count])
                dims = (*a.access.dims[:axis], *dims, count)
            indices = self.indices(dims, size)
            if indices is None:
                return None
            arguments["indices"] = indices
            if "updates" in arguments:
                updates = (*dims[:-1], *a.access.dims[axis + dims[-1] :])
                arguments["updates"] = self.like(updates, a.access.dtype)
        return self.legal(record, [arguments[field.name] for field in record.fields])

    def legal(self, record: Operator, arguments: Sequence[Any]) -> Term | None:
        """Returns the application, with operands cast to another dtype if the type rule refuses theirs."""
        variadic = bool(record.fields) and record.fields[-1].kind is Kind.TERMS
        flat = [*arguments[:-1], *arguments[-1]] if variadic else [*arguments]
        try:
            return make(record, flat)
        except GlensideError:
            dtype = self.pick.choice(("float32", "float32", "float64", "int32", "int8", "int64", "bool", "uint8"))
            cast = [cast_to(a, dtype) if isinstance(a, Term) and a.access.dtype != dtype else a for a in flat]
            return make(record, cast)

    def of_compute(self, record: Compute) -> Term | None:
        """Returns a compute type over an earlier term; operands of a fold are stacked along a new axis."""
        parameters = [self.parameter(field) for field in record.parameters]
        text = compute_text(record.name, *parameters)
        a = self.operand()
        if record.category.value in ("fold", "contraction") and self.pick.random() < 0.8:
            dims, dtype = tuple(a.access.dims), a.access.dtype
            count = 3 if record.name == "select" else self.pick.choice((2, 2, 2, 3, 1))
            parts = [split_at(a, 0), *(self.like(dims, dtype) for _ in range(count - 1))]
            self.pick.shuffle(parts)
            split = self.pick.randint(0, len(dims))
            rows = [build("access-insert-axis", split_at(part, split), split) for part in parts]
            joined = rows[0]
            for row in rows[1:]:
                joined = build("access-concatenate", split_at(joined, split), split_at(row, split), split)
            a = split_at(joined, split)
        elif a.access.rank and self.pick.random() < 0.5:
            a = split_at(a, self.pick.randint(0, a.access.rank))
        return self.legal(compute, [text, a])

    def parameter(self, field: Field) -> str:
        """Returns a parameter of a compute type."""
        return self.pick.choice(field.choices) if field.choices else self.pick.choice(NUMBERS)

    def argument(self, field: Field, operands: list[Term]) -> Any:
        """Returns an argument of that kind; operands are appended to the list."""
        pick, kind = self.pick, field.kind
        if kind is Kind.TERM:
            operands.append(self.matching(operands[0]) if operands else self.grouped(self.operand()))
            return operands[-1]
        if kind is Kind.TERMS:
            return tuple(self.operand() for _ in range(pick.randint(1, 3)))
        if field.choices:
            return pick.choice(field.choices)
        if kind is Kind.DTYPE:
            return pick.choice(COMPUTED if pick.random() < 0.8 else DTYPES)
        if kind is Kind.NUMBER:
            return pick.choice(NUMBERS)
        a = operands[0].access if operands else AccessType(Dims((2, 3)), 0, "float32")
        return self.attribute(kind, a)

    def attribute(self, kind: Kind, a: AccessType) -> Any:
        """Returns numbers or a text, drawn from the numbers or texts of an operand's type."""
        pick = self.pick
        if kind is Kind.INT:
            return pick.choice((0, 1, 1, 2, 3, a.split, a.rank, max(0, a.rank - 1), *a.dims))
        if kind is Kind.TEXT:
            return self.text(a)
        if kind is Kind.ACCESS_SHAPE:
            return self.access_shape(a)
        if kind is Kind.INTS:
            if pick.random() < 0.7:
                return pick.sample(range(a.rank), a.rank)
            return tuple(pick.randint(-1, 3) for _ in range(pick.choice((a.rank - a.split, a.rank, 1))))
        sizes = pick.choice((a.item, a.dims, a.shape))
        return tuple(pick.choice((1, 1, 2, 3, size, max(1, size - 1), size + 1)) for size in sizes)

    def text(self, a: AccessType) -> str:
        """Returns numbers for a record with coefficients, in a count that fits some axis, or a key."""
        if not a.rank or self.pick.random() < 0.1:
            return f"key-{self.pick.randint(0, 1)}"
        count = a.dims[self.pick.randrange(a.rank)] * self.pick.randint(1, 3)
        return " ".join(self.pick.choice(("0", "1", "-1", "2", "1/2")) for _ in range(min(count, 200)))

    def access_shape(self, a: AccessType) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns other dims with as many elements, or the same with axes of size 1 repeated."""
        pick = self.pick
        dims = list(a.dims)
        match pick.randrange(5):
            case 0:
                dims = [pick.randint(1, 4) if size == 1 else size for size in dims]
            case 1:
                pick.shuffle(dims)
            case 2 if len(dims) > 1:
                at = pick.randrange(len(dims) - 1)
                dims[at : at + 2] = [dims[at] * dims[at + 1]]
            case 3:
                dims.insert(pick.randint(0, len(dims)), 1)
            case 4 if dims:
                at = pick.randrange(len(dims))
                factors = [n for n in range(2, dims[at]) if dims[at] % n == 0]
                if factors:
                    factor = pick.choice(factors)
                    dims[at : at + 1] = [factor, dims[at] // factor]
        split = a.split if pick.random() < 0.5 and a.split <= len(dims) else pick.randint(0, len(dims))
        return tuple(dims[:split]), tuple(dims[split:])

    def grouped(self, a: Term) -> Term:
        """Returns a term with its split moved, in half of all cases."""
        return split_at(a, self.pick.randint(0, a.access.rank)) if self.pick.random() < 0.5 else a

    def matching(self, a: Term) -> Term:
        """Returns a second operand: with the dims, item or rank of the first, or any."""
        own, pick = a.access, self.pick
        dims, dtype = list(own.dims), own.dtype
        way = pick.random()
        if way < 0.15:
            return self.grouped(self.operand())
        if way < 0.5 and dims:
            dims[pick.randrange(len(dims))] = self.size()
        elif way < 0.7:
            dims = [*(self.size() for _ in range(pick.randint(0, 2))), *own.item]
        found = self.like(dims, dtype)
        item = len(own.item)
        return split_at(found, max(0, len(dims) - item)) if pick.random() < 0.8 else found


def picked_size(arguments: dict[str, Any]) -> int:
    """Returns the bound of indices: the size of the named axis, or the smallest of the indexed axes."""
    dims = arguments["a"].access.dims
    if "axis" in arguments:
        return int(dims[arguments["axis"]])
    first, count = arguments["shared"], arguments["indices"].access.dims[-1]
    return int(min(dims[first : first + count], default=1))


def _ends(record: Operator) -> bool:
    """True if the record makes or takes tuples, which only a root is."""
    return record.name in ("construct-tuple", "tuple-get-item")
