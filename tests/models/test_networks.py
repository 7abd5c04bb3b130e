"""Tests that each built-in network has the layers and sizes of its paper, and computes what plain numpy computes."""

from __future__ import annotations

import functools
import math
import time
from pathlib import Path
from typing import Any

import network_references as references
import network_tables as tables
import numpy as np
import pytest
from numpy.typing import NDArray

from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import postorder
from glenside.ir.text import parse, print_program
from glenside.models import load, models
from glenside.semantics.interpreter import evaluate

IMAGES = ("mobilenet_v2", "mobilenet_v3_large", "resnet_18", "resnet_50", "efficientnet_lite0")
NETWORKS = (*IMAGES, "bert_base", "vit_s_16", "unet_small")

# Layers, multiplications, parameters without the statistics of batch norms, and the result at full size. The numbers of
# parameters are those that PyTorch's and others' ports publish.
FULL = {
    "mobilenet_v2": (53, 300_774_272, 3_504_872, "()(1 1000) float32"),
    "mobilenet_v3_large": (64, 216_589_760, 5_483_032, "()(1 1000) float32"),
    "resnet_18": (21, 1_814_073_344, 11_689_512, "()(1 1000) float32"),
    "resnet_50": (54, 4_089_184_256, 25_557_032, "()(1 1000) float32"),
    "efficientnet_lite0": (50, 385_187_552, 4_652_008, "()(1 1000) float32"),
    "bert_base": (97, 11_174_215_680, 109_482_240, "()(1 768) float32"),
    "vit_s_16": (98, 4_598_882_304, 22_050_664, "()(1 1000) float32"),
    "unet_small": (18, 12_442_402_816, 2_142_306, "()(1 2 256 256) float32"),
}

TINY: dict[str, dict[str, Any]] = {
    **{name: {"width": 0.125, "resolution": 64, "batch": 2, "classes": 5} for name in IMAGES},
    "bert_base": {"sequence": 9, "batch": 2, "layers": 2, "hidden": 24, "heads": 3, "intermediate": 40}
    | {"vocabulary": 31, "positions": 12},
    "vit_s_16": {"resolution": 24, "batch": 2, "layers": 2, "hidden": 20, "heads": 4, "intermediate": 32, "patch": 8}
    | {"classes": 5},
    "unet_small": {"base": 4, "resolution": 24, "batch": 2, "classes": 3},
}


@functools.cache
def tiny(name: str) -> Program:
    return load(name, seed=3, **TINY[name])


