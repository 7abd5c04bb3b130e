"""Tests every operator and compute type on its example: type, value, errors, documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compute_examples import COMPUTES as COMPUTE_EXAMPLES
from example_values import VALUES, Example, integers, leaf
from hypothesis import given
from hypothesis import strategies as st
from operator_examples import OPERATORS as OPERATOR_EXAMPLES

from glenside.ir.dtypes import DTYPES
from glenside.ir.errors import BadInput, TypeMismatch
from glenside.ir.operator import COMPUTES, OPERATORS, Category, Compute, Keeps, Operator, register
from glenside.ir.operators import CATEGORY_RESULT, SHAPE_FORMS, ShapeForm, compute_text, parse_compute
from glenside.ir.rational import exact, represents
from glenside.ir.reference import form, markdown, summary
from glenside.ir.term import Term, build
from glenside.ir.types import AccessType, Dims, Tensor, TupleType
from glenside.semantics.interpreter import evaluate

ALL = [(name, e) for table in (OPERATOR_EXAMPLES, COMPUTE_EXAMPLES) for name, es in table.items() for e in es]


def test_every_record_has_an_example() -> None:
    assert set(OPERATOR_EXAMPLES) == set(OPERATORS)
    assert set(COMPUTE_EXAMPLES) == set(COMPUTES)


@pytest.mark.parametrize(("name", "example"), ALL, ids=[name for name, _ in ALL])
def test_type_and_value(name: str, example: Example) -> None:
    assert str(example.term.type) == example.type
    (value,) = evaluate([example.term], VALUES)
    _same(value, example.term.type, example.value)


def _same(value: Any, type: Any, expected: Any) -> None:
    if isinstance(type, TupleType):
        for one, item, want in zip(value, type.items, expected, strict=True):
            _same(one, item, want)
        return
    assert (value.shape, value.dtype.name) == (tuple(type.dims), type.dtype)
    np.testing.assert_allclose(value, np.asarray(expected).astype(type.dtype), rtol=1e-6, atol=0)
    assert value.shape == np.shape(expected)


def test_values_of_examples_are_not_written_to() -> None:
    """Arrays are views of each other, so an operator that writes into its operand would break other terms."""
    before = {name: array.copy() for name, array in VALUES.items()}
    for _, example in ALL:
        evaluate([example.term], VALUES)
    assert all((array == VALUES[name]).all() for name, array in before.items())


x = leaf(np.zeros((2, 3, 4)), 1)
y = leaf(np.zeros((2, 5, 4)), 1)
square = leaf(np.zeros((2, 3, 4)), 2)
whole = leaf(np.zeros((2, 3)), 1, "int32")
truth = leaf(np.zeros((2, 3)), 1, "bool")
pair = build("construct-tuple", x, y)
zero_items = leaf(np.zeros((2, 0)), 1)

ERRORS: list[tuple[tuple[Any, ...], str]] = [
    (("access-tensor", "x"), "access-tensor requires a declared tensor, got 'x'"),
    (("access-tensor", Tensor("x", Dims((2, -1)))), "access-tensor requires sizes of at least 0, got (2 -1)"),
    (
        ("access-literal", "inf", "float32"),
        "access-literal requires an exact number, such as -2, 1.5, 1e-5 or 1/3, got inf",
    ),
    (
        ("access-literal", "1/0", "float32"),
        "access-literal requires an exact number, such as -2, 1.5, 1e-5 or 1/3, got 1/0",
    ),
    (("access-literal", "256", "uint8"), "access-literal requires a value that uint8 can hold, got 256"),
    (("access-literal", "0.5", "int8"), "access-literal requires a value that int8 can hold, got 0.5"),
    (("access-literal", "1e39", "float32"), "access-literal requires a value that float32 can hold, got 1e39"),
    (("full", (2, -3), "1", "int8"), "full requires sizes of at least 0, got (2 -3)"),
    (("numbers", (2, 2), "1 2 3", "int8"), "numbers requires 4 numbers, got 3"),
    (("numbers", (2, -2), "", "int8"), "numbers requires sizes of at least 0, got (2 -2)"),
    (("numbers", (2,), "1 two", "float32"), "numbers requires exact numbers, such as 1 0 -1/2, got 1 two"),
    (("numbers", (2,), "1 1/2", "int8"), "numbers requires values that int8 can hold, got 1/2"),
    (("linear-map", x, 3, 1, "1 1"), "linear-map requires 0 <= axis < 3, got 3"),
    (("linear-map", x, 1, 2, "1 1 1"), "linear-map requires 6 numbers, got 3"),
    (("linear-map", x, 1, -1, ""), "linear-map requires rows of at least 0, got (-1)"),
    (("linear-map", truth, 0, 1, "1 1"), "linear-map requires numbers, got (2)(3) bool"),
    (("linear-map", whole, 0, 1, "1 1/2"), "linear-map requires values that int32 can hold, got 1/2"),
    (("truncate", whole), "truncate requires a float dtype (float16, bfloat16, float32, float64), got (2)(3) int32"),
    (("eye", -1, "int8"), "eye requires n >= 0, got -1"),
    (("access", x, 4), "access requires 0 <= split <= 3, got 4"),
    (("access", x, -1), "access requires 0 <= split <= 3, got -1"),
    (("access", pair, 0), f"access requires a to be an access pattern, got {pair.type}"),
    (("access-transpose", x, (0, 1)), "access-transpose requires an order of 3 axes, got (0 1)"),
    (("access-transpose", x, (0, 1, 1)), "access-transpose requires an order of 3 axes, got (0 1 1)"),
    (("access-transpose", x, (0, 1, -1)), "access-transpose requires an order of 3 axes, got (0 1 -1)"),
    (
        ("access-reshape", x, ((4,), (6,))),
        "access-reshape requires a shape of 2 and an item of 12 elements, got (4)(6)",
    ),
    (("access-reshape", x, ((-1, -2), (12,))), "access-reshape requires sizes of at least 0, got (-1 -2 12)"),
    (
        ("access-shift-right", build("access", x, 0)),
        "access-shift-right requires a shape of at least one axis, got ()(2 3 4) float32",
    ),
    (("access-flip", x, 3), "access-flip requires 0 <= axis < 3, got 3"),
    (("access-insert-axis", x, 4), "access-insert-axis requires 0 <= axis <= 3, got 4"),
    (("access-squeeze", x, 1), "access-squeeze requires axis 1 to have size 1, got (2)(3 4) float32"),
    (("access-squeeze", x, -1), "access-squeeze requires 0 <= axis < 3, got -1"),
    (
        ("access-broadcast", x, ((2,), (6, 4))),
        "access-broadcast requires a shape of 1 and an item of 2 axes, each as in (2)(3 4) float32 unless that is 1, "
        "got (2)(6 4)",
    ),
    (
        ("access-broadcast", x, ((2, 3), (4,))),
        "access-broadcast requires a shape of 1 and an item of 2 axes, each as in (2)(3 4) float32 unless that is 1, "
        "got (2 3)(4)",
    ),
    (("access-slice", x, 1, 2, 4), "access-slice requires 0 <= lo <= hi <= 3 on axis 1, got lo 2 and hi 4"),
    (("access-slice", x, 1, 2, 1), "access-slice requires 0 <= lo <= hi <= 3 on axis 1, got lo 2 and hi 1"),
    (
        ("access-concatenate", x, y, 2),
        "access-concatenate requires operands that differ on axis 2 at most, got (2)(3 4) float32 and (2)(5 4) float32",
    ),
    (("access-pad", x, "mirror", 1, 1, 1), "access-pad requires zero-padding or min-padding, got mirror"),
    (("access-pad", x, "zero-padding", 5, 1, 1), "access-pad requires 0 <= axis < 3, got 5"),
    (
        ("access-pad", x, "zero-padding", 1, 1, -1),
        "access-pad requires before >= 0 and after >= 0, got before 1 and after -1",
    ),
    (("access-dilate", x, 1, -1), "access-dilate requires n >= 0, got -1"),
    (("access-windows", x, (3,), (1,)), "access-windows requires window and strides of 2 axes, got (3) and (1)"),
    (("access-windows", x, (3, 5), (1, 1)), "access-windows requires a window within the item (3 4), got (3 5)"),
    (("access-windows", x, (3, 4), (1, 0)), "access-windows requires strides of at least 1, got (1 0)"),
    (("access-windows", x, (3, -1), (1, 1)), "access-windows requires window sizes of at least 0, got (3 -1)"),
    (
        ("access-overlap-add", square, (9,), (1,)),
        "access-overlap-add requires (6) windows as the last axes of the shape, got (2 3)(4) float32",
    ),
    (
        ("access-overlap-add", square, (3,), (1,)),
        "access-overlap-add requires an output that holds a window (4), got (3)",
    ),
    (("access-product", x, square, 2), "access-product requires 0 <= n <= 1 shared axes, got 2"),
    (
        ("access-product", square, build("access", y, 2), 2),
        "access-product requires the first 2 axes to agree, got (2 3)(4) float32 and (2 5)(4) float32",
    ),
    (("access-product", x, y, 1), "access-product requires items to agree, got (2)(3 4) float32 and (2)(5 4) float32"),
    (
        ("access-product", x, build("cast", x, "int8"), 0),
        "access-product requires dtypes to agree, got (2)(3 4) float32 and (2)(3 4) int8",
    ),
    (("access-gather", x, y, 1), "access-gather requires indices of an integer dtype, got (2)(5 4) float32"),
    (("access-gather", x, whole, 3), "access-gather requires 0 <= axis < 3, got 3"),
    (
        ("access-gather-nd", square, whole, 2),
        "access-gather-nd requires 0 <= shared < 2, got 2",
    ),
    (("access-gather-nd", x, y, 0), "access-gather-nd requires indices of an integer dtype, got (2)(5 4) float32"),
    (
        ("access-gather-nd", x, leaf(0, 0, "int8"), 0),
        "access-gather-nd requires indices of at least one axis, got ()() int8",
    ),
    (
        ("access-gather-nd", x, whole, 1),
        "access-gather-nd requires from 1 to 2 numbers in the last axis of the indices, got (2)(3) int32",
    ),
    (
        ("access-gather-nd", x, leaf(np.zeros((3, 1)), 0, "int8"), 1),
        "access-gather-nd requires the first 1 axes to agree, got (2)(3 4) float32 and ()(3 1) int8",
    ),
    (
        ("access-gather-nd", x, whole, 0),
        "access-gather-nd requires a split among the 0 shared axes, got (2)(3 4) float32",
    ),
    (
        ("access-scatter-nd", build("access", x, 0), whole, whole, 0, "add"),
        "access-scatter-nd requires updates of dims (2), got (2)(3) int32",
    ),
    (
        ("access-scatter-nd", truth, leaf([[[0]], [[1]]], 0, "int8"), leaf([[1], [0]], 0, "bool"), 1, "add"),
        "access-scatter-nd requires numbers, got (2)(3) bool",
    ),
    (
        ("access-scatter-nd", whole, leaf([[[0]], [[1]]], 0, "int8"), leaf([[1], [0]], 0, "int8"), 1, "add"),
        "access-scatter-nd requires dtypes to agree, got (2)(3) int32 and ()(2 1) int8",
    ),
    (
        ("access-scatter-nd", x, whole, whole, 0, "xor"),
        "access-scatter-nd requires replace or add or mul or min or max, got xor",
    ),
    (("iota", -1, "int8"), "iota requires n >= 0, got -1"),
    (("iota", 3, "bool"), "iota requires a dtype of numbers, got bool"),
    (("iota", 129, "int8"), "iota requires a value that int8 can hold, got 128"),
    (("compute", "(argsort up)", x), "argsort requires direction to be ascending or descending, got up"),
    (("tuple-get-item", x, 0), "tuple-get-item requires a tuple, got (2)(3 4) float32"),
    (("tuple-get-item", pair, 2), "tuple-get-item requires 0 <= index < 2, got 2"),
    (("systolic-array", 0, 4, x, y), "systolic-array requires an array of at least 1 x 1, got 0 x 4"),
    (("systolic-array", 5, 4, square, y), "systolic-array requires a with item (5), got (2 3)(4) float32"),
    (("systolic-array", 4, 5, square, y), "systolic-array requires b with item (4 5), got (2)(5 4) float32"),
    (
        ("systolic-array", 4, 4, build("access", leaf(np.zeros((3, 6, 4))), 2), leaf(np.zeros((2, 4, 4)), 1)),
        "systolic-array requires a of shape (G) or (G, M) over b of shape (G), "
        "got (3 6)(4) float32 and (2)(4 4) float32",
    ),
    (
        ("systolic-array-with-blocking", 3, 1, leaf(np.zeros((5, 4)), 1), leaf(np.zeros((4, 6)))),
        "systolic-array-with-blocking requires K to be a multiple of 3, got 4",
    ),
    (
        ("systolic-array-with-blocking", 4, 4, leaf(np.zeros((5, 4)), 1), leaf(np.zeros((4, 6)))),
        "systolic-array-with-blocking requires N to be a multiple of 4, got 6",
    ),
    (
        ("systolic-array-with-blocking", 4, 1, square, leaf(np.zeros((4, 6)))),
        "systolic-array-with-blocking requires a of the form (M)(K) or ()(K), got (2 3)(4) float32",
    ),
    (("opaque", "a\nb", ((), (2,)), "int8"), "opaque requires a key that can be printed on one line, got 'a\\nb'"),
    (("opaque", "a", ((), (-2,)), "int8"), "opaque requires sizes of at least 0, got (-2)"),
    (
        ("opaque", "a", ((), (2,)), "int8", x, pair),
        f"opaque requires operands that are access patterns, got {pair.type}",
    ),
    (("bitcast", x, "int64"), "bitcast requires a dtype of 32 bits, as (2)(3 4) float32 has, got int64"),
    (("bitcast", x, "bytes"), f"bitcast requires a dtype ({', '.join(DTYPES)}), got bytes"),
    (("compute", "swish", x), "compute requires a compute type, got swish"),
    (("compute", "bitwise-or", x), "bitwise-or requires an integer dtype, got (2)(3 4) float32"),
    (("compute", "(mod up)", x), "mod requires rounding to be floor or truncate, got up"),
    (("compute", "pow", truth), "pow requires numbers, got (2)(3) bool"),
    (("compute", "( relu )", x), "compute requires a compute type, got ( relu )"),
    (("compute", "(relu 1)", x), "relu requires the parameters none, got 1"),
    (("compute", "clip", x), "clip requires the parameters lo hi, got none"),
    (("compute", "(clip 0 six)", x), "clip requires hi to be an exact number, got six"),
    (("compute", "(clip 6 0)", x), "clip requires lo <= hi, got lo 6 and hi 0"),
    (("compute", "(clip 0 0.5)", whole), "clip requires a value that int32 can hold, got 0.5"),
    (("compute", "(compare less)", x), "compare requires relation to be lt or le or gt or ge or eq or ne, got less"),
    (("compute", "(compare lt)", x), "compare requires two operands along the first item axis, got (2)(3 4) float32"),
    (("compute", "select", y), "select requires three operands along the first item axis, got (2)(5 4) float32"),
    (
        ("compute", "dot-product", build("access", x, 3)),
        "dot-product requires an item of at least one axis, got (2 3 4)() float32",
    ),
    (
        ("compute", "elementwise-add", zero_items),
        "elementwise-add requires at least one operand along the first item axis, got (2)(0) float32",
    ),
    (("compute", "reduce-max", zero_items), "reduce-max requires an item of at least one element, got (2)(0) float32"),
    (
        ("compute", "reduce-mean", whole),
        "reduce-mean requires a float dtype (float16, bfloat16, float32, float64), got (2)(3) int32",
    ),
    (("compute", "exp", whole), "exp requires a float dtype (float16, bfloat16, float32, float64), got (2)(3) int32"),
    (("compute", "reduce-sum", truth), "reduce-sum requires numbers, got (2)(3) bool"),
    (("compute", "logical-not", whole), "logical-not requires dtype bool, got (2)(3) int32"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message[:60] for _, message in ERRORS])
def test_errors_say_what_is_required_and_what_was_given(call: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeMismatch) as raised:
        build(*call)
    assert str(raised.value) == message


def test_gathering_outside_of_the_axis_is_an_error() -> None:
    term = build("access-gather", leaf([1, 2, 3]), leaf([0, 3], 0, "int64"), 0)
    with pytest.raises(BadInput, match=r"^access-gather requires indices from -3 to 2, got 0 to 3$"):
        evaluate([term], VALUES)


def test_each_number_of_a_place_stays_in_its_axis() -> None:
    """A place outside of one axis is not taken for one of the next row."""
    term = build("access-gather-nd", leaf(np.zeros((2, 3))), leaf([[0, 2], [0, 3]], 0, "int64"), 0)
    with pytest.raises(BadInput, match=r"^access-gather-nd requires indices from -3 to 2, got 2 to 3$"):
        evaluate([term], VALUES)


def test_numbers_are_exact_and_bounded() -> None:
    assert exact("-1.5e-2") == exact("-3/200")
    largest = repr(float(np.finfo("float32").max))  # a little above it, but nothing is nearer
    assert represents(largest, "float32")
    assert not represents("3.4028236e38", "float32")
    assert not represents("1e400", "float64")
    for text in ("", "nan", "1e9999", "--1", "1/0", "0x1", "1_0", "9" * 2000, "\u0663"):
        assert exact(text) is None


def test_category_results_are_the_types_of_computes() -> None:
    """The e-graph types computes by this table alone."""
    for name, example in ((n, e) for n, es in COMPUTE_EXAMPLES.items() for e in es):
        operand = example.term.children[0].access
        result = CATEGORY_RESULT[COMPUTES[name].category](operand)
        assert (result.dims, result.split) == (example.term.access.dims, example.term.access.split)


def test_zero_is_kept_where_records_say_so() -> None:
    """Rules move zero padding through these, and only through these."""
    for name, compute in COMPUTES.items():
        if compute.category is Category.POINTWISE and compute.dtype == "same" and name != "logical-not":
            kind = {"clip": "(clip -1 2)", "leaky-relu": "(leaky-relu 1/7)"}.get(name, name)
            (value,) = evaluate([build("compute", kind, leaf([0.0, 0.0]))], VALUES)
            assert (value == 0).all() or Keeps.ZERO not in compute.keeps
            if Keeps.ZERO not in compute.keeps and name != "clip":  # a clip may: that is up to its bounds
                assert (value != 0).all()


def test_compute_texts_round_trip() -> None:
    for text in ("relu", "(clip 0 6)", "(compare lt)"):
        compute, parameters = parse_compute(text)
        assert compute_text(compute.name, *parameters) == text


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("get-access-shape", (AccessType(Dims((2, 3, 4)), 1, "int8"),), ((2,), (3, 4))),
        ("shape-of", (Tensor("t", Dims((2, 3))),), (2, 3)),
        ("slice-shape", (Dims((2, 3, 4)), 1), (3, 4)),
        ("shape-insert-axis", (Dims((2, 3)), 1), (2, 1, 3)),
        ("shape-remove-axis", (Dims((2, 3)), 0), (3,)),
    ],
)
def test_shape_forms(name: str, arguments: tuple[Any, ...], value: tuple[Any, ...]) -> None:
    assert SHAPE_FORMS[name].evaluate(*arguments) == value


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("slice-shape", (Dims((2, 3)), 3), "slice-shape requires 0 <= count <= 2, got 3"),
        ("shape-insert-axis", (Dims((2, 3)), -1), "shape-insert-axis requires 0 <= axis <= 2, got -1"),
        ("shape-remove-axis", (Dims((2, 3)), 2), "shape-remove-axis requires 0 <= axis < 2, got 2"),
        ("slice-shape", ((Dims((2,)), Dims((3,))), 1), "slice-shape requires a shape, got (2)(3)"),
    ],
)
def test_shape_forms_check(name: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeMismatch) as raised:
        SHAPE_FORMS[name].evaluate(*arguments)
    assert str(raised.value) == message


def test_every_shape_form_is_tested() -> None:
    assert set(SHAPE_FORMS) == {
        "get-access-shape",
        "shape-of",
        "slice-shape",
        "shape-insert-axis",
        "shape-remove-axis",
    }


def test_the_reference_has_every_record() -> None:
    records: dict[str, Operator | Compute | ShapeForm] = {**OPERATORS, **COMPUTES, **SHAPE_FORMS}
    assert [len(summary()), len({name for name, _ in summary()})] == [len(records)] * 2
    page = markdown()
    for record in records.values():
        assert record.doc.strip().endswith((".", "()()", ")"))
        assert "\n" not in record.doc
        assert f"`{form(record)}`".replace("|", "\\|") in page
    assert form(COMPUTES["clip"]) == "(compute (clip lo hi) a)"
    assert form(OPERATORS["access-windows"]) == "(access-windows a (shape w ..) (shape s ..))"


def test_a_name_is_declared_once() -> None:
    again = Compute("relu", Category.POINTWISE, "again", evaluate=lambda _, a: a.array)
    with pytest.raises(ValueError, match="relu is declared twice"):
        register(again)


@given(st.data())
def test_windows_and_overlap_add_are_adjoint(data: st.DataObject) -> None:
    """<windows(x), w> = <x, overlap-add(w)>, exactly, for all sizes: also windows that leave a rest, or overlap."""
    sizes = data.draw(
        st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(1, 3)), min_size=1, max_size=2)
    )
    item = tuple(max(a, b) for a, b, _ in sizes)
    window, strides = tuple(min(a, b) for a, b, _ in sizes), tuple(t for *_, t in sizes)
    a = leaf(integers(2, *item), 1, "int64")
    windows = build("access-windows", a, window, strides)
    w = integers(*windows.access.dims, seed=9)
    back = build("access-overlap-add", leaf(w, windows.access.split, "int64"), item, strides)
    one, other = evaluate([windows, back], VALUES)
    assert (one * w).sum() == (integers(2, *item) * other).sum()


@pytest.mark.parametrize("make", [lambda t: build("access-flatten", t), lambda t: build("access", t, 0)])
def test_terms_of_size_zero_are_legal(make: Callable[[Term], Term]) -> None:
    (value,) = evaluate([make(leaf(np.zeros((3, 0, 2)), 2))], VALUES)
    assert value.size == 0
