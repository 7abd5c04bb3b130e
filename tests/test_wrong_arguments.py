"""Tests that wrong arguments of public functions are refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import glenside as gl
from glenside.ir.errors import BadInput


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gl.fuzz(minutes="a"), "minutes must be a number above 0, got 'a'"),
        (lambda: gl.fuzz(jobs=None), "jobs must be from 1 to 256, got None"),
        (lambda: gl.fuzz(cases=1.5), "cases must be at least 1, got 1.5"),
        (lambda: gl.save(None, "x.glenside"), "save takes a program and a path, got NoneType as the program"),
        (lambda: gl.load(3), "the path of a file must be a text or a Path, got 3"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(BadInput) as error:
        call()
    assert str(error.value) == message
