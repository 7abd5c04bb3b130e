"""Draws changes of ONNX models: of fields of their messages, and of bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import inf, nan
from typing import Any

import onnx

INTEGERS = (0, 1, -1, 2, 3, 4, 7, 8, 16, 31, 64, -2, -3, 1000, 2**31 - 1, 2**31, -(2**31), 2**40, 2**60)
EXTREMES = (2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-30, 1e30, inf, -inf, nan)
TEXTS = ("", "x", "linear", "CRD", "SAME_UPPER", "reverse", "ij,jk->ik", "a\nb", "\u00e9", "#", "1.5", "a" * 200)
FAVOURED = ("NodeProto", "AttributeProto", "TensorProto", "GraphProto", "FunctionProto", "TypeProto", "Dimension")


def changed(model: onnx.ModelProto, pick: random.Random) -> bytes:
    """Returns the bytes of a model after a few changes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(pick.choice((0, 1, 1, 1, 2, 3, 5))):
        _change_field(copy, pick)
    data = bytearray(copy.SerializeToString())
    if pick.random() < 0.15:
        for _ in range(pick.choice((1, 1, 2, 8))):
            _change_bytes(data, pick)
    return bytes(data)


def _change_bytes(data: bytearray, pick: random.Random) -> None:
    at = pick.randrange(len(data) + 1)
    kind = pick.randrange(4)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << pick.randrange(8)
    elif kind == 1:
        del data[at : at + pick.choice((1, 2, 10, 100))]
    elif kind == 2:
        data[at:at] = bytes(pick.randrange(256) for _ in range(pick.choice((1, 2, 10))))
    else:
        del data[at:]


def _messages(root: Any) -> Iterator[Any]:
    stack = [root]
    while stack:
        message = stack.pop()
        yield message
        for field_, value in message.ListFields():
            if field_.type == field_.TYPE_MESSAGE:
                stack += [value] if hasattr(value, "ListFields") else list(value)


FAVOURED = ("NodeProto", "AttributeProto", "TensorProto", "GraphProto", "FunctionProto", "TypeProto", "Dimension")


def _change_field(model: onnx.ModelProto, pick: random.Random) -> None:
    messages = list(_messages(model))
    favoured = [m for m in messages if m.DESCRIPTOR.name in FAVOURED]
    message = pick.choice(favoured if favoured and pick.random() < 0.9 else messages)
    present = [f for f, _ in message.ListFields() if f.name != "doc_string"]
    everything = list(message.DESCRIPTOR.fields)
    chosen = pick.choice(present if present and pick.random() < 0.85 else everything)
    value = getattr(message, chosen.name)
    if hasattr(value, "append"):
        _change_list(value, chosen, messages, pick)
    elif chosen.type == chosen.TYPE_MESSAGE:
        like = [m for m in messages if m.DESCRIPTOR is chosen.message_type]
        if like and pick.random() < 0.6:
            value.CopyFrom(_copied(pick.choice(like)))
        else:
            message.ClearField(chosen.name)
    elif pick.random() < 0.1:
        message.ClearField(chosen.name)
    else:
        setattr(message, chosen.name, _scalar(chosen, value, messages, pick))


def _copied(message: Any) -> Any:
    """Returns a separate copy: protobuf does not copy a message into its own parts."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _change_list(values: Any, chosen: Any, messages: Sequence[Any], pick: random.Random) -> None:
    kind, count = pick.randrange(6), len(values)
    if count and kind == 0:
        del values[pick.randrange(count)]
    elif count > 1 and kind == 1:
        a, b = pick.sample(range(count), 2)
        if chosen.type == chosen.TYPE_MESSAGE:
            first = _copied(values[a])
            values[a].CopyFrom(values[b])
            values[b].CopyFrom(first)
        else:
            values[a], values[b] = values[b], values[a]
    elif chosen.type == chosen.TYPE_MESSAGE:
        like = [m for m in messages if m.DESCRIPTOR is chosen.message_type]
        if like:
            values.append(_copied(pick.choice(like)))
    elif count and kind < 4:
        at = pick.randrange(count)
        values[at] = _scalar(chosen, values[at], messages, pick)
    elif kind == 4:
        del values[:]
    else:
        values.append(_scalar(chosen, values[0] if count else None, messages, pick))


def _scalar(chosen: Any, value: Any, messages: Sequence[Any], pick: random.Random) -> Any:
    if chosen.type == chosen.TYPE_STRING:
        return _text(chosen.name, messages, pick)
    if chosen.type == chosen.TYPE_BYTES:
        return _bytes(value or b"", pick)
    if chosen.type in (chosen.TYPE_FLOAT, chosen.TYPE_DOUBLE):
        return pick.choice(FLOATS)
    if chosen.type == chosen.TYPE_ENUM:
        return pick.choice(list(chosen.enum_type.values_by_number))
    number = pick.choice((*INTEGERS, *EXTREMES, (value or 0) + 1, (value or 0) - 1, -(value or 0), (value or 0) * 2))
    low, bits = (0, 64) if chosen.type == chosen.TYPE_UINT64 else (-(2**63), 63)
    if chosen.type == chosen.TYPE_INT32:
        low, bits = -(2**31), 31
    return max(low, min(number, 2**bits - 1))


def _text(name: str, messages: Sequence[Any], pick: random.Random) -> str:
    if name == "op_type":
        return str(pick.choice(onnx.defs.get_all_schemas()).name)
    nodes = [m for m in messages if m.DESCRIPTOR.name == "NodeProto"]
    values = [value for node in nodes for value in (*node.input, *node.output)]
    names = [attribute.name for node in nodes for attribute in node.attribute]
    return str(pick.choice((*TEXTS, *values, *names)) if name != "name" else pick.choice((*TEXTS, *names)))


def _bytes(value: bytes, pick: random.Random) -> bytes:
    kind = pick.randrange(4)
    if kind == 0:
        return value[: pick.randrange(len(value) + 1)]
    if kind == 1:
        return pick.choice(TEXTS).encode()
    if kind == 2 and len(value) >= 8:
        at = pick.randrange(len(value) // 8) * 8
        return value[:at] + pick.choice((*INTEGERS, *EXTREMES)).to_bytes(8, "little", signed=True) + value[at + 8 :]
    return value + bytes(pick.randrange(256) for _ in range(pick.choice((1, 4, 8))))
