"""Tests programs of single layers of a network, plain and chosen: each sends as much as in the network."""

from __future__ import annotations

import numpy as np
import pytest

import glenside as gl
from glenside.execution.spu.layers import own_layers
from glenside.ir.program import Program
from glenside.targets.mpc.semi2k import NOTHING
from glenside.targets.mpc.traffic import program_traffic, total


def _network(groups: int = 1) -> Program:
    """Three layers, of which two are alike, with bias and rectifiers between them."""
    b = gl.Builder("network")
    x = b.input("x", (1, 4, 16))
    for number in range(2):
        w = b.constant(f"w{number}", (4, 4 // groups, 3))
        x = b.relu(b.conv(x, w, b.constant(f"b{number}", (4,)), padding=1, groups=groups, name=f"conv{number}"))
    return b.finish(b.conv(x, b.constant("v", (2, 4, 1)), name="last"))


@pytest.mark.parametrize(
    ("how", "groups"), [("plain", 1), ("plain", 4), pytest.param("chosen", 4, marks=pytest.mark.slow)]
)
def test_layers_are_programs_of_their_own(how: str, groups: int) -> None:
    program, target = _network(groups), gl.MPC(link="wan")
    if how == "chosen":
        program = gl.optimize(program, target, verify=False).program
    ready = target.ready(program, 0)
    layers = own_layers(ready)
    assert [[*layer.names] for layer in layers] == [["conv0", "conv1"], ["last"]]
    sent = NOTHING
    for layer in layers:
        assert len(layer.program.tensors) == 2
        (values,) = gl.evaluate(
            [layer.program.term], {n: np.ones(t.dims, t.dtype) for n, t in layer.program.tensors.items()}
        )
        assert values.size
        of_layer = total(program_traffic(layer.program))
        assert of_layer is not None
        sent += of_layer.times(len(layer.names))
    whole = total(program_traffic(ready))
    assert whole is not None
    relu = 2 * 4 * 16 * (6 * 8 + 8 + 16)  # a sign and a selection for each element
    assert sent.bytes + relu == whole.bytes


def test_what_both_parties_know_stays_known() -> None:
    b = gl.Builder("known")
    y = b.relu(b.input("x", (5, 6)))
    (layer,) = own_layers(b.finish(b.linear(y, b.input("w", (4, 6)))), {"w"})
    assert [tensor.dims for name, tensor in layer.program.tensors.items() if name in layer.public] == [(4, 6)]
    traffic = total(program_traffic(layer.program, layer.public))
    assert traffic is not None
    assert traffic.bytes == 4 * 5 * 4
