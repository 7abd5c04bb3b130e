"""A program as files: C, a header, and its weights, for programs in other languages and other machines.

For one machine it is one file of C; for several it is one for each, whose names are NAME_MACHINE, and NAME.c, which
takes the first of them that the processor runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import indent

import numpy as np

from glenside.codegen.c import NOW
from glenside.codegen.c_primitives import STORED_AS
from glenside.codegen.loops import Buffer, Role
from glenside.codegen.machine import PLAIN, Machine
from glenside.codegen.native import Lowered
from glenside.codegen.toolchain import build_line, object_line
from glenside.ir.errors import BadInput

_LINE = 64
_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while".split()
)
_NOBODY = "NAME_OF_NOBODY"


@dataclass(frozen=True)
class Library:
    """What belongs together: the texts of files, by their names, the bytes of NAME.weights, and how it is built."""

    texts: Mapping[str, str]
    weights: bytes
    build: tuple[str, ...]


@dataclass(frozen=True)
class _Part:
    """A program for one machine: what it is called in C, and the bytes that it reads, from a place in a file on.

    places  where in those bytes each constant begins
    last    whether nothing follows them
    """

    name: str
    lowered: Lowered
    begin: int
    content: bytes
    places: Mapping[Buffer, int]
    last: bool

    @property
    def machine(self) -> str:
        return machine_name(self.lowered.machine)


def c_name(text: str) -> str:
    """A name for what is in C. Raises BadInput where it is none."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,60}", text):
        raise BadInput(f"a name in C is letters, digits and _, got {text!r}")
    if text in _KEYWORDS:
        raise BadInput(f"a name in C is none of its own words, got {text!r}")
    return text


def machine_name(machine: Machine | None) -> str:
    """What a machine is called."""
    return PLAIN if machine is None else machine.name


def file_names(name: str, machines: Sequence[Machine | None]) -> list[str]:
    """The files of C that a program becomes, the main one first."""
    parts = [f"{name}_{machine_name(machine)}.c" for machine in machines] if len(machines) > 1 else []
    return [f"{name}.c", *parts]


def library(lowered: Sequence[Lowered], name: str) -> Library:
    """The files of a program for one machine, or for each of several. Raises BadInput for a name that is none in C."""
    c_name(name)
    parts = _parts(lowered, name)
    unnamed = [replace(part, name=part.name.replace(name, _NOBODY, 1)) for part in parts]
    texts = "".join(_texts(unnamed, _NOBODY).values())
    if re.search(rf"\b{name}\b", re.sub(r"/[*].*?[*]/", "", texts, flags=re.DOTALL)):
        raise BadInput(f"{name} is a name in what is written: give the file another one")
    return Library(_texts(parts, name), b"".join(part.content for part in parts), tuple(build_lines(lowered, name)))


def build_lines(lowered: Sequence[Lowered], name: str) -> Iterator[str]:
    """How a user compiles the files, all in one folder."""
    first, *others = file_names(name, [one.machine for one in lowered])
    if not others:
        yield build_line(first, lowered[0].machine)
        return
    for one, path in zip(lowered, others, strict=True):
        yield object_line(path, one.machine)
    yield build_line(" ".join([first, *(path.removesuffix("c") + "o" for path in others)]), None)


def _parts(lowered: Sequence[Lowered], name: str) -> list[_Part]:
    parts: list[_Part] = []
    for number, one in enumerate(lowered):
        own = name if len(lowered) == 1 else f"{name}_{machine_name(one.machine)}"
        begin = sum(len(part.content) for part in parts)
        parts.append(_Part(own, one, begin, *_content(one), last=number == len(lowered) - 1))
    return parts


