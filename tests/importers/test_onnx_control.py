"""Tests branches, loops and scans: known ones are taken or unrolled, and compute what ONNX's evaluator does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx.parser import parse_model  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from glenside.importers.onnx import backend as onnx_backend  # noqa: E402
from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.importers.onnx.operators import control  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402
from glenside.ir.operand import Array  # noqa: E402
from glenside.ir.program import Program  # noqa: E402
from glenside.semantics.interpreter import evaluate  # noqa: E402


def model(signature: str, body: str, version: int = 17) -> Any:
    """Returns a model from ONNX's text: its inputs and outputs, then its nodes."""
    return parse_model(f'<ir_version: 8, opset_import: ["": {version}]> g {signature} {{ {body} }}')


def read(signature: str, body: str, version: int = 17) -> Program:
    return program_of_model(model(signature, body, version))


def values_of(program: Program, values: dict[str, Array]) -> tuple[Array, ...]:
    (result,) = evaluate([program.term], {**program.constants, **values})
    return result if isinstance(result, tuple) else (result,)


def as_the_reference(given: Any, values: dict[str, Array], program: Program | None = None) -> list[Array]:
    """The program of the file (when it is given) and the backend give what ONNX's evaluator gives."""
    want = ReferenceEvaluator(given).run(None, values)
    for got in (onnx_backend.run_model(given, values), values_of(program, values) if program else want):
        assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    return list(want)


CHOOSE = """
 y = If (c) <
  then_branch = t () => (float[2] p) { p = Mul(x, two) },
  else_branch = e () => (float[%s] q) { q = %s }
 >
"""


@pytest.mark.parametrize("holds", [True, False])
def test_a_branch_that_depends_on_data_is_selected_element_by_element(holds: bool) -> None:
    body = "two = Constant <value_float = 2.0> ()" + CHOOSE % ("2", "Neg(x)")
    given = model("(float[2] x, bool c) => (float[2] y)", body)
    as_the_reference(given, {"x": np.array([1, -3], np.float32), "c": np.array(holds)}, program_of_model(given))


@pytest.mark.parametrize("holds", [True, False])
def test_a_branch_that_is_known_is_taken_whatever_the_other_one_is(holds: bool) -> None:
    body = f"c0 = Constant <value_int = {int(holds)}> () c = Cast <to = 9> (c0) two = Constant <value_float = 2.0> ()"
    given = model("(float[2] x) => (float[n] y)", body + CHOOSE % ("4", "Concat <axis = 0> (x, x)"))
    program = program_of_model(given)
    as_the_reference(given, {"x": np.array([1, -3], np.float32)}, program)
    assert "select" not in str(program)


def test_branches_of_unequal_types_require_a_condition_that_is_known() -> None:
    body = "two = Constant <value_float = 2.0> ()" + CHOOSE % ("4", "Concat <axis = 0> (x, x)")
    with pytest.raises(BadInput, match=r"branches that give equal types, got \(\)\(2\) float32 and \(\)\(4\) float32"):
        read("(float[2] x, bool c) => (float[n] y)", body)


# The state grows, and each pass leaves a part of a scan output.
GROW = """
 m = Constant <value = int64 {%d}> () one = Constant <value_int = 1> () go_on = Cast <to = 9> (one)
 last, parts = Loop (m, go_on, x) <
  body = b (int64 i, bool go, float[n] s) => (bool same, float[k] grown, float[2] part) {
   w = Constant <value = float[2] {1.5, 2.5}> ()
   same = Identity(go) fi = Cast <to = 1> (i) shifted = Add(w, fi)
   grown = Concat <axis = 0> (s, shifted) part = Add(shifted, outer)
  }>
"""


@pytest.mark.parametrize("passes", [0, 1, 4])
def test_a_counted_loop_is_unrolled_and_its_state_may_change_shape(passes: int) -> None:
    signature = "(float[3] x, float[2] outer) => (float[p] last, float[q, 2] parts)"
    given, values = model(signature, GROW % passes), {"x": np.zeros(3, np.float32), "outer": np.ones(2, np.float32)}
    program = program_of_model(given)
    got = values_of(program, values)
    assert [g.shape for g in got] == [(3 + 2 * passes,), (passes, 2)]
    if passes:
        as_the_reference(given, values, program)
    assert len(program.constants_declared) == min(passes, 1), "the passes share their constants"


