"""Tests secure computation: bytes as SPU counts them, no layer sends more than it must, errors within their bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glenside as gl
from glenside.builder.layout import reshape
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.report.text import report_html
from glenside.semantics.interpreter import evaluate
from glenside.semantics.native import FixedPoint
from glenside.targets import parse_target
from glenside.targets.base import Variant
from glenside.targets.mpc import precision
from glenside.targets.mpc.link import parse_link
from glenside.targets.mpc.precision import Bound, error_bound
from glenside.targets.mpc.target import EVERYWHERE

# For 1 x 32 x 32 x 16 -> 16, 3x3, stride 1, padded by 1, read off the profile of SPU 0.9.5; the last is a model only.
PLAIN, WINOGRAD, WINOGRAD_PREPARED, ONE_TRUNCATION = 1_263_616, 833_536, 819_200, 622_592
OVERLAP_ADD = 8 * (32 * 32 * 16 + 16 * 9 * 16) + 4 * 32 * 32 * 9 * 16
"""Each pixel and each weight once, and every element of a window cut."""
ALONG_ONE_AXIS = 8 * (32 * 32 * 3 * 16 + 3 * 16 * 3 * 16) + 4 * 32 * 32 * 3 * 16
"""Windows along one axis, of which the sums along the other are of three elements."""
ANY = math.inf


def _convolution(
    *dims: int, filters: int, window: tuple[int, ...] = (3, 3), dtype: str = "float32", **how: Any
) -> Program:
    """One layer over x of ()(N C d..)."""
    b = gl.Builder("convolution")
    w = b.constant("w", (filters, dims[1] // how.get("groups", 1), *window), dtype)
    return b.finish(b.conv(b.input("x", dims, dtype), w, name="conv", **how))


def _chosen(program: Program, **how: Any) -> gl.Result:
    """Of fewest bytes, unless it is asked for something else."""
    result = gl.optimize(program, gl.MPC(**{"objectives": ("bytes",), **how}))
    assert result.stopped == "saturated"
    assert result.report.ok
    return result


def _bytes(result: gl.Result) -> dict[str, Any]:
    (row,) = result.report.layers
    return {name: variant.measures["bytes"] for name, variant in row.variants.items()}


@pytest.mark.parametrize(
    ("how", "winograd"),
    [
        ({}, WINOGRAD_PREPARED),
        ({"prepared": False}, WINOGRAD),
        ({"truncation": "late"}, ONE_TRUNCATION),
    ],
    ids=["prepared", "shared", "late"],
)
def test_bytes_are_those_that_spu_sends(how: dict[str, object], winograd: int) -> None:
    sent = _bytes(_chosen(_convolution(1, 16, 32, 32, filters=16, padding=1), **how))
    assert sent["plain"] == PLAIN
    assert sent[EVERYWHERE] == winograd
    assert sent["chosen"] <= 0.66 * PLAIN


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_no_layer_sends_more_than_the_better_of_the_uniform_choices(data: st.DataObject) -> None:
    axes = data.draw(st.integers(1, 2))
    channels, filters = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    window = tuple(data.draw(st.integers(1, 4)) for _ in range(axes))
    dims = [data.draw(st.integers(k, 11)) for k in window]
    how = {"strides": data.draw(st.integers(1, 2)), "padding": data.draw(st.integers(0, 1))}
    program = _convolution(data.draw(st.integers(1, 2)), channels, *dims, filters=filters, window=window, **how)
    late = data.draw(st.booleans())
    sent = _bytes(_chosen(program, prepared=data.draw(st.booleans()), truncation="late" if late else "early"))
    assert sent["chosen"] <= min(sent["plain"], sent[EVERYWHERE])


@pytest.mark.slow
def test_resnet_sends_less_than_either_uniform_choice() -> None:
    program = gl.models.resnet_18(resolution=32, stem="3x3")
    totals = {}
    for truncation in ("early", "late"):
        result = gl.optimize(program, gl.MPC(truncation=truncation, objectives=("bytes",)), verify=False)
        layers = [row for row in result.report.layers if row.name != "fc"]
        assert len(layers) == 20
        totals[truncation] = {
            name: sum(row.variants[name].measures["bytes"] or 0 for row in layers) for name in result.report.totals
        }
    today = min(totals["early"]["plain"], totals["early"][EVERYWHERE])
    assert totals["early"]["chosen"] <= 0.93 * today
    assert totals["late"]["chosen"] <= 0.91 * today


def test_rounds_count_on_a_slow_network() -> None:
    program = _convolution(1, 16, 32, 32, filters=16, padding=1)
    least = {"objectives": ("time",), "max_error": ANY}
    narrow, far = (_chosen(program, link=link, **least) for link in ("1Mbit,1us", "100Mbit,50ms"))
    assert "Winograd" in narrow.report.layers[0].label
    assert far.cost["messages"] == 2
    on_link = 1e6 * ((far.cost["bytes"] or 0) / 12.5e6 + 2 * 0.05)
    assert on_link < (far.cost["time"] or 0) < 2 * on_link  # what a party computes comes to it


def test_bytes_may_be_made_least_on_a_slow_network() -> None:
    program = _convolution(1, 6, 8, 8, filters=6, groups=6, padding=1)
    fewest, soonest = (
        _chosen(program, link="wan", objectives=objectives).cost for objectives in [("bytes",), ("time",)]
    )
    assert fewest["bytes"] == _chosen(program).cost["bytes"] < (soonest["bytes"] or 0)
    assert (soonest["messages"], fewest["messages"]) == (2, 12)
    with pytest.raises(BadInput, match="an objective of semi2k is one of time, bytes, messages, truncations, got"):
        gl.MPC(objectives=("cycles",))


@pytest.mark.parametrize("truncation", ["early", "late"])
def test_which_operand_comes_first_does_not_matter(truncation: str) -> None:
    """Every form of weights before windows is found, as of windows before weights."""
    windows, weights = "(access-windows (access (access-tensor x) 1) (shape 4 3) (shape 4 1))", "(access-tensor w)"
    products = [
        gl.parse(f"(compute dot-product (access-cartesian-product {a} {b}))", shapes={"x": (1, 4, 20), "w": (4, 4, 3)})
        for a, b in ((windows, f"(access {weights} 1)"), (f"(access {weights} 1)", windows))
    ]
    rows = [_chosen(p, truncation=truncation).report.layers[0] for p in products]
    sent = [sorted((c.label.split(" along")[0], *c.measures.values()) for c in row.front) for row in rows]
    assert any(form == "overlap-add" for form, *_ in sent[0])
    assert sent[0] == sent[1]


def test_what_both_know_is_not_sent() -> None:
    program = _convolution(1, 3, 9, 8, filters=4)
    assert gl.optimize(program, gl.MPC(public=["x", "w"])).cost["bytes"] == 0
    one = gl.optimize(program, gl.MPC(public=["w"])).cost
    assert one["bytes"] == 4 * 4 * 7 * 6  # no product of secrets: the truncation of its result alone
    assert one["truncations"] == 4 * 7 * 6


def test_layers_alike_but_for_who_knows_them_are_two() -> None:
    b = gl.Builder("two")
    w = b.constant("w", (4, 6))
    y = b.add(b.linear(b.input("x", (5, 6)), w), b.linear(b.input("z", (5, 6)), w))
    result = gl.optimize(b.finish(y), gl.MPC(public=["x"], prepared=False))
    sent = {row.name: row.measures["bytes"] for row in result.report.layers}
    cut = 4 * 5 * 4
    assert sent == {"linear1": cut, "linear2": 8 * (5 * 6 + 6 * 4) + cut}


def test_truncations_of_a_sum_are_merged() -> None:
    b = gl.Builder("sum")
    x, y = b.input("x", (3, 5)), b.input("y", (3, 5))
    term = b.add(b.linear(x, b.constant("v", (4, 5)), b.constant("bias", (4,))), b.linear(y, b.constant("w", (4, 5))))
    early, late = (_chosen(b.finish(term), truncation=how).cost["truncations"] for how in ("early", "late"))
    assert (early, late) == (24, 12)


def test_late_truncations_stay_behind_what_is_not_linear() -> None:
    b = gl.Builder("relu")
    x = b.relu(b.linear(b.input("x", (3, 5)), b.constant("v", (4, 5))))
    program = b.finish(b.linear(x, b.constant("w", (2, 4))))
    found = _chosen(program, truncation="late")
    assert found.cost["truncations"] == 12 + 6
    inner = [t for t in postorder(found.program.term) if t.operator.name == "compute" and t.attributes[0] == "relu"]
    assert any(t.operator.name == "truncate" for t in postorder(*inner))


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_errors_keep_their_bound(data: st.DataObject) -> None:
    """Run in fixed-point numbers: further from the reals than the bound says nothing is."""
    late = data.draw(st.booleans())
    dims = (1, data.draw(st.integers(1, 5)), data.draw(st.integers(4, 9)), data.draw(st.integers(4, 9)))
    program = _convolution(*dims, filters=data.draw(st.integers(1, 4)), padding=1, dtype="float64")
    target = gl.MPC(truncation="late" if late else "early")
    result = gl.optimize(program, target, verify=False)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = {n: random.uniform(-1, 1, t.dims) for n, t in program.tensors.items()}
    (exact,) = evaluate([program.term], values)
    folded = gl.fold(result.program.with_constants({"w": values["w"]}))
    (rounded,) = evaluate([folded.term], {**folded.constants, "x": values["x"]}, arithmetic=FixedPoint(target.bits))
    worst = float(np.abs(exact - rounded).max()) * 2**target.bits
    assert 0 < worst <= (result.cost["error"] or 0)


def test_a_limit_of_error_leaves_out_what_exceeds_it() -> None:
    program = _convolution(1, 16, 32, 32, filters=16, padding=1)
    forms = []
    for error in (ANY, 0.1, 0.001, 1e-6, None):
        result = _chosen(program, max_error=error)
        forms.append(result.report.layers[0].label)
        assert error is None or forms[-1] == "plain" or (result.cost["error"] or 0) <= error * 2**18
    one = "overlap-add along axis 1"
    assert forms == ["Winograd F(4x4,3x3)", f"{one}, Winograd F(4,3) along axis 2", one, "plain", one]


def test_without_a_limit_no_error_is_above_twice_that_of_plain() -> None:
    plain, near, far, unknown = (
        Variant(name, None, {"bytes": sent, "messages": 1, "truncations": 1, "error": error, "time": 1}, recipe)
        for name, sent, error, recipe in (("a", 9, 5, ""), ("b", 8, 10, "b"), ("c", 7, 11, "c"), ("d", 6, None, "d"))
    )
    variants = [plain, near, far, unknown]
    assert gl.MPC(objectives=("bytes",)).best(variants) is near
    assert gl.MPC(max_error=11 / 2**18, objectives=("bytes",)).best(variants) is far
    assert gl.MPC(max_error=ANY, objectives=("bytes",)).best(variants) is unknown


def test_windows_that_are_added_up_send_each_pixel_once() -> None:
    program = _convolution(1, 16, 32, 32, filters=16, padding=1)
    early = _chosen(program, outputs=()).report.layers[0]
    assert {c.label: c.measures["bytes"] for c in early.front} == {
        "plain": PLAIN,
        "overlap-add along axis 1": ALONG_ONE_AXIS,
        "overlap-add along axis 2": ALONG_ONE_AXIS,
        "overlap-add": OVERLAP_ADD,
    }
    late = _chosen(program, truncation="late").report.layers[0]
    assert late.label == "overlap-add"
    assert late.measures["bytes"] == 8 * (32 * 32 * 16 + 16 * 9 * 16) + 4 * 32 * 32 * 16


def _over(b: gl.Builder, what: str) -> Term:
    """Of dims 1 3 8 6, elements that are put together of others."""
    match what:
        case "concatenation":
            return b.concatenate([b.input("x", (1, 2, 8, 6)), b.input("y", (1, 1, 8, 6))], 1)
        case "upsampled":
            return b.upsample(b.input("x", (1, 3, 4, 3)), 2)
        case "cropped":
            return build("access-slice", b.input("x", (1, 3, 11, 6)), 2, 1, 9)
        case "split":
            return reshape(b.concatenate([b.input("x", (24, 3)), b.input("y", (24, 3))], 1), (1, 3, 8, 6))
    return b.input("x", (1, 3, 8, 6))


@pytest.mark.parametrize("what", ["concatenation", "upsampled", "cropped", "split"])
def test_a_layer_has_the_same_forms_whatever_it_goes_over(what: str) -> None:
    """Those over a tensor, and each of them sends as much."""
    fronts = []
    for over in ("tensor", what):
        b = gl.Builder("over")
        program = b.finish(b.conv(_over(b, over), b.constant("w", (5, 3, 3, 2)), name="conv", padding=1))
        (row,) = _chosen(program).report.layers
        fronts.append({choice.label: choice.measures["bytes"] for choice in row.front})
    assert fronts[0] == fronts[1]
    assert "overlap-add" in fronts[0]


def test_what_the_limit_of_errors_costs_is_said() -> None:
    program = _convolution(1, 16, 32, 32, filters=16, padding=1)
    near, any_ = (_chosen(program, max_error=error) for error in (None, ANY))
    saved = (near.cost["bytes"] or 0) - (any_.cost["bytes"] or 0)
    assert saved > 0
    words = f"variants of 1 layer that take {saved:,} bytes less in all; max_error=inf allows them"
    assert f"the limit of errors leaves out {words}" in near.report.remarks
    assert not any("limit of errors" in remark for remark in any_.report.remarks)


def test_a_bound_is_not_given_for_what_is_not_known() -> None:
    x = build("access-tensor", next(iter(_convolution(1, 1, 4, 4, filters=1).inputs.values())))
    """It is infinite, and says what is unknown: no limit takes it, and reports name it."""
    assert error_bound(build("compute", "sqrt", x), 18, lambda _: 1.0) == Bound(math.inf, math.inf, ("sqrt",))
    pair = build("access-product", x, build("compute", "exp", x), 0)
    assert error_bound(build("compute", "maximum", pair), 18, lambda _: 1.0).unknown == ("exp",)
    assert error_bound(build("compute", "elementwise-div", build("access", x, 1)), 18, lambda _: 1.0).unknown == (
        "elementwise-div",
    )


@pytest.mark.parametrize("max_error", [ANY, 1e6])
def test_an_unknown_error_passes_no_limit(max_error: float) -> None:
    """A layer of what has no bound, in a form that is not the plain one."""
    target = gl.MPC(max_error=max_error, objectives=("bytes",))
    program = _convolution(1, 16, 32, 32, filters=16, padding=1)
    term = next(iter(program.layers.values()))
    plain, other, unknown = (
        Variant("plain", term, {"bytes": 9, "messages": 1, "truncations": 1, "error": 1, "time": 1}),
        Variant("known", term, {"bytes": 8, "messages": 1, "truncations": 1, "error": 1, "time": 1}, "a"),
        Variant("unknown", term, {"bytes": 7, "messages": 1, "truncations": 1, "error": None, "time": 1}, "b"),
    )
    best = min((plain, other, unknown), key=target.rank)
    assert best is (unknown if max_error == ANY else other)


def test_what_has_no_bound_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an operator without a rule: the report says so, and its error is null."""
    monkeypatch.delitem(precision._LEAVES, "access-tensor")
    report = _chosen(_convolution(1, 1, 4, 4, filters=1)).report
    assert "no error bound for access-tensor" in report.remarks
    assert "may be wrong by an unknown error" in report.remarks[-1]
    assert report.as_dict()["totals"]["chosen"]["error"] is None
    assert "no error bound for access-tensor" in report_html(report)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mpc:aby3", "a protocol is one of semi2k, got 'aby3'"),
        ("mpc:semi2k,field=48", "a field has 32, 64, 128 bits, got 48"),
        ("mpc:semi2k,parties=3", "priced for 2 parties, got 3"),
        ("mpc:semi2k,truncation=never", "truncation is early or late"),
        ("mpc:semi2k,outputs=1", "the outputs of F(m, r) are from 2 to 16"),
        ("mpc:semi2k,colour=red", "an option of mpc is one of"),
        ("mpc:semi2k,weights=mine", "the option weights of mpc cannot be 'mine'"),
        ("mpc", "is written mpc:semi2k"),
    ],
)
def test_targets_that_are_none(text: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_target(text)
    assert words in str(error.value)


@pytest.mark.parametrize("text", ["", "man", "1Mbit", "0Mbit,1ms", "1Mbit,fast", "-1B,1s"])
def test_networks_that_are_none(text: str) -> None:
    with pytest.raises(BadInput, match="a link is lan, wan, or RATE,LATENCY"):
        parse_link(text)


def test_a_program_without_layers_has_no_bound_of_0() -> None:
    b = gl.Builder("cubes")
    x = b.input("x", (4,))
    remarks = gl.optimize(b.finish(b.multiply(b.multiply(x, x), x)), "mpc:semi2k").report.remarks
    assert remarks == ["fixed point of 18 bits is not exact, and errors between layers have no bound here"]