def test_every_network_is_listed_with_a_line() -> None:
    listed = models()
    assert {name.replace("_", "-") for name in NETWORKS} < listed.keys()
    assert listed["bert-base"].startswith("BERT-base: 97 layers")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_whole_network_has_the_layers_of_its_paper(name: str) -> None:
    program, (layers, multiplications, parameters, result) = load(name), FULL[name]
    counts = {layer: dot.children[0].access.size // 2 for layer, dot in program.layers.items()}
    assert counts == getattr(tables, name)()
    assert program.labels.keys() == program.layers.keys()
    assert (len(counts), sum(counts.values())) == (layers, multiplications)
    learned = [t for n, t in program.constants_declared.items() if not n.endswith((".mean", ".var"))]
    assert sum(math.prod(t.dims) for t in learned) == parameters
    assert str(program.term.access) == result
    assert program.name == name.replace("_", "-")


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_built_fast(name: str) -> None:
    """Without the construction of weights: about 0.04 s, the best of three, whatever other load the machine has."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        load(name, batch=3)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.5


def images(program: Program) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(program.inputs["x"].dims).astype(np.float32)


def compare(program: Program, expected: NDArray[np.float64], **inputs: Any) -> None:
    (got,) = evaluate([program.term], {**inputs, **program.constants})
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-7)
    apart = np.abs(expected[0] / expected[1] - 1).max()
    assert apart > 0.01, "activations that fade out would compare equal whatever the layers do"


@pytest.mark.parametrize("name", [*IMAGES, "unet_small"])
def test_it_computes_the_network(name: str) -> None:
    program = tiny(name)
    x = images(program)
    compare(program, getattr(references, name)(x, program.constants), x=x)


@pytest.mark.parametrize("resolution", [33, 50])
@pytest.mark.parametrize("name", IMAGES)
def test_sizes_that_strides_do_not_divide(name: str, resolution: int) -> None:
    program = load(name, **{**TINY[name], "resolution": resolution})
    x = images(program)
    compare(program, getattr(references, name)(x, program.constants), x=x)


@pytest.mark.parametrize("masked", [0, 1])
def test_it_computes_bert(masked: int) -> None:
    program = load("bert_base", seed=3, mask=masked, **TINY["bert_base"])
    assert list(program.inputs) == ["ids", "types", *["mask"] * masked]
    assert [t.dtype for t in program.inputs.values()] == ["int64", "int64", *["float32"] * masked]
    rng = np.random.default_rng(0)
    ids, types = rng.integers(0, 31, (2, 9)), rng.integers(0, 2, (2, 9))
    mask = np.where(np.arange(9) < [[5], [8]], 0, -10000).astype(np.float32) * masked
    given = {"mask": mask} if masked else {}
    expected = references.bert_base(ids, types, mask.astype(np.float64), program.constants, 2, 3)
    compare(program, expected, ids=ids, types=types, **given)


def test_it_computes_vit() -> None:
    program = tiny("vit_s_16")
    x = images(program)
    compare(program, references.vit_s_16(x.astype(np.float64), program.constants, 2, 4, 8), x=x)


EPSILONS = {"mobilenet_v2": "1e-5", "mobilenet_v3_large": "1e-3", "resnet_18": "1e-5", "resnet_50": "1e-5"}
EPSILONS |= {"efficientnet_lite0": "1e-3", "bert_base": "1e-12", "vit_s_16": "1e-6", "unet_small": "1e-5"}


@pytest.mark.parametrize("name", NETWORKS)
def test_its_numbers_are_exact(name: str) -> None:
    values = {term.attributes[1] for term in postorder(tiny(name).term) if term.operator.name == "full"}
    small = {value for value in values if 0 < float(str(value)) < 1}
    assert small == {EPSILONS[name]}


@pytest.mark.parametrize("name", NETWORKS)
def test_activations_keep_their_scale(name: str) -> None:
    program = tiny(name)
    rng = np.random.default_rng(0)
    inputs = {
        tensor.name: rng.integers(0, 2, tensor.dims) if tensor.dtype == "int64" else images(program)
        for tensor in program.inputs.values()
    }
    for layer, values in zip(
        program.layers, evaluate(list(program.layers.values()), {**inputs, **program.constants}), strict=True
    ):
        assert np.isfinite(values).all()
        assert 0.01 < values.std() < 100, layer


@pytest.mark.parametrize("name", NETWORKS)
def test_its_text_reads_as_the_same_program(name: str) -> None:
    program = tiny(name)
    again = parse(print_program(program))
    assert again.term is program.term
    assert dict(again.layers) == dict(program.layers)


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_come_from_an_npz(name: str, tmp_path: Path) -> None:
    path, arrays = tmp_path / "w.npz", dict(load(name, seed=5, **TINY[name]).constants)
    np.savez(path, **arrays)
    program = load(name, weights=path, **TINY[name])
    assert program.constants.keys() == arrays.keys() == program.constants_declared.keys()
    for constant, value in arrays.items():
        np.testing.assert_array_equal(program.constants[constant], value)
    with pytest.raises(BadInput, match="requires an array"):
        load(name, weights=path, **{**TINY[name], "hidden" if "hidden" in TINY[name] else "classes": 12})


def test_narrow_networks_round_to_multiples_of_8() -> None:
    program = load("mobilenet_v2", width=0.35, resolution=32)
    assert program.layers["conv1"].access.dims[-1] == 16
    assert program.layers["block17.project"].access.dims[-1] == 112
    assert program.layers["conv2"].access.dims[-1] == 1280, "as in the paper, narrow networks keep the last layer"
    assert load("mobilenet_v2", width=1.4, resolution=32).layers["conv2"].access.dims[-1] == 1792
    assert load("mobilenet_v3_large", width=0.75, resolution=32).layers["fc1"].access.dims[-1] == 960


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("parameter", ["batch", "seed", "classes", "width", "resolution", "layers", "levels", "base"])
def test_parameters_are_checked_by_every_network_that_has_them(name: str, parameter: str) -> None:
    with pytest.raises(
        BadInput, match=rf"^(model {name.replace('_', '-')}|{name}) requires (parameters among|{parameter})"
    ):
        load(name, **{parameter: -1})


REFUSED = {
    "bert_base requires hidden to be a multiple of 12, got 770": ("bert_base", {"hidden": 770}),
    "bert_base requires sequence to be at most 512, the number of positions, got 513": ("bert_base", {"sequence": 513}),
    "bert_base requires mask to be 0 or 1, got 2": ("bert_base", {"mask": 2}),
    "bert_base requires vocabulary to be an integer of at least 1, got 0": ("bert_base", {"vocabulary": 0}),
    "vit_s_16 requires resolution to be a multiple of 16, got 100": ("vit_s_16", {"resolution": 100}),
    "vit_s_16 requires hidden to be a multiple of 6, got 100": ("vit_s_16", {"hidden": 100}),
    "vit_s_16 requires patch to be an integer of at least 1, got 0": ("vit_s_16", {"patch": 0}),
    "unet_small requires resolution to be a multiple of 8, got 36": ("unet_small", {"resolution": 36}),
    "unet_small requires at most 16 levels, got 99": ("unet_small", {"levels": 99}),
    "resnet_50 requires width to be a number above 0, got inf": ("resnet_50", {"width": math.inf}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_parameters_are_refused_in_a_sentence(message: str) -> None:
    name, values = REFUSED[message]
    with pytest.raises(BadInput) as error:
        load(name, **values)
    assert str(error.value) == message
