"""Defines doors of files: the text format, JSON, and ONNX export and import."""

from __future__ import annotations

import json

import numpy as np

from glenside.check import check, is_equal
from glenside.check.indices import picks
from glenside.exporters.json import program_json, program_of_json
from glenside.fuzzing.cases import Invalid, Wrong
from glenside.fuzzing.doors import Visit, door
from glenside.fuzzing.oracle import coarsest, computed, each_result
from glenside.importers.onnx.sessions import CannotRun, Session
from glenside.ir.dtypes import STORED
from glenside.ir.errors import BadInput
from glenside.ir.packages import import_onnx
from glenside.ir.program import Program
from glenside.ir.term import build, postorder
from glenside.ir.text import parse, print_program
from glenside.ir.types import AccessType

RUNTIME_SECONDS = 60.0
"""The time limit for another runtime to load a model, or to run it, in seconds."""


@door("text", weight=0.25)
def printed(visit: Visit) -> None:
    """Prints and parses, as text and as JSON."""
    program = visit.program
    text = print_program(program)
    again = parse(text)
    if again.term is not program.term:
        raise Wrong(f"the text is parsed as another program: {print_program(again)}")
    if print_program(again) != text:
        raise Wrong("the text prints differently after it is parsed")
    document = json.loads(json.dumps(program_json(program)))
    if program_of_json(document).term is not program.term:
        raise Wrong("the JSON is read as another program")


@door("onnx", "black box", weight=3, joined=True, needs=("onnx",))
def exported(visit: Visit) -> None:
    """Exports ONNX, checks the file, imports it again, compares exactly, and runs it in onnxruntime."""
    from glenside.exporters.onnx import export_onnx
    from glenside.importers.onnx import program_of_model

    onnx = import_onnx()
    program = visit.valued
    model = export_onnx(program)
    for node in model.graph.node:
        visit.note(f"writes {node.op_type}")
    content = model.SerializeToString()
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise Invalid(f"onnx.checker: {' '.join(str(error).split())[:300]}") from None
    again = program_of_model(onnx.load_from_string(content))
    _compare(visit, program, again)
    in_runtime(visit, program, content, coarsest(again.term))


def _compare(visit: Visit, program: Program, again: Program) -> None:
    """Raises Wrong if the imported program differs: exactly, unless values of constants were used, and in floats."""
    before, after = each_result(program.term), each_result(again.term)
    for number, (a, b) in enumerate(zip(before, after, strict=False)):
        if (a.access.dims, a.access.dtype) != (b.access.dims, b.access.dtype):
            raise Wrong(f"read again: result {number + 1} is {b.type}, not {a.type}")
    if len(before) != len(after):
        raise Wrong(f"read again: {len(after)} results for {len(before)}")
    constants = {**again.constants, **program.constants}
    want, found = (Program(build("construct-tuple", *terms), constants=constants) for terms in (before, after))
    stored = any(t.access.dtype in STORED for t in postorder(*before) if isinstance(t.type, AccessType))
    baked = any(program.info.constant.get(indices, False) for indices, _ in picks(*before))  # the importer folds them
    kept = {*want.constants_declared} == {*found.constants_declared} and not baked
    if kept and not stored:  # stored dtypes may be written as bits
        verdict = check(want, found, seed=visit.seed, layers=False).result
        if not is_equal(verdict) and not verdict.startswith("not checked"):
            raise Wrong(f"read again: {verdict}")
    visit.expected.compare("read again", computed(found.term, {**constants, **visit.values}), coarsest(*after))


def in_runtime(visit: Visit, program: Program, content: bytes, unit: float = 0.0) -> None:
    """Raises Wrong if onnxruntime computes something else; does nothing if it is absent or refuses the file."""
    values = visit.values
    unused = {t.name: np.zeros(tuple(t.dims), t.dtype) for t in program.signature.inputs if t.name not in values}
    try:
        session = Session(content, "the file", threads=1, seconds=RUNTIME_SECONDS)
        found = session.run({name: values[name] for name in values if name in program.inputs} | unused)
    except (CannotRun, BadInput) as error:
        visit.note(f"onnxruntime refuses: {str(error)[:80]}")
        return
    visit.note("runs in onnxruntime")
    if visit.expected.orders_nans:
        return
    visit.expected.compare("in onnxruntime", found, unit)
