"""Plants faults in lowering: mutates its source and the loops that it returns, and records which check finds each.

A fault of source is one change in the syntax tree of one function of a module that lowers: a number, an operator, the
order of operands, a condition, a statement too few. One of loops is a change of one statement or formula.
"""

from __future__ import annotations
import __future__

import ast
import copy
import importlib
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import broken_loops
import numpy as np

import glenside as gl
from glenside.builder import indexing, layout, pointwise, windows
from glenside.codegen.loop_ir.ir import (
    Apply,
    Choose,
    Convert,
    For,
    Load,
    Loops,
    Number,
    Require,
    Role,
    Sort,
    Store,
    When,
)
from glenside.codegen.lowering.constant_preparation import prepared
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import Machine
from glenside.codegen.runtime import compiled_function
from glenside.codegen.translation_validation.validate import Validation, mismatches, packed_wrongly
from glenside.codegen.verify.verify_loops import Checker
from glenside.ir.dtypes import REALS
from glenside.ir.index_map import Axis, Divided, Index
from glenside.ir.operand import Array, arrays
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.semantics.interpreter import evaluate

MODULES = (
    "lowering.gather_scatter loop_ir.affine_analysis passes.fuse_producer_consumer loop_ir.compute_block "
    "passes.fuse_padding scheduling.dot_product_tiles passes.hoist_results loop_ir.nest_builder "
    "loop_ir.scalar_expr lowering.concat_in_place scheduling.integer_tiles lowering.inline_reductions "
    "scheduling.reduction_lane_tiles scheduling.vectorize lowering.lower_terms lowering.fill_rules "
    "scheduling.operand_packing lowering.scatter_add scheduling.constant_packing "
    "scheduling.tile_partition loop_ir.bf16_split_matmul scheduling.index_set_splitting "
    "lowering.term_reads lowering.reductions loop_ir.substitute_buffers passes.fuse_softmax_rows "
    "scheduling.select_schedule passes.parallelize scheduling.softmax_template "
    "scheduling.register_tiling passes.interleave_phases"
).split()
_TOLERANCE = 1e-3
_MOST_SECONDS = 30
"""Seconds after which a fault that hangs ends; a program without faults takes about one."""


@dataclass(frozen=True)
class Fault:
    """A fault: its kind, its place, a description, and a function that plants it."""

    kind: str
    where: str
    plant: Callable[[], None]


# Faults of source.

