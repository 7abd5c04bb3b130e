"""Reads e-graphs in the JSON format of egraph-serialize and the extraction gym, with exact costs.

    {"nodes": {id: {"op": ..., "children": [ids of nodes], "eclass": id, "cost": 1.0, "subsumed": false}},
     "root_eclasses": [ids of classes]}

"children" is [] when left out, "cost" 1 and "subsumed" false; other keys, "class_data" among them, say nothing about
costs and are passed over. A child stands for its whole class, so cycles among classes are allowed. A cost is a decimal
number; its exact decimal value is added up, not a double near it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from math import gcd, lcm
from pathlib import Path
from typing import Any, Never

from glenside.extract import Cost, Extraction, ExtractionError, NoExtraction, Problem, extract, tree_cost
from glenside.extract.greedy import CEILING

LARGEST, SMALLEST = 308, -400
"""Powers of ten of the first digit of a cost; a double reaches from 1e-323 to 1e308."""
COST_LENGTH = 1_200
"""Maximum length of one cost in characters; a double in full takes at most 1,080."""
COST_BITS = 512
"""Maximum size of the largest cost in bits, in the unit in which all costs of a file are integers."""
NAMED_IN_ERROR = 5


@dataclass(frozen=True)
class GymGraph:
    """An e-graph from a file: a problem with integer costs, and the names of the file."""

    source: str
    """The file, for messages."""
    problem: Problem
    """The problem without subsumed e-nodes, except in classes of subsumed e-nodes only; one component, in multiples of
    `unit`.
    """
    unit: Fraction
    """Value in the file of cost 1 in `problem`; all costs of the file are multiples of it."""
    node_ids: tuple[str, ...]
    """e-node of `problem` -> its name in the file."""
    class_ids: tuple[str, ...]
    """class of `problem` -> its name in the file."""
    e_nodes: int
    """E-nodes in the file, subsumed ones included."""

    @property
    def e_classes(self) -> int:
        """Number of classes in the file."""
        return len(self.class_ids)

    def extract(self, method: str = "auto", time_limit: float | None = None) -> Extraction:
        """Extracts with `extract.extract`; `time_limit` is in seconds.

        Raises NoExtraction, with the file's class names, if a root has no finite derivation, and ExtractionError for an
        unknown method.
        """
        try:
            return extract(self.problem, method, time_limit=time_limit)
        except NoExtraction as error:
            raise self._underivable(error) from None

    def cost(self, cost: Cost) -> Fraction:
        """Converts a cost of `problem` to the unit of the file, exactly."""
        return self.unit * cost[0]

    def tree_cost(self, answer: Extraction) -> Fraction | None:
        """Returns the tree cost of an answer over all roots, in the unit of the file; each use of a class is counted.

        None above 2^1024 units, where it is not computed.
        """
        cost = tree_cost(self.problem, dict(answer.choice))
        return self.cost(cost) if max(cost) < CEILING else None

    def choice(self, answer: Extraction) -> dict[str, str]:
        """Returns an answer with the names of the file: class -> e-node, for the classes that the roots need."""
        return {self.class_ids[c]: self.node_ids[n] for c, n in answer.choice.items()}

    def _underivable(self, error: NoExtraction) -> NoExtraction:
        missing = set(error.classes)
        root = next(c for c in self.problem.roots if c in missing)
        names = ", ".join(_quoted(self.class_ids[c]) for c in error.classes[:NAMED_IN_ERROR])
        more = ", ..." if len(missing) > NAMED_IN_ERROR else ""
        return NoExtraction(
            f"{self.source} requires a finite derivation of root class {_quoted(self.class_ids[root])}, got a cycle "
            f"in every one, through {len(missing)} class{'' if len(missing) == 1 else 'es'}: {names}{more}",
            classes=error.classes,
        )


def read_gym(path: str | os.PathLike[str]) -> GymGraph:
    """Reads the e-graph of a JSON file. Raises ExtractionError with the place if it is unreadable or malformed."""
    name = str(path) if str(path).isprintable() else json.dumps(str(path))
    try:
        if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
            raise ExtractionError(f"cannot read {name}: it is not a regular file")
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ExtractionError(f"cannot read {name}: it is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise ExtractionError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    return parse_gym(text, name)


def parse_gym(text: str, source: str = "the e-graph") -> GymGraph:
    """Parses the e-graph of a JSON text; `source` names it in messages. Raises ExtractionError with the place."""
    return _Reader(source).graph(text)


class _Number(str):
    """A JSON number as it is written."""


class _Object(dict[str, Any]):
    """A JSON object that remembers a key written twice."""

    repeated: str | None = None


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        found.repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return found


@dataclass
class _Node:
    """One record of the file, checked."""

    children: list[str]
    eclass: str
    cost: str
    """The text of the cost, checked; a key of `_Reader.costs`, since a Fraction is slow to hash."""
    subsumed: bool


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.costs: dict[str, Fraction] = {}
        """Costs by text: few distinct costs occur very often, so each text is parsed once."""

    def graph(self, text: str) -> GymGraph:
        content = self._json(text)
        records = self._object(self._key(content, "nodes", "the top level"), '"nodes"')
        nodes = {name: self._node(name, record) for name, record in records.items()}
        classes: dict[str, list[str]] = {}
        for name, node in nodes.items():
            classes.setdefault(node.eclass, []).append(name)
        for name, node in nodes.items():
            self._check_children(name, node, nodes)
        roots = self._roots(content, classes)
        kept = [[name for name in own if not nodes[name].subsumed] or own for own in classes.values()]
        ids = [name for own in kept for name in own]
        costs = {nodes[name].cost for name in ids}
        unit = self._unit({self.costs[text] for text in costs})
        whole = {text: (int(self.costs[text] / unit),) for text in costs}
        number, counter = {name: c for c, name in enumerate(classes)}, iter(range(len(ids)))
        problem = Problem(
            tuple(tuple(next(counter) for _ in own) for own in kept),
            tuple(tuple(number[nodes[child].eclass] for child in nodes[name].children) for name in ids),
            tuple(whole[nodes[name].cost] for name in ids),
            tuple(number[root] for root in roots),
        )
        return GymGraph(self.source, problem, unit, tuple(ids), tuple(classes), len(nodes))

    def _fail(self, message: str) -> Never:
        raise ExtractionError(f"{self.source} {message}")

    def _json(self, text: str) -> _Object:
        try:
            content = json.loads(
                text, object_pairs_hook=_object, parse_float=_Number, parse_int=_Number, parse_constant=_Number
            )
        except json.JSONDecodeError as error:
            place = f"{self.source}:{error.lineno}:{error.colno}"
            raise ExtractionError(f"{place}: an e-graph file requires JSON, got {error.msg}") from None
        except RecursionError:
            self._fail("requires an e-graph, got JSON that is nested too deeply")
        return self._object(content, "the top level")

    def _object(self, value: Any, place: str) -> _Object:
        if not isinstance(value, _Object):
            self._fail(f"requires an object at {place}, got {_brief(value)}")
        if value.repeated is not None:
            self._fail(f"requires each key once at {place}, got {_quoted(value.repeated)} twice")
        return value

    def _key(self, record: Mapping[str, Any], key: str, place: str) -> Any:
        if key not in record:
            self._fail(f'requires the key "{key}" at {place}, got none')
        return record[key]

    def _name(self, value: Any, what: str) -> str:
        if type(value) is not str:
            self._fail(f"requires a string as {what}, got {_brief(value)}")
        return value

    def _names(self, value: Any, what: str) -> list[str]:
        if not isinstance(value, list):
            self._fail(f"requires a list of strings as {what}, got {_brief(value)}")
        return [self._name(item, f"each of {what}") for item in value]

    def _node(self, name: str, value: Any) -> _Node:
        place = f"node {_quoted(name)}"
        record = self._object(value, place)
        self._name(self._key(record, "op", place), f'the "op" of {place}')
        eclass = self._name(self._key(record, "eclass", place), f'the "eclass" of {place}')
        children = self._names(record.get("children", []), f'the "children" of {place}')
        subsumed = record.get("subsumed", False)
        if not isinstance(subsumed, bool):
            self._fail(f'requires true or false as the "subsumed" of {place}, got {_brief(subsumed)}')
        return _Node(children, eclass, self._cost(record.get("cost", _Number("1")), place), subsumed)

    def _cost(self, value: Any, place: str) -> str:
        if isinstance(value, _Number):
            if value not in self.costs and (cost := _exact(value)) is not None:
                self.costs[value] = cost
            if value in self.costs:
                return value
        self._fail(f'requires a "cost" that is 0 or from 1e{SMALLEST} to 1e{LARGEST} in {place}, got {_brief(value)}')

    def _roots(self, content: _Object, classes: Mapping[str, object]) -> list[str]:
        roots = self._names(self._key(content, "root_eclasses", "the top level"), '"root_eclasses"')
        if not roots:
            self._fail('requires at least one class in "root_eclasses", got none')
        for root in roots:
            if root not in classes:
                self._fail(f"requires nodes in root class {_quoted(root)}, got none")
        return list(dict.fromkeys(roots))

    def _check_children(self, name: str, node: _Node, nodes: Mapping[str, _Node]) -> None:
        for child in node.children:
            if child not in nodes:
                self._fail(f"requires the children of node {_quoted(name)} to be nodes, got {_quoted(child)}")

    def _unit(self, distinct: set[Fraction]) -> Fraction:
        """Returns the largest unit of which every cost is a multiple; 1 if all are 0."""
        below = lcm(*(cost.denominator for cost in distinct))
        above = gcd(*(cost.numerator * (below // cost.denominator) for cost in distinct)) or below
        unit = Fraction(above, below)
        if (max(distinct) / unit).numerator.bit_length() > COST_BITS:
            self._fail(
                f"requires costs whose digits span at most {COST_BITS} bits, got "
                f"{_short(min(cost for cost in distinct if cost))} and {_short(max(distinct))}"
            )
        return unit


def _exact(text: str) -> Fraction | None:
    """Returns the exact decimal; None unless it is a finite non-negative cost near the range of doubles."""
    try:
        number = Decimal(text) if len(text) <= COST_LENGTH else Decimal("NaN")
    except InvalidOperation:  # an exponent of twenty digits
        return None
    if number == 0:
        return Fraction(0)
    good = number.is_finite() and number > 0 and SMALLEST <= number.adjusted() <= LARGEST
    return Fraction(number) if good else None


def _short(cost: Fraction) -> str:
    """Formats a cost with six digits; it may be larger than any double."""
    return f"{(Decimal(cost.numerator) / Decimal(cost.denominator)).normalize(Context(prec=6)):g}"


def _quoted(name: str) -> str:
    return _cut(json.dumps(name))


def _brief(value: Any) -> str:
    """Formats a value of the file, shortened; of a list or an object, only its kind."""
    if isinstance(value, _Number):
        return _cut(str(value))
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "a list"
        return kind if value else f"an empty {kind.split()[1]}"
    return _cut(json.dumps(value))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
