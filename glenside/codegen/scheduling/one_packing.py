"""Packs constants the same for few and for many rows, so that several programs share them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ONE_PACKING: ContextVar[bool] = ContextVar("one packing", default=False)


@contextmanager
def one_packing() -> Iterator[None]:
    """Packs constants meanwhile as for one row, so that programs of several numbers of rows share them."""
    token = _ONE_PACKING.set(True)
    try:
        yield
    finally:
        _ONE_PACKING.reset(token)


def has_one_packing() -> bool:
    """True if constants are packed as for one row."""
    return _ONE_PACKING.get()
