"""Tests parsing and printing: round trips, allowed variants, and every syntax error with its place."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_terms import tensor, terms, values_for

from glenside.ir.dtypes import DTYPES
from glenside.ir.errors import GlensideError, ParseError, TypeMismatch
from glenside.ir.files import load, read_shapes
from glenside.ir.operators.forms import SPELLINGS
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder
from glenside.ir.text import parse, print_program, print_term
from glenside.ir.types import Dims, Tensor
from glenside.semantics.interpreter import evaluate

PROGRAMS = sorted((Path(__file__).parent.parent / "programs").glob("*.glenside"))
SHAPES = {"x": (2, 3), "y": (4, 3), "v": (5,)}


def read(text: str) -> Term:
    return parse(text, shapes=SHAPES).term


def assert_round_trip(program: Program) -> str:
    text = print_program(program)
    again = parse(text)
    assert again.term is program.term
    if all(map(is_product, program.layers.values())):
        assert list(again.layers.items()) == list(program.layers.items())
    assert print_program(again) == text
    return text


@settings(max_examples=300, deadline=None)
@given(terms())
def test_a_printed_program_reads_back_as_the_same_term(term: Term) -> None:
    assert_round_trip(Program(term))


@settings(max_examples=100, deadline=None)
@given(terms(), st.data())
def test_names_of_layers_survive_whatever_their_characters(term: Term, data: st.DataObject) -> None:
    characters = st.characters(exclude_categories=["Cs"])
    products = list(Program(term).layers.values())
    names = data.draw(st.lists(st.text(characters), unique=True, max_size=len(products)))
    assert_round_trip(Program(term, layers=dict(zip(names, products, strict=False))))


@settings(max_examples=60, deadline=None)
@given(terms())
def test_random_terms_evaluate_to_the_dims_of_their_types(term: Term) -> None:
    (value,) = evaluate([term], values_for(term))
    assert value.shape == term.access.dims
    assert value.dtype == term.access.dtype


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='() "\\;\nxlet01-access', max_size=60))
def test_any_text_is_a_program_or_an_error_with_a_place(text: str) -> None:
    raised: GlensideError | None = None
    try:
        parse(text, shapes=SHAPES)
    except GlensideError as error:
        raised = error
    assert raised is None or (raised.place is not None and "\n" not in str(raised))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_sample_programs_read_and_round_trip(path: Path) -> None:
    assert_round_trip(load(path, read_shapes(path.with_suffix(".shapes.json"))))


def run_sample(name: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    path = Path(__file__).parent.parent / "programs" / f"{name}.glenside"
    program = load(path, read_shapes(path.with_suffix(".shapes.json")))
    values = values_for(program.term)
    return evaluate([program.term], values)[0], values


@pytest.mark.parametrize("name", ["matmul", "systolic_array"])
def test_matrix_products_mean_what_numpy_means(name: str) -> None:
    result, values = run_sample(name)
    assert (result == values["t-a"] @ values["t-b"]).all()


def test_convolution_means_what_its_definition_says() -> None:
    result, values = run_sample("conv2d")
    x, w = np.pad(values["activations"], ((0, 0), (0, 0), (1, 1), (1, 1))), values["weights"]
    expected = np.zeros((2, 5, 5, 3))
    for i, j in np.ndindex(5, 3):
        expected[:, :, i, j] = np.einsum("nchw,ochw->no", x[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3], w)
    assert (result == expected).all()


def test_batch_norm_means_what_its_definition_says() -> None:
    result, values = run_sample("batch_norm")
    scale, shift = (values[name][:, np.newaxis, np.newaxis] for name in ("scale", "shift"))
    assert (result == values["x"] * scale + shift).all()


# What may be written


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("(access-cartesian-product (access (access-tensor x) 1) (access (access-tensor y) 1))", "(2 4)(2 3)"),
        ("(access-product (access (access-tensor x) 1) (access (access-tensor y) 1) 0)", "(2 4)(2 3)"),
        ("(access-pair (access (access-tensor x) 1) (access (access-tensor x) 1))", "(2)(2 3)"),
        ("(access-broadcast (access (access-slice (access-tensor x) 0 1 2) 1) (shape 7 3))", "(7)(3)"),
        ("(access-broadcast (access-tensor v) (access-shape (shape) (shape 5)))", "()(5)"),
        ("(access-literal (literal -1.5))", "()()"),
        ("(access-literal (literal 1/3 float64))", "()()"),
        ("(access-reshape (access-tensor x) (access-shape (shape) (slice-shape (shape 9 6) 1)))", "()(6)"),
        ("(access-reshape (access-tensor x) (let ((s (shape 1 6))) (access-shape (shape) s)))", "()(1 6)"),
        ("(access-reshape (access-tensor v) (access-shape (shape) (shape-insert-axis (shape-of v) 1)))", "()(5 1)"),
        ("(access-reshape (access-tensor v) (access-shape (shape) (shape-remove-axis (shape 5 9) 1)))", "()(5)"),
        ("(access-transpose (access-tensor x) (let ((p (list 1 0))) p))", "()(3 2)"),
        ("(full (shape 2 0) 0 int8)", "()(2 0)"),
        ("(compute (clip 0 6) (access-tensor x))", "()(2 3)"),
        ("(compute (clip -1/2 6.5) (access-tensor x)) ; the end", "()(2 3)"),
        ('(let (("a b" (access-tensor "x"))) "a b")', "()(2 3)"),
        ("(let ((relu (access-tensor x))) (compute relu relu))", "()(2 3)"),
        ("(let ((a (access-tensor x)) (a (access a 1))) a)", "(2)(3)"),
        (
            "(let ((a (access-tensor x))) (let ((b (let ((a (access a 1))) a))) (access-pair b (access a 1))))",
            "(2)(2 3)",
        ),
        ("(let () (access-tensor x))", "()(2 3)"),
    ],
)
def test_forms_have_these_types(text: str, same: str) -> None:
    term = read(text)
    assert str(term.type).rsplit(" ", 1)[0] == same
    assert_round_trip(Program(term))


def test_shape_forms_leave_no_trace() -> None:
    a = "(access (access-tensor x) 1)"
    assert read(f"(access-broadcast {a} (get-access-shape {a}))") is read(f"(access-broadcast {a} (shape 2 3))")


def test_each_spelling_of_a_product_is_printed_as_it_is_written() -> None:
    x, y = build("access", tensor(2, 3, 4), 2), build("access", tensor(2, 5, 4), 2)
    assert print_term(build("access-product", x, y, 0)).startswith("(access-cartesian-product")
    z = build("compute", "relu", x)
    assert print_term(build("access-product", x, z, 1)).split()[-1] == "1))"
    assert "(access-pair n0 (compute relu n0))" in print_term(build("access-product", x, z, 2))
    assert print_term(build("access-product", x, y, 1)).startswith("(access-product")
    single = tensor(3)
    assert print_term(build("access-product", single, single, 0)).startswith("(access-cartesian-product")


def test_each_spelling_expands_to_what_it_contracts_from() -> None:
    x = build("access", tensor(2, 3), 1)
    for spelling in SPELLINGS.values():
        arguments = spelling.expand(x, x)
        assert spelling.contract(*arguments) == (x, x)


def test_a_tensor_may_be_called_like_a_keyword_or_anything_at_all() -> None:
    names = ["relu", "zero-padding", "shape", "let", "12", "-1.5", "a b", 'q"\\', "é", "(", ";", "", "\n\x00", "input"]
    leaves = [build("access-tensor", Tensor(name, Dims((3,)), "float32", True)) for name in names]
    text = assert_round_trip(Program(build("construct-tuple", *leaves)))
    assert '(constant "12" (shape 3) float32)' in text
    assert text.isascii() or "é" in text
    assert "\x00" not in text


def test_dtypes_come_from_the_declaration_or_from_beside_the_text() -> None:
    assert parse("(input a (shape 2) int8) (access-tensor a)").term.access.dtype == "int8"
    assert parse("(access-tensor a)", shapes={"a": [2]}, dtypes={"a": "bool"}).term.access.dtype == "bool"
    assert parse("(input a (shape 2)) (access-tensor a)", shapes={"a": [2]}).term.access.dtype == "float32"


def test_undeclared_tensors_are_constants_where_their_values_are_given() -> None:
    program = parse("(access-pair (access-tensor v) (access-tensor w))", shapes={"v": [5], "w": [5]}, constants={"w"})
    assert list(program.inputs) == ["v"]
    assert list(program.constants_declared) == ["w"]


# Layout


def test_layout_of_a_program() -> None:
    source = """
        (constant w (shape 4 3)) (input x (shape 2 3)) (input unused (shape 1))
        (let ((fc (compute dot-product (access-cartesian-product
                    (access (access-tensor x) 1) (access (access-tensor w) 1))))
              (a (compute relu fc)))
          (compute elementwise-add (access-pair a (compute negative a))))"""
    assert print_program(parse(source)) == (
        "(input x (shape 2 3) float32)\n"
        "(constant w (shape 4 3) float32)\n"
        "(input unused (shape 1) float32)\n"
        "(let ((fc\n"
        "        (compute dot-product\n"
        "          (access-cartesian-product\n"
        "            (access (access-tensor x) 1)\n"
        "            (access (access-tensor w) 1))))\n"
        "      (a (compute relu fc)))\n"
        "  (compute elementwise-add (access-pair a (compute negative a))))\n"
    )


@settings(max_examples=80, deadline=None)
@given(terms(), st.data())
def test_names_of_any_node_survive(term: Term, data: st.DataObject) -> None:
    """An optimized program names what became of its layers: such nodes need not be products."""
    names = st.sampled_from(["a", "b c", "n0", "n1", "product-1", "product-2", "product-1-2", "x"])
    nodes = st.sampled_from(list(postorder(term)))
    assert_round_trip(Program(term, names=data.draw(st.dictionaries(names.filter(lambda n: n[0] != "n"), nodes))))
    layers = data.draw(st.dictionaries(names, nodes))
    text = print_program(Program(term, layers=layers))
    assert parse(text).term is term
    if not {"n0", "n1"} & layers.keys():
        assert print_program(parse(text)) == text


def test_generated_names_avoid_those_of_layers() -> None:
    term = read(
        "(let ((n0 (compute dot-product (access-pair (access (access-tensor x) 1) (access (access-tensor x) 1)))))"
        " (access-pair (compute relu n0) (compute relu n0)))"
    )
    program = Program(term, layers={"n0": next(iter(Program(term).layers.values()))})
    assert "(n2 (compute relu n0))" in assert_round_trip(program)


def test_lines_stay_within_about_a_hundred_columns() -> None:
    for path in PROGRAMS:
        program = load(path, read_shapes(path.with_suffix(".shapes.json")))
        assert max(map(len, print_program(program).splitlines())) <= 104


# Depth, width, sharing


def seconds(start: float) -> float:
    return time.perf_counter() - start


def test_terms_of_ten_thousand_operators_read_and_print_in_linear_size() -> None:
    depth = 10_000
    start = time.perf_counter()
    program = parse(f"{'(compute relu ' * depth}(access-tensor x){')' * depth}", shapes=SHAPES)
    text = assert_round_trip(program)
    assert seconds(start) < 20
    assert sum(1 for _ in postorder(program.term)) == depth + 1
    assert len(text) < 60 * depth


def test_lets_nest_ten_thousand_deep() -> None:
    depth = 10_000
    body = "".join(f"(let ((a (compute relu {'a' if i else '(access-tensor x)'}))) " for i in range(depth))
    program = parse(f"{body}a{')' * depth}", shapes=SHAPES)
    assert sum(1 for _ in postorder(program.term)) == depth + 1


def test_sharing_is_printed_once() -> None:
    doubled = "(a (compute elementwise-add (access-pair a a)))" * 200
    text = assert_round_trip(parse(f"(let ((a (access (access-tensor x) 2)) {doubled}) a)", shapes=SHAPES))
    assert len(text) < 200 * 80


def test_wide_terms_read_and_print() -> None:
    parts = [build("access-slice", tensor(5), 0, i % 5, 5) for i in range(5_000)]
    assert_round_trip(Program(build("construct-tuple", *parts)))


def test_ten_million_parentheses_are_one_error_in_little_time_and_memory() -> None:
    text = "(" * 10_000_000
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(ParseError, match=r"^<text>:1:1: unbalanced parentheses: 10000000 not closed$"):
        parse(text)
    assert seconds(start) < 3
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


# Mistakes, with line and column


MISTAKES = {
    "": "1:1: a program requires one term after its declarations, got none",
    " ; only a comment": "1:18: a program requires one term after its declarations, got none",
    "(access-tensor x\n": "1:1: unbalanced parentheses: 1 not closed",
    '(access (access-tensor "(") 0))': "1:31: unbalanced parentheses: one ) too many",
    "(access-tensor x) ; (\n )": "2:2: unbalanced parentheses: one ) too many",
    '(access-tensor\n "x)': "2:2: a string is not closed",
    r'(access-tensor "\q")': r'1:16: a string requires the escapes of JSON, got "\q"',
    r'(access-tensor "\ud800")': r'1:16: a string requires the escapes of JSON, got "\ud800"',
    "(access-tensor x) (access-tensor y)": "1:19: a program requires one term after its declarations, got ( after it",
    "()": "1:2: a parenthesis requires an operator after it, got )",
    "(\n(access-tensor x))": "2:1: a parenthesis requires an operator after it, got (",
    "(access\n  (acess-tensor x) 1)": "2:3: unknown operator acess-tensor; did you mean access-tensor?",
    "(relu (access-tensor x))": "1:1: unknown operator relu; a compute type is written (compute relu ..)",
    "(let () (input z (shape 1)))": "1:9: unknown operator input; declarations come before the term",
    "(access (access-tensor z) 1)": '1:24: no shape for tensor "z": declare it with (input z (shape ..)) or give it '
    'with shapes={"z": ..}',
    "(access-tensor 3)": "1:16: access-tensor requires tensor to be the name of a tensor, got 3 (such a name "
    'is quoted: "3")',
    "(access (access-tensor x))": "1:1: access requires the arguments a split, got 1 of them",
    "(access (access-tensor x) 1 2)": "1:29: access requires the arguments a split, got 2 after them",
    "(access (access-tensor x) one)": "1:27: access requires split to be an integer, got one",
    "(access (access-tensor x) 1.0)": "1:27: access requires split to be an integer, got 1.0",
    "(access 3 1)": "1:9: access requires a to be a term, got 3",
    "(access (shape 2) 0)": "1:9: access requires a to be a term, got the shape (2)",
    "(access (access-tensor x) 9223372036854775808)": "1:27: access requires split to fit into 64 bits, got "
    "9223372036854775808",
    "(access-transpose (access-tensor x) (shape 1 0))": "1:37: access-transpose requires order to be a list, such as "
    "(list 1 0), got the shape (1 0)",
    "(access-windows (access-tensor x) (shape 1 1) (list 1 1))": "1:47: access-windows requires strides to be a shape, "
    "such as (shape 3 3), got the list (1 1)",
    "(access-reshape (access-tensor x) (shape 6))": "1:35: access-reshape requires target to be an access "
    "shape, such as "
    "(access-shape (shape 4) (shape 3 3)), got the shape (6)",
    "(access-pad (access-tensor x) relu 0 1 1)": "1:31: access-pad requires kind to be zero-padding or min-padding, "
    "got relu",
    "(compute rel (access-tensor x))": "1:10: compute requires a compute type, got rel; did you mean relu?",
    "(compute clip (access-tensor x))": "1:10: clip requires the parameters lo hi, written (clip lo hi), got none",
    "(compute (clip 0) (access-tensor x))": "1:10: clip requires the parameters lo hi, got 1 of them",
    "(compute (clip 0 1 2) (access-tensor x))": "1:20: clip requires the parameters lo hi, got 2 after them",
    "(access-literal 1.5)": "1:17: access-literal requires value to be a literal, such as (literal 1.5), got 1.5",
    "(access-literal (literal nan))": "1:26: literal requires value to be an exact number, such as -2, 1.5, "
    "1e-5 or 1/3, "
    "got nan",
    "x": "1:1: unknown name x; a tensor is read by (access-tensor x)",
    "(let ((first (access-tensor x))) frist)": "1:34: unknown name frist; did you mean first?",
    "(let ((a (access-tensor x))) (access (let ((b a)) b) b))": "1:54: access requires split to be an integer, got b",
    "(access-pair (let ((b (access-tensor x))) b) b)": "1:46: unknown name b",
    "(let ((a\n  (access a 0))) a)": "2:11: the let name a is used in its own definition",
    "(let ((a (access b 0))\n (b (access-tensor x))) a)": "1:18: the let name b is used before it is bound at 2:3",
    '(let (("p q" (access-pair c c)) (c "p q")) c)': "1:27: the let name c is used before it is bound at 1:34",
    "(let ((a (let ((b c)) b)) (c (access-tensor x))) a)": "1:19: the let name c is used before it is bound at 1:28",
    "(let ((a (access-tensor x))) a (let ((c a)) c))": "1:32: let requires the arguments bindings body, got ( "
    "after them",
    "(let ((a)) a)": "1:9: let requires a value to be a term, got )",
    "(let a a)": "1:6: let requires bindings to be a list of bindings, such as ((a (access-tensor x))), got a",
    "(let ((1 (access-tensor x))) a)": '1:8: let requires a name to be a name, got 1 (such a name is quoted: "1")',
    "(let ())": "1:8: let requires a body after its bindings, got none",
    "(input a (shape 2))\n(constant a (shape 2)) (access-tensor a)": "2:1: tensor a is declared twice",
    "(input x (shape 2)) (access-tensor x)": "1:1: tensor x is declared with the shape (2), but given with (2 3)",
    "(input a 2) (access-tensor a)": "1:10: input requires shape to be a shape, such as (shape 3 3), got 2",
    "(input a (shape 2) float33) (access-tensor a)": "1:20: input requires dtype to be a dtype "
    f"({', '.join(DTYPES)}), got float33",
    "(input a (shape 2) int8 3) (access-tensor a)": "1:25: input requires the arguments name shape dtype, got "
    "3 after them",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_sentence_with_its_place(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, shapes=SHAPES, file="p")
    assert str(caught.value) == f"p:{MISTAKES[text]}"


MISMATCHES = {
    "(compute relu\n  (access (access-tensor x) 5))": "2:3: access requires 0 <= split <= 2, got 5",
    "(access-pair (access (access-tensor x) 1) (access-tensor x))": "1:1: access-pair requires shapes to agree, got "
    "(2)(3) float32 and ()(2 3) float32",
    "(access-cartesian-product (access-tensor x) (access-tensor v))": "1:1: access-cartesian-product requires items to "
    "agree, got ()(2 3) float32 and ()(5) float32",
    "(access-windows (access-tensor x) (slice-shape (shape 1) 2) (shape 1))": "1:35: slice-shape requires 0 "
    "<= count <= 1, "
    "got 2",
    "(access-pad (access-tensor x) zero-padding 0 0 9223372036854775807)": "1:1: access-pad requires a result of less "
    "than 2^63 elements, got ()(9223372036854775809 3) float32",
    "(input a (shape 3 -1)) (access-tensor a)": "1:1: access-tensor requires sizes of at least 0, got (3 -1)",
    "(input a (shape 4611686018427387904 2)) (access-tensor a)": "1:1: access-tensor requires a result of "
    "less than 2^63 "
    "elements, got ()(4611686018427387904 2) float32",
    "(access-literal (literal 300 int8))": "1:1: access-literal requires a value that int8 can hold, got 300",
}


@pytest.mark.parametrize("text", MISMATCHES)
def test_a_type_error_has_the_place_of_its_operator(text: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        parse(text, shapes=SHAPES, file="p")
    assert str(caught.value) == f"p:{MISMATCHES[text]}"


def test_a_declared_dtype_and_a_given_one_must_agree() -> None:
    with pytest.raises(ParseError, match="declared with the dtype int8, but given with bool"):
        parse("(input a (shape 2) int8) (access-tensor a)", dtypes={"a": "bool"})


def test_columns_count_characters_and_lines_count_all_that_came_before() -> None:
    with pytest.raises(ParseError, match=r'^<text>:3:19: unknown name "é"'):
        parse('; é\n(let (("ü"\n    (compute relu é))) "ü")')
