"""Parses the text of StableHLO as JAX writes it: functions of operations, some of which have regions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from glenside.importers.stablehlo.tokens import Cursor, Type
from glenside.ir.errors import BadInput

RETURNS = ("return", "func.return", "stablehlo.return")


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation: `%results = name operands words {attributes} regions : types`.

    words   what stands between operands and is no attribute, such as LT and SIGNED of a comparison
    types   of the results; of the operands where nothing is returned
    """

    name: str
    results: tuple[str, ...]
    line: int
    operands: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    location: list[str] = field(default_factory=list)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The values that it, and what is inside of its regions, reads."""
        return frozenset(self.operands).union(*(op.reads for region in self.regions for op in region.operations))


@dataclass(frozen=True, eq=False)
class Region:
    """Operations, of which the last one returns."""

    arguments: tuple[str, ...]
    operations: tuple[Operation, ...]

    @property
    def returned(self) -> list[str]:
        return self.operations[-1].operands


@dataclass(frozen=True, eq=False)
class Function:
    """A function: its arguments' names (a location), types, and the attributes of its results."""

    body: Region
    names: tuple[str, ...]
    types: tuple[Type, ...]
    results: tuple[dict[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Module:
    """A module: its functions by name, and the locations that have an alias."""

    name: str
    functions: dict[str, Function]
    locations: dict[str, str]
    """alias -> name, or another alias."""

    def named(self, location: str) -> str:
        """Returns the name of a location, through aliases, or ""."""
        for _ in self.locations:
            if not location.startswith("#"):
                break
            location = self.locations.get(location, "")
        return "" if location.startswith("#") else location.strip('"')


def parsed(text: str) -> Module:
    """Returns the module of a text. Raises BadInput, with the line."""
    try:
        return _module(Cursor(text))
    except RecursionError:
        raise BadInput("the text has brackets inside of brackets, too many for StableHLO that JAX writes") from None


def _module(cursor: Cursor) -> Module:
    module = Module("", {}, {})
    _aliases(cursor, module)
    cursor.expect("module")
    name = cursor.take("symbol").strip('@"') if cursor.next.kind == "symbol" else ""
    if cursor.skip("attributes"):
        cursor.expect("{")
        cursor.attributes("}")
    cursor.expect("{")
    while not cursor.skip("}"):
        own, function = _function(cursor)
        if own in module.functions:
            raise BadInput(f"line {cursor.next.line}: the function @{own} is declared twice")
        module.functions[own] = function
    cursor.location()
    _aliases(cursor, module)
    if cursor.next.kind == "resources":
        cursor.place += 1
    if cursor.next.kind != "end":
        cursor.refuse("the end of the text")
    return Module(name, module.functions, module.locations)


def _aliases(cursor: Cursor, module: Module) -> None:
    """Reads `#loc1 = loc("x")`, and definitions of other attributes, which mean nothing here."""
    while cursor.next.kind == "alias":
        alias = cursor.take("alias")
        cursor.expect("=")
        if cursor.at("loc", "("):
            module.locations[alias] = cursor.location()
        else:
            cursor.attribute()


def _function(cursor: Cursor) -> tuple[str, Function]:
    if not cursor.skip("func.func"):
        cursor.refuse("func.func, a function")
    for word in ("public", "private", "nested"):
        cursor.skip(word)
    name = cursor.take("symbol").strip('@"')
    arguments, types, names = _arguments(cursor)
    results: list[dict[str, Any]] = []
    if cursor.skip("->"):
        inside = cursor.skip("(")
        while cursor.next.kind == "tensor":
            cursor.type()
            results.append(cursor.attributes("}") if inside and cursor.skip("{") else {})
            cursor.skip(",")
        if inside:
            cursor.expect(")")
    if cursor.skip("attributes"):
        cursor.expect("{")
        cursor.attributes("}")
    cursor.expect("{")
    body = Region(tuple(arguments), _operations(cursor))
    cursor.location()
    if len(body.returned) != len(results):
        raise BadInput(
            f"line {body.operations[-1].line}: @{name} returns {len(results)} values, got {len(body.returned)}"
        )
    return name, Function(body, tuple(names), tuple(types), tuple(results))


def _arguments(cursor: Cursor) -> tuple[list[str], list[Type], list[str]]:
    """Reads `(%a: type {attributes} loc(..), ..)`; returns the values, their types and the names of their locations."""
    values, types, names = [], [], []
    cursor.expect("(")
    while not cursor.skip(")"):
        values.append(cursor.take("value"))
        cursor.expect(":")
        types.append(cursor.type())
        if cursor.skip("{"):
            cursor.attributes("}")
        names.append(cursor.location())
        if not cursor.skip(",") and not cursor.at(")"):
            cursor.refuse(")")
    return values, types, names


def _operations(cursor: Cursor) -> tuple[Operation, ...]:
    """Reads operations to the closing brace; the last one returns."""
    found: list[Operation] = []
    while not cursor.skip("}"):
        if found and found[-1].name in RETURNS:
            cursor.refuse("}")
        found.append(_operation(cursor))
    if not found or found[-1].name not in RETURNS:
        raise BadInput(f"line {cursor.tokens[cursor.place - 1].line}: expected a return before }}")
    return tuple(found)


def _operation(cursor: Cursor) -> Operation:
    results: list[str] = []
    while cursor.next.kind == "value":
        name, _, count = cursor.take("value").partition(":")
        if count and int(count) > 1 << 16:
            cursor.refuse("fewer results")
        results += [f"{name}#{place}" for place in range(int(count))] if count else [name]
        if not cursor.skip(","):
            cursor.expect("=")
            break
    line = cursor.next.line
    if cursor.next.kind == "string":
        op = Operation(cursor.take("string").strip('"'), tuple(results), line)
        _generic(cursor, op)
    else:
        op = Operation(cursor.take("word"), tuple(results), line)
        _custom(cursor, op)
    op.location.append(cursor.location())
    return op


def _generic(cursor: Cursor, op: Operation) -> None:
    """Reads `(%a, %b) <{attributes}> ({regions}) {attributes} : (types) -> types`."""
    cursor.expect("(")
    while not cursor.skip(")"):
        op.operands.append(cursor.take("value"))
        cursor.skip(",")
    if cursor.skip("<"):
        cursor.expect("{")
        op.attributes.update(cursor.attributes("}"))
        cursor.expect(">")
    if cursor.skip("("):
        while not cursor.skip(")"):
            cursor.expect("{")
            op.regions.append(_block(cursor))
            cursor.skip(",")
    if cursor.skip("{"):
        op.attributes.update(cursor.attributes("}"))
    _types(cursor, op)


def _block(cursor: Cursor) -> Region:
    """Reads a region after its brace: `^bb0(%a: type): operations }`."""
    arguments: list[str] = []
    if cursor.next.kind == "alias":
        cursor.take("alias")
        arguments, _, _ = _arguments(cursor)
        cursor.expect(":")
    return Region(tuple(arguments), _operations(cursor))


def _types(cursor: Cursor, op: Operation) -> None:
    """Reads the types; those of the operands are left out, or they are those of the results."""
    cursor.expect(":")
    op.types.extend(cursor.types())
    if cursor.skip("->"):
        op.types[:] = cursor.types()
    elif len(op.results) == 1:
        op.types[:] = op.types[-1:]
    elif len(op.types) == 1:
        op.types[:] *= len(op.results)
    if len(op.types) != len(op.results) and op.name not in RETURNS:
        raise BadInput(f"line {op.line}: {op.name} has {len(op.results)} results, got {len(op.types)} types")


def _custom(cursor: Cursor, op: Operation) -> None:
    """Reads what is special to an operation: operands, words and attributes in any order, the types, and regions."""
    bound: list[str] = []
    while not cursor.at(":"):
        if op.name in RETURNS and cursor.next.text in ("}", "loc"):
            return
        if cursor.next.text in ("dense", "dense_resource"):
            op.attributes["value"] = constant = cursor.attribute()
            op.types.append(constant.type)
            return
        _part(cursor, op, bound)
    _types(cursor, op)
    if cursor.skip("reducer"):
        pairs: list[str] = []
        while cursor.at("("):
            pairs += _arguments(cursor)[0]
        cursor.expect("{")
        op.regions.append(Region((*pairs[::2], *pairs[1::2]), _operations(cursor)))
    if op.name == "stablehlo.while":
        if cursor.skip("attributes"):
            cursor.expect("{")
            cursor.attributes("}")
        for word in ("cond", "do"):
            cursor.expect(word)
            cursor.expect("{")
            op.regions.append(Region(tuple(bound), _operations(cursor)))


def _part(cursor: Cursor, op: Operation, bound: list[str]) -> None:
    """Reads an operand, word or attribute of an operation, or the name of a loop's value inside of it, `bound`."""
    token = cursor.next
    if token.kind == "word" and cursor.tokens[cursor.place + 1].text == "=":
        cursor.place += 2
        op.attributes[token.text] = cursor.attribute()
    elif token.kind == "value":
        cursor.place += 1
        (bound if cursor.skip("=") else op.operands).append(token.text)
    elif cursor.skip("{"):
        op.attributes.update(cursor.attributes("}"))
    elif token.text == "[":
        op.attributes["ranges"] = _ranges(cursor)
    elif token.text == "<":
        cursor.balanced("<", ">")
    elif cursor.at("init", ":"):
        cursor.place += 2
    elif token.kind in ("word", "symbol", "string", "number"):
        op.words.append(token.text.strip('"'))
        cursor.place += 1
    elif token.text in ("(", ")", ","):
        cursor.place += 1
    else:
        cursor.refuse(f"operands and attributes of {op.name}")


def _ranges(cursor: Cursor) -> list[tuple[int, int, int]]:
    """Reads `[0:3, 1:5:2]`: the start, the end and the step of each axis."""
    cursor.expect("[")
    found = []
    while not cursor.skip("]"):
        numbers = [int(cursor.number())]
        while cursor.skip(":"):
            numbers.append(int(cursor.number()))
        if len(numbers) not in (2, 3):
            cursor.refuse("start:end or start:end:step")
        found.append((numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 1))
        cursor.skip(",")
    return found
