"""A program as files: C, a header, and its weights, for programs in other languages and other machines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import indent

import numpy as np

from glenside.codegen.c_primitives import STORED_AS
from glenside.codegen.loops import Buffer, Role
from glenside.codegen.native import Lowered
from glenside.codegen.toolchain import build_line
from glenside.ir.errors import BadInput

_LINE = 64
_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while".split()
)


@dataclass(frozen=True)
class Library:
    """The texts of NAME.c and NAME.h, and the bytes of NAME.weights, which belong together."""

    c: str
    header: str
    weights: bytes


def c_name(text: str) -> str:
    """A name for what is in C. Raises BadInput where it is none."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,60}", text):
        raise BadInput(f"a name in C is letters, digits and _, got {text!r}")
    if text in _KEYWORDS:
        raise BadInput(f"a name in C is none of its own words, got {text!r}")
    return text


def library(lowered: Lowered, name: str) -> Library:
    """The files of a program. Raises BadInput for a name that is none in C."""
    c_name(name)
    if re.search(rf"\b{name}\b", re.sub(r"/[*].*?[*]/", "", lowered.source, flags=re.DOTALL)):
        raise BadInput(f"{name} is a name in what is written: give the file another one")
    parts, places, end = [], {}, _LINE
    for buffer, array in lowered.constants.items():
        places[buffer] = end
        content = np.ascontiguousarray(array).tobytes()
        padding = -len(content) % _LINE
        parts.append(content + bytes(padding))
        end += len(content) + padding
    body = b"".join(parts)
    mark = hashlib.sha256(lowered.source.encode() + body).digest()[:32]
    head = (b"glenside weights 1\n".ljust(32, b"\0") + mark).ljust(_LINE, b"\0")
    text = "\n".join(_c(lowered, name, places, end, head))
    return Library(text, "\n".join(_header(lowered, name)) + "\n", head + body)


def _parameters(lowered: Lowered) -> str:
    inputs = [f"const {STORED_AS[b.dtype]} *{_parameter('x', i)}" for i, b in enumerate(lowered.inputs)]
    results = [f"{STORED_AS[b.dtype]} *{_parameter('y', i)}" for i, b in enumerate(lowered.results)]
    return ", ".join([*inputs, *results])


def _parameter(letter: str, place: int) -> str:
    return f"{letter}{place + 1}"


def _said(buffer: Buffer) -> str:
    shown = re.sub("[^ -~]|[*]/", "?", buffer.name)
    return f"{shown}, ({' '.join(map(str, buffer.dims))}) {buffer.dtype}"


def _header(lowered: Lowered, name: str) -> Iterator[str]:
    guard = f"{name.upper()}_H"
    yield f"#ifndef {guard}\n#define {guard}\n#include <stdint.h>\n"
    yield f"/* {re.sub('[^ -~]|[*]/', '?', lowered.loops.name)}, made by Glenside. Arrays are in C order."
    for i, buffer in enumerate(lowered.inputs):
        yield f"   {_parameter('x', i)}: {_said(buffer)}"
    for i, buffer in enumerate(lowered.results):
        yield f"   {_parameter('y', i)}: {_said(buffer)}"
    yield "*/"
    yield '#ifdef __cplusplus\nextern "C" {\n#endif'
    yield f"typedef struct {name} {name};\n"
    yield f"/* The program with the weights of a file, {name}.weights, on so many threads; 0 where the file is another"
    yield f"   one, or memory or threads do not suffice. One {name} runs once at a time; there may be many. */"
    yield f"{name} *{name}_open(const char *weights, int threads);\n"
    yield "/* 0; -1 where memory does not suffice; above 0 where an index that was given lies outside of its axis. */"
    yield f"int {name}_run({name} *program, {_parameters(lowered)});\n"
    yield f"void {name}_close({name} *program);"
    yield "#ifdef __cplusplus\n}\n#endif\n#endif"


