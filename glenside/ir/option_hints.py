"""Spells options for messages: flags on the command line, arguments of `gl.load` in Python."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from glenside.ir.names import shortened, spelled_name

_FEW = 3
"""The number of missing inputs that a message names."""
_SHORT = 8
"""The most elements of a value that a message suggests to write on the command line."""
_on_command_line = False


@contextmanager
def command_line() -> Iterator[None]:
    """Lets messages name command-line flags while a command runs."""
    global _on_command_line
    before, _on_command_line = _on_command_line, True
    try:
        yield
    finally:
        _on_command_line = before


def values(sizes: Mapping[str, int]) -> str:
    """Spells the option that gives values of inputs; `sizes` are their numbers of elements."""
    named = list(sizes)[:_FEW]
    if _on_command_line:
        words = [_option("--input", f"{shortened(n)}={'VALUE' if sizes[n] <= _SHORT else 'FILE.npy'}") for n in named]
        return " ".join([*words, *[".."] * (len(sizes) > _FEW)])
    words = [f"{_quoted(name)}: .." for name in named]
    return f"values={{{', '.join([*words, *['..'] * (len(sizes) > _FEW)])}}}"


def outputs(names: Sequence[str]) -> str:
    """Spells the option that selects tensors as results instead of the file's own."""
    if _on_command_line:
        return f"--outputs {shlex.quote(','.join(names))}"
    return f"outputs=[{', '.join(_quoted(name) for name in names)}]"


def dims(sizes: Mapping[str, int | tuple[int, int]]) -> str:
    """Spells the option that gives sizes of named dimensions, or ranges of them."""
    if _on_command_line:
        words = {n: f"{s[0]}..{s[1]}" if isinstance(s, tuple) else str(s) for n, s in sizes.items()}
        return " ".join(_option("--dim", f"{shortened(name)}={size}") for name, size in words.items())
    return f"dims={{{', '.join(f'{_quoted(name)}: {size}' for name, size in sizes.items())}}}"


def shapes(sizes: Mapping[str, Sequence[int]]) -> str:
    """Spells the option that gives whole shapes of inputs."""
    if _on_command_line:
        return " ".join(
            _option("--shape", f"{shortened(name)}={','.join(map(str, shape))}") for name, shape in sizes.items()
        )
    words = (f"{_quoted(name)}: [{', '.join(map(str, shape))}]" for name, shape in sizes.items())
    return f"shapes={{{', '.join(words)}}}"


def shape(name: str) -> str:
    """Spells the option that gives the shape of one tensor."""
    return f"--shapes or --shape {spelled_name(name)}=.." if _on_command_line else f"shapes={{{_quoted(name)}: ..}}"


def black_boxes() -> str:
    """Spells the option that keeps operators of unknown meaning as black boxes."""
    return "--allow-opaque" if _on_command_line else "allow_opaque=True"


def _option(flag: str, text: str) -> str:
    return f"{flag} {shlex.quote(text)}"


def _quoted(name: str) -> str:
    return shortened(name, True)
