"""Tests that terms which equal a standard ONNX operator, however spelled, are exported as one node; near misses are
not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_terms import values_for

import glenside as gl
from glenside.builder import Builder
from glenside.builder.layout import reshape
from glenside.ir.program import Program
from glenside.ir.term import Term, build, rebuild_all

pytest.importorskip("onnx", reason="the package onnx is not installed")
pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")

from onnx_exports import kinds, leaf, same
from onnx_networks import NETWORKS, random_inputs, small

from glenside.exporters.onnx import export_onnx, moved
from glenside.exporters.onnx.standard.record import STANDARD


def program(make: Callable[[Builder], Term]) -> Program:
    b = Builder("test")
    return b.finish(make(b))


def written(made: Program) -> list[str]:
    """Returns the nodes of a program, which onnxruntime computes as the interpreter does."""
    made = made.seeded_constants(0)
    model = same(made, {name: value for name, value in values_for(made.term).items() if name in made.inputs})
    return kinds(model)


def _image(b: Builder, *dims: int) -> Term:
    return b.input("x", dims or (2, 4, 9, 7))


def _weights(b: Builder, *dims: int) -> Term:
    return b.constant("w", dims)


def _conv(b: Builder, **options: Any) -> Term:
    return b.conv(_image(b), _weights(b, 6, 4, 3, 2), b.constant("bias", (6,)), **options)


def _scaled(b: Builder, by: tuple[int, ...]) -> Term:
    return b.add(b.multiply(_conv(b), b.constant("s", by)), b.constant("t", by))


def _channels_last(b: Builder) -> Term:
    """Convolutions of a program that has channels last everywhere, with what is between them."""
    x = b.transpose(_conv(b, strides=2, padding=1), (0, 2, 3, 1))
    x = b.relu(b.add(x, b.constant("each", (6,))))
    x = b.transpose(x, (0, 3, 1, 2))
    return b.conv(x, b.constant("v", (6, 1, 3, 3)), padding=1, groups=6)


def _norm(b: Builder, x: Term, axis: int, wrong: bool = False) -> Term:
    from glenside.builder.pointwise import compute, divide, filled, mean_from, subtract

    centred = subtract(x, mean_from(x, axis))
    other = b.add(centred, filled(x, 1)) if wrong else centred
    variance = mean_from(b.multiply(centred, other), axis)
    return divide(centred, compute("sqrt", b.add(variance, filled(variance, "1e-3"))))


def _normed(b: Builder, axis: int, of: tuple[int, ...], wrong: bool = False) -> Term:
    y = _norm(b, b.input("x", (3, 4, 5)), axis, wrong)
    return b.add(b.constant("beta", of), b.multiply(b.constant("gamma", of), y))


def _gelu(b: Builder, half: str = "0.5") -> Term:
    from glenside.builder.pointwise import compute, filled

    x = b.input("x", (3, 5))
    inner = b.add(filled(x, 1), compute("erf", b.multiply(x, filled(x, "0.70710678118654752"))))
    return b.multiply(inner, b.multiply(filled(x, half), x))


def _hard(b: Builder, shift: int) -> Term:
    from glenside.builder.pointwise import divide, filled

    x = b.input("x", (3, 5))
    return b.multiply(divide(b.relu6(b.add(x, filled(x, shift))), filled(x, 6)), x)


def _repeated(b: gl.Builder, dims: tuple[int, ...], times: tuple[int, ...]) -> Term:
    """Each element so often along each axis, one after the other."""
    apart = tuple(n for pair in zip(dims, (1,) * len(dims), strict=True) for n in pair)
    wide = tuple(n for pair in zip(dims, times, strict=True) for n in pair)
    x = b.broadcast(b.reshape(_image(b, *dims), apart), wide)
    return b.reshape(x, tuple(n * s for n, s in zip(dims, times, strict=True)))


def _repeated(b: Builder, dims: tuple[int, ...], times: tuple[int, ...], whole: bool = False) -> Term:
    """Each element so often along each axis, one after the other; or all of them, one time after the other."""
    pairs = [(s, n) if whole else (n, s) for n, s in zip(dims, times, strict=True)]
    apart = [(1, n) if whole else (n, 1) for n in dims]
    x = b.reshape(_image(b, *dims), tuple(n for pair in apart for n in pair))
    x = b.broadcast(x, tuple(n for pair in pairs for n in pair))
    return b.reshape(x, tuple(n * s for n, s in zip(dims, times, strict=True)))


ONE: dict[str, tuple[str, Callable[[Builder], Term]]] = {
    "a bias": ("Conv", _conv),
    "pads that differ": ("Conv", lambda b: _conv(b, strides=(2, 1), padding=[(1, 0), (2, 1)], dilations=(1, 2))),
    "groups": ("Conv", lambda b: b.conv(_image(b), _weights(b, 6, 2, 3, 3), groups=2)),
    "depthwise": ("Conv", lambda b: b.conv(_image(b), _weights(b, 8, 1, 3, 3), groups=4, padding=1)),
    "one axis": ("Conv", lambda b: b.conv(_image(b, 2, 3, 11), _weights(b, 5, 3, 4), strides=3, padding=2)),
    "three axes": ("Conv", lambda b: b.conv(_image(b, 1, 2, 4, 5, 6), _weights(b, 3, 2, 2, 3, 1), dilations=(2, 1, 1))),
    "windows side by side": ("Conv", lambda b: b.conv(_image(b, 1, 3, 8, 8), _weights(b, 5, 3, 4, 4), strides=4)),
    "one number for all channels": ("Conv", lambda b: _scaled(b, (1, 1, 1))),
    "a channel's scale": ("Conv", lambda b: _scaled(b, (6, 1, 1))),
    "transposed": ("ConvTranspose", lambda b: b.conv_transpose(_image(b), _weights(b, 4, 3, 3, 2), strides=2)),
    "transposed in groups": (
        "ConvTranspose",
        lambda b: b.conv_transpose(
            _image(b), _weights(b, 4, 3, 3, 2), b.constant("bias", (6,)), strides=(3, 2), padding=1, groups=2
        ),
    ),
    "more of a result": (
        "ConvTranspose",
        lambda b: b.conv_transpose(
            _image(b), _weights(b, 4, 2, 2, 3), strides=(2, 3), dilations=2, output_padding=(1, 2), padding=[(1, 0)] * 2
        ),
    ),
    "largest": ("MaxPool", lambda b: b.max_pool(_image(b), 3, strides=2, padding=1)),
    "largest of neighbours": ("MaxPool", lambda b: b.max_pool(_image(b), 2)),
    "means": ("AveragePool", lambda b: b.average_pool(_image(b), 3, strides=2, padding=1)),
    "means of what there is": (
        "AveragePool",
        lambda b: b.average_pool(_image(b), 3, strides=2, padding=1, count_padding=False),
    ),
    "means of channels": ("GlobalAveragePool", lambda b: b.reshape(b.global_average_pool(_image(b)), (2, 4, 1, 1))),
    "a layer's norm": ("LayerNormalization", lambda b: _normed(b, 2, (5,))),
    "a norm of two axes": ("LayerNormalization", lambda b: _normed(b, 1, (4, 5))),
    "gelu": ("Gelu", _gelu),
    "gelu of the builder": ("Gelu", lambda b: b.gelu(b.input("x", (3, 5)))),
    "hard swish": ("HardSwish", lambda b: _hard(b, 3)),
    "hard sigmoid": ("HardSigmoid", lambda b: b.hard_sigmoid(b.input("x", (3, 5)))),
    "a matrix": ("Gemm", lambda b: b.linear(b.input("x", (3, 5)), _weights(b, 4, 5), b.constant("bias", (4,)))),
    "space from channels": (
        "DepthToSpace",
        lambda b: b.reshape(
            b.transpose(b.reshape(_image(b, 2, 12, 3, 5), (2, 3, 2, 2, 3, 5)), (0, 1, 4, 2, 5, 3)), (2, 3, 6, 10)
        ),
    ),
    "pixels repeated": ("Resize", lambda b: b.upsample(_image(b, 2, 3, 4, 5), 3)),
    "pixels repeated along an axis": ("Resize", lambda b: _repeated(b, (2, 3, 1, 5), (1, 1, 1, 2))),
    "channels from space": (
        "SpaceToDepth",
        lambda b: b.reshape(
            b.transpose(b.reshape(_image(b, 2, 3, 6, 10), (2, 3, 3, 2, 5, 2)), (0, 3, 5, 1, 2, 4)), (2, 12, 3, 5)
        ),
    ),
}


@pytest.mark.parametrize("name", ONE)
def test_a_term_is_one_node(name: str) -> None:
    op, make = ONE[name]
    moved = {"Reshape", "Transpose", "Slice"} if op == "ConvTranspose" else {"Reshape"} if op == "Conv" else set()
    found = written(program(make))
    assert [kind for kind in found if kind not in moved] == [op]


def test_every_record_fires_and_says_what_it_is() -> None:
    assert {*STANDARD} <= {op for op, _ in ONE.values()}
    assert all(record.equation and record.of for record in STANDARD.values())


NONE: dict[str, tuple[str, Callable[[Builder], Term]]] = {
    "half": ("Gelu", lambda b: _gelu(b, "0.25")),
    "shift": ("HardSwish", lambda b: _hard(b, 2)),
    "other squares": ("LayerNormalization", lambda b: _normed(b, 2, (5,), wrong=True)),
    "scale of rows": ("LayerNormalization", lambda b: _normed(b, 2, (4, 1))),
    "four axes": ("Conv", lambda b: b.conv(_image(b, 1, 2, 3, 3, 3, 3), _weights(b, 2, 2, 2, 2, 2, 2))),
    "an image after the other": ("Resize", lambda b: _repeated(b, (2, 3, 4, 5), (1, 1, 2, 1), whole=True)),
    "channels repeated": ("Resize", lambda b: _repeated(b, (2, 3, 4, 5), (1, 2, 1, 1))),
    "dilated means": ("AveragePool", lambda b: b.average_pool(_image(b), 2, dilations=2)),
}


@pytest.mark.parametrize("name", NONE)
def test_what_is_nearly_one_is_not(name: str) -> None:
    op, make = NONE[name]
    assert op not in written(program(make))


def _windows(x: Term, filler: str) -> Term:
    padded = build("access-pad", x, filler, 2, 1, 1)
    return build("access-windows", build("access", padded, 2), (3,), (1,))


def test_padding_of_another_number_is_not_that_of_a_pool() -> None:
    x = leaf("x", (2, 3, 8))
    for kind, filler in (("reduce-max", "zero-padding"), ("reduce-mean", "min-padding")):
        found = kinds(export_onnx(Program(build("compute", kind, _windows(x, filler)))))
        assert "Pad" in found


def test_windows_of_what_is_padded_between_windows_are_no_conv() -> None:
    """Zeros around each window are not zeros around the image."""
    x = leaf("x", (1, 9))
    inner = build("access-windows", build("access", x, 1), (4,), (2,))
    outer = build("access-windows", build("access", build("access-pad", inner, "zero-padding", 2, 1, 1), 2), (3,), (1,))
    w = build("access", leaf("w", (2, 3), constant=True), 1)
    term = build("compute", "dot-product", build("access-product", outer, w, 0))
    written(Program(term))


def test_a_conv_that_others_read_keeps_its_scale_apart() -> None:
    def make(b: Builder) -> Term:
        y = b.conv(_image(b), _weights(b, 6, 4, 3, 2))
        return build("construct-tuple", b.multiply(y, b.constant("s", (6, 1, 1))), b.relu(y))

    assert sorted(written(program(make)))[:3] == ["Conv", "Mul", "Relu"]


def test_a_number_for_each_place_is_not_one_for_each_channel() -> None:
    assert "Mul" in written(program(lambda b: _scaled(b, (7, 6))))


def test_transposes_between_convolutions_cancel() -> None:
    found = written(program(_channels_last))
    assert [kind for kind in found if kind not in ("Add", "Relu")] == ["Conv", "Conv"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [gl.ConvolutionUnit("nhwc"), gl.CPU(balance=2.0)],
    ids=lambda t: t.name,
)
@pytest.mark.parametrize("name", ["mobilenet_v2", "unet"])
def test_what_was_optimized_has_the_convolutions_that_came(name: str, target: Any, tmp_path: Path) -> None:
    model, path = small(name), tmp_path / "network.onnx"
    path.write_bytes(model.SerializeToString())
    result = gl.optimize(gl.load(path, dims=NETWORKS[name].dims), target, verify=False)
    found, came = written(result.standard), kinds(model)
    for op in ("Conv", "ConvTranspose", "MaxPool"):
        assert found.count(op) == came.count(op), op
    assert "Pad" not in found
    # A search of layers begins with their scales folded; one of layouts leaves a file as it came where that is as good.
    assert found.count("BatchNormalization") == (0 if isinstance(target, gl.CPU) else came.count("BatchNormalization"))


def test_rows_that_have_weights_of_their_own_are_no_windows() -> None:
    """Heads of a token: parts of a row, one after the other, each times a matrix."""
    text = """(input x (shape 1 1 24)) (input w (shape 4 5 3))
    (compute dot-product (access-product
      (access (access-reshape (access-slice (access-tensor x) 2 0 12) (access-shape (shape) (shape 4 3))) 1)
      (access (access-tensor w) 2) 1))"""
    assert "MatMul" in written(gl.parse(text))


def test_channels_that_lie_in_one_axis_with_rows_are_no_windows() -> None:
    """An array of one axis, (groups, channels, rows), of which the channels of each group are combined."""
    text = """(input x (shape 30)) (constant w (shape 2 4 3))
    (compute dot-product (access-product
      (access (access-transpose (access-reshape (access-tensor x) (access-shape (shape) (shape 2 3 5))) (list 0 2 1)) 2)
      (access (access-tensor w) 2) 1))"""
    assert "Conv" in written(gl.parse(text))


def test_weights_that_are_padded_are_of_no_conv() -> None:
    """As onnxruntime would pad the images instead."""
    pad = "(access-pad (access (access-tensor x) 0) zero-padding 2 0 1)"
    text = f"(input x (shape 1 1 5)) (compute dot-product (access-product {pad} {pad} 0))"
    assert {*written(gl.parse(text))} == {"Pad", "MatMul", "Reshape"}


def test_a_file_has_layouts_that_are_found_only_where_they_save_something() -> None:
    """A file says channels first; a transpose there and back around a pool, which a unit may leave out, is no more."""

    def last(b: Builder) -> Term:
        x = b.transpose(_conv(b), (0, 2, 3, 1))
        return b.conv(b.transpose(b.relu(x), (0, 3, 1, 2)), b.constant("v", (5, 6, 1, 1)))

    result = gl.optimize(program(last).seeded_constants(0), gl.ConvolutionUnit("nhwc"), verify=False)
    assert written(result.standard) == ["Conv", "Relu", "Conv"]
    assert moved(result.standard)[1] <= min(moved(result.program)[1], moved(result.prepared)[1])


def test_transposes_are_one_where_that_is_not_slower() -> None:
    """Windows of an image with channels last, then channels first: rows of each move together, and then one axis."""

    def windows(b: Builder) -> Term:
        cut = reshape(b.input("x", (1, 2, 3, 2, 3, 8)), (2, 3, 2, 3, 8))
        return b.transpose(reshape(b.transpose(cut, (0, 2, 1, 3, 4)), (4, 9, 8)), (0, 2, 1))

    assert written(program(windows)) == ["Reshape", "Transpose", "Reshape", "Transpose"]
    back = written(program(lambda b: b.transpose(windows(b), (0, 2, 1))))
    assert back.count("Transpose") == 1
    assert (
        written(program(lambda b: b.transpose(b.transpose(b.input("x", (2, 3, 4)), (1, 0, 2)), (0, 2, 1)))).count(
            "Transpose"
        )
        == 1
    )


def test_within_a_budget_the_variants_are_written() -> None:
    made = program(_conv)
    assert gl.optimize(made, gl.CPU("100kB"), verify=False).standard is not made
    assert not gl.CPU("100kB").leaves_variants_to_runtimes


def _drawn(seed: int, transposed: bool) -> Program:
    pick = random.Random(seed)
    axes, groups, batch = pick.choice([1, 2, 2, 3]), pick.choice([1, 1, 2, 3]), pick.choice([1, 2])
    given, made = groups * pick.choice([1, 2, 3]), pick.choice([1, 2])
    window, strides = ([pick.randint(1, 4) for _ in range(axes)] for _ in range(2))
    dilations = [pick.randint(1, 2) for _ in range(axes)]
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    sizes = [span + pick.randint(0, 4) for span in spans]
    padding = [(pick.randint(0, min(2, span - 1)), pick.randint(0, min(2, span - 1))) for span in spans]
    b = Builder("drawn")
    x = b.input("x", (batch, given, *sizes))
    options: dict[str, Any] = {"strides": strides, "dilations": dilations, "groups": groups}
    if transposed:
        fitting = [(lo, hi) if n * t > 4 else (0, 0) for (lo, hi), n, t in zip(padding, sizes, strides, strict=True)]
        options["output_padding"] = [pick.randint(0, t - 1) for t in strides]
        weight = b.constant("w", (given, made, *window))
        return b.finish(b.conv_transpose(x, weight, padding=fitting, **options))
    return b.finish(b.conv(x, b.constant("w", (groups * made, given // groups, *window)), padding=padding, **options))


@pytest.mark.parametrize("seed", range(24))
def test_convolutions_of_any_sizes(seed: int) -> None:
    assert not {"Pad", "Concat", "Gather"} & {*written(_drawn(seed, transposed=False))}


@pytest.mark.parametrize("seed", range(24))
def test_transposed_convolutions_of_any_sizes(seed: int) -> None:
    try:
        drawn = _drawn(seed, transposed=True)
    except gl.GlensideError:
        pytest.skip("padding that leaves nothing")
    assert not {"Concat", "Gather"} & {*written(drawn)}


def _recurrent(tmp_path: Path) -> Program:
    path = tmp_path / "network.onnx"
    path.write_bytes(small("lstm_tagger").SerializeToString())
    return gl.load(path, dims=NETWORKS["lstm_tagger"].dims)


def test_what_came_as_one_node_goes_out_as_that(tmp_path: Path) -> None:
    made = _recurrent(tmp_path)
    assert kinds(export_onnx(made)).count("LSTM") == 1
    assert "LSTM" not in kinds(export_onnx(replace(made, origins={})))


def test_a_node_over_other_operands_is_still_one(tmp_path: Path) -> None:
    """Its input is computed otherwise since: doubled, and halved again."""
    made = _recurrent(tmp_path)
    (box,) = {b.children for t, b in made.origins.items() if "/LSTM/" in str(b.attributes[0])}
    x = box[0]

    def doubled(term: Term, children: tuple[Term, ...]) -> Term | None:
        return build("compute", "negative", build("compute", "negative", term)) if term is x else None

    changed = replace(made, term=rebuild_all([made.term], doubled)[0], layers={}, names={})
    inputs = random_inputs(small("lstm_tagger"), NETWORKS["lstm_tagger"].dims, highest=50)
    assert kinds(same(changed, inputs)).count("LSTM") == 1


def test_a_node_that_was_changed_inside_is_spelled_out(tmp_path: Path) -> None:
    made = _recurrent(tmp_path)

    def changed(term: Term, children: tuple[Term, ...]) -> Term | None:
        is_gate = term.operator.name == "compute" and term.attributes[0] == "sigmoid"
        return build("compute", "tanh", *children) if is_gate else None

    other = replace(made, term=rebuild_all([made.term], changed)[0], layers={}, names={})
    inputs = random_inputs(small("lstm_tagger"), NETWORKS["lstm_tagger"].dims, highest=50)
    assert "LSTM" not in kinds(same(other, inputs))
