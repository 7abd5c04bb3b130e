"""Tests that equal terms are one object, whichever thread builds them first."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import glenside.ir.operators  # noqa: F401 (they are known then)
from glenside.ir.term import Term, build
from glenside.ir.types import Tensor

_THREADS, _TERMS = 4, 300


def test_threads_that_make_equal_terms_share_them() -> None:
    together = Barrier(_THREADS)

    def made(_: int) -> list[Term]:
        found = list[Term]()
        for number in range(_TERMS):
            together.wait()
            found.append(build("access-tensor", Tensor(f"of threads {number}", (number + 1,))))
        return found

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            first, *others = pool.map(made, range(_THREADS))
    finally:
        sys.setswitchinterval(before)
    assert all(own is term for each in others for own, term in zip(each, first, strict=True))
