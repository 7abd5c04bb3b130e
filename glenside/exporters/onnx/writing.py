"""Exports terms as nodes, in the order in which results need them: by their meaning, or as their original node."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Node
from glenside.exporters.onnx.operators.movement import addressed
from glenside.exporters.onnx.origins import Origins, is_one_step, outputs_of
from glenside.exporters.onnx.registry import OPERATOR_EXPORTS, Held, Operand
from glenside.exporters.onnx.standard.record import as_standard
from glenside.exporters.writer import Value
from glenside.importers.onnx.opaque import node_of_key
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, postorder, weave
from glenside.ir.types import AccessType

_VIEWS = ("Reshape", "Transpose")
_MOVES = ("Transpose", "Expand", "Pad")


@dataclass
class Writing:
    """Exports the terms of a program.

    labels  names of terms in the file
    docs    descriptions of these names
    """

    emit: Emitter
    origins: Origins
    labels: Mapping[Term, str]
    docs: Mapping[str, str]

    def __post_init__(self) -> None:
        self.emit.write = self.write

    def write(self, root: Term) -> None:
        """Exports a term, after its operands."""
        held = self.emit.held
        boxes: dict[Term, Term | None] = {}
        stack = [root]
        while stack:
            term = stack.pop()
            if term in held:
                continue
            if term not in boxes:
                box = boxes[term] = self.origins.box(term)
                needed = [child for child in (box or term).children if child not in held]
                stack += [term, *reversed(needed)]
            elif (box := boxes[term]) is None:
                held[term] = self._labelled(term, self.labels.get(term, ""))
            else:
                self._as_short(term, box)

    def _labelled(self, term: Term, label: str) -> Held:
        graph = self.emit.graph
        before, (graph.label, graph.doc) = (graph.label, graph.doc), (label, self.docs.get(label, ""))
        try:
            return _exported(self.emit, term)
        finally:
            graph.label, graph.doc = before

    def _as_short(self, term: Term, box: Term) -> None:
        """Exports the meaning of a term if it also is a single node; otherwise exports the original node."""
        inner = [*postorder(term, without=self.emit.held)]
        if outputs_of(box) == 1:
            mark = self.emit.mark()
            try:
                for each in inner:
                    self.emit.held[each] = self._labelled(each, self.labels.get(each, ""))
                if self._is_short(mark.nodes, self.emit.held[term], box, is_one_step(term, box)):
                    return
            except BadInput:
                pass  # ONNX lacks one of its operators
            self.emit.undo(mark)
        label = next((self.labels[each] for each in (term, *inner) if each in self.labels), "")
        self.emit.held[term] = self._labelled(box, label)

    def _is_short(self, first: int, made: Held, box: Term, at_once: bool) -> bool:
        """True if nodes from number `first` on that compute a value are preferable to the node of a black box.

        If that is one node on the same operands, it is. Otherwise movement of operands counts, since it may cancel
        against movement of others. A node that computes `at_once` keeps the movement of its operands, so that it can
        cancel later.
        """
        if not isinstance(made, Value):
            return False
        graph = self.emit.graph
        nodes = _reached(graph.nodes[first:], made)
        if made.name not in graph.fixed:
            nodes = [node for node in nodes if node.output.name not in graph.fixed]
        if not nodes:
            return True
        proto = node_of_key(str(box.attributes[0]))
        computing = [node for node in nodes if node.op not in _VIEWS]
        read = {value.name for node in nodes for value in node.inputs}
        values = [held for child in box.children if isinstance(held := self.emit.held.get(child), Value)]
        values = [value for value in values if value.name not in graph.fixed]
        if all(value.name in read for value in values):
            return at_once and [node.op for node in nodes] == [proto.op_type]
        with_bias = proto.op_type in ("Conv", "ConvTranspose") and len(proto.input) > 2 and proto.input[2]
        if len(nodes) > 1 and len(computing) > (2 if with_bias else 1):
            return False
        before, after = sum(self._moves_above(v, read) for v in values), sum(node.op in _MOVES for node in nodes)
        return len(nodes) == 1 or after < before or (at_once and after == before)

    def _moves_above(self, value: Value, read: Container[str]) -> int:
        """Returns the number of nodes that only move a value, from `read` on; 0 if it is the value itself."""
        graph, count = self.emit.graph, 0
        while value.name not in read:
            node = next(filter(None, (graph.producer(value, op) for op in (*_MOVES, "Reshape"))), None)
            if node is None:
                return 0
            count += node.op in _MOVES
            value = node.inputs[0]
        return count


def _reached(nodes: Sequence[Node], value: Value) -> list[Node]:
    """Returns the nodes on which a value depends."""
    needed, found = {value.name}, []
    for node in reversed(nodes):
        if needed.intersection(output.name for output in node.outputs if output.name):
            needed.update(each.name for each in node.inputs)
            found.append(node)
    return found


def _exported(emit: Emitter, term: Term) -> Held:
    if isinstance(term.type, AccessType) and not term.type.size and term.operator.name != "access-tensor":
        return emit.full(term.type.dims, 0, term.type.dtype)
    if term.operator.name != "opaque" and (found := as_standard(emit, term)) is not None:
        return found
    operands = [Operand(emit, child.type, emit.held_of(child)) for child in term.children]
    export, index_map = OPERATOR_EXPORTS.get(term.operator.name), term.index_map
    if export is not None:
        return export(emit, term.type, *weave(term.operator, operands, term.attributes))
    if index_map is None:
        raise BadInput(f"an ONNX file requires operators that have an export, got {term.operator.name}")
    return addressed(emit, index_map, operands)
