"""Builds programs by Python calls. Importers and built-in models use it; everything it builds is plain terms.

>>> b = Builder("one-layer") >>> x = b.input("x", (1, 3, 9, 7)) >>> w = b.constant("w", (4, 3, 3, 3)) >>> program =
b.finish(b.relu(b.conv(x, w, strides=2, padding=1, name="conv1")))
"""

import glenside.ir.operators  # noqa: F401  (fills the table that terms are built from)
from glenside.builder.builder import Builder

__all__ = ["Builder"]
