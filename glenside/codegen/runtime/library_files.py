"""Prints a program as C files.

For one machine it is one file; for several, one file NAME_MACHINE.c for each, and NAME.c, which chooses the first that
the processor can run. Every public name has the prefix NAME_, so NAME may be any word, keywords included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from textwrap import indent

from glenside.codegen.emit_c.scalar_primitives import STORED_AS
from glenside.codegen.emit_c.translation_units import NOW
from glenside.codegen.loop_ir.ir import Buffer, Role
from glenside.codegen.processor.model import PLAIN, Machine
from glenside.codegen.runtime.compile_and_load import build_line, object_line
from glenside.codegen.runtime.compiled_function import MOST_THREADS, Lowered
from glenside.ir.types import TupleType

LINE = 64
"""Bytes of a cache line, and of the header of weights."""


@dataclass(frozen=True)
class Part:
    """A program for one machine: its C name, and its bytes in the file of weights.

    begin    offset of its bytes in the file
    content  its bytes: header and constants
    places   offset of each constant in its bytes
    last     True if its bytes end the file
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


def machine_name(machine: Machine | None) -> str:
    """Returns the name of a machine."""
    return PLAIN if machine is None else machine.name


def file_names(name: str, machines: Sequence[Machine | None]) -> list[str]:
    """Returns the names of the C files of a program, the main one first."""
    parts = [f"{name}_{machine_name(machine)}.c" for machine in machines] if len(machines) > 1 else []
    return [f"{name}.c", *parts]


def build_lines(lowered: Sequence[Lowered], name: str) -> Iterator[str]:
    """Yields the commands by which a user compiles the files, all in one folder."""
    first, *others = file_names(name, [one.machine for one in lowered])
    if not others:
        yield build_line(first, lowered[0].machine)
        return
    for one, path in zip(lowered, others, strict=True):
        yield object_line(path, one.machine)
    yield build_line(" ".join([first, *(path.removesuffix("c") + "o" for path in others)]), None)


def texts(parts: Sequence[Part], name: str) -> dict[str, str]:
    """Returns the texts of the C files and the header, by file name."""
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
    found = {main: "\n".join([said, *_choice(parts, name), *end]), f"{name}.h": header}
    for path, part in zip(others, parts, strict=True):
        line = f"/* cc: {object_line(path, part.lowered.machine)} */"
        found[path] = "\n".join([line, *_unit(part, "\n".join(_declared(part.name, part.lowered)))])
    return found


def _declared(name: str, lowered: Lowered) -> Iterator[str]:
    """Yields the declarations of a part."""
    yield f"typedef struct {name}_program {name}_program;"
    yield f"{name}_program *{name}_open(const char *weights, int threads);"
    yield f"int {name}_run({name}_program *program, {_parameters(lowered)});"
    yield f"void {name}_close({name}_program *program);"
    yield f"const char *{name}_machine(const {name}_program *program);\n"


_HAS_MATRICES = """#ifdef __x86_64__
#include <cpuid.h>
/* Compilers do not ask for it: AMX-TILE and AMX-BF16. */
static int has_matrices(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1) && (d >> 22 & 1);
}
#endif
"""


def _of_matrices(machine: Machine | None) -> bool:
    return machine is not None and any(word.startswith("amx") for word in machine.needs)