COLLATZ = """
 one = Constant <value = int64 {1}> () two = Constant <value = int64 {2}> () three = Constant <value = int64 {3}> ()
 zero = Constant <value = int64 {0}> () go = Cast <to = 9> (one)
 end, seen = Loop (, go, n) <
  body = b (int64 i, bool go_on, int64 v) => (bool more, int64 next, int64 shown) {
   shown = Identity(v) half = Div(v, two) odd = Mod(v, two) is_odd = Equal(odd, one)
   up0 = Mul(v, three) up = Add(up0, one) next = Where(is_odd, up, half)
   same = Equal(next, one) more = Not(same)
  }>
"""


def test_a_condition_is_evaluated_at_each_pass() -> None:
    given = model("(int64 n) => (int64 end, int64[k] seen)", COLLATZ)
    end, seen = onnx_backend.run_model(given, [np.array(27, np.int64)])
    assert end == 1
    assert len(seen) == 111
    assert list(seen[:5]) == [27, 82, 41, 124, 62]
    with pytest.raises(BadInput, match=r"condition that is known before each iteration, got one that depends on data"):
        program_of_model(given)


def test_a_loop_without_an_end_and_one_without_a_known_number_of_passes_are_refused() -> None:
    inner = "(int64 i, bool go, float s) => (bool same, float t) { same = Identity(go) t = Neg(s) }"
    body = f"y = Loop (, , x) < body = b {inner} >"
    with pytest.raises(BadInput, match=f"unrolled at most {control.MOST_STEPS} times"):
        read("(float x) => (float y)", body)
    with pytest.raises(BadInput, match="input 0 requires a value that is known at import"):
        read("(float x, int64 m) => (float y)", body.replace("Loop (, ", "Loop (m, "))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("float[n] s)", "float[n] s, float[n] z)", "attribute body requires 3 inputs, got 4"),
        ("(bool same, float[k] grown, float[2] part)", "(bool same, float[k] grown)", "requires 3 outputs, got 2"),
        ("same = Identity(go)", "same = Identity(i)", "a condition requires one element of bool"),
        ("int64 {%d}", "int64[2] {1, 2}", "input 0 requires one number of passes, got 2"),
    ],
)
def test_bodies_that_do_not_fit(old: str, new: str, message: str) -> None:
    signature, body = "(float[3] x, float[2] outer) => (float[p] last, float[q, 2] parts)", GROW.replace(old, new)
    with pytest.raises(BadInput, match=message):
        read(signature, body % 2 if "%d" in body else body)


