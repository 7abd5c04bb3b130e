"""`glenside rules`: the list, the page of one rule, an unknown name."""

from __future__ import annotations

import json

import pytest
from command_line import run

from glenside.algebra.scalar_rules import SCALAR_RULES
from glenside.rewrites import all_rules


def test_a_page_shows_the_equation_its_clauses_the_reason_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules", "slice-of-slice-is-one-slice") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("slice-of-slice-is-one-slice, of the family algebra\n")
    assert "slice(slice(a, x, lo, hi), x, low, high) = slice(a, x, lo + low, lo + high)" in printed
    assert "Sound because both name the same elements" in printed
    before, after = printed.split("Before:")[1].split("After:")
    assert before.count("access-slice") == 2
    assert after.split() == "(access-slice (access (access-tensor x) 1) 1 3 5)".split()
    assert max(map(len, printed.splitlines())) <= 120


def test_a_page_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules", "transposes-compose", "--json") == 0
    page = json.loads(capsys.readouterr().out)
    assert page["family"] == "algebra"
    assert page["clauses"] == ["transpose(transpose(a, p), q) = transpose(a, order) where order = permute(p, q)"]
    assert page["before"].split()[:2] == ["(access-transpose", "(access-transpose"]
    assert page["after"] == "(access-transpose (access-tensor x) (list 0 2 1))"


def test_what_a_rule_makes_for_others_is_not_called_equal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules", "sections-are-made", "--json") == 0
    page = json.loads(capsys.readouterr().out)
    assert page["after"] is not None
    assert page["equal"] is False


def test_an_analysis_adds_no_term(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules", "tiled-classes-are-known") == 0
    assert "builds no term" in capsys.readouterr().out


def test_an_unknown_name_is_refused_with_close_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules", "transpose-compose") == 2
    assert "did you mean transposes-compose?" in capsys.readouterr().err


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules", "--json") == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == {*all_rules(), *SCALAR_RULES}