def _choice(parts: Sequence[Part], name: str) -> Iterator[str]:
    """Yields the C that chooses the first part that the processor can run."""
    yield "#define _GNU_SOURCE\n#include <stdint.h>\n#include <stdlib.h>\n"
    yield f'#include "{name}.h"\n'
    for part in parts:
        yield from _declared(part.name, part.lowered)
    yield f"struct {name}_program {{ int part; void *program; }};\n"
    if any(_of_matrices(part.lowered.machine) for part in parts):
        yield _HAS_MATRICES
    yield "/* The first part that this processor runs, counted from 1; 0 for none. */\nstatic int chosen(void)\n{"
    family = next((p.lowered.machine.family for p in parts if p.lowered.machine and p.lowered.machine.family), "")
    if family == "x86_64":
        yield "#ifdef __x86_64__\n    __builtin_cpu_init();"
    elif family:
        yield f"#ifdef __{family}__"
    asked = [(n, p.lowered.machine) for n, p in enumerate(parts, 1)]
    for number, machine in asked:
        if machine is not None and machine.family:
            words = [word for word in machine.needs if not word.startswith("amx")] if family == "x86_64" else []
            asks = [f'__builtin_cpu_supports("{word.replace("_", "")}")' for word in words]
            asks += ["has_matrices()"] if _of_matrices(machine) else []
            yield f"    if ({' && '.join(asks) or '1'}) return {number};"
    yield from ["#endif"] if family else []
    yield f"    return {next((n for n, machine in asked if machine is None or not machine.family), 0)};\n}}\n"
    arguments = ", ".join(["part", *_arguments(parts[0].lowered)])
    yield f"{name}_program *{name}_open(const char *weights, int threads)\n{{"
    yield f"    {name}_program *program = calloc(1, sizeof *program);\n    if (!program) return 0;"
    yield "    program->part = chosen();\n    switch (program->part) {"
    yield from (
        f"    case {n}: program->program = {p.name}_open(weights, threads); break;" for n, p in enumerate(parts, 1)
    )
    yield "    }\n    if (program->program) return program;\n    free(program);\n    return 0;\n}\n"
    yield f"int {name}_run({name}_program *program, {_parameters(parts[0].lowered)})\n{{"
    yield "    if (!program) return -2;\n    void *part = program->program;\n    switch (program->part) {"
    yield from (f"    case {n}: return {p.name}_run({arguments});" for n, p in enumerate(parts, 1))
    yield "    }\n    return -1;\n}\n"
    yield f"void {name}_close({name}_program *program)\n{{\n    if (!program) return;\n    switch (program->part) {{"
    yield from (f"    case {n}: {p.name}_close(program->program); break;" for n, p in enumerate(parts, 1))
    yield "    }\n    free(program);\n}\n"
    yield f"const char *{name}_machine(const {name}_program *program)\n{{\n    switch (program->part) {{"
    yield from (f"    case {n}: return {p.name}_machine(program->program);" for n, p in enumerate(parts, 1))
    yield '    }\n    return "";\n}\n'


def _parameters(lowered: Lowered) -> str:
    inputs = [f"const {STORED_AS[b.dtype]} *{_parameter('x', i)}" for i, b in enumerate(lowered.inputs)]
    results = [f"{STORED_AS[b.dtype]} *{_parameter('y', i)}" for i, b in enumerate(lowered.results)]
    return ", ".join([*inputs, *results])


def _buffers(lowered: Lowered) -> list[Buffer]:
    return [*lowered.inputs, *lowered.results]


def _arguments(lowered: Lowered) -> list[str]:
    inputs = [_parameter("x", place) for place in range(len(lowered.inputs))]
    return [*inputs, *(_parameter("y", place) for place in range(len(lowered.results)))]


def _parameter(letter: str, place: int) -> str:
    return f"{letter}{place + 1}"


def _result_names(lowered: Lowered) -> list[str]:
    """Returns the name of each result array; those of a nested tuple are NAME_0, NAME_1 .."""
    kind, names = lowered.type, lowered.program.result_names()
    stack = [*zip(names, kind.items if isinstance(kind, TupleType) else (kind,), strict=True)][::-1]
    found = []
    while stack:
        name, own = stack.pop()
        if isinstance(own, TupleType):
            stack += reversed([(f"{name}_{i}", item) for i, item in enumerate(own.items)])
        else:
            found.append(name)
    return found


def _said(buffer: Buffer, name: str) -> str:
    shown = re.sub("[^ -~]|[*]/", "?", name)
    return f"{shown}, ({' '.join(map(str, buffer.dims))}) {buffer.dtype}"