SCAN = """
 last, a, b = Scan (s, x, y) <num_scan_inputs = 2, %s
  body = b (float[3] state, float[3] u, float[2, 2] v) => (float[3] next, float[3] p, float[2, 2] q) {
   next = Add(state, u) p = Mul(next, u) q = Neg(v)
  }>
"""


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(
    ("attributes", "axes"),
    [
        ("", (0, 0)),
        ("scan_input_axes = [1, -2], scan_input_directions = [1, 0],", (1, 1)),
        ("scan_output_axes = [1, -1], scan_output_directions = [0, 1],", (0, 0)),
        ("scan_input_axes = [0, 2], scan_input_directions = [1, 1], scan_output_axes = [-2, 1],", (0, 2)),
    ],
)
def test_a_scan_runs_along_any_axis_in_any_direction(attributes: str, axes: tuple[int, int], steps: int) -> None:
    x = np.insert(np.array([3]), axes[0], steps)
    y = np.insert(np.array([2, 2]), axes[1], steps)
    shapes = [",".join(map(str, dims)) for dims in (x, y)]
    signature = (
        f"(float[3] s, float[{shapes[0]}] x, float[{shapes[1]}] y) => (float[3] last, float[k,l] a, float[m,n,o] b)"
    )
    given = model(signature, SCAN % attributes)
    random = np.random.default_rng(steps)
    values = {"s": random.normal(size=3), "x": random.normal(size=x), "y": random.normal(size=y)}
    program = program_of_model(given)
    got = values_of(program, {name: value.astype(np.float32) for name, value in values.items()})
    want = _scanned(*values.values(), attributes, axes)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def _scanned(s: Array, x: Array, y: Array, attributes: str, axes: tuple[int, int]) -> list[Array]:
    """ONNX's evaluator has no axes and directions, so this is what their documentation says."""
    given = dict(part.split(" = ") for part in attributes.rstrip(",").split(", scan_") if part)
    read = {name.removeprefix("scan_"): [int(n) for n in text[1:-1].split(",")] for name, text in given.items()}
    u, v = (np.moveaxis(array, axis, 0) for array, axis in zip((x, y), axes, strict=True))
    u, v = (a[::-1] if back else a for a, back in zip((u, v), read.get("input_directions", [0, 0]), strict=True))
    states = s + np.cumsum(u, 0)
    outs = [states * u, -v]
    outs = [a[::-1] if back else a for a, back in zip(outs, read.get("output_directions", [0, 0]), strict=True)]
    laid = [np.moveaxis(a, 0, axis) for a, axis in zip(outs, read.get("output_axes", [0, 0]), strict=True)]
    return [states[-1], *laid]


def test_a_scan_over_nothing_leaves_its_state_and_empty_outputs() -> None:
    program = read(
        "(float[3] s, float[0,3] x, float[0,2,2] y) => (float[3] last, float[k,3] a, float[m,2,2] b)", SCAN % ""
    )
    last, a, b = values_of(
        program, {"s": np.ones(3, np.float32), "x": np.zeros((0, 3), np.float32), "y": np.zeros((0, 2, 2), np.float32)}
    )
    assert (last.tolist(), a.shape, b.shape) == ([1, 1, 1], (0, 3), (0, 2, 2))


@pytest.mark.parametrize("lengths", [None, [3, 1], [0, 2]])
def test_the_first_scan_has_a_batch_whose_sequences_may_end(lengths: list[int] | None) -> None:
    body = """
     last, sums = Scan (%s, s, x) <num_scan_inputs = 1, directions = [%d], body = b
      (float[2] state, float[2] u) => (float[2] next, float[2] shown) { next = Add(state, u) shown = Identity(next) }>
    """
    x, s = np.arange(12, dtype=np.float32).reshape(2, 3, 2), np.ones((2, 2), np.float32)
    for back in (0, 1):
        own = body % ("n" if lengths else "", back)
        if lengths:
            own = f"n = Constant <value = int64[2] {{{lengths[0]}, {lengths[1]}}}> () {own}"
        program = read("(float[2,2] s, float[2,3,2] x) => (float[2,2] last, float[2,3,2] sums)", own, 8)
        last, sums = values_of(program, {"s": s, "x": x})
        for i, length in enumerate(lengths or [3, 3]):
            used = x[i, :length][::-1] if back else x[i, :length]
            want = 1 + np.cumsum(used, 0)
            assert (sums[i, :length] == want).all()
            assert not sums[i, length:].any()
            assert (last[i] == (want[-1] if length else s[i])).all()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("scan_input_axes = [0],", "attribute scan_input_axes requires 2 numbers, got 1"),
        ("scan_input_axes = [0, 3],", "attribute scan_input_axes requires a number from -3 to 2, got 3"),
        ("scan_output_directions = [0, 2],", "attribute scan_output_directions requires numbers of 0 and 1"),
        ("scan_output_axes = [0, 3],", "attribute scan_output_axes requires a number from -3 to 2, got 3"),
        ("scan_input_axes = [1, 0],", r"require one length, got \[3, 4\]"),
    ],
)
def test_attributes_of_a_scan_that_do_not_fit(attributes: str, message: str) -> None:
    signature = "(float[3] s, float[4,3] x, float[4,2,2] y) => (float[3] last, float[k,l] a, float[m,n,o] b)"
    with pytest.raises(BadInput, match=message):
        read(signature, SCAN % attributes)
