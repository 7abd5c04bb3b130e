"""Old names that still work for one version, and the sentence that names the new one."""

from __future__ import annotations

import warnings


class Renamed(DeprecationWarning):
    """An old name was used."""


def renamed(old: str, new: str, *, depth: int = 2) -> None:
    """Warn that `old` is now `new`, at the caller's caller."""
    warnings.warn(f"{old} is now {new}; the old name goes with the next version", Renamed, stacklevel=depth + 1)