def _header(lowered: Lowered, name: str) -> Iterator[str]:
    guard = f"GLENSIDE_{name.upper()}_H"
    yield f"#ifndef {guard}\n#define {guard}\n#include <stdint.h>\n"
    yield f"/* {re.sub('[^ -~]|[*]/', '?', lowered.loops.name)}, made by Glenside. Arrays are in C order."
    for i, buffer in enumerate(lowered.inputs):
        yield f"   {_parameter('x', i)}: {_said(buffer, buffer.name)}"
    results = [*zip(_result_names(lowered), lowered.loops.results, strict=True)]
    for i, buffer in enumerate(lowered.results):
        names = [name for name, result in results if result == buffer]
        yield f"   {_parameter('y', i)}: {_said(buffer, ' and '.join(names))}"
    yield "*/"
    yield '#ifdef __cplusplus\nextern "C" {\n#endif'
    yield f"typedef struct {name}_program {name}_program;\n"
    yield f"/* The program with the weights of a file, {name}.weights, on up to {MOST_THREADS} threads; 0 where it is"
    yield "   another one, or memory or threads do not suffice. One program runs once at a time; there may be many. */"
    yield f"{name}_program *{name}_open(const char *weights, int threads);\n"
    yield "/* 0; -1 where memory does not suffice; -2 where a pointer is 0; above 0 where an index that was given lies"
    yield "   outside of its axis. */"
    yield f"int {name}_run({name}_program *program, {_parameters(lowered)});\n"
    yield f"void {name}_close({name}_program *program);"
    yield "/* Which of the machines it was compiled for runs it. */"
    yield f"const char *{name}_machine(const {name}_program *program);"
    yield "#ifdef __cplusplus\n}\n#endif\n#endif"


def _unit(part: Part, declared: str) -> Iterator[str]:
    """Yields the C of a part: only its functions are public."""
    lowered, name = part.lowered, part.name
    yield "#define PUBLIC static"
    yield lowered.source
    yield f"#include <stdio.h>\n#ifdef __linux__\n#include <sys/mman.h>\n#endif\n{declared}"
    yield f"struct {name}_program {{ unsigned char *weights, *arena; void *threads; }};\n"
    yield f"static const unsigned char {name}_head[{LINE}] = {{{', '.join(map(str, part.content[:LINE]))}}};\n"
    yield _OPEN.substitute(
        NAME=name,
        LINE=LINE,
        MACHINE=part.machine,
        LAST="fgetc(file) == EOF && " if part.last else "",
        WEIGHTS=len(part.content),
        ARENA=lowered.arena.size + LINE,
        SCRATCH=lowered.arena.scratch,
        BEGIN=part.begin,
        MOST_THREADS=MOST_THREADS,
    )
    given = []
    for buffer in lowered.loops.buffers:
        if buffer.role is Role.INPUT:
            given.append(_parameter("x", lowered.inputs.index(buffer)))
        elif buffer.role is Role.CONSTANT:
            given.append(f"program->weights + {part.places[buffer]}")
    results = [_parameter("y", lowered.results.index(b)) for b in lowered.loops.buffers if b.role is Role.RESULT]
    yield f"int {name}_run({name}_program *program, {_parameters(lowered)})\n{{"
    asked = [n for n, b in zip(_arguments(lowered), _buffers(lowered), strict=True) if b.dims.product()]
    yield f"    if ({' || '.join(f'!{pointer}' for pointer in ('program', *asked))}) return -2;"
    yield f"    const void *given[] = {{{', '.join(given) or '0'}}};"
    yield f"    void *results[] = {{{', '.join(results)}}};"
    yield "    return run(given, results, program->arena, program->threads, 0);\n}\n"


def _main(lowered: Lowered, name: str) -> str:
    buffers, names = _buffers(lowered), _arguments(lowered)
    arrays = [f"calloc({max(1, b.dims.product())}, sizeof({STORED_AS[b.dtype]}))" for b in buffers]
    made = "\n".join(f"{STORED_AS[b.dtype]} *{n} = {a};" for b, n, a in zip(buffers, names, arrays, strict=True))
    return (
        "int main(int count, char **words)\n{\n"
        f'    const char *weights = count > 1 ? words[1] : "{name}.weights";\n'
        f"    {name}_program *program = {name}_open(weights, count > 2 ? atoi(words[2]) : 1);\n"
        '    if (!program) { fprintf(stderr, "no weights\\n"); return 2; }\n'
        f"{indent(made, '    ')}\n"
        f"    if ({' || '.join('!' + n for n in names)}) return 2;\n"
        "    double best = 1e9;\n"
        "    for (int i = 0; i < 20; i++) {\n"
        "        double begin = now(0);\n"
        f"        int status = {name}_run(program, {', '.join(names)});\n"
        "        if (status) return 1;\n"
        "        if (now(0) - begin < best) best = now(0) - begin;\n"
        "    }\n"
        '    printf("%.3f ms\\n", 1e3 * best);\n'
        + "".join(f"    free({n});\n" for n in names)
        + f"    {name}_close(program);\n    return 0;\n}}"
    )


