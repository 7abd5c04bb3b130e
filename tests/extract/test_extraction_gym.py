"""Tests e-graphs in JSON files: read exactly, extracted as by brute force over the file, or refused in one sentence."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import highspy
import pytest
from command_line import run
from extraction_problems import answers, hard, random_problem, vector_sum

from glenside.extract import (
    METHODS,
    Extraction,
    ExtractionError,
    Limits,
    NoExtraction,
    Problem,
    extract_dag,
    extract_exact,
)
from glenside.extract.gym import GymGraph, parse_gym, read_gym

EGRAPHS = Path(__file__).parent.parent / "egraphs"
COSTS = (0, 0.0, 1, 2, 1.0, 0.1, 0.2, 0.30000000000000004, 2.5, 1e-3, 12.75, 1e2)
BATCHES = range(8)

Document = dict[str, Any]
Choice = Mapping[str, str]


def document(classes: int, seed: int) -> Document:
    """Small, with cycles, self-loops, repeated children, decimal costs, subsumed e-nodes and several roots."""
    r = random.Random(seed)
    names = [f"c{i}" for i in range(classes)]
    owner = {f"{c}.{i}": c for c in names for i in range(r.choice([1, 1, 2, 2, 3, 4]))}
    nodes: Document = {}
    for name, c in owner.items():
        later = [n for n, d in owner.items() if r.random() < 0.5 or names.index(d) > names.index(c)]
        kids = [r.choice(later) for _ in range(r.choice([0, 1, 1, 2, 2, 3]))] if later else []
        nodes[name] = {"op": "f", "children": kids, "eclass": c, "cost": r.choice(COSTS)}
        if not kids and r.random() < 0.5:
            del nodes[name]["children"]
        if r.random() < 0.1:
            nodes[name]["subsumed"] = r.random() < 0.7
        if r.random() < 0.1:
            del nodes[name]["cost"]
    shuffled = r.sample(sorted(nodes), len(nodes))
    return {"nodes": {n: nodes[n] for n in shuffled}, "root_eclasses": r.sample(names, min(classes, r.randint(1, 2)))}


def written(problem: Problem) -> Document:
    """Returns a problem of one cost component as a document: the inverse of reading, up to the order of nodes."""
    nodes: Document = {
        f"n{n}": {
            "op": "f",
            "children": [f"n{problem.classes[d][0]}" for d in problem.children[n]],
            "eclass": f"c{c}",
            "cost": sum(problem.costs[n]),
        }
        for c, own in enumerate(problem.classes)
        for n in own
    }
    return {"nodes": nodes, "root_eclasses": [f"c{c}" for c in problem.roots]}


def usable(doc: Document) -> dict[str, list[str]]:
    classes: dict[str, list[str]] = {}
    for name, node in doc["nodes"].items():
        classes.setdefault(node["eclass"], []).append(name)
    kept = {c: [n for n in own if not doc["nodes"][n].get("subsumed")] for c, own in classes.items()}
    return {c: kept[c] or own for c, own in classes.items()}


def needs(doc: Document, name: str) -> list[str]:
    return [doc["nodes"][child]["eclass"] for child in doc["nodes"][name].get("children", [])]


def cost(doc: Document, name: str) -> Fraction:
    return Fraction(repr(doc["nodes"][name].get("cost", 1)))


def acyclic(doc: Document, choice: Choice) -> bool:
    left = dict(choice)
    while left:
        leaves = [c for c, n in left.items() if not any(d in left for d in needs(doc, n))]
        if not leaves:
            return False
        for c in leaves:
            del left[c]
    return True


def every_answer(doc: Document) -> Iterator[dict[str, str]]:
    """Yields every choice that is closed and acyclic, by enumeration, from the document alone."""
    options = usable(doc)
    stack: list[tuple[dict[str, str], list[str]]] = [({}, doc["root_eclasses"])]
    while stack:
        choice, wanted = stack.pop()
        missing = [c for c in wanted if c not in choice]
        if missing:
            stack += [({**choice, missing[0]: n}, missing[1:] + needs(doc, n)) for n in options[missing[0]]]
        elif acyclic(doc, choice):
            yield choice


def dag(doc: Document, choice: Choice) -> Fraction:
    return sum((cost(doc, n) for n in choice.values()), Fraction(0))


def tree(doc: Document, choice: Choice) -> Fraction:
    def below(c: str) -> Fraction:
        return cost(doc, choice[c]) + sum(map(below, needs(doc, choice[c])))

    return sum(map(below, doc["root_eclasses"]), Fraction(0))


def check(doc: Document, graph: GymGraph, answer: Extraction) -> None:
    """Roots and children chosen, nothing else; each from its own class; no cycle; both costs add up."""
    choice = graph.choice(answer)
    needed, stack, options = set(), list(doc["root_eclasses"]), usable(doc)
    while stack:
        c = stack.pop()
        if c not in needed:
            needed.add(c)
            assert choice[c] in options[c]
            stack += needs(doc, choice[c])
    assert needed == set(choice)
    assert acyclic(doc, choice)
    assert graph.cost(answer.cost) == dag(doc, choice)
    assert graph.tree_cost(answer) == tree(doc, choice)
    assert answer.bound is None or answer.bound <= answer.cost
    assert not answer.proven or answer.bound == answer.cost


def file(folder: Path, content: Document | str) -> Path:
    path = folder / "graph.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("batch", BATCHES)
def test_every_method_agrees_with_brute_force_over_the_file(batch: int) -> None:
    solved = 0
    for seed in range(batch * 60, batch * 60 + 60):
        doc = document(1 + seed % 8, seed)
        graph = parse_gym(json.dumps(doc))
        known = list(every_answer(doc))
        if not known:
            for method in METHODS:
                with pytest.raises(NoExtraction, match="finite derivation of root class"):
                    graph.extract(method)
            continue
        best = min(dag(doc, choice) for choice in known)
        found = {method: graph.extract(method) for method in METHODS}
        for answer in found.values():
            check(doc, graph, answer)
            assert answer.bound is None or graph.cost(answer.bound) <= best
        costs = {method: graph.cost(answer.cost) for method, answer in found.items()}
        assert costs["greedy"] >= costs["dag"] >= costs["exact"] == costs["auto"] == best
        assert found["exact"].proven
        assert found["auto"].proven
        assert graph.tree_cost(found["greedy"]) == min(tree(doc, choice) for choice in known)
        solved += 1
    assert solved > 20


@pytest.mark.slow
def test_a_thousand_answers_are_valid() -> None:
    solved = 0
    for seed in range(50_000, 51_000):
        doc = document(4 + seed % 10, seed)
        graph = parse_gym(json.dumps(doc))
        try:
            found = [graph.extract(method) for method in ("greedy", "dag", "exact")]
        except NoExtraction:
            continue
        for answer in found:
            check(doc, graph, answer)
        assert found[0].cost >= found[1].cost >= found[2].cost
        solved += 1
    assert solved > 600


def test_a_problem_that_is_written_reads_back_the_same() -> None:
    for seed in range(200):
        p = random_problem(seed)
        p = Problem(p.classes, p.children, tuple((sum(cost),) for cost in p.costs), tuple(dict.fromkeys(p.roots)))
        graph = parse_gym(json.dumps(written(p)))
        back = graph.problem
        scaled = tuple((int(graph.cost(cost)),) for cost in back.costs)
        assert (back.classes, back.children, scaled, back.roots) == (p.classes, p.children, p.costs, p.roots)
        assert graph.node_ids == tuple(f"n{n}" for n in range(len(p.children)))


@pytest.mark.parametrize(
    ("name", "method", "dag_cost", "tree_cost", "chosen"),
    [
        ("half_of_double", "exact", "1", "1", "0.0"),
        ("half_of_double", "greedy", "1", "1", "0.0"),
        # Two products cost 0.040959998965263366; one and a split 0.031, which a tree pays for twice.
        ("two_products", "exact", "0.036", "0.067", "w1 w2 w12 input m12 split s1 s2 add"),
        ("two_products", "greedy", "0.045959998965263366", "0.045959998965263366", "w1 w2 input m1 m2 add"),
    ],
)
def test_files_as_others_write_them(name: str, method: str, dag_cost: str, tree_cost: str, chosen: str) -> None:
    graph = read_gym(EGRAPHS / f"{name}.json")
    answer = graph.extract(method)
    assert graph.cost(answer.cost) == Fraction(dag_cost)
    assert graph.tree_cost(answer) == Fraction(tree_cost)
    assert set(graph.choice(answer).values()) == set(chosen.split())


def leaf(**more: object) -> Document:
    return {"op": "x", "eclass": "a", **more}


def test_decimals_are_added_up_as_they_are_written() -> None:
    """0.1 + 0.2 is 0.3, and 1e16 + 1 is not 1e16, as it is with doubles."""
    text = """{"root_eclasses": ["a"], "nodes": {
        "sum": {"op": "+", "children": ["x", "y", "z"], "eclass": "a", "cost": 0.1},
        "x": {"op": "x", "eclass": "x", "cost": 0.2},
        "y": {"op": "y", "eclass": "y", "cost": 10000000000000000},
        "z": {"op": "z", "eclass": "z", "cost": 1E0}}}"""
    graph = parse_gym(text)
    assert graph.unit == Fraction(1, 10)
    assert graph.cost(graph.extract().cost) == Fraction("10000000000000001.3")


def test_costs_that_are_all_zero_or_share_a_factor() -> None:
    zero = parse_gym(json.dumps({"nodes": {"n": leaf(cost=0)}, "root_eclasses": ["a"]}))
    assert zero.cost(zero.extract().cost) == 0
    even = parse_gym(json.dumps({"nodes": {"n": leaf(cost=6), "m": leaf(cost=4)}, "root_eclasses": ["a"]}))
    assert (even.unit, even.problem.costs) == (2, ((3,), (2,)))
    assert even.choice(even.extract()) == {"a": "m"}


def test_subsumed_nodes_are_passed_over_unless_a_class_has_nothing_else() -> None:
    nodes = {
        "n": leaf(cost=5, children=["k"]),
        "m": leaf(cost=1, subsumed=True),
        "k": leaf(eclass="k", subsumed=True),
    }
    graph = parse_gym(json.dumps({"nodes": nodes, "root_eclasses": ["a"]}))
    assert graph.choice(graph.extract()) == {"a": "n", "k": "k"}
    assert (graph.e_nodes, graph.e_classes) == (3, 2)


GOOD: Document = {"nodes": {"n": leaf(children=["m"]), "m": leaf(eclass="b")}, "root_eclasses": ["a"]}


def with_node(**fields: object) -> Document:
    """GOOD with fields of node n changed; ... takes one away."""
    node = {key: value for key, value in (GOOD["nodes"]["n"] | fields).items() if value is not ...}
    return {**GOOD, "nodes": {**GOOD["nodes"], "n": node}}


def costing(number: str) -> str:
    """GOOD with a cost of node n that is written like this."""
    return json.dumps(with_node(cost="@")).replace('"@"', number)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nodes: {}", "graph.json:1:1: an e-graph file requires JSON, got Expecting value"),
        ("", "graph.json:1:1: an e-graph file requires JSON"),
        (json.dumps(GOOD)[:40], "graph.json:1:39: an e-graph file requires JSON, got Unterminated string"),
        (json.dumps(GOOD) + "}", "graph.json:1:121: an e-graph file requires JSON, got Extra data"),
        ("[" * 100_000, "nested too deeply"),
        ('{"nodes": ' * 100_000, "nested too deeply"),
        ("[1, 2]", "requires an object at the top level, got a list"),
        ("7", "requires an object at the top level, got 7"),
        ({"root_eclasses": ["a"]}, 'requires the key "nodes" at the top level, got none'),
        ({"nodes": GOOD["nodes"]}, 'requires the key "root_eclasses" at the top level, got none'),
        ({**GOOD, "nodes": []}, 'requires an object at "nodes", got an empty list'),
        ({**GOOD, "nodes": {}}, 'requires nodes in root class "a", got none'),
        ({**GOOD, "nodes": {"n": 1}}, 'requires an object at node "n", got 1'),
        (with_node(op=...), 'requires the key "op" at node "n", got none'),
        (with_node(eclass=...), 'requires the key "eclass" at node "n", got none'),
        (with_node(op=None), 'requires a string as the "op" of node "n", got null'),
        (with_node(eclass=3), 'requires a string as the "eclass" of node "n", got 3'),
        (with_node(children="m"), 'requires a list of strings as the "children" of node "n", got "m"'),
        (with_node(children=[["m"]]), 'requires a string as each of the "children" of node "n", got a list'),
        (with_node(children=["gone"]), 'requires the children of node "n" to be nodes, got "gone"'),
        (with_node(children=["gone"], subsumed=True), 'requires the children of node "n" to be nodes, got "gone"'),
        (with_node(children=["b"]), 'requires the children of node "n" to be nodes, got "b"'),
        (with_node(subsumed=1), 'requires true or false as the "subsumed" of node "n", got 1'),
        (with_node(cost=-0.5), 'in node "n", got -0.5'),
        (with_node(cost=float("nan")), 'in node "n", got NaN'),
        (with_node(cost=float("inf")), 'in node "n", got Infinity'),
        (with_node(cost=float("-inf")), 'in node "n", got -Infinity'),
        (with_node(cost="1"), 'in node "n", got "1"'),
        (with_node(cost=None), 'in node "n", got null'),
        (with_node(cost=True), 'in node "n", got true'),
        (costing("1e999999999"), 'in node "n", got 1e999999999'),
        (costing("1e-99999999999999999999"), 'in node "n", got 1e-99999999999999999999'),
        (costing("1" * 5000), 'in node "n", got 11111'),
        (with_node(cost=1e300), "digits span at most 512 bits, got 1 and 1e+300"),
        (costing("9.25e308"), "digits span at most 512 bits, got 1 and 9.25e+308"),
        ({**GOOD, "root_eclasses": []}, 'requires at least one class in "root_eclasses", got none'),
        ({**GOOD, "root_eclasses": "a"}, 'requires a list of strings as "root_eclasses", got "a"'),
        ({**GOOD, "root_eclasses": [0]}, 'requires a string as each of "root_eclasses", got 0'),
        ({**GOOD, "root_eclasses": ["a", "z"]}, 'requires nodes in root class "z", got none'),
        ('{"nodes": {"n": 1, "m": 2, "n": 3}, "root_eclasses": []}', 'each key once at "nodes", got "n" twice'),
        ('{"nodes": {}, "nodes": {}}', 'requires each key once at the top level, got "nodes" twice'),
        ('{"nodes": {"n": {"op": "x", "cost": 1, "cost": 2}}}', 'each key once at node "n", got "cost" twice'),
        (
            {**GOOD, "nodes": {"n": leaf(children=["m"]), "m": leaf(eclass="b", children=["n"])}},
            'requires a finite derivation of root class "a", got a cycle in every one, through 2 classes: "a", "b"',
        ),
    ],
)
def test_bad_files_are_refused_with_one_sentence(
    content: Document | str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(tmp_path, content)
    assert run("extract", path, "-o", tmp_path / "choice.json") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"glenside: error: {path}")
    assert message in err
    assert err.count("\n") == 1
    assert len(err) < 400
    assert not (tmp_path / "choice.json").exists()


def test_paths_and_flags_are_refused_with_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file(tmp_path, GOOD)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for arguments, message in (
        ([tmp_path / "none.json"], "none.json: No such file or directory"),
        ([tmp_path], "Is a directory"),
        ([tmp_path / "binary.json"], "it is not UTF-8 text"),
        ([path, "--method", "tree"], "--method must be auto, greedy, dag or exact, got 'tree'"),
        ([path, "--time-limit", "-1"], "--time-limit must be a number of seconds from 0 on, got -1"),
        ([path, "--time-limit", "nan"], "--time-limit must be a number of seconds from 0 on, got nan"),
        ([path, "--json", "-o", "-"], "both write to standard output"),
        ([path, "-o", tmp_path], "it is a folder"),
        ([path, "-o", tmp_path / "no" / "choice.json"], "there is no folder"),
    ):
        assert run("extract", *arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err
        assert err.count("\n") == 1


def test_a_cycle_that_a_root_can_do_without_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {"n": leaf(children=["m"], cost=0), "m": leaf(eclass="b", children=["n"], cost=0), "k": leaf(cost=7)}
    assert run("extract", file(tmp_path, {"nodes": nodes, "root_eclasses": ["a"]}), "--json") == 0
    assert json.loads(capsys.readouterr().out)["dag_cost"] == 7


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("extract", EGRAPHS / "two_products.json", "--method", "greedy") == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines() if "  " in line)
    rows = {name: text.strip() for name, text in lines.items()}
    assert rows["e-graph"] == "13 e-nodes in 9 e-classes"
    assert rows["DAG cost"] == rows["tree cost"] == "0.045959998965263364"
    assert rows["lower bound"] == rows["gap"] == "not known"
    assert rows["proven"] == "no: nothing was searched"
    assert run("extract", EGRAPHS / "two_products.json") == 0
    out = capsys.readouterr().out
    assert "proven       yes" in out
    assert "tree cost    0.067" in out


def test_json_and_the_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = EGRAPHS / "two_products.json", tmp_path / "choice.json"
    for method in METHODS:
        assert run("extract", path, "--method", method, "--json", "-o", out) == 0
        found = json.loads(capsys.readouterr().out)
        choice, doc = json.loads(out.read_text()), json.loads(path.read_text())
        assert found["method"] == method
        assert (found["e_nodes"], found["e_classes"], found["chosen"]) == (13, 9, len(choice))
        assert found["dag_cost"] == float(dag(doc, choice))
        assert found["tree_cost"] == float(tree(doc, choice))
        assert found["proven"] is (found["gap"] == 0)
        assert found["seconds"] >= 0
    assert [p.name for p in tmp_path.iterdir()] == ["choice.json"]
    assert run("extract", path, "-o", "-") == 0
    assert json.loads(capsys.readouterr().out)["sum"] == "add"


def test_costs_too_large_to_count_and_to_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    depth = 1_100
    nodes: Document = {f"n{i}": leaf(eclass=f"c{i}", children=[f"n{i + 1}"] * 2, cost=1e40) for i in range(depth)}
    nodes[f"n{depth}"] = leaf(eclass=f"c{depth}", cost=0.5)
    path = file(tmp_path, {"nodes": nodes, "root_eclasses": ["c0"]})
    assert run("extract", path) == 0
    out = capsys.readouterr().out
    assert "too large to count" in out
    assert "1.100000e+43" in out
    assert run("extract", path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tree_cost"] is None
    assert found["dag_cost"] == 1.1e43


def test_a_time_limit_gives_the_best_answer_with_bound_and_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(tmp_path, written(hard(3000)))
    heuristic = read_gym(path).extract("dag")
    for seconds in (0, 1):
        assert run("extract", path, "--method", "exact", "--time-limit", seconds, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["stopped"] == "time-limit"
        assert not found["proven"]
        assert 0 < found["bound"] < found["dag_cost"] <= read_gym(path).cost(heuristic.cost)
        assert found["gap"] == found["dag_cost"] - found["bound"]
        assert found["seconds"] < seconds + 5
    assert run("extract", path, "--method", "exact", "--time-limit", 0) == 0
    assert "no: the time was up" in capsys.readouterr().out


def test_ctrl_c_writes_the_best_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(problem: Problem, method: str, time_limit: float | None) -> Extraction:
        return replace(extract_dag(problem), proven=False, stopped="interrupted")

    monkeypatch.setattr("glenside.extract.gym.extract", interrupted)
    assert run("extract", file(tmp_path, GOOD), "-o", tmp_path / "choice.json") == 130
    assert "no: interrupted" in capsys.readouterr().out
    assert json.loads((tmp_path / "choice.json").read_text()) == {"a": "n", "b": "m"}


def test_the_solver_starts_from_the_heuristic_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS takes the start, which costs no more than the dag answer, and with no branches ends no worse."""
    monkeypatch.setattr("glenside.extract.branch_and_bound.MAX_CLASSES", 0)
    starts: list[float] = []
    ends: list[float] = []

    class Spy(highspy.Highs):
        def setSolution(self, solution: Any) -> Any:
            status = super().setSolution(solution)
            assert status == highspy.HighsStatus.kOk
            values = solution.col_value
            assert len(values) == self.getNumCol()
            starts.append(sum(c * x for c, x in zip(self.getLp().col_cost_, values, strict=True)))
            return status

        def getInfo(self) -> Any:
            info = super().getInfo()
            ends.append(info.objective_function_value)
            return info

    monkeypatch.setattr("glenside.extract.integer_program.highspy.Highs", Spy)
    p = hard(600)
    heuristic = extract_dag(p)
    answer = extract_exact(p, Limits(branches=0))
    assert starts
    assert 0 < max(starts) <= heuristic.cost[1]
    assert answer.cost <= heuristic.cost
    assert min(ends) <= max(starts)


