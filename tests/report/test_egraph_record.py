"""Tests the record of an e-graph: origins and costs of e-nodes, and that the page holds it as data."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import run

import glenside as gl
from glenside.egraph.part import part
from glenside.report.egraph_page import egraph_page
from glenside.report.egraph_record import HOLE, PRICED, UNPRICED
from glenside.report.egraph_view import EGraphView

PRODUCT = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"
EVIL = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def result() -> gl.Result:
    program = gl.parse(PRODUCT, shapes={"a": (5, 9), "b": (7, 9)})
    return gl.optimize(program, gl.SystolicArray(4, 2), trace=True)


def test_each_e_node_is_written_in_the_program_or_made_by_a_rule(result: gl.Result) -> None:
    record = result.view.record
    made = record["made"]
    assert {*made["node"], *record["written"]} == {*range(result.egraph.e_nodes)}
    assert max(made["iteration"]) == record["iterations"] <= result.report.iterations
    for rule in record["rules"]:
        assert rule["equation"]
        assert rule["reason"]
    rules = {rule["name"] for rule in record["rules"]}
    tiles = [n for n, node in enumerate(result.egraph.nodes) if node.operator == "systolic-array"]
    makers = {record["rules"][r]["name"] for n, r in zip(made["node"], made["rule"], strict=True) if n in tiles}
    assert tiles
    assert makers
    assert makers <= rules


def test_the_cost_of_a_layer_is_that_of_the_report_and_no_bound_exceeds_a_cost(result: gl.Result) -> None:
    record = result.view.record
    layer = next(c for name, c, _ in record["roots"] if name)
    assert record["costs"][record["classes"]["cost"][layer]].startswith(f"{result.cost['cycles']:,} cycles")
    assert record["priced"] == PRICED
    best, bound = _amounts(record, "cost"), _amounts(record, "bound")
    assert all(low <= high for low, high in zip(bound, best, strict=True))
    chosen = record["nodes"]["chosen"]
    assert chosen == sorted(result.choice.values())


def _amounts(record: dict[str, Any], column: str) -> list[int]:
    """Returns cycles of each class."""
    texts = [record["costs"][i] for i in record["classes"][column]]
    return [int(m[1].replace(",", "")) if (m := re.match(r"([\d,]+) cycles", text)) else 0 for text in texts]


def test_a_pattern_has_a_hole_for_each_child(result: gl.Result) -> None:
    nodes = result.view.record["nodes"]
    patterns = result.view.record["patterns"]
    assert [patterns[p].count(HOLE) for p in nodes["pattern"]] == nodes["arity"]
    assert sum(nodes["arity"]) == len(nodes["children"])


def test_without_a_trace_nothing_is_said_of_rules(result: gl.Result) -> None:
    plain = gl.optimize(result.original, result.target)
    assert plain.view.record["made"] is None
    assert plain.view.record["rules"] == []
    assert plain.report.total == result.report.total


def taps() -> gl.Program:
    b = gl.Builder("taps")
    return b.finish(b.conv(b.input("x", (1, 1, 6)), b.constant("w", (1, 1, 3)), name="conv"))


def test_a_target_that_prices_variants_gives_classes_no_cost() -> None:
    record = gl.optimize(taps(), gl.CPU("1MB"), trace=True).view.record
    assert record["priced"] == UNPRICED
    assert set(record["classes"]["cost"]) == {-1}
    assert record["made"]["rule"]


def test_classes_of_two_parties_cost_what_their_variants_do() -> None:
    """No variant takes less than the bound of its class; of a layer as written it is the cost to the byte."""
    result = gl.optimize(taps(), gl.MPC(outputs=(2,), objectives=["bytes"]), trace=True)
    record, (row,) = result.view.record, result.report.layers
    root = result.answer.roots["conv"]
    cost, bound = (record["costs"][record["classes"][which][root]] for which in ("cost", "bound"))
    least = min(choice.measures["bytes"] or 0 for choice in row.variants.values())
    assert 0 < sent(bound) <= least
    plain = gl.optimize(taps(), gl.MPC(outputs=(), objectives=["bytes"]), trace=True)
    record = plain.view.record
    cost = record["costs"][record["classes"]["cost"][plain.answer.roots["conv"]]]
    assert sent(cost) == plain.report.layers[0].measures["bytes"]


def sent(cost: str) -> int:
    found = re.search(r"([\d,]+) bytes sent", cost)
    assert found is not None, cost
    return int(found[1].replace(",", ""))


def test_the_e_graph_of_a_layer_is_a_part_of_all() -> None:
    b = gl.Builder("two")
    x = b.relu(b.conv(b.input("x", (1, 2, 6)), b.constant("v", (3, 2, 3)), name="first"))
    result = gl.optimize(
        b.finish(b.conv(x, b.constant("w", (5, 3, 2)), name="second")), gl.SystolicArray(4, 2), trace=True
    )
    sizes = []
    for layer, root in result.answer.roots.items():
        if layer:
            view = EGraphView.of(result, layer)
            own = part(result.egraph, root)
            ((start, *_),) = (view.snapshot.program,)
            assert view.snapshot.types[start] == result.egraph.types[root]
            assert len(view.snapshot.classes[start]) == len(result.egraph.classes[root])
            chosen = view.snapshot.terms(view.choice, [start])[start]
            assert chosen == result.egraph.terms(result.choice, [root])[root]
            assert own.classes.keys() >= result.egraph.reachable(root)
            record = view.record
            assert record["result"] == start
            assert {*record["made"]["node"], *record["written"]} == {*range(view.snapshot.e_nodes)}
            sizes.append(view.snapshot.e_nodes)
    assert len(sizes) == 2
    assert max(sizes) < result.egraph.e_nodes
    with pytest.raises(gl.GlensideError, match="no layer frist; did you mean first"):
        EGraphView.of(result, "frist")


def evil() -> gl.Result:
    b = gl.Builder(EVIL)
    program = b.finish(b.conv(b.input("x", (1, 2, 6)), b.constant(EVIL, (3, 2, 3)), name=EVIL))
    return gl.optimize(program, gl.SystolicArray(4, 2), trace=True, verify=False)


def test_no_text_of_a_program_ends_a_script() -> None:
    page = evil().view.page()
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert page.count("<script") == 3
    (record,) = re.findall(r'<script id="record" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert "<" not in record
    assert EVIL in json.loads(record)["title"]


def test_the_policy_names_each_script_and_style_by_its_hash(result: gl.Result) -> None:
    page = egraph_page(result.view.record)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    scripts = re.findall(r'<script (?:id="worker" type="text/plain"|type="module")>(.*?)</script>', page, re.DOTALL)
    sheets = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert len(scripts) == 2
    assert len(sheets) == 1
    for text in [*scripts, *sheets]:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in html.unescape(policy)
    for text in scripts:
        assert not re.search(r"\beval\(|new Function|https?://(?!www\.w3\.org/2000/svg)|<!--", text)


def test_the_command_writes_a_page_and_refuses_an_ending_before_it_searches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "p.glenside"
    program.write_text(PRODUCT)
    shapes = tmp_path / "p.json"
    shapes.write_text('{"a": [5, 9], "b": [7, 9]}')
    asked = ["optimize", program, "--shapes", shapes, "--target", "systolic-array:4x2", "--emit", "egraph", "-o"]
    assert run(*asked, tmp_path / "e.html") == 0
    assert '"made":{' in (tmp_path / "e.html").read_text()
    assert run(*asked, tmp_path / "e.bmp") == 2
    assert "an e-graph is written as .html" in capsys.readouterr().err
    assert run(*asked, tmp_path) == 2