def reader(lowered: Lowered, name: str, programs: Sequence[str]) -> str:
    """Returns a C `main` that runs programs of one header, each under its own name, on arrays of a file.

    Arguments: WEIGHTS GIVEN RESULTS THREADS; results are written to file RESULTS. The exit status is NO_MEMORY if
    memory does not suffice.
    """
    arguments, others = _arguments(lowered), [own for own in programs if own != name]
    sizes = [f"(size_t){b.dims.product()} * sizeof({STORED_AS[b.dtype]})" for b in _buffers(lowered)]
    lines = [f'#include <errno.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include "{name}.h"']
    lines += [line for own in others for line in _declared(own, lowered)]
    lines += ["int main(int count, char **words)", "{", "    if (count != 5) return 1;"]
    lines += [
        '    FILE *given = fopen(words[2], "rb"), *made = fopen(words[3], "wb");',
        "    if (!given || !made) return 1;",
    ]
    for i, (argument, buffer, size) in enumerate(zip(arguments, _buffers(lowered), sizes, strict=True)):
        lines.append(f"    {STORED_AS[buffer.dtype]} *{argument} = malloc({size} + 1);")
        lines.append(f"    if (!{argument}) return {NO_MEMORY};")
        if i < len(lowered.inputs):
            lines.append(f"    if (fread({argument}, 1, {size}, given) != {size}) return 1;")
    for own in programs:
        lines += [f"    errno = 0;\n    {own}_program *{own}_own = {own}_open(words[1], atoi(words[4]));"]
        lines += [f"    if (!{own}_own && errno == ENOMEM) return {NO_MEMORY};"]
        lines += [f'    if (!{own}_own) {{ fputs("{own}_open refuses its weights", stderr); return 2; }}']
        made = [*zip(arguments, sizes, strict=True)][len(lowered.inputs) :]
        lines += [f"    memset({argument}, 0xA5, {size});" for argument, size in made]
        lines += [f"    int {own}_status = {own}_run({', '.join([f'{own}_own', *arguments])});"]
        lines += [f"    if ({own}_status == -1) return {NO_MEMORY};"]
        lines += [f'    if ({own}_status) {{ fprintf(stderr, "{own}_run gives %d", {own}_status); return 2; }}']
        lines += [f"    if (fwrite({argument}, 1, {size}, made) != {size}) return 1;" for argument, size in made]
        lines += [f"    {own}_close({own}_own);"]
    return "\n".join([*lines, "    return fclose(made) ? 1 : 0;", "}\n"])


NO_MEMORY = 3
"""Exit status of a `reader` if memory does not suffice."""

_OPEN = Template(r"""/* Memory in large pages where the system has them: fewer addresses are looked up then. */
static void *in_large_pages(size_t bytes)
{
    size_t page = bytes < 1u << 22 ? ${LINE} : 1u << 21;
    bytes = (bytes + page - 1) / page * page;
    void *memory = aligned_alloc(page, bytes);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (memory && page > ${LINE}) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

void ${NAME}_close(${NAME}_program *program)
{
    if (!program) return;
    if (program->threads) close_pool(program->threads);
    free(program->weights);
    free(program->arena);
    free(program);
}

${NAME}_program *${NAME}_open(const char *weights, int threads)
{
    ${NAME}_program *program = calloc(1, sizeof *program);
    FILE *file = weights ? fopen(weights, "rb") : 0;
    if (program && file && threads <= ${MOST_THREADS}) {
        program->weights = in_large_pages(${WEIGHTS});
        program->arena = in_large_pages(${ARENA} + (size_t)(threads > 1 ? threads : 1) * ${SCRATCH});
        int whole = program->weights && program->arena && !fseek(file, ${BEGIN}, SEEK_SET)
            && fread(program->weights, 1, ${WEIGHTS}, file) == ${WEIGHTS}
            && ${LAST}!memcmp(program->weights, ${NAME}_head, sizeof ${NAME}_head);
        if (whole && threads > 1) whole = (program->threads = open_pool(threads)) != 0;
        if (whole) { fclose(file); return program; }
    }
    if (file) fclose(file);
    ${NAME}_close(program);
    return 0;
}

const char *${NAME}_machine(const ${NAME}_program *program) { (void)program; return "${MACHINE}"; }
""")
