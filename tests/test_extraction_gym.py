"""E-graphs of the public format: read, extracted, checked by brute force; every bad file is one sentence."""

from __future__ import annotations

import itertools
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from command_line import run

from extract import children_first, extract
from extract.gym import read_egraph
from glenside.ir.errors import BadInput

# (a + b) * 2 and (a + b) << 1; the shift is cheaper, the sum is shared with another root.
SHARED: dict[str, Any] = {
    "nodes": {
        "a": {"op": "a", "children": [], "eclass": "A", "cost": 1},
        "b": {"op": "b", "children": [], "eclass": "B", "cost": 0.5},
        "two": {"op": "2", "children": [], "eclass": "Two"},
        "one": {"op": "1", "children": [], "eclass": "One", "cost": 0.25},
        "sum": {"op": "+", "children": ["a", "b"], "eclass": "S", "cost": 2},
        "mul": {"op": "*", "children": ["sum", "two"], "eclass": "R", "cost": 4},
        "shl": {"op": "<<", "children": ["sum", "one"], "eclass": "R", "cost": 1},
        "again": {"op": "+", "children": ["mul", "zero"], "eclass": "R", "cost": 0},
        "zero": {"op": "0", "children": [], "eclass": "Z", "cost": 0},
        "neg": {"op": "-", "children": ["sum"], "eclass": "N", "cost": 1, "subsumed": True},
    },
    "root_eclasses": ["R", "N"],
    "class_data": {},
}


