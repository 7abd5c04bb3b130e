"""Compares the cycle formulas with SCALE-Sim, an independent simulator, which counts one less for each matmul.
Optional: see scale_sim.py for the environment it needs.

Optional: see scale_sim.py for the environment it needs.
"""

from __future__ import annotations

import sys

import mapping_oracle as oracle
import pytest
import scale_sim
from scale_sim import Claim, Matmul

import glenside as gl
from glenside.models import load


@pytest.fixture(scope="module")
def simulator() -> None:
    reason = scale_sim.missing()
    if reason:
        pytest.skip(reason)


def weight_stationary(matmul: Matmul, rows: int, columns: int) -> int:
    m, k, n, swapped = matmul
    m, n = (n, m) if swapped else (m, n)
    return int(oracle.weight_stationary(1, m, k, n, rows, columns))


MATMULS: list[Matmul] = [
    (m, k, n, swapped)
    for m, k, n in [(1, 1, 1), (5, 7, 3), (9, 8, 33), (64, 16, 16), (17, 100, 6), (1, 70, 50), (361, 64, 36)]
    for swapped in (False, True)
]


@pytest.mark.slow
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7), (16, 8), (32, 32)])
def test_chosen_matmuls(rows: int, columns: int) -> None:
    claims = [Claim(str(m), m, 3, 3 * weight_stationary(m, rows, columns)) for m in MATMULS]
    assert scale_sim.disagreements(claims, rows, columns) == []


@pytest.mark.slow
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7), (16, 8), (32, 32)])
def test_output_stationary(rows: int, columns: int) -> None:
    plain = [matmul for matmul in MATMULS if not matmul[3]]
    expected = [int(oracle.output_stationary(1, m, k, n, rows, columns)) - 1 for m, k, n, _ in plain]
    assert scale_sim.run(plain, rows, columns, "os") == expected


def best_claims(model: str, rows: int, columns: int, most: int) -> list[Claim]:
    """Returns the best mapping of each layer by the oracle, if one of its matmuls takes at most that many cycles."""
    claims = []
    for name, layer in oracle.layers_of(load(model)).items():
        best = oracle.best(layer, rows, columns)
        count, m, k, n = oracle.products(layer, best)
        if best.cycles <= most * count:
            claims.append(Claim(name, (m, k, n, best.swapped), count, best.cycles))
    return claims


@pytest.mark.slow
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(
    ("rows", "columns", "most", "layers"), [(64, 64, 10**9, 28), (128, 128, 8_000, 25), (24, 40, 30_000, 14)]
)
def test_the_best_mappings_of_mobilenet(rows: int, columns: int, most: int, layers: int) -> None:
    claims = best_claims("mobilenet-v1", rows, columns, most)
    assert len(claims) == layers
    assert scale_sim.disagreements(claims, rows, columns) == []


def chosen(model: str, rows: int, columns: int, most: int) -> list[Claim]:
    """What the pipeline chose for each layer, if one of its matmuls takes at most that many cycles."""
    claims = []
    for row in gl.optimize(load(model), gl.SystolicArray(rows, columns), verify=False).report.layers:
        plan, cycles = row.details["plan"], row.measures["cycles"]
        assert plan is not None
        assert cycles is not None
        g, m, k, n = plan["matrices"].values()
        if cycles <= most * g:
            claims.append(Claim(row.name, (n, k, m, True) if plan["swapped"] else (m, k, n, False), g, cycles))
    return claims


@pytest.mark.slow
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(
    ("model", "rows", "columns", "most", "least"),
    [
        ("mobilenet-v1", 64, 64, 10**9, 28),
        ("mobilenet-v1", 128, 128, 8_000, 25),
        ("mobilenet-v2", 64, 32, 8_000, 35),
        ("vit-s-16", 128, 128, 8_000, 60),
    ],
)
def test_what_the_pipeline_chose(model: str, rows: int, columns: int, most: int, least: int) -> None:
    claims = chosen(model, rows, columns, most)
    assert len(claims) >= least
    assert scale_sim.disagreements(claims, rows, columns) == []


@pytest.mark.slow
@pytest.mark.usefixtures("simulator")
def test_a_wrong_claim_is_found() -> None:
    claims = [Claim("right", (5, 7, 3, False), 2, 60), Claim("wrong", (5, 7, 3, False), 2, 59)]
    assert scale_sim.disagreements(claims, 4, 4) == ["wrong: 59 cycles, SCALE-Sim 2 * 29 for (5, 7, 3, False)"]


def test_without_the_environment_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(scale_sim.VARIABLE, raising=False)
    assert "does not name" in (scale_sim.missing() or "")
    monkeypatch.setenv(scale_sim.VARIABLE, "/nowhere/python")
    assert "does not run" in (scale_sim.missing() or "")
    monkeypatch.setenv(scale_sim.VARIABLE, sys.executable)
    reason = scale_sim.missing()
    assert reason is None or "has no SCALE-Sim" in reason or "not 3.0.0" in reason
