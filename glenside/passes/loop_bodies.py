"""Changes the bodies of loops: each is a program of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from glenside.builder.layout import split_at
from glenside.ir.operand import Array
from glenside.ir.operators.scan import STATE, body_of, body_text, operand_name
from glenside.ir.program import Program
from glenside.ir.term import Term, build, constants_under, postorder, rebuild, rebuild_all, shared
from glenside.ir.types import Tensor


def read_by_steps(loop: Term) -> list[Term | None]:
    """Returns the operands of a loop, with None for constants, which its body contains."""
    _, _, starts, _, *operands = loop.arguments()
    constant = constants_under(*operands)
    return [None if i >= len(starts) and constant[operand] else operand for i, operand in enumerate(operands)]


def body_program(loop: Term, name: str, constants: Mapping[str, Array]) -> Program:
    """Returns the program of a body, which contains the constant operands of its loop."""
    text, operands = loop.attributes[2], loop.children[1:]
    read = read_by_steps(loop)
    own = {operand_name(i): term for i, term in enumerate(operands) if read[i] is None}

    def put(term: Term, _: tuple[Term, ...]) -> Term | None:
        tensor = next((a for a in term.attributes if isinstance(a, Tensor)), None)
        return split_at(own[tensor.name], 0) if tensor is not None and tensor.name in own else None

    return Program(rebuild(body_of(str(text)).term, put), name, constants=constants)


def with_body(loop: Term, body: Term) -> Term:
    """Returns a loop with another body, whose constants become operands of the loop."""
    initial, length, starts, _, *operands = loop.arguments()
    read = read_by_steps(loop)
    kept = [i for i, operand in enumerate(read) if operand is not None]
    constant = constants_under(body)
    inner = {child for term in constant if constant[term] for child in term.children}
    used = {child for term in constant if not constant[term] for child in term.children}
    outer = [t for t in constant if constant[t] and (t in used or t not in inner) and _is_operand(t)]
    names = {operand_name(i): operand_name(number) for number, i in enumerate(kept)}
    done: dict[Term, Term] = {}
    for number, term in enumerate(outer, len(kept)):
        leaf = build("access-tensor", Tensor(operand_name(number), term.access.dims, term.access.dtype))
        done[term] = split_at(leaf, term.access.split)

    def renamed(term: Term, _: tuple[Term, ...]) -> Term | None:
        tensor = next((a for a in term.attributes if isinstance(a, Tensor)), None)
        if tensor is None or tensor.name == STATE:
            return None
        return shared(term.operator, (), (replace(tensor, name=names[tensor.name]),))

    (made,) = rebuild_all([body], renamed, done)
    own = [*(operands[i] for i in kept), *outer]
    return build("scan", initial, length, starts, body_text(split_at(made, 0)), *own)


def _is_operand(term: Term) -> bool:
    """True unless a constant is written in a body: a number, say."""
    return any(isinstance(a, Tensor) for below in postorder(term) for a in below.attributes)


def with_bodies(program: Program, change: Callable[[Program], Program]) -> Program:
    """Returns a program with the bodies of its loops changed."""
    loops = [term for term in postorder(program.term) if term.operator.name == "scan"]
    new: dict[str, Array] = {}
    bodies: dict[Term, Term] = {}
    for number, loop in enumerate(loops, 1):
        body = change(body_program(loop, f"{program.name}.loop{number}", program.constants))
        own = {name: f"loop{number}.{name}" for name in body.constants_declared if name not in program.constants}
        new |= {other: body.constants[name] for name, other in own.items()}
        bodies[loop] = _with_names(body.term, own)

    def changed(term: Term, children: Sequence[Term]) -> Term | None:
        if term not in bodies:
            return None
        return with_body(shared(term.operator, tuple(children), term.attributes), bodies[term])

    made = program.with_roots(rebuild_all(program.roots, changed))
    return replace(made, constants={**made.constants, **new}) if new else made


def _with_names(root: Term, names: Mapping[str, str]) -> Term:
    """Returns a term whose tensors have other names."""

    def renamed(term: Term, _: tuple[Term, ...]) -> Term | None:
        tensor = next((a for a in term.attributes if isinstance(a, Tensor)), None)
        if tensor is None or tensor.name not in names:
            return None
        return shared(term.operator, (), (replace(tensor, name=names[tensor.name]),))

    return rebuild(root, renamed) if names else root
