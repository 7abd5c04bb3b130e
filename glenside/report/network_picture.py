"""Draws a network as SVG: its steps from the inputs down, and every copy between them with its bytes."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from glenside.ir.errors import BadInput
from glenside.ir.operator import OperatorKind
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, nearest
from glenside.ir.types import Tensor, TupleType, Type
from glenside.report.layered import Placed, placed
from glenside.targets.base import MovesLayouts

if TYPE_CHECKING:
    from glenside.report.result import Result

TUPLE = "construct-tuple"
MOST = 600  # maximum number of steps in a picture
_ROOM = 60  # maximum number of steps drawn as one box each; above it, steps in a row between copies are one box
_CHARACTER, _LINE, _MARGIN, _LONGEST = 7.0, 17.0, 22.0, 40
_NARROW = 50  # minimum line length, in characters, of sentences below a picture
_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
# Colours of Okabe and Ito; copies also differ by their text and their dashed lines.
_STYLE = f"""
.network text {{ font: 11.5px {_FONT}; fill: #1b1f24; white-space: pre; }}
.network .paper {{ fill: #ffffff; }} .network text.quiet {{ fill: #5c6670; }} .network text.head {{ font-weight: 700; }}
.network .box {{ fill: #f2f4f6; stroke: #a4adb5; stroke-width: 1.1; }}
.network .box.layer {{ fill: #dcedf8; stroke: #0072b2; }}
.network .box.end {{ fill: #ffffff; }}
.network .box.changed {{ fill: #d9f0e8; stroke: #009e73; stroke-width: 2.4; }}
.network .box.copy {{ fill: #fbe3c8; stroke: #d55e00; stroke-width: 2.4; stroke-dasharray: 7 4; }}
.network .edge {{ fill: none; stroke: #8b959e; stroke-width: 1.2; }} .network .tip {{ fill: #8b959e; }}
@media (prefers-color-scheme: dark) {{
.network text {{ fill: #e8ecef; }} .network .paper, .network .box.end {{ fill: #15191d; }}
.network text.quiet {{ fill: #a2acb5; }} .network .box {{ fill: #262d33; stroke: #66727c; }}
.network .box.layer {{ fill: #173548; stroke: #56b4e9; }} .network .box.copy {{ fill: #4a2a12; stroke: #e69f00; }}
.network .box.changed {{ fill: #0f3a2d; stroke: #2fc79a; }}
}}
"""


@dataclass
class Step:
    """A box of the picture.

    kind   layer, changed: a layer that another form replaces or is, compute, copy, or end: an input or a result
    title  what it is; `more` follows in the same box, its type last
    bytes  of a copy
    """

    kind: str
    title: str
    more: list[str] = field(default_factory=list)
    type: str = ""
    bytes: int = 0

    @property
    def lines(self) -> list[str]:
        more = self.more if len(self.more) <= 4 else [*self.more[:2], f"{len(self.more) - 3} more", self.more[-1]]
        said = [f"{self.bytes:,} bytes"] if self.kind == "copy" else []
        return [_short(line) for line in (self.title, *more, self.type, *said) if line]


@dataclass
class Network:
    """The steps of a program and their edges; a view, such as a reshape, is no step."""

    steps: dict[int, Step] = field(default_factory=dict)
    edges: dict[tuple[int, int], None] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program, copies: Sequence[tuple[Term, Any]] = (), changed: Collection[str] = ()) -> Network:
        """Builds the network of a program, with the copies that the target counts, and names of changed layers."""
        network, made = cls(), dict[Term, list[int]]()
        constant = program.info.constant
        copied: dict[Term, list[Any]] = {}
        for term, copy in copies:
            copied.setdefault(term, []).append(copy)
        names = _computed(program)
        for term in program.info.order:
            if constant[term] and not _is_input(term):
                made[term] = []
                continue
            under = list(dict.fromkeys(n for child in term.children for n in made[child]))
            for copy in copied.get(term, ()):
                under = [
                    network._add(
                        Step(
                            "copy",
                            copy.what if copy.what.startswith("copy") else f"copy: {copy.what}",
                            [],
                            _dims(copy.dims, copy.dtype),
                            copy.bytes,
                        ),
                        under,
                    )
                ]
            made[term] = under
            if not _moves(term):
                made[term] = [network._add(_step(program, term, names.get(term), changed), under)]
        for name, term in _results(program):
            network._add(Step("end", name, [], _type(term.type)), made[term])
        network._join()
        return network

    def _add(self, step: Step, under: Sequence[int]) -> int:
        number = len(self.steps)
        self.steps[number] = step
        self.edges.update(dict.fromkeys((n, number) for n in under))
        return number

    def _join(self) -> None:
        """Merges runs of elementwise steps into one box with the step before them; in a large network, runs of all
        steps.
        """
        many = len(self.steps) > _ROOM
        after: dict[int, list[int]] = {}
        before: dict[int, list[int]] = {}
        for a, b in self.edges:
            after.setdefault(a, []).append(b)
            before.setdefault(b, []).append(a)
        into: dict[int, int] = {}
        for b in self.steps:
            own = before.get(b, [])
            if len(own) != 1 or len(after[own[0]]) != 1:
                continue
            a = into.get(own[0], own[0])
            first, second = self.steps[a], self.steps[b]
            kinds = ("compute", "layer") if many else ("compute",)
            if first.kind in ("layer", "changed", "compute") and second.kind in kinds:
                into[b] = a
                first.more += [second.title, *second.more]
                first.type = second.type
                first.kind = "layer" if (first.kind, second.kind) == ("compute", "layer") else first.kind
        self.edges = dict.fromkeys((into.get(a, a), into.get(b, b)) for a, b in self.edges if into.get(b) is None)
        self.steps = {n: step for n, step in self.steps.items() if n not in into}

    @property
    def copies(self) -> list[Step]:
        return [step for step in self.steps.values() if step.kind == "copy"]


def layout_picture(result: Result) -> str:
    """Draws a network before and after the choice of layouts, with every copy marked, as the text of an SVG file.

    Raises BadInput if the target counts no copies, or the network is too large.
    """
    target = result.target
    if not isinstance(target, MovesLayouts):
        wanted = "convolution-unit, or an array with copies among its objectives"
        raise BadInput(f"{target.name} counts no copies: a network is drawn for {wanted}")
    before, after = target.copies(result.original), target.copies(result.program)
    pictures = [("as written", Network.of(result.original, before)), ("chosen", Network.of(result.program, after))]
    return network_picture(f"{result.original.name} on {target.name}", pictures, _OF_COPIES)


_OF_COPIES = (
    "blue: a layer   grey: computed between layers   dashed, orange: a copy, which only puts data elsewhere",
    "Bytes of a copy are read once and written once. Weights, and what is only an address, are not drawn.",
)


def algebra_picture(result: Result) -> str:
    """Draws a network before and after the algebra between its layers, with every change marked, as an SVG file's text.

    Raises BadInput if the network is too large.
    """
    taken = [one for one in result.report.algebra if one.taken]
    before = {name for one in taken for name in one.products}
    written, found = result.original, result.prepared
    after = {name for name in found.layers if any(name.startswith(one.region) for one in taken)}
    said = [f"{one.region}: {one.given:,.0f} -> {one.cost:,.0f}; {'; '.join(one.equations)}" for one in taken]
    legend = [
        *(said or ["The algebra between layers changed nothing."]),
        "green: layers that another form replaces, and that form   blue: other layers   grey: computed between layers",
    ]
    pictures = [("as written", Network.of(written, (), before)), ("computed", Network.of(found, (), after))]
    return network_picture(f"{written.name} on {result.target.name}", pictures, legend)


def is_drawn(program: Program) -> bool:
    """True if a picture has room for the network."""
    return len(Network.of(program).steps) <= MOST


def require_svg(path: str) -> None:
    """Raises BadInput unless the path ends in .svg."""
    if Path(path).suffix.lower() != ".svg":
        raise BadInput(f"a picture of a network is written as .svg, got {path}")


def network_picture(title: str, networks: Sequence[tuple[str, Network]], legend: Sequence[str]) -> str:
    """Draws networks side by side, with a legend below, as the text of an SVG file. Raises BadInput if one is too
    large.
    """
    for which, network in networks:
        if len(network.steps) > MOST:
            raise BadInput(f"a picture has at most {MOST} steps, and {title}, {which}, has {len(network.steps):,}")
    drawn = [_Column(which, network) for which, network in networks]
    room = sum(c.width + 2 * _MARGIN for c in drawn)
    width = max(int(room / _CHARACTER) - 6, _NARROW)
    legend = [line for said in legend for line in textwrap.wrap(said, width, break_on_hyphens=False)]
    wide = max(room, max(map(len, (title, *legend))) * _CHARACTER + 2 * _MARGIN)
    top = _MARGIN + 4 * _LINE
    high = top + max((c.layout.height for c in drawn), default=0) + 2 * _MARGIN + _LINE * len(legend)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="network" viewBox="0 0 {wide:.0f} {high:.0f}" '
        f'width="{wide:.0f}" height="{high:.0f}" role="img" aria-label={quoteattr(_printable("network of " + title))}>',
        f"<style>{_STYLE}</style>",
        '<marker id="network-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0 0.5L8 4L0 7.5z"/></marker>',
        f'<rect class="paper" width="{wide:.0f}" height="{high:.0f}" rx="6"/>',
        _text(_MARGIN, _MARGIN + 4, title, "head"),
    ]
    left = _MARGIN
    for column in drawn:
        lines += [
            _text(left, _MARGIN + 4 + 1.4 * _LINE, column.which, "head"),
            _text(left, _MARGIN + 4 + 2.4 * _LINE, column.said),
        ]
        lines += column.svg(left + (column.width - column.layout.width) / 2, top)
        left += column.width + 2 * _MARGIN
    lines += [_text(_MARGIN, high - _MARGIN / 2 - i * _LINE, said, "quiet") for i, said in enumerate(legend[::-1])]
    return "\n".join([*lines, "</svg>", ""])


class _Column:
    """A network with the positions of its boxes."""

    def __init__(self, which: str, network: Network) -> None:
        self.which, self.network = which, network
        copies, changed = network.copies, sum(step.kind == "changed" for step in network.steps.values())
        moved = sum(step.bytes for step in copies)
        self.said = f"{len(copies)} cop{'y' if len(copies) == 1 else 'ies'}, {moved:,} bytes" if copies else "no copies"
        self.said = f"{changed} changed layers" if changed else self.said
        self.sizes = {n: _size(step) for n, step in network.steps.items()}
        begins = [a for a, _ in network.edges]
        seen: dict[int, int] = {}
        edges = []
        for a, b in network.edges:
            seen[a] = seen.get(a, 0) + 1
            edges.append((a, b, seen[a] / (begins.count(a) + 1)))
        self.layout: Placed = placed(self.sizes, edges)
        self.width = max(self.layout.width, max(len(which), len(self.said)) * _CHARACTER)

    def svg(self, x: float, y: float) -> list[str]:
        lines = [f'<g transform="translate({x:.1f} {y:.1f})">']
        lines += [f'<path class="edge" d="{p}" marker-end="url(#network-tip)"/>' for p in self.layout.paths if p]
        for n, step in self.network.steps.items():
            (left, top), (wide, high) = self.layout.boxes[n], self.sizes[n]
            lines.append(
                f'<rect class="box {step.kind}" x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" '
                f'height="{high:.1f}" rx="{high / 2 if step.kind == "end" else 5:.1f}"/>'
            )
            for i, line in enumerate(step.lines):
                kind = "head" if i == 0 or (step.kind == "copy" and line.endswith("bytes")) else "quiet"
                lines.append(_text(left + wide / 2, top + 16 + i * _LINE, line, kind, "middle"))
        return [*lines, "</g>"]


def _size(step: Step) -> tuple[float, float]:
    longest = max(map(len, step.lines), default=0)
    return longest * _CHARACTER + 24, len(step.lines) * _LINE + 9


def _is_input(term: Term) -> bool:
    tensor = term.attributes[0] if term.operator.name == "access-tensor" else None
    return isinstance(tensor, Tensor) and not tensor.constant


def _moves(term: Term) -> bool:
    """True if a term only selects elements of its operands, or is a tuple of them."""
    record = term.operator
    return bool(term.children) and (record.kind is OperatorKind.VIEW or record.index_map is not None)


def _computed(program: Program) -> dict[Term, str]:
    """Maps the product or the instructions that compute a layer to the layer's name."""
    names = dict[Term, str]()
    for name, layer in program.layers.items():
        for term in nearest(layer, stops=lambda t: is_product(t) or t.operator.kind is OperatorKind.INSTRUCTION):
            names.setdefault(term, name)
    return names


def _step(program: Program, term: Term, name: str | None, changed: Collection[str]) -> Step:
    tensor = term.attributes[0] if term.operator.name == "access-tensor" else None
    if isinstance(tensor, Tensor):
        return Step("end", tensor.name, [], _type(term.type))
    if name is not None:
        label = program.labels.get(name, "")
        kind = "changed" if name in changed else "layer"
        return Step(kind, f"{name}: {label}" if label else name, [], _type(term.type))
    said = term.attributes[0] if term.operator.name == "compute" else term.operator.name
    return Step("compute", str(said), [], _type(term.type))


def _results(program: Program) -> list[tuple[str, Term]]:
    """Returns the results with their names."""
    whole = program.term
    terms = [*whole.children] if isinstance(whole.type, TupleType) and whole.operator.name == TUPLE else [whole]
    names = program.signature.outputs
    if len(names) != len(terms):
        names = ("result",) if len(terms) == 1 else tuple(f"result {i + 1}" for i in range(len(terms)))
    return list(zip(names, terms, strict=True))


def _type(type_: Type) -> str:
    return "a tuple" if isinstance(type_, TupleType) else _dims(type_.dims, type_.dtype)


def _dims(dims: Sequence[int], dtype: str) -> str:
    return f"({' '.join(f'{int(n)}' for n in dims)}) {dtype}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{where}>{escape(_printable(text))}</text>'
