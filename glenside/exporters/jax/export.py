"""Exports a program as the source of a Python function, term by term."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable

from glenside.builder.unrolling import without_loops
from glenside.exporters.jax import operators as _operators  # noqa: F401 (fills the tables)
from glenside.exporters.jax.operators.movement import addressed
from glenside.exporters.jax.registry import OPERATOR_EXPORTS, OPERATORS_LEFT_OUT, Held, Operand, left_out
from glenside.exporters.jax.source import Source, Value
from glenside.ir.files import write_with_arrays
from glenside.ir.names import quoted
from glenside.ir.operand import Array
from glenside.ir.operators.requirements import spelled
from glenside.ir.program import Program, as_program
from glenside.ir.replacing import PathLike, WrittenWrong
from glenside.ir.term import Term, weave
from glenside.ir.types import AccessType, Tensor
from glenside.semantics.interpreter import evaluate

# Names that the source uses itself; its values are `v0` and so on.
_TAKEN = re.compile(r"jax|jnp|lax|program|range|v\d+|tensor_\d+|_.*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def argument_names(names: Iterable[str]) -> dict[str, str]:
    """Returns name of a tensor -> its argument: the same name if Python allows it, else tensor_ and its position."""
    return {name: name if _plain(name) else f"tensor_{i}" for i, name in enumerate(names)}


def _plain(name: str) -> bool:
    reserved = keyword.iskeyword(name) or keyword.issoftkeyword(name) or _TAKEN.fullmatch(name)
    return bool(_IDENTIFIER.fullmatch(name)) and not reserved


def export_jax(program: Program) -> str:
    """Returns the program as the source of a Python module with one function `program` of jax.numpy and jax.lax.

    Its arguments are `program.tensors`, inputs and constants alike, in that order; its docstring lists them. A result
    is an array, a tuple a tuple. A product is one `lax.dot_general`. A linear-map is additions, and one product by a
    constant for all rows with denominators. truncate is omitted, since SPU truncates after each product. Numbers of 64
    bits need JAX's `jax_enable_x64`. Loops are written step by step. Raises BadInput for operators without an export:
    those of `OPERATORS_LEFT_OUT`, and others that their own exports refuse.
    """
    program = without_loops(as_program(program, "exported"))
    source = Source(argument_names(program.tensors))
    done: dict[Term, Held] = {}
    for term in program.info.order:
        done[term] = _export(source, term, done)
    return _module(program, source, _result(source, done[program.term]))


def _export(source: Source, term: Term, done: dict[Term, Held]) -> Held:
    name, known = term.operator.name, _known(term, done)
    if known is not None:
        return source.constant(known)
    operands = [Operand(source, child.type, done[child]) for child in term.children]
    if name in OPERATOR_EXPORTS:
        return OPERATOR_EXPORTS[name](source, term.type, *weave(term.operator, operands, term.attributes))
    if term.index_map is None:
        because = f" ({OPERATORS_LEFT_OUT[name]})" if name in OPERATORS_LEFT_OUT else ""
        raise left_out(f"the operator {name}{because}")
    return addressed(source, term.index_map, operands)


def _known(term: Term, done: dict[Term, Held]) -> Array | None:
    """Evaluates a term of numbers of the program alone; returns None for others."""
    given: dict[Term, Array] = {}
    for child in term.children:
        held = done[child]
        if not isinstance(held, Value) or held.constant is None:
            return None
        given[child] = held.constant
    if not isinstance(term.type, AccessType) or term.operator.opaque or term.operator.name == "access-tensor":
        return None
    found: Array = evaluate([term], {}, given=given)[0]
    return found


def _result(source: Source, held: Held) -> str:
    """Returns the expression of a result; tuples may be deep, so inner ones are lines of their own."""
    if not isinstance(held, tuple):
        return source.name(source.in_memory(held))
    names: dict[int, str] = {}
    stack: list[tuple[Held, bool]] = [(held, False)]
    while stack:
        value, ready = stack.pop()
        if not isinstance(value, tuple):
            names[id(value)] = source.name(source.in_memory(value))
        elif ready:
            items = "".join(f"{names[id(item)]}, " for item in value)
            names[id(value)] = source.set(f"({items})", (), "").name
        elif id(value) not in names:
            stack.append((value, True))
            stack += [(item, False) for item in value]
    return names[id(held)]


def _module(program: Program, source: Source, result: str) -> str:
    arguments = source.arguments
    described = [_described(argument, program.tensors[name]) for name, argument in arguments.items()]
    doc = [f"The program {_shown(program.name)}, written by Glenside.", *([""] if described else []), *described]
    if isinstance(program.term.type, AccessType):
        doc += ["", f"The result is of {spelled(program.term.type.dims)} {program.term.type.dtype}."]
    lines = [
        '"""A program as a function of JAX, which SPU compiles too."""',
        "",
        "import jax.numpy as jnp",
        "from jax import lax",
        "",
        "",
        f"def program({', '.join(arguments.values())}):",
        *(f"    {start}{line}".rstrip() for start, line in zip(['"""', *[""] * len(doc)], doc, strict=False)),
        '    """',
        *(f"    {line}" for line in source.lines),
        f"    return {result}",
        "",
    ]
    used = any("lax." in line for line in source.lines)
    return "\n".join(line for line in lines if used or line != "from jax import lax")


def _described(argument: str, tensor: Tensor) -> str:
    kind = "constant" if tensor.constant else "input"
    called = "" if argument == tensor.name else f", which the program calls {_shown(tensor.name)}"
    return f"{argument}: {kind} of {spelled(tensor.dims)} {tensor.dtype}{called}"


def _shown(name: str) -> str:
    """Returns a name for a docstring, in which nothing ends the string or starts an escape."""
    if re.fullmatch(r"[A-Za-z0-9_.:/-]+", name, re.ASCII):
        return name
    return quoted(name.encode("unicode-escape").decode("ascii").replace('"', "'")).replace("\\", "/").replace('"', "'")


def save_jax(program: Program, path: PathLike) -> None:
    """Writes `export_jax(program)`, and the values of constants as .npz next to it, if there are any: both or neither.

    Values of dtypes that numpy lacks are stored as bits, in a field named by the dtype. Raises BadInput.
    """

    def verify(text: str) -> None:
        function = ast.parse(text).body[-1]
        arguments = [each.arg for each in function.args.args] if isinstance(function, ast.FunctionDef) else []
        if arguments != [*argument_names(program.tensors).values()]:
            raise WrittenWrong(path, f"its arguments are {', '.join(arguments)}")

    write_with_arrays(path, export_jax(program), program.constants, verify)