@pytest.mark.parametrize("most", [10**14, 10**17, 10**22, 10**40])
@pytest.mark.parametrize("ties", [0, 8])
def test_bounds_hold_where_costs_do_not_fit_a_double(most: int, ties: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubles bound such costs within 1e-12; a proof takes a look at the answers that they cannot tell apart."""
    monkeypatch.setattr("glenside.extract.branch_and_bound.MAX_CLASSES", 0)
    monkeypatch.setattr("glenside.extract.reduction._without_hopeless", lambda live, *rest: list(live.nodes))
    monkeypatch.setattr("glenside.extract.integer_program.TIES", ties)
    unproven = 0
    for seed in range(40_000, 40_120):
        p, r = random_problem(seed, most=7), random.Random(seed)
        near = seed % 2 * (most - 1000)  # every other one has costs that differ in their last digits only
        p = Problem(p.classes, p.children, tuple((near + r.randrange(most - near),) for _ in p.costs), p.roots)
        known = list(answers(p))
        if known:
            best = min(vector_sum(p, choice) for choice in known)
            answer = extract_exact(p, start=Extraction(known[-1], vector_sum(p, known[-1])))
            assert answer.bound is not None
            assert answer.bound <= best <= answer.cost
            assert answer.cost[0] - best[0] <= best[0] // 10**9
            assert not answer.proven or answer.cost == best
            assert answer.proven == (answer.stopped == "optimal")
            unproven += not answer.proven
    assert unproven > 10 if ties == 0 else unproven < 3


def test_a_missing_file_is_named_by_the_library_too(tmp_path: Path) -> None:
    with pytest.raises(ExtractionError, match=r"cannot read .*none\.json: No such file"):
        read_gym(tmp_path / "none.json")
