"""Exports a program as an ONNX model, term by term, and writes it to a file atomically."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from glenside.builder.unrolling import without_loops
from glenside.exporters.onnx import operators as _operators  # noqa: F401 (fills the tables)
from glenside.exporters.onnx import standard as _standard  # noqa: F401 (fills its table)
from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Graph
from glenside.exporters.onnx.model import Store, inline, model_of, nodes_of
from glenside.exporters.onnx.origins import Origins
from glenside.exporters.onnx.read_back import ReadBack, compare, read_back
from glenside.exporters.onnx.registry import Held
from glenside.exporters.onnx.writing import Writing
from glenside.exporters.writer import Value
from glenside.ir.errors import BadInput
from glenside.ir.names import spelled_name
from glenside.ir.operand import Array
from glenside.ir.packages import import_onnx
from glenside.ir.packing import packed, packed_bytes
from glenside.ir.program import Program, as_program
from glenside.ir.replacing import PathLike, replacing
from glenside.ir.term import Term

if TYPE_CHECKING:
    import onnx

# A protobuf file ends at 2 GiB, some of which the nodes need.
_MOST_BYTES = 2**31 - 2**27

# External data begins at multiples of this, so that a runtime can map it.
_ALIGNMENT = 4096

# Constants of fewer bytes stay in the model, where tools read them to infer shapes.
_SMALL = 1024


def export_onnx(program: Program, *, verify: bool = True) -> onnx.ModelProto:
    """Returns the program as a model of standard operators of ai.onnx with static shapes.

    Inputs and results have the names and the order of the program's signature; without one a result is `output`, and a
    tuple `output_0` and so on. Values are named by the layers that they compute. Tile instructions are calls of local
    functions of the domain `glenside`, so that any runtime executes the file. Black boxes become their original nodes.
    The opset is 18, or the lowest above it that the program needs: 26 for bitcasts of floats, and for a black box the
    version in which it was imported. Equal programs give equal bytes. Where ONNX is undefined, the runtime decides:
    extremes and order of nan, and out-of-range indices of a gather.

    With `verify`, the model is read back and compared, as in `save_onnx`. Raises BadInput: a constant without a value,
    a name that ONNX cannot hold, an empty result, black boxes of other files or of incompatible versions, or no package
    onnx; and WrittenWrong if the model reads back as another program.
    """
    emit, outputs = _emitted(as_program(program, "exported"))
    model = model_of(program, emit, outputs)
    if verify and model.ByteSize() < _MOST_BYTES:
        compare(program, model, program.name or "the model")
    return model


_MOVING = ("Concat", "Expand", "Gather", "Pad", "Slice", "Split", "Tile", "Transpose")


def moved(program: Program) -> tuple[Counter[str], int]:
    """Counts the nodes of each operator in `export_onnx(program)`, and the bytes of nodes that only move data.

    Nodes of constants do not count. Raises BadInput.
    """
    emit, outputs = _emitted(program)
    nodes = [node for node in nodes_of(program, emit, outputs) if node.output.name not in emit.graph.fixed]
    values = (emit.graph.typed.get(v.name, v) for node in nodes if node.op in _MOVING for v in node.outputs if v.name)
    return Counter(node.op for node in nodes), sum(packed_bytes(v.dims, v.dtype) for v in values if v.dtype)


def _emitted(program: Program) -> tuple[Emitter, dict[str, Value]]:
    """Returns the graph of a program, and its results by name; loops are written step by step. Raises BadInput."""
    program = without_loops(program)
    for name in program.tensors:
        if not _spells(name):
            raise BadInput(f"an ONNX file requires names of at least one Unicode character, got {spelled_name(name)}")
    for name in program.constants_declared:
        if name not in program.constants:
            raise BadInput(f"an ONNX file requires the value of every constant, got none of {spelled_name(name)}")
    graph, constant = Graph([*program.tensors]), program.info.constant
    emit = Emitter(graph, constants=program.constants, constancy=dict(constant), came=program.origins)
    Writing(emit, Origins(program), _labels(program), program.labels).write(program.term)
    return emit, _outputs(emit, emit.held[program.term], program)


def _only_moves(node: Term) -> bool:
    """True if the node moves the elements of one operand, none of them to several indices.

    Its name then belongs to the node that computes the elements.
    """
    found = node.index_map
    if found is None or len(node.children) != 1:
        return False
    return found.fill is not None or node.access.size <= node.children[0].access.size


def _labels(program: Program) -> dict[Term, str]:
    """Returns the names of terms, layers first, each at the term that computes it."""
    labels: dict[Term, str] = {}
    for name, node in {**program.layers, **program.names}.items():
        if name not in program.layers and name in program.tensors:
            continue
        while _only_moves(node):
            node = node.children[0]
        if node.children and _spells(name):
            labels.setdefault(node, name)
    return labels


def _outputs(emit: Emitter, result: Held, program: Program) -> dict[str, Value]:
    """Returns every array of the result by name; output_0_0 is in a tuple in a tuple."""
    found: dict[str, Value] = {}
    names = program.result_names()
    items = result if isinstance(result, tuple) else (result,)
    stack: list[tuple[str, Held]] = [*zip(names, items, strict=True)][::-1]
    while stack:
        name, held = stack.pop()
        if isinstance(held, tuple):
            stack += reversed([(f"{name}_{i}", item) for i, item in enumerate(held)])
        else:
            value = emit.in_memory(held)
            if value.name == name and name in program.inputs and name in program.signature.outputs:
                found[name] = value  # an input that is a result, under its own name
                continue
            own = value.name in emit.graph.producers and value not in found.values()
            kept = name in program.signature.outputs and name not in {*program.inputs, *found} and _spells(name)
            name = emit.graph.reserve(name) if kept else emit.graph.name(name)
            found[name] = value if own else emit.graph.copy(value)
    if not found:
        raise BadInput("an ONNX file requires a result of at least one array, got a tuple of none")
    return found


def _spells(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def save_onnx(
    program: Program, path: PathLike, most_bytes: int = _MOST_BYTES, *, verify: bool = True
) -> ReadBack | None:
    """Writes `export_onnx(program)` atomically; with `verify`, it is read back before it takes its name.

    Returns what was compared. Constants of more than `most_bytes` together are stored in PATH.data, which must be moved
    with the file: both or neither are written. Raises BadInput.
    """
    import_onnx()
    emit, outputs = _emitted(program)
    constants = program.constants_declared.values()
    size = sum(packed_bytes(tensor.dims, tensor.dtype) for tensor in constants)
    compared: list[ReadBack] = []
    data: IO[bytes] | None = None

    def verified(written: Path) -> None:
        if data is not None:
            data.flush()
        compared.append(read_back(program, written, path, None if data is None else Path(data.name)))

    with ExitStack() as files:
        store: Store = inline
        if size > most_bytes:
            beside = f"{Path(path).name}.data"
            data = files.enter_context(replacing(Path(path).with_name(beside)))
            store = partial(_store_externally, data, beside)
        model = model_of(program, emit, outputs, store)
        try:
            content = model.SerializeToString(deterministic=True)
        except Exception as error:  # versions of protobuf raise different errors for a message that is too large
            raise BadInput(f"cannot write {path}: {error}") from None
        files.enter_context(replacing(path, verified if verify else None)).write(content)
    return compared[0] if compared else None


def _store_externally(file: IO[bytes], location: str, tensor: Any, array: Array) -> None:
    """Stores the bytes of a constant in another file, at a location that the model gives."""
    data = packed(array)
    if data.nbytes < _SMALL:
        inline(tensor, array)
        return
    start = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
    file.write(bytes(start - file.tell()))
    file.write(data.data)
    tensor.data_location = tensor.EXTERNAL
    for key, value in (("location", location), ("offset", start), ("length", data.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
