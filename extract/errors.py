"""What can be wrong with a problem or a file: each message is one sentence."""

from __future__ import annotations

from collections.abc import Sequence


class ExtractionError(Exception):
    """A problem, a method or a file is not what is needed."""


class NoExtraction(ExtractionError):
    """Some root has no finite derivation: every way to build it needs itself, or a class without e-nodes."""

    def __init__(self, message: str, classes: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.classes = tuple(classes)

    def __reduce__(self) -> tuple[type[NoExtraction], tuple[str, tuple[int, ...]]]:
        return type(self), (str(self), self.classes)