def _c(lowered: Lowered, name: str, places: dict[Buffer, int], end: int, head: bytes) -> Iterator[str]:
    yield f"/* cc: {build_line(name, lowered.machine)}"
    yield f"   With -D{name.upper()}_MAIN it is a program that runs itself on zeros, and says how long that takes. */"
    yield "#define PUBLIC static"
    yield lowered.source
    yield f'#include <stdio.h>\n#include "{name}.h"\n'
    yield f"struct {name} {{ unsigned char *weights, *arena; void *threads; }};\n"
    yield f"static const unsigned char {name}_head[{_LINE}] = {{{', '.join(map(str, head))}}};\n"
    yield _OPEN.replace("NAME", name).replace("WEIGHTS", str(end)).replace("ARENA", str(lowered.arena.size + _LINE))
    given = []
    for buffer in lowered.loops.buffers:
        if buffer.role is Role.INPUT:
            given.append(_parameter("x", lowered.inputs.index(buffer)))
        elif buffer.role is Role.CONSTANT:
            given.append(f"program->weights + {places[buffer]}")
    results = [_parameter("y", lowered.results.index(b)) for b in lowered.loops.buffers if b.role is Role.RESULT]
    yield f"int {name}_run({name} *program, {_parameters(lowered)})\n{{"
    yield f"    const void *given[] = {{{', '.join(given) or '0'}}};"
    yield f"    void *results[] = {{{', '.join(results)}}};"
    yield "    return run(given, results, program->arena, program->threads, 0);\n}\n"
    yield f"#ifdef {name.upper()}_MAIN"
    yield _main(lowered, name)
    yield "#endif\n"


def _main(lowered: Lowered, name: str) -> str:
    buffers = [*lowered.inputs, *lowered.results]
    arrays = [f"calloc({max(1, b.dims.product())}, sizeof({STORED_AS[b.dtype]}))" for b in buffers]
    names = [
        *(_parameter("x", i) for i in range(len(lowered.inputs))),
        *(_parameter("y", i) for i in range(len(lowered.results))),
    ]
    made = "\n".join(f"{STORED_AS[b.dtype]} *{n} = {a};" for b, n, a in zip(buffers, names, arrays, strict=True))
    return (
        "int main(int count, char **words)\n{\n"
        f'    {name} *program = {name}_open(count > 1 ? words[1] : "{name}.weights", count > 2 ? atoi(words[2]) : 1);\n'
        '    if (!program) { fprintf(stderr, "no weights\\n"); return 2; }\n'
        f"{indent(made, '    ')}\n"
        f"    if ({' || '.join('!' + n for n in names)}) return 2;\n"
        "    double best = 1e9;\n"
        "    for (int i = 0; i < 20; i++) {\n"
        "        double begin = now();\n"
        f"        int status = {name}_run(program, {', '.join(names)});\n"
        "        if (status) return 1;\n"
        "        if (now() - begin < best) best = now() - begin;\n"
        "    }\n"
        '    printf("%.3f ms\\n", 1e3 * best);\n'
        + "".join(f"    free({n});\n" for n in names)
        + f"    {name}_close(program);\n    return 0;\n}}"
    )


_OPEN = r"""void NAME_close(NAME *program)
{
    if (!program) return;
    if (program->threads) close_pool(program->threads);
    free(program->weights);
    free(program->arena);
    free(program);
}

NAME *NAME_open(const char *weights, int threads)
{
    NAME *program = calloc(1, sizeof *program);
    FILE *file = fopen(weights, "rb");
    if (program && file) {
        program->weights = aligned_alloc(64, WEIGHTS);
        program->arena = aligned_alloc(64, ARENA);
        int whole = program->weights && program->arena && fread(program->weights, 1, WEIGHTS, file) == WEIGHTS
            && fgetc(file) == EOF && !memcmp(program->weights, NAME_head, sizeof NAME_head);
        if (whole && threads > 1) whole = (program->threads = open_pool(threads)) != 0;
        if (whole) { fclose(file); return program; }
    }
    if (file) fclose(file);
    NAME_close(program);
    return 0;
}
"""
