"""Which versions of operators a file imports: one for each domain, whatever the nodes in it were written for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from glenside.exporters.onnx.graph import OPSET, Node
from glenside.ir.errors import BadInput


def opsets(wanted: Iterable[tuple[str, str, int]], nodes: Sequence[Node]) -> dict[str, int]:
    """Domain -> version, where some (domain, operator, version) are to mean what they do in that version.

    The other nodes are standard operators as of OPSET. Raises BadInput when there is no version for all of a domain.
    """
    used = {(node.domain, node.op) for node in nodes}
    needs = sorted(each for each in wanted if each[:2] in used)
    found = {"": OPSET}
    for domain, op, version in needs:
        found[domain] = max(found.get(domain, 0), version if domain else since(op, version))
    for domain, op, version in needs:
        have = found[domain]
        if have != version and (domain or since(op, have) != since(op, version)):
            name = f"{domain}.{op}" if domain else op
            raise BadInput(f"an ONNX file of {name} as of version {version} requires no node of another, got {have}")
    return found


@cache
def since(op: str, version: int) -> int:
    """The version that brought a standard operator as it is in another version."""
    import onnx

    try:
        return int(onnx.defs.get_schema(op, version).since_version)
    except onnx.defs.SchemaError:
        return version
