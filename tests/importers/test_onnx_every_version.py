"""Tests every version of every ONNX operator through importer and exporter."""

from __future__ import annotations

from collections import Counter

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_versions import by_hand, cases, verdict, versions  # noqa: E402

FINE = ("ok", "refused", "no model", "no oracle", "no tensors")
BY_HAND = {}
for _case in by_hand():
    BY_HAND.setdefault(_case.op, []).append(_case)


@pytest.mark.parametrize("op", BY_HAND)
@pytest.mark.filterwarnings("ignore")
def test_what_changed_between_versions(op: str) -> None:
    found = {case.name: verdict(case) for case in BY_HAND[op]}
    assert {name: own for name, own in found.items() if own[0] != "ok"} == {}


@pytest.mark.slow
@pytest.mark.parametrize("op", [*versions(), *versions("ai.onnx.ml")])
@pytest.mark.filterwarnings("ignore")
def test_every_case_of_onnx_in_every_version(op: str) -> None:
    found = {f"{case.name} {i}": verdict(case) for i, case in enumerate(cases(op))}
    print(Counter(kind for kind, _ in found.values()))
    assert {name: own for name, own in found.items() if own[0] not in FINE} == {}
