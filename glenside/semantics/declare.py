"""Declares an operator of a user: one record, tested on its examples when it is declared."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from enum import Enum
from functools import partial
from typing import Any, TypeVar

import numpy as np

from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput, GlensideError, line_of_caller
from glenside.ir.names import suggestion
from glenside.ir.operator import COMPUTES, OPERATORS, Category, Compute, Example, Field, Kind, Operator, OperatorKind
from glenside.ir.operators import parse_compute
from glenside.ir.program import Program
from glenside.ir.scalar import Element, Scalar
from glenside.ir.term import Term, postorder, weave
from glenside.ir.text import parse, print_term
from glenside.ir.types import AccessType, TupleType
from glenside.semantics.interpreter import evaluate as values_of

Choice = TypeVar("Choice", bound=Enum)
Record = TypeVar("Record", Operator, Compute)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_OWN: set[Operator | Compute] = set()
"""Records of the user: these may be declared again, as in a notebook."""
_DRAWS = 2
"""Draws of sizes and values on which a record is tested."""


def operator(
    name: str,
    kind: str | OperatorKind | Category,
    *,
    doc: str,
    examples: Example | Sequence[Example],
    fields: Mapping[str, str | Kind | Sequence[str]] | None = None,
    result: Callable[..., Any] | None = None,
    evaluate: Callable[..., Any] | None = None,
    scalar: Scalar | Callable[..., Scalar] | None = None,
    check: Callable[..., None] | None = None,
    **more: Any,
) -> Operator | Compute:
    """Declares an operator, and returns a function that builds its terms and patterns.

        roll = gl.operator(
            "access-roll",
            "movement",
            fields={"a": "term", "axis": "int", "n": "int"},
            result=lambda a, axis, n: a,
            evaluate=lambda _, a, axis, n: np.roll(a, n, axis),
            doc="Rotates the elements of an axis by n.",
            examples=gl.Example("(access-roll (access (access-tensor x) 1) 1 2)", {"x": "m 5 n"}),
        )
        cube = gl.operator("cube", "pointwise", scalar=lambda x: x * x * x, doc="..", examples=..)

    kind      leaf, view, movement, compute or instruction: `(name arguments ..)`; or pointwise, fold, reduction,
              normalization or contraction: `(compute name A)`
    fields    argument -> term, terms, int, ints, shape, access-shape, number, dtype, text, tensor or compute; or the
              keywords that it may be. In the order of the text
    result    the type rule: (arguments) -> type, with types for terms
    evaluate  the meaning: (arithmetic, arguments) -> array of all axes, with arrays for terms
    scalar    the meaning of a pointwise or fold kind: an expression of elements, (x) or (x, y) -> expression, with the
              functions of `gl.primitives`
    check     raises an error by `gl.require` for arguments that are not allowed
    more      other fields of the record, such as `index_map` (with `gl.index_map`: then machines and compiled code know
              where each element comes from), `adjoint` (the derivative), `matrices`, `linear`

    The record is tested at once on its examples, at two draws of sizes: they are read and printed, type rule and
    meaning agree, and so do index map and meaning. Raises BadInput with the line of the declaration.
    """
    place = line_of_caller(1)
    examples = (examples,) if isinstance(examples, Example | str) else tuple(examples)
    try:
        of_elements = isinstance(kind, Category) or kind in {one.value for one in Category}
        given = {"name": name, "doc": doc, "examples": examples, "check": check, "evaluate": evaluate, **more}
        if of_elements:
            given |= {"category": _choice(Category, kind), "scalar": _expression(scalar, more)}
            return _declared(Compute, COMPUTES, given)
        wanted = {"fields": fields, "result": result, "evaluate": evaluate}
        if missing := next((what for what, value in wanted.items() if value is None), None):
            raise BadInput(f"{missing}= is missing")
        made = tuple(_field(name, of) for name, of in (fields or {}).items())
        checked = {"check": check or (lambda *_: None)}
        return _declared(
            Operator,
            OPERATORS,
            given | checked | {"kind": _choice(OperatorKind, kind), "fields": made, "result": result},
        )
    except (GlensideError, ValueError, TypeError) as error:
        raise BadInput(f"the operator {name}: {getattr(error, 'message', error)}", place) from error


def _choice(choices: type[Choice], given: Any) -> Choice:
    """Returns the member of an enumeration by its text. Raises BadInput."""
    if isinstance(given, choices):
        return given
    known = [one.value for of in ((Kind,) if choices is Kind else (OperatorKind, Category)) for one in of]
    found = next((one for one in choices if one.value == given), None)
    if found is None:
        raise BadInput(f"a kind is one of {', '.join(known)}, got {given!r}{suggestion(str(given), known)}")
    return found


def _field(name: str, of: str | Kind | Sequence[str]) -> Field:
    """Returns the field of an argument. Raises BadInput."""
    if isinstance(of, str | Kind):
        return Field(name, _choice(Kind, of))
    return Field(name, Kind.KEYWORD, tuple(of))


def _expression(scalar: Scalar | Callable[..., Scalar] | None, more: Mapping[str, Any]) -> Any:
    """Returns the expression of a function of elements; a function of parameters stays a function."""
    if scalar is None or isinstance(scalar, Scalar) or more.get("parameters"):
        return scalar
    found = _tried("scalar fails", lambda: scalar(*map(Element, range(scalar.__code__.co_argcount))))
    if not isinstance(found, Scalar):
        raise BadInput(f"scalar returns {found!r} instead of an expression of elements")
    return found


def _declared(kind: type[Record], table: dict[str, Record], given: Mapping[str, Any]) -> Record:
    """Returns the tested record, registered. Raises BadInput."""
    known = [one.name for one in dataclass_fields(kind)]
    if unknown := next((name for name in given if name not in known), None):
        raise BadInput(f"there is no {unknown}={suggestion(unknown, known)}")
    name = given["name"]
    if not _NAME.fullmatch(name):
        raise BadInput("a name is letters, digits and hyphens, such as access-roll")
    if name in table and table[name] not in _OWN:
        raise BadInput("Glenside has an operator of this name")
    if wrong := next((one for one in given["examples"] if not isinstance(one, Example)), None):
        raise BadInput(f"an example is made by gl.Example(text, {{tensor: sizes}}), got {wrong!r}")
    if not given["examples"] or not given["doc"]:
        raise BadInput("it has no example" if given["doc"] else "doc= is empty")
    before, record = table.get(name), kind(**given)
    table[name] = record
    parse_compute.cache_clear()
    try:
        for example in record.examples:
            for seed in range(_DRAWS):
                _test(record, example, seed)
    except BaseException:
        del table[name]
        table.update({} if before is None else {name: before})
        parse_compute.cache_clear()
        raise
    _OWN.add(record)
    return record


def _test(record: Operator | Compute, example: Example, seed: int) -> None:
    """Tests a record on one example. Raises BadInput."""
    program = _tried("its example cannot be read", partial(example.program, seed))
    shapes = {name: tuple(t.dims) for name, t in program.tensors.items()}
    if parse(print_term(program.term), shapes=shapes).term is not program.term:
        raise BadInput(f"its example is another term when it is printed and read again: {print_term(program.term)}")
    nodes = [term for term in postorder(program.term) if _is_of(record, term)]
    if not nodes:
        raise BadInput(f"its example {example.text} does not have it")
    values = _drawn(program, seed)
    for node in nodes:
        (value,) = _tried("evaluate fails on its example", partial(values_of, [node], values))
        if isinstance(node.type, TupleType):
            continue
        if not isinstance(node.type, AccessType):
            raise BadInput(f"the type rule returns {node.type!r} instead of a type, for {node}")
        found, said = (np.shape(value), np.asarray(value).dtype.name), (tuple(node.type.dims), node.type.dtype)
        if found != said:
            raise BadInput(f"evaluate returns {_words(*found)} where the type rule says {_words(*said)}, for {node}")
        if isinstance(record, Operator) and record.index_map is not None:
            arguments = weave(record, [child.access for child in node.children], node.attributes)
            index_map = _tried("index_map fails on its example", partial(record.index_map, *arguments))
            operands = values_of(list(node.children), values)
            moved = _tried("index_map fails on its example", partial(_gathered, index_map, operands))
            if not np.array_equal(moved, value, equal_nan=True):
                raise BadInput(f"index_map and evaluate disagree, for {node}")


def _tried(what: str, make: Callable[[], Any]) -> Any:
    """Returns the result of a user's function. Raises BadInput for any error in it."""
    try:
        return make()
    except GlensideError as error:
        raise BadInput(f"{what}: {error}") from error
    except Exception as error:
        raise BadInput(f"{what}: {type(error).__name__}: {error}") from error


def _gathered(index_map: Any, operands: Sequence[Any]) -> Any:
    return index_map.gather(operands)


def _is_of(record: Operator | Compute, term: Term) -> bool:
    if isinstance(record, Operator):
        return term.operator is record
    return term.operator.name == "compute" and parse_compute(str(term.attributes[0]))[0] is record


def _drawn(program: Program, seed: int) -> dict[str, Any]:
    """Returns small positive whole numbers for the tensors of a program."""
    generator = np.random.default_rng(seed)
    return {n: generator.integers(1, 4, t.dims).astype(RECORDS[t.dtype].numpy) for n, t in program.tensors.items()}


def _words(dims: Sequence[int], dtype: str) -> str:
    return f"({' '.join(map(str, dims))}) {dtype}"
