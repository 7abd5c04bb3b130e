"""Prints programs as text and parses them back: one instruction per line, DRAM in hexadecimal.

    npu 2
    machine {"rows": 4, ..}
    dram 4096
    input "x" {"address": 0, "shape": [1, 4], "dtype": "int8"}
    stretch {"name": "conv1", "begin": {"dma": 0, ..}, "end": {"dma": 7, ..}, ..}
    weights dram=64 weights=0 rows=4
    stream counts=16,1,1 lanes=0+1,0,0 table=0 accumulators=0+1,0,0 accumulate=0 fresh=1 turn=0+0,0,0 wait=dma:3
    bytes 64 00ff07..

Instructions of one unit are in execution order; the order between units has no meaning. A ; begins a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glenside.ir.errors import BadInput, GlensideError, Place
from glenside.npu.isa.base import Instruction
from glenside.npu.isa.fields import LOOPS, UNITS, Address, Form, Kind, Wait
from glenside.npu.isa.table import INSTRUCTIONS
from glenside.npu.program.header import choices_of, header, host_of, machine_of, places_of, predicted_of, stretches_of
from glenside.npu.program.program import NpuProgram

_FIRST_LINE, _OLD_FIRST_LINE = "npu 2", "npu 1"
_KINDS = {kind.mnemonic(): kind for kind in INSTRUCTIONS}
_BYTES_PER_LINE = 32
"""Bytes of DRAM per line."""
_MOST_DRAM = 1 << 32


def text(program: NpuProgram) -> str:
    """Prints a program as text."""
    head = header(program)
    lines = [_FIRST_LINE, f"machine {json.dumps(head['machine'])}", f"dram {len(program.dram)}"]
    lines += [f"predicted {program.predicted}"] if program.predicted is not None else []
    lines += [f"choices {json.dumps(head['choices'])}"] if program.choices is not None else []
    lines += [f"host {json.dumps(head['host'])}"] if program.host is not None else []
    for word, places in (("input", head["inputs"]), ("output", head["outputs"])):
        lines += [f"{word} {json.dumps(name)} {json.dumps(place)}" for name, place in places.items()]
    lines += [f"stretch {json.dumps(stretch)}" for stretch in head["stretches"]]
    for unit in UNITS:
        if program.queue(unit):
            lines += ["", f"; {unit}"]
        lines += [line(own) for own in program.queue(unit)]
    return "\n".join([*lines, "", *_bytes(program), ""])


def line(own: Instruction) -> str:
    """Prints an instruction as text."""
    fields = (f"{name}={_value(kind, getattr(own, name))}" for name, kind in own.kinds().items() if name != "wait")
    waits = ",".join(f"{unit}:{n}" for unit, n in zip(UNITS, own.wait, strict=True) if n)
    return " ".join([own.mnemonic(), *fields, *([f"wait={waits}"] if waits else [])])


def _value(kind: Kind, value: Any) -> str:
    numbers = kind.numbers(value)
    if kind.form is Form.ADDRESS:
        return f"{numbers[0]}+{','.join(map(str, numbers[1:]))}"
    return ",".join(map(str, numbers))


def _bytes(program: NpuProgram) -> Iterator[str]:
    """Yields the lines of DRAM that are not all zero."""
    found = program.dram.tobytes()
    for at in range(0, len(found), _BYTES_PER_LINE):
        part = found[at : at + _BYTES_PER_LINE]
        if any(part):
            yield f"bytes {at} {part.hex()}"


def parse(content: str, file: str = "<text>") -> NpuProgram:
    """Parses a program. Raises BadInput with the line."""
    reader = _Reader()
    lines = content.split("\n")
    if lines and lines[0].strip() == _OLD_FIRST_LINE:
        said = "it was written by Glenside 0.5 or before, which left out the steps of the host: make it again"
        raise BadInput(said, Place(file, 1, 1))
    if not lines or lines[0].strip() != _FIRST_LINE:
        raise BadInput(f"a program of an npu begins with {_FIRST_LINE!r}", Place(file, 1, 1))
    for number, whole in enumerate(lines[1:], 2):
        words = _code(whole).strip().split(None, 1)
        if words:
            try:
                reader.take(words[0], words[1] if len(words) > 1 else "")
            except (GlensideError, ValueError, KeyError, RecursionError) as error:
                said = error.message if isinstance(error, GlensideError) else f"{words[0]} is malformed"
                raise BadInput(said, Place(file, number, len(whole) - len(whole.lstrip()) + 1)) from None
    try:
        return reader.program()
    except BadInput as error:
        raise BadInput(f"{file}: {error.message}") from None


def _code(whole: str) -> str:
    """Strips the comment of a line; a ; within quotes does not begin a comment."""
    found = re.match(r'(?:[^";]|"(?:[^"\\]|\\.)*")*', whole)
    return found[0] if found else ""


@dataclass
class _Reader:
    head: dict[str, Any] = field(default_factory=dict)
    dram: bytearray | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    stretches: list[Any] = field(default_factory=list)
    queues: dict[str, list[Instruction]] = field(default_factory=lambda: {unit: [] for unit in UNITS})

    def take(self, word: str, rest: str) -> None:
        """Reads one line. Raises BadInput, ValueError and KeyError."""
        if word in _KINDS:
            own = _instruction(_KINDS[word], rest)
            self.queues[own.unit].append(own)
            return
        words: dict[str, Callable[[str], None]] = {
            "machine": lambda given: self._once(word, machine_of(json.loads(given))),
            "predicted": lambda given: self._once(word, _whole(given)),
            "choices": lambda given: self._once(word, json.loads(given)),
            "host": lambda given: self._once(word, json.loads(given)),
            "dram": self._sized,
            "input": lambda given: self._place(self.inputs, given),
            "output": lambda given: self._place(self.outputs, given),
            "stretch": lambda given: self.stretches.append(json.loads(given)),
            "bytes": self._filled,
        }
        if word not in words:
            raise BadInput(f"there is no {word}; there are {', '.join([*words, *_KINDS])}")
        words[word](rest)

    def _once(self, word: str, value: Any) -> None:
        if word in self.head:
            raise BadInput(f"{word} is said twice")
        self.head[word] = value

    def _sized(self, rest: str) -> None:
        size = _whole(rest)
        if self.dram is not None or size > _MOST_DRAM:
            raise BadInput(f"dram is said once, and has at most {_MOST_DRAM:,} bytes")
        self.dram = bytearray(size)

    def _filled(self, rest: str) -> None:
        at, content = rest.split()
        found, begin = bytes.fromhex(content), _whole(at)
        if self.dram is None or begin + len(found) > len(self.dram):
            raise BadInput("bytes are within DRAM, whose size is said before")
        self.dram[begin : begin + len(found)] = found

    @staticmethod
    def _place(places: dict[str, Any], rest: str) -> None:
        name, end = json.JSONDecoder().raw_decode(rest)
        if type(name) is not str or name in places:
            raise BadInput(f"a place has a name of its own, got {rest[:end]}")
        places[name] = json.loads(rest[end:])

    def program(self) -> NpuProgram:
        """Builds the program from the lines read. Raises BadInput."""
        if "machine" not in self.head or self.dram is None:
            raise BadInput("a program says its machine and the size of its dram")
        queues = {unit: tuple(own) for unit, own in self.queues.items()}
        return NpuProgram(
            self.head["machine"],
            queues,
            np.frombuffer(bytes(self.dram), np.uint8),
            places_of(self.inputs, len(self.dram)),
            places_of(self.outputs, len(self.dram)),
            stretches_of(self.stretches, {unit: len(own) for unit, own in queues.items()}, len(self.dram)),
            predicted_of(self.head.get("predicted")),
            choices_of(self.head.get("choices")),
            host_of(self.head.get("host"), len(self.dram)),
        )


def _whole(given: str) -> int:
    """Parses an unsigned integer. Raises ValueError."""
    if not re.fullmatch(r"[0-9]{1,15}", given.strip()):
        raise ValueError
    return int(given)


def _number(given: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,15}", given):
        raise ValueError
    return int(given)


def _instruction(kind: type[Instruction], rest: str) -> Instruction:
    pairs = [word.split("=", 1) for word in rest.split()]
    given = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    known = kind.kinds()
    wanted = set(known) - {"wait"}
    if len(given) != len(pairs) or not wanted <= set(given) or not set(given) <= set(known):
        raise BadInput(f"{kind.mnemonic()} has {', '.join(n for n in known if n != 'wait')}, and maybe wait, each once")
    values: dict[str, Any] = {}
    for name, content in given.items():
        try:
            values[name] = _read(known[name], content)
        except (ValueError, KeyError):
            raise BadInput(
                f"{name} of {kind.mnemonic()} is written {_EXAMPLES[known[name].form]}, got {content}"
            ) from None
    own = kind(**values)
    own.require_fit()
    return own


_EXAMPLES = {
    Form.NUMBER: "as a number",
    Form.FLAG: "0 or 1",
    Form.COUNTS: "16,1,1",
    Form.ADDRESS: "64+1,0,-8",
    Form.WAIT: "dma:3,store:1",
}


def _read(kind: Kind, content: str) -> Any:
    """Parses the value of a field. Raises ValueError and KeyError."""
    if kind.form is Form.WAIT:
        counts = dict(pair.split(":") for pair in content.split(","))
        if not counts.keys() <= set(UNITS):
            raise KeyError
        return Wait(**{unit: _whole(count) for unit, count in counts.items()})
    if kind.form is Form.ADDRESS:
        base, strides = content.split("+")
        found = tuple(map(_number, strides.split(",")))
        if len(found) != LOOPS:
            raise ValueError
        return Address(_whole(base), found)  # type: ignore[arg-type]
    numbers = tuple(map(_whole, content.split(",")))
    if len(numbers) != (LOOPS if kind.form is Form.COUNTS else 1) or (kind.form is Form.FLAG and numbers[0] > 1):
        raise ValueError
    return kind.value(numbers)
