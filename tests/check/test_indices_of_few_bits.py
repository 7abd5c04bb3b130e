"""Tests indices whose dtype cannot represent every position of the axis, such as bytes into a table of 256."""

from __future__ import annotations

import numpy as np
import pytest

import glenside as gl
from glenside.check import check
from glenside.check.indices import from_end
from glenside.check.input_generators import draw_integers
from glenside.ir.program import Program
from glenside.ir.types import Dims, Tensor


@pytest.mark.parametrize(("dtype", "limit"), [("int8", n) for n in (1, 5, 127, 128, 129, 256, 1000)] + [("int64", 7)])
def test_each_place_that_they_reach_is_drawn(dtype: str, limit: int) -> None:
    info = np.iinfo(dtype)
    above = draw_integers(Tensor("i", Dims((20_000,)), dtype), limit, seed=0)
    found = from_end(above, limit, 0)
    assert found.dtype == np.dtype(dtype)
    assert {*above.tolist()} == {*range(min(limit, info.max + 1))}
    assert {*found.tolist()} == {*range(max(-limit, info.min), min(limit, info.max + 1))}


@pytest.mark.parametrize("byte", [-128, -1, 0, 127])
def test_a_number_of_a_table_of_bytes_is_seen(byte: int) -> None:
    def looked_up(name: str) -> Program:
        b = gl.Builder(name)
        return b.finish(b.gather(b.constant(name, (256,), "int8"), b.input("x", (2_000,), "int8")))

    table = np.arange(256).astype(np.int8)
    other = np.where(np.arange(256) == byte % 256, 5, table).astype(np.int8)
    programs = looked_up("right"), looked_up("wrong")
    assert check(*programs, given={"right": table, "wrong": table}).ok
    assert not check(*programs, given={"right": table, "wrong": other}).ok
