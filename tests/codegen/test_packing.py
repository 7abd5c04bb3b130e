"""Tests the memory of compiled programs: mapped separately, with large pages requested."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from glenside.codegen.scheduling.constant_packing import Memory

PAGES, LARGE = Path("/proc/self/smaps"), Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(not (PAGES.exists() and LARGE.exists()), reason="the system does not tell")
def test_large_pages_are_asked_for_and_no_page_is_shared() -> None:
    before = np.ones(1 << 23, np.uint8)  # whose pages are small, and might be given again
    del before
    array = Memory([1 << 22, 100]).array(1 << 22, np.uint8)
    place = array.ctypes.data
    for entry in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", PAGES.read_text(encoding="utf-8")):
        begin, end, access = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", entry).groups()  # type: ignore[union-attr]
        if int(begin, 16) <= place < int(end, 16):
            assert access == "rw-p"
            assert "hg" in re.search(r"VmFlags: (.*)", entry)[1].split()  # type: ignore[index]
            return
    pytest.fail("it is in no page")


def test_arrays_lie_one_after_the_other_at_lines() -> None:
    for sizes in ((1000, 3, 64, 1), (1 << 21, 5)):
        memory = Memory(sizes)
        found = [memory.array(size, np.uint8) for size in sizes]
        for number, array in enumerate(found):
            array[:] = number
        assert [array.size for array in found] == list(sizes)
        assert all((array == number).all() for number, array in enumerate(found))
        assert all(array.ctypes.data % 64 == 0 for array in found)


@pytest.mark.parametrize("size", [1 << 45, 1 << 62, 1 << 70])
def test_memory_that_is_not_there_is_no_other_error(size: int) -> None:
    with pytest.raises(MemoryError):
        Memory([size])
