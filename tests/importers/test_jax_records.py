"""Compares the primitives that docs/jax.md lists with the records; needs no JAX."""

from __future__ import annotations

import re
from pathlib import Path

import glenside as gl
from glenside.importers.jax.equation import meanings


def test_the_documents_list_the_primitives() -> None:
    text = (Path(gl.__file__).parent.parent / "docs" / "jax.md").read_text()
    listed = set(re.findall(r"`([\w-]+)`", text[text.index("have a meaning:") : text.index("All others")]))
    refused = {name for name in meanings() if name.startswith(("random_", "threefry"))}
    assert listed == set(meanings()) - refused - {"copy_p", "empty2"}
