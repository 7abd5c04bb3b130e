"""Tests that tiles stay in registers: no innermost loop of a compiled product spills a vector to the stack."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from slow_cases import quick

import glenside as gl
from glenside.codegen.emit_c.printer import source
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.find_compiler import compiler
from glenside.codegen.processor.model import MACHINES
from glenside.codegen.runtime.compile_and_load import flags
from glenside.ir.program import Program

_LINE = re.compile(r"^\s*([0-9a-f]+):\t(\S+)\s*([^#<]*)")
_JUMP = re.compile(r"^j[a-z]+$")
_VECTOR = re.compile(r"%[xyz]mm\d+")
_PRODUCT = re.compile(r"^v?(fn?madd|fmla|mul)[0-9a-z]*p[sd]$")

needs_objdump = pytest.mark.skipif(not shutil.which("objdump"), reason="there is no objdump")


@dataclass(frozen=True)
class Instruction:
    address: int
    name: str
    operands: str

    def touches_stack(self, frame: bool) -> bool:
        """True if it moves a vector from or to the stack, of which a function may have its own begin."""
        bases = r"\(%rsp|\(%rbp" if frame else r"\(%rsp"
        return bool(_VECTOR.search(self.operands) and re.search(bases, self.operands))


def _functions(text: str) -> Iterator[list[Instruction]]:
    for part in re.split(r"^[0-9a-f]+ <.*>:$", text, flags=re.MULTILINE)[1:]:
        found = [Instruction(int(m[1], 16), m[2], m[3].strip()) for m in map(_LINE.match, part.splitlines()) if m]
        if found:
            yield found


def _innermost(function: list[Instruction]) -> list[tuple[int, int]]:
    """Returns the addresses of loops that have no loop within."""
    jumps = [(i.address, i.operands.split()[0]) for i in function if _JUMP.match(i.name) and i.operands]
    loops = [(int(to, 16), at) for at, to in jumps if re.fullmatch("[0-9a-f]+", to) and int(to, 16) <= at]
    return [
        (first, last)
        for first, last in loops
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops)
    ]


def _loops(text: str) -> Iterator[tuple[list[Instruction], bool]]:
    """Yields the innermost loops of products of a disassembly, and whether their functions have a
    begin of the stack.
    """
    for function in _functions(text):
        frame = any(i.name == "mov" and i.operands == "%rsp,%rbp" for i in function)
        for first, last in _innermost(function):
            body = [i for i in function if first <= i.address <= last]
            if any(_PRODUCT.match(i.name) for i in body):
                yield body, frame


def spills(text: str) -> tuple[int, list[str]]:
    """Returns the number of innermost loops of products a disassembly has, and the vectors on the stack in them."""
    loops = list(_loops(text))
    found = [f"{i.address:x} {i.name} {i.operands}" for body, frame in loops for i in body if i.touches_stack(frame)]
    return len(loops), found


def addresses(text: str) -> list[str]:
    """What is done to general registers in innermost loops of products, but to count and to move on."""
    counts = re.compile(r"^(add|sub|inc|dec|cmp|test|lea|prefetch|j|nop|cs|data16|xchg)")
    within = [i for body, _ in _loops(text) for i in body if not _VECTOR.search(i.operands)]
    return [f"{i.address:x} {i.name} {i.operands}" for i in within if not counts.match(i.name) or "%rsp" in i.operands]


def _disassembled(program: Program, machine: str, folder: Path) -> str:
    of = MACHINES[machine]
    path, made = folder / "program.c", folder / "program.o"
    path.write_text(str(source(lower(program, of))))
    subprocess.run([*compiler(), *flags(of), "-c", str(path), "-o", str(made)], check=True, capture_output=True)
    done = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(made)], check=True, capture_output=True, text=True
    )
    return done.stdout


def _convolution(channels: int, filters: int, size: int, window: int, stride: int) -> Program:
    b = gl.Builder("p")
    weight = b.constant("w", (filters, channels, window, window))
    x = b.conv(b.input("x", (1, channels, size, size)), weight, strides=stride, padding=window // 2)
    return b.finish(b.relu(b.add(x, b.constant("b", (1, filters, 1, 1)))))


def _depthwise(channels: int, size: int, stride: int) -> Program:
    """As in a network: after a convolution, which chooses the layout of channels."""
    b = gl.Builder("p")
    x = b.relu(b.conv(b.input("x", (1, 8, size, size)), b.constant("v", (channels, 8, 1, 1))))
    x = b.conv(x, b.constant("w", (channels, 1, 3, 3)), strides=stride, padding=1, groups=channels)
    return b.finish(b.relu(b.add(x, b.constant("b", (1, channels, 1, 1)))))


def _product(rows: int, depth: int, columns: int) -> Program:
    b = gl.Builder("p")
    return b.finish(b.matmul(b.input("x", (rows, depth)), b.constant("w", (depth, columns))))


PROGRAMS = {
    "first": _convolution(3, 32, 64, 3, 2),
    "3x3": _convolution(64, 96, 28, 3, 1),
    "3x3-small": _convolution(128, 128, 7, 3, 1),
    "5x5-stride": _convolution(32, 48, 28, 5, 2),
    "1x1": _convolution(128, 256, 14, 1, 1),
    "1x1-odd": _convolution(24, 43, 13, 1, 1),
    "depthwise": _depthwise(64, 28, 1),
    "depthwise-stride": _depthwise(64, 28, 2),
    "matmul": _product(128, 256, 384),
    "matmul-odd": _product(37, 65, 101),
}


KNOWN = {
    ("3x3", "avx512"): 8,
    ("3x3-small", "avx512"): 2,
    ("5x5-stride", "avx2"): 7,
}
"""Moves to the stack and back, at most, by GCC 12: what the next step of a window reads."""


@pytest.mark.needs_compiler
@needs_objdump
@pytest.mark.parametrize("machine", ["avx512", pytest.param("avx2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", quick(PROGRAMS, 2, 3, 7, 9))
def test_no_vector_is_on_the_stack(name: str, machine: str, tmp_path: Path) -> None:
    count, found = spills(_disassembled(PROGRAMS[name], machine, tmp_path))
    assert count, "there are loops of products"
    assert len(found) <= KNOWN.get((name, machine), 0), found


@pytest.mark.needs_compiler
@needs_objdump
@pytest.mark.parametrize("name", quick(["3x3", "1x1", "depthwise", "matmul"], 2, 3))
def test_rows_are_at_constants_from_a_pointer(name: str, tmp_path: Path) -> None:
    assert addresses(_disassembled(PROGRAMS[name], "avx512", tmp_path)) == []


def test_addresses_on_the_stack_are_seen() -> None:
    lines = (
        "0000000000000000 <nest1>:",
        "  10:\tmov    0x40(%rsp),%rdx",
        "  16:\tvfmadd231ps (%rdx,%rcx,1){1to16},%zmm1,%zmm2",
        "  1c:\tadd    $0x4,%rcx",
        "  20:\tjne    10 <nest1+0x10>",
    )
    assert addresses("\n".join(lines)) == ["10 mov 0x40(%rsp),%rdx"]
    assert addresses("\n".join(line for line in lines if " 10:" not in line).replace("jne    10", "jne    16")) == []


def test_spills_are_seen() -> None:
    lines = (
        "0000000000000000 <nest1>:",
        "   0:\tpush   %rbp",
        "   1:\tmov    %rsp,%rbp",
        "   4:\tvmovups %zmm3,-0x50(%rbp)",
        "  10:\tvmovups (%rdi),%zmm1",
        "  16:\tvfmadd231ps (%rsi){1to16},%zmm1,%zmm2",
        "  1c:\tvmovups -0x50(%rbp),%zmm3",
        "  20:\tjne    10 <nest1+0x10>",
        "  22:\tjmp    4 <nest1+0x4>",
    )
    assert spills("\n".join(lines)) == (1, ["1c vmovups -0x50(%rbp),%zmm3"])
    assert spills("\n".join(line for line in lines if " 1c:" not in line)) == (1, [])
