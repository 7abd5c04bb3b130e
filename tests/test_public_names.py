"""Tests public names: listed once, loaded on use, short to print."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

import glenside as gl
from glenside.npu.machine.model import Machine


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
    opened = gl.open_program(lambda n: program, "net", n=(1, 9), m=(2, 8, 2))
    assert repr(opened) == "<program net of open sizes: n from 1 to 9, m from 2 to 8 by 2>"


def test_targets_show_their_options_and_suggest_them() -> None:
    for make, option, wrong in (
        (gl.CPU, "memory", "memroy"),
        (gl.NPU, "bandwidth", "bandwith"),
        (gl.SystolicArray, "dataflow", "dataflw"),
        (gl.MPC, "truncation", "trunction"),
        (gl.ConvolutionUnit, "loads", "laods"),
    ):
        known = inspect.signature(make).parameters
        assert option in known
        assert all(p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in known.values())
        assert all(p.name in (make.__doc__ or "") for p in known.values() if p.name not in ("rows", "columns", "name"))
        with pytest.raises(gl.GlensideError, match=f"has no option {wrong}; did you mean {option}"):
            make(**{wrong: 1})
    with pytest.raises(gl.GlensideError, match=r"SystolicArray takes rows, columns: missing .* 'columns'"):
        gl.SystolicArray(4)  # type: ignore[call-arg]
    of_npu = inspect.signature(gl.NPU).parameters
    assert all(of_npu[f.name].default == f.default for f in fields(Machine) if f.name not in ("rows", "columns"))
