"""What a name of an ONNX graph stands for."""

from __future__ import annotations

from dataclasses import dataclass

from glenside.ir.term import Term


@dataclass(frozen=True)
class Items:
    """A sequence of ONNX: values whose number is known."""

    values: tuple[Value, ...]
    dtype: str = "float32"
    """Of its elements, which an empty sequence has too."""


Value = Term | Items | None
"""A tensor, ()(dims); a sequence; or nothing, for what is optional and not given."""
