"""Defines the loop of a recurrence: a body that computes the next state, applied step by step."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from glenside.ir.operand import Array, Operand, in_memory
from glenside.ir.operator import Kind, OperatorKind, example, fields, operator, require
from glenside.ir.term import Term, build, postorder, shared, weave
from glenside.ir.types import AccessType, Dims, Tensor, TupleType

STATE = "state"
"""The name of the state in a body."""


def operand_name(i: int) -> str:
    """Returns the name of operand i in a body."""
    return f"operand.{i}"


class Body(NamedTuple):
    """A body: its term, the terms below it in order, and its tensors by name."""

    term: Term
    order: tuple[Term, ...]
    tensors: dict[str, Tensor]


@lru_cache(maxsize=256)
def body_of(text: str) -> Body:
    """Returns the body of a text. Raises ParseError."""
    from glenside.ir.text import parse

    program = parse(text)
    return Body(program.term, tuple(postorder(program.term)), dict(program.tensors))


def body_text(term: Term) -> str:
    """Returns the text of a body, in one line."""
    from glenside.ir.program import Program
    from glenside.ir.text import print_program

    return " ".join(print_program(Program(term)).split())


def _check(initial: AccessType, length: int, starts: Dims, body: str, *operands: Any) -> None:
    require(initial.rank == 1, "scan", "an initial state of one axis", initial)
    require(length >= 0, "scan", "a length of at least 0", length)
    require(len(starts) <= len(operands), "scan", "an operand for each start", len(operands))
    found = body_of(body)
    result = found.term.type
    require(not isinstance(result, TupleType), "scan", "a body that gives one state", result)
    own = found.term.access
    require((own.dims, own.dtype) == (initial.dims, initial.dtype), "scan", f"a body that gives {initial}", own)
    kinds = {STATE: (initial.dims, initial.dtype)}
    for i, operand in enumerate(operands):
        require(isinstance(operand, AccessType), "scan", "operands that are access patterns", operand)
        dims = operand.dims
        if i < len(starts):
            fits = operand.rank > 0 and 0 <= starts[i] <= operand.dims[0] - length
            require(fits, "scan", f"an operand of {starts[i]} + {length} elements", operand)
            dims = operand.dims.drop(1)
        kinds[operand_name(i)] = dims, operand.dtype
    for tensor in found.tensors.values():
        known = kinds.get(tensor.name)
        require((tensor.dims, tensor.dtype) == known, "scan", f"{tensor.name} as the operand is", tensor)


def _evaluate(f: Any, initial: Array, length: int, starts: Dims, body: str, *operands: Array) -> Array:
    found = body_of(body)
    result = np.empty((length + 1, *initial.shape), initial.dtype)
    result[0] = initial
    for step in range(length):
        given = {STATE: result[step]}
        for i, operand in enumerate(operands):
            given[operand_name(i)] = operand[starts[i] + step] if i < len(starts) else operand
        result[step + 1] = _value(f, found, given)
    return result


def _value(f: Any, body: Body, given: dict[str, Array]) -> Any:
    """Evaluates a body in an arithmetic."""
    held: dict[Term, Any] = {}
    for term in body.order:
        (*tensors,) = (a for a in term.attributes if isinstance(a, Tensor))
        if tensors:
            held[term] = given[tensors[0].name]
            continue
        typed = term.operator.typed
        operands = [Operand(c.type, held[c]) if typed else in_memory(held[c]) for c in term.children]
        held[term] = term.operator.evaluate(f, *weave(term.operator, operands, term.attributes))
    return in_memory(held[body.term])


def steps(term: Term) -> list[Term]:
    """Returns the states of a scan as terms, the initial one first: the loop unrolled."""
    initial, length, starts, text, *operands = term.arguments()
    body, states = body_of(text), [initial]
    for step in range(length):
        given = {STATE: states[-1]}
        for i, operand in enumerate(operands):
            if i < len(starts):
                at = starts[i] + step
                row = build("access-slice", build("access", operand, 0), 0, at, at + 1)
                operand = build("access-reshape", row, ((), operand.access.dims.drop(1)))
            given[operand_name(i)] = build("access", operand, 0)
        states.append(_instance(body, given))
    return states


def _instance(body: Body, given: dict[str, Term]) -> Term:
    """Returns a body with terms in place of its tensors."""
    made: dict[Term, Term] = {}
    for term in body.order:
        (*tensors,) = (a for a in term.attributes if isinstance(a, Tensor))
        children = [made[child] for child in term.children]
        made[term] = given[tensors[0].name] if tensors else shared(term.operator, tuple(children), term.attributes)
    return build("access", made[body.term], 0)


def _operations(initial: AccessType, length: int, starts: Dims, body: str, *operands: AccessType) -> int:
    count = 0
    for term in body_of(body).order:
        record, types = term.operator, [child.type for child in term.children]
        arguments = weave(record, types, term.attributes)
        if record.operations is not None:
            count += record.operations(*arguments)
    return length * count


scan = operator(
    name="scan",
    kind=OperatorKind.COMPUTE,
    fields=fields(initial=Kind.TERM, length=Kind.INT, starts=Kind.INTS, body=Kind.TEXT, operands=Kind.TERMS),
    check=_check,
    result=lambda initial, length, starts, body, *operands: AccessType(
        Dims((length + 1, *initial.dims)), 0, initial.dtype
    ),
    evaluate=_evaluate,
    symbolic=False,  # no rule builds loops
    operations=_operations,
    examples=example(
        '(scan (access-tensor h) 3 (list 1) "(input state (shape $n) float32) (input operand.0 (shape $n) float32) '
        '(compute elementwise-add (access-cartesian-product (access-tensor state) (access-tensor operand.0)))" '
        "(access-tensor x))",
        h="n",
        x="5 n",
    ),
    doc="All states of a recurrence, ()(length + 1 K): the initial state ()(K), and after each step the body of the "
    "state before it. The body is a program in quotes whose tensors are state, and operand.0, operand.1 ..: of the "
    "first operands, one for each start, step t reads element start + t of the first axis; of the others, all.",
    adjoint="gradients are those of its steps, written one after the other",
)
