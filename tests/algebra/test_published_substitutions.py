"""The substitutions that TASO and TENSAT published: each is true at random sizes, under the guard that it needs, and is
found as an equality by normal forms or rules.

`python tests/algebra/test_published_substitutions.py` writes `benchmarks/results/published_substitutions.csv`.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from equal_by_algebra import equality
from published_substitutions import Instance, Substitution, instance, published

from glenside.check import check
from glenside.semantics.interpreter import evaluate

TABLE = Path(__file__).parents[2] / "benchmarks/results/published_substitutions.csv"
NOT_FOUND: dict[str, str] = {}
"""Equations that nothing finds, and why."""
ALL = published()
DISTINCT = list({one.text: one for one in ALL}.values())
SOME = DISTINCT[::8]


def _numbers_differ(one: Instance, seed: int = 0) -> bool:
    """True if both sides differ on small whole numbers, for which sums and products are exact."""
    generator = np.random.default_rng(seed)
    tensors = dict(one.left.tensors) | dict(one.right.tensors)
    values = {name: generator.integers(-4, 5, t.dims).astype(t.dtype) for name, t in tensors.items()}
    left, right = evaluate([one.left.term, one.right.term], values)
    pairs = zip(left, right, strict=True) if isinstance(left, tuple) else [(left, right)]
    return not all(np.allclose(a, b, atol=1e-4) for a, b in pairs)


def test_the_table_has_all_of_them() -> None:
    names = [one.name.partition("-")[0] for one in ALL]
    assert {name: names.count(name) for name in names} == {"taso": 133, "tensat": 6, "property": 43}
    assert len({one.name for one in ALL}) == len(ALL)


@pytest.mark.parametrize("one", SOME, ids=lambda one: one.name)
def test_an_equation_is_true_and_found(one: Substitution) -> None:
    drawn = instance(one, seed=1)
    assert not _numbers_differ(drawn), one.text
    assert bool(equality(drawn.left.term, drawn.right.term)) is (one.name not in NOT_FOUND)


@pytest.mark.parametrize("guard", dict.fromkeys(one.guard for one in ALL if one.guard))
def test_a_guard_is_needed(guard: str) -> None:
    assert_guard_is_needed(next(one for one in ALL if one.guard == guard))


def assert_guard_is_needed(one: Substitution) -> None:
    """Without the guard, both sides differ at some sizes, and nothing finds them equal there."""
    drawn = next(each for each in (instance(one, seed, guarded=False) for seed in range(9)) if _numbers_differ(each))
    assert not equality(drawn.left.term, drawn.right.term), one.text


@pytest.mark.slow
@pytest.mark.parametrize("one", DISTINCT, ids=lambda one: one.name)
def test_an_equation_is_exact_and_found_at_many_sizes(one: Substitution) -> None:
    for seed in range(6):
        drawn = instance(one, seed)
        assert check(drawn.left, drawn.right, layers=False).ok, one.text
        assert bool(equality(drawn.left.term, drawn.right.term)) is (one.name not in NOT_FOUND), one.text
    if one.guard:
        assert_guard_is_needed(one)


def _rows() -> list[dict[str, str]]:
    rows = []
    for one in ALL:
        drawn = instance(one, seed=1)
        found = equality(drawn.left.term, drawn.right.term) or f"not found: {NOT_FOUND[one.name]}"
        rows.append({"number": one.name, "equation": one.text, "missing guard": one.guard, "found by": found})
    return rows


@pytest.mark.slow
def test_the_results_are_current() -> None:
    assert list(csv.DictReader(TABLE.read_text().splitlines())) == _rows()


if __name__ == "__main__":
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["number", "equation", "missing guard", "found by"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(_rows())