_OPPOSITES: Mapping[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


Change = Callable[[Any], None]


def _of_number(node: ast.Constant) -> Iterator[tuple[str, Change]]:
    yield "a number one more", lambda n: setattr(n, "value", n.value + 1)
    if node.value:
        yield "a number one less", lambda n: setattr(n, "value", n.value - 1)


def _of_operator(node: ast.BinOp) -> Iterator[tuple[str, Change]]:
    if type(node.op) in _OPPOSITES:
        yield "another operator", lambda n: setattr(n, "op", _OPPOSITES[type(n.op)]())
        yield "one operand alone", lambda n: n.__dict__.update(op=ast.Add(), right=ast.Constant(0))


def _of_comparison(node: ast.Compare) -> Iterator[tuple[str, Change]]:
    if type(node.ops[0]) in _OPPOSITES:
        yield "another comparison", lambda n: setattr(n, "ops", [_OPPOSITES[type(n.ops[0])](), *n.ops[1:]])


def _of_conditions(_: ast.BoolOp) -> Iterator[tuple[str, Change]]:
    yield "and for or", lambda n: setattr(n, "op", _OPPOSITES[type(n.op)]())
    yield "a condition less", lambda n: setattr(n, "values", [*n.values[:-1], n.values[0]])


def _of_choice(_: ast.AST) -> Iterator[tuple[str, Change]]:
    yield "always", lambda n: setattr(n, "test", ast.Constant(True))
    yield "never", lambda n: setattr(n, "test", ast.Constant(False))


def _of_call(node: ast.Call) -> Iterator[tuple[str, Change]]:
    if len(node.args) == 2 and not node.keywords:
        yield "operands swapped", lambda n: setattr(n, "args", n.args[::-1])


def _of_parts(node: ast.Tuple | ast.List) -> Iterator[tuple[str, Change]]:
    if len(node.elts) > 1:
        yield "parts swapped", lambda n: setattr(n, "elts", [n.elts[1], n.elts[0], *n.elts[2:]])


def _of_name(node: ast.Constant) -> Iterator[tuple[str, Change]]:
    others = [name for name in ("add", "multiply", "subtract", "max", "min") if name != node.value]
    if node.value in PRIMITIVES:
        yield "another primitive", lambda n: setattr(n, "value", others[len(n.value) % len(others)])


def _mutants(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Yields changes of one node, in place."""
    if isinstance(node, ast.Constant):
        of = _of_number if type(node.value) is int else _of_name if isinstance(node.value, str) else None
        yield from of(node) if of else ()
    elif isinstance(node, ast.Starred):
        yield "parts reversed", lambda n: setattr(n, "value", _reversed(n.value))
    elif isinstance(node, ast.AugAssign | ast.Expr) and not isinstance(node.value, ast.Constant):
        yield "a statement less", lambda n: setattr(n, "value", _same(n))
    else:
        for kinds, make in _OF.items():
            if isinstance(node, kinds):
                yield from make(node)


_OF: Mapping[Any, Callable[[Any], Iterator[tuple[str, Change]]]] = {
    ast.BinOp: _of_operator,
    ast.Compare: _of_comparison,
    ast.BoolOp: _of_conditions,
    (ast.If, ast.IfExp): _of_choice,
    ast.Call: _of_call,
    (ast.Tuple, ast.List): _of_parts,
}


def _reversed(value: ast.expr) -> ast.expr:
    call = ast.Call(ast.Name("list", ast.Load()), [value], [])
    return ast.Subscript(call, ast.Slice(None, None, ast.UnaryOp(ast.USub(), ast.Constant(1))), ast.Load())


def _same(node: ast.AST) -> ast.expr:
    """Returns a constant or a function that has no effect."""
    if isinstance(node, ast.AugAssign):
        return ast.List([], ast.Load()) if isinstance(node.value, ast.List | ast.Call) else ast.Constant(0)
    return ast.Constant(None)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from (
                (f"{node.name}.{inner.name}", inner) for inner in node.body if isinstance(inner, ast.FunctionDef)
            )


def of_source(drawn: random.Random, lines: Mapping[str, set[int]]) -> Fault:
    """Draws a fault of source in one of the given lines, by module."""
    while True:
        name = drawn.choice(sorted(lines))
        module = importlib.import_module(f"glenside.codegen.{name}")
        functions = list(_functions(ast.parse(Path(str(module.__file__)).read_text())))
        where, function = drawn.choice(functions)
        nodes = [(number, node) for number, node in enumerate(ast.walk(function)) if _line(node) in lines[name]]
        points = [(number, what) for number, node in nodes for what, _ in _mutants(node)]
        if points:
            break
    number, what = drawn.choice(points)
    mutant = copy.deepcopy(function)
    node = list(ast.walk(mutant))[number]
    before = ast.unparse(node)
    dict(_mutants(node))[what](node)
    said = f"{name}.{where}, line {_line(node)}: {before[:60]!r} -> {ast.unparse(node)[:60]!r}"
    return Fault(what, said, partial(_planted, module, where, mutant))


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _planted(module: Any, where: str, function: ast.FunctionDef) -> None:
    """Replaces a function wherever it is referenced."""
    tree = ast.fix_missing_locations(ast.Module([function], []))
    code = compile(tree, str(module.__file__), "exec", flags=__future__.annotations.compiler_flag)
    scope: dict[str, Any] = {}
    exec(code, vars(module), scope)
    outer, _, inner = where.partition(".")
    old = getattr(module, outer)
    if inner:
        setattr(old, inner, scope[inner])
        return
    for other in [own for name, own in sys.modules.items() if name.startswith("glenside.codegen")]:
        tables = [vars(other), *(value for value in vars(other).values() if isinstance(value, dict))]
        for table in tables:
            table.update({name: scope[outer] for name, value in table.items() if value is old})


# Faults of loops.


def _swapped(part: Any) -> list[Any]:
    if isinstance(part, Apply) and len(part.operands) == 2 and part.operands[0].dtype == part.operands[1].dtype:
        return [replace(part, operands=part.operands[::-1])]
    return []


def _other_primitive(part: Any) -> list[Any]:
    others = {"add": "subtract", "subtract": "add", "multiply": "add", "max": "min", "min": "max", "divide": "multiply"}
    if isinstance(part, Apply) and part.primitive.name in others:
        return [replace(part, primitive=PRIMITIVES[others[part.primitive.name]])]
    return []


def _other_number(part: Any) -> list[Any]:
    if isinstance(part, Number):
        value = (
            Fraction(0) if part.value is None else Fraction(1 - part.value) if part.value in (0, 1) else part.value + 1
        )
        return [replace(part, value=value)]
    return []


def _operand_alone(part: Any) -> list[Any]:
    """Removes a bias, a scale, an activation, or the former value of a sum."""
    if isinstance(part, Apply) and len(part.operands) == 2 and part.primitive.gives == "same":
        return [operand for operand in part.operands if operand.dtype == part.dtype]
    return []


def _unconverted(part: Any) -> list[Any]:
    """Changes the rounding: by a less exact dtype, or one with another signedness."""
    others = {"float32": "float16", "int32": "int16", "uint8": "int8", "int8": "uint8", "int64": "int32"}
    if isinstance(part, Convert) and part.dtype in others:
        return [Convert(Convert(part.formula, others[part.dtype]), part.dtype)]
    return []


def _otherwise(part: Any) -> list[Any]:
    return [part.otherwise, part.then] if isinstance(part, Choose) else []


def _guards(part: Any) -> list[Any]:
    """Moves a guard by one element, or removes it."""
    found: list[Any] = []
    if isinstance(part, Choose | When):
        for i, guard in enumerate(part.guards):
            moved = replace(guard, index=guard.index + 1)
            found.append(replace(part, guards=(*part.guards[:i], moved, *part.guards[i + 1 :])))
            found.append(replace(part, guards=(*part.guards[:i], *part.guards[i + 1 :])))
    return [(one,) for one in found] if isinstance(part, When) else found


def _axes_swapped(part: Any) -> list[Any]:
    """Exchanges two counters of an index."""
    if not isinstance(part, Load | Store) or len(part.place.terms) < 2:
        return []
    (a, f), (b, g), *rest = part.place.terms
    place = Index(((a, g), (b, f), *rest), part.place.constant)
    found = replace(part, place=place)
    return [(found,)] if isinstance(part, Store) else [found]


def _other_stride(part: Any) -> list[Any]:
    if not isinstance(part, Load | Store) or not part.place.terms:
        return []
    (a, f), *rest = part.place.terms
    found = [replace(part, place=Index(((a, f + step), *rest), part.place.constant)) for step in (1, -1)]
    return [(one,) for one in found] if isinstance(part, Store) else found


def _other_divisor(part: Any) -> list[Any]:
    if not isinstance(part, Load | Store):
        return []
    for i, (atom, factor) in enumerate(part.place.terms):
        if isinstance(atom, Divided):
            terms = (
                *part.place.terms[:i],
                (replace(atom, divisor=atom.divisor + 1), factor),
                *part.place.terms[i + 1 :],
            )
            found = replace(part, place=Index(terms, part.place.constant))
            return [(found,)] if isinstance(part, Store) else [found]
    return []


def _picked(part: Any) -> list[Any]:
    """Shifts a computed index by one, or ignores it."""
    if not isinstance(part, Load | Store) or not part.picked:
        return []
    (local, step), *rest = part.picked
    found = [replace(part, picked=((local, step + 1), *rest)), replace(part, picked=tuple(rest))]
    return [(one,) for one in found] if isinstance(part, Store) else found


def _ended(part: Any) -> list[Any]:
    """Changes a loop by one step, drops a Require, or reverses a sort."""
    if isinstance(part, For):
        return [
            (replace(part, axis=Axis(part.axis.number, part.axis.size + step)),)
            for step in (-1, 1)
            if part.axis.size + step
        ]
    if isinstance(part, Require):
        return [(replace(part, size=part.size + 1),)]
    return [(replace(part, descending=not part.descending),)] if isinstance(part, Sort) else []


def _twice(part: Any) -> list[Any]:
    """Repeats a statement."""
    return [(part, part)] if isinstance(part, Store | For) else []


CHANGES: Mapping[str, broken_loops.Change] = {
    "an element farther": broken_loops.moved,
    "a stride more": broken_loops.stretched,
    "a statement or a guard less": broken_loops.dropped,
    "a way that threads share": broken_loops.shared,
    "operands swapped": _swapped,
    "another primitive": _other_primitive,
    "another number": _other_number,
    "one operand alone": _operand_alone,
    "another rounding": _unconverted,
    "the other choice": _otherwise,
    "a guard off or gone": _guards,
    "two axes exchanged": _axes_swapped,
    "another stride": _other_stride,
    "another divisor": _other_divisor,
    "a computed index scaled wrongly": _picked,
    "a bound off by one": _ended,
    "a statement twice": _twice,
}


def _other_buffer(loops: Loops, drawn: random.Random) -> Iterator[Loops]:
    """Loads from another buffer of the same dtype."""

    def change(part: Any) -> list[Any]:
        if not isinstance(part, Load) or part.buffer.role is Role.REGISTER:
            return []
        size = part.buffer.dims.product()
        same = [b for b in loops.buffers if b.dtype == part.dtype and b is not part.buffer and b.dims.product() >= size]
        return [replace(part, buffer=drawn.choice(same))] if same else []

    yield from (other for _, other in broken_loops.broken(loops, change))


def _whole(loops: Loops) -> Iterator[tuple[str, Loops]]:
    """Changes a whole program: order of nests or results, missing nests, other packings."""
    nests = loops.nests
    for i in range(len(nests) - 1):
        yield "two nests exchanged", replace(loops, nests=(*nests[:i], nests[i + 1], nests[i], *nests[i + 2 :]))
    for i in range(len(nests)):
        yield "a nest less", replace(loops, nests=(*nests[:i], *nests[i + 1 :]))
    if len(loops.results) > 1:
        yield "results exchanged", replace(loops, results=(*loops.results[1:], loops.results[0]))
    for i, packing in enumerate(loops.packings):
        others = {
            "stride": replace(packing, stride=packing.stride + 1),
            "first": replace(packing, first=packing.first + 1),
        }
        for name, other in others.items():
            packings = (*loops.packings[:i], other, *loops.packings[i + 1 :])
            yield f"packed by another {name}", replace(loops, packings=packings)


def of_loops(loops: Loops, drawn: random.Random) -> tuple[str, str, Loops] | None:
    """Draws a kind of fault; returns its description and the loops with it, or None if the loops cannot have it."""
    kind = drawn.choice([*CHANGES, "another buffer", "of the program"])
    if kind == "another buffer":
        others = list(_other_buffer(loops, drawn))
        return (kind, "", drawn.choice(others)) if others else None
    if kind == "of the program":
        whole = list(_whole(loops))
        what, other = drawn.choice(whole)
        return what, "", other
    found = list(broken_loops.broken(loops, CHANGES[kind]))
    if not found:
        return None
    what, other = drawn.choice(found)
    return kind, what, other


# What a fault does, and who sees it.


@dataclass(frozen=True)
class Outcome:
    """What came of a fault.

    effect   "same loops", "same numbers", "other numbers", "crashed", or "no loops" where lowering itself ended
    refused  by whom, with what; "" where nobody did
    skipped  what was not sampled
    """

    kind: str
    where: str
    effect: str
    refused: str = ""
    skipped: str = ""

    @property
    def counts(self) -> bool:
        """True if the fault changes a number."""
        return self.effect in ("other numbers", "crashed")


def outcome(program: Program, machine: Machine | None, seed: int, right: Made | None = None) -> Outcome:
    """Plants a fault, drawn by a seed, in a forked process, and returns its outcome: a fault of the loops or, with
    `made_of`, of the source of lowering.
    """
    found = [*_apart(_outcomes, program, machine, random.Random(seed), right)]
    last: Outcome = found[-1] if found else Outcome("", "", "no loops")
    return replace(last, effect="crashed") if last.effect == "runs" else last


@dataclass(frozen=True)
class Made:
    """The loops of a program as text, and the source lines that build them, by module."""

    text: str
    lines: Mapping[str, set[int]]


def made_of(program: Program, machine: Machine | None) -> Made:
    """Records the source lines that build the loops of a program, in a forked process without caches."""
    (made,) = _apart(_traced, program, machine)
    assert isinstance(made, Made)
    return made


def _apart(work: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
    """Yields the results of a generator that runs in a forked process, until that process ends."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, work, arguments))
    child.start()
    theirs.close()
    while True:
        try:
            yield mine.recv()
        except (EOFError, OSError):
            break
    child.join()


def _child(pipe: Any, work: Callable[..., Iterator[Any]], arguments: Sequence[Any]) -> None:
    signal.alarm(_MOST_SECONDS)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        for found in work(*arguments):
            pipe.send(found)


def _lowered(program: Program, machine: Machine | None) -> Loops:
    return lower(prepared(program) if machine is not None else program, machine)


def _traced(program: Program, machine: Machine | None) -> Iterator[Made]:
    modules = {str(importlib.import_module(f"glenside.codegen.{name}").__file__): name for name in MODULES}
    lines: dict[str, set[int]] = {}

    def trace(frame: Any, event: str, _: Any) -> Any:
        name = modules.get(frame.f_code.co_filename)
        if name is not None and event == "line":
            lines.setdefault(name, set()).add(frame.f_lineno)
        return None if name is None else trace

    sys.settrace(trace)
    text = _text(_lowered(program, machine))
    sys.settrace(None)
    yield Made(text, lines)


def _outcomes(program: Program, machine: Machine | None, drawn: random.Random, right: Made | None) -> Iterator[Outcome]:
    if right is not None:
        fault = of_source(drawn, right.lines)
        kind, where = fault.kind, fault.where
        yield Outcome(kind, where, "no loops")
        fault.plant()
        if _text(_lowered(program, machine)) == right.text:
            yield Outcome(kind, where, "same loops")
            return
    else:
        found = of_loops(_lowered(program, machine), drawn)
        if found is None:
            yield Outcome("", "", "same loops")
            return
        kind, where, loops = found
        vars(compiled_function)["lower"] = lambda *_: loops
    seen: list[str] = []
    skipped: list[str] = []

    def verify(own: Loops, plan: Any, of: Program, constants: Mapping[Any, Array]) -> Validation:
        sampled = mismatches(own, of.term, of.constants)
        seen.extend(f"structure: {fault}" for fault in Checker().faults(own, plan))
        seen.extend(f"samples: {fault}" for fault in sampled.wrong)
        seen.extend(f"samples: {fault}" for fault in packed_wrongly(own.packings, constants, of.constants))
        skipped.extend(map(str, sampled.skipped))
        return sampled

    vars(compiled_function)["verify"] = verify
    lowered = compiled_function.Lowered(program, machine)
    ran = Outcome(kind, where, "runs", next(iter(seen), ""), "; ".join(skipped))
    yield ran
    compiled = compiled_function.Compiled(lowered, machine)
    inputs = dict(zip([b.name for b in compiled.inputs], compiled.drawn(), strict=True))
    want = arrays(evaluate([program.term], {**program.constants, **inputs})[0])
    got = arrays(compiled(inputs, threads=1))
    same = all(_close(a, b) for a, b in zip(want, got, strict=True))
    yield replace(ran, effect="same numbers" if same else "other numbers")


def _text(loops: Loops) -> str:
    return f"{loops}{loops.packings}"


def _close(want: Array, got: Array) -> bool:
    if want.shape != got.shape:
        return False
    if want.dtype.name not in REALS:
        return bool((want == got).all())
    want, got = want.astype(np.float64), got.astype(np.float64)
    scale = float(np.abs(want[np.isfinite(want)]).max(initial=0.0)) or 1.0
    return bool(np.allclose(want, got, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True))


# Programs to plant faults in.

MAKERS: dict[str, Callable[[gl.Builder], Term]] = {}


def _program(make: Callable[[gl.Builder], Term]) -> Callable[[gl.Builder], Term]:
    MAKERS[make.__name__.strip("_")] = make
    return make


def programs() -> dict[str, Program]:
    """Returns small programs that together use all of lowering: tiles, borders, bands, blocks of rows, interleaved
    phases, packings, integers, gathers, scatters, sorts, sums of windows, matrix units.
    """
    made: dict[str, Program] = {}
    for name, make in MAKERS.items():
        b = gl.Builder(name)
        program = b.finish(make(b))
        made[name] = program.seeded_constants(0) if program.constants_declared else program
    return made


def _conv(b: gl.Builder, x: Term, filters: int, window: int, **how: Any) -> Term:
    groups = how.get("groups", 1)
    w = b.constant(f"w{filters}x{window}", (filters, x.access.dims[1] // groups, window, window))
    return b.conv(x, w, b.constant(f"c{filters}x{window}", (filters,)), padding=window // 2, **how)


@_program
def _convolution(b: gl.Builder) -> Term:
    return pointwise.relu(_conv(b, b.input("x", (1, 16, 13, 13)), 24, 3))


@_program
def _strided(b: gl.Builder) -> Term:
    return pointwise.relu6(_conv(b, b.input("x", (1, 8, 15, 17)), 20, 3, strides=2))


@_program
def _band(b: gl.Builder) -> Term:
    """Builds a depthwise and a pointwise convolution, which are fused as a band."""
    x = pointwise.relu(_conv(b, b.input("x", (1, 32, 56, 56)), 32, 3, groups=32))
    return pointwise.relu(_conv(b, x, 64, 1))


@_program
def _matrices(b: gl.Builder) -> Term:
    y = b.matmul(b.input("x", (37, 50)), b.constant("w", (50, 70)))
    return pointwise.gelu(pointwise.add(y, b.constant("c", (70,))))


@_program
def _softmaxes(b: gl.Builder) -> Term:
    return b.softmax(b.matmul(b.input("x", (29, 40)), b.input("y", (40, 21))))


@_program
def _attention(b: gl.Builder) -> Term:
    """Builds an attention, which is fused over blocks of rows."""
    return b.attention(*(b.input(name, (1, 128, 64)) for name in "qkv"), heads=2)


@_program
def _norm(b: gl.Builder) -> Term:
    return pointwise.layer_norm(b.input("x", (11, 130)), b.constant("g", (130,)), b.constant("c", (130,)))


@_program
def _pools(b: gl.Builder) -> Term:
    x = b.input("x", (1, 6, 14, 14))
    return windows.average_pool(windows.max_pool(x, 3, strides=2, padding=1), 2, strides=1)


@_program
def _joined(b: gl.Builder) -> Term:
    x = b.input("x", (1, 8, 10, 10))
    both = layout.concatenate([pointwise.relu(_conv(b, x, 12, 3)), pointwise.tanh(x)], 1)
    return pointwise.add(both, layout.pad(x, [(0, 0), (12, 0), (0, 0), (0, 0)]))


@_program
def _gathered(b: gl.Builder) -> Term:
    x = b.matmul(b.input("x", (2, 9, 16)), b.constant("w", (16, 512)))
    return layout.gather(x, b.constant("i", (3,), "int64"), 1)


@_program
def _scattered(b: gl.Builder) -> Term:
    i = b.input("i", (5, 1), "int64")
    return indexing.scatter_nd(pointwise.compute("exp", b.input("x", (7, 12))), i, b.input("y", (5, 12)), 0, "add")


@_program
def _order(b: gl.Builder) -> Term:
    values, places = indexing.top(b.input("x", (6, 19)), 4, 1)
    return build(
        "construct-tuple", values, places, build("compute", "argmax", layout.split_at(b.input("y", (5, 23)), 1))
    )


@_program
def _integers(b: gl.Builder) -> Term:
    """Builds a product of bytes with a zero point and a scale, requantized to bytes."""
    x, w = b.input("x", (21, 40), "uint8"), b.constant("w", (40, 33), "int8")
    shifted = pointwise.subtract(pointwise.cast(x, "int32"), pointwise.filled(pointwise.cast(x, "int32"), 3))
    total = pointwise.cast(b.matmul(shifted, pointwise.cast(w, "int32")), "float32")
    scaled = pointwise.compute("round", pointwise.multiply(total, pointwise.filled(total, "1/16")))
    return pointwise.cast(pointwise.compute("(clip 0 255)", scaled), "uint8")


@_program
def _turned(b: gl.Builder) -> Term:
    return layout.transpose(pointwise.compute("exp", b.input("x", (9, 20, 34))), (2, 0, 1))


@_program
def _several(b: gl.Builder) -> Term:
    x, y = b.input("x", (12, 40)), b.input("y", (12, 40))
    total = build("compute", "reduce-sum", layout.split_at(pointwise.multiply(x, y), 1))
    return build("construct-tuple", pointwise.subtract(x, y), total, pointwise.sigmoid(y))


@_program
def _transposed(b: gl.Builder) -> Term:
    return b.conv_transpose(b.input("x", (1, 8, 7, 7)), b.constant("w", (8, 6, 4, 4)), strides=2, padding=1)


@_program
def _batched(b: gl.Builder) -> Term:
    return b.matmul(b.input("x", (3, 17, 20)), b.input("y", (3, 20, 35)))


@_program
def _halves(b: gl.Builder) -> Term:
    x, w = (pointwise.cast(t, "bfloat16") for t in (b.input("x", (18, 36)), b.constant("w", (36, 20))))
    return pointwise.cast(b.matmul(x, w), "float32")
