"""Tests that modules with declarations are loaded as a whole, whenever Ctrl-C arrives."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from glenside.ir.interrupts import undisturbed
from glenside.ir.packages import load

HALF_LOADED = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
declared = 1
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names = ["glenside_declares_first", "glenside_declares_second"]
    (tmp_path / f"{names[0]}.py").write_text(HALF_LOADED)
    (tmp_path / f"{names[1]}.py").write_text("declared = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in names:  # which are gone again after the test
        monkeypatch.setitem(sys.modules, name, sys)
        del sys.modules[name]
    return names


@pytest.mark.usefixtures("undisturbed_interrupt")
def test_no_module_is_loaded_by_half(modules: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        load(modules)
    assert sys.modules[modules[0]].declared == 1
    assert modules[1] not in sys.modules


@pytest.mark.usefixtures("undisturbed_interrupt")
def test_where_nothing_is_to_be_disturbed_all_are_loaded(modules: list[str]) -> None:
    with undisturbed():
        load(modules)
    assert [sys.modules[name].declared for name in modules] == [1, 2]