def _content(lowered: Lowered) -> tuple[bytes, dict[Buffer, int]]:
    """What a part reads: a mark of what belongs together, then the constants, each from a line of the cache on."""
    found, places, end = [], {}, _LINE
    for buffer, array in lowered.constants.items():
        places[buffer] = end
        content = np.ascontiguousarray(array).tobytes()
        padding = -len(content) % _LINE
        found.append(content + bytes(padding))
        end += len(content) + padding
    body = b"".join(found)
    mark = hashlib.sha256(lowered.source.encode() + body).digest()[:32]
    return (b"glenside weights 1\n".ljust(32, b"\0") + mark).ljust(_LINE, b"\0") + body, places


def _texts(parts: Sequence[_Part], name: str) -> dict[str, str]:
    lowered = [part.lowered for part in parts]
    main, *others = file_names(name, [one.machine for one in lowered])
    build = "\n         ".join(build_lines(lowered, name))
    said = f"""/* cc: {build}
   With -D{name.upper()}_MAIN it is a program that runs itself on zeros, and says how long that takes. */"""
    end = [f"#ifdef {name.upper()}_MAIN", _main(lowered[0], name), "#endif\n"]
    header = "\n".join(_header(lowered[0], name)) + "\n"
    if not others:
        lines = [said, *_unit(parts[0], f'#include "{name}.h"\n'), *end]
        return {main: "\n".join(lines), f"{name}.h": header}
    end[1:1] = ["#include <stdio.h>\n#include <time.h>", NOW]
    texts = {main: "\n".join([said, *_choice(parts, name), *end]), f"{name}.h": header}
    for path, part in zip(others, parts, strict=True):
        line = f"/* cc: {object_line(path, part.lowered.machine)} */"
        texts[path] = "\n".join([line, *_unit(part, "\n".join(_declared(part)))])
    return texts


def _declared(part: _Part) -> Iterator[str]:
    """What a part gives to what chooses it."""
    name = part.name
    yield f"typedef struct {name} {name};"
    yield f"{name} *{name}_open(const char *weights, int threads);"
    yield f"int {name}_run({name} *program, {_parameters(part.lowered)});"
    yield f"void {name}_close({name} *program);"
    yield f"const char *{name}_machine(const {name} *program);\n"


def _choice(parts: Sequence[_Part], name: str) -> Iterator[str]:
    """What takes the first part that the processor runs."""
    yield "#define _GNU_SOURCE\n#include <stdint.h>\n#include <stdlib.h>\n"
    yield f'#include "{name}.h"\n'
    for part in parts:
        yield from _declared(part)
    yield f"struct {name} {{ int part; void *program; }};\n"
    yield "/* The first part that this processor runs, counted from 1; 0 for none. */\nstatic int chosen(void)\n{"
    family = next((p.lowered.machine.family for p in parts if p.lowered.machine and p.lowered.machine.family), "")
    if family == "x86_64":
        yield "#ifdef __x86_64__\n    __builtin_cpu_init();"
    elif family:
        yield f"#ifdef __{family}__"
    asked = [(n, p.lowered.machine) for n, p in enumerate(parts, 1)]
    for number, machine in asked:
        if machine is not None and machine.family:
            words = machine.needs if family == "x86_64" else ()
            condition = " && ".join(f'__builtin_cpu_supports("{word}")' for word in words) or "1"
            yield f"    if ({condition}) return {number};"
    yield from ["#endif"] if family else []
    yield f"    return {next((n for n, machine in asked if machine is None or not machine.family), 0)};\n}}\n"
    arguments = ", ".join(["part", *_arguments(parts[0].lowered)])
    yield f"{name} *{name}_open(const char *weights, int threads)\n{{"
    yield f"    {name} *program = calloc(1, sizeof *program);\n    if (!program) return 0;"
    yield "    program->part = chosen();\n    switch (program->part) {"
    yield from (
        f"    case {n}: program->program = {p.name}_open(weights, threads); break;" for n, p in enumerate(parts, 1)
    )
    yield "    }\n    if (program->program) return program;\n    free(program);\n    return 0;\n}\n"
    yield f"int {name}_run({name} *program, {_parameters(parts[0].lowered)})\n{{"
    yield "    void *part = program->program;\n    switch (program->part) {"
    yield from (f"    case {n}: return {p.name}_run({arguments});" for n, p in enumerate(parts, 1))
    yield "    }\n    return -1;\n}\n"
    yield f"void {name}_close({name} *program)\n{{\n    if (!program) return;\n    switch (program->part) {{"
    yield from (f"    case {n}: {p.name}_close(program->program); break;" for n, p in enumerate(parts, 1))
    yield "    }\n    free(program);\n}\n"
    yield f"const char *{name}_machine(const {name} *program)\n{{\n    switch (program->part) {{"
    yield from (f"    case {n}: return {p.name}_machine(program->program);" for n, p in enumerate(parts, 1))
    yield '    }\n    return "";\n}\n'