@pytest.mark.parametrize("method", ["auto", "greedy", "dag", "exact"])
def test_an_egraph_of_the_public_format(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "e.json", tmp_path / "choice.json"
    path.write_text(json.dumps(SHARED))
    assert run("extract", path, "--method", method, "--json", "-o", out) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["dag_cost"] == 1 + 0.5 + 2 + 0.25 + 1 + 1
    assert printed["tree_cost"] == 2 * 3.5 + 0.25 + 1 + 1
    choice = json.loads(out.read_text())["choice"]
    assert choice == {"A": "a", "B": "b", "One": "one", "S": "sum", "R": "shl", "N": "neg"}
    if method in ("auto", "exact"):
        assert printed["proven"] is True
        assert (printed["lower_bound"], printed["gap"]) == (printed["dag_cost"], 0)
    assert run("extract", path, "--method", method) == 0
    assert "dag cost" in capsys.readouterr().out


def random_egraph(seed: int, most: int = 6) -> dict[str, Any]:
    """Classes with cycles, costs with fractions, subsumed nodes; every class can be derived."""
    r = random.Random(seed)
    count = r.randrange(1, most + 1)
    nodes: dict[str, Any] = {}
    for c in range(count):
        for i in range(r.randrange(1, 4)):
            pool = list(range(c)) if i == 0 else list(range(count))
            kids = [f"n{r.choice(pool)}.0" for _ in range(r.randrange(3))] if pool else []
            nodes[f"n{c}.{i}"] = {"op": "f", "children": kids, "eclass": f"c{c}", "cost": r.randrange(20) / 8}
    return {"nodes": nodes, "root_eclasses": [f"c{r.randrange(count)}" for _ in range(r.randrange(1, 3))]}


def cheapest(content: dict[str, Any]) -> Fraction:
    """Every choice of one node for each class, those without cycles priced by what the roots reach."""
    nodes = content["nodes"]
    classes: dict[str, list[str]] = {}
    for name, node in nodes.items():
        classes.setdefault(node["eclass"], []).append(name)
    found = []
    for picks in itertools.product(*classes.values()):
        pick = dict(zip(classes, picks, strict=True))
        done: dict[str, bool] = {}
        if all(_acyclic(root, pick, nodes, done) for root in content["root_eclasses"]):
            found.append(sum((Fraction(nodes[pick[c]]["cost"]) for c in done), Fraction()))
    return min(found)


def _acyclic(eclass: str, pick: dict[str, str], nodes: dict[str, Any], done: dict[str, bool]) -> bool:
    if eclass in done:
        return done[eclass]
    done[eclass] = False
    done[eclass] = all(_acyclic(nodes[k]["eclass"], pick, nodes, done) for k in nodes[pick[eclass]]["children"])
    return done[eclass]


@pytest.mark.parametrize("seed", range(0, 300, 25))
def test_every_method_against_brute_force(seed: int) -> None:
    for s in range(seed, seed + 25):
        content = random_egraph(s)
        egraph = read_egraph(json.dumps(content))
        costs = {m: extract(egraph.problem, m) for m in ("greedy", "dag", "exact")}
        values = {m: Fraction(a.cost[0]) * egraph.unit for m, a in costs.items()}
        assert values["exact"] == cheapest(content)
        assert values["greedy"] >= values["dag"] >= values["exact"]


def test_answers_are_valid_on_a_thousand_egraphs() -> None:
    for seed in range(1_000, 2_000):
        egraph = read_egraph(json.dumps(random_egraph(seed, most=12)))
        for method in ("greedy", "dag", "auto"):
            answer = extract(egraph.problem, method)
            order = children_first(egraph.problem, dict(answer.choice))  # raises for a cycle or a missing child
            assert set(order) == set(answer.choice)


LEAF = '{"op": "x", "children": [], "eclass": "A"}'
BAD = {
    "not JSON": ("(a b)", ":1:1: it is not JSON"),
    "truncated": ('{"nodes": {', "it is not JSON"),
    "a list": ("[]", "is an object with nodes and root_eclasses, got a list"),
    "no nodes": ('{"root_eclasses": ["A"]}', "requires nodes"),
    "no roots": (f'{{"nodes": {{"a": {LEAF}}}}}', "requires root_eclasses"),
    "empty roots": (f'{{"nodes": {{"a": {LEAF}}}, "root_eclasses": []}}', "at least one class"),
    "nodes a list": ('{"nodes": [], "root_eclasses": ["A"]}', "nodes requires an object, got a list"),
    "a node that is a number": ('{"nodes": {"a": 3}, "root_eclasses": ["A"]}', "the node a requires an object"),
    "no eclass": ('{"nodes": {"a": {"op": "x"}}, "root_eclasses": ["A"]}', "the node a requires an eclass"),
    "dangling child": (
        '{"nodes": {"a": {"op": "x", "children": ["b"], "eclass": "A"}}, "root_eclasses": ["A"]}',
        "the node a has a child 'b'",
    ),
    "unknown root": (f'{{"nodes": {{"a": {LEAF}}}, "root_eclasses": ["B"]}}', "got 'B'"),
    "a cycle": (
        '{"nodes": {"a": {"op": "x", "children": ["a"], "eclass": "A"}}, "root_eclasses": ["A"]}',
        "every node of the classes A needs, in the end, its own class",
    ),
    "twice": (f'{{"nodes": {{"a": {LEAF}, "a": {LEAF}}}, "root_eclasses": ["A"]}}', "the key a stands twice"),
    "negative": (
        '{"nodes": {"a": {"op": "x", "eclass": "A", "cost": -0.5}}, "root_eclasses": ["A"]}',
        "cost of the node a requires at least 0, got -0.5",
    ),
    "no number": (
        '{"nodes": {"a": {"op": "x", "eclass": "A", "cost": NaN}}, "root_eclasses": ["A"]}',
        "NaN is no cost",
    ),
    "endless": (
        '{"nodes": {"a": {"op": "x", "eclass": "A", "cost": 1e999999}}, "root_eclasses": ["A"]}',
        "out of range",
    ),
    "a word": (
        '{"nodes": {"a": {"op": "x", "eclass": "A", "cost": "1"}}, "root_eclasses": ["A"]}',
        "requires a number",
    ),
    "deep": ("[" * 100_000, "nested"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_sentence_and_status_2(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.json"
    text, words = BAD[name]
    path.write_text(text)
    assert run("extract", path, "-o", tmp_path / "out.json") == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (tmp_path / "out.json").exists()


def test_a_missing_file_and_an_unknown_method_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("extract", tmp_path / "none.json") == 2
    assert run("extract", tmp_path) == 2
    (tmp_path / "e.json").write_text(json.dumps(SHARED))
    assert run("extract", tmp_path / "e.json", "--method", "best") == 2
    assert "greedy" in capsys.readouterr().err


def test_costs_are_exact_fractions() -> None:
    content = {"nodes": {f"n{i}": {"op": "x", "eclass": f"c{i}", "cost": 0.1} for i in range(10)}}
    content["root_eclasses"] = [f"c{i}" for i in range(10)]  # type: ignore[assignment]
    egraph = read_egraph(json.dumps(content))
    assert egraph.cost(extract(egraph.problem).cost) == 1.0


def test_bad_input_is_an_error_of_the_library() -> None:
    with pytest.raises(BadInput):
        read_egraph("{}")
