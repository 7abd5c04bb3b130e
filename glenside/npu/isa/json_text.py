"""Writes the instruction set as JSON for other tools: the text of `rtl/npu_isa.json`."""

from __future__ import annotations

import json
from typing import Any

from glenside.npu.isa.base import Instruction
from glenside.npu.isa.effects import MEMORIES, Effect
from glenside.npu.isa.encoding import OPERATION, bits, layout, operations, words
from glenside.npu.isa.fields import UNITS
from glenside.npu.isa.host_registers import REGISTERS


def json_text() -> str:
    """Returns units, instructions, fields, bits, effects, memories and host registers as JSON."""
    registers = [
        {"name": own.name, "address": own.address, **({"stride": own.stride} if own.stride else {}), "doc": own.doc}
        for own in REGISTERS
    ]
    memories = [{"name": own.name, "location": own.word, "shared ports": own.ports} for own in MEMORIES]
    content = {"units": [_unit(unit) for unit in UNITS], "memories": memories, "registers": registers}
    return json.dumps(content, indent=1) + "\n"


def _unit(unit: str) -> dict[str, Any]:
    parts, begin = dict[str, tuple[int, int, bool]](), 0
    for part in layout(unit):
        parts[part.name] = begin, part.bits, part.signed
        begin += part.bits
    own = operations(unit).values()
    return {
        "name": unit,
        "bits": bits(unit),
        "words": words(unit),
        **({"operation": _place(parts[OPERATION])} if OPERATION in parts else {}),
        "instructions": [_instruction(kind, parts) for kind in own],
    }


def _place(part: tuple[int, int, bool]) -> dict[str, Any]:
    begin, size, signed = part
    return {"bit": begin, "bits": size, **({"signed": True} if signed else {})}


def _instruction(kind: type[Instruction], parts: dict[str, tuple[int, int, bool]]) -> dict[str, Any]:
    fields = [
        {
            "name": name,
            "form": own.form.value,
            "doc": own.doc,
            "parts": [{"name": part.name, **_place(parts[part.name])} for part in own.parts(name)],
        }
        for name, own in kind.kinds().items()
    ]
    found = {"mnemonic": kind.mnemonic(), "operation": kind.operation, "doc": " ".join((kind.__doc__ or "").split())}
    lock = kind.interlock
    if lock is not None:
        found["interlock"] = {
            "unit": lock.other,
            "event": lock.event,
            "event in a serial array": lock.serial,
            "lag": lock.lag,
            **({"when": lock.when} if lock.when else {}),
        }
    return {**found, "effects": [_effect(own) for own in kind.effects], "fields": fields}


def _effect(own: Effect) -> dict[str, Any]:
    optional = {"at": own.at, "count": own.count, "through table": own.through, "when": own.when, "every": own.every}
    return {
        own.verb: own.memory.name,
        "delay": str(own.delay),
        **{name: value for name, value in optional.items() if value},
        **({"skewed": True} if own.skewed else {}),
    }
