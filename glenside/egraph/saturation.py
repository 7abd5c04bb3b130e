"""Saturation: the only module that holds an egglog e-graph, runs it and reads it back.

An iteration runs every rule once, then types, shapes and analyses to their fixed point. Expansive rules run under a
back-off implemented here (egglog's own scheduler forgets its state between calls): a rule with more matches than its
limit is banned for some iterations, and its limit doubles. The search is saturated only if an iteration without banned
rules changes nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

from glenside.egraph.encode import FIRST, MADE, PROGRAM_NODE, TRACE, declarations, program_text, trace_declarations
from glenside.egraph.pattern import sort_names
from glenside.egraph.queries import DEMANDS, LATE_DEMANDS
from glenside.egraph.rule import Parameters, Rule
from glenside.egraph.sexpr import literal, parts, row_said
from glenside.egraph.snapshot import ENode, Fact, Rows, Snapshot, closed
from glenside.egraph.table_rows import TableRows
from glenside.egraph.tables import TABLES, Table, used
from glenside.ir.operator import OPERATORS
from glenside.ir.packages import load
from glenside.ir.term import Term
from glenside.ir.types import AccessType, Dims, Tensor

if TYPE_CHECKING:
    from egglog import bindings

SATURATED, NODE_LIMIT, TIME_LIMIT, ITERATION_LIMIT = "saturated", "node-limit", "time-limit", "iteration-limit"
MEMORY_LIMIT, INTERRUPTED, FAILED = "memory-limit", "interrupted", "failed"
LIMITS = {
    NODE_LIMIT: ("e-nodes", "--node-limit"),
    TIME_LIMIT: ("seconds", "--time-limit"),
    ITERATION_LIMIT: ("iterations", "--iter-limit"),
    MEMORY_LIMIT: ("memory", "--memory-limit"),
}
"""Stop reason of a limit -> its unit, and the option that raises it."""

_CHUNK = 8  # commands per parser call: egglog's parser takes time and memory quadratic in the length of a text
_KEPT = 4  # maximum e-graphs with compiled rules
ACTIONS = 32  # actions per rule that builds a part of the program
MATCH_LIMIT, BAN_LENGTH = 1_000, 5  # the defaults of egg's back-off scheduler


@dataclass(frozen=True)
class Limits:
    """The limits of a search: e-nodes, seconds, iterations and bytes of memory. None: no limit."""

    nodes: int | None = 1_000_000
    seconds: float | None = 60.0
    iterations: int | None = 1_000
    memory: int | None = 4 << 30


@dataclass
class RuleRun:
    """Statistics of a rule: matches, and seconds of searching and applying them."""

    matches: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Request:
    """A search as plain text that can be sent to a worker process: no terms, no e-graph."""

    declarations: str
    program: str
    rules: tuple[tuple[str, bool], ...]  # (ruleset, expansive)
    analyses: tuple[str, ...]  # rulesets
    program_size: int
    limits: Limits
    reported: tuple[str, ...] = ()  # relations whose rows, a class first, the snapshot holds as facts
    tables: tuple[tuple[str, str], ...] = ()  # (module, name)
    # (name, egglog sorts of the columns): a worker may not have loaded the module that registered one
    operators: tuple[tuple[str, tuple[str, ...]], ...] = ()
    trace: bool = False
    subsuming: frozenset[str] = frozenset()

    @staticmethod
    def of(
        nodes: Sequence[Term],
        rules: Iterable[Rule],
        parameters: Parameters,
        limits: Limits,
        wants: str = "",
        reported: Sequence[str] = (),
        trace: bool = False,
    ) -> Request:
        """Builds the request to saturate the program `nodes` (children first) with rules and a target's parameters.

        With `trace`, the facts `made` are (class, operator, rule, iteration, class that the rule matched at, attributes
        of the e-node, its children..).
        """
        rules = tuple(rules)
        text, tables = declared(rules, parameters, trace)
        steps = tuple((r.name, r.expansive) for r in rules if not r.analysis)
        analyses = tuple(r.name for r in rules if r.analysis)
        lines = {line for rule in rules for line in rule.declarations}
        known = tuple(name for name in reported if any(line.startswith(f"(function {name} (") for line in lines))
        return Request(
            text,
            program_text(nodes) + "\n" + wants,
            steps,
            analyses,
            len(nodes),
            limits,
            known,
            tuple((t.module, t.name) for t in tables),
            tuple((o.name, sort_names(o)) for o in OPERATORS.values()),
            trace,
            frozenset(r.name for r in rules if r.subsumes),
        )

    def of_part(self, nodes: Sequence[Term], limits: Limits) -> Request:
        """Returns the request for some of the nodes."""
        return replace(self, program=program_text(nodes), program_size=len(nodes), limits=limits)


def declared(rules: Sequence[Rule], parameters: Parameters, trace: bool = False) -> tuple[str, Sequence[Table]]:
    """Returns the egglog declarations for these rules, for any program, and the tables that they read."""
    relations = dict.fromkeys(line for r in rules for line in r.declarations)
    own = "\n".join([*relations, *(r.egglog(parameters, trace) for r in rules)])
    tables = used(own)
    traced = [trace_declarations()] if trace else []
    return "\n".join([declarations(), *(t.declarations() for t in tables), *traced, own]), tables


@dataclass
class Progress:
    """The progress of a search; picklable. `fault`: why it failed, or ""; `wrong`: the rule at fault, or ""."""

    iterations: int = 0
    rows: int = 0
    stopped: str | None = None
    seconds: float = 0.0
    rules: dict[str, RuleRun] = field(default_factory=dict)
    fault: str = ""
    wrong: str = ""

    @staticmethod
    def joint(parts: Sequence[Progress], at_once: bool) -> Progress:
        """Joins the progress of searches of parts of a program, in parallel (`at_once`) or in turn."""
        rules: dict[str, RuleRun] = {}
        for name, run in (own for part in parts for own in part.rules.items()):
            known = rules.get(name, RuleRun())
            rules[name] = RuleRun(known.matches + run.matches, known.seconds + run.seconds)
        seconds = (max if at_once else sum)(part.seconds for part in parts)
        iterations, rows = max(part.iterations for part in parts), sum(part.rows for part in parts)
        fault, wrong = next(((p.fault, p.wrong) for p in parts if p.fault), ("", ""))
        return Progress(iterations, rows, None, seconds, rules, fault, wrong)


class Saturation:
    """An e-graph with the rules that saturate it, one iteration at a time."""

    def __init__(self, request: Request, compiled: Compiled | None = None) -> None:
        self.request = request
        self._start = time.perf_counter()
        self._egraph = (compiled or Compiled()).egraph(request.declarations)
        facts = FACTS.format(" ".join(f"(run {name})" for name in request.analyses))
        # One rule that fires once runs many actions faster than separate commands.
        actions = request.program.split("\n")  # not splitlines: names may contain other line separators
        self._command("(ruleset program)")
        for start in range(0, len(actions), ACTIONS):
            some = " ".join(actions[start : start + ACTIONS])
            self._command(f'(rule () ({some}) :ruleset program :name "program {start}")')
        self._command("(run-schedule (run program))")
        self._limit = {name: MATCH_LIMIT for name, expansive in request.rules if expansive}
        self._runs = {name: self._egraph.parse_program(f"(run-schedule (run {name}))") for name, _ in request.rules}
        self._facts = self._egraph.parse_program(f"(run-schedule {facts})")
        self._late = self._egraph.parse_program(f"(run-schedule {LATE})")
        load(module for module, _ in request.tables)
        # Not a bound method: that would be a reference cycle, and any thread's collector might free the e-graph.
        self._tables = TableRows(partial(_run, self._egraph), [TABLES[name] for _, name in request.tables])
        self._banned: dict[str, int] = {}
        self.progress = Progress(rules={name: RuleRun() for name in (*self._runs, *request.analyses)})
        self._analyze()
        self._stamp()

    def _command(self, text: str) -> list[Any]:
        return _run(self._egraph, text)

    def run(self, after: Callable[[Saturation], None] = lambda _: None) -> Progress:
        """Iterates until saturated or a limit is reached; `after` is called after each iteration."""
        while self.progress.stopped is None:
            self.step()
            after(self)
        return self.progress

    def step(self) -> None:
        """Runs one iteration; sets `progress.stopped` if it was the last."""
        progress, limits = self.progress, self.request.limits
        active = self._active()
        changed = self._iterate(active)
        progress.iterations += 1
        self._stamp()
        progress.rows = self._rows()
        progress.seconds = time.perf_counter() - self._start
        if not changed and len(active) == len(self.request.rules):
            progress.stopped = SATURATED
        elif not changed:
            self._banned.clear()  # no active rule changes anything: lift the bans
        elif limits.iterations is not None and progress.iterations >= limits.iterations:
            progress.stopped = ITERATION_LIMIT
        elif limits.nodes is not None and progress.rows >= limits.nodes:
            progress.stopped = NODE_LIMIT
        elif limits.seconds is not None and progress.seconds >= limits.seconds:
            progress.stopped = TIME_LIMIT

    def _active(self) -> list[str]:
        """Returns the rules that are not banned."""
        return [name for name, _ in self.request.rules if self._banned.get(name, 0) <= self.progress.iterations]

    def _stamp(self) -> None:
        """Stamps the e-nodes made since the last iteration with this iteration, if a trace is kept."""
        if self.request.trace:
            self._command(f"(made-in {self.progress.iterations}) (run-schedule (run {TRACE}))")

    def _iterate(self, active: Sequence[str]) -> bool:
        """Runs every active rule once, each timed (egglog's own seconds are too coarse), then the analyses.

        Rules that subsume e-nodes run first, so that the others do not match there.
        """
        first = self.request.subsuming
        changed = self._run_each([name for name in active if name in first]) and self._analyze(changed=True)
        self._demand()
        changed |= self._run_each([name for name in active if name not in first])
        return self._analyze(changed)

    def _run_each(self, names: Iterable[str]) -> bool:
        """Runs each of these rules once; True if any changed the e-graph."""
        changed = False
        for name in names:
            started = time.perf_counter()
            report = self._egraph.run_program(*self._runs[name])[-1].report
            run = self.progress.rules[name]
            run.seconds += time.perf_counter() - started
            matches = sum(report.num_matches_per_rule.values())
            run.matches += matches
            changed |= report.updated
            if name in self._limit and matches > self._limit[name]:
                self._limit[name] *= 2
                self._banned[name] = self.progress.iterations + 1 + BAN_LENGTH
        return changed

    def _demand(self) -> None:
        """Computes the demands of rules that do not subsume, after subsumption."""
        self._egraph.run_program(*self._late)
        while self._tables.fill():
            self._egraph.run_program(*self._late)

    def _analyze(self, changed: bool = False) -> bool:
        """Runs types, shapes and analyses to their fixed point, with the table rows that they and the rules demand."""
        changed |= self._find_facts()
        while self._tables.fill():
            self._find_facts()
            changed = True
        return changed

    def _find_facts(self) -> bool:
        """Runs the facts to their fixed point; the time of single analyses is not measured."""
        report = self._egraph.run_program(*self._facts)[-1].report
        for name, matches in report.num_matches_per_rule.items():
            rule = name.split("#")[0]
            if rule in self.progress.rules:
                self.progress.rules[rule].matches += matches
        return bool(report.updated)

    def _rows(self) -> int:
        (sizes,) = self._command("(print-size)")
        names = dict(self.request.operators)
        return sum(size for name, size in sizes.sizes if name in names)

    def snapshot(self, tensors: Mapping[str, Tensor] | None = None) -> Snapshot:
        """Returns a snapshot of the current e-graph."""
        return _Reader(self._egraph).read(self.request, tensors or {})

    def rows_of_tables(self) -> list[str]:
        """Returns the commands that add the rows of tables that the search demanded, sorted."""
        return _Reader(self._egraph).rows_of_tables([TABLES[name] for _, name in self.request.tables])


class Compiled:
    """A cache of e-graphs with the compiled declarations of past searches.

    egglog takes longer to compile the rules of a target than most searches last. An e-graph is emptied for the next
    search with its declarations, so it must be read before.
    """

    def __init__(self) -> None:
        self._egraphs: dict[str, Any] = {}

    def egraph(self, declarations: str) -> Any:
        """Returns an e-graph with these declarations and nothing else."""
        egraph = self._egraphs.pop(declarations, None)
        if egraph is None:
            egraph = _egraph_class()()
            commands = parts(declarations)
            for start in range(0, len(commands), _CHUNK):
                _run(egraph, "\n".join(commands[start : start + _CHUNK]))
            for oldest in list(self._egraphs)[: 1 - _KEPT]:
                del self._egraphs[oldest]
        else:
            _run(egraph, "(pop 1)")
        _run(egraph, "(push 1)")
        self._egraphs[declarations] = egraph
        return egraph


def _run(egraph: Any, text: str) -> list[Any]:
    return list(egraph.run_program(*egraph.parse_program(text)))


@cache
def _egraph_class() -> type[bindings.EGraph]:
    """Imports the EGraph class of egglog's native module, without its Python package: importing that takes longer than
    most searches. Raises ImportError.
    """
    package = find_spec("egglog")
    spec = PathFinder.find_spec("egglog.bindings", package.submodule_search_locations if package else None)
    if spec is None or spec.loader is None:
        raise ImportError("egglog and its native module are not installed")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[bindings.EGraph] = module.EGraph
    return found


TYPES = "(saturate (seq (run types) (saturate (run shapes))))"
FACTS = f"(saturate (seq {TYPES} (saturate (seq {{}})) (run {DEMANDS})))"
"""The schedule of types, shapes and analyses; {} stands for the analyses."""
LATE = f"(saturate (seq (run {LATE_DEMANDS}) (saturate (run shapes))))"
"""The schedule of the demands of rules that do not subsume."""


class _Reader:
    """Reads egglog's frozen tables; converts each class, vector and text once."""

    def __init__(self, egraph: Any) -> None:
        self._functions = egraph.freeze().functions
        classes: dict[Any, int] = {}

        def number(value: Any) -> int:
            return classes.setdefault(value, len(classes))

        self._classes, self._class = classes, number  # not a bound method: see `Saturation`
        self._of_sort: dict[str, Callable[[Any], Any]] = {
            "Access": number,
            "Accesses": lambda value: tuple(map(number, egraph.value_to_vec(value))),
            "Ints": cache(lambda value: Dims(map(egraph.value_to_i64, egraph.value_to_vec(value)))),
            "i64": egraph.value_to_i64,
            "String": cache(egraph.value_to_string),
        }

    def read(self, request: Request, tensors: Mapping[str, Tensor]) -> Snapshot:
        program = [0] * request.program_size
        for row in self._functions[PROGRAM_NODE].rows:
            program[self._of_sort["i64"](row.inputs[0])] = self._class(row.output)
        rows = [self._node(name, sorts, row) for name, sorts in request.operators for row in self._functions[name].rows]
        dims, split, dtype = self._types("dims", "Ints"), self._types("split", "i64"), self._types("dtype", "String")
        types = {eclass: AccessType(dims[eclass], split[eclass], dtype[eclass]) for eclass in dims}
        facts = [(name, self._facts(request, name)) for name in request.reported]
        if request.trace:
            facts.append((MADE, ((), ())))
            facts += [(MADE, rows) for name, sorts in request.operators for rows in self._made(name, sorts)]
        return closed(rows, len(self._classes), types, program, tensors, facts)

    def _node(self, name: str, sorts: Sequence[str], row: Any) -> tuple[ENode, int]:
        attributes, children = self._columns(sorts, row.inputs)
        return ENode(name, attributes, children, bool(row.subsumed)), self._class(row.output)

    def _columns(self, sorts: Sequence[str], values: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Splits the columns of an e-node into attributes and children."""
        children: list[int] = []
        attributes: list[Any] = []
        for sort, value in zip(sorts, values, strict=True):
            read = self._of_sort[sort](value)
            if sort == "Access":
                children.append(read)
            elif sort == "Accesses":
                children += read
            else:
                attributes.append(read)
        return tuple(attributes), tuple(children)

    def _types(self, function: str, sort: str) -> dict[int, Any]:
        """Returns class -> its dims, split or dtype."""
        return {self._class(row.inputs[0]): self._of_sort[sort](row.output) for row in self._functions[function].rows}

    def _facts(self, request: Request, name: str) -> Rows:
        """Returns the rows of a relation, with columns as declared."""
        declared = re.search(rf"\(function {re.escape(name)} \(([^()]*)\)", request.declarations)
        assert declared is not None, f"the relation {name} is not declared"
        sorts = declared[1].split()
        classes = tuple(i for i, sort in enumerate(sorts) if sort == "Access")
        read = [self._of_sort[sort] for sort in sorts]
        rows = self._functions[name].rows
        return classes, [tuple(f(v) for f, v in zip(read, row.inputs, strict=True)) for row in rows]

    def rows_of_tables(self, tables: Sequence[Table]) -> list[str]:
        """Returns the rows of tables as commands, sorted."""
        found: list[str] = []
        for table in tables:
            read = [self._of_sort[column.sort.value] for column in table.row_columns]
            for row in self._functions[table.row].rows:
                values = (f(value) for f, value in zip(read, row.inputs, strict=True))
                found.append(row_said(f"({table.row} {' '.join(map(literal, values))})"))
        return sorted(found)

    def _made(self, operator: str, sorts: Sequence[str]) -> Iterator[Rows]:
        """Yields trace rows by number of children: (class, operator, rule, iteration, source, attributes, ..)."""
        owner = {tuple(row.inputs): row.output for row in self._functions[operator].rows}
        of_size: dict[int, list[Fact]] = {}
        for row in self._functions[f"{FIRST}-{operator}"].rows:
            *columns, rule, source = row.inputs
            if (eclass := owner.get(tuple(columns))) is not None:
                attributes, children = self._columns(sorts, columns)
                how = self._of_sort["String"](rule), self._of_sort["i64"](row.output), self._class(source)
                made = (self._class(eclass), operator, *how, attributes, *children)
                of_size.setdefault(len(children), []).append(made)
        for size, facts in of_size.items():
            yield (0, 4, *range(6, 6 + size)), facts
