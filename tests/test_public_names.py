"""Public names: listed once, loaded when they are used, and short to print."""

from __future__ import annotations

import pytest

import glenside as gl


def test_all_names_are_there_and_documented() -> None:
    assert [*dir(gl)] == sorted([*gl.__all__, "__version__"])
    assert sorted(gl.__all__) == sorted(gl._EXPORTS)
    for name in gl.__all__:
        assert getattr(gl, name).__doc__, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="did you mean optimize"):
        gl.optimise  # noqa: B018


def test_what_is_public_prints_in_a_line() -> None:
    b = gl.Builder("net")
    y = b.relu(b.matmul(b.input("x", (8, 16)), b.constant("w", (16, 4))))
    program = b.finish(y).seeded_constants(0)
    assert repr(program) == "<program net: 1 input, 1 constant, 1 layer -> ()(8 4) float32>"
    assert repr(program.term.operator) == "<operator compute>"
    result = gl.optimize(program, "systolic-array:4x4")
    assert repr(result.target) == "<target systolic-array:4x4>"
    assert repr(result.report).startswith("<report of net on systolic-array:4x4: 1 layers, ")
    assert "\\n" not in repr(result)
