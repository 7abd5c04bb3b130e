"""Tests that transformers are mapped completely, and that the check refutes transformers that are almost equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.check import check
from glenside.check.indices import index_limits
from glenside.check.input_generators import declared, draw_residues
from glenside.ir.program import Program
from glenside.ir.text import parse, print_program
from glenside.models import load, network

BERT = {"layers": 1, "hidden": 16, "heads": 2, "sequence": 5, "vocabulary": 11, "intermediate": 24, "positions": 7}
VIT = {"layers": 1, "hidden": 8, "heads": 2, "resolution": 32, "classes": 3, "intermediate": 12}

MAPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert-base", {"layers": 1, "hidden": 16, "heads": 2, "sequence": 5, "vocabulary": 11}),
    "bert of two layers and sequences": ("bert-base", {**BERT, "layers": 2, "batch": 2}),
    "bert with a mask": ("bert-base", {**BERT, "mask": 1, "batch": 2}),
    "bert of one token, word and head": ("bert-base", {**BERT, "sequence": 1, "vocabulary": 1, "heads": 1}),
    "bert of heads of one number": ("bert-base", {**BERT, "hidden": 3, "heads": 3}),
    "vit": ("vit-s-16", VIT),
    "vit of two layers and images": ("vit-s-16", {**VIT, "layers": 2, "batch": 2}),
    "vit of one patch": ("vit-s-16", {**VIT, "resolution": 16}),
}


_QUICK = ("bert with a mask", "vit of one patch")


@pytest.mark.parametrize("case", [pytest.param(c, marks=[] if c in _QUICK else [pytest.mark.slow]) for c in MAPPED])
def test_every_layer_is_mapped_and_exact(case: str) -> None:
    name, values = MAPPED[case]
    program = load(name, **values)
    report = gl.optimize(program, gl.SystolicArray(4, 4), exact_order=True).report
    assert report.ok
    assert {row.name: (row.mapped, row.checked) for row in report.layers} == dict.fromkeys(
        program.layers, (True, "exact")
    )
    products = [row for row in report.layers if row.name.endswith((".scores", ".context"))]
    assert len(products) == 2 * values["layers"]
    assert {row.groups for row in products} == {values["heads"] * values.get("batch", 1)}, "one group for each head"
    other = gl.optimize(program, gl.SystolicArray(4, 4))
    assert other.report.ok
    assert {(row.mapped, row.checked) for row in other.report.layers} == {(True, "exact")}
    assert (other.cost["cycles"] or 0) <= report.cost["cycles"]


@pytest.mark.parametrize(("name", "first", "last"), [("bert-base", [], "pooler"), ("vit-s-16", ["patches"], "head")])
def test_layers_have_readable_names(name: str, first: list[str], last: str) -> None:
    parts = ["query", "key", "value", "scores", "context", "output"]
    encoders = [
        f"encoder.{i}.{part}"
        for i in range(12)
        for part in (*(f"attention.{part}" for part in parts), "intermediate", "output")
    ]
    names = list(load(name).layers)
    assert sorted(names) == sorted([*first, *encoders, last])
    assert names[: len(first)] == first
    assert names[-1] == last


@pytest.mark.parametrize("seed", range(5))
def test_drawn_ids_and_types_are_in_their_embeddings(seed: int) -> None:
    program = load("bert-base", **BERT)
    limits = index_limits(program.term)
    assert limits == {"ids": 11, "types": 2}
    tensors = declared(program.term)
    drawn = {name: draw_residues(tensor, limits.get(name), seed=seed, p=4194301) for name, tensor in tensors.items()}
    assert np.isin(drawn["ids"], range(11)).all()
    assert np.isin(drawn["types"], range(2)).all()


def tiny(name: str) -> Program:
    return load(name, **(BERT if name == "bert-base" else VIT))


def verdict(program: Program, changed: str) -> str:
    """What the check says of a program and a changed copy of its text."""
    return check(program, parse(changed)).result


# Tensors that are read in each other's place.
SWAPPED = {
    "queries are keys": ("bert-base", "encoder.0.attention.query.weight", "encoder.0.attention.key.weight"),
    "queries are values": ("bert-base", "encoder.0.attention.query.bias", "encoder.0.attention.value.bias"),
    "norms change places": ("bert-base", "encoder.0.attention.norm.gamma", "encoder.0.norm.gamma"),
    "a norm is added for a factor": ("bert-base", "embeddings.norm.gamma", "embeddings.norm.beta"),
    "ids are types": ("bert-base", "ids", "types"),
    "keys are values": ("vit-s-16", "encoder.0.attention.key.weight", "encoder.0.attention.value.weight"),
    "the last norm is another": ("vit-s-16", "norm.beta", "encoder.0.norm.beta"),
}


@pytest.mark.parametrize("case", SWAPPED)
def test_tensors_in_each_others_place_are_refuted(case: str) -> None:
    name, one, other = SWAPPED[case]
    program = tiny(name)
    text = print_program(program)
    read, another, between = f"(access-tensor {one})", f"(access-tensor {other})", "(access-tensor)"
    assert read in text
    assert another in text
    assert verdict(program, text) == "exact"
    swapped = text.replace(read, between).replace(another, read).replace(between, another)
    assert verdict(program, swapped).startswith("differs")


# Pieces of a program's text that are written over.
REPLACED = {
    "another eps of bert": ("bert-base", " 1e-12 ", " 1e-6 "),
    "another eps of vit": ("vit-s-16", " 1e-6 ", " 1e-12 "),
    "tanh in place of erf": ("bert-base", "compute erf", "compute tanh"),
    "no activation of the pooler": ("bert-base", "compute tanh", "compute relu"),
}


@pytest.mark.parametrize("case", REPLACED)
def test_other_numbers_and_activations_are_refuted(case: str) -> None:
    name, old, new = REPLACED[case]
    program = tiny(name)
    text = print_program(program)
    assert old in text
    assert verdict(program, text.replace(old, new)).startswith("differs in ")


@pytest.mark.parametrize("name", ["bert-base", "vit-s-16"])
def test_weights_are_made_when_they_are_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    stream = network._stream

    def record(seed: int, constant: str) -> np.random.Generator:
        made.append(constant)
        return stream(seed, constant)

    monkeypatch.setattr(network, "_stream", record)
    program = load(name)
    assert made == []
    assert program.constants["encoder.3.attention.query.bias"].std() > 0
    assert made == ["encoder.3.attention.query.bias"]
