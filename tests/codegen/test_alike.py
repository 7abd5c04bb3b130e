"""Nests that are alike are one function, and what is printed is what it would be if each were printed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import glenside as gl
from glenside.codegen.emit_c import printer
from glenside.codegen.loop_ir.structural_hash import alike
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, Machine

NETWORKS = {
    "mobilenet-v1": {"resolution": 32},
    "bert-base": {"layers": 3, "hidden": 24, "heads": 3, "intermediate": 40, "sequence": 9, "vocabulary": 31},
}


@pytest.mark.parametrize("machine", [MACHINES["avx2"], None], ids=["avx2", "plain"])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_printed_once_is_the_same(name: str, machine: Machine | None, monkeypatch: Any) -> None:
    loops = lower(gl.models.load(name, **NETWORKS[name]).seeded_constants(0), machine)
    found = printer.source(loops)
    places = itertools.count()
    monkeypatch.setattr(printer, "alike", lambda body, _: (next(places), alike(body)[1]))
    assert str(found) == str(printer.source(loops))
    assert len(found.nests) < next(places)


def test_other_dtypes_and_places_are_not_alike() -> None:
    b = gl.Builder("p")
    results = [
        b.relu(b.input("a", (4, 6))),
        b.relu(b.input("b", (4, 6))),
        b.relu(b.input("c", (4, 6), "float64")),
        b.relu(b.input("d", (6, 4))),
        b.add(e := b.input("e", (4, 6)), e),
        b.add(b.input("f", (4, 6)), b.input("g", (4, 6))),
    ]
    loops = [lower(b.finish(result), None) for result in results]
    keys = [alike(one.nests[0].body)[0] for one in loops]
    assert keys[0] == keys[1]
    assert len({*keys}) == 5
