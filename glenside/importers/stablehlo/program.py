"""Reads a module of StableHLO as a program: calls are inlined, and constants and arguments declared."""

from __future__ import annotations

import re
from collections import ChainMap
from dataclasses import replace
from pathlib import Path

from glenside.builder import Builder
from glenside.importers.jax.walk import Scope
from glenside.importers.stablehlo.operators import OPERATORS
from glenside.importers.stablehlo.parser import parsed
from glenside.importers.stablehlo.reader import Reader
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.names import numbered
from glenside.ir.program import Program, Signature
from glenside.ir.replacing import PathLike
from glenside.ir.term import Term, build


def load_stablehlo(path: PathLike) -> Program:
    """Returns the program of a file. Raises BadInput."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no text: write StableHLO with as_text(), not as bytecode") from None
    try:
        return from_stablehlo(text)
    except BadInput as error:
        raise BadInput(f"{path}: {error.message}") from error


def from_stablehlo(text: str) -> Program:
    """Returns the program of the function `main` of a text, which `jax.jit(f).lower(*examples).as_text()` returns.

    Sizes are numbers. Inputs have the names of the function's arguments where the text has them, which it has with
    `as_text(debug_info=True)` and from `jax.export`; else arg0, arg1 .. Several results are a tuple;
    `program.signature` has their names. Raises BadInput, with the operator and its line.
    """
    if not isinstance(text, str):
        raise BadInput(f"from_stablehlo takes a text, got {type(text).__name__}")
    module = parsed(text)
    main = module.functions.get("main")
    if main is None:
        raise BadInput("the text has no function @main")
    if not main.results:
        raise BadInput("the function @main returns no tensor; a program requires one")
    scope = Scope(Builder(module.name.removeprefix("jit_") or "main"))
    operands = []
    for value, location, (dims, dtype) in zip(main.body.arguments, main.names, main.types, strict=True):
        name = ".".join(_keys(module.named(location)) or [value.strip("%")])
        operands.append(scope.builder.input(numbered(name, scope.builder.tensors), dims, dtype))
    reader = Reader(scope, module, OPERATORS)
    found = reader.results(main.body, operands, ChainMap())
    results: dict[str, Term] = {}
    for attributes, term in zip(main.results, found, strict=True):
        keys = _keys(str(attributes.get("jax.result_info", "")))[1:]
        results[numbered(".".join(keys) or "output", results)] = term
    term, *others = results.values()
    program = scope.builder.finish(build("construct-tuple", term, *others) if others else term)
    fixed = frozenset(n for n, own in program.constants_declared.items() if not own.dims or own.dtype not in FLOATS)
    return replace(program, signature=Signature(tuple(program.inputs.values()), tuple(results), fixed=fixed))


def _keys(path: str) -> list[str]:
    """Returns the parts of the name of an argument or result: `params['w'][0]` has three."""
    return re.findall(r"[^\[\]'\"\\. ]+", path)