def _parameters(lowered: Lowered) -> str:
    inputs = [f"const {STORED_AS[b.dtype]} *{_parameter('x', i)}" for i, b in enumerate(lowered.inputs)]
    results = [f"{STORED_AS[b.dtype]} *{_parameter('y', i)}" for i, b in enumerate(lowered.results)]
    return ", ".join([*inputs, *results])


def _arguments(lowered: Lowered) -> list[str]:
    inputs = [_parameter("x", place) for place in range(len(lowered.inputs))]
    return [*inputs, *(_parameter("y", place) for place in range(len(lowered.results)))]


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
    yield "/* Which of the machines it was compiled for runs it. */"
    yield f"const char *{name}_machine(const {name} *program);"
    yield "#ifdef __cplusplus\n}\n#endif\n#endif"


def _unit(part: _Part, declared: str) -> Iterator[str]:
    """The functions of a part; nothing else of it is seen outside."""
    lowered, name = part.lowered, part.name
    yield "#define PUBLIC static"
    yield lowered.source
    yield f"#include <stdio.h>\n{declared}"
    yield f"struct {name} {{ unsigned char *weights, *arena; void *threads; }};\n"
    yield f"static const unsigned char {name}_head[{_LINE}] = {{{', '.join(map(str, part.content[:_LINE]))}}};\n"
    sizes = {"WEIGHTS": len(part.content), "ARENA": lowered.arena.size + _LINE, "BEGIN": part.begin}
    text = _OPEN.replace("LAST", "fgetc(file) == EOF && " if part.last else "").replace("MACHINE", part.machine)
    for word, size in sizes.items():
        text = text.replace(word, str(size))
    yield text.replace("NAME", name)
    given = []
    for buffer in lowered.loops.buffers:
        if buffer.role is Role.INPUT:
            given.append(_parameter("x", lowered.inputs.index(buffer)))
        elif buffer.role is Role.CONSTANT:
            given.append(f"program->weights + {part.places[buffer]}")
    results = [_parameter("y", lowered.results.index(b)) for b in lowered.loops.buffers if b.role is Role.RESULT]
    yield f"int {name}_run({name} *program, {_parameters(lowered)})\n{{"
    yield f"    const void *given[] = {{{', '.join(given) or '0'}}};"
    yield f"    void *results[] = {{{', '.join(results)}}};"
    yield "    return run(given, results, program->arena, program->threads, 0);\n}\n"


def _main(lowered: Lowered, name: str) -> str:
    buffers, names = [*lowered.inputs, *lowered.results], _arguments(lowered)
    arrays = [f"calloc({max(1, b.dims.product())}, sizeof({STORED_AS[b.dtype]}))" for b in buffers]
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
        int whole = program->weights && program->arena && !fseek(file, BEGIN, SEEK_SET)
            && fread(program->weights, 1, WEIGHTS, file) == WEIGHTS
            && LAST!memcmp(program->weights, NAME_head, sizeof NAME_head);
        if (whole && threads > 1) whole = (program->threads = open_pool(threads)) != 0;
        if (whole) { fclose(file); return program; }
    }
    if (file) fclose(file);
    NAME_close(program);
    return 0;
}

const char *NAME_machine(const NAME *program) { (void)program; return "MACHINE"; }
"""
